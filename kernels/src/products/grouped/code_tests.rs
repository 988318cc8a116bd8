//! What the hardware would run of the default configurations.

use super::groups::{CHUNK, CountPairsConsts, PART, PlaceExpertsConsts, PlacePairsConsts};
use super::kernels::{ExpertsConsts, ExpertsGradientConsts, GatedExpertsConsts};
use super::products::{GroupedConfig, Kind};
use crate::code::Code;
use tilewright::launch::CompiledKernel;
use tilewright::prelude::*;

const BLOCKS: [usize; 3] = [16, 64, 128];

fn check(what: &str, compiled: tilewright::Result<CompiledKernel>, block: usize) {
    let compiled = compiled.unwrap_or_else(|error| panic!("{what}: {error}"));
    let Some(code) = Code::of(&compiled, "sm_90a") else { return };
    println!("{what}: {}", code.summary());
    code.assert_clean(what);
    assert!(code.count(&["UTMALDG"]) > 0 && code.count(&["UTMASTG"]) > 0, "{what}: {}", code.summary());
    assert_eq!(code.count(&["GMMA.64x"]) > 0, block >= 64, "{what}: {}", code.summary());
}

fn experts<F: Float>(block: usize, kind: Kind, down: bool) {
    let scaled = kind == Kind::Scaled;
    let config = GroupedConfig::choose(block, F::ELEMENT.size(), kind, Some((9, 0)));
    let compiled = ExpertsConsts { BM: block, BN: config.bn, BK: config.bk, GROUP: config.group }
        .request::<F, bf16>(!down, down, scaled, scaled)
        .num_warps(config.num_warps as u32)
        .num_stages(config.num_stages as u32)
        .compile(Target::sm_90a());
    check(&format!("{kind:?}, {}, blocks of {block}, transposed: {down}", F::ELEMENT), compiled, block);
}

#[test]
fn products_of_experts() {
    for block in BLOCKS {
        for down in if block == 128 { vec![false, true] } else { vec![true] } {
            experts::<bf16>(block, Kind::Plain, down);
        }
    }
}

#[test]
fn products_of_experts_with_scales() {
    for block in BLOCKS {
        experts::<F8E4M3>(block, Kind::Scaled, true);
    }
}

#[test]
fn products_of_experts_with_a_gate() {
    for block in BLOCKS {
        for down in if block == 128 { vec![false, true] } else { vec![true] } {
            let config = GroupedConfig::choose(block, 2, Kind::Gated, Some((9, 0)));
            let compiled = GatedExpertsConsts {
                BM: block,
                BN: config.bn,
                BK: config.bk,
                GROUP: config.group,
                ACTIVATION: crate::products::Activation::Silu.code(),
            }
            .request::<bf16, bf16>(!down, down)
            .num_warps(config.num_warps as u32)
            .num_stages(config.num_stages as u32)
            .compile(Target::sm_90a());
            check(&format!("gated, blocks of {block}, transposed: {down}"), compiled, block);
        }
    }
}

/// One launch each, of up to 256 experts as large models have.
#[test]
fn sorting_stays_in_registers() {
    for experts in [8, 256] {
        let compiled = [
            CountPairsConsts { CHUNK, E: experts }.request().num_warps(4).compile(Target::sm_90a()),
            PlaceExpertsConsts { E: experts, CHUNKS: (PART / experts).min(64), BLOCKS: (PART / experts).min(64) }
                .request()
                .num_warps(8)
                .compile(Target::sm_90a()),
            PlacePairsConsts { CHUNK, E: experts }.request().num_warps(4).compile(Target::sm_90a()),
        ];
        for compiled in compiled {
            let compiled = compiled.expect("it compiles");
            let Some(code) = Code::of(&compiled, "sm_90a") else { return };
            println!("{} of {experts} experts: {}", compiled.name(), code.summary());
            code.assert_clean(compiled.name());
        }
    }
}

#[test]
fn gradients_of_weights() {
    for block in [16, 128] {
        let config = GroupedConfig::choose(block, 2, Kind::Gradient, Some((9, 0)));
        let compiled = ExpertsGradientConsts { BM: 128, BN: config.bn, BK: config.bk, GROUP: config.group }
            .request::<bf16, f32>()
            .num_warps(config.num_warps as u32)
            .num_stages(config.num_stages as u32)
            .compile(Target::sm_90a());
        check(&format!("gradient, blocks of {block}"), compiled, 128);
    }
}
