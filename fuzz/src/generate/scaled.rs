//! Products of factors with scales: of all pairs of formats, with scales that differ from line to line.

use kernel_core::ir::scaled::{SCALE_BLOCK, scaled_dtype};
use kernel_core::ir::{DType, DotOp, FactorFormat, ScaledFactors, ValueId};

use super::features::Feature;
use super::memory::some_mask;
use super::products::factor_from_values;
use super::writer::Writer;

/// One product of tiles that may be anything.
pub fn single(w: &mut Writer) -> Option<ValueId> {
    const DTYPES: [DType; 6] = [DType::U8, DType::U8, DType::F8E4M3, DType::F8E5M2, DType::BF16, DType::F16];
    let (left, right) = (w.random.pick(&DTYPES), w.random.pick(&DTYPES));
    scaled_dtype(left, right)?;
    let [m, n] = [0; 2].map(|_| w.random.pick(&[16, 16, 32, 8, 4]));
    let k = w.random.pick(&[SCALE_BLOCK, SCALE_BLOCK, 2 * SCALE_BLOCK]);
    let [a_format, b_format] = [left, right].map(|dtype| match dtype {
        DType::U8 => FactorFormat::E2m1,
        _ => FactorFormat::Own,
    });
    let a = factor(w, left, [m, k / a_format.pack()]);
    let b = factor(w, right, [k / b_format.pack(), n]);
    let acc = w.filled(0.0, DType::F32, &[m, n]);
    let has = [w.random.chance(70), w.random.chance(70)];
    let mut operands = vec![a, b, acc];
    for (has, lines) in has.into_iter().zip([m, n]) {
        if has {
            operands.push(scale(w, [lines, k / SCALE_BLOCK])?);
        }
    }
    let scaled = ScaledFactors::of(has[0], has[1]);
    let value = w.emit(DotOp::DotScaled { a_format, b_format, scaled }, &operands)?;
    w.has(Feature::Product);
    w.has(Feature::ScaledProduct);
    Some(w.keep(value))
}

fn factor(w: &mut Writer, dtype: DType, shape: [i64; 2]) -> ValueId {
    match dtype {
        DType::U8 => w.like(DType::U8, &shape),
        _ => factor_from_values(w, dtype, &shape),
    }
}

/// Scales of a half, one or two.
fn scale(w: &mut Writer, shape: [i64; 2]) -> Option<ValueId> {
    let mask = some_mask(w, &shape);
    let [one, other] = [0; 2].map(|_| f64::from(126 + w.random.below(3) as u8));
    let (one, other) = (w.filled(one, DType::U8, &shape), w.filled(other, DType::U8, &shape));
    w.select(mask, one, other)
}
