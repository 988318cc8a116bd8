//! A shared-memory layout for one conversion: wide accesses on both sides, without bank conflicts.
//!
//! The tile is seen as a vector space over GF(2), of dimension d. A shared-memory layout is a basis of it,
//! in three parts, from the lowest offset bit upwards:
//!
//! * the **vector**: elements that one access moves, at least a bank's word of 32 bits;
//! * the **bank**: the rest of a row of 32 banks, 1024 bits in all;
//! * the **segment**: the rows.
//!
//! Two lanes of one access conflict if they differ by a sum of segment vectors (same bank, another row).
//! So the segment must meet the space that one access of the source spans only in zero, and that of the
//! destination likewise: it has to be a common complement of two subspaces. With `A` the source's directions
//! that the destination lacks, and `B` the reverse, the pairs `a ^ b` are such complements.
//! That XOR is the swizzle; it is found, not chosen from a family.
//!
//! The method is from Zhou et al., "Linear Layouts", arXiv 2505.23819, section 5.4. In place of its case
//! distinctions for the vector, all reasonable vectors are tried and the transactions counted.

use super::access::{SharedAccess, access_offsets, bank_conflicts, check_elem_bits};
use super::gf2::{Subspace, complement, intersection};
use super::linear::log2;
use super::warp_map::{WarpMap, aligned};
use super::{LayoutDim, LayoutError, LinearLayout};

/// Bits of the widest access.
const MAX_ACCESS_BITS: u32 = 128;
/// Bits of a bank's word.
const WORD_BITS: u32 = 32;
/// Bits of a row of all 32 banks.
const ROW_BITS: u32 = 32 * WORD_BITS;

/// Limits of a conversion through shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SwizzleOptions {
    /// The most bytes of shared memory to use; a larger tile goes through in several passes,
    /// with a barrier before each. `None` for as much as the tile has.
    pub max_bytes: Option<u32>,
}

/// Who has to wait between the stores and the loads (and before the next stores).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SyncScope {
    /// `bar.warp.sync`: each warp reads only what it has written itself.
    /// Redundant warps must then store too, so do not predicate by [`SharedAccess::redundant_warps`].
    Warp,
    /// A barrier of all warps.
    Block,
}

/// A conversion through shared memory, as pure data.
///
/// ```text
/// for rep in 0..reps:
///     barrier(scope)                                 // not before the first, if the memory is fresh
///     for a in store.accesses with a.rep == rep:  st.shared.v{width} [address(a)], registers
///     barrier(scope)
///     for a in load.accesses with a.rep == rep:   ld.shared.v{width} [address(a)] -> registers
/// result[r] = loaded[load.canonical.source_of(r)]
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedPlan {
    /// From [`LayoutDim::Offset`] (elements within one pass) and [`LayoutDim::Reps`] to the tile.
    pub layout: LinearLayout,
    /// Bits of one element.
    pub elem_bits: u32,
    /// How the source writes.
    pub store: SharedAccess,
    /// How the destination reads.
    pub load: SharedAccess,
    /// Bytes of shared memory needed.
    pub bytes: u32,
    /// The number of passes.
    pub reps: u32,
    /// The barrier needed.
    pub scope: SyncScope,
}

/// The layout of shared memory that takes `src` to `dst` with the fewest memory transactions.
///
/// # Errors
/// The tiles or thread counts differ, the layouts span several blocks, `src` does not hold the whole tile,
/// or shared memory cannot hold elements of this width.
pub fn optimal_swizzle(
    src: &LinearLayout,
    dst: &LinearLayout,
    elem_bits: u32,
    options: &SwizzleOptions,
) -> Result<SharedPlan, LayoutError> {
    check_elem_bits(elem_bits)?;
    let (src, dst) = aligned(src, dst)?;
    if src.columns(LayoutDim::Block).iter().chain(dst.columns(LayoutDim::Block)).any(|&column| column != 0) {
        return Err(LayoutError::CrossesBlocks);
    }
    if !src.is_surjective() {
        return Err(LayoutError::NotSurjective);
    }
    let problem = Problem::new(&src, &dst, elem_bits);
    let mut best: Option<(u32, Vec<u64>, u32)> = None;
    let mut failure = LayoutError::NotSurjective;
    for vector in problem.vectors() {
        let basis = problem.basis(&vector);
        let cost = problem.cost(&basis)?;
        if best.as_ref().is_some_and(|(least, ..)| cost >= *least) {
            continue;
        }
        match problem.passes(basis, options) {
            Ok((basis, rep_bits)) => best = Some((cost, basis, rep_bits)),
            Err(error) => failure = cheaper(failure, error),
        }
    }
    let (_, basis, rep_bits) = best.ok_or(failure)?;
    problem.plan(&basis, rep_bits)
}

/// Of two reasons why nothing fits, the one that asks for less memory.
fn cheaper(first: LayoutError, second: LayoutError) -> LayoutError {
    match (&first, &second) {
        (LayoutError::ScratchTooSmall { needed: a, .. }, LayoutError::ScratchTooSmall { needed: b, .. }) if a <= b => {
            first
        }
        _ => second,
    }
}

/// One side of the conversion, flattened.
struct Side<'a> {
    layout: &'a LinearLayout,
    registers: &'a [u64],
    lanes: &'a [u64],
    thread: Subspace,
}

impl<'a> Side<'a> {
    fn new(layout: &'a LinearLayout) -> Self {
        let registers = layout.columns(LayoutDim::Register);
        let thread = Subspace::of(registers.iter().copied());
        Side { layout, registers, lanes: layout.columns(LayoutDim::Lane), thread }
    }

    /// The directions that one phase of an access covers, if it starts with as much of `vector` as this side has
    /// in registers.
    fn phase(&self, vector: &[u64], elem_bits: u32) -> Vec<u64> {
        let held = vector.iter().take_while(|&&v| self.thread.contains(v)).count();
        let words = ((1 << held) * elem_bits / WORD_BITS).max(1);
        let together = self.lanes.len().saturating_sub(words.ilog2() as usize);
        [vector, &self.lanes[..together]].concat()
    }
}

struct Problem<'a> {
    src: Side<'a>,
    dst: Side<'a>,
    elem_bits: u32,
    /// Bits of the tile's flattened coordinate.
    dim: u32,
}

impl<'a> Problem<'a> {
    fn new(src: &'a LinearLayout, dst: &'a LinearLayout, elem_bits: u32) -> Self {
        Problem { src: Side::new(src), dst: Side::new(dst), elem_bits, dim: src.total_out_bits() }
    }

    /// The vectors worth trying: first what both sides hold in registers, then more of one side's registers
    /// (preferably such as are lanes of the other, which then read adjacent words), of every length.
    fn vectors(&self) -> Vec<Vec<u64>> {
        let common = self.common_registers();
        let longest = (MAX_ACCESS_BITS / self.elem_bits).max(1).ilog2() as usize;
        let mut found: Vec<Vec<u64>> = Vec::new();
        for limit in (0..=longest).rev() {
            for (side, other) in [(&self.src, &self.dst), (&self.dst, &self.src)] {
                let lanes_of_other = |vector: &u64| other.lanes.contains(vector);
                let by_lane: Vec<u64> = {
                    let (first, second): (Vec<u64>, Vec<u64>) = side.registers.iter().partition(|v| lanes_of_other(v));
                    [first, second].concat()
                };
                for registers in [side.registers, &by_lane] {
                    let vector = self.filled(&common, registers, limit);
                    if !found.contains(&vector) {
                        found.push(vector);
                    }
                }
            }
        }
        found
    }

    /// Directions that are in registers on both sides, in the order of the source's registers.
    fn common_registers(&self) -> Vec<u64> {
        let mut span = Subspace::new();
        let mut common = Vec::new();
        let both = self.src.registers.iter().copied().filter(|&v| self.dst.thread.contains(v));
        for vector in both.chain(intersection(self.src.registers, self.dst.registers)) {
            if span.insert(vector, 0).is_ok() {
                common.push(vector);
            }
        }
        common
    }

    /// `limit` independent directions, from `common`, then from `registers`;
    /// filled up to one word with whatever there is, which is free of conflicts in any case,
    /// because lanes that access parts of one word are served together.
    fn filled(&self, common: &[u64], registers: &[u64], limit: usize) -> Vec<u64> {
        let mut span = Subspace::new();
        let mut vector = Vec::new();
        let mut extend = |from: &mut dyn Iterator<Item = u64>, limit: usize| {
            for direction in from {
                if vector.len() < limit && span.insert(direction, 0).is_ok() {
                    vector.push(direction);
                }
            }
        };
        extend(&mut common.iter().chain(registers).copied(), limit);
        let word = (WORD_BITS / self.elem_bits).max(1).ilog2() as usize;
        let lanes = self.src.lanes.iter().chain(self.dst.lanes).copied();
        extend(&mut lanes.chain((0..self.dim).map(|bit| 1 << bit)), word);
        vector
    }

    /// The basis [vector | bank | segment] of shared memory.
    fn basis(&self, vector: &[u64]) -> Vec<u64> {
        let row = (ROW_BITS / self.elem_bits).max(1).ilog2().min(self.dim) as usize;
        let bank_count = row.saturating_sub(vector.len());
        let segment_count = self.dim as usize - vector.len() - bank_count;
        let segment = self.segment(vector, segment_count);
        let bank = complement(&[vector, &segment].concat(), self.dim);
        [vector, &bank, &segment].concat()
    }

    /// `count` directions, independent of `vector`, that meet the phases of both sides as little as possible.
    fn segment(&self, vector: &[u64], count: usize) -> Vec<u64> {
        let src = self.src.phase(vector, self.elem_bits);
        let dst = self.dst.phase(vector, self.elem_bits);
        let both = intersection(&src, &dst);
        let beyond = |phase: &[u64]| -> Vec<u64> {
            let mut span = Subspace::of(both.iter().copied().chain(vector.iter().copied()));
            phase.iter().copied().filter(|&direction| span.insert(direction, 0).is_ok()).collect()
        };
        let (only_src, only_dst) = (beyond(&src), beyond(&dst));
        let paired = only_src.iter().zip(&only_dst).map(|(a, b)| a ^ b);
        let neither = complement(&[&src[..], &dst].concat(), self.dim);
        // In order of their cost: free, then one conflict for one side, then for both.
        let longer = if only_src.len() > only_dst.len() { &only_src } else { &only_dst };
        let candidates = neither
            .into_iter()
            .chain(paired)
            .chain(longer.iter().rev().copied())
            .chain(both)
            .chain((0..self.dim).map(|bit| 1 << bit));
        let mut span = Subspace::of(vector.iter().copied());
        candidates.filter(|&direction| span.insert(direction, 0).is_ok()).take(count).collect()
    }

    /// The layout from one dimension `Offset` to the tile.
    fn layout(&self, basis: &[u64]) -> LinearLayout {
        let ins = vec![(LayoutDim::Offset, basis.len() as u32)];
        LinearLayout::from_parts(ins, self.src.layout.outs.clone(), basis.to_vec())
    }

    /// Memory transactions of a warp on both sides, and, far behind, instructions.
    fn cost(&self, basis: &[u64]) -> Result<u32, LayoutError> {
        let layout = self.layout(basis);
        let mut cost = 0;
        for side in [&self.src, &self.dst] {
            let offsets = side.layout.invert_and_compose(&layout)?;
            let width = side.width(&offsets, self.elem_bits);
            let registers = 1u32 << super::gf2::rank(side.registers.iter().copied());
            let instructions = registers / width;
            let words = (width * self.elem_bits / WORD_BITS).max(1);
            let wavefronts = instructions * words * (bank_conflicts(&offsets, width, self.elem_bits) + 1);
            cost += 4 * wavefronts + instructions;
        }
        Ok(cost)
    }

    /// Moves directions that number the passes to the top of the basis. Returns it with the number of pass bits.
    fn passes(&self, basis: Vec<u64>, options: &SwizzleOptions) -> Result<(Vec<u64>, u32), LayoutError> {
        let bytes = |bits: u32| (1u64 << bits) * u64::from(self.elem_bits) / 8;
        let Some(allowed) = options.max_bytes.filter(|&max| bytes(self.dim) > u64::from(max)) else {
            return Ok((basis, 0));
        };
        // A pass is chosen by registers alone: no lane and no warp may have a part in its bits.
        let layout = self.layout(&basis);
        let mut used_by_threads = 0;
        for side in [&self.src, &self.dst] {
            let offsets = side.layout.invert_and_compose(&layout)?;
            let threads = [LayoutDim::Lane, LayoutDim::Warp].into_iter().flat_map(|dim| offsets.columns(dim));
            used_by_threads = threads.fold(used_by_threads, |word, column| word | column);
        }
        let row = (ROW_BITS / self.elem_bits).max(1).ilog2() as usize;
        let can_repeat = |bit: &usize| *bit >= row && used_by_threads >> bit & 1 == 0;
        let fits = |&wanted: &u32| bytes(self.dim - wanted) <= u64::from(allowed);
        let wanted = (0..=self.dim).find(fits).unwrap_or(self.dim + 1);
        let passes: Vec<usize> = (0..basis.len()).rev().filter(can_repeat).take(wanted as usize).collect();
        if (passes.len() as u32) < wanted {
            let needed = bytes(self.dim - passes.len() as u32) as u32;
            return Err(LayoutError::ScratchTooSmall { needed, allowed });
        }
        let kept = (0..basis.len()).filter(|bit| !passes.contains(bit));
        let order = kept.chain(passes.iter().rev().copied());
        Ok((order.map(|bit| basis[bit]).collect(), wanted))
    }

    fn plan(&self, basis: &[u64], rep_bits: u32) -> Result<SharedPlan, LayoutError> {
        let layout = self.layout(basis);
        let access = |side: &Side| {
            let offsets = side.layout.invert_and_compose(&layout)?;
            access_offsets(side.layout, &offsets, self.elem_bits, rep_bits)
        };
        let offset_bits = self.dim - rep_bits;
        let byte_shift = log2("the bits of an element", self.elem_bits)? - 3;
        let stays = WarpMap::new(self.src.layout, self.dst.layout).is_some();
        Ok(SharedPlan {
            store: access(&self.src)?,
            load: access(&self.dst)?,
            layout: layout.reshape_ins(&[(LayoutDim::Offset, 1 << offset_bits), (LayoutDim::Reps, 1 << rep_bits)])?,
            elem_bits: self.elem_bits,
            bytes: 1 << (offset_bits + byte_shift),
            reps: 1 << rep_bits,
            scope: if stays { SyncScope::Warp } else { SyncScope::Block },
        })
    }
}

impl Side<'_> {
    /// Elements per access, as [`LinearLayout::vectors`] finds, without listing them.
    fn width(&self, offsets: &LinearLayout, elem_bits: u32) -> u32 {
        let registers = Subspace::of(offsets.columns(LayoutDim::Register).iter().copied());
        let threads = [LayoutDim::Lane, LayoutDim::Warp].into_iter().flat_map(|dim| offsets.columns(dim));
        let moved = threads.fold(0, |word, column| word | column);
        let limit = (MAX_ACCESS_BITS / elem_bits).max(1).ilog2().min(offsets.total_out_bits());
        let in_vector = |bit: &u32| moved >> bit & 1 == 0 && registers.contains(1 << bit);
        1 << (0..limit).take_while(in_vector).count()
    }
}
