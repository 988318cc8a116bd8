//! What streams have been given: operations, each after those that it depends on.
//!
//! Besides doing them in some order the model knows which order was *asked for*. Every operation has a vector clock: of
//! each line of operations that follow each other (a stream, a branch of a graph, the host) how many come before it. Two
//! operations neither of which is before the other may run in either order on a GPU, whatever happens here.

use super::action::Action;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// The line of what the host does.
const HOST: usize = 0;

/// An operation's place in the order that was asked for.
#[derive(Debug)]
pub(crate) struct Point {
    id: u64,
    /// The call that asked for it.
    pub(crate) call: u64,
    line: usize,
    count: u64,
    clock: Vec<u64>,
    done: OnceLock<Instant>,
}

impl Point {
    /// Whether this comes before the other, or is it.
    pub(crate) fn is_before(&self, other: &Point) -> bool {
        other.has_passed(self.line, self.count)
    }

    pub(crate) fn has_passed(&self, line: usize, count: u64) -> bool {
        self.clock.get(line).is_some_and(|passed| *passed >= count)
    }

    /// The line that it is on, and its number there.
    pub(crate) fn place(&self) -> (usize, u64) {
        (self.line, self.count)
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done.get().is_some()
    }

    /// When it was done.
    pub(crate) fn time(&self) -> Option<Instant> {
        self.done.get().copied()
    }
}

/// An operation that has not been done.
struct Op {
    point: Arc<Point>,
    /// Those that it waits for.
    after: Vec<u64>,
    missing: usize,
    action: Action,
}

/// All operations that have not been done.
pub(crate) struct Work {
    last: u64,
    /// Of each line, how many operations it has had.
    lines: Vec<u64>,
    free_lines: Vec<usize>,
    /// What the host knows to be done, or has done itself.
    host: Vec<u64>,
    pending: BTreeMap<u64, Op>,
    ready: BTreeSet<u64>,
    followers: HashMap<u64, Vec<u64>>,
}

impl Work {
    pub(crate) fn new() -> Self {
        Work {
            last: 0,
            lines: vec![0],
            free_lines: Vec::new(),
            host: vec![0],
            pending: BTreeMap::new(),
            ready: BTreeSet::new(),
            followers: HashMap::new(),
        }
    }

    /// A line for operations that follow each other.
    pub(crate) fn new_line(&mut self) -> usize {
        self.free_lines.pop().unwrap_or_else(|| {
            self.lines.push(0);
            self.lines.len() - 1
        })
    }

    /// Lets others have the line. Its operations seem to be before theirs then, which hides mistakes and makes up none.
    pub(crate) fn free_line(&mut self, line: usize) {
        self.free_lines.push(line);
    }

    /// Something that the host does now.
    pub(crate) fn host_point(&mut self, call: u64) -> Arc<Point> {
        self.lines[HOST] += 1;
        self.last += 1;
        let count = self.lines[HOST];
        self.host[HOST] = count;
        let point = Point { id: self.last, call, line: HOST, count, clock: self.host.clone(), done: OnceLock::new() };
        let _ = point.done.set(Instant::now());
        Arc::new(point)
    }

    /// The host knows that this is done.
    pub(crate) fn host_saw(&mut self, point: &Point) {
        join(&mut self.host, &point.clock);
    }

    /// Where an operation would be that were added to a line.
    pub(crate) fn preview(&self, call: u64, line: usize, after: &[Arc<Point>]) -> Point {
        let count = self.lines[line] + 1;
        let mut clock = self.host.clone();
        after.iter().for_each(|point| join(&mut clock, &point.clock));
        if clock.len() <= line {
            clock.resize(line + 1, 0);
        }
        clock[line] = count;
        Point { id: self.last + 1, call, line, count, clock, done: OnceLock::new() }
    }

    /// Adds an operation to a line.
    pub(crate) fn submit(&mut self, call: u64, line: usize, after: &[Arc<Point>], action: Action) -> Arc<Point> {
        let point = Arc::new(self.preview(call, line, after));
        let id = point.id;
        self.last = id;
        self.lines[line] = point.count;
        let mut waits: Vec<u64> = after.iter().filter(|point| !point.is_done()).map(|point| point.id).collect();
        waits.sort_unstable();
        waits.dedup();
        for wait in &waits {
            self.followers.entry(*wait).or_default().push(id);
        }
        if waits.is_empty() {
            self.ready.insert(id);
        }
        self.pending.insert(id, Op { point: point.clone(), missing: waits.len(), after: waits, action });
        point
    }

    /// Those that can be done now.
    pub(crate) fn ready(&self) -> Vec<u64> {
        self.ready.iter().copied().collect()
    }

    /// The first of them.
    pub(crate) fn first_ready(&self) -> Option<u64> {
        self.ready.first().copied()
    }

    /// What must be done before the point, and itself.
    pub(crate) fn leading_to(&self, point: &Point) -> BTreeSet<u64> {
        let (mut found, mut left) = (BTreeSet::new(), vec![point.id]);
        while let Some(id) = left.pop() {
            if let Some(op) = self.pending.get(&id)
                && found.insert(id)
            {
                left.extend(&op.after);
            }
        }
        found
    }

    /// Whether something that is pending does such a thing.
    pub(crate) fn has(&self, such: impl Fn(&Action) -> bool) -> bool {
        self.pending.values().any(|op| such(&op.action))
    }

    /// Takes an operation that is ready, to do it.
    pub(crate) fn take(&mut self, id: u64) -> Option<(Arc<Point>, Action)> {
        self.ready.remove(&id).then(|| self.pending.remove(&id).map(|op| (op.point, op.action)))?
    }

    /// An operation that was taken has been done.
    pub(crate) fn complete(&mut self, point: &Point) {
        let _ = point.done.set(Instant::now());
        for follower in self.followers.remove(&point.id).unwrap_or_default() {
            if let Some(op) = self.pending.get_mut(&follower) {
                op.missing -= 1;
                if op.missing == 0 {
                    self.ready.insert(follower);
                }
            }
        }
    }
}

fn join(clock: &mut Vec<u64>, other: &[u64]) {
    if clock.len() < other.len() {
        clock.resize(other.len(), 0);
    }
    for (own, other) in clock.iter_mut().zip(other) {
        *own = (*own).max(*other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_what_was_asked_for() {
        let mut work = Work::new();
        let (first, second) = (work.new_line(), work.new_line());
        let a = work.submit(0, first, &[], Action::Marker);
        let b = work.submit(0, second, &[], Action::Marker);
        let c = work.submit(0, second, &[b.clone(), a.clone()], Action::Marker);
        assert!(a.is_before(&c) && b.is_before(&c) && a.is_before(&a));
        assert!(!a.is_before(&b) && !b.is_before(&a) && !c.is_before(&a));
        assert_eq!(work.leading_to(&c).len(), 3);
        assert_eq!(work.ready().len(), 2);
        for id in work.ready() {
            let (point, _) = work.take(id).expect("ready");
            work.complete(&point);
        }
        assert_eq!(work.ready().len(), 1);
        // What the host has seen is before what it asks for later.
        let unseen = work.submit(0, first, &[], Action::Marker);
        work.host_saw(&c);
        let seen = work.submit(0, first, &[], Action::Marker);
        assert!(c.is_before(&seen) && !c.is_before(&unseen));
        let host = work.host_point(0);
        assert!(!host.is_before(&seen) && host.is_before(&work.submit(0, first, &[], Action::Marker)));
    }
}
