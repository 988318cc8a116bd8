//! The report of a placed kernel: what the kernel shows, and what passes noted beside it.

use std::collections::HashMap;

use kernel_core::backend::nvidia::{Explain, Usage};
use kernel_core::edit::walk;
use kernel_core::ir::{Func, GpuOp, Op, Operation, ParamId, Placed, ShapeOp, Span, StoreMode, ValueId, view};
use kernel_core::layout::Conversion;
use kernel_core::target::Target;

use super::{
    AccessReport, ConversionKind, ConversionReport, LoopReport, Mover, Report, SharedReport, StayReport, TensorReport,
    WaitReport, shared,
};
use crate::analysis::axis::AxisAnalysis;
use crate::analysis::exchange::{Route, Threads};
use crate::analysis::exchange::{meetings, shared_bytes};
use crate::analysis::vectors::{Vectors, element_dtype};
use crate::analysis::warp_groups::block_warps;
use crate::boxes::{Boxes, copied};
use crate::checks::{Access, AccessKind, Class, Promise};
use crate::occupancy::Need;

/// What passes noted about a kernel that it does not show.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    /// How each access is kept inside its buffer.
    pub(crate) accesses: Vec<Access>,
    /// The hints and assertions, and why they hold.
    pub(crate) promises: Vec<Promise>,
    /// What became of the loops.
    pub(crate) loops: Vec<LoopReport>,
    /// Loads in loops that are not fetched ahead.
    pub(crate) stays: Vec<StayReport>,
    /// Products that are waited for.
    pub(crate) waits: Vec<WaitReport>,
    /// What the kernel needs, if because of that there is less room for programs.
    pub(crate) need: Option<Need>,
    /// The most registers of a thread, if that was asked for.
    pub(crate) max_registers: Option<u32>,
    /// The elements of the largest tile, if that has decided how many warps there are.
    pub(crate) warps_by_tile: Option<i64>,
}

/// All that a report is made from.
#[derive(Clone, Debug)]
pub(crate) struct Reported {
    pub(crate) placed: Placed,
    pub(crate) target: Target,
    pub(crate) num_warps: u32,
    pub(crate) notes: Notes,
}

impl Explain for Reported {
    fn report(&self, usage: Option<&Usage>) -> String {
        Report { usage: usage.cloned(), ..self.report() }.to_string()
    }
}

impl Reported {
    /// The report.
    pub(crate) fn report(&self) -> Report {
        let func = self.placed.func();
        let warps = block_warps(func, self.num_warps);
        let mut seen = Collect {
            func,
            axis: AxisAnalysis::new(func),
            target: self.target,
            classes: HashMap::new(),
            accesses: Vec::new(),
            shared: Vec::new(),
            conversions: Vec::new(),
        };
        for known in &self.notes.accesses {
            seen.classes.entry((known.span, known.kind, known.param)).or_insert(known.class);
        }
        walk(func, &mut |id| seen.operation(func.op(id)));
        Report {
            kernel: func.name.clone(),
            files: func.files.clone(),
            target: self.target,
            num_warps: warps,
            shared_bytes: shared_bytes(func),
            barriers: meetings(func, func.body, Threads::Program(warps)),
            min_programs: func.programs,
            max_registers: self.notes.max_registers,
            warps_by_tile: self.notes.warps_by_tile,
            need: self.notes.need,
            usage: None,
            accesses: seen.accesses,
            promises: self.notes.promises.clone(),
            shared: seen.shared,
            conversions: seen.conversions,
            loops: self.notes.loops.clone(),
            tensors: tensors(func),
            stays: self.notes.stays.clone(),
            waits: self.notes.waits.clone(),
            params: func.params.iter().map(|param| param.name.clone()).collect(),
            layouts: func.layouts.iter().map(ToString::to_string).collect(),
        }
    }
}

/// The tensors that the kernel makes itself: those of the host, then the others.
fn tensors(func: &Func) -> Vec<TensorReport> {
    let made = func.params.iter().filter(|param| param.recipe.is_some());
    let made = made.map(|param| TensorReport { span: param.span, name: param.name.clone(), by_pointers: None });
    let others = func.by_pointers.iter().map(|made| TensorReport {
        span: made.span,
        name: made.name.clone(),
        by_pointers: Some(made.why.clone()),
    });
    made.chain(others).collect()
}

/// One walk over a kernel.
struct Collect<'f> {
    func: &'f Func,
    axis: AxisAnalysis,
    target: Target,
    classes: HashMap<(Span, AccessKind, ParamId), Class>,
    accesses: Vec<AccessReport>,
    shared: Vec<SharedReport>,
    conversions: Vec<ConversionReport>,
}

impl Collect<'_> {
    fn operation(&mut self, operation: &Operation) {
        self.shared.extend(shared::accesses(self.func, self.target, operation));
        if let Some(load) = view::Load::of(operation) {
            let vectors = Vectors::at(self.func, &self.axis, load.pointer, load.mask);
            self.by_threads(operation, AccessKind::Load, &vectors, (load.pointer, load.mask));
        } else if let Some(store) = view::Store::of(operation) {
            let vectors = Vectors::at(self.func, &self.axis, store.pointer, store.mask);
            self.by_threads(operation, AccessKind::Store, &vectors, (store.pointer, store.mask));
        } else if let Some(atomic) = view::AtomicRmw::of(operation) {
            let vectors = Vectors::of_rmw(self.func, &self.axis, operation, self.target);
            self.by_threads(operation, AccessKind::Atomic, &vectors, (atomic.pointer, atomic.mask));
        } else if let Some(atomic) = view::AtomicCas::of(operation) {
            let vectors = Vectors::of_atomic(self.func, atomic.pointer);
            self.by_threads(operation, AccessKind::Atomic, &vectors, (atomic.pointer, atomic.mask));
        } else if let Some(copy) = view::AsyncCopy::of(operation) {
            let layouts = self.func.layout(copy.pointer).zip(self.func.layout(copy.view));
            let found = layouts.and_then(|layouts| Vectors::of_copy(self.func, &self.axis, operation, layouts).ok());
            if let Some(found) = found {
                self.by_threads(operation, AccessKind::Load, &found.vectors, (copy.pointer, copy.mask));
            }
        } else if let Some((param, Some(boxes))) = copied(self.func, operation) {
            self.by_tensor_copy(operation, param, &boxes);
        } else if operation.op == Op::Shape(ShapeOp::ConvertLayout) {
            self.conversion(operation);
        }
    }

    fn by_threads(
        &mut self,
        operation: &Operation,
        kind: AccessKind,
        vectors: &Vectors,
        (pointer, mask): (ValueId, Option<ValueId>),
    ) {
        let ty = self.func.ty(pointer);
        let (Some(param), Some(dtype)) = (ty.pointee(), element_dtype(self.func, pointer)) else { return };
        self.accesses.push(AccessReport {
            span: operation.span,
            kind,
            param,
            class: self.classes.get(&(operation.span, kind, param)).copied(),
            mover: Mover::Threads,
            vector: vectors.width,
            bytes: vectors.width * dtype.bytes(),
            narrow: vectors.narrow,
            instructions: vectors.groups.len() as u32,
            // A mask that always holds is dropped.
            masked: mask.is_some_and(|mask| self.axis.of(self.func, mask).constant != Some(1)),
            layout: self.func.value(pointer).layout,
        });
    }

    fn by_tensor_copy(&mut self, operation: &Operation, param: ParamId, boxes: &Boxes) {
        let kind = match operation.op {
            Op::Gpu(GpuOp::TmaStore { reduce: StoreMode::Store, .. }) => AccessKind::Store,
            Op::Gpu(GpuOp::TmaStore { .. }) => AccessKind::Atomic,
            _ => AccessKind::Load,
        };
        self.accesses.push(AccessReport {
            span: operation.span,
            kind,
            param,
            class: self.classes.get(&(operation.span, kind, param)).copied(),
            mover: Mover::TensorCopy,
            vector: boxes.side.iter().product(),
            bytes: boxes.bytes,
            narrow: None,
            instructions: boxes.starts.len() as u32,
            masked: false,
            layout: None,
        });
    }

    fn conversion(&mut self, operation: &Operation) {
        let id = |value: &ValueId| self.func.value(*value).layout;
        let (Some(from), Some(to)) = (operation.operands.first().and_then(id), operation.results.first().and_then(id))
        else {
            return;
        };
        let (source, result) = (&self.func.layouts[from.index()], &self.func.layouts[to.index()]);
        let Ok(route) = Route::of(self.func, operation, self.target, source, result) else { return };
        let kind = match route {
            Route::Plain(Conversion::NoOp | Conversion::RegisterPermute(_)) => ConversionKind::Registers,
            Route::Plain(Conversion::Shuffle(plan)) => ConversionKind::Shuffles(plan.shuffles() as u32),
            Route::Plain(Conversion::SharedMemory(plan)) => ConversionKind::Shared {
                bytes: plan.bytes,
                store_conflicts: plan.store.conflicts,
                load_conflicts: plan.load.conflicts,
            },
            Route::Matrices(plan) => {
                ConversionKind::Shared { bytes: plan.bytes, store_conflicts: 0, load_conflicts: 0 }
            }
        };
        self.conversions.push(ConversionReport { span: operation.span, from, to, kind });
    }
}
