//! Arguments by name: one is missing, one has another name, one another dtype, one is not borrowed exclusively.

use tilewright::prelude::*;

#[kernel]
fn scale<T: Num, const BLOCK: usize>(x: Ptr<T>, out: PtrMut<T>, by: T) {
    let i = arange(0, BLOCK);
    store(out + i, load(x + i) * by);
}

fn main() -> tilewright::Result<()> {
    let device = Device::cpu();
    let (x, mut out) = (device.zeros::<f32>(64)?, device.zeros::<f32>(64)?);
    let consts = ScaleConsts { BLOCK: 64 };
    ScaleArgs { x: &x, out: &mut out }.call(consts).grid(1).launch(&device)?;
    ScaleArgs { x: &x, y: &mut out, by: 2.0 }.call(consts).grid(1).launch(&device)?;
    ScaleArgs { x: &x, out: &mut out, by: 2i32 }.call(consts).grid(1).launch(&device)?;
    ScaleArgs { x: &x, out: &out, by: 2.0 }.call(consts).grid(1).launch(&device)?;
    Ok(())
}
