//! What the hardware would run.

use super::kernels::{ScaledBlocksAssumed, ScaledBlocksConsts, ScaledPointersAssumed, ScaledPointersConsts};
use super::quantise::QuantiseTilesConsts;
use crate::code::Code;
use tilewright::launch::AssumedScalar;
use tilewright::prelude::*;

/// The tiles that sizes choose between; of a scale per block one register is enough, so none spills.
#[test]
fn blocks_with_scales_stay_in_registers() {
    let tiles = [([128, 128], 5, 8, true), ([128, 128], 5, 8, false), ([64, 128], 6, 4, true), ([64, 64], 6, 4, true)];
    for ([bm, bn], stages, warps, down) in tiles {
        let compiled = ScaledBlocksConsts { BM: bm, BN: bn, BK: 128, GROUP: 8 }
            .request::<F8E4M3, bf16>(!down, down)
            .assume(ScaledBlocksAssumed { a_scale_column: AssumedScalar::One, ..Default::default() })
            .num_warps(warps)
            .num_stages(stages)
            .compile(Target::sm_90a())
            .expect("it compiles");
        let Some(code) = Code::of(&compiled, "sm_90a") else { return };
        let what = format!("{bm} x {bn}, {warps} warps, columns contiguous: {down}");
        println!("{what}: {}", code.summary());
        code.assert_clean(&what);
        for instruction in ["GMMA.64x", "UTMALDG", "UTMASTG"] {
            assert!(code.count(&[instruction]) > 0, "{what}: no {instruction}");
        }
    }
}

#[test]
fn quantising_reads_16_bytes_at_a_time() {
    for (rows, square, warps) in [(32, false, 4), (128, true, 8)] {
        let compiled = QuantiseTilesConsts { ROWS: rows, COLUMNS: 128, SQUARE: square }
            .request::<bf16>()
            .num_warps(warps)
            .compile(Target::sm_90a())
            .expect("it compiles");
        let Some(code) = Code::of(&compiled, "sm_90a") else { return };
        println!("{rows} rows, square: {square}: {}", code.summary());
        code.assert_clean("quantising");
        assert_eq!(code.count(&["LDG.E"]), code.count(&["LDG.E", ".128"]), "{}", code.summary());
    }
}

/// Through pointers, with `b` stored as its transpose: as wide copies as tensor copies make.
#[test]
fn pointers_copy_16_bytes_at_a_time() {
    for ([bm, bn], stages, warps) in [([128, 128], 5, 8), ([64, 128], 6, 4)] {
        let compiled = ScaledPointersConsts { BM: bm, BN: bn, BK: 128, GROUP: 8 }
            .request::<F8E4M3, bf16>()
            .assume(ScaledPointersAssumed {
                a_column: AssumedScalar::One,
                b_row: AssumedScalar::One,
                c_column: AssumedScalar::One,
                a_scale_column: AssumedScalar::One,
                ..Default::default()
            })
            .num_warps(warps)
            .num_stages(stages)
            .compile(Target::sm_90a())
            .expect("it compiles");
        let Some(code) = Code::of(&compiled, "sm_90a") else { return };
        let what = format!("pointers, {bm} x {bn}, {warps} warps");
        println!("{what}: {}", code.summary());
        code.assert_clean(&what);
        assert!(code.count(&["GMMA.64x"]) > 0 && code.count(&["LDGSTS"]) > 0, "{what}: {}", code.summary());
        assert_eq!(code.count(&["LDGSTS"]), code.count(&["LDGSTS", ".128"]), "{what}: {}", code.summary());
    }
}
