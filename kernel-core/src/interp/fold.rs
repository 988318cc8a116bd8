//! Reductions and scans.
//!
//! A **reduction** of `len` elements pairs element `i` with `i + ceil(len / 2)`, which leaves `ceil(len / 2)`
//! elements, and so on: a balanced tree, so the rounding error of a sum grows with the logarithm of its length.
//! A **scan** combines every element with the one 1, 2, 4, .. before it (Hillis and Steele, "Data parallel
//! algorithms", 1986), the earlier on the left; `reverse` does this from the other end.
//! Either is a definition: results are the same whatever the tile's other dimensions are.
//!
//! Each step combines as many elements at once as it can, along all dimensions, so that a region is interpreted
//! once per step and not once per element.

use std::ptr;

use super::executor::{Executor, Exit, Flow};
use super::instructions::{Combine, Fold, FoldKind, RegionCode};
use super::lanes::{Bits, Fn1, Fn2};
use super::registers::Pc;

/// The parts of a tile of shape `[outer, len, inner]`, as they lie in memory.
#[derive(Clone, Copy)]
struct Extent {
    outer: usize,
    len: usize,
    inner: usize,
    bytes: usize,
}

impl Executor<'_> {
    pub(super) fn fold(&mut self, pc: Pc, fold: &Fold) -> Flow {
        let next = match &fold.combine {
            Combine::Region { code, .. } => code.end,
            Combine::Single { .. } => pc.next(),
        };
        let n = fold.outer * fold.len * fold.inner;
        if n == 0 {
            fold.outputs.iter().for_each(|&out| self.set_splat(out, Bits::ZERO));
            return Flow::Goto(next);
        }
        let done = match (&fold.combine, fold.kind) {
            (Combine::Single { f, widen }, FoldKind::Reduce) => {
                self.reduce_single(fold, *f, *widen);
                Ok(())
            }
            (Combine::Region { code, vectorised }, FoldKind::Reduce) => self.reduce_region(fold, code, *vectorised),
            (_, FoldKind::Scan { reverse }) => self.scan(fold, reverse),
        };
        match done {
            Ok(()) => Flow::Goto(next),
            Err(exit) => Flow::Exit(exit),
        }
    }

    fn reduce_single(&mut self, fold: &Fold, f: Fn2, widen: Option<(Fn1, Fn1)>) {
        let bytes = fold.bytes[0];
        let (n, chunk) = (fold.outer * fold.len * fold.inner, fold.len * fold.inner * bytes);
        let [first, second] = fold.work[0].map(|offset| self.arena(offset));
        let mut source = self.dense(fold.inputs[0]);
        if let Some((up, _)) = widen {
            // SAFETY: the place holds `n` elements of four bytes.
            unsafe { up(source, first, n) };
            source = first;
        }
        let home = self.reg(fold.outputs[0]).home;
        for o in 0..fold.outer {
            // SAFETY: chunk `o` of the source, of the first place and of the result exist; the steps alternate
            // between the second place and this chunk of the first, which is no longer needed when it is written.
            unsafe {
                let (even, odd) = (second, first.add(o * chunk));
                let result = tree(f, source.add(o * chunk), [even, odd], fold.len, fold.inner, bytes);
                let to = match widen {
                    Some(_) => first.add(o * fold.inner * bytes),
                    None => home.add(o * fold.inner * bytes),
                };
                ptr::copy(result, to, fold.inner * bytes);
            }
        }
        if let Some((_, down)) = widen {
            // SAFETY: the sums lie one after the other at the start of the first place.
            unsafe { down(first, home, fold.outer * fold.inner) };
        }
        self.set_dense(fold.outputs[0]);
    }

    fn reduce_region(&mut self, fold: &Fold, code: &RegionCode, vectorised: bool) -> Result<(), Exit> {
        let row = fold.outer * fold.inner;
        let work: Vec<[*mut u8; 2]> = fold.work.iter().map(|w| w.map(|offset| self.arena(offset))).collect();
        let mut sources: Vec<*const u8> = Vec::with_capacity(work.len());
        for (i, &input) in fold.inputs.iter().enumerate() {
            let (from, extent) = (self.dense(input), extent(fold, i));
            if fold.outer == 1 {
                sources.push(from);
            } else {
                // SAFETY: both hold all elements of the tile.
                unsafe { to_rows(from, work[i][0], extent, false) };
                sources.push(work[i][0]);
            }
        }
        let targets: Vec<*mut u8> = work.iter().map(|w| w[1]).collect();
        let mut len = fold.len;
        while len > 1 {
            let half = len.div_ceil(2);
            let pairs = len - half;
            let offset = |pointers: &[*const u8], row_index: usize| -> Vec<*const u8> {
                let at = |(&p, &bytes): (&*const u8, &usize)| p.wrapping_add(row_index * row * bytes);
                pointers.iter().zip(&fold.bytes).map(at).collect()
            };
            let (left, right, middle) = (offset(&sources, 0), offset(&sources, half), offset(&sources, pairs));
            self.combine_region(code, vectorised, [&left, &right], &targets, (pairs * row, &fold.bytes))?;
            for (i, &bytes) in fold.bytes.iter().enumerate() {
                // SAFETY: of an odd number of rows the middle one is kept; it lies inside source and target.
                unsafe { ptr::copy(middle[i], targets[i].add(pairs * row * bytes), (half - pairs) * row * bytes) };
                sources[i] = targets[i];
            }
            len = half;
        }
        for (i, &out) in fold.outputs.iter().enumerate() {
            let home = self.reg(out).home;
            // SAFETY: one row is left, and the result has as many elements.
            unsafe { ptr::copy_nonoverlapping(sources[i], home, row * fold.bytes[i]) };
            self.set_dense(out);
        }
        Ok(())
    }

    fn scan(&mut self, fold: &Fold, reverse: bool) -> Result<(), Exit> {
        let (row, n) = (fold.outer * fold.inner, fold.outer * fold.len * fold.inner);
        let work: Vec<[*mut u8; 2]> = fold.work.iter().map(|w| w.map(|offset| self.arena(offset))).collect();
        let rows: Vec<*mut u8> = work.iter().map(|w| w[0]).collect();
        let spare: Vec<*mut u8> = work.iter().map(|w| w[1]).collect();
        for (i, &input) in fold.inputs.iter().enumerate() {
            let mut from = self.dense(input);
            // SAFETY: the places hold all elements of the tile.
            unsafe {
                if let Combine::Single { widen: Some((up, _)), .. } = &fold.combine {
                    up(from, spare[i], n);
                    from = spare[i];
                }
                to_rows(from, rows[i], extent(fold, i), reverse);
            }
        }
        let mut distance = 1;
        while distance < fold.len {
            let lanes = (fold.len - distance) * row;
            let skip = |i: usize| distance * row * fold.bytes[i];
            match &fold.combine {
                // SAFETY: earlier and later rows are `lanes` elements each; results go elsewhere.
                Combine::Single { f, .. } => unsafe { f(rows[0], rows[0].add(skip(0)), spare[0], lanes) },
                Combine::Region { code, vectorised } => {
                    let left: Vec<*const u8> = rows.iter().map(|&p| p.cast_const()).collect();
                    let right: Vec<*const u8> =
                        rows.iter().enumerate().map(|(i, &p)| p.wrapping_add(skip(i)).cast_const()).collect();
                    self.combine_region(code, *vectorised, [&left, &right], &spare, (lanes, &fold.bytes))?;
                }
            }
            for (i, &bytes) in fold.bytes.iter().enumerate() {
                // SAFETY: the rows from `distance` on are `lanes` elements.
                unsafe { ptr::copy_nonoverlapping(spare[i], rows[i].add(skip(i)), lanes * bytes) };
            }
            distance = distance.saturating_mul(2);
        }
        for (i, &out) in fold.outputs.iter().enumerate() {
            let home = self.reg(out).home;
            // SAFETY: the places and the result hold all elements of the tile.
            unsafe {
                match &fold.combine {
                    Combine::Single { widen: Some((_, down)), .. } => {
                        from_rows(rows[i], spare[i], extent(fold, i), reverse);
                        down(spare[i], home, n);
                    }
                    Combine::Single { widen: None, .. } | Combine::Region { .. } => {
                        from_rows(rows[i], home, extent(fold, i), reverse);
                    }
                }
            }
            self.set_dense(out);
        }
        Ok(())
    }

    /// Runs a region on `lanes` pairs of elements and writes what it yields to `targets`, which may be where the
    /// left elements are.
    fn combine_region(
        &mut self,
        code: &RegionCode,
        vectorised: bool,
        [left, right]: [&[*const u8]; 2],
        targets: &[*mut u8],
        (lanes, bytes): (usize, &[usize]),
    ) -> Result<(), Exit> {
        let args = || code.left.iter().zip(left).chain(code.right.iter().zip(right));
        if vectorised {
            for reg in code.regs.clone() {
                self.regs[reg as usize].n = lanes;
            }
            for (&reg, &data) in args() {
                self.set_data(reg, data, false);
            }
            self.run_region(code)?;
            for ((&reg, &to), &bytes) in code.yields.iter().zip(targets).zip(bytes) {
                let from = self.dense(reg);
                // SAFETY: the region computed `lanes` elements, and the target has room for them.
                unsafe { ptr::copy(from, to, lanes * bytes) };
            }
            return Ok(());
        }
        for lane in 0..lanes {
            for ((&reg, &data), &bytes) in args().zip(bytes.iter().cycle()) {
                let mut bits = Bits::ZERO;
                // SAFETY: both sides have `lanes` elements.
                unsafe { ptr::copy_nonoverlapping(data.add(lane * bytes), bits.as_mut_ptr(), bytes) };
                self.set_splat(reg, bits);
            }
            self.run_region(code)?;
            for ((&reg, &to), &bytes) in code.yields.iter().zip(targets).zip(bytes) {
                let bits = self.scalar(reg);
                // SAFETY: the target has room for `lanes` elements.
                unsafe { ptr::copy_nonoverlapping(bits.as_ptr(), to.add(lane * bytes), bytes) };
            }
        }
        Ok(())
    }

    pub(super) fn run_region(&mut self, code: &RegionCode) -> Result<(), Exit> {
        let mut from = code.start;
        loop {
            match self.exec(from) {
                Exit::RegionEnd => return Ok(()),
                // A wait inside a region that combines elements can never be resumed.
                Exit::Blocked { at, .. } => {
                    self.deadlock(at);
                    return Err(Exit::Stopped);
                }
                // Neither can it be left for other programs: they have their turns after it.
                Exit::Paused => from = self.turn.pause.next,
                exit @ (Exit::Returned | Exit::Stopped) => return Err(exit),
            }
            self.turn.refill();
        }
    }
}

fn extent(fold: &Fold, input: usize) -> Extent {
    Extent { outer: fold.outer, len: fold.len, inner: fold.inner, bytes: fold.bytes[input] }
}

/// Combines `len` rows of `inner` elements into one, by halves; returns where it is.
///
/// # Safety
/// `source` must hold the rows, and each of `places` at least half of them, rounded up. The source may be the
/// second place.
unsafe fn tree(f: Fn2, source: *const u8, places: [*mut u8; 2], len: usize, inner: usize, bytes: usize) -> *const u8 {
    let (mut from, mut len, mut level) = (source, len, 0);
    while len > 1 {
        let half = len.div_ceil(2);
        let pairs = len - half;
        let to = places[level % 2];
        // SAFETY: `from` holds `len` rows and `to`, which is another place, `half`.
        unsafe {
            f(from, from.add(half * inner * bytes), to, pairs * inner);
            let kept = pairs * inner * bytes;
            ptr::copy_nonoverlapping(from.add(kept), to.add(kept), (half - pairs) * inner * bytes);
        }
        (from, len, level) = (to, half, level + 1);
    }
    from
}

/// Calls `f` with the byte offsets of every run of `inner` elements: in the tile, and in rows along the axis,
/// which `reverse` numbers from the end.
fn for_each_run(extent: Extent, reverse: bool, mut f: impl FnMut(usize, usize)) {
    let run = extent.inner * extent.bytes;
    for l in 0..extent.len {
        let position = if reverse { extent.len - 1 - l } else { l };
        for o in 0..extent.outer {
            f((o * extent.len + position) * run, (l * extent.outer + o) * run);
        }
    }
}

/// Copies one run; of a single element without the detour through `memcpy`.
///
/// # Safety
/// Both must be valid for `run` bytes and aligned for elements of `bytes` bytes.
unsafe fn copy_run(from: *const u8, to: *mut u8, run: usize, bytes: usize) {
    // SAFETY: promised by the caller.
    unsafe {
        match (run, bytes) {
            (4, 4) => *to.cast::<u32>() = *from.cast::<u32>(),
            (8, 8) => *to.cast::<u64>() = *from.cast::<u64>(),
            _ => ptr::copy_nonoverlapping(from, to, run),
        }
    }
}

/// Brings the axis to the front: `[outer, len, inner]` becomes `[len, outer, inner]`.
///
/// # Safety
/// Both must hold all elements, without overlap.
unsafe fn to_rows(from: *const u8, to: *mut u8, extent: Extent, reverse: bool) {
    for_each_run(extent, reverse, |tile, row| {
        // SAFETY: both offsets are of runs inside.
        unsafe { copy_run(from.add(tile), to.add(row), extent.inner * extent.bytes, extent.bytes) }
    });
}

/// The inverse of [`to_rows`].
///
/// # Safety
/// As of `to_rows`.
unsafe fn from_rows(from: *const u8, to: *mut u8, extent: Extent, reverse: bool) {
    for_each_run(extent, reverse, |tile, row| {
        // SAFETY: both offsets are of runs inside.
        unsafe { copy_run(from.add(row), to.add(tile), extent.inner * extent.bytes, extent.bytes) }
    });
}
