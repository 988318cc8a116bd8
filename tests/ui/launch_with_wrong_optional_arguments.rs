//! What stands for parameters that may be without an argument.

use tilewright::prelude::*;

#[kernel]
fn add<T: Num, const N: usize>(x: Ptr<T>, bias: Option<Ptr<T>>, scale: Option<f32>, out: PtrMut<T>) {
    let i = arange(0, N);
    let x = load(x + i);
    let x = if let Some(scale) = scale { x * scale as T } else { x };
    store(out + i, if let Some(bias) = bias { x + load(bias + i) } else { x });
}

#[kernel]
fn select_rows<T: Num, M: Int, const N: usize>(x: Ptr<T>, mask: Option<Ptr<M>>, #[in_place(out)] y: Ptr<T>, out: PtrMut<T>) {
    let i = arange(0, N);
    let keep = if let Some(mask) = mask { load(mask + i) != (0 as M) } else { full([N], true) };
    store(out + i, select(keep, load(x + i), load(y + i)));
}

fn main() -> tilewright::Result<()> {
    let device = Device::cpu();
    let (x, ints, mut out) = (device.zeros::<f32>(64)?, device.zeros::<i32>(64)?, device.zeros::<f32>(64)?);
    add::<_, 64>(&x, &x, None, &mut out).grid(1).launch(&device)?;
    add::<_, 64>(&x, Some(&ints), None, &mut out).grid(1).launch(&device)?;
    add::<_, 64>(&x, Some(x.slice(..)?), Some(2), &mut out).grid(1).launch(&device)?;
    select_rows::<_, u8, 64>(InPlace, None, &x, &mut out).grid(1).launch(&device)?;
    Ok(())
}
