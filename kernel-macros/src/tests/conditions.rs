//! `&&` and `||` on constexprs: the right side is evaluated only if it is needed, as in the branches of an `if`.

use kernel_core::interp::{HostBuffer, HostScalar, run_kernel};
use kernel_core::ir::Generic;
use kernel_core::passes::{Bindings, bind};

use super::hostile::Random;
use super::support::func;

/// Conditions on `N` and `M`, constexprs, and `n`, a number of the launch. Some divide by zero where `N` is 0.
const TERMS: [&str; 8] =
    ["N != 0", "N == 0", "M / N > 2", "M % N == 0", "n > 5", "M / N > n", "load(out + 1) > 7", "FLAG"];

enum Condition {
    Term(&'static str),
    Not(Box<Condition>),
    And(Box<[Condition; 2]>),
    Or(Box<[Condition; 2]>),
}

impl Condition {
    fn random(random: &mut Random, depth: usize) -> Condition {
        match random.next(if depth == 0 { 1 } else { 7 }) {
            0 | 1 => Condition::Term(TERMS[random.next(TERMS.len())]),
            2 => Condition::Not(Box::new(Condition::random(random, depth - 1))),
            at => {
                let sides = Box::new([0, 1].map(|_| Condition::random(random, depth - 1)));
                if at % 2 == 0 { Condition::And(sides) } else { Condition::Or(sides) }
            }
        }
    }

    fn source(&self) -> String {
        match self {
            Condition::Term(term) => format!("({term})"),
            Condition::Not(inner) => format!("!{}", inner.source()),
            Condition::And(sides) => format!("({} && {})", sides[0].source(), sides[1].source()),
            Condition::Or(sides) => format!("({} || {})", sides[0].source(), sides[1].source()),
        }
    }

    /// The same in branches.
    fn branches(&self) -> String {
        match self {
            Condition::Term(term) => format!("({term})"),
            Condition::Not(inner) => format!("!{}", inner.branches()),
            Condition::And(sides) => {
                format!("(if {} {{ {} }} else {{ false }})", sides[0].branches(), sides[1].branches())
            }
            Condition::Or(sides) => {
                format!("(if {} {{ true }} else {{ {} }})", sides[0].branches(), sides[1].branches())
            }
        }
    }
}

/// What a kernel gives that stores 1 on that condition.
fn run(condition: &str, consts: [i64; 3]) -> Option<Vec<i32>> {
    run_body(&format!("if {condition} {{ store(out, 1); }}"), consts)
}

/// The launches: `n` and `flag`.
const LAUNCHES: [(i32, bool); 6] = [(0, false), (0, true), (3, false), (3, true), (8, false), (8, true)];

/// What the kernel gives for each launch; nothing if its constexprs are refused.
fn run_body(body: &str, consts: [i64; 3]) -> Option<Vec<i32>> {
    let source = format!(
        "fn k<const N: usize, const M: usize, const FLAG: bool>(out: PtrMut<i32>, n: i32, flag: bool) {{
            {body}
        }}"
    );
    let generic = Generic::new(func(&source)).unwrap_or_else(|_| panic!("not generic: {source}"));
    let bound = bind(&generic, &Bindings { consts: consts.to_vec(), ..Bindings::default() });
    let bound =
        bound.inspect_err(|errors| assert!(errors[0].message.contains("divides by zero"), "{errors:?}")).ok()?;
    let of = |(n, flag)| {
        let mut buffers = [HostBuffer::from(vec![0, n])];
        let scalars = [HostScalar::from(n), HostScalar::from(flag)];
        run_kernel(&bound, &mut buffers, &scalars, [1, 1, 1]).unwrap_or_else(|e| panic!("{e}\n{source}"));
        buffers[0].as_slice::<i32>().map_or(-1, |out| out[0])
    };
    Some(LAUNCHES.map(of).to_vec())
}

#[test]
fn sides_that_constexprs_leave_out_are_not_evaluated() {
    for guarded in [
        "N != 0 && M / N > 2",
        "N == 0 || M % N == 0",
        "N != 0 && n > 5 && M / N > 2",
        "n > 5 && N != 0 && M / N > 2",
        "n > 5 && load(out + 1) > 7 && N != 0 && n > 6 && M / N > 2",
        "N == 0 || n > 5 || M / N > n",
        "!(N == 0 || n > 5) && M / N > n",
        "N != 0 && !(n > 5 && M / N > 2)",
    ] {
        assert!(run(guarded, [0, 8, 1]).is_some(), "{guarded}");
    }
    assert_eq!(run("n > 5 && M / N > 2", [0, 8, 1]), None, "which way it takes is not known");
}

#[test]
fn sides_are_left_out_by_what_names_and_variables_hold() {
    for (before, condition) in [
        ("let ok = if N != 0 { M > 2 } else { false };", "ok && M / N > 2"),
        ("let ok = if N != 0 { n > 5 } else { false };", "ok && M / N > 2"),
        ("let ok = if N != 0 { n > 5 } else { false };", "ok && n > 6 && M / N > n"),
        ("let ok = N != 0 && load(out + 1) > 5;", "ok && M / N > n && M % N == 0"),
        ("let ok = if N != 0 { n > 5 } else { false }; let m = n + 1;", "m > 0 && ok && M / N > 2"),
        ("let bad = if N == 0 { true } else { n > 5 }; let m = n + 1;", "(bad || M / N > m) && m > 0"),
        ("let (ok, m) = if N != 0 { (true, n) } else { (false, 1) };", "m > 0 && ok && M / N > 2"),
        ("let mean = if N != 0 { M / N } else { 0 };", "mean != 0 && M % N == 0"),
        ("let ok = N != 0 && n > 5; let m = n + 1;", "!(!ok || m > 20) && M / N > n"),
        ("let mut ok = N != 0;", "ok && M / N > 2"),
        ("let mut ok = false; if N != 0 { ok = true; }", "ok && (n > 5 && M / N > 2)"),
        ("let mut count = 0; if N != 0 { count = 1; }", "count + 1 == 1 || M / N > n"),
        ("", "(N != 0) & (n > 5) && M / N > 2"),
        ("", "((N == 0) | (n > 5)) || M / N > 2"),
    ] {
        let nested = format!("{before} if {condition} {{ store(out, 1); }}");
        for consts in [[0, 8, 1], [2, 8, 1], [8, 8, 0]] {
            assert!(run_body(&nested, consts).is_some(), "{nested}, N = {}", consts[0]);
        }
    }
}

/// What a kernel of these constexprs and launch is given.
struct Given {
    big_n: i32,
    big_m: i32,
    fixed: bool,
    n: i32,
    flag: bool,
}

/// Kernels whose right sides read what the left side is made of, and when they store 1.
type Reading = (&'static str, &'static str, fn(&Given) -> bool);

const READING: [Reading; 16] = [
    ("let (found, at) = if FLAG & (n > 2) { (load(out + 1) > 2, n) } else { (false, 0) };", "found && at > 2", |g| {
        g.fixed && g.n > 2
    }),
    (
        "let (found, at) = if (N != 0) & (n > 2) { (load(out + 1) > 2, n) } else { (false, 0) };",
        "found && at > 2",
        |g| g.big_n != 0 && g.n > 2,
    ),
    ("let (lost, at) = if FLAG & (n > 2) { (load(out + 1) > 7, n) } else { (true, 7) };", "lost || at > 2", |_| true),
    (
        "let lim = if FLAG { n } else { 4 };
         let (found, at) = if lim > 2 { (load(out + 1) > 2, n) } else { (false, 0) };",
        "found && at > 2",
        |g| g.n > 2,
    ),
    ("let lim = if FLAG { n } else { 4 }; let ok = lim > 2 && load(out + 1) > 2;", "ok && (n > 3 || ok)", |g| g.n > 2),
    ("let ok = FLAG & flag && load(out + 1) > 2;", "ok && (n > 3 || ok)", |g| g.fixed && g.flag && g.n > 2),
    ("let ok = FLAG & flag && load(out + 1) > 2; let ok2 = ok && n > 3;", "ok2 && ok", |g| {
        g.fixed && g.flag && g.n > 3
    }),
    ("let ok = (N != 0) & (n > 2); let r = if ok { flag } else { false };", "r && (r == flag)", |g| {
        g.big_n != 0 && g.n > 2 && g.flag
    }),
    ("let c = if N != 0 { n } else { 0 }; let ok = if c > 2 { flag } else { false };", "ok && (ok == (n > 4))", |g| {
        g.big_n != 0 && g.n > 4 && g.flag
    }),
    ("let ok = if N != 0 { n > 5 } else { false };", "ok && (ok == flag)", |g| g.big_n != 0 && g.n > 5 && g.flag),
    ("let (ok, m) = if N != 0 { (n > 2, n) } else { (false, 1) };", "ok && m > 2", |g| g.big_n != 0 && g.n > 2),
    ("let a = N != 0 && n > 2;", "a && a", |g| g.big_n != 0 && g.n > 2),
    ("let a = N != 0 && n > 2 && flag;", "a && !a", |_| false),
    ("let mut at = 0;", "({ at = n; N != 0 && n > 2 }) && at > 3", |g| g.big_n != 0 && g.n > 3),
    (
        "",
        "(if FLAG { let (a, b) = if M > 2 { (n > 2, flag) } else { (flag, false) }; (a, b) } else { (false, flag) }).0 && flag",
        |g| g.fixed && g.flag && (g.big_m <= 2 || g.n > 2),
    ),
    ("let ok = (N != 0) & (n > 2); let r = ok && M / N > 0;", "r && (r == flag)", |g| {
        g.big_n != 0 && g.n > 2 && g.big_m / g.big_n > 0 && g.flag
    }),
];

#[test]
fn right_sides_read_what_the_left_side_is_made_of() {
    for (before, condition, holds) in READING {
        let stored = format!("{before} if {condition} {{ store(out, 1); }}");
        let named = format!("{before} let both = {condition}; if both {{ store(out, 1); }}");
        for body in [stored, named] {
            for consts @ [big_n, big_m, fixed] in [[0, 8, 1], [2, 8, 0], [8, 2, 1]] {
                let wanted = LAUNCHES.map(|(n, flag)| {
                    let given = Given { big_n: big_n as i32, big_m: big_m as i32, fixed: fixed == 1, n, flag };
                    i32::from(holds(&given))
                });
                assert_eq!(run_body(&body, consts), Some(wanted.to_vec()), "{body}, N, M, FLAG = {consts:?}");
            }
        }
    }
}

/// A right side that constexprs decide leaves out what lies in the branch, whatever the left side is.
#[test]
fn branches_that_the_right_side_leaves_out_are_not_bound() {
    for ok in ["let ok = if N != 0 { n > 5 } else { false };", "let mut ok = n > 5;", "let ok = (N != 0) & (n > 5);"] {
        // There is no tile of no elements.
        let body = format!("{ok} let m = n; if ok && M / N > 2 {{ store(out + arange(0, M / N - 2), m); }}");
        assert_eq!(run_body(&body, [8, 16, 1]), Some(vec![0; 6]), "{body}");
    }
}

#[test]
fn operators_do_what_the_branches_do_that_they_stand_for() {
    let mut ran = 0;
    for seed in 1..=400 {
        let condition = Condition::random(&mut Random::new(seed), 3);
        let (short, long) = (condition.source(), condition.branches());
        for consts in [[0, 8, 1], [2, 9, 0]] {
            // Where a branch of the launch gives a condition of constexprs, the operators know more.
            let Some(wanted) = run(&long, consts) else { continue };
            assert_eq!(run(&short, consts), Some(wanted), "{short}, N = {}", consts[0]);
            ran += 1;
        }
    }
    assert!(ran > 400, "{ran} conditions ran");
}
