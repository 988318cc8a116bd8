//! Loops, branches and what they carry.

#![cfg(feature = "interp")]

mod interp_support;

use interp_support::{bound, elements, fault, pointers, run, try_run};
use kernel_core::interp::FaultKind;
use kernel_core::ir::Bound;

/// Runs `for` over i32 bounds; returns the indices in the order that they come in.
fn indices(lo: i32, hi: i32, step: i32, reverse: bool) -> Vec<i32> {
    let body = format!(
        "%zero: i32 = const 0
         %one: i32 = const 1
         %count: i32 = for %lo, %hi, %step, %zero {{reverse = {reverse}}} (%i: i32, %k: i32) {{
           %p: *out = add_ptr %out, %k
           store %p, %i
           %next: i32 = add %k, %one
           yield %next
         }}
         %len: i32 = const 31
         %q: *out = add_ptr %out, %len
         store %q, %count"
    );
    let func = bound("param %out out: ptr_mut i32\nparam %lo lo: i32\nparam %hi hi: i32\nparam %step step: i32", &body);
    let buffers = run(&func, vec![vec![0i32; 32].into()], &[lo.into(), hi.into(), step.into()], [1, 1, 1]);
    let out = elements::<i32>(&buffers[0]);
    out[..out[31] as usize].to_vec()
}

#[test]
fn for_loops_run_through_what_rust_ranges_do() {
    for (lo, hi, step) in
        [(0, 5, 1), (0, 10, 3), (-7, 8, 4), (-9, -3, 2), (3, 4, 100), (0, 30, 1), (2, 9, 7), (2, 10, 7)]
    {
        let want: Vec<i32> = (lo..hi).step_by(step as usize).collect();
        assert_eq!(indices(lo, hi, step, false), want, "{lo}..{hi} by {step}");
        let reversed: Vec<i32> = want.into_iter().rev().collect();
        assert_eq!(indices(lo, hi, step, true), reversed, "{lo}..{hi} by {step}, reversed");
    }
}

#[test]
fn for_loops_that_never_run() {
    for (lo, hi, step) in [(0, 0, 1), (5, 3, 1), (0, 5, 0), (0, 5, -1), (i32::MAX, i32::MIN, 1)] {
        assert_eq!(indices(lo, hi, step, false), [], "{lo}..{hi} by {step}");
        assert_eq!(indices(lo, hi, step, true), [], "{lo}..{hi} by {step}, reversed");
    }
}

#[test]
fn for_loops_near_the_ends_of_i32_do_not_wrap() {
    assert_eq!(indices(i32::MAX - 2, i32::MAX, 1, false), [i32::MAX - 2, i32::MAX - 1]);
    assert_eq!(indices(i32::MAX - 5, i32::MAX, 4, false), [i32::MAX - 5, i32::MAX - 1]);
    assert_eq!(indices(i32::MIN, i32::MAX, i32::MAX, false), [i32::MIN, -1, i32::MAX - 1]);
    assert_eq!(indices(i32::MIN, i32::MAX, i32::MAX, true), [i32::MAX - 1, -1, i32::MIN]);
    assert_eq!(indices(i32::MIN, i32::MIN + 3, 2, true), [i32::MIN + 2, i32::MIN]);
}

#[test]
fn for_loops_over_other_integers() {
    // The sum of `lo..hi` over u64 beyond the range of i64, and over i8 where `hi + step` would wrap.
    for (dtype, lo, hi, step, want) in [
        ("u64", "18446744073709551610", "18446744073709551615", "2", u64::MAX - 11),
        ("i8", "100", "127", "20", 100 + 120),
        ("u8", "250", "255", "4", (250 + 254) & 0xff),
    ] {
        let want = if dtype == "i8" { u64::from((220u64 as u8 as i8) as u8) } else { want };
        let body = format!(
            "%lo: {dtype} = const {lo}
             %hi: {dtype} = const {hi}
             %step: {dtype} = const {step}
             %zero: {dtype} = const 0
             %sum: {dtype} = for %lo, %hi, %step, %zero (%i: {dtype}, %s: {dtype}) {{
               %next: {dtype} = add %s, %i
               yield %next
             }}
             store %out, %sum"
        );
        let func = bound(&format!("param %out out: ptr_mut {dtype}"), &body);
        let dtype = kernel_core::ir::DType::from_name(dtype).expect("a dtype");
        let buffers = run(&func, vec![kernel_core::interp::HostBuffer::zeros(dtype, 1)], &[], [1, 1, 1]);
        let got = match &buffers[0] {
            kernel_core::interp::HostBuffer::U64(v) => v[0],
            kernel_core::interp::HostBuffer::I8(v) => u64::from(v[0] as u8),
            kernel_core::interp::HostBuffer::U8(v) => u64::from(v[0]),
            other => panic!("{other:?}"),
        };
        assert_eq!(got, want, "{dtype}");
    }
}

#[test]
fn loops_carry_tiles_and_swap_them() {
    // Fibonacci numbers, lane i starting at (i, 1): (a, b) = (b, a + b), which needs moves as if at once.
    let body = pointers("p", "out", 8)
        + "%ones_s: i32 = const 1
           %b0: i32[8] = splat %ones_s
           %lo: i32 = const 0
           %a: i32[8], %b: i32[8] = for %lo, %n, %ones_s, %p_i, %b0 (%i: i32, %x: i32[8], %y: i32[8]) {
             %z: i32[8] = add %x, %y
             yield %y, %z
           }
           store %p, %a";
    let func = bound("param %out out: ptr_mut i32\nparam %n n: i32", &body);
    for n in [0, 1, 2, 7] {
        let buffers = run(&func, vec![vec![0i32; 8].into()], &[n.into()], [1, 1, 1]);
        let want: Vec<i32> = (0..8)
            .map(|i| {
                let (mut a, mut b) = (i, 1);
                for _ in 0..n {
                    (a, b) = (b, a + b);
                }
                a
            })
            .collect();
        assert_eq!(elements::<i32>(&buffers[0]), want, "n = {n}");
    }
}

#[test]
fn loops_swap_dense_tiles() {
    // Swapping loaded (not symbolic) tiles an odd number of times.
    let body = pointers("p", "a", 8)
        + &pointers("q", "b", 8)
        + "%lo: i32 = const 0
           %one: i32 = const 1
           %av: f32[8] = load %p
           %bv: f32[8] = load %q
           %x: f32[8], %y: f32[8] = for %lo, %n, %one, %av, %bv (%i: i32, %u: f32[8], %v: f32[8]) {
             yield %v, %u
           }
           store %p, %x
           store %q, %y";
    let func = bound("param %a a: ptr_mut f32\nparam %b b: ptr_mut f32\nparam %n n: i32", &body);
    let buffers = run(&func, vec![vec![1f32; 8].into(), vec![2f32; 8].into()], &[3i32.into()], [1, 1, 1]);
    assert_eq!(elements::<f32>(&buffers[0]), [2.0; 8]);
    assert_eq!(elements::<f32>(&buffers[1]), [1.0; 8]);
}

#[test]
fn while_loops_carry_tiles() {
    // Doubles a tile until the count is reached: a collatz-like count of steps beside it.
    let body = pointers("p", "out", 4)
        + "%one: i32 = const 1
           %two: i32 = const 2
           %three: i32 = const 3
           %zero: i32 = const 0
           %steps: i32, %last: i32, %tile: i32[4] = while %zero, %n, %p_i (%k: i32, %m: i32, %t: i32[4]) {
             %go: bool = cmp.ne %m, %one
             yield %go
           } do (%k2: i32, %m2: i32, %t2: i32[4]) {
             %k3: i32 = add %k2, %one
             %odd: i32 = rem %m2, %two
             %is_odd: bool = cmp.eq %odd, %one
             %m3: i32 = if %is_odd {
               %x: i32 = mul %m2, %three
               %y: i32 = add %x, %one
               yield %y
             } else {
               %x2: i32 = div %m2, %two
               yield %x2
             }
             %t3: i32[4] = add %t2, %t2
             yield %k3, %m3, %t3
           }
           %ss: i32[4] = splat %steps
           %sum: i32[4] = add %ss, %tile
           store %p, %sum";
    let func = bound("param %out out: ptr_mut i32\nparam %n n: i32", &body);
    // 6, 3, 10, 5, 16, 8, 4, 2, 1: eight steps.
    let buffers = run(&func, vec![vec![0i32; 4].into()], &[6i32.into()], [1, 1, 1]);
    assert_eq!(elements::<i32>(&buffers[0]), [8, 8 + 256, 8 + 512, 8 + 768]);
    let buffers = run(&func, vec![vec![0i32; 4].into()], &[1i32.into()], [1, 1, 1]);
    assert_eq!(elements::<i32>(&buffers[0]), [0, 1, 2, 3]);
}

#[test]
fn branches_yield_tiles_and_store() {
    let body = pointers("p", "out", 4)
        + "%zero: i32 = const 0
           %positive: bool = cmp.gt %n, %zero
           %r: i32[4], %s: i32 = if %positive {
             %d: i32[4] = add %p_i, %p_i
             yield %d, %n
           } else {
             store %p, %p_i
             %neg: i32 = neg %n
             %v: i32[4] = load %p
             yield %v, %neg
           }
           %ss: i32[4] = splat %s
           %t: i32[4] = add %r, %ss
           store %p, %t";
    let func = bound("param %out out: ptr_mut i32\nparam %n n: i32", &body);
    let buffers = run(&func, vec![vec![9i32; 4].into()], &[5i32.into()], [1, 1, 1]);
    assert_eq!(elements::<i32>(&buffers[0]), [5, 7, 9, 11]);
    let buffers = run(&func, vec![vec![9i32; 4].into()], &[(-3i32).into()], [1, 1, 1]);
    assert_eq!(elements::<i32>(&buffers[0]), [3, 4, 5, 6]);
}

#[test]
fn deep_nesting_runs() {
    let depth = 120;
    let mut body =
        String::from("%zero: i32 = const 0\n%one: i32 = const 1\n%two: i32 = const 2\n%v0: i32 = load %out\n");
    for level in 0..depth {
        // Only the outermost five loops run twice.
        let hi = if level < 5 { "%two" } else { "%one" };
        body += &format!("for %zero, {hi}, %one (%i{level}: i32) {{\n");
    }
    body += "%v: i32 = load %out\n%w: i32 = add %v, %one\nstore %out, %w\n";
    for _ in 0..depth {
        body += "yield\n}\n";
    }
    let func = bound("param %out out: ptr_mut i32", &body);
    let buffers = run(&func, vec![vec![0i32].into()], &[], [1, 1, 1]);
    assert_eq!(elements::<i32>(&buffers[0]), [32]);
}

#[test]
fn a_failed_assert_ends_its_program_only() {
    let body = "%pid: i32 = program_id {axis = 0}
                %two: i32 = const 2
                %m: i32 = rem %pid, %two
                %zero: i32 = const 0
                %even: bool = cmp.eq %m, %zero
                %p: *out = add_ptr %out, %pid
                %one: i32 = const 1
                store %p, %one
                assert %even {message = \"even programs only\"} @4:9+7
                store %p, %two";
    let func = bound("param %out out: ptr_mut i32", body);
    let (buffers, result) = try_run(&func, vec![vec![0i32; 300].into()], &[], [300, 1, 1]);
    let want: Vec<i32> = (0..300).map(|i| if i % 2 == 0 { 2 } else { 1 }).collect();
    assert_eq!(elements::<i32>(&buffers[0]), want);
    let fault = result.expect_err("odd programs fail");
    assert_eq!(fault.kind, FaultKind::Assert { message: "even programs only".to_string() });
    assert_eq!(fault.program_id, [1, 0, 0]);
    assert_eq!((fault.span.line, fault.span.column, fault.span.len), (4, 9, 7));
    assert_eq!(fault.to_string(), "assertion failed: even programs only, in program (1, 0, 0), at 4:9");
}

#[test]
fn a_fault_in_another_file_names_it() {
    let text = "kernel k \"k.rs\" safe bound {
        file f1 = \"a.rs\"
        file f2 = \"dep/src/lib.rs\"
        %no: bool = const false
        assert %no {message = \"inlined\"} @f2:4:9+7
        return
    }";
    let func = kernel_core::text::parse(text).unwrap_or_else(|error| panic!("{error}"));
    let func = Bound::new(func).expect("a bound kernel");
    let fault = try_run(&func, Vec::new(), &[], [1, 1, 1]).1.expect_err("it fails");
    assert_eq!(fault.file.as_deref(), Some("dep/src/lib.rs"));
    assert_eq!(fault.to_string(), "assertion failed: inlined, in program (0, 0, 0), at dep/src/lib.rs:4:9");
}

#[test]
fn an_assert_on_a_tile_holds_if_all_elements_do() {
    let body = pointers("p", "out", 8)
        + "%ns: i32[8] = splat %n
           %c: bool[8] = cmp.lt %p_i, %ns
           assert %c {message = \"tile\"}
           store %p, %p_i";
    let func = bound("param %out out: ptr_mut i32\nparam %n n: i32", &body);
    for (n, fails) in [(8, false), (7, true), (0, true)] {
        let (buffers, result) = try_run(&func, vec![vec![-1i32; 8].into()], &[n.into()], [1, 1, 1]);
        if fails {
            assert_eq!(fault(result), FaultKind::Assert { message: "tile".to_string() });
            assert_eq!(elements::<i32>(&buffers[0]), [-1; 8]);
        } else {
            assert_eq!(result, Ok(()));
            assert_eq!(elements::<i32>(&buffers[0]), [0, 1, 2, 3, 4, 5, 6, 7]);
        }
    }
}
