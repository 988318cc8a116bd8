//! Whether two ways to run a kernel leave the same.

use kernel_core::interp::HostBuffer;
use kernel_core::ir::DType;
use tilewright_emulator::{bytes, numbers};

/// How exact buffers must agree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exactness {
    /// In every bit, but for the payloads of NaNs.
    Bits,
    /// In every number: zeros have no sign. Outputs with a bound of their own may differ by that.
    Numbers,
    /// In floats but roughly. For kernels that are being made smaller, whose sums may begin to round.
    Roughly,
}

/// The relative difference that is none, roughly.
const ROUGHLY: f64 = 0.02;

/// How two buffers differ; `None` if they agree. `ulps` is the buffer's own bound, in units in the last place.
pub fn difference(want: &HostBuffer, got: &HostBuffer, ulps: Option<f64>, exactness: Exactness) -> Option<String> {
    if want == got && exactness != Exactness::Bits {
        return None;
    }
    let dtype = want.dtype();
    if !dtype.is_float() {
        if want == got {
            return None;
        }
        let size = dtype.bytes() as usize;
        let (want, got) = (bytes(want), bytes(got));
        let pairs = want.chunks(size).zip(got.chunks(size));
        let wrong: Vec<usize> = pairs.enumerate().filter(|(_, (w, g))| w != g).map(|(index, _)| index).collect();
        let first = *wrong.first()?;
        let show =
            |all: &[u8]| all[first * size..][..size].iter().rev().map(|byte| format!("{byte:02x}")).collect::<String>();
        return Some(format!(
            "{} of {} elements of {dtype} differ, first [{first}]: {} expected, {} found",
            wrong.len(),
            want.len() / size,
            show(&want),
            show(&got)
        ));
    }
    let (want, got) = (numbers(want), numbers(got));
    let agrees = |w: f64, g: f64| {
        let same = match exactness {
            Exactness::Bits => w.to_bits() == g.to_bits(),
            Exactness::Numbers | Exactness::Roughly => w == g,
        };
        let bound = match (exactness, ulps) {
            (Exactness::Numbers, Some(ulps)) => ulps * ulp(w.abs().max(g.abs()), dtype),
            (Exactness::Roughly, _) => ROUGHLY * w.abs().max(g.abs()),
            (Exactness::Numbers, None) | (Exactness::Bits, _) => 0.0,
        };
        same || (w.is_nan() && g.is_nan()) || (w - g).abs() <= bound && w.is_finite() && g.is_finite() && bound > 0.0
    };
    let wrong: Vec<usize> = (0..want.len()).filter(|&i| !agrees(want[i], got[i])).collect();
    let first = *wrong.first()?;
    Some(format!(
        "{} of {} elements of {dtype} differ, first [{first}]: {} expected, {} found",
        wrong.len(),
        want.len(),
        want[first],
        got[first]
    ))
}

/// The distance of neighbouring numbers of a dtype there.
fn ulp(value: f64, dtype: DType) -> f64 {
    let (fraction, least) = match dtype {
        DType::F16 => (10, -14),
        DType::BF16 => (7, -126),
        DType::F64 => (52, -1022),
        _ => (23, -126),
    };
    let exponent = if value == 0.0 { least } else { (value.log2().floor() as i32).max(least) };
    2f64.powi(exponent - fraction)
}
