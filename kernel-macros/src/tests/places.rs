//! Operations know their lines, and those of the calls that inlined them.

use kernel_core::ir::{ControlOp, MemoryOp, Op};

use super::support::func;

/// The operations of a kernel that can fail: what they are, their lines, and the lines of the calls, the innermost first.
fn places(source: &str) -> Vec<(&'static str, u32, Vec<u32>)> {
    let func = func(source);
    let name = |op: &Op| match op {
        Op::Memory(MemoryOp::Load { .. }) => Some("load"),
        Op::Memory(MemoryOp::Store { .. }) => Some("store"),
        Op::Control(ControlOp::Assert { .. }) => Some("assert"),
        Op::Control(ControlOp::For { .. }) => Some("for"),
        _ => None,
    };
    let calls = |span| func.files.calls_to(span).map(|call| call.line).collect();
    let found = func.ops.iter().filter_map(|op| Some((name(&op.op)?, op.span.line, calls(op.span))));
    let mut found: Vec<_> = found.collect();
    found.sort();
    found
}

#[test]
fn operations_know_the_calls_that_inlined_them() {
    let source = "#[device] fn inner(x: Ptr<f32>, i: i32) -> f32 { assert!(i > 0, \"i\"); load(x + i) }
#[device] fn outer(x: Ptr<f32>, i: i32) -> f32 {
    for j in 0..i {
        assert!(inner(x, j) > 0.0, \"j\");
    }
    inner(x, i) + load(x)
}
fn k(x: Ptr<f32>, out: PtrMut<f32>, n: i32) {
    store(out, outer(x, n));
    let twice = |a| inner(x, a) * 2.0;
    store(out, twice(1));
    store(out, load(x) + inner(x, 3));
}";
    let wanted = [
        ("assert", 1, vec![4, 9]),
        ("assert", 1, vec![6, 9]),
        ("assert", 1, vec![10, 11]),
        ("assert", 1, vec![12]),
        ("assert", 4, vec![9]),
        ("for", 3, vec![9]),
        ("load", 1, vec![4, 9]),
        ("load", 1, vec![6, 9]),
        ("load", 1, vec![10, 11]),
        ("load", 1, vec![12]),
        ("load", 6, vec![9]),
        ("load", 12, vec![]),
        ("store", 9, vec![]),
        ("store", 11, vec![]),
        ("store", 12, vec![]),
    ];
    assert_eq!(places(source), wanted);
}

#[test]
fn early_returns_keep_the_places_of_calls() {
    let source = "#[device] fn f(out: PtrMut<i32>, n: i32) {
    if n > 3 { return; }
    store(out, n);
}
fn k(out: PtrMut<i32>, n: i32) {
    if n > 7 { return; }
    f(out, n);
    store(out, 2);
}";
    assert_eq!(places(source), [("store", 3, vec![7]), ("store", 8, vec![])]);
}

#[test]
fn calls_at_one_place_are_listed_once() {
    let source = "#[device] fn f(x: i32) -> i32 { x / 3 }
fn k(out: PtrMut<i32>, n: i32) {
    store(out, f(n));
    store(out, f(n + 1) + f(n + 2));
}";
    assert_eq!(func(source).files.calls().len(), 3);
}
