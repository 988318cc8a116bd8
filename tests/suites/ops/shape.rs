//! Operations that rearrange elements, on every dtype and on pointers.

use kernel_core::ir::{CreateOp, DType, LimitKind, Op, ShapeOp};
use tilewright_tests::author::{Author, dims};
use tilewright_tests::data::{self, Data, number};
use tilewright_tests::expect::{Answer, exactly};
use tilewright_tests::samples;

/// The elements of a row-major tile of that shape, permuted.
fn permuted(input: &Data, shape: &[i64], perm: &[usize]) -> Data {
    let strides: Vec<i64> = (0..shape.len()).map(|d| shape[d + 1..].iter().product()).collect();
    let out_shape: Vec<i64> = perm.iter().map(|&p| shape[p]).collect();
    let len: i64 = shape.iter().product();
    let source = |mut flat: i64| {
        let mut offset = 0;
        for d in (0..perm.len()).rev() {
            offset += flat % out_shape[d] * strides[perm[d]];
            flat /= out_shape[d];
        }
        input.bits[offset as usize]
    };
    Data::new(input.dtype, (0..len).map(source))
}

fn permutations(rank: usize) -> Vec<Vec<usize>> {
    if rank == 0 {
        return vec![Vec::new()];
    }
    let smaller = permutations(rank - 1);
    let insert = |p: &Vec<usize>, at: usize| [&p[..at], &[rank - 1], &p[at..]].concat();
    smaller.iter().flat_map(|p| (0..rank).map(move |at| insert(p, at))).collect()
}

fn permute(dtype: DType) {
    let mut author = Author::new(&format!("permute_{dtype}"));
    for shape in [&[8i64, 32][..], &[4, 8, 16], &[2, 2, 4, 16], &[1, 64], &[32]] {
        let input = samples::one(dtype, shape.iter().product::<i64>() as usize, 11);
        let input = Data::new(dtype, input.bits[..shape.iter().product::<i64>() as usize].to_vec());
        let tile = author.load_tile(&input, shape);
        for perm in permutations(shape.len()).into_iter().filter(|p| shape.len() < 4 || p[0] > p[1]) {
            let op = ShapeOp::Permute { perm: perm.iter().map(|&p| p as u8).collect() };
            let result = author.one(op, &[tile]);
            let label = format!("permute {perm:?} of {shape:?}");
            author.store_tile(&label, result, exactly(&permuted(&input, shape, &perm)));
        }
    }
    author.finish().check_on_every_device();
}

/// Tiles side by side, of any rank; what is joined is stored as it is, and with its new dimension first.
fn join(dtype: DType) {
    let mut author = Author::new(&format!("join_{dtype}"));
    for shape in [&[1i64][..], &[64], &[8, 32], &[32, 8], &[4, 1, 16], &[2, 128]] {
        let count = shape.iter().product::<i64>() as usize;
        let half = |seed| Data::new(dtype, samples::one(dtype, count, seed).bits[..count].to_vec());
        let halves = [half(21), half(22)];
        let tiles = [0, 1].map(|side| author.load_tile(&halves[side], shape));
        let joined = author.one(ShapeOp::Join, &tiles);
        let pairs = Data::new(dtype, (0..2 * count).map(|at| halves[at % 2].bits[at / 2]));
        author.store_tile(&format!("join of {shape:?}"), joined, exactly(&pairs));
        let rank = shape.len() as u8;
        let perm: Vec<u8> = [rank].into_iter().chain(0..rank).collect();
        let turned = author.one(ShapeOp::Permute { perm }, &[joined]);
        let behind = Data::new(dtype, halves.iter().flat_map(|half| half.bits.iter().copied()));
        author.store_tile(&format!("join of {shape:?}, one half behind the other"), turned, exactly(&behind));
        // The two halves need not be two.
        let twice = author.one(ShapeOp::Join, &[tiles[0], tiles[0]]);
        let pairs = Data::new(dtype, (0..2 * count).map(|at| halves[0].bits[at / 2]));
        author.store_tile(&format!("join of {shape:?} with itself"), twice, exactly(&pairs));
    }
    author.finish().check_on_every_device();
}

fn reshape_and_broadcast(dtype: DType) {
    let mut author = Author::new(&format!("reshape_{dtype}"));
    let input = Data::new(dtype, samples::one(dtype, 128, 12).bits[..128].to_vec());
    let mut tile = author.load_tile(&input, &[8, 16]);
    // Row-major order stays whatever the shape.
    for shape in [&[16i64, 8][..], &[128], &[2, 4, 16], &[1, 128], &[128, 1], &[64, 2]] {
        tile = author.one(ShapeOp::Reshape { shape: dims(shape) }, &[tile]);
        author.store_tile(&format!("reshape to {shape:?}"), tile, exactly(&input));
    }
    let row = Data::new(dtype, input.bits[..16].to_vec());
    let line = author.load_tile(&row, &[16]);
    for axis in [0u8, 1] {
        let expanded = author.one(ShapeOp::ExpandDims { axis }, &[line]);
        author.store_tile(&format!("expand {axis}"), expanded, exactly(&row));
        let shape: &[i64] = if axis == 0 { &[8, 16] } else { &[16, 8] };
        let repeated = author.one(ShapeOp::Broadcast { shape: dims(shape) }, &[expanded]);
        let source = |flat: usize| row.bits[if axis == 0 { flat % 16 } else { flat / 8 }];
        author.store_tile(&format!("broadcast {axis}"), repeated, exactly(&Data::new(dtype, (0..128).map(source))));
    }
    let single = author.load_tile(&Data::new(dtype, [row.bits[3]]), &[1]);
    let scalar = author.one(ShapeOp::Reshape { shape: Vec::new() }, &[single]);
    let filled = author.splat(scalar, &[4, 4]);
    author.store_tile("one element to a scalar and back", filled, vec![Answer::Exactly(row.bits[3]); 16]);
    author.finish().check_on_every_device();
}

/// Every constant, limit and scalar argument of a dtype comes out as it went in.
fn constants(dtype: DType) {
    let mut author = Author::new(&format!("constants_{dtype}"));
    let mut values = samples::edges(dtype);
    values.truncate(24);
    for (i, &bits) in values.iter().enumerate() {
        let value = author.constant(dtype, bits);
        author.store_tile(&format!("constant {i}"), value, vec![Answer::Exactly(bits)]);
        let filled = author.splat(value, &[32]);
        author.store_tile(&format!("tile of constant {i}"), filled, vec![Answer::Exactly(bits); 32]);
    }
    for &bits in &values[..values.len().min(8)] {
        let value = author.scalar(dtype, bits);
        author.store_tile("scalar argument", value, vec![Answer::Exactly(bits)]);
    }
    for &kind in LimitKind::ALL {
        if let Some(bits) = limit(kind, dtype) {
            let value = author.one(CreateOp::Limit { kind, dtype: dtype.into() }, &[]);
            author.store_tile(kind.name(), value, vec![Answer::Exactly(bits)]);
        }
    }
    author.finish().check_on_every_device();
}

fn limit(kind: LimitKind, dtype: DType) -> Option<u64> {
    if let Some(value) = limit_of_f8(kind, dtype) {
        return Some(data::from_f64(dtype, value));
    }
    let float = |f16: f64, bf16: f64, f32: f32, f64: f64| match dtype {
        DType::F16 => Some(data::from_f64(dtype, f16)),
        DType::BF16 => Some(data::from_f64(dtype, bf16)),
        DType::F32 => Some(data::from_f64(dtype, f64::from(f32))),
        DType::F64 => Some(data::from_f64(dtype, f64)),
        _ => None,
    };
    let all = |v: f64| float(v, v, v as f32, v);
    match kind {
        LimitKind::Min | LimitKind::Max if dtype == DType::Bool => None,
        LimitKind::Min if dtype.is_int() => Some(data::from_int(dtype, dtype.int_min())),
        LimitKind::Max if dtype.is_int() => Some(data::from_int(dtype, dtype.int_max())),
        LimitKind::Min => float(-65504.0, -3.3895313892515355e38, f32::MIN, f64::MIN),
        LimitKind::Max => float(65504.0, 3.3895313892515355e38, f32::MAX, f64::MAX),
        LimitKind::Infinity => all(f64::INFINITY),
        LimitKind::NegInfinity => all(f64::NEG_INFINITY),
        LimitKind::Nan => all(f64::NAN),
        LimitKind::Epsilon => float(2f64.powi(-10), 2f64.powi(-7), f32::EPSILON, f64::EPSILON),
        LimitKind::MinPositive => float(2f64.powi(-14), 2f64.powi(-126), f32::MIN_POSITIVE, f64::MIN_POSITIVE),
    }
}

/// Of f8e4m3 the infinities are the largest numbers. That of f8e5m2 is left out, as no conversion gives it.
fn limit_of_f8(kind: LimitKind, dtype: DType) -> Option<f64> {
    let of = |e4m3: f64, e5m2: f64| match dtype {
        DType::F8E4M3 => Some(e4m3),
        DType::F8E5M2 if e5m2.is_finite() => Some(e5m2),
        _ => None,
    };
    match kind {
        LimitKind::Min => of(-448.0, -57344.0),
        LimitKind::Max => of(448.0, 57344.0),
        LimitKind::Infinity => of(448.0, f64::INFINITY),
        LimitKind::NegInfinity => of(-448.0, f64::INFINITY),
        LimitKind::Nan => dtype.is_fp8().then_some(f64::NAN),
        LimitKind::Epsilon => of(0.125, 0.25),
        LimitKind::MinPositive => of(2f64.powi(-6), 2f64.powi(-14)),
    }
}

#[test]
fn ranges_start_anywhere() {
    let mut author = Author::new("arange");
    for (lo, hi) in [(0i64, 1), (0, 64), (7, 15), (-16, 16), (i64::from(i32::MAX) - 4, i64::from(i32::MAX))] {
        let range = author.arange(lo, hi);
        author.store_tile(&format!("{lo}..{hi}"), range, exactly(&Data::numbers(DType::I32, lo..hi)));
    }
    author.finish().check_on_every_device();
}

#[test]
fn programs_know_their_place() {
    let grid = [3usize, 2, 4];
    let mut author = Author::new("grid");
    author.grid(grid);
    let zeros = Data::zeros(DType::I32, 24);
    let want = |f: &dyn Fn(i64, i64, i64) -> i64| {
        let cells = (0..24i64).map(|i| f(i % 3, i / 3 % 2, i / 6));
        exactly(&Data::new(DType::I32, cells.map(|v| number(DType::I32, v))))
    };
    let ids = [want(&|x, _, _| x), want(&|_, y, _| y), want(&|_, _, z| z)];
    let id: Vec<_> = (0..3).map(|axis| author.one(CreateOp::ProgramId { axis }, &[])).collect();
    let counts: Vec<_> = (0..3).map(|axis| author.one(CreateOp::NumPrograms { axis }, &[])).collect();
    let mul = Op::binary(kernel_core::ir::BinaryOp::Mul);
    let add = Op::binary(kernel_core::ir::BinaryOp::Add);
    let plane = author.one(mul.clone(), &[id[2], counts[1]]);
    let row = author.one(add.clone(), &[plane, id[1]]);
    let row = author.one(mul, &[row, counts[0]]);
    let linear = author.one(add, &[row, id[0]]);
    for axis in 0..3 {
        let out = author.output(&format!("program_id {axis}"), &zeros, ids[axis].clone());
        let address = author.address(out, linear);
        author.op(tilewright_tests::author::store(), &[address, id[axis]]);
        let size = vec![Answer::Exactly(grid[axis] as u64); 24];
        let out = author.output(&format!("num_programs {axis}"), &zeros, size);
        let address = author.address(out, linear);
        author.op(tilewright_tests::author::store(), &[address, counts[axis]]);
    }
    author.finish().check_on_every_device();
}

macro_rules! for_each_dtype {
    ($($test:ident)*) => {$(
        mod $test {
            use kernel_core::ir::DType;
            for_each_dtype! { @ $test: bool = Bool i8 = I8 i16 = I16 i32 = I32 i64 = I64 u8 = U8 u16 = U16 u32 = U32
                u64 = U64 f8e4m3 = F8E4M3 f8e5m2 = F8E5M2 f16 = F16 bf16 = BF16 f32 = F32 f64 = F64 }
        }
    )*};
    (@ $test:ident: $($name:ident = $dtype:ident)*) => { $(#[test] fn $name() { super::$test(DType::$dtype); })* };
}

for_each_dtype! { permute join reshape_and_broadcast constants }
