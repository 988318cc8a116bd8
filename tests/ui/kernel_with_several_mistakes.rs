//! All mistakes of a kernel are reported together, and none at its call sites.

use tilewright::prelude::*;

#[kernel]
fn several<T: Num, const BLOCK: usize>(x: Ptr<T>, out: PtrMut<T>, n: i32) {
    let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
    let wrong = missing + 1;
    // What depends on a mistake stays silent.
    let follows = wrong * 2;
    store(out + offsets, load(x + offsets) + 1, mask = offset < n);
    store(x + offsets, load(x + offsets), mask = follows < n);
}

fn main() -> Result<(), Error> {
    let device = Device::cpu();
    let x = device.upload(&[1.0f32])?;
    let mut out = device.zeros::<f32>(1)?;
    several::<_, 16>(&x, &mut out, 1).grid(1).launch(&device)
}
