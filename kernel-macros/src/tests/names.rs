//! Code that the checker writes means operations, whatever closures of the kernel are called.

use super::support::body;

const SIGNATURE: &str = "fn k(out: PtrMut<f32>, flags: PtrMut<i32>, seed: i32) {";

/// A kernel with a closure of that name is the kernel in which this has another name.
fn means_the_operation(name: &str, kernel: &str) {
    let [own, other] = [name, "other"].map(|name| body(&kernel.replace("NAME", name)));
    assert!(own == other, "`{name}` changes the meaning of\n{kernel}");
}

#[test]
fn random_numbers_call_operations() {
    for name in ["log", "sqrt", "cos", "maximum", "select", "bitcast"] {
        for closure in ["|a| a", "|a, b| a + b", "|a, b, c| c"] {
            let stmts = format!("let NAME = {closure}; store(out, randn(seed, 7) + rand(seed, 7));");
            means_the_operation(name, &format!("{SIGNATURE} {stmts} }}"));
        }
    }
    let function = "#[device] fn noise(NAME: impl Fn(f32) -> f32, seed: i32) -> f32 { NAME(randn(seed, 7)) }";
    means_the_operation("log", &format!("{function} {SIGNATURE} store(out, noise(|x| x * 2.0, seed)); }}"));
}

#[test]
fn polling_calls_operations() {
    let stmts = "store(flags, atomic_poll(flags, |v| v > 0, order = acquire));";
    means_the_operation("atomic_load", &format!("{SIGNATURE} let NAME = |p| 0; {stmts} }}"));
}

#[test]
fn what_polling_is_given_means_what_it_means_there() {
    let plain = body(&format!("{SIGNATURE} store(flags, atomic_poll(flags, |v| v * 2 > 0)); }}"));
    let with = |functions: &str, stmts: &str| body(&format!("{functions} {SIGNATURE} {stmts} }}"));
    let polled = "let sqrt = |v| v * 2; store(flags, atomic_poll(flags, |v| sqrt(v) > 0));";
    assert_eq!(with("", polled), plain);
    assert_eq!(with("", "let done = |v| v * 2 > 0; store(flags, atomic_poll(flags, done));"), plain);
    let done = "#[device] fn done(v: i32) -> bool { v * 2 > 0 }";
    for path in ["done", "self::done"] {
        assert_eq!(with(done, &format!("store(flags, atomic_poll(flags, {path}));")), plain);
    }
}
