//! The placed level: shared memory, asynchronous copies, barriers with phases and warp groups, with adversarial
//! timing.

#![cfg(feature = "interp")]

mod interp_support;

use interp_support::{elements, fault, placed, pointers, try_run_placed};
use kernel_core::interp::FaultKind;

const X_OUT: &str = "param %x x: ptr f32\nparam %out out: ptr_mut f32";

fn x() -> Vec<f32> {
    (1..=8).map(|i| i as f32).collect()
}

/// Runs a body on `x` of 8 elements and `out` of 8 zeros, with `%px` and `%po` pointing to them.
fn run(body: &str) -> (Vec<f32>, Result<(), kernel_core::interp::Fault>) {
    let body = pointers("px", "x", 8) + &pointers("po", "out", 8) + body;
    let (buffers, result) = try_run_placed(&placed(X_OUT, &body), vec![x().into(), vec![0f32; 8].into()]);
    (elements(&buffers[1]), result)
}

#[test]
fn shared_memory_holds_what_was_stored_and_is_poisoned_before() {
    let (out, result) = run("%v: f32[8] = load %px
        %s: shared f32[2, 8] = shared_alloc
        %one: i32 = const 1
        %zero: i32 = const 0
        %s1: shared f32[8] = shared_index %s, %one
        %s0: shared f32[8] = shared_index %s, %zero
        shared_store %s1, %v
        barrier
        %a: f32[8] = shared_load %s1
        %b: f32[8] = shared_load %s0
        %nan: bool[8] = cmp.ne %b, %b
        %r: f32[8] = select %nan, %a, %b
        store %po, %r");
    assert_eq!((out, result), (x(), Ok(())));
}

#[test]
fn an_index_beyond_shared_memory_is_a_fault() {
    for (index, at) in [("2", 2), ("-1", -1)] {
        let (out, result) = run(&format!(
            "%s: shared f32[2, 8] = shared_alloc
             %i: i32 = const {index}
             %s1: shared f32[8] = shared_index %s, %i
             %v: f32[8] = load %px
             store %po, %v"
        ));
        assert_eq!(fault(result), FaultKind::SharedOutOfBounds { index: at, len: 2 });
        assert_eq!(out, [0.0; 8]);
    }
}

/// Two copies in two groups; waits until at most `pending` are in flight, then reads both.
fn copies(pending: u8) -> (Vec<f32>, Vec<f32>) {
    let body = pointers("px", "x", 8)
        + &pointers("po", "out", 8)
        + &pointers("pq", "other", 8)
        + &format!(
            "%s: shared f32[2, 8] = shared_alloc
             %zero: i32 = const 0
             %one: i32 = const 1
             %s0: shared f32[8] = shared_index %s, %zero
             %s1: shared f32[8] = shared_index %s, %one
             %t0: token = async_copy %s0, %px
             %g0: token = async_commit %t0
             %t1: token = async_copy %s1, %px
             %g1: token = async_commit %t1
             %w: token = async_wait %g0, %g1 {{pending = {pending}}}
             %a: f32[8] = shared_load %s0
             %b: f32[8] = shared_load %s1
             store %po, %a
             store %pq, %b"
        );
    let func = placed("param %x x: ptr f32\nparam %out out: ptr_mut f32\nparam %other other: ptr_mut f32", &body);
    let (buffers, result) = try_run_placed(&func, vec![x().into(), vec![0f32; 8].into(), vec![0f32; 8].into()]);
    assert_eq!(result, Ok(()));
    (elements(&buffers[1]), elements(&buffers[2]))
}

#[test]
fn copies_land_at_their_wait_and_no_earlier() {
    let is_poison = |v: &[f32]| v.iter().all(|x| x.is_nan());
    let (a, b) = copies(0);
    assert_eq!((a, b), (x(), x()));
    let (a, b) = copies(1);
    assert!(a == x() && is_poison(&b), "{a:?} {b:?}");
    let (a, b) = copies(2);
    assert!(is_poison(&a) && is_poison(&b), "{a:?} {b:?}");
}

#[test]
fn masked_copies_fill_with_zeros_and_poison_what_was_there() {
    let (out, result) = run("%v: f32[8] = load %px
        %s: shared f32[8] = shared_alloc
        shared_store %s, %v
        %five: i32 = const 5
        %fives: i32[8] = splat %five
        %m: bool[8] = cmp.lt %px_i, %fives
        %t: token = async_copy %s, %px, %m
        %early: f32[8] = shared_load %s
        %bad: bool[8] = cmp.ne %early, %early
        assert %bad {message = \"a copy in flight leaves nothing to read\"}
        %g: token = async_commit %t
        %w: token = async_wait %g {pending = 0}
        %late: f32[8] = shared_load %s
        store %po, %late");
    assert_eq!((out, result), (vec![1.0, 2.0, 3.0, 4.0, 5.0, 0.0, 0.0, 0.0], Ok(())));
}

#[test]
fn a_wait_that_nothing_completes_is_a_deadlock() {
    let wait = |arrivals: usize, phase: i32| {
        let mut body = String::from(
            "%bar: barrier[2] = mbarrier_alloc {slots = 2, count = 2}
             %one: i32 = const 1\n",
        );
        for _ in 0..arrivals {
            body += "mbarrier_arrive %bar, %one\n";
        }
        body += &format!(
            "%phase: i32 = const {phase}
             mbarrier_wait %bar, %one, %phase
             %v: f32[8] = load %px
             store %po, %v"
        );
        let (out, result) = run(&body);
        assert_eq!(out == x(), result.is_ok());
        result.map_err(|f| f.kind)
    };
    let deadlock = |phase| Err(FaultKind::Deadlock { slot: 1, phase });
    // Of a fresh barrier phase 1, the one before the first, counts as complete.
    assert_eq!(wait(0, 1), Ok(()));
    assert_eq!(wait(0, 0), deadlock(0));
    assert_eq!(wait(1, 0), deadlock(0));
    assert_eq!(wait(2, 0), Ok(()));
    assert_eq!(wait(2, 1), deadlock(1));
    assert_eq!(wait(4, 1), Ok(()));
}

/// A producer and a consumer over a ring of two stages: full and empty barriers with phases, eight rounds.
fn ring(consumer_releases: bool) -> (Vec<f32>, Result<(), kernel_core::interp::Fault>) {
    let release = if consumer_releases { "mbarrier_arrive %empty, %cs" } else { "" };
    run(&format!(
        "%s: shared f32[2, 1] = shared_alloc
         %full: barrier[2] = mbarrier_alloc {{slots = 2, count = 1}}
         %empty: barrier[2] = mbarrier_alloc {{slots = 2, count = 1}}
         %zero: i32 = const 0
         %one: i32 = const 1
         %two: i32 = const 2
         %eight: i32 = const 8
         warp_groups {{warps = [4, 4], roles = [consumer, producer], registers = [40, 232]}} {{
           for %zero, %eight, %one (%i: i32) {{
             %ps: i32 = rem %i, %two
             %pr: i32 = div %i, %two
             %pp: i32 = rem %pr, %two
             %pe: i32 = xor %pp, %one
             mbarrier_wait %empty, %ps, %pe
             %pv: shared f32[1] = shared_index %s, %ps
             %pa: *x = add_ptr %x, %i
             %pl: f32 = load %pa
             %pt: f32[1] = splat %pl
             shared_store %pv, %pt
             mbarrier_arrive %full, %ps
             yield
           }}
           yield
         }} with {{
           for %zero, %eight, %one (%j: i32) {{
             %cs: i32 = rem %j, %two
             %cr: i32 = div %j, %two
             %cp: i32 = rem %cr, %two
             mbarrier_wait %full, %cs, %cp
             %cv: shared f32[1] = shared_index %s, %cs
             %ct: f32[1] = shared_load %cv
             {release}
             %cl: f32 = reshape %ct
             %ten: f32 = const 10.0
             %cm: f32 = mul %cl, %ten
             %ca: *out = add_ptr %out, %j
             store %ca, %cm
             yield
           }}
           yield
         }}"
    ))
}

#[test]
fn warp_groups_hand_data_over_through_barriers() {
    let (out, result) = ring(true);
    let want: Vec<f32> = x().iter().map(|x| x * 10.0).collect();
    assert_eq!((out, result), (want, Ok(())));
}

#[test]
fn a_consumer_that_never_releases_deadlocks() {
    let (out, result) = ring(false);
    // The producer fills both stages and waits for the first to be empty again.
    assert_eq!(fault(result), FaultKind::Deadlock { slot: 0, phase: 0 });
    assert_eq!(out, [10.0, 20.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
}

#[test]
fn hidden_parameters_take_no_arguments() {
    let body = "%p: *out = add_ptr %out, %len
        %zero: f32 = const 1.0
        %m: i64 = const -1
        %q: *out = add_ptr %p, %m
        store %q, %zero";
    let params = "param %out out: ptr_mut f32\nparam %report report: report_slot\nparam %len len: length out";
    let func = placed(params, body);
    let (buffers, result) = try_run_placed(&func, vec![vec![0f32; 5].into()]);
    assert_eq!(result, Ok(()));
    assert_eq!(elements::<f32>(&buffers[0]), [0.0, 0.0, 0.0, 0.0, 1.0]);
}
