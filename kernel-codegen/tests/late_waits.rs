//! Products in flight beside what an iteration computes with others, and over its end: placed, and as PTX.

mod support;

use kernel_codegen::{Options, Target, compile_watched};
use kernel_core::edit::walk;
use kernel_core::interp::{HostBuffer, HostTensor, run_ordered, run_placed_with_tensors, run_with_tensors};
use kernel_core::ir::{ControlOp, Def, Elem, Func, GpuOp, Op, OpId, Placed};
use kernel_core::text::print;
use support::differential::{Agreement, compare};
use support::kernel;

/// Small whole numbers: sums of their products are exact.
fn halves(len: usize, salt: u32) -> HostBuffer {
    let number = |i: u32| ((i * 7 + salt * 13) % 5) as f32 - 2.0;
    (0..len as u32).map(|i| half::f16::from_f32(number(i))).collect::<Vec<_>>().into()
}

/// A loop over blocks of keys, of which `body` makes what is carried: `%acc` and `%w`.
fn text(attributes: &str, body: &str) -> String {
    let facts = "{div = 16, len_div = 16, stride_div = 16}";
    format!(
        "kernel chained \"chained.rs\" unsafe bound {{
  param %q q: desc f16[64, 64] {facts}
  param %k k: desc f16[64, 64] {facts}
  param %v v: desc f16[64, 64] {facts}
  param %o o: desc_mut f32[64, 64] {facts}
  param %n n: i32
  %zero: i32 = const 0
  %step: i32 = const 64
  %none: f32 = const 0.0
  %start: f32[64, 64] = splat %none
  %no: f16[64, 64] = cast %start
  %minus: f32 = const -1.0
  %signs: f32[64, 64] = splat %minus
  %sixteenth: f32 = const 0.0625
  %small: f32[64, 64] = splat %sixteenth
  %x: f16[64, 64] = desc_load %q, %zero, %zero
  %sum: f32[64, 64], %last: f16[64, 64], %second: f32[64, 64] = for %zero, %n, %step, %start, %no, %start {attributes} (%i: i32, %acc: f32[64, 64], %w: f16[64, 64], %more: f32[64, 64]) {{
    %y: f16[64, 64] = desc_load %k, %i, %zero
    %yt: f16[64, 64] = permute %y {{perm = [1, 0]}}
    %z: f16[64, 64] = desc_load %v, %i, %zero
{body}
  }}
  %left: f32[64, 64] = cast %last
  %both: f32[64, 64] = add %sum, %left
  %all: f32[64, 64] = add %both, %second
  desc_store %o, %all, %zero, %zero
  return
}}"
    )
}

/// The second product multiplies what the first one gives, and adds to what has changed its sign.
const CHAINED: &str = "    %s: f32[64, 64] = dot %x, %yt, %start {precision = tf32}
    %t: f32[64, 64] = mul %s, %small
    %p: f16[64, 64] = cast %t
    %m: f32[64, 64] = mul %acc, %signs
    %d: f32[64, 64] = dot %p, %z, %m {precision = tf32}
    yield %d, %w, %more";

/// It multiplies what the first one gave an iteration before, and changes the sign behind.
const SKEWED: &str = "    %s: f32[64, 64] = dot %x, %yt, %start {precision = tf32}
    %d: f32[64, 64] = dot %w, %z, %acc {precision = tf32}
    %t: f32[64, 64] = mul %s, %small
    %p: f16[64, 64] = cast %t
    %m: f32[64, 64] = mul %d, %signs
    yield %m, %p, %more";

/// Two sums that nothing looks at, of what other products give, as gradients are.
const GRADIENTS: &str = "    %s: f32[64, 64] = dot %x, %yt, %start {precision = tf32}
    %t: f32[64, 64] = mul %s, %small
    %p: f16[64, 64] = cast %t
    %d: f32[64, 64] = dot %p, %z, %acc {precision = tf32}
    %zt: f16[64, 64] = permute %z {perm = [1, 0]}
    %g: f32[64, 64] = dot %x, %zt, %start {precision = tf32}
    %h: f32[64, 64] = mul %g, %small
    %u: f32[64, 64] = sub %h, %t
    %r: f16[64, 64] = cast %u
    %e: f32[64, 64] = dot %r, %y, %more {precision = tf32}
    yield %d, %w, %e";

/// Two products go on with one sum, of which a copy is looked at in between.
const LOOKED_AT: &str = "    %d: f32[64, 64] = dot %x, %yt, %acc {precision = tf32}
    %t: f32[64, 64] = mul %d, %small
    %e: f32[64, 64] = dot %x, %z, %d {precision = tf32}
    %u: f32[64, 64] = add %more, %t
    yield %e, %w, %u";

/// It multiplies what the first one gave an iteration before, and adds to what has changed its sign: nothing looks at its sum
/// before the next iteration.
const CARRIED: &str = "    %s: f32[64, 64] = dot %x, %yt, %start {precision = tf32}
    %m: f32[64, 64] = mul %acc, %signs
    %d: f32[64, 64] = dot %w, %z, %m {precision = tf32}
    %t: f32[64, 64] = mul %s, %small
    %p: f16[64, 64] = cast %t
    yield %d, %p, %more";

const BODIES: [(&str, &str); 5] = [
    ("chained", CHAINED),
    ("skewed", SKEWED),
    ("gradients", GRADIENTS),
    ("looked at", LOOKED_AT),
    ("carried", CARRIED),
];

/// Whether a product is in flight over the end of an iteration and reads registers that the loop carries: those of the next
/// iteration go there.
fn overwrites_what_is_read(func: &Func) -> bool {
    let in_carried_registers = |id: OpId| {
        let Op::Gpu(GpuOp::Wgmma { .. }) = func.op(id).op else { return false };
        let factor = func.value(func.op(id).operands[0]);
        matches!(factor.def, Def::Arg(..)) && !matches!(factor.ty.elem, Elem::Shared(_))
    };
    let mut overwrites = false;
    walk(func, &mut |id| {
        if let Op::Control(ControlOp::For { .. }) = func.op(id).op {
            let mut carried = func.yielded(func.op(id).regions[0]).iter();
            overwrites |= carried.any(|&sum| func.defining_op(sum).is_some_and(in_carried_registers));
        }
    });
    overwrites
}

fn check(name: &str, body: &str, attributes: &str, num_stages: u32) {
    let kernel = kernel(&text(attributes, body));
    let tensors = [
        HostTensor::contiguous(&[64, 64]),
        HostTensor::contiguous(&[320, 64]),
        HostTensor::contiguous(&[320, 64]),
        HostTensor::contiguous(&[64, 64]),
    ];
    let out: HostBuffer = vec![0f32; 64 * 64].into();
    let buffers = [halves(64 * 64, 1), halves(320 * 64, 2), halves(320 * 64, 3), out];
    // The kernel as each pass behind the one that chooses where factors lie leaves it.
    let mut after: Vec<(&str, Placed)> = Vec::new();
    let options = Options { num_stages, ..Options::default() };
    let mut watch = |pass, func: &_, _: &_| after.extend(Placed::new(Clone::clone(func)).ok().map(|func| (pass, func)));
    compile_watched(&kernel, &Target::sm_90a(), &options, &mut watch).unwrap_or_else(|error| panic!("{error}"));
    for (pass, placed) in &after {
        let func = placed.func();
        assert!(!overwrites_what_is_read(func), "{name} {attributes}, after `{pass}`\n{}", print(func));
    }
    for trips in [0, 1, 2, 5] {
        let scalars = [(64 * trips).into()];
        let mut expected = buffers.to_vec();
        run_with_tensors(&kernel, &mut expected, &tensors, &scalars, [1; 3]).unwrap_or_else(|error| panic!("{error}"));
        for (pass, placed) in &after {
            let what = format!("{name} {attributes}, {num_stages} stages, {trips} iterations, after `{pass}`");
            let mut found = buffers.to_vec();
            // Barriers are complete behind `exchanges`.
            let run = if *pass == "accumulator_banks" { run_ordered } else { run_placed_with_tensors };
            run(placed, &mut found, &tensors, &scalars, [1; 3]).unwrap_or_else(|error| panic!("{what}: {error}"));
            for (want, got) in expected.iter().zip(&found) {
                compare(want, got, Agreement::Exact, &what);
            }
        }
    }
}

#[test]
fn sums_that_are_looked_at_are_right_in_divided_kernels() {
    for (name, body) in BODIES {
        check(name, body, "{warp_specialize = true}", 2);
    }
}

#[test]
fn sums_that_are_looked_at_are_right_in_pipelines() {
    for (name, body) in BODIES {
        for stages in [1, 2, 3] {
            check(name, body, "", stages);
        }
    }
}
