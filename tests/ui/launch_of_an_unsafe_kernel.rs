use tilewright::prelude::*;

#[kernel]
pub unsafe fn fill(out: PtrMut<f32>) {
    store(out + arange(0, 8), 1.0);
}

fn main() -> Result<(), Error> {
    let device = Device::cpu();
    let mut out = device.zeros::<f32>(8)?;
    fill(&mut out).grid(1).launch(&device)
}
