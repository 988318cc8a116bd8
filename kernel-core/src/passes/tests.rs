use std::time::{Duration, Instant};

use super::{PASSES, PassOptions, optimise};
use crate::ir::{Bound, Func};
use crate::text::{parse, print};

fn bound(text: &str) -> Bound {
    Bound::new(parse(text).unwrap_or_else(|e| panic!("{e}"))).expect("a bound kernel")
}

/// A kernel of `n` groups of operations that give every pass something to do, half of them in a loop.
fn large(n: usize) -> String {
    let mut text = String::from(
        "kernel large \"\" safe bound {\n param %x x: ptr_mut i32\n param %n n: i32\n %zero: i32 = const 0\n\
         %one: i32 = const 1\n",
    );
    let group = |i: usize, previous: &str| {
        format!(
            "%a{i}: i32[64] = arange {{lo = 0, hi = 64}}\n %s{i}: i32[64] = splat {previous}\n\
             %b{i}: i32[64] = add %a{i}, %s{i}\n %e{i}: i32[64, 1] = expand_dims %b{i} {{axis = 1}}\n\
             %w{i}: i32[64, 2] = broadcast %e{i}\n %v{i}: i32[64, 2] = mul %w{i}, %w{i}\n\
             %p{i}: *x[64, 2] = splat %x\n %q{i}: *x[64, 2] = add_ptr %p{i}, %v{i}\n store %q{i}, %v{i}\n\
             %k{i}: i32 = add {previous}, %zero\n %m{i}: i32 = mul %k{i}, %n\n"
        )
    };
    let mut previous = "%n".to_string();
    for i in 0..n / 2 {
        text += &group(i, &previous);
        previous = format!("%m{i}");
    }
    text += "for %zero, %n, %one (%i: i32) {\n";
    for i in n / 2..n {
        text += &group(i, &previous);
        previous = format!("%m{i}");
    }
    text + "yield\n}\nreturn\n}\n"
}

#[test]
fn no_pass_takes_quadratic_time() {
    let time = |n: usize| {
        let mut kernel = bound(&large(n));
        let start = Instant::now();
        assert_eq!(optimise(&mut kernel, &PassOptions::default()), Ok(()));
        start.elapsed()
    };
    let best = |n: usize| (0..3).map(|_| time(n)).min().unwrap_or_default();
    // Sixteen times the operations: 256 times the time if something were quadratic.
    let (small, big) = (best(100), best(1600));
    assert!(big < small * 80 + Duration::from_millis(50), "{small:?} for 1100 operations, {big:?} for 17600");
}

#[test]
fn passes_have_names_of_their_own_and_can_be_switched_off() {
    let names: Vec<String> = PASSES.iter().map(|pass| pass.name.to_string()).collect();
    for (i, name) in names.iter().enumerate() {
        assert!(!names[..i].contains(name), "{name}");
    }
    let mut kernel = bound(&large(4));
    let before = kernel.clone();
    assert_eq!(optimise(&mut kernel, &PassOptions { disabled: names, verify: true }), Ok(()));
    assert_eq!(kernel, before);
}

#[test]
fn the_outcome_is_the_same_in_every_run() {
    let text = large(40);
    let run = || {
        let mut kernel = bound(&text);
        assert_eq!(optimise(&mut kernel, &PassOptions::default()), Ok(()));
        print(kernel.func())
    };
    let first = run();
    // Hash maps are seeded anew each time, so an iteration over one would show.
    for _ in 0..5 {
        assert_eq!(run(), first);
    }
}

#[test]
fn a_pass_that_breaks_a_kernel_is_named() {
    let mut func: Func = bound("kernel k \"\" safe bound { %a: i32 = const 1 return }").into_func();
    func.values[0].ty = crate::ir::Ty::scalar(crate::ir::DType::F32);
    let mut kernel = Bound::new(func).expect("a bound kernel");
    let errors = optimise(&mut kernel, &PassOptions { disabled: Vec::new(), verify: true }).expect_err("it is broken");
    assert!(errors[0].message.starts_with("pass `fold` broke the kernel: `const`"), "{errors:?}");
}
