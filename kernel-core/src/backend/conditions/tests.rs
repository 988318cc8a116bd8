//! What evaluation says of launches, against enumeration.

use super::evaluate::{Known, TooNarrow, evaluate, induction, interval};
use super::*;

fn env<'a>(scalars: &'a [Option<i128>], lengths: &'a [u64], grid: u32) -> LaunchEnv<'a> {
    LaunchEnv { scalars, lengths, grid: [grid, 1, 1] }
}

/// `program_id(0) * 1024 + arange(0, 1024)` under the mask `off < n`, into buffer 0, with n = argument 1.
fn masked_add() -> LaunchConditions {
    let mut c = LaunchConditions::default();
    let pid = c.node(Node::ProgramId(0));
    let block = c.node(Node::Fixed(1024, 1024));
    let start = c.node(Node::Mul(pid, block));
    let start = c.node(Node::Fits(start, DType::I32));
    let lane = c.node(Node::Fixed(0, 1023));
    let off = c.node(Node::Add(start, lane));
    let off = c.node(Node::Fits(off, DType::I32));
    let n = c.node(Node::Argument(ParamId::new(1)));
    let off = c.node(Node::ClipAbove(off, n, -1));
    c.require(Condition::Inside { offset: off, buffer: ParamId::new(0) });
    c
}

#[test]
fn nodes_that_are_dropped_may_come_again() {
    let mut c = masked_add();
    let (nodes, node) = (c.nodes().len(), Node::Argument(ParamId::new(7)));
    let first = c.node(node.clone());
    c.truncate(nodes);
    assert_eq!(c, masked_add());
    assert_eq!((c.node(node), c.nodes().len()), (first, nodes + 1));
}

#[test]
fn a_mask_bounds_the_offsets() {
    let c = masked_add();
    assert!(c.hold(&env(&[None, Some(3000)], &[3000], 3)));
    assert!(!c.hold(&env(&[None, Some(3001)], &[3000], 3)));
    assert!(c.hold(&env(&[None, Some(0)], &[0], 3)), "no lane is active");
    assert!(c.hold(&env(&[None, Some(i128::from(i32::MIN))], &[0], 3)));
}

#[test]
fn an_offset_that_may_wrap_is_not_trusted() {
    let c = masked_add();
    let programs = (i32::MAX as u32) / 1024 + 1;
    assert!(c.hold(&env(&[None, Some(3000)], &[3000], programs)), "the last offset is i32::MAX");
    assert!(!c.hold(&env(&[None, Some(3000)], &[3000], programs + 1)), "a wrapped offset would pass the mask");
}

/// A limit that differs between programs clips at the largest from above, at the smallest from below.
#[test]
fn a_clip_holds_for_every_limit() {
    let inside = |clip: fn(NodeId, NodeId, i8) -> Node, value, limit: (i128, i128), plus| {
        let mut c = LaunchConditions::default();
        let (lo, hi) = value;
        let value = c.node(Node::Fixed(lo, hi));
        let limit = c.node(Node::Fixed(limit.0, limit.1));
        let offset = c.node(clip(value, limit, plus));
        c.require(Condition::Inside { offset, buffer: ParamId::new(0) });
        move |len| c.hold(&env(&[None], &[len], 1))
    };
    let above = inside(Node::ClipAbove, (0, 100), (0, 50), -1);
    assert!(!above(40) && !above(49) && above(50));
    let below = inside(Node::ClipBelow, (-100, 10), (0, 50), 0);
    assert!(!below(10) && below(11), "what is at least 0 is inside");
    let below = inside(Node::ClipBelow, (-100, 10), (-3, 50), 0);
    assert!(!below(11), "what may be -3 is not");
}

/// A value that comes one of two ways is anywhere in either; a counter whose step may be zero is anywhere.
#[test]
fn ways_that_meet_and_counters_hold_every_value() {
    let known = |nodes: &[Node], last: Node| {
        let mut c = LaunchConditions::default();
        let ids: Vec<NodeId> = nodes.iter().map(|node| c.node(node.clone())).collect();
        assert_eq!(ids.len(), nodes.len());
        let values: Vec<Known<i64>> = nodes
            .iter()
            .map(|node| match node {
                Node::Fixed(lo, hi) => interval(*lo as i64, *hi as i64),
                other => panic!("{other:?}"),
            })
            .collect();
        evaluate::<i64>(&last, nodes, &values, &env(&[], &[], 1))
    };
    let mut c = LaunchConditions::default();
    let fixed = [Node::Fixed(0, 3), Node::Fixed(5, 9), Node::Fixed(1, 2), Node::Fixed(-1, 2)];
    let ids: Vec<NodeId> = fixed.iter().map(|node| c.node(node.clone())).collect();
    assert_eq!(known(&fixed, Node::Either(ids[0], ids[1])), Ok(interval(0, 9)));
    assert_eq!(known(&fixed, Node::Either(ids[1], ids[0])), Ok(interval(0, 9)));
    assert_eq!(known(&fixed, Node::Counter(ids[0], ids[1], ids[2])), Ok(interval(0, 8)));
    assert_eq!(known(&fixed, Node::Counter(ids[0], ids[1], ids[3])), Ok(Known::Nothing));
}

#[test]
fn an_empty_grid_needs_nothing() {
    assert!(masked_add().hold(&env(&[None, Some(3001)], &[0], 0)));
}

/// Interval evaluation against enumeration of all values, for every binary node on small intervals.
#[test]
fn evaluation_contains_every_value() {
    let apply = |kind: usize, x: i128, y: i128| match kind {
        0 => x + y,
        1 => x - y,
        2 => x * y,
        3 => {
            if y == 0 {
                0
            } else {
                x / y
            }
        }
        4 => {
            if y == 0 {
                x
            } else {
                x % y
            }
        }
        5 => x.min(y),
        6 => x.max(y),
        _ => x & y,
    };
    for kind in 0..8 {
        for (alo, ahi) in [(-5, 7), (0, 6), (-9, -2), (3, 3)] {
            for (blo, bhi) in [(-3, 4), (1, 5), (0, 0), (-6, -1), (0, 3)] {
                let mut c = LaunchConditions::default();
                let (a, b) = (c.node(Node::Fixed(alo, ahi)), c.node(Node::Fixed(blo, bhi)));
                let node = [Node::Add, Node::Sub, Node::Mul, Node::Div, Node::Rem, Node::Min, Node::Max, Node::And]
                    [kind](a, b);
                let values = [interval(alo, ahi), interval(blo, bhi)];
                let known = evaluate::<i128>(&node, &[], &values, &env(&[], &[], 1));
                let narrow = |i: i128| i as i64;
                let values = [(alo, ahi), (blo, bhi)].map(|(lo, hi)| interval(narrow(lo), narrow(hi)));
                match (known, evaluate::<i64>(&node, &[], &values, &env(&[], &[], 1))) {
                    (Ok(Known::In(wide)), Ok(Known::In(narrow))) => {
                        assert_eq!((wide.lo, wide.hi), (narrow.lo.into(), narrow.hi.into()), "{node:?}");
                    }
                    (Ok(Known::Nothing), Ok(Known::Nothing)) | (Ok(Known::Never), Ok(Known::Never)) => {}
                    (wide, narrow) => panic!("{node:?}: {wide:?} in 128 bits, {narrow:?} in 64"),
                }
                let Ok(Known::In(got)) = known else { continue };
                for x in alo..=ahi {
                    for y in blo..=bhi {
                        let v = apply(kind, x, y);
                        assert!(got.lo <= v && v <= got.hi, "{node:?} of {x} and {y} is {v}, not in {got:?}");
                    }
                }
            }
        }
    }
}

/// A counter ends at its last step, wherever the loop begins and ends; where steps differ, below its end.
#[test]
fn counters_end_at_their_last_step() {
    let largest = |lo: (i128, i128), factor: i128, hi: (i128, i128), step: (i128, i128)| {
        let mut c = LaunchConditions::default();
        let [lo, factor, hi, step] =
            [lo, (factor, factor), hi, step].map(|(least, most)| c.node(Node::Fixed(least, most)));
        let first = c.node(Node::Mul(lo, factor));
        let counter = c.node(Node::Counter(first, hi, step));
        // The smallest buffer that the counter is inside of.
        c.require(Condition::Inside { offset: counter, buffer: ParamId::new(0) });
        (0..300u64).find(|&len| c.hold(&env(&[None], &[len], 1))).map(|len| i128::from(len) - 1)
    };
    for (least, most, factor) in [(0, 0, 1), (3, 3, 1), (0, 3, 1), (0, 3, 6), (1, 2, 16), (2, 5, 4)] {
        for step in [1, 4, 16, 24] {
            for end in [0, 1, 7, 16, 17, 64, 100] {
                let values = (least..=most).flat_map(|lo| (lo * factor..end).step_by(step as usize));
                let found = largest((least, most), factor, (end - 5, end), (step, step));
                let actual = values.max().unwrap_or(-1);
                assert!(found.is_some_and(|found| found >= actual), "{least}..={most} * {factor}, {end}, {step}");
                let exact = (least == most || factor % step == 0) && actual >= 0;
                assert!(!exact || found == Some(actual), "{least}..={most} * {factor}, {end}, {step}: {found:?}");
            }
        }
    }
    assert_eq!(largest((0, 0), 1, (64, 64), (16, 16)), Some(48));
    assert_eq!(largest((0, 7), 16, (64, 64), (128, 128)), Some(48), "programs that take turns");
    assert_eq!(largest((0, 0), 1, (64, 64), (16, 17)), Some(63), "one of two steps");
    assert_eq!(largest((5, 5), 1, (3, 3), (2, 2)), Some(-1), "it does not run");
}

#[test]
fn inductions_count_trips() {
    let one = |v: i64| interval(v, v);
    let bounds = [one(0), one(10), one(4)];
    assert_eq!(induction(one(5), bounds, one(3), false), Ok(interval(5, 11)), "three iterations");
    assert_eq!(induction(one(5), bounds, one(3), true), Ok(interval(5, 14)));
    assert_eq!(induction(one(5), [one(3), one(1), one(1)], one(3), true), Ok(one(5)), "no iteration");
    assert_eq!(induction(one(5), [one(3), one(1), one(1)], one(3), false), Ok(one(5)));
    assert_eq!(induction(one(5), bounds, one(i64::MAX), true), Err(TooNarrow));
    let wide = |v: i128| interval(v, v);
    let bounds = [wide(0), wide(10), wide(4)];
    assert_eq!(induction(wide(0), bounds, wide(i128::MAX), true), Ok(Known::Nothing), "it may have wrapped");
}

/// Numbers beyond 64 bits are answered by the wider evaluation.
#[test]
fn wide_numbers_are_compared_exactly() {
    let mut c = LaunchConditions::default();
    let n = c.node(Node::Argument(ParamId::new(1)));
    let square = c.node(Node::Mul(n, n));
    let reduced = c.node(Node::Div(square, n));
    c.require(Condition::Inside { offset: reduced, buffer: ParamId::new(0) });
    let holds = |n: i128, len: u64| c.hold(&env(&[None, Some(n)], &[len], 1));
    for n in [5, i128::from(i64::MAX), i128::from(i64::MAX) + 10] {
        assert!(holds(n, n as u64 + 1), "{n}");
        assert!(!holds(n, n as u64), "{n}");
    }
    assert!(!holds(i128::from(u64::MAX), u64::MAX), "the square does not fit 128 bits");
    assert!(!holds(i128::MIN, u64::MAX));
}
