//! What the tests of all families share.

use std::fmt::Debug;
use tilewright::prelude::*;
use tilewright_kernels::{Context, Tensor, TensorViewMut};
use tilewright_tests::data::{bf16_from_f64, f16_from_f64};

/// A float that the host can compute with.
pub trait Real: Float {
    /// The largest relative error of rounding to this dtype.
    const ROUNDING: f64;
    /// The largest relative error of one operation in the dtype that sums of this one are kept in.
    const STEP: f64 = f32::ROUNDING;
    /// Half the smallest subnormal: the error of rounding next to zero.
    const TINY: f64;
    fn of(value: f64) -> Self;
    fn real(self) -> f64;
}

macro_rules! real {
    ($($dtype:ty, $bits:expr, $least:expr, $of:expr, $real:expr;)*) => {$(
        impl Real for $dtype {
            const ROUNDING: f64 = 1.0 / (1u64 << $bits) as f64;
            const TINY: f64 = $least;
            fn of(value: f64) -> Self { $of(value) }
            fn real(self) -> f64 { $real(self) }
        }
    )*};
}

real! {
    F8E4M3, 4, 9.77e-4, F8E4M3::from_f64, F8E4M3::to_f64;
    f16, 11, 2.98e-8, f16_from_f64, f16::to_f64;
    bf16, 8, 4.6e-41, bf16_from_f64, bf16::to_f64;
    f32, 24, 7.1e-46, |value| value as f32, f64::from;
}

impl Real for f64 {
    const ROUNDING: f64 = 1.0 / (1u64 << 53) as f64;
    const STEP: f64 = f64::ROUNDING;
    const TINY: f64 = 0.0;
    fn of(value: f64) -> Self {
        value
    }
    fn real(self) -> f64 {
        self
    }
}

/// Random numbers: xorshift64*, the same on every machine.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Uniform in 0..1.
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in 0..`limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.uniform() * limit as f64) as usize
    }

    /// Normal with mean 0 and deviation 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let (a, b) = (1.0 - self.uniform(), self.uniform());
        (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
    }

    /// Normal elements, rounded to a dtype.
    pub fn normals<T: Real>(&mut self, len: usize) -> Vec<T> {
        (0..len).map(|_| T::of(self.normal())).collect()
    }

    /// A tensor of normal elements, and they as f64.
    pub fn tensor<T: Real, const R: usize>(&mut self, cx: &Context, shape: [usize; R]) -> (Tensor<T, R>, Vec<f64>) {
        let elements = self.normals::<T>(shape.iter().product());
        let reals = elements.iter().map(|x| x.real()).collect();
        (Tensor::upload(cx.device(), &elements, shape).unwrap(), reals)
    }
}

/// Runs a test on the CPU, then on the GPU if there is one.
pub fn on_every_device(test: impl Fn(&Context) -> Result<(), Error>) {
    tilewright_tests::devices::check(|device| test(&Context::new(device)));
}

/// Asserts that each element is within its bound of what it should be. `bound` takes the index and the expected value, and
/// says the error before the result is rounded to its dtype.
#[track_caller]
pub fn assert_close<T: Real>(what: &str, got: &[T], want: &[f64], bound: impl Fn(usize, f64) -> f64) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (at, (got, &want)) in got.iter().zip(want).enumerate() {
        let before = bound(at, want);
        let limit = before + T::ROUNDING * (want.abs() + before) + T::TINY;
        let error = (got.real() - want).abs();
        let same = got.real() == want || (got.real().is_nan() && want.is_nan());
        assert!(
            same || error <= limit,
            "{what}: element {at} is {got:?}, not {want}: off by {error:e}, at most {limit:e}"
        );
    }
}

/// The message of an error that must be.
#[track_caller]
pub fn message<T>(result: Result<T, Error>) -> String {
    match result {
        Ok(_) => panic!("this should have been refused"),
        Err(error) => error.to_string(),
    }
}

/// The gradient of `sum(dy * f(x))` at some elements of `x`, by central differences in f64. They err by the third
/// derivative times `STEP_OF_DIFFERENCES^2 / 6`, and by the rounding of the sum over the step.
pub fn differences(x: &[f64], dy: &[f64], at: &[usize], f: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
    let total = |x: &[f64]| -> f64 { f(x).iter().zip(dy).map(|(y, dy)| y * dy).sum() };
    let mut moved = x.to_vec();
    let mut slopes = Vec::new();
    for &at in at {
        moved[at] = x[at] + STEP_OF_DIFFERENCES;
        let above = total(&moved);
        moved[at] = x[at] - STEP_OF_DIFFERENCES;
        let below = total(&moved);
        moved[at] = x[at];
        slopes.push((above - below) / (2.0 * STEP_OF_DIFFERENCES));
    }
    slopes
}

pub const STEP_OF_DIFFERENCES: f64 = 1e-4;

/// Asserts that a gradient agrees with differences: third derivatives of what the tests look at are below 100 for elements
/// and weights near 1, and sums are below 1e3, so that rounding is below 1e-13 / 1e-4.
#[track_caller]
pub fn assert_slopes(what: &str, gradient: &[f64], at: &[usize], slopes: &[f64]) {
    for (&at, slope) in at.iter().zip(slopes) {
        let error = (gradient[at] - slope).abs();
        let limit = 100.0 * STEP_OF_DIFFERENCES * STEP_OF_DIFFERENCES / 6.0 + 2e-9;
        assert!(error <= limit, "{what}: the gradient of element {at} is {}, differences say {slope}", gradient[at]);
    }
}

/// How many roundings a sum of `len` terms goes through: a tree over lanes, and a chain of what each lane adds.
pub fn additions(len: usize) -> f64 {
    16.0 + len as f64 / 32.0
}

/// The elements of a tensor as f64.
pub fn reals<T: Real>(elements: &[T]) -> Vec<f64> {
    elements.iter().map(|x| x.real()).collect()
}

/// All elements, with every digit that tells them apart.
pub fn read<T: DType, const R: usize>(x: &Tensor<T, R>) -> Result<String, Error> {
    Ok(format!("{:?}", x.to_vec()?))
}

/// What lies behind a workspace: values by which it shows whether they were written, or moved, finite and each another than
/// its neighbours.
pub trait Mark: DType {
    fn mark(index: usize) -> Self;
}

macro_rules! marks {
    ($($dtype:ty: $mark:expr;)*) => {$(
        impl Mark for $dtype {
            fn mark(index: usize) -> Self { $mark(index) }
        }
    )*};
}

marks! {
    bool: |index| index % 2 == 0;
    u8: |index| 3 + index as u8;
    i32: |index| 3 + index as i32;
    i64: |index| 3 + index as i64;
    F8E4M3: |index| F8E4M3::from_f64(mark(index));
    f16: |index| f16_from_f64(mark(index));
    bf16: |index| bf16_from_f64(mark(index));
    f32: |index| mark(index) as f32;
    f64: mark;
}

/// Exact in all floats up to an index of 7.
fn mark(index: usize) -> f64 {
    1.0 + index as f64 / 8.0
}

/// Checks what a function does with a workspace that is to have `room` elements, whose name is `argument`. It gives what it
/// gives with memory of its own, whatever the workspace holds; it takes no other memory, as a capture refuses allocations; it
/// writes no further; and it refuses a workspace that has gaps or is too small.
pub fn check_workspace<W: Mark, O: Debug>(
    cx: &Context,
    (argument, room, garbage): (&str, usize, W),
    (want, read): (O, impl Fn(&O) -> Result<String, Error>),
    mut nothing: impl FnMut() -> Result<O, Error>,
    run: impl Fn(&Context, TensorViewMut<'_, W, 1>, &mut O) -> Result<(), Error>,
) -> Result<(), Error> {
    let filled = |len: usize| Tensor::<W, 1>::upload(cx.device(), &vec![garbage; len], [len]);
    let mut out = nothing()?;
    let before = read(&out)?;
    let mut gaps = filled(2 * room.max(2))?;
    let apart = TensorViewMut::with_strides(gaps.buffer_mut(), [room.max(2)], [2])?;
    let refused = message(run(cx, apart, &mut out));
    assert_eq!(refused, format!("`{argument}` is not contiguous; give a tensor without gaps"));
    if room > 0 {
        let refused = message(run(cx, filled(room - 1)?.view_mut(), &mut out));
        let wanted = format!("`{argument}` has {} elements; give it {room} elements or more", room - 1);
        assert_eq!(refused, wanted);
    }
    assert_eq!(read(&out)?, before, "what is refused is not begun");
    for more in [0, 5] {
        let behind: Vec<W> = (0..more).map(W::mark).collect();
        let elements = [vec![garbage; room], behind.clone()].concat();
        let (mut out, mut workspace) = (nothing()?, Tensor::upload(cx.device(), &elements, [room + more])?);
        let stream = cx.device().new_stream()?;
        let graph = stream.capture(|stream| {
            let cx = cx.clone().with_stream(stream);
            run(&cx, workspace.view_mut(), &mut out)
        })?;
        graph.replay()?;
        assert_eq!(read(&out)?, read(&want)?, "{argument} of {room} elements and {more}");
        assert_eq!(workspace.to_vec()?.split_off(room), behind, "what is not needed is not written");
    }
    Ok(())
}
