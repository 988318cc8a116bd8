//! What the hardware would run of the default configurations.

use super::config::{EndLoad, Machine, MatmulConfig, Work};
use super::kernels::{BlocksAssumed, BlocksConsts, PointersAssumed, PointersConsts, ResidentAssumed, ResidentConsts};
use super::problem::Problem;
use crate::code::Code;
use crate::products::{Activation, Precision};
use tilewright::launch::AssumedScalar;
use tilewright::prelude::*;

const H100: Machine = Machine { capability: Some((9, 0)), processors: 132 };
const ADA: Machine = Machine { capability: Some((8, 9)), processors: 128 };

/// How a residual is read, if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Residual {
    None,
    ByBlocks,
    ByThreads,
}

/// What follows the sums.
#[derive(Debug, Clone, Copy)]
struct End {
    scales: bool,
    bias: bool,
    residual: Residual,
    activation: Activation,
}

const NOTHING: End = End { scales: false, bias: false, residual: Residual::None, activation: Activation::None };

impl End {
    fn load(&self) -> EndLoad {
        let ends = [self.scales, self.scales, self.bias, self.activation != Activation::None];
        EndLoad::of(ends.iter().filter(|given| **given).count(), self.residual != Residual::None)
    }
}

/// A product of matrices, `down` where the columns of a factor are contiguous.
#[derive(Debug, Clone, Copy)]
struct Case {
    sizes: [usize; 3],
    down: [bool; 2],
    precision: Precision,
    end: End,
}

impl Case {
    fn config<T: Float>(&self) -> MatmulConfig {
        self.config_on::<T>(H100)
    }

    fn config_on<T: Float>(&self, machine: Machine) -> MatmulConfig {
        let ([m, n, k], [a, b]) = (self.sizes, self.down);
        let strides = |down: bool, rows: usize, columns: usize| if down { [0, 1, rows] } else { [0, columns, 1] };
        let (a, b) = (strides(a, m, k), strides(b, k, n));
        let problem = Problem { batch: 1, m, n, k, a, b, c: [0, n, 1], residual: [0, n, 1] };
        let work = Work { dtype: T::ELEMENT, precision: self.precision, ends: self.end.load() };
        MatmulConfig::choose(&problem, work, machine)
    }

    /// The code of the form that tensor descriptors feed.
    fn blocks<T: Float, R: Float>(&self) -> Option<(String, Code)> {
        let config @ MatmulConfig { bm, bn, bk, group, num_warps, num_stages, .. } = self.config::<T>();
        let (activation, precision, end) = (self.end.activation.code(), self.precision.code(), self.end);
        let [a, b] = self.down;
        let (by_blocks, by_threads) = (end.residual == Residual::ByBlocks, end.residual == Residual::ByThreads);
        macro_rules! compiled {
            ($consts:ident, $assumed:ident) => {
                $consts { BM: bm, BN: bn, BK: bk, GROUP: group, ACTIVATION: activation, PRECISION: precision }
                    .request::<T, R>(!a, a, !b, b, end.scales, end.scales, end.bias, by_blocks, by_threads)
                    .assume($assumed {
                        residual_column: AssumedScalar::One,
                        splits: AssumedScalar::One,
                        ..Default::default()
                    })
                    .num_warps(num_warps as u32)
                    .num_stages(num_stages as u32)
                    .compile(Target::sm_90a())
            };
        }
        let what = format!("{} -> {}, {self:?} by {config:?}", T::ELEMENT, R::ELEMENT);
        let compiled = if config.resident > 0 {
            compiled!(ResidentConsts, ResidentAssumed)
        } else {
            compiled!(BlocksConsts, BlocksAssumed)
        };
        let code = Code::of(&compiled.unwrap_or_else(|error| panic!("{what}: {error}")), "sm_90a")?;
        println!("{what}: {}", code.summary());
        Some((what, code))
    }

    /// The code of the form with pointers.
    fn pointers<T: Float, R: Float>(&self) -> Option<(String, Code)> {
        let config @ MatmulConfig { bm, bn, bk, group, num_warps, num_stages, .. } = self.config::<T>();
        let (activation, precision, end) = (self.end.activation.code(), self.precision.code(), self.end);
        let stride = |one: bool| if one { AssumedScalar::One } else { AssumedScalar::MultipleOf16 };
        let [a, b] = self.down;
        let what = format!("{} -> {} through pointers, {self:?} by {config:?}", T::ELEMENT, R::ELEMENT);
        let compiled =
            PointersConsts { BM: bm, BN: bn, BK: bk, GROUP: group, ACTIVATION: activation, PRECISION: precision }
                .request::<T, R, i32>(end.scales, end.scales, end.bias, end.residual != Residual::None)
                .assume(PointersAssumed {
                    a_row: stride(a),
                    a_column: stride(!a),
                    b_row: stride(b),
                    b_column: stride(!b),
                    c_column: AssumedScalar::One,
                    residual_column: AssumedScalar::One,
                    splits: AssumedScalar::One,
                    ..Default::default()
                })
                .num_warps(num_warps as u32)
                .num_stages(num_stages as u32)
                .compile(Target::sm_90a());
        let code = Code::of(&compiled.unwrap_or_else(|error| panic!("{what}: {error}")), "sm_90a")?;
        println!("{what}: {}", code.summary());
        Some((what, code))
    }
}

/// Large, short sums, few tiles, few rows, one row.
const SIZES: [[usize; 3]; 5] =
    [[4096, 4096, 4096], [8192, 8192, 512], [1024, 1024, 1024], [64, 8192, 8192], [1, 8192, 8192]];

/// Whether these sizes have tiles of 64 rows, which wgmma needs.
fn is_tall(sizes: [usize; 3]) -> bool {
    sizes[0] >= 64
}

fn check<T: Float, R: Float>(down: [bool; 2], sizes: &[[usize; 3]], ends: &[End]) {
    for &sizes in sizes {
        for &end in ends {
            let case = Case { sizes, down, precision: Precision::Tf32, end };
            if let Some((what, code)) = case.blocks::<T, R>() {
                code.assert_clean(&what);
                assert!(code.count(&["UTMALDG"]) > 0 && code.count(&["UTMASTG"]) > 0, "{what}");
                assert_eq!(code.count(&["GMMA.64x"]) > 0, is_tall(sizes), "{what}: {}", code.summary());
                let by_blocks_alone = end.residual == Residual::ByBlocks && !end.bias && !end.scales;
                assert!(!by_blocks_alone || code.count(&["LDG.E"]) == 0, "{what}: {}", code.summary());
            }
        }
    }
}

const ENDS: [End; 6] = [
    NOTHING,
    End { bias: true, activation: Activation::Gelu, ..NOTHING },
    End { activation: Activation::Silu, ..NOTHING },
    End { scales: true, bias: true, residual: Residual::ByThreads, activation: Activation::Silu },
    End { residual: Residual::ByBlocks, ..NOTHING },
    End { bias: true, residual: Residual::ByBlocks, ..NOTHING },
];

#[test]
fn sixteen_bit_factors_in_every_order() {
    check::<f16, f16>([false, false], &SIZES, &ENDS[..1]);
    check::<f16, f16>([false, false], &SIZES[..2], &ENDS[1..]);
    check::<f16, f16>([false, false], &SIZES[2..], &ENDS[4..5]);
    for down in [[false, true], [true, false], [true, true]] {
        check::<bf16, bf16>(down, &SIZES[1..2], &ENDS[..1]);
    }
}

#[test]
fn factors_of_other_widths() {
    let scales = End { scales: true, ..NOTHING };
    let most = End { bias: true, activation: Activation::Gelu, ..scales };
    check::<F8E4M3, bf16>([false, true], &SIZES[..1], &[NOTHING, scales, most, ENDS[3], ENDS[4]]);
    check::<F8E4M3, bf16>([false, false], &SIZES[..1], &[scales]);
    check::<f32, f32>([false, true], &SIZES[..1], &[NOTHING]);
    check::<f32, f32>([false, false], &SIZES[..1], &[NOTHING]);
}

#[test]
fn exact_factors_of_f32_and_f64_do_not_spill() {
    for precision in [Precision::Tf32x3, Precision::Bf16x6, Precision::Ieee] {
        let case = Case { sizes: SIZES[0], down: [false, false], precision, end: ENDS[1] };
        if let Some((what, code)) = case.blocks::<f32, f32>() {
            code.assert_clean(&what);
            assert_eq!(code.count(&["GMMA.64x"]) > 0, precision == Precision::Bf16x6, "{what}");
        }
    }
    let case = Case { sizes: SIZES[0], down: [false, false], precision: Precision::Tf32, end: NOTHING };
    if let Some((what, code)) = case.blocks::<f64, f64>() {
        code.assert_clean(&what);
        assert!(code.count(&["DMMA"]) > 0, "{what}");
    }
}

/// Rows that the hardware does not copy, as those of a part of a matrix.
#[test]
fn pointers_load_16_bytes_at_a_time() {
    for (sizes, end) in [(SIZES[0], NOTHING), (SIZES[0], ENDS[3]), (SIZES[3], NOTHING)] {
        let case = Case { sizes, down: [false, false], precision: Precision::Tf32, end };
        if let Some((what, code)) = case.pointers::<f16, f16>() {
            code.assert_clean(&what);
            assert!(code.count(&["LDGSTS"]) > 0, "{what}: {}", code.summary());
            assert_eq!(code.count(&["LDGSTS"]), code.count(&["LDGSTS", ".128"]), "{what}");
        }
    }
}

/// Blocks that are turned on their way to the tensor cores and a residual of any strides take the most shared memory.
#[test]
fn the_largest_needs_of_shared_memory_are_met() {
    fn blocks<T: Float>(sizes: [usize; 3], residual_down: bool) {
        let case = Case { sizes, down: [true, false], precision: Precision::Tf32, end: ENDS[3] };
        let config @ MatmulConfig { bm, bn, bk, group, num_warps, num_stages, .. } = case.config::<T>();
        let stride = |one: bool| if one { AssumedScalar::One } else { AssumedScalar::MultipleOf16 };
        let (activation, precision) = (ENDS[3].activation.code(), case.precision.code());
        macro_rules! compiled {
            ($consts:ident, $assumed:ident) => {
                $consts { BM: bm, BN: bn, BK: bk, GROUP: group, ACTIVATION: activation, PRECISION: precision }
                    .request::<T, f32>(false, true, true, false, true, true, true, false, true)
                    .assume($assumed {
                        residual_row: stride(residual_down),
                        residual_column: stride(!residual_down),
                        ..Default::default()
                    })
                    .num_warps(num_warps as u32)
                    .num_stages(num_stages as u32)
                    .compile(Target::sm_90a())
            };
        }
        let compiled = if config.resident > 0 {
            compiled!(ResidentConsts, ResidentAssumed)
        } else {
            compiled!(BlocksConsts, BlocksAssumed)
        };
        if let Err(error) = compiled {
            panic!("{case:?} of {} by {config:?}: {error}", T::ELEMENT);
        }
    }
    for sizes in [SIZES[0], SIZES[2]] {
        for residual_down in [false, true] {
            blocks::<f16>(sizes, residual_down);
            blocks::<F8E4M3>(sizes, residual_down);
            blocks::<f32>(sizes, residual_down);
        }
    }
}

/// GPUs without tensor copies have as little as 99 KiB of shared memory.
#[test]
fn smaller_gpus_have_room() {
    fn pointers<T: Float>(sizes: [usize; 3]) {
        let case = Case { sizes, down: [false, false], precision: Precision::Tf32, end: ENDS[3] };
        let MatmulConfig { bm, bn, bk, group, num_warps, num_stages, .. } = case.config_on::<T>(ADA);
        let compiled = PointersConsts { BM: bm, BN: bn, BK: bk, GROUP: group, ACTIVATION: 4, PRECISION: 0 }
            .request::<T, f32, i32>(true, true, true, true)
            .num_warps(num_warps as u32)
            .num_stages(num_stages as u32)
            .compile(Target::sm_89());
        if let Err(error) = compiled {
            panic!("{case:?} of {}: {error}", T::ELEMENT);
        }
    }
    for sizes in [SIZES[0], SIZES[3], SIZES[4]] {
        pointers::<f16>(sizes);
        pointers::<F8E4M3>(sizes);
        pointers::<f32>(sizes);
    }
}
