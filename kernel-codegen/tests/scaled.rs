//! Products of factors with scales, and of f32 by terms of bf16: results in the emulator, and the code.

mod support;

use kernel_codegen::{Options, Target, compile};
use kernel_core::interp::HostBuffer;
use kernel_core::num::F8E4M3;
use support::differential::{Agreement, agrees, noise, zeros};
use support::{assemble, count, kernel};

const MATMUL: &str = include_str!("kernels/scaled_matmul.tile");

fn bytes(len: usize, salt: u32) -> HostBuffer {
    noise(len, salt).map(|x| x as u8).collect::<Vec<_>>().into()
}

fn scales(len: usize, salt: u32) -> HostBuffer {
    noise(len, salt).map(|x| 126 + (x & 3) as u8).collect::<Vec<_>>().into()
}

/// Whole numbers and halves, so that every sum is exact.
fn numbers(len: usize, salt: u32) -> HostBuffer {
    noise(len, salt).map(|x| F8E4M3::from_f32((x & 7) as f32 * 0.5 - 1.5)).collect::<Vec<_>>().into()
}

#[test]
fn factors_and_scales_of_a_loop() {
    let k = 256;
    let buffers =
        [numbers(64 * k, 1), scales(64 * k / 32, 2), bytes(64 * k / 2, 3), scales(64 * k / 32, 4), zeros(64 * 64)];
    agrees(&kernel(MATMUL), &buffers, &[k as i32], 1, Agreement::Exact);
}

#[test]
fn scaled_factors_take_matrix_instructions_and_run_ahead() {
    for (target, num_warps, instruction) in [
        (Target::sm_90a(), 4, "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16"),
        (Target::sm_90a(), 2, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"),
        (Target::sm_80(), 4, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"),
        (Target::sm_89(), 8, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"),
    ] {
        let options = Options { num_warps, num_stages: 3, ..Options::default() };
        let compiled = compile(&kernel(MATMUL), &target, &options).unwrap_or_else(|error| panic!("{error}"));
        assert!(count(&compiled.ptx, instruction) > 0, "{}", compiled.ptx);
        assert!(count(&compiled.ptx, "cp.async.c") > 0, "{}", compiled.report());
        assert!(assemble(&compiled).is_none_or(|assembled| assembled.spill_bytes == 0), "{}", compiled.report());
    }
}

/// A product of f32 in a loop, `[64, 32]` times `[32, 64]`.
fn split(precision: &str) -> String {
    format!(
        "kernel split \"split.rs\" unsafe bound {{
  param %a a: ptr f32 {{div = 16}}
  param %out out: ptr_mut f32 {{div = 16}}
  param %k k: i32 {{div = 32}}
  %zero: i32 = const 0
  %step: i32 = const 32
  %r: i32[64] = arange {{lo = 0, hi = 64}}
  %c: i32[32] = arange {{lo = 0, hi = 32}}
  %r1: i32[64, 1] = expand_dims %r {{axis = 1}}
  %c1: i32[1, 32] = expand_dims %c {{axis = 0}}
  %ks: i32[64, 1] = splat %k
  %rk: i32[64, 1] = mul %r1, %ks
  %f: f32 = const 0.0
  %none: f32[64, 64] = splat %f
  %sum: f32[64, 64] = for %zero, %k, %step, %none (%i: i32, %acc: f32[64, 64]) {{
    %is: i32[1, 32] = splat %i
    %ic: i32[1, 32] = add %is, %c1
    %icb: i32[64, 32] = broadcast %ic
    %rkb: i32[64, 32] = broadcast %rk
    %o: i32[64, 32] = add %rkb, %icb
    %a0: *a[64, 32] = splat %a
    %ap: *a[64, 32] = add_ptr %a0, %o
    %x: f32[64, 32] = load %ap
    %y: f32[32, 64] = permute %x {{perm = [1, 0]}}
    %d: f32[64, 64] = dot %x, %y, %acc {{precision = {precision}}}
    yield %d
  }}
  %all: i32[4096] = arange {{lo = 0, hi = 4096}}
  %at: i32[64, 64] = reshape %all
  %o0: *out[64, 64] = splat %out
  %op: *out[64, 64] = add_ptr %o0, %at
  store %op, %sum
  return
}}"
    )
}

#[test]
fn terms_of_bf16_in_a_loop() {
    let k = 96;
    for precision in ["bf16x3", "bf16x6"] {
        let kernel = kernel(&split(precision));
        // Numbers of 16 bits, which three products do not multiply exactly.
        let values: Vec<f32> = noise(64 * k, 7).map(|x| (x & 0xffff) as f32 / 65536.0 + 0.5).collect();
        let buffers = [values.into(), zeros(64 * 64)];
        agrees(&kernel, &buffers, &[k as i32], 1, Agreement::Within(98.0 * f64::powi(2.0, -23)));
    }
    for (precision, products) in [("bf16x3", 3), ("bf16x6", 6)] {
        let options = Options { num_warps: 4, ..Options::default() };
        let compiled = compile(&kernel(&split(precision)), &Target::sm_90a(), &options);
        let compiled = compiled.unwrap_or_else(|error| panic!("{error}"));
        let instruction = "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16";
        // Two instructions each, for 32 along K.
        assert_eq!(count(&compiled.ptx, instruction), 2 * products, "{}", compiled.ptx);
        assert!(assemble(&compiled).is_none_or(|assembled| assembled.spill_bytes == 0), "{}", compiled.report());
    }
}
