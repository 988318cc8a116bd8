//! The macro is fast enough to be unoptimised, as cargo builds it.

use std::time::{Duration, Instant};

use super::support::expand;

/// What the expansion of a kernel of fifty lines may take.
const BUDGET: Duration = Duration::from_millis(50);

/// A kernel of fifty lines of arithmetic.
fn fifty_lines() -> String {
    let mut source = String::from(
        "pub fn long<T: Float, const BLOCK: usize>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>, n: i32) {\n\
         let offsets = program_id(0) * BLOCK + arange(0, BLOCK);\n\
         let mask = offsets < n;\n\
         let mut a = load(x + offsets, mask = mask) as f32;\n\
         let b = load(y + offsets, mask = mask) as f32;\n",
    );
    for i in 1..=22 {
        source += &format!("let t{i} = exp(a * 2.0 - {i}.0) + maximum(b, {i}.5);\n");
        source += &format!("a += select(t{i} > 0.0, t{i}, a) / (1.0 + abs(b));\n");
    }
    source + "store(out + offsets, a as T, mask = mask);\n}"
}

#[test]
fn fifty_lines_expand_within_the_budget() {
    let source = fifty_lines();
    assert!(source.lines().count() >= 50);
    within(BUDGET, &source);
}

/// What the expansion of a kernel and the ten functions that it calls may take, with everything that each hands on: of the half
/// second that `cargo check` may take after an edit, what cargo and rustc leave.
const BUDGET_OF_TEN: Duration = Duration::from_millis(200);

/// What `scripts/time-builds` edits, without what rustc reads before the macros: ten functions, a struct and a kernel.
fn ten_functions() -> String {
    let source = include_str!("../../../scripts/ten_functions.rs").replace("EDIT", "2");
    let rustc = |line: &&str| ["//", "use ", "const ", "#[kernel]"].iter().any(|start| line.starts_with(start));
    source.lines().filter(|line| !rustc(line)).collect::<Vec<_>>().join("\n")
}

#[test]
fn ten_functions_expand_within_the_budget() {
    let source = ten_functions();
    within(BUDGET_OF_TEN, &source);
}

/// The best of many, if need be: other processes take time too.
fn within(budget: Duration, source: &str) {
    let once = || {
        let start = Instant::now();
        let (_, messages) = expand("", source);
        assert!(messages.is_empty(), "{messages:?}");
        start.elapsed()
    };
    let mut best = once();
    for _ in 0..300 {
        if best <= budget {
            break;
        }
        best = best.min(once());
    }
    println!("it expands in {best:?}");
    assert!(best <= budget, "{best:?}");
}
