//! Random kernels of shape operations, reductions and scans do in the emulator what they do in the interpreter,
//! whatever layouts and conversions come of them.

mod support;

use kernel_core::interp::HostBuffer;
use kernel_core::ir::{
    BinaryOp, Bound, Builder, CacheModifier, ControlOp, CreateOp, DType, Dim, EvictionPolicy, Func, Level, MemoryOp,
    Op, ParamKind, Safety, ShapeOp, Span, ValueId,
};
use support::differential::{Agreement, agrees, ints, noise};

const AT: Span = Span::UNKNOWN;
const KERNELS: u64 = 40;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit.max(1)
    }
}

fn shape_of(b: &Builder<'_>, value: ValueId) -> Vec<i64> {
    b.func.ty(value).dims().unwrap()
}

fn dims(shape: &[i64]) -> Vec<Dim> {
    shape.iter().map(|&dim| Dim::Const(dim)).collect()
}

/// The row-major offsets of a tile, made of one `arange` per dimension.
fn offsets(b: &mut Builder<'_>, shape: &[i64]) -> ValueId {
    let mut sum: Option<ValueId> = None;
    for (axis, &size) in shape.iter().enumerate() {
        let stride: i64 = shape[axis + 1..].iter().product();
        let mut along = b.one(CreateOp::Arange { lo: Dim::Const(0), hi: Dim::Const(size) }, &[], AT).unwrap();
        for other in 0..shape.len() {
            if other != axis {
                along = b.one(ShapeOp::ExpandDims { axis: other as u8 }, &[along], AT).unwrap();
            }
        }
        let stride = b.one(Op::i32(stride as i32), &[], AT).unwrap();
        let narrow = shape_of(b, along);
        let stride = b.one(CreateOp::Splat { shape: dims(&narrow) }, &[stride], AT).unwrap();
        let scaled = b.one(Op::binary(BinaryOp::Mul), &[along, stride], AT).unwrap();
        let wide = b.one(ShapeOp::Broadcast { shape: dims(shape) }, &[scaled], AT).unwrap();
        sum = Some(match sum {
            Some(sum) => b.one(Op::binary(BinaryOp::Add), &[sum, wide], AT).unwrap(),
            None => wide,
        });
    }
    sum.unwrap()
}

fn pointers(b: &mut Builder<'_>, base: ValueId, shape: &[i64]) -> ValueId {
    let offsets = offsets(b, shape);
    let pointers = b.one(CreateOp::Splat { shape: dims(shape) }, &[base], AT).unwrap();
    b.one(MemoryOp::AddPtr, &[pointers, offsets], AT).unwrap()
}

/// Combines two values along a reduction or scan.
fn combine(b: &mut Builder<'_>, value: ValueId, axis: usize, how: usize) -> ValueId {
    let scalar = b.func.ty(value).with_shape(Vec::new());
    let region = b.func.new_region([scalar.clone(), scalar]);
    let args = b.func.region(region).args.clone();
    let op = [BinaryOp::Add, BinaryOp::Max, BinaryOp::Xor][how % 3];
    let mut inner = Builder::new(b.func, region);
    let result = inner.one(Op::binary(op), &args, AT).unwrap();
    inner.op(ControlOp::Yield, &[result], &[], AT).unwrap();
    let axis = axis as u8;
    let op = match how / 3 % 3 {
        0 | 1 => ControlOp::Reduce { axis },
        _ => ControlOp::Scan { axis, reverse: how.is_multiple_of(2) },
    };
    let id = b.op(op, &[value], &[region], AT).unwrap();
    b.func.op(id).results[0]
}

/// One random operation on a tile.
fn step(b: &mut Builder<'_>, random: &mut Random, value: ValueId) -> ValueId {
    let shape = shape_of(b, value);
    match random.below(8) {
        0 => {
            let mut perm: Vec<u8> = (0..shape.len() as u8).collect();
            for i in (1..perm.len()).rev() {
                perm.swap(i, random.below(i + 1));
            }
            b.one(ShapeOp::Permute { perm }, &[value], AT).unwrap()
        }
        1 => {
            let mut left: i64 = shape.iter().product();
            let mut target = Vec::new();
            while left > 1 && target.len() < 3 {
                let part = 1 << random.below(left.ilog2() as usize + 1);
                target.push(part);
                left /= part;
            }
            target.push(left);
            b.one(ShapeOp::Reshape { shape: dims(&target) }, &[value], AT).unwrap()
        }
        2 if shape.len() > 1 => {
            let (axis, how) = (random.below(shape.len()), random.below(9));
            combine(b, value, axis, how)
        }
        3 if shape.iter().product::<i64>() <= 512 => {
            let axis = random.below(shape.len() + 1);
            let expanded = b.one(ShapeOp::ExpandDims { axis: axis as u8 }, &[value], AT).unwrap();
            let mut wide = shape.clone();
            wide.insert(axis, 1 << random.below(4));
            b.one(ShapeOp::Broadcast { shape: dims(&wide) }, &[expanded], AT).unwrap()
        }
        4 => {
            let index = offsets(b, &shape);
            let index = b.one(Op::cast(DType::I32), &[index], AT).unwrap();
            let other = b.one(Op::cast(b.func.ty(value).dtype().unwrap()), &[index], AT).unwrap();
            b.one(Op::binary(BinaryOp::Add), &[value, other], AT).unwrap()
        }
        5 if shape.iter().product::<i64>() <= 1024 && shape.len() < 4 => {
            let square = b.one(Op::binary(BinaryOp::Mul), &[value, value], AT).unwrap();
            let halves = if random.below(2) == 0 { [value, square] } else { [square, value] };
            b.one(ShapeOp::Join, &halves, AT).unwrap()
        }
        _ => b.one(Op::binary(BinaryOp::Mul), &[value, value], AT).unwrap(),
    }
}

/// A random kernel, and the number of elements that it stores.
fn kernel(seed: u64) -> (Bound, DType, usize) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let dtype = [DType::I32, DType::I32, DType::I64, DType::U8, DType::I16][random.below(5)];
    let mut func = Func::new("random", "random.rs", Safety::Unsafe);
    func.level = Level::Bound;
    let x = func.add_param("x", ParamKind::Ptr { dt: dtype.into(), mutable: false }, AT);
    let out = func.add_param("out", ParamKind::Ptr { dt: dtype.into(), mutable: true }, AT);
    for param in &mut func.params {
        param.facts.divisible_by = 16;
    }
    let (x, out, body) = (func.param(x).value, func.param(out).value, func.body);
    let mut b = Builder::new(&mut func, body);
    let shapes: [&[i64]; 6] = [&[1024], &[32, 32], &[8, 128], &[64, 4], &[4, 8, 16], &[2, 16]];
    let shape = shapes[random.below(shapes.len())];
    let pointer = pointers(&mut b, x, shape);
    let load = MemoryOp::Load { cache: CacheModifier::Default, eviction: EvictionPolicy::Normal };
    let mut value = b.one(load, &[pointer], AT).unwrap();
    for _ in 0..2 + random.below(6) {
        value = step(&mut b, &mut random, value);
    }
    let shape = shape_of(&b, value);
    let pointer = pointers(&mut b, out, &shape);
    let store = MemoryOp::Store { cache: CacheModifier::Default, eviction: EvictionPolicy::Normal };
    b.op(store, &[pointer, value], &[], AT).unwrap();
    b.op(ControlOp::Return, &[], &[], AT).unwrap();
    let stored = shape.iter().product::<i64>() as usize;
    (Bound::new(func).unwrap(), dtype, stored)
}

fn input(dtype: DType) -> HostBuffer {
    match dtype {
        DType::U8 => noise(1024, 21).map(|x| x as u8).collect::<Vec<u8>>().into(),
        DType::I16 => noise(1024, 22).map(|x| x as i16).collect::<Vec<i16>>().into(),
        DType::I64 => noise(1024, 23).map(|x| i64::from(x) << 20).collect::<Vec<i64>>().into(),
        _ => ints(1024, 24),
    }
}

#[test]
fn random_kernels_agree_with_the_interpreter() {
    for seed in 0..KERNELS {
        let (kernel, dtype, stored) = kernel(seed);
        let buffers = [input(dtype), HostBuffer::zeros(dtype, stored)];
        let outcome = std::panic::catch_unwind(|| agrees(&kernel, &buffers, &[], 1, Agreement::Exact));
        assert!(outcome.is_ok(), "seed {seed}:\n{}", kernel_core::text::print(kernel.func()));
    }
}
