//! What a result must be.

use kernel_core::ir::DType;

use crate::data::{self, is_nan, show, to_f64};
use crate::rounding::Format;

/// What one element of a result must be.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Answer {
    /// These bits; a NaN may be any NaN.
    Exactly(u64),
    /// These bits; a zero may have either sign.
    UnsignedZero(u64),
    /// A float within that many ulps of the number (infinities, NaN and zeros: themselves).
    Near(f64, f64),
    /// Anything.
    Any,
}

impl Answer {
    /// Whether an element of `dtype` is right.
    pub fn accepts(self, dtype: DType, got: u64) -> bool {
        match self {
            Answer::Exactly(want) => want == got || (is_nan(dtype, want) && is_nan(dtype, got)),
            Answer::UnsignedZero(want) => {
                let both_zero = |bits: u64| to_f64(dtype, bits) == 0.0;
                Answer::Exactly(want).accepts(dtype, got) || (dtype.is_float() && both_zero(want) && both_zero(got))
            }
            Answer::Near(exact, ulps) => near(dtype, exact, ulps, to_f64(dtype, got)),
            Answer::Any => true,
        }
    }

    /// The answer for a person to read.
    pub fn describe(self, dtype: DType) -> String {
        match self {
            Answer::Exactly(bits) | Answer::UnsignedZero(bits) => show(dtype, bits),
            Answer::Near(exact, ulps) => format!("{exact:e} ± {ulps} ulp"),
            Answer::Any => "anything".to_string(),
        }
    }
}

fn near(dtype: DType, exact: f64, ulps: f64, got: f64) -> bool {
    if exact.is_nan() || got.is_nan() {
        return exact.is_nan() && got.is_nan();
    }
    let exact = if dtype.is_fp8() { exact.clamp(-beyond_largest(dtype), beyond_largest(dtype)) } else { exact };
    if exact == 0.0 || exact.is_infinite() {
        return got == exact && got.is_sign_negative() == exact.is_sign_negative();
    }
    let format = Format::of(dtype);
    // Infinity stands one step above the largest number: that is where rounding goes there.
    let overflow = beyond_largest(dtype);
    let exact = exact.clamp(-overflow, overflow);
    let got = got.clamp(-overflow, overflow);
    // The reference for f64 is off by up to an ulp itself.
    let slack = if dtype == DType::F64 { 1.0 } else { 0.0 };
    if overflow.is_infinite() && (exact.is_infinite() || got.is_infinite()) {
        return exact == got || (exact.abs() > 1.79e308 && got.abs() > 1.79e308);
    }
    (got - exact).abs() <= (ulps + slack) * format.ulp(exact)
}

/// The number after the largest of a format.
fn beyond_largest(dtype: DType) -> f64 {
    match dtype {
        // These saturate.
        DType::F8E4M3 => 448.0,
        DType::F8E5M2 => 57344.0,
        DType::F16 => 65536.0,
        DType::BF16 | DType::F32 => 2f64.powi(128),
        _ => f64::INFINITY,
    }
}

/// Compares a result with what it must be.
///
/// # Errors
/// The first few elements that are wrong, with their inputs as `inputs` shows them.
pub fn compare(dtype: DType, got: &[u64], want: &[Answer], inputs: &dyn Fn(usize) -> String) -> Result<(), String> {
    assert_eq!(got.len(), want.len());
    let wrong: Vec<usize> = (0..got.len()).filter(|&i| !want[i].accepts(dtype, got[i])).collect();
    if wrong.is_empty() {
        return Ok(());
    }
    let mut text = format!("{} of {} elements are wrong", wrong.len(), got.len());
    for &i in wrong.iter().take(6) {
        let (got, want) = (show(dtype, got[i]), want[i].describe(dtype));
        text.push_str(&format!("\n    [{i}]{}: got {got}, expected {want}", inputs(i)));
    }
    Err(text)
}

/// Answers that are these elements exactly.
pub fn exactly(data: &data::Data) -> Vec<Answer> {
    data.bits.iter().map(|&b| Answer::Exactly(b)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::from_f64;

    fn bits(x: f32) -> u64 {
        from_f64(DType::F32, f64::from(x))
    }

    #[test]
    fn wrong_answers_are_refused() {
        assert!(Answer::Exactly(bits(f32::NAN)).accepts(DType::F32, 0x7fc0_0001));
        assert!(!Answer::Exactly(bits(0.0)).accepts(DType::F32, bits(-0.0)));
        assert!(Answer::UnsignedZero(bits(0.0)).accepts(DType::F32, bits(-0.0)));
        assert!(!Answer::UnsignedZero(bits(0.0)).accepts(DType::F32, bits(1e-45)));
        let one = bits(1.0);
        assert!(Answer::Near(1.0, 2.0).accepts(DType::F32, one + 2));
        assert!(!Answer::Near(1.0, 2.0).accepts(DType::F32, one + 3));
        assert!(!Answer::Near(1.0, 2.0).accepts(DType::F32, bits(-1.0)));
        assert!(!Answer::Near(f64::NAN, 2.0).accepts(DType::F32, one));
        assert!(Answer::Near(3.4e38, 2.0).accepts(DType::F32, bits(3.4e38)));
        assert!(!Answer::Near(3.0e38, 2.0).accepts(DType::F32, bits(f32::INFINITY)));
        assert!(Answer::Near(1e300, 2.0).accepts(DType::F32, bits(f32::INFINITY)));
        assert!(Answer::Near(1e-300, 2.0).accepts(DType::F32, 0));
        assert!(!Answer::Near(0.0, 2.0).accepts(DType::F32, 1));
    }
}
