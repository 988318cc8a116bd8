//! What the code of simple kernels must look like.

use tilewright::prelude::*;
use tilewright_tests::assembler::assemble;

use super::kernels;

#[test]
fn contiguous_accesses_are_vectors() {
    for (name, ptx, _) in kernels::all() {
        let vectors = |what: &str| ptx.lines().filter(|l| l.contains(what) && l.contains(".v")).count();
        let scalars = |what: &str| ptx.lines().filter(|l| l.contains(what) && !l.contains(".v")).count();
        assert!(vectors("ld.global") > 0 && vectors("st.global") > 0, "{name} has no vectors:\n{ptx}");
        assert_eq!(scalars("ld.global"), 0, "{name} has scalar loads:\n{ptx}");
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
