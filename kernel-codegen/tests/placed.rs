//! Operations of the placed level, as `.tile` texts: the interpreter and the emulator do the same.

mod support;

use kernel_codegen::{Compiled, Options, Target, compile_placed};
use kernel_core::interp::{HostBuffer, run_placed};
use kernel_core::ir::Placed;
use kernel_core::layout::{
    Blocked, LinearLayout, MmaVersion, Operand, SwizzleWidth, dot_operand, nvmma_shared, swizzled_shared,
    wgmma_accumulator,
};
use support::differential::{Agreement, compare, emulate_placed};
use support::{assemble, count, layout_text};

/// A placed kernel of 4 warps: tiles of 64 x 64 in rows come from `x` through `%xp` and go to `out` through `%op`, in
/// layout #0; further layouts begin at #5. `%at` numbers the elements.
fn placed(dtype: &str, layouts: &[LinearLayout], body: &str) -> Placed {
    let rows = Blocked::coalesced(&[64, 64], &[1, 0], if dtype == "f16" { 8 } else { 4 }, 4);
    let rows = rows.layout(&[64, 64]).expect("a layout");
    let [row, column] = [1, 0].map(|axis| rows.slice(axis).expect("a layout"));
    let (high, wide) = (row.expand_dims(1), column.expand_dims(0));
    let all = [rows, row, column, high, wide].into_iter().chain(layouts.iter().cloned());
    let layouts: Vec<String> =
        all.enumerate().map(|(i, layout)| format!("  layout #{i} = {}\n", layout_text(&layout))).collect();
    let text = format!(
        "kernel placed \"placed.rs\" unsafe placed {{
  param %x x: ptr {dtype} {{div = 16}}
  param %out out: ptr_mut {dtype} {{div = 16}}
{}  %row: i32[64] #1 = arange {{lo = 0, hi = 64}}
  %column: i32[64] #2 = arange {{lo = 0, hi = 64}}
  %high: i32[64, 1] #3 = expand_dims %row {{axis = 1}}
  %wide: i32[1, 64] #4 = expand_dims %column {{axis = 0}}
  %pitch: i32 = const 64
  %pitches: i32[64, 1] #3 = splat %pitch
  %starts: i32[64, 1] #3 = mul %high, %pitches
  %from: i32[64, 64] #0 = broadcast %starts
  %along: i32[64, 64] #0 = broadcast %wide
  %at: i32[64, 64] #0 = add %from, %along
  %xs: *x[64, 64] #0 = splat %x
  %xp: *x[64, 64] #0 = add_ptr %xs, %at
  %os: *out[64, 64] #0 = splat %out
  %op: *out[64, 64] #0 = add_ptr %os, %at
{body}
  return
}}",
        layouts.concat()
    );
    let func = kernel_core::text::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    if let Err(problems) = kernel_core::verify::verify(&func) {
        panic!("{problems:?}\n{text}");
    }
    Placed::new(func).unwrap_or_else(|_| panic!("the kernel is not placed"))
}

fn halves(len: usize) -> HostBuffer {
    (0..len)
        .map(|i| half::f16::from_f32(((i as u32).wrapping_mul(40503) % 33) as f32 - 16.0))
        .collect::<Vec<_>>()
        .into()
}

fn bytes_of(dtype: &str, len: usize) -> HostBuffer {
    match dtype {
        "f16" => halves(len),
        "i8" => (0..len).map(|i| (i as u32).wrapping_mul(40503) as i8).collect::<Vec<_>>().into(),
        _ => (0..len).map(|i| (i as u32).wrapping_mul(40503) as f32).collect::<Vec<_>>().into(),
    }
}

/// Runs a kernel in the interpreter and in the emulator.
fn check(dtype: &str, kernel: &Placed, target: Target) -> Compiled {
    let compiled = compile_placed(kernel, &target, &Options::default()).unwrap_or_else(|error| panic!("{error}"));
    let buffers = [bytes_of(dtype, 4096), HostBuffer::zeros(bytes_of(dtype, 1).dtype(), 4096)];
    let mut expected = buffers.to_vec();
    run_placed(kernel, &mut expected, &[], [1, 1, 1]).unwrap_or_else(|error| panic!("{error:?}"));
    for seed in 1..3 {
        let found = emulate_placed(kernel.func(), &compiled, &buffers, seed);
        compare(&expected[1], &found[1], Agreement::Exact, &compiled.ptx);
    }
    assemble(&compiled);
    compiled
}

/// Through a view in `shared`, read in the layout of a factor.
fn through(shared: &LinearLayout, factor: &LinearLayout, dtype: &str, target: Target) -> Compiled {
    let body = format!(
        "  %v: {dtype}[64, 64] #0 = load %xp
  %s: shared {dtype}[64, 64] #5 = shared_alloc
  shared_store %s, %v
  barrier
  %f: {dtype}[64, 64] #6 = shared_load %s
  %r: {dtype}[64, 64] #0 = convert_layout %f
  store %op, %r"
    );
    check(dtype, &placed(dtype, &[shared.clone(), factor.clone()], &body), target)
}

#[test]
fn factors_are_read_by_matrices() {
    let swizzled = |transposed| nvmma_shared(&[64, 64], SwizzleWidth::B128, 16, transposed).expect("a layout");
    let operand = |which| dot_operand(&[64, 64], which, 2, MmaVersion::V2, [2, 2]).expect("a layout");
    for target in [Target::sm_80(), Target::sm_90a()] {
        let compiled = through(&swizzled(false), &operand(Operand::A), "f16", target);
        assert_eq!(count(&compiled.ptx, "ldmatrix.sync.aligned.m8n8.x4.shared"), 8, "{}", compiled.ptx);
        let compiled = through(&swizzled(false), &operand(Operand::B), "f16", target);
        assert_eq!(count(&compiled.ptx, "ldmatrix.sync.aligned.m8n8.x4.trans.shared"), 8, "{}", compiled.ptx);
        let compiled = through(&swizzled(true), &operand(Operand::B), "f16", target);
        assert_eq!(count(&compiled.ptx, "ldmatrix.sync.aligned.m8n8.x4.shared"), 8);
    }
    let bytes = nvmma_shared(&[64, 64], SwizzleWidth::B64, 8, false).expect("a layout");
    let operand = dot_operand(&[64, 64], Operand::A, 4, MmaVersion::V2, [4, 1]).expect("a layout");
    let compiled = through(&bytes, &operand, "i8", Target::sm_80());
    assert_eq!(count(&compiled.ptx, "ldmatrix"), 2);
}

#[test]
fn tiles_go_through_any_view_in_any_layout() {
    for (dtype, bits) in [("f16", 16), ("f32", 32), ("i8", 8)] {
        let columns = Blocked::coalesced(&[64, 64], &[0, 1], 2, 4).layout(&[64, 64]).expect("a layout");
        for (width, transposed) in [(SwizzleWidth::B64, false), (SwizzleWidth::B32, true), (SwizzleWidth::None, false)]
        {
            let shared = nvmma_shared(&[64, 64], width, bits, transposed).expect("a layout");
            through(&shared, &columns, dtype, Target::sm_90a());
        }
        through(&swizzled_shared(&[64, 64], 4, 1, 8, &[1, 0]).expect("a layout"), &columns, dtype, Target::sm_80());
    }
}

#[test]
fn accumulators_are_written_by_matrices_on_hopper() {
    let acc = wgmma_accumulator(&[64, 64], 64, [4, 1]).expect("a layout");
    let shared = nvmma_shared(&[64, 64], SwizzleWidth::B128, 16, false).expect("a layout");
    let body = "  %v: f16[64, 64] #0 = load %xp
  %a: f16[64, 64] #5 = convert_layout %v
  %s: shared f16[64, 64] #6 = shared_alloc
  barrier
  shared_store %s, %a
  fence {kind = proxy_async}
  barrier
  %r: f16[64, 64] #0 = shared_load %s
  store %op, %r";
    let kernel = placed("f16", &[acc, shared], body);
    let compiled = check("f16", &kernel, Target::sm_90a());
    assert_eq!(count(&compiled.ptx, "stmatrix.sync.aligned.m8n8.x4.shared"), 4);
    assert_eq!(count(&compiled.ptx, "fence.proxy.async.shared::cta"), 1);
    let compiled = check("f16", &kernel, Target::sm_80());
    assert_eq!(count(&compiled.ptx, "stmatrix") + count(&compiled.ptx, "fence.proxy"), 0);
}

/// The second tile goes where the first was when all have read that.
#[test]
fn tiles_that_matrices_have_written_are_read_before_others_come() {
    let acc = wgmma_accumulator(&[64, 64], 64, [4, 1]).expect("a layout");
    let body = "  %v: f16[64, 64] #0 = load %xp
  %a: f16[64, 64] #5 = convert_layout %v
  %b: f16[64, 64] #5 = add %a, %a
  %c: f16[64, 64] #5 = add %b, %a
  %a1: f16[64, 64] #0 = convert_layout %a
  %b1: f16[64, 64] #0 = convert_layout %b
  %c1: f16[64, 64] #0 = convert_layout %c
  %ab: f16[64, 64] #0 = sub %b1, %a1
  %r: f16[64, 64] #0 = add %ab, %c1
  store %op, %r";
    let compiled = check("f16", &placed("f16", &[acc], body), Target::sm_90a());
    assert_eq!(count(&compiled.ptx, "stmatrix.sync.aligned.m8n8.x4.shared"), 3 * 4);
}

/// What the lowering exchanges begins above the barriers, of which any number takes 8 bytes each; alignment is
/// checked by the emulator.
#[test]
fn exchanges_above_barriers_are_aligned() {
    let acc = wgmma_accumulator(&[64, 64], 64, [4, 1]).expect("a layout");
    for slots in [1, 2, 3, 5] {
        let body = format!(
            "  %zero: i32 = const 0
  %one: i32 = const 1
  %last: i32 = const {}
  %b: barrier[{slots}] = mbarrier_alloc {{slots = {slots}, count = 1}}
  %v: f32[64, 64] #0 = load %xp
  %h: f32[64, 64] #5 = convert_layout %v
  mbarrier_arrive %b, %last
  mbarrier_wait %b, %last, %zero
  %w: f32[64, 64] #5 = add %h, %h
  %r: f32[64, 64] #0 = convert_layout %w
  mbarrier_arrive %b, %last
  mbarrier_wait %b, %last, %one
  store %op, %r",
            slots - 1
        );
        let compiled = check("f32", &placed("f32", std::slice::from_ref(&acc), &body), Target::sm_90a());
        assert!(compiled.ptx.contains("st.shared.v4.b32"), "{}", compiled.ptx);
    }
}

#[test]
fn slots_are_apart_and_permuted_views_are_the_same_memory() {
    let shared = nvmma_shared(&[64, 64], SwizzleWidth::B128, 16, false).expect("a layout");
    let turned = shared.permute(&[1, 0]).expect("a layout");
    let body = "  %v: f16[64, 64] #0 = load %xp
  %w: f16[64, 64] #0 = add %v, %v
  %all: shared f16[3, 64, 64] #5 = shared_alloc
  %one: i32 = const 1
  %two: i32 = const 2
  %a: shared f16[64, 64] #5 = shared_index %all, %one
  %b: shared f16[64, 64] #5 = shared_index %all, %two
  shared_store %a, %v
  shared_store %b, %w
  barrier
  %t: shared f16[64, 64] #6 = shared_permute %a {perm = [1, 0]}
  %x1: f16[64, 64] #0 = shared_load %t
  %x2: f16[64, 64] #0 = shared_load %b
  %r: f16[64, 64] #0 = add %x1, %x2
  store %op, %r";
    let compiled = check("f16", &placed("f16", &[shared, turned], body), Target::sm_90a());
    assert_eq!(compiled.shared_bytes, 3 * 64 * 64 * 2);
    assert!(compiled.ptx.contains(".align 1024"), "{}", compiled.ptx);
}

#[test]
fn asynchronous_copies_land_at_their_wait_and_masked_ones_are_zero() {
    let body = |dtype: &str, limit: i32, mask: &str| {
        format!(
            "  %n: i32 = const {limit}
  %ns: i32[64, 64] #0 = splat %n
  %m: bool[64, 64] #0 = cmp.lt %at, %ns
  %all: shared {dtype}[2, 64, 64] #5 = shared_alloc
  %zero: i32 = const 0
  %one: i32 = const 1
  %a: shared {dtype}[64, 64] #5 = shared_index %all, %zero
  %b: shared {dtype}[64, 64] #5 = shared_index %all, %one
  %ta: token = async_copy %a, %xp{mask}
  %ga: token = async_commit %ta
  %tb: token = async_copy %b, %xp
  %gb: token = async_commit %tb
  %wa: token = async_wait %ga {{pending = 1}}
  barrier
  %x1: {dtype}[64, 64] #0 = shared_load %a
  %wb: token = async_wait %gb {{pending = 0}}
  barrier
  %x2: {dtype}[64, 64] #0 = shared_load %b
  %r: {dtype}[64, 64] #0 = add %x1, %x2
  store %op, %r"
        )
    };
    // A vector has one mask if the limit is a multiple of it.
    let cases = [
        ("f16", 16, 0, "", 8, 0),
        ("f16", 16, 2504, ", %m", 8, 0),
        ("f32", 32, 2500, ", %m", 16, 0),
        ("f32", 32, 2501, ", %m", 8, 32),
    ];
    for (dtype, bits, limit, mask, wide, narrow) in cases {
        let shared = nvmma_shared(&[64, 64], SwizzleWidth::B128, bits, false).expect("a layout");
        for target in [Target::sm_80(), Target::sm_90a()] {
            let compiled =
                check(dtype, &placed(dtype, std::slice::from_ref(&shared), &body(dtype, limit, mask)), target);
            assert_eq!(count(&compiled.ptx, "cp.async.cg.shared.global"), wide, "{}", compiled.ptx);
            assert_eq!(count(&compiled.ptx, "cp.async.ca.shared.global"), narrow, "{}", compiled.ptx);
            assert_eq!(count(&compiled.ptx, "cp.async.wait_group 1;"), 1);
        }
    }
}

#[test]
fn narrow_copies_are_four_bytes_or_done_at_once() {
    // Contiguous in columns, while memory runs along rows: no vectors.
    for (dtype, bits, instruction) in [("f32", 32, "cp.async.ca.shared.global"), ("f16", 16, "st.shared.b16")] {
        let shared = nvmma_shared(&[64, 64], SwizzleWidth::B64, bits, true).expect("a layout");
        let body = format!(
            "  %a: shared {dtype}[64, 64] #5 = shared_alloc
  %ta: token = async_copy %a, %xp
  %ga: token = async_commit %ta
  %wa: token = async_wait %ga {{pending = 0}}
  barrier
  %r: {dtype}[64, 64] #0 = shared_load %a
  store %op, %r"
        );
        let compiled = check(dtype, &placed(dtype, &[shared], &body), Target::sm_80());
        assert_eq!(count(&compiled.ptx, instruction), 32, "{}", compiled.ptx);
    }
}

#[test]
fn warp_groups_multiply_with_a_in_shared_memory_or_registers() {
    let shared = nvmma_shared(&[64, 64], SwizzleWidth::B128, 16, false).expect("a layout");
    let acc = wgmma_accumulator(&[64, 64], 64, [4, 1]).expect("a layout");
    let left = dot_operand(&[64, 64], Operand::A, 2, MmaVersion::V3, [4, 1]).expect("a layout");
    let body = "  %v: f16[64, 64] #0 = load %xp
  %s: shared f16[64, 64] #5 = shared_alloc
  shared_store %s, %v
  fence {kind = proxy_async}
  barrier
  %l: f16[64, 64] #7 = shared_load %s
  %z: f32 = const 0.0
  %zs: f32[64, 64] #6 = splat %z
  %p: f32[64, 64] #6 = wgmma %s, %s, %zs {precision = tf32}
  %p1: f32[64, 64] #6 = wgmma_wait %p {pending = 0}
  %q: f32[64, 64] #6 = wgmma %l, %s, %zs {precision = tf32}
  %q1: f32[64, 64] #6 = wgmma_wait %q {pending = 0}
  %sum: f32[64, 64] #6 = add %p1, %q1
  %tenth: f32 = const 0.0009765625
  %tenths: f32[64, 64] #6 = splat %tenth
  %less: f32[64, 64] #6 = mul %sum, %tenths
  %h: f16[64, 64] #6 = cast %less {to = f16}
  %r: f16[64, 64] #0 = convert_layout %h
  store %op, %r";
    let compiled = check("f16", &placed("f16", &[shared, acc, left], body), Target::sm_90a());
    assert_eq!(count(&compiled.ptx, "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"), 8);
    assert_eq!(count(&compiled.ptx, "wgmma.wait_group.sync.aligned 0;"), 2);
}

/// A kernel that multiplies a tile `%s` with itself. `%p1` is one product, waited for; `body` makes `%t` of it.
fn multiplying(body: &str) -> Placed {
    let shared = nvmma_shared(&[64, 64], SwizzleWidth::B128, 16, false).expect("a layout");
    let acc = wgmma_accumulator(&[64, 64], 64, [4, 1]).expect("a layout");
    let body = format!(
        "  %v: f16[64, 64] #0 = load %xp
  %s: shared f16[64, 64] #5 = shared_alloc
  shared_store %s, %v
  fence {{kind = proxy_async}}
  barrier
  %z: f32 = const 0.0
  %zs: f32[64, 64] #6 = splat %z
  %zero: i32 = const 0
  %one: i32 = const 1
  %two: i32 = const 2
  %three: i32 = const 3
  %pid: i32 = program_id {{axis = 0}}
  %yes: bool = cmp.eq %pid, %zero
  %no: bool = cmp.eq %pid, %one
  %p: f32[64, 64] #6 = wgmma %s, %s, %zs
  %p1: f32[64, 64] #6 = wgmma_wait %p {{pending = 0}}
{body}
  %tenth: f32 = const 0.0009765625
  %tenths: f32[64, 64] #6 = splat %tenth
  %less: f32[64, 64] #6 = mul %t, %tenths
  %h: f16[64, 64] #6 = cast %less {{to = f16}}
  %r: f16[64, 64] #0 = convert_layout %h
  store %op, %r"
    );
    placed("f16", &[shared, acc], &body)
}

/// Bodies of [`multiplying`], with the number of banks that their accumulators need.
const ACCUMULATORS: [(&str, usize, &str); 13] = [
    (
        "two products go on from one accumulator, which is read as well",
        3,
        "  %q: f32[64, 64] #6 = wgmma %s, %s, %p1
  %q1: f32[64, 64] #6 = wgmma_wait %q {pending = 0}
  %o: f32[64, 64] #6 = wgmma %s, %s, %p1
  %o1: f32[64, 64] #6 = wgmma_wait %o {pending = 0}
  %u: f32[64, 64] #6 = sub %q1, %p1
  %t: f32[64, 64] #6 = add %u, %o1",
    ),
    (
        "one goes on, and is read before and behind",
        1,
        "  %b: f32[64, 64] #6 = add %p1, %p1
  %q: f32[64, 64] #6 = wgmma %s, %s, %p1
  %q1: f32[64, 64] #6 = wgmma_wait %q {pending = 0}
  %u: f32[64, 64] #6 = add %q1, %p1
  %t: f32[64, 64] #6 = add %u, %b",
    ),
    (
        "iterations whose products are in flight, and a loop without iterations",
        1,
        "  %l: f32[64, 64] #6 = for %pid, %three, %one, %p1 (%i: i32, %acc: f32[64, 64] #6) {
    %q: f32[64, 64] #6 = wgmma %s, %s, %acc
    %q1: f32[64, 64] #6 = wgmma_wait %q {pending = 1}
    yield %q1
  }
  %l1: f32[64, 64] #6 = wgmma_wait %l {pending = 0}
  %t: f32[64, 64] #6 = for %three, %pid, %one, %l1 (%j: i32, %acc2: f32[64, 64] #6) {
    %o: f32[64, 64] #6 = wgmma %s, %s, %acc2
    %o1: f32[64, 64] #6 = wgmma_wait %o {pending = 0}
    yield %o1
  }",
    ),
    (
        "an accumulator from outside in each iteration, of which one is read in each",
        3,
        "  %t: f32[64, 64] #6 = for %pid, %three, %one, %zs (%i: i32, %acc: f32[64, 64] #6) {
    %q: f32[64, 64] #6 = wgmma %s, %s, %p1
    %q1: f32[64, 64] #6 = wgmma_wait %q {pending = 0}
    %half: f32[64, 64] #6 = sub %acc, %q1
    %o: f32[64, 64] #6 = wgmma %s, %s, %half
    %o1: f32[64, 64] #6 = wgmma_wait %o {pending = 0}
    yield %o1
  }",
    ),
    (
        "a loop that computes with its sum before it goes on",
        1,
        "  %t: f32[64, 64] #6 = for %pid, %three, %one, %p1 (%i: i32, %y: f32[64, 64] #6) {
    %m: f32[64, 64] #6 = sub %zs, %y
    %q: f32[64, 64] #6 = wgmma %s, %s, %m
    %q1: f32[64, 64] #6 = wgmma_wait %q {pending = 0}
    yield %q1
  }",
    ),
    (
        "a loop that computes with its sum at the end",
        1,
        "  %t: f32[64, 64] #6 = for %pid, %three, %one, %p1 (%i: i32, %y: f32[64, 64] #6) {
    %q: f32[64, 64] #6 = wgmma %s, %s, %y
    %q1: f32[64, 64] #6 = wgmma_wait %q {pending = 0}
    %m: f32[64, 64] #6 = sub %zs, %q1
    yield %m
  }",
    ),
    (
        "a loop in which another product goes on with the sum before and behind the one that is computed with",
        4,
        "  %t: f32[64, 64] #6 = for %pid, %three, %one, %p1 (%i: i32, %y: f32[64, 64] #6) {
    %m: f32[64, 64] #6 = sub %zs, %y
    %q: f32[64, 64] #6 = wgmma %s, %s, %m
    %o: f32[64, 64] #6 = wgmma %s, %s, %y
    %o1: f32[64, 64] #6 = wgmma_wait %o {pending = 0}
    %q1: f32[64, 64] #6 = wgmma_wait %q {pending = 0}
    %hh: f32[64, 64] #6 = sub %q1, %o1
    %rr: f32[64, 64] #6 = wgmma %s, %s, %hh
    %r1: f32[64, 64] #6 = wgmma_wait %rr {pending = 0}
    yield %q1
  }",
    ),
    (
        "a loop that computes with its sum and exchanges it with another",
        2,
        "  %a: f32[64, 64] #6, %t: f32[64, 64] #6 = for %pid, %three, %one, %p1, %zs (%i: i32, %x1: f32[64, 64] #6, %x2: f32[64, 64] #6) {
    %q: f32[64, 64] #6 = wgmma %s, %s, %x1
    %q1: f32[64, 64] #6 = wgmma_wait %q {pending = 0}
    %o: f32[64, 64] #6 = wgmma %s, %s, %x2
    %o1: f32[64, 64] #6 = wgmma_wait %o {pending = 0}
    %m1: f32[64, 64] #6 = sub %q1, %o1
    %m2: f32[64, 64] #6 = add %q1, %o1
    yield %m2, %m1
  }",
    ),
    (
        "a loop that exchanges two",
        2,
        "  %a: f32[64, 64] #6, %t: f32[64, 64] #6 = for %pid, %three, %one, %p1, %zs (%i: i32, %x1: f32[64, 64] #6, %x2: f32[64, 64] #6) {
    %q: f32[64, 64] #6 = wgmma %s, %s, %x1
    %q1: f32[64, 64] #6 = wgmma_wait %q {pending = 0}
    yield %x2, %q1
  }",
    ),
    (
        "branches of which one goes on, one leaves it, and one starts anew",
        1,
        "  %b: f32[64, 64] #6 = if %yes {
    %q: f32[64, 64] #6 = wgmma %s, %s, %p1
    %q1: f32[64, 64] #6 = wgmma_wait %q {pending = 0}
    yield %q1
  } else {
    yield %p1
  }
  %t: f32[64, 64] #6 = if %no {
    yield %zs
  } else {
    %o: f32[64, 64] #6 = wgmma %s, %s, %b
    %o1: f32[64, 64] #6 = wgmma_wait %o {pending = 0}
    yield %o1
  }",
    ),
    (
        "branches that give two results the same accumulator",
        1,
        "  %a: f32[64, 64] #6, %b: f32[64, 64] #6 = if %no {
    yield %p1, %zs
  } else {
    yield %zs, %p1
  }
  %u: f32[64, 64] #6 = add %b, %b
  %t: f32[64, 64] #6 = sub %u, %a",
    ),
    (
        "a branch that goes on beside one that is left, in a loop",
        2,
        "  %l: f32[64, 64] #6 = for %pid, %three, %one, %zs (%i: i32, %acc: f32[64, 64] #6) {
    %first: bool = cmp.eq %i, %zero
    %n: f32[64, 64] #6 = if %first {
      %q: f32[64, 64] #6 = wgmma %s, %s, %acc
      %q1: f32[64, 64] #6 = wgmma_wait %q {pending = 0}
      yield %q1
    } else {
      %o: f32[64, 64] #6 = wgmma %s, %s, %acc
      %o1: f32[64, 64] #6 = wgmma %s, %s, %o
      %o2: f32[64, 64] #6 = wgmma_wait %o1 {pending = 0}
      yield %o2
    }
    yield %n
  }
  %t: f32[64, 64] #6 = add %l, %p1",
    ),
    (
        "a loop that counts for itself",
        2,
        "  %n: i32, %t: f32[64, 64] #6 = while %pid, %p1 (%i: i32, %x1: f32[64, 64] #6) {
    %more: bool = cmp.lt %i, %two
    yield %more
  } do (%k: i32, %x2: f32[64, 64] #6) {
    %q: f32[64, 64] #6 = wgmma %s, %s, %x2
    %q1: f32[64, 64] #6 = wgmma_wait %q {pending = 0}
    %next: i32 = add %k, %one
    yield %next, %q1
  }",
    ),
];

#[test]
fn accumulators_stay_in_their_registers_or_are_copied() {
    for (name, banks, body) in ACCUMULATORS {
        let compiled = check("f16", &multiplying(body), Target::sm_90a());
        assert_eq!(count(&compiled.ptx, ".reg .b32 %acc"), banks, "{name}\n{}", compiled.ptx);
        assert!(!compiled.ptx.contains(&format!("%acc{banks}_")), "{name}");
    }
}

/// Registers that hardware still writes cannot be copied.
#[test]
fn products_in_flight_that_would_have_to_be_copied_are_refused() {
    let body = "  %a: f32[64, 64] #6, %b: f32[64, 64] #6 = for %pid, %three, %one, %p1, %zs (%i: i32, %x1: f32[64, 64] #6, %x2: f32[64, 64] #6) {
    %q: f32[64, 64] #6 = wgmma %s, %s, %x1
    yield %x2, %q
  }
  %a1: f32[64, 64] #6, %t: f32[64, 64] #6 = wgmma_wait %a, %b {pending = 0}";
    let kernel = multiplying(body);
    let error = compile_placed(&kernel, &Target::sm_90a(), &Options::default()).expect_err("the product is lost");
    assert!(error.to_string().contains("a product in flight"), "{error}");
}
