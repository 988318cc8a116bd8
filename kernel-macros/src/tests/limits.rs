//! Kernels that are right but for their size: each limit has a message of its own, and is met in a short time.

use std::fmt::Write;
use std::time::{Duration, Instant};

use kernel_core::ir::Generic;
use kernel_core::passes::{Bindings, bind};

use super::support::{expand, func, on_half_the_stack};

/// A kernel with that body, in which names that nothing reads are no mistake.
fn kernel(body: &str) -> String {
    format!("fn k(out: PtrMut<i32>, n: i32, c: bool) {{ {body} }}")
}

fn messages(body: &str) -> Vec<String> {
    let start = Instant::now();
    let messages = on_half_the_stack(|| expand("", &kernel(body)).1);
    // Unoptimised, on a shared machine.
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    messages
}

fn accepted(kernel: &str) {
    on_half_the_stack(|| {
        func(kernel);
    });
}

#[track_caller]
fn refused(body: &str, with: &str) {
    let messages = messages(body);
    assert!(messages.len() == 1 && messages[0].contains(with), "{messages:?}");
}

/// Kernels beyond each limit.
pub fn beyond() -> Vec<String> {
    let returns = "if n > 7 { return; } ".repeat(101);
    let branches = format!("if c {{ return; }} {}", "else if c { return; } ".repeat(130));
    let parts = format!("let t = ({});", "n, ".repeat(2000));
    let unknown: String = (0..150).map(|i| format!("store(out, unknown{i}); ")).collect();
    [returns, branches, parts, unknown].iter().map(|body| kernel(body)).collect()
}

/// What binding says of a kernel with a constexpr `N`.
fn bound(body: &str, n: i64) -> Vec<String> {
    let source = format!("fn k<const N: i64>(out: PtrMut<i64>) {{ {body} }}");
    let generic = Generic::new(func(&source)).unwrap_or_else(|_| panic!("not generic: {source}"));
    let bound = bind(&generic, &Bindings { consts: vec![n], ..Bindings::default() });
    bound.err().unwrap_or_default().into_iter().map(|error| error.message.into()).collect()
}

#[test]
fn an_unrolled_range_that_includes_the_greatest_constexpr_is_refused() {
    let message = "under `#[unroll]` a constexpr that `..=` includes is 9223372036854775806 at most";
    for range in ["N - 2..=N", "(N - 2..=N).rev()", "(N - 2..=N).step_by(2)", "N - 2..=maximum(N, 7)"] {
        for body in ["store(out, i);", "if i == N { break; } store(out, i);"] {
            let body = format!("#[unroll] for i in {range} {{ {body} }}");
            let errors = bound(&body, i64::MAX);
            assert!(errors.len() == 1 && errors[0].contains(message), "{body}: {errors:?}");
            assert_eq!(bound(&body, i64::MAX - 1), Vec::<String>::new(), "{body}");
        }
    }
    for range in ["N - 2..=i64::MAX", "(N - 2..=i64::MAX).rev()", "(N - 2..=N).rev().step_by(2)", "N - 2..N"] {
        let body = format!("#[unroll] for i in {range} {{ store(out, i); }}");
        assert_eq!(bound(&body, i64::MAX), Vec::<String>::new(), "{body}");
    }
}

#[test]
fn a_mistake_in_an_end_that_an_unrolled_range_includes_is_told_once() {
    for (end, n, mistake) in [
        ("8 / N", 0, "`(8 / N)` divides by zero with N = 0"),
        ("N * 4611686018427387904", 2, "`4611686018427387904 * N` does not fit 64 bits with N = 2"),
        ("8 % N", 0, "`(8 % N)` divides by zero with N = 0"),
    ] {
        for body in ["store(out, i as i64);", "if i == 2 { break; } store(out, i as i64);"] {
            for range in [format!("0i64..={end}"), format!("0u64..={end}"), format!("({end}..={end}).rev()")] {
                let body = format!("#[unroll] for i in {range} {{ {body} }}");
                assert_eq!(bound(&body, n), [mistake], "{body}");
            }
        }
    }
}

#[test]
fn a_hundred_early_returns_compile_and_more_are_refused() {
    accepted(&kernel(&"if n > 7 { return; } ".repeat(100)));
    accepted(&kernel(&"if n > 7 { if c { return; } } store(out, n); ".repeat(100)));
    for times in [101, 300, 2000] {
        refused(&"if n > 7 { return; }\n".repeat(times), "101:12: a kernel may return early 100 times in a row");
        let partial = "if n > 7 { if c { return; } }\nstore(out, n);".repeat(times);
        refused(&partial, "a kernel may return early 100 times in a row");
    }
}

#[test]
fn a_hundred_jumps_in_a_loop_compile_and_more_are_refused() {
    for (jump, may) in [("break", "a loop may `break`"), ("continue", "a loop may `continue`")] {
        let body = |times: usize| format!("for i in 0..n {{\n{}}}", format!("if i > 7 {{ {jump}; }}\n").repeat(times));
        accepted(&kernel(&body(100)));
        for times in [101, 300, 2000] {
            refused(&body(times), &format!("102:12: {may} 100 times in a row"));
        }
    }
}

#[test]
fn returns_in_deep_blocks_are_refused_before_the_launch_cannot_read_them() {
    let inner = |returns: usize| {
        let chain: String = (0..115).map(|i| format!("if n == {i} {{ }} else ")).collect();
        format!("{chain} {{ {} }}", "if n > 7 { return; } ".repeat(returns))
    };
    accepted(&kernel(&inner(80)));
    refused(&inner(95), "nest more than 200 deep");
}

#[test]
fn chains_of_branches_are_as_long_as_other_things_are_deep() {
    let chain = |count: usize| {
        let mut source = "if n == 0 { store(out, 0); }".to_string();
        for i in 1..count {
            let _ = write!(source, " else if n == {i} {{ store(out, {i}); }}");
        }
        source
    };
    accepted(&kernel(&chain(120)));
    for count in [130, 2000] {
        refused(&chain(count), "this chain of `else if`s is too long");
    }
    let value = |count| format!("let v = {}1 }};", "if c { 0 } else ".repeat(count) + "{ ");
    accepted(&kernel(&format!("{} store(out, v);", value(120))));
    refused(&format!("{} store(out, v);", value(400)), "this chain of `else if`s is too long");
}

#[test]
fn long_chains_of_conditions_nest_little() {
    let chain = |terms: &str, times: usize| {
        let condition = vec![terms; times].join(" && ");
        format!(
            "fn k<const N: usize, const M: usize>(out: PtrMut<i32>, n: i32) {{ if {condition} {{ store(out, n); }} }}"
        )
    };
    for (terms, times) in
        [("N > 4", 400), ("n > 4 && N > 4", 240), ("M > 4 && (n > 4 || N > 4)", 100), ("N > 4 && load(out) > 4", 240)]
    {
        accepted(&chain(terms, times));
        accepted(&chain(terms, times).replace("&&", "||"));
    }
}

#[test]
fn tuples_of_tuples_are_limited() {
    let doubled = |levels: usize| {
        let lets: String = (1..=levels).map(|i| format!("let t{i} = (t{}, t{});\n", i - 1, i - 1)).collect();
        format!("let t0 = n;\n{lets}")
    };
    accepted(&kernel(&doubled(9)));
    for levels in [10, 22, 60] {
        refused(&doubled(levels), "a tuple has at most 1024 parts");
    }
    let nested: String = (1..3000).map(|i| format!("let t{i} = (t{},);\n", i - 1)).collect();
    refused(&format!("let t0 = n;\n{nested}"), "tuples nest at most 64 deep");
    let branches = "let u = (t, t); let t = if c { u } else { u };\n".repeat(40);
    refused(&format!("let t = n;\n{branches}"), "a tuple has at most 1024 parts");
    refused(&format!("let t = ({});", "n, ".repeat(100_000)), "a tuple has at most 1024 parts");
}

#[test]
fn constexprs_that_grow_with_each_name_are_limited() {
    let constexprs = |body: &str| format!("fn k<const N: usize, const M: usize>(out: PtrMut<i32>) {{ {body} }}");
    let refused = |body: &str| {
        let start = Instant::now();
        let messages = on_half_the_stack(|| expand("", &constexprs(body)).1);
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        assert!(messages.len() == 1 && messages[0].contains("this constant expression is too long"), "{messages:?}");
    };
    let quotients = |count: usize| {
        let lets: String = (1..=count).map(|i| format!("let a{i} = a{0} / (a{0} + 1);\n", i - 1)).collect();
        format!("let a0 = N;\n{lets}store(out, a{count});")
    };
    accepted(&constexprs(&quotients(9)));
    refused(&quotients(30));
    refused(&format!("let d = N;\n{}store(out, d);", "let d = minimum(d, N) * maximum(d, M);\n".repeat(40)));
    let nested = |times: usize| format!("let d = N;\n{}store(out, d);", "let d = d / (M + 1) + 1;\n".repeat(times));
    accepted(&constexprs(&nested(149)));
    for times in [150, 5000] {
        refused(&nested(times));
    }
}

#[test]
fn long_and_many_unknown_names_take_a_short_time() {
    let long = "x".repeat(100_000);
    refused(&format!("let {long} = n; store(out, {long}y + {long});"), "is not known in this kernel");
    let known: String = (0..500).map(|i| format!("let known{i} = n;\n")).collect();
    let unknown: String = (0..500).map(|i| format!("store(out, unknovn{i});\n")).collect();
    let messages = messages(&format!("{known}{unknown}"));
    assert_eq!(messages.len(), 500);
    assert!(messages.iter().all(|m| m.contains("is not known in this kernel")));
}
