//! The errors of launches that nobody has taken yet.

use crate::error::Error;
use crate::report_slot::LaunchId;
use std::collections::BTreeMap;

/// Errors that are kept at most. A program that never looks at its errors must not fill memory
/// with them.
const LIMIT: usize = 1024;

/// Errors by launch. Each is handed out once.
#[derive(Debug)]
pub(crate) struct ErrorQueue {
    errors: BTreeMap<LaunchId, Found>,
}

#[derive(Debug)]
struct Found {
    /// The stream of the launch; `None` once it has dropped.
    stream: Option<u64>,
    error: Error,
}

impl ErrorQueue {
    pub(crate) const fn new() -> Self {
        ErrorQueue { errors: BTreeMap::new() }
    }

    /// Whether there are none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// Adds the error of a launch. A launch has one: the first stays.
    pub(crate) fn push(&mut self, stream: u64, launch: LaunchId, error: Error) {
        if self.errors.len() >= LIMIT
            && let Some((_, dropped)) = self.errors.pop_first()
        {
            log::error!("{LIMIT} errors of launches wait to be read; the oldest is given up: {}", dropped.error);
        }
        self.errors.entry(launch).or_insert(Found { stream: Some(stream), error });
    }

    /// Whether the launch has failed and nobody has taken its error.
    pub(crate) fn has(&self, launch: LaunchId) -> bool {
        self.errors.contains_key(&launch)
    }

    /// Whether one of `count` launches from `first` on has.
    pub(crate) fn has_any(&self, first: LaunchId, count: u64) -> bool {
        self.errors.range(first..first.plus(count)).next().is_some()
    }

    /// Takes the error of one launch.
    pub(crate) fn take(&mut self, launch: LaunchId) -> Option<Error> {
        self.errors.remove(&launch).map(|found| found.error)
    }

    /// The oldest launch on one of the streams whose error is known.
    pub(crate) fn oldest(&self, streams: &[u64]) -> Option<LaunchId> {
        let is_on = |found: &Found| found.stream.is_some_and(|stream| streams.contains(&stream));
        self.errors.iter().find(|(_, found)| is_on(found)).map(|(launch, _)| *launch)
    }

    /// Leaves the errors of a stream that drops to readers, where `has_readers` says that there may be some; gives the others.
    pub(crate) fn leave(&mut self, stream: u64, has_readers: impl Fn(LaunchId) -> bool) -> Vec<Error> {
        let of_stream = self.errors.iter_mut().filter(|(_, found)| found.stream == Some(stream));
        of_stream.for_each(|(_, found)| found.stream = None);
        self.take_unread(has_readers)
    }

    /// Takes the errors of streams that have dropped which nobody can read any more.
    pub(crate) fn take_unread(&mut self, has_readers: impl Fn(LaunchId) -> bool) -> Vec<Error> {
        let is_unread = |launch: &LaunchId, found: &mut Found| found.stream.is_none() && !has_readers(*launch);
        self.errors.extract_if(.., is_unread).map(|(_, found)| found.error).collect()
    }

    /// Whether a stream with errors that are left has dropped.
    pub(crate) fn has_left(&self) -> bool {
        self.errors.values().any(|found| found.stream.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> Error {
        Error::Llvm { message: text.into() }
    }

    #[test]
    fn errors_are_delivered_once_oldest_first() {
        let mut queue = ErrorQueue::new();
        let [a, b, c] = [(); 3].map(|()| LaunchId::next());
        queue.push(1, b, error("b"));
        queue.push(2, a, error("a"));
        queue.push(1, c, error("c"));
        queue.push(1, c, error("a second one of the same launch"));
        assert!(queue.has_any(a, 1) && queue.has(c));
        assert_eq!(queue.take(c), Some(error("c")));
        assert_eq!(queue.take(c), None);
        assert!(!queue.has_any(c, 1));
        assert_eq!((queue.oldest(&[1, 2]), queue.oldest(&[1]), queue.oldest(&[3])), (Some(a), Some(b), None));
    }

    #[test]
    fn errors_that_nobody_takes_do_not_pile_up() {
        let mut queue = ErrorQueue::new();
        let ids: Vec<_> = (0..LIMIT + 10).map(|_| LaunchId::next()).collect();
        for id in &ids {
            queue.push(1, *id, error("x"));
        }
        assert_eq!(queue.errors.len(), LIMIT);
        assert!(queue.take(ids[9]).is_none() && queue.take(ids[LIMIT + 9]).is_some());
    }

    #[test]
    fn errors_of_a_stream_that_drops_are_left_to_readers() {
        let mut queue = ErrorQueue::new();
        let [a, b, c] = [(); 3].map(|()| LaunchId::next());
        for (stream, launch, text) in [(1, a, "a"), (1, b, "b"), (2, c, "c")] {
            queue.push(stream, launch, error(text));
        }
        assert_eq!(queue.leave(1, |launch| launch == b), [error("a")]);
        assert!(queue.has_left() && queue.oldest(&[1]).is_none());
        assert_eq!(queue.take_unread(|launch| launch == b), []);
        assert_eq!(queue.take_unread(|_| false), [error("b")]);
        assert!(!queue.has_left() && queue.has(c));
    }
}
