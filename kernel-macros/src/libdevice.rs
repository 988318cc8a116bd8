//! What to write instead of functions of Triton and of CUDA's `libdevice` that are not offered under their names, and why.
//!
//! Rows are like those of [`spellings`](crate::spellings): the code of each computes what the name stands for, or its remark
//! says for which numbers.

use crate::spellings::{Spelling, remark, row};

/// All rows.
pub const ROWS: &[Spelling] = &[
    // Fast forms
    row("fast_expf", "x", "exp({x})"),
    row("fast_exp10f", "x", "exp10({x})"),
    row("fast_logf", "x", "log({x})"),
    row("fast_log2f", "x", "log2({x})"),
    row("fast_log10f", "x", "log10({x})"),
    row("fast_sinf", "x", "sin({x})"),
    row("fast_cosf", "x", "cos({x})"),
    row("fast_tanf", "x", "tan({x})"),
    row("fast_powf", "x y", "pow({x}, {y})"),
    row("fast_dividef", "a b", "{a} / {b}"),
    // Rounding
    row("rcp_rn", "x", "div_rn(1.0, {x})"),
    row("rcp64h", "x", "1.0 / {x}"),
    row("rsqrt_rn", "x", "rsqrt({x})").but(", which does not round correctly"),
    row("fma_rn", "a b c", "fma({a}, {b}, {c})"),
    row("add_rn", "a b", "{a} + {b}").but(", which `#[kernel(contract = false)]` keeps from being fused"),
    row("sub_rn", "a b", "{a} - {b}").but(", which `#[kernel(contract = false)]` keeps from being fused"),
    row("mul_rn", "a b", "{a} * {b}").but(", which `#[kernel(contract = false)]` keeps from being fused"),
    row("saturatef", "x", "clamp({x}, 0.0, 1.0)"),
    row("llrint", "x", "round_ties_even({x}) as i64"),
    row("llround", "x", "round({x}) as i64"),
    remark("remainder", "the remainder of IEEE 754 is not offered; `x % y` has the sign of `x`, as `fmod`"),
    // Mathematics
    row("sinpi", "x", "sin({x} * 3.14159265359)").but(", less accurate"),
    row("cospi", "x", "cos({x} * 3.14159265359)").but(", less accurate"),
    row("rcbrt", "x", "1.0 / cbrt({x})"),
    row("rhypot", "x y", "1.0 / hypot({x}, {y})"),
    row("norm3d", "a b c", "hypot(hypot({a}, {b}), {c})"),
    row("rnorm3d", "a b c", "1.0 / hypot(hypot({a}, {b}), {c})"),
    remark("norm4d rnorm4d", "write `hypot(hypot(a, b), hypot(c, d))`, and one divided by it"),
    row("erfcx", "x", "exp({x} * {x}) * erfc({x})").but(" of numbers between -9 and 9"),
    row("erfcinv", "x", "erfinv(1.0 - {x})").but(", inaccurate near zero"),
    row("normcdf", "x", "0.5 * erfc({x} * -0.70710678119)").but(", less accurate below -5"),
    row("normcdfinv", "x", "1.41421356237 * erfinv(2.0 * {x} - 1.0)").but(", inaccurate near zero"),
    remark(
        "j0 j1 jn y0 y1 yn cyl_bessel_i0 cyl_bessel_i1",
        "Bessel functions are not offered: write the series that you need in a `#[device]` function",
    ),
    // Bits
    row("ffs", "n", "select({n} == 0, 0, trailing_zeros({n}) as i32 + 1)"),
    row("mul24", "a b", "{a} * {b}").but(" of numbers of 24 bits"),
    remark(
        "byte_perm sad hadd rhadd",
        "write arithmetic and shifts, or the instruction: `inline_ptx(\"..\", a, b, |a, b| ..)`",
    ),
    row("int_as_float uint_as_float", "n", "bitcast::<f32>({n})"),
    row("float_as_int", "x", "bitcast::<i32>({x})"),
    row("float_as_uint", "x", "bitcast::<u32>({x})"),
    remark("longlong_as_double double_as_longlong", "write `bitcast::<f64>(n)`, or `bitcast::<i64>(x)`"),
    remark("double2hiint double2loint hiloint2double", "write `bitcast::<i64>(x)` or `bitcast::<f64>(n)`, and shifts"),
    row("signbit", "x", "bitcast::<i32>({x}) < 0").but(" of `f32`"),
    remark("ilogb logb", "its bits have the exponent: `((bitcast::<i32>(x) >> 23) & 255) - 127` of a normal `f32`"),
    // Triton
    row("logical_and", "a b", "{a} & {b}").but(" of `bool`"),
    row("logical_or", "a b", "{a} | {b}").but(" of `bool`"),
    row("logical_not", "a", "!{a}").but(" of `bool`"),
    row("add", "a b", "{a} + {b}"),
    row("sub", "a b", "{a} - {b}"),
    row("mul", "a b", "{a} * {b}"),
    row("bitonic_merge", "x", "sort({x})"),
    remark("reduce_or", "write `any(c, axis = 0)`; of integers `reduce(x, axis = 0, |a, b| a | b)`"),
    row("item unsplat", "x", "sum({x})").but(" of a tile of one element"),
    row("num_threads", "", "num_warps() * 32"),
    remark("swizzle2d", "declare a `#[device]` function: the documentation of `#[kernel]` has its four lines"),
    remark(
        "gdc_wait gdc_launch_dependents",
        "leave it out: `.dependent_launch()` of the call lets a launch begin early, and the compiler places both",
    ),
    remark(
        "current_target is_cuda is_hip cuda_capability_geq",
        "write `capability() >= 90`, which is decided when the kernel is compiled; on the CPU it is 0",
    ),
    remark("uint_to_uniform_float", "write `rand(seed, offset)`, of which it is a step"),
    remark("pair_uniform_to_normal", "write `randn(seed, offset)`, of which it is a step"),
    remark("load_tensor_descriptor", "a block is read by a method of the descriptor: `a.load([i, j])`"),
    remark("store_tensor_descriptor", "a block is written by a method of the descriptor: `c.store([i, j], v)`"),
    remark("condition", "write the condition alone: `while c { .. }`"),
    remark("constexpr", "constants have names by `let`, and parameters are const generics: `const BLOCK: usize`"),
    remark("extern_elementwise", "write what it computes, or an instruction: `inline_ptx(\"..\", x, |a| ..)`"),
    remark("convert_custom_float8_sm80", "write `x as f16`: 8-bit floats are `f8e4m3` and `f8e5m2`"),
];

/// `float2int_rn`, `ll2double_rz`
const CONVERSION: Spelling = remark(
    "",
    "write `x as i32`, which truncates to integers and rounds to even to floats; `floor(x)`, `ceil(x)` or `round_ties_even(x)` \
     before it",
);

/// `add_rz`, `fma_ru`
const DIRECTED: Spelling =
    remark("", "no direction of rounding is offered: operations round to the nearest, halves to even");

/// The row of a name that is made of parts.
pub fn composed(name: &str) -> Option<&'static Spelling> {
    const NUMBERS: [&str; 7] = ["float", "double", "half", "int", "uint", "ll", "ull"];
    const DIRECTIONS: [&str; 4] = ["_rn", "_rz", "_rd", "_ru"];
    const ROUNDED: [&str; 8] = ["add", "sub", "mul", "div", "fma", "sqrt", "rsqrt", "rcp"];
    let stem = DIRECTIONS.iter().find_map(|direction| name.strip_suffix(direction))?;
    if stem.split_once('2').is_some_and(|(from, to)| NUMBERS.contains(&from) && NUMBERS.contains(&to)) {
        return Some(&CONVERSION);
    }
    ROUNDED.contains(&stem).then_some(&DIRECTED)
}
