//! Cross entropy of logits that are never written: their exponentials are, and are a factor of their gradient.
//!
//! With `e[i][j] = exp(logits[i][j] - reference[i])` and the sums `mass[i]` of its rows, the gradient of logits is
//! `factor[i] * e[i][j]`, `factor = scale / mass`, and at a row's target `factor[i] * (e[i][j] - mass[i])`. So the element at the
//! target becomes `e - mass`, the gradient of `x` is `factor * (e @ weight)` and that of the weight `e^T @ (factor * x)`: no pass
//! over logits stands between the products, and they are never rounded.
//!
//! The reference cancels out. It is zero, unless the mass of a row turns out to be so large or so small that numbers of the dtype
//! may not hold what follows: then all is done once more, with the greatest logit of each row.

use crate::products::matmul::problem::{Order, order};
use crate::products::tiles::{balanced, corner};
use crate::{Context, TensorView, TensorViewMut, check, workspace};
use tilewright::launch::{MaybeView, MaybeViewMut};
use tilewright::prelude::*;
use tilewright::{Result, View, ViewMut};

/// Rows of a program of [`finish`].
const ROWS: usize = 8;

/// The farthest from zero that the logarithm of a row's mass may be: `e` is below `exp(88)` in f32 and bf16, and factors, which are
/// multiplied with elements of `x`, above `exp(-88)`.
const FARTHEST: f32 = 50.0;

/// Whether one of so many numbers is not zero.
#[device]
fn has_some(numbers: Ptr<f32>, count: i32) -> bool {
    let mut most = zeros::<f32>([1024]);
    for first in (0..count).step_by(1024) {
        let at = first + arange(0, 1024);
        most = maximum(most, load(numbers + at, mask = at < count));
    }
    max(most, axis = 0) > 0.0
}

/// `e = exp(x @ weight^T - references)`, and of each row of a tile their sum and the greatest logit, as `[tiles, rows]`.
///
/// The second time, with references, there is something to do only if rows are `far`.
#[kernel]
pub(in crate::rows) fn exponentials<T: Float, const M: usize, const N: usize, const K: usize, const WHOLE: bool>(
    x: TensorDesc<T, { [M, K] }>,
    weight: TensorDesc<T, { [N, K] }>,
    references: Option<Ptr<f32>>,
    far: Option<Ptr<f32>>,
    e: TensorDescMut<T, { [M, N] }>,
    sums: PtrMut<f32>,
    peaks: PtrMut<f32>,
    m: i32,
    n: i32,
    k: i32,
) {
    let mut tiles = cdiv(m, M) * cdiv(n, N);
    if let Some(far) = far {
        tiles = tiles * has_some(far, cdiv(m, ROWS as i32)) as i32;
    }
    #[warp_specialize]
    for tile in (program_id(0)..tiles).step_by(num_programs(0)) {
        let (row, column) = corner::<M, N, 8>(tile, m, n);
        let mut logits = zeros::<f32>([M, N]);
        for first in (0..k).step_by(K) {
            logits = dot(x.load([row, first]), weight.load([column, first]).trans(), acc = logits);
        }
        if !WHOLE {
            logits = select((column + arange(0, N) < n)[(None, ..)], logits, f32::NEG_INFINITY);
        }
        let rows = row + arange(0, M);
        let place = column / N * m + rows;
        store(peaks + place, max(logits, axis = 1), mask = rows < m);
        if let Some(references) = references {
            logits = logits - load(references + rows, mask = rows < m)[(.., None)];
        }
        let powers = exp2(logits * std::f32::consts::LOG2_E);
        store(sums + place, sum(powers, axis = 1), mask = rows < m);
        e.store([row, column], powers as T);
    }
}

/// The losses and factors of rows, the elements of `e` at their targets, and `scaled = factor * x`.
///
/// The first time, without references, it finds them, and whether its rows `are_far`.
#[kernel]
pub(in crate::rows) fn finish<T: Float, I: Int, const TILES: usize, const BLOCK: usize>(
    x: Ptr<T>,
    weight: Ptr<T>,
    targets: Ptr<I>,
    scale: Option<Ptr<f32>>,
    sums: Ptr<f32>,
    peaks: Ptr<f32>,
    references: Option<Ptr<f32>>,
    far: Option<Ptr<f32>>,
    new_references: Option<PtrMut<f32>>,
    are_far: Option<PtrMut<f32>>,
    e: PtrMut<T>,
    factors: PtrMut<f32>,
    losses: PtrMut<f32>,
    scaled: PtrMut<T>,
    rows: i32,
    classes: i32,
    tiles: i32,
    hidden: i32,
    x_row: i64,
    weight_row: i64,
    e_row: i64,
    scaled_row: i64,
    ignore: i64,
) {
    if let Some(far) = far {
        if !has_some(far, num_programs(0)) {
            return;
        }
    }
    let row = program_id(0) * ROWS + arange(0, ROWS);
    let inside = row < rows;
    let (mut mass, mut peak) = (zeros::<f32>([ROWS]), full::<f32>([ROWS], f32::NEG_INFINITY));
    for first in (0..tiles).step_by(TILES) {
        let tile = (first + arange(0, TILES))[(.., None)];
        let (at, there) = (tile * rows + row[(None, ..)], (tile < tiles) & inside[(None, ..)]);
        mass += sum(load(sums + at, mask = there), axis = 0);
        peak = maximum(peak, max(load(peaks + at, mask = there, other = f32::NEG_INFINITY), axis = 0));
    }
    let reference =
        if let Some(references) = references { load(references + row, mask = inside) } else { zeros::<f32>([ROWS]) };
    let target = load(targets + row, mask = inside) as i64;
    let counts = inside & (target != ignore);
    let lse = log(mass);
    if let Some(are_far) = are_far {
        // What is no number is far, too.
        let is_far = counts & !(abs(lse) <= FARTHEST);
        store(are_far + program_id(0), max(is_far as i32, axis = 0) as f32);
    }
    if let Some(new_references) = new_references {
        store(new_references + row, peak, mask = inside);
    }
    assert!(!counts | ((target >= 0) & (target < classes as i64)), "a target is no class, and is not ignored");
    let target = select(counts, target, 0);
    let factor = if let Some(scale) = scale { load(scale) / mass } else { 1.0 / mass };
    let factor = select(counts, factor, 0.0);
    store(factors + row, factor, mask = inside);
    let mut chosen = zeros::<f32>([ROWS]);
    let (own, of_target) = ((row as i64 * x_row)[(.., None)], (target * weight_row)[(.., None)]);
    for first in (0..hidden).step_by(BLOCK) {
        let column = (first + arange(0, BLOCK))[(None, ..)];
        let mask = (column < hidden) & inside[(.., None)];
        let x = load(x + (own + column as i64), mask = mask) as f32;
        chosen += sum(x * load(weight + (of_target + column as i64), mask = mask) as f32, axis = 1);
        let part = select(counts[(.., None)], x * factor[(.., None)], 0.0);
        store(scaled + ((row as i64 * scaled_row)[(.., None)] + column as i64), part as T, mask = mask);
    }
    // The mass has the target's exponential by tensor cores, which round their sums otherwise: where that is all of it, neither the
    // loss nor what is missing of the mass may come out negative.
    let loss = (reference - chosen) + lse;
    let loss = select((loss < 0.0) | !counts, 0.0, loss);
    store(losses + row, loss, mask = inside);
    let there = exp2((chosen - reference) * std::f32::consts::LOG2_E) - mass;
    let there = select(there > 0.0, 0.0, there);
    store(e + (row as i64 * e_row + target), there as T, mask = counts);
    // Of a row that does not count, nothing is left of what is no number either.
    let idle = inside & !counts;
    if max(idle as i32, axis = 0) > 0 {
        for first in (0..classes).step_by(BLOCK) {
            let column = (first + arange(0, BLOCK))[(None, ..)];
            let at = (row as i64 * e_row)[(.., None)] + column as i64;
            store(e + at, zeros::<T>([ROWS, BLOCK]), mask = idle[(.., None)] & (column < classes));
        }
    }
}

/// How [`exponentials`] runs.
#[derive(Clone, Copy)]
pub(in crate::rows) struct Tile {
    /// Rows, columns, and elements of sums in a step.
    pub(in crate::rows) sides: [usize; 3],
    pub(in crate::rows) warps: u32,
    /// Steps in flight.
    pub(in crate::rows) stages: u32,
}

impl Tile {
    /// Of so many classes; the columns do not depend on that. On a GPU two groups of four warps take whole tiles in turns, one of
    /// which computes exponentials while the other multiplies. For a part of a tile they have too few registers.
    pub(in crate::rows) fn choose(is_gpu: bool, classes: usize) -> Tile {
        match is_gpu {
            true if classes.is_multiple_of(128) => Tile { sides: [128, 128, 64], warps: 4, stages: 6 },
            true => Tile { sides: [128, 128, 64], warps: 8, stages: 4 },
            false => Tile { sides: [32, 32, 32], warps: 4, stages: 2 },
        }
    }

    fn of(cx: &Context, classes: usize) -> Tile {
        Tile::choose(cx.device().compute_capability().is_some(), classes)
    }
}

/// Parts of a workspace: factors, references, which rows are far, sums and peaks of tiles.
fn parts(cx: &Context, rows: usize, classes: usize) -> [usize; 5] {
    let of_tiles = classes.div_ceil(Tile::of(cx, classes).sides[1]).saturating_mul(rows);
    [rows, rows, rows.div_ceil(ROWS), of_tiles, of_tiles]
}

/// How many f32 rows of so many classes need beside their exponentials, if the dtype holds these.
pub(super) fn room<T: Float>(cx: &Context, rows: usize, classes: usize) -> usize {
    if is_wide_enough::<T>() { workspace::room(&parts(cx, rows, classes)) } else { 0 }
}

/// Whether the dtype holds exponentials.
fn is_wide_enough<T: Float>() -> bool {
    T::ELEMENT == bf16::ELEMENT
}

/// Whether the dtype holds exponentials, and the hardware copies blocks of all of the matrices.
pub(super) fn are_possible<T: Float>(cx: &Context, matrices: [TensorView<'_, T, 2>; 3]) -> bool {
    let capability = cx.device().compute_capability();
    let are_copied = matrices.iter().all(|matrix| {
        let [far, near] = matrix.strides();
        order([0, far, near], matrix.shape(), size_of::<T>()) == Some(Order::Across)
    });
    is_wide_enough::<T>() && are_copied && capability.is_none_or(|capability| capability >= (9, 0))
}

/// What [`write`] reads and writes.
pub(super) struct Work<'a, 'w, T: DType, I: DType> {
    pub(super) x: TensorView<'a, T, 2>,
    pub(super) weight: TensorView<'a, T, 2>,
    pub(super) targets: View<'a, I>,
    /// What losses of rows are multiplied by.
    pub(super) scale: Option<View<'a, f32>>,
    pub(super) ignore: i64,
    /// Becomes the gradient of logits, but for the factors.
    pub(super) e: TensorViewMut<'w, T, 2>,
    /// Becomes `x` times the factors.
    pub(super) scaled: TensorViewMut<'w, T, 2>,
    pub(super) losses: ViewMut<'w, f32>,
    /// What the products of `e` are multiplied by.
    pub(super) factors: ViewMut<'w, f32>,
    /// What is behind the factors of a workspace with as much [`room`].
    pub(super) workspace: ViewMut<'w, f32>,
}

/// Launches all of it but the products with `e`, for at least one row.
pub(super) fn write<T: Float, I: Int>(cx: &Context, work: Work<'_, '_, T, I>) -> Result<()> {
    let Work { x, weight, targets, scale, ignore, mut e, mut scaled, mut losses, mut factors, workspace } = work;
    let ([rows, hidden], classes) = (x.shape(), weight.shape()[0]);
    let Tile { sides: [bm, bn, bk], warps, stages } = Tile::of(cx, classes);
    let [m, n, k] = [check::size("x", rows)?, check::size("weight", classes)?, check::size("x", hidden)?];
    let tiles = check::size("weight", classes.div_ceil(bn))?;
    let [_, own_references, groups, of_tiles, _] = parts(cx, rows, classes);
    let (mut references, rest) = workspace::part(workspace, own_references)?;
    let (mut far, rest) = workspace::part(rest, groups)?;
    let [mut sums, mut peaks] = workspace::both(rest, [of_tiles, of_tiles])?;
    let [x_row, weight_row, e_row, scaled_row] =
        [x.strides(), weight.strides(), e.strides(), scaled.strides()].map(|[row, _]| row as i64);
    let x_blocks = TensorDesc::with_strides(x.elements(), x.shape(), x.strides())?;
    let weight_blocks = TensorDesc::with_strides(weight.elements(), weight.shape(), weight.strides())?;
    let programs = balanced(rows.div_ceil(bm) * classes.div_ceil(bn), cx.device().multiprocessor_count());
    let (e_shape, e_strides) = (e.shape(), e.strides());
    for is_first in [true, false] {
        let mut e_blocks = TensorDescMut::with_strides(e.elements_mut(), e_shape, e_strides)?;
        ExponentialsConsts { M: bm, N: bn, K: bk, WHOLE: classes.is_multiple_of(bn) }
            .call(
                &x_blocks,
                &weight_blocks,
                MaybeView::from((!is_first).then(|| references.as_view())),
                MaybeView::from((!is_first).then(|| far.as_view())),
                &mut e_blocks,
                sums.reborrow(),
                peaks.reborrow(),
                m,
                n,
                k,
            )
            .grid(programs)
            .num_warps(warps)
            .num_stages(stages)
            .stream(cx.stream())
            .launch(cx.device())?;
        let (old_references, old_far, new_references, new_far) = if is_first {
            (None, None, Some(references.reborrow()), Some(far.reborrow()))
        } else {
            (Some(references.as_view()), Some(far.as_view()), None, None)
        };
        FinishConsts { TILES: 64, BLOCK: 256 }
            .call(
                x.elements(),
                weight.elements(),
                targets,
                MaybeView::from(scale),
                sums.as_view(),
                peaks.as_view(),
                MaybeView::from(old_references),
                MaybeView::from(old_far),
                MaybeViewMut::from(new_references),
                MaybeViewMut::from(new_far),
                e.elements_mut(),
                factors.reborrow(),
                losses.reborrow(),
                scaled.elements_mut(),
                m,
                n,
                tiles,
                k,
                x_row,
                weight_row,
                e_row,
                scaled_row,
                ignore,
            )
            .grid(rows.div_ceil(ROWS))
            .num_warps(4)
            .stream(cx.stream())
            .launch(cx.device())?;
    }
    Ok(())
}
