//! What the hardware would run: packed weights are loaded 16 bytes at a time, whatever is made of them.

use super::kernels::{
    Int4ProductAssumed, Int4ProductConsts, Int8ProductAssumed, Int8ProductConsts, Nf4ProductAssumed, Nf4ProductConsts,
};
use super::launch::TALL;
use crate::code::Code;
use tilewright::launch::{AssumedScalar, CompiledKernel};
use tilewright::prelude::*;

/// Tiles of rows, columns and steps, stages and warps: of few rows, some, and many.
type Tile = ([usize; 3], u32, u32);
const FEW: Tile = ([16, 128, 64], 4, 4);
const SOME: Tile = ([64, 128, 64], 4, 4);
const MANY: Tile = ([128, 128, 128], 3, 8);

fn check(what: &str, compiled: tilewright::Result<CompiledKernel>, packed: &str, rows: usize) -> Option<Code> {
    let compiled = compiled.unwrap_or_else(|error| panic!("{what}: {error}"));
    let loads: Vec<&str> =
        compiled.report().lines().filter(|line| line.contains(&format!("load `{packed}`"))).collect();
    assert!(!loads.is_empty() && loads.iter().all(|line| line.contains(" x 16 bytes")), "{what}: {loads:?}");
    let code = Code::of(&compiled, "sm_90a")?;
    println!("{what}: {}", code.summary());
    code.assert_clean(what);
    assert_eq!(code.count(&["GMMA.64x"]) > 0, rows >= 64, "{what}: {}", code.summary());
    assert!(code.count(&["LDGSTS", ".128"]) > 0, "{what}: {}", code.summary());
    Some(code)
}

/// Asserts that neighbouring lanes copy neighbouring vectors of 16 bytes of the words, whatever is stored of their shape: a copy to
/// shared memory fetches whole sectors.
fn assert_neighbours(report: &str) {
    let load = report.lines().find(|line| line.contains("load `words`")).unwrap_or_else(|| panic!("{report}"));
    let number = load.rsplit("layout #").next().unwrap_or_default();
    let layout = report.lines().find_map(|line| line.trim().strip_prefix(&format!("layout #{number}: ")));
    let layout = layout.unwrap_or_else(|| panic!("no layout #{number}: {report}"));
    assert!(layout.starts_with("register: [0, 1] [0, 2] [") && layout.contains("lane: [0, 4] [0, 8] "), "{layout}");
}

/// A product of words of 4-bit numbers.
fn words<F: Float>(([bm, bn, bk], stages, warps): Tile, awq: bool) -> Option<Code> {
    let (few, ahead) = (bm < 64, stages as usize);
    let compiled = Int4ProductConsts { BM: bm, BN: bn, BK: bk, TALL, AWQ: awq, GROUP: 128, FEW: few, AHEAD: ahead }
        .request::<F, F>(true)
        .assume(Int4ProductAssumed { splits: AssumedScalar::One, ..Default::default() })
        .num_warps(warps)
        .num_stages(stages)
        .compile(Target::sm_90a());
    if let (true, Ok(compiled)) = (few, &compiled) {
        assert_neighbours(compiled.report());
    }
    check(&format!("{bm} x {bn} x {bk}, AWQ: {awq}"), compiled, "words", bm)
}

#[test]
fn words_of_4_bit_numbers() {
    for tile in [FEW, SOME, MANY] {
        for awq in [false, true] {
            words::<bf16>(tile, awq);
        }
    }
}

#[test]
fn few_rows_are_multiplied_where_words_are_unpacked() {
    // A thread has all columns of a word of AWQ, and a warp 8 times as many; of GPTQ a program takes as many, or half.
    let (half, whole) = (([16, 128, 128], 4, 4), ([16, 256, 128], 3, 4));
    for (tile, awq) in [(half, false), (whole, false), (whole, true)] {
        // One and a half for unpacking, half of one more in bf16, which has no room for a number 4 bits higher; a quarter of a
        // product; copies and addresses.
        for (code, most) in [(words::<f16>(tile, awq), 2.8), (words::<bf16>(tile, awq), 3.3)] {
            let Some(code) = code else { return };
            let [trip] = code.loops[..] else { panic!("{:?}", code.loops) };
            assert_eq!(trip.stores, 0, "numbers change threads: {trip:?}");
            let ([_, bn, bk], _, warps) = tile;
            let each = trip.instructions as f64 / (bn * bk) as f64 * f64::from(32 * warps);
            assert!(each <= most, "{each} instructions for a number: {trip:?}");
        }
    }
}

#[test]
fn numbers_of_8_bits_in_both_orders() {
    let tiles = [FEW, ([64, 128, 128], 3, 4), ([128, 128, 64], 4, 8)];
    for ([bm, bn, bk], stages, warps) in tiles {
        for down in [false, true] {
            let stride = |one: bool| if one { AssumedScalar::One } else { AssumedScalar::MultipleOf16 };
            let compiled = Int8ProductConsts { BM: bm, BN: bn, BK: bk, TALL }
                .request::<bf16, bf16>()
                .assume(Int8ProductAssumed {
                    splits: AssumedScalar::One,
                    weights_row: stride(down),
                    weights_column: stride(!down),
                    ..Default::default()
                })
                .num_warps(warps)
                .num_stages(stages)
                .compile(Target::sm_90a());
            check(&format!("{bm} x {bn} x {bk}, by columns: {down}"), compiled, "weights", bm);
        }
    }
}

#[test]
fn bytes_of_nf4() {
    for ([bm, bn, bk], stages, warps) in [([16, 64, 128], 3, 4), SOME, MANY] {
        let compiled = Nf4ProductConsts { BM: bm, BN: bn, BK: bk, TALL }
            .request::<bf16, bf16>()
            .assume(Nf4ProductAssumed { splits: AssumedScalar::One, ..Default::default() })
            .num_warps(warps)
            .num_stages(stages)
            .compile(Target::sm_90a());
        check(&format!("{bm} x {bn} x {bk}"), compiled, "bytes", bm);
    }
}
