//! What a GPU would run: whether registers suffice, and how wide accesses are. `--nocapture` shows it.

use std::collections::BTreeMap;
use tilewright::Result;
use tilewright::launch::CompiledKernel;
use tilewright_tests::assembler;

/// Instructions whose number is shown.
const SHOWN: [&str; 10] = [
    "ld.global",
    "st.global",
    "atom",
    "wgmma.mma",
    "mma.sync",
    "cp.async",
    "bar.sync",
    "shfl",
    "ld.shared",
    "st.shared",
];

/// Asserts that a kernel for Hopper has these instructions, that it fits into registers, and that ptxas serialises no matrix
/// products (its warnings C75xx). Skipped without ptxas.
#[track_caller]
pub(crate) fn check(name: &str, compiled: Result<CompiledKernel>, instructions: &[&str]) {
    let compiled = compiled.unwrap_or_else(|error| panic!("{name}: {error}"));
    let ptx = compiled.ptx();
    for instruction in instructions {
        assert!(ptx.contains(instruction), "{name} has no {instruction}:\n{}", compiled.report());
    }
    let Some(assembled) = assembler::assemble_as_loaded(ptx, "sm_90a") else { return };
    let mut kinds = BTreeMap::<&str, usize>::new();
    for word in ptx.split_whitespace().filter(|word| SHOWN.iter().any(|shown| word.starts_with(shown))) {
        *kinds.entry(word).or_default() += 1;
    }
    eprintln!("{name}: {} registers, {} instructions, {kinds:?}", assembled.registers, assembled.instructions);
    assert_eq!(assembled.spills, 0, "{name}:\n{}", assembled.log);
    assert!(!assembled.log.contains("C75"), "{name}:\n{}", assembled.log);
}
