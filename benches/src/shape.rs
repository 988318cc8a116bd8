//! The sizes of contests.

use std::fmt;

/// Which facts a peer's kernel was compiled for, as Triton specialises arguments by divisibility by 16.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variant {
    /// Addresses and sizes are divisible by 16.
    Aligned,
    /// Addresses are, sizes are not.
    Ragged,
    /// Sizes are, addresses are not.
    Offset,
}

impl Variant {
    /// Its name in the index of the peers.
    pub fn name(self) -> &'static str {
        match self {
            Variant::Aligned => "aligned",
            Variant::Ragged => "ragged",
            Variant::Offset => "offset",
        }
    }

    fn of(size: usize, start: usize) -> Variant {
        match (size % 16, start) {
            (0, 0) => Variant::Aligned,
            (_, 0) => Variant::Ragged,
            (_, _) => Variant::Offset,
        }
    }
}

/// A row-major matrix whose data begin `start` elements after an aligned address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Matrix {
    /// Rows.
    pub rows: usize,
    /// Elements per row.
    pub columns: usize,
    /// Elements before the first.
    pub start: usize,
}

impl Matrix {
    /// A matrix at an aligned address.
    pub const fn new(rows: usize, columns: usize) -> Matrix {
        Matrix { rows, columns, start: 0 }
    }

    /// Elements.
    pub fn len(self) -> usize {
        self.rows * self.columns
    }

    /// Whether there are no elements.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The smallest tile that holds a row.
    pub fn block(self) -> usize {
        self.columns.next_power_of_two()
    }

    /// What a peer may assume.
    pub fn variant(self) -> Variant {
        Variant::of(self.columns, self.start)
    }

    /// The warps to try for one row per program: between 2 and 64 elements per thread.
    pub fn warps(self) -> Vec<u32> {
        let per_thread = |warps: u32| self.block() / (warps as usize * 32);
        [1, 2, 4, 8, 16, 32]
            .into_iter()
            .filter(|&w| (4..=64).contains(&per_thread(w)) && (w >= 4 || self.block() < 1024))
            .collect()
    }
}

impl fmt::Display for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.rows, self.columns)?;
        if self.start != 0 { write!(f, "+{}", self.start) } else { Ok(()) }
    }
}

/// A vector whose data begin `start` elements after an aligned address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vector {
    /// Elements.
    pub len: usize,
    /// Elements before the first.
    pub start: usize,
}

impl Vector {
    /// A vector at an aligned address.
    pub const fn new(len: usize) -> Vector {
        Vector { len, start: 0 }
    }

    /// What a peer may assume.
    pub fn variant(self) -> Variant {
        Variant::of(self.len, self.start)
    }
}

impl fmt::Display for Vector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.len)?;
        if self.start != 0 { write!(f, "+{}", self.start) } else { Ok(()) }
    }
}
