//! Kernels with mutated tokens, each through the real entry of `#[kernel]`: nothing may panic, overflow the stack, take
//! over a second or show an internal name, and what is accepted must parse, verify and round-trip.
//!
//! ```text
//! cargo run --release -p tilewright-macros --example mutate_tokens -- --cases 1000000 --seed 0
//! ```
//!
//! Each case follows from its number alone, so a run is resumed with `--seed` at the number where it stopped, and a
//! finding repeated with `--seed N --cases 1 --show`. Cases run in child processes with stacks as large as rustc's: one
//! that overflows or hangs is a finding like any other, and the run goes on behind it. `--jobs` runs that many at once.

// The modules of the macro itself, as tests of a `proc-macro` crate cannot call them from outside.
#[path = "../../src/attr.rs"]
mod attr;
#[path = "../../src/attributes.rs"]
mod attributes;
#[path = "../../src/decimal.rs"]
mod decimal;
#[path = "../../src/device/mod.rs"]
#[allow(dead_code, reason = "kernels alone are mutated")]
mod device;
#[path = "../../src/error.rs"]
mod error;
#[path = "../../src/expand.rs"]
#[allow(dead_code, reason = "messages are read before they are joined with the tokens")]
mod expand;
#[path = "../../src/foreign.rs"]
mod foreign;
#[path = "../../src/guard.rs"]
mod guard;
#[path = "../../src/help.rs"]
mod help;
#[path = "../../src/jumps/mod.rs"]
mod jumps;
#[path = "../../src/launcher/mod.rs"]
mod launcher;
#[path = "../../src/libdevice.rs"]
mod libdevice;
#[path = "../../src/lints/mod.rs"]
mod lints;
#[path = "../../src/lower/mod.rs"]
mod lower;
#[path = "../../src/names.rs"]
mod names;
#[path = "../../src/ops.rs"]
mod ops;
#[path = "../../src/parse_errors.rs"]
mod parse_errors;
#[path = "../../src/quotient.rs"]
mod quotient;
#[path = "../../src/signature/mod.rs"]
mod signature;
#[path = "../../src/source.rs"]
mod source;
#[path = "../../src/source_lines.rs"]
mod source_lines;
#[path = "../../src/source_range.rs"]
mod source_range;
#[path = "../../src/spellings.rs"]
mod spellings;
#[path = "../../src/tree.rs"]
mod tree;
#[path = "../../src/typeck/mod.rs"]
mod typeck;
#[path = "../../src/types.rs"]
mod types;

mod judge;
mod kernels;
mod mutate;
mod run;

use std::path::PathBuf;
use std::process::ExitCode;

/// What the command line says.
#[derive(Clone)]
pub struct Options {
    /// How many cases.
    pub cases: u64,
    /// The number of the first.
    pub seed: u64,
    /// Child processes at once.
    pub jobs: u64,
    /// Prints sources and messages.
    pub show: bool,
    /// Where children note the case that they are at: this process is one.
    pub trace: Option<PathBuf>,
}

fn options() -> Result<Options, String> {
    let mut options = Options { cases: 100_000, seed: 0, jobs: 1, show: false, trace: None };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        if arg == "--show" {
            options.show = true;
            continue;
        }
        let value = args.next().ok_or_else(|| format!("`{arg}` needs a value"))?;
        let number = || value.parse::<u64>().map_err(|e| format!("{arg} {value}: {e}"));
        match arg.as_str() {
            "--cases" => options.cases = number()?,
            "--seed" => options.seed = number()?,
            "--jobs" => options.jobs = number()?.max(1),
            "--trace" => options.trace = Some(PathBuf::from(&value)),
            _ => return Err(format!("unknown option `{arg}`: there are --cases, --seed, --jobs and --show")),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let result = options().and_then(|options| match &options.trace {
        Some(trace) => run::child(&options, trace).map(|()| true),
        None => run::parent(&options),
    });
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}
