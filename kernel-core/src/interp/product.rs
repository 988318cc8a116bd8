//! Matrix products.
//!
//! Factors are converted to the type that sums are in (f32, f64 or i32) and multiplied row by row, so that the inner
//! loop runs along rows of `b` and of the result. Every step is one fused multiply-add: products are exact.

use half::bf16;

use crate::ir::scaled::Split;
use crate::ir::{DType, DotPrecision};

use super::cast::cast;
use super::lanes::Fn1;

/// What sums are in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sum {
    F32,
    /// With factors rounded to tf32.
    Tf32,
    /// With factors split into two tf32 parts.
    Tf32x3,
    /// With factors split into bf16 terms.
    Bf16(Split),
    F64,
    I32,
}

impl Sum {
    fn bytes(self) -> usize {
        match self {
            Sum::F32 | Sum::Tf32 | Sum::Tf32x3 | Sum::Bf16(_) | Sum::I32 => 4,
            Sum::F64 => 8,
        }
    }

    /// How many numbers stand for a factor.
    fn parts(self) -> usize {
        match self {
            Sum::Tf32x3 => 2,
            Sum::Bf16(split) => split.terms,
            Sum::F32 | Sum::Tf32 | Sum::F64 | Sum::I32 => 1,
        }
    }
}

/// A product of `batch` times `[m, k]` with `[k, n]`.
#[derive(Clone, Debug)]
pub(super) struct Product {
    sum: Sum,
    widen_a: Fn1,
    widen_b: Fn1,
    /// Conversions of an accumulator of another type than sums are in, to it and back.
    acc: Option<(Fn1, Fn1)>,
    pub a_bytes: usize,
    pub b_bytes: usize,
    pub acc_bytes: usize,
    pub batch: usize,
    pub m: usize,
    pub k: usize,
    pub n: usize,
}

impl Product {
    /// The product of factors and an accumulator of these dtypes; `None` if there is none. `dims` are those of `a` and
    /// the last of `b`.
    pub(super) fn new(
        (a, b, acc): (DType, DType, DType),
        precision: DotPrecision,
        dims: &[usize],
        n: usize,
    ) -> Option<Product> {
        let (sum, of) = match acc {
            DType::F64 => (Sum::F64, DType::F64),
            DType::I32 => (Sum::I32, DType::I32),
            DType::F32 | DType::F16 if a == DType::F32 => match precision {
                DotPrecision::Tf32 => (Sum::Tf32, DType::F32),
                DotPrecision::Tf32x3 => (Sum::Tf32x3, DType::F32),
                DotPrecision::Ieee => (Sum::F32, DType::F32),
                DotPrecision::Bf16x3 | DotPrecision::Bf16x6 => (Sum::Bf16(precision.split()?), DType::F32),
            },
            DType::F32 | DType::F16 => (Sum::F32, DType::F32),
            DType::Bool
            | DType::I8
            | DType::I16
            | DType::I64
            | DType::U8
            | DType::U16
            | DType::U32
            | DType::U64
            | DType::F8E4M3
            | DType::F8E5M2
            | DType::BF16 => return None,
        };
        let [outer @ .., m, k] = dims else { return None };
        Some(Product {
            sum,
            widen_a: cast(a, of),
            widen_b: cast(b, of),
            acc: (acc != of).then(|| (cast(acc, of), cast(of, acc))),
            a_bytes: a.bytes() as usize,
            b_bytes: b.bytes() as usize,
            acc_bytes: acc.bytes() as usize,
            batch: outer.iter().product(),
            m: *m,
            k: *k,
            n,
        })
    }

    /// Bytes of `a`, `b` and the accumulator.
    pub(super) fn sizes(&self) -> [usize; 3] {
        [
            self.batch * self.m * self.k * self.a_bytes,
            self.batch * self.k * self.n * self.b_bytes,
            self.batch * self.m * self.n * self.acc_bytes,
        ]
    }

    /// Bytes of room that [`Product::compute`] needs, aligned to 8; `None` if they exceed the address space.
    pub(super) fn room(&self) -> Option<usize> {
        let factors = self.m.checked_mul(self.k)?.checked_add(self.k.checked_mul(self.n)?)?;
        let factors = factors.checked_mul(self.sum.parts())?;
        // Products of split factors are summed by themselves.
        let sums = if matches!(self.sum, Sum::Bf16(_)) { 2 } else { 1 };
        factors.checked_add(self.m.checked_mul(self.n)?.checked_mul(sums)?)?.checked_mul(self.sum.bytes())
    }

    /// Writes the accumulator plus the product to `out`.
    ///
    /// # Safety
    /// The pointers are valid for [`Product::sizes`], `out` for as much as the accumulator and `room` for
    /// [`Product::room`]; what is written overlaps nothing, and all are aligned for their elements.
    pub(super) unsafe fn compute(&self, a: *const u8, b: *const u8, acc: *const u8, out: *mut u8, room: *mut u8) {
        let [a_size, b_size, c_size] = self.sizes().map(|bytes| bytes / self.batch.max(1));
        for i in 0..self.batch {
            // SAFETY: promised by the caller; each part is one matrix of the batch.
            unsafe {
                let matrices = (a.add(i * a_size), b.add(i * b_size), acc.add(i * c_size), out.add(i * c_size));
                match self.sum {
                    Sum::F32 => self.matrices::<f32>(matrices, room.cast(), |x| (x, x)),
                    Sum::Tf32 => self.matrices::<f32>(matrices, room.cast(), |x| (tf32(x), x)),
                    Sum::Tf32x3 => self.matrices::<f32>(matrices, room.cast(), split),
                    Sum::Bf16(split) => self.split_matrices(matrices, room.cast(), split),
                    Sum::F64 => self.matrices::<f64>(matrices, room.cast(), |x| (x, x)),
                    Sum::I32 => self.matrices::<i32>(matrices, room.cast(), |x| (x, x)),
                }
            }
        }
    }

    /// One matrix of the batch. `split` gives the parts of a factor, of which the second may be unused.
    ///
    /// # Safety
    /// As of [`Product::compute`].
    unsafe fn matrices<T: Number>(
        &self,
        (a, b, acc, out): (*const u8, *const u8, *const u8, *mut u8),
        room: *mut T,
        split: impl Fn(T) -> (T, T),
    ) {
        let (m, k, n) = (self.m, self.k, self.n);
        let parts = self.sum.parts();
        // SAFETY: the room holds the parts of both factors and the sums; nothing else names them.
        let (a_parts, b_parts, sums) = unsafe {
            let b_room = room.add(m * k * parts);
            let sums = b_room.add(k * n * parts);
            (self.widen_a)(a, room.cast(), m * k);
            (self.widen_b)(b, b_room.cast(), k * n);
            match self.acc {
                Some((widen, _)) => widen(acc, sums.cast(), m * n),
                None => std::ptr::copy_nonoverlapping(acc.cast::<T>(), sums, m * n),
            }
            // Reading the second parts needs them to be written: they start as copies of the first.
            for (start, len) in [(room, m * k), (b_room, k * n)] {
                if parts == 2 {
                    std::ptr::copy_nonoverlapping(start, start.add(len), len);
                }
            }
            (
                std::slice::from_raw_parts_mut(room, m * k * parts),
                std::slice::from_raw_parts_mut(b_room, k * n * parts),
                std::slice::from_raw_parts_mut(sums, m * n),
            )
        };
        for (factors, len) in [(&mut *a_parts, m * k), (&mut *b_parts, k * n)] {
            let (first, second) = factors.split_at_mut(len);
            for (i, x) in first.iter_mut().enumerate() {
                let (large, small) = split(*x);
                *x = large;
                if let Some(y) = second.get_mut(i) {
                    *y = small;
                }
            }
        }
        if parts == 2 {
            let ((a, a_small), (b, b_small)) = (a_parts.split_at(m * k), b_parts.split_at(k * n));
            T::multiply_small((a, a_small), (b, b_small), sums, (k, n));
        } else {
            multiply(a_parts, b_parts, sums, k, n);
        }
        // SAFETY: the result has as many elements as the sums.
        unsafe {
            match self.acc {
                Some((_, narrow)) => narrow(sums.as_ptr().cast(), out, m * n),
                None => std::ptr::copy_nonoverlapping(sums.as_ptr(), out.cast::<T>(), m * n),
            }
        }
    }
}

impl Product {
    /// One matrix of the batch, of factors that are split into bf16 terms.
    ///
    /// # Safety
    /// As of [`Product::compute`].
    unsafe fn split_matrices(
        &self,
        (a, b, acc, out): (*const u8, *const u8, *const u8, *mut u8),
        room: *mut f32,
        split: Split,
    ) {
        let (m, k, n) = (self.m, self.k, self.n);
        let (a_len, b_len) = (m * k * split.terms, k * n * split.terms);
        // SAFETY: the room holds the terms of both factors and two tiles of sums; nothing else names them. Zeros are
        // numbers of f32.
        let (a_terms, b_terms, sums, total) = unsafe {
            std::ptr::write_bytes(room, 0, a_len + b_len + 2 * m * n);
            let sums = room.add(a_len + b_len);
            (self.widen_a)(a, room.cast(), m * k);
            (self.widen_b)(b, room.add(a_len).cast(), k * n);
            std::ptr::copy_nonoverlapping(acc.cast::<f32>(), sums.add(m * n), m * n);
            (
                std::slice::from_raw_parts_mut(room, a_len),
                std::slice::from_raw_parts_mut(room.add(a_len), b_len),
                std::slice::from_raw_parts_mut(sums, m * n),
                std::slice::from_raw_parts_mut(sums.add(m * n), m * n),
            )
        };
        bf16_terms(a_terms, m * k);
        bf16_terms(b_terms, k * n);
        let (term_a, term_b) = (|i: usize| &a_terms[i * m * k..][..m * k], |i: usize| &b_terms[i * k * n..][..k * n]);
        for &(i, j) in split.small {
            multiply(term_a(i), term_b(j), sums, k, n);
        }
        sums.iter_mut().filter(|sum| sum.is_nan()).for_each(|sum| *sum = 0.0);
        multiply(term_a(0), term_b(0), sums, k, n);
        total.iter_mut().zip(&*sums).for_each(|(total, sum)| *total += sum);
        // SAFETY: the result has as many elements as the sums.
        unsafe { std::ptr::copy_nonoverlapping(total.as_ptr(), out.cast::<f32>(), m * n) };
    }
}

/// Splits the first `len` numbers into terms that are bf16, one behind the other.
fn bf16_terms(numbers: &mut [f32], len: usize) {
    for i in 0..len {
        let mut rest = numbers[i];
        for term in numbers[i..].iter_mut().step_by(len) {
            *term = bf16::from_f32(rest).to_f32();
            rest -= *term;
        }
    }
}

/// Rounded to 10 bits of fraction, ties away from zero. Infinities and NaNs stay.
fn tf32(x: f32) -> f32 {
    if x.is_finite() { f32::from_bits((x.to_bits() + 0x1000) & !0x1fff) } else { x }
}

/// A large and a small part, both tf32.
fn split(x: f32) -> (f32, f32) {
    let large = tf32(x);
    (large, if large.is_finite() { tf32(x - large) } else { 0.0 })
}

/// What sums are made of.
trait Number: Copy {
    fn mul_add(self, factor: Self, sum: Self) -> Self;
    /// The products of split factors; only f32 has them.
    fn multiply_small(a: (&[Self], &[Self]), b: (&[Self], &[Self]), sums: &mut [Self], dims: (usize, usize)) {
        multiply(a.0, b.0, sums, dims.0, dims.1);
    }
}

impl Number for f32 {
    #[inline(always)]
    fn mul_add(self, factor: f32, sum: f32) -> f32 {
        f32::mul_add(self, factor, sum)
    }

    fn multiply_small(
        (a, a_small): (&[f32], &[f32]),
        (b, b_small): (&[f32], &[f32]),
        sums: &mut [f32],
        (k, n): (usize, usize),
    ) {
        for ((row, row_small), sums) in a.chunks(k).zip(a_small.chunks(k)).zip(sums.chunks_mut(n)) {
            for (i, (&x, &x_small)) in row.iter().zip(row_small).enumerate() {
                let (b, b_small) = (&b[i * n..][..n], &b_small[i * n..][..n]);
                for ((sum, &y), &y_small) in sums.iter_mut().zip(b).zip(b_small) {
                    let small = x_small * y + x * y_small;
                    // Zero times the infinity of the other large part is no part of the product.
                    let small = if small.is_nan() { 0.0 } else { small };
                    *sum = x.mul_add(y, *sum + small);
                }
            }
        }
    }
}

impl Number for f64 {
    #[inline(always)]
    fn mul_add(self, factor: f64, sum: f64) -> f64 {
        f64::mul_add(self, factor, sum)
    }
}

impl Number for i32 {
    #[inline(always)]
    fn mul_add(self, factor: i32, sum: i32) -> i32 {
        sum.wrapping_add(self.wrapping_mul(factor))
    }
}

/// `sums[m, n] += a[m, k] * b[k, n]`, four rows of `b` at a time.
#[inline(always)]
fn multiply_rows<T: Number>(a: &[T], b: &[T], sums: &mut [T], k: usize, n: usize) {
    for (row, sums) in a.chunks(k).zip(sums.chunks_mut(n)) {
        let mut i = 0;
        while i + 4 <= k {
            let (b0, b1) = (&b[i * n..][..n], &b[(i + 1) * n..][..n]);
            let (b2, b3) = (&b[(i + 2) * n..][..n], &b[(i + 3) * n..][..n]);
            let (a0, a1, a2, a3) = (row[i], row[i + 1], row[i + 2], row[i + 3]);
            for j in 0..n {
                let sum = a1.mul_add(b1[j], a0.mul_add(b0[j], sums[j]));
                sums[j] = a3.mul_add(b3[j], a2.mul_add(b2[j], sum));
            }
            i += 4;
        }
        for i in i..k {
            for (sum, &y) in sums.iter_mut().zip(&b[i * n..][..n]) {
                *sum = row[i].mul_add(y, *sum);
            }
        }
    }
}

/// [`multiply_rows`] compiled for processors with fused multiply-add, which without this is a call into libm.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn multiply_rows_fma<T: Number>(a: &[T], b: &[T], sums: &mut [T], k: usize, n: usize) {
    multiply_rows(a, b, sums, k, n);
}

fn multiply<T: Number>(a: &[T], b: &[T], sums: &mut [T], k: usize, n: usize) {
    #[cfg(target_arch = "x86_64")]
    if super::lanes::has_fma() {
        // SAFETY: the processor has both features.
        return unsafe { multiply_rows_fma(a, b, sums, k, n) };
    }
    multiply_rows(a, b, sums, k, n);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tf32_keeps_ten_bits_and_rounds_ties_away() {
        let unit = f32::powi(2.0, -10);
        assert_eq!(tf32(1.0 + unit), 1.0 + unit);
        assert_eq!(tf32(1.0 + unit / 2.0), 1.0 + unit);
        assert_eq!(tf32(-1.0 - unit / 2.0), -1.0 - unit);
        assert_eq!(tf32(1.0 + unit * 0.49), 1.0);
        assert_eq!(tf32(f32::INFINITY), f32::INFINITY);
        assert!(tf32(f32::NAN).is_nan());
    }

    #[test]
    fn a_split_keeps_what_f32_has_but_two_bits() {
        for x in [std::f32::consts::PI, -1.0 / 3.0, 1e-20, 6.5e18] {
            let (large, small) = split(x);
            assert!(
                (f64::from(large) + f64::from(small) - f64::from(x)).abs() <= f64::from(x.abs()) * f64::powi(2.0, -22)
            );
        }
        assert_eq!(split(f32::INFINITY), (f32::INFINITY, 0.0));
    }
}
