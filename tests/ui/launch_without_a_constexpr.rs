use tilewright::prelude::*;

#[kernel]
pub fn add<T: Num, const BLOCK: usize>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>, n: i32) {
    let i = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = i < n;
    store(out + i, load(x + i, mask = mask) + load(y + i, mask = mask), mask = mask);
}

fn main() -> Result<(), Error> {
    let device = Device::cpu();
    let x = device.zeros::<f32>(8)?;
    let mut out = device.zeros::<f32>(8)?;
    AddConsts {}.call(&x, &x, &mut out, 8).grid(1).launch(&device)
}
