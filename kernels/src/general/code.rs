//! What a GPU would run: whether registers suffice, and how wide accesses are.

use tilewright::Result;
use tilewright::launch::CompiledKernel;
use tilewright_tests::assembler;

/// Asserts that a kernel for Hopper fits into registers, and that the PTX has these instructions. Skipped without ptxas.
#[track_caller]
pub(crate) fn check(name: &str, compiled: Result<CompiledKernel>, instructions: &[&str]) {
    let compiled = compiled.unwrap_or_else(|error| panic!("{name}: {error}"));
    let ptx = compiled.ptx();
    for instruction in instructions {
        assert!(ptx.contains(instruction), "{name} has no {instruction}:\n{}", compiled.report());
    }
    let Some(assembled) = assembler::assemble_as_loaded(ptx, "sm_90a") else { return };
    if std::env::var_os("LOOK").is_some() {
        let mut kinds = std::collections::BTreeMap::<&str, usize>::new();
        for word in ptx.split_whitespace() {
            let of = [
                "ld.global",
                "st.global",
                "atom",
                "red.",
                "wgmma.mma",
                "mma.sync",
                "cp.async",
                "bar.sync",
                "shfl",
                "ld.shared",
                "st.shared",
            ];
            if of.iter().any(|prefix| word.starts_with(prefix)) {
                *kinds.entry(word).or_default() += 1;
            }
        }
        eprintln!(
            "== {name}: {} registers, {} spilled, {} instructions {kinds:?}",
            assembled.registers, assembled.spills, assembled.instructions
        );
        for line in assembled.log.lines().filter(|line| line.contains("C7")) {
            eprintln!("{line}");
        }
        if std::env::var("LOOK").is_ok_and(|v| v == "2") {
            eprintln!("{}", compiled.report());
        }
    }
    assert_eq!(assembled.spills, 0, "{name}:\n{}", assembled.log);
}
