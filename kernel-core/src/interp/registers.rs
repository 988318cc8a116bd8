//! What instructions name: registers, positions, and who holds the elements of a tile.

use crate::ir::{DType, LayoutId};

/// A register: holds one value of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct RegId(pub u32);

impl RegId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A position in the list of instructions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Pc(pub u32);

impl Pc {
    pub(super) const UNPATCHED: Pc = Pc(u32::MAX);

    pub(super) fn index(self) -> usize {
        self.0 as usize
    }

    pub(super) fn next(self) -> Pc {
        Pc(self.0 + 1)
    }
}

/// The state of a running `for`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LoopId(pub u32);

/// In how many parts groups of four warps divide a view, each group accessing one: the logarithm along each dimension.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Parts(u64);

impl Parts {
    /// `None` where that is not known: without a list, or in more dimensions than any view has.
    pub(super) fn new(parts: Option<&[u8]>) -> Option<Parts> {
        let parts = parts.filter(|parts| parts.len() <= 8)?;
        Some(Parts(parts.iter().fold(0, |all, &parts| all << 8 | u64::from(parts.max(1).ilog2()))))
    }
}

/// Elements of a tile, from number `first` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Part {
    pub tile: RegId,
    pub first: usize,
}

/// Which threads hold the elements of a tile that goes into shared memory or comes from there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Holders {
    pub layout: Option<LayoutId>,
    pub parts: Option<Parts>,
}

/// What the elements of a register are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lane {
    /// Numbers or truth values.
    Data(DType),
    /// Offsets into a buffer, i64.
    Pointer,
    /// Shared memory, barriers, tokens: one word that only GPU operations read.
    Handle,
}

impl Lane {
    /// Size of an element in bytes.
    pub(super) fn bytes(self) -> usize {
        match self {
            Lane::Data(dtype) => dtype.bytes() as usize,
            Lane::Pointer | Lane::Handle => 8,
        }
    }

    /// The integers that an element can be, if it is an integer or a pointer.
    pub(super) fn int_range(self) -> Option<(i64, i64)> {
        match self {
            Lane::Data(dtype) => super::affine::int_range(dtype),
            Lane::Pointer => Some((i64::MIN, i64::MAX)),
            Lane::Handle => None,
        }
    }

    /// The dtype by which elements compare and fill memory.
    pub(super) fn dtype(self) -> DType {
        match self {
            Lane::Data(dtype) => dtype,
            Lane::Pointer | Lane::Handle => DType::I64,
        }
    }
}

/// What is known of a register.
#[derive(Clone, Debug)]
pub(super) struct RegInfo {
    pub lane: Lane,
    /// Dimensions; empty for a scalar.
    pub dims: Box<[usize]>,
    /// Elements; 1 for a scalar.
    pub n: usize,
    /// Where its elements lie in the arena, when they do.
    pub offset: usize,
}
