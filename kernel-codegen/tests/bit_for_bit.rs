//! Operations that use nothing of the hardware that is not exact: generated code gives the interpreter's bits.

mod support;

use kernel_core::interp::HostBuffer;
use support::differential::{Agreement, agrees, zeros};

/// Numbers of all sizes, and what is none.
fn numbers(seed: u32) -> HostBuffer {
    let special =
        [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -3.0, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN_POSITIVE, 1e-45];
    let any = (0..256u32).map(|i| match i % 4 {
        0 => special[(i / 4 + seed) as usize % special.len()],
        // Near one, where powers are numbers.
        1 => f32::from_bits(0x3f00_0000 | i.wrapping_mul(2_654_435_761).wrapping_add(seed) & 0xff_ffff),
        2 => (i as f32 - 128.0) / (seed + 1) as f32,
        _ => f32::from_bits((i + seed).wrapping_mul(0x9e37_79b1) & 0xbfff_ffff),
    });
    any.collect::<Vec<f32>>().into()
}

/// `op` of the floats `x` and, if it takes one, the second buffer, of a dtype.
fn check(op: &str, dtype: &str, second: HostBuffer) {
    let text = format!(
        "kernel two \"two.rs\" safe bound {{
           param %x x: ptr f32 {{div = 16}}
           param %y y: ptr {dtype} {{div = 16}}
           param %out out: ptr_mut f32 {{div = 16}}
           %i: i32[256] = arange {{lo = 0, hi = 256}}
           %xs: *x[256] = splat %x
           %xp: *x[256] = add_ptr %xs, %i
           %a: f32[256] = load %xp
           %ys: *y[256] = splat %y
           %yp: *y[256] = add_ptr %ys, %i
           %b: {dtype}[256] = load %yp
           %v: f32[256] = {op} %a, %b
           %os: *out[256] = splat %out
           %op: *out[256] = add_ptr %os, %i
           store %op, %v
           return
         }}"
    );
    agrees(&support::kernel(&text), &[numbers(1), second, zeros(256)], &[], 1, Agreement::Exact);
}

#[test]
fn functions_of_two_floats() {
    for op in ["pow", "atan2", "hypot", "nextafter"] {
        check(op, "f32", numbers(7));
    }
}

#[test]
fn functions_of_a_float_and_an_integer() {
    let edges = [0, 1, -1, 3, 24, -30, 127, -150, 300, i32::MAX, i32::MIN];
    let integers: Vec<i32> = (0..256).map(|i| edges[i * 7 % edges.len()]).collect();
    for op in ["powi", "ldexp"] {
        check(op, "i32", integers.clone().into());
    }
}

/// A compare-and-swap of a value for itself is lowered to a load; the other one is not.
#[test]
fn swaps() {
    let text = "kernel swaps \"swaps.rs\" safe bound {
        param %x x: ptr_mut f32 {div = 16}
        param %y y: ptr_mut f32 {div = 16}
        param %out out: ptr_mut f32 {div = 16}
        %i: i32[256] = arange {lo = 0, hi = 256}
        %hundred: i32 = const 100
        %hundreds: i32[256] = splat %hundred
        %mask: bool[256] = cmp.lt %i, %hundreds
        %zero: f32 = const 0.0
        %zeros: f32[256] = splat %zero
        %one: f32 = const 1.0
        %ones: f32[256] = splat %one
        %xs: *x[256] = splat %x
        %xp: *x[256] = add_ptr %xs, %i
        %a: f32[256] = atomic_cas %xp, %zeros, %zeros, %mask {order = acquire, scope = device}
        %ys: *y[256] = splat %y
        %yp: *y[256] = add_ptr %ys, %i
        %b: f32[256] = atomic_cas %yp, %zeros, %ones, %mask {order = acquire, scope = device}
        %v: f32[256] = maximum %a, %b
        %os: *out[256] = splat %out
        %op: *out[256] = add_ptr %os, %i
        store %op, %v
        return
    }";
    agrees(&support::kernel(text), &[numbers(1), numbers(3), zeros(256)], &[], 1, Agreement::Exact);
}

/// In the emulator no time passes, in the interpreter a little; neither goes back, and there is one SM.
#[test]
fn counters() {
    let text = "kernel counters \"counters.rs\" safe bound {
        param %out out: ptr_mut i32 {div = 16}
        %a: i64 = counter {which = clock}
        %b: i64 = counter {which = clock}
        %c: i64 = counter {which = globaltimer}
        %s: i32 = counter {which = smid}
        %late: bool = cmp.lt %b, %a
        %l: i32 = cast %late
        %begun: i64 = const 0
        %early: bool = cmp.le %c, %begun
        %e: i32 = cast %early
        %one: i32 = const 1
        %second: *out = add_ptr %out, %one
        %third: *out = add_ptr %second, %one
        store %out, %l
        store %second, %s
        store %third, %e
        return
    }";
    agrees(&support::kernel(text), &[vec![7i32; 4].into()], &[], 1, Agreement::Exact);
}
