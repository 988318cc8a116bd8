//! Turns a kernel into [`Code`].
//!
//! Values become registers; a register whose value is dead gives its place in the arena to later ones. Within a
//! region a value dies after the last operation that uses it, or that contains an operation that does.

mod control;
mod fold;
mod map;
mod matrix;
mod ops;
mod tiles;

use std::collections::BTreeMap;

use crate::ir::{Elem, Func, OpId, Operation, ParamKind, RegionId, Span, Ty, ValueId};

use super::code::{Code, ParamPlan};
use super::fault::{Fault, FaultKind};
use super::instructions::{Combine, Inst};
use super::registers::{Lane, Pc, RegId, RegInfo};
use super::storage::{Home, Storage};

/// Why a kernel cannot be run, as the fault that each launch of it returns.
type Result<T> = std::result::Result<T, Fault>;

fn unsupported<T>(message: impl Into<String>, span: Span) -> Result<T> {
    Err(Fault::new(FaultKind::Unsupported { message: message.into() }, span, [0; 3]))
}

/// Prepares a bound or placed kernel.
pub(super) fn compile(func: &Func) -> Result<Code> {
    let mut compiler = Compiler {
        func,
        insts: Vec::new(),
        spans: Vec::new(),
        regs: Vec::new(),
        homes: Vec::new(),
        reg_of: vec![None; func.values.len()],
        storage: Storage::default(),
        loops: 0,
        waits: false,
        lanes: None,
        shared_base: 0,
        span: Span::UNKNOWN,
    };
    let ends = func.ops.iter().flat_map(|operation| &operation.shared).map(|range| range.end);
    if let Some(bytes) = ends.max() {
        compiler.shared_base = compiler.storage.alloc_new(Some(bytes as usize)).offset;
    }
    let params = compiler.params()?;
    compiler.region(func.body)?;
    compiler.emit(Inst::Return);
    let Some(arena_bytes) = compiler.storage.bytes() else {
        return unsupported("the kernel's tiles exceed the address space", Span::UNKNOWN);
    };
    let Compiler { insts, spans, regs, loops, waits, .. } = compiler;
    Ok(Code { insts, spans, regs, loops: loops as usize, waits, arena_bytes, params })
}

struct Compiler<'f> {
    func: &'f Func,
    insts: Vec<Inst>,
    spans: Vec<Span>,
    regs: Vec<RegInfo>,
    /// The place of every register that is still to be given back.
    homes: Vec<Option<Home>>,
    reg_of: Vec<Option<RegId>>,
    storage: Storage,
    loops: u32,
    /// Whether a loop so far may wait for other programs.
    waits: bool,
    /// Within a region that combines elements of tiles: how many at most. Its scalars are tiles of so many.
    lanes: Option<usize>,
    /// Where the memory begins that places in shared memory count from.
    shared_base: usize,
    span: Span,
}

/// What a region yields.
struct Yields {
    regs: Vec<RegId>,
    /// Registers that are dead once the yielded values have been moved.
    dying: Vec<RegId>,
}

impl<'f> Compiler<'f> {
    fn params(&mut self) -> Result<Vec<ParamPlan>> {
        let func = self.func;
        let mut plans = Vec::with_capacity(func.params.len());
        for param in &func.params {
            let reg = self.define(param.value)?;
            let known = |dt: crate::ir::Dt| match dt.known() {
                Some(dtype) => Ok(dtype),
                None => unsupported(format!("the dtype of parameter `{}` is not known", param.name), param.span),
            };
            plans.push(match &param.kind {
                _ if param.facts.omitted => ParamPlan::Null { reg },
                ParamKind::Ptr { dt, mutable } => ParamPlan::Buffer { reg, dtype: known(*dt)?, mutable: *mutable },
                ParamKind::Desc { block, mutable, .. } => {
                    ParamPlan::Tensor { reg, rank: block.len(), mutable: *mutable }
                }
                ParamKind::Scalar(dt) | ParamKind::ConstScalar(dt) => ParamPlan::Scalar { reg, dtype: known(*dt)? },
                ParamKind::Length(of) => ParamPlan::Length { reg, of: *of },
                ParamKind::DescShape { of, axis } => ParamPlan::Extent { reg, of: *of, axis: *axis, stride: false },
                ParamKind::DescStride { of, axis } => ParamPlan::Extent { reg, of: *of, axis: *axis, stride: true },
                ParamKind::ReportSlot => ParamPlan::Null { reg },
            });
        }
        Ok(plans)
    }

    fn emit(&mut self, inst: Inst) -> Pc {
        let pc = self.here();
        self.insts.push(inst);
        self.spans.push(self.span);
        pc
    }

    /// The position of the next instruction.
    fn here(&self) -> Pc {
        Pc(self.insts.len() as u32)
    }

    /// Sends the jump at `pc` to the next instruction.
    fn land(&mut self, pc: Pc) {
        let target = self.here();
        match &mut self.insts[pc.index()] {
            Inst::ForBegin { exit, .. } | Inst::WarpGroups { exit, .. } => *exit = target,
            Inst::BranchUnless { to, .. } | Inst::Jump { to } => *to = target,
            Inst::Fold(fold) => {
                if let Combine::Region { code, .. } = &mut fold.combine {
                    code.end = target;
                }
            }
            Inst::Map(map) => map.code.end = target,
            // Only instructions that go elsewhere are ever landed.
            other => debug_assert!(false, "{other:?} goes nowhere"),
        }
    }

    fn lane(&self, elem: Elem) -> Result<Lane> {
        match elem {
            Elem::Data(dt) => match dt.known() {
                Some(dtype) => Ok(Lane::Data(dtype)),
                None => unsupported("a dtype is not known: the kernel is not bound", self.span),
            },
            Elem::Ptr(_) => Ok(Lane::Pointer),
            Elem::Desc(_) | Elem::Token | Elem::Shared(_) | Elem::Barrier => Ok(Lane::Handle),
        }
    }

    fn dims(&self, ty: &Ty) -> Result<Box<[usize]>> {
        let dims = ty.dims().map(|dims| dims.into_iter().map(usize::try_from).collect::<std::result::Result<_, _>>());
        match dims {
            Some(Ok(dims)) => Ok(dims),
            Some(Err(_)) => unsupported("a dimension is negative", self.span),
            None => unsupported("a dimension is not known: the kernel is not bound", self.span),
        }
    }

    /// A new register for values of that type; in a region on tiles of elements, for a tile of them.
    fn new_reg(&mut self, ty: &Ty) -> Result<RegId> {
        let lane = self.lane(ty.elem)?;
        let dims = match (lane, self.lanes) {
            // Shared memory is one word whatever its shape.
            (Lane::Handle, _) => Box::default(),
            (Lane::Data(_) | Lane::Pointer, Some(lanes)) => Box::new([lanes]),
            (Lane::Data(_) | Lane::Pointer, None) => self.dims(ty)?,
        };
        let n = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        let home = self.storage.alloc(n.and_then(|n| n.checked_mul(lane.bytes())));
        let id = RegId(self.regs.len() as u32);
        self.regs.push(RegInfo { lane, dims, n: n.unwrap_or(0), offset: home.offset });
        self.homes.push(Some(home));
        Ok(id)
    }

    /// A new register like another.
    fn twin(&mut self, reg: RegId) -> RegId {
        let mut info = self.regs[reg.index()].clone();
        let home = self.storage.alloc(info.n.checked_mul(info.lane.bytes()));
        info.offset = home.offset;
        self.regs.push(info);
        self.homes.push(Some(home));
        RegId(self.regs.len() as u32 - 1)
    }

    /// Gives the place of a register back, once.
    fn free(&mut self, reg: RegId) {
        if let Some(home) = self.homes[reg.index()].take() {
            self.storage.free(home);
        }
    }

    /// Room in the arena for an instruction's own use, given back when it is done.
    fn room(&mut self, elements: usize, bytes: usize) -> Home {
        self.storage.alloc(elements.checked_mul(bytes))
    }

    /// A register for a value that is defined here.
    fn define(&mut self, value: ValueId) -> Result<RegId> {
        let func = self.func;
        let reg = self.new_reg(func.ty(value))?;
        self.reg_of[value.index()] = Some(reg);
        Ok(reg)
    }

    /// The register of a value that was defined before.
    fn reg(&self, value: ValueId) -> Result<RegId> {
        match self.reg_of.get(value.index()).copied().flatten() {
            Some(reg) => Ok(reg),
            None => unsupported("a value is used where it is not defined", self.span),
        }
    }

    fn regs(&self, values: &[ValueId]) -> Result<Vec<RegId>> {
        values.iter().map(|&v| self.reg(v)).collect()
    }

    fn info(&self, reg: RegId) -> &RegInfo {
        &self.regs[reg.index()]
    }

    /// Compiles the operations of a region up to its terminator.
    fn region(&mut self, region: RegionId) -> Result<Yields> {
        let func = self.func;
        let mut deaths = Deaths::of(func, region);
        for (position, (id, operation)) in func.region_ops(region).enumerate() {
            self.span = operation.span;
            if operation.op.is_terminator() {
                let regs = self.regs(&operation.operands)?;
                let dying = self.dying(&mut deaths, position, operation);
                return Ok(Yields { regs, dying });
            }
            self.op(id, operation)?;
            for reg in self.dying(&mut deaths, position, operation) {
                self.free(reg);
            }
        }
        Ok(Yields { regs: Vec::new(), dying: Vec::new() })
    }

    /// Registers that nothing reads after the operation at `position`. In a region on tiles of elements all
    /// registers live to its end.
    fn dying(&self, deaths: &mut Deaths, position: usize, operation: &Operation) -> Vec<RegId> {
        if self.lanes.is_some() {
            return Vec::new();
        }
        let unused = operation.results.iter().copied().filter(|v| !deaths.last_use.contains_key(v));
        let dead = deaths.at.remove(&position).unwrap_or_default();
        unused.chain(dead).filter_map(|v| self.reg_of[v.index()]).collect()
    }
}

/// Where the values that a region defines are used last.
struct Deaths {
    last_use: BTreeMap<ValueId, usize>,
    at: BTreeMap<usize, Vec<ValueId>>,
}

impl Deaths {
    fn of(func: &Func, region: RegionId) -> Deaths {
        let mut last_use = BTreeMap::new();
        for (position, (id, _)) in func.region_ops(region).enumerate() {
            for_each_operand(func, id, &mut |value| {
                last_use.insert(value, position);
            });
        }
        let mut at: BTreeMap<usize, Vec<ValueId>> = BTreeMap::new();
        for (_, operation) in func.region_ops(region) {
            for value in &operation.results {
                if let Some(&position) = last_use.get(value) {
                    at.entry(position).or_default().push(*value);
                }
            }
        }
        Deaths { last_use, at }
    }
}

/// Calls `f` with every operand of an operation and of the operations in its regions.
fn for_each_operand(func: &Func, id: OpId, f: &mut impl FnMut(ValueId)) {
    let mut pending = vec![id];
    while let Some(id) = pending.pop() {
        let operation = func.op(id);
        operation.operands.iter().copied().for_each(&mut *f);
        for &region in &operation.regions {
            pending.extend(&func.region(region).ops);
        }
    }
}
