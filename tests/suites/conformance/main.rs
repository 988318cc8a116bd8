//! Triton's own tests of its language, row by row: what each demands, on every device, against plain Rust.
//!
//! A row is a test of Triton with as many parameters; a case is one choice of them. Rows are numbered as the page
//! `src/guide/conformance.md` lists them, which this suite writes: `TILEWRIGHT_BLESS=1 cargo test -p tilewright-tests
//! --test conformance`.
//!
//! ```text
//! cargo test -p tilewright-tests --test conformance -- C25           the rows whose names contain `C25`
//! cargo test -p tilewright-tests --test conformance -- --results F   writes a line per row to the file F
//! cargo test -p tilewright-tests --test conformance -- --part 3/8      every eighth case: eight processes run all
//! ```
//!
//! `gpu.csv` holds the results of the last run on a GPU.
//!
//! | module | rows |
//! |---|---|
//! | `arithmetic` | operators on elements: C01 to C08 |
//! | `math` | functions of elements, conversions: C09 to C17 |
//! | `shapes` | new shapes: C18 to C24 |
//! | `reductions` | reductions: C25 to C31 |
//! | `scans` | scans: C32 to C34 |
//! | `tiles` | operations on whole tiles: C35 to C39 |
//! | `memory` | loads, stores and their code: C40 to C49 |
//! | `atomics` | atomics: C50 to C54 |
//! | `products` | matrix products: C55 to C58 |
//! | `batches` | batches of products, long sums, accumulators: C59 to C62 |
//! | `scaled` | products of factors with scales: C63 |
//! | `matmuls` | products in loops, loads that run ahead: C64 to C70 |
//! | `flow` | loops and conditions: C71 to C74 |
//! | `functions` | calls: C75 |
//! | `specialisation` | constexprs, and what a launch compiles for: C76 to C81 |
//! | `maps` | code for single elements, in Rust and in PTX: C82, C83 |
//! | `random` | random numbers: C84, C85 |
//! | `diagnostics` | what is refused and reported: C86 to C91 |
//! | `printing` | what kernels print: C89 |
//! | `descriptors` | tensor descriptors: C92 to C96 |
//! | `made` | the same of descriptors that kernels make |
//! | `groups` | products by groups of warps: C104 |
//! | `tuning` | configurations chosen by measuring: C97 |
//! | `aot` | kernels that are compiled ahead: C100 |
//! | `runtime` | launches, and what is below the language: C98 to C103 |
//! | `regressions` | kernels that Triton once compiled wrongly: C106 |

mod aot;
mod arithmetic;
mod atomics;
mod batches;
mod descriptors;
mod diagnostics;
mod elements;
mod flow;
mod functions;
mod groups;
mod made;
mod maps;
mod math;
mod matmuls;
mod memory;
mod page;
mod printing;
mod products;
mod random;
mod reductions;
mod regressions;
mod runner;
mod runtime;
mod scaled;
mod scans;
mod shapes;
mod specialisation;
mod tiles;
mod tuning;

use std::process::ExitCode;

use runner::{Failure, Options, Row};

/// All rows, in order.
fn rows() -> Vec<Row> {
    let mut rows = [
        arithmetic::rows(),
        math::rows(),
        shapes::rows(),
        reductions::rows(),
        scans::rows(),
        tiles::rows(),
        memory::rows(),
        atomics::rows(),
        products::rows(),
        batches::rows(),
        scaled::rows(),
        matmuls::rows(),
        flow::rows(),
        functions::rows(),
        specialisation::rows(),
        maps::rows(),
        random::rows(),
        diagnostics::rows(),
        printing::rows(),
        descriptors::rows(),
        groups::rows(),
        tuning::rows(),
        aot::rows(),
        runtime::rows(),
        regressions::rows(),
    ]
    .concat();
    rows.sort_by_key(|row| row.id[1..].parse::<u32>().unwrap_or_default());
    rows
}

/// The last row of the table.
const LAST: u32 = 106;
/// The row that is left out: instructions of Blackwell.
const LEFT_OUT: u32 = 105;

/// Rows of the table that are not here, or not once.
fn missing(rows: &[Row]) -> Vec<String> {
    let ids = (1..=LAST).filter(|&id| id != LEFT_OUT).map(|id| format!("C{id:02}"));
    let unknown = rows.len().abs_diff(LAST as usize - 1);
    let missing: Vec<String> = ids.filter(|id| rows.iter().filter(|row| row.id == id).count() != 1).collect();
    if missing.is_empty() && unknown > 0 { vec!["rows that are not in it".to_string()] } else { missing }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // What cases run this program for.
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [aot::WITHOUT_COMPILER, path] => Some(aot::without_compiler(path.as_ref())),
        [printing::PRINTING, name, on] => Some(printing::print(name, on)),
        _ => None,
    };
    if let Some(outcome) = outcome {
        return outcome.map_or_else(|Failure(reason)| fail(&reason), |()| ExitCode::SUCCESS);
    }
    let options = Options::read(arguments.into_iter());
    let rows = rows();
    let missing = missing(&rows);
    if !missing.is_empty() {
        return fail(&format!("each row of the table is here once, but for {missing:?}"));
    }
    let done = runner::run(&rows, &options);
    let page = options.filter.is_some() || options.part.is_some() || page::check(&rows);
    if done && page { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn fail(reason: &str) -> ExitCode {
    eprintln!("{reason}");
    ExitCode::FAILURE
}
