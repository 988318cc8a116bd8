//! What a launch writes: as it was before, so that every candidate of a tuner begins with the same, and as the first
//! candidate left it, so that others can be compared.

use super::args::Arg;
use crate::borrowed::Memory;
use crate::dtype::ElementType;
use crate::error::{Error, Result};
use crate::storage::Storage;
use kernel_core::ir::Literal;
use kernel_core::num;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of an output that are compared after a quick look: from its beginning, its end, and evenly between.
const SAMPLE_BYTES: usize = 4 << 20;

/// Pieces of such a sample.
const PIECES: usize = 64;

/// The outputs of a kernel while it is tuned.
#[derive(Default)]
pub(crate) struct Outputs {
    kept: Option<Vec<Kept>>,
    /// The sampled elements that are right, by output.
    reference: Option<Vec<Vec<u8>>>,
    /// The largest difference, as a share of the largest magnitude; by dtype if `None`.
    tolerance: Option<f64>,
}

/// One output as it was.
struct Kept {
    contents: Arc<Storage>,
    bytes: usize,
}

/// A buffer that a launch writes.
struct Written<'a> {
    memory: Memory<'a>,
    range: Range<usize>,
    element: ElementType,
}

fn written<'a>(args: &[Arg<'a>]) -> Vec<Written<'a>> {
    let of = |arg: &Arg<'a>| arg.written().map(|(memory, range, element)| Written { memory, range, element });
    args.iter().filter_map(of).collect()
}

impl Outputs {
    pub(crate) fn new(tolerance: Option<f64>) -> Outputs {
        Outputs { tolerance, ..Outputs::default() }
    }

    /// Keeps what the buffers hold, at the first launch; at later ones puts it back.
    pub(super) fn begin(&mut self, args: &[Arg<'_>]) -> Result<()> {
        match &self.kept {
            Some(_) => self.restore(args),
            None => {
                self.kept = Some(written(args).iter().map(Kept::of).collect::<Result<_>>()?);
                Ok(())
            }
        }
    }

    /// Puts back what the buffers held before the first launch.
    ///
    /// # Errors
    /// [`Error::Tuning`] if they are others than then.
    pub(super) fn restore(&self, args: &[Arg<'_>]) -> Result<()> {
        let Some(kept) = &self.kept else { return Ok(()) };
        let written = written(args);
        let same = |(written, kept): (&Written<'_>, &Kept)| written.range.len() == kept.bytes;
        if written.len() != kept.len() || !written.iter().zip(kept).all(same) {
            return Err(Error::Tuning {
                what: "candidates must write buffers of the same sizes".into(),
                reason: "allocate outputs once, before tuning, for every configuration".into(),
            });
        }
        for (written, kept) in written.iter().zip(kept) {
            written.memory.copy_from(written.range.start, Memory::Own(&kept.contents), 0..kept.bytes)?;
        }
        Ok(())
    }

    /// Whether all that is written is what the first launch wrote, up to rounding; the reason, if it is not. The first
    /// launch that comes here is right.
    pub(super) fn compare(&mut self, args: &[Arg<'_>]) -> Result<Option<String>> {
        let written = written(args);
        let found: Vec<Vec<u8>> = written.iter().map(Written::sample).collect::<Result<_>>()?;
        let Some(reference) = &self.reference else {
            self.reference = Some(found);
            return Ok(None);
        };
        let pairs = reference.iter().zip(&found).zip(&written).enumerate();
        for (index, ((wanted, found), Written { element, .. })) in pairs {
            let tolerance = self.tolerance.unwrap_or_else(|| tolerance(*element));
            if let Some(difference) = difference(wanted, found, *element, tolerance) {
                return Ok(Some(format!("output {index} differs from that of the first configuration: {difference}")));
            }
        }
        Ok(None)
    }
}

impl Kept {
    fn of(written: &Written<'_>) -> Result<Kept> {
        let (contents, bytes) = (written.memory.copy(written.range.clone())?, written.range.len());
        Ok(Kept { contents, bytes })
    }
}

impl Written<'_> {
    /// All elements, or those of evenly spread pieces.
    fn sample(&self) -> Result<Vec<u8>> {
        let bytes = self.range.len();
        if bytes <= SAMPLE_BYTES {
            return self.read(self.range.clone());
        }
        let piece = SAMPLE_BYTES / PIECES;
        let mut sample = Vec::with_capacity(SAMPLE_BYTES);
        for index in 0..PIECES {
            let at = (bytes - piece) / (PIECES - 1) * index / self.element.size() * self.element.size();
            let start = self.range.start + at;
            sample.extend(self.read(start..start + piece)?);
        }
        Ok(sample)
    }

    fn read(&self, range: Range<usize>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; range.len()];
        // SAFETY: the range is inside the buffer, the vector has its length.
        unsafe { self.memory.read(range, bytes.as_mut_ptr())? };
        Ok(bytes)
    }
}

/// How far results of one computation in different orders may be apart, as a share of the largest magnitude: half of the
/// digits of the dtype agree. A wrong tile is off by whole magnitudes.
fn tolerance(element: ElementType) -> f64 {
    let mantissa = match element {
        ElementType::F64 => 52,
        ElementType::F32 => 23,
        ElementType::F16 => 10,
        ElementType::BF16 => 7,
        ElementType::F8E4M3 => 3,
        ElementType::F8E5M2 => 2,
        ElementType::Bool
        | ElementType::I8
        | ElementType::I16
        | ElementType::I32
        | ElementType::I64
        | ElementType::U8
        | ElementType::U16
        | ElementType::U32
        | ElementType::U64 => return 0.0,
    };
    f64::from(-mantissa).exp2().sqrt()
}

/// What differs most, if it is too much. Integers must be equal, and floats that are not finite.
fn difference(wanted: &[u8], found: &[u8], element: ElementType, tolerance: f64) -> Option<String> {
    if wanted == found {
        return None;
    }
    let size = element.size();
    let values = |bytes: &[u8]| -> Vec<f64> { bytes.chunks_exact(size).map(|chunk| number(chunk, element)).collect() };
    if !element.is_float() {
        let at = wanted.chunks_exact(size).zip(found.chunks_exact(size)).position(|(wanted, found)| wanted != found)?;
        let of = |bytes: &[u8]| number(&bytes[at * size..(at + 1) * size], element);
        return Some(format!("{} instead of {}", of(found), of(wanted)));
    }
    let (wanted, found) = (values(wanted), values(found));
    let largest = wanted.iter().filter(|value| value.is_finite()).fold(0.0f64, |most, value| most.max(value.abs()));
    let allowed = largest * tolerance;
    let is_off = |(wanted, found): (&f64, &f64)| match wanted.is_finite() && found.is_finite() {
        true => (wanted - found).abs() > allowed,
        false => !(wanted == found || wanted.is_nan() && found.is_nan()),
    };
    let at = wanted.iter().zip(&found).position(is_off)?;
    Some(format!("{} instead of {}, where {allowed:.3e} is allowed", found[at], wanted[at]))
}

fn number(bytes: &[u8], element: ElementType) -> f64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    match num::from_bits(u64::from_le_bytes(word), element) {
        Literal::Bool(value) => f64::from(u8::from(value)),
        Literal::Int(value) => value as f64,
        Literal::Float(bits) => f64::from_bits(bits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn roundings_are_no_differences_and_wrong_tiles_are() {
        let differs = |wanted: &[f32], found: &[f32]| {
            difference(&floats(wanted), &floats(found), ElementType::F32, tolerance(ElementType::F32))
        };
        assert_eq!(differs(&[1.0, 100.0], &[1.0, 100.0]), None);
        // 2^-11.5 of the largest magnitude is 0.0345.
        assert_eq!(differs(&[1.0, 100.0], &[1.03, 100.0]), None);
        assert!(differs(&[1.0, 100.0], &[1.04, 100.0]).is_some());
        assert_eq!(differs(&[f32::NAN, f32::INFINITY], &[-f32::NAN, f32::INFINITY]), None);
        assert!(differs(&[f32::INFINITY, 1.0], &[f32::NEG_INFINITY, 1.0]).is_some());
        assert!(differs(&[1.0, 1.0], &[f32::NAN, 1.0]).is_some());
        let integers = difference(&[1, 2], &[1, 3], ElementType::U8, 0.0);
        assert_eq!(integers.as_deref(), Some("3 instead of 2"));
    }
}
