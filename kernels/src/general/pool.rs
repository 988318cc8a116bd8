//! Pooling of images with channels last, and its gradients.

use super::number::{Number, Real};
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::Result;
use tilewright::prelude::*;

/// Windows of a pooling: their size, steps, and how far they reach over the border.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pooling {
    size: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
}

impl Pooling {
    /// Windows of this height and width, side by side.
    pub fn new(size: [usize; 2]) -> Self {
        Pooling { size, stride: size, padding: [0, 0] }
    }

    /// Steps of the window along height and width.
    pub fn stride(mut self, stride: [usize; 2]) -> Self {
        self.stride = stride;
        self
    }

    /// How far windows reach over the border, at most half of their size.
    pub fn padding(mut self, padding: [usize; 2]) -> Self {
        self.padding = padding;
        self
    }

    /// The shape of the result for an image `[n, h, w, c]`.
    ///
    /// # Errors
    ///
    /// [`tilewright::Error::InvalidTensor`] if windows do not fit.
    pub fn result(&self, x: [usize; 4]) -> Result<[usize; 4]> {
        let Pooling { size, stride, padding } = *self;
        if size.contains(&0) || stride.contains(&0) || padding[0] > size[0] / 2 || padding[1] > size[1] / 2 {
            let hint = "sizes and strides are positive, and the padding is at most half of the size";
            return Err(check::invalid("pooling", format!("is {self:?}"), hint));
        }
        let [n, h, w, c] = x;
        let (padded_h, padded_w) = (h.saturating_add(2 * padding[0]), w.saturating_add(2 * padding[1]));
        if padded_h < size[0] || padded_w < size[1] {
            let hint = format!("with its padding it is at least as large as windows of {size:?}");
            return Err(check::invalid("x", format!("has the shape {x:?}"), hint));
        }
        for number in [size, stride, padding].as_flattened() {
            check::size("pooling", *number)?;
        }
        // Kernels count the elements of a window, and go from the last row as far as a window reaches.
        let reach = padded_h.max(padded_w).saturating_add(size[0].max(size[1]));
        if size[0].saturating_mul(size[1]).max(reach) > check::LONGEST {
            let hint = format!(
                "a window has at most {0} elements, and an image with padding and a window at most {0} rows and columns",
                check::LONGEST
            );
            return Err(check::invalid("pooling", format!("is {self:?}"), hint));
        }
        let [p, q] = [(padded_h - size[0]) / stride[0] + 1, (padded_w - size[1]) / stride[1] + 1];
        for (name, h, w) in [("x", h, w), ("out", p, q)] {
            check::size(name, n.saturating_mul(h).saturating_mul(w))?;
            check::size(name, h.saturating_mul(w).saturating_mul(c))?;
        }
        Ok([n, p, q, c])
    }

    fn numbers(&self) -> [i32; 6] {
        let Pooling { size: [a, b], stride: [c, d], padding: [e, f] } = *self;
        [a, b, c, d, e, f].map(|number| number as i32)
    }
}

/// The largest element of each window, and where it is in its image.
#[kernel]
fn max_pool<T: Num, const BP: usize, const BC: usize>(
    x: Ptr<T>,
    values: PtrMut<T>,
    places: PtrMut<i32>,
    lowest: T,
    pixels: i32,
    h: i32,
    w: i32,
    p: i32,
    q: i32,
    channels: i32,
    size_h: i32,
    size_w: i32,
    stride_h: i32,
    stride_w: i32,
    pad_h: i32,
    pad_w: i32,
) {
    let pixel = program_id(0) * BP + arange(0, BP);
    let c = program_id(1) * BC + arange(0, BC);
    let top = pixel / q % p * stride_h - pad_h;
    let left = pixel % q * stride_w - pad_w;
    let image = (pixel / (p * q)) as i64 * (h as i64 * w as i64);
    let mut best = full([BP, BC], lowest);
    let mut best_at = full([BP, BC], -1);
    for tap in 0..size_h * size_w {
        let (y, z) = (top + tap / size_w, left + tap % size_w);
        let inside = (pixel < pixels) & (y >= 0) & (y < h) & (z >= 0) & (z < w);
        let mask = inside[(.., None)] & (c < channels);
        let at = y * w + z;
        let place = ((image + at as i64) * channels as i64)[(.., None)] + c as i64;
        let v = load(x + place, mask = mask, other = lowest);
        let better = mask & ((v > best) | ((v != v) & (best == best)) | (best_at < 0));
        best = select(better, v, best);
        best_at = select(better, at[(.., None)], best_at);
    }
    let to = (pixel as i64 * channels as i64)[(.., None)] + c as i64;
    let mask = (pixel < pixels)[(.., None)] & (c < channels);
    store(values + to, best, mask = mask);
    store(places + to, best_at, mask = mask);
}

/// The gradient of an element: the sum of those of the windows that took it.
#[kernel]
fn max_pool_back<T: Float, const BP: usize, const BC: usize>(
    dy: Ptr<T>,
    places: Ptr<i32>,
    dx: PtrMut<T>,
    pixels: i32,
    h: i32,
    w: i32,
    p: i32,
    q: i32,
    channels: i32,
    size_h: i32,
    size_w: i32,
    stride_h: i32,
    stride_w: i32,
    pad_h: i32,
    pad_w: i32,
) {
    let pixel = program_id(0) * BP + arange(0, BP);
    let c = program_id(1) * BC + arange(0, BC);
    let own = pixel % (h * w);
    let (top, left) = (own / w + pad_h, own % w + pad_w);
    let image = (pixel / (h * w)) as i64 * (p as i64 * q as i64);
    let mut total = zeros::<T::Acc>([BP, BC]);
    for tap in 0..size_h * size_w {
        let (y, z) = (top - tap / size_w, left - tap % size_w);
        let hit = (y >= 0) & (z >= 0) & (y % stride_h == 0) & (z % stride_w == 0);
        let (y, z) = (y / stride_h, z / stride_w);
        let mask = ((pixel < pixels) & hit & (y < p) & (z < q))[(.., None)] & (c < channels);
        let place = ((image + (y * q + z) as i64) * channels as i64)[(.., None)] + c as i64;
        let taken = load(places + place, mask = mask, other = -1) == own[(.., None)];
        total += select(taken, load(dy + place, mask = mask) as T::Acc, 0.0);
    }
    let to = (pixel as i64 * channels as i64)[(.., None)] + c as i64;
    store(dx + to, total as T, mask = (pixel < pixels)[(.., None)] & (c < channels));
}

/// The mean of each window, over the elements inside the image if `COUNTED`.
#[kernel]
fn avg_pool<T: Float, const COUNTED: bool, const BP: usize, const BC: usize>(
    x: Ptr<T>,
    out: PtrMut<T>,
    pixels: i32,
    h: i32,
    w: i32,
    p: i32,
    q: i32,
    channels: i32,
    size_h: i32,
    size_w: i32,
    stride_h: i32,
    stride_w: i32,
    pad_h: i32,
    pad_w: i32,
) {
    let pixel = program_id(0) * BP + arange(0, BP);
    let c = program_id(1) * BC + arange(0, BC);
    let top = pixel / q % p * stride_h - pad_h;
    let left = pixel % q * stride_w - pad_w;
    let image = (pixel / (p * q)) as i64 * (h as i64 * w as i64);
    let mut total = zeros::<T::Acc>([BP, BC]);
    for tap in 0..size_h * size_w {
        let (y, z) = (top + tap / size_w, left + tap % size_w);
        let inside = (pixel < pixels) & (y >= 0) & (y < h) & (z >= 0) & (z < w);
        let place = ((image + (y * w + z) as i64) * channels as i64)[(.., None)] + c as i64;
        total += load(x + place, mask = inside[(.., None)] & (c < channels)) as T::Acc;
    }
    let rows = minimum(top + size_h, h) - maximum(top, 0);
    let columns = minimum(left + size_w, w) - maximum(left, 0);
    let count = if COUNTED { rows * columns } else { full([BP], size_h * size_w) };
    let mean = total / (count as T::Acc)[(.., None)];
    let to = (pixel as i64 * channels as i64)[(.., None)] + c as i64;
    store(out + to, mean as T, mask = (pixel < pixels)[(.., None)] & (c < channels));
}

/// The gradient of an element: the sum of those of its windows, each over the number of the window's elements.
#[kernel]
fn avg_pool_back<T: Float, const COUNTED: bool, const BP: usize, const BC: usize>(
    dy: Ptr<T>,
    dx: PtrMut<T>,
    pixels: i32,
    h: i32,
    w: i32,
    p: i32,
    q: i32,
    channels: i32,
    size_h: i32,
    size_w: i32,
    stride_h: i32,
    stride_w: i32,
    pad_h: i32,
    pad_w: i32,
) {
    let pixel = program_id(0) * BP + arange(0, BP);
    let c = program_id(1) * BC + arange(0, BC);
    let (top, left) = (pixel / w % h + pad_h, pixel % w + pad_w);
    let image = (pixel / (h * w)) as i64 * (p as i64 * q as i64);
    let mut total = zeros::<T::Acc>([BP, BC]);
    for tap in 0..size_h * size_w {
        let (y, z) = (top - tap / size_w, left - tap % size_w);
        let hit = (y >= 0) & (z >= 0) & (y % stride_h == 0) & (z % stride_w == 0);
        let (first_y, first_z) = (y - pad_h, z - pad_w);
        let rows = minimum(first_y + size_h, h) - maximum(first_y, 0);
        let columns = minimum(first_z + size_w, w) - maximum(first_z, 0);
        let count = if COUNTED { maximum(rows * columns, 1) } else { full([BP], size_h * size_w) };
        let (y, z) = (y / stride_h, z / stride_w);
        let mask = ((pixel < pixels) & hit & (y < p) & (z < q))[(.., None)] & (c < channels);
        let place = ((image + (y * q + z) as i64) * channels as i64)[(.., None)] + c as i64;
        total += load(dy + place, mask = mask) as T::Acc / (count as T::Acc)[(.., None)];
    }
    let to = (pixel as i64 * channels as i64)[(.., None)] + c as i64;
    store(dx + to, total as T, mask = (pixel < pixels)[(.., None)] & (c < channels));
}

/// What averages are over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Counted {
    /// The whole window: what lies outside of the image counts as zeros.
    #[default]
    Window,
    /// The elements inside the image.
    Inside,
}

/// Pixels and channels of a program: 2048 elements.
fn block(pixels: usize, channels: usize) -> (usize, usize) {
    let bc = channels.next_power_of_two().min(128);
    ((2048 / bc).min(pixels.next_power_of_two()), bc)
}

/// Calls a kernel of this module: consts, arguments before sizes, and what the grid is over.
macro_rules! launch {
    ($cx:expr, $consts:ident { $($field:ident: $value:expr),* }, ($($argument:expr),+), $x:expr, $result:expr, $over:expr, $pooling:expr) => {{
        let ([_, h, w, c], [_, p, q, _], [n, rows, columns, _]) = ($x, $result, $over);
        let pixels = n * rows * columns;
        let (bp, bc) = block(pixels, c);
        let [k0, k1, s0, s1, p0, p1] = $pooling.numbers();
        $consts { BP: bp, BC: bc, $($field: $value),* }
            .call(
                $($argument,)+ pixels as i32, h as i32, w as i32, p as i32, q as i32, c as i32, k0, k1, s0, s1, p0, p1,
            )
            .grid((pixels.div_ceil(bp), c.div_ceil(bc)))
            .num_warps(((bp * bc) / 256).clamp(1, 8) as u32)
            .stream($cx.stream())
            .launch($cx.device())
    }};
}

/// The largest element of each window, and its place in the image, `y w + z`. What lies outside of the image is not taken.
/// Of equal elements it is the first; a NaN is before all numbers.
///
/// # Shapes
///
/// `x` is `[n, h, w, c]` in row-major order without gaps; both results are `[n, p, q, c]` with
/// `p = (h + 2 pad - size) / stride + 1`, and `q` alike.
///
/// # Errors
///
/// [`tilewright::Error::InvalidTensor`] if windows do not fit or `x` has gaps; [`tilewright::Error::OutOfMemory`]; those of a
/// launch.
pub fn max_pool2d<'a, T: Number>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 4>>,
    pooling: Pooling,
) -> Result<(Tensor<T, 4>, Tensor<i32, 4>)> {
    let x = x.into();
    let shape = pooling.result(x.shape())?;
    let mut values = Tensor::empty(cx.device(), shape)?;
    let mut places = Tensor::empty(cx.device(), shape)?;
    max_pool2d_into(cx, x, pooling, &mut values, &mut places)?;
    Ok((values, places))
}

/// [`max_pool2d`], into tensors of the shape of its results, in row-major order without gaps. Nothing is allocated.
///
/// # Errors
///
/// As [`max_pool2d`], and if `values` or `places` have another shape or gaps.
pub fn max_pool2d_into<'a, 'b, 'c, T: Number>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 4>>,
    pooling: Pooling,
    values: impl Into<TensorViewMut<'b, T, 4>>,
    places: impl Into<TensorViewMut<'c, i32, 4>>,
) -> Result<()> {
    let (x, values, places) = (x.into(), values.into(), places.into());
    let shape = pooling.result(x.shape())?;
    check::packed("x", &x)?;
    written("values", &values, shape)?;
    written("places", &places, shape)?;
    if values.is_empty() {
        return Ok(());
    }
    let out = (values.elements(), places.elements());
    launch!(cx, MaxPoolConsts {}, (x.elements(), out.0, out.1, T::LOWEST), x.shape(), shape, shape, pooling)
}

/// Checks what is written: its shape, and that it has no gaps.
fn written<T: DType>(argument: &str, out: &TensorViewMut<'_, T, 4>, shape: [usize; 4]) -> Result<()> {
    check::shape(argument, out.shape(), shape)?;
    check::packed(argument, &out.as_view())
}

/// The gradient of [`max_pool2d`], from its places: each element has the sum of the gradients of the windows that took it,
/// summed in f32 (f64 for f64). The result has the shape `x_shape`.
///
/// # Errors
///
/// As [`max_pool2d`], and if shapes do not fit.
pub fn max_pool2d_backward<'a, 'b, T: Real>(
    cx: &Context,
    x_shape: [usize; 4],
    places: impl Into<TensorView<'a, i32, 4>>,
    dy: impl Into<TensorView<'b, T, 4>>,
    pooling: Pooling,
) -> Result<Tensor<T, 4>> {
    let (places, dy, shape) = (places.into(), dy.into(), pooling.result(x_shape)?);
    check::shape("places", places.shape(), shape)?;
    check::shape("dy", dy.shape(), shape)?;
    let mut dx = Tensor::empty(cx.device(), x_shape)?;
    max_pool2d_backward_into(cx, places, dy, pooling, &mut dx)?;
    Ok(dx)
}

/// [`max_pool2d_backward`], into a tensor of the image's shape, in row-major order without gaps. Nothing is allocated.
///
/// # Errors
///
/// As [`max_pool2d_backward`], and if `dx` has gaps.
pub fn max_pool2d_backward_into<'a, 'b, 'c, T: Real>(
    cx: &Context,
    places: impl Into<TensorView<'a, i32, 4>>,
    dy: impl Into<TensorView<'b, T, 4>>,
    pooling: Pooling,
    dx: impl Into<TensorViewMut<'c, T, 4>>,
) -> Result<()> {
    let (places, dy, dx) = (places.into(), dy.into(), dx.into());
    let x_shape = dx.shape();
    let shape = pooling.result(x_shape)?;
    check::shape("places", places.shape(), shape)?;
    check::shape("dy", dy.shape(), shape)?;
    check::packed("places", &places)?;
    check::packed("dy", &dy)?;
    check::packed("dx", &dx.as_view())?;
    if dx.is_empty() {
        return Ok(());
    }
    let inputs = (dy.elements(), places.elements());
    launch!(cx, MaxPoolBackConsts {}, (inputs.0, inputs.1, dx.elements()), x_shape, shape, x_shape, pooling)
}

/// The mean of each window, summed in f32 (f64 for f64).
///
/// # Shapes
///
/// Those of [`max_pool2d`].
///
/// # Errors
///
/// Those of [`max_pool2d`].
pub fn avg_pool2d<'a, T: Real>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 4>>,
    pooling: Pooling,
    counted: Counted,
) -> Result<Tensor<T, 4>> {
    let x = x.into();
    let mut out = Tensor::empty(cx.device(), pooling.result(x.shape())?)?;
    avg_pool2d_into(cx, x, pooling, counted, &mut out)?;
    Ok(out)
}

/// [`avg_pool2d`], into a tensor of the shape of its result, in row-major order without gaps. Nothing is allocated.
///
/// # Errors
///
/// As [`avg_pool2d`], and if `out` has another shape or gaps.
pub fn avg_pool2d_into<'a, 'b, T: Real>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 4>>,
    pooling: Pooling,
    counted: Counted,
    out: impl Into<TensorViewMut<'b, T, 4>>,
) -> Result<()> {
    let (x, out) = (x.into(), out.into());
    let shape = pooling.result(x.shape())?;
    check::packed("x", &x)?;
    written("out", &out, shape)?;
    if out.is_empty() {
        return Ok(());
    }
    let inside = counted == Counted::Inside;
    let arguments = (x.elements(), out.elements());
    launch!(cx, AvgPoolConsts { COUNTED: inside }, (arguments.0, arguments.1), x.shape(), shape, shape, pooling)
}

/// The gradient of [`avg_pool2d`], of the shape `x_shape`.
///
/// # Errors
///
/// As [`max_pool2d`], and if the shape of `dy` does not fit.
pub fn avg_pool2d_backward<'a, T: Real>(
    cx: &Context,
    x_shape: [usize; 4],
    dy: impl Into<TensorView<'a, T, 4>>,
    pooling: Pooling,
    counted: Counted,
) -> Result<Tensor<T, 4>> {
    let dy = dy.into();
    check::shape("dy", dy.shape(), pooling.result(x_shape)?)?;
    let mut dx = Tensor::empty(cx.device(), x_shape)?;
    avg_pool2d_backward_into(cx, dy, pooling, counted, &mut dx)?;
    Ok(dx)
}

/// [`avg_pool2d_backward`], into a tensor of the image's shape, in row-major order without gaps. Nothing is allocated.
///
/// # Errors
///
/// As [`avg_pool2d_backward`], and if `dx` has gaps.
pub fn avg_pool2d_backward_into<'a, 'b, T: Real>(
    cx: &Context,
    dy: impl Into<TensorView<'a, T, 4>>,
    pooling: Pooling,
    counted: Counted,
    dx: impl Into<TensorViewMut<'b, T, 4>>,
) -> Result<()> {
    let (dy, dx) = (dy.into(), dx.into());
    let x_shape = dx.shape();
    let shape = pooling.result(x_shape)?;
    check::shape("dy", dy.shape(), shape)?;
    check::packed("dy", &dy)?;
    check::packed("dx", &dx.as_view())?;
    if dx.is_empty() {
        return Ok(());
    }
    let inside = counted == Counted::Inside;
    let arguments = (dy.elements(), dx.elements());
    launch!(cx, AvgPoolBackConsts { COUNTED: inside }, (arguments.0, arguments.1), x_shape, shape, x_shape, pooling)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::check_instructions;
    use tilewright::Target;

    #[test]
    fn images_are_read_wide() {
        let (target, wide) = (Target::sm_90a(), ["ld.global.nc.v", "st.global.v"]);
        let consts = MaxPoolConsts { BP: 16, BC: 128 };
        check_instructions("max_pool2d", consts.request::<f16>().num_warps(8).compile(target), &wide);
        let consts = MaxPoolBackConsts { BP: 16, BC: 128 };
        check_instructions("max_pool2d_backward", consts.request::<f16>().num_warps(8).compile(target), &wide);
        let consts = AvgPoolConsts { COUNTED: true, BP: 16, BC: 128 };
        check_instructions("avg_pool2d", consts.request::<f16>().num_warps(8).compile(target), &wide);
        let consts = AvgPoolBackConsts { COUNTED: true, BP: 16, BC: 128 };
        check_instructions("avg_pool2d_backward", consts.request::<f16>().num_warps(8).compile(target), &wide);
    }
}
