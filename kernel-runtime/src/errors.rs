//! The errors of one stream's launches that nobody has taken yet.

use crate::error::Error;
use crate::record::LaunchId;
use std::collections::BTreeMap;

/// Errors that are kept at most. A program that never looks at its errors must not fill memory
/// with them.
const LIMIT: usize = 4096;

/// Errors by launch. Each is handed out once; what is left is logged when the queue drops.
#[derive(Debug, Default)]
pub(crate) struct ErrorQueue {
    errors: BTreeMap<LaunchId, Error>,
}

impl ErrorQueue {
    /// Adds the error of a launch. A launch has one: the first stays.
    pub(crate) fn push(&mut self, launch: LaunchId, error: Error) {
        if self.errors.len() >= LIMIT
            && let Some((_, dropped)) = self.errors.pop_first()
        {
            log::error!("{LIMIT} errors of launches wait to be read; the oldest is given up: {dropped}");
        }
        self.errors.entry(launch).or_insert(error);
    }

    /// Takes the error of one launch.
    pub(crate) fn take(&mut self, launch: LaunchId) -> Option<Error> {
        self.errors.remove(&launch)
    }

    /// The launch whose error is the oldest.
    pub(crate) fn oldest(&self) -> Option<LaunchId> {
        self.errors.first_key_value().map(|(launch, _)| *launch)
    }

    /// Takes the oldest error.
    pub(crate) fn take_oldest(&mut self) -> Option<Error> {
        self.errors.pop_first().map(|(_, error)| error)
    }
}

impl Drop for ErrorQueue {
    fn drop(&mut self) {
        for error in self.errors.values() {
            log::error!("a launch failed and nobody read its result or synchronised its stream: {error}");
        }
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
        let mut queue = ErrorQueue::default();
        let [a, b, c] = [(); 3].map(|()| LaunchId::next());
        queue.push(b, error("b"));
        queue.push(a, error("a"));
        queue.push(c, error("c"));
        queue.push(c, error("a second one of the same launch"));
        assert_eq!(queue.take(c), Some(error("c")));
        assert_eq!(queue.take(c), None);
        assert_eq!(queue.oldest(), Some(a));
        assert_eq!(queue.take_oldest(), Some(error("a")));
        assert_eq!(queue.take_oldest(), Some(error("b")));
        assert_eq!(queue.take_oldest(), None);
    }

    #[test]
    fn errors_that_nobody_takes_do_not_pile_up() {
        let mut queue = ErrorQueue::default();
        let ids: Vec<_> = (0..LIMIT + 10).map(|_| LaunchId::next()).collect();
        for id in &ids {
            queue.push(*id, error("x"));
        }
        assert_eq!(queue.errors.len(), LIMIT);
        assert!(queue.take(ids[9]).is_none() && queue.take(ids[LIMIT + 9]).is_some());
    }
}
