//! What is not read ahead, and what copies of iterations that do not exist leave alone.

use kernel_core::interp::{FaultKind, HostBuffer, HostScalar, run_ordered};
use kernel_core::ir::{Func, GpuOp, Placed};
use kernel_core::text::print;

use super::samples::{Matmul, stream};
use super::{count, pipelined, placed, run};
use crate::{Options, Target};

/// Sums rows of 256 elements of a buffer that has `len` and no more.
fn sums(func: &Func, len: usize, scalars: &[i32]) -> Result<Vec<f32>, FaultKind> {
    let x: HostBuffer = (0..len).map(|i| ((i * 7) % 17) as f32).collect::<Vec<f32>>().into();
    let mut buffers = vec![x, vec![0f32; 256].into()];
    let func = Placed::new(func.clone()).expect("placed");
    let scalars: Vec<HostScalar> = scalars.iter().map(|&scalar| scalar.into()).collect();
    run_ordered(&func, &mut buffers, &[], &scalars, [1, 1, 1]).map_err(|fault| fault.kind)?;
    Ok(buffers[1].as_slice::<f32>().expect("f32").to_vec())
}

/// The loop ends where memory ends: what its masks would let through behind that is nobody's.
#[test]
fn copies_of_iterations_that_do_not_exist_touch_no_memory() {
    let mask = "%mask: bool[256] = and %inside, %inside";
    let plain = stream(" {stages = 3}", false);
    let cases = [
        ("no mask", plain.replace("load %p, %mask", "load %p")),
        (
            "a mask from outside the loop",
            plain
                .replace(mask, "%mask: bool[256] = and %most, %most")
                .replace("%acc0: f32", "%all: i32[256] = splat %n\n%most: bool[256] = cmp.lt %lanes, %all\n%acc0: f32"),
        ),
        (
            "a bound beyond the last iteration",
            plain.replace("%ns: i32[256] = splat %n", "%far: i32 = const 100000\n%ns: i32[256] = splat %far"),
        ),
        ("a bound that the last element reaches", plain.replace("cmp.lt %o, %ns", "cmp.le %o, %ns")),
        (
            "a bound below zero",
            plain
                .replace("%acc0: f32", "%low: i32 = const -65536\n%high: i32 = add %low, %n\n%acc0: f32")
                .replace("for %zero, %n, %width", "for %low, %high, %width")
                .replace("splat %n", "splat %high")
                .replace("add_ptr %xs, %o", "add_ptr %xs, %at")
                .replace("%xs: *x", "%lows: i32[256] = splat %low\n%at: i32[256] = sub %o, %lows\n%xs: *x"),
        ),
        (
            "a bounds check of all lanes",
            stream(" {stages = 3}", true).replace("check_bounds %o, %len, %inside", "check_bounds %o, %len"),
        ),
    ];
    for (what, text) in cases {
        let whole = placed(&text, Target::sm_80(), 2);
        let options = Options { num_warps: 2, ..Options::default() };
        let (func, report) = pipelined(&text, Target::sm_80(), &options).expect("it fits");
        assert!(report.starts_with("pipelined with 3 stages"), "{what}: {report}");
        for n in [0, 256, 512, 768, 1024] {
            let expected = sums(&whole, n, &[n as i32]);
            assert!(expected.is_ok(), "{what}, n = {n}: {expected:?}");
            assert_eq!(sums(&func, n, &[n as i32]), expected, "{what}, n = {n}\n{}", print(&func));
        }
    }
}

/// A loop whose step is not positive has no iterations, whatever its bounds: it may have no memory either.
#[test]
fn loops_that_go_nowhere_copy_nothing() {
    let text = stream(" {stages = 3}", false)
        .replace("param %n n: i32 {div = 16}", "param %n n: i32 {div = 16}\nparam %width width: i32")
        .replace("%width: i32 = const 256", "");
    let whole = placed(&text, Target::sm_80(), 2);
    let options = Options { num_warps: 2, ..Options::default() };
    let (func, _) = pipelined(&text, Target::sm_80(), &options).expect("it fits");
    assert_eq!(count(&func, |op| *op == GpuOp::AsyncCopy), 3, "{}", print(&func));
    for (len, n, width) in [(0, 512, 0), (0, 512, -256), (0, -512, -256), (768, 768, 256), (768, 768, 512)] {
        let expected = sums(&whole, len, &[n, width]);
        assert!(expected.is_ok(), "{expected:?}");
        assert_eq!(sums(&func, len, &[n, width]), expected, "from 0 to {n} by {width}\n{}", print(&func));
    }
}

/// Loads that a copy cannot stand for, or not so early.
#[test]
fn loads_that_must_stay_where_they_are_say_why() {
    let plain = stream(" {stages = 3}", false);
    let acquire = plain.replace("param %out", "param %flag flag: ptr_mut i32\nparam %out").replace(
        "%is: i32[256] = splat %i",
        "%is: i32[256] = splat %i\n%seen: i32 = atomic_rmw %flag, %width {op = add, order = acquire, scope = device}",
    );
    let with_other = |value: &str| {
        plain
            .replace("%acc0: f32", &format!("%o0: f32 = const {value}\n%others: f32[256] = splat %o0\n%acc0: f32"))
            .replace("load %p, %mask", "load %p, %mask, %others")
    };
    let cases = [
        (acquire.replace("x: ptr f32", "x: ptr_mut f32"), "`x`: the loop waits for other programs to write it"),
        (acquire, ""),
        (with_other("1.5"), "`x`: what its mask leaves out is not zero"),
        (with_other("0.0"), ""),
        (plain.replace("load %p, %mask", "load %p, %mask {cache = cv}"), "`x`: it must be fetched again"),
        (plain.replace("load %p, %mask", "load %p, %mask {cache = cs}"), ""),
    ];
    for (text, why) in cases {
        let (func, report) = pipelined(&text, Target::sm_80(), &Options::default()).expect("it fits");
        let copies = count(&func, |op| *op == GpuOp::AsyncCopy);
        match why {
            "" => assert!(report.starts_with("pipelined") && copies == 3, "{report}\n{text}"),
            why => assert!(report.contains(why) && copies == 0, "{report}\n{text}"),
        }
    }
}

/// Products may be on their way over the end of an iteration only if nobody looks at their sums before, and if what
/// they read stays.
#[test]
fn products_that_others_wait_for_are_over_within_their_iteration() {
    let matmul = Matmul { masked: false, ..Matmul::default() };
    let two = |sums: &str, starts: &str, args: &str| {
        let text = matmul.text();
        text.replace("%sum: f32[64, 32] = for", &format!("{sums} = for"))
            .replace("%step, %acc0 (", &format!("%step, {starts} ("))
            .replace("%acc: f32[64, 32]) {", &format!("{args}) {{"))
    };
    let pair = "%acc: f32[64, 32], %other: f32[64, 32]";
    let both = two("%s1: f32[64, 32], %s2: f32[64, 32]", "%acc0, %acc0", pair)
        .replace("store %cp, %sum", "%sum: f32[64, 32] = sub %s1, %s2\nstore %cp, %sum");
    let cases = [
        ("one product", matmul.text(), true),
        (
            "the sum of the iterations before is looked at",
            both.replace("yield %d", "%seen: f32[64, 32] = add %other, %acc\nyield %d, %seen"),
            false,
        ),
        ("the sum is carried on twice", both.replace("yield %d", "yield %d, %d"), false),
        (
            "a second product reads what threads have computed",
            both.replace(
                "yield %d",
                "%vc: f16[64, 32] = add %va, %va\n\
                 %e: f32[64, 32] = dot %vc, %vb, %other {precision = tf32}\nyield %d, %e",
            ),
            false,
        ),
        (
            "a second product reads what was copied",
            both.replace(
                "yield %d",
                "%e: f32[64, 32] = dot %va, %vb, %other {precision = tf32}\n\
                 %g: f32[64, 32] = dot %va, %vb, %e {precision = tf32}\nyield %d, %g",
            ),
            true,
        ),
    ];
    for (what, text, stays) in cases {
        let whole = placed(&text, Target::sm_90a(), 4);
        let options = Options { num_stages: 4, ..Options::default() };
        let (mut func, report) = pipelined(&text, Target::sm_90a(), &options).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(report.starts_with("pipelined"), "{what}: {report}");
        assert_eq!(report.contains("products stay in flight"), stays, "{what}: {report}\n{}", print(&func));
        crate::passes::placed::membar::run(&mut func).expect("no mistake");
        for total in [0, 32, 96, 224] {
            let expected = run(&whole, matmul.buffers(total), total as i32);
            assert_eq!(run(&func, matmul.buffers(total), total as i32), expected, "{what}, K = {total}");
        }
    }
}

/// A factor that threads compute has shared memory of its own beside the slots: here 64 KiB, and 96 KiB per slot.
#[test]
fn slots_leave_room_for_factors_that_threads_store() {
    let large = Matmul { m: 128, n: 256, k: 128, masked: false, ..Matmul::default() };
    let stored = large.text().replace(
        "%d: f32[128, 256] = dot %va, %vb",
        "%vc: f16[128, 256] = add %vb, %vb\n%d: f32[128, 256] = dot %va, %vc",
    );
    let options = Options { num_warps: 8, ..Options::default() };
    for (text, expected) in [
        (large.text(), "pipelined with 2 stages of 98304 bytes"),
        (stored, "not pipelined: shared memory has room for 1 stages"),
    ] {
        let (_, report) = pipelined(&text, Target::sm_90a(), &options).expect("fewer");
        assert!(report.starts_with(expected), "{report}");
    }
}

/// Each iteration loads at places that it computes of what the one before has loaded: a copy ahead would come too late for that.
#[test]
fn what_addresses_later_iterations_is_not_copied_ahead() {
    let text = "kernel chain \"chain.rs\" unsafe bound {
           param %x x: ptr i32 {div = 16}
           param %out out: ptr_mut i32 {div = 16}
           param %n n: i32
           %zero: i32 = const 0
           %one: i32 = const 1
           %ones: i32[256] = splat %one
           %lanes: i32[256] = arange {lo = 0, hi = 256}
           %xs: *x[256] = splat %x
           %end: i32[256] = for %zero, %n, %one, %lanes {stages = 3} (%i: i32, %at: i32[256]) {
             %p: *x[256] = add_ptr %xs, %at
             %v: i32[256] = load %p
             %next: i32[256] = add %v, %ones
             yield %next
           }
           %outs: *out[256] = splat %out
           %to: *out[256] = add_ptr %outs, %lanes
           store %to, %end
           return
         }";
    let whole = placed(text, Target::sm_80(), 2);
    let options = Options { num_warps: 2, ..Options::default() };
    let (func, report) = pipelined(text, Target::sm_80(), &options).expect("it fits");
    assert_eq!(report, "not pipelined; `x`: what it loads addresses what is loaded in later iterations");
    let chain = |func: &Func, n: i32| {
        let x: HostBuffer = (0..256).map(|i| (i * 37 + 11) % 255).collect::<Vec<i32>>().into();
        let mut buffers = vec![x, vec![0; 256].into()];
        let func = Placed::new(func.clone()).expect("placed");
        run_ordered(&func, &mut buffers, &[], &[n.into()], [1, 1, 1]).expect("it ends");
        buffers[1].as_slice::<i32>().expect("i32").to_vec()
    };
    for n in 0..6 {
        let mut expected: Vec<i32> = (0..256).collect();
        for _ in 0..n {
            expected = expected.into_iter().map(|at| (at * 37 + 11) % 255 + 1).collect();
        }
        assert_eq!(chain(&whole, n), expected, "n = {n}");
        assert_eq!(chain(&func, n), expected, "n = {n}\n{}", print(&func));
    }
}
