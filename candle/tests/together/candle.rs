//! A library in which candle runs, for a process that has other frameworks, too.

use candle_core::{Device, Var};
use tilewright_candle::prelude::*;
use tilewright_candle::rows::softmax;

from_op! {
    fn silu(x: &Tensor) -> Tensor = tilewright_ffi_example::silu;
}

fn run(x: &[f32], y: &mut [f32], gradient: &mut [f32]) -> candle_core::Result<()> {
    let x = Var::new(x, &Device::cuda_if_available(0)?)?;
    let made = silu(&x)?;
    y.copy_from_slice(&made.to_vec1::<f32>()?);
    let gradients = made.sum_all()?.backward()?;
    let Some(made) = gradients.get(&x) else { candle_core::bail!("there is no gradient") };
    gradient.copy_from_slice(&made.to_vec1::<f32>()?);
    let sum = softmax(&x.detach())?.sum_all()?.to_scalar::<f32>()?;
    if (sum - 1.0).abs() < 1e-5 { Ok(()) } else { candle_core::bail!("the sum of a softmax is {sum}") }
}

/// `x * sigmoid(x)` by candle, with its gradient. Gives 0, or 1 where it fails.
///
/// # Safety
///
/// There are `n` numbers at each address; nobody else uses them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn candle_silu(x: *const f32, y: *mut f32, gradient: *mut f32, n: usize) -> i32 {
    // SAFETY: the caller's promise.
    let (x, y, gradient) = unsafe {
        (
            std::slice::from_raw_parts(x, n),
            std::slice::from_raw_parts_mut(y, n),
            std::slice::from_raw_parts_mut(gradient, n),
        )
    };
    match run(x, y, gradient) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("{error}");
            1
        }
    }
}
