//! Unary and binary operations, comparisons, selection, fused multiply-add, conversions.

use kernel_core::ir::{BinaryOp, CmpOp, DType, ElementwiseOp, Func, Op, Safety, UnaryOp};
use kernel_core::math::FloatIntFn;
use tilewright_tests::author::{Author, BLOCK};
use tilewright_tests::data::{Data, mask};
use tilewright_tests::expect::{Answer, exactly};
use tilewright_tests::{reference, samples};

/// A kernel without anything, for questions about dtypes.
fn empty() -> Func {
    Func::new("empty", "tests", Safety::Safe)
}

fn answers1(x: &Data, f: impl Fn(u64) -> Answer) -> Vec<Answer> {
    x.bits.iter().map(|&x| f(x)).collect()
}

fn answers2(a: &Data, b: &Data, f: impl Fn(u64, u64) -> Answer) -> Vec<Answer> {
    a.bits.iter().zip(&b.bits).map(|(&a, &b)| f(a, b)).collect()
}

/// All unary operations of a dtype in one kernel.
fn unary(dtype: DType) {
    let x = samples::one(dtype, 1000, 1);
    let mut author = Author::elementwise(&format!("unary_{dtype}"), x.len());
    let value = author.load(&x);
    for &op in UnaryOp::ALL.iter().filter(|op| op.needs().admits(&empty(), dtype.into())) {
        let result = author.one(Op::unary(op), &[value]);
        author.store(op.name(), result, answers1(&x, |x| reference::unary(op, dtype, x)));
    }
    author.finish().check_on_every_device();
}

/// All binary operations of a dtype in one kernel.
fn binary(dtype: DType) {
    let (a, b) = samples::pairs(dtype, 500, 2);
    let mut author = Author::elementwise(&format!("binary_{dtype}"), a.len());
    let (x, y) = (author.load(&a), author.load(&b));
    for &op in BinaryOp::ALL.iter().filter(|op| op.needs().admits(&empty(), dtype.into())) {
        let result = author.one(Op::binary(op), &[x, y]);
        author.store(op.name(), result, answers2(&a, &b, |a, b| reference::binary(op, dtype, a, b)));
    }
    author.finish().check_on_every_device();
}

/// All operations of a float and an i32 in one kernel.
fn float_int(dtype: DType) {
    let x = samples::one(dtype, 600, 7);
    // Small integers, and the ends of the range.
    let few = [0, 1, 2, 3, -1, -2, 5, -7, 24, -30, 100, -126, 127, -149, 200, -300, 1000, -1074, 2100, -2100];
    let ends = [i32::MAX, i32::MIN, i32::MIN + 1, 16_777_217, -16_777_217];
    let ints: Vec<i32> = few.into_iter().chain(ends).collect();
    let n: Vec<i32> = (0..x.len()).map(|i| ints[i * 7 % ints.len()]).collect();
    let counts = Data { dtype: DType::I32, bits: n.iter().map(|&n| u64::from(n as u32)).collect() };
    let mut author = Author::elementwise(&format!("float_int_{dtype}"), x.len());
    let (value, count) = (author.load(&x), author.load(&counts));
    for &op in FloatIntFn::ALL {
        let result = author.one(ElementwiseOp::FloatInt { op }, &[value, count]);
        let want = (0..x.len()).map(|i| reference::float_int(op, dtype, x.bits[i], n[i])).collect();
        author.store(op.name(), result, want);
    }
    author.finish().check_on_every_device();
}

/// All comparisons of a dtype, and a selection by one of them, in one kernel.
fn compare(dtype: DType) {
    let (a, b) = samples::pairs(dtype, 500, 3);
    let mut author = Author::elementwise(&format!("compare_{dtype}"), a.len());
    let (x, y) = (author.load(&a), author.load(&b));
    for &op in CmpOp::ALL.iter().filter(|op| op.needs().admits(&empty(), dtype.into())) {
        let result = author.one(Op::compare(op), &[x, y]);
        let holds = |a, b| reference::compare(op, dtype, a, b);
        author.store(op.name(), result, answers2(&a, &b, |a, b| Answer::Exactly(holds(a, b))));
        let chosen = author.one(ElementwiseOp::Select, &[result, x, y]);
        let choice = |a, b| Answer::Exactly(if holds(a, b) == 1 { a } else { b });
        author.store(&format!("select by {}", op.name()), chosen, answers2(&a, &b, choice));
    }
    author.finish().check_on_every_device();
}

/// Conversions from one dtype to all others, and bitcasts to those of its width, in one kernel.
fn cast(from: DType) {
    let x = samples::one(from, 1000, 4);
    let mut author = Author::elementwise(&format!("cast_{from}"), x.len());
    let value = author.load(&x);
    for to in DType::ALL {
        let result = author.one(Op::cast(to), &[value]);
        author.store(&format!("as {to}"), result, answers1(&x, |x| reference::cast(from, to, x)));
        if to.bits() == from.bits() {
            let result = author.one(ElementwiseOp::Bitcast { to: to.into() }, &[value]);
            author.store(&format!("bitcast {to}"), result, exactly(&x));
        }
    }
    author.finish().check_on_every_device();
}

fn fma(dtype: DType) {
    let [a, b, c] = samples::triples(dtype, 2000, 5);
    let mut author = Author::elementwise(&format!("fma_{dtype}"), a.len());
    let (x, y, z) = (author.load(&a), author.load(&b), author.load(&c));
    let result = author.one(ElementwiseOp::Fma, &[x, y, z]);
    let want = (0..a.len()).map(|i| reference::fma(dtype, a.bits[i], b.bits[i], c.bits[i])).collect();
    author.store("fma", result, want);
    author.finish().check_on_every_device();
}

/// Chains of operations on narrow integers: what lies beyond the width must not come back.
fn wrapping_chain(dtype: DType) {
    let (a, b) = samples::pairs(dtype, 300, 6);
    let mut author = Author::elementwise(&format!("chain_{dtype}"), a.len());
    let (x, y) = (author.load(&a), author.load(&b));
    let exact = |op: BinaryOp, a: u64, b: u64| match reference::binary(op, dtype, a, b) {
        Answer::Exactly(bits) => bits,
        other => panic!("an integer operation is exact, not {other:?}"),
    };
    for first in [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Shl] {
        let wrapped = author.one(Op::binary(first), &[x, y]);
        for second in [BinaryOp::Div, BinaryOp::Rem, BinaryOp::Shr, BinaryOp::Max] {
            let result = author.one(Op::binary(second), &[wrapped, y]);
            let want = answers2(&a, &b, |a, b| Answer::Exactly(exact(second, exact(first, a, b), b)));
            author.store(&format!("{} then {}", first.name(), second.name()), result, want);
        }
        let less = author.one(Op::compare(CmpOp::Lt), &[wrapped, y]);
        let want =
            answers2(&a, &b, |a, b| Answer::Exactly(reference::compare(CmpOp::Lt, dtype, exact(first, a, b), b)));
        author.store(&format!("{} then lt", first.name()), less, want);
        let wide = author.one(Op::cast(DType::I64), &[wrapped]);
        let want = answers2(&a, &b, |a, b| reference::cast(dtype, DType::I64, exact(first, a, b) & mask(dtype)));
        author.store(&format!("{} then as i64", first.name()), wide, want);
    }
    author.finish().check_on_every_device();
}

/// The largest and the smallest of three numbers, of which one is negated in different ways, by turns each of them: an
/// assembler may have one instruction for all of it.
fn limits_of_three(dtype: DType) {
    let data = samples::triples(dtype, 400, 7);
    let mut author = Author::elementwise(&format!("limits_{dtype}"), data[0].len());
    let values = data.each_ref().map(|data| author.load(data));
    let [none, ones] = [0, mask(dtype)].map(|bits| {
        let constant = author.constant(dtype, bits);
        author.splat(constant, &[BLOCK])
    });
    let exact = |answer: Answer| match answer {
        Answer::Exactly(bits) => bits,
        other => panic!("an integer operation is exact, not {other:?}"),
    };
    for place in 0..3 {
        for (way, negated) in [
            ("neg", author.one(Op::unary(UnaryOp::Neg), &[values[place]])),
            ("from 0", author.one(Op::binary(BinaryOp::Sub), &[none, values[place]])),
            ("times -1", author.one(Op::binary(BinaryOp::Mul), &[values[place], ones])),
        ] {
            for op in [BinaryOp::Max, BinaryOp::Min] {
                let mut operands = values;
                operands[place] = negated;
                let inner = author.one(Op::binary(op), &operands[..2]);
                let outer = author.one(Op::binary(op), &[inner, operands[2]]);
                let want = (0..data[0].len()).map(|i| {
                    let mut bits = data.each_ref().map(|data| data.bits[i]);
                    bits[place] = exact(reference::unary(UnaryOp::Neg, dtype, bits[place]));
                    let inner = exact(reference::binary(op, dtype, bits[0], bits[1]));
                    reference::binary(op, dtype, inner, bits[2])
                });
                author.store(&format!("{} of three, {way} {place}", op.name()), outer, want.collect());
            }
        }
    }
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
    unary: on_bool = Bool on_i8 = I8 on_i16 = I16 on_i32 = I32 on_i64 = I64 on_u8 = U8 on_u16 = U16 on_u32 = U32
        on_u64 = U64 on_f8e4m3 = F8E4M3 on_f8e5m2 = F8E5M2 on_f16 = F16 on_bf16 = BF16 on_f32 = F32 on_f64 = F64;
    binary: on_bool = Bool on_i8 = I8 on_i16 = I16 on_i32 = I32 on_i64 = I64 on_u8 = U8 on_u16 = U16 on_u32 = U32
        on_u64 = U64 on_f8e4m3 = F8E4M3 on_f8e5m2 = F8E5M2 on_f16 = F16 on_bf16 = BF16 on_f32 = F32 on_f64 = F64;
    compare: on_bool = Bool on_i8 = I8 on_i16 = I16 on_i32 = I32 on_i64 = I64 on_u8 = U8 on_u16 = U16 on_u32 = U32
        on_u64 = U64 on_f8e4m3 = F8E4M3 on_f8e5m2 = F8E5M2 on_f16 = F16 on_bf16 = BF16 on_f32 = F32 on_f64 = F64;
    cast: from_bool = Bool from_i8 = I8 from_i16 = I16 from_i32 = I32 from_i64 = I64 from_u8 = U8 from_u16 = U16
        from_u32 = U32 from_u64 = U64 from_f8e4m3 = F8E4M3 from_f8e5m2 = F8E5M2 from_f16 = F16 from_bf16 = BF16 from_f32 = F32 from_f64 = F64;
    float_int: on_f8e4m3 = F8E4M3 on_f8e5m2 = F8E5M2 on_f16 = F16 on_bf16 = BF16 on_f32 = F32 on_f64 = F64;
    fma: on_f8e4m3 = F8E4M3 on_f8e5m2 = F8E5M2 on_f16 = F16 on_bf16 = BF16 on_f32 = F32 on_f64 = F64;
    limits_of_three: on_i8 = I8 on_i16 = I16 on_i32 = I32 on_i64 = I64;
    wrapping_chain: on_i8 = I8 on_i16 = I16 on_i32 = I32 on_i64 = I64 on_u8 = U8 on_u16 = U16 on_u32 = U32 on_u64 = U64;
}
