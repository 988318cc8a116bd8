//! What the hardware would run of the default configurations.

use super::config::GatedMatmulConfig;
use super::kernels::{GatedBlocksConsts, GatedPointersConsts};
use crate::code::Code;
use crate::products::Activation;
use tilewright::prelude::*;

/// The code of a product of so many rows and columns on an H100.
fn blocks<T: Float>(sizes: [usize; 2], down: bool, keeps: bool) -> Option<(String, Code)> {
    let config @ GatedMatmulConfig { bm, bn, bk, group, num_warps, num_stages } =
        GatedMatmulConfig::choose(T::ELEMENT, sizes, Some((9, 0)), 132);
    let what = format!("{} {sizes:?} by {config:?}, down: {down}, keeps: {keeps}", T::ELEMENT);
    let compiled = GatedBlocksConsts { BM: bm, BN: bn, BK: bk, GROUP: group, ACTIVATION: Activation::Silu.code() }
        .request::<T>(!down, down, keeps)
        .num_warps(num_warps as u32)
        .num_stages(num_stages as u32)
        .compile(Target::sm_90a());
    let code = Code::of(&compiled.unwrap_or_else(|error| panic!("{what}: {error}")), "sm_90a")?;
    println!("{what}: {}", code.summary());
    Some((what, code))
}

#[test]
fn both_products_are_fed_by_copies_and_stored_by_copies() {
    for (sizes, is_tall) in [([16_384, 5632], true), ([512, 5632], true), ([64, 5632], true), ([16, 5632], false)] {
        for (down, keeps) in [(true, true), (true, false), (false, true)] {
            let Some((what, code)) = blocks::<bf16>(sizes, down, keeps) else { return };
            code.assert_clean(&what);
            let stores = code.count(&["UTMASTG"]);
            assert!(stores >= if keeps { 3 } else { 1 }, "{what}: {}", code.summary());
            assert_eq!(code.count(&["STG.E"]), 0, "{what}: {}", code.summary());
            assert_eq!(code.count(&["GMMA.64x"]) > 0, is_tall, "{what}: {}", code.summary());
        }
    }
}

#[test]
fn exact_products_do_not_spill() {
    for keeps in [false, true] {
        for sizes in [[4096, 4096], [16, 4096]] {
            if let Some((what, code)) = blocks::<f32>(sizes, true, keeps) {
                code.assert_clean(&what);
            }
            if let Some((what, code)) = blocks::<f64>(sizes, true, keeps) {
                code.assert_clean(&what);
            }
        }
    }
}

/// GPUs without tensor copies have as little as 99 KiB of shared memory.
#[test]
fn smaller_gpus_have_room() {
    fn pointers<T: Float>(sizes: [usize; 2]) {
        let GatedMatmulConfig { bm, bn, bk, group, num_warps, num_stages } =
            GatedMatmulConfig::choose(T::ELEMENT, sizes, Some((8, 9)), 128);
        let compiled = GatedPointersConsts { BM: bm, BN: bn, BK: bk, GROUP: group, ACTIVATION: 4 }
            .request::<T, i32>(true)
            .num_warps(num_warps as u32)
            .num_stages(num_stages as u32)
            .compile(Target::sm_89());
        assert!(compiled.is_ok(), "{} {sizes:?}: {:?}", T::ELEMENT, compiled.err());
    }
    for sizes in [[4096, 4096], [16, 4096]] {
        pointers::<f16>(sizes);
        pointers::<f32>(sizes);
        pointers::<f64>(sizes);
    }
}
