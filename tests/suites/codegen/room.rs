//! Registers: kernels that need many are given room for few programs, so that nothing is spilled that need not be.

use kernel_codegen::with_min_programs;
use tilewright::prelude::*;
use tilewright_tests::assembler::assemble;

use super::pressed::{self, Sample};

/// What ptxas is asked for.
fn asked(ptx: &str) -> Option<u32> {
    let line = ptx.lines().find_map(|line| line.strip_prefix(".minnctapersm "))?;
    Some(line.parse().unwrap_or_else(|error| panic!("{line}: {error}")))
}

/// Rows that programs keep over reductions, scans and the iterations of a loop are not spilled to make room for
/// programs.
#[test]
fn rows_are_not_spilled_to_make_room() {
    for target in Target::all() {
        for Sample { name, compiled } in pressed::rows(target) {
            assert!(asked(compiled.ptx()).is_some(), "{name} for {}", target.name());
            let Some(assembled) = assemble(compiled.ptx(), target.name()) else { return };
            assert_eq!(assembled.spills, 0, "{name} for {}: {}\n{}", target.name(), assembled.log, compiled.report());
        }
    }
}

/// No other advice spills less by more than 5 %, which is what ptxas varies by without a reason.
#[test]
fn products_get_the_registers_that_there_are() {
    // ptxas takes its time for these: with `mma.sync` and `wgmma`.
    for target in [Target::sm_80(), Target::sm_90a()] {
        for Sample { name, compiled } in pressed::products(target) {
            let spills = |ptx: &str| assemble(ptx, target.name()).map(|assembled| assembled.spills);
            let Some(spilled) = spills(compiled.ptx()) else { return };
            if spilled == 0 {
                continue;
            }
            for programs in [None, Some(1)] {
                let other = spills(&with_min_programs(compiled.ptx(), programs)).unwrap_or(spilled);
                let told = format!("{name} for {}: {spilled} bytes, {other} with {programs:?}", target.name());
                assert!(spilled * 100 <= other * 105, "{told}\n{}", compiled.report());
            }
        }
    }
}

/// What was chosen, and why, is in the report.
#[test]
fn the_report_says_what_needs_the_registers() {
    let find = |samples: Vec<Sample>, name: &str| {
        let found = samples.into_iter().find(|sample| sample.name == name).map(|sample| sample.compiled);
        found.unwrap_or_else(|| panic!("no {name}"))
    };
    let rows = find(pressed::rows(Target::sm_90a()), "rms_norm_backward 4096 warps=8");
    assert_eq!(asked(rows.ptx()), Some(2));
    let line = |of: &str| {
        let line = of.lines().find(|line| line.contains(" registers are alive at once at "));
        line.map(str::trim).unwrap_or_else(|| panic!("{of}")).to_string()
    };
    // A row of the weight and of its gradient, of two tiles of f32 of the loop, and of what was loaded.
    let told = line(rows.report());
    assert!(told.starts_with("81 registers") && told.contains("pressed.rs:"), "{told}");
    assert!(told.ends_with(": with room for 3 programs, ptxas would spill some"), "{told}");
    assert!(rows.report().contains("ptxas is asked for room for 2 programs"), "{}", rows.report());

    let product = find(pressed::products(Target::sm_80()), "two 128/128/256 warps=8");
    assert_eq!(asked(product.ptx()), Some(1));
    let told = line(product.report());
    assert!(told.ends_with(": left alone, ptxas might take few and spill the others"), "{told}");

    // Where neither makes a difference, nothing is said.
    let softmax = find(pressed::rows(Target::sm_90a()), "log_softmax 2x4096 warps=16");
    assert!(!softmax.report().contains("alive at once"), "{}", softmax.report());
}
