//! A register layout read from, or written to, a shared-memory layout: instructions, addresses, bank conflicts.

use super::gf2::rank;
use super::linear::{field, log2};
use super::{ColumnAction, LayoutDim, LayoutError, LinearForm, LinearLayout};

/// The widest shared-memory access of one thread, in bits.
const MAX_ACCESS_BITS: u32 = 128;
/// Bits of one bank's word.
const WORD_BITS: u32 = 32;
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

    /// Bytes of one access.
    pub fn access_bytes(&self) -> u32 {
        self.width * self.elem_bits / 8
    }

    /// Memory transactions of one warp for the whole tile, the cost of the access.
    pub fn wavefronts(&self) -> u32 {
        let words = (self.width * self.elem_bits / WORD_BITS).max(1);
        self.accesses.len() as u32 * words * (self.conflicts + 1)
    }
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
    let access_words = (width * elem_bits / WORD_BITS).max(1);
    let lanes = offsets.columns(LayoutDim::Lane);
    let together = lanes.len().saturating_sub(access_words.ilog2() as usize);
    let word = |offset: u64| offset * u64::from(elem_bits) / u64::from(WORD_BITS);
    let within = (0..access_words.ilog2()).map(|bit| 1u64 << bit);
    let words: Vec<u64> = lanes[..together].iter().map(|&lane| word(lane)).chain(within).collect();
    let banks = words.iter().map(|word| word & BANK_MASK);
    (1 << (rank(words.iter().copied()) - rank(banks))) - 1
}
