//! Constexprs have types and names.

use tilewright::prelude::*;

#[kernel]
pub fn fill<T: Num, const BLOCK: usize, const ALL: bool>(out: PtrMut<T>, n: i32) {
    let i = arange(0, BLOCK);
    store(out + i, 1 as T, mask = (i < n) | ALL);
}

fn main() -> Result<(), Error> {
    let device = Device::cpu();
    let mut out = device.zeros::<f32>(8)?;
    fill::<f32, true, true>(&mut out, 8).grid(1).launch(&device)?;
    fill::<f32, 8, 1>(&mut out, 8).grid(1).launch(&device)?;
    fill::<f32, 8.0, true>(&mut out, 8).grid(1).launch(&device)?;
    FillConsts { BLOCK: 8i32, ALL: true }.call(&mut out, 8).grid(1).launch(&device)?;
    FillConsts { BLOK: 8, ALL: true }.call(&mut out, 8).grid(1).launch(&device)?;
    FillConsts { BLOCK: 8 }.call(&mut out, 8).grid(1).launch(&device)
}
