//! Hints and assertions: which are proved, which the host decides at launch, which each program checks; and that the
//! host's answer is that of the kernel as it is written, run by the interpreter.

mod support;

use kernel_codegen::checks::{Checks, Class, Kept, Lacks, LaunchEnv, Open, Origin, Unbounded};
use kernel_core::interp::{FaultKind, HostBuffer, HostScalar, run_kernel};
use kernel_core::ir::{Bound, ControlOp, DType, Op, ParamId};
use kernel_core::text;
use support::checked::prepare;

/// A kernel of two arguments and what a piece of memory holds.
fn kernel(facts: &str, body: &str) -> String {
    format!(
        "kernel k \"k.rs\" safe bound {{
           param %x x: ptr i32
           param %out out: ptr_mut i32
           param %a a: i32 {facts}
           param %b b: i32
           %zero: i32 = const 0
           %four: i32 = const 4
           %three: i32 = const 3
           %pid: i32 = program_id {{axis = 0}}
           %programs: i32 = num_programs {{axis = 0}}
           %i: i32[16] = arange {{lo = 0, hi = 16}}
           %as: i32[16] = splat %a
           {body}
           store %out, %a
           return
         }}"
    )
}

fn kept(facts: &str, body: &str) -> Vec<Kept> {
    let (func, plan) = prepare(&kernel(facts, body), Checks::AtLaunch);
    let kept: Vec<Kept> = plan.promises.iter().map(|promise| promise.kept).collect();
    let left = func.ops.iter().filter(|op| matches!(op.op, Op::Control(ControlOp::Assert { .. }))).count();
    assert_eq!(left, kept.iter().filter(|kept| **kept == Kept::Checked).count(), "{}", text::print(&func));
    kept
}

/// Whether the host lets the variant without checks run.
fn host(source: &str, a: i32, b: i32, programs: u32) -> bool {
    let (_, plan) = prepare(source, Checks::AtLaunch);
    let scalars = [None, None, Some(a.into()), Some(b.into())];
    plan.conditions.hold(&LaunchEnv { scalars: &scalars, lengths: &[16, 1, 0, 0], grid: [programs, 1, 1] })
}

/// Whether the kernel runs without a broken promise, in a variant or (`None`) as it is written.
fn runs(source: &str, checks: Option<Checks>, a: i32, b: i32, programs: u32) -> bool {
    let func = match checks {
        Some(checks) => prepare(source, checks).0,
        None => text::parse(source).unwrap_or_else(|e| panic!("{e}\n{source}")),
    };
    let mut buffers = [HostBuffer::from(vec![8i32; 16]), HostBuffer::from(vec![0i32; 1])];
    let scalars = [a, b].map(|v| HostScalar::from_bits(DType::I32, u64::from(v as u32)));
    match run_kernel(&Bound::new(func).expect("bound"), &mut buffers, &scalars, [programs, 1, 1]) {
        Ok(()) => true,
        Err(fault) => {
            assert!(matches!(fault.kind, FaultKind::Assert { .. }), "{fault}");
            false
        }
    }
}

const VALUES: [i32; 15] = [0, 1, 2, 3, 4, 5, 8, 12, 16, 48, -1, -4, -6, i32::MAX, i32::MIN];

/// Conditions on arguments: one number each, whatever is computed of them.
const OF_ARGUMENTS: [&str; 12] = [
    "%h: i32 = hint %a {kind = contiguous, multiple = 4, axis = 0}",
    "%h: i32[16] = hint %as {kind = contiguous, multiple = 12, axis = 0}",
    "%p: i32 = mul %a, %b\n %h: i32 = hint %p {kind = contiguous, multiple = 8, axis = 0}",
    "%s: i32 = add %a, %b\n %h: i32 = hint %s {kind = contiguous, multiple = 3, axis = 0}",
    "%c: bool = cmp.lt %a, %b\n assert %c {message = \"\"}",
    "%c: bool = cmp.le %a, %b\n %n: bool = not %c\n assert %n {message = \"\"}",
    "%c: bool = cmp.ne %a, %b\n assert %c {message = \"\"}",
    "%c: bool = cmp.eq %a, %b\n assert %c {message = \"\"}",
    "%q: i32 = div %a, %three\n %r: i32 = rem %a, %b\n %c: bool = cmp.ge %q, %r\n assert %c {message = \"\"}",
    "%m: i32 = and %a, %three\n %c: bool = cmp.gt %m, %zero\n assert %c {message = \"\"}",
    "%c: bool = cmp.gt %a, %zero\n %d: bool = cmp.le %b, %programs\n %e: bool = and %c, %d\n assert %e {message = \"\"}",
    "%bs: i32[16] = splat %b\n %c: bool[16] = cmp.ge %as, %bs\n assert %c {message = \"\"}",
];

#[test]
fn what_is_said_of_arguments_is_decided_by_the_host() {
    for body in OF_ARGUMENTS {
        assert_eq!(kept("", body), [Kept::AtLaunch], "{body}");
        let source = kernel("", body);
        for (a, b) in VALUES.into_iter().flat_map(|a| VALUES.map(|b| (a, b))) {
            let expected = runs(&source, None, a, b, 2);
            let decided = host(&source, a, b, 2);
            // Where arithmetic wraps the host may not know, and the programs check.
            let wraps = i64::from(a).abs().max(i64::from(b).abs()) > 1 << 15;
            assert!(
                decided == expected || wraps && !decided,
                "{body} with {a} and {b}: {expected}, the host {decided}"
            );
            assert_eq!(runs(&source, Some(Checks::EveryAccess), a, b, 2), expected, "{body} with {a} and {b}");
            // The fast variant believes what it was told: in the interpreter that shows.
            assert_eq!(runs(&source, Some(Checks::AtLaunch), a, b, 2), expected, "{body} with {a} and {b}");
        }
    }
}

#[test]
fn multiples_are_decided_through_programs_lanes_and_iterations() {
    let offsets =
        "%s: i32 = mul %pid, %a\n %o: i32 = add %s, %b\n %h: i32 = hint %o {kind = contiguous, multiple = 4, axis = 0}";
    let rows = "%is: i32[16] = mul %i, %as\n %h: i32[16] = hint %is {kind = contiguous, multiple = 4, axis = 0}";
    let iterations = "%end: i32 = const 100
        for %b, %end, %a (%k: i32) {
          %h: i32 = hint %k {kind = contiguous, multiple = 4, axis = 0}
          yield
        }";
    for body in [offsets, rows, iterations] {
        assert_eq!(kept("", body), [Kept::AtLaunch], "{body}");
        let source = kernel("", body);
        for (a, b) in [4, 8, 12, 20, 6, 3].into_iter().flat_map(|a| [0, 4, 16, 36, 5, 2].map(|b| (a, b))) {
            assert_eq!(host(&source, a, b, 3), runs(&source, None, a, b, 3), "{body} with {a} and {b}");
        }
        // Wrapping keeps powers of two.
        assert!(host(&source, 4, i32::MIN, 3), "{body}");
        let values = VALUES.into_iter().flat_map(|a| VALUES.map(|b| (a, b)));
        let few_iterations = |(a, b): &(i32, i32)| body != iterations || *b >= 0 || *a <= 0;
        for (a, b) in values.filter(few_iterations) {
            assert!(!host(&source, a, b, 3) || runs(&source, None, a, b, 3), "{body} with {a} and {b}");
        }
    }
}

#[test]
fn what_follows_from_the_arguments_facts_is_proved() {
    let multiple = |n: i32| format!("%h: i32 = hint %a {{kind = contiguous, multiple = {n}, axis = 0}}");
    assert_eq!(kept("{div = 16}", &multiple(16)), [Kept::Proved]);
    assert_eq!(kept("{div = 16}", &multiple(32)), [Kept::AtLaunch]);
    assert_eq!(kept("{div = 8}", &multiple(16)), [Kept::AtLaunch]);
    let run = "%o: i32[16] = add %as, %i\n %h: i32[16] = hint %o {kind = contiguous, n = 8, multiple = 8, axis = 0}";
    assert_eq!(kept("{div = 16}", run), [Kept::Proved]);
    let shorter = run.replace("n = 8, ", "n = 4, ");
    assert_eq!(kept("{div = 16}", &shorter), [Kept::Checked], "groups of four begin at multiples of four only");
    let equal = "%h: i32[16] = hint %as {kind = constant, n = 16, axis = 0}";
    assert_eq!(kept("", equal), [Kept::Proved]);
    // A loop's own promise about the iteration before.
    let carried = "%s: i32 = const 16
        %end: i32 = for %zero, %four, %four, %a (%k: i32, %o: i32) {
          %h: i32 = hint %o {kind = contiguous, multiple = 16, axis = 0}
          %next: i32 = add %h, %s
          yield %next
        }";
    assert_eq!(kept("{div = 16}", carried), [Kept::Proved]);
    assert_ne!(kept("{div = 8}", carried), [Kept::Proved]);
}

#[test]
fn what_memory_or_a_range_of_programs_decides_is_checked_by_each_program() {
    let data = "%d: i32 = load %x\n %h: i32 = hint %d {kind = contiguous, multiple = 4, axis = 0}";
    let byte = "%d: i32 = load %x\n %n: u8 = cast %d {to = u8}\n %w: i32 = cast %n {to = i32}
        %c: bool = cmp.lt %w, %four\n assert %c {message = \"\"}";
    let range = "%c: bool = cmp.lt %pid, %a\n assert %c {message = \"\"}";
    let lanes = "%c: bool[16] = cmp.lt %i, %as\n assert %c {message = \"\"}";
    for body in [data, byte, range, lanes] {
        assert_eq!(kept("", body), [Kept::Checked], "{body}");
        assert!(host(&kernel("", body), 1, 1, 1), "nothing is asked of the launch");
    }
}

#[test]
fn believed_hints_are_not_checked() {
    let body = "%d: i32 = load %x\n %h: i32 = hint %d {kind = contiguous, multiple = 4, axis = 0, believed = true}
        %c: bool = cmp.lt %d, %four\n %e: bool = hint %c {kind = holds, axis = 0, believed = true}";
    assert_eq!(kept("", body), [Kept::Believed, Kept::Believed]);
    let (every, _) = prepare(&kernel("", body), Checks::EveryAccess);
    assert!(!every.ops.iter().any(|op| matches!(op.op, Op::Control(ControlOp::Assert { .. }))));
}

/// What is assumed of an index bounds it: no check per lane is left.
#[test]
fn believed_bounds_bound_accesses() {
    let body = |believed: bool| {
        let below = "%c: bool = cmp.ge %d, %zero\n %e: bool = cmp.lt %d, %a\n %both: bool = and %c, %e";
        let assume = "%h: bool = hint %both {kind = holds, axis = 0, believed = true}";
        let access = "%p: *x = add_ptr %x, %d\n %v: i32 = load %p\n store %out, %v";
        format!("%d: i32 = load %x\n {below}\n {}\n {access}", if believed { assume } else { "" })
    };
    let classes = |believed: bool| -> Vec<Class> {
        let (_, plan) = prepare(&kernel("", &body(believed)), Checks::AtLaunch);
        plan.accesses.iter().map(|access| access.class).collect()
    };
    let launch = Class::LaunchCondition;
    let [first, Class::Residual(Open::Unbounded(Unbounded { lacks, origin, .. })), third, fourth] = classes(false)[..]
    else {
        panic!("{:?}", classes(false));
    };
    assert_eq!([first, third, fourth], [launch; 3]);
    assert_eq!((lacks, origin), (Lacks::Both, Origin::Loaded(ParamId::new(0))));
    assert_eq!(classes(true), [launch; 4]);
    let source = kernel("", &body(true));
    assert!(host(&source, 16, 0, 1));
    assert!(!host(&source, 17, 0, 1), "the buffer has 16 elements");
}
