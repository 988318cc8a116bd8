//! Loops, branches and their carried values.

use kernel_core::ir::{BinaryOp, CmpOp, ControlOp, DType, Op, Ty, Unroll, ValueId};
use tilewright_tests::author::{Author, dims};
use tilewright_tests::data::{Data, from_int};
use tilewright_tests::expect::{Answer, exactly};

fn plain_loop(reverse: bool) -> ControlOp {
    ControlOp::For {
        reverse,
        unroll: Unroll::Auto,
        counter: None,
        stages: 0,
        warp_specialize: false,
        runs: false,
        no_wrap: false,
        unroll_by: None,
        stages_by: None,
    }
}

/// The values of `i` that a loop runs through, by the definition: without wrapping, never if the step is not positive.
fn iterations(lo: i128, hi: i128, step: i128, reverse: bool) -> Vec<i128> {
    let mut all = Vec::new();
    let mut i = lo;
    while step > 0 && i < hi {
        all.push(i);
        i += step;
    }
    if reverse {
        all.reverse();
    }
    all
}

/// Bounds of loops that go wrong easily, for an integer dtype.
fn bounds(dtype: DType) -> Vec<(i128, i128, i128)> {
    let (min, max) = (dtype.int_min(), dtype.int_max());
    let mut all = vec![
        (0, 10, 1),
        (0, 10, 3),
        (0, 0, 1),
        (5, 2, 1),
        (0, 1, 100),
        (3, 4, 1),
        (7, 20, 4),
        // The next value after the last would wrap.
        (max - 5, max, 2),
        (max - 5, max, 100),
        (max - 2, max, 1),
        (0, max, max),
        (0, max, max / 2 + 1),
        (min, min + 3, 1),
        (max, min, 1),
        (0, 10, 0),
    ];
    if dtype.is_signed_int() {
        all.extend([(-10, 10, 7), (-3, -1, 1), (10, 0, -1), (0, 10, -3), (min, max, max), (-5, -20, 2)]);
    }
    all
}

/// A loop that carries a count and a hash of its values, for every pair of bounds, as arguments and as constants.
fn loops(dtype: DType) {
    let mut author = Author::new(&format!("loops_{dtype}"));
    let all = bounds(dtype);
    let flags = [false, true].map(|reverse| all.iter().map(move |&b| (b, reverse)));
    for (number, ((lo, hi, step), reverse)) in flags.into_iter().flatten().enumerate() {
        let constant = number % 2 == 0;
        let bound: Vec<ValueId> = [lo, hi, step]
            .into_iter()
            .map(|v| {
                let bits = from_int(dtype, v);
                if constant { author.constant(dtype, bits) } else { author.scalar(dtype, bits) }
            })
            .collect();
        let zero = author.constant(DType::I64, 0);
        let i64_ty = Ty::scalar(DType::I64);
        let body = author.region(&[Ty::scalar(dtype), i64_ty.clone(), i64_ty], |author, args| {
            let one = author.constant(DType::I64, 1);
            let count = author.one(Op::binary(BinaryOp::Add), &[args[1], one]);
            let index = author.one(Op::cast(DType::I64), &[args[0]]);
            let factor = author.constant(DType::I64, 31);
            let hash = author.one(Op::binary(BinaryOp::Mul), &[args[2], factor]);
            vec![count, author.one(Op::binary(BinaryOp::Add), &[hash, index])]
        });
        let operands = [bound[0], bound[1], bound[2], zero, zero];
        let results = author.results(plain_loop(reverse), &operands, &[body]);
        let values = iterations(lo, hi, step, reverse);
        let hash = values.iter().fold(0i64, |hash, &i| hash.wrapping_mul(31).wrapping_add(i as i64));
        let label = format!("({lo}..{hi}).step_by({step}){}", if reverse { ".rev()" } else { "" });
        author.store_tile(&format!("count of {label}"), results[0], vec![Answer::Exactly(values.len() as u64)]);
        author.store_tile(&format!("values of {label}"), results[1], vec![Answer::Exactly(hash as u64)]);
    }
    author.finish().check_on_every_device();
}

/// Nested loops that carry tiles, swapped each time round.
#[test]
fn nested_loops_swap_tiles() {
    for (outer, inner) in [(3i64, 4i64), (0, 4), (3, 0), (1, 1), (2, 7)] {
        let (a, b) = (Data::numbers(DType::I32, 0..64), Data::numbers(DType::I32, 100..164));
        let mut author = Author::new("swap");
        let tile = Ty::tile(DType::I32, dims(&[64]));
        let start = [author.load_tile(&a, &[64]), author.load_tile(&b, &[64])];
        let zero = author.one(Op::i32(0), &[]);
        let one = author.one(Op::i32(1), &[]);
        let outer_end = author.scalar(DType::I32, outer as u64);
        let inner_end = author.scalar(DType::I32, inner as u64);
        let types = [Ty::scalar(DType::I32), tile.clone(), tile];
        let body = author.region(&types, |author, args| {
            let (first, second) = (args[1], args[2]);
            let inner_body = author.region(&types, |author, args| {
                let step = author.splat(args[0], &[64]);
                let grown = author.one(Op::binary(BinaryOp::Add), &[args[1], step]);
                // (a, b) = (b, a + i)
                vec![args[2], grown]
            });
            author.results(plain_loop(false), &[zero, inner_end, one, first, second], &[inner_body])
        });
        let results = author.results(plain_loop(false), &[zero, outer_end, one, start[0], start[1]], &[body]);
        let (mut x, mut y): (Vec<i64>, Vec<i64>) = ((0..64).collect(), (100..164).collect());
        for _ in 0..outer {
            for i in 0..inner {
                let grown = x.iter().map(|v| v + i).collect();
                (x, y) = (y, grown);
            }
        }
        author.store_tile("first", results[0], exactly(&Data::numbers(DType::I32, x)));
        author.store_tile("second", results[1], exactly(&Data::numbers(DType::I32, y)));
        author.finish().check_on_every_device();
    }
}

/// Branches with results of several types, nested, both ways, with memory inside.
#[test]
fn branches_yield_scalars_and_tiles() {
    for (flag, number) in [(0u64, 5i64), (1, 5), (1, -5), (0, -5)] {
        let input = Data::numbers(DType::F32, 0..32);
        let mut author = Author::new("branches");
        let condition = author.scalar(DType::Bool, flag);
        let n = author.scalar(DType::I32, from_int(DType::I32, i128::from(number)));
        let tile = author.load_tile(&input, &[32]);
        let zero = author.one(Op::i32(0), &[]);
        let yes = author.region(&[], |author, _| {
            let positive = author.one(Op::compare(CmpOp::Gt), &[n, zero]);
            let deep = author.region(&[], |author, _| {
                let doubled = author.one(Op::binary(BinaryOp::Add), &[tile, tile]);
                vec![doubled, n]
            });
            let other = author.region(&[], |author, _| {
                let negated = author.one(Op::unary(kernel_core::ir::UnaryOp::Neg), &[tile]);
                vec![negated, zero]
            });
            author.results(ControlOp::If, &[positive], &[deep, other])
        });
        let no = author.region(&[], |_, _| vec![tile, zero]);
        let results = author.results(ControlOp::If, &[condition], &[yes, no]);
        let (factor, scalar) = match (flag, number > 0) {
            (0, _) => (1, 0),
            (_, true) => (2, number),
            (_, false) => (-1, 0),
        };
        // Negation of zero is -0.
        let want =
            (0..32).map(|i| tilewright_tests::data::from_f64(DType::F32, i as f64 * factor as f64)).collect::<Vec<_>>();
        author.store_tile("tile", results[0], exactly(&Data::new(DType::F32, want)));
        author.store_tile("scalar", results[1], vec![Answer::Exactly(from_int(DType::I32, i128::from(scalar)))]);
        author.finish().check_on_every_device();
    }
}

/// A branch without results guards a store.
#[test]
fn a_branch_guards_a_store() {
    for flag in [0u64, 1] {
        let mut author = Author::new("guard");
        let condition = author.scalar(DType::Bool, flag);
        let before = Data::numbers(DType::I32, 0..64);
        let after: Vec<i64> = (0..64).map(|i| if flag == 1 { 64 - i } else { i }).collect();
        let out = author.output("stored", &before, exactly(&Data::numbers(DType::I32, after)));
        let lanes = author.arange(0, 64);
        let size = author.one(Op::i32(64), &[]);
        let size = author.splat(size, &[64]);
        let yes = author.region(&[], |author, _| {
            let value = author.one(Op::binary(BinaryOp::Sub), &[size, lanes]);
            let address = author.address(out, lanes);
            author.op(tilewright_tests::author::store(), &[address, value]);
            Vec::new()
        });
        let no = author.region(&[], |_, _| Vec::new());
        author.op_with(ControlOp::If, &[condition], &[yes, no]);
        author.finish().check_on_every_device();
    }
}

/// The number of Collatz steps, a loop whose length nobody knows.
#[test]
fn while_runs_as_long_as_it_must() {
    for start in [1i64, 2, 7, 27, 97] {
        let mut author = Author::new("collatz");
        let n = author.scalar(DType::I64, start as u64);
        let zero = author.one(Op::i32(0), &[]);
        let types = [Ty::scalar(DType::I64), Ty::scalar(DType::I32)];
        let goes_on = author.region(&types, |author, args| {
            let one = author.constant(DType::I64, 1);
            vec![author.one(Op::compare(CmpOp::Ne), &[args[0], one])]
        });
        let body = author.region(&types, |author, args| {
            let two = author.constant(DType::I64, 2);
            let zero = author.constant(DType::I64, 0);
            let rest = author.one(Op::binary(BinaryOp::Rem), &[args[0], two]);
            let even = author.one(Op::compare(CmpOp::Eq), &[rest, zero]);
            let halve = author.region(&[], |author, _| vec![author.one(Op::binary(BinaryOp::Div), &[args[0], two])]);
            let grow = author.region(&[], |author, _| {
                let three = author.constant(DType::I64, 3);
                let one = author.constant(DType::I64, 1);
                let tripled = author.one(Op::binary(BinaryOp::Mul), &[args[0], three]);
                vec![author.one(Op::binary(BinaryOp::Add), &[tripled, one])]
            });
            let next = author.results(ControlOp::If, &[even], &[halve, grow]);
            let one = author.one(Op::i32(1), &[]);
            vec![next[0], author.one(Op::binary(BinaryOp::Add), &[args[1], one])]
        });
        let results = author.results(ControlOp::While, &[n, zero], &[goes_on, body]);
        let (mut value, mut steps) = (start, 0);
        while value != 1 {
            value = if value % 2 == 0 { value / 2 } else { 3 * value + 1 };
            steps += 1;
        }
        author.store_tile("value", results[0], vec![Answer::Exactly(1)]);
        author.store_tile("steps", results[1], vec![Answer::Exactly(steps)]);
        author.finish().check_on_every_device();
    }
}

macro_rules! for_each_dtype {
    ($test:ident: $($name:ident = $dtype:ident)*) => {
        mod $test {
            use kernel_core::ir::DType;
            $(#[test] fn $name() { super::$test(DType::$dtype); })*
        }
    };
}

for_each_dtype! { loops: over_i8 = I8 over_i16 = I16 over_i32 = I32 over_i64 = I64 over_u8 = U8 over_u16 = U16
over_u32 = U32 over_u64 = U64 }
