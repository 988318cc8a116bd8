//! Numbers of 8 bits with scales.

use super::number::Real;
use super::reduce::{largest_magnitude, reduction_workspace};
use crate::workspace::{Memory, contiguous};
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::Result;
use tilewright::prelude::*;

/// Elements of a tile, and of the longest group that is kept in registers.
const TILE: usize = 4096;
const WHOLE: usize = 16_384;

/// A dtype of 8 bits that [`quantise`] makes.
pub trait Quantised: Num {
    /// The largest magnitude that it is scaled to.
    const LARGEST: f32;
}

impl Quantised for F8E4M3 {
    const LARGEST: f32 = 448.0;
}

impl Quantised for F8E5M2 {
    const LARGEST: f32 = 57_344.0;
}

impl Quantised for i8 {
    const LARGEST: f32 = 127.0;
}

/// The elements that share a scale.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scales {
    /// All: the scales are `[1, 1]`.
    Tensor,
    /// A row: `[rows, 1]`.
    #[default]
    Row,
    /// So many neighbours of a row, a power of two from 16 to 1024: `[rows, columns / group]`, rounded up.
    Group(usize),
}

/// `q = x / scale`, rounded to the nearest, ties to even.
#[device]
fn quantised<Q: Num, const R: usize, const G: usize>(
    v: Tile<f32, { [R, G] }>,
    scale: Tile<f32, { [R, 1] }>,
) -> Tile<Q, { [R, G] }> {
    let ratio = v / scale;
    if Q == i8 { round_ties_even(ratio) as Q } else { ratio as Q }
}

/// The scale of numbers of which this is the largest magnitude. No smaller than the smallest normal f32, which keeps quotients
/// finite.
#[device]
fn scale_of<const N: usize>(peak: Tile<f32, { [N] }>, largest: f32) -> Tile<f32, { [N] }> {
    select(peak > 0.0, maximum(peak / largest, f32::MIN_POSITIVE), 1.0)
}

/// Groups of up to `G` neighbours, `R` of them at a time.
#[kernel]
fn quantise_groups<T: Float, Q: Num, const G: usize, const R: usize>(
    x: Ptr<T>,
    q: PtrMut<Q>,
    scales: PtrMut<f32>,
    groups: i32,
    per_row: i32,
    columns: i32,
    largest: f32,
    x_stride: i64,
    q_stride: i64,
) {
    let group = program_id(0) * R + arange(0, R);
    let row = (group / per_row) as i64;
    let column = (group % per_row * G)[(.., None)] + arange(0, G);
    let mask = (group < groups)[(.., None)] & (column < columns);
    let v = load(x + ((row * x_stride)[(.., None)] + column as i64), mask = mask) as f32;
    let scale = scale_of(max(abs(v), axis = 1), largest);
    store(q + ((row * q_stride)[(.., None)] + column as i64), quantised::<Q, R, G>(v, scale[(.., None)]), mask = mask);
    store(scales + group, scale, mask = group < groups);
}

/// A row that is longer than a tile, read twice.
#[kernel]
fn quantise_rows<T: Float, Q: Num, const BLOCK: usize>(
    x: Ptr<T>,
    q: PtrMut<Q>,
    scales: PtrMut<f32>,
    columns: i32,
    largest: f32,
    x_stride: i64,
    q_stride: i64,
) {
    let row = program_id(0) as i64;
    let (x, q) = (x + row * x_stride, q + row * q_stride);
    let mut peaks = zeros::<f32>([1, BLOCK]);
    for at in (0..columns).step_by(BLOCK) {
        let column = at + arange(0, BLOCK)[(None, ..)];
        peaks = maximum(peaks, abs(load(x + column, mask = column < columns) as f32));
    }
    let scale = scale_of(max(peaks, axis = 1), largest);
    for at in (0..columns).step_by(BLOCK) {
        let column = at + arange(0, BLOCK)[(None, ..)];
        let v = load(x + column, mask = column < columns) as f32;
        store(q + column, quantised::<Q, 1, BLOCK>(v, scale[(.., None)]), mask = column < columns);
    }
    store(scales + row + arange(0, 1), scale);
}

/// All elements with one scale, which follows from the largest magnitude.
#[kernel]
fn quantise_all<T: Float, Q: Num, const BLOCK: usize>(
    x: Ptr<T>,
    peak: Ptr<T>,
    q: PtrMut<Q>,
    scales: PtrMut<f32>,
    len: i64,
    largest: f32,
) {
    let at = program_id(0) as i64 * BLOCK + arange(0, BLOCK)[(None, ..)] as i64;
    let scale = scale_of(load(peak + arange(0, 1)) as f32, largest);
    let v = load(x + at, mask = at < len) as f32;
    store(q + at, quantised::<Q, 1, BLOCK>(v, scale[(.., None)]), mask = at < len);
    if program_id(0) == 0 {
        store(scales + arange(0, 1), scale);
    }
}

/// `out = q * scale`, groups of `G` neighbours.
#[kernel]
fn dequantise_groups<T: Float, Q: Num, const R: usize, const BLOCK: usize>(
    q: Ptr<Q>,
    scales: Ptr<f32>,
    out: PtrMut<T>,
    rows: i32,
    columns: i32,
    group: i32,
    scale_stride: i64,
    q_stride: i64,
    out_stride: i64,
) {
    let blocks = cdiv(columns, BLOCK);
    let row = (program_id(0) / blocks * R + arange(0, R))[(.., None)];
    let column = program_id(0) % blocks * BLOCK + arange(0, BLOCK);
    let mask = (row < rows) & (column < columns);
    let row = row as i64;
    let v = load(q + (row * q_stride + column as i64), mask = mask) as f32;
    let scale = load(scales + (row * scale_stride + (column / group) as i64), mask = mask);
    store(out + (row * out_stride + column as i64), (v * scale) as T, mask = mask);
}

/// The shape of scales for a matrix, and the elements of a group.
fn scale_shape([rows, columns]: [usize; 2], scales: Scales) -> Result<([usize; 2], usize)> {
    match scales {
        Scales::Tensor => Ok(([1, 1], columns)),
        Scales::Row => Ok(([rows, 1], columns)),
        Scales::Group(group) if group.is_power_of_two() && (16..=1024).contains(&group) => {
            Ok(([rows, columns.div_ceil(group)], group))
        }
        Scales::Group(group) => {
            let hint = "groups are powers of two from 16 to 1024";
            Err(check::invalid("scales", format!("asks for groups of {group}"), hint))
        }
    }
}

/// Rounds numbers to 8 bits after dividing them by scales: `q = x / scale` with `scale = max |x| / L`, where `L` is 448 for
/// e4m3, 57344 for e5m2 and 127 for i8, and the maximum is over the elements that share the scale.
///
/// # Shapes
///
/// `x` is `[rows, columns]` of any float, `q` has its shape, and the scales have that of [`Scales`].
///
/// # Numerics
///
/// In f32; `q` is rounded to the nearest, ties to even. A scale of zeros, or of no elements, is 1; others are at least
/// 2<sup>-126</sup>. NaN stays NaN in floats and is 0 in i8, and has no part in the maximum; with an infinite element finite ones
/// are 0.
///
/// # Errors
///
/// [`tilewright::Error::InvalidTensor`] if rows have gaps, or a tensor of one scale has any, or for a group that is none;
/// [`tilewright::Error::OutOfMemory`]; those of a launch.
pub fn quantise<'a, Q: Quantised, T: Real>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 2>>,
    scales: Scales,
) -> Result<(Tensor<Q, 2>, Tensor<f32, 2>)> {
    let x = x.into();
    let mut q = Tensor::empty(cx.device(), x.shape())?;
    let mut out_scales = Tensor::empty(cx.device(), scale_shape(x.shape(), scales)?.0)?;
    quantise_into(cx, x, scales, &mut q, &mut out_scales)?;
    Ok((q, out_scales))
}

/// [`quantise`], into tensors. One scale for all takes the largest magnitude, which is allocated for the call, with the results
/// of pieces that it is made of.
///
/// # Errors
///
/// As [`quantise`], and if the shapes do not fit, or `out_scales` has gaps.
pub fn quantise_into<'a, 'b, 'c, Q: Quantised, T: Real>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 2>>,
    scales: Scales,
    q: impl Into<TensorViewMut<'b, Q, 2>>,
    out_scales: impl Into<TensorViewMut<'c, f32, 2>>,
) -> Result<()> {
    run(cx, x.into(), scales, (q.into(), out_scales.into()), None)
}

/// Memory in which [`quantise_into_with`] works; what it holds does not matter.
#[derive(Debug)]
pub struct QuantiseWorkspace<'a, T: Real> {
    /// Room for the largest magnitude: as many as the [`QuantiseRoom`] says, or more, without gaps.
    pub peak: TensorViewMut<'a, T, 1>,
    /// Room for those of pieces, likewise.
    pub partials: TensorViewMut<'a, T::Sums, 1>,
}

/// How many elements a [`QuantiseWorkspace`] has at least.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QuantiseRoom {
    /// Of `peak`, in the dtype of the elements.
    pub peak: usize,
    /// Of `partials`, f32, or f64 for f64.
    pub partials: usize,
}

/// [`quantise_into`], with a workspace of the size that [`quantise_workspace`] says, or larger. Nothing is allocated.
///
/// # Errors
///
/// As [`quantise_into`], and if a part of the workspace has gaps or is too small.
pub fn quantise_into_with<'a, 'b, 'c, Q: Quantised, T: Real>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 2>>,
    scales: Scales,
    q: impl Into<TensorViewMut<'b, Q, 2>>,
    out_scales: impl Into<TensorViewMut<'c, f32, 2>>,
    workspace: QuantiseWorkspace<'_, T>,
) -> Result<()> {
    let QuantiseWorkspace { peak, partials } = workspace;
    let (peak, partials) = (contiguous("workspace.peak", peak)?, contiguous("workspace.partials", partials)?);
    run(cx, x.into(), scales, (q.into(), out_scales.into()), Some(QuantiseWorkspace { peak, partials }))
}

/// What [`quantise_into_with`] needs as its workspace, whatever the device: nothing but for one scale for all, which follows
/// from the largest magnitude.
///
/// # Errors
///
/// [`tilewright::Error::InvalidTensor`] if a tensor of one scale has gaps or more than 2^31 - 65,536 elements.
pub fn quantise_workspace<'a, T: Real>(x: impl Into<TensorView<'a, T, 2>>, scales: Scales) -> Result<QuantiseRoom> {
    let x = x.into();
    if scales != Scales::Tensor {
        return Ok(QuantiseRoom::default());
    }
    Ok(QuantiseRoom { peak: 1, partials: reduction_workspace(flat(x)?, 0)? })
}

fn run<Q: Quantised, T: Real>(
    cx: &Context,
    x: TensorView<'_, T, 2>,
    scales: Scales,
    (q, mut out_scales): (TensorViewMut<'_, Q, 2>, TensorViewMut<'_, f32, 2>),
    workspace: Option<QuantiseWorkspace<'_, T>>,
) -> Result<()> {
    let (shape, group) = scale_shape(x.shape(), scales)?;
    check::shape("q", q.shape(), x.shape())?;
    check::shape("out_scales", out_scales.shape(), shape)?;
    if !out_scales.is_contiguous() {
        return Err(check::invalid("out_scales", "has gaps", "give a tensor in row-major order without gaps"));
    }
    let (from, to) = (x.rows("x")?, q.rows("q")?);
    let columns = check::size("x", from.columns)?;
    // Scales of no elements are written, too.
    if out_scales.is_empty() {
        return Ok(());
    }
    let (stream, strides) = (cx.stream(), (from.stride as i64, to.stride as i64));
    if scales == Scales::Tensor {
        return by_one(cx, x, q, out_scales, workspace);
    }
    if group > WHOLE {
        return QuantiseRowsConsts { BLOCK: TILE }
            .call(x.elements(), q.elements(), out_scales.elements_mut(), columns, Q::LARGEST, strides.0, strides.1)
            .grid(from.rows)
            .num_warps(8)
            .stream(stream)
            .launch(cx.device());
    }
    let tile = group.next_power_of_two();
    let groups = shape[0] * shape[1];
    let rows = (TILE / tile).clamp(1, groups.next_power_of_two());
    QuantiseGroupsConsts { G: tile, R: rows }
        .call(
            x.elements(),
            q.elements(),
            out_scales.elements_mut(),
            check::size("out_scales", groups)?,
            shape[1] as i32,
            columns,
            Q::LARGEST,
            strides.0,
            strides.1,
        )
        .grid(groups.div_ceil(rows))
        .num_warps((rows * tile / 512).clamp(1, 16) as u32)
        .stream(stream)
        .launch(cx.device())
}

/// All elements of a tensor of one scale, which kernels read one after the other.
fn flat<T: DType>(x: TensorView<'_, T, 2>) -> Result<TensorView<'_, T, 1>> {
    let all = x.reshape([x.len()])?;
    check::packed("x", &all)?;
    Ok(all)
}

/// One scale for all.
fn by_one<Q: Quantised, T: Real>(
    cx: &Context,
    x: TensorView<'_, T, 2>,
    q: TensorViewMut<'_, Q, 2>,
    out_scales: TensorViewMut<'_, f32, 2>,
    workspace: Option<QuantiseWorkspace<'_, T>>,
) -> Result<()> {
    if !q.is_contiguous() {
        return Err(check::invalid("q", "has gaps", "give a tensor in row-major order without gaps"));
    }
    let all = flat(x)?;
    let (peak, partials) = workspace.map(|QuantiseWorkspace { peak, partials }| (peak, partials)).unzip();
    let mut peak = Memory::of(cx, "workspace.peak", peak, 1)?;
    largest_magnitude(cx, all, peak.view_mut(), ("workspace.partials", partials))?;
    QuantiseAllConsts { BLOCK: TILE }
        .call(x.elements(), peak.view(), q.elements(), out_scales.elements(), x.len() as i64, Q::LARGEST)
        .grid(x.len().div_ceil(TILE).max(1))
        .num_warps(8)
        .stream(cx.stream())
        .launch(cx.device())
}

/// `out = q * scale`: what [`quantise`] has rounded.
///
/// # Shapes
///
/// `q` is `[rows, columns]`, the scales have the shape of [`Scales`]; the result has the shape of `q`.
///
/// # Errors
///
/// Those of [`quantise`].
pub fn dequantise<'a, 'b, T: Real, Q: Quantised>(
    cx: &Context,
    q: impl Into<TensorView<'a, Q, 2>>,
    in_scales: impl Into<TensorView<'b, f32, 2>>,
    scales: Scales,
) -> Result<Tensor<T, 2>> {
    let q = q.into();
    let mut out = Tensor::empty(cx.device(), q.shape())?;
    dequantise_into(cx, q, in_scales, scales, &mut out)?;
    Ok(out)
}

/// [`dequantise`], into a tensor. Nothing is allocated.
///
/// # Errors
///
/// As [`dequantise`], and if `out` has another shape, or rows of it have gaps.
pub fn dequantise_into<'a, 'b, 'c, T: Real, Q: Quantised>(
    cx: &Context,
    q: impl Into<TensorView<'a, Q, 2>>,
    in_scales: impl Into<TensorView<'b, f32, 2>>,
    scales: Scales,
    out: impl Into<TensorViewMut<'c, T, 2>>,
) -> Result<()> {
    let (q, in_scales, out) = (q.into(), in_scales.into(), out.into());
    let (shape, group) = scale_shape(q.shape(), scales)?;
    check::shape("in_scales", in_scales.shape(), shape)?;
    if !in_scales.is_contiguous() {
        return Err(check::invalid("in_scales", "has gaps", "copy it with `general::contiguous` first"));
    }
    check::shape("out", out.shape(), q.shape())?;
    let (from, to) = (q.rows("q")?, out.rows("out")?);
    if q.is_empty() {
        return Ok(());
    }
    let (rows, columns) = (check::size("q", from.rows)?, check::size("q", from.columns)?);
    let block = from.columns.next_power_of_two().min(1024);
    let tile = (TILE / block).min(from.rows.next_power_of_two());
    DequantiseGroupsConsts { R: tile, BLOCK: block }
        .call(
            q.elements(),
            in_scales.elements(),
            out.elements(),
            rows,
            columns,
            group as i32,
            if shape[0] == 1 && from.rows > 1 { 0 } else { shape[1] as i64 },
            from.stride as i64,
            to.stride as i64,
        )
        .grid(from.rows.div_ceil(tile) * from.columns.div_ceil(block))
        .stream(cx.stream())
        .launch(cx.device())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::check_instructions;
    use tilewright::Target;

    #[test]
    fn groups_are_read_and_written_wide() {
        let (target, wide) = (Target::sm_90a(), ["ld.global.nc.v4.b32", "st.global"]);
        for (g, r) in [(128, 32), (TILE, 1), (WHOLE, 1)] {
            let consts = QuantiseGroupsConsts { G: g, R: r };
            let compiled = consts.request::<bf16, F8E4M3>().num_warps((g * r / 512).min(16) as u32).compile(target);
            check_instructions(&format!("groups of {g}"), compiled, &wide);
        }
        let consts = QuantiseAllConsts { BLOCK: TILE };
        check_instructions("one scale", consts.request::<bf16, F8E4M3>().num_warps(8).compile(target), &wide);
    }
}
