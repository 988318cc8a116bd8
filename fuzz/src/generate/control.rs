//! Loops and branches: carried tiles, no trips, steps, backwards; conditions that all, none and some take.

use kernel_core::ir::{BinaryOp, CmpOp, ControlOp, DType, RegionId, Ty, Unroll, ValueId};

use super::features::Feature;
use super::memory::loaded_number;
use super::writer::Writer;
use crate::facts::{Fact, precision};

/// How deep loops and branches may be nested.
pub const MAX_DEPTH: u32 = 2;

/// The bounds of a loop, and how often it runs at most.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The first value of the counter.
    pub low: ValueId,
    /// Where it ends.
    pub high: ValueId,
    /// From trip to trip.
    pub step: ValueId,
    /// How often it runs at most.
    pub most: i64,
    /// Whether all of them are constants.
    pub constant: bool,
}

/// Bounds of constants, arguments, data or the program's number.
pub fn bounds(w: &mut Writer, trips: &[i64]) -> Bounds {
    let trips = w.random.pick(trips);
    let step = w.random.pick(&[1, 1, 1, 2, 3, 16]);
    let low = w.random.pick(&[0, 0, 0, 1, -2]);
    // The last step may go beyond the end.
    let over = w.random.range(0, step - 1);
    let high = low + trips * step - if trips > 0 { over } else { -over.min(0) };
    let (mut most, mut constant) = (trips, false);
    let end = match w.random.below(6) {
        0 | 1 => {
            constant = true;
            w.int(high)
        }
        2 | 3 => w.scalar(high as i32),
        4 => loaded_number(w, low, high.max(low)),
        _ => {
            most = trips.max((i64::from(w.grid) - 1 - low).div_euclid(step) + 1).max(1);
            w.program()
        }
    };
    if most == 0 {
        w.has(Feature::NoTrips);
    }
    let (low, step) = (w.int(low), w.int(step));
    Bounds { low, high: end, step, most, constant }
}

/// The attributes of a loop.
pub fn attributes(w: &mut Writer, bounds: &Bounds) -> ControlOp {
    let reverse = w.random.chance(25);
    let stages = w.random.pick(&[0, 0, 0, 2, 3, 4]);
    let warp_specialize = w.random.chance(15);
    let unroll = match w.random.below(10) {
        0 if bounds.constant && bounds.most <= 4 => Unroll::Full,
        1 => Unroll::Never,
        2 => Unroll::By(w.random.pick(&[2, 3, 4])),
        _ => Unroll::Auto,
    };
    let noted = [
        (reverse, Feature::Reverse),
        (stages > 0, Feature::Stages),
        (warp_specialize, Feature::Specialized),
        (matches!(unroll, Unroll::Full | Unroll::By(_)), Feature::Unrolled),
        (!w.counters.is_empty(), Feature::Nested),
        (true, Feature::For),
    ];
    noted.into_iter().filter(|(there, _)| *there).for_each(|(_, feature)| w.has(feature));
    ControlOp::For {
        reverse,
        unroll,
        counter: None,
        stages,
        warp_specialize,
        runs: false,
        no_wrap: false,
        unroll_by: None,
        stages_by: None,
    }
}

/// How a carried value changes from trip to trip.
#[derive(Clone, Copy)]
enum Change {
    /// To anything of its type.
    Any,
    /// By what is added to it: an exact float, whose sum stays below this.
    Grows(f64),
    /// To values that stay in a range.
    Stays,
}

/// A `for` with random steps in it.
pub fn repeat(w: &mut Writer, depth: u32) -> Option<()> {
    let bounds = bounds(w, &[0, 1, 2, 2, 3, 3, 4, 5]);
    let op = attributes(w, &bounds);
    let mut carried = Vec::new();
    for _ in 0..w.random.below(4) {
        let value = w.some_tile();
        if w.shape(value).iter().product::<i64>() <= w.room {
            carried.push(value);
        }
    }
    if !carried.is_empty() {
        w.has(Feature::Carried);
    }
    let changes: Vec<Change> = carried.iter().map(|&value| change(w, value)).collect();
    let operands: Vec<ValueId> = [bounds.low, bounds.high, bounds.step].into_iter().chain(carried.clone()).collect();
    let tys: Vec<Ty> =
        std::iter::once(bounds.low).chain(carried.clone()).map(|value| w.func.ty(value).clone()).collect();
    let region = w.func.new_region(tys);
    let args = w.func.region(region).args.clone();
    w.know(args[0], Fact::any(DType::I32));
    let facts: Vec<Fact> =
        carried.iter().zip(&changes).map(|(&value, change)| carried_fact(w, value, *change)).collect();
    for (&arg, &fact) in args[1..].iter().zip(&facts) {
        w.know(arg, fact);
    }
    let most = bounds.most.max(1) as f64;
    let outer = w.trips;
    w.trips *= most;
    w.counters.push(args[0]);
    w.inside(region, |w| {
        w.pool.extend(&args);
        super::steps(w, depth + 1, 1, 4);
        let next: Vec<ValueId> = args[1..]
            .iter()
            .zip(&changes)
            .zip(&facts)
            .zip(&carried)
            .map(|(((&arg, &change), &fact), &first)| changed(w, arg, change, fact, first, most))
            .collect();
        w.yields(&next);
    });
    w.counters.pop();
    w.trips = outer;
    let results = w.raw(op, &operands, &[region])?;
    for (&result, &fact) in results.iter().zip(&facts) {
        w.know(result, fact);
        w.keep(result);
    }
    Some(())
}

fn change(w: &mut Writer, value: ValueId) -> Change {
    let (dtype, fact) = (w.dtype(value), w.fact(value));
    if !dtype.is_float() {
        return Change::Any;
    }
    let most = 2f64.powi(precision(dtype).min(16) - 2);
    let exact = fact.step.is_some_and(|step| step >= 0) && !fact.special && fact.magnitude() <= most / 2.0;
    match exact {
        true if w.random.chance(60) => Change::Grows(most),
        true => Change::Stays,
        false => Change::Any,
    }
}

/// What a carried value may be in any trip.
fn carried_fact(w: &Writer, value: ValueId, change: Change) -> Fact {
    let (dtype, fact) = (w.dtype(value), w.fact(value));
    match change {
        Change::Any => Fact::any(dtype),
        Change::Grows(most) => Fact::exact(-most, most, 0).with_open_zero(),
        Change::Stays => fact.hull(Fact::exact(-4.0, 4.0, 0)).with_open_zero(),
    }
}

/// The value that the next trip gets.
fn changed(w: &mut Writer, arg: ValueId, change: Change, fact: Fact, first: ValueId, trips: f64) -> ValueId {
    let (dtype, shape) = (w.dtype(arg), w.shape(arg));
    match change {
        Change::Any => w.like(dtype, &shape),
        Change::Stays => {
            let value = w.like(dtype, &shape);
            if w.fact(value).within(fact) { value } else { bounded_small(w, value, fact).unwrap_or(arg) }
        }
        Change::Grows(most) => {
            let value = w.like(dtype, &shape);
            let room = (most - w.fact(first).magnitude()) / trips;
            let fits = Fact::exact(-room, room, 0).with_open_zero();
            let delta = match w.fact(value).within(fits) && value != arg {
                true => Some(value),
                false => bounded_small(w, value, fits),
            };
            let Some(delta) = delta else { return arg };
            let op = w.random.pick(&[BinaryOp::Add, BinaryOp::Add, BinaryOp::Sub]);
            let Some(sum) = w.binary(op, arg, delta) else { return arg };
            // The bound holds over all trips, as only this adds to it.
            w.know(sum, fact);
            sum
        }
    }
}

fn bounded_small(w: &mut Writer, value: ValueId, fact: Fact) -> Option<ValueId> {
    let dtype = w.dtype(value);
    let small = w.small(value, dtype);
    w.fact(small).within(fact).then_some(small)
}

/// A scalar condition: by the program, an argument, a counter, or data.
pub fn condition(w: &mut Writer) -> ValueId {
    let (value, by) = match w.random.below(7) {
        0 | 1 => (w.program(), w.random.range(0, i64::from(w.grid))),
        2 | 3 if !w.counters.is_empty() => {
            let at = w.random.below(w.counters.len());
            (w.cast(w.counters[at], DType::I32), w.random.range(0, 3))
        }
        4 => (loaded_number(w, 0, 3), 1),
        5 => (w.scalar(1), 1),
        _ => (w.scalar(1), 2),
    };
    let fact = w.fact(value);
    if fact.low < fact.high {
        w.has(Feature::MixedIf);
    }
    let by = w.int(by);
    let op = w.random.pick(&[CmpOp::Lt, CmpOp::Eq, CmpOp::Ge, CmpOp::Ne]);
    w.compare(op, value, by).expect("integers")
}

/// An `if` whose branches yield values of the same types.
pub fn branch(w: &mut Writer, depth: u32) -> Option<()> {
    w.has(Feature::If);
    let condition = condition(w);
    let models: Vec<ValueId> = (0..w.random.below(3)).map(|_| w.some_tile()).collect();
    let regions: [RegionId; 2] = [w.func.new_region([]), w.func.new_region([])];
    let mut facts: Vec<Option<Fact>> = vec![None; models.len()];
    for (index, region) in regions.into_iter().enumerate() {
        w.inside(region, |w| {
            if index == 0 || w.random.chance(60) {
                super::steps(w, depth + 1, 1, 3);
            }
            let values: Vec<ValueId> = models.iter().map(|&model| w.like(w.dtype(model), &w.shape(model))).collect();
            for (fact, &value) in facts.iter_mut().zip(&values) {
                *fact = Some(fact.map_or(w.fact(value), |fact| fact.hull(w.fact(value))));
            }
            w.yields(&values);
        });
    }
    let results = w.raw(ControlOp::If, &[condition], &regions)?;
    for (&result, fact) in results.iter().zip(facts) {
        let fact = fact.unwrap_or_else(|| Fact::any(w.dtype(result)));
        w.know(result, fact);
        w.keep(result);
    }
    Some(())
}

/// A `while` that counts to a small number, which may be the program's.
pub fn count(w: &mut Writer, depth: u32) -> Option<()> {
    w.has(Feature::While);
    let (zero, carried) = (w.int(0), w.some_tile());
    let tys = [zero, carried].map(|value| w.func.ty(value).clone());
    let regions = [w.func.new_region(tys.clone()), w.func.new_region(tys)];
    let counter = Fact::exact(0.0, 4.0, 0);
    for region in regions {
        let args = w.func.region(region).args.clone();
        w.know(args[0], counter);
        w.know(args[1], Fact::any(w.dtype(carried)));
    }
    let end = w.random.range(0, 3);
    let by_program = w.random.chance(30);
    w.inside(regions[0], |w| {
        let counter = w.func.region(regions[0]).args[0];
        let end = if by_program { w.program() } else { w.int(end) };
        let more = w.compare(CmpOp::Lt, counter, end).expect("integers");
        w.yields(&[more]);
    });
    let outer = w.trips;
    w.trips *= 4.0;
    w.inside(regions[1], |w| {
        let args = w.func.region(regions[1]).args.clone();
        w.pool.extend(&args);
        super::steps(w, depth + 1, 1, 3);
        let one = w.int(1);
        let next = w.binary(BinaryOp::Add, args[0], one).expect("integers");
        let value = w.like(w.dtype(args[1]), &w.shape(args[1]));
        w.yields(&[next, value]);
    });
    w.trips = outer;
    let results = w.raw(ControlOp::While, &[zero, carried], &regions)?;
    w.know(results[0], counter);
    w.know(results[1], Fact::any(w.dtype(results[1])));
    w.pool.extend(results);
    Some(())
}
