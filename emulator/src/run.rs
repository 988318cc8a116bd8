//! Threads, memory and what they do together.

use std::collections::BTreeMap;

use super::arithmetic::{bits, compute};
use super::barriers::counts_threads;
use super::code::{Code, Programs};
use super::global::{Global, Touch};
use super::parse::{Instruction, Operand, Program};

pub(super) const WARP: usize = 32;
/// After so many rounds in which nothing happens but waits for barriers with phases, nothing will.
const IDLE: u32 = 10_000;
/// The multiprocessors of the GPU.
const PROCESSORS: u64 = 132;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Ready,
    /// At the instruction at its `pc`, which threads do together.
    Waiting,
    Done,
}

/// An asynchronous copy: where it lands, what, and the group it belongs to once that is committed.
struct Copy {
    to: usize,
    data: Vec<u8>,
    group: Option<u64>,
}

pub(super) struct Thread {
    registers: Vec<u64>,
    pub(super) pc: usize,
    pub(super) state: State,
    /// Copies that have not landed: they do at the wait, and no earlier.
    copies: Vec<Copy>,
    committed: u64,
    /// Whether it has waited for the launches before.
    waited: bool,
}

pub(super) struct Block<'a> {
    pub(super) program: &'a Program,
    launch: &'a Programs<'a>,
    id: [u32; 3],
    pub(super) threads: Vec<Thread>,
    /// Whether the launch may begin before those before it have ended: then what they write is not there before each thread
    /// has waited for it.
    begins_early: bool,
    pub(super) shared: Vec<u8>,
    /// Of barriers with numbers, the threads that have arrived and gone on.
    pub(super) arrivals: BTreeMap<u64, u64>,
}

impl Programs<'_> {
    /// Runs all programs of the grid. Panics where a thread does what it must not.
    pub fn run(&self, memory: &mut dyn Global) {
        let Code { program, begins_early, .. } = self.code;
        let mut random = Random(self.seed | 1);
        for z in 0..self.grid[2] {
            for y in 0..self.grid[1] {
                for x in 0..self.grid[0] {
                    let threads = (0..self.threads).map(|_| Thread::new(program.registers)).collect();
                    // Nothing may be read before it is written.
                    let shared = (0..self.shared_bytes).map(|_| random.next() as u8).collect();
                    let (begins_early, arrivals) = (*begins_early, BTreeMap::new());
                    let block = Block { program, launch: self, id: [x, y, z], threads, begins_early, shared, arrivals };
                    block.run(memory, &mut random);
                }
            }
        }
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }
}

impl Thread {
    fn new(registers: usize) -> Thread {
        Thread {
            registers: vec![0; registers],
            pc: 0,
            state: State::Ready,
            copies: Vec::new(),
            committed: 0,
            waited: false,
        }
    }
}

impl Block<'_> {
    fn run(mut self, memory: &mut dyn Global, random: &mut Random) {
        let count = self.threads.len();
        let mut asleep = random.next();
        let mut idle = 0;
        loop {
            let mut order: Vec<usize> = (0..count).collect();
            for i in (1..count).rev() {
                order.swap(i, (random.next() % (i as u64 + 1)) as usize);
            }
            // Some warps sleep for a while, so that others get far ahead of them.
            if random.next().is_multiple_of(8) {
                asleep = random.next();
            }
            let sleeps = |thread: usize| asleep >> (thread / WARP % 32) & 1 == 1;
            let all_sleep = order.iter().all(|&thread| sleeps(thread) || self.threads[thread].state != State::Ready);
            idle += 1;
            for thread in order {
                if sleeps(thread) && !all_sleep {
                    continue;
                }
                while self.threads[thread].state == State::Ready && !self.is_early(thread) {
                    self.step(thread, memory);
                    idle = 0;
                }
            }
            if self.threads.iter().all(|thread| thread.state == State::Done) {
                return;
            }
            let warps: Vec<Vec<usize>> = (0..count).collect::<Vec<_>>().chunks(WARP).map(<[usize]>::to_vec).collect();
            let mut progress = false;
            for warp in warps {
                progress |= self.together(&warp, false);
            }
            progress |= self.together(&(0..count).collect::<Vec<_>>(), true);
            progress |= self.meet();
            let ready = self.threads.iter().any(|thread| thread.state == State::Ready);
            assert!(progress || (ready && idle < IDLE), "deadlock: {:?}", self.waiting());
            if progress {
                idle = 0;
            }
        }
    }

    fn waiting(&self) -> BTreeMap<usize, (usize, &str)> {
        let mut found = BTreeMap::new();
        for thread in self.threads.iter().filter(|thread| thread.state == State::Waiting) {
            let text = self.program.instructions[thread.pc].text.as_str();
            found.entry(thread.pc).or_insert((0, text)).0 += 1;
        }
        found
    }

    /// Lets threads that all wait at one instruction do it.
    fn together(&mut self, group: &[usize], whole_block: bool) -> bool {
        let running: Vec<usize> = group.iter().copied().filter(|&t| self.threads[t].state != State::Done).collect();
        let Some(&first) = running.first() else { return false };
        let pc = self.threads[first].pc;
        let ready = running.iter().all(|&t| self.threads[t].state == State::Waiting && self.threads[t].pc == pc);
        let program = self.program;
        let Some(instruction) = program.instructions.get(pc).filter(|_| ready) else { return false };
        if counts_threads(instruction) {
            return false;
        }
        let is_block = matches!(instruction.name.as_str(), "bar" | "barrier") && instruction.modifiers[0] != "warp";
        if is_block != whole_block {
            return false;
        }
        assert!(whole_block || running.len() == group.len(), "a part of a warp is gone at: {}", instruction.text);
        if matches!(instruction.name.as_str(), "ldmatrix" | "stmatrix" | "mma" | "wgmma") {
            self.matrix(&running, instruction);
            for &thread in &running {
                self.threads[thread].pc += 1;
                self.threads[thread].state = State::Ready;
            }
            return true;
        }
        let values: Vec<Vec<u64>> = running
            .iter()
            .map(|&t| instruction.operands.iter().map(|operand| self.value(t, operand)).collect())
            .collect();
        for (lane, &thread) in running.iter().enumerate() {
            if let Some(result) = collective(instruction, lane, &values) {
                self.set(thread, &instruction.operands[0], result);
            }
            self.threads[thread].pc += 1;
            self.threads[thread].state = State::Ready;
        }
        true
    }

    pub(super) fn value(&self, thread: usize, operand: &Operand) -> u64 {
        match operand {
            Operand::Register(register) => self.threads[thread].registers[*register],
            Operand::Number(number) => *number,
            Operand::Param(index, byte) => self.launch.params[*index] >> (8 * byte),
            Operand::Special(name) => {
                let axis = match name.rsplit('.').next() {
                    Some("x") => 0,
                    Some("y") => 1,
                    _ => 2,
                };
                match name.split('.').next() {
                    Some("%tid") => {
                        if axis == 0 {
                            thread as u64
                        } else {
                            0
                        }
                    }
                    Some("%ctaid") => u64::from(self.id[axis]),
                    Some("%nsmid") => PROCESSORS,
                    Some("%smid") => 0,
                    // No time passes.
                    Some("%clock64" | "%globaltimer") => 1,
                    _ => u64::from(self.launch.grid[axis]),
                }
            }
            Operand::Address(base, offset) => {
                let base = base.map_or(0, |register| self.threads[thread].registers[register]);
                base.wrapping_add(*offset as u64)
            }
            Operand::Vector(_) | Operand::Label(_) => 0,
        }
    }

    pub(super) fn set(&mut self, thread: usize, operand: &Operand, value: u64) {
        match operand {
            Operand::Register(register) => self.threads[thread].registers[*register] = value,
            other => panic!("{other:?} as a result"),
        }
    }

    fn step(&mut self, thread: usize, memory: &mut dyn Global) {
        let program = self.program;
        let pc = self.threads[thread].pc;
        let instruction = program.instructions.get(pc).expect("the kernel ends with `ret`");
        let runs = instruction
            .guard
            .is_none_or(|(register, wanted)| (self.threads[thread].registers[register] != 0) == wanted);
        if !runs {
            self.threads[thread].pc += 1;
            return;
        }
        match instruction.name.as_str() {
            "ret" => {
                let overtakes = self.begins_early && !self.threads[thread].waited;
                assert!(!overtakes, "a thread ends before the launches before it");
                self.threads[thread].state = State::Done;
            }
            "griddepcontrol" => {
                self.threads[thread].waited |= instruction.modifiers[0] == "wait";
                self.threads[thread].pc += 1;
            }
            "bra" => {
                let Operand::Label(label) = &instruction.operands[0] else { panic!("{}", instruction.text) };
                self.threads[thread].pc = program.labels[label];
            }
            // What does nothing that shows here.
            "fence" => self.threads[thread].pc += 1,
            "wgmma" if instruction.modifiers[0] != "mma_async" => self.threads[thread].pc += 1,
            "bar" | "barrier" if counts_threads(instruction) && instruction.modifiers.iter().any(|m| m == "arrive") => {
                self.threads[thread].pc += 1;
                self.arrive(thread, instruction);
            }
            "bar" | "barrier" | "shfl" | "vote" | "ldmatrix" | "stmatrix" | "mma" | "wgmma" => {
                self.threads[thread].state = State::Waiting
            }
            _ => {
                self.threads[thread].pc += 1;
                self.single(thread, instruction, memory);
            }
        }
    }

    fn single(&mut self, thread: usize, instruction: &Instruction, memory: &mut dyn Global) {
        let has = |name: &str| instruction.modifiers.iter().any(|modifier| modifier == name);
        let operands = &instruction.operands;
        let early = self.begins_early && !self.threads[thread].waited;
        assert!(!(early && has("global")), "before the launches before have ended: {}", instruction.text);
        match instruction.name.as_str() {
            "ld" | "st" => self.access(thread, instruction, memory),
            "cp" => self.copy(thread, instruction, memory),
            "mbarrier" => self.phase_barrier(thread, instruction),
            "atom" if has("shared") => self.update_shared(thread, instruction),
            "red" => self.add_vector(thread, instruction, memory),
            "atom" => {
                let size = (bits(instruction.modifiers.last().expect("a type")) / 8) as usize;
                let sources: Vec<u64> = operands[2..].iter().map(|operand| self.value(thread, operand)).collect();
                let address = self.value(thread, &operands[1]);
                let place = memory.at(address, size, Touch::Update, &instruction.text);
                let old = little(place);
                let new = if has("cas") {
                    if old == sources[0] & width_mask(size) { sources[1] } else { old }
                } else if has("exch") {
                    sources[0]
                } else {
                    let mut as_binary = instruction.clone();
                    let name = instruction
                        .modifiers
                        .iter()
                        .find(|m| ["add", "min", "max", "and", "or", "xor"].contains(&m.as_str()));
                    as_binary.name = name.expect("an operation").clone();
                    compute(&as_binary, &[old, sources[0]]).expect("an operation")
                };
                place.copy_from_slice(&new.to_le_bytes()[..size]);
                self.set(thread, &operands[0], old);
            }
            "setp" if instruction.modifiers.last().is_some_and(|ty| ty.ends_with("x2")) => {
                let mut narrow = instruction.clone();
                let ty = narrow.modifiers.pop().expect("a type");
                narrow.modifiers.push(ty.trim_end_matches("x2").to_string());
                let values: Vec<u64> = operands[2..].iter().map(|operand| self.value(thread, operand)).collect();
                for (half, operand) in operands[..2].iter().enumerate() {
                    let values: Vec<u64> = values.iter().map(|value| value >> (16 * half) & 0xffff).collect();
                    self.set(thread, operand, compute(&narrow, &values).expect("a comparison"));
                }
            }
            "mov" if matches!(operands[0], Operand::Vector(_)) => {
                let Operand::Vector(parts) = &operands[0] else { return };
                let value = self.value(thread, &operands[1]);
                let width = bits(instruction.modifiers.last().expect("a type")) / parts.len() as u32;
                for (i, part) in (0u32..).zip(parts) {
                    self.set(thread, part, value >> (i * width) & width_mask(width as usize / 8));
                }
            }
            "mov" if matches!(operands[1], Operand::Vector(_)) => {
                let Operand::Vector(parts) = &operands[1] else { return };
                let width = bits(instruction.modifiers.last().expect("a type")) / parts.len() as u32;
                let value = (0u32..).zip(parts).fold(0, |word, (i, part)| {
                    word | (self.value(thread, part) & width_mask(width as usize / 8)) << (i * width)
                });
                self.set(thread, &operands[0], value);
            }
            _ => {
                let values: Vec<u64> = operands[1..].iter().map(|operand| self.value(thread, operand)).collect();
                let result = compute(instruction, &values);
                let result = result.unwrap_or_else(|| panic!("an unknown instruction: {}", instruction.text));
                self.set(thread, &operands[0], result);
            }
        }
    }

    /// Whether a thread waits for a phase that is not over.
    fn is_early(&self, thread: usize) -> bool {
        let instruction = &self.program.instructions[self.threads[thread].pc];
        instruction.name == "mbarrier" && instruction.modifiers[0] == "try_wait" && !self.is_over(thread, instruction)
    }

    /// Whether the phase of the parity that a thread waits for is over.
    fn is_over(&self, thread: usize, wait: &Instruction) -> bool {
        let place = self.phase_place(self.value(thread, &wait.operands[1]), &wait.text);
        let parity = self.value(thread, &wait.operands[2]) & 1;
        u64::from(self.shared[place + 7]) != parity
    }

    /// Where a barrier with phases is: 4 bytes for how many still arrive, 3 for how many there are, 1 for the phase.
    fn phase_place(&self, address: u64, text: &str) -> usize {
        let place = (address & 0xffff_ffff) as usize;
        assert!(place.is_multiple_of(8), "shared address {place} is not aligned: {text}");
        assert!(place + 8 <= self.shared.len(), "shared address {place} of {}: {text}", self.shared.len());
        place
    }

    /// `mbarrier`: a new one, an arrival, or a wait, which comes here only once it is over.
    fn phase_barrier(&mut self, thread: usize, instruction: &Instruction) {
        let operands = &instruction.operands;
        match instruction.modifiers[0].as_str() {
            "init" => {
                let place = self.phase_place(self.value(thread, &operands[0]), &instruction.text);
                let count = self.value(thread, &operands[1]);
                self.shared[place..place + 8].copy_from_slice(&(count | count << 32).to_le_bytes());
            }
            "arrive" => {
                assert!(instruction.modifiers[1] != "expect_tx", "no tensor copies: {}", instruction.text);
                let place = self.phase_place(self.value(thread, &operands[1]), &instruction.text);
                let barrier = little(&self.shared[place..place + 8]);
                let (missing, count, phase) = (barrier & 0xffff_ffff, barrier >> 32 & 0xff_ffff, barrier >> 56);
                assert!(missing > 0, "an arrival too many: {}", instruction.text);
                let (missing, phase) = if missing == 1 { (count, phase ^ 1) } else { (missing - 1, phase) };
                let barrier = missing | count << 32 | phase << 56;
                self.shared[place..place + 8].copy_from_slice(&barrier.to_le_bytes());
            }
            "try_wait" => {
                let over = self.is_over(thread, instruction);
                self.set(thread, &operands[0], u64::from(over));
            }
            _ => panic!("an unknown instruction: {}", instruction.text),
        }
    }

    /// `cp.async`: a copy, the end of a group, or a wait.
    fn copy(&mut self, thread: usize, instruction: &Instruction, memory: &mut dyn Global) {
        let operands = &instruction.operands;
        match instruction.modifiers[1].as_str() {
            "commit_group" => {
                let own = &mut self.threads[thread];
                for copy in &mut own.copies {
                    copy.group.get_or_insert(own.committed);
                }
                own.committed += 1;
            }
            "wait_group" => {
                let pending = self.value(thread, &operands[0]);
                let own = &mut self.threads[thread];
                let complete = own.committed.saturating_sub(pending);
                let lands = |copy: &Copy| copy.group.is_some_and(|group| group < complete);
                let (landing, flying) = std::mem::take(&mut own.copies).into_iter().partition(lands);
                own.copies = flying;
                let landing: Vec<Copy> = landing;
                for copy in landing {
                    self.shared[copy.to..copy.to + copy.data.len()].copy_from_slice(&copy.data);
                }
            }
            _ => {
                let size = self.value(thread, &operands[2]) as usize;
                // A predicate: whether to take zeros instead.
                let ignored = operands.get(3).is_some_and(|operand| self.value(thread, operand) != 0);
                let read = if ignored { 0 } else { size };
                let to = (self.value(thread, &operands[0]) & 0xffff_ffff) as usize;
                assert!(to.is_multiple_of(size), "shared address {to} is not aligned: {}", instruction.text);
                let mut data = vec![0; size];
                if read > 0 {
                    let from = self.value(thread, &operands[1]);
                    data[..read].copy_from_slice(&memory.at(from, size, Touch::Load, &instruction.text)[..read]);
                }
                // Nothing may read the place meanwhile.
                self.shared[to..to + size].fill(0xff);
                self.threads[thread].copies.push(Copy { to, data, group: None });
            }
        }
    }

    fn access(&mut self, thread: usize, instruction: &Instruction, memory: &mut dyn Global) {
        let has = |name: &str| instruction.modifiers.iter().any(|modifier| modifier == name);
        let size = (bits(instruction.modifiers.last().expect("a type")) / 8) as usize;
        let is_load = instruction.name == "ld";
        let (values, address) = match is_load {
            true => (&instruction.operands[0], &instruction.operands[1]),
            false => (&instruction.operands[1], &instruction.operands[0]),
        };
        if has("param") {
            let value = self.value(thread, address);
            let is_signed = instruction.modifiers.last().is_some_and(|ty| ty.starts_with('s'));
            let unused = 64 - 8 * size;
            let value = if is_signed { ((value << unused) as i64 >> unused) as u64 } else { value & width_mask(size) };
            self.set(thread, values, value);
            return;
        }
        let list = match values {
            Operand::Vector(list) => list.clone(),
            one => vec![one.clone()],
        };
        let start = self.value(thread, address);
        let total = size * list.len();
        let sources: Vec<u64> = list.iter().map(|operand| self.value(thread, operand)).collect();
        let text = &instruction.text;
        let place: &mut [u8] = if has("shared") {
            let start = (start & 0xffff_ffff) as usize;
            assert!(start.is_multiple_of(total), "shared address {start} is not aligned: {text}");
            let size = self.shared.len();
            self.shared
                .get_mut(start..start + total)
                .unwrap_or_else(|| panic!("shared address {start} of {size}: {text}"))
        } else {
            memory.at(start, total, if is_load { Touch::Load } else { Touch::Store }, text)
        };
        let chunks = place.chunks_mut(size);
        if is_load {
            let is_signed = instruction.modifiers.last().is_some_and(|ty| ty.starts_with('s'));
            let unused = if is_signed { 64 - 8 * size } else { 0 };
            let extended = |value: u64| if is_signed { ((value << unused) as i64 >> unused) as u64 } else { value };
            let loaded: Vec<u64> = chunks.map(|chunk| extended(little(chunk))).collect();
            for (operand, value) in list.iter().zip(loaded) {
                self.set(thread, operand, value);
            }
        } else {
            for (chunk, value) in chunks.zip(sources) {
                chunk.copy_from_slice(&value.to_le_bytes()[..size]);
            }
        }
    }
}

fn width_mask(bytes: usize) -> u64 {
    if bytes >= 8 { u64::MAX } else { (1 << (8 * bytes)) - 1 }
}

pub(super) fn little(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// What an instruction that threads do together gives one of them; `values` are all threads' operands.
fn collective(instruction: &Instruction, lane: usize, values: &[Vec<u64>]) -> Option<u64> {
    let has = |name: &str| instruction.modifiers.iter().any(|modifier| modifier == name);
    let own = &values[lane];
    match instruction.name.as_str() {
        "shfl" => {
            let source = if has("bfly") { lane ^ own[2] as usize } else { own[2] as usize & (WARP - 1) };
            Some(values[source][1])
        }
        "vote" => Some(u64::from(values.iter().any(|v| v[1] != 0))),
        _ if has("red") => {
            let predicate = own.len() - 1;
            Some(u64::from(values.iter().any(|v| v[predicate] != 0)))
        }
        _ => None,
    }
}
