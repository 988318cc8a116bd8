//! What the code of simple kernels must look like.

use tilewright::prelude::*;
use tilewright_tests::assembler::assemble;

use super::kernels;

/// Bits that an access to global memory moves: `ld.global.v4.b32` is 128.
fn width(line: &str) -> usize {
    let parts = line.split(|c: char| !c.is_alphanumeric());
    let number = |part: &str, kind: &[char]| part.strip_prefix(kind).and_then(|n| n.parse::<usize>().ok());
    parts.fold(1, |bits, part| bits * number(part, &['v']).or(number(part, &['b', 'u', 's', 'f'])).unwrap_or(1))
}

#[test]
fn contiguous_accesses_are_as_wide_as_they_can_be() {
    assert_eq!([width("@%p1 ld.global.nc.v4.b32 {%r1}, [%rd1];"), width("st.global.b8 [%rd1], %rs1;")], [128, 8]);
    for sample in kernels::all() {
        let accesses = |what: &'static str| {
            let instruction = move |line: &&str| line.contains(what) && line.contains('[');
            // What is behind the address is registers.
            let cut = |line: &'_ str| line.split('[').next().unwrap_or_default().split('{').next().map(str::to_string);
            sample.safe.lines().filter(instruction).filter_map(cut).collect::<Vec<String>>()
        };
        let mnemonic = |line: &String| width(line.split(" %").next().unwrap_or_default());
        let threads = sample.safe.split(".reqntid ").nth(1).and_then(|t| t.split(',').next()?.parse::<usize>().ok());
        let threads = threads.unwrap_or_else(|| panic!("no number of threads in\n{}", sample.safe));
        let widest = (sample.block / threads * sample.bytes * 8).min(128);
        for what in ["ld.global", "st.global"] {
            let widths: Vec<usize> = accesses(what).iter().map(mnemonic).collect();
            // Layer norm stores a mean and a reciprocal of 32 bits per row.
            let is_right = |&&w: &&usize| w == widest || (what == "st.global" && w == 32);
            let right = widths.iter().filter(is_right).count();
            let expected = format!("{what} of {widest} bits, found {widths:?}");
            assert!(widths.contains(&widest) && right == widths.len(), "{}: {expected}\n{}", sample.name, sample.safe);
        }
    }
}

#[test]
fn every_target_assembles() {
    let targets = [(Target::sm_80(), "sm_80"), (Target::sm_89(), "sm_89"), (Target::sm_90(), "sm_90")];
    for (target, name) in targets {
        let compiled = (kernels::SoftmaxConsts { BLOCK: 1024 }).compile::<bf16>(target);
        let compiled = compiled.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(compiled.ptx().contains(&format!(".target {name}")), "{}", compiled.ptx());
        if let Some(assembled) = assemble(compiled.ptx(), name) {
            assert_eq!(assembled.spills, 0, "{name}: {}", assembled.log);
        }
    }
}

#[test]
fn every_stage_can_be_printed() {
    let compiled = (kernels::AddConsts { BLOCK: 1024 }).compile::<f32>(Target::sm_90a());
    let compiled = compiled.unwrap_or_else(|error| panic!("{error}"));
    let stages = [
        ("tile", compiled.tile_ir(), "safe generic"),
        ("bound", compiled.bound_ir(), "safe bound"),
        ("placed", compiled.placed_ir(), "safe placed"),
        ("LLVM", compiled.llvm_ir(), "define"),
        ("PTX", compiled.ptx(), ".visible .entry"),
        ("report", compiled.report(), "kernels.rs"),
    ];
    for (stage, text, mark) in stages {
        assert!(text.contains(mark), "{stage} lacks `{mark}`:\n{text}");
    }
    // What is printed of the tile IR is the tile IR.
    for text in [compiled.tile_ir(), compiled.bound_ir(), compiled.placed_ir()] {
        let func = kernel_core::text::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(kernel_core::text::print(&func), text);
    }
}
