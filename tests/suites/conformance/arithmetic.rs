//! Operators and functions on elements.

use half::{bf16, f16};
use tilewright::prelude::*;

use crate::elements::{Element, Random, close, equal};
use crate::runner::{Outcome, Row};
use crate::{for_integers, for_numbers};

/// The rows of this module.
pub fn rows() -> Vec<Row> {
    vec![binary_operators(), pointers(), integer_division(), bits(), shifts(), comparisons(), unary(), selections()]
}

/// What Triton computes with when two dtypes meet, which is written as a conversion here.
trait With<U>: Element {
    /// The dtype of sums, differences, products and remainders.
    type Both: Element;
    /// The dtype of quotients.
    type Quotient: Element;
}

macro_rules! promotions {
    ($($t:ident: $($u:ident $both:ident $quotient:ident,)*;)*) => {
        $($(impl With<$u> for $t { type Both = $both; type Quotient = $quotient; })*)*

        /// Calls a function for every pair of dtypes.
        macro_rules! for_pairs {
            ($call:ident, $row:ident) => { $($($call::<$t, $u>(&mut $row);)*)* };
        }
    };
}

// Wider integers win, of equal ones the unsigned; floats win over integers, f64 over all; f16 and bf16 meet in f32.
promotions! {
    i8: i8 i8 f32, i16 i16 f32, i32 i32 f32, i64 i64 f32, u8 u8 f32, u16 u16 f32, u32 u32 f32, u64 u64 f32, f16 f16 f32, bf16 bf16 f32, f32 f32 f32, f64 f64 f64,;
    i16: i8 i16 f32, i16 i16 f32, i32 i32 f32, i64 i64 f32, u8 i16 f32, u16 u16 f32, u32 u32 f32, u64 u64 f32, f16 f16 f32, bf16 bf16 f32, f32 f32 f32, f64 f64 f64,;
    i32: i8 i32 f32, i16 i32 f32, i32 i32 f32, i64 i64 f32, u8 i32 f32, u16 i32 f32, u32 u32 f32, u64 u64 f32, f16 f16 f32, bf16 bf16 f32, f32 f32 f32, f64 f64 f64,;
    i64: i8 i64 f32, i16 i64 f32, i32 i64 f32, i64 i64 f32, u8 i64 f32, u16 i64 f32, u32 i64 f32, u64 u64 f32, f16 f16 f32, bf16 bf16 f32, f32 f32 f32, f64 f64 f64,;
    u8: i8 u8 f32, i16 i16 f32, i32 i32 f32, i64 i64 f32, u8 u8 f32, u16 u16 f32, u32 u32 f32, u64 u64 f32, f16 f16 f32, bf16 bf16 f32, f32 f32 f32, f64 f64 f64,;
    u16: i8 u16 f32, i16 u16 f32, i32 i32 f32, i64 i64 f32, u8 u16 f32, u16 u16 f32, u32 u32 f32, u64 u64 f32, f16 f16 f32, bf16 bf16 f32, f32 f32 f32, f64 f64 f64,;
    u32: i8 u32 f32, i16 u32 f32, i32 u32 f32, i64 i64 f32, u8 u32 f32, u16 u32 f32, u32 u32 f32, u64 u64 f32, f16 f16 f32, bf16 bf16 f32, f32 f32 f32, f64 f64 f64,;
    u64: i8 u64 f32, i16 u64 f32, i32 u64 f32, i64 u64 f32, u8 u64 f32, u16 u64 f32, u32 u64 f32, u64 u64 f32, f16 f16 f32, bf16 bf16 f32, f32 f32 f32, f64 f64 f64,;
    f16: i8 f16 f32, i16 f16 f32, i32 f16 f32, i64 f16 f32, u8 f16 f32, u16 f16 f32, u32 f16 f32, u64 f16 f32, f16 f16 f32, bf16 f32 f32, f32 f32 f32, f64 f64 f64,;
    bf16: i8 bf16 f32, i16 bf16 f32, i32 bf16 f32, i64 bf16 f32, u8 bf16 f32, u16 bf16 f32, u32 bf16 f32, u64 bf16 f32, f16 f32 f32, bf16 bf16 f32, f32 f32 f32, f64 f64 f64,;
    f32: i8 f32 f32, i16 f32 f32, i32 f32 f32, i64 f32 f32, u8 f32 f32, u16 f32 f32, u32 f32 f32, u64 f32 f32, f16 f32 f32, bf16 f32 f32, f32 f32 f32, f64 f64 f64,;
    f64: i8 f64 f64, i16 f64 f64, i32 f64 f64, i64 f64 f64, u8 f64 f64, u16 f64 f64, u32 f64 f64, u64 f64 f64, f16 f64 f64, bf16 f64 f64, f32 f64 f64, f64 f64 f64,;
}

/// How the operands meet: two tiles, one element and a tile, a tile and a scalar.
const FORMS: [&str; 3] = ["tiles", "one element", "scalar"];
const LEN: usize = 128;

#[device]
fn computed<P: Num, const OP: i32, const N: usize>(a: Tile<P, { [N] }>, b: Tile<P, { [N] }>) -> Tile<P, { [N] }> {
    if OP == 0 {
        a + b
    } else if OP == 1 {
        a - b
    } else if OP == 2 {
        a * b
    } else if OP == 3 {
        a % b
    } else {
        a / b
    }
}

#[kernel]
fn binary<T: Num, U: Num, P: Num, const OP: i32, const FORM: i32>(x: Ptr<T>, y: Ptr<U>, out: PtrMut<P>) {
    let i = arange(0, 128);
    let (a, b) = (load(x + i) as P, load(y + i) as P);
    if FORM == 0 {
        store(out + i, computed::<P, OP, 128>(a, b));
    } else if FORM == 1 {
        let first = load(x + arange(0, 1)) as P;
        store(out + i, computed::<P, OP, 128>(broadcast_to(first, [128]), b));
    } else {
        store(out + i, computed::<P, OP, 128>(a, load(y) as P + zeros::<P>([128])));
    }
}

const OPERATORS: [&str; 5] = ["+", "-", "*", "%", "/"];

/// What an operator gives, rounded once.
fn operator<P: Element>(op: i32, a: P, b: P) -> P {
    if P::IS_FLOAT {
        let (a, b) = (a.to_f64(), b.to_f64());
        return P::from_f64(match op {
            0 => a + b,
            1 => a - b,
            2 => a * b,
            3 => a % b,
            _ => a / b,
        });
    }
    let (a, b) = (a.to_int(), b.to_int());
    P::from_int(match op {
        0 => a + b,
        1 => a - b,
        2 => a.wrapping_mul(b),
        3 => a % b,
        _ => a / b,
    })
}

/// A conversion as `as` makes it in Rust.
fn converted<T: Element, P: Element>(x: T) -> P {
    match (T::IS_FLOAT, P::IS_FLOAT) {
        (false, _) => P::from_int(x.to_int()),
        (true, _) => P::from_f64(x.to_f64()),
    }
}

fn binary_case<T: Element, U: Element, P: Element>(device: &Device, op: i32, form: i32) -> Outcome {
    let mut random = Random::new(17 + u64::from(T::BITS) * 3 + u64::from(U::BITS));
    let (x, y): (Vec<T>, Vec<U>) = (random.elements(LEN), random.nonzero(LEN));
    let mut out = device.zeros::<P>(LEN)?;
    let consts = BinaryConsts { OP: op, FORM: form };
    consts.call(&device.upload(&x)?, &device.upload(&y)?, &mut out).grid(1).launch(device)?;
    let want: Vec<P> = (0..LEN)
        .map(|i| {
            let (a, b) = (if form == 1 { x[0] } else { x[i] }, if form == 2 { y[0] } else { y[i] });
            operator(op, converted(a), converted(b))
        })
        .collect();
    // A sum of what was rounded on the way may be fused with nothing: each operator rounds once.
    if op == 4 || (op == 3 && P::IS_FLOAT) {
        close(&out.to_vec()?, &want, 1e-6, 0.0)
    } else {
        equal(&out.to_vec()?, &want)
    }
}

fn pair<T: With<U>, U: Element>(row: &mut Row) {
    for (form, name) in (0..).zip(FORMS) {
        for op in 0..4 {
            let sign = OPERATORS[op as usize];
            let name = format!("{} {sign} {}, {name}", T::NAME, U::NAME);
            row.case(name, move |device| binary_case::<T, U, T::Both>(device, op, form));
        }
        let name = format!("{} / {}, {name}", T::NAME, U::NAME);
        row.case(name, move |device| binary_case::<T, U, T::Quotient>(device, 4, form));
    }
}

fn binary_operators() -> Row {
    let mut row = Row::new("C01", "test_bin_op")
        .remarks("dtypes that meet are converted explicitly; results are compared exactly, quotients to 1e-6");
    for_pairs!(pair, row);
    row
}

#[kernel]
fn moved<T: Num, const FRONT: bool>(x: Ptr<T>, out: PtrMut<T>) {
    let i = arange(0, 128);
    if FRONT {
        store(i + out, load(i + x));
    } else {
        store(out + i, load(x + i));
    }
}

fn pointers() -> Row {
    fn case<T: Element>(device: &Device, front: bool) -> Outcome {
        let x: Vec<T> = Random::new(2).elements(LEN);
        let mut out = device.zeros::<T>(LEN)?;
        MovedConsts { FRONT: front }.call(&device.upload(&x)?, &mut out).grid(1).launch(device)?;
        equal(&out.to_vec()?, &x)
    }
    let mut row = Row::new("C02", "test_addptr");
    macro_rules! each {
        ($t:ident) => {
            for (front, form) in [(false, "pointer + offsets"), (true, "offsets + pointer")] {
                row.case(format!("{}, {form}", $t::NAME), move |device| case::<$t>(device, front));
            }
        };
    }
    for_numbers!(each);
    row
}

fn integer_division() -> Row {
    let mut row = Row::new("C03", "test_floordiv").remarks("`/` of integers");
    fn pair<T: With<U>, U: Element>(row: &mut Row) {
        if !T::IS_FLOAT && !U::IS_FLOAT {
            for (form, name) in (0..).zip(FORMS) {
                let name = format!("{} / {}, {name}", T::NAME, U::NAME);
                row.case(name, move |device| binary_case::<T, U, T::Both>(device, 4, form));
            }
        }
    }
    for_pairs!(pair, row);
    row
}

#[kernel]
fn bitwise<T: Int, U: Int, P: Int, const OP: i32>(x: Ptr<T>, y: Ptr<U>, out: PtrMut<P>) {
    let i = arange(0, 128);
    let (a, b) = (load(x + i) as P, load(y + i) as P);
    if OP == 0 {
        store(out + i, a & b);
    } else if OP == 1 {
        store(out + i, a | b);
    } else {
        store(out + i, a ^ b);
    }
}

fn bits() -> Row {
    fn case<T: Element + Int, U: Element + Int, P: Element + Int>(device: &Device, op: i32) -> Outcome {
        let mut random = Random::new(4);
        let (x, y): (Vec<T>, Vec<U>) = (random.elements(LEN), random.elements(LEN));
        let mut out = device.zeros::<P>(LEN)?;
        BitwiseConsts { OP: op }.call(&device.upload(&x)?, &device.upload(&y)?, &mut out).grid(1).launch(device)?;
        let pairs = x.iter().zip(&y).map(|(&a, &b)| (a.to_int(), b.to_int()));
        let want = pairs.map(|(a, b)| P::from_int([a & b, a | b, a ^ b][op as usize]));
        equal(&out.to_vec()?, &want.collect::<Vec<P>>())
    }
    let mut row =
        Row::new("C04", "test_bitwise_op").elsewhere(3, "`kernel-macros/tests/messages` (floats are refused)");
    macro_rules! pair {
        ($t:ident: $($u:ident)*) => {$(
            for (op, sign) in (0..).zip(["&", "|", "^"]) {
                let name = format!("{} {sign} {}", $t::NAME, $u::NAME);
                row.case(name, move |device| case::<$t, $u, <$t as With<$u>>::Both>(device, op));
            }
        )*};
    }
    macro_rules! each {
        ($t:ident) => {
            pair!($t: i8 i16 i32 i64 u8 u16 u32 u64);
        };
    }
    for_integers!(each);
    row
}

#[kernel]
fn shifted<T: Int, U: Int, const LEFT: bool>(x: Ptr<T>, y: Ptr<U>, out: PtrMut<T>) {
    let i = arange(0, 128);
    let (a, b) = (load(x + i), load(y + i) as T);
    if LEFT {
        store(out + i, a << b);
    } else {
        store(out + i, a >> b);
    }
}

fn shifts() -> Row {
    fn case<T: Element + Int, U: Element + Int>(device: &Device, left: bool) -> Outcome {
        let mut random = Random::new(5);
        let (x, y): (Vec<T>, Vec<U>) =
            (random.elements(LEN), random.small(LEN, 0, i128::from(T::BITS.min(U::BITS)) - 1));
        let mut out = device.zeros::<T>(LEN)?;
        ShiftedConsts { LEFT: left }.call(&device.upload(&x)?, &device.upload(&y)?, &mut out).grid(1).launch(device)?;
        let pairs = x.iter().zip(&y).map(|(&a, &b)| (a.to_int(), b.to_int() as u32));
        let want = pairs.map(|(a, b)| T::from_int(if left { a << b } else { a >> b }));
        equal(&out.to_vec()?, &want.collect::<Vec<T>>())
    }
    let mut row = Row::new("C05", "test_shift_op");
    macro_rules! pair {
        ($t:ident: $($u:ident)*) => {$(
            for (left, sign) in [(true, "<<"), (false, ">>")] {
                let name = format!("{} {sign} {}", $t::NAME, $u::NAME);
                row.case(name, move |device| case::<$t, $u>(device, left));
            }
        )*};
    }
    macro_rules! each {
        ($t:ident) => {
            pair!($t: i8 i16 i32 i64 u8 u16 u32 u64);
        };
    }
    for_integers!(each);
    row
}

#[kernel]
fn compared<T: Num, U: Num, P: Num, const OP: i32>(x: Ptr<T>, y: Ptr<U>, out: PtrMut<i32>) {
    let i = arange(0, 128);
    let (a, b) = (load(x + i) as P, load(y + i) as P);
    if OP == 0 {
        store(out + i, (a == b) as i32);
    } else if OP == 1 {
        store(out + i, (a != b) as i32);
    } else if OP == 2 {
        store(out + i, (a < b) as i32);
    } else if OP == 3 {
        store(out + i, (a <= b) as i32);
    } else if OP == 4 {
        store(out + i, (a > b) as i32);
    } else {
        store(out + i, (a >= b) as i32);
    }
}

fn comparisons() -> Row {
    fn case<T: Element, U: Element, P: Element>(device: &Device, op: i32, nans: (bool, bool)) -> Outcome {
        let mut random = Random::new(6);
        let (mut x, mut y): (Vec<T>, Vec<U>) = (random.small(LEN, 0, 3), random.small(LEN, 0, 3));
        if nans.0 {
            x.fill(T::from_f64(f64::NAN));
        }
        if nans.1 {
            y.fill(U::from_f64(f64::NAN));
        }
        let mut out = device.zeros::<i32>(LEN)?;
        let consts = ComparedConsts { OP: op };
        consts.call::<T, U, P>(&device.upload(&x)?, &device.upload(&y)?, &mut out).grid(1).launch(device)?;
        let pairs = x.iter().zip(&y).map(|(&a, &b)| (a.to_f64(), b.to_f64()));
        let want = pairs.map(|(a, b)| i32::from([a == b, a != b, a < b, a <= b, a > b, a >= b][op as usize]));
        equal(&out.to_vec()?, &want.collect::<Vec<i32>>())
    }
    let mut row = Row::new("C06", "test_compare_op");
    fn pair<T: With<U>, U: Element>(row: &mut Row) {
        for (op, sign) in (0..).zip(["==", "!=", "<", "<=", ">", ">="]) {
            for nans in [(false, false), (true, false), (false, true), (true, true)] {
                if (!nans.0 || T::IS_FLOAT) && (!nans.1 || U::IS_FLOAT) {
                    let name = format!("{} {sign} {}, NaN {nans:?}", T::NAME, U::NAME);
                    row.case(name, move |device| case::<T, U, T::Both>(device, op, nans));
                }
            }
        }
    }
    for_pairs!(pair, row);
    row
}

#[kernel]
fn negated<T: Signed>(x: Ptr<T>, out: PtrMut<T>) {
    let i = arange(0, 128);
    store(out + i, -load(x + i));
}

#[kernel]
fn inverted<T: Int>(x: Ptr<T>, out: PtrMut<T>) {
    let i = arange(0, 128);
    store(out + i, !load(x + i));
}

fn unary() -> Row {
    fn negation<T: Element + Signed>(device: &Device) -> Outcome {
        let mut x: Vec<T> = Random::new(7).elements(LEN);
        x[0] = T::from_int(0);
        let mut out = device.zeros::<T>(LEN)?;
        negated(&device.upload(&x)?, &mut out).grid(1).launch(device)?;
        let got = out.to_vec()?;
        if T::IS_FLOAT && !got[0].to_f64().is_sign_negative() {
            return Err("-0.0 lost its sign".into());
        }
        let negative = |x: &T| if T::IS_FLOAT { T::from_f64(-x.to_f64()) } else { T::from_int(-x.to_int()) };
        equal(&got, &x.iter().map(negative).collect::<Vec<T>>())
    }
    fn inversion<T: Element + Int>(device: &Device) -> Outcome {
        let x: Vec<T> = Random::new(8).elements(LEN);
        let mut out = device.zeros::<T>(LEN)?;
        inverted(&device.upload(&x)?, &mut out).grid(1).launch(device)?;
        equal(&out.to_vec()?, &x.iter().map(|x| T::from_int(!x.to_int())).collect::<Vec<T>>())
    }
    let mut row =
        Row::new("C07", "test_unary_op, test_neg_zero").remarks("`~x` is `!x`; unsigned numbers have no `-x`");
    macro_rules! negations {
        ($($t:ident)*) => {$( row.case(format!("-{}", $t::NAME), |device| negation::<$t>(device)); )*};
    }
    negations!(i8 i16 i32 i64 f16 bf16 f32 f64);
    macro_rules! each {
        ($t:ident) => {
            row.case(format!("!{}", $t::NAME), |device| inversion::<$t>(device));
        };
    }
    for_integers!(each);
    row
}

#[kernel]
fn selected<T: Num, const FORM: i32>(c: Ptr<i32>, x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>) {
    let i = arange(0, 128);
    let condition = load(c + i) > 0;
    let (a, b) = (load(x + i), load(y + i));
    if FORM == 0 {
        store(out + i, select(condition, a, b));
    } else if FORM == 1 {
        // One condition for all.
        store(out + i, select(load(c) > 0, a, b));
    } else {
        // One column of conditions, and one scalar.
        let t = select(condition[(.., None)], a[(.., None)] + zeros::<T>([128, 4]), load(y));
        let k = arange(0, 4)[(None, ..)];
        store(out + i, sum(select(k == 1, t, 0 as T), axis = 1));
    }
}

fn selections() -> Row {
    fn case<T: Element>(device: &Device, form: i32) -> Outcome {
        let mut random = Random::new(9);
        let c: Vec<i32> = random.small(LEN, -1, 1);
        let (x, y): (Vec<T>, Vec<T>) = (random.small(LEN, 0, 100), random.small(LEN, 0, 100));
        let mut out = device.zeros::<T>(LEN)?;
        let consts = SelectedConsts { FORM: form };
        let (cs, xs, ys) = (device.upload(&c)?, device.upload(&x)?, device.upload(&y)?);
        consts.call(&cs, &xs, &ys, &mut out).grid(1).launch(device)?;
        let want = (0..LEN).map(|i| match form {
            1 if c[0] > 0 => x[i],
            1 => y[i],
            _ if c[i] > 0 => x[i],
            2 => y[0],
            _ => y[i],
        });
        equal(&out.to_vec()?, &want.collect::<Vec<T>>())
    }
    let mut row = Row::new("C08", "test_where, test_where_broadcast")
        .remarks("pointers into one buffer are selected, not into two: bounds are known per buffer");
    macro_rules! each {
        ($t:ident) => {
            for (form, name) in (0..).zip(["tiles", "scalar condition", "broadcast"]) {
                row.case(format!("{}, {name}", $t::NAME), move |device| case::<$t>(device, form));
            }
        };
    }
    for_numbers!(each);
    row
}
