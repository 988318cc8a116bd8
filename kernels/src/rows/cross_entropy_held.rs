//! The gradient of cross entropy for long rows of 16 bits, which are read once.
//!
//! A program holds its row as it was loaded, two elements in a register, and converts it each time: for the maximum, for the sum
//! of exponentials, and for the gradient. 32,768 elements are 32 registers of each of 512 threads, and two such programs fit a
//! multiprocessor: one loads while the other computes or stores.

use super::cross_entropy::row_loss;
use tilewright::prelude::*;

/// The same elements, as ones of which the compilers know nothing: of those of 16 bits a register then holds two, where f32 of
/// before would be kept for what follows. They are combined with the zero that `program_id(1)` is.
#[device]
fn afresh<T: Float, const N: usize>(x: Tile<T, { [N] }>) -> Tile<T, { [N] }> {
    let zero = program_id(1) as i16;
    if T::BITS == 16 {
        inline_ptx("xor.b32 $0, $1, $2;", x, bitcast::<T>(zero), |x, _zero| x, pack = 2, pure = false)
    } else {
        x
    }
}

/// The gradient of each row's loss and the loss, as [`cross_entropy_gradient`](super::cross_entropy) has them, of a row that a
/// program holds in four pieces. The grid has one dimension.
#[kernel(flush = true)]
pub(super) fn cross_entropy_gradient_held<T: Float, I: Int, const PIECE: usize>(
    #[in_place(dlogits)] logits: Ptr<T>,
    targets: Ptr<I>,
    scale: Option<Ptr<f32>>,
    dloss: Option<Ptr<f32>>,
    losses: Option<PtrMut<f32>>,
    dlogits: PtrMut<T>,
    stride: i64,
    out_stride: i64,
    dloss_stride: i64,
    columns: i32,
    ignore: i64,
    smoothing: Const<f32>,
    z: f32,
) {
    let row = program_id(0);
    let (x, out) = (logits + row as i64 * stride, dlogits + row as i64 * out_stride);
    let lane = arange(0, PIECE);
    let inside = |first| first + lane < columns;
    let piece = |first| load(x + (first + lane), mask = inside(first), other = T::NEG_INFINITY);
    let (a, b, c, d) = (piece(0), piece(PIECE), piece(2 * PIECE), piece(3 * PIECE));
    let target = load(targets + row) as i64;
    if target == ignore {
        for first in (0..columns).step_by(PIECE) {
            store(out + (first + lane), zeros::<T>([PIECE]), mask = inside(first));
        }
        if let Some(losses) = losses {
            store(losses + row, 0.0);
        }
        return;
    }
    assert!(target >= 0 && target < columns as i64, "a target is no class, and is not ignored");
    let factor = if let Some(scale) = scale { load(scale) as T::Acc } else { 1.0 };
    let factor =
        if let Some(dloss) = dloss { factor * load(dloss + row as i64 * dloss_stride) as T::Acc } else { factor };
    let target = target as i32;
    let chosen = load(x + target) as T::Acc;
    // The difference first, which is exact near the maximum, however large that is.
    let binary = std::f32::consts::LOG2_E as T::Acc;
    let peak = max(maximum(maximum(a, b), maximum(c, d)), axis = 0) as T::Acc;
    let (a, b, c, d) = (afresh(a), afresh(b), afresh(c), afresh(d));
    let numerator = |v| exp2((v as T::Acc - peak) * binary);
    let mass = sum(numerator(a) + numerator(b) + numerator(c) + numerator(d), axis = 0);
    let total = if smoothing > 0.0 {
        let part = |v, first| select(inside(first), afresh(v) as T::Acc - peak, 0.0);
        sum(part(a, 0) + part(b, PIECE) + part(c, 2 * PIECE) + part(d, 3 * PIECE), axis = 0)
    } else {
        0.0
    };
    let (lse, share) = (peak + log(mass), smoothing as T::Acc / columns as T::Acc);
    if let Some(losses) = losses {
        store(losses + row, row_loss(peak, mass, chosen, share * total, smoothing, z) as f32);
    }
    let (a, b, c, d) = (afresh(a), afresh(b), afresh(c), afresh(d));
    let weight = factor * (1.0 + 2.0 * z as T::Acc * lse) / mass;
    let there = exp2((chosen - peak) * binary) * weight - factor * ((1.0 - smoothing) as T::Acc + share);
    let gradient = |v| {
        let gradient = numerator(v) * weight;
        (if smoothing > 0.0 { gradient - factor * share } else { gradient }) as T
    };
    store(out + lane, gradient(a), mask = inside(0));
    store(out + (PIECE + lane), gradient(b), mask = inside(PIECE));
    store(out + (2 * PIECE + lane), gradient(c), mask = inside(2 * PIECE));
    store(out + (3 * PIECE + lane), gradient(d), mask = inside(3 * PIECE));
    // Over what was just stored there.
    store(out + target, there as T);
}
