//! Shared memory that the lowering takes for its own exchanges is taken again only when all have read it.

mod support;

use support::differential::ints;
use support::written::{check, placed};

/// 512 elements of 128 threads in two ways, of which each warp has others; and how they lie in shared memory, the
/// last bits of their number first, so that nobody stores where it has read.
const QUADS: &str = "register [1] [2], lane [4] [8] [16] [32] [64], warp [128] [256] -> dim0 512";
const APART: &str = "register [128] [256], lane [1] [2] [4] [8] [16], warp [32] [64] -> dim0 512";
const TURNED: &str = "offset [256] [128] [64] [32] [16] [8] [4] [2] [1] -> dim0 512";
/// 64 elements, of which each is held by two of 128 threads.
const HELD_TWICE: &str = "register, lane [1] [2] [4] [8] [16], warp [32] [0] -> dim0 64";

/// An allocation begins where a conversion before it has passed elements on, which some threads have not read yet.
#[test]
fn allocations_wait_for_conversions_before_them() {
    let body = "  %i: i32[512] #0 = arange {lo = 0, hi = 512}
  %xs: *x[512] #0 = splat %x
  %xp: *x[512] #0 = add_ptr %xs, %i
  %v: i32[512] #0 = load %xp
  %w: i32[512] #1 = convert_layout %v
  %twice: i32[512] #1 = add %w, %w
  %s: shared i32[512] #2 = shared_alloc
  shared_store %s, %twice
  %r: i32[512] #1 = shared_load %s
  %sum: i32[512] #1 = add %r, %w
  %j: i32[512] #1 = arange {lo = 0, hi = 512}
  %os: *out[512] #1 = splat %out
  %op: *out[512] #1 = add_ptr %os, %j
  store %op, %sum";
    let kernel = placed(&["%x x: ptr i32", "%out out: ptr_mut i32"], &[QUADS, APART, TURNED], body);
    check(&kernel, 4, &[ints(512, 1), vec![0i32; 512].into()]);
}

/// Numbers that steer control are read by the first thread, which passes one after the other on.
#[test]
fn what_the_first_thread_knows_is_read_before_the_next_comes() {
    let body = "  %zero: i32 = const 0
  %one: i32 = const 1
  %ten: i32 = const 10
  %x1: *x = add_ptr %x, %one
  %x2: *x = add_ptr %x1, %one
  %a: i32 = load %x
  %b: i32 = load %x1
  %c: i32 = load %x2
  %b10: i32 = mul %b, %ten
  %ab: i32 = add %a, %b10
  %c10: i32 = mul %c, %ten
  %c100: i32 = mul %c10, %ten
  %abc: i32 = add %ab, %c100
  %more: bool = cmp.gt %abc, %zero
  if %more {
    %i: i32[512] #0 = arange {lo = 0, hi = 512}
    %all: i32[512] #0 = splat %abc
    %os: *out[512] #0 = splat %out
    %op: *out[512] #0 = add_ptr %os, %i
    store %op, %all
    yield
  } else {
    yield
  }";
    let kernel = placed(&["%x x: ptr_mut i32", "%out out: ptr_mut i32"], &[QUADS], body);
    check(&kernel, 4, &[vec![3i32, 5, 7].into(), vec![0i32; 512].into()]);
}

/// Of two threads that hold an element, one does the atomic and tells the other what was there.
#[test]
fn what_owners_know_is_read_before_the_next_comes() {
    let body = "  %i: i32[64] #0 = arange {lo = 0, hi = 64}
  %xs: *x[64] #0 = splat %x
  %xp: *x[64] #0 = add_ptr %xs, %i
  %ys: *y[64] #0 = splat %y
  %yp: *y[64] #0 = add_ptr %ys, %i
  %a: i32[64] #0 = atomic_rmw %xp, %i {op = add, order = relaxed, scope = device}
  %b: i32[64] #0 = atomic_rmw %yp, %i {op = add, order = relaxed, scope = device}
  %far: i32 = const 4096
  %fars: i32[64] #0 = splat %far
  %high: i32[64] #0 = mul %a, %fars
  %both: i32[64] #0 = add %high, %b
  %wide: i32[64] #1 = convert_layout %both
  %j: i32[64] #1 = arange {lo = 0, hi = 64}
  %os: *out[64] #1 = splat %out
  %op: *out[64] #1 = add_ptr %os, %j
  store %op, %wide";
    // Those who did not do the atomics store what they were told.
    let others = "register, lane [1] [2] [4] [8] [16], warp [0] [32] -> dim0 64";
    let params = ["%x x: ptr_mut i32", "%y y: ptr_mut i32", "%out out: ptr_mut i32"];
    let kernel = placed(&params, &[HELD_TWICE, others], body);
    check(&kernel, 4, &[ints(64, 2), ints(64, 3), vec![0i32; 64].into()]);
}
