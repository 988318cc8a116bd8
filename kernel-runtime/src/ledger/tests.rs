//! The ledger against a model that knows for every byte which launches it depends on.

use super::taints::Launches;
use super::*;
use crate::report_slot::LaunchId;
use std::collections::{BTreeMap, BTreeSet};

const STREAMS: u64 = 3;
const BUFFERS: usize = 5;
const BYTES: usize = 6;

fn error(launch: LaunchId) -> Error {
    Error::Llvm { message: launch.get().to_string().into() }
}

/// Pseudo-random numbers: xorshift64*, <https://doi.org/10.18637/jss.v008.i14>.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize) % limit
    }

    fn range(&mut self) -> Range<usize> {
        let start = self.below(BYTES);
        start..start + 1 + self.below(BYTES - start)
    }
}

/// A launch that is not known to be complete.
struct Running {
    stream: u64,
    launch: LaunchId,
    place: LogPosition,
    fails: bool,
}

/// The ledger, and what it should know.
struct Model {
    ledger: Ledger,
    random: Random,
    buffers: Vec<BufferId>,
    /// Of every byte, the failing launches that it depends on.
    depends: Vec<[BTreeSet<LaunchId>; BYTES]>,
    running: Vec<Running>,
    /// The errors that nobody has taken.
    errors: BTreeMap<LaunchId, u64>,
    /// As buffers have them.
    suspect: Vec<LogPosition>,
}

impl Model {
    fn new(seed: u64) -> Self {
        Model {
            ledger: Ledger::new(),
            random: Random(seed * 2 + 1),
            buffers: (0..BUFFERS).map(|_| BufferId::next()).collect(),
            depends: vec![Default::default(); BUFFERS],
            running: Vec::new(),
            errors: BTreeMap::new(),
            suspect: vec![0; BUFFERS],
        }
    }

    /// A launch with random uses; `fails` says how it will end, if it can fail.
    fn launch(&mut self, fails: Option<bool>) {
        let touches = [Touch::Read, Touch::Write, Touch::Update];
        let uses: Vec<(usize, Range<usize>, Touch)> = (0..1 + self.random.below(3))
            .map(|_| (self.random.below(BUFFERS), self.random.range(), touches[self.random.below(3)]))
            .collect();
        let reads_suspect = uses.iter().any(|(b, _, touch)| touch.reads() && self.ledger.is_suspect(self.suspect[*b]));
        let launch = LaunchId::next();
        let mut all: BTreeSet<LaunchId> = BTreeSet::new();
        for (buffer, range, _) in uses.iter().filter(|(.., touch)| touch.reads()) {
            self.depends[*buffer][range.clone()].iter().for_each(|launches| all.extend(launches));
        }
        if fails == Some(true) {
            all.insert(launch);
        }
        for (buffer, range, _) in uses.iter().filter(|(.., touch)| touch.writes()) {
            self.depends[*buffer][range.clone()].iter_mut().for_each(|launches| launches.extend(&all));
        }
        let noted = uses.iter().map(|(b, range, touch)| Some(Use::new(self.buffers[*b], range.clone(), *touch)));
        let stream = 1 + self.random.below(STREAMS as usize) as u64;
        let place = match fails {
            Some(fails) => {
                let place = self.ledger.lock().append_fallible(stream, launch, noted);
                self.running.push(Running { stream, launch, place, fails });
                place
            }
            None if reads_suspect => self.ledger.lock().append_infallible(noted),
            None => return,
        };
        for (buffer, ..) in uses.iter().filter(|(.., touch)| touch.writes()) {
            self.suspect[*buffer] = place;
        }
    }

    /// Copies some bytes.
    fn copy(&mut self) {
        let (from, to, range) = (self.random.below(BUFFERS), self.random.below(BUFFERS), self.random.range());
        let start = self.random.below(BYTES + 1 - range.len());
        if from == to || !self.ledger.is_suspect(self.suspect[from]) {
            return;
        }
        let target = start..start + range.len();
        let copied = self.depends[from][range.clone()].to_vec();
        for (launches, new) in self.depends[to][target.clone()].iter_mut().zip(copied) {
            launches.extend(new);
        }
        let from = Use::new(self.buffers[from], range, Touch::Read);
        self.suspect[to] = self.ledger.lock().append_copy(from, Use::new(self.buffers[to], target, Touch::Write));
    }

    /// Everything that `is_done` picks is known to be complete.
    fn complete(&mut self, is_done: impl Fn(&Running) -> bool) {
        let mut state = self.ledger.lock();
        for Running { stream, launch, place, fails } in self.running.extract_if(.., |running| is_done(running)) {
            state.resolve(stream, Done { launch, place, error: fails.then(|| error(launch)) });
            if fails {
                self.errors.insert(launch, stream);
            }
        }
    }

    fn deliver(&mut self, launch: Option<LaunchId>) {
        let Some(launch) = launch else { return };
        self.errors.remove(&launch);
        for bytes in self.depends.iter_mut().flatten() {
            bytes.remove(&launch);
        }
    }

    /// Reads a part of a buffer, after all that it depends on, which all streams have done.
    fn read(&mut self) {
        let (buffer, range) = (self.random.below(BUFFERS), self.random.range());
        let launches: BTreeSet<LaunchId> = self.depends[buffer][range.clone()].iter().flatten().copied().collect();
        self.complete(|running| launches.contains(&running.launch));
        let oldest = launches.first().copied();
        let is_suspect = self.ledger.is_suspect(self.suspect[buffer]);
        let read = if is_suspect { self.ledger.take_error(self.buffers[buffer], &range) } else { None };
        assert_eq!(read, oldest.map(error));
        self.deliver(oldest);
    }

    fn synchronize(&mut self) {
        let stream = 1 + self.random.below(STREAMS as usize) as u64;
        self.complete(|running| running.stream == stream);
        let oldest = self.errors.iter().find(|(_, on)| **on == stream).map(|(launch, _)| *launch);
        assert_eq!(self.ledger.lock().take_oldest(&[stream]), oldest.map(error));
        self.deliver(oldest);
    }

    fn set(&mut self) {
        let buffer = self.random.below(BUFFERS);
        if self.ledger.is_suspect(self.suspect[buffer]) {
            self.ledger.forget(self.buffers[buffer]);
            self.buffers[buffer] = BufferId::next();
        }
        self.suspect[buffer] = 0;
        self.depends[buffer] = Default::default();
    }

    /// One in `failing` of the launches that can fail does so.
    fn step(&mut self, failing: usize) {
        match self.random.below(20) {
            0 => self.set(),
            1 | 2 => self.read(),
            3 => self.synchronize(),
            4 => {
                let (stream, count) = (1 + self.random.below(STREAMS as usize) as u64, self.random.below(20));
                let of_stream = self.running.iter().filter(|running| running.stream == stream);
                let last = of_stream.map(|running| running.launch).nth(count);
                self.complete(|running| running.stream == stream && last.is_none_or(|last| running.launch <= last));
            }
            5 | 6 => self.copy(),
            7..12 => self.launch(None),
            _ => {
                let fails = self.random.below(failing) == 0;
                self.launch(Some(fails));
            }
        }
    }

    fn finish(&mut self) {
        self.complete(|_| true);
        let streams: Vec<u64> = (1..=STREAMS).collect();
        let mut left: Vec<LaunchId> = self.errors.keys().copied().collect();
        left.reverse();
        while let Some(launch) = left.pop() {
            assert_eq!(self.ledger.lock().take_oldest(&streams), Some(error(launch)));
        }
        assert_eq!(self.ledger.lock().take_oldest(&streams), None);
        assert!(self.suspect.iter().all(|place| !self.ledger.is_suspect(*place)), "nothing is suspect at the end");
        assert!(self.ledger.lock().taints.is_empty());
    }
}

#[test]
fn readers_are_told_what_a_model_says() {
    for seed in 1..400 {
        let mut model = Model::new(seed);
        let failing = [2, 10, 60][seed as usize % 3];
        for _ in 0..300 {
            model.step(failing);
        }
        model.finish();
    }
}

/// Nothing is known to be complete for so long that the log is full several times.
#[test]
fn a_full_log_loses_nothing() {
    for seed in 1..4 {
        let mut model = Model::new(seed);
        for round in 0..9000 {
            let can_fail = model.random.below(8) == 0;
            model.launch(can_fail.then_some(round % 100 == 0));
            if round % 50 == 0 {
                // What has ended well leaves the taints again.
                let stream = 1 + round as u64 / 50 % STREAMS;
                model.complete(|running| running.stream == stream && !running.fails);
            }
        }
        for _ in 0..50 {
            model.read();
        }
        model.finish();
    }
}

#[test]
fn a_log_of_launches_that_end_well_is_empty() {
    let ledger = Ledger::new();
    let buffer = BufferId::next();
    for _ in 0..10_000 {
        let launch = LaunchId::next();
        let uses = || [Some(Use::new(buffer, 0..8, Touch::Update)), None].into_iter();
        let place = ledger.lock().append_fallible(1, launch, uses());
        let next = ledger.lock().append_infallible(uses());
        assert!(ledger.is_suspect(place) && ledger.is_suspect(next));
        ledger.lock().resolve(1, Done { launch, place, error: None });
        assert!(!ledger.is_suspect(next));
    }
    let state = ledger.lock();
    assert!(state.log.front().is_none() && state.taints.is_empty() && state.open.is_empty());
}

/// One stream is idle and nobody looks at its launch, while another goes on: its launches that end well are not kept.
#[test]
fn a_launch_that_nobody_looks_at_does_not_make_others_pile_up() {
    let ledger = Ledger::new();
    let [idle, busy, out] = [(); 3].map(|()| BufferId::next());
    let forgotten = LaunchId::next();
    ledger.lock().append_fallible(1, forgotten, [Some(Use::new(idle, 0..8, Touch::Write))].into_iter());
    for round in 0..20_000 {
        let launch = LaunchId::next();
        let uses = [Some(Use::new(busy, 0..8, Touch::Update)), Some(Use::new(out, 0..8, Touch::Write))].into_iter();
        let place = ledger.lock().append_fallible(2, launch, uses);
        let error = (round == 10_000).then(|| error(launch));
        ledger.lock().resolve(2, Done { launch, place, error });
    }
    let state = ledger.lock();
    let mut launches = Launches::new();
    state.taints.collect(busy, &(0..8), &mut launches);
    assert!(launches.len() <= 1 && state.open.len() == 1, "{launches:?}");
    drop(state);
    assert!(ledger.take_error(out, &(0..8)).is_some() && ledger.take_error(out, &(0..8)).is_none());
    ledger.lock().resolve(1, Done { launch: forgotten, place: 0, error: Some(error(forgotten)) });
    assert_eq!(ledger.take_error(idle, &(0..8)), Some(error(forgotten)));
}

#[test]
fn the_buffers_of_a_launch_by_hand_come_in_any_order() {
    let ledger = Ledger::new();
    let [from, first, second] = [(); 3].map(|()| BufferId::next());
    let bad = LaunchId::next();
    ledger.lock().add_by_hand(1, bad, Use::new(from, 0..8, Touch::Write));
    ledger.lock().resolve(1, Done { launch: bad, place: 0, error: Some(error(bad)) });
    let next = LaunchId::next();
    ledger.lock().add_by_hand(1, next, Use::new(first, 0..8, Touch::Write));
    ledger.lock().add_by_hand(1, next, Use::new(from, 0..8, Touch::Read));
    ledger.lock().add_by_hand(1, next, Use::new(second, 0..8, Touch::Write));
    let mut state = ledger.lock();
    state.apply_all();
    for buffer in [from, first, second] {
        let mut launches = Launches::new();
        state.taints.collect(buffer, &(0..8), &mut launches);
        assert!(launches.contains(&bad), "{buffer:?}");
    }
    drop(state);
    assert_eq!(ledger.take_error(second, &(0..8)), Some(error(bad)));
    assert_eq!(ledger.take_error(first, &(0..8)), None, "it is delivered once");
}

/// A graph may have more buffers than the log has room for.
#[test]
fn an_operation_with_many_buffers_is_held() {
    let ledger = Ledger::new();
    let buffers: Vec<BufferId> = (0..20_000).map(|_| BufferId::next()).collect();
    let bad = LaunchId::next();
    let first = [Some(Use::new(buffers[0], 0..8, Touch::Write))];
    let place = ledger.lock().append_fallible(1, bad, first.into_iter());
    let uses: Vec<_> = buffers.iter().map(|buffer| Some(Use::new(*buffer, 0..8, Touch::Update))).collect();
    ledger.lock().append_infallible(uses.into_iter());
    ledger.lock().resolve(1, Done { launch: bad, place, error: Some(error(bad)) });
    assert_eq!(ledger.take_error(buffers[19_999], &(0..8)), Some(error(bad)));
    assert_eq!(ledger.take_error(buffers[0], &(0..8)), None);
}

#[test]
fn a_launch_with_a_handle_is_remembered_until_it_ends() {
    let ledger = Ledger::new();
    let buffer = BufferId::next();
    let [told, recorded] = [(); 2].map(|()| LaunchId::next());
    ledger.lock().begin_by_hand(recorded, End::Recorded);
    for launch in [told, recorded] {
        ledger.lock().add_by_hand(1, launch, Use::new(buffer, 0..8, Touch::Write));
    }
    for _ in 0..1000 {
        ledger.lock().add_by_hand(1, LaunchId::next(), Use::new(BufferId::next(), 0..8, Touch::Read));
    }
    for launch in [told, recorded] {
        ledger.lock().resolve(1, Done { launch, place: 0, error: Some(error(launch)) });
    }
    assert_eq!(ledger.take_error(buffer, &(0..8)), Some(error(recorded)));
    assert_eq!(ledger.lock().take_oldest(&[1]), Some(error(told)), "it is not lost");
}
