//! Matrix products: what a `dot` computes, and the layouts that its instruction needs.
//!
//! | instruction | from | tile of an instruction | operands |
//! |---|---|---|---|
//! | `wgmma` | sm_90a | 64 x N x 32 bytes, N up to 256, by four warps | shared memory; A also registers |
//! | `mma.sync` | sm_80 | 16 x 8 x 32 bytes (f64: 8 x 8 x 4), by a warp | registers |
//! | `fma` | any | one element by a thread | shared memory |
//!
//! A tile smaller than the instruction's along M or N wraps around: lanes and registers hold copies, and every copy of
//! an element is computed from the same numbers. Along K nothing may be counted twice, so a smaller K is left to `fma`.
//!
//! Which of them computes a product is chosen once, by [`crate::passes::bound::choose_products`], and stands on it
//! from then on.

use kernel_core::ir::{DType, DotOp, DotPrecision, Func, Op, Operation};
use kernel_core::layout::{
    Blocked, LayoutDim, LayoutError, LinearLayout, MmaVersion, Operand, WARP_SIZE, dot_operand, mma_v2_accumulator,
    wgmma_accumulator,
};

/// Rows of a `wgmma`.
pub(crate) const GROUP_ROWS: u32 = 64;
/// The most columns of a `wgmma`.
pub(crate) const MAX_COLUMNS: u32 = 256;
/// Rows and columns of an `mma.sync`.
pub(crate) const WARP_TILE: [u32; 2] = [16, 8];

/// What a `dot` computes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Problem {
    /// Dtypes of the factors and the accumulator.
    pub(crate) a: DType,
    pub(crate) b: DType,
    pub(crate) acc: DType,
    /// The sizes before the last two.
    pub(crate) batch: Vec<u32>,
    pub(crate) m: u32,
    pub(crate) n: u32,
    pub(crate) k: u32,
    pub(crate) precision: DotPrecision,
}

/// How factors are multiplied in an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    F16,
    Bf16,
    Tf32,
    /// Three products of tf32.
    Tf32x3,
    /// Bytes; whether each factor is signed.
    Int8 {
        a: bool,
        b: bool,
    },
    /// 8-bit floats, by their PTX names.
    F8 {
        a: DType,
        b: DType,
    },
    F64,
}

impl Kind {
    /// Consecutive elements along K of one thread: a word's worth.
    pub(crate) fn k_width(self) -> u32 {
        match self {
            Kind::F16 | Kind::Bf16 => 2,
            Kind::Tf32 | Kind::Tf32x3 | Kind::F64 => 1,
            Kind::Int8 { .. } | Kind::F8 { .. } => 4,
        }
    }

    /// The extent along K of one instruction.
    pub(crate) fn k_tile(self) -> u32 {
        8 * self.k_width()
    }

    /// Whether sums are integers.
    pub(crate) fn is_int(self) -> bool {
        matches!(self, Kind::Int8 { .. })
    }

    /// The PTX types of the factors.
    pub(crate) fn types(self) -> (&'static str, &'static str) {
        let byte = |signed: bool| if signed { "s8" } else { "u8" };
        match self {
            Kind::F16 => ("f16", "f16"),
            Kind::Bf16 => ("bf16", "bf16"),
            Kind::Tf32 | Kind::Tf32x3 => ("tf32", "tf32"),
            Kind::Int8 { a, b } => (byte(a), byte(b)),
            Kind::F8 { a, b } => (f8(a), f8(b)),
            Kind::F64 => ("f64", "f64"),
        }
    }
}

fn f8(dtype: DType) -> &'static str {
    if dtype == DType::F8E5M2 { "e5m2" } else { "e4m3" }
}

/// How matrix instructions multiply factors of these dtypes, f32 as tf32.
pub(crate) fn product_kind(a: DType, b: DType) -> Option<Kind> {
    match (a, b) {
        (DType::F16, DType::F16) => Some(Kind::F16),
        (DType::BF16, DType::BF16) => Some(Kind::Bf16),
        (DType::F32, DType::F32) => Some(Kind::Tf32),
        (DType::F64, DType::F64) => Some(Kind::F64),
        (DType::I8 | DType::U8, DType::I8 | DType::U8) => Some(Kind::Int8 { a: a == DType::I8, b: b == DType::I8 }),
        (a, b) if a.is_fp8() && b.is_fp8() => Some(Kind::F8 { a, b }),
        _ => None,
    }
}

impl Problem {
    /// The problem of a `dot`; `None` for other operations.
    pub(crate) fn of(func: &Func, operation: &Operation) -> Option<Problem> {
        let Op::Dot(DotOp::Dot { precision, .. }) = operation.op else { return None };
        let &[a, b, acc] = operation.operands.as_slice() else { return None };
        let dtype = |value| func.ty(value).dtype();
        let (left, shape) = (func.tile_shape(a), func.tile_shape(acc));
        let [batch @ .., m, n] = shape.as_slice() else { return None };
        let k = *left.last()?;
        let (batch, m, n) = (batch.to_vec(), *m, *n);
        Some(Problem { a: dtype(a)?, b: dtype(b)?, acc: dtype(acc)?, batch, m, n, k, precision })
    }

    /// How matrix instructions multiply these factors; `None` if none does.
    pub(crate) fn kind(&self) -> Option<Kind> {
        match (product_kind(self.a, self.b)?, self.precision) {
            (Kind::Tf32, DotPrecision::Tf32x3) => Some(Kind::Tf32x3),
            // Those of bf16 terms have been written as such.
            (Kind::Tf32, DotPrecision::Ieee | DotPrecision::Bf16x3 | DotPrecision::Bf16x6) => None,
            (kind, _) => Some(kind),
        }
    }

    /// How the warps that compute a product by `wgmma` are laid over M and N: along M first, where each has 16 rows.
    pub(crate) fn group_warps(&self, num_warps: u32) -> [u32; 2] {
        let along_m = num_warps.min(self.m / WARP_TILE[0]);
        [along_m, num_warps / along_m]
    }

    /// The layouts of A, B and the accumulator for `mma.sync`. `rows` asks for all warps along M, so that each has
    /// whole rows.
    ///
    /// # Errors
    /// Sizes that the algebra refuses.
    pub(crate) fn mma_layouts(&self, kind: Kind, num_warps: u32, rows: bool) -> Result<[LinearLayout; 3], LayoutError> {
        let (batch_warps, left) = deal(&self.batch, num_warps);
        let warps = self.warps(left, rows);
        let operand = |shape: [u32; 2], which| dot_operand(&shape, which, kind.k_width(), MmaVersion::V2, warps);
        let layouts = [
            operand([self.m, self.k], Operand::A)?,
            operand([self.k, self.n], Operand::B)?,
            mma_v2_accumulator(&[self.m, self.n], warps)?,
        ];
        let [a, b, acc] = layouts.map(|layout| with_batch(&layout, &self.batch, &batch_warps));
        Ok([a?, b?, acc?])
    }

    /// How warps are laid over M and N: so that a warp's part is about as high as it is wide, since it reads as much
    /// of A as it is high and as much of B as it is wide.
    fn warps(&self, count: u32, rows: bool) -> [u32; 2] {
        let tiles = [(self.m / WARP_TILE[0]).max(1), (self.n / WARP_TILE[1]).max(1)];
        let mut warps = [1, 1];
        while warps[0] * warps[1] < count {
            let (high, wide) = (tiles[0] / warps[0], tiles[1] / (2 * warps[1]));
            let taller = (rows || high >= wide) && warps[0] < tiles[0];
            warps[if taller || warps[1] >= tiles[1] && warps[0] < tiles[0] { 0 } else { 1 }] *= 2;
        }
        warps
    }

    /// The accumulator's layout for `wgmma`.
    ///
    /// # Errors
    /// Sizes that the algebra refuses.
    pub(crate) fn wgmma_layout(&self, columns: u32, warps: [u32; 2]) -> Result<LinearLayout, LayoutError> {
        wgmma_accumulator(&[self.m, self.n], columns, warps)
    }

    /// The layout of an A that `wgmma` reads from registers.
    ///
    /// # Errors
    /// Sizes that the algebra refuses.
    pub(crate) fn wgmma_a_layout(&self, kind: Kind, warps: [u32; 2]) -> Result<LinearLayout, LayoutError> {
        let layout = dot_operand(&[self.m, self.k], Operand::A, kind.k_width(), MmaVersion::V3, warps)?;
        Ok(layout.remove_broadcast_registers().layout)
    }

    /// The accumulator's layout for scalar arithmetic: up to 4 x 4 elements per thread and step.
    ///
    /// # Errors
    /// Sizes that the algebra refuses.
    pub(crate) fn fma_layout(&self, num_warps: u32) -> Result<LinearLayout, LayoutError> {
        let rank = self.batch.len() + 2;
        let shape: Vec<u32> = self.batch.iter().copied().chain([self.m, self.n]).collect();
        let (batch_warps, left) = deal(&self.batch, num_warps);
        let per_thread = self.m * self.n / (left * WARP_SIZE);
        let wide = self.n.min(4).min(per_thread.max(1));
        let high = self.m.min(4).min((per_thread / wide).max(1));
        let across = (self.n / wide).min(8);
        let down = (self.m / high).min(WARP_SIZE / across);
        let across = WARP_SIZE / down;
        let warps_down = (self.m / high / down).clamp(1, left);
        let batches = |value: u32| std::iter::repeat_n(value, self.batch.len());
        let blocked = Blocked {
            size_per_thread: batches(1).chain([high, wide]).collect(),
            threads_per_warp: batches(1).chain([down, across]).collect(),
            repeats: vec![1; rank],
            warps: batch_warps.into_iter().chain([warps_down, left / warps_down]).collect(),
            order: (0..rank as u8).rev().collect(),
        };
        blocked.layout(&shape)
    }
}

/// Whether a kernel has 8-bit floats.
pub(crate) fn has_f8(func: &Func) -> bool {
    func.values.iter().any(|value| value.ty.dt().and_then(|dt| dt.known()).is_some_and(DType::is_fp8))
}

/// Deals warps to batch dimensions, from the outermost; returns how many each has, and how many are left.
fn deal(batch: &[u32], num_warps: u32) -> (Vec<u32>, u32) {
    let mut left = num_warps;
    let own = batch.iter().map(|&size| {
        let own = size.min(left);
        left /= own;
        own
    });
    (own.collect(), left)
}

/// A layout of matrices as one of batches of them: warps first, then registers.
fn with_batch(layout: &LinearLayout, batch: &[u32], warps: &[u32]) -> Result<LinearLayout, LayoutError> {
    let count = batch.len() as u8;
    if count == 0 {
        return Ok(layout.clone());
    }
    let mut layout = layout
        .rename_out(LayoutDim::Axis(1), LayoutDim::Axis(count + 1))?
        .rename_out(LayoutDim::Axis(0), LayoutDim::Axis(count))?;
    for (axis, (&size, &own)) in (0..count).zip(batch.iter().zip(warps)) {
        let dim = LayoutDim::Axis(axis);
        let line = LinearLayout::identity1d(own, LayoutDim::Warp, dim)?;
        layout = layout.product(&line)?.product(&LinearLayout::identity1d(size / own, LayoutDim::Register, dim)?)?;
    }
    let axes: Vec<LayoutDim> = (0..count + 2).map(LayoutDim::Axis).collect();
    layout.transpose_outs(&axes)
}

#[cfg(test)]
mod tests {
    use kernel_core::layout::is_mma_v2;

    use super::*;

    fn problem(dtype: DType, m: u32, n: u32, k: u32) -> Problem {
        let precision = DotPrecision::Tf32;
        Problem { a: dtype, b: dtype, acc: DType::F32, batch: Vec::new(), m, n, k, precision }
    }

    #[test]
    fn layouts_of_every_shape_fit_the_instruction() {
        for (m, n, k) in [(128, 128, 64), (16, 8, 16), (1, 256, 32), (64, 1, 16), (4, 16, 16), (256, 64, 32)] {
            for num_warps in [1, 2, 4, 8] {
                for batch in [vec![], vec![2], vec![8], vec![2, 4]] {
                    let problem = Problem { batch, ..problem(DType::F16, m, n, k) };
                    let [a, b, acc] = problem.mma_layouts(Kind::F16, num_warps, false).unwrap();
                    assert!(is_mma_v2(&a, &b, &acc, Kind::F16.k_width()), "{problem:?}\n{a}\n{b}\n{acc}");
                    for layout in [&a, &b, &acc, &problem.fma_layout(num_warps).unwrap()] {
                        assert_eq!(layout.in_size(LayoutDim::Warp), num_warps);
                        assert!(layout.is_surjective());
                    }
                }
            }
        }
    }
}
