//! Products that are fed by products, as in attention.

use kernel_core::ir::{BinaryOp, CmpOp, ControlOp, DType, ShapeOp, Ty, ValueId};

use super::super::control::{attributes, bounds};
use super::super::features::Feature;
use super::super::memory::{program_times, shifted, some_mask};
use super::super::shape::along;
use super::super::writer::{Writer, dims};
use super::{
    Plan, dressed, factor, finish, more_steps, multiply, product_loop, rescale, source, source_by, specialized,
    sum_fact, under_condition,
};
use crate::facts::Fact;

/// Two products in a trip, the second of which multiplies what became of the first, as attention does:
///
/// ```text
/// x = q, or the product of q with another matrix, computed before the loop
/// for trip { s = x * k; if .. { s = masked s }; p = s in a few numbers; acc = acc * alpha + p * v; l = l * alpha + sum(p) }
/// ```
pub fn attention(w: &mut Writer, plan: &Plan) -> Option<()> {
    let [m, n, _] = plan.sizes;
    if plan.acc == DType::F16 || plan.factor == DType::U8 {
        return None;
    }
    let unit = if plan.factor == DType::F64 { 8 } else { 32 / i64::from(plan.factor.bytes()) };
    // Keys per trip; the size of a head, which is often the same.
    let keys = n.max(unit);
    let head = if w.random.chance(60) { keys } else { unit.max(16) };
    let bounds = bounds(w, &[1, 2, 3, 3, 4]);
    let op = attributes(w, &bounds);
    let most = bounds.most.max(1);
    let divided = plan.wgmma && w.random.chance(40);
    let op = if divided { specialized(w, op) } else { op };
    let q = source(w, plan.factor, [m, head], i64::from(w.grid));
    let [k, v] = [[head, keys], [keys, head]].map(|shape| {
        let blocks = divided || w.random.chance(40);
        source_by(w, plan.factor, shape, most, blocks)
    });
    // Sometimes the keys are the values too: a block in two orders.
    let both = w.random.chance(30);
    let program = w.program();
    let x = factor(w, q, [m, head], program, i64::from(w.grid))?;
    let x = before_loop(w, plan, x, head)?;
    let score = Plan { sizes: [m, keys, head], ..*plan };
    let value = Plan { sizes: [m, head, keys], ..*plan };
    let sums = sum_fact(&value, most, 2.0)?;
    sum_fact(&score, 1, 2.0)?;
    let zero = w.filled(0.0, plan.acc, &[m, head]);
    let zeros = w.filled(0.0, plan.acc, &[m]);
    let line = Fact::exact(-4.0 * (keys * most) as f64, 4.0 * (keys * most) as f64, 0);
    w.has(Feature::Chained);
    let results = product_loop(w, &bounds, op, &[zero, zeros], &[sums, line], |w, number, carried| {
        let right = factor(w, k, [head, keys], number, most)?;
        let none = w.filled(0.0, plan.acc, &[m, keys]);
        let s = multiply(w, &score, x, right, none)?;
        let s = masked_scores(w, s)?;
        let p = w.small(s, plan.acc);
        let weights = row_sums(w, p)?;
        let mut acc = carried[0];
        // Before the product, or behind it.
        let (before, behind) = (w.random.chance(50), w.random.chance(40));
        if before {
            acc = rescale(w, acc)?;
        }
        let factor_p = w.cast(p, plan.factor);
        let right = match both {
            true => w.emit(ShapeOp::Permute { perm: vec![1, 0] }, &[right])?,
            false => factor(w, v, [keys, head], number, most)?,
        };
        let mut acc = multiply(w, &value, factor_p, right, acc)?;
        if behind && !before {
            acc = rescale(w, acc)?;
        }
        let total = w.binary(BinaryOp::Add, carried[1], weights)?;
        more_steps(w);
        Some(vec![acc, total])
    })?;
    w.keep(results[1]);
    finish(w, results[0])
}

/// The factor that does not change in the loop: as it is loaded, or a product.
fn before_loop(w: &mut Writer, plan: &Plan, x: ValueId, head: i64) -> Option<ValueId> {
    if !w.random.chance(50) {
        return dressed(w, x);
    }
    w.has(Feature::FactorBeforeLoop);
    let m = w.shape(x)[0];
    let own = Plan { sizes: [m, head, head], ..*plan };
    let zero = w.int(0);
    let other = source(w, plan.factor, [head, head], 1);
    let right = factor(w, other, [head, head], zero, 1)?;
    let none = w.filled(0.0, plan.acc, &[m, head]);
    let product = multiply(w, &own, x, right, none)?;
    let small = w.small(product, plan.acc);
    Some(w.cast(small, plan.factor))
}

/// Scores under a mask that a condition switches on, as the diagonal of causal attention does.
fn masked_scores(w: &mut Writer, s: ValueId) -> Option<ValueId> {
    if w.random.chance(30) {
        return Some(s);
    }
    w.has(Feature::MaskedProduct);
    let (shape, dtype) = (w.shape(s), w.dtype(s));
    let mask = |w: &mut Writer| -> Option<ValueId> {
        let by_place = w.random.chance(60);
        let mask = match by_place {
            true => {
                let (row, column) = (along(w, 0, &shape), along(w, 1, &shape));
                let start = program_times(w, shape[0]);
                let row = shifted(w, row, start);
                w.compare(CmpOp::Ge, row, column)?
            }
            false => some_mask(w, &shape),
        };
        let low = w.filled(-3.0, dtype, &shape);
        w.select(mask, s, low)
    };
    under_condition(w, s, mask)
}

/// The sum of each row.
fn row_sums(w: &mut Writer, p: ValueId) -> Option<ValueId> {
    let (dtype, count) = (w.dtype(p), w.shape(p)[1] as f64);
    let fact = w.fact(p).sum_of(count, dtype)?;
    let scalar = Ty::tile(dtype, dims(&[]));
    let region = w.func.new_region([scalar.clone(), scalar]);
    let args = w.func.region(region).args.clone();
    w.inside(region, |w| {
        let sum = w.raw(kernel_core::ir::Op::binary(BinaryOp::Add), &args, &[]).expect("numbers")[0];
        w.yields(&[sum]);
    });
    let sums = w.raw(ControlOp::Reduce { axis: 1 }, &[p], &[region])?[0];
    w.know(sums, fact);
    w.has(Feature::Reduce);
    Some(sums)
}
