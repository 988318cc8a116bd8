//! The rule L12: a bank holds the tile of whoever goes on with it.

use std::collections::{BTreeMap, BTreeSet};

use super::Errors;
use super::flight::tiles_in_flight;
use crate::ir::banks::stays;
use crate::ir::{BankId, ControlOp, Func, GpuOp, Level, Op, OpId, Operation, RegionId, Span, ValueId};

pub(super) fn check<'f>(func: &'f Func, errors: &mut Errors<'f>) {
    if func.values.iter().all(|value| value.bank.is_none()) {
        return;
    }
    if func.level != Level::Placed {
        errors.push(Span::UNKNOWN, "only values of a placed kernel live in banks");
        return;
    }
    let flying = tiles_in_flight(func);
    let mut banks = Banks { func, errors, flying, samples: BTreeMap::new(), holds: BTreeMap::new() };
    for param in &func.params {
        banks.define(param.value, param.span);
    }
    banks.region(func.body, None);
}

/// One walk over the kernel, in program order.
struct Banks<'f, 'e> {
    func: &'f Func,
    errors: &'e mut Errors<'f>,
    /// Per value, whether a product may still be writing it.
    flying: Vec<bool>,
    /// Per bank, the first value that lives there.
    samples: BTreeMap<BankId, ValueId>,
    /// Per bank, the value whose tile it holds; none where nobody can tell.
    holds: BTreeMap<BankId, ValueId>,
}

impl Banks<'_, '_> {
    fn region(&mut self, region: RegionId, owner: Option<OpId>) {
        let func = self.func;
        for (id, operation) in func.region_ops(region) {
            for (index, operand) in operation.operands.iter().enumerate() {
                let bank = func.value(*operand).bank;
                if let (Some(bank), Some(_)) = (bank, stays(func, id, index, owner))
                    && self.holds.get(&bank) != Some(operand)
                {
                    let message =
                        format!("`{}`: bank {} does not hold the operand any more", operation.op.name(), bank.index());
                    self.errors.push(operation.span, message);
                }
            }
            if let Op::Gpu(GpuOp::Wgmma { .. }) = operation.op
                && stays(func, id, 2, owner).is_none()
            {
                operation.results.iter().for_each(|&result| self.fill(result, operation));
            }
            if let Op::Control(ControlOp::For { .. }) = operation.op {
                self.for_loop(id, operation);
            } else {
                self.branches(id, operation);
            }
            self.results(id, operation, owner);
        }
    }

    fn for_loop(&mut self, id: OpId, operation: &Operation) {
        let Some(&body) = operation.regions.first() else { return };
        let written = self.written(body);
        self.holds.retain(|bank, _| !written.contains(bank));
        for &arg in &self.func.region(body).args {
            self.define(arg, operation.span);
        }
        self.region(body, Some(id));
        let args = self.func.region(body).args.get(1..).unwrap_or_default();
        for (&arg, &next) in args.iter().zip(self.func.yielded(body)) {
            if self.func.value(next).bank != self.func.value(arg).bank {
                self.fill(arg, operation);
            }
        }
        self.holds.retain(|bank, _| !written.contains(bank));
        for (&arg, &result) in args.iter().zip(&operation.results) {
            let bank = |value| self.func.value(value).bank;
            if bank(result) != bank(arg) {
                self.errors.push(operation.span, "`for`: what a loop carries in a bank is there behind it");
            }
        }
    }

    /// Regions of which one runs, or each by other warps.
    fn branches(&mut self, id: OpId, operation: &Operation) {
        let before = self.holds.clone();
        // Where there is one region, it may run or not.
        let mut after = (operation.regions.len() == 1).then(|| before.clone());
        for &region in &operation.regions {
            self.holds = before.clone();
            for &arg in &self.func.region(region).args {
                if self.func.value(arg).bank.is_some() {
                    self.errors.push(operation.span, format!("`{}` carries nothing in banks", operation.op.name()));
                }
            }
            self.region(region, Some(id));
            let own = std::mem::take(&mut self.holds);
            after = Some(match after {
                None => own,
                Some(other) => other.into_iter().filter(|(bank, value)| own.get(bank) == Some(value)).collect(),
            });
        }
        self.holds = after.unwrap_or(before);
    }

    fn results(&mut self, id: OpId, operation: &Operation, owner: Option<OpId>) {
        let func = self.func;
        let mut own = BTreeSet::new();
        for (index, &result) in operation.results.iter().enumerate() {
            let Some(bank) = func.value(result).bank else { continue };
            let waited = matches!(operation.op, Op::Gpu(GpuOp::WgmmaWait { .. }));
            let made = matches!(
                operation.op,
                Op::Gpu(GpuOp::Wgmma { .. }) | Op::Control(ControlOp::For { .. } | ControlOp::If)
            );
            if !own.insert(bank) {
                self.errors.push(operation.span, format!("`{}`: two results in one bank", operation.op.name()));
            } else if waited && stays(func, id, index, owner).is_none() {
                self.errors.push(operation.span, "`wgmma_wait`: a tile that was not in the bank before");
            } else if !waited && !made {
                let message = format!("`{}` has a result in a bank, and is no product", operation.op.name());
                self.errors.push(operation.span, message);
            }
            self.define(result, operation.span);
        }
    }

    /// Checks that nothing is written to the bank of a value while a product may be.
    fn fill(&mut self, value: ValueId, operation: &Operation) {
        let Some(bank) = self.func.value(value).bank else { return };
        if self.holds.get(&bank).is_some_and(|holds| self.flying[holds.index()]) {
            let message =
                format!("`{}`: bank {} is filled while a product writes it", operation.op.name(), bank.index());
            self.errors.push(operation.span, message);
        }
    }

    fn define(&mut self, value: ValueId, span: Span) {
        let data = self.func.value(value);
        let Some(bank) = data.bank else { return };
        self.holds.insert(bank, value);
        let sample = self.func.value(*self.samples.entry(bank).or_insert(value));
        if (&sample.ty, sample.layout) != (&data.ty, data.layout) || data.layout.is_none() {
            self.errors.push(span, format!("bank {} holds tiles of one type and layout", bank.index()));
        }
    }

    /// The banks of what is defined in a region.
    fn written(&self, region: RegionId) -> BTreeSet<BankId> {
        let func = self.func;
        let bank = |&value: &ValueId| func.value(value).bank;
        let mut written: BTreeSet<BankId> = func.region(region).args.iter().filter_map(bank).collect();
        for (_, operation) in func.region_ops(region) {
            written.extend(operation.results.iter().filter_map(bank));
            operation.regions.iter().for_each(|&inner| written.extend(self.written(inner)));
        }
        written
    }
}
