//! Reductions and scans: every axis, ties, NaN, rounding, and regions of every kind.

#![cfg(feature = "interp")]

mod interp_support;

use half::f16;
use interp_support::{bound, elements, fault, pointers, run, try_run};
use kernel_core::interp::{FaultKind, HostBuffer};
use kernel_core::ir::DType;

/// Loads the tile `%x` of the shape from `x`, whose elements lie in row-major order, runs `body`, and stores
/// `%r` of `out_n` elements, a tile of rank 1, to `out`.
fn fold(x: HostBuffer, shape: &str, body: &str, result: DType, out_n: usize) -> HostBuffer {
    let (n, dtype) = (x.len(), x.dtype());
    let full = pointers("p", "xp", n)
        + &pointers("q", "out", out_n)
        + &format!("%flat: {dtype}[{n}] = load %p\n%x: {dtype}[{shape}] = reshape %flat\n{body}\nstore %q, %r\n");
    let func = bound(&format!("param %xp xp: ptr {dtype}\nparam %out out: ptr_mut {result}"), &full);
    run(&func, vec![x, HostBuffer::zeros(result, out_n)], &[], [1, 1, 1]).pop().expect("two buffers")
}

#[test]
fn sums_along_every_axis() {
    let x: Vec<i32> = (0..64).map(|i| i * i - 100).collect();
    let at = |i: usize, j: usize, k: usize| x[(i * 4 + j) * 8 + k];
    let sum = |axis: usize, kept: &str, n: usize| {
        let body = format!(
            "%s: i32[{kept}] = reduce %x {{axis = {axis}}} (%a: i32, %b: i32) {{
               %c: i32 = add %a, %b
               yield %c
             }}
             %r: i32[{n}] = reshape %s"
        );
        elements::<i32>(&fold(x.clone().into(), "2, 4, 8", &body, DType::I32, n))
    };
    let want: Vec<i32> =
        (0..4).flat_map(|j| (0..8).map(move |k| (j, k))).map(|(j, k)| at(0, j, k) + at(1, j, k)).collect();
    assert_eq!(sum(0, "4, 8", 32), want);
    let want: Vec<i32> = (0..16).map(|ik| (0..4).map(|j| at(ik / 8, j, ik % 8)).sum()).collect();
    assert_eq!(sum(1, "2, 8", 16), want);
    let want: Vec<i32> = (0..8).map(|ij| (0..8).map(|k| at(ij / 4, ij % 4, k)).sum()).collect();
    assert_eq!(sum(2, "2, 4", 8), want);
}

#[test]
fn sums_to_a_scalar_and_over_one_element() {
    let body = "%s: f32 = reduce %x {axis = 0} (%a: f32, %b: f32) {
          %c: f32 = add %a, %b
          yield %c
        }
        %r: f32[2] = splat %s";
    let x: Vec<f32> = (1..=128).map(|i| i as f32).collect();
    assert_eq!(elements::<f32>(&fold(x.into(), "128", body, DType::F32, 2)), [8256.0; 2]);
    assert_eq!(elements::<f32>(&fold(vec![5f32].into(), "1", body, DType::F32, 2)), [5.0; 2]);
}

#[test]
fn long_sums_are_accurate() {
    // A chain of f32 additions of 2^20 copies of 0.1 is off by 0.1 %; a balanced tree is off by rounding alone.
    let body = "%s: f32 = reduce %x {axis = 0} (%a: f32, %b: f32) {
          %c: f32 = add %a, %b
          yield %c
        }
        %r: f32[1] = splat %s";
    let n = 1 << 20;
    let got = elements::<f32>(&fold(vec![0.1f32; n].into(), "1048576", body, DType::F32, 1))[0];
    assert_eq!(got, 0.1f32 * n as f32);
    // f16 accumulates in f32: 4096 ones exceed what f16 can count to one by one.
    let half = vec![f16::from_f32(1.0); 4096];
    let body = body.replace("f32", "f16");
    let got = elements::<f16>(&fold(half.into(), "4096", &body, DType::F16, 1))[0];
    assert_eq!(got, f16::from_f32(4096.0));
}

#[test]
fn minimum_and_maximum_along_an_axis() {
    let x = vec![3f32, f32::NAN, -1.0, 8.0, f32::NAN, f32::NAN, 2.0, 5.0];
    let reduce = |op: &str| {
        let body = format!(
            "%r: f32[2] = reduce %x {{axis = 1}} (%a: f32, %b: f32) {{
               %c: f32 = {op} %a, %b
               yield %c
             }}"
        );
        elements::<f32>(&fold(x.clone().into(), "2, 4", &body, DType::F32, 2))
    };
    assert_eq!(reduce("maximum"), [8.0, 5.0]);
    assert_eq!(reduce("minimum"), [-1.0, 2.0]);
    assert!(reduce("maximum_nan").iter().all(|x| x.is_nan()));
}

/// The index of the largest element, the left-most of several, as the front end writes it.
fn argmax(n: &str, axis: u8, kept: &str, branch: bool) -> String {
    let choose = if branch {
        "%v: f32, %i: i32 = if %left {
           yield %av, %ai
         } else {
           yield %bv, %bi
         }"
    } else {
        "%v: f32 = select %left, %av, %bv
         %i: i32 = select %left, %ai, %bi"
    };
    format!(
        "%ix: i32[{n}] = arange {{lo = 0, hi = {n}}}
         %ixe: i32[1, {n}] = expand_dims %ix {{axis = 0}}
         %ixb: i32[4, {n}] = broadcast %ixe
         %max: f32[{kept}], %r: i32[{kept}] = reduce %x, %ixb {{axis = {axis}}} (%av: f32, %ai: i32, %bv: f32, %bi: i32) {{
           %gt: bool = cmp.gt %av, %bv
           %eq: bool = cmp.eq %av, %bv
           %lower: bool = cmp.lt %ai, %bi
           %tie: bool = and %eq, %lower
           %left: bool = or %gt, %tie
           {choose}
           yield %v, %i
         }}"
    )
}

#[test]
fn argmax_gives_the_left_most_of_equals() {
    let mut x = vec![0f32; 4 * 64];
    for (row, positions) in [[5usize, 37, 60], [0, 32, 63], [31, 32, 33], [62, 62, 63]].iter().enumerate() {
        for &p in positions {
            x[row * 64 + p] = 9.0;
        }
    }
    for branch in [false, true] {
        let got = fold(x.clone().into(), "4, 64", &argmax("64", 1, "4", branch), DType::I32, 4);
        assert_eq!(elements::<i32>(&got), [5, 0, 31, 62], "branch: {branch}");
    }
}

#[test]
fn regions_may_swap_capture_and_ignore() {
    // (a, b) -> (b's second, a's first) has no meaning as a reduction of many, but of two elements it is exact:
    // it shows that results are written after all arguments are read.
    let body = "%k: f32 = const 10.0
        %y: f32[2] = add %x, %x
        %u: f32, %v: f32 = reduce %x, %y {axis = 0} (%a0: f32, %a1: f32, %b0: f32, %b1: f32) {
          %s: f32 = mul %k, %b0
          yield %b1, %s
        }
        %us: f32[1] = splat %u
        %vs: f32[1] = splat %v
        %r: f32[1] = add %us, %vs";
    // x = [1, 2], y = [2, 4]: u = 4, v = 20.
    assert_eq!(elements::<f32>(&fold(vec![1f32, 2.0].into(), "2", body, DType::F32, 1)), [24.0]);
    let swap = "%y: f32[4] = add %x, %x
        %u: f32, %v: f32 = reduce %x, %y {axis = 0} (%a0: f32, %a1: f32, %b0: f32, %b1: f32) {
          yield %a1, %a0
        }
        %us: f32[1] = splat %u
        %hundred: f32 = const 100.0
        %h: f32 = mul %hundred, %v
        %hs: f32[1] = splat %h
        %r: f32[1] = add %us, %hs";
    // Element 0 survives, swapped twice: (1, 2).
    assert_eq!(elements::<f32>(&fold(vec![1f32, 5.0, 6.0, 7.0].into(), "4", swap, DType::F32, 1)), [201.0]);
}

#[test]
fn regions_with_loops_run_element_by_element() {
    // The greatest common divisor by Euclid's algorithm.
    let body = "%zero: i32 = const 0
        %r: i32[2] = reduce %x {axis = 1} (%a: i32, %b: i32) {
          %g: i32, %z: i32 = while %a, %b (%m0: i32, %n0: i32) {
            %go: bool = cmp.ne %n0, %zero
            yield %go
          } do (%m1: i32, %n1: i32) {
            %m: i32 = rem %m1, %n1
            yield %n1, %m
          }
          yield %g
        }";
    let x = vec![12i32, 18, 30, 60, 35, 49, 14, 21];
    assert_eq!(elements::<i32>(&fold(x.into(), "2, 4", body, DType::I32, 2)), [6, 7]);
}

#[test]
fn an_assert_in_a_region_ends_the_program() {
    let body = pointers("p", "x", 4)
        + "%v: i32[4] = load %p
           %ten: i32 = const 10
           %s: i32 = reduce %v {axis = 0} (%a: i32, %b: i32) {
             %c: i32 = add %a, %b
             %small: bool = cmp.lt %c, %ten
             assert %small {message = \"too large\"}
             yield %c
           }
           store %x, %s";
    let func = bound("param %x x: ptr_mut i32", &body);
    let (buffers, result) = try_run(&func, vec![vec![1i32, 2, 3, 4].into()], &[], [1, 1, 1]);
    assert_eq!(fault(result), FaultKind::Assert { message: "too large".to_string() });
    assert_eq!(elements::<i32>(&buffers[0]), [1, 2, 3, 4]);
    let (buffers, result) = try_run(&func, vec![vec![1i32, 2, 3, 0].into()], &[], [1, 1, 1]);
    assert_eq!((elements::<i32>(&buffers[0])[0], result), (6, Ok(())));
}

#[test]
fn scans_along_both_axes_and_backwards() {
    let x: Vec<i32> = (0..32).map(|i| (i * 7) % 11 - 3).collect();
    let scan = |axis: usize, reverse: bool| {
        let body = format!(
            "%s: i32[4, 8] = scan %x {{axis = {axis}, reverse = {reverse}}} (%a: i32, %b: i32) {{
               %c: i32 = add %a, %b
               yield %c
             }}
             %r: i32[32] = reshape %s"
        );
        elements::<i32>(&fold(x.clone().into(), "4, 8", &body, DType::I32, 32))
    };
    for reverse in [false, true] {
        let (mut rows, mut columns) = (x.clone(), x.clone());
        for step in 1..8 {
            let (to, from) = if reverse { (7 - step, 8 - step) } else { (step, step - 1) };
            (0..4).for_each(|i| rows[i * 8 + to] += rows[i * 8 + from]);
        }
        for step in 1..4 {
            let (to, from) = if reverse { (3 - step, 4 - step) } else { (step, step - 1) };
            (0..8).for_each(|j| columns[to * 8 + j] += columns[from * 8 + j]);
        }
        assert_eq!(scan(1, reverse), rows, "reverse: {reverse}");
        assert_eq!(scan(0, reverse), columns, "reverse: {reverse}");
    }
}

#[test]
fn scans_of_what_does_not_commute() {
    // Affine maps x -> m x + k composed in order, wrapping: the classic linear recurrence.
    let body = "%ones_s: i32 = const 1
        %two: i32 = const 2
        %twos: i32[16] = splat %two
        %p0: i32[16], %r: i32[16] = scan %twos, %x {axis = 0, reverse = false} (%am: i32, %ak: i32, %bm: i32, %bk: i32) {
          %m: i32 = mul %am, %bm
          %t: i32 = mul %ak, %bm
          %k: i32 = add %t, %bk
          yield %m, %k
        }";
    let x: Vec<i32> = (0..16).map(|i| i * i - 5).collect();
    let mut h = 0i32;
    let want: Vec<i32> = x
        .iter()
        .map(|&k| {
            h = h.wrapping_mul(2).wrapping_add(k);
            h
        })
        .collect();
    assert_eq!(elements::<i32>(&fold(x.into(), "16", body, DType::I32, 16)), want);
}

#[test]
fn scans_of_halves_accumulate_in_f32() {
    let body = "%r: f16[4096] = scan %x {axis = 0, reverse = false} (%a: f16, %b: f16) {
          %c: f16 = add %a, %b
          yield %c
        }";
    let got = elements::<f16>(&fold(vec![f16::from_f32(1.0); 4096].into(), "4096", body, DType::F16, 4096));
    for (i, x) in got.iter().enumerate() {
        assert_eq!(*x, f16::from_f32(i as f32 + 1.0));
    }
}

#[test]
fn softmax_of_rows() {
    let (rows, cols, block) = (37usize, 200usize, 256usize);
    let body = format!(
        "%row: i32 = program_id {{axis = 0}}
         %start: i32 = mul %row, %cols
         %ix: i32[{block}] = arange {{lo = 0, hi = {block}}}
         %cs: i32[{block}] = splat %cols
         %mask: bool[{block}] = cmp.lt %ix, %cs
         %xr: *x = add_ptr %x, %start
         %xs: *x[{block}] = splat %xr
         %xp: *x[{block}] = add_ptr %xs, %ix
         %ninf: f32 = const -inf
         %ninfs: f32[{block}] = splat %ninf
         %v: f32[{block}] = load %xp, %mask, %ninfs
         %max: f32 = reduce %v {{axis = 0}} (%a: f32, %b: f32) {{
           %c: f32 = maximum %a, %b
           yield %c
         }}
         %maxs: f32[{block}] = splat %max
         %d: f32[{block}] = sub %v, %maxs
         %e: f32[{block}] = exp %d
         %sum: f32 = reduce %e {{axis = 0}} (%a2: f32, %b2: f32) {{
           %c2: f32 = add %a2, %b2
           yield %c2
         }}
         %sums: f32[{block}] = splat %sum
         %q: f32[{block}] = div %e, %sums
         %or: *out = add_ptr %out, %start
         %os: *out[{block}] = splat %or
         %op: *out[{block}] = add_ptr %os, %ix
         store %op, %q, %mask"
    );
    let func = bound("param %x x: ptr f32\nparam %out out: ptr_mut f32\nparam %cols cols: i32", &body);
    let x: Vec<f32> = (0..rows * cols).map(|i| ((i * 2654435761) % 1000) as f32 / 100.0 - 5.0).collect();
    let buffers = vec![x.clone().into(), vec![0f32; rows * cols].into()];
    let buffers = run(&func, buffers, &[(cols as i32).into()], [rows as u32, 1, 1]);
    let got = elements::<f32>(&buffers[1]);
    for row in 0..rows {
        let x = &x[row * cols..][..cols];
        let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let e: Vec<f64> = x.iter().map(|&x| f64::from(x - max).exp()).collect();
        let sum: f64 = e.iter().sum();
        for (e, got) in e.iter().zip(&got[row * cols..]) {
            // exp of -10 to 0 is within 2 + 1.25 · 10 ulp of at most 2^-23, the sum of positive numbers within as much
            // and 8 roundings, the quotient within half an ulp: less than 40 of 2^-23 together.
            let want = e / sum;
            assert!((f64::from(*got) - want).abs() <= 40.0 * 2f64.powi(-23) * want, "{got} {want}");
        }
    }
}
