//! What follows from a mistake stays silent, call sites too.

use tilewright::prelude::*;

#[kernel]
pub fn softmax<const BLOCK: usize>(x: Ptr<f32>, out: PtrMut<f32>, columns: i32) {
    let row = program_id(0);
    let column = arange(0, BLOCK);
    let mask = colum < columns;
    let values = load(x + row * columns + column, mask = mask, other = f32::NEG_INFINITY);
    let shifted = values - max(values, axis = 0);
    let (numerator, mut total) = (exp(shifted), 0.0);
    for i in 0..columns {
        total += numerator * i as f32;
    }
    store(out + row * columns + column, numerator / total, mask = mask);
}

fn main() -> Result<(), Error> {
    let device = Device::cpu();
    let x = device.zeros::<f32>(8)?;
    let mut out = device.zeros::<f32>(8)?;
    softmax::<8>(&x, &mut out, 8).grid(1).launch(&device)?;
    SoftmaxConsts { BLOCK: 8 }.call(&x, &mut out, 8).grid(1).launch(&device)
}
