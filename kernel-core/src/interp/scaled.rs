//! Products of factors with scales.
//!
//! Each factor is decoded to f32, multiplied by its scales, and rounded to the dtype in which the factors are multiplied.
//! The product is that of [`super::product`].

use half::{bf16, f16};

use crate::ir::scaled::{E2M1, SCALE_BLOCK, e8m0, scaled_dtype};
use crate::ir::{DType, DotPrecision, FactorFormat};

use super::cast::cast;
use super::lanes::Fn1;
use super::product::Product;

/// Numbers along the axes: `k` counts the numbers of a factor, of which one element of its tile may hold several.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub batch: usize,
    pub m: usize,
    pub n: usize,
    pub k: usize,
}

/// A product of `batch` times `[m, k]` with `[k, n]`.
#[derive(Clone, Debug)]
pub(super) struct ScaledProduct {
    decode: [Decode; 2],
    round: fn(f32) -> f32,
    sizes: Sizes,
    /// Of factors that are f32 by now.
    product: Product,
}

/// How the numbers of a factor are read.
#[derive(Clone, Copy, Debug)]
enum Decode {
    /// Each from an element.
    Widen(Fn1),
    /// Two from a byte, neighbours along K.
    Pairs,
}

/// Where the numbers of a factor lie: `lines` of `k` of them each, and how far a line is from the next, and a number from
/// the next of its line.
#[derive(Clone, Copy)]
struct Lines {
    lines: usize,
    from_line: usize,
    from_number: usize,
}

impl ScaledProduct {
    /// The product of factors of these dtypes; `None` if there is none.
    pub(super) fn new(dtypes: [DType; 2], formats: [FactorFormat; 2], sizes: Sizes) -> Option<ScaledProduct> {
        let round = match scaled_dtype(dtypes[0], dtypes[1])? {
            DType::F16 => |x: f32| f16::from_f32(x).to_f32(),
            _ => |x: f32| bf16::from_f32(x).to_f32(),
        };
        let decode = [0, 1].map(|i| match formats[i] {
            FactorFormat::Own => Decode::Widen(cast(dtypes[i], DType::F32)),
            FactorFormat::E2m1 => Decode::Pairs,
        });
        let single = (DType::F32, DType::F32, DType::F32);
        let dims = [sizes.batch, sizes.m, sizes.k];
        let product = Product::new(single, DotPrecision::Ieee, &dims, sizes.n)?;
        Some(ScaledProduct { decode, round, sizes, product })
    }

    /// Bytes of room that [`ScaledProduct::compute`] needs, aligned to 8; `None` if they exceed the address space.
    pub(super) fn room(&self) -> Option<usize> {
        let Sizes { batch, m, n, k } = self.sizes;
        let factors = batch.checked_mul(m.checked_mul(k)?.checked_add(k.checked_mul(n)?)?)?;
        factors.checked_mul(size_of::<f32>())?.checked_add(self.product.room()?)
    }

    /// Writes the accumulator plus the product to `out`.
    ///
    /// # Safety
    /// The pointers are valid for tiles of the sizes that the product was made for, `room` for [`ScaledProduct::room`];
    /// what is written overlaps nothing, and all are aligned for their elements.
    pub(super) unsafe fn compute(
        &self,
        [a, b]: [*const u8; 2],
        scales: [Option<*const u8>; 2],
        acc: *const u8,
        out: *mut u8,
        room: *mut u8,
    ) {
        let Sizes { batch, m, n, k } = self.sizes;
        let (a_len, b_len) = (batch * m * k, batch * k * n);
        let left = Lines { lines: m, from_line: k, from_number: 1 };
        let right = Lines { lines: n, from_line: 1, from_number: n };
        // SAFETY: promised by the caller; the room holds both factors, and behind them that of the product.
        unsafe {
            let (wide_a, wide_b) = (room.cast::<f32>(), room.cast::<f32>().add(a_len));
            self.decode(0, a, scales[0], std::slice::from_raw_parts_mut(zeroed(wide_a, a_len), a_len), left);
            self.decode(1, b, scales[1], std::slice::from_raw_parts_mut(zeroed(wide_b, b_len), b_len), right);
            self.product.compute(wide_a.cast(), wide_b.cast(), acc, out, wide_b.add(b_len).cast());
        }
    }

    /// Decodes a factor, multiplies it by its scales, and rounds.
    ///
    /// # Safety
    /// The factor has as many numbers as `out`, and the scale one for each block of them.
    unsafe fn decode(&self, which: usize, from: *const u8, scale: Option<*const u8>, out: &mut [f32], lines: Lines) {
        let k = self.sizes.k;
        match self.decode[which] {
            // SAFETY: the function was chosen for the factor's dtype.
            Decode::Widen(widen) => unsafe { widen(from, out.as_mut_ptr().cast(), out.len()) },
            Decode::Pairs => {
                // SAFETY: each byte holds two numbers.
                let bytes = unsafe { std::slice::from_raw_parts(from, out.len() / 2) };
                let packed = Lines { from_line: if lines.from_number == 1 { k / 2 } else { 1 }, ..lines };
                lines.each(self.sizes, |at, number, line| {
                    let half = bytes[packed.place(k / 2, number / 2, line)] >> (4 * (number % 2));
                    let value = E2M1[usize::from(half & 7)];
                    out[at] = if half & 8 == 0 { value } else { -value };
                });
            }
        }
        let blocks = k / SCALE_BLOCK as usize;
        lines.each(self.sizes, |at, number, line| {
            let scale = scale.map_or(1.0, |scale| {
                // SAFETY: a line has one scale for each block of its numbers.
                e8m0(unsafe { *scale.add(line * blocks + number / SCALE_BLOCK as usize) })
            });
            out[at] = (self.round)(out[at] * scale);
        });
    }
}

impl Lines {
    /// Calls with each place, which number of its line is there, and which line that is, counted through the batch.
    fn each(self, sizes: Sizes, mut at: impl FnMut(usize, usize, usize)) {
        for line in 0..sizes.batch * self.lines {
            for number in 0..sizes.k {
                at(self.place(sizes.k, number, line), number, line);
            }
        }
    }

    /// Where a number of a line lies, of so many in each line.
    fn place(self, numbers: usize, number: usize, line: usize) -> usize {
        line / self.lines * (self.lines * numbers) + line % self.lines * self.from_line + number * self.from_number
    }
}

/// The same place, full of zeros.
///
/// # Safety
/// It is valid for so many numbers.
unsafe fn zeroed(place: *mut f32, len: usize) -> *mut f32 {
    // SAFETY: promised by the caller.
    unsafe { std::ptr::write_bytes(place, 0, len) };
    place
}
