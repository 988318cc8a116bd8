//! Whether accesses to shared memory are ordered: what a GPU's threads, copy engines and tensor cores do at the same
//! time must not meet.
//!
//! The interpreter runs a program as one thread per warp group, in which a missing barrier would go unnoticed. Here
//! every access is remembered with the clock of its group, and a later one that overlaps it has to come after it:
//!
//! - within a group because of a `barrier` in between, or because the same thread does both (one layout, one view), or
//!   because the same four warps do both (they divide the view alike) and meet in between;
//! - between groups because the earlier group arrived at a barrier with phases that the later one has waited for;
//! - behind a copy or product that reads or writes the memory until its wait, because of that wait.
//!
//! Ordinary loads and stores and asynchronous operations reach shared memory by different ways (proxies). What ordinary
//! stores wrote, products and tensor stores see only behind a proxy fence of the threads that stored; and a tensor copy
//! may overtake ordinary loads and stores that a barrier alone put before it: a load may still be on its way when its
//! thread passes the barrier. Either way the fence stands between the access and the barrier.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::ir::{LayoutId, Span};
use crate::layout::SyncScope;

use super::registers::{Holders, Parts};

/// Who accesses memory: a warp group, by the number of its queue, or the copies that a barrier counts.
pub(super) type Agent = u64;

/// Agents from here on are barriers, by position.
const BARRIERS: Agent = 1 << 32;

/// All threads of the program, before warp groups began or ended.
const EARLIER: Agent = Agent::MAX;

/// What tells who accesses which element of a view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Owner {
    /// The same threads do if the layout of the tile and the view are the same.
    thread: Option<(LayoutId, u64)>,
    /// The same four warps do if they divide the same view alike.
    warps: Option<(Parts, u64)>,
}

impl Owner {
    /// Nobody knows.
    pub(super) const UNKNOWN: Owner = Owner { thread: None, warps: None };

    /// Those who hold the tile that is in a view.
    pub(super) fn of(holders: Holders, view: u64) -> Owner {
        let Holders { layout, parts } = holders;
        Owner { thread: layout.map(|layout| (layout, view)), warps: parts.map(|parts| (parts, view)) }
    }
}

/// How many barriers have been passed: of all threads of a group, and those of each four warps besides.
#[derive(Clone, Copy, Default, Debug)]
struct Passed {
    all: u64,
    any: u64,
}

/// An access that is over.
#[derive(Clone, Debug)]
struct PastAccess {
    bytes: Range<usize>,
    write: bool,
    agent: Agent,
    /// The agent's clock then.
    clock: u64,
    /// How many barriers its group had passed.
    barriers: Passed,
    owner: Owner,
    span: Span,
}

/// An access that goes on until it is waited for.
#[derive(Clone, Debug)]
struct Flight {
    id: u64,
    bytes: Range<usize>,
    write: bool,
    span: Span,
}

/// An ordinary access that asynchronous operations do not know of yet.
#[derive(Clone, Debug)]
struct Unfenced {
    bytes: Range<usize>,
    write: bool,
    agent: Agent,
    /// The agent's clock and barriers at its first fence since; whoever knows of these knows of the access.
    fenced: Option<(u64, Passed)>,
    owner: Owner,
    span: Span,
}

/// What a group knows of others.
#[derive(Clone, Default, Debug)]
struct Group {
    barriers: Passed,
    clock: u64,
    /// Of each other agent, the clock up to which what it did came before.
    seen: BTreeMap<Agent, u64>,
}

/// What arrivals at a barrier bring those who wait: in the current phase, and in phases before.
#[derive(Default, Debug)]
struct Released {
    current: BTreeMap<Agent, u64>,
    before: BTreeMap<Agent, u64>,
}

/// How shared memory is accessed.
#[derive(Clone, Copy)]
pub(super) struct Touch {
    pub(super) write: bool,
    /// Whether by the asynchronous proxy, as tensor copies and `wgmma` do.
    pub(super) asynchronous_proxy: bool,
    pub(super) owner: Owner,
}

/// The accesses of a program so far.
#[derive(Default, Debug)]
pub(super) struct Order {
    accesses: Vec<PastAccess>,
    flights: Vec<Flight>,
    unfenced: Vec<Unfenced>,
    groups: BTreeMap<Agent, Group>,
    released: BTreeMap<Agent, Released>,
    next: u64,
}

fn meet(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

fn join(into: &mut BTreeMap<Agent, u64>, from: &BTreeMap<Agent, u64>) {
    for (&agent, &clock) in from {
        let known = into.entry(agent).or_default();
        *known = clock.max(*known);
    }
}

/// ` at 3:4`, if the place is known.
fn at(span: Span) -> String {
    if span == Span::UNKNOWN { String::new() } else { format!(" at {span}") }
}

impl Order {
    fn group(&mut self, agent: Agent) -> &mut Group {
        self.groups.entry(agent).or_default()
    }

    /// Whether something that `by` did at that clock, before its group's `barriers`, comes before what `agent` does
    /// now.
    fn before(&self, by: Agent, clock: u64, barriers: Passed, agent: Agent) -> bool {
        let Some(group) = self.groups.get(&agent) else { return false };
        match by == agent {
            true => barriers.all < group.barriers.all,
            false => group.seen.get(&by).is_some_and(|&seen| seen >= clock),
        }
    }

    /// Whether an access of the same group is one by the same thread, or one by the same four warps, which have met
    /// since.
    fn is_own(&self, other: &PastAccess, agent: Agent, bytes: &Range<usize>, owner: Owner) -> bool {
        let passed = self.groups.get(&agent).map_or(0, |group| group.barriers.any);
        let by_thread = owner.thread.is_some() && owner.thread == other.owner.thread;
        let by_warps = owner.warps.is_some() && owner.warps == other.owner.warps && other.barriers.any < passed;
        other.agent == agent && other.bytes == *bytes && (by_thread || by_warps)
    }

    /// An access that is over at once. Returns what it meets.
    pub(super) fn access(
        &mut self,
        agent: Agent,
        bytes: Range<usize>,
        write: bool,
        owner: Owner,
        span: Span,
    ) -> Result<(), String> {
        let verdict = self.meets(agent, &bytes, write, owner);
        self.record(agent, bytes, write, owner, span);
        verdict
    }

    /// What an access would meet.
    fn meets(&mut self, agent: Agent, bytes: &Range<usize>, write: bool, owner: Owner) -> Result<(), String> {
        self.group(agent);
        let what = if write { "is written" } else { "is read" };
        let flying = self.flights.iter().find(|f| (write || f.write) && meet(&f.bytes, bytes));
        if let Some(flight) = flying {
            let doing =
                if flight.write { "an asynchronous copy into it" } else { "an asynchronous operation that reads it" };
            return Err(format!("shared memory {what} while {doing}{} is in flight", at(flight.span)));
        }
        for other in self.accesses.iter().filter(|a| (write || a.write) && meet(&a.bytes, bytes)) {
            let own = self.is_own(other, agent, bytes, owner);
            if !own && !self.before(other.agent, other.clock, other.barriers, agent) {
                let kind = if other.write { "write" } else { "read" };
                let missing = if other.agent == agent { "a barrier" } else { "a wait for the other warps" };
                return Err(format!(
                    "shared memory {what} without {missing} after the {kind} of other threads{}",
                    at(other.span)
                ));
            }
        }
        Ok(())
    }

    fn record(&mut self, agent: Agent, bytes: Range<usize>, write: bool, owner: Owner, span: Span) {
        let Group { clock, barriers, .. } = *self.group(agent);
        self.accesses.retain(|a| !(a.agent == agent && a.write == write && a.bytes == bytes && a.owner == owner));
        self.accesses.push(PastAccess { bytes, write, agent, clock, barriers, owner, span });
    }

    /// An ordinary access, which asynchronous operations know of behind a fence.
    pub(super) fn touched(&mut self, agent: Agent, bytes: Range<usize>, write: bool, owner: Owner, span: Span) {
        self.unfenced.retain(|u| !(u.agent == agent && u.bytes == bytes && u.write == write && u.owner == owner));
        self.unfenced.push(Unfenced { bytes, write, agent, fenced: None, owner, span });
    }

    /// A proxy fence: who comes behind the group's next barrier or arrival knows what it has accessed.
    pub(super) fn fence(&mut self, agent: Agent) {
        let Group { clock, barriers, .. } = *self.group(agent);
        for access in self.unfenced.iter_mut().filter(|u| u.agent == agent || u.agent == EARLIER) {
            access.agent = agent;
            access.fenced.get_or_insert((clock, barriers));
        }
    }

    /// All threads write, meet and read; or those of each warp do.
    pub(super) fn exchange(
        &mut self,
        agent: Agent,
        bytes: Range<usize>,
        scope: SyncScope,
        span: Span,
    ) -> Result<(), String> {
        let verdict = self.access(agent, bytes.clone(), true, Owner::UNKNOWN, span);
        self.touched(agent, bytes.clone(), true, Owner::UNKNOWN, span);
        if scope == SyncScope::Block {
            self.barrier(agent);
        }
        self.touched(agent, bytes.clone(), false, Owner::UNKNOWN, span);
        self.record(agent, bytes, false, Owner::UNKNOWN, span);
        verdict
    }

    /// Whether an asynchronous operation of `agent` may not know of an ordinary access.
    fn is_hidden(&self, access: &Unfenced, agent: Agent, bytes: &Range<usize>, owner: Owner) -> bool {
        let Some((clock, barriers)) = access.fenced else { return true };
        let passed = self.groups.get(&agent).map_or(0, |group| group.barriers.any);
        let by_warps = owner.warps.is_some() && owner.warps == access.owner.warps && barriers.any < passed;
        let own = access.agent == agent && access.bytes == *bytes && by_warps;
        !own && !self.before(access.agent, clock, barriers, agent)
    }

    /// All threads of the group meet.
    pub(super) fn barrier(&mut self, agent: Agent) {
        let passed = &mut self.group(agent).barriers;
        (passed.all, passed.any) = (passed.all + 1, passed.any + 1);
    }

    /// The threads of each four warps meet.
    pub(super) fn warpgroup_barrier(&mut self, agent: Agent) {
        self.group(agent).barriers.any += 1;
    }

    /// Begins an access that goes on; returns what it meets, and a number to end it by.
    pub(super) fn begin(
        &mut self,
        agent: Agent,
        bytes: Range<usize>,
        touch: Touch,
        span: Span,
    ) -> (Result<(), String>, u64) {
        let Touch { write, asynchronous_proxy, owner } = touch;
        let mut verdict = self.meets(agent, &bytes, write, owner);
        if verdict.is_ok() && asynchronous_proxy {
            let meets =
                |u: &&Unfenced| (write || u.write) && meet(&u.bytes, &bytes) && self.is_hidden(u, agent, &bytes, owner);
            if let Some(hidden) = self.unfenced.iter().find(meets) {
                let (what, before) =
                    (if write { "writes" } else { "reads" }, if hidden.write { "write" } else { "read" });
                let place = at(hidden.span);
                verdict = Err(format!(
                    "an asynchronous operation {what} shared memory without a proxy fence and a barrier after the \
                     {before}{place}"
                ));
            }
        }
        if write && asynchronous_proxy {
            self.unfenced.retain(|u| !meet(&u.bytes, &bytes));
        }
        self.next += 1;
        self.flights.push(Flight { id: self.next, bytes, write, span });
        (verdict, self.next)
    }

    /// Ends an access that its group has waited for: it is over for that group's thread that waited.
    pub(super) fn end(&mut self, agent: Agent, id: u64, owner: Owner) {
        let Some(index) = self.flights.iter().position(|f| f.id == id) else { return };
        let flight = self.flights.remove(index);
        self.record(agent, flight.bytes, flight.write, owner, flight.span);
    }

    /// Arrives at a barrier with phases: what the group did before comes before what waits for it.
    pub(super) fn arrive(&mut self, agent: Agent, barrier: usize) {
        let group = self.groups.entry(agent).or_default();
        let mut seen = group.seen.clone();
        seen.insert(agent, group.clock);
        group.clock += 1;
        join(&mut self.released.entry(BARRIERS + barrier as Agent).or_default().current, &seen);
    }

    /// The phase of a barrier is complete, and with it the copies that it counts.
    pub(super) fn complete(&mut self, barrier: usize, phase: u64, copies: &[u64]) {
        let agent = BARRIERS + barrier as Agent;
        self.group(agent).clock = phase;
        for &id in copies {
            self.end(agent, id, Owner::UNKNOWN);
        }
        let released = self.released.entry(agent).or_default();
        let current = std::mem::take(&mut released.current);
        join(&mut released.before, &current);
        released.before.insert(agent, phase);
    }

    /// A wait at a barrier with phases has passed.
    pub(super) fn wait(&mut self, agent: Agent, barrier: usize) {
        let Some(released) = self.released.get(&(BARRIERS + barrier as Agent)) else { return };
        join(&mut self.groups.entry(agent).or_default().seen, &released.before);
    }

    /// Warp groups begin or end: all threads of the program meet.
    pub(super) fn all_meet(&mut self) {
        self.accesses.clear();
        self.groups.clear();
        self.unfenced.retain(|u| u.fenced.is_none());
        self.unfenced.iter_mut().for_each(|u| u.agent = EARLIER);
    }
}
