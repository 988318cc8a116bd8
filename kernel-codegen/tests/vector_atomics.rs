//! Floats that are added to memory where nobody asks what was there go in vectors.

mod support;

use kernel_codegen::report::Narrow;
use kernel_codegen::{Options, Target, compile};
use kernel_core::interp::HostBuffer;
use kernel_core::ir::Bound;
use support::differential::{Agreement, agrees, floats};

/// Adds `x[i]` to `out[i]` for 1024 numbers a program, of those below `n`, which is a multiple of `div`. `old` is what becomes
/// of the numbers that were there.
fn add(dtype: &str, div: u32, order: &str, old: &str) -> Bound {
    support::kernel(&format!(
        "kernel add \"add.rs\" unsafe bound {{
          param %x x: ptr {dtype} {{div = 16}}
          param %out out: ptr_mut {dtype} {{div = 16}}
          param %n n: i32 {{div = {div}}}
          %pid: i32 = program_id {{axis = 0}}
          %size: i32 = const 1024
          %first: i32 = mul %pid, %size
          %firsts: i32[1024] = splat %first
          %range: i32[1024] = arange {{lo = 0, hi = 1024}}
          %i: i32[1024] = add %firsts, %range
          %ns: i32[1024] = splat %n
          %mask: bool[1024] = cmp.lt %i, %ns
          %xs: *x[1024] = splat %x
          %xp: *x[1024] = add_ptr %xs, %i
          %v: {dtype}[1024] = load %xp, %mask
          %os: *out[1024] = splat %out
          %op: *out[1024] = add_ptr %os, %i
          %old: {dtype}[1024] = atomic_rmw %op, %v, %mask {{op = add, order = {order}, scope = device}} @7:3+4
          {old}
          return
        }}"
    ))
}

/// Eighths, whose sums are exact in 16 bits.
fn eighths(len: usize, salt: u32) -> Vec<f32> {
    support::differential::noise(len, salt).map(|x| (x % 64) as f32 / 8.0).collect()
}

#[test]
fn vectors_are_added_as_elements_are() {
    for (n, div) in [(2048, 16), (2000, 16), (1037, 1)] {
        let buffers = [floats(2048, 1), floats(2048, 2)];
        agrees(&add("f32", div, "relaxed", ""), &buffers, &[n], 2, Agreement::Exact);
        let halves = |salt| eighths(2048, salt).into_iter().map(half::f16::from_f32).collect::<Vec<_>>();
        let buffers: [HostBuffer; 2] = [halves(3).into(), halves(4).into()];
        agrees(&add("f16", div, "release", ""), &buffers, &[n], 2, Agreement::Exact);
        let short = |salt| eighths(2048, salt).into_iter().map(half::bf16::from_f32).collect::<Vec<_>>();
        let buffers: [HostBuffer; 2] = [short(5).into(), short(6).into()];
        agrees(&add("bf16", div, "relaxed", ""), &buffers, &[n], 2, Agreement::Exact);
    }
}

#[test]
fn an_addition_is_as_wide_as_16_bytes() {
    let options = Options { num_warps: 4, ..Options::default() };
    let cases = [
        ("f32", 16, "relaxed", "red.relaxed.gpu.global.add.v4.f32", 16),
        ("f32", 2, "relaxed", "red.relaxed.gpu.global.add.v2.f32", 8),
        ("f16", 16, "release", "red.release.gpu.global.add.noftz.v4.f16x2", 16),
        ("bf16", 16, "relaxed", "red.relaxed.gpu.global.add.noftz.v4.bf16x2", 16),
        ("bf16", 2, "relaxed", "red.relaxed.gpu.global.add.noftz.bf16x2", 4),
    ];
    for (dtype, div, order, instruction, bytes) in cases {
        let compiled = compile(&add(dtype, div, order, ""), &Target::sm_90a(), &options).expect("it compiles");
        assert!(compiled.ptx.contains(&format!("{instruction} ")), "{instruction}\n{}", compiled.ptx);
        assert!(compiled.ptx.contains(".version 8.1"), "{}", compiled.ptx);
        let access = compiled.report().accesses.into_iter().find(|access| access.span.line == 7).expect("an access");
        assert_eq!(access.bytes, bytes, "{dtype} {div}");
    }
}

/// Elements go one by one where somebody asks what was there or waits for the addition, where the mask may end anywhere, on
/// what is no float of up to 32 bits, and on older GPUs.
#[test]
fn other_additions_go_one_by_one() {
    let options = Options { num_warps: 4, ..Options::default() };
    let hopper = Target::sm_90a();
    let cases = [
        ("f32", 16, "relaxed", "store %op, %old, %mask", hopper),
        ("f32", 16, "acq_rel", "", hopper),
        ("f32", 16, "acquire", "", hopper),
        ("f32", 1, "relaxed", "", hopper),
        ("f64", 16, "relaxed", "", hopper),
        ("i32", 16, "relaxed", "", hopper),
        ("f32", 16, "relaxed", "", Target::sm_89()),
    ];
    for (dtype, div, order, old, target) in cases {
        let compiled = compile(&add(dtype, div, order, old), &target, &options).expect("it compiles");
        let what = format!("{dtype} {div} {order} {old} {}", target.name());
        assert!(compiled.ptx.contains("atom.") && !compiled.ptx.contains("red."), "{what}\n{}", compiled.ptx);
        assert!(!compiled.ptx.contains(".version 8.1"), "{what}");
        let access = compiled.report().accesses.into_iter().find(|access| access.span.line == 7).expect("an access");
        let why = if div == 1 { Narrow::Mask(1) } else { Narrow::Atomic };
        assert_eq!(access.narrow, Some(why), "{what}");
    }
}
