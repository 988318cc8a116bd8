//! A space has a method for each constexpr and option of its kernel, of its type.

use tilewright::prelude::*;
use tilewright::tune::Tuner;

#[kernel]
pub fn copy<const BLOCK: usize, const EVEN: bool>(x: Ptr<f32>, out: PtrMut<f32>, n: i32) {
    let i = program_id(0) * BLOCK + arange(0, BLOCK);
    store(out + i, load(x + i, mask = i < n), mask = (i < n) | EVEN);
}

fn main() -> Result<(), Error> {
    let _ = CopyConsts::space().BLOK([64, 128]);
    let _ = CopyConsts::space().BLOCK(["64"]);
    let _ = CopyConsts::space().BLOCK(64);
    let _ = CopyConsts::space().EVEN([0, 1]);
    let _ = CopyConsts::space().num_warps([4.0]);
    let _ = CopyConsts::space().num_stages(vec![3usize]);
    let _ = CopyConsts::space().where_(|config| config.BLOK > 64);
    let device = Device::cpu();
    let (x, mut out) = (device.zeros::<f32>(8)?, device.zeros::<f32>(8)?);
    // A call without a grid.
    Tuner::new(CopyConsts::space()).run(&device, |config, trial| trial.launch(config.call(&x, &mut out, 8)))?;
    Ok(())
}
