//! The table of elementary functions: one row each, with all that is to be known of a function beside how it is computed.
//!
//! From a row follow the variant of [`MathFn`], of [`BinaryMathFn`] if it has two arguments or
//! of [`FloatIntFn`] if the second is an integer, the operation of the IR
//! with its text form, type rule and cost, the interpreter's and the code generator's choice of it, its name in kernels,
//! and its error bounds. What a row cannot say is the algorithm: `apply` and its kind in
//! [`single`](super::single) and [`double`](super::double) name those.

use super::ulps::Ulps;

/// What is to be known of an elementary function.
#[derive(Clone, Copy, Debug)]
pub struct FunctionRow {
    /// The name in the text form, and in kernels.
    pub name: &'static str,
    /// What it is, in a sentence.
    pub doc: &'static str,
    /// The largest error of the f32 function.
    pub single: Ulps,
    /// The largest error of the f64 function.
    pub double: Ulps,
    /// Instructions of the f32 function on a GPU: PTX instructions, constants not counted.
    pub instructions: usize,
}

/// Declares functions: their type, and the macro that compiles code for each.
macro_rules! functions {
    (
        $d:tt $(#[doc = $type_doc:literal])* $Fn:ident, $specialise:ident;
        $( $(#[doc = $doc:literal])* $Var:ident = $name:literal { $( $field:ident: $value:expr ),* $(,)? } )*
    ) => {
        $(#[doc = $type_doc])*
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $Fn { $( $(#[doc = $doc])* $Var ),* }

        impl $Fn {
            /// Every function, in the order of the table.
            pub const ALL: &'static [$Fn] = &[ $( $Fn::$Var ),* ];

            /// The name in the text form, and in kernels.
            pub const fn name(self) -> &'static str {
                self.row().name
            }

            /// What it is, in a sentence.
            pub const fn doc(self) -> &'static str {
                self.row().doc
            }

            /// The row of the table.
            pub const fn row(self) -> &'static FunctionRow {
                match self { $( $Fn::$Var => const {
                    &FunctionRow { name: $name, doc: concat!($($doc),*).trim_ascii(), $( $field: $value ),* }
                } ),* }
            }

            /// The function of that name.
            pub fn from_name(name: &str) -> Option<$Fn> {
                match name { $( $name => Some($Fn::$Var), )* _ => None }
            }
        }

        /// `body` with `Constant` for the function: a closure that captures nothing, and that is compiled for each
        /// function by itself.
        #[cfg(feature = "interp")]
        macro_rules! $specialise {
            ($d function:expr, $d Constant:ident => $d body:expr) => {
                match $d function { $( $crate::math::$Fn::$Var => {
                    const $d Constant: $crate::math::$Fn = $crate::math::$Fn::$Var;
                    $d body
                } )* }
            };
        }
        #[cfg(feature = "interp")]
        pub(crate) use $specialise;
    };
}

functions! { $
    /// An elementary function of one float; the result has its dtype.
    MathFn, specialise;
    /// e to the power of x.
    // 2 of `ex2`, and the rounding of its argument, x · log2 e.
    Exp = "exp" { single: Ulps::growing(2.0, 1.25), double: Ulps::at_most(1.0), instructions: 2 }
    /// 2 to the power of x.
    Exp2 = "exp2" { single: Ulps::at_most(2.0), double: Ulps::at_most(1.0), instructions: 1 }
    /// 10 to the power of x.
    // 2 of `ex2`, and one rounding of its correction.
    Exp10 = "exp10" { single: Ulps::at_most(3.0), double: Ulps::at_most(1.0), instructions: 11 }
    /// e to the power of x, less 1; accurate for tiny x too.
    // A rounding of the fraction, doubled where e^x is just below √2, and two of sums.
    Expm1 = "expm1" { single: Ulps::at_most(2.0), double: Ulps::at_most(2.0), instructions: 19 }
    /// The natural logarithm.
    Log = "log" { single: Ulps::at_most(2.0), double: Ulps::at_most(1.0), instructions: 27 }
    /// The logarithm to base 2.
    Log2 = "log2" { single: Ulps::at_most(2.0), double: Ulps::at_most(1.0), instructions: 28 }
    /// The logarithm to base 10.
    Log10 = "log10" { single: Ulps::at_most(2.0), double: Ulps::at_most(1.0), instructions: 29 }
    /// The natural logarithm of 1 + x; accurate for tiny x too.
    Log1p = "log1p" { single: Ulps::at_most(2.0), double: Ulps::at_most(1.0), instructions: 27 }
    /// The square root; for f32 the approximate one.
    // The hardware's, 2^-23 of the result.
    Sqrt = "sqrt" { single: Ulps::at_most(2.5), double: Ulps::at_most(0.5), instructions: 1 }
    /// The reciprocal square root; for f32 the approximate one.
    // The hardware's, 2^-22.9 of the result; for f64 one division of a rounded root.
    Rsqrt = "rsqrt" { single: Ulps::at_most(2.5), double: Ulps::at_most(1.5), instructions: 1 }
    /// The cube root, also of negative numbers.
    Cbrt = "cbrt" { single: Ulps::at_most(1.0), double: Ulps::at_most(1.0), instructions: 28 }
    /// The sine of an angle in radians.
    Sin = "sin" { single: Ulps::at_most(2.0), double: Ulps::at_most(1.0), instructions: 109 }
    /// The cosine of an angle in radians.
    Cos = "cos" { single: Ulps::at_most(2.0), double: Ulps::at_most(1.0), instructions: 108 }
    /// The tangent of an angle in radians.
    // Those of sine and cosine, and that of their quotient.
    Tan = "tan" { single: Ulps::at_most(3.0), double: Ulps::at_most(3.0), instructions: 107 }
    /// The angle in radians, from -π/2 to π/2, whose sine is x.
    Asin = "asin" { single: Ulps::at_most(2.0), double: Ulps::at_most(2.0), instructions: 24 }
    /// The angle in radians, from 0 to π, whose cosine is x.
    Acos = "acos" { single: Ulps::at_most(2.0), double: Ulps::at_most(1.5), instructions: 29 }
    /// The angle in radians, from -π/2 to π/2, whose tangent is x.
    Atan = "atan" { single: Ulps::at_most(2.0), double: Ulps::at_most(1.5), instructions: 24 }
    /// The hyperbolic sine.
    // 2.1 of the exponential, which double in the worst binade.
    Sinh = "sinh" { single: Ulps::at_most(5.0), double: Ulps::at_most(2.5), instructions: 20 }
    /// The hyperbolic cosine.
    Cosh = "cosh" { single: Ulps::at_most(3.0), double: Ulps::at_most(2.0), instructions: 13 }
    /// The hyperbolic tangent.
    Tanh = "tanh" { single: Ulps::at_most(2.5), double: Ulps::at_most(3.0), instructions: 15 }
    /// The inverse of the hyperbolic sine.
    // Two of the logarithm, and those of its argument, which its derivative keeps from growing.
    Asinh = "asinh" { single: Ulps::at_most(4.0), double: Ulps::at_most(3.0), instructions: 38 }
    /// The inverse of the hyperbolic cosine, from 0 on.
    Acosh = "acosh" { single: Ulps::at_most(4.0), double: Ulps::at_most(3.0), instructions: 38 }
    /// The inverse of the hyperbolic tangent.
    Atanh = "atanh" { single: Ulps::at_most(4.0), double: Ulps::at_most(3.0), instructions: 37 }
    /// The error function, 2/√π · ∫₀ˣ e^(-t²) dt.
    Erf = "erf" { single: Ulps::at_most(2.0), double: Ulps::at_most(1.5), instructions: 20 }
    /// What the error function lacks of 1; accurate where that is tiny.
    // Those of the exponential and of its factor, which double in the worst binade.
    Erfc = "erfc" { single: Ulps::at_most(6.0), double: Ulps::at_most(5.0), instructions: 39 }
    /// The number whose error function is x.
    // Two of the logarithm, halved, one of the product, and those of the polynomial.
    Erfinv = "erfinv" { single: Ulps::at_most(3.0), double: Ulps::at_most(4.0), instructions: 55 }
    /// The natural logarithm of the magnitude of the gamma function.
    // Those of Stirling's formula and of the reflection's logarithm, which cancel at the zeros below -2.
    Lgamma = "lgamma" {
        single: Ulps::at_most(3.5).of_terms_below(-2.0),
        double: Ulps::at_most(4.0).of_terms_below(-2.0),
        instructions: 176,
    }
    /// The gamma function, ∫₀^∞ t^(x-1) e^(-t) dt for positive x.
    // One of the power, one of the quotient; of negative numbers also two of the sine and those of its products.
    Tgamma = "tgamma" { single: Ulps::at_most(4.5), double: Ulps::at_most(3.5), instructions: 161 }
    /// The logistic function, 1 / (1 + e^-x).
    // 3 of `ex2`, whose errors double in the worst binade, 1 of the rounded denominator.
    Sigmoid = "sigmoid" { single: Ulps::at_most(4.5), double: Ulps::at_most(3.0), instructions: 15 }
}

functions! { $
    /// An elementary function of two floats of one dtype, which the result has too.
    BinaryMathFn, specialise_binary;
    /// x to the power of y.
    Pow = "pow" { single: Ulps::at_most(1.5), double: Ulps::at_most(1.0), instructions: 106 }
    /// The angle in radians, from -π to π, from the axis of x to the point (x, y); the first argument is y.
    Atan2 = "atan2" { single: Ulps::at_most(2.0), double: Ulps::at_most(2.0), instructions: 46 }
    /// √(x² + y²), also where a square is no number.
    // Half a rounding of the smaller square, half of the sum, and one of the root.
    Hypot = "hypot" { single: Ulps::at_most(1.25), double: Ulps::at_most(1.25), instructions: 19 }
}

functions! { $
    /// An elementary function of a float and an i32; the result has the dtype of the float.
    FloatIntFn, specialise_float_int;
    /// x to the power of n.
    Powi = "powi" { single: Ulps::at_most(1.5), double: Ulps::at_most(1.0), instructions: 94 }
    /// x times 2 to the power of n, rounded once.
    Ldexp = "ldexp" { single: Ulps::at_most(0.5), double: Ulps::at_most(0.5), instructions: 34 }
}
