//! What the ledger knows: the log, what has come out of it, and the errors.

use super::BufferId;
use super::log::{Kind, Log, LogPosition, Op, Uses};
use super::steps::Steps;
use super::taints::{Launches, Taints};
use super::uses::{Touch, Use};
use crate::error::Error;
use crate::error_queue::ErrorQueue;
use crate::report_slot::LaunchId;
use crate::stream::StreamInner;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Weak};

/// Launches made by hand without a handle whose buffers are remembered, so that more can be added.
const BY_HAND: usize = 64;

#[derive(Debug)]
pub(crate) struct State {
    pub(super) log: Log,
    pub(super) taints: Taints,
    /// Launches in `taints` that may yet prove to have failed, with their streams.
    pub(super) open: BTreeMap<LaunchId, u64>,
    /// Whether `taints` has launches that have ended well.
    is_stale: bool,
    errors: ErrorQueue,
    by_hand: VecDeque<ByHand>,
    /// GPU streams, whose launches can be looked at.
    streams: Vec<(u64, Weak<StreamInner>)>,
}

/// A launch that is made by hand: its buffers are told one by one.
#[derive(Debug)]
struct ByHand {
    launch: LaunchId,
    ends: End,
    uses: Vec<Use>,
}

/// How it becomes known whether a launch by hand has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Its record says so, or its handle.
    Recorded,
    /// It has neither, so somebody says so, or nobody ever does.
    Told,
}

/// What became of a launch.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) launch: LaunchId,
    /// Where it is in the log; zero if it may be there several times.
    pub(crate) place: LogPosition,
    pub(crate) error: Option<Error>,
}

/// What a look at a buffer gives.
pub(super) enum Look {
    Known(Option<Error>),
    /// Launches that are complete, but not known to be, each with its stream.
    Unknown(Vec<(LaunchId, Weak<StreamInner>)>),
}

impl State {
    pub(super) const fn new() -> Self {
        State {
            log: Log::new(),
            taints: Taints::new(),
            open: BTreeMap::new(),
            is_stale: false,
            errors: ErrorQueue::new(),
            by_hand: VecDeque::new(),
            streams: Vec::new(),
        }
    }

    /// The place up to which everything has ended well; `None` if not all that came before the log has.
    #[inline]
    pub(super) fn settled(&self) -> Option<LogPosition> {
        (self.taints.is_empty() && self.open.is_empty()).then(|| self.log.first() - 1)
    }

    /// Whether there are errors that nobody has taken.
    #[inline]
    pub(super) fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// The GPU streams.
    pub(super) fn streams(&self) -> impl Iterator<Item = Weak<StreamInner>> {
        self.streams.iter().map(|(_, stream)| stream.clone())
    }

    /// The contents of a buffer are gone. Gives errors that nobody can read any more.
    pub(super) fn forget(&mut self, buffer: BufferId) -> Vec<Error> {
        let gone = Op::new(Kind::Gone, 0, false);
        self.append(gone, std::iter::once(Use::new(buffer, 0..0, Touch::Write)));
        if !self.errors.has_left() {
            return Vec::new();
        }
        self.apply_all();
        let State { errors, taints, .. } = self;
        errors.take_unread(|launch| taints.has(launch))
    }

    /// The stream has dropped. Gives its errors that nobody can read.
    pub(super) fn remove_stream(&mut self, stream: u64) -> Vec<Error> {
        self.apply_all();
        self.streams.retain(|(id, _)| *id != stream);
        let State { errors, taints, .. } = self;
        let unread = errors.leave(stream, |launch| taints.has(launch));
        self.is_stale |= !unread.is_empty();
        self.purge();
        unread
    }

    /// The launches of the stream can be looked at from now on.
    pub(crate) fn add_stream(&mut self, id: u64, stream: Weak<StreamInner>) {
        self.streams.push((id, stream));
    }

    /// Appends a launch that may prove to have failed once it is complete.
    #[inline]
    pub(crate) fn append_fallible(
        &mut self,
        stream: u64,
        launch: LaunchId,
        uses: impl ExactSizeIterator<Item = Option<Use>>,
    ) -> LogPosition {
        self.append(Op::new(Kind::Fallible(launch), stream, true), ExactUses(uses))
    }

    /// Appends a launch that has ended, with the error of it.
    pub(crate) fn append_ended(
        &mut self,
        stream: u64,
        launch: LaunchId,
        error: Option<Error>,
        uses: impl ExactSizeIterator<Item = Option<Use>>,
    ) -> LogPosition {
        if let Some(error) = error {
            self.errors.push(stream, launch, error);
        }
        self.append(Op::new(Kind::Fallible(launch), stream, false), ExactUses(uses))
    }

    /// Appends a copy between parts of the same length.
    pub(crate) fn append_copy(&mut self, from: Use, to: Use) -> LogPosition {
        self.append(Op::new(Kind::Copy, 0, false), ExactUses([Some(from), Some(to)].into_iter()))
    }

    /// Appends a launch that cannot fail.
    pub(crate) fn append_infallible(&mut self, uses: impl ExactSizeIterator<Item = Option<Use>>) -> LogPosition {
        self.append(Op::new(Kind::Infallible, 0, false), ExactUses(uses))
    }

    /// Appends a replay of a graph, whose launches have the numbers from `first` on.
    pub(crate) fn append_replay(
        &mut self,
        stream: u64,
        first: LaunchId,
        steps: &Arc<Steps>,
        is_open: bool,
        buffers: impl ExactSizeIterator<Item = BufferId>,
    ) -> LogPosition {
        let uses = buffers.map(|buffer| Some(Use::new(buffer, 0..0, Touch::Update)));
        self.append(Op::new(Kind::Replay(first, steps.clone()), stream, is_open), ExactUses(uses))
    }

    #[inline]
    fn append(&mut self, op: Op, uses: impl Iterator<Item = Use>) -> LogPosition {
        // Every caller knows how many there are at most.
        let most = uses.size_hint().1.unwrap_or(0);
        if self.log.is_full(most) {
            self.apply_all();
            self.purge();
        }
        let place = self.log.push(op, uses, most);
        self.trim();
        place
    }

    /// A launch by hand begins.
    pub(crate) fn begin_by_hand(&mut self, launch: LaunchId, ends: End) {
        let is_told = |known: &ByHand| known.ends == End::Told;
        if ends == End::Told
            && self.by_hand.iter().filter(|known| is_told(known)).count() >= BY_HAND
            && let Some(known) = self.by_hand.iter().position(is_told).and_then(|oldest| self.by_hand.remove(oldest))
        {
            // Nobody has told, so it has ended well. An error that comes later is found by synchronising.
            self.resolve(0, Done { launch: known.launch, place: 0, error: None });
        }
        self.by_hand.push_back(ByHand { launch, ends, uses: Vec::new() });
    }

    /// Notes that a launch by hand uses a buffer too.
    pub(crate) fn add_by_hand(&mut self, stream: u64, launch: LaunchId, used: Use) -> LogPosition {
        if !self.by_hand.iter().rev().any(|known| known.launch == launch) {
            self.begin_by_hand(launch, End::Told);
        }
        let known = self.by_hand.iter_mut().rev().find(|known| known.launch == launch);
        let uses = known.map_or(Vec::new(), |known| {
            known.uses.push(used);
            known.uses.clone()
        });
        // Each time with all uses so far, so that whatever is read reaches whatever is written.
        self.append(Op::new(Kind::Fallible(launch), stream, true), uses.into_iter())
    }

    /// Notes how a launch has ended. It is complete.
    pub(crate) fn resolve(&mut self, stream: u64, done: Done) {
        let Done { launch, place, error } = done;
        let is_good = error.is_none();
        if let Some(error) = error {
            self.errors.push(stream, launch, error);
        }
        if place == 0 {
            self.by_hand.retain(|known| known.launch != launch);
        }
        self.log.close(place, launch);
        if self.open.remove(&launch).is_some() && is_good {
            self.is_stale = true;
        }
        self.trim();
        if self.open.is_empty() {
            self.purge();
        }
    }

    /// Notes that replays of a graph, whose launches have the numbers from `first` on, have ended. Errors of them have
    /// been given to `resolve` with the lock held since.
    pub(crate) fn resolve_replay(&mut self, first: LaunchId, launches: u64) {
        self.log.close(0, first);
        let open: Vec<LaunchId> = self.open.range(first..first.plus(launches)).map(|(launch, _)| *launch).collect();
        for launch in open {
            self.open.remove(&launch);
            self.is_stale = true;
        }
        self.trim();
        self.purge();
    }

    /// Adds the error of a launch without saying that it is complete.
    pub(crate) fn push_error(&mut self, stream: u64, launch: LaunchId, error: Error) {
        self.errors.push(stream, launch, error);
    }

    /// Takes the error of a launch.
    pub(crate) fn take(&mut self, launch: LaunchId) -> Option<Error> {
        let error = self.errors.take(launch)?;
        self.is_stale = true;
        self.purge();
        Some(error)
    }

    /// Takes the oldest error of launches on these streams.
    pub(crate) fn take_oldest(&mut self, streams: &[u64]) -> Option<Error> {
        self.take(self.errors.oldest(streams)?)
    }

    pub(super) fn look(&mut self, buffer: BufferId, range: &Range<usize>, examined: &[LaunchId]) -> Look {
        self.apply_all();
        self.purge();
        let mut launches = Launches::new();
        self.taints.collect(buffer, range, &mut launches);
        let stream_of = |launch: &LaunchId| {
            let stream = self.open.get(launch).filter(|_| !examined.contains(launch))?;
            let (_, stream) = self.streams.iter().find(|(id, _)| id == stream)?;
            Some((*launch, stream.clone()))
        };
        let unknown: Vec<_> = launches.iter().filter_map(stream_of).collect();
        if !unknown.is_empty() {
            return Look::Unknown(unknown);
        }
        let failed = launches.into_iter().filter(|launch| self.errors.has(*launch)).min();
        Look::Known(failed.and_then(|launch| self.take(launch)))
    }

    /// Lets operations at the front go whose end is known.
    #[inline]
    fn trim(&mut self) {
        while let Some(op) = self.log.front()
            && !op.is_open
        {
            let has_failed = match &op.kind {
                Kind::Fallible(launch) => self.errors.has(*launch),
                Kind::Replay(first, steps) => self.errors.has_any(*first, steps.len() as u64),
                Kind::Infallible | Kind::Copy | Kind::Gone => false,
            };
            if has_failed || !self.taints.is_empty() {
                self.apply_first();
            } else {
                drop(self.log.skip());
            }
        }
    }

    /// Turns the whole log into taints, those of launches that may yet prove to have failed too.
    pub(super) fn apply_all(&mut self) {
        while self.log.front().is_some() {
            self.apply_first();
        }
    }

    #[cold]
    fn apply_first(&mut self) {
        let Some((op, uses)) = self.log.pop() else { return };
        match &op.kind {
            Kind::Infallible => self.apply(None, &op, &uses),
            Kind::Fallible(launch) => self.apply(Some(*launch), &op, &uses),
            Kind::Copy => {
                debug_assert_eq!(uses.len(), 2);
                if let [from, to] = uses[..] {
                    self.taints.copy(from.buffer, &from.range(), to.buffer, to.range().start);
                }
            }
            Kind::Gone => uses.iter().for_each(|gone| self.taints.remove(gone.buffer)),
            Kind::Replay(first, steps) => {
                for (launch, uses) in steps.launches(*first, &uses) {
                    self.apply(launch, &op, &uses);
                }
            }
        }
    }

    /// What a launch writes depends on it, if it can have failed, and on what all that it reads depends on.
    fn apply(&mut self, own: Option<LaunchId>, op: &Op, uses: &Uses) {
        let mut launches = Launches::new();
        for read in uses.iter().filter(|used| used.touch.reads()) {
            self.taints.collect(read.buffer, &read.range(), &mut launches);
        }
        if let Some(launch) = own {
            if op.is_open {
                self.open.insert(launch, op.stream);
                launches.push(launch);
            } else if self.errors.has(launch) {
                launches.push(launch);
            }
        }
        launches.sort_unstable();
        launches.dedup();
        launches.retain(|launch| self.open.contains_key(launch) || self.errors.has(*launch));
        for written in uses.iter().filter(|used| used.touch.writes()) {
            for launch in &launches {
                self.taints.add(written.buffer, written.range(), *launch);
            }
        }
    }

    /// Drops taints of launches that have ended well, or whose errors have been taken.
    fn purge(&mut self) {
        if std::mem::take(&mut self.is_stale) {
            let State { taints, open, errors, .. } = self;
            taints.retain(|launch| open.contains_key(&launch) || errors.has(launch));
        }
    }
}

/// The uses that there are, of at most as many as there are arguments.
struct ExactUses<I>(I);

impl<I: ExactSizeIterator<Item = Option<Use>>> Iterator for ExactUses<I> {
    type Item = Use;

    #[inline]
    fn next(&mut self) -> Option<Use> {
        loop {
            if let Some(used) = self.0.next()? {
                return Some(used);
            }
        }
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.0.len()))
    }
}
