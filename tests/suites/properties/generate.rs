//! Recipes for kernels: lists of numbers that make a valid kernel whatever they are.
//!
//! Every value is a tile of [`SHAPE`] or a scalar. A step takes its operands from what is there, wherever its numbers
//! point, so that steps can be left out when a failure shrinks. Operations whose results the GPU may round otherwise
//! are left out, so that everything is compared bit for bit.

use kernel_core::ir::{
    BinaryOp, CmpOp, ControlOp, DType, DotOp, DotPrecision, ElementwiseOp, Op, ShapeOp, Ty, UnaryOp, Unroll, ValueId,
};
use proptest::prelude::*;
use tilewright_tests::author::{Author, dims, load, store};
use tilewright_tests::case::Case;
use tilewright_tests::data::{Data, from_f64, mask};
use tilewright_tests::expect::Answer;
use tilewright_tests::samples;

/// The shape of every tile.
pub const SHAPE: [i64; 2] = [16, 16];
const LEN: usize = 256;
/// How many of the last tiles are stored.
const STORED: usize = 4;
/// dtypes of the inputs.
const INPUTS: [DType; 6] = [DType::I32, DType::F32, DType::U8, DType::I64, DType::F16, DType::Bool];

/// One operation, or a few.
#[derive(Clone, Debug)]
pub enum Step {
    /// An elementwise or shape operation: which, and where its operands are.
    Plain(u8, u16, u16, u16),
    /// A loop that runs that often and carries two tiles.
    Loop(u8, u16, u16, Vec<Step>),
    /// A branch on a scalar that is not known when the kernel is compiled.
    Branch(u16, Vec<Step>, Vec<Step>),
}

/// A kernel to be built, and the seed of its arguments.
#[derive(Clone, Debug)]
pub struct Recipe {
    steps: Vec<Step>,
    seed: u64,
}

/// Any recipe.
pub fn recipe() -> impl Strategy<Value = Recipe> {
    let plain = (any::<u8>(), any::<u16>(), any::<u16>(), any::<u16>());
    let leaf = plain.prop_map(|(what, a, b, c)| Step::Plain(what, a, b, c));
    let step = leaf.prop_recursive(2, 12, 4, |inner| {
        let few = || prop::collection::vec(inner.clone(), 0..4);
        prop_oneof![
            6 => inner.clone(),
            1 => (0u8..5, any::<u16>(), any::<u16>(), few()).prop_map(|(n, a, b, body)| Step::Loop(n, a, b, body)),
            1 => (any::<u16>(), few(), few()).prop_map(|(a, yes, no)| Step::Branch(a, yes, no)),
        ]
    });
    (prop::collection::vec(step, 1..24), any::<u64>()).prop_map(|(steps, seed)| Recipe { steps, seed })
}

/// What a step can take its operands from.
struct Pool {
    tiles: Vec<ValueId>,
    flags: Vec<ValueId>,
    input: (ValueId, ValueId),
    scratch: ValueId,
}

impl Recipe {
    /// The kernel with its arguments. The expectations are empty: there is no other reference than another run.
    pub fn build(&self) -> Case {
        let mut author = Author::new("random");
        let tiles = (INPUTS.iter().zip(0..))
            .map(|(&dtype, i)| author.load_tile(&cut(dtype, self.seed.wrapping_add(i)), &SHAPE))
            .collect();
        let flags = vec![author.scalar(DType::Bool, self.seed & 1), author.scalar(DType::Bool, self.seed >> 1 & 1)];
        let table = cut(DType::I32, self.seed ^ 0xabcd);
        let base = author.input(&table);
        let scratch = author.output("scratch", &cut(DType::I32, self.seed ^ 0x1234), vec![Answer::Any; LEN]);
        let offsets = author.offsets(&SHAPE);
        let mut pool = Pool { tiles, flags, input: (base, offsets), scratch };
        self.steps.iter().for_each(|step| run(&mut author, &mut pool, step));
        for &tile in pool.tiles.iter().rev().take(STORED) {
            author.store_tile("tile", tile, vec![Answer::Any; LEN]);
        }
        author.finish()
    }
}

fn cut(dtype: DType, seed: u64) -> Data {
    let mut bits = samples::one(dtype, LEN, seed).bits;
    bits.truncate(LEN);
    Data::new(dtype, bits)
}

fn run(author: &mut Author, pool: &mut Pool, step: &Step) {
    match step {
        Step::Plain(what, a, b, c) => plain(author, pool, *what, [*a, *b, *c]),
        Step::Loop(iterations, a, b, body) => {
            let carried = [pick(&pool.tiles, *a), pick(&pool.tiles, *b)];
            let results = counted_loop(author, pool, *iterations, carried, body);
            pool.tiles.extend(results);
        }
        Step::Branch(a, yes, no) => {
            let condition = pick(&pool.flags, *a);
            let first = arm(author, pool, yes, None);
            // Both arms yield a tile of one type: the second casts its own to that of the first.
            let dtype = author.func.ty(first.1).dtype().unwrap_or(DType::I32);
            let second = arm(author, pool, no, Some(dtype));
            let results = author.results(ControlOp::If, &[condition], &[first.0, second.0]);
            pool.tiles.extend(results);
        }
    }
}

/// One side of a branch: its region and the tile that it yields.
fn arm(author: &mut Author, pool: &Pool, steps: &[Step], to: Option<DType>) -> (kernel_core::ir::RegionId, ValueId) {
    let mut yielded = pool.tiles[0];
    let region = author.region(&[], |author, _| {
        let mut inner = pool.copy();
        steps.iter().for_each(|step| run(author, &mut inner, step));
        yielded = inner.tiles[inner.tiles.len() - 1];
        if let Some(to) = to {
            yielded = author.one(Op::cast(to), &[yielded]);
        }
        vec![yielded]
    });
    (region, yielded)
}

fn counted_loop(
    author: &mut Author,
    pool: &Pool,
    iterations: u8,
    carried: [ValueId; 2],
    steps: &[Step],
) -> Vec<ValueId> {
    let [lo, hi, step] = [0, i32::from(iterations), 1].map(|n| author.one(Op::i32(n), &[]));
    let types = carried.map(|v| author.func.ty(v).clone());
    let body = author.region(&[Ty::scalar(DType::I32), types[0].clone(), types[1].clone()], |author, args| {
        let mut inner = pool.copy();
        inner.tiles.push(author.splat(args[0], &SHAPE));
        inner.tiles.extend(&args[1..]);
        steps.iter().for_each(|step| run(author, &mut inner, step));
        // The last tile of each carried type, else what was carried, the other way round if the types allow.
        let last = |ty: &Ty| inner.tiles.iter().rev().copied().find(|&v| author.func.ty(v) == ty);
        [1, 0].map(|i| last(&types[1 - i]).unwrap_or(args[2 - i])).to_vec()
    });
    let unroll = if iterations.is_multiple_of(2) { Unroll::Auto } else { Unroll::Never };
    let op = ControlOp::For {
        reverse: iterations == 3,
        unroll,
        counter: None,
        stages: 0,
        warp_specialize: false,
        runs: false,
        no_wrap: false,
        unroll_by: None,
        stages_by: None,
    };
    author.results(op, &[lo, hi, step, carried[0], carried[1]], &[body])
}

impl Pool {
    fn copy(&self) -> Pool {
        Pool { tiles: self.tiles.clone(), flags: self.flags.clone(), ..*self }
    }
}

fn pick(list: &[ValueId], at: u16) -> ValueId {
    // From the end, so that steps that follow each other use each other's results.
    list[list.len() - 1 - usize::from(at) % list.len()]
}

/// A tile of the same type as `like`.
fn pick_like(author: &Author, pool: &Pool, like: ValueId, at: u16) -> ValueId {
    let ty = author.func.ty(like);
    let same: Vec<ValueId> = pool.tiles.iter().copied().filter(|&v| author.func.ty(v) == ty).collect();
    pick(&same, at)
}

/// Operations whose results are the same everywhere.
fn is_exact(op: BinaryOp, dtype: DType) -> bool {
    let admitted = op.needs().admits(&kernel_core::ir::Func::new("", "", kernel_core::ir::Safety::Safe), dtype.into());
    // `/` on floats may be the hardware's fast form; minimum and maximum may take either of two zeros.
    let inexact = matches!(
        op,
        BinaryOp::Div | BinaryOp::Min | BinaryOp::Max | BinaryOp::MinNan | BinaryOp::MaxNan | BinaryOp::Math(_)
    );
    admitted && !(dtype.is_float() && inexact)
}

fn plain(author: &mut Author, pool: &mut Pool, what: u8, [a, b, c]: [u16; 3]) {
    let x = pick(&pool.tiles, a);
    let dtype = author.func.ty(x).dtype().unwrap_or(DType::I32);
    let result = match what % 20 {
        0..=3 => {
            let y = pick_like(author, pool, x, b);
            binary(author, dtype, c, [x, y])
        }
        4 => {
            // Neutral and absorbing elements, on either side.
            let special = if dtype.is_float() {
                [0.0, -0.0, 1.0, -1.0].map(|v| from_f64(dtype, v))
            } else {
                [0, 1, 2, mask(dtype)]
            };
            let value = author.constant(dtype, special[usize::from(b) % special.len()]);
            let y = author.splat(value, &SHAPE);
            binary(author, dtype, c, if b & 0x100 == 0 { [x, y] } else { [y, x] })
        }
        5 => unary(author, x, dtype, c),
        6 => {
            let y = pick_like(author, pool, x, b);
            let ops = if dtype == DType::Bool { &CmpOp::ALL[..2] } else { CmpOp::ALL };
            author.one(Op::compare(ops[usize::from(c) % ops.len()]), &[x, y])
        }
        7 => {
            let y = pick_like(author, pool, x, b);
            let condition = author.one(Op::cast(DType::Bool), &[pick(&pool.tiles, c)]);
            author.one(ElementwiseOp::Select, &[condition, x, y])
        }
        8 => author.one(Op::cast(DType::ALL[usize::from(b) % DType::ALL.len()]), &[x]),
        9 => {
            let edges = samples::edges(dtype);
            let value = author.constant(dtype, edges[usize::from(b) % edges.len()]);
            author.splat(value, &SHAPE)
        }
        10 => author.one(ShapeOp::Permute { perm: vec![1, 0] }, &[x]),
        11 => shuffle(author, x, b, c),
        12 => reduce_and_spread(author, x, dtype, (b % 2) as u8, c),
        13 => gather(author, pool, x),
        14 => masked_load(author, pool, b, c),
        15 => store_and_reload(author, pool, x),
        16 => {
            // Both orders of the operands, which are one only for some operations.
            let y = pick_like(author, pool, x, b);
            let one = binary(author, dtype, c, [x, y]);
            let other = binary(author, dtype, c, [y, x]);
            pool.tiles.push(one);
            author.one(Op::compare(CmpOp::Eq), &[one, other])
        }
        17 => product_of_bytes(author, pool, x, b, c),
        18 => product_of_floats(author, pool, x, b, c),
        _ => {
            // Something repeated along one axis meets something repeated along the other, or along the same.
            let row = reduce_and_spread(author, x, dtype, (b % 2) as u8, c);
            let column = reduce_and_spread(author, x, dtype, (b / 2 % 2) as u8, c / 2);
            let dtype = author.func.ty(row).dtype().unwrap_or(dtype);
            binary(author, dtype, c, [row, column])
        }
    };
    pool.tiles.push(result);
}

/// One of the operations that are exact on the dtype.
fn binary(author: &mut Author, dtype: DType, which: u16, operands: [ValueId; 2]) -> ValueId {
    let ops: Vec<BinaryOp> = BinaryOp::ALL.iter().copied().filter(|&op| is_exact(op, dtype)).collect();
    author.one(Op::binary(ops[usize::from(which) % ops.len()]), &operands)
}

/// Through a shape of rank 3 and back, permuted there twice.
fn shuffle(author: &mut Author, x: ValueId, b: u16, c: u16) -> ValueId {
    const PERMUTATIONS: [[u8; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let mut value = author.one(ShapeOp::Reshape { shape: dims(&[4, 2, 32]) }, &[x]);
    for which in [b, c] {
        let perm = PERMUTATIONS[usize::from(which) % PERMUTATIONS.len()].to_vec();
        value = author.one(ShapeOp::Permute { perm }, &[value]);
    }
    author.one(ShapeOp::Reshape { shape: dims(&SHAPE) }, &[value])
}

fn unary(author: &mut Author, x: ValueId, dtype: DType, which: u16) -> ValueId {
    let exact = [
        UnaryOp::Neg,
        UnaryOp::Abs,
        UnaryOp::Not,
        UnaryOp::Floor,
        UnaryOp::Ceil,
        UnaryOp::Trunc,
        UnaryOp::Round,
        UnaryOp::RoundTiesEven,
        UnaryOp::SqrtRn,
        UnaryOp::CountOnes,
        UnaryOp::LeadingZeros,
        UnaryOp::TrailingZeros,
        UnaryOp::ReverseBits,
    ];
    let func = kernel_core::ir::Func::new("", "", kernel_core::ir::Safety::Safe);
    let ops: Vec<UnaryOp> = exact.into_iter().filter(|op| op.needs().admits(&func, dtype.into())).collect();
    author.one(Op::unary(ops[usize::from(which) % ops.len()]), &[x])
}

/// Reduces along an axis by something associative bit for bit, and repeats the result along it.
fn reduce_and_spread(author: &mut Author, x: ValueId, dtype: DType, axis: u8, which: u16) -> ValueId {
    let (x, dtype) = if dtype.is_float() { (author.one(Op::cast(DType::I32), &[x]), DType::I32) } else { (x, dtype) };
    let ops: &[BinaryOp] = if dtype == DType::Bool {
        &[BinaryOp::And, BinaryOp::Or, BinaryOp::Xor]
    } else {
        &[BinaryOp::Add, BinaryOp::Mul, BinaryOp::Min, BinaryOp::Max, BinaryOp::Xor]
    };
    let op = ops[usize::from(which) % ops.len()];
    let scalar = Ty::scalar(dtype);
    let body = author.region(&[scalar.clone(), scalar], |author, args| vec![author.one(Op::binary(op), args)]);
    let line = author.results(ControlOp::Reduce { axis }, &[x], &[body])[0];
    let line = author.one(ShapeOp::ExpandDims { axis }, &[line]);
    author.one(ShapeOp::Broadcast { shape: dims(&SHAPE) }, &[line])
}

/// Loads from places that the tile names, kept inside the buffer by a bit mask.
fn gather(author: &mut Author, pool: &Pool, x: ValueId) -> ValueId {
    let indices = author.one(Op::cast(DType::I32), &[x]);
    let all = author.one(Op::i32(LEN as i32 - 1), &[]);
    let all = author.splat(all, &SHAPE);
    let indices = author.one(Op::binary(BinaryOp::And), &[indices, all]);
    let address = author.address(pool.input.0, indices);
    author.one(load(), &[address])
}

fn masked_load(author: &mut Author, pool: &Pool, b: u16, c: u16) -> ValueId {
    let mask = author.one(Op::cast(DType::Bool), &[pick(&pool.tiles, b)]);
    let other = author.one(Op::cast(DType::I32), &[pick(&pool.tiles, c)]);
    let address = author.address(pool.input.0, pool.input.1);
    author.one(load(), &[address, mask, other])
}

/// A product of bytes, whose sums wrap, so that any numbers will do. It may be of the transposes.
fn product_of_bytes(author: &mut Author, pool: &Pool, x: ValueId, b: u16, c: u16) -> ValueId {
    let y = pick(&pool.tiles, b);
    let dtype = if c & 4 == 0 { DType::I8 } else { DType::U8 };
    let factors = [x, y].map(|factor| author.one(Op::cast(dtype), &[factor]));
    let start = author.one(Op::cast(DType::I32), &[pick(&pool.tiles, c >> 3)]);
    product(author, factors, start, c)
}

/// A product of floats that are small whole numbers, so that every sum is exact, and so is whatever it is rounded to.
fn product_of_floats(author: &mut Author, pool: &Pool, x: ValueId, b: u16, c: u16) -> ValueId {
    const FACTORS: [DType; 6] = [DType::F16, DType::BF16, DType::F32, DType::F8E4M3, DType::F8E5M2, DType::F64];
    let dtype = FACTORS[usize::from(c >> 3) % FACTORS.len()];
    let acc = match dtype {
        DType::F64 => DType::F64,
        DType::F16 if c & 4 != 0 => DType::F16,
        _ => DType::F32,
    };
    let factors = [x, pick(&pool.tiles, b)].map(|factor| small(author, factor, 3, dtype));
    let start = small(author, pick(&pool.tiles, c >> 7), 15, acc);
    product(author, factors, start, c)
}

/// The lowest bits of a tile, as another dtype.
fn small(author: &mut Author, x: ValueId, mask: i32, dtype: DType) -> ValueId {
    let whole = author.one(Op::cast(DType::I32), &[x]);
    let mask = author.one(Op::i32(mask), &[]);
    let mask = author.splat(mask, &SHAPE);
    let low = author.one(Op::binary(BinaryOp::And), &[whole, mask]);
    author.one(Op::cast(dtype), &[low])
}

fn product(author: &mut Author, factors: [ValueId; 2], start: ValueId, which: u16) -> ValueId {
    const PRECISIONS: [DotPrecision; 5] =
        [DotPrecision::Tf32, DotPrecision::Tf32x3, DotPrecision::Ieee, DotPrecision::Bf16x3, DotPrecision::Bf16x6];
    let mut turn = |factor: ValueId, turned: bool| match turned {
        true => author.one(ShapeOp::Permute { perm: vec![1, 0] }, &[factor]),
        false => factor,
    };
    let [a, b] = [turn(factors[0], which & 1 != 0), turn(factors[1], which & 2 != 0)];
    let precision = PRECISIONS[usize::from(which >> 11) % PRECISIONS.len()];
    author.one(DotOp::Dot { precision, by: None }, &[a, b, start])
}

/// Stores a tile, and loads what other lanes have stored.
fn store_and_reload(author: &mut Author, pool: &Pool, x: ValueId) -> ValueId {
    let value = author.one(Op::cast(DType::I32), &[x]);
    let address = author.address(pool.scratch, pool.input.1);
    author.op(store(), &[address, value]);
    let mirrored = author.one(ShapeOp::Permute { perm: vec![1, 0] }, &[pool.input.1]);
    let address = author.address(pool.scratch, mirrored);
    author.one(load(), &[address])
}
