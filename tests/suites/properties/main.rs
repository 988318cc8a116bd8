//! Random kernels, valid by construction: every way to run one gives the same result.
//!
//! - printed and parsed again, it is the same kernel;
//! - optimised, with every pass and without each of them, the interpreter computes the same bits;
//! - placed for a GPU with any number of warps and stages, the interpreter of what its threads do at the same time
//!   computes the same bits;
//! - on the GPU, where there is one, it computes the same bits as in the interpreter.
//!
//! A failing kernel shrinks to few operations, and is printed.

mod generate;
mod products;
mod run;

use kernel_codegen::{Options, compile};
use kernel_core::passes::{PASSES, PassOptions, optimise};
use kernel_core::text;
use proptest::prelude::*;
use tilewright::Target;
use tilewright_tests::data::Data;
use tilewright_tests::devices::gpu;
use tilewright_tests::expect::{Answer, compare};

use generate::{Recipe, recipe};
use run::{bound, interpret, interpret_placed};

/// The same kernels in every run, so that a failure is not lost; more of them by `PROPTEST_CASES`.
fn config() -> ProptestConfig {
    let standard = ProptestConfig::default();
    let rng_seed = proptest::test_runner::RngSeed::Fixed(0x7469_6c65);
    ProptestConfig { failure_persistence: None, max_shrink_iters: 2000, rng_seed, ..standard }
}

/// That many kernels, unless `PROPTEST_CASES` asks for a number.
fn few(cases: u32) -> ProptestConfig {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => config(),
        None => ProptestConfig { cases, ..config() },
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn text_reads_back_as_the_same_kernel(recipe in recipe()) {
        let case = recipe.build();
        for func in [case.func.clone(), bound(&case).into_func()] {
            let printed = text::print(&func);
            let again = text::parse(&printed).map_err(|e| TestCaseError::fail(format!("{e}\n{printed}")))?;
            prop_assert_eq!(text::print(&again), printed);
        }
    }

    #[test]
    fn passes_keep_every_bit(recipe in recipe()) {
        let case = recipe.build();
        let before = bound(&case);
        let want = interpret(&before, &case);
        let mut selections = vec![("all passes".to_string(), Vec::new())];
        for pass in PASSES {
            let name = pass.name.to_string();
            selections.push((format!("all passes but {name}"), vec![name.clone()]));
            let others = PASSES.iter().map(|p| p.name.to_string()).filter(|other| *other != name);
            selections.push((format!("{name} alone"), others.collect()));
        }
        for (label, disabled) in selections {
            let mut after = before.clone();
            let outcome = optimise(&mut after, &PassOptions { disabled, verify: true });
            prop_assert!(outcome.is_ok(), "{}: {:?}\n{}", label, outcome, text::print(before.func()));
            let got = interpret(&after, &case);
            for (index, (got, want)) in got.iter().zip(&want).enumerate() {
                let answers: Vec<Answer> = want.bits.iter().map(|&b| Answer::Exactly(b)).collect();
                let verdict = compare(got.dtype, &got.bits, &answers, &|_| String::new());
                prop_assert!(
                    verdict.is_ok(),
                    "{label}: output {index}: {verdict:?}\nbefore\n{}\nafter\n{}",
                    text::print(before.func()),
                    text::print(after.func())
                );
            }
        }
    }
}

/// Both are the same up to signs of zero: fewer cases, as code is generated for each.
#[test]
fn placed_kernels_keep_every_bit() {
    let mut runner = proptest::test_runner::TestRunner::new(few(30));
    let outcome = runner.run(&(recipe(), 0u32..4, 1u32..5), |(recipe, warps, num_stages)| {
        let case = recipe.build();
        let bound = bound(&case);
        let want = interpret(&bound, &case);
        for target in [Target::sm_80(), Target::sm_90a()] {
            let options = Options { num_warps: 1 << warps, num_stages, ..Options::default() };
            let compiled = compile(&bound, &target, &options).map_err(|e| TestCaseError::fail(e.to_string()))?;
            let got = interpret_placed(&compiled.placed, &case);
            let got = got.map_err(|fault| TestCaseError::fail(format!("{fault}\n{}", compiled.placed_ir())))?;
            agree(&got, &want, &|| compiled.placed_ir())?;
        }
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

/// Whether outputs are the same, but for the signs of zeros.
fn agree(got: &[Data], want: &[Data], kernel: &dyn Fn() -> String) -> Result<(), TestCaseError> {
    for (index, (got, want)) in got.iter().zip(want).enumerate() {
        let answers: Vec<Answer> = want.bits.iter().map(|&b| Answer::UnsignedZero(b)).collect();
        let verdict = compare(got.dtype, &got.bits, &answers, &|_| String::new());
        prop_assert!(verdict.is_ok(), "output {index}: {verdict:?}\n{}", kernel());
    }
    Ok(())
}

/// On a GPU fewer, as each is compiled: a hundred kernels are some seconds. Where there is none, code is generated and
/// assembled all the same.
#[test]
fn the_gpu_agrees_with_the_interpreter() {
    let device = gpu();
    let cases = if device.is_some() { 100 } else { 30 };
    let mut runner = proptest::test_runner::TestRunner::new(few(cases));
    let outcome = runner.run(&recipe(), |recipe: Recipe| {
        let case = recipe.build();
        let Some(device) = device else {
            case.compile(Target::sm_90a());
            return Ok(());
        };
        let bound = bound(&case);
        let want = interpret(&bound, &case);
        let got = case.run(device).map_err(|e| TestCaseError::fail(e.to_string()))?;
        agree(&got, &want, &|| text::print(bound.func()))
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}
