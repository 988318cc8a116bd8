//! The `.tile` file tests of `kernel-core`, beyond the interpreter: through the code generator, and on a GPU.
//!
//! `kernel-core` runs the `; run:` lines in its interpreter. Here the same lines are launched through the runtime, on
//! the CPU and on the GPU if there is one; where there is none, their code is generated for one all the same, and
//! the launches that were skipped are counted and said at the end. Every kernel of every file that is bound when its
//! stages have run, whether it has such lines or not, goes through the code generator.

mod launch;

use kernel_codegen::checks::Checks;
use kernel_codegen::{Options, compile};
use kernel_core::ir::Bound;
use tilewright::Target;
use tilewright_filetests::{Case, Failure, split_cases};
use tilewright_tests::assembler::assemble;
use tilewright_tests::devices::on_every_device;

/// Name and text of every file, in order.
static FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/tile_files.rs"));

/// Does something with every case of every file, and panics with all that went wrong; returns how often it did
/// anything.
fn for_every_case(mut check: impl FnMut(&Case<'_>) -> Result<usize, String>) -> usize {
    let (mut count, mut failures) = (0, Vec::new());
    for (file, text) in FILES {
        for case in split_cases(text) {
            match check(&case) {
                Ok(number) => count += number,
                Err(message) => failures.push(format!("{file}:{}: {message}", case.line)),
            }
        }
    }
    assert!(failures.is_empty(), "{} cases failed\n\n{}", failures.len(), failures.join("\n\n"));
    count
}

/// What a stage said, as text.
fn text(failure: Failure) -> String {
    match failure {
        Failure::Test(message) => message,
        Failure::Kernel(errors) => errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
    }
}

#[test]
fn run_lines_hold_on_every_device() {
    let count = for_every_case(|case| {
        if case.runs.is_empty() {
            return Ok(0);
        }
        let launch = launch::Launch::new(case)?;
        for line in &case.runs {
            launch.compile(line, Target::sm_90a())?;
            let mut failure = None;
            on_every_device(|device| {
                for warps in [None, Some(1), Some(8)] {
                    if let Err(message) = launch.check(line, device, warps) {
                        failure.get_or_insert(format!("run: {line}\non {device}, {warps:?} warps: {message}"));
                    }
                }
            });
            failure.map_or(Ok(()), Err)?;
        }
        Ok(case.runs.len())
    });
    assert!(count > 0, "no file has a `; run:` line");
}

#[test]
fn bound_kernels_become_ptx() {
    let count = for_every_case(|case| {
        if !case.errors.is_empty() {
            return Ok(0);
        }
        let Ok(bound) = Bound::new(case.run_stages().map_err(text)?) else { return Ok(0) };
        for checks in [Checks::AtLaunch, Checks::EveryAccess] {
            for num_warps in [1, 4] {
                let options = Options { num_warps, checks, ..Options::default() };
                let compiled = compile(&bound, &kernel_codegen::Target::sm_90a(), &options);
                let compiled = compiled.map_err(|error| format!("{checks:?}, {num_warps} warps: {error}"))?;
                assemble(&compiled.ptx, "sm_90a");
            }
        }
        Ok(1)
    });
    assert!(count > 0, "no file has a bound kernel");
}
