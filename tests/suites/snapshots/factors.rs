//! Matrix instructions multiply what the PTX says, whatever ptxas makes of it ([`tilewright_tests::factors`]): of all kernels
//! of the examples, and of a sample of the others.
//!
//! To look at all kernels takes minutes:
//!
//! ```text
//! cargo run -p tilewright-tests --example ptx -- dump DIR
//! cargo run -p tilewright-tests --example ptx -- factors DIR
//! ```

use tilewright::Target;
use tilewright_tests::assembler::is_installed;
use tilewright_tests::factors::check_sass;

use crate::kernels::{self, Source, hash, representative};

/// Of so many kernels and targets one is looked at.
const SAMPLE: u64 = 12;

/// Which kernels are looked at: their names decide, so that they stay the same when others are added.
fn sampled(name: &str, target: Target) -> bool {
    let is_example = name.starts_with(Source::Examples.name());
    let is_drawn = || hash(format!("{name} {}", target.name()).as_bytes()).is_multiple_of(SAMPLE);
    representative(name, target) && (is_example || is_drawn())
}

/// Looks at the sample of some sources; gives how many kernels have products with factors in registers in loops.
fn look(sources: &[Source]) -> usize {
    let mut count = 0;
    for &source in sources {
        kernels::each(source, &sampled, &mut |code| {
            let checked = check_sass(&code.ptx, code.target.name());
            let checked = checked.unwrap_or_else(|why| panic!("{} for {}: {why}", code.name, code.target.name()));
            count += usize::from(checked.is_some());
        });
    }
    println!("{count} kernels");
    count
}

#[test]
fn factors_of_examples() {
    let count = look(&[Source::Examples]);
    assert!(count >= 20 || !is_installed(), "{count} kernels");
}

#[test]
fn factors_of_a_sample() {
    let count = look(&[Source::Products, Source::Guide, Source::Kernels, Source::Suites]);
    assert!(count >= 15 || !is_installed(), "{count} kernels");
}
