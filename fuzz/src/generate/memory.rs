//! Loads and stores: runs, masks with constant, affine and loaded bounds, gathers, and memory that is used in place.

use kernel_core::ir::{BinaryOp, CmpOp, DType, ParamId, Ty, ValueId};

use super::features::Feature;
use super::shape::along;
use super::some_dtype;
use super::writer::{Own, Writer, dims};
use crate::case::{Input, Pattern};
use crate::facts::Fact;

/// The row-major offsets of a tile, or those of a tile whose dimensions lie in another order in memory.
pub fn offsets(w: &mut Writer, shape: &[i64], turned: bool) -> ValueId {
    let mut order: Vec<usize> = (0..shape.len()).rev().collect();
    if turned {
        order.reverse();
    }
    let (mut stride, mut sum) = (1, None);
    for axis in order {
        let index = along(w, axis, shape);
        let scale = w.filled(stride as f64, DType::I32, shape);
        let scaled = w.binary(BinaryOp::Mul, index, scale).expect("integers");
        sum = Some(match sum {
            Some(sum) => w.binary(BinaryOp::Add, sum, scaled).expect("integers"),
            None => scaled,
        });
        stride *= shape[axis];
    }
    sum.unwrap_or_else(|| w.int(0))
}

/// Adds a scalar to a tile.
pub fn shifted(w: &mut Writer, tile: ValueId, by: ValueId) -> ValueId {
    let shape = w.shape(tile);
    let by = w.splat(by, &shape);
    w.binary(BinaryOp::Add, tile, by).expect("integers")
}

/// The number of the program times a size.
pub fn program_times(w: &mut Writer, size: i64) -> ValueId {
    let (program, size) = (w.program(), w.int(size));
    w.binary(BinaryOp::Mul, program, size).expect("integers")
}

/// Values that are there, or new ones.
impl Writer {
    /// A tile of any of the kernel's shapes and of a dtype that the kernel may have.
    pub fn some_tile(&mut self) -> ValueId {
        match self.find(|w, value| !w.func.ty(value).is_scalar()) {
            Some(value) if self.random.chance(85) => value,
            _ => {
                let at = self.random.below(self.shapes.len());
                let (shape, dtype) = (self.shapes[at].clone(), some_dtype(&mut self.random));
                let value = fresh(self, dtype, &shape);
                self.keep(value)
            }
        }
    }

    /// A value of that dtype and shape, which may be a new one.
    pub fn like(&mut self, dtype: DType, shape: &[i64]) -> ValueId {
        let ty = Ty::tile(dtype, dims(shape));
        match self.find(|w, value| *w.func.ty(value) == ty) {
            Some(value) if self.random.chance(80) => value,
            _ => fresh(self, dtype, shape),
        }
    }
}

/// A value of a dtype and shape from nothing but arguments.
pub fn fresh(w: &mut Writer, dtype: DType, shape: &[i64]) -> ValueId {
    match w.random.below(10) {
        0 | 1 => {
            let special = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
            let value = match dtype {
                DType::F16 | DType::F32 | DType::F64 if w.random.chance(5) => w.random.pick(&special),
                _ if dtype.is_signed_int() || dtype.is_float() => w.random.range(-3, 4) as f64,
                DType::Bool => w.random.range(0, 1) as f64,
                _ => w.random.range(0, 7) as f64,
            };
            w.filled(value, dtype, shape)
        }
        2 if !shape.is_empty() => {
            let axis = w.random.below(shape.len());
            let index = along(w, axis, shape);
            if dtype == DType::Bool {
                let bound = w.random.range(0, shape[axis]);
                let bound = w.filled(bound as f64, DType::I32, shape);
                return w.compare(CmpOp::Lt, index, bound).expect("integers");
            }
            w.small(index, dtype)
        }
        3 if w.random.chance(20) => around_middle(w, dtype, shape),
        _ => loaded(w, dtype, shape),
    }
}

/// One of two loads around the middle of a table, whose offsets are of few bits, a constant apart, and wrap.
fn around_middle(w: &mut Writer, dtype: DType, shape: &[i64]) -> ValueId {
    w.has(Feature::NarrowOffsets);
    let (narrow, len) = w.random.pick(&[(DType::I8, 1 << 8), (DType::I8, 1 << 8), (DType::I16, 1 << 16)]);
    let index = w.like(DType::I32, shape);
    let at = w.cast(index, narrow);
    let by = match w.random.chance(80) {
        true => w.random.range(-9, 9),
        false => -len / 2,
    };
    let by = w.filled(by as f64, narrow, shape);
    let op = w.random.pick(&[BinaryOp::Add, BinaryOp::Sub, BinaryOp::Xor]);
    let other = w.binary(op, at, by).expect("integers");
    let (input, fact) = w.recipe(dtype, len);
    let param = w.buffer(dtype, false, input);
    let (start, half) = (w.func.param(param).value, w.int(len / 2));
    let middle = w.moved(start, half);
    let middle = w.repeated(middle, shape);
    let read = |w: &mut Writer, offset: ValueId| {
        let wide = w.random.pick(&[narrow, narrow, DType::I32, DType::I64]);
        let offset = w.cast(offset, wide);
        let pointers = w.moved(middle, offset);
        w.load(pointers, None, None, fact)
    };
    let (one, beside) = (read(w, at), read(w, other));
    w.keep(one);
    beside
}

/// A load from a new buffer.
fn loaded(w: &mut Writer, dtype: DType, shape: &[i64]) -> ValueId {
    let count: i64 = shape.iter().product();
    let grid = i64::from(w.grid);
    let per_program = w.random.chance(50);
    let (mut own, span) = offsets_for_load(w, shape);
    let mut len = if per_program { count * (grid - 1) + span } else { span };
    if per_program {
        let start = program_times(w, count);
        own = shifted(w, own, start);
    }
    // Some buffers end before the last tile does.
    let mut mask = None;
    if w.random.chance(30) && count > 1 {
        len -= w.random.range(0, count - 1);
        mask = Some(bounded(w, own, len));
        w.has(Feature::MaskedLoad);
    } else if w.random.chance(2) && count > 1 {
        len -= 1;
        w.has(Feature::OutOfBounds);
    }
    if w.random.chance(25) && !shape.is_empty() {
        let more = some_mask(w, shape);
        mask = Some(match mask {
            Some(mask) => w.binary(BinaryOp::And, mask, more).expect("truth values"),
            None => more,
        });
        w.has(Feature::MaskedLoad);
    }
    let (input, fact) = w.recipe(dtype, len);
    let param = w.buffer(dtype, false, input);
    let pointers = w.pointers(param, own);
    let other = match mask {
        Some(_) if w.random.chance(40) => Some(w.filled(if dtype == DType::Bool { 1.0 } else { 2.0 }, dtype, shape)),
        _ => None,
    };
    w.load(pointers, mask, other, fact)
}

/// Offsets of a whole tile, and how far they reach: one run, turned dimensions, or a gather that stays inside.
fn offsets_for_load(w: &mut Writer, shape: &[i64]) -> (ValueId, i64) {
    let count: i64 = shape.iter().product();
    let turned = w.random.chance(25);
    let plain = offsets(w, shape, turned);
    if shape.is_empty() || !count.cast_unsigned().is_power_of_two() {
        return (plain, count);
    }
    let tile = match w.random.below(10) {
        0 => {
            let index = w.like(DType::I32, shape);
            w.has(Feature::Gather);
            wrapped(w, index, count)
        }
        1 => return two_runs(w, plain, count),
        2 => {
            let by = w.random.range(1, 5);
            let by = w.filled(by as f64, DType::I32, shape);
            let op = w.random.pick(&[BinaryOp::Mul, BinaryOp::Add, BinaryOp::Div, BinaryOp::Shr]);
            let moved = w.binary(op, plain, by).expect("integers");
            wrapped(w, moved, count)
        }
        _ => plain,
    };
    (tile, count)
}

/// One run of offsets or another behind it, under a condition that changes inside of them.
fn two_runs(w: &mut Writer, plain: ValueId, count: i64) -> (ValueId, i64) {
    let shape = w.shape(plain);
    w.has(Feature::TwoRuns);
    let condition = match w.random.chance(50) {
        true => w.like(DType::Bool, &shape),
        false => {
            let bound = w.random.range(0, count);
            let bound = w.filled(bound as f64, DType::I32, &shape);
            w.compare(CmpOp::Lt, plain, bound).expect("integers")
        }
    };
    let by = w.filled(count as f64, DType::I32, &shape);
    let other = w.binary(BinaryOp::Add, plain, by).expect("integers");
    (w.select(condition, plain, other).expect("one type"), 2 * count)
}

/// The value modulo a power of two.
pub fn wrapped(w: &mut Writer, value: ValueId, count: i64) -> ValueId {
    let shape = w.shape(value);
    let mask = w.filled((count - 1) as f64, DType::I32, &shape);
    let value = w.binary(BinaryOp::And, value, mask).expect("integers");
    w.know(value, Fact::exact(0.0, (count - 1) as f64, 0));
    value
}

/// `offsets < len`, where the bound is a constant, an argument or data.
fn bounded(w: &mut Writer, offsets: ValueId, len: i64) -> ValueId {
    let shape = w.shape(offsets);
    let bound = match w.random.below(3) {
        0 => w.int(len),
        1 => w.scalar(len as i32),
        _ => loaded_number(w, len, len),
    };
    let bound = w.splat(bound, &shape);
    w.compare(CmpOp::Lt, offsets, bound).expect("integers")
}

/// A scalar i32 of `low..=high` that is read from memory.
pub fn loaded_number(w: &mut Writer, low: i64, high: i64) -> ValueId {
    let salt = w.random.bits() >> 40;
    let len = i64::from(w.grid);
    let input = Input {
        pattern: Pattern::Noise,
        range: (low, high),
        step: 0,
        salt,
        len: len as usize,
        tensor: None,
        ulps: None,
    };
    let param = w.buffer(DType::I32, false, input);
    let at = if w.random.chance(50) { w.program() } else { w.int(0) };
    let pointer = w.pointers(param, at);
    let value = w.load(pointer, None, None, Fact::exact(low as f64, high as f64, 0));
    w.know(value, Fact::exact(low as f64, high as f64, 0));
    value
}

/// Any mask: by a constant, an argument, the program, a loop's counter, or data.
pub fn some_mask(w: &mut Writer, shape: &[i64]) -> ValueId {
    let axis = w.random.below(shape.len());
    if w.random.chance(15) {
        return derived_mask(w, axis, shape);
    }
    let size = shape[axis];
    let near = w.random.range(0, size);
    let bound = match w.random.below(6) {
        0 => w.int(near),
        1 => w.scalar(near as i32),
        2 => w.program(),
        3 => loaded_number(w, 0, size),
        4 if !w.counters.is_empty() => {
            let at = w.random.below(w.counters.len());
            w.cast(w.counters[at], DType::I32)
        }
        _ => return w.like(DType::Bool, shape),
    };
    let index = along(w, axis, shape);
    let bound = w.splat(bound, shape);
    let op = w.random.pick(&[CmpOp::Lt, CmpOp::Le, CmpOp::Ge, CmpOp::Ne]);
    w.compare(op, index, bound).expect("integers")
}

/// A mask of numbers that follow from the place along an axis: of few bits, so that they wrap, shifted by any count, divided.
fn derived_mask(w: &mut Writer, axis: usize, shape: &[i64]) -> ValueId {
    let narrow = [DType::I8, DType::U8, DType::I16, DType::U16, DType::I32, DType::U32, DType::I64];
    let dtype = w.random.pick(&narrow);
    let signed = dtype.is_signed_int();
    let mut value = along(w, axis, shape);
    if w.random.chance(50) {
        let start = w.random.pick(&[-256, -128, 64, 120, 128, 65528, 1 << 20]);
        let start = w.filled(start as f64, DType::I32, shape);
        value = w.binary(BinaryOp::Add, value, start).expect("integers");
    }
    value = w.cast(value, dtype);
    if w.random.chance(70) {
        let ops =
            [BinaryOp::Shr, BinaryOp::Shr, BinaryOp::Shl, BinaryOp::Div, BinaryOp::Rem, BinaryOp::And, BinaryOp::Xor];
        let op = w.random.pick(&ops);
        let number = match op {
            BinaryOp::Shr | BinaryOp::Shl => w.random.range(if signed { -33 } else { 0 }, 70),
            _ => w.random.pick(&[1, 2, 4, 8, 16, 64, 3, 7, 100]),
        };
        let number = w.filled(number as f64, dtype, shape);
        value = w.binary(op, value, number).expect("integers");
    }
    let bound = w.random.range(if signed { -5 } else { 0 }, 20);
    let bound = w.filled(bound as f64, dtype, shape);
    let op = w.random.pick(CmpOp::ALL);
    w.compare(op, value, bound).expect("integers")
}

/// Loads something and makes it available.
pub fn load_step(w: &mut Writer) -> Option<ValueId> {
    let at = w.random.below(w.shapes.len());
    let (shape, dtype) = (w.shapes[at].clone(), some_dtype(&mut w.random));
    let value = loaded(w, dtype, &shape);
    Some(w.keep(value))
}

/// Stores a value to an output of its own, where each program has a part.
pub fn store_output(w: &mut Writer, value: ValueId, ulps: Option<f64>) {
    let (shape, dtype) = (w.shape(value), w.dtype(value));
    let count: i64 = shape.iter().product();
    let mut len = (count * i64::from(w.grid)) as usize;
    if w.random.chance(2) && len > 1 {
        len -= 1;
        w.has(Feature::OutOfBounds);
    }
    let input = Input { pattern: Pattern::Zero, range: (0, 0), step: 0, salt: 0, len, tensor: None, ulps };
    let param = w.buffer(dtype, true, input);
    let pointers = part(w, param, &shape, count);
    let mask = match shape.is_empty() || w.random.chance(80) {
        true => None,
        false => Some(some_mask(w, &shape)),
    };
    w.store(pointers, value, mask);
}

/// Pointers to a whole part of `size` elements of this program.
fn part(w: &mut Writer, param: ParamId, shape: &[i64], size: i64) -> ValueId {
    let turned = w.random.chance(20);
    let tile = offsets(w, shape, turned);
    let start = program_times(w, size);
    let own = shifted(w, tile, start);
    w.pointers(param, own)
}

/// A buffer that is used in place: one there is, or a new one.
pub fn owned(w: &mut Writer, dtype: DType, count: i64) -> Own {
    let fits = |own: &&Own| own.dtype == dtype && own.part >= count;
    let known: Vec<Own> = w.owned.iter().filter(fits).copied().collect();
    if !known.is_empty() && w.random.chance(85) {
        return w.random.pick(&known);
    }
    let part = count.max(1).cast_unsigned().next_power_of_two().cast_signed();
    let (mut input, fact) = w.recipe(dtype, part * i64::from(w.grid));
    input.pattern = Pattern::Noise;
    let goal = if dtype.is_float() { Fact::exact(-4.0, 4.0, 0) } else { Fact::any(dtype) };
    let param = w.buffer(dtype, true, input);
    let own = Own { param, part, fact: fact.hull(goal).hull(Fact::exact(0.0, 0.0, 0)), dtype };
    w.owned.push(own);
    own
}

/// Offsets in this program's part of a buffer, no two of them alike.
pub fn distinct(w: &mut Writer, own: Own, shape: &[i64]) -> ValueId {
    let count: i64 = shape.iter().product();
    let turned = w.random.chance(40);
    let mut tile = offsets(w, shape, turned);
    if count == own.part && w.random.chance(40) {
        // An exclusive or moves every element to a place of its own.
        let by = match w.random.chance(50) {
            true => w.int(own.part / 2),
            false => loaded_number(w, 0, own.part - 1),
        };
        let by = w.splat(by, shape);
        tile = w.binary(BinaryOp::Xor, tile, by).expect("integers");
        w.know(tile, Fact::exact(0.0, (own.part - 1) as f64, 0));
    }
    let start = program_times(w, own.part);
    shifted(w, tile, start)
}

/// Stores to memory that is used in place, or loads what is there.
pub fn in_place(w: &mut Writer) -> Option<()> {
    w.has(Feature::InPlace);
    let value = w.some_tile();
    let (shape, dtype) = (w.shape(value), w.dtype(value));
    let own = owned(w, dtype, shape.iter().product());
    if w.random.chance(55) {
        let value = if w.fact(value).within(own.fact) { value } else { w.small(value, dtype) };
        if !w.fact(value).within(own.fact) {
            return None;
        }
        let at = distinct(w, own, &shape);
        let pointers = w.pointers(own.param, at);
        let mask = if w.random.chance(30) { Some(some_mask(w, &shape)) } else { None };
        w.store(pointers, value, mask);
    }
    if w.random.chance(70) {
        let index = match w.random.chance(40) {
            true => w.like(DType::I32, &shape),
            false => {
                let turned = w.random.chance(50);
                offsets(w, &shape, turned)
            }
        };
        let tile = wrapped(w, index, own.part);
        let start = program_times(w, own.part);
        let at = shifted(w, tile, start);
        let pointers = w.pointers(own.param, at);
        let mask = if w.random.chance(25) { Some(some_mask(w, &shape)) } else { None };
        let value = w.load(pointers, mask, None, own.fact);
        w.keep(value);
    }
    Some(())
}
