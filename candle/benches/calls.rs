//! What a call of an op costs the host on a GPU: candle's own ops, and the same of Tilewright.
//!
//! ```text
//! cargo bench --features cuda --bench calls
//! ```
//!
//! Tensors are small, so that the GPU is done before the host has made the next call. Calls are timed in batches, whose
//! results are dropped behind the clock. The stream is empty before each batch, and the two contenders take turns. Rows are
//! medians over the batches, in microseconds a call, with the quartiles of ours. What must hold is in the last row: ours costs
//! no more than candle's own op and a microsecond.
//!
//! candle's kernels are nvcc's: with a stand-in for it, as in `scripts/check-candle`, this builds, and does not run.

use candle_core::cuda_backend::WrapErr;
use candle_core::cuda_backend::cudarc::driver::sys;
use candle_core::{Device, Result, Var};
use std::hint::black_box;
use std::time::Instant;
use tilewright_candle::prelude::*;
use tilewright_candle::rows;

/// Calls per batch: fewer than the driver queues before it makes the host wait.
const BATCH: usize = 200;
/// Batches per contender.
const ROUNDS: usize = 101;
/// Rows and columns of the tensors.
const SHAPE: (usize, usize) = (4, 256);
/// How much more than candle's own op a call may cost, in microseconds.
const ALLOWED: f64 = 1.0;
/// The largest difference of two results of numbers of about 1: roundings of f32, and the fast functions of nvcc.
const DIFFERENCE: f32 = 1e-4;

/// y = -x
#[kernel]
fn negated_forward<T: Float, const BLOCK: usize>(x: Ptr<T>, y: PtrMut<T>, n: i64) {
    let offsets = program_id(0) as i64 * BLOCK + arange(0, BLOCK) as i64;
    let mask = offsets < n;
    store(y + offsets, -load(x + offsets, mask = mask), mask = mask);
}

/// z = x + y
#[kernel]
fn sum_forward<T: Float, const BLOCK: usize>(x: Ptr<T>, y: Ptr<T>, z: PtrMut<T>, n: i64) {
    let offsets = program_id(0) as i64 * BLOCK + arange(0, BLOCK) as i64;
    let mask = offsets < n;
    store(z + offsets, load(x + offsets, mask = mask) + load(y + offsets, mask = mask), mask = mask);
}

candle_op! {
    /// `-x`
    fn negated(x) -> (y: like(x)) {
        dispatch!(x => T in [f16, bf16, f32, f64] {
            let n = x.len();
            negated_forward::<T, 1024>(x.flat()?, y.flat_mut()?, n as i64).grid(n.div_ceil(1024)).launch(x.device())
        })
    }
    backward(dy) -> (x: dx) {
        dispatch!(x => T in [f16, bf16, f32, f64] {
            let n = x.len();
            negated_forward::<T, 1024>(dy.flat()?, dx.flat_mut()?, n as i64).grid(n.div_ceil(1024)).launch(x.device())
        })
    }
}

candle_op! {
    /// `x + y`
    fn sum(x, y) -> (z: like(x)) {
        dispatch!(x => T in [f16, bf16, f32, f64] {
            let (n, device) = (x.len(), x.device());
            sum_forward::<T, 1024>(x.flat()?, y.flat()?, z.flat_mut()?, n as i64).grid(n.div_ceil(1024)).launch(device)
        })
    }
}

/// A call of an op.
type Call<'a> = Box<dyn Fn() -> Result<Tensor> + 'a>;

/// An op of candle's, and the same of ours.
struct Pair<'a> {
    name: &'static str,
    candles: Call<'a>,
    ours: Call<'a>,
}

fn pair<'a>(
    name: &'static str,
    candles: impl Fn() -> Result<Tensor> + 'a,
    ours: impl Fn() -> Result<Tensor> + 'a,
) -> Pair<'a> {
    Pair { name, candles: Box::new(candles), ours: Box::new(ours) }
}

/// What the ops are given.
struct Inputs {
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    bias: Tensor,
    variable: Tensor,
}

impl Inputs {
    fn new(device: &Device) -> Result<Self> {
        let numbers = |count: usize| (0..count).map(|at| (at % 17) as f32 / 16.0 - 0.5).collect::<Vec<_>>();
        let x = Tensor::from_vec(numbers(SHAPE.0 * SHAPE.1), SHAPE, device)?;
        let row = |first: usize| Tensor::from_vec(numbers(first + SHAPE.1).split_off(first), SHAPE.1, device);
        let (weight, bias) = (row(3)?, row(5)?);
        Ok(Inputs { y: x.copy()?, variable: Var::from_tensor(&x)?.as_tensor().clone(), x, weight, bias })
    }

    fn pairs(&self) -> Vec<Pair<'_>> {
        let Inputs { x, y, weight, bias, variable } = self;
        const EPS: f64 = 1e-5;
        use candle_nn::ops;
        vec![
            pair("neg", || x.neg(), || negated(x)),
            pair("neg of a variable", || variable.neg(), || negated(variable)),
            pair("add", move || x + y, || sum(x, y)),
            pair("softmax", || ops::softmax_last_dim(x), || rows::softmax(x)),
            pair("rms_norm", || ops::rms_norm(x, weight, EPS as f32), || rows::rms_norm(x, weight, EPS)),
            pair(
                "layer_norm",
                || ops::layer_norm(x, weight, bias, EPS as f32),
                || rows::layer_norm(x, weight, bias, EPS),
            ),
        ]
    }
}

/// Lets the driver keep memory that is free: it would be mapped anew after each wait.
fn keep_memory(device: &Device) -> Result<()> {
    let (context, mut pool) = (device.as_cuda_device()?.cuda_stream().context().clone(), std::ptr::null_mut());
    let mut all = u64::MAX;
    let threshold = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    // SAFETY: the device exists, the pool has a place, and the attribute is a number of 64 bits.
    unsafe {
        sys::cuDeviceGetDefaultMemPool(&mut pool, context.cu_device()).result().w()?;
        sys::cuMemPoolSetAttribute(pool, threshold, (&raw mut all).cast()).result().w()
    }
}

/// Microseconds a call, in one batch on an empty stream.
fn batch(device: &Device, call: &Call<'_>) -> Result<f64> {
    let mut results = Vec::with_capacity(BATCH);
    device.synchronize()?;
    let start = Instant::now();
    for _ in 0..BATCH {
        results.push(black_box(call()?));
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / BATCH as f64)
}

/// The numbers in order, and of them that at a part of the way.
fn at(times: &mut [f64], part: f64) -> f64 {
    times.sort_by(f64::total_cmp);
    times[((times.len() - 1) as f64 * part).round() as usize]
}

/// Refuses to time what is not the same.
fn check(pair: &Pair<'_>) -> Result<()> {
    let difference = ((pair.candles)()?.detach() - (pair.ours)()?.detach())?.abs()?.max_all()?;
    let difference = difference.to_scalar::<f32>()?;
    if difference > DIFFERENCE {
        candle_core::bail!("{}: results differ by {difference}", pair.name);
    }
    Ok(())
}

/// Times all pairs on a device; whether each call of ours costs no more than it may.
fn compare(device: &Device, label: &str) -> Result<bool> {
    keep_memory(device)?;
    let inputs = Inputs::new(device)?;
    let mut holds = true;
    for pair in inputs.pairs() {
        check(&pair)?;
        let (mut candles, mut ours) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            // Whoever is first in one round is second in the next.
            if round % 2 == 0 {
                candles.push(batch(device, &pair.candles)?);
            }
            ours.push(batch(device, &pair.ours)?);
            if round % 2 == 1 {
                candles.push(batch(device, &pair.candles)?);
            }
        }
        let (own, median) = (at(&mut candles, 0.5), at(&mut ours, 0.5));
        let (low, high) = (at(&mut ours, 0.25), at(&mut ours, 0.75));
        let more = median - own;
        holds &= more <= ALLOWED;
        println!("{label},{},{own:.2},{median:.2},{low:.2},{high:.2},{more:+.2}", pair.name);
    }
    tilewright_candle::synchronize(device)?;
    Ok(holds)
}

fn main() -> Result<()> {
    let device = Device::new_cuda(0)?;
    println!(
        "# {}, {BATCH} calls a batch, {ROUNDS} batches, f32 {SHAPE:?}",
        tilewright_candle::device(&device)?.name()
    );
    println!("device,op,candle_us,ours_us,ours_low_us,ours_high_us,more_us");
    let tracked = compare(&device, "new_cuda")?;
    let device = Device::new_cuda_with_stream(0)?;
    // SAFETY: all tensors of this context are used on one stream.
    unsafe { device.as_cuda_device()?.disable_event_tracking() };
    let holds = compare(&device, "without events")? && tracked;
    println!("verdict,ours <= candle's own op + {ALLOWED} us,{}", if holds { "yes" } else { "no" });
    Ok(())
}
