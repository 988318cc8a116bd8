//! Bounds checks do not change what a kernel computes: each variant against the kernel as written, in the interpreter.

mod support;

use kernel_codegen::checks::Checks;
use kernel_core::interp::{Fault, FaultKind, HostBuffer, HostScalar, run_kernel};
use kernel_core::ir::{Bound, DType, ElementwiseOp, Op};
use kernel_core::text;
use support::checked::{blocks, checked};

/// Adds up `x[lo], x[lo + 3], ..` below `hi` through a carried pointer, walks `index` backwards through a second one,
/// chooses between two addresses, and stores everything: every form that an address can take.
const WALK: &str = r#"kernel walk "k.rs" safe bound {
  param %0 x: ptr f32
  param %1 index: ptr i32
  param %2 out: ptr_mut f32
  param %3 lo: i32
  param %4 hi: i32
  %5: i32 = const 3
  %6: i32[8] = arange {lo = 0, hi = 8}
  %7: *x = add_ptr %0, %3
  %8: *x[8] = splat %7
  %9: *x[8] = add_ptr %8, %6
  %10: f32 = const 0.0
  %11: f32[8] = splat %10
  %12: *x[8], %13: f32[8] = for %3, %4, %5, %9, %11 (%i: i32, %p: *x[8], %acc: f32[8]) {
    %14: f32[8] = load %p
    %15: f32[8] = add %acc, %14
    %16: i32[8] = splat %5
    %17: *x[8] = add_ptr %p, %16
    yield %17, %15
  }
  %18: *index[8] = splat %1
  %19: *index[8] = add_ptr %18, %6
  %20: i32[8] = load %19
  %21: *x[8] = splat %0
  %22: *x[8] = add_ptr %21, %20
  %23: i32[8] = splat %5
  %24: bool[8] = cmp.lt %6, %23
  %25: *x[8] = select %24, %22, %9
  %26: f32[8] = load %25
  %27: f32[8] = add %13, %26
  %28: bool = cmp.lt %3, %4
  %29: *out = if %28 {
    yield %2
  } else {
    %30: *out = add_ptr %2, %5
    yield %30
  }
  %31: *out[8] = splat %29
  %32: *out[8] = add_ptr %31, %6
  store %32, %27
  return
}
"#;

fn run(checks: Option<Checks>, len: usize, lo: i32, hi: i32, index: [i32; 8]) -> (Vec<f32>, Result<(), Fault>) {
    let mut func = text::parse(WALK).unwrap_or_else(|e| panic!("{e}"));
    if let Some(checks) = checks {
        func = checked(func, checks).0;
        let printed = text::print(&func);
        let again = text::parse(&printed).unwrap_or_else(|e| panic!("{e}\n{printed}"));
        assert_eq!(text::print(&again), printed);
    }
    let x: Vec<f32> = (0..len).map(|i| (i * i) as f32).collect();
    let mut buffers = [HostBuffer::from(x), HostBuffer::from(index.to_vec()), HostBuffer::from(vec![-1.0f32; 11])];
    let scalars = [lo, hi].map(|v| HostScalar::from_bits(DType::I32, u64::from(v as u32)));
    let bound = Bound::new(func).expect("bound");
    let outcome = run_kernel(&bound, &mut buffers, &scalars, [1, 1, 1]);
    (buffers[2].as_slice::<f32>().expect("f32").to_vec(), outcome)
}

#[test]
fn every_variant_computes_the_same() {
    let index = [3, 1, 4, 1, 5, 9, 2, 6];
    for (lo, hi) in [(0, 10), (5, 5), (7, 3), (0, 1), (2, 30)] {
        let expected = run(None, 64, lo, hi, index);
        assert_eq!(expected.1, Ok(()));
        for checks in [Checks::AtLaunch, Checks::EveryAccess] {
            assert_eq!(run(Some(checks), 64, lo, hi, index), expected, "{checks:?} for {lo}..{hi}");
        }
    }
}

#[test]
fn a_bad_index_is_found_by_every_variant() {
    for bad in [-1, 64, i32::MAX, i32::MIN] {
        let index = [0, 1, bad, 0, 0, 0, 0, 0];
        let (out, fault) = run(None, 64, 0, 4, index);
        let fault = fault.expect_err("out of bounds");
        assert!(matches!(fault.kind, FaultKind::OutOfBounds { offset, len: 64, .. } if offset == i64::from(bad)));
        for checks in [Checks::AtLaunch, Checks::EveryAccess] {
            let (checked_out, checked) = run(Some(checks), 64, 0, 4, index);
            assert_eq!(checked_out, out, "a suppressed lane reads zero");
            let checked = checked.expect_err("out of bounds");
            assert!(matches!(checked.kind, FaultKind::OutOfBounds { offset, len: 64, .. } if offset == i64::from(bad)));
        }
    }
}

/// `out[i] = x[i + start]` where `i` is below `n`, else 7, in 8 lanes; a scalar load behind it.
const OTHER: &str = r#"kernel other "k.rs" safe bound {
  param %x x: ptr f32
  param %out out: ptr_mut f32
  param %start start: i32
  param %n n: i32
  %seven: f32 = const 7.0
  %others: f32[8] = splat %seven
  %i: i32[8] = arange {lo = 0, hi = 8}
  %ns: i32[8] = splat %n
  %m: bool[8] = cmp.lt %i, %ns
  %starts: i32[8] = splat %start
  %at: i32[8] = add %starts, %i
  %xs: *x[8] = splat %x
  %xp: *x[8] = add_ptr %xs, %at
  %v: f32[8] = load %xp, %m, %others
  %os: *out[8] = splat %out
  %op: *out[8] = add_ptr %os, %i
  store %op, %v
  %zero: i32 = const 0
  %some: bool = cmp.gt %n, %zero
  %one: *x = add_ptr %x, %start
  %w: f32 = load %one, %some, %seven
  %eight: i32 = const 8
  %last: *out = add_ptr %out, %eight
  store %last, %w
  return
}
"#;

#[test]
fn a_refused_lane_reads_zero_and_a_masked_one_other() {
    let run = |checks: Option<Checks>, start: i32, n: i32| {
        let mut func = text::parse(OTHER).unwrap_or_else(|e| panic!("{e}"));
        if let Some(checks) = checks {
            func = checked(func, checks).0;
        }
        let x: Vec<f32> = (1..=6).map(|i| i as f32).collect();
        let mut buffers = [HostBuffer::from(x), HostBuffer::from(vec![-1.0f32; 9])];
        let scalars = [start, n].map(|v| HostScalar::from_bits(DType::I32, u64::from(v as u32)));
        let outcome = run_kernel(&Bound::new(func).expect("bound"), &mut buffers, &scalars, [1, 1, 1]);
        (buffers[1].as_slice::<f32>().expect("f32").to_vec(), outcome.is_err())
    };
    let expected: [(i32, i32, [f32; 9], bool); 5] = [
        (0, 6, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 7.0, 1.0], false),
        (0, 0, [7.0; 9], false),
        (4, 4, [5.0, 6.0, 0.0, 0.0, 7.0, 7.0, 7.0, 7.0, 5.0], true),
        (-2, 3, [0.0, 0.0, 1.0, 7.0, 7.0, 7.0, 7.0, 7.0, 0.0], true),
        (9, 8, [0.0; 9], true),
    ];
    for (start, n, out, fails) in expected {
        for checks in [None, Some(Checks::EveryAccess)] {
            assert_eq!(run(checks, start, n), (out.to_vec(), fails), "{checks:?} from {start}, {n} lanes");
        }
    }
}

#[test]
fn a_load_whose_other_is_zero_stays_as_it_is() {
    let selects = |source: &str| {
        let mut func = text::parse(source).unwrap_or_else(|e| panic!("{e}"));
        func = checked(func, Checks::EveryAccess).0;
        text::print(&func).matches("= select").count()
    };
    assert_eq!(selects(OTHER), 2);
    assert_eq!(selects(&OTHER.replace("const 7.0", "const 0.0")), 0);
    assert_eq!(selects(&OTHER.replace("const 7.0", "const -0.0")), 2, "its bits are not those of zero");
}

/// `out[i] = x[(pid * 8 + i) % n] + x[i / n]`, offsets whose divisions lose their signs.
fn wrap() -> String {
    blocks(
        "wrap",
        8,
        "  %10: i32[8] = rem %8, %9
  %11: i32[8] = div %8, %9
  %12: *x[8] = splat %0
  %13: *x[8] = add_ptr %12, %10
  %14: f32[8] = load %13
  %15: *x[8] = add_ptr %12, %11
  %16: f32[8] = load %15
  %17: f32[8] = add %14, %16
  %18: *out[8] = splat %1
  %19: *out[8] = add_ptr %18, %8
  store %19, %17",
    )
}

#[test]
fn divisions_without_signs_give_the_same() {
    let x: Vec<f32> = (0..64).map(|i| (i * i) as f32).collect();
    let run = |checks: Option<Checks>, n: i32| {
        let mut func = text::parse(&wrap()).unwrap_or_else(|e| panic!("{e}"));
        if let Some(checks) = checks {
            func = checked(func, checks).0;
        }
        let without = func.ops.iter().filter(|op| matches!(op.op, Op::Elementwise(ElementwiseOp::Bitcast { .. })));
        assert_eq!(without.count(), if checks == Some(Checks::AtLaunch) { 6 } else { 0 });
        let mut buffers = [HostBuffer::from(x.clone()), HostBuffer::from(vec![-1.0f32; 48])];
        let n = HostScalar::from_bits(DType::I32, u64::from(n as u32));
        let bound = Bound::new(func).expect("bound");
        run_kernel(&bound, &mut buffers, &[n], [6, 1, 1]).expect("it runs");
        buffers[1].as_slice::<f32>().expect("f32").to_vec()
    };
    // A remainder of a division by zero is the dividend.
    for n in [0, 1, 7, 16, 47, 48, 1000] {
        let expected = run(None, n);
        for checks in [Checks::AtLaunch, Checks::EveryAccess] {
            assert_eq!(run(Some(checks), n), expected, "{checks:?} by {n}");
        }
    }
}
