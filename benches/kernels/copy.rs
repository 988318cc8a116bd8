//! The roofline: the driver's copy from device memory to device memory.

use tilewright_bench::data::{Input, Output, Segment, Tolerance};
use tilewright_bench::shape::Vector;
use tilewright_bench::{Contender, Contest, Failure, How, Stage};

/// The sizes at which rates are drawn against size.
pub const SWEEP: [usize; 6] = [1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28];

pub fn contests(stage: &mut Stage) -> Result<(), Failure> {
    for vector in stage.vectors(SWEEP.to_vec()).into_iter().filter(|v| v.start == 0 && v.len % 16 == 0) {
        contest(stage, vector)?;
    }
    Ok(())
}

fn contest(stage: &mut Stage, Vector { len, start }: Vector) -> Result<(), Failure> {
    let device = stage.device();
    let x = Input::<f32>::normal(&device, 1, len, start)?;
    let exact = Tolerance { relative: 0.0, absolute: 0.0 };
    let out = Output::<f32>::new(&device, len, start, exact, vec![Segment { at: 0, values: x.read(0, 1000)? }])?;
    let mut copy = Contender { name: "copy", configs: Vec::new() };
    copy.config(String::new(), |how| match how {
        How::Launch(_) => Ok(out.lock().view()?.copy_from(&x.view()?)?),
        How::Compile(..) | How::Inspect(..) => Ok(()),
    });
    stage.hold(Contest {
        work: "copy",
        shape: len.to_string(),
        dtype: "f32",
        bytes: 8.0 * len as f64,
        flops: 0.0,
        outputs: vec![&out],
        contenders: vec![copy],
    })
}
