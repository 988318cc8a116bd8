//! The levels of the IR.

/// How far a kernel has been lowered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Shapes and dtypes symbolic.
    Generic,
    /// Constexprs, dtypes and argument facts known.
    Bound,
    /// Layouts on every tile, GPU operations allowed.
    Placed,
}

/// Levels at which an operation may occur, as a bit set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Levels(pub u8);

impl Levels {
    /// Generic, bound and placed.
    pub const ALL: Levels = Levels(7);
    /// Before layouts are assigned: generic and bound.
    pub const UNPLACED: Levels = Levels(3);
    /// Only before `bind`.
    pub const GENERIC: Levels = Levels(1);
    /// After `bind`: bound and placed.
    pub const LOWERED: Levels = Levels(6);
    /// Only after layouts are assigned.
    pub const PLACED: Levels = Levels(4);

    /// Whether `level` is in the set.
    pub fn contains(self, level: Level) -> bool {
        self.0 & (1 << level as u8) != 0
    }
}
