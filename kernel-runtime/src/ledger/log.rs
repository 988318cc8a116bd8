//! The latest launches in the order in which they depend on each other, with the buffers that they use.
//!
//! An operation is appended while the launch has its buffers, so one that reads what another wrote comes
//! behind it. The log has a fixed size: appending allocates nothing after the first time.

use super::BufferId;
use super::steps::Steps;
use super::uses::{Touch, Use};
use crate::report_slot::LaunchId;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;

/// Operations that are held at most: more than a stream has records, so that the records of a stream
/// that keeps up come back first.
const OPS: usize = 2560;
/// Their buffers at most: a power of two. One operation may have more.
const USES: usize = 8192;

/// Something that wrote buffers, or ended their contents.
#[derive(Debug)]
pub(super) struct Op {
    pub(super) kind: Kind,
    /// The stream on which it runs.
    pub(super) stream: u64,
    /// Whether it may still prove to have failed.
    pub(super) is_open: bool,
    /// How many uses it has.
    uses: u32,
}

#[derive(Debug)]
pub(super) enum Kind {
    /// A launch that can fail.
    Fallible(LaunchId),
    /// A launch that cannot.
    Infallible,
    /// A copy of the first of two parts, which are equally long, to the second.
    Copy,
    /// A replay of a graph. It is given the number of its first launch; its uses are the buffers of the graph, in the graph's order.
    Replay(LaunchId, Arc<Steps>),
    /// The contents of the buffers are gone: it was dropped, or the host has set all of it.
    Gone,
}

impl Op {
    pub(super) fn new(kind: Kind, stream: u64, is_open: bool) -> Self {
        Op { kind, stream, is_open, uses: 0 }
    }

    /// Whether a failure of `launch` is one of the operation.
    fn is_of(&self, launch: LaunchId) -> bool {
        match self.kind {
            Kind::Fallible(own) | Kind::Replay(own, _) => own == launch,
            Kind::Infallible | Kind::Copy | Kind::Gone => false,
        }
    }
}

/// The place of an operation in the order of all that were ever appended, from 1.
pub(crate) type LogPosition = u64;

/// The uses of one operation.
pub(super) type Uses = SmallVec<[Use; 8]>;

#[derive(Debug)]
pub(super) struct Log {
    /// The place of the first operation that is held, or of the next one.
    first: LogPosition,
    ops: VecDeque<Op>,
    /// The uses of the operations one after another, as a ring whose length is a power of two. The numbers below count
    /// on without an end; a deque would cost several times as much.
    uses: Vec<Use>,
    first_use: usize,
    next_use: usize,
}

impl Log {
    pub(super) const fn new() -> Self {
        Log { first: 1, ops: VecDeque::new(), uses: Vec::new(), first_use: 0, next_use: 0 }
    }

    /// Everything before this place is no longer held.
    pub(super) fn first(&self) -> LogPosition {
        self.first
    }

    /// Whether an operation with so many uses does not fit behind those that are held.
    #[inline]
    pub(super) fn is_full(&self, uses: usize) -> bool {
        self.ops.len() >= OPS || self.next_use.wrapping_sub(self.first_use) + uses > self.uses.len()
    }

    /// Appends an operation with at most so many uses. If it does not fit, nothing else is held.
    #[inline]
    pub(super) fn push(&mut self, mut op: Op, uses: impl Iterator<Item = Use>, most: usize) -> LogPosition {
        if self.is_full(most) {
            self.allocate(most);
        }
        let mask = self.uses.len() - 1;
        for used in uses.take(most) {
            self.uses[self.next_use & mask] = used;
            self.next_use = self.next_use.wrapping_add(1);
            op.uses += 1;
        }
        self.ops.push_back(op);
        self.first + (self.ops.len() - 1) as u64
    }

    /// Makes room for an operation, the first of all, or one that has more uses than there is room for.
    #[cold]
    fn allocate(&mut self, uses: usize) {
        debug_assert!(self.ops.is_empty());
        self.ops.reserve_exact(OPS);
        let nothing = Use::new(BufferId::from_raw(0), 0..0, Touch::Read);
        self.uses = vec![nothing; uses.next_power_of_two().max(USES)];
        (self.first_use, self.next_use) = (0, 0);
    }

    #[inline]
    pub(super) fn front(&self) -> Option<&Op> {
        self.ops.front()
    }

    /// Takes the first operation and its uses.
    pub(super) fn pop(&mut self) -> Option<(Op, Uses)> {
        let first_use = self.first_use;
        let op = self.skip()?;
        let mask = self.uses.len() - 1;
        let uses = (0..op.uses as usize).map(|index| self.uses[first_use.wrapping_add(index) & mask]).collect();
        Some((op, uses))
    }

    /// Takes the first operation without its uses.
    #[inline]
    pub(super) fn skip(&mut self) -> Option<Op> {
        let op = self.ops.pop_front()?;
        self.first += 1;
        self.first_use = self.first_use.wrapping_add(op.uses as usize);
        Some(op)
    }

    /// Notes that the launch at a place is known to have failed or not. A place of zero stands for all
    /// operations of the launch, wherever they are.
    pub(super) fn close(&mut self, place: LogPosition, launch: LaunchId) {
        if place == 0 {
            self.ops.iter_mut().filter(|op| op.is_of(launch)).for_each(|op| op.is_open = false);
            return;
        }
        let index = place.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
        if let Some(op) = index.and_then(|index| self.ops.get_mut(index)).filter(|op| op.is_of(launch)) {
            op.is_open = false;
        }
    }
}
