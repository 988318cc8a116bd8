//! Axis analysis: how the values of an integer or pointer tile run along each dimension.
//!
//! Along a dimension `d` of a tile, with groups of `contiguity` elements that start at multiples of `contiguity`:
//!
//! - **contiguity**: within a group each element is one more than the element before it;
//! - **divisibility**: a power of two that divides the first element of every group;
//! - **constancy**: groups of that many elements (aligned likewise) are all equal.
//!
//! ```text
//! pid * 1024 + arange(0, 1024)     contiguity 1024, divisibility 1024, constancy 1
//! row * stride + arange(0, 1024)   contiguity 1024, divisibility 16 if stride is known to be, constancy 1
//! splat(n)                         contiguity 1, divisibility of n, constancy of the whole tile
//! offsets < n                      constancy 16 if offsets start at multiples of 16 and n is one
//! ```
//!
//! Pointers count elements from the start of their buffer; its alignment is a fact of the parameter
//! ([`AxisAnalysis::alignment`]). Arithmetic wraps, and all claims hold modulo the width: a group that is aligned
//! to its own size does not meet the wrap, so users take `min(contiguity, divisibility)` of a group.
//!
//! Promises (`hint`) and conditions of `assert` add what the program says itself.
//!
//! What is known is joined where control flow joins (greatest common divisors), until nothing changes.
//! The rules are those of Triton's `AxisInfo`, made sound for negative numbers: quotients and remainders need
//! a range that is known not to be negative.

use kernel_core::ir::{
    ControlOp, CreateOp, DType, DescOp, DotOp, ElementwiseOp, Facts, Func, GpuOp, HintKind, MemoryOp, Op, OpId,
    Operation, ParamKind, RegionId, ShapeOp, ValueId,
};

use super::info::pow2_divisor;
pub use super::info::{AxisInfo, DimInfo, MAX_DIVISOR};
use super::{facts, rules};
use crate::report::Narrow;

/// Whether a pointer points into a buffer that the kernel cannot write.
fn reads_constants(func: &Func, pointer: ValueId) -> bool {
    let param = func.ty(pointer).pointee();
    param.is_some_and(|param| matches!(func.param(param).kind, ParamKind::Ptr { mutable: false, .. }))
}

/// The analysis of a kernel, at the bound or the placed level.
#[derive(Clone, Debug)]
pub struct AxisAnalysis {
    infos: Vec<Option<AxisInfo>>,
    /// What was known before conditions that hold for the rest of a region told more, to return to at its end.
    before: Vec<(ValueId, AxisInfo)>,
}

impl AxisAnalysis {
    /// Analyses a kernel.
    pub fn new(func: &Func) -> AxisAnalysis {
        let mut analysis = AxisAnalysis { infos: vec![None; func.values.len()], before: Vec::new() };
        for param in &func.params {
            analysis.infos[param.value.index()] = Some(param_info(func, &param.kind, &param.facts));
        }
        analysis.region(func, func.body);
        analysis
    }

    /// What is known of a value.
    pub fn of(&self, func: &Func, value: ValueId) -> AxisInfo {
        let known = self.infos.get(value.index()).and_then(Option::as_ref);
        known.cloned().unwrap_or_else(|| AxisInfo::unknown(func.ty(value).rank()))
    }

    /// The dimension along which a tile of pointers should be accessed fastest, and so on: by falling contiguity,
    /// the last dimension first among equals.
    pub fn order(&self, func: &Func, pointer: ValueId) -> Vec<u8> {
        let info = self.of(func, pointer);
        let mut order: Vec<u8> = (0..func.ty(pointer).rank() as u8).rev().collect();
        order.sort_by_key(|&axis| std::cmp::Reverse(info.dims[usize::from(axis)].contiguity));
        order
    }

    /// Elements along `axis` that one access at these pointers may cover, limited by contiguity and the alignment
    /// of the address, not by the width of instructions.
    pub fn pointer_run(&self, func: &Func, pointer: ValueId, axis: u8) -> u64 {
        self.limited_run(func, pointer, axis).0
    }

    /// [`AxisAnalysis::pointer_run`], and what keeps it from being longer.
    pub fn limited_run(&self, func: &Func, pointer: ValueId, axis: u8) -> (u64, Narrow) {
        let dim = self.of(func, pointer).dims.get(usize::from(axis)).copied().unwrap_or(DimInfo::UNKNOWN);
        let (contiguous, first) = (dim.aligned_contiguity(), dim.divisibility);
        let buffer = buffer_alignment(func, pointer);
        let run = contiguous.min(first).min(buffer).max(1);
        // Offsets that may wrap in the middle of a run, as they begin anywhere, are contiguous for that alone.
        let offsets = match func.def_op(pointer) {
            Some(op) if op.op == Op::Memory(MemoryOp::AddPtr) => {
                op.operands.get(1).map(|&offset| self.of(func, offset))
            }
            Some(_) | None => None,
        };
        let dim = offsets.and_then(|info| info.dims.get(usize::from(axis)).copied());
        let wraps = dim.is_some_and(|dim| dim.aligned_contiguity() > contiguous);
        let why = match run {
            run if run == contiguous && !wraps => Narrow::Contiguity(run),
            run if run == buffer => Narrow::Buffer(run),
            run => Narrow::Offsets(run),
        };
        (run, why)
    }

    /// The constancy of a mask along `axis`.
    pub fn mask_run(&self, func: &Func, mask: ValueId, axis: u8) -> u64 {
        let info = self.of(func, mask);
        if info.constant.is_some() {
            return MAX_DIVISOR;
        }
        info.dims.get(usize::from(axis)).map_or(1, |dim| pow2_divisor(dim.constancy))
    }

    fn set(&mut self, value: ValueId, info: AxisInfo) -> bool {
        let slot = &mut self.infos[value.index()];
        let changed = slot.as_ref() != Some(&info);
        *slot = Some(info);
        changed
    }

    fn region(&mut self, func: &Func, region: RegionId) {
        let mark = self.before.len();
        for &op in &func.region(region).ops {
            self.operation(func, op);
        }
        for (value, info) in self.before.drain(mark..).rev() {
            self.infos[value.index()] = Some(info);
        }
    }

    /// What follows from a condition without which the program would have ended. Only what is computed from here on,
    /// in this region, is known by it.
    fn learn(&mut self, func: &Func, condition: ValueId) {
        for (value, fact) in facts::facts(func, condition, &|v| self.of(func, v).constant) {
            let known = self.of(func, value);
            let more = fact.applied(&known, func.ty(value).dtype());
            self.before.push((value, known));
            self.infos[value.index()] = Some(more);
        }
    }

    /// What is known of elements in other places. Nothing is known of operations that are not named here.
    fn shape(&mut self, func: &Func, operation: &Operation, op: &ShapeOp) -> AxisInfo {
        let unknown = AxisInfo::unknown(func.ty(operation.results[0]).rank());
        let Some(source) = operation.moved_operand() else {
            // Whatever is true of all operands' elements is true of those that are joined.
            let met = operation.operands.iter().map(|&v| self.of(func, v)).reduce(|a, b| a.meet(&b));
            return match met {
                Some(met) => AxisInfo { dims: unknown.dims, ..met },
                None => unknown,
            };
        };
        let info = self.of(func, source);
        if let ShapeOp::ExpandDims { axis } = op {
            rules::expand_dims(&info, usize::from(*axis), func.ty(source).is_scalar())
        } else if let ShapeOp::Broadcast { shape } = op {
            rules::broadcast(&info, func, source, shape)
        } else if let ShapeOp::Permute { perm } = op {
            rules::permute(&info, perm)
        } else if let ShapeOp::Reshape { shape } = op {
            rules::reshape(&info, shape.len())
        } else if let ShapeOp::Hint { kind, n, multiple, axis, believed: _ } = op {
            if *kind == HintKind::Holds {
                self.learn(func, source);
            }
            let dtype = func.ty(source).dtype();
            rules::hint(dtype, &self.of(func, source), *kind, n, multiple, usize::from(*axis))
        } else if *op == ShapeOp::ConvertLayout {
            info
        } else {
            unknown
        }
    }

    fn operation(&mut self, func: &Func, id: OpId) {
        let operation = func.op(id);
        let operand = |this: &Self, i: usize| this.of(func, operation.operands[i]);
        let info = match &operation.op {
            Op::Control(op) => return self.control(func, id, op),
            // Of matrix products and of what memory holds, nothing is known.
            Op::Dot(DotOp::Dot { .. } | DotOp::DotScaled { .. })
            | Op::Desc(
                DescOp::MakeDesc { .. }
                | DescOp::DescLoad
                | DescOp::DescStore
                | DescOp::DescReduce { .. }
                | DescOp::DescGather
                | DescOp::DescScatter,
            ) => {
                let Some(&result) = operation.results.first() else { return };
                AxisInfo::unknown(func.ty(result).rank())
            }
            Op::Create(op) => match op {
                CreateOp::Splat { shape } => rules::splat(&operand(self, 0), shape),
                CreateOp::Const { value, .. } => rules::constant(value),
                CreateOp::Arange { lo, hi } => rules::arange(lo, hi),
                CreateOp::ProgramId { .. } => AxisInfo { range: Some((0, i64::from(i32::MAX))), ..AxisInfo::scalar(1) },
                CreateOp::NumPrograms { .. } => {
                    AxisInfo { range: Some((1, i64::from(i32::MAX))), ..AxisInfo::scalar(1) }
                }
                CreateOp::Counter { .. } | CreateOp::ConstExpr { .. } | CreateOp::Limit { .. } => AxisInfo::unknown(0),
            },
            Op::Elementwise(op) => match self.elementwise(func, op, operation) {
                Some(info) => info,
                None => return,
            },
            Op::Shape(op) => self.shape(func, operation, op),
            Op::Tile(_) => return,
            Op::Memory(op) => match op {
                MemoryOp::AddPtr => {
                    let width = func.ty(operation.operands[1]).dtype();
                    rules::add_ptr(&operand(self, 0), &operand(self, 1), width)
                }
                MemoryOp::CheckBounds { .. } => {
                    let mask = operation.operands.get(2).map(|&mask| self.of(func, mask));
                    rules::check_bounds(&operand(self, 0), &operand(self, 1), mask.as_ref())
                }
                // Equal addresses hold equal values, if nobody writes there.
                MemoryOp::Load { .. } if reads_constants(func, operation.operands[0]) => {
                    rules::pure(&operation.operands.iter().map(|&v| self.of(func, v)).collect::<Vec<_>>())
                }
                MemoryOp::Load { .. }
                | MemoryOp::Store { .. }
                | MemoryOp::AtomicRmw { .. }
                | MemoryOp::AtomicCas { .. } => return,
            },
            // Each group of warps does its part of what the kernel does.
            Op::Gpu(GpuOp::WarpGroups { .. }) => {
                return operation.regions.iter().for_each(|&region| self.region(func, region));
            }
            Op::Gpu(_) => return,
        };
        if let Some(&result) = operation.results.first() {
            self.set(result, info);
        }
    }

    fn elementwise(&self, func: &Func, op: &ElementwiseOp, operation: &Operation) -> Option<AxisInfo> {
        let infos: Vec<AxisInfo> = operation.operands.iter().map(|&v| self.of(func, v)).collect();
        let (&first, &result) = (operation.operands.first()?, operation.results.first()?);
        let (from, to) = (func.ty(first).dtype(), func.ty(result).dtype());
        Some(match op {
            ElementwiseOp::Binary { op } => match from {
                Some(dtype) if !dtype.is_float() => rules::binary(*op, dtype, &infos[0], &infos[1]),
                _ => rules::pure(&infos),
            },
            ElementwiseOp::Compare { op } => match from {
                Some(dtype) if dtype.is_float() => rules::pure(&infos),
                _ => rules::compare(*op, &infos[0], &infos[1]),
            },
            ElementwiseOp::Select => rules::select(&infos[0], &infos[1], &infos[2]),
            ElementwiseOp::Cast { .. } | ElementwiseOp::Bitcast { .. } => match (from, to) {
                (Some(from), Some(to)) => rules::cast(from, to, &infos[0]),
                _ => rules::pure(&infos),
            },
            ElementwiseOp::Unary { .. } | ElementwiseOp::FloatInt { .. } | ElementwiseOp::Fma => rules::pure(&infos),
        })
    }

    fn control(&mut self, func: &Func, id: OpId, op: &ControlOp) {
        let operation = func.op(id);
        match op {
            ControlOp::For { .. } => {
                let body = operation.regions[0];
                let args = &func.region(body).args;
                let (lo, hi, step) = (
                    self.of(func, operation.operands[0]),
                    self.of(func, operation.operands[1]),
                    self.of(func, operation.operands[2]),
                );
                let dtype = func.ty(args[0]).dtype().unwrap_or(DType::I64);
                self.set(args[0], rules::induction(dtype, &lo, &hi, &step));
                self.fixpoint(func, &operation.operands[3..], &args[1..], body, &operation.results, &[body]);
            }
            ControlOp::While => {
                let (condition, body) = (operation.regions[0], operation.regions[1]);
                let args = func.region(condition).args.clone();
                self.fixpoint(func, &operation.operands, &args, body, &operation.results, &[condition, body]);
            }
            ControlOp::If => {
                for &region in &operation.regions {
                    self.region(func, region);
                }
                let yields = operation.regions.iter().map(|&region| func.yielded(region));
                let yields: Vec<&[ValueId]> = yields.collect();
                for (i, &result) in operation.results.iter().enumerate() {
                    let info = self.of(func, yields[0][i]).meet(&self.of(func, yields[1][i]));
                    self.set(result, info);
                }
            }
            ControlOp::Reduce { .. } | ControlOp::Scan { .. } | ControlOp::Map { .. } => {
                for &region in &operation.regions {
                    self.region(func, region);
                }
            }
            ControlOp::Assert { .. } => self.learn(func, operation.operands[0]),
            ControlOp::Yield | ControlOp::Return | ControlOp::Print { .. } | ControlOp::StaticAssert { .. } => {}
        }
    }

    /// Runs `regions` with the carried values' facts until they hold on every iteration.
    /// `next` is the region that yields the values of the next iteration.
    fn fixpoint(
        &mut self,
        func: &Func,
        inits: &[ValueId],
        args: &[ValueId],
        next: RegionId,
        results: &[ValueId],
        regions: &[RegionId],
    ) {
        let mut current: Vec<AxisInfo> = inits.iter().map(|&v| self.of(func, v)).collect();
        loop {
            for &region in regions {
                let carried = &func.region(region).args[func.region(region).args.len() - args.len()..];
                for (&arg, info) in carried.iter().zip(&current) {
                    // A range can grow for ever, so carried values have none unless they never change.
                    self.set(arg, AxisInfo { range: info.constant.map(|c| (c, c)), ..info.clone() });
                }
            }
            for &region in regions {
                self.region(func, region);
            }
            let yields = func.yielded(next);
            let met: Vec<AxisInfo> =
                current.iter().zip(yields).map(|(info, &v)| info.meet(&self.of(func, v))).collect();
            let stable = met.iter().zip(&current).all(|(a, b)| a.dims == b.dims && a.constant == b.constant);
            current = met;
            if stable {
                break;
            }
        }
        for (&result, info) in results.iter().zip(current) {
            self.set(result, AxisInfo { range: info.constant.map(|c| (c, c)), ..info });
        }
    }
}

/// The alignment of the buffer that a pointer points into, in elements (at least 1).
fn buffer_alignment(func: &Func, pointer: ValueId) -> u64 {
    let Some(param) = func.ty(pointer).pointee() else { return 1 };
    let bytes = func.pointee_dt(param).and_then(|dt| dt.known()).map_or(1, |d| u64::from(d.bytes()));
    let known = pow2_divisor(u64::from(func.param(param).facts.divisible_by.max(1)));
    (known / bytes).max(1)
}

impl AxisAnalysis {
    /// A power of two that divides every address of a tile of pointers, in bytes.
    pub fn alignment(&self, func: &Func, pointer: ValueId) -> u64 {
        let Some(param) = func.ty(pointer).pointee() else { return 1 };
        let bytes = func.pointee_dt(param).and_then(|dt| dt.known()).map_or(1, |d| u64::from(d.bytes()));
        bytes * buffer_alignment(func, pointer).min(self.of(func, pointer).divisor_of_all())
    }
}

fn param_info(func: &Func, kind: &ParamKind, facts: &Facts) -> AxisInfo {
    match kind {
        // A pointer parameter is offset 0 of its buffer.
        ParamKind::Ptr { .. } => AxisInfo::number(0),
        ParamKind::Scalar(_) | ParamKind::ConstScalar(_) => match facts.equals_one {
            true => AxisInfo::number(1),
            false => AxisInfo::scalar(u64::from(facts.divisible_by.max(1))),
        },
        ParamKind::Length(param) => {
            let divisor = func.param(*param).facts.len_divisible_by.max(facts.divisible_by).max(1);
            AxisInfo { range: Some((0, i64::MAX)), ..AxisInfo::scalar(u64::from(divisor)) }
        }
        ParamKind::DescShape { .. } => {
            let divisor = u64::from(facts.divisible_by.max(1));
            AxisInfo { range: Some((0, i64::from(i32::MAX))), ..AxisInfo::scalar(divisor) }
        }
        ParamKind::DescStride { .. } => {
            let divisor = u64::from(facts.divisible_by.max(1));
            AxisInfo { range: Some((0, i64::MAX)), ..AxisInfo::scalar(divisor) }
        }
        ParamKind::ReportSlot | ParamKind::Desc { .. } => AxisInfo::scalar(1),
    }
}
