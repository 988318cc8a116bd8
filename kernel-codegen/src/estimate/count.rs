//! What the first program of a launch does.
//!
//! ```text
//! for %t = 0, %k, 64 { .. dot %a, %b, %acc .. }       64 products where the launch gives 4096 for %k
//! ```
//!
//! Scalars are evaluated as far as they follow from constants, from the launch and from each other. A loop whose bounds are
//! not known counts once, a condition that is not known counts half for each way. A loop's counter is its first value.

use kernel_core::backend::nvidia::{LaunchShape, Work};
use kernel_core::ir::table::{Cost, Regions};
use kernel_core::ir::{
    ControlOp, CreateOp, DType, DotInstruction, DotOp, ElementwiseOp, Func, Literal, Op, Operation, ParamKind,
    RegionId, ValueId, known::trip_count,
};
use kernel_core::num;

/// Operations per cycle and multiprocessor of 16-bit factors by `wgmma`; half as many for each doubling of their width.
const WGMMA_FLOPS: f64 = 4096.0;

/// The same by `mma.sync`.
const MMA_FLOPS: f64 = 2048.0;

/// The same by scalar instructions, whatever the width.
const FMA_FLOPS: f64 = 256.0;

/// Rows of a `wgmma`, each of which reads all of the right factor from shared memory.
const WGMMA_ROWS: f64 = 64.0;

/// Counts the work of the first program.
pub(super) fn count(func: &Func, launch: &LaunchShape) -> Work {
    let mut count =
        Count { func, launch, known: vec![None; func.values.len()], work: Work::default(), asynchronous: false };
    for (index, param) in func.params.iter().enumerate() {
        let value = match param.kind {
            ParamKind::Scalar(_) => launch.scalars.get(index).copied().flatten(),
            ParamKind::Length(of) => launch.lengths.get(of.index()).copied().flatten().map(i128::from),
            ParamKind::Ptr { .. }
            | ParamKind::Desc { .. }
            | ParamKind::ConstScalar(_)
            | ParamKind::ReportSlot
            | ParamKind::DescShape { .. }
            | ParamKind::DescStride { .. } => None,
        };
        count.known[param.value.index()] = value.map(Literal::Int);
    }
    count.region(func.body, 1.0);
    count.work
}

struct Count<'f> {
    func: &'f Func,
    launch: &'f LaunchShape,
    /// The scalars that are known.
    known: Vec<Option<Literal>>,
    work: Work,
    /// Whether loads of the region run ahead of their use.
    asynchronous: bool,
}

impl Count<'_> {
    /// A region that runs so many times.
    fn region(&mut self, region: RegionId, times: f64) {
        for (_, operation) in self.func.region_ops(region) {
            self.operation(operation, times);
        }
    }

    fn operation(&mut self, operation: &Operation, times: f64) {
        if let [result] = operation.results[..] {
            self.known[result.index()] = self.value(operation);
        }
        match operation.op.cost() {
            Cost::Free => {}
            Cost::Arithmetic => self.work.elements += times * self.elements(&operation.results),
            Cost::Memory => self.access(operation, times),
            Cost::Exchange => {
                self.work.shared_bytes += times * 2.0 * self.bytes(&operation.operands);
                self.work.elements += times * self.elements(&operation.operands);
                self.work.waits += times;
            }
            Cost::Product => self.product(operation, times),
            Cost::Wait => self.work.waits += times,
            Cost::Control => {}
        }
        self.regions(operation, times);
    }

    fn regions(&mut self, operation: &Operation, times: f64) {
        match operation.op.regions() {
            Regions::Straight | Regions::Combine(_) | Regions::Apply(_) => {}
            Regions::Loop(_) => {
                let trips = self.trips(operation) * times;
                for &region in &operation.regions {
                    self.region(region, trips);
                }
            }
            Regions::Branch(_) => {
                let condition = operation.operands.first().and_then(|value| self.known[value.index()]);
                for (index, &region) in operation.regions.iter().enumerate() {
                    let share = match condition {
                        Some(Literal::Bool(holds)) => f64::from(u8::from(holds == (index == 0))),
                        Some(Literal::Int(_) | Literal::Float(_)) | None => 0.5,
                    };
                    self.region(region, times * share);
                }
            }
            Regions::Concurrent => {
                let before = std::mem::replace(&mut self.asynchronous, true);
                for &region in &operation.regions {
                    self.region(region, times);
                }
                self.asynchronous = before;
            }
        }
    }

    /// How often a loop runs; once if nobody knows.
    fn trips(&mut self, operation: &Operation) -> f64 {
        let Op::Control(ControlOp::For { .. }) = operation.op else { return 1.0 };
        let int = |index: usize| match self.known[operation.operands.get(index)?.index()]? {
            Literal::Int(value) => Some(value),
            Literal::Bool(_) | Literal::Float(_) => None,
        };
        let (lo, hi, step) = (int(0), int(1), int(2));
        let counter = operation.regions.first().and_then(|&region| self.func.region(region).args.first().copied());
        if let Some(counter) = counter {
            self.known[counter.index()] = lo.map(Literal::Int);
        }
        match (lo, hi, step) {
            (Some(lo), Some(hi), Some(step)) => trip_count(lo, hi, step) as f64,
            _ => 1.0,
        }
    }

    fn access(&mut self, operation: &Operation, times: f64) {
        let values: Vec<ValueId> = operation.operands.iter().chain(&operation.results).copied().collect();
        let bytes = values.iter().map(|&value| self.bytes(&[value])).fold(0.0, f64::max);
        if operation.op.buffer_access().is_some() {
            self.work.global_bytes += times * bytes;
            let waits = !operation.results.is_empty() && !self.is_ahead(operation);
            self.work.stalls += if waits { times } else { 0.0 };
        } else {
            self.work.shared_bytes += times * bytes;
        }
    }

    /// Whether a load arrives while the program does something else: its results are tokens, or there are none.
    fn is_ahead(&self, operation: &Operation) -> bool {
        self.asynchronous || operation.results.iter().all(|&result| self.func.ty(result).dtype().is_none())
    }

    fn product(&mut self, operation: &Operation, times: f64) {
        let (Some(acc), Some(&a)) = (operation.op.accumulator(), operation.operands.first()) else { return };
        let sums = self.elements(&operation.operands[acc..=acc]);
        let depth = self.func.tile_shape(a).last().copied().map_or(1.0, f64::from);
        let flops = 2.0 * sums * depth * times;
        let bits = self.func.ty(a).dtype().map_or(16, DType::bits).max(8);
        let by_width = 16.0 / f64::from(bits);
        let columns = self.func.tile_shape(operation.operands[acc]).last().copied().map_or(1.0, f64::from);
        // What multiplies and is no `dot` is a `wgmma`.
        let wgmma = Some(DotInstruction::Wgmma { columns: 0 });
        let by = if let Op::Dot(DotOp::Dot { by, .. }) = &operation.op { *by } else { wgmma };
        let (cycles, shared) = match by {
            Some(DotInstruction::Wgmma { .. }) => {
                let (bytes, pieces) = (f64::from(bits) / 8.0, sums / columns / WGMMA_ROWS);
                (flops / (WGMMA_FLOPS * by_width), pieces * (columns + WGMMA_ROWS) * depth * bytes * times)
            }
            Some(DotInstruction::Mma) => (flops / (MMA_FLOPS * by_width), 0.0),
            Some(DotInstruction::Fma) | None => (flops / FMA_FLOPS, 0.0),
        };
        self.work.flops += flops;
        self.work.product_cycles += cycles;
        self.work.shared_bytes += shared;
    }

    /// The elements of these values together.
    fn elements(&self, values: &[ValueId]) -> f64 {
        let tiles = values.iter().filter(|&&value| !self.func.ty(value).is_scalar());
        tiles.map(|&value| self.func.ty(value).numel().unwrap_or(0) as f64).sum()
    }

    /// The bytes of these values together; of pointers, none.
    fn bytes(&self, values: &[ValueId]) -> f64 {
        let of = |&value: &ValueId| {
            let bits = self.func.ty(value).dtype().map_or(0, DType::bits);
            self.func.ty(value).numel().unwrap_or(0) as f64 * f64::from(bits) / 8.0
        };
        values.iter().map(of).sum()
    }

    /// The value of a scalar.
    fn value(&self, operation: &Operation) -> Option<Literal> {
        let result = *operation.results.first()?;
        if !self.func.ty(result).is_scalar() {
            return None;
        }
        let operand = |index: usize| self.known[operation.operands.get(index)?.index()];
        let dtype = |value: ValueId| self.func.ty(value).dtype();
        let first = operation.operands.first().copied();
        if let Op::Create(op) = &operation.op {
            return self.created(op);
        }
        let Op::Elementwise(op) = &operation.op else { return self.known[operation.moved_operand()?.index()] };
        match op {
            ElementwiseOp::Unary { op } => num::unary(*op, dtype(first?)?, operand(0)?),
            ElementwiseOp::Binary { op } => num::binary(*op, dtype(first?)?, operand(0)?, operand(1)?),
            ElementwiseOp::Compare { op } => num::compare(*op, operand(0)?, operand(1)?).map(Literal::Bool),
            ElementwiseOp::Select => num::select(operand(0)?, operand(1)?, operand(2)?),
            ElementwiseOp::Cast { .. } => Some(num::cast(operand(0)?, dtype(result)?)),
            ElementwiseOp::Fma | ElementwiseOp::FloatInt { .. } | ElementwiseOp::Bitcast { .. } => None,
        }
    }

    /// What a launch or a constant says.
    fn created(&self, op: &CreateOp) -> Option<Literal> {
        match op {
            CreateOp::Const { value, .. } => Some(*value),
            CreateOp::ProgramId { .. } => Some(Literal::Int(0)),
            CreateOp::NumPrograms { axis } => {
                self.launch.grid.get(usize::from(*axis)).map(|&count| Literal::Int(count.into()))
            }
            CreateOp::ConstExpr { .. }
            | CreateOp::Limit { .. }
            | CreateOp::Counter { .. }
            | CreateOp::Arange { .. }
            | CreateOp::Splat { .. } => None,
        }
    }
}
