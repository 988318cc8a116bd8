//! The shape of the code: straight, and as long as the documentation says.

use std::cell::Cell;

use crate::math::{
    BinaryMathFn, FastMachine, FloatIntFn, Host, Machine, MathFn, double, evaluate_f32, evaluate_f64, single,
};

/// A machine that computes and counts instructions, as a code generator emits them: both arms of
/// every choice. Constants and bitcasts take none; negation and absolute value are operand
/// modifiers on a GPU.
struct Counting<F> {
    host: Host<F>,
    count: Cell<usize>,
}

impl<F> Counting<F> {
    fn new() -> Self {
        Self { host: Host::new(), count: Cell::new(0) }
    }

    fn counted<T>(&self, value: T) -> T {
        self.count.set(self.count.get() + 1);
        value
    }
}

/// Forwards methods to the host: those before the bar free, those after it counted.
macro_rules! forward {
    ($scalar:ty, $int:ty;
     $($free:ident($($fa:ident: $ft:ty),*) -> $fr:ty;)* |
     $($paid:ident($($pa:ident: $pt:ty),*) -> $pr:ty;)*) => {
        impl Machine for Counting<$scalar> {
            type Scalar = $scalar;
            type Float = $scalar;
            type Int = $int;
            type Bool = bool;
            $(fn $free(&self, $($fa: $ft),*) -> $fr { self.host.$free($($fa),*) })*
            $(fn $paid(&self, $($pa: $pt),*) -> $pr { self.counted(self.host.$paid($($pa),*)) })*
        }
    };
}

macro_rules! counting_machine {
    ($f:ty, $i:ty) => {
        forward! { $f, $i;
            float(v: $f) -> $f; int(v: i64) -> $i; neg(a: $f) -> $f; abs(a: $f) -> $f;
            to_bits(a: $f) -> $i; from_bits(a: $i) -> $f; |
            add(a: $f, b: $f) -> $f; sub(a: $f, b: $f) -> $f; mul(a: $f, b: $f) -> $f; div(a: $f, b: $f) -> $f;
            fma(a: $f, b: $f, c: $f) -> $f; sqrt(a: $f) -> $f; copysign(a: $f, b: $f) -> $f;
            min(a: $f, b: $f) -> $f; max(a: $f, b: $f) -> $f; lt(a: $f, b: $f) -> bool; eq(a: $f, b: $f) -> bool;
            select(c: bool, a: $f, b: $f) -> $f; from_int(a: $i) -> $f;
            iadd(a: $i, b: $i) -> $i; isub(a: $i, b: $i) -> $i; imul(a: $i, b: $i) -> $i; umulhi(a: $i, b: $i) -> $i;
            and(a: $i, b: $i) -> $i; or(a: $i, b: $i) -> $i; xor(a: $i, b: $i) -> $i; shl(a: $i, b: $i) -> $i;
            lshr(a: $i, b: $i) -> $i; ashr(a: $i, b: $i) -> $i; ult(a: $i, b: $i) -> bool; ieq(a: $i, b: $i) -> bool;
            iselect(c: bool, a: $i, b: $i) -> $i;
        }
    };
}

counting_machine!(f32, i32);
counting_machine!(f64, i64);

impl FastMachine for Counting<f32> {
    fn ex2_approx(&self, a: f32) -> f32 {
        self.counted(self.host.ex2_approx(a))
    }
    fn ex2_approx_ftz(&self, a: f32) -> f32 {
        self.counted(self.host.ex2_approx_ftz(a))
    }
    fn rcp_approx_ftz(&self, a: f32) -> f32 {
        self.counted(self.host.rcp_approx_ftz(a))
    }
    fn rsqrt_approx(&self, a: f32) -> f32 {
        self.counted(self.host.rsqrt_approx(a))
    }
    fn sqrt_approx(&self, a: f32) -> f32 {
        self.counted(self.host.sqrt_approx(a))
    }
    fn div_full(&self, a: f32, b: f32) -> f32 {
        self.counted(self.host.div_full(a, b))
    }
}

/// Arguments of every kind: a branch on a value would show as a different count.
const ARGUMENTS: [f64; 14] =
    [0.0, -0.0, 1.0, -1.0, 0.3, -2.5, 1e-40, 87.5, -100.0, 1e6, -3e38, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];

#[test]
fn f32_functions_are_straight_and_as_short_as_documented() {
    for &function in MathFn::ALL {
        for x in ARGUMENTS {
            let x = x as f32;
            let machine = Counting::<f32>::new();
            let got = single::apply(&machine, function, x);
            assert_eq!(machine.count.get(), function.row().instructions, "{function:?}({x:e})");
            // Both arms of a choice computed, or one: the same result. Of a NaN the bits are the compiler's choice.
            let expected = evaluate_f32(function, x);
            let same = got.to_bits() == expected.to_bits() || (got.is_nan() && expected.is_nan());
            assert!(same, "{function:?}({x:e}): {got:e} and {expected:e}");
        }
    }
}

#[test]
fn f64_functions_are_straight() {
    for &function in MathFn::ALL {
        let counts = ARGUMENTS.map(|x| {
            let machine = Counting::<f64>::new();
            let got = double::apply(&machine, function, x);
            let expected = evaluate_f64(function, x);
            let same = got.to_bits() == expected.to_bits() || (got.is_nan() && expected.is_nan());
            assert!(same, "{function:?}({x:e}): {got:e} and {expected:e}");
            machine.count.get()
        });
        assert!(counts.iter().all(|&count| count == counts[0]), "{function:?}: {counts:?}");
    }
}

#[test]
fn functions_of_two_arguments_are_straight_and_as_short_as_documented() {
    for &function in BinaryMathFn::ALL {
        for (x, y) in ARGUMENTS.iter().flat_map(|&x| ARGUMENTS.map(|y| (x, y))) {
            let narrow = Counting::<f32>::new();
            single::apply_binary(&narrow, function, x as f32, y as f32);
            assert_eq!(narrow.count.get(), function.row().instructions, "{function:?}({x:e}, {y:e})");
            let (wide, first) = (Counting::<f64>::new(), Counting::<f64>::new());
            double::apply_binary(&wide, function, x, y);
            double::apply_binary(&first, function, 1.0, 1.0);
            assert_eq!(wide.count.get(), first.count.get(), "{function:?}({x:e}, {y:e})");
        }
    }
    for &function in FloatIntFn::ALL {
        for (x, n) in ARGUMENTS.iter().flat_map(|&x| [0, 1, -1, 2100, i32::MIN].map(|n| (x, n))) {
            let narrow = Counting::<f32>::new();
            single::apply_float_int(&narrow, function, x as f32, n);
            assert_eq!(narrow.count.get(), function.row().instructions, "{function:?}({x:e}, {n})");
            let (wide, first) = (Counting::<f64>::new(), Counting::<f64>::new());
            double::apply_float_int(&wide, function, x, i64::from(n));
            double::apply_float_int(&first, function, 1.0, 1);
            assert_eq!(wide.count.get(), first.count.get(), "{function:?}({x:e}, {n})");
        }
    }
}
