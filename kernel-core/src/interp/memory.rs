//! Loads, stores and atomics on buffers.
//!
//! Every lane is checked against its buffer. Memory that the kernel may write is accessed with relaxed atomics per
//! element, so that programs which race give unspecified but valid values; memory that it only reads is copied, or
//! not even that: a full load of adjacent elements becomes a view.

use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::ir::{DType, ParamId};

use super::affine::{Affine, Rows};
use super::buffers::Buffer;
use super::executor::{Executor, Form};
use super::fault::{Access, FaultKind};
use super::instructions::{Atomic, AtomicKind, CheckBounds, Load, Store};
use super::lanes::{Bits, Fn2};
use super::registers::{Pc, RegId};

/// An element of some width, as it lies in memory.
pub(super) trait Cell: Copy + Eq {
    const ZERO: Self;
    /// # Safety
    /// `at` must be valid, aligned, and meanwhile only accessed atomically.
    unsafe fn load(at: *mut Self) -> Self;
    /// # Safety
    /// As of `load`.
    unsafe fn store(at: *mut Self, value: Self);
    /// # Safety
    /// As of `load`.
    unsafe fn swap(at: *mut Self, value: Self) -> Self;
    /// What was there; the value was stored if that is `expected`.
    ///
    /// # Safety
    /// As of `load`.
    unsafe fn compare_exchange(at: *mut Self, expected: Self, value: Self) -> Self;
}

macro_rules! cells {
    ($($ty:ty, $atomic:ty;)*) => {$(
        impl Cell for $ty {
            const ZERO: $ty = 0;
            unsafe fn load(at: *mut $ty) -> $ty {
                // SAFETY: promised by the caller.
                unsafe { <$atomic>::from_ptr(at) }.load(Ordering::Relaxed)
            }
            unsafe fn store(at: *mut $ty, value: $ty) {
                // SAFETY: promised by the caller.
                unsafe { <$atomic>::from_ptr(at) }.store(value, Ordering::Relaxed);
            }
            unsafe fn swap(at: *mut $ty, value: $ty) -> $ty {
                // SAFETY: promised by the caller.
                unsafe { <$atomic>::from_ptr(at) }.swap(value, Ordering::AcqRel)
            }
            unsafe fn compare_exchange(at: *mut $ty, expected: $ty, value: $ty) -> $ty {
                // SAFETY: promised by the caller.
                let cell = unsafe { <$atomic>::from_ptr(at) };
                match cell.compare_exchange(expected, value, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(old) | Err(old) => old,
                }
            }
        }
    )*};
}
cells! {
    u8, AtomicU8;
    u16, AtomicU16;
    u32, AtomicU32;
    u64, AtomicU64;
}

/// Which lanes take part.
#[derive(Clone, Copy, Debug)]
enum Mask {
    All,
    Nothing,
    /// The lanes whose byte is 1.
    Lanes(*const u8),
}

impl Mask {
    /// The mask of `len` lanes from `lane` on, `All` or `Nothing` where it is one of these.
    ///
    /// # Safety
    /// These lanes must be valid.
    unsafe fn part(self, lane: usize, len: usize) -> Mask {
        let Mask::Lanes(bytes) = self else { return self };
        // SAFETY: promised by the caller.
        let lanes = unsafe { std::slice::from_raw_parts(bytes.add(lane), len) };
        let (mut all, mut any) = (1u8, 0u8);
        for &byte in lanes {
            all &= byte;
            any |= byte;
        }
        if all == 1 {
            Mask::All
        } else if any == 0 {
            Mask::Nothing
        } else {
            Mask::Lanes(lanes.as_ptr())
        }
    }

    /// # Safety
    /// The lane must be valid.
    unsafe fn admits(self, lane: usize) -> bool {
        match self {
            Mask::All => true,
            Mask::Nothing => false,
            // SAFETY: promised by the caller.
            Mask::Lanes(bytes) => unsafe { *bytes.add(lane) != 0 },
        }
    }
}

/// Where the lanes of an access go.
enum Places {
    Formula(Affine, Rows),
    Offsets(*const i64),
}

/// An expression for the cell type of a dtype's width.
macro_rules! by_width {
    ($dtype:expr, $T:ident => $e:expr) => {
        match $dtype.bytes() {
            1 => {
                type $T = u8;
                $e
            }
            2 => {
                type $T = u16;
                $e
            }
            4 => {
                type $T = u32;
                $e
            }
            _ => {
                type $T = u64;
                $e
            }
        }
    };
}

pub(super) use by_width;

impl Executor<'_> {
    fn mask(&mut self, mask: Option<RegId>) -> Mask {
        let Some(mask) = mask else { return Mask::All };
        match self.reg(mask).form {
            Form::Splat(bits) if bits.to_bool() => Mask::All,
            Form::Splat(_) => Mask::Nothing,
            Form::Affine(_) | Form::Dense => Mask::Lanes(self.dense(mask)),
        }
    }

    fn places(&mut self, pointer: RegId) -> Places {
        match self.affine(pointer) {
            Some(affine) => Places::Formula(affine, affine.rows(&self.info(pointer).dims)),
            None => Places::Offsets(self.dense(pointer).cast()),
        }
    }

    fn report_bounds(&mut self, pc: Pc, param: ParamId, len: usize, bad: Option<i64>, access: Access) {
        if let Some(offset) = bad {
            self.report(pc, FaultKind::OutOfBounds { param, offset, len: len as u64, access });
        }
    }

    pub(super) fn load(&mut self, pc: Pc, load: &Load) {
        let n = self.reg(load.out).n;
        let mask = self.mask(load.mask);
        if n == 0 || matches!(mask, Mask::Nothing) {
            return match load.other {
                Some(other) => self.copy_value(other, load.out),
                None => self.set_splat(load.out, Bits::ZERO),
            };
        }
        let buffer = self.buffer(load.param);
        let places = self.places(load.pointer);
        if let (Places::Formula(affine, rows), Mask::All) = (&places, mask)
            && !buffer.mutable
            && load.dtype != DType::Bool
            && !self.info(load.out).dims.is_empty()
            && rows.outer == 0
            && (rows.step == 1 || n == 1)
            && buffer.holds(affine.base, *rows)
        {
            // SAFETY: the row begins inside the buffer.
            let data = unsafe { buffer.ptr.add(affine.base as usize * load.dtype.bytes() as usize) };
            return self.set_data(load.out, data, true);
        }
        if matches!(mask, Mask::Lanes(_)) {
            self.prefill(load.other, load.out);
        }
        let out = self.reg(load.out).home;
        let dims = &self.info(load.pointer).dims;
        let bad = by_width!(load.dtype, T => load_places::<T>(buffer, places, dims, mask, out, n));
        if load.dtype == DType::Bool {
            // SAFETY: `out` holds `n` initialised bytes.
            let lanes = unsafe { std::slice::from_raw_parts_mut(out, n) };
            lanes.iter_mut().for_each(|lane| *lane = u8::from(*lane != 0));
        }
        self.set_dense(load.out);
        self.report_bounds(pc, load.param, buffer.len, bad, Access::Load);
    }

    /// Writes what masked lanes read.
    fn prefill(&mut self, other: Option<RegId>, out: RegId) {
        let (home, n, bytes) = (self.reg(out).home, self.reg(out).n, self.info(out).lane.bytes());
        match other {
            Some(other) => {
                let from = self.dense(other);
                // SAFETY: both have `n` elements, and homes of live registers are disjoint.
                unsafe { ptr::copy_nonoverlapping(from, home, n * bytes) };
            }
            // SAFETY: the home holds `n` elements.
            None => unsafe { ptr::write_bytes(home, 0, n * bytes) },
        }
    }

    pub(super) fn store(&mut self, pc: Pc, store: &Store) {
        let n = self.reg(store.value).n;
        let mask = self.mask(store.mask);
        let buffer = self.buffer(store.param);
        if n == 0 || matches!(mask, Mask::Nothing) || !buffer.mutable {
            return;
        }
        let places = self.places(store.pointer);
        let value = self.dense(store.value);
        let dims = &self.info(store.pointer).dims;
        self.turn.changed = true;
        let bad = by_width!(store.dtype, T => store_places::<T>(buffer, places, dims, mask, value, n));
        self.report_bounds(pc, store.param, buffer.len, bad, Access::Store);
    }

    pub(super) fn atomic(&mut self, pc: Pc, atomic: &Atomic) {
        let n = self.reg(atomic.out).n;
        let mask = self.mask(atomic.mask);
        let buffer = self.buffer(atomic.param);
        if n == 0 || matches!(mask, Mask::Nothing) || !buffer.mutable {
            return self.set_splat(atomic.out, Bits::ZERO);
        }
        let bad = by_width!(atomic.dtype, T => self.atomic_lanes::<T>(buffer, atomic, mask, n));
        self.set_dense(atomic.out);
        self.report_bounds(pc, atomic.param, buffer.len, bad, Access::Atomic);
    }

    fn atomic_lanes<T: Cell>(&mut self, buffer: Buffer, atomic: &Atomic, mask: Mask, n: usize) -> Option<i64> {
        let offsets: *const i64 = self.dense(atomic.pointer).cast();
        let values: *const T = self.dense(atomic.value).cast();
        let expected: *const T = match atomic.kind {
            AtomicKind::CompareExchange(expected) => self.dense(expected).cast(),
            AtomicKind::Combine(..) | AtomicKind::Exchange => values,
        };
        let out: *mut T = self.reg(atomic.out).home.cast();
        let (mut bad, mut changed) = (None, false);
        for i in 0..n {
            // SAFETY: all operands have `n` lanes, and the offset was checked against the buffer, whose memory is
            // only accessed atomically during the launch.
            unsafe {
                let offset = *offsets.add(i);
                *out.add(i) = if !mask.admits(i) {
                    T::ZERO
                } else if !buffer.contains(offset) {
                    bad.get_or_insert(offset);
                    T::ZERO
                } else {
                    let at = buffer.ptr.cast::<T>().add(offset as usize);
                    let value = *values.add(i);
                    let (old, new) = match atomic.kind {
                        AtomicKind::Combine(f) => combine(at, f, value),
                        AtomicKind::Exchange => (T::swap(at, value), value),
                        AtomicKind::CompareExchange(_) => {
                            let (expected, old) = (*expected.add(i), T::compare_exchange(at, *expected.add(i), value));
                            (old, if old == expected { value } else { old })
                        }
                    };
                    changed |= old != new;
                    old
                };
            }
        }
        self.turn.changed |= changed;
        bad
    }

    pub(super) fn check_bounds(&mut self, pc: Pc, check: &CheckBounds) {
        let n = self.reg(check.out).n;
        let len = self.scalar(check.len).to_i64().max(0);
        let inside = |offset: i64| (0..len).contains(&offset);
        if let Some(affine) = self.affine(check.offsets)
            && affine.within(&self.info(check.offsets).dims, (0, len.saturating_sub(1))).is_some()
            && len > 0
        {
            return match check.mask {
                Some(mask) => self.copy_value(mask, check.out),
                None => self.set_splat(check.out, Bits::from_raw(1, 1)),
            };
        }
        let mask = self.mask(check.mask);
        let from = self.dense(check.offsets);
        let (offsets, out): (*mut i64, *mut u8) = (self.arena(check.room).cast(), self.reg(check.out).home);
        let mut bad = None;
        // SAFETY: the room holds `n` words, `widen` was chosen for the offsets' dtype, and all have `n` lanes.
        unsafe {
            (check.widen)(from, offsets.cast(), n);
            for i in 0..n {
                let (offset, admitted) = (*offsets.add(i), mask.admits(i));
                if admitted && !inside(offset) {
                    bad.get_or_insert(offset);
                }
                *out.add(i) = u8::from(admitted && inside(offset));
            }
        }
        self.set_dense(check.out);
        self.report_bounds(pc, check.param, len as usize, bad, check.access);
    }
}

/// Reads lanes; returns the first offset out of bounds.
fn load_places<T: Cell>(
    buffer: Buffer,
    places: Places,
    dims: &[usize],
    mask: Mask,
    out: *mut u8,
    n: usize,
) -> Option<i64> {
    let (base, out) = (buffer.ptr.cast::<T>(), out.cast::<T>());
    let mut bad = None;
    let mut read = |lane: usize, offset: i64| {
        // SAFETY: `lane` is below `n`, and memory is only read after its offset was checked.
        unsafe {
            *out.add(lane) = if !buffer.contains(offset) {
                bad.get_or_insert(offset);
                T::ZERO
            } else if buffer.mutable {
                T::load(base.add(offset as usize))
            } else {
                *base.add(offset as usize)
            };
        }
    };
    match places {
        Places::Offsets(offsets) => {
            for lane in 0..n {
                // SAFETY: offsets and mask have `n` lanes.
                if unsafe { mask.admits(lane) } {
                    // SAFETY: as above.
                    read(lane, unsafe { *offsets.add(lane) });
                }
            }
        }
        Places::Formula(affine, rows) => affine.for_each_row(dims, rows, |lane, start| {
            // SAFETY: rows partition the lanes.
            let mask = unsafe { mask.part(lane, rows.len) };
            if matches!(mask, Mask::All) && rows.step == 1 && !buffer.mutable && buffer.holds(start, rows) {
                // SAFETY: the whole row lies inside the buffer, which nobody writes during the launch.
                return unsafe { ptr::copy_nonoverlapping(base.add(start as usize), out.add(lane), rows.len) };
            }
            for i in 0..rows.len {
                // SAFETY: `part` gave the mask of this row.
                if unsafe { mask.admits(i) } {
                    read(lane + i, start.wrapping_add(rows.step.wrapping_mul(i as i64)));
                }
            }
        }),
    }
    bad
}

/// Writes lanes; returns the first offset out of bounds.
fn store_places<T: Cell>(
    buffer: Buffer,
    places: Places,
    dims: &[usize],
    mask: Mask,
    value: *const u8,
    n: usize,
) -> Option<i64> {
    let (base, value) = (buffer.ptr.cast::<T>(), value.cast::<T>());
    let mut bad = None;
    let mut write = |lane: usize, offset: i64| {
        if buffer.contains(offset) {
            // SAFETY: `lane` is below `n`, and the offset was checked.
            unsafe { T::store(base.add(offset as usize), *value.add(lane)) };
        } else {
            bad.get_or_insert(offset);
        }
    };
    match places {
        Places::Offsets(offsets) => {
            for lane in 0..n {
                // SAFETY: offsets and mask have `n` lanes.
                if unsafe { mask.admits(lane) } {
                    // SAFETY: as above.
                    write(lane, unsafe { *offsets.add(lane) });
                }
            }
        }
        Places::Formula(affine, rows) => affine.for_each_row(dims, rows, |lane, start| {
            // SAFETY: rows partition the lanes.
            let mask = unsafe { mask.part(lane, rows.len) };
            if matches!(mask, Mask::All) && rows.step == 1 && buffer.holds(start, rows) {
                for i in 0..rows.len {
                    // SAFETY: the whole row lies inside the buffer, which is only accessed atomically.
                    unsafe { T::store(base.add(start as usize + i), *value.add(lane + i)) };
                }
                return;
            }
            for i in 0..rows.len {
                // SAFETY: `part` gave the mask of this row.
                if unsafe { mask.admits(i) } {
                    write(lane + i, start.wrapping_add(rows.step.wrapping_mul(i as i64)));
                }
            }
        }),
    }
    bad
}

/// Combines the memory at `at` with a value as one step; returns what was there, and what is there now.
///
/// # Safety
/// `at` must be valid, aligned and meanwhile only accessed atomically; `f` must be for elements of type `T`.
pub(super) unsafe fn combine<T: Cell>(at: *mut T, f: Fn2, value: T) -> (T, T) {
    // SAFETY: promised by the caller.
    unsafe {
        let mut old = T::load(at);
        loop {
            let mut new = T::ZERO;
            f((&raw const old).cast(), (&raw const value).cast(), (&raw mut new).cast(), 1);
            let seen = T::compare_exchange(at, old, new);
            if seen == old {
                return (old, new);
            }
            old = seen;
        }
    }
}
