//! Emits what was decided: a copy of a cheap value per layout, conversions of the others, layouts on all tiles.

use std::collections::{BTreeMap, HashMap};

use kernel_core::edit::{self, Cursor, clone_op};
use kernel_core::ir::{ControlOp, Func, LayoutId, Level, Op, OpId, RegionId, ShapeOp, Span, ValueId};

use super::{Home, Table, transfer};
use crate::analysis::control::operands_before_carried;
use crate::error::CodegenError;

type Result<T> = std::result::Result<T, CodegenError>;

/// What the steps before decided, as in [`super::Placement`].
pub(super) struct Decisions {
    pub(super) chosen: Vec<Option<LayoutId>>,
    pub(super) products: BTreeMap<OpId, Vec<LayoutId>>,
    pub(super) homes: Vec<Home>,
    pub(super) demands: Vec<Vec<LayoutId>>,
}

struct Convert<'a> {
    func: Func,
    table: Table,
    chosen: &'a [Option<LayoutId>],
    products: &'a BTreeMap<OpId, Vec<LayoutId>>,
    homes: &'a [Home],
    demands: &'a [Vec<LayoutId>],
    /// Per value of the original kernel, the values that hold it, by layout.
    copies: Vec<Vec<(LayoutId, ValueId)>>,
}

/// The kernel at the placed level.
pub(super) fn apply(func: Func, table: Table, decisions: &Decisions) -> Result<Func> {
    let Decisions { chosen, products, homes, demands } = decisions;
    let body = func.body;
    let copies = vec![Vec::new(); func.values.len()];
    let mut rewriter = Convert { func, table, chosen, products, homes, demands, copies };
    rewriter.region(body, &[])?;
    let Convert { mut func, table, .. } = rewriter;
    func.layouts = table.layouts;
    func.level = Level::Placed;
    Ok(func)
}

impl Convert<'_> {
    fn is_tile(&self, value: ValueId) -> bool {
        !self.func.ty(value).is_scalar()
    }

    /// The value that holds `value` in `layout`.
    fn copy_in(&self, value: ValueId, layout: Option<LayoutId>) -> ValueId {
        let copies = self.copies.get(value.index()).map_or(&[][..], Vec::as_slice);
        let found = copies.iter().find(|(known, _)| Some(*known) == layout);
        found.map_or(value, |&(_, copy)| copy)
    }

    /// `homes` are the values whose layouts the region's `yield` must deliver.
    fn region(&mut self, region: RegionId, homes: &[ValueId]) -> Result<()> {
        let ops = std::mem::take(&mut self.func.regions[region.index()].ops);
        let mut out = Vec::with_capacity(ops.len());
        for arg in self.func.region(region).args.clone() {
            self.settle(arg, Span::UNKNOWN, &mut out)?;
        }
        for op in ops {
            self.operation(op, homes, &mut out)?;
        }
        self.func.regions[region.index()].ops = out;
        Ok(())
    }

    /// Gives a value with one home its layout, and converts it to the others that are wanted.
    fn settle(&mut self, value: ValueId, span: Span, out: &mut Vec<OpId>) -> edit::Result<()> {
        let Home::At(home) = self.homes[value.index()] else { return Ok(()) };
        if !self.is_tile(value) {
            return Ok(());
        }
        self.func.values[value.index()].layout = Some(home);
        self.copies[value.index()].push((home, value));
        for &layout in &self.demands[value.index()] {
            if layout != home {
                let mut cursor = Cursor::new(&mut self.func, out, "place").at(span);
                let converted = cursor.placed(ShapeOp::ConvertLayout, &[value], Some(layout))?;
                self.copies[value.index()].push((layout, converted));
            }
        }
        Ok(())
    }

    fn operation(&mut self, id: OpId, homes: &[ValueId], out: &mut Vec<OpId>) -> Result<()> {
        let (op, results) = (self.func.op(id).op.clone(), self.func.op(id).results.clone());
        if let Op::Control(op) = &op {
            return self.control(id, op, homes, out);
        }
        if self.products.contains_key(&id) {
            return self.product(id, out);
        }
        // What nobody sees goes where its result is wanted, everything else stays where it is.
        match results.first() {
            Some(&result) if self.is_tile(result) && op.buffer_access() != Some(true) => self.tile(id, result, out),
            _ => self.effect(id, self.chosen[id.index()], out),
        }
    }

    /// An operation that stays as it is, with its tiles in `layout`.
    fn effect(&mut self, id: OpId, layout: Option<LayoutId>, out: &mut Vec<OpId>) -> Result<()> {
        let operands = self.func.op(id).operands.iter().map(|&v| self.copy_in(v, layout)).collect();
        self.func.ops[id.index()].operands = operands;
        out.push(id);
        let span = self.func.op(id).span;
        for result in self.func.op(id).results.clone() {
            self.settle(result, span, out)?;
        }
        Ok(())
    }

    /// An operation with one tile as its result and no effect that others see; nothing if nobody wants the result.
    fn tile(&mut self, id: OpId, result: ValueId, out: &mut Vec<OpId>) -> Result<()> {
        let demands = &self.demands[result.index()];
        if demands.is_empty() {
            return Ok(());
        }
        let original = self.func.op(id).operands.clone();
        if let Home::At(home) = self.homes[result.index()] {
            let operands = self.operands(id, &original, home)?;
            self.func.ops[id.index()].operands = operands;
            out.push(id);
            let span = self.func.op(id).span;
            self.settle(result, span, out)?;
            return Ok(());
        }
        for (index, &layout) in demands.iter().enumerate() {
            let operands = self.operands(id, &original, layout)?;
            let copy = if index == 0 { id } else { clone_op(&mut self.func, id, &mut HashMap::new()) };
            self.func.ops[copy.index()].operands = operands;
            let value = self.func.op(copy).results[0];
            self.func.values[value.index()].layout = Some(layout);
            self.copies[result.index()].push((layout, value));
            out.push(copy);
        }
        Ok(())
    }

    /// A matrix product or an operation on whole tiles, whose operands have layouts of their own; nothing if nobody wants the result.
    fn product(&mut self, id: OpId, out: &mut Vec<OpId>) -> Result<()> {
        let operation = self.func.op(id);
        let (result, span) = (operation.results[0], operation.span);
        let wanted = !self.demands[result.index()].is_empty();
        let Some(layouts) = self.products.get(&id).filter(|_| wanted) else { return Ok(()) };
        let operands = operation.operands.iter().zip(layouts);
        let operands = operands.map(|(&value, &layout)| self.copy_in(value, Some(layout))).collect();
        self.func.ops[id.index()].operands = operands;
        out.push(id);
        Ok(self.settle(result, span, out)?)
    }

    /// The operands for a result in `layout`; `original` are those of the kernel before placement.
    fn operands(&mut self, id: OpId, original: &[ValueId], layout: LayoutId) -> Result<Vec<ValueId>> {
        // Pointers, offsets and masks are where the result is.
        let transfers = self.func.op(id).op.is_arithmetic();
        let wanted = if !transfers {
            vec![Some(layout); original.len()]
        } else {
            let current = std::mem::replace(&mut self.func.ops[id.index()].operands, original.to_vec());
            let wanted = transfer::operand_layouts(&self.func, &mut self.table, id, layout);
            self.func.ops[id.index()].operands = current;
            wanted.map_err(|error| {
                let span = self.func.op(id).span;
                CodegenError::refuse(&self.func, span, format!("no layout for this operation: {error}"))
            })?
        };
        Ok(original.iter().zip(wanted).map(|(&v, layout)| self.copy_in(v, layout)).collect())
    }

    fn control(&mut self, id: OpId, op: &ControlOp, homes: &[ValueId], out: &mut Vec<OpId>) -> Result<()> {
        let (operands, results) = (self.func.op(id).operands.clone(), self.func.op(id).results.clone());
        let regions = self.func.op(id).regions.clone();
        match op {
            ControlOp::For { .. } | ControlOp::While | ControlOp::If => {
                let first = operands_before_carried(op);
                let mut placed = operands[..first].to_vec();
                placed.extend(self.at_home(&operands[first..], &results));
                self.func.ops[id.index()].operands = placed;
                for &region in &regions {
                    let is_condition = matches!(op, ControlOp::While) && region == regions[0];
                    self.region(region, if is_condition { &[] } else { &results })?;
                }
                out.push(id);
                let span = self.func.op(id).span;
                for result in results {
                    self.settle(result, span, out)?;
                }
                Ok(())
            }
            // The regions of these deal in scalars and stay.
            ControlOp::Reduce { .. }
            | ControlOp::Scan { .. }
            | ControlOp::Map { .. }
            | ControlOp::Assert { .. }
            | ControlOp::Print { .. } => self.effect(id, self.chosen[id.index()], out),
            ControlOp::Yield => {
                let placed = self.at_home(&operands, homes);
                self.func.ops[id.index()].operands = placed;
                out.push(id);
                Ok(())
            }
            ControlOp::Return | ControlOp::StaticAssert { .. } => {
                out.push(id);
                Ok(())
            }
        }
    }

    /// The copies of `values` in the layouts of `homes`, place by place; values beyond stay as they are.
    fn at_home(&self, values: &[ValueId], homes: &[ValueId]) -> Vec<ValueId> {
        let home = |index: usize| match homes.get(index).map(|v| self.homes[v.index()]) {
            Some(Home::At(layout)) => Some(layout),
            _ => None,
        };
        values.iter().enumerate().map(|(index, &v)| self.copy_in(v, home(index))).collect()
    }
}
