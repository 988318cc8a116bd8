//! Reductions and scans: which way of combining elements a region allows.

use crate::ir::{BinaryOp, ControlOp, DType, Elements, ElementwiseOp, Func, Op, Operation, RegionId, Regions, ValueId};

use super::super::cast::cast;
use super::super::flush::Lanes;
use super::super::instructions::{Combine, Fold, FoldKind, Inst, RegionCode};
use super::super::registers::{Pc, RegId};
use super::{Compiler, Result, for_each_operand, unsupported};

impl Compiler<'_> {
    pub(super) fn reduce(&mut self, operation: &Operation, axis: usize) -> Result<()> {
        self.fold(operation, axis, FoldKind::Reduce)
    }

    pub(super) fn scan(&mut self, operation: &Operation, axis: usize, reverse: bool) -> Result<()> {
        self.fold(operation, axis, FoldKind::Scan { reverse })
    }

    fn fold(&mut self, operation: &Operation, axis: usize, kind: FoldKind) -> Result<()> {
        let region = self.sub_region(operation, 0)?;
        let inputs = self.regs(&operation.operands)?;
        let mut outputs = Vec::with_capacity(operation.results.len());
        for &result in &operation.results {
            outputs.push(self.define(result)?);
        }
        let dims = match inputs.first() {
            Some(&input) if axis < self.info(input).dims.len() => self.info(input).dims.clone(),
            Some(_) | None => return unsupported("a reduction without a tile that has the axis", self.span),
        };
        let outer: usize = dims[..axis].iter().product();
        let inner: usize = dims[axis + 1..].iter().product();
        let len = dims[axis];
        let n = self.info(inputs[0]).n;
        let single = match inputs.as_slice() {
            [input] => single_operation(self.func, region, self.dtype(*input)?),
            _ => None,
        };
        let bytes: Box<[usize]> = match &single {
            Some(Combine::Single { widen: Some(_), .. }) => Box::new([4]),
            Some(_) | None => inputs.iter().map(|&r| self.info(r).lane.bytes()).collect(),
        };
        let homes: Vec<_> = bytes.iter().flat_map(|&b| [b, b]).map(|b| self.room(n, b)).collect();
        let work = homes.chunks(2).map(|pair| [pair[0].offset, pair[1].offset]).collect();
        let fold = |combine| Fold {
            kind,
            combine,
            inputs: inputs.into(),
            outputs: outputs.into(),
            outer,
            len,
            inner,
            bytes,
            work,
        };
        match single {
            Some(combine) => {
                self.emit(Inst::Fold(Box::new(fold(combine))));
            }
            None => {
                // The most elements that are combined at once.
                let most = match kind {
                    FoldKind::Reduce => len.div_ceil(2).saturating_mul(outer * inner),
                    FoldKind::Scan { .. } => n,
                };
                let vectorised = is_elementwise(self.func, region);
                let at = self.emit(Inst::Return);
                let code = self.region_code(region, vectorised.then_some(most))?;
                self.insts[at.index()] = Inst::Fold(Box::new(fold(Combine::Region { code, vectorised })));
                self.land(at);
            }
        }
        homes.into_iter().for_each(|home| self.storage.free(home));
        Ok(())
    }

    /// Compiles a region `(a..., b...) -> combined...`, on tiles of at most `lanes` elements if that is given.
    pub(super) fn region_code(&mut self, region: RegionId, lanes: Option<usize>) -> Result<RegionCode> {
        let func = self.func;
        let first = self.regs.len() as u32;
        let around = std::mem::replace(&mut self.lanes, lanes);
        let start = self.here();
        let mut args = Vec::new();
        for &arg in &func.region(region).args {
            args.push(self.define(arg)?);
        }
        let captured = if lanes.is_some() { self.capture(region)? } else { Vec::new() };
        let mut yields = self.region(region)?.regs;
        // The arguments lie where the results go, so they need memory of their own.
        for reg in &mut yields {
            if args.contains(reg) {
                let own = self.twin(*reg);
                self.emit(Inst::CopyLanes { a: *reg, out: own });
                *reg = own;
            }
        }
        self.emit(Inst::RegionEnd);
        for (value, reg) in captured {
            self.reg_of[value.index()] = Some(reg);
        }
        self.lanes = around;
        let regs = first..self.regs.len() as u32;
        regs.clone().for_each(|reg| self.free(RegId(reg)));
        let right = args.split_off(args.len() / 2);
        Ok(RegionCode {
            start,
            end: Pc::UNPATCHED,
            left: args.into(),
            right: right.into(),
            yields: yields.into(),
            regs,
        })
    }

    /// Copies the scalars that a region on tiles uses from outside into uniform tiles of its own.
    /// Returns what those values were before.
    fn capture(&mut self, region: RegionId) -> Result<Vec<(ValueId, RegId)>> {
        let func = self.func;
        let mut used = Vec::new();
        for &op in &func.region(region).ops {
            for_each_operand(func, op, &mut |value| used.push(value));
        }
        used.sort_unstable();
        used.dedup();
        let args = &func.region(region).args;
        let mut captured = Vec::new();
        for value in used {
            if args.contains(&value) || is_defined_in(func, region, value) {
                continue;
            }
            let outside = self.reg(value)?;
            captured.push((value, outside));
            let inside = self.define(value)?;
            self.emit(Inst::Move { a: outside, out: inside });
        }
        Ok(captured)
    }
}

/// Whether an operation of the region, or of a region in it, defines the value.
fn is_defined_in(func: &Func, region: RegionId, value: ValueId) -> bool {
    let mut pending = vec![region];
    while let Some(region) = pending.pop() {
        for (_, operation) in func.region_ops(region) {
            if operation.results.contains(&value) {
                return true;
            }
            pending.extend(&operation.regions);
        }
    }
    false
}

/// Whether a region computes with scalars only, without memory and loops, so that it can run on tiles of elements.
pub(super) fn is_elementwise(func: &Func, region: RegionId) -> bool {
    let mut pending = vec![region];
    while let Some(region) = pending.pop() {
        for (_, operation) in func.region_ops(region) {
            let scalar = |v: &ValueId| func.ty(*v).is_scalar() && func.ty(*v).dt().is_some();
            let op = &operation.op;
            if matches!(op.regions(), Regions::Branch(_)) {
                pending.extend(&operation.regions);
            }
            let computes = matches!(op.elements(), Elements::Made | Elements::Each) && op.is_pure();
            let simple = computes || matches!(op, Op::Control(ControlOp::If | ControlOp::Yield));
            if !simple || !operation.operands.iter().chain(&operation.results).all(scalar) {
                return false;
            }
        }
    }
    true
}

/// The combination of a region that is one commutative operation on its arguments.
fn single_operation(func: &Func, region: RegionId, dtype: DType) -> Option<Combine> {
    let (body, lanes) = (func.region(region), Lanes(func.subnormals));
    let ([a, b], [first, last]) = (body.args.as_slice(), body.ops.as_slice()) else { return None };
    let (first, last) = (func.op(*first), func.op(*last));
    let Op::Elementwise(ElementwiseOp::Binary { op }) = first.op else { return None };
    let yields = last.op == Op::Control(ControlOp::Yield) && last.operands == first.results;
    let on_arguments = first.operands == [*a, *b] || first.operands == [*b, *a];
    if !yields || !on_arguments || !is_commutative(op) {
        return None;
    }
    if matches!(dtype, DType::F8E4M3 | DType::F8E5M2 | DType::F16 | DType::BF16)
        && matches!(op, BinaryOp::Add | BinaryOp::Mul)
    {
        let f = lanes.binary(op, DType::F32)?;
        return Some(Combine::Single { f, widen: Some((cast(dtype, DType::F32), cast(DType::F32, dtype))) });
    }
    Some(Combine::Single { f: lanes.binary(op, dtype)?, widen: None })
}

fn is_commutative(op: BinaryOp) -> bool {
    match op {
        BinaryOp::Add
        | BinaryOp::Mul
        | BinaryOp::Min
        | BinaryOp::Max
        | BinaryOp::MinNan
        | BinaryOp::MaxNan
        | BinaryOp::And
        | BinaryOp::Or
        | BinaryOp::Xor
        | BinaryOp::Umulhi
        | BinaryOp::Mulhi
        | BinaryOp::SaturatingAdd
        | BinaryOp::SaturatingMul => true,
        BinaryOp::Sub
        | BinaryOp::Div
        | BinaryOp::Rem
        | BinaryOp::DivRn
        | BinaryOp::Shl
        | BinaryOp::Shr
        | BinaryOp::RotateLeft
        | BinaryOp::RotateRight
        | BinaryOp::SaturatingSub
        | BinaryOp::CopySign
        | BinaryOp::NextAfter
        | BinaryOp::Math(_) => false,
    }
}
