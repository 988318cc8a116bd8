//! Which bits of a scan's coordinate cross warps, and what goes between them.

use kernel_core::layout::{LayoutDim, LinearLayout, WARP_SIZE};

/// Who holds a bit of the coordinate: these bits of the register's, lane's and warp's number.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Holders {
    pub(crate) registers: u32,
    pub(crate) lanes: u32,
    pub(crate) warps: u32,
}

impl Holders {
    /// Whether a register of the first thread is in the upper half.
    pub(crate) fn has_upper(&self, register: usize) -> bool {
        (register as u32 & self.registers).count_ones() % 2 == 1
    }

    /// Whether all threads have the same registers in the upper half.
    pub(crate) fn are_registers(&self) -> bool {
        self.lanes | self.warps == 0
    }
}

/// Where the values that each thread passes on lie, of so many bytes each, and the bytes of them all.
pub(crate) fn slots_of(sizes: Vec<u32>, num_warps: u32) -> (Vec<u32>, u32) {
    let (mut slots, mut bytes) = (Vec::with_capacity(sizes.len()), 0u32);
    for size in sizes {
        slots.push(bytes);
        bytes = (bytes + size * num_warps * WARP_SIZE).next_multiple_of(8);
    }
    (slots, bytes)
}

/// The bytes that go between warps, for each bit of the coordinate that they hold: of tuples with elements of so many
/// bytes, in so many registers.
pub(crate) fn warp_exchanges(holders: &[Holders], registers: u32, sizes: &[u32], num_warps: u32) -> Vec<u32> {
    let mut inside = 0;
    let mut exchanges = Vec::new();
    for holder in holders {
        if holder.registers == 0 && holder.lanes == 0 {
            let blocks = (0..registers).filter(|register| register & inside == 0).count();
            exchanges.push(slots_of(sizes.repeat(blocks), num_warps).1);
        }
        if holder.registers != 0 {
            inside |= 1 << holder.registers.trailing_zeros();
        }
    }
    exchanges
}

/// Who holds each bit of the coordinate along `axis`, lowest first; `None` if a basis mixes bits or axes.
pub(crate) fn holders(layout: &LinearLayout, axis: u8) -> Option<Vec<Holders>> {
    let out = LayoutDim::Axis(axis);
    let mut found = vec![Holders::default(); layout.out_bits(out) as usize];
    let rank = layout.tile_shape().len() as u8;
    for dim in [LayoutDim::Register, LayoutDim::Lane, LayoutDim::Warp] {
        for (bit, along) in (0u32..).zip(layout.bases_along(dim, out)) {
            if along == 0 {
                continue;
            }
            let elsewhere = (0..rank).filter(|&other| other != axis);
            let mixes =
                elsewhere.into_iter().any(|other| layout.bases_along(dim, LayoutDim::Axis(other))[bit as usize] != 0);
            if !along.is_power_of_two() || mixes {
                return None;
            }
            let holders = &mut found[along.trailing_zeros() as usize];
            match dim {
                LayoutDim::Register => holders.registers |= 1 << bit,
                LayoutDim::Lane => holders.lanes |= 1 << bit,
                _ => holders.warps |= 1 << bit,
            }
        }
    }
    found.iter().all(|holders| *holders != Holders::default()).then_some(found)
}
