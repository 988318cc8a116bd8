//! Kernels that flush: `.ftz` wherever f32 is computed, shorter functions, and the interpreter's bits.

mod support;

use kernel_codegen::{Options, Target, compile};
use kernel_core::ir::Bound;
use support::differential::{Agreement, agrees, zeros};

/// A kernel that stores what an operation makes of each element of `x` (and of `y`), with `flush` or without.
fn kernel(flush: &str, dtype: &str, op: &str) -> Bound {
    support::kernel(&format!(
        "kernel one \"one.rs\" unsafe {flush} bound {{
        param %x x: ptr {dtype} {{div = 16}}
        param %y y: ptr {dtype} {{div = 16}}
        param %out out: ptr_mut {dtype} {{div = 16}}
        %i: i32[256] = arange {{lo = 0, hi = 256}}
        %xs: *x[256] = splat %x
        %xp: *x[256] = add_ptr %xs, %i
        %a: {dtype}[256] = load %xp
        %ys: *y[256] = splat %y
        %yp: *y[256] = add_ptr %ys, %i
        %b: {dtype}[256] = load %yp
        {op}
        %os: *out[256] = splat %out
        %op: *out[256] = add_ptr %os, %i
        store %op, %r
        return
    }}"
    ))
}

fn unary(name: &str) -> String {
    format!("%r: f32[256] = {name} %a")
}

fn binary(name: &str) -> String {
    format!("%r: f32[256] = {name} %a, %b")
}

/// Numbers of which a quarter is subnormal, a quarter has products that are, with signs and zeros.
fn numbers(seed: u32) -> Vec<f32> {
    let number = |i: u32| {
        let bits = i.wrapping_mul(2_654_435_761) ^ seed.wrapping_mul(0x9e37_79b9);
        let sign = bits & 1 << 31;
        f32::from_bits(match i % 4 {
            0 => sign | bits & 0x007f_ffff,
            1 => sign | 0x2000_0000 | bits & 0x007f_ffff,
            2 => sign | 0x0080_0000 | bits & 0x00ff_ffff,
            _ => sign | 0x3f00_0000 | bits & 0x00ff_ffff,
        })
    };
    (0..256).map(|i| if i % 31 == 0 { 0.0 } else { number(i) }).collect()
}

fn instructions(kernel: &Bound) -> usize {
    let compiled = support::compile_for_hopper(kernel);
    compiled.ptx.lines().filter(|line| line.trim_start().starts_with(|c: char| c.is_ascii_lowercase())).count()
}

#[test]
fn every_f32_instruction_flushes() {
    for (op, instruction) in [
        (binary("add"), "add.rn.ftz.f32"),
        (binary("sub"), "sub.rn.ftz.f32"),
        (binary("mul"), "mul.rn.ftz.f32"),
        ("%r: f32[256] = fma %a, %b, %a".into(), "fma.rn.ftz.f32"),
        (binary("div"), "div.full.ftz.f32"),
        (binary("div_rn"), "div.rn.ftz.f32"),
        (binary("minimum"), "min.ftz.f32"),
        (binary("maximum_nan"), "max.ftz.NaN.f32"),
        (unary("sqrt"), "sqrt.approx.ftz.f32"),
        (unary("sqrt_rn"), "sqrt.rn.ftz.f32"),
        (unary("rsqrt"), "rsqrt.approx.ftz.f32"),
        (unary("exp2"), "ex2.approx.ftz.f32"),
        (unary("floor"), "cvt.rmi.ftz.f32.f32"),
        ("%c: bool[256] = cmp.lt %a, %b\n%r: f32[256] = select %c, %a, %b".into(), "setp"),
    ] {
        let flushed = support::compile_for_hopper(&kernel("flush", "f32", &op));
        assert_eq!(support::count(&flushed.ptx, instruction), 2, "{instruction}: {}", flushed.ptx);
        let computes = |line: &&str| {
            line.contains(".f32") && !["ld.", "st.", "mov", "selp", "neg.", "abs."].iter().any(|op| line.contains(op))
        };
        let kept = flushed.ptx.lines().filter(computes).find(|line| !line.contains(".ftz"));
        assert_eq!(kept, None, "{}", flushed.ptx);
        let plain = support::compile_for_hopper(&kernel("", "f32", &op));
        let only = if instruction.starts_with("ex2") { "add.rn.ftz" } else { ".ftz" };
        assert_eq!(support::count(&plain.ptx, only), 0, "{}", plain.ptx);
    }
}

#[test]
fn functions_have_no_steps_for_subnormal_numbers() {
    for (name, at_least) in
        [("exp", 4), ("exp2", 4), ("log", 6), ("log2", 6), ("log10", 6), ("cbrt", 6), ("sqrt", 0), ("div", 0)]
    {
        let op = if name == "div" { binary(name) } else { unary(name) };
        let (kept, flushed) = (instructions(&kernel("", "f32", &op)), instructions(&kernel("flush", "f32", &op)));
        assert!(kept >= flushed + at_least, "{name}: {kept} and {flushed}");
    }
}

#[test]
fn f64_and_f16_keep_what_is_subnormal() {
    for dtype in ["f64", "f16", "bf16"] {
        let op = format!("%r: {dtype}[256] = mul %a, %b");
        let ptx = support::compile_for_hopper(&kernel("flush", dtype, &op)).ptx;
        let narrow = format!(".ftz.{dtype}");
        assert_eq!(support::count(&ptx, &narrow), 0, "{ptx}");
    }
}

#[test]
fn generated_code_flushes_where_the_interpreter_does() {
    for op in [
        "add",
        "sub",
        "mul",
        "div_rn",
        "minimum",
        "maximum",
        "minimum_nan",
        "maximum_nan",
        "copysign",
        "nextafter",
        "pow",
        "atan2",
    ] {
        println!("{op}");
        let buffers = [numbers(1).into(), numbers(2).into(), zeros(256)];
        agrees(&kernel("flush", "f32", &binary(op)), &buffers, &[], 1, Agreement::Exact);
    }
    for op in [
        "neg",
        "abs",
        "floor",
        "ceil",
        "trunc",
        "round",
        "round_ties_even",
        "sqrt_rn",
        "log",
        "log2",
        "log10",
        "log1p",
        "expm1",
        "sin",
        "tan",
        "atan",
        "asinh",
        "lgamma",
        "tgamma",
    ] {
        println!("{op}");
        let buffers = [numbers(3).into(), numbers(4).into(), zeros(256)];
        agrees(&kernel("flush", "f32", &unary(op)), &buffers, &[], 1, Agreement::Exact);
    }
    for op in ["%r: f32[256] = fma %a, %b, %b", "%c: bool[256] = cmp.ge %a, %b\n%r: f32[256] = select %c, %b, %a"] {
        let buffers = [numbers(5).into(), numbers(6).into(), zeros(256)];
        agrees(&kernel("flush", "f32", op), &buffers, &[], 1, Agreement::Exact);
    }
}

#[test]
fn every_target_assembles_what_flushes() {
    for target in [Target::sm_80(), Target::sm_89(), Target::sm_90(), Target::sm_90a()] {
        for op in [binary("div"), unary("exp"), unary("log"), unary("cbrt"), binary("maximum_nan"), unary("tgamma")] {
            let kernel = kernel("flush", "f32", &op);
            let compiled = compile(&kernel, &target, &Options::default()).unwrap_or_else(|error| panic!("{error}"));
            support::assemble(&compiled);
        }
    }
}
