//! The passes that need no target: binding, and the clean-up of what it leaves.
//!
//! Each pass is one file with a `run` of its own; [`optimise`] is the order in which they run.
//! Every one can be switched off by its name ([`PassOptions::disabled`]), after which a kernel computes the same:
//! bit for bit on integers and exact floats.

pub mod accumulate;
pub mod bind;
pub mod blocks;
pub mod broadcast;
pub mod cse;
pub mod dce;
pub mod fold;
pub mod licm;
pub mod simplify;
pub mod uniform;
pub mod widen_reduce;

#[cfg(test)]
mod tests;

pub use bind::{Bindings, bind};

use crate::diag::Diagnostic;
use crate::edit::{self, compact};
use crate::ir::{Bound, Func};
use crate::verify::verify;

/// How to optimise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PassOptions {
    /// Names of passes not to run.
    pub disabled: Vec<String>,
    /// Whether the verifier runs after every pass.
    pub verify: bool,
}

impl Default for PassOptions {
    /// All passes; the verifier in debug builds.
    fn default() -> PassOptions {
        PassOptions { disabled: Vec::new(), verify: cfg!(debug_assertions) }
    }
}

/// A pass with its name.
#[derive(Clone, Copy)]
pub struct Pass {
    /// What it is called in [`PassOptions::disabled`] and in file tests.
    pub name: &'static str,
    /// Runs it; returns whether anything changed.
    pub run: fn(&mut Func) -> Result<bool, Vec<Diagnostic>>,
}

/// Every pass but `bind`.
pub const PASSES: &[Pass] = &[FOLD, ACCUMULATE, SIMPLIFY, UNIFORM, BROADCAST, CSE, LICM, DCE, COMPACT];

const FOLD: Pass = Pass { name: "fold", run: |func| told(fold::run(func)) };
const ACCUMULATE: Pass = Pass { name: "accumulate", run: |func| told(accumulate::run(func)) };
const SIMPLIFY: Pass = Pass { name: "simplify", run: |func| told(simplify::run(func)) };
const UNIFORM: Pass = Pass { name: "uniform", run: |func| told(uniform::run(func)) };
const BROADCAST: Pass = Pass { name: "broadcast", run: |func| told(broadcast::run(func)) };
const CSE: Pass = Pass { name: "cse", run: |func| told(cse::run(func)) };
const LICM: Pass = Pass { name: "licm", run: |func| Ok(licm::run(func)) };
const DCE: Pass = Pass { name: "dce", run: |func| Ok(dce::run(func)) };
const COMPACT: Pass = Pass {
    name: "compact",
    run: |func| {
        compact(func);
        Ok(false)
    },
};

/// A pass's mistake as a diagnostic.
fn told<T>(done: edit::Result<T>) -> Result<T, Vec<Diagnostic>> {
    done.map_err(|error| vec![error.into()])
}

/// Enough for the longest chains that sources have; each round sinks a chain of broadcasts by one.
const MAX_ROUNDS: usize = 8;

/// Brings a bound kernel to the form that code generation and interpreter start from.
///
/// # Errors
/// With [`PassOptions::verify`], if a pass broke a rule of the verifier, which is a mistake in that pass.
pub fn optimise(kernel: &mut Bound, options: &PassOptions) -> Result<(), Vec<Diagnostic>> {
    let func = kernel.func_mut();
    let mut run = |pass: &Pass| run_pass(func, pass, options);
    run(&FOLD)?;
    run(&ACCUMULATE)?;
    for _ in 0..MAX_ROUNDS {
        let mut changed = false;
        for pass in [FOLD, SIMPLIFY, UNIFORM, BROADCAST, CSE] {
            changed |= run(&pass)?;
        }
        if !changed {
            break;
        }
    }
    run(&LICM)?;
    run(&CSE)?;
    run(&DCE)?;
    run(&COMPACT)?;
    Ok(())
}

fn run_pass(func: &mut Func, pass: &Pass, options: &PassOptions) -> Result<bool, Vec<Diagnostic>> {
    if options.disabled.iter().any(|name| name == pass.name) {
        return Ok(false);
    }
    let changed = (pass.run)(func)?;
    if options.verify {
        verify(func).map_err(|mut errors| {
            errors
                .iter_mut()
                .for_each(|e| e.message = format!("pass `{}` broke the kernel: {}", pass.name, e.message).into());
            errors
        })?;
    }
    Ok(changed)
}
