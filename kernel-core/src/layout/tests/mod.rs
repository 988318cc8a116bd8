//! Tests of the layout algebra: laws, exact layouts, and simulated conversions.

mod algebra;
mod conversion;
mod exact;
mod instructions;
mod queries;
mod simulate;
mod swizzle;
mod turned;

use super::{
    Blocked, LayoutDim, LinearLayout, MmaVersion, Operand, dot_operand, mma_v2_accumulator, wgmma_accumulator,
};

/// Marsaglia's xorshift64: a fixed sequence, so that failures repeat.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 20) % limit
    }

    pub(super) fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            list.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

/// A random map with the given input and output bits per dimension.
pub(super) fn random_layout(random: &mut Random, ins: &[(LayoutDim, u32)], outs: &[(LayoutDim, u32)]) -> LinearLayout {
    let count: u32 = ins.iter().map(|&(_, bits)| bits).sum();
    let out_bits: u32 = outs.iter().map(|&(_, bits)| bits).sum();
    let columns = (0..count).map(|_| random.below(1 << out_bits)).collect();
    LinearLayout::from_parts(ins.to_vec(), outs.to_vec(), columns)
}

/// A random bijection from `bits` offsets to one axis.
pub(super) fn random_bijection(random: &mut Random, bits: u32) -> LinearLayout {
    loop {
        let layout = random_layout(random, &[(LayoutDim::Offset, bits)], &[(LayoutDim::Axis(0), bits)]);
        if layout.is_invertible() {
            return layout;
        }
    }
}

/// A layout of `shape` whose bits are dealt to registers, lanes and warps at random;
/// what is left of the threads holds copies.
pub(super) fn random_dealt(random: &mut Random, shape: &[u32], warps: u32) -> LinearLayout {
    let outs: Vec<_> =
        shape.iter().enumerate().map(|(axis, size)| (LayoutDim::Axis(axis as u8), size.ilog2())).collect();
    let total: u32 = outs.iter().map(|&(_, bits)| bits).sum();
    let mut units: Vec<u64> = (0..total).map(|bit| 1 << bit).collect();
    random.shuffle(&mut units);
    let threads = 5 + warps.ilog2() as usize;
    let copies = random.below(3) as usize;
    let mut thread_columns: Vec<u64> = units.drain(..threads.saturating_sub(copies).min(units.len())).collect();
    thread_columns.resize(threads, 0);
    random.shuffle(&mut thread_columns);
    if random.below(3) == 0 {
        units.push(0);
        random.shuffle(&mut units);
    }
    let ins = vec![(LayoutDim::Register, units.len() as u32), (LayoutDim::Lane, 5), (LayoutDim::Warp, warps.ilog2())];
    LinearLayout::from_parts(ins, outs, [units, thread_columns].concat())
}

/// Blocked, sliced, transposed, matrix and random layouts of a tile, for `warps` warps.
pub(super) fn layouts_of(shape: &[u32], warps: u32, random: &mut Random) -> Vec<LinearLayout> {
    let rank = shape.len();
    let rows: Vec<u8> = (0..rank as u8).rev().collect();
    let columns: Vec<u8> = (0..rank as u8).collect();
    let mut layouts = Vec::new();
    for order in [&rows, &columns] {
        for per_thread in [1, 2, 4, 8] {
            layouts.push(Blocked::coalesced(shape, order, per_thread, warps).layout(shape).unwrap());
        }
    }
    // The result of a reduction over an axis that was first, or last.
    for axis in [0, rank] {
        let mut parent = shape.to_vec();
        parent.insert(axis, 16);
        let order: Vec<u8> = (0..parent.len() as u8).rev().collect();
        let parent = Blocked::coalesced(&parent, &order, 2, warps).layout(&parent).unwrap();
        layouts.push(parent.slice(axis as u8).unwrap());
    }
    if let &[rows, columns] = shape {
        let split = [warps.min(rows / 16).max(1), warps / warps.min(rows / 16).max(1)];
        layouts.push(mma_v2_accumulator(shape, split).unwrap());
        layouts.push(dot_operand(shape, Operand::A, 2, MmaVersion::V2, split).unwrap());
        layouts.push(dot_operand(shape, Operand::B, 4, MmaVersion::V2, split).unwrap());
        if warps >= 4 {
            layouts.push(wgmma_accumulator(shape, columns.min(64), [warps, 1]).unwrap());
        }
        let turned = Blocked::coalesced(&[columns, rows], &[1, 0], 4, warps).layout(&[columns, rows]).unwrap();
        layouts.push(turned.permute(&[1, 0]).unwrap());
    }
    layouts.push(replicated(shape, warps));
    for _ in 0..6 {
        layouts.push(random_dealt(random, shape, warps));
    }
    layouts
}

/// The tiles and warp counts that conversions are tested on.
pub(super) const SHAPES: [&[u32]; 7] = [&[32], &[128], &[1024], &[16, 16], &[64, 32], &[32, 128], &[8, 4, 16]];

/// The layout of a scalar or a constant tile: every thread holds everything in its registers.
fn replicated(shape: &[u32], num_warps: u32) -> LinearLayout {
    let rank = shape.len();
    let basis = |axis: usize, bit: u32| (0..rank).map(|other| if other == axis { 1 << bit } else { 0 }).collect();
    let along = |axis: usize| (0..shape[axis].ilog2()).map(move |bit| basis(axis, bit));
    let registers: Vec<Vec<u32>> = (0..rank).rev().flat_map(along).collect();
    let silent = |size: u32| vec![vec![0; rank]; size.ilog2() as usize];
    let ins = [(LayoutDim::Register, registers), (LayoutDim::Lane, silent(32)), (LayoutDim::Warp, silent(num_warps))];
    let outs: Vec<(LayoutDim, u32)> = (0u8..).map(LayoutDim::Axis).zip(shape.iter().copied()).collect();
    LinearLayout::from_bases(&ins, &outs).unwrap()
}
