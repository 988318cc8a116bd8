//! Matrix products: of every dtype and instruction, alone, in loops, under masks and branches, one fed by another.

mod attention;

use kernel_core::ir::{
    BinaryOp, CmpOp, ControlOp, CreateOp, DType, DotOp, DotPrecision, ShapeOp, Ty, ValueId, accumulators,
};

use super::control::{Bounds, attributes, bounds, condition};
use super::descriptors::{self, Column};
use super::features::Feature;
use super::memory::{offsets, shifted, some_mask};
use super::shape::spread;
use super::writer::Writer;
use crate::case::{Input, Pattern};
use crate::facts::Fact;

pub use attention::attention;

/// The sizes and dtypes of a kernel's products.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Rows, columns, and the inner size.
    pub sizes: [i64; 3],
    /// The dtype of both factors (of the 8-bit floats, the second may be another).
    pub factor: DType,
    /// The dtype of sums.
    pub acc: DType,
    /// How f32 is multiplied.
    pub precision: DotPrecision,
    /// Whether shape and dtype are those of `wgmma`.
    pub wgmma: bool,
}

/// What the kernel multiplies. `large` asks for products that four warps do together.
pub fn plan(w: &mut Writer, large: bool) -> Plan {
    let factor = w.random.pick(&[
        DType::F16,
        DType::F16,
        DType::F16,
        DType::BF16,
        DType::BF16,
        DType::F32,
        DType::F8E4M3,
        DType::F8E5M2,
        DType::I8,
        DType::U8,
        DType::F64,
    ]);
    let acc = w.random.pick(accumulators(factor));
    let precision = w.random.pick(&[
        DotPrecision::Tf32,
        DotPrecision::Tf32,
        DotPrecision::Tf32x3,
        DotPrecision::Bf16x3,
        DotPrecision::Bf16x6,
        DotPrecision::Ieee,
    ]);
    // What one instruction takes along the inner dimension.
    let unit = match factor {
        DType::F64 => 8,
        _ => 32 / i64::from(factor.bytes()),
    };
    let sizes = match large {
        true => [64, w.random.pick(&[8, 16, 16, 32]), unit.max(16)],
        false => [
            w.random.pick(&[16, 16, 32, 8, 4]),
            w.random.pick(&[8, 16, 16, 32, 4]),
            w.random.pick(&[unit, unit, unit, 2 * unit, 8, 4]),
        ],
    };
    let form = factor != DType::F64 && !(factor == DType::F32 && precision != DotPrecision::Tf32) && acc != DType::F16;
    Plan { sizes, factor, acc, precision, wgmma: large && form }
}

/// A product of two tiles onto a third.
fn multiply(w: &mut Writer, plan: &Plan, a: ValueId, b: ValueId, acc: ValueId) -> Option<ValueId> {
    let value = w.emit(DotOp::Dot { precision: plan.precision, by: None }, &[a, b, acc])?;
    w.has(Feature::Product);
    w.has(if plan.wgmma && w.shape(a)[0] >= 64 { Feature::Wgmma } else { Feature::OtherProduct });
    if !w.counters.is_empty() {
        w.has(Feature::ProductInLoop);
    }
    Some(value)
}

/// Where the factor of a product comes from in each trip.
#[derive(Clone, Copy)]
enum Source {
    /// Pointers computed from the trip's number; the base is a pointer parameter.
    Pointers { param: kernel_core::ir::ParamId, fact: Fact, turned: bool },
    /// Blocks of a descriptor, stored as they are or turned.
    Blocks { descriptor: ValueId, fact: Fact, turned: bool, column: Column },
}

/// Only small numbers, so that sums of products are exact.
fn narrow(input: &mut Input, dtype: DType) {
    input.step = 0;
    input.range = if matches!(dtype, DType::U8 | DType::U32) { (0, 2) } else { (-2, 2) };
}

/// A factor `[rows, columns]` of which there are `count` beside each other in memory.
fn source(w: &mut Writer, dtype: DType, shape: [i64; 2], count: i64) -> Source {
    let blocks = w.random.chance(40);
    source_by(w, dtype, shape, count, blocks)
}

/// As [`source`], by a descriptor where that is asked for and possible.
fn source_by(w: &mut Writer, dtype: DType, shape: [i64; 2], count: i64, blocks: bool) -> Source {
    let turned = w.random.chance(40);
    let [rows, columns] = if turned { [shape[1], shape[0]] } else { shape };
    let small = Fact::exact(-2.0, 2.0, 0);
    if blocks && columns * i64::from(dtype.bytes()) >= 16 {
        let beside = descriptors::beside(w);
        let (descriptor, _) = descriptors::new(w, dtype, &[rows, columns], &[count, beside], false);
        narrow(w.inputs.last_mut().expect("the descriptor's"), dtype);
        let column = Column::of(w, columns, beside);
        return Source::Blocks { descriptor, fact: small, turned, column };
    }
    // Sometimes memory ends before the last block does.
    let len = rows * columns * count;
    let (mut input, _) = w.recipe(dtype, len);
    narrow(&mut input, dtype);
    let param = w.buffer(dtype, false, input);
    Source::Pointers { param, fact: small, turned }
}

/// The factor of that number.
fn factor(w: &mut Writer, source: Source, shape: [i64; 2], number: ValueId, most: i64) -> Option<ValueId> {
    let turned = matches!(source, Source::Pointers { turned: true, .. } | Source::Blocks { turned: true, .. });
    let stored = if turned { [shape[1], shape[0]] } else { shape };
    let value = match source {
        Source::Blocks { descriptor, fact, column, .. } => {
            let rows = w.int(stored[0]);
            let (row, column) = (w.binary(BinaryOp::Mul, number, rows)?, column.value(w));
            descriptors::load(w, descriptor, &[row, column], fact)?
        }
        Source::Pointers { param, fact, .. } => {
            let size = w.int(stored[0] * stored[1]);
            let start = w.binary(BinaryOp::Mul, number, size)?;
            let tile = offsets(w, &stored, false);
            let at = shifted(w, tile, start);
            let mut mask = None;
            if w.random.chance(35) {
                w.has(Feature::MaskedProduct);
                w.has(Feature::MaskedLoad);
                let end = w.scalar((most * stored[0] * stored[1] - w.pool.len() as i64 % 5) as i32);
                let end = w.splat(end, &stored);
                mask = w.compare(CmpOp::Lt, at, end);
            }
            let pointers = w.pointers(param, at);
            w.load(pointers, mask, None, fact)
        }
    };
    match turned {
        true => w.emit(ShapeOp::Permute { perm: vec![1, 0] }, &[value]),
        false => Some(value),
    }
}

/// The first factor of the next product, as it is or after some arithmetic in registers.
fn dressed(w: &mut Writer, value: ValueId) -> Option<ValueId> {
    let (dtype, shape) = (w.dtype(value), w.shape(value));
    if !w.random.chance(30) {
        return Some(value);
    }
    let mask = some_mask(w, &shape);
    w.has(Feature::MaskedProduct);
    let other = if w.random.chance(50) { w.filled(1.0, dtype, &shape) } else { w.filled(0.0, dtype, &shape) };
    w.select(mask, value, other)
}

/// One product of tiles that may be anything.
pub fn single(w: &mut Writer, plan: &Plan) -> Option<ValueId> {
    let [m, n, k] = plan.sizes;
    let a = factor_from_values(w, plan.factor, &[m, k]);
    let b = factor_from_values(w, plan.factor, &[k, n]);
    let acc = match w.random.chance(60) {
        true => w.filled(0.0, plan.acc, &[m, n]),
        false => {
            let value = w.like(plan.acc, &[m, n]);
            w.small(value, plan.acc)
        }
    };
    let value = multiply(w, plan, a, b, acc)?;
    Some(w.keep(value))
}

pub(super) fn factor_from_values(w: &mut Writer, dtype: DType, shape: &[i64]) -> ValueId {
    let own = if w.random.chance(70) { dtype } else { super::some_dtype(&mut w.random) };
    let value = w.like(own, shape);
    w.small(value, dtype)
}

/// A loop whose trips each add a product to an accumulator.
pub fn accumulate(w: &mut Writer, plan: &Plan) -> Option<()> {
    let [m, n, k] = plan.sizes;
    // Products of four warps stay in flight from trip to trip only where nothing else looks at the accumulator.
    let plain = plan.wgmma && w.random.chance(50);
    let bounds = bounds(w, if plain { &[2, 3, 4, 5] } else { &[0, 1, 2, 3, 3, 4] });
    let op = attributes(w, &bounds);
    let most = bounds.most.max(1);
    let (blocks, asked) = (plain && w.random.chance(50), plain && w.random.chance(50));
    let op = if asked { specialized(w, op) } else { op };
    let [left, right] = [[m, k], [k, n]].map(|shape| {
        let blocks = blocks || w.random.chance(40);
        source_by(w, plan.factor, shape, most, blocks)
    });
    let twice = w.random.chance(25);
    let first = if w.random.chance(80) { w.filled(0.0, plan.acc, &[m, n]) } else { w.like(plan.acc, &[m, n]) };
    let first = w.small(first, plan.acc);
    let sums = sum_fact(plan, most, if twice { 2.0 } else { 1.0 })?;
    let scaled = !plain && w.random.chance(25);
    let before = [kept(w, left, [m, k], most)?, kept(w, right, [k, n], most)?];
    let met = Met::new(w, plan, i64::from(w.grid));
    let program = w.program();
    let block = met.and_then(|met| met.early(w, program));
    let results = product_loop(w, &bounds, op, &[first], &[sums], |w, number, carried| {
        let mut a = factor_or(before[0], w, left, [m, k], number, most)?;
        let b = factor_or(before[1], w, right, [k, n], number, most)?;
        if plain {
            return Some(vec![multiply(w, plan, a, b, carried[0])?]);
        }
        a = dressed(w, a)?;
        let mut acc = carried[0];
        if scaled {
            acc = rescale(w, acc)?;
        }
        acc = under_condition(w, acc, |w| multiply(w, plan, a, b, acc))?;
        if twice {
            acc = multiply(w, plan, a, b, acc)?;
        }
        w.keep(a);
        more_steps(w);
        Some(vec![acc])
    })?;
    let acc = match met {
        Some(met) => met.meet(w, block, program, results[0])?,
        None => results[0],
    };
    finish(w, acc)
}

/// Blocks that meet the sums of a product, each in its place: a residual, or factors of the sums.
#[derive(Clone, Copy)]
struct Met {
    source: Source,
    shape: [i64; 2],
    count: i64,
    /// Whether a block is loaded before the sums are there.
    early: bool,
    op: BinaryOp,
}

impl Met {
    /// Of so many blocks below each other, sometimes.
    fn new(w: &mut Writer, plan: &Plan, count: i64) -> Option<Met> {
        let [m, n, _] = plan.sizes;
        let dtype = w.random.pick(&[DType::F16, DType::BF16, DType::F32, plan.acc]);
        if !w.random.chance(35) {
            return None;
        }
        let source = source_by(w, dtype, [m, n], count, true);
        w.has(Feature::Met);
        let op = w.random.pick(&[BinaryOp::Add, BinaryOp::Add, BinaryOp::Mul]);
        Some(Met { source, shape: [m, n], count, early: w.random.chance(50), op })
    }

    /// The block of this number, if it is loaded early.
    fn early(self, w: &mut Writer, number: ValueId) -> Option<ValueId> {
        if self.early { factor(w, self.source, self.shape, number, self.count) } else { None }
    }

    /// The sums with the block of this number, which may be there already.
    fn meet(self, w: &mut Writer, block: Option<ValueId>, number: ValueId, acc: ValueId) -> Option<ValueId> {
        let block = match block {
            Some(block) => block,
            None => factor(w, self.source, self.shape, number, self.count)?,
        };
        let block = w.cast(block, w.dtype(acc));
        w.binary(self.op, acc, block)
    }
}

/// A factor that is loaded before the loop, sometimes.
fn kept(w: &mut Writer, source: Source, shape: [i64; 2], most: i64) -> Option<Option<ValueId>> {
    if !w.random.chance(15) {
        return Some(None);
    }
    w.has(Feature::Kept);
    let first = w.int(0);
    factor(w, source, shape, first, most).map(Some)
}

/// A factor that was loaded before the loop, or that of a trip.
fn factor_or(
    before: Option<ValueId>,
    w: &mut Writer,
    source: Source,
    shape: [i64; 2],
    number: ValueId,
    most: i64,
) -> Option<ValueId> {
    match before {
        Some(before) => Some(before),
        None => {
            let number = looked_up(w, number, most)?;
            factor(w, source, shape, number, most)
        }
    }
}

/// The number of a block, sometimes from a table that has any of them at that place.
fn looked_up(w: &mut Writer, number: ValueId, most: i64) -> Option<ValueId> {
    if !w.random.chance(25) {
        return Some(number);
    }
    w.has(Feature::Indirect);
    let salt = w.random.bits() >> 40;
    let (pattern, range, len) = (Pattern::Noise, (0, most - 1), most as usize);
    let param = w.buffer(DType::I32, false, Input { pattern, range, step: 0, salt, len, tensor: None, ulps: None });
    let pointer = w.pointers(param, number);
    let fact = Fact::exact(0.0, (most - 1) as f64, 0);
    let mut found = w.load(pointer, None, None, fact);
    w.know(found, fact);
    if w.random.chance(50) {
        // As kernels do that trust nobody.
        let last = w.int(most - 1);
        found = w.binary(BinaryOp::Min, found, last)?;
        w.know(found, fact);
    }
    Some(found)
}

/// The loop with the mark that asks for warps that fetch.
fn specialized(w: &mut Writer, op: ControlOp) -> ControlOp {
    w.has(Feature::Specialized);
    match op {
        ControlOp::For { reverse, unroll, counter, stages, runs, no_wrap, unroll_by, stages_by, .. } => {
            ControlOp::For {
                reverse,
                unroll,
                counter,
                stages,
                warp_specialize: true,
                runs,
                no_wrap,
                unroll_by,
                stages_by,
            }
        }
        other => other,
    }
}

/// What a program stores of a tile.
#[derive(Clone, Copy)]
enum Stores {
    One,
    /// Two blocks beside each other.
    Apart,
    /// Two blocks, the second of which is stored over a part of the first, or all of it.
    Overlapping,
}

/// Programs that take one tile after another, each a loop of products of blocks, as persistent kernels do:
///
/// ```text
/// for tile in (program_id(0)..tiles).step_by(num_programs(0)) {
///     acc = 0; for trip { acc += a[tile, trip] * b[trip] }; c.store([tile, 0], acc)
/// }
/// ```
///
/// sometimes with a second loop behind the first, and with a factor that is the same for the whole tile.
pub fn persistent(w: &mut Writer, plan: &Plan) -> Option<()> {
    let [m, n, k] = plan.sizes;
    let inner = bounds(w, &[1, 2, 3, 4]);
    let most = inner.most.max(1);
    let (tiles, grid) = (w.random.range(1, 5), i64::from(w.grid));
    let again = w.random.chance(25);
    let sums = sum_fact(plan, most, if again { 2.0 } else { 1.0 })?;
    let left = source_by(w, plan.factor, [m, k], tiles * most, true);
    let right = source_by(w, plan.factor, [k, n], most, true);
    let to = if w.random.chance(50) { plan.acc } else { w.random.pick(&[DType::F16, DType::BF16, DType::F32]) };
    let stores = w.random.pick(&[Stores::One, Stores::One, Stores::Apart, Stores::Overlapping]);
    let beside = if matches!(stores, Stores::One) { 1 } else { 2 };
    let (output, _) = descriptors::new(w, to, &[m, n], &[tiles, beside], true);
    let met = Met::new(w, plan, tiles);
    let outer = Bounds {
        low: w.program(),
        high: w.int(tiles),
        step: w.emit(CreateOp::NumPrograms { axis: 0 }, &[])?,
        most: (tiles + grid - 1) / grid,
        constant: false,
    };
    let (inner_op, mut op) = (attributes(w, &inner), attributes(w, &outer));
    if w.random.chance(60) {
        op = specialized(w, op);
    }
    w.has(Feature::Persistent);
    let built = product_loop(w, &outer, op, &[], &[], |w, _, _| {
        let tile = *w.counters.last()?;
        w.know(tile, Fact::exact(0.0, tiles as f64, 0));
        let zero = w.filled(0.0, plan.acc, &[m, n]);
        let block = met.and_then(|met| met.early(w, tile));
        let before = if w.random.chance(25) {
            w.has(Feature::Kept);
            Some(factor(w, left, [m, k], tile, most * tiles)?)
        } else {
            None
        };
        let loops = |w: &mut Writer, start: ValueId| {
            product_loop(w, &inner, inner_op.clone(), &[start], &[sums], |w, number, carried| {
                let trips = w.int(most);
                let first = w.binary(BinaryOp::Mul, tile, trips)?;
                let at = w.binary(BinaryOp::Add, first, number)?;
                let a = factor_or(before, w, left, [m, k], at, most * tiles)?;
                let b = factor(w, right, [k, n], number, most)?;
                Some(vec![multiply(w, plan, a, b, carried[0])?])
            })
        };
        let mut acc = loops(w, zero)?[0];
        if again {
            acc = loops(w, acc)?[0];
        }
        if w.random.chance(30) {
            acc = w.small(acc, plan.acc);
        }
        let plain = acc;
        if let Some(met) = met {
            acc = met.meet(w, block, tile, acc)?;
        }
        let (value, rows) = (w.cast(acc, to), w.int(m));
        let row = w.binary(BinaryOp::Mul, tile, rows)?;
        let mut columns = vec![w.int(0)];
        match stores {
            Stores::One => {}
            Stores::Apart => columns.push(w.int(n)),
            Stores::Overlapping => columns.push(Column::of(w, n, beside).value(w)),
        }
        // What is stored at a second place is something else.
        let one = w.filled(1.0, plan.acc, &[m, n]);
        let other = w.binary(BinaryOp::Add, plain, one)?;
        let mut values = vec![value, w.cast(other, to)];
        if columns.len() > 1 {
            w.has(Feature::Stores);
            if w.random.chance(50) {
                columns.swap(0, 1);
            }
            if w.random.chance(30) {
                values.swap(0, 1);
            }
        }
        for (column, value) in columns.into_iter().zip(values) {
            w.raw(kernel_core::ir::DescOp::DescStore, &[output, value, row, column], &[])?;
        }
        Some(Vec::new())
    });
    built.map(|_| ())
}

/// Computes a value in one branch of an `if`, sometimes; the other leaves the value as it was.
fn under_condition(
    w: &mut Writer,
    before: ValueId,
    build: impl FnOnce(&mut Writer) -> Option<ValueId>,
) -> Option<ValueId> {
    if !w.random.chance(25) {
        return build(w);
    }
    w.has(Feature::ProductInIf);
    w.has(Feature::If);
    let condition = condition(w);
    let regions = [w.func.new_region([]), w.func.new_region([])];
    let inside = w.inside(regions[0], |w| {
        let value = build(w);
        w.yields(&[value.unwrap_or(before)]);
        value
    })?;
    w.inside(regions[1], |w| w.yields(&[before]));
    let value = w.raw(ControlOp::If, &[condition], &regions)?[0];
    let fact = w.fact(inside).hull(w.fact(before));
    w.know(value, fact);
    Some(value)
}

/// Something else in the loop, sometimes.
fn more_steps(w: &mut Writer) {
    if w.random.chance(35) {
        super::steps(w, super::control::MAX_DEPTH, 1, 2);
    }
}

/// What sums of all trips can be; `None` if they could round.
fn sum_fact(plan: &Plan, trips: i64, products: f64) -> Option<Fact> {
    let most = 4.0 + products * trips as f64 * plan.sizes[2] as f64 * 4.0;
    let fact = Fact::exact(-most, most, 0).with_open_zero();
    // Sums of 8-bit floats keep 13 bits of fraction in hardware.
    let narrow = plan.factor.is_fp8() && !fact.needs_at_most(12);
    if narrow { None } else { fact.summed(plan.acc) }
}

/// The accumulator times one factor per row, which is 0, 1 or -1.
fn rescale(w: &mut Writer, acc: ValueId) -> Option<ValueId> {
    w.has(Feature::Rescaled);
    let (shape, dtype, fact) = (w.shape(acc), w.dtype(acc), w.fact(acc));
    let mask = some_mask(w, &shape[..1]);
    let value = w.random.pick(&[0.0, -1.0]);
    let (one, other) = (w.filled(1.0, dtype, &shape[..1]), w.filled(value, dtype, &shape[..1]));
    let alpha = w.select(mask, one, other)?;
    let alpha = spread(w, alpha, 1, &shape)?;
    let value = w.binary(BinaryOp::Mul, acc, alpha)?;
    w.know(value, fact);
    Some(value)
}

/// A loop around `build`, which gets the number of the trip and the carried values and gives the next ones, whose facts
/// hold in every trip.
fn product_loop(
    w: &mut Writer,
    bounds: &Bounds,
    op: ControlOp,
    first: &[ValueId],
    facts: &[Fact],
    build: impl FnOnce(&mut Writer, ValueId, &[ValueId]) -> Option<Vec<ValueId>>,
) -> Option<Vec<ValueId>> {
    let operands: Vec<ValueId> =
        [bounds.low, bounds.high, bounds.step].into_iter().chain(first.iter().copied()).collect();
    let tys: Vec<Ty> =
        std::iter::once(bounds.low).chain(first.iter().copied()).map(|value| w.func.ty(value).clone()).collect();
    let region = w.func.new_region(tys);
    let args = w.func.region(region).args.clone();
    w.know(args[0], Fact::any(DType::I32));
    args[1..].iter().zip(facts).for_each(|(&arg, &fact)| w.know(arg, fact));
    let outer = w.trips;
    w.trips *= bounds.most.max(1) as f64;
    w.counters.push(args[0]);
    let built = w.inside(region, |w| {
        w.pool.push(args[0]);
        // Which trip this is, whatever the bounds and the direction are.
        let from = w.binary(BinaryOp::Sub, args[0], bounds.low)?;
        let number = w.binary(BinaryOp::Div, from, bounds.step)?;
        w.know(number, Fact::exact(0.0, bounds.most.max(1) as f64 - 1.0, 0));
        let next = build(w, number, &args[1..])?;
        w.yields(&next);
        Some(())
    });
    w.counters.pop();
    w.trips = outer;
    built?;
    if !first.is_empty() {
        w.has(Feature::Carried);
    }
    let results = w.raw(op, &operands, &[region])?;
    results.iter().zip(facts).for_each(|(&result, &fact)| w.know(result, fact));
    Some(results)
}

/// Makes the sums available, in another dtype or with a bias too, and stores them as a block or later.
fn finish(w: &mut Writer, acc: ValueId) -> Option<()> {
    let (shape, dtype) = (w.shape(acc), w.dtype(acc));
    w.keep(acc);
    if w.random.chance(30) {
        let bias = w.like(dtype, &shape[1..]);
        let bias = w.small(bias, dtype);
        let bias = spread(w, bias, 0, &shape)?;
        if let Some(sum) = w.binary(BinaryOp::Add, acc, bias) {
            w.keep(sum);
        }
    }
    if w.random.chance(40) {
        let to = w.random.pick(&[DType::F16, DType::BF16, DType::F32, DType::I32]);
        let narrow = w.cast(acc, to);
        w.keep(narrow);
        if w.random.chance(60) {
            descriptors::store_value(w, narrow)?;
        }
    }
    Some(())
}
