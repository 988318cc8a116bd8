//! Loops over lanes: how a Rust closure on elements becomes a function on tiles.
//!
//! A tile operation is one call through a function pointer ([`Fn1`], [`Fn2`], [`Fn3`]) that runs a loop which the
//! compiler vectorises. The same pointer with a count of 1 computes scalars and uniform tiles.

use std::mem::size_of;
use std::ptr::NonNull;
use std::slice;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::ir::DType;
use crate::num::{F8E4M3, F8E5M2};

/// `result[i] = f(a[i])` for `i < n`. The result overlaps no operand.
pub(super) type Fn1 = unsafe fn(*const u8, *mut u8, usize);
/// `result[i] = f(a[i], b[i])`. The result overlaps no operand.
pub(super) type Fn2 = unsafe fn(*const u8, *const u8, *mut u8, usize);
/// `result[i] = f(a[i], b[i], c[i])`. The result overlaps no operand.
pub(super) type Fn3 = unsafe fn(*const u8, *const u8, *const u8, *mut u8, usize);

/// The bytes of one element, from the first byte, in the machine's order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, align(8))]
pub(super) struct Bits([u8; 8]);

impl Bits {
    pub(super) const ZERO: Bits = Bits([0; 8]);

    pub(super) fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr()
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.0.as_mut_ptr()
    }

    /// The element of `bytes` bytes that the low bytes of `raw` are.
    pub(super) fn from_raw(raw: u64, bytes: usize) -> Bits {
        let mut out = Bits::ZERO;
        match bytes {
            1 => out.0[..1].copy_from_slice(&(raw as u8).to_ne_bytes()),
            2 => out.0[..2].copy_from_slice(&(raw as u16).to_ne_bytes()),
            4 => out.0[..4].copy_from_slice(&(raw as u32).to_ne_bytes()),
            _ => out.0 = raw.to_ne_bytes(),
        }
        out
    }

    /// The element of `bytes` bytes as the low bytes of a number.
    pub(super) fn to_raw(self, bytes: usize) -> u64 {
        let [a, b, c, d, ..] = self.0;
        match bytes {
            1 => u64::from(a),
            2 => u64::from(u16::from_ne_bytes([a, b])),
            4 => u64::from(u32::from_ne_bytes([a, b, c, d])),
            _ => u64::from_ne_bytes(self.0),
        }
    }

    /// The element that lies in these bytes.
    pub(super) fn from_bytes(bytes: &[u8]) -> Bits {
        let mut out = Bits::ZERO;
        out.0[..bytes.len()].copy_from_slice(bytes);
        out
    }

    /// All bytes, from the first of the element.
    pub(super) fn bytes(&self) -> &[u8; 8] {
        &self.0
    }

    /// An integer or truth value.
    pub(super) fn to_int(self, dtype: DType) -> i128 {
        let raw = self.to_raw(dtype.bytes() as usize);
        match dtype {
            DType::I8 => i128::from(raw as i8),
            DType::I16 => i128::from(raw as i16),
            DType::I32 => i128::from(raw as i32),
            DType::I64 => i128::from(raw as i64),
            DType::Bool
            | DType::U8
            | DType::U16
            | DType::U32
            | DType::U64
            | DType::F8E4M3
            | DType::F8E5M2
            | DType::F16
            | DType::BF16
            | DType::F32
            | DType::F64 => i128::from(raw),
        }
    }

    pub(super) fn to_i64(self) -> i64 {
        i64::from_ne_bytes(self.0)
    }

    pub(super) fn to_bool(self) -> bool {
        self.0[0] != 0
    }
}

/// The closure type's only value.
///
/// # Safety
/// A value of `F` must exist.
unsafe fn conjure<F: Copy>() -> F {
    const { assert!(size_of::<F>() == 0, "an operation on lanes captures nothing") };
    // SAFETY: a zero-sized type has one value, which needs no memory; the caller promises that it may exist.
    unsafe { NonNull::<F>::dangling().read() }
}

/// # Safety
/// `ptr` must be valid for reads of `n` elements, aligned, and not written meanwhile.
unsafe fn lanes<'a, T>(ptr: *const u8, n: usize) -> &'a [T] {
    // SAFETY: promised by the caller.
    unsafe { slice::from_raw_parts(ptr.cast::<T>(), n) }
}

/// # Safety
/// `ptr` must be valid for writes of `n` elements, aligned, initialised, and not accessed otherwise meanwhile.
unsafe fn lanes_mut<'a, T>(ptr: *mut u8, n: usize) -> &'a mut [T] {
    // SAFETY: promised by the caller.
    unsafe { slice::from_raw_parts_mut(ptr.cast::<T>(), n) }
}

#[inline(always)]
unsafe fn map1<A: Copy, R, F: Fn(A) -> R + Copy>(a: *const u8, out: *mut u8, n: usize) {
    // SAFETY: `lift1` had a value of `F`; the pointers are promised by the caller of the lifted function.
    let (f, a, out) = unsafe { (conjure::<F>(), lanes::<A>(a, n), lanes_mut::<R>(out, n)) };
    for (out, &a) in out.iter_mut().zip(a) {
        *out = f(a);
    }
}

#[inline(always)]
unsafe fn map2<A: Copy, B: Copy, R, F: Fn(A, B) -> R + Copy>(a: *const u8, b: *const u8, out: *mut u8, n: usize) {
    // SAFETY: as in `map1`.
    let (f, a, b, out) = unsafe { (conjure::<F>(), lanes::<A>(a, n), lanes::<B>(b, n), lanes_mut::<R>(out, n)) };
    for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
        *out = f(a, b);
    }
}

#[inline(always)]
unsafe fn map3<A: Copy, B: Copy, C: Copy, R, F: Fn(A, B, C) -> R + Copy>(
    a: *const u8,
    b: *const u8,
    c: *const u8,
    out: *mut u8,
    n: usize,
) {
    // SAFETY: as in `map1`.
    let (f, out) = unsafe { (conjure::<F>(), lanes_mut::<R>(out, n)) };
    // SAFETY: as in `map1`.
    let (a, b, c) = unsafe { (lanes::<A>(a, n), lanes::<B>(b, n), lanes::<C>(c, n)) };
    for (((out, &a), &b), &c) in out.iter_mut().zip(a).zip(b).zip(c) {
        *out = f(a, b, c);
    }
}

/// `map1` compiled a second time for processors with fused multiply-add, which without this is a call into libm.
/// Both give the same bits: nothing is contracted.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn map1_fma<A: Copy, R, F: Fn(A) -> R + Copy>(a: *const u8, out: *mut u8, n: usize) {
    // SAFETY: passed on.
    unsafe { map1::<A, R, F>(a, out, n) }
}

/// As [`map1_fma`], of two operands.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn map2_fma<A: Copy, B: Copy, R, F: Fn(A, B) -> R + Copy>(a: *const u8, b: *const u8, out: *mut u8, n: usize) {
    // SAFETY: passed on.
    unsafe { map2::<A, B, R, F>(a, b, out, n) }
}

/// As [`map1_fma`], of three operands.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn map3_fma<A: Copy, B: Copy, C: Copy, R, F: Fn(A, B, C) -> R + Copy>(
    a: *const u8,
    b: *const u8,
    c: *const u8,
    out: *mut u8,
    n: usize,
) {
    // SAFETY: passed on.
    unsafe { map3::<A, B, C, R, F>(a, b, c, out, n) }
}

#[cfg(target_arch = "x86_64")]
pub(super) fn has_fma() -> bool {
    std::is_x86_feature_detected!("fma") && std::is_x86_feature_detected!("avx2")
}

/// The tile function of an operation with one operand.
pub(super) fn lift1<A: Copy, R, F: Fn(A) -> R + Copy>(_: F) -> Fn1 {
    map1::<A, R, F>
}

/// [`lift1`] for functions with fused multiply-adds inside.
pub(super) fn lift1_fma<A: Copy, R, F: Fn(A) -> R + Copy>(_: F) -> Fn1 {
    #[cfg(target_arch = "x86_64")]
    if has_fma() {
        return map1_fma::<A, R, F>;
    }
    map1::<A, R, F>
}

/// The tile function of an operation with two operands.
pub(super) fn lift2<A: Copy, B: Copy, R, F: Fn(A, B) -> R + Copy>(_: F) -> Fn2 {
    map2::<A, B, R, F>
}

/// [`lift2`] for functions with fused multiply-adds inside.
pub(super) fn lift2_fma<A: Copy, B: Copy, R, F: Fn(A, B) -> R + Copy>(_: F) -> Fn2 {
    #[cfg(target_arch = "x86_64")]
    if has_fma() {
        return map2_fma::<A, B, R, F>;
    }
    map2::<A, B, R, F>
}

/// The tile function of an operation with three operands.
pub(super) fn lift3<A: Copy, B: Copy, C: Copy, R, F: Fn(A, B, C) -> R + Copy>(_: F) -> Fn3 {
    map3::<A, B, C, R, F>
}

/// [`lift3`] for functions with fused multiply-adds inside.
pub(super) fn lift3_fma<A: Copy, B: Copy, C: Copy, R, F: Fn(A, B, C) -> R + Copy>(_: F) -> Fn3 {
    #[cfg(target_arch = "x86_64")]
    if has_fma() {
        return map3_fma::<A, B, C, R, F>;
    }
    map3::<A, B, C, R, F>
}

/// f16, bf16 and the 8-bit floats, whose mathematics goes through f32 and rounds once per operation.
pub(super) trait Half: Copy + 'static {
    fn widen(from: &[Self], to: &mut [f32]);
    fn narrow(from: &[f32], to: &mut [Self]);
}

macro_rules! half_float {
    ($($ty:ty),*) => {$(
        impl Half for $ty {
            fn widen(from: &[$ty], to: &mut [f32]) {
                from.convert_to_f32_slice(to);
            }
            fn narrow(from: &[f32], to: &mut [$ty]) {
                to.convert_from_f32_slice(from);
            }
        }
    )*};
}
half_float!(f16, bf16);

macro_rules! float8 {
    ($($ty:ty),*) => {$(
        impl Half for $ty {
            fn widen(from: &[$ty], to: &mut [f32]) {
                from.iter().zip(to).for_each(|(x, to)| *to = x.to_f32());
            }
            fn narrow(from: &[f32], to: &mut [$ty]) {
                from.iter().zip(to).for_each(|(&x, to)| *to = <$ty>::from_f32(x));
            }
        }
    )*};
}
float8!(F8E4M3, F8E5M2);

/// Lanes converted at a time: enough to vectorise, few enough for the stack.
const CHUNK: usize = 64;

unsafe fn half_map1<H: Half, F: Fn(f32) -> f32 + Copy>(a: *const u8, out: *mut u8, n: usize) {
    // SAFETY: as in `map1`.
    let (a, out) = unsafe { (lanes::<H>(a, n), lanes_mut::<H>(out, n)) };
    let (mut x, mut y) = ([0f32; CHUNK], [0f32; CHUNK]);
    for (a, out) in a.chunks(CHUNK).zip(out.chunks_mut(CHUNK)) {
        let n = a.len();
        H::widen(a, &mut x[..n]);
        // SAFETY: the arrays hold `n` lanes each.
        unsafe { lift1_fma::<f32, f32, F>(conjure::<F>())(x.as_ptr().cast(), y.as_mut_ptr().cast(), n) };
        H::narrow(&y[..n], out);
    }
}

unsafe fn half_map2<H: Half, R, F: Fn(f32, f32) -> R + Copy, const COMPARE: bool>(
    a: *const u8,
    b: *const u8,
    out: *mut u8,
    n: usize,
) {
    // SAFETY: as in `map1`.
    let (a, b) = unsafe { (lanes::<H>(a, n), lanes::<H>(b, n)) };
    let (mut x, mut y, mut z) = ([0f32; CHUNK], [0f32; CHUNK], [0f32; CHUNK]);
    for (i, (a, b)) in a.chunks(CHUNK).zip(b.chunks(CHUNK)).enumerate() {
        let n = a.len();
        H::widen(a, &mut x[..n]);
        H::widen(b, &mut y[..n]);
        if COMPARE {
            // SAFETY: `out` holds as many lanes of `R` as the operands have; these are the next `n` of them.
            unsafe {
                let out = out.add(i * CHUNK * size_of::<R>());
                map2::<f32, f32, R, F>(x.as_ptr().cast(), y.as_ptr().cast(), out, n);
            }
        } else {
            // SAFETY: the arrays hold `n` lanes each, and `out` as many of `H` as the operands have.
            unsafe {
                map2::<f32, f32, R, F>(x.as_ptr().cast(), y.as_ptr().cast(), z.as_mut_ptr().cast(), n);
                H::narrow(&z[..n], lanes_mut::<H>(out.add(i * CHUNK * size_of::<H>()), n));
            }
        }
    }
}

/// [`lift1`] through f32.
pub(super) fn lift1_half<H: Half, F: Fn(f32) -> f32 + Copy>(_: F) -> Fn1 {
    half_map1::<H, F>
}

/// [`lift2`] through f32.
pub(super) fn lift2_half<H: Half, F: Fn(f32, f32) -> f32 + Copy>(_: F) -> Fn2 {
    half_map2::<H, f32, F, false>
}

/// [`lift2`] of a comparison, through f32.
pub(super) fn lift2_half_compare<H: Half, F: Fn(f32, f32) -> u8 + Copy>(_: F) -> Fn2 {
    half_map2::<H, u8, F, true>
}
