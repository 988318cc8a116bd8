use tilewright::prelude::*;

#[kernel]
fn copy<const M: usize, const N: usize>(a: TensorDesc<f32, { [M, N] }>, c: TensorDescMut<f32, { [M, N] }>) {
    c.store([0, 0], a.load([0, 0]));
}

fn main() -> Result<(), Error> {
    let device = Device::cpu();
    let a = device.zeros::<f32>(64)?;
    let halves = device.zeros::<f16>(64)?;
    let mut c = device.zeros::<f32>(64)?;
    let tensor = TensorDesc::new(&a, [8, 8])?;
    let line = TensorDesc::new(&a, [64])?;
    let other = TensorDesc::new(&halves, [8, 8])?;
    let mut out = TensorDescMut::new(&mut c, [8, 8])?;
    copy::<8, 8>(&line, &mut out).grid(1).launch(&device)?;
    copy::<8, 8>(&other, &mut out).grid(1).launch(&device)?;
    copy::<8, 8>(&tensor, &out).grid(1).launch(&device)?;
    copy::<8, 8>(&a, &mut out).grid(1).launch(&device)?;
    copy::<8, 8>(&out, &mut out).grid(1).launch(&device)?;
    Ok(())
}
