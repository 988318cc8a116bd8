//! What operations do to buffers.

use super::BufferId;
use std::ops::Range;

/// What is done to a part of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touch {
    Read,
    Write,
    /// Both, in any order.
    Update,
}

impl Touch {
    /// What a launch does to an argument; `None` if nothing.
    #[inline]
    pub(crate) fn of(reads: bool, writes: bool) -> Option<Touch> {
        match (reads, writes) {
            (true, true) => Some(Touch::Update),
            (true, false) => Some(Touch::Read),
            (false, true) => Some(Touch::Write),
            (false, false) => None,
        }
    }

    #[inline]
    pub(crate) fn reads(self) -> bool {
        matches!(self, Touch::Read | Touch::Update)
    }

    #[inline]
    pub(crate) fn writes(self) -> bool {
        matches!(self, Touch::Write | Touch::Update)
    }
}

/// A part of a buffer, in bytes, and what is done to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Use {
    pub(crate) buffer: BufferId,
    start: usize,
    end: usize,
    pub(crate) touch: Touch,
}

impl Use {
    #[inline]
    pub(crate) fn new(buffer: BufferId, range: Range<usize>, touch: Touch) -> Self {
        Use { buffer, start: range.start, end: range.end, touch }
    }

    pub(crate) fn range(&self) -> Range<usize> {
        self.start..self.end
    }
}
