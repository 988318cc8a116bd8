//! Blocks of tensors: loads and stores, inside and across the tensor's edges, combinations, rows by index.

use kernel_core::interp::HostTensor;
use kernel_core::ir::{AtomicOp, BinaryOp, DType, DescOp, ParamId, ValueId};

use super::features::Feature;
use super::some_dtype;
use super::writer::Writer;
use crate::case::{Input, Pattern};
use crate::facts::Fact;

/// A tensor of some blocks along each dimension, the last of which may be cut off.
fn tensor(w: &mut Writer, dtype: DType, block: &[i64], blocks: &[i64]) -> HostTensor {
    let unit = 16 / i64::from(dtype.bytes()).min(16);
    let mut shape: Vec<u64> = Vec::new();
    for (&size, &count) in block.iter().zip(blocks) {
        let cut = if w.random.chance(40) { w.random.range(0, size - 1) } else { 0 };
        if cut > 0 {
            w.has(Feature::Clipped);
        }
        shape.push((size * count - cut).max(1) as u64);
    }
    let mut strides = vec![1u64];
    // Rows begin at whole units of 16 bytes, as copies in hardware want them, or anywhere.
    let aligned = w.random.chance(80);
    for (index, &size) in shape.iter().enumerate().skip(1).rev() {
        let below = strides[0] * size;
        let stride = if aligned && index == shape.len() - 1 { below.next_multiple_of(unit as u64) } else { below };
        strides.insert(0, stride);
    }
    HostTensor { shape, strides, pads_with_nan: false }
}

fn span(tensor: &HostTensor) -> usize {
    let last = tensor.shape.iter().zip(&tensor.strides).map(|(size, stride)| (size - 1) * stride).sum::<u64>();
    last as usize + 1
}

/// A descriptor of a new tensor with those blocks.
pub fn new(w: &mut Writer, dtype: DType, block: &[i64], blocks: &[i64], mutable: bool) -> (ValueId, Fact) {
    w.has(Feature::Descriptor);
    let tensor = tensor(w, dtype, block, blocks);
    let (input, fact) = w.recipe(dtype, span(&tensor) as i64);
    let pattern = if mutable { Pattern::Zero } else { input.pattern };
    let range = if mutable { (0, 0) } else { input.range };
    let input = Input { pattern, range, tensor: Some(tensor), ..input };
    (w.descriptor(dtype, block, mutable, input), fact)
}

/// Loads a block; elements outside are zero.
pub fn load(w: &mut Writer, descriptor: ValueId, coordinates: &[ValueId], fact: Fact) -> Option<ValueId> {
    let mut operands = vec![descriptor];
    operands.extend(coordinates);
    let value = w.raw(DescOp::DescLoad, &operands, &[])?[0];
    w.know(value, fact.hull(Fact::exact(0.0, 0.0, 0)));
    Some(value)
}

/// Where blocks begin along the innermost dimension.
#[derive(Clone, Copy)]
pub enum Column {
    /// At a constant.
    At(i64),
    /// At an argument.
    Argument(ValueId),
    /// Where a buffer says.
    Table(ParamId),
}

impl Column {
    /// Of blocks of so many columns in a tensor with so many blocks beside each other: mostly the first, sometimes any.
    pub fn of(w: &mut Writer, columns: i64, blocks: i64) -> Column {
        if blocks == 1 || w.random.chance(20) {
            return Column::At(0);
        }
        let mut at = w.random.range(0, columns * (blocks - 1));
        if w.random.chance(50) {
            // As the hardware's copies want it.
            at = at / 8 * 8;
        }
        w.has(Feature::Column);
        match w.random.below(4) {
            0 | 1 => Column::At(at),
            2 => Column::Argument(w.scalar(at as i32)),
            _ => {
                let salt = w.random.bits() >> 40;
                let input =
                    Input { pattern: Pattern::Noise, range: (at, at), step: 0, salt, len: 1, tensor: None, ulps: None };
                Column::Table(w.buffer(DType::I32, false, input))
            }
        }
    }

    /// The column, here.
    pub fn value(self, w: &mut Writer) -> ValueId {
        match self {
            Column::At(at) => w.int(at),
            Column::Argument(value) => value,
            Column::Table(param) => {
                let zero = w.int(0);
                let pointer = w.pointers(param, zero);
                w.load(pointer, None, None, Fact::any(DType::I32))
            }
        }
    }
}

/// How many blocks lie beside each other in a tensor: mostly one.
pub fn beside(w: &mut Writer) -> i64 {
    if w.random.chance(35) { 2 } else { 1 }
}

/// Coordinates of a block that may reach over any edge.
fn anywhere(w: &mut Writer, block: &[i64]) -> Vec<ValueId> {
    let one = |w: &mut Writer, size: i64| match w.random.below(6) {
        0 => {
            let off = w.random.range(-size, 2 * size);
            w.has(Feature::Clipped);
            w.int(off)
        }
        1 => {
            let (program, size) = (w.program(), w.int(size));
            w.binary(BinaryOp::Mul, program, size).expect("integers")
        }
        2 if !w.counters.is_empty() => {
            let at = w.random.below(w.counters.len());
            let (counter, size) = (w.cast(w.counters[at], DType::I32), w.int(size));
            w.binary(BinaryOp::Mul, counter, size).expect("integers")
        }
        3 => w.scalar(size as i32),
        _ => w.int(0),
    };
    block.iter().map(|&size| one(w, size)).collect()
}

/// A shape whose innermost dimension is at least 16 bytes, which the hardware's copies need.
fn block_like(w: &mut Writer, dtype: DType) -> Vec<i64> {
    let at = w.random.below(w.shapes.len());
    let mut block = w.shapes[at].clone();
    block.truncate(3);
    let least = 16 / i64::from(dtype.bytes()).min(16);
    let last = block.len() - 1;
    if w.random.chance(80) {
        block[last] = block[last].max(least);
    }
    block
}

/// A random use of a descriptor.
pub fn step(w: &mut Writer) -> Option<()> {
    match w.random.below(8) {
        0..4 => {
            let dtype = some_dtype(&mut w.random);
            let block = block_like(w, dtype);
            let blocks: Vec<i64> = block.iter().map(|_| w.random.range(1, 2)).collect();
            let (descriptor, fact) = new(w, dtype, &block, &blocks, false);
            let coordinates = anywhere(w, &block);
            let value = load(w, descriptor, &coordinates, fact)?;
            w.keep(value);
            Some(())
        }
        4 | 5 => store(w),
        6 => reduce(w),
        _ => gather(w),
    }
}

/// Stores a tile as the block of this program.
fn store(w: &mut Writer) -> Option<()> {
    let value = w.some_tile();
    store_value(w, value)
}

/// Stores a tile as the block of this program: along the outermost dimension each has one.
pub fn store_value(w: &mut Writer, value: ValueId) -> Option<()> {
    let (shape, dtype) = (w.shape(value), w.dtype(value));
    if shape.len() > 5 {
        return None;
    }
    let mut blocks = vec![1; shape.len()];
    let last = shape.len() - 1;
    if last > 0 {
        blocks[last] = beside(w);
    }
    blocks[0] = i64::from(w.grid);
    let (descriptor, _) = new(w, dtype, &shape, &blocks, true);
    let (program, size) = (w.program(), w.int(shape[0]));
    let mut operands = vec![descriptor, value, w.binary(BinaryOp::Mul, program, size)?];
    for axis in 1..shape.len() {
        let column = Column::of(w, shape[axis], blocks[axis]);
        operands.push(column.value(w));
    }
    w.raw(DescOp::DescStore, &operands, &[]).map(drop)
}

/// Combines a block with what is there, as every other program does.
fn reduce(w: &mut Writer) -> Option<()> {
    let value = w.some_tile();
    let shape = w.shape(value);
    let dtype = w.random.pick(&[DType::I32, DType::U32]);
    let value = w.cast(value, dtype);
    w.has(Feature::Atomic);
    let (descriptor, _) = new(w, dtype, &shape, &vec![1; shape.len()], true);
    let mut operands = vec![descriptor, value];
    for _ in 0..shape.len() {
        operands.push(w.int(0));
    }
    let op = w.random.pick(&[AtomicOp::Add, AtomicOp::Max, AtomicOp::Xor]);
    w.raw(DescOp::DescReduce { op }, &operands, &[]).map(drop)
}

/// Rows of a matrix by their numbers, some of which there are not.
fn gather(w: &mut Writer) -> Option<()> {
    let dtype = w.random.pick(&[DType::F16, DType::F32, DType::I32]);
    let (rows, columns) = (w.random.pick(&[4, 8, 16]), w.random.pick(&[8, 16]));
    let (descriptor, fact) = new(w, dtype, &[1, columns], &[rows, 1], false);
    w.has(Feature::Gather);
    let index = w.like(DType::I32, &[rows]);
    let index = super::memory::wrapped(w, index, rows * 2);
    let column = w.int(0);
    let value = w.raw(DescOp::DescGather, &[descriptor, index, column], &[])?[0];
    w.know(value, fact.hull(Fact::exact(0.0, 0.0, 0)));
    w.keep(value);
    Some(())
}
