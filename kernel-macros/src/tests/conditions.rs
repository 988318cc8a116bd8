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

/// What the kernel gives for some `n`; nothing if its constexprs are refused.
fn run(condition: &str, consts: [i64; 3]) -> Option<Vec<i32>> {
    let source = format!(
        "fn k<const N: usize, const M: usize, const FLAG: bool>(out: PtrMut<i32>, n: i32) {{
            if {condition} {{ store(out, 1); }}
        }}"
    );
    let generic = Generic::new(func(&source)).unwrap_or_else(|_| panic!("not generic: {source}"));
    let bound = bind(&generic, &Bindings { consts: consts.to_vec(), ..Bindings::default() });
    let bound =
        bound.inspect_err(|errors| assert!(errors[0].message.contains("divides by zero"), "{errors:?}")).ok()?;
    let of = |n: i32| {
        let mut buffers = [HostBuffer::from(vec![0, n])];
        run_kernel(&bound, &mut buffers, &[HostScalar::from(n)], [1, 1, 1]).unwrap_or_else(|e| panic!("{e}\n{source}"));
        buffers[0].as_slice::<i32>().map_or(-1, |out| out[0])
    };
    Some([0, 3, 8].map(of).to_vec())
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
