//! The vector addition of the introduction: tails, empty buffers, grids.

#![cfg(feature = "interp")]

mod interp_support;

use half::f16;
use interp_support::{bound, elements, pointers, run, try_run};
use kernel_core::interp::{FaultKind, HostBuffer};
use kernel_core::ir::{Bound, DType};

fn add(dtype: DType, block: usize) -> Bound {
    let params =
        format!("param %x x: ptr {dtype}\nparam %y y: ptr {dtype}\nparam %out out: ptr_mut {dtype}\nparam %n n: i32");
    let body = format!(
        "%pid: i32 = program_id {{axis = 0}}
         %b: i32 = const {block}
         %start: i32 = mul %pid, %b
         %starts: i32[{block}] = splat %start
         %ix: i32[{block}] = arange {{lo = 0, hi = {block}}}
         %offsets: i32[{block}] = add %starts, %ix
         %ns: i32[{block}] = splat %n
         %mask: bool[{block}] = cmp.lt %offsets, %ns
         %xs: *x[{block}] = splat %x
         %xp: *x[{block}] = add_ptr %xs, %offsets
         %xv: {dtype}[{block}] = load %xp, %mask
         %ys: *y[{block}] = splat %y
         %yp: *y[{block}] = add_ptr %ys, %offsets
         %yv: {dtype}[{block}] = load %yp, %mask
         %sum: {dtype}[{block}] = add %xv, %yv
         %outs: *out[{block}] = splat %out
         %op: *out[{block}] = add_ptr %outs, %offsets
         store %op, %sum, %mask"
    );
    bound(&params, &body)
}

#[test]
fn adds_with_ragged_tails() {
    let func = add(DType::F32, 64);
    for n in [0usize, 1, 2, 63, 64, 65, 127, 128, 997, 4096, 4097, 100_003] {
        let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
        let y: Vec<f32> = (0..n).map(|i| 0.5 - 3.0 * i as f32).collect();
        let expected: Vec<f32> = x.iter().zip(&y).map(|(a, b)| a + b).collect();
        // Two elements more than are to be written, to see that they stay.
        let out = vec![-7f32; n + 2];
        let grid = [n.div_ceil(64) as u32, 1, 1];
        let buffers = run(&func, vec![x.into(), y.into(), out.into()], &[(n as i32).into()], grid);
        let out = elements::<f32>(&buffers[2]);
        assert_eq!(out[..n], expected[..], "n = {n}");
        assert_eq!(out[n..], [-7.0, -7.0], "n = {n}");
    }
}

#[test]
fn adds_integers_wrapping_and_halves_rounding() {
    let func = add(DType::I8, 16);
    let buffers = vec![vec![100i8, -100, 1].into(), vec![100i8, -100, 2].into(), vec![0i8; 3].into()];
    let buffers = run(&func, buffers, &[3i32.into()], [1, 1, 1]);
    assert_eq!(elements::<i8>(&buffers[2]), [-56, 56, 3]);

    let func = add(DType::F16, 16);
    let [one, tiny] = [1.0, 0.0006].map(f16::from_f32);
    let buffers = vec![vec![one, one].into(), vec![tiny, one].into(), vec![f16::ZERO; 2].into()];
    let buffers = run(&func, buffers, &[2i32.into()], [1, 1, 1]);
    assert_eq!(elements::<f16>(&buffers[2]), [f16::from_f32(1.0 + 0.0009765625), f16::from_f32(2.0)]);
}

#[test]
fn a_grid_with_a_zero_runs_nothing() {
    let func = add(DType::F32, 64);
    for grid in [[0, 1, 1], [1, 0, 1], [1, 1, 0]] {
        let out = vec![3f32; 4];
        let buffers = vec![vec![1f32; 4].into(), vec![1f32; 4].into(), out.into()];
        let buffers = run(&func, buffers, &[4i32.into()], grid);
        assert_eq!(elements::<f32>(&buffers[2]), [3.0; 4]);
    }
}

#[test]
fn program_ids_and_sizes_of_a_grid_with_three_axes() {
    // out[(z * ny + y) * nx + x] = x + 10 y + 100 z + 1000 (nx + 10 ny + 100 nz), as scalars.
    let mut body = String::new();
    for (axis, name) in ["x", "y", "z"].iter().enumerate() {
        body +=
            &format!("%{name}: i32 = program_id {{axis = {axis}}}\n%n{name}: i32 = num_programs {{axis = {axis}}}\n");
    }
    body += "%ten: i32 = const 10
             %hundred: i32 = const 100
             %thousand: i32 = const 1000
             %a: i32 = mul %ten, %y
             %b: i32 = mul %hundred, %z
             %c: i32 = add %x, %a
             %id: i32 = add %b, %c
             %d: i32 = mul %ten, %ny
             %e: i32 = mul %hundred, %nz
             %f: i32 = add %nx, %d
             %g: i32 = add %e, %f
             %h: i32 = mul %g, %thousand
             %value: i32 = add %id, %h
             %i: i32 = mul %z, %ny
             %j: i32 = add %i, %y
             %k: i32 = mul %j, %nx
             %at: i32 = add %k, %x
             %p: *out = add_ptr %out, %at
             store %p, %value";
    let func = bound("param %out out: ptr_mut i32", &body);
    let (nx, ny, nz) = (5, 3, 7);
    let buffers = run(&func, vec![vec![0i32; 105].into()], &[], [nx, ny, nz]);
    let mut expected = Vec::new();
    for z in 0..7 {
        for y in 0..3 {
            for x in 0..5 {
                expected.push(x + 10 * y + 100 * z + 1000 * (5 + 30 + 700));
            }
        }
    }
    assert_eq!(elements::<i32>(&buffers[0]), expected);
}

#[test]
fn launches_that_do_not_fit_are_refused() {
    let func = add(DType::F32, 64);
    let f32s = |n| HostBuffer::from(vec![0f32; n]);
    let invalid = |buffers: Vec<HostBuffer>, scalars: &[_], grid| {
        let (_, result) = try_run(&func, buffers, scalars, grid);
        match result.map_err(|f| f.kind) {
            Err(FaultKind::InvalidLaunch { message }) => message,
            other => panic!("{other:?}"),
        }
    };
    let n = [4i32.into()];
    let message = invalid(vec![f32s(4), vec![0i32; 4].into(), f32s(4)], &n, [1, 1, 1]);
    assert_eq!(message, "parameter `y` is of f32, the argument of i32");
    let message = invalid(vec![f32s(4), f32s(4)], &n, [1, 1, 1]);
    assert_eq!(message, "parameter `out` is of f32, the argument of nothing");
    let message = invalid(vec![f32s(4), f32s(4), f32s(4)], &[4i64.into()], [1, 1, 1]);
    assert_eq!(message, "parameter `n` is of i32, the argument of i64");
    let message = invalid(vec![f32s(4), f32s(4), f32s(4)], &n, [1, 65536, 1]);
    assert_eq!(message, "the grid has 65536 programs along axis 1; at most 65535 are allowed");
    let message = invalid(vec![f32s(4), f32s(4), f32s(4), f32s(4)], &n, [1, 1, 1]);
    assert_eq!(message, "there are more arguments than parameters");
}

#[test]
fn truth_values_in_buffers() {
    // out[i] = !a[i] | b[i], with `other = true` beyond the first three.
    let mut body = pointers("pa", "a", 4) + &pointers("pb", "b", 4) + &pointers("po", "out", 4);
    body += "%three: i32 = const 3
             %threes: i32[4] = splat %three
             %mask: bool[4] = cmp.lt %pa_i, %threes
             %t: bool = const true
             %ts: bool[4] = splat %t
             %av: bool[4] = load %pa, %mask, %ts
             %bv: bool[4] = load %pb, %mask
             %na: bool[4] = not %av
             %r: bool[4] = or %na, %bv
             store %po, %r";
    let func = bound("param %a a: ptr bool\nparam %b b: ptr bool\nparam %out out: ptr_mut bool", &body);
    let a = vec![true, true, false, false];
    let b = vec![true, false, false, true];
    let buffers = run(&func, vec![a.into(), b.into(), vec![false; 4].into()], &[], [1, 1, 1]);
    assert_eq!(elements::<bool>(&buffers[2]), [true, false, true, false]);
}
