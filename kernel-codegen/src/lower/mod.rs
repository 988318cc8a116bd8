//! Lowering: LLVM IR for one thread of a placed kernel.
//!
//! A tile is one LLVM scalar per register of its layout; a scalar is one LLVM scalar, the same in every thread.
//! Elementwise operations work on register after register, shape operations rename registers, and only
//! reductions, conversions and scalars that one thread reads for all talk to other threads.
//!
//! One file per kind of operation. What has to come before everything else (thread numbers, the thread's part of
//! coordinates) is emitted into the entry block, once per kernel; all ways out lead through one exit block, where
//! failed bounds checks are reported.

mod abi;
mod accumulators;
mod async_copy;
mod atomic;
mod barrier;
mod bounds;
mod cast;
mod checks;
mod control;
mod convert;
mod create;
mod delay;
mod dot;
mod elementwise;
mod float8;
mod fmod;
mod held_factors;
mod inline_ptx;
mod intrinsics;
mod ir;
mod lines;
mod map;
mod math;
mod mbarrier;
mod memory;
mod mma;
mod packing;
mod print;
mod reduce;
mod scan;
mod shape;
mod shared;
mod sort;
mod terms;
mod tiles;
mod tma;
mod views;
mod warp_groups;
mod wgmma;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use kernel_core::ir::{
    DType, DotOp, Elem, FenceKind, Func, GpuOp, LayoutId, MemoryOp, Op, OpId, Operation, RegionId, SharedRange, Span,
    Subnormals, ValueId,
};
use kernel_core::layout::{LayoutDim, LinearForm, LinearLayout, WARP_SIZE};
use kernel_llvm::inkwell::IntPredicate;
use kernel_llvm::inkwell::basic_block::BasicBlock;
use kernel_llvm::inkwell::context::Context;
use kernel_llvm::inkwell::module::Module;
use kernel_llvm::inkwell::targets::TargetMachine;
use kernel_llvm::inkwell::types::BasicTypeEnum;
use kernel_llvm::inkwell::values::{FunctionValue, IntValue};
use kernel_llvm::{AsmEffects, KernelBounds, mark_flushing, mark_kernel, new_module};

use crate::analysis::addresses::computed_in_iterations;
use crate::analysis::apart::apart;
use crate::analysis::axis::AxisAnalysis;
use crate::analysis::banks::Banks;
use crate::analysis::control::{awaited, steering_values};
use crate::analysis::exchange::shared_bytes;
use crate::analysis::held_factors::HeldFactors;
use crate::analysis::undef_lanes::undef_lanes;
use crate::analysis::vectors::element_dtype;
use crate::analysis::warp_groups::{Group, block_warps};
use crate::error::CodegenError;
use crate::lines::Origin;
use kernel_core::backend::Site;
use kernel_core::backend::nvidia::AbiParam;
use kernel_core::backend::nvidia::Options;
use kernel_core::target::Target;

pub(crate) use abi::symbol;
use accumulators::Unfilled;
use checks::Sticky;
use held_factors::Held;
use intrinsics::Intrinsic;
use ir::{Ir, Value};
use lines::Lines;
pub(crate) use views::view_bits;

type Result<T> = std::result::Result<T, CodegenError>;

/// A kernel as LLVM IR, and what a launch has to know about it.
pub(crate) struct Lowered<'ctx> {
    pub(crate) module: Module<'ctx>,
    pub(crate) shared_bytes: u32,
    /// Warps of the block, with those that only fetch.
    pub(crate) block_warps: u32,
    pub(crate) abi: Vec<AbiParam>,
    pub(crate) sites: Vec<Site>,
    /// What the names of files in line information stand for, see [`crate::lines`].
    pub(crate) origins: Vec<Origin>,
}

/// Lowers a placed kernel.
///
/// # Errors
/// If the kernel asks for what the target or the code generator cannot do, or LLVM refuses an instruction.
pub(crate) fn lower<'ctx>(
    context: &'ctx Context,
    machine: &TargetMachine,
    func: &Func,
    axis: &AxisAnalysis,
    target: Target,
    options: &Options,
) -> Result<Lowered<'ctx>> {
    let ir = Ir::new(context, new_module(context, &func.name, machine), target.has_f8_conversions(), func.subnormals);
    let mut lower = Lower::new(ir, func, axis, target, options)?;
    lower.region(func.body)?;
    lower.finish_exit();
    lower.ir.finish().map_err(|error| lower.refused(error))?;
    let threads = lower.block_warps * WARP_SIZE;
    let (min_blocks, max_registers) = (func.programs, options.max_registers);
    mark_kernel(lower.blocks.function, &KernelBounds { min_blocks, max_registers, ..KernelBounds::block(threads) });
    match func.subnormals {
        Subnormals::Kept => {}
        Subnormals::Flushed => mark_flushing(lower.blocks.function),
    }
    Ok(Lowered {
        shared_bytes: shared_bytes(func),
        block_warps: lower.block_warps,
        abi: lower.abi,
        sites: lower.checks.sites,
        origins: lower.lines.map_or_else(Vec::new, Lines::origins),
        module: lower.ir.module,
    })
}

/// Whether a kernel waits for the launches before it, and so may begin before they have ended.
pub(crate) fn begins_early(func: &Func) -> bool {
    func.region(func.body).ops.iter().any(|&id| func.op(id).op == Op::Gpu(GpuOp::GridWait))
}

/// The registers of a value.
type Registers<'ctx> = Rc<[Value<'ctx>]>;

/// The blocks of the function that everything else refers to.
struct Blocks<'ctx> {
    function: FunctionValue<'ctx>,
    /// What is computed before everything else.
    entry: BasicBlock<'ctx>,
    /// Where the kernel's operations begin.
    start: BasicBlock<'ctx>,
    /// The one way out.
    exit: BasicBlock<'ctx>,
}

/// What a thread knows of its place among the others.
struct Ids<'ctx> {
    /// The number of the thread, of its lane and of its warp.
    thread: IntValue<'ctx>,
    lane: IntValue<'ctx>,
    warp: IntValue<'ctx>,
    /// Forms over (lane, warp) that were computed already.
    forms: Vec<(LinearForm, IntValue<'ctx>)>,
    /// Those that ptxas sees to be the same in all lanes.
    uniform_forms: Vec<(LinearForm, IntValue<'ctx>)>,
    /// Masks of redundant (lane, warp) bits, with the condition that a thread has none of them.
    owners: Vec<((u32, u32), IntValue<'ctx>)>,
}

/// What matrix products keep in registers.
struct Products<'a, 'ctx> {
    /// The tiles that live in registers with names instead.
    banks: Banks<'a>,
    /// Those of loops whose products have not been waited for.
    unfilled: Vec<Unfilled<'ctx>>,
    /// The left factors that have to be held, and what the loops around here hold.
    held_factors: HeldFactors,
    held: Held<'ctx>,
    /// Those that compute where their factors lie in each iteration.
    addressed_here: BTreeSet<OpId>,
}

/// What is known of checks that can fail.
#[derive(Default)]
struct Checks<'ctx> {
    /// The address of the report record, if the kernel has checks.
    report_slot: Option<IntValue<'ctx>>,
    sites: Vec<Site>,
    sticky: Option<Sticky<'ctx>>,
}

/// The state of lowering one kernel.
struct Lower<'a, 'ctx> {
    ir: Ir<'ctx>,
    func: &'a Func,
    axis: &'a AxisAnalysis,
    target: Target,
    /// The warps that layouts speak of.
    num_warps: u32,
    /// All warps of the block.
    block_warps: u32,
    /// The warps whose code this is; `None` where all run it.
    group: Option<Group>,
    blocks: Blocks<'ctx>,
    ids: Ids<'ctx>,
    /// Per value.
    values: Vec<Option<Registers<'ctx>>>,
    products: Products<'a, 'ctx>,
    /// Per value, whether control depends on it.
    steering: Vec<bool>,
    /// Per value, whether it is loaded and control may wait for it.
    awaited: Vec<bool>,
    /// Per value, whether it is an offset whose addresses are computed by themselves.
    apart: Vec<bool>,
    /// Per value, whether it is loaded and nobody sees the lanes that the mask leaves out.
    unseen: Vec<bool>,
    /// Per value, whether it is computed two elements at a time.
    in_words: Vec<bool>,
    /// Whether the kernel allocates shared memory.
    allocates: bool,
    /// Whether addresses live beside the sums of products ([`terms`]).
    addresses_beside_sums: bool,
    /// Whether the kernel may begin before the launches before it have ended.
    begins_early: bool,
    /// The places of the exchanges that the operation is still to make.
    exchanges: std::vec::IntoIter<SharedRange>,
    abi: Vec<AbiParam>,
    checks: Checks<'ctx>,
    /// Which lines instructions are from, if that is asked for.
    lines: Option<Lines<'ctx>>,
}

impl<'a, 'ctx> Lower<'a, 'ctx> {
    fn new(
        ir: Ir<'ctx>,
        func: &'a Func,
        axis: &'a AxisAnalysis,
        target: Target,
        options: &Options,
    ) -> Result<Lower<'a, 'ctx>> {
        let abi = abi::parameters(func)?;
        let num_warps = options.num_warps;
        let block_warps = block_warps(func, num_warps);
        let function = abi::declare(&ir, func, &abi);
        let entry = ir.context.append_basic_block(function, "entry");
        let start = ir.context.append_basic_block(function, "start");
        let exit = ir.context.append_basic_block(function, "exit");
        let lines = options.line_info.is_some().then(|| Lines::new(&ir, function, func));
        ir.builder.position_at_end(entry);
        let thread = ir.call(Intrinsic::ThreadIdX, &[], &[]).map_or(ir.i32(0), |value| ir.int(value));
        let lane = ir.and(thread, ir.i32(WARP_SIZE as i32 - 1));
        let warp = match block_warps {
            1 => ir.i32(0),
            _ => ir.lshr(thread, ir.i32(WARP_SIZE.ilog2() as i32)),
        };
        let steering = steering_values(func);
        let mut lower = Lower {
            ir,
            func,
            axis,
            target,
            num_warps,
            block_warps,
            group: None,
            blocks: Blocks { function, entry, start, exit },
            ids: Ids { thread, lane, warp, forms: Vec::new(), uniform_forms: Vec::new(), owners: Vec::new() },
            values: vec![None; func.values.len()],
            products: Products {
                banks: Banks::new(func),
                unfilled: Vec::new(),
                held_factors: HeldFactors::new(func),
                held: Held::new(),
                addressed_here: computed_in_iterations(func),
            },
            awaited: awaited(func, &steering),
            steering,
            apart: apart(func),
            unseen: undef_lanes(func),
            in_words: words::factors(func),
            allocates: func.ops.iter().any(|operation| operation.op.allocates_shared()),
            addresses_beside_sums: terms::addresses_beside_sums(func),
            begins_early: begins_early(func),
            exchanges: Vec::new().into_iter(),
            abi,
            checks: Checks::default(),
            lines,
        };
        lower.declare_banks();
        lower.bind_parameters();
        lower.ir.builder.position_at_end(start);
        lower.make_phase_barriers()?;
        Ok(lower)
    }

    fn region(&mut self, region: RegionId) -> Result<()> {
        let func = self.func;
        for &op in &func.region(region).ops {
            self.operation(op)?;
        }
        Ok(())
    }

    /// Lowers an operation, and sees to it that nothing stands in for a result or an instruction that is missing.
    fn operation(&mut self, id: OpId) -> Result<()> {
        let (func, operation) = (self.func, self.func.op(id));
        let outer = std::mem::replace(&mut self.exchanges, operation.shared.clone().into_iter());
        let place = self.lines.as_mut().map(|lines| lines.enter(&self.ir, operation.span));
        self.emit(operation).map_err(|error| error.at(self.func, operation.span))?;
        if let (Some(lines), Some(place)) = (&mut self.lines, place) {
            lines.leave(&self.ir, place);
        }
        let left = std::mem::replace(&mut self.exchanges, outer);
        if left.len() > 0 && !operation.op.allocates_shared() {
            self.ir.bug(format!("`{}` has a place for an exchange that it does not make", operation.op.mnemonic()));
        }
        self.ir.finish().map_err(|error| self.refused(error).at(self.func, operation.span))?;
        let missing = |&&result: &&ValueId| {
            let needs = !matches!(func.ty(result).elem, Elem::Token | Elem::Desc(_));
            needs && self.values[result.index()].is_none() && self.products.banks.bank(result).is_none()
        };
        match operation.results.iter().find(missing) {
            Some(result) => {
                let what =
                    format!("`{}` left its result {} without registers", operation.op.mnemonic(), result.index());
                Err(CodegenError::internal(func, operation.span, "lowering", what))
            }
            None => Ok(()),
        }
    }

    /// What the builder of instructions refuses is a mistake of ours; that an LLVM lacks an intrinsic is not.
    fn refused(&self, error: kernel_llvm::Error) -> CodegenError {
        match error {
            kernel_llvm::Error::Builder(what) => CodegenError::internal(self.func, Span::UNKNOWN, "lowering", what),
            other => other.into(),
        }
    }

    /// The error for an operation that lacks what the verifier sees to: operands, layouts, numbers in attributes.
    fn malformed(&self, operation: &Operation) -> CodegenError {
        let what = format!("`{}` lacks an operand, a layout or a number", operation.op.mnemonic());
        CodegenError::internal(self.func, operation.span, "lowering", what)
    }

    /// The register of a tile that holds the element at these coordinates.
    fn register_at(&self, place_of: &BTreeMap<&Vec<u32>, usize>, at: &Vec<u32>) -> usize {
        place_of.get(at).copied().unwrap_or_else(|| {
            self.ir.bug(format!("no register of the first thread holds the element at {at:?}"));
            0
        })
    }

    fn emit(&mut self, operation: &Operation) -> Result<()> {
        let func = self.func;
        match &operation.op {
            Op::Create(op) => self.create(operation, op),
            Op::Elementwise(op) => self.elementwise(operation, op),
            Op::Shape(op) => self.shape(operation, op),
            Op::Tile(op) => self.tile(operation, op),
            Op::Memory(op) => match op {
                MemoryOp::AddPtr => {
                    self.add_pointer(operation);
                    Ok(())
                }
                MemoryOp::Load { cache, eviction } => self.load(operation, *cache, *eviction),
                MemoryOp::Store { cache, eviction } => self.store(operation, *cache, *eviction),
                MemoryOp::AtomicRmw { op, order, scope } => self.atomic_rmw(operation, *op, *order, *scope),
                MemoryOp::AtomicCas { order, scope } => self.atomic_cas(operation, *order, *scope),
                MemoryOp::CheckBounds { param, store } => self.check_bounds(operation, *param, *store),
            },
            Op::Control(op) => self.control(operation, op),
            &Op::Dot(DotOp::Dot { by, .. }) => self.dot(operation, by),
            Op::Dot(DotOp::DotScaled { .. }) | Op::Desc(_) => {
                let what = format!("`{}` is not lowered", operation.op.mnemonic());
                Err(CodegenError::refuse(func, operation.span, what))
            }
            Op::Gpu(op) => self.gpu(operation, op),
        }
    }

    fn gpu(&mut self, operation: &Operation, op: &GpuOp) -> Result<()> {
        match op {
            GpuOp::SharedAlloc { .. } => self.shared_alloc(operation),
            GpuOp::SharedIndex => return self.shared_index(operation),
            GpuOp::SharedPermute { .. } => self.shared_permute(operation),
            GpuOp::SharedLoad => return self.shared_load(operation),
            GpuOp::SharedStore => return self.shared_store(operation),
            GpuOp::AsyncCopy => return self.async_copy(operation),
            GpuOp::AsyncCommit => self.async_commit(operation),
            GpuOp::AsyncWait { pending } => self.async_wait(operation, *pending),
            GpuOp::Barrier => self.barrier(),
            GpuOp::WarpgroupBarrier => self.warpgroup_barrier(),
            GpuOp::TurnBegin => self.warp_turn(operation, Intrinsic::NamedBarrier, 0)?,
            GpuOp::TurnEnd => self.warp_turn(operation, Intrinsic::NamedArrival, 1)?,
            GpuOp::Fence { kind } => self.fence(*kind),
            GpuOp::Wgmma { part, .. } => return self.wgmma(operation, *part),
            GpuOp::WgmmaWait { pending } => self.wgmma_wait(operation, *pending),
            GpuOp::MbarrierAlloc { .. } => self.mbarrier_alloc(operation),
            GpuOp::MbarrierArrive => self.mbarrier_arrive(operation),
            GpuOp::MbarrierWait => self.mbarrier_wait(operation),
            GpuOp::TmaLoad => return self.tma_load(operation),
            GpuOp::TmaStore { reduce, parts } => return self.tma_store(operation, *reduce, parts),
            GpuOp::TmaStoreWait { pending } => self.tma_store_wait(*pending),
            GpuOp::WarpGroups { .. } => return self.warp_groups(operation),
            &GpuOp::Delay { seed, longest } => self.delay(seed, longest),
            GpuOp::LaunchDependents => self.grid_control("griddepcontrol.launch_dependents;"),
            GpuOp::GridWait => self.grid_control("griddepcontrol.wait;"),
        }
        Ok(())
    }

    /// An instruction about the launches before and behind this one. No access to memory moves over it.
    fn grid_control(&mut self, assembly: &str) {
        self.ir.asm(&[], assembly, "", &[], AsmEffects::ConvergentMemory);
    }

    /// Orders accesses between the proxies of shared memory. Targets without asynchronous proxies have nothing to
    /// order.
    fn fence(&mut self, kind: FenceKind) {
        let assembly = match kind {
            _ if !self.target.has_async_proxy() => return,
            FenceKind::ProxyAsync => "fence.proxy.async.shared::cta;",
            FenceKind::BarrierInit => "fence.mbarrier_init.release.cluster;",
        };
        self.ir.asm(&[], assembly, "", &[], AsmEffects::Memory);
    }

    /// The registers of a value.
    fn registers(&self, value: ValueId) -> Registers<'ctx> {
        match &self.values[value.index()] {
            Some(registers) => Rc::clone(registers),
            None => {
                self.ir.bug(format!("value {} is used before it is computed", value.index()));
                vec![self.element_type(value).const_zero(); self.register_count(value)].into()
            }
        }
    }

    /// The one register of a scalar.
    fn scalar(&self, value: ValueId) -> Value<'ctx> {
        let registers = self.registers(value);
        registers.first().copied().unwrap_or_else(|| {
            self.ir.bug(format!("value {} has no register", value.index()));
            self.element_type(value).const_zero()
        })
    }

    fn set(&mut self, value: ValueId, registers: Vec<Value<'ctx>>) {
        if registers.len() != self.register_count(value) {
            let (got, wanted) = (registers.len(), self.register_count(value));
            self.ir.bug(format!("value {} has {got} registers instead of {wanted}", value.index()));
        }
        self.values[value.index()] = Some(registers.into());
    }

    fn layout_id(&self, value: ValueId) -> Option<LayoutId> {
        self.func.value(value).layout
    }

    /// The layout of a tile; `None` for a scalar.
    fn layout(&self, value: ValueId) -> Option<&'a LinearLayout> {
        self.layout_id(value).map(|id| &self.func.layouts[id.index()])
    }

    fn register_count(&self, value: ValueId) -> usize {
        self.layout(value).map_or(1, |layout| layout.in_size(LayoutDim::Register) as usize)
    }

    /// The dtype of a data value, or that which a pointer points to.
    fn dtype(&self, value: ValueId) -> DType {
        element_dtype(self.func, value).unwrap_or_else(|| {
            self.ir.bug(format!("value {} has no dtype", value.index()));
            DType::I32
        })
    }

    /// The LLVM type of one element of a value.
    fn element_type(&self, value: ValueId) -> BasicTypeEnum<'ctx> {
        match self.func.ty(value).elem {
            Elem::Ptr(_) => self.ir.global_pointer().into(),
            Elem::Data(_) | Elem::Desc(_) => self.ir.dtype(self.dtype(value)),
            // Views are offsets, tokens nothing.
            Elem::Token | Elem::Shared(_) | Elem::Barrier => self.ir.int_type(32).into(),
        }
    }

    /// Emits something at the end of the entry block.
    fn at_entry<T>(&mut self, emit: impl FnOnce(&mut Self) -> T) -> T {
        let here = self.ir.builder.get_insert_block();
        self.ir.builder.position_at_end(self.blocks.entry);
        let result = emit(self);
        if let Some(here) = here {
            self.ir.builder.position_at_end(here);
        }
        result
    }

    /// The value of a form over (lane, warp), computed once per kernel.
    fn form(&mut self, form: &LinearForm) -> IntValue<'ctx> {
        if let Some((_, value)) = self.ids.forms.iter().find(|(known, _)| known == form) {
            return *value;
        }
        let value = self.at_entry(|this| {
            let ir = &this.ir;
            let mut sum = ir.i32(0);
            for term in form.terms() {
                let input = match term.input {
                    LayoutDim::Lane => this.ids.lane,
                    LayoutDim::Warp => this.ids.warp,
                    _ => ir.i32(0),
                };
                let bits = ir.and(input, ir.i32(term.mask as i32));
                let count = ir.i32(term.shift.abs());
                let moved = if term.shift >= 0 { ir.shl(bits, count) } else { ir.lshr(bits, count) };
                sum = ir.xor(sum, moved);
            }
            sum
        });
        self.ids.forms.push((form.clone(), value));
        value
    }

    /// Whether this thread is the one that acts for all that hold the same elements; `None` if each holds its own.
    fn owner(&mut self, layout: Option<&LinearLayout>) -> Option<IntValue<'ctx>> {
        let (lanes, warps) = match (layout, self.group) {
            (Some(layout), _) => {
                (layout.free_variable_mask(LayoutDim::Lane), layout.free_variable_mask(LayoutDim::Warp))
            }
            (None, Some(group)) if group.single => (0, 0),
            (None, Some(_)) => (WARP_SIZE - 1, self.num_warps - 1),
            (None, None) => (WARP_SIZE - 1, self.block_warps.next_power_of_two() - 1),
        };
        if (lanes, warps) == (0, 0) {
            return None;
        }
        if let Some((_, value)) = self.ids.owners.iter().find(|(masks, _)| *masks == (lanes, warps)) {
            return Some(*value);
        }
        let value = self.at_entry(|this| {
            let ir = &this.ir;
            let mask = lanes | warps << WARP_SIZE.ilog2();
            let redundant = ir.and(this.ids.thread, ir.i32(mask as i32));
            ir.icmp(IntPredicate::EQ, redundant, ir.i32(0))
        });
        self.ids.owners.push(((lanes, warps), value));
        Some(value)
    }
}
