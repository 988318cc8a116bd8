//! A register layout read from, or written to, a shared-memory layout: instructions, addresses, bank conflicts.

use super::gf2::rank;
use super::linear::{field, log2};
use super::{ColumnAction, LayoutDim, LayoutError, LinearForm, LinearLayout};

/// The widest shared-memory access of one thread, in bits.
const MAX_ACCESS_BITS: u32 = 128;
/// Bits of one bank's word.
const WORD_BITS: u32 = 32;
/// Bytes of it.
const WORD_BYTES: u32 = WORD_BITS / 8;
/// The mask of the bank number in a word address: there are 32 banks.
const BANK_MASK: u64 = 31;

/// One vector access of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VectorAccess {
    /// The registers of the vector's elements, in order of their address.
    pub registers: Vec<u32>,
    /// The part of the constant that must be XORed to the thread's address, in bytes.
    pub xor_bytes: u32,
    /// The part of the constant that may be an immediate (`[address + imm]`), in bytes.
    pub add_bytes: u32,
    /// The pass in which the access takes place, where there are several.
    pub rep: u32,
}

/// How the threads of a register layout access a shared-memory layout.
///
/// The address of an access is
/// `base + ((thread(lane, warp) ^ xor_bytes) + add_bytes)`, in bytes, with `base` the start of the allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedAccess {
    /// Bits of one element.
    pub elem_bits: u32,
    /// Elements per access.
    pub width: u32,
    /// Extra wavefronts per wavefront: 0 is free of bank conflicts, 1 takes twice as long.
    pub conflicts: u32,
    /// The accesses of a thread, ordered by pass.
    pub accesses: Vec<VectorAccess>,
    /// The thread's part of the address over (lane, warp), in bytes.
    pub thread: LinearForm,
    /// Per register of the layout, the register in `accesses` that holds the same element.
    /// A load copies its values to the others by it; a store needs no more than the listed registers.
    pub canonical: ColumnAction,
    /// Lane bits that are redundant: lanes with one of them set access what others do, and need not store.
    pub redundant_lanes: u32,
    /// Warp bits that are redundant, likewise.
    pub redundant_warps: u32,
}

impl SharedAccess {
    /// Whether every constant of the accesses fits the instruction, so that one address serves all.
    pub fn is_additive(&self) -> bool {
        self.accesses.iter().all(|access| access.xor_bytes == 0)
    }

    /// An order of accesses in which fewer lanes meet in a bank, if there is one: see [`TurnedAccess`].
    ///
    /// ```text
    /// lane 0    0 1 2 3       lane 0    0 1 2 3        access by access
    /// lane 1    0 1 2 3       lane 1    1 0 3 2        in other banks at any time
    /// ```
    pub fn turned(&self) -> Option<TurnedAccess> {
        if self.conflicts == 0 {
            return None;
        }
        let lane_bases = self.lane_bases();
        let mut best: Option<TurnedAccess> = None;
        let registers = self.accesses.iter().flat_map(|access| &access.registers).max().map_or(0, |&last| last + 1);
        for bit in 0..registers.next_power_of_two().ilog2() {
            let Some((partners, distance)) = self.partners(1 << bit) else { continue };
            for lane_bit in (0..lane_bases.len()).filter(|bit| self.redundant_lanes >> bit & 1 == 0) {
                let mut bases = lane_bases.clone();
                bases[lane_bit] ^= distance;
                let conflicts =
                    conflicts_of(bases.iter().map(|&base| u64::from(base / WORD_BYTES)), self.access_words());
                if conflicts < best.as_ref().map_or(self.conflicts, |best| best.conflicts) {
                    let mut thread = self.thread.clone();
                    thread
                        .bases
                        .iter_mut()
                        .filter(|(dim, _)| *dim == LayoutDim::Lane)
                        .for_each(|(_, own)| own.clone_from(&bases));
                    best =
                        Some(TurnedAccess { lane_bit: lane_bit as u32, partners: partners.clone(), thread, conflicts });
                }
            }
        }
        best
    }

    /// Per access, the one of the registers whose numbers differ by `bit`, and how far apart in memory both are; `None` unless
    /// all are equally far apart, by bits that are XORed.
    fn partners(&self, bit: u32) -> Option<(Vec<u32>, u32)> {
        let mut distance = None;
        let partners: Option<Vec<u32>> = self
            .accesses
            .iter()
            .map(|access| {
                let is_partner = |other: &&VectorAccess| {
                    other.rep == access.rep
                        && other.add_bytes == access.add_bytes
                        && other.registers.iter().zip(&access.registers).all(|(a, b)| a ^ b == bit)
                };
                let (at, other) = self.accesses.iter().enumerate().find(|(_, other)| is_partner(other))?;
                let own = access.xor_bytes ^ other.xor_bytes;
                (*distance.get_or_insert(own) == own).then_some(at as u32)
            })
            .collect();
        partners.zip(distance)
    }

    fn lane_bases(&self) -> Vec<u32> {
        let lanes = self.thread.bases.iter().find(|(dim, _)| *dim == LayoutDim::Lane);
        lanes.map(|(_, bases)| bases.clone()).unwrap_or_default()
    }

    /// Words of one access, at least one.
    fn access_words(&self) -> u32 {
        (self.width * self.elem_bits / WORD_BITS).max(1)
    }

    /// Bytes of one access.
    pub fn access_bytes(&self) -> u32 {
        self.width * self.elem_bits / 8
    }

    /// Memory transactions of one warp for the whole tile, the cost of the access.
    pub fn wavefronts(&self) -> u32 {
        self.accesses.len() as u32 * self.access_words() * (self.conflicts + 1)
    }
}

/// A [`SharedAccess`] in which lanes with one bit set make their accesses in another order: in place of each, its partner.
///
/// The address of an access is that of [`SharedAccess`], with this `thread`; what lanes with the bit set write there are the
/// registers of the partner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnedAccess {
    /// The bit of the lane.
    pub lane_bit: u32,
    /// Per access, the number of its partner.
    pub partners: Vec<u32>,
    /// The thread's part of the address over (lane, warp), in bytes.
    pub thread: LinearForm,
    /// Extra wavefronts per wavefront.
    pub conflicts: u32,
}

/// Checks that shared memory can hold elements of `elem_bits` bits.
pub(super) fn check_elem_bits(elem_bits: u32) -> Result<(), LayoutError> {
    if matches!(elem_bits, 8 | 16 | 32 | 64 | 128) {
        Ok(())
    } else {
        Err(LayoutError::BadParameters {
            constructor: "shared memory",
            message: format!("elements of {elem_bits} bits; 8, 16, 32, 64 and 128 are allowed"),
        })
    }
}

/// How threads with `registers` access `shared`, a layout from [`LayoutDim::Offset`] to the same tile.
///
/// The accesses are as wide as the two layouts allow, up to 128 bits.
///
/// # Errors
/// The tiles differ, `shared` lacks an element, or shared memory cannot hold elements of this width.
pub fn shared_access(
    registers: &LinearLayout,
    shared: &LinearLayout,
    elem_bits: u32,
) -> Result<SharedAccess, LayoutError> {
    check_elem_bits(elem_bits)?;
    let offsets = registers.invert_and_compose(shared)?;
    access_offsets(registers, &offsets, elem_bits, 0)
}

/// As [`shared_access`], with the map to offsets known; the top `rep_bits` offset bits number the passes.
pub(super) fn access_offsets(
    registers: &LinearLayout,
    offsets: &LinearLayout,
    elem_bits: u32,
    rep_bits: u32,
) -> Result<SharedAccess, LayoutError> {
    let stray = offsets.outs.iter().find(|&&(dim, bits)| dim != LayoutDim::Offset && bits > 0);
    if let Some(&(dim, _)) = stray {
        return Err(LayoutError::UnknownDim(dim));
    }
    let address_bits = offsets.out_bits(LayoutDim::Offset);
    let vectors = offsets.vectors(LayoutDim::Offset, MAX_ACCESS_BITS / elem_bits);
    let byte_shift = log2("the bits of an element", elem_bits)? - 3;
    let thread = LinearForm {
        bases: [LayoutDim::Lane, LayoutDim::Warp]
            .into_iter()
            .filter(|&dim| offsets.has_in(dim))
            .map(|dim| (dim, offsets.columns(dim).iter().map(|&c| (c << byte_shift) as u32).collect()))
            .collect(),
    };
    let variable = thread.mask();
    let start = field(&offsets.ins, LayoutDim::Register).start;
    let rep_shift = address_bits - rep_bits;
    let mut accesses: Vec<VectorAccess> = vectors
        .groups
        .into_iter()
        .map(|registers| {
            let first = registers.first().map_or(0, |&register| u64::from(register));
            let offset = offsets.apply_flat(first << start);
            let bytes = ((offset & ((1 << rep_shift) - 1)) << byte_shift) as u32;
            VectorAccess {
                registers,
                xor_bytes: bytes & variable,
                add_bytes: bytes & !variable,
                rep: (offset >> rep_shift) as u32,
            }
        })
        .collect();
    accesses.sort_by_key(|access| access.rep);
    Ok(SharedAccess {
        elem_bits,
        width: vectors.width,
        conflicts: bank_conflicts(offsets, vectors.width, elem_bits),
        accesses,
        thread,
        canonical: vectors.canonical,
        redundant_lanes: registers.free_variable_mask(LayoutDim::Lane),
        redundant_warps: registers.free_variable_mask(LayoutDim::Warp),
    })
}

/// The extra wavefronts of each wavefront when a warp accesses vectors of `width` elements at
/// `offsets`, a map from (register, lane, warp) to [`LayoutDim::Offset`].
///
/// A warp's access of 64 or 128 bits per thread is served by halves or quarters of the warp, in lane order.
/// Within one such group a bank serves one word at a time; the words that the group touches form a linear space,
/// so each bank in use has the same number of them: two to the power of (bits of the words - bits of the banks).
pub fn bank_conflicts(offsets: &LinearLayout, width: u32, elem_bits: u32) -> u32 {
    let word = |offset: &u64| offset * u64::from(elem_bits) / u64::from(WORD_BITS);
    conflicts_of(offsets.columns(LayoutDim::Lane).iter().map(word), (width * elem_bits / WORD_BITS).max(1))
}

/// The extra wavefronts of each wavefront, from the word that each bit of the lane adds.
fn conflicts_of(lanes: impl ExactSizeIterator<Item = u64>, access_words: u32) -> u32 {
    let together = lanes.len().saturating_sub(access_words.ilog2() as usize);
    let within = (0..access_words.ilog2()).map(|bit| 1u64 << bit);
    let words: Vec<u64> = lanes.take(together).chain(within).collect();
    let banks = words.iter().map(|word| word & BANK_MASK);
    (1 << (rank(words.iter().copied()) - rank(banks))) - 1
}
