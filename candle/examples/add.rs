//! Adds two vectors of candle's by a kernel, with a grid and a constexpr.

use candle_core::Device;
use tilewright_candle::prelude::*;

/// out[i] = x[i] + y[i]
#[kernel]
fn add_kernel<T: Num, const BLOCK: usize>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>, n: i64) {
    let offsets = program_id(0) as i64 * BLOCK + arange(0, BLOCK) as i64;
    let mask = offsets < n;
    store(out + offsets, load(x + offsets, mask = mask) + load(y + offsets, mask = mask), mask = mask);
}

candle_op! {
    /// `x + y`, which are contiguous and as long, by programs of `block` elements each.
    fn add(x, y; block: usize) -> (out: like(x)) {
        dispatch!(x => T in [f16, bf16, f32, i64] {
            let n = x.len();
            AddKernelConsts { BLOCK: block }
                .call(x.flat::<T>()?, y.flat::<T>()?, out.flat_mut::<T>()?, n as i64)
                .grid(n.div_ceil(block))
                .launch(x.device())
        })
    }
}

fn main() -> candle_core::Result<()> {
    let device = Device::cuda_if_available(0)?;
    let (x, y) = (Tensor::randn(0f32, 1.0, 98_432, &device)?, Tensor::randn(0f32, 1.0, 98_432, &device)?);
    let difference = (add(&x, &y, 1024)? - (&x + &y)?)?.abs()?.max(0)?.to_scalar::<f32>()?;
    println!("the largest difference to candle's sum of {} elements is {difference}", x.elem_count());
    assert_eq!(difference, 0.0);
    Ok(())
}

#[test]
fn the_sum_is_candles() {
    main().unwrap();
}
