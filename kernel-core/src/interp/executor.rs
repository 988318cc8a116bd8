//! A program's registers and arena, and the loop that runs it on them, turn by turn.
//!
//! A register holds a uniform value, a formula ([`Affine`]) or elements in memory. Uniform values are computed
//! once, formulas by their coefficients, and either is written out as elements only when an operation needs them.
//! Scalars are always uniform values.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::{self, NonNull};

use crate::ir::{CounterKind, ParamId, Span};

use super::affine::{Affine, MAX_RANK};
use super::buffers::{Buffer, TensorMemory};
use super::code::{Code, ParamPlan};
use super::fault::{Fault, FaultKind};
use super::gpu_state::Gpu;
use super::instructions::Inst;
use super::lanes::Bits;
use super::registers::{Pc, RegId, RegInfo};
use super::turn::{Deadline, LoopState, Pause, Turn};

/// What all threads of a launch share.
pub(super) struct Launch<'a> {
    pub code: &'a Code,
    /// Buffers by parameter.
    pub buffers: Vec<Option<Buffer>>,
    /// Tensors by parameter.
    pub tensors: Vec<Option<TensorMemory>>,
    /// Values of scalar parameters and of the starts of buffers, by parameter.
    pub scalars: Vec<Bits>,
    pub grid: [u32; 3],
    /// Whether unordered accesses to shared memory are faults.
    pub ordered: bool,
    /// When its programs are stopped, if they have not ended.
    pub deadline: Option<Deadline>,
    /// Who gets the lines that it prints.
    pub prints: fn(&str),
}

/// What a register holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// One value everywhere.
    Splat(Bits),
    /// A formula of the coordinates.
    Affine(Affine),
    /// Elements in memory.
    Dense,
}

/// A register.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reg {
    pub form: Form,
    /// The elements, or null if they are not written out.
    pub data: *const u8,
    /// Where they are written to.
    pub home: *mut u8,
    /// How many there are: fixed but in regions that combine elements.
    pub n: usize,
    /// Whether the elements lie in a buffer that no one writes during the launch.
    pub view: bool,
    /// The product in flight that the elements will be, or 0.
    pub flight: u64,
}

/// Why a stretch of instructions ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Exit {
    /// The program returned.
    Returned,
    /// A region that combines elements, or a warp group, is done.
    RegionEnd,
    /// A fault ended the program.
    Stopped,
    /// The wait there has to wait; `moved` says whether anything ran before it.
    Blocked { at: Pc, moved: bool },
    /// The turn ended: at its `pause`.
    Paused,
}

/// Where execution goes after an instruction.
pub(super) enum Flow {
    Next,
    Goto(Pc),
    Exit(Exit),
    /// The instruction has to wait for other warp groups.
    Wait,
}

/// Zeroed memory that is freed with its owner.
struct Arena {
    start: NonNull<u8>,
    layout: Layout,
}

impl Arena {
    fn new(bytes: usize) -> Option<Arena> {
        let layout = Layout::from_size_align(bytes.max(64), 64).ok()?;
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Arena { start, layout })
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout by `new`.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// The state of a program, which another one takes over when it ends.
pub(super) struct Executor<'a> {
    pub launch: &'a Launch<'a>,
    pub code: &'a Code,
    pub regs: Vec<Reg>,
    arena: Arena,
    pub(super) loops: Vec<LoopState>,
    pub program_id: [u32; 3],
    /// How often the program has looked at a clock.
    looks: i128,
    /// The first fault of the program that runs.
    pub fault: Option<Fault>,
    pub gpu: Gpu,
    pub turn: Turn,
}

impl<'a> Executor<'a> {
    /// An executor for programs of the launch; `None` if there is no memory for its tiles.
    pub(super) fn new(launch: &'a Launch<'a>) -> Option<Executor<'a>> {
        let code = launch.code;
        let arena = Arena::new(code.arena_bytes)?;
        let regs = code
            .regs
            .iter()
            .map(|info| Reg {
                form: Form::Splat(Bits::ZERO),
                data: ptr::null(),
                // SAFETY: every place that `Storage` gave out lies within `arena_bytes`.
                home: unsafe { arena.start.as_ptr().add(info.offset) },
                n: info.n,
                view: false,
                flight: 0,
            })
            .collect();
        let mut executor = Executor {
            launch,
            code,
            regs,
            arena,
            loops: vec![LoopState::default(); code.loops],
            program_id: [0; 3],
            looks: 0,
            fault: None,
            gpu: Gpu::new(launch.ordered),
            turn: Turn::new(1, None),
        };
        for (plan, &bits) in code.params.iter().zip(&launch.scalars) {
            let (ParamPlan::Buffer { reg, .. }
            | ParamPlan::Tensor { reg, .. }
            | ParamPlan::Extent { reg, .. }
            | ParamPlan::Scalar { reg, .. }
            | ParamPlan::Length { reg, .. }
            | ParamPlan::Null { reg }) = *plan;
            executor.set_splat(reg, bits);
        }
        Some(executor)
    }

    /// Makes the next turn the first one of that program. What the last one left behind is forgotten.
    pub(super) fn begin(&mut self, program_id: [u32; 3]) {
        self.program_id = program_id;
        self.looks = 0;
        self.fault = None;
        self.gpu = Gpu::new(self.launch.ordered);
    }

    /// Runs the program from `from` for one turn of so many iterations. `None` if it has ended; its first fault is then
    /// in `fault`.
    pub(super) fn run_turn(&mut self, from: Pc, iterations: u32) -> Option<Pause> {
        self.turn = Turn::new(iterations, self.launch.deadline);
        match self.exec(from) {
            Exit::Paused => return Some(self.turn.pause),
            Exit::Blocked { at, .. } => self.deadlock(at),
            Exit::Returned | Exit::RegionEnd | Exit::Stopped => {}
        }
        for store in self.gpu.unfinished_stores() {
            self.finish_store(&store, false);
        }
        None
    }

    /// Runs from `pc` until something ends it.
    pub(super) fn exec(&mut self, mut pc: Pc) -> Exit {
        let code = self.code;
        let mut moved = false;
        loop {
            match self.step(pc, &code.insts[pc.index()]) {
                Flow::Next => pc = pc.next(),
                Flow::Goto(to) => pc = to,
                Flow::Exit(exit) => return exit,
                Flow::Wait => return Exit::Blocked { at: pc, moved },
            }
            moved = true;
        }
    }

    fn step(&mut self, pc: Pc, inst: &Inst) -> Flow {
        match inst {
            Inst::Const { out, bits } => self.set_splat(*out, *bits),
            Inst::ProgramId { out, axis } => self.set_u32(*out, self.program_id[usize::from(*axis)]),
            Inst::NumPrograms { out, axis } => self.set_u32(*out, self.launch.grid[usize::from(*axis)]),
            Inst::Counter { out, which } => self.counter(*out, *which),
            Inst::Arange { out, lo } => self.arange(*out, *lo),
            Inst::Splat { out, scalar } => self.set_splat(*out, self.scalar(*scalar)),
            Inst::Unary { f, a, out } => self.unary(*f, *a, *out),
            Inst::Cast { f, a, out } => self.cast(*f, *a, *out),
            Inst::Binary { f, symbolic, a, b, out } => self.binary(*f, *symbolic, *a, *b, *out),
            Inst::Compare { f, op, a, b, out } => self.compare(*f, *op, *a, *b, *out),
            Inst::Select { f, condition, a, b, out } => self.select(*f, *condition, *a, *b, *out),
            Inst::Fma { f, a, b, c, out } => self.ternary(*f, *a, *b, *c, *out),
            Inst::Move { a, out } => self.copy_value(*a, *out),
            Inst::CopyLanes { a, out } => self.copy_lanes(*a, *out),
            Inst::ExpandDims { a, out, axis } => self.expand_dims(*a, *out, usize::from(*axis)),
            Inst::Broadcast { a, out, strides } => self.broadcast(*a, *out, strides),
            Inst::Reshape { a, out } => self.reshape(*a, *out),
            Inst::Permute { a, out, perm, strides } => self.permute(*a, *out, perm, strides),
            Inst::Take { out, from, strides } => self.take(*out, from, strides),
            Inst::Load(load) => self.load(pc, load),
            Inst::Store(store) => self.store(pc, store),
            Inst::Atomic(atomic) => self.atomic(pc, atomic),
            Inst::CheckBounds(check) => self.check_bounds(pc, check),
            Inst::ByIndex(by_index) => self.by_index(by_index),
            Inst::Histogram(histogram) => self.histogram(histogram),
            Inst::Sort(sort) => self.sort(sort),
            Inst::Dot(dot) => self.dot(dot),
            Inst::DotScaled(dot) => self.dot_scaled(dot),
            Inst::Block { block, access } => self.block(block, *access),
            Inst::Rows(rows) => self.rows(rows),
            Inst::Hint(hint) => return self.hint(pc, hint),
            Inst::Fold(fold) => return self.fold(pc, fold),
            Inst::Map(map) => return self.map(map),
            Inst::Assert { condition, message } => return self.assert(pc, *condition, message),
            Inst::Print(print) => self.print(print),
            Inst::ForBegin { state, bounds, index, exit } => return self.for_begin(*state, bounds, *index, *exit),
            Inst::ForNext { state, index, body } => return self.for_next(pc, *state, *index, *body),
            Inst::Again { to, waits } => return self.again(pc, *to, *waits),
            Inst::BranchUnless { condition, to } if !self.scalar(*condition).to_bool() => return Flow::Goto(*to),
            Inst::BranchUnless { .. } => {}
            Inst::Jump { to } => return Flow::Goto(*to),
            Inst::RegionEnd => return Flow::Exit(Exit::RegionEnd),
            Inst::Return => return Flow::Exit(Exit::Returned),
            Inst::Exchange { steps } => return self.exchange(pc, steps),
            Inst::SharedAlloc { out, offset, bytes } => self.shared_alloc(*out, *offset, *bytes),
            Inst::SharedIndex { view, index, out, count, bytes, element } => {
                return self.shared_index(pc, *view, *index, *out, (*count, *bytes, *element));
            }
            Inst::SharedPermute { view, out, dims, perm } => self.shared_permute(*view, *out, dims, perm),
            Inst::SharedLoad { view, out, holders } => self.shared_load(pc, *view, *out, *holders),
            Inst::SharedStore { view, value, holders } => self.shared_store(pc, *view, *value, *holders),
            Inst::Barrier => {
                self.barrier_all();
                return self.all_come(pc);
            }
            Inst::WarpgroupBarrier => self.warpgroup_barrier(),
            Inst::TurnBegin => return self.turn_begin(pc),
            Inst::TurnEnd => return self.turn_end(pc),
            Inst::ProxyFence => self.proxy_fence(),
            Inst::AsyncCopy { view, load, token, layout } => self.async_copy(pc, *view, load, *token, *layout),
            Inst::AsyncCommit { token } => self.async_commit(*token),
            Inst::AsyncWait { token, pending } => self.async_wait(*token, *pending),
            Inst::MbarrierAlloc { out, slots, count } => self.mbarrier_alloc(*out, *slots, *count),
            Inst::MbarrierArrive { barrier, slot, bytes } => return self.mbarrier_arrive(pc, *barrier, *slot, *bytes),
            Inst::MbarrierWait { barrier, slot, phase } => return self.mbarrier_wait(pc, *barrier, *slot, *phase),
            Inst::Wgmma(wgmma) => self.wgmma(pc, wgmma),
            Inst::WgmmaWait { tiles, pending } => self.wgmma_wait(tiles, *pending),
            Inst::TmaLoad { block, view, barrier, slot } => return self.tma_load(pc, block, *view, *barrier, *slot),
            Inst::TmaStore { block, view, reduce, parts } => self.tma_store(pc, block, *view, *reduce, *parts),
            Inst::TmaStoreWait { pending } => self.tma_store_wait(*pending),
            Inst::WarpGroups { entries, exit } => return self.warp_groups(pc, entries, *exit),
        }
        Flow::Next
    }

    fn assert(&mut self, pc: Pc, condition: RegId, message: &str) -> Flow {
        let holds = match self.regs[condition.index()].form {
            Form::Splat(bits) => bits.to_bool() || self.regs[condition.index()].n == 0,
            Form::Affine(_) | Form::Dense => {
                let (data, n) = (self.dense(condition), self.regs[condition.index()].n);
                // SAFETY: `dense` returns `n` elements, here bytes.
                unsafe { std::slice::from_raw_parts(data, n) }.iter().all(|&b| b != 0)
            }
        };
        if holds { Flow::Next } else { self.stop(pc, FaultKind::Assert { message: message.to_string() }) }
    }

    /// Records a fault, unless the program already has one.
    pub(super) fn report(&mut self, pc: Pc, kind: FaultKind) {
        if self.fault.is_none() {
            let span = self.code.spans.get(pc.index()).copied().unwrap_or(Span::UNKNOWN);
            self.fault = Some(Fault::new(kind, span, self.program_id));
        }
    }

    /// Records a fault and ends the program.
    pub(super) fn stop(&mut self, pc: Pc, kind: FaultKind) -> Flow {
        self.report(pc, kind);
        Flow::Exit(Exit::Stopped)
    }

    pub(super) fn info(&self, reg: RegId) -> &'a RegInfo {
        &self.code.regs[reg.index()]
    }

    pub(super) fn reg(&self, reg: RegId) -> &Reg {
        &self.regs[reg.index()]
    }

    pub(super) fn buffer(&self, param: ParamId) -> Buffer {
        self.launch.buffers.get(param.index()).copied().flatten().unwrap_or(Buffer::EMPTY)
    }

    /// The value of a scalar register.
    pub(super) fn scalar(&self, reg: RegId) -> Bits {
        match self.reg(reg).form {
            Form::Splat(bits) => bits,
            // Scalars are always uniform.
            Form::Affine(_) | Form::Dense => Bits::ZERO,
        }
    }

    /// A place in the arena.
    pub(super) fn arena(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset <= self.arena.layout.size());
        // SAFETY: instructions name only places that `Storage` gave out, which lie within the arena.
        unsafe { self.arena.start.as_ptr().add(offset) }
    }

    pub(super) fn set_splat(&mut self, out: RegId, bits: Bits) {
        let reg = &mut self.regs[out.index()];
        reg.form = Form::Splat(bits);
        reg.data = ptr::null();
        reg.flight = 0;
    }

    pub(super) fn set_affine(&mut self, out: RegId, affine: Affine) {
        let reg = &mut self.regs[out.index()];
        reg.form = Form::Affine(affine);
        reg.data = ptr::null();
        reg.flight = 0;
    }

    /// The elements have been written to the register's home.
    pub(super) fn set_dense(&mut self, out: RegId) {
        let info = self.info(out);
        let reg = &mut self.regs[out.index()];
        reg.view = false;
        reg.flight = 0;
        if info.dims.is_empty() {
            let mut bits = Bits::ZERO;
            // SAFETY: a scalar's home holds one element of at most eight bytes.
            unsafe { ptr::copy_nonoverlapping(reg.home, bits.as_mut_ptr(), info.lane.bytes()) };
            reg.form = Form::Splat(bits);
            reg.data = ptr::null();
        } else {
            reg.form = Form::Dense;
            reg.data = reg.home;
        }
    }

    /// The elements lie elsewhere.
    pub(super) fn set_data(&mut self, out: RegId, data: *const u8, view: bool) {
        let reg = &mut self.regs[out.index()];
        reg.form = Form::Dense;
        reg.data = data;
        reg.view = view;
        reg.flight = 0;
    }

    /// Time is how often the program has asked, so that it rises and is the same in each run; there is one SM.
    fn counter(&mut self, out: RegId, which: CounterKind) {
        match which {
            CounterKind::Clock | CounterKind::GlobalTimer => {
                self.looks += 1;
                self.set_int(out, self.looks);
            }
            CounterKind::Smid => self.set_u32(out, 0),
        }
    }

    fn set_u32(&mut self, out: RegId, value: u32) {
        self.set_splat(out, Bits::from_raw(u64::from(value), 4));
    }

    pub(super) fn set_int(&mut self, out: RegId, value: i128) {
        let bytes = self.info(out).lane.bytes();
        self.set_splat(out, Bits::from_raw(value as u64, bytes));
    }

    /// The formula of an integer or pointer register, if it has one.
    pub(super) fn affine(&self, reg: RegId) -> Option<Affine> {
        let info = self.info(reg);
        if info.dims.len() > MAX_RANK {
            return None;
        }
        match self.reg(reg).form {
            Form::Affine(affine) => Some(affine),
            Form::Splat(bits) => {
                info.lane.int_range()?;
                Some(Affine::uniform(i64::try_from(bits.to_int(info.lane.dtype())).ok()?))
            }
            Form::Dense => None,
        }
    }

    /// The register's elements, written out if they are not yet.
    pub(super) fn dense(&mut self, id: RegId) -> *const u8 {
        let info = self.info(id);
        let reg = &mut self.regs[id.index()];
        if !reg.data.is_null() {
            return reg.data;
        }
        let bytes = info.lane.bytes();
        match reg.form {
            // SAFETY: the home holds `n` elements of that size.
            Form::Splat(bits) => unsafe { fill(reg.home, bits, bytes, reg.n) },
            Form::Affine(affine) => match bytes {
                // SAFETY: the home holds the elements of the register's shape.
                1 => unsafe { write_affine(reg.home, &affine, &info.dims, |x| x as u8) },
                // SAFETY: as above.
                2 => unsafe { write_affine(reg.home, &affine, &info.dims, |x| x as u16) },
                // SAFETY: as above.
                4 => unsafe { write_affine(reg.home, &affine, &info.dims, |x| x as u32) },
                // SAFETY: as above.
                _ => unsafe { write_affine(reg.home, &affine, &info.dims, |x| x as u64) },
            },
            Form::Dense => {}
        }
        reg.data = reg.home;
        reg.view = false;
        reg.data
    }
}

/// Writes one value `n` times.
///
/// # Safety
/// `out` must be valid for writes of `n` elements of `bytes` bytes, and aligned for them.
pub(super) unsafe fn fill(out: *mut u8, bits: Bits, bytes: usize, n: usize) {
    /// # Safety
    /// As of `fill`.
    unsafe fn with<T: Copy>(out: *mut u8, value: T, n: usize) {
        // SAFETY: promised by the caller; the arena is initialised.
        unsafe { std::slice::from_raw_parts_mut(out.cast::<T>(), n) }.fill(value);
    }
    let raw = bits.to_raw(bytes);
    // SAFETY: promised by the caller.
    unsafe {
        match bytes {
            1 => with(out, raw as u8, n),
            2 => with(out, raw as u16, n),
            4 => with(out, raw as u32, n),
            _ => with(out, raw, n),
        }
    }
}

/// Writes the elements of a formula.
///
/// # Safety
/// `out` must be valid for writes of the shape's elements of type `T`, and aligned for them.
unsafe fn write_affine<T: Copy>(out: *mut u8, affine: &Affine, dims: &[usize], narrow: impl Fn(i64) -> T) {
    if dims.contains(&0) {
        return;
    }
    let rows = affine.rows(dims);
    affine.for_each_row(dims, rows, |lane, start| {
        // SAFETY: rows partition the shape's elements.
        let row = unsafe { std::slice::from_raw_parts_mut(out.cast::<T>().add(lane), rows.len) };
        let mut value = start;
        for element in row {
            *element = narrow(value);
            value = value.wrapping_add(rows.step);
        }
    });
}
