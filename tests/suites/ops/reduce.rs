//! Reductions and scans: every combination on every dtype, along every axis of several shapes.

use kernel_core::ir::{BinaryOp, CmpOp, ControlOp, DType, ElementwiseOp, Func, Op, Safety, Ty};
use tilewright_tests::author::Author;
use tilewright_tests::data::{self, Data, number};
use tilewright_tests::expect::{Answer, exactly};
use tilewright_tests::samples::{self, Rng};
use tilewright_tests::{reference, rounding::Format};

/// Shapes of one to three dimensions, with single rows, single columns and single elements.
const SHAPES: [&[i64]; 6] = [&[128], &[8, 64], &[64, 2], &[4, 8, 16], &[1, 32], &[1]];

/// Combinations that are associative and commutative bit for bit on the values that are given to them.
const COMBINATIONS: [BinaryOp; 9] = [
    BinaryOp::Add,
    BinaryOp::Mul,
    BinaryOp::Min,
    BinaryOp::Max,
    BinaryOp::MinNan,
    BinaryOp::MaxNan,
    BinaryOp::And,
    BinaryOp::Or,
    BinaryOp::Xor,
];

fn applies(op: BinaryOp, dtype: DType) -> bool {
    // A product of floats is not exact, whatever the values.
    let exact = !dtype.is_float() || op != BinaryOp::Mul;
    exact && op.needs().admits(&Func::new("empty", "tests", Safety::Safe), dtype.into())
}

/// Elements on which the combination is exact in any order: for sums of floats small integers, else anything.
fn elements(op: BinaryOp, dtype: DType, len: usize, seed: u64) -> Data {
    if dtype.is_float() && op == BinaryOp::Add {
        let mut rng = Rng::new(seed);
        // 128 of these stay below 256, up to which bf16 has every integer.
        return Data::numbers(dtype, (0..len).map(|_| rng.below(3) as i64 - 1));
    }
    let mut rng = Rng::new(seed);
    let edges = samples::edges(dtype);
    // Few edges among many elements, so that a NaN or an extreme does not decide every result.
    let pick = |_| if rng.below(16) == 0 { edges[rng.below(edges.len())] } else { samples::random(dtype, &mut rng) };
    Data::new(dtype, (0..len).map(pick).collect::<Vec<_>>())
}

/// The lines of a row-major tile along `axis`: the offsets of the elements of each line, in order of the results.
fn lines(shape: &[i64], axis: usize) -> Vec<Vec<usize>> {
    let (len, inner): (i64, i64) = (shape[axis], shape[axis + 1..].iter().product());
    let outer: i64 = shape[..axis].iter().product();
    let line = |o: i64, i: i64| (0..len).map(|k| ((o * len + k) * inner + i) as usize).collect();
    (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))).map(|(o, i)| line(o, i)).collect()
}

fn combine(op: BinaryOp, dtype: DType, a: u64, b: u64) -> u64 {
    match reference::binary(op, dtype, a, b) {
        Answer::Exactly(bits) | Answer::UnsignedZero(bits) => bits,
        other => panic!("{} on {dtype} is not exact but {other:?}", op.name()),
    }
}

fn fold(op: BinaryOp, dtype: DType, line: &[u64]) -> u64 {
    line[1..].iter().fold(line[0], |a, &b| combine(op, dtype, a, b))
}

fn region(author: &mut Author, op: BinaryOp, dtype: DType) -> kernel_core::ir::RegionId {
    let scalar = Ty::scalar(dtype);
    author.region(&[scalar.clone(), scalar], |author, args| vec![author.one(Op::binary(op), args)])
}

/// All reductions of one dtype and shape, along all axes, in one kernel.
fn reduce(dtype: DType, shape: &[i64]) {
    let len = shape.iter().product::<i64>() as usize;
    let mut author = Author::new(&format!("reduce_{dtype}_{}d", shape.len()));
    for op in COMBINATIONS.into_iter().filter(|&op| applies(op, dtype)) {
        let input = elements(op, dtype, len, 7);
        let tile = author.load_tile(&input, shape);
        for axis in 0..shape.len() {
            let body = region(&mut author, op, dtype);
            let results = author.results(ControlOp::Reduce { axis: axis as u8 }, &[tile], &[body]);
            let line = |line: &Vec<usize>| line.iter().map(|&i| input.bits[i]).collect::<Vec<_>>();
            let want = lines(shape, axis).iter().map(|l| Answer::UnsignedZero(fold(op, dtype, &line(l)))).collect();
            author.store_tile(&format!("{} along {axis} of {shape:?}", op.name()), results[0], want);
        }
    }
    author.finish().check_on_every_device();
}

/// All scans of one dtype, forwards and backwards, in one kernel.
fn scan(dtype: DType, shape: &[i64]) {
    let len = shape.iter().product::<i64>() as usize;
    let mut author = Author::new(&format!("scan_{dtype}_{}d", shape.len()));
    for op in COMBINATIONS.into_iter().filter(|&op| applies(op, dtype)) {
        let input = elements(op, dtype, len, 8);
        let tile = author.load_tile(&input, shape);
        for (axis, reverse) in (0..shape.len()).flat_map(|axis| [(axis, false), (axis, true)]) {
            let body = region(&mut author, op, dtype);
            let results = author.results(ControlOp::Scan { axis: axis as u8, reverse }, &[tile], &[body]);
            let mut want = vec![Answer::Any; len];
            for mut line in lines(shape, axis) {
                if reverse {
                    line.reverse();
                }
                for end in 1..=line.len() {
                    let part: Vec<u64> = line[..end].iter().map(|&i| input.bits[i]).collect();
                    want[line[end - 1]] = Answer::UnsignedZero(fold(op, dtype, &part));
                }
            }
            let way = if reverse { "backwards" } else { "forwards" };
            author.store_tile(&format!("{} {way} along {axis} of {shape:?}", op.name()), results[0], want);
        }
    }
    author.finish().check_on_every_device();
}

/// Scans of maps `x -> p x + q`, one after another: associative, but the order of two maps shows.
fn scan_of_maps(dtype: DType) {
    for shape in [&[1024i64][..], &[4, 64], &[64, 4], &[2, 16, 8]] {
        let len = shape.iter().product::<i64>() as usize;
        let mut rng = Rng::new(11);
        let [p, q] =
            [0, 1].map(|_| Data::new(dtype, (0..len).map(|_| samples::random(dtype, &mut rng)).collect::<Vec<_>>()));
        let mut author = Author::new(&format!("scan_of_maps_{dtype}_{}d", shape.len()));
        let tiles = [author.load_tile(&p, shape), author.load_tile(&q, shape)];
        for (axis, reverse) in (0..shape.len()).flat_map(|axis| [(axis, false), (axis, true)]) {
            let scalars = [(); 4].map(|()| Ty::scalar(dtype));
            let body = author.region(&scalars, |author, args| {
                let &[p1, q1, p2, q2] = args else { panic!("four arguments") };
                let product = author.one(Op::binary(BinaryOp::Mul), &[p1, p2]);
                let scaled = author.one(Op::binary(BinaryOp::Mul), &[p1, q2]);
                vec![product, author.one(Op::binary(BinaryOp::Add), &[scaled, q1])]
            });
            let results = author.results(ControlOp::Scan { axis: axis as u8, reverse }, &tiles, &[body]);
            let mut want = [vec![Answer::Any; len], vec![Answer::Any; len]];
            for mut line in lines(shape, axis) {
                if reverse {
                    line.reverse();
                }
                let mut sofar = (p.bits[line[0]], q.bits[line[0]]);
                for (k, &at) in line.iter().enumerate() {
                    if k > 0 {
                        let scaled = combine(BinaryOp::Mul, dtype, sofar.0, q.bits[at]);
                        let sum = combine(BinaryOp::Add, dtype, scaled, sofar.1);
                        sofar = (combine(BinaryOp::Mul, dtype, sofar.0, p.bits[at]), sum);
                    }
                    (want[0][at], want[1][at]) = (Answer::Exactly(sofar.0), Answer::Exactly(sofar.1));
                }
            }
            let way = if reverse { "backwards" } else { "forwards" };
            for (what, (result, want)) in ["factors", "terms"].iter().zip(results.iter().zip(want)) {
                author.store_tile(&format!("{what} {way} along {axis} of {shape:?}"), *result, want);
            }
        }
        author.finish().check_on_every_device();
    }
}

/// Index of the largest or smallest element, the first of equal ones: two tiles reduced together.
fn arg_extreme(dtype: DType) {
    let shape = [8i64, 32];
    let mut rng = Rng::new(9);
    // Few distinct values, so that there are ties.
    let input = Data::numbers(dtype, (0..256).map(|_| rng.below(9) as i64 - if dtype.int_min() == 0 { 0 } else { 4 }));
    let mut author = Author::new(&format!("arg_extreme_{dtype}"));
    let values = author.load_tile(&input, &shape);
    for (axis, op) in [(0, CmpOp::Gt), (1, CmpOp::Gt), (0, CmpOp::Lt), (1, CmpOp::Lt)] {
        let positions = lines(&shape, axis);
        let mut index = vec![0i128; 256];
        for line in &positions {
            line.iter().enumerate().for_each(|(k, &at)| index[at] = k as i128);
        }
        let indices = author.load_tile(&Data::ints(DType::I32, index), &shape);
        let (value, position) = (Ty::scalar(dtype), Ty::scalar(DType::I32));
        let args = [value.clone(), position.clone(), value, position];
        let body = author.region(&args, |author, args| {
            let &[value_a, index_a, value_b, index_b] = args else { panic!("four arguments") };
            let better = author.one(Op::compare(op), &[value_a, value_b]);
            let equal = author.one(Op::compare(CmpOp::Eq), &[value_a, value_b]);
            let earlier = author.one(Op::compare(CmpOp::Lt), &[index_a, index_b]);
            let tie = author.one(Op::binary(BinaryOp::And), &[equal, earlier]);
            let first = author.one(Op::binary(BinaryOp::Or), &[better, tie]);
            let value = author.one(ElementwiseOp::Select, &[first, value_a, value_b]);
            vec![value, author.one(ElementwiseOp::Select, &[first, index_a, index_b])]
        });
        let results = author.results(ControlOp::Reduce { axis: axis as u8 }, &[values, indices], &[body]);
        let best = |line: &Vec<usize>| {
            let better = |a: usize, b: usize| {
                let (a, b) = (input.bits[line[a]], input.bits[line[b]]);
                reference::compare(op, dtype, a, b) == 1
            };
            (1..line.len()).fold(0, |best, k| if better(k, best) { k } else { best })
        };
        let want: Vec<usize> = positions.iter().map(best).collect();
        let indices = want.iter().map(|&k| Answer::Exactly(k as u64)).collect();
        author.store_tile(&format!("index by {} along {axis}", op.name()), results[1], indices);
        let extremes =
            positions.iter().zip(&want).map(|(line, &k)| Answer::UnsignedZero(input.bits[line[k]])).collect();
        author.store_tile(&format!("value by {} along {axis}", op.name()), results[0], extremes);
    }
    author.finish().check_on_every_device();
}

/// Sums of arbitrary floats: within the bound for n - 1 additions in any order (Higham, "Accuracy and Stability of
/// Numerical Algorithms", 4.2): (n - 1) u / (1 - (n - 1) u) times the sum of magnitudes.
fn sum_of_floats(dtype: DType) {
    let (rows, columns) = (8usize, 256usize);
    let mut rng = Rng::new(10);
    let unit = |rng: &mut Rng| (rng.bits() >> 11) as f64 / (1u64 << 53) as f64 * 4.0 - 1.0;
    let input = Data::floats(dtype, (0..rows * columns).map(|_| unit(&mut rng)).collect::<Vec<_>>());
    let mut author = Author::new(&format!("sum_{dtype}"));
    let tile = author.load_tile(&input, &[rows as i64, columns as i64]);
    let body = region(&mut author, BinaryOp::Add, dtype);
    let results = author.results(ControlOp::Reduce { axis: 1 }, &[tile], &[body]);
    let format = Format::of(dtype);
    // 8-bit floats are summed in f32, as all narrow floats are; of them the bound in their own precision says nothing.
    let precision = if dtype.is_fp8() { 24 } else { format.precision };
    let unit_roundoff = 2f64.powi(-precision) * (columns - 1) as f64;
    let answer = |row: &[u64]| {
        let values: Vec<f64> = row.iter().map(|&b| data::to_f64(dtype, b)).collect();
        let (sum, magnitude) = (values.iter().sum::<f64>(), values.iter().map(|v| v.abs()).sum::<f64>());
        Answer::Near(sum, unit_roundoff / (1.0 - unit_roundoff) * magnitude / format.ulp(sum) + 1.0)
    };
    author.store_tile("sum along 1", results[0], input.bits.chunks(columns).map(answer).collect());
    author.finish().check_on_every_device();
}

fn on_all_shapes(dtype: DType) {
    SHAPES.iter().for_each(|shape| reduce(dtype, shape));
}

fn scans(dtype: DType) {
    [&[64i64][..], &[4, 16], &[16, 4], &[2, 4, 8]].iter().for_each(|shape| scan(dtype, shape));
}

#[test]
fn a_reduction_of_a_reduction() {
    let input = Data::numbers(DType::I32, 0..512);
    let mut author = Author::new("nested_reduce");
    let mut tile = author.load_tile(&input, &[8, 4, 16]);
    for axis in [1, 0, 0] {
        let body = region(&mut author, BinaryOp::Add, DType::I32);
        tile = author.results(ControlOp::Reduce { axis }, &[tile], &[body])[0];
    }
    author.store_tile("sum of all", tile, exactly(&Data::new(DType::I32, [number(DType::I32, 511 * 256)])));
    author.finish().check_on_every_device();
}

macro_rules! for_each_dtype {
    ($($test:ident: $($name:ident = $dtype:ident)*;)*) => {$(
        mod $test {
            use kernel_core::ir::DType;
            $(#[test] fn $name() { super::$test(DType::$dtype); })*
        }
    )*};
}

for_each_dtype! {
    on_all_shapes: bool = Bool i8 = I8 i16 = I16 i32 = I32 i64 = I64 u8 = U8 u16 = U16 u32 = U32 u64 = U64 f16 = F16
        bf16 = BF16 f32 = F32 f64 = F64;
    scans: bool = Bool i8 = I8 i16 = I16 i32 = I32 i64 = I64 u8 = U8 u16 = U16 u32 = U32 u64 = U64 f16 = F16
        bf16 = BF16 f32 = F32 f64 = F64;
    scan_of_maps: i8 = I8 i32 = I32 i64 = I64 u16 = U16;
    arg_extreme: i8 = I8 i16 = I16 i32 = I32 i64 = I64 u8 = U8 u16 = U16 u32 = U32 u64 = U64 f8e4m3 = F8E4M3
        f8e5m2 = F8E5M2 f16 = F16 bf16 = BF16
        f32 = F32 f64 = F64;
    sum_of_floats: f8e4m3 = F8E4M3 f8e5m2 = F8E5M2 f16 = F16 bf16 = BF16 f32 = F32 f64 = F64;
}
