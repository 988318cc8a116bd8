//! Sums of products: however they are written, the instructions that multiply add them up.

use tilewright::prelude::*;

/// A product of `M x K` and `K x N`, with the sum written in each way.
#[kernel]
fn product<const HOW: i32, const N: usize>(
    a: TensorDesc<f16, { [N, 64] }>,
    b: TensorDesc<f16, { [64, N] }>,
    out: PtrMut<f32>,
    k: i32,
) {
    let (row, column) = (program_id(0) * N, program_id(1) * N);
    let mut acc = zeros::<f32>([N, N]);
    for i in (0..k).step_by(64) {
        let (x, y) = (a.load([row, i]), b.load([i, column]));
        if HOW == 0 {
            acc = dot(x, y, acc = acc);
        } else if HOW == 1 {
            acc += dot(x, y);
        } else {
            acc = dot(x, y) + acc;
        }
    }
    let lane = arange(0, N);
    store(out + lane[(.., None)] * N + lane[(None, ..)], acc);
}

/// The same with sums that are scaled in each iteration, as attention does.
#[kernel]
fn scaled<const HOW: i32, const N: usize>(
    a: TensorDesc<f16, { [N, 64] }>,
    b: TensorDesc<f16, { [64, N] }>,
    out: PtrMut<f32>,
    k: i32,
) {
    let mut acc = zeros::<f32>([N, N]);
    let mut factor = 1.0f32;
    for i in (0..k).step_by(64) {
        let (x, y) = (a.load([0, i]), b.load([i, 0]));
        factor *= 0.5;
        if HOW == 0 {
            acc = dot(x, y, acc = acc * factor);
        } else {
            acc = acc * factor + dot(x, y);
        }
    }
    let lane = arange(0, N);
    store(out + lane[(.., None)] * N + lane[(None, ..)], acc);
}

/// The instructions, without the comments that name lines.
fn code(compiled: &tilewright::launch::CompiledKernel) -> Vec<&str> {
    compiled.ptx().lines().filter(|line| !line.trim_start().starts_with("//")).collect()
}

#[test]
fn sums_of_products_are_one_code_however_they_are_written() -> Result<(), Error> {
    let target = Target::sm_90a();
    let own = ProductConsts { HOW: 0, N: 128 }.compile(target)?;
    assert!(own.ptx().contains("wgmma.mma_async"));
    for how in [1, 2] {
        let other = ProductConsts { HOW: how, N: 128 }.compile(target)?;
        assert_eq!(code(&own), code(&other), "{how}");
    }
    let (own, other) =
        (ScaledConsts { HOW: 0, N: 128 }.compile(target)?, ScaledConsts { HOW: 1, N: 128 }.compile(target)?);
    assert_eq!(code(&own), code(&other));
    Ok(())
}
