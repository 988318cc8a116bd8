//! Operations on whole tiles: elements by index, counts, order.

use std::slice;

use super::executor::Executor;
use super::lanes::{Bits, Fn1};
use super::registers::RegId;
use crate::ir::DType;
use crate::num::order;

/// A tile by its sizes before, along and behind an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Along {
    pub outer: usize,
    pub len: usize,
    pub inner: usize,
}

/// Elements at places that a tile says.
#[derive(Clone, Debug)]
pub(super) struct ByIndex {
    pub tile: RegId,
    pub along: Along,
    pub index: RegId,
    /// How many there are along the axis.
    pub indices: usize,
    /// Converts them to i64.
    pub widen: Fn1,
    /// Room for the widened ones.
    pub room: usize,
    /// What is written there; elements are read without it.
    pub value: Option<RegId>,
    pub out: RegId,
}

/// How often integers occur.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    pub tile: RegId,
    pub widen: Fn1,
    pub room: usize,
    pub mask: Option<RegId>,
    pub bins: usize,
    pub out: RegId,
}

/// The first elements in order.
#[derive(Clone, Debug)]
pub(super) struct Sort {
    pub tile: RegId,
    pub dtype: DType,
    pub along: Along,
    pub descending: bool,
    pub keep: usize,
    pub indices: bool,
    pub out: RegId,
}

impl Executor<'_> {
    /// The elements of an integer tile, in `room`.
    fn widened(&mut self, tile: RegId, widen: Fn1, room: usize) -> &'static [i64] {
        let (from, n) = (self.dense(tile), self.reg(tile).n);
        let to = self.arena(room);
        // SAFETY: the room holds `n` words, and `widen` was chosen for the tile's dtype. The arena outlives every use of
        // the words, which end before the next instruction.
        unsafe {
            widen(from, to, n);
            slice::from_raw_parts(to.cast::<i64>(), n)
        }
    }

    /// The bytes of all elements of a tile.
    fn bytes(&mut self, tile: RegId) -> Vec<u8> {
        let (from, n) = (self.dense(tile), self.reg(tile).n);
        // SAFETY: a tile that is dense has `n` elements of that size.
        unsafe { slice::from_raw_parts(from, n * self.info(tile).lane.bytes()) }.to_vec()
    }

    fn set_bytes(&mut self, out: RegId, bytes: &[u8]) {
        let home = self.reg(out).home;
        debug_assert_eq!(bytes.len(), self.reg(out).n * self.info(out).lane.bytes());
        // SAFETY: the home of the result has room for all of its elements.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), home, bytes.len()) };
        self.set_dense(out);
    }

    /// Reads or writes elements at indices along an axis, modulo its size.
    pub(super) fn by_index(&mut self, by: &ByIndex) {
        let bytes = self.info(by.tile).lane.bytes();
        let mut tile = self.bytes(by.tile);
        let value = by.value.map(|value| self.bytes(value));
        let index = self.widened(by.index, by.widen, by.room);
        let Along { len, inner, .. } = by.along;
        let mut gathered = Vec::with_capacity(index.len() * bytes);
        for (at, index) in index.iter().enumerate() {
            let (outer, rest) = (at / (by.indices * inner), at % inner);
            let there = (outer * len + index.rem_euclid(len as i64) as usize) * inner + rest;
            let place = there * bytes..(there + 1) * bytes;
            match &value {
                Some(value) => tile[place].copy_from_slice(&value[at * bytes..(at + 1) * bytes]),
                None => gathered.extend_from_slice(&tile[place]),
            }
        }
        self.set_bytes(by.out, if value.is_some() { &tile } else { &gathered });
    }

    pub(super) fn histogram(&mut self, histogram: &Histogram) {
        let mask = histogram.mask.map(|mask| self.bytes(mask));
        let admits = |lane: usize| mask.as_ref().is_none_or(|mask| mask[lane] != 0);
        let mut counts = vec![0i32; histogram.bins];
        for (lane, &value) in self.widened(histogram.tile, histogram.widen, histogram.room).iter().enumerate() {
            let bin = usize::try_from(value).ok().filter(|_| admits(lane));
            if let Some(count) = bin.and_then(|bin| counts.get_mut(bin)) {
                *count += 1;
            }
        }
        let bytes: Vec<u8> = counts.iter().flat_map(|count| count.to_ne_bytes()).collect();
        self.set_bytes(histogram.out, &bytes);
    }

    pub(super) fn sort(&mut self, sort: &Sort) {
        let bytes = self.info(sort.tile).lane.bytes();
        let tile = self.bytes(sort.tile);
        let (wide, Along { outer, len, inner }) = (self.info(sort.out).lane.bytes(), sort.along);
        let mut out = vec![0u8; self.reg(sort.out).n * wide];
        for row in 0..outer * inner {
            let at = |step: usize, len: usize| (row / inner * len + step) * inner + row % inner;
            let key = |step: usize| {
                let element = Bits::from_bytes(&tile[at(step, len) * bytes..][..bytes]);
                order::key(sort.dtype, element.to_raw(bytes))
            };
            let mut keys: Vec<(u64, usize)> = (0..len).map(|step| (key(step), step)).collect();
            keys.sort_by_key(|&(key, step)| (if sort.descending { !key } else { key }, step));
            for (place, &(key, step)) in keys.iter().take(sort.keep).enumerate() {
                let raw = if sort.indices { step as u64 } else { order::value(sort.dtype, key) };
                let element = Bits::from_raw(raw, wide);
                out[at(place, sort.keep) * wide..][..wide].copy_from_slice(&element.bytes()[..wide]);
            }
        }
        self.set_bytes(sort.out, &out);
    }
}
