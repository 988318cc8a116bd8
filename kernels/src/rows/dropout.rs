//! Dropout whose mask is computed again where it is needed.

use crate::arguments::{Source, packed};
use crate::config::config;
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::Result;
use tilewright::prelude::*;

config! {
    /// How dropout runs; the size is the number of elements.
    "dropout": pub struct DropoutConfig {
        /// Elements of a program.
        pub block,
        /// Warps of a program.
        pub num_warps,
    }
}

/// What is dropped.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dropout {
    /// The probability with which an element becomes zero, from 0 to 1.
    pub p: f32,
    /// What the choice follows from, with the element's index.
    pub seed: i64,
}

/// `out = x * scale` where a random word is at least `threshold`, else 0. Four elements share a call of Philox.
#[kernel]
pub(super) fn drop_elements<T: Float, const BLOCK: usize>(
    #[in_place(out)] x: Ptr<T>,
    out: PtrMut<T>,
    n: i64,
    seed: i64,
    threshold: u64,
    scale: f32,
) {
    static_assert!(BLOCK % 4 == 0);
    let start = program_id(0) as i64 * BLOCK as i64;
    let (a, b, c, d) = randint4x(seed, start / 4 + arange(0, BLOCK / 4) as i64);
    let words = reshape(join(join(a, c), join(b, d)), [BLOCK]);
    let offset = start + arange(0, BLOCK) as i64;
    let mask = offset < n;
    let values = load(x + offset, mask = mask) as T::Acc;
    let kept = words as u64 >= threshold;
    store(out + offset, select(kept, values * scale as T::Acc, 0.0) as T, mask = mask);
}

fn launch<T: Float, const R: usize>(
    cx: &Context,
    x: Option<TensorView<'_, T, R>>,
    dropout: Dropout,
    out: TensorViewMut<'_, T, R>,
) -> Result<()> {
    if let Some(x) = &x {
        check::shape("x", x.shape(), out.shape())?;
        packed("x", x.is_contiguous())?;
    }
    packed("out", out.is_contiguous())?;
    if !(0.0..=1.0).contains(&dropout.p) {
        let value = format!("{}", dropout.p);
        let expected = "a number from 0 to 1";
        return Err(Error::InvalidSetting {
            name: "`p` of dropout".into(),
            value: value.into(),
            expected: expected.into(),
        });
    }
    let len = out.len();
    // 8 elements a thread: 16 bytes of 16-bit elements.
    let config = cx.config(T::ELEMENT, &[len], || DropoutConfig { block: 1024, num_warps: 4 })?;
    // 2^32 where everything is dropped, which no word reaches.
    let threshold = (f64::from(dropout.p) * 2f64.powi(32)).round() as u64;
    let scale = if dropout.p < 1.0 { (1.0 / (1.0 - f64::from(dropout.p))) as f32 } else { 0.0 };
    DropElementsConsts { BLOCK: config.block }
        .call(Source(x.map(|x| x.elements())), out.elements(), len as i64, dropout.seed, threshold, scale)
        .grid(len.div_ceil(config.block.max(1)))
        .num_warps(config.num_warps as u32)
        .stream(cx.stream())
        .launch(cx.device())
}

/// Each element is 0 with probability `p`, else `x / (1 - p)` (Srivastava et al., "Dropout: A Simple Way to Prevent Neural
/// Networks from Overfitting", 2014).
///
/// Element `i`, in row-major order, is dropped if word `i % 4` of Philox 4x32-10 with the key `seed` and the counter `i / 4` is
/// below `p 2^32` (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011): the same elements on every device and
/// at every launch, so that no mask is stored. The gradient is the same function of the result's gradient, with the same
/// `Dropout`.
///
/// # Shapes
///
/// `x` has any shape, and no gaps; the result has its shape. Any float.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if `x` has gaps, [`Error::InvalidSetting`] if `p` is no probability; [`Error::OutOfMemory`], those of
/// a launch.
pub fn dropout<'a, T: Float, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    dropout: Dropout,
) -> Result<Tensor<T, R>> {
    let x = x.into();
    let mut out = Tensor::empty(cx.device(), x.shape())?;
    launch(cx, Some(x), dropout, out.view_mut())?;
    Ok(out)
}

/// [`dropout`], into a tensor of the same shape.
///
/// # Errors
///
/// As [`dropout`].
pub fn dropout_into<'a, 'b, T: Float, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    dropout: Dropout,
    out: impl Into<TensorViewMut<'b, T, R>>,
) -> Result<()> {
    launch(cx, Some(x.into()), dropout, out.into())
}

/// [`dropout`], in place.
///
/// # Errors
///
/// As [`dropout`].
pub fn dropout_in_place<'a, T: Float, const R: usize>(
    cx: &Context,
    x: impl Into<TensorViewMut<'a, T, R>>,
    dropout: Dropout,
) -> Result<()> {
    launch(cx, None, dropout, x.into())
}
