//! Loads, stores and atomics: what is in bounds, what is not, and who hears of it.

#![cfg(feature = "interp")]

mod interp_support;

use half::bf16;
use interp_support::{bound, elements, fault, pointers, run, try_run};
use kernel_core::interp::{Access, FaultKind, HostBuffer};
use kernel_core::ir::{DType, ParamId, Span};

fn out_of_bounds(param: u32, offset: i64, len: u64, access: Access) -> FaultKind {
    FaultKind::OutOfBounds { param: ParamId::new(param), offset, len, access }
}

#[test]
fn loads_out_of_bounds_read_zero_and_are_reported() {
    // out[pid * 8 + i] = x[pid * 8 + i], without a mask.
    let body = "%pid: i32 = program_id {axis = 0}
        %eight: i32 = const 8
        %start: i32 = mul %pid, %eight
        %starts: i32[8] = splat %start
        %ix: i32[8] = arange {lo = 0, hi = 8}
        %o: i32[8] = add %starts, %ix
        %xs: *x[8] = splat %x
        %xp: *x[8] = add_ptr %xs, %o
        %v: f32[8] = load %xp @7:3+4
        %outs: *out[8] = splat %out
        %op: *out[8] = add_ptr %outs, %o
        store %op, %v @8:3+5";
    for mutable in ["ptr", "ptr_mut"] {
        let func = bound(&format!("param %x x: {mutable} f32\nparam %out out: ptr_mut f32"), body);
        let x: Vec<f32> = (0..21).map(|i| i as f32 + 1.0).collect();
        let (buffers, result) = try_run(&func, vec![x.into(), vec![-1f32; 40].into()], &[], [5, 1, 1]);
        let want: Vec<f32> = (0..40).map(|i| if i < 21 { i as f32 + 1.0 } else { 0.0 }).collect();
        assert_eq!(elements::<f32>(&buffers[1]), want, "{mutable}");
        let fault = result.expect_err("the load leaves the buffer");
        assert_eq!(fault.kind, out_of_bounds(0, 21, 21, Access::Load));
        assert_eq!(fault.span, Span::new(7, 3, 4));
        // The third and the fourth program fault too; the first in order is reported.
        assert_eq!(fault.program_id, [2, 0, 0]);
    }
    // Both buffers too short: the load of the same program comes first; stores are suppressed.
    let func = bound("param %x x: ptr f32\nparam %out out: ptr_mut f32", body);
    let (buffers, result) = try_run(&func, vec![vec![1f32; 16].into(), vec![-1f32; 12].into()], &[], [3, 1, 1]);
    assert_eq!(elements::<f32>(&buffers[1]), [1.0; 12]);
    let first = result.expect_err("the store leaves the buffer");
    assert_eq!((first.kind, first.program_id), (out_of_bounds(1, 12, 12, Access::Store), [1, 0, 0]));
}

#[test]
fn offsets_are_signed_and_64_bits_wide() {
    let gather = |dtype: &str, value: &str| {
        let body = pointers("q", "out", 4)
            + &format!(
                "%o: {dtype} = const {value}
                 %p: *x = add_ptr %x, %o
                 %v: i32 = load %p
                 %vs: i32[4] = splat %v
                 store %q, %vs"
            );
        let func = bound("param %x x: ptr i32\nparam %out out: ptr_mut i32", &body);
        try_run(&func, vec![vec![7i32; 4].into(), vec![-1i32; 4].into()], &[], [1, 1, 1])
    };
    for (dtype, value, offset) in [
        ("i32", "-1", -1),
        ("i8", "-128", -128),
        ("u32", "4294967295", 4294967295),
        ("u64", "18446744073709551615", -1),
        ("i64", "9223372036854775807", i64::MAX),
        ("i64", "4", 4),
    ] {
        let (buffers, result) = gather(dtype, value);
        assert_eq!(fault(result), out_of_bounds(0, offset, 4, Access::Load), "{dtype} {value}");
        assert_eq!(elements::<i32>(&buffers[1]), [0; 4]);
    }
    for (dtype, value) in [("u8", "3"), ("i64", "0"), ("u64", "2")] {
        let (buffers, result) = gather(dtype, value);
        assert_eq!(result, Ok(()), "{dtype} {value}");
        assert_eq!(elements::<i32>(&buffers[1]), [7; 4]);
    }
}

#[test]
fn add_ptr_wraps_and_comes_back() {
    let body = "%big: i64 = const 9223372036854775807
        %two: i64 = const 2
        %a: *out = add_ptr %out, %big
        %b: *out = add_ptr %a, %big
        %c: *out = add_ptr %b, %two
        %one: i32 = const 1
        store %c, %one";
    let buffers = run(&bound("param %out out: ptr_mut i32", body), vec![vec![0i32; 2].into()], &[], [1, 1, 1]);
    assert_eq!(elements::<i32>(&buffers[0]), [1, 0]);
}

#[test]
fn masked_lanes_may_point_anywhere() {
    // A gather by data: x[index[i]] where index[i] >= 0, else -5.
    let body = pointers("ip", "index", 8)
        + &pointers("op", "out", 8)
        + "%i: i64[8] = load %ip
           %zero: i64 = const 0
           %zeros: i64[8] = splat %zero
           %m: bool[8] = cmp.ge %i, %zeros
           %xs: *x[8] = splat %x
           %xp: *x[8] = add_ptr %xs, %i
           %five: f32 = const -5.0
           %fives: f32[8] = splat %five
           %v: f32[8] = load %xp, %m, %fives
           store %op, %v";
    let func = bound("param %index index: ptr i64\nparam %x x: ptr f32\nparam %out out: ptr_mut f32", &body);
    let index = vec![3i64, -1, 0, i64::MIN, 2, 99, -7, 1];
    let x = vec![10f32, 11.0, 12.0, 13.0];
    let (buffers, result) = try_run(&func, vec![index.into(), x.into(), vec![0f32; 8].into()], &[], [1, 1, 1]);
    // The lane that is admitted but out of bounds reads zero, not `other`.
    assert_eq!(elements::<f32>(&buffers[2]), [13.0, -5.0, 10.0, -5.0, 12.0, 0.0, -5.0, 11.0]);
    assert_eq!(fault(result), out_of_bounds(1, 99, 4, Access::Load));
}

#[test]
fn two_dimensional_tiles_with_masks_on_both_axes() {
    // Transposes x of m by n into out of n by m, in blocks of 8 by 4, through tiles of pointers.
    let body = "%pm: i32 = program_id {axis = 0}
        %pn: i32 = program_id {axis = 1}
        %bm: i32 = const 8
        %bn: i32 = const 4
        %sm: i32 = mul %pm, %bm
        %sn: i32 = mul %pn, %bn
        %am: i32[8] = arange {lo = 0, hi = 8}
        %an: i32[4] = arange {lo = 0, hi = 4}
        %sms: i32[8] = splat %sm
        %sns: i32[4] = splat %sn
        %om: i32[8] = add %sms, %am
        %on: i32[4] = add %sns, %an
        %ms: i32[8] = splat %m
        %ns: i32[4] = splat %n
        %mm: bool[8] = cmp.lt %om, %ms
        %mn: bool[4] = cmp.lt %on, %ns
        %mm2: bool[8, 1] = expand_dims %mm {axis = 1}
        %mn2: bool[1, 4] = expand_dims %mn {axis = 0}
        %mm3: bool[8, 4] = broadcast %mm2
        %mn3: bool[8, 4] = broadcast %mn2
        %mask: bool[8, 4] = and %mm3, %mn3
        %om2: i32[8, 1] = expand_dims %om {axis = 1}
        %on2: i32[1, 4] = expand_dims %on {axis = 0}
        %ns2: i32[8, 1] = splat %n
        %rows: i32[8, 1] = mul %om2, %ns2
        %rows2: i32[8, 4] = broadcast %rows
        %cols: i32[8, 4] = broadcast %on2
        %xo: i32[8, 4] = add %rows2, %cols
        %xs: *x[8, 4] = splat %x
        %xp: *x[8, 4] = add_ptr %xs, %xo
        %v: i32[8, 4] = load %xp, %mask
        %t: i32[4, 8] = permute %v {perm = [1, 0]}
        %tmask: bool[4, 8] = permute %mask {perm = [1, 0]}
        %on3: i32[4, 1] = expand_dims %on {axis = 1}
        %om3: i32[1, 8] = expand_dims %om {axis = 0}
        %ms2: i32[4, 1] = splat %m
        %trows: i32[4, 1] = mul %on3, %ms2
        %trows2: i32[4, 8] = broadcast %trows
        %tcols: i32[4, 8] = broadcast %om3
        %to: i32[4, 8] = add %trows2, %tcols
        %outs: *out[4, 8] = splat %out
        %op: *out[4, 8] = add_ptr %outs, %to
        store %op, %t, %tmask";
    let func = bound("param %x x: ptr i32\nparam %out out: ptr_mut i32\nparam %m m: i32\nparam %n n: i32", body);
    for (m, n) in [(8, 4), (16, 8), (13, 7), (1, 1), (17, 3)] {
        let x: Vec<i32> = (0..m * n).collect();
        let want: Vec<i32> = (0..n).flat_map(|j| (0..m).map(move |i| i * n + j)).collect();
        let grid = [(m as u32).div_ceil(8), (n as u32).div_ceil(4), 1];
        let buffers = vec![x.into(), vec![-1i32; (m * n) as usize].into()];
        let buffers = run(&func, buffers, &[m.into(), n.into()], grid);
        assert_eq!(elements::<i32>(&buffers[1]), want, "{m} by {n}");
    }
}

#[test]
fn stores_to_one_address_leave_one_of_the_values() {
    let body = "%ix: i32[8] = arange {lo = 0, hi = 8}
        %s: *out[8] = splat %out
        store %s, %ix";
    let buffers = run(&bound("param %out out: ptr_mut i32", body), vec![vec![-1i32, -1].into()], &[], [1, 1, 1]);
    let out = elements::<i32>(&buffers[0]);
    assert!((0..8).contains(&out[0]) && out[1] == -1);
}

/// Runs an atomic on `out[i % 4]` by 8 lanes, of which lane 3 is masked; returns the memory and what it gave.
fn atomic(op: &str, dtype: DType, memory: HostBuffer, value: HostBuffer) -> (HostBuffer, HostBuffer) {
    let body = pointers("vp", "value", 8)
        + &pointers("rp", "old", 8)
        + &format!(
            "%v: {dtype}[8] = load %vp
             %four: i32 = const 4
             %fours: i32[8] = splat %four
             %three: i32 = const 3
             %threes: i32[8] = splat %three
             %o: i32[8] = rem %vp_i, %fours
             %m: bool[8] = cmp.ne %vp_i, %threes
             %s: *out[8] = splat %out
             %p: *out[8] = add_ptr %s, %o
             %r: {dtype}[8] = atomic_rmw %p, %v, %m {{op = {op}, order = relaxed, scope = device}}
             store %rp, %r"
        );
    let params =
        format!("param %value value: ptr {dtype}\nparam %out out: ptr_mut {dtype}\nparam %old old: ptr_mut {dtype}");
    let old = HostBuffer::zeros(dtype, 8);
    let mut buffers = run(&bound(&params, &body), vec![value, memory, old], &[], [1, 1, 1]);
    let old = buffers.pop().expect("three buffers");
    (buffers.pop().expect("three buffers"), old)
}

#[test]
fn atomics_return_what_was_there() {
    let value = || HostBuffer::from(vec![1i32, -2, 3, 4, 5, 6, -7, 8]);
    let memory = || HostBuffer::from(vec![10i32, 0, 4, 40]);
    for (op, want, old) in [
        ("add", vec![16, 4, 0, 48], vec![10, 0, 4, 0, 11, -2, 7, 40]),
        ("min", vec![1, -2, -7, 8], vec![10, 0, 4, 0, 1, -2, 3, 40]),
        ("max", vec![10, 6, 4, 40], vec![10, 0, 4, 0, 10, 0, 4, 40]),
        ("exchange", vec![5, 6, -7, 8], vec![10, 0, 4, 0, 1, -2, 3, 40]),
        ("and", vec![0, 0, 0, 8], vec![10, 0, 4, 0, 0, 0, 0, 40]),
        ("or", vec![10 | 1 | 5, -2, 4 | 3 | -7, 40], vec![10, 0, 4, 0, 11, -2, 7, 40]),
        ("xor", vec![10 ^ 1 ^ 5, -2 ^ 6, 4 ^ 3 ^ -7, 40 ^ 8], vec![10, 0, 4, 0, 11, -2, 7, 40]),
    ] {
        let (memory, got) = atomic(op, DType::I32, memory(), value());
        assert_eq!(elements::<i32>(&memory), want, "{op}");
        assert_eq!(elements::<i32>(&got), old, "{op}");
    }
    let half = |v: &[f32]| HostBuffer::from(v.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>());
    let (memory, _) = atomic("add", DType::BF16, half(&[1.0; 4]), half(&[0.5; 8]));
    assert_eq!(memory, half(&[2.0, 2.0, 2.0, 1.5]));
    let (memory, _) =
        atomic("max", DType::F64, vec![1f64; 4].into(), vec![f64::NAN, 2.0, 3.0, 9.0, 4.0, 0.0, 0.0, 0.0].into());
    assert_eq!(elements::<f64>(&memory), [4.0, 2.0, 3.0, 1.0]);
}

#[test]
fn atomics_of_many_programs_add_up() {
    let body = "%one: i32 = const 1
        %old: i32 = atomic_rmw %count, %one {op = add, order = relaxed, scope = device}
        %p: *out = add_ptr %out, %old
        %seen: i32 = atomic_rmw %p, %one {op = add, order = relaxed, scope = device}";
    let func = bound("param %count count: ptr_mut i32\nparam %out out: ptr_mut i32", body);
    let buffers = run(&func, vec![vec![0i32].into(), vec![0i32; 10_000].into()], &[], [100, 10, 10]);
    assert_eq!(elements::<i32>(&buffers[0]), [10_000]);
    assert_eq!(elements::<i32>(&buffers[1]), vec![1; 10_000]);
}

#[test]
fn compare_and_swap() {
    let body = pointers("p", "out", 4)
        + &pointers("q", "old", 4)
        + "%five: i32 = const 5
           %fives: i32[4] = splat %five
           %r: i32[4] = atomic_cas %p, %fives, %p_i {order = acq_rel, scope = device}
           store %q, %r";
    let func = bound("param %out out: ptr_mut i32\nparam %old old: ptr_mut i32", &body);
    let (buffers, result) = try_run(&func, vec![vec![5i32, 6, 5].into(), vec![-1i32; 4].into()], &[], [1, 1, 1]);
    assert_eq!(elements::<i32>(&buffers[0]), [0, 6, 2]);
    assert_eq!(elements::<i32>(&buffers[1]), [5, 6, 5, 0]);
    assert_eq!(fault(result), out_of_bounds(0, 3, 3, Access::Atomic));
}

#[test]
fn check_bounds_joins_the_mask_and_reports() {
    let body = pointers("p", "out", 8)
        + "%o: i64[8] = cast %p_i
           %ns: i32[8] = splat %n
           %m: bool[8] = cmp.lt %p_i, %ns
           %ok: bool[8] = check_bounds %o, %len, %m {param = 0, store = true} @3:1+2
           %r: i32[8] = cast %ok
           store %p, %r";
    let func = bound("param %out out: ptr_mut i32\nparam %n n: i32\nparam %len len: i64", &body);
    let check = |n: i32, len: i64| {
        let (buffers, result) = try_run(&func, vec![vec![-1i32; 8].into()], &[n.into(), len.into()], [1, 1, 1]);
        (elements::<i32>(&buffers[0]).iter().sum::<i32>(), result.map_err(|f| f.kind))
    };
    assert_eq!(check(8, 8), (8, Ok(())));
    assert_eq!(check(5, 8), (5, Ok(())));
    assert_eq!(check(5, 5), (5, Ok(())));
    assert_eq!(check(8, 5), (5, Err(out_of_bounds(0, 5, 5, Access::Store))));
    assert_eq!(check(3, 0), (0, Err(out_of_bounds(0, 0, 0, Access::Store))));
}

#[test]
fn foreign_bytes_in_truth_values_are_true() {
    // Only through raw arguments can a `bool` buffer hold other bytes than 0 and 1.
    use kernel_core::interp::{Arg, Program};
    let body = pointers("p", "x", 4)
        + &pointers("q", "out", 4)
        + "%v: bool[4] = load %p
           %r: u8[4] = cast %v
           store %q, %r";
    let func = bound("param %x x: ptr bool\nparam %out out: ptr_mut u8", &body);
    let (mut x, mut out) = (vec![0u8, 1, 2, 255], vec![9u8; 4]);
    let args = [Arg::Buffer { ptr: x.as_mut_ptr(), len: 4 }, Arg::Buffer { ptr: out.as_mut_ptr(), len: 4 }];
    // SAFETY: both vectors have four elements and nobody else accesses them.
    unsafe { Program::new(&func).run(&args, [1, 1, 1]) }.expect("all accesses are in bounds");
    assert_eq!(out, [0, 1, 1, 1]);
}
