//! Writes the loops of the warps that multiply.
//!
//! ```text
//! for k in .. {
//!   wait full[slot], phase
//!   acc = wgmma a[slot], b[slot], acc, adding but in the first iteration
//!   wait until one product is in flight; arrive empty[previous]
//!   advance (slot, phase)
//! }
//! what only comes after the loop needs to know, as coordinates of the tile
//! wait for the products; if the loop has run { arrive empty[previous] }
//! ```
//!
//! Between the last product of a tile and the first of the next one the tensor cores may stand still, so that way is
//! short: nothing makes zeros for the sums, and coordinates are computed while the last products run.

use std::collections::BTreeSet;

use kernel_core::edit::{Result, clone_op, walk_region};
use kernel_core::ir::known::{constant, splat_source};
use kernel_core::ir::{
    CmpOp, ControlOp, Def, FenceKind, Func, GpuOp, Literal, Op, OpId, Operation, RegionId, Span, ValueId,
};

use super::find::{Copy, FedLoop};
use super::split::{Position, Ring, Side, Split, quiet};

impl Split<'_> {
    /// A loop that multiplies what has been fetched.
    pub(super) fn consume(&mut self, number: usize) -> Result<()> {
        let operation = self.func.op(self.fed_loops[number].owner).clone();
        self.multiply(number, &operation)
    }

    /// The carried values, by number, that products of a loop add to.
    fn sums(&self, fed: &FedLoop, args: &[ValueId]) -> impl Iterator<Item = usize> + use<> {
        let of =
            |product: &OpId| args.iter().position(|&arg| arg == self.func.op(*product).operands[2])?.checked_sub(1);
        fed.carried_products.iter().filter_map(of).collect::<Vec<_>>().into_iter()
    }

    /// Has what only comes after a loop computed behind it, as there the last products are in flight.
    pub(super) fn put_off(&mut self, region: RegionId) {
        let overlapping = |id: &OpId| {
            let own = self.fed_loops.iter().find(|fed| fed.owner == *id);
            own.filter(|fed| !fed.carried_products.is_empty())
        };
        let ops = self.func.region(region).ops.clone();
        let found = ops.iter().enumerate().find_map(|(at, id)| Some((at, overlapping(id)?)));
        let Some((at, fed)) = found.filter(|_| matches!(self.side, Side::Consumer)) else { return };
        // What the loop itself needs, and what stands before it and is not put off.
        let mut needed = self.needed_by(fed);
        let mut late = Vec::new();
        for &id in ops[..at].iter().rev() {
            let operation = self.func.op(id);
            let is_scalar = operation.results.iter().all(|&value| self.func.ty(value).is_scalar());
            let is_pure = operation.op.is_local();
            if is_scalar && is_pure && !operation.results.iter().any(|value| needed.contains(value)) {
                late.push(id);
            } else {
                needed.extend(&operation.operands);
                for &inner in &operation.regions {
                    walk_region(self.func, inner, &mut |id| needed.extend(&self.func.op(id).operands));
                }
            }
        }
        late.reverse();
        self.late.insert(ops[at], late);
    }

    /// What a loop needs when the blocks that it loads are fetched by others.
    fn needed_by(&self, fed: &FedLoop) -> BTreeSet<ValueId> {
        let operation = self.func.op(fed.owner);
        let mut needed: BTreeSet<ValueId> = operation.operands.iter().copied().collect();
        for &id in self.func.region(operation.regions[0]).ops.iter().rev() {
            let inner = self.func.op(id);
            let is_fetched = fed.copies.iter().any(|copy| copy.load == id) || fed.stores.contains(&id);
            let is_pure = inner.op.is_arithmetic();
            if is_fetched || (is_pure && !inner.results.iter().any(|value| needed.contains(value))) {
                continue;
            }
            needed.extend(&inner.operands);
            for &region in &inner.regions {
                walk_region(self.func, region, &mut |id| needed.extend(&self.func.op(id).operands));
            }
        }
        needed
    }

    fn compute_late(&mut self, owner: OpId) -> Result<()> {
        for id in self.late.get(&owner).cloned().unwrap_or_default() {
            let copy = clone_op(self.func, id, &mut self.map);
            self.out.push(copy);
        }
        Ok(())
    }

    /// A region of what has been emitted, which yields these values.
    pub(super) fn yielding(&mut self, values: &[ValueId]) -> Result<RegionId> {
        self.cursor(Span::UNKNOWN).op(ControlOp::Yield, values, &[])?;
        let region = self.func.new_region([]);
        self.func.regions[region.index()].ops = std::mem::take(&mut self.out);
        Ok(region)
    }

    /// The loop itself, and the wait for what it leaves in flight.
    fn multiply(&mut self, number: usize, operation: &Operation) -> Result<()> {
        let (fed, ring) = (self.fed_loops[number].clone(), self.ring_of(number));
        let Op::Control(op) = &operation.op else { return Ok(()) };
        let (overlaps, trails) = (!fed.carried_products.is_empty(), fed.trails());
        let mut operands: Vec<ValueId> = operation.operands.iter().map(|&v| self.mapped(v)).collect();
        operands.extend(self.state(&[fed.ring]));
        // What the iteration before has read: nothing before the first, which is said of a slot that is nobody's.
        if trails {
            operands.push(self.number(fed.stages as i32)?);
        }
        let body = operation.regions[0];
        let copy = self.func.new_region([]);
        for arg in self.func.region(body).args.clone() {
            self.argument(copy, arg);
        }
        let at = self.position_argument(copy, fed.ring);
        let previous = trails.then(|| self.func.add_region_arg(copy, self.func.ty(at.slot).clone()));
        let outer = std::mem::take(&mut self.out);
        let adds = previous.filter(|_| overlaps).map(|previous| self.adds(previous, &fed)).transpose()?;
        self.iteration(&fed, &ring, body, at, previous)?;
        match previous.filter(|_| overlaps) {
            Some(previous) => {
                self.overwrite(&fed, operation, adds);
                self.wait_for(&fed, fed.carried_products.len() as u8)?;
                self.release(&fed, &ring, previous, operation.span)?;
            }
            None => {
                let unread = fed.releases.iter().zip(&ring.empty).enumerate();
                for (part, (_, &empty)) in unread.filter(|(_, (release, _))| release.is_none()) {
                    if fed.copies.iter().any(|copy| copy.part == part && copy.read.is_some()) {
                        // One thread of four warps says so for all of them.
                        self.cursor(operation.span).effect(GpuOp::Fence { kind: FenceKind::ProxyAsync }, &[])?;
                        self.cursor(operation.span).effect(GpuOp::WarpgroupBarrier, &[])?;
                    }
                    self.cursor(operation.span).effect(GpuOp::MbarrierArrive, &[empty, at.slot])?;
                }
            }
        }
        let next = self.advance(at, fed.stages)?;
        let mut values: Vec<ValueId> = self.func.yielded(body).to_vec();
        values.iter_mut().for_each(|value| *value = self.mapped(*value));
        values.extend([next.slot, next.phase]);
        values.extend(previous.map(|_| at.slot));
        self.cursor(Span::UNKNOWN).op(ControlOp::Yield, &values, &[])?;
        self.func.regions[copy.index()].ops = std::mem::replace(&mut self.out, outer);
        let kept: Vec<usize> = (0..operation.results.len()).collect();
        self.finish(operation, quiet(op), operands, vec![copy], &kept, &[fed.ring])?;
        if !trails {
            return self.pass_turn();
        }
        let last = self.out.last().map(|&id| self.func.op(id).results.clone()).unwrap_or_default();
        self.pass_turn()?;
        self.compute_late(fed.owner)?;
        self.drain(&fed, &ring, operation, &last)
    }

    /// Whether an iteration is not the first.
    fn adds(&mut self, previous: ValueId, fed: &FedLoop) -> Result<ValueId> {
        let nobodys = self.number(fed.stages as i32)?;
        self.cursor(Span::UNKNOWN).value(Op::compare(CmpOp::Ne), &[previous, nobodys])
    }

    /// The products that begin with zeros do not add to them.
    fn overwrite(&mut self, fed: &FedLoop, operation: &Operation, adds: Option<ValueId>) {
        let args = self.func.region(operation.regions[0]).args.clone();
        for (&product, index) in fed.carried_products.iter().zip(self.sums(fed, &args)) {
            let copy = self.mapped(self.func.op(product).results[0]);
            if let (Def::Result(copy, _), true) =
                (self.func.value(copy).def, is_zero(self.func, operation.operands[3 + index]))
            {
                self.func.ops[copy.index()].operands.extend(adds);
            }
        }
    }

    /// The operations of one iteration, on the slot that it has waited for.
    fn iteration(
        &mut self,
        fed: &FedLoop,
        ring: &Ring,
        body: RegionId,
        at: Position,
        previous: Option<ValueId>,
    ) -> Result<()> {
        let replaced: BTreeSet<OpId> =
            fed.copies.iter().map(|copy| copy.alloc).chain(fed.obsolete.iter().copied()).collect();
        let overlaps = !fed.carried_products.is_empty();
        let mut waited = BTreeSet::new();
        for id in self.func.region(body).ops.clone() {
            if let Some(store) = fed.stores.iter().position(|&store| store == id) {
                let part = fed.copies[store].part;
                if waited.insert(part) {
                    self.arrived(fed, ring, part, at, self.func.op(id).span)?;
                }
                continue;
            }
            let late = overlaps && fed.waits.contains(&id);
            if self.func.op(id).op.is_terminator() || replaced.contains(&id) || late {
                continue;
            }
            self.operation(id)?;
            let releases = fed.releases.iter().zip(&fed.late).zip(&ring.empty);
            for ((_, &late), &empty) in releases.filter(|((release, _), _)| **release == Some(id)) {
                let slot = previous.filter(|_| late).unwrap_or(at.slot);
                self.cursor(self.func.op(id).span).effect(GpuOp::MbarrierArrive, &[empty, slot])?;
            }
        }
        Ok(())
    }

    /// Lets a slot be filled again: all of it, or the parts that are released late.
    fn release(&mut self, fed: &FedLoop, ring: &Ring, slot: ValueId, span: Span) -> Result<()> {
        let all = !fed.carried_products.is_empty();
        for (&empty, _) in ring.empty.iter().zip(&fed.late).filter(|(_, late)| all || **late) {
            self.cursor(span).effect(GpuOp::MbarrierArrive, &[empty, slot])?;
        }
        Ok(())
    }

    /// Waits for a part of a slot; its views stand for the allocations.
    fn arrived(&mut self, fed: &FedLoop, ring: &Ring, part: usize, at: Position, span: Span) -> Result<()> {
        self.cursor(span).effect(GpuOp::MbarrierWait, &[ring.full[part], at.slot, at.phase])?;
        for copy in fed.copies.iter().filter(|copy| copy.part == part) {
            self.view_as_alloc(copy, ring.slots[copy.block], at, span)?;
        }
        Ok(())
    }

    /// Has the view of a slot stand for the allocation that a copy replaces.
    pub(super) fn view_as_alloc(&mut self, copy: &Copy, slots: ValueId, at: Position, span: Span) -> Result<()> {
        let mut view = self.slot(slots, at.slot, span)?;
        let old = self.func.op(copy.alloc).results[0];
        for (op, layout) in copy.axes.views(&copy.narrower, self.func.layout(old)) {
            let mut operands = vec![view];
            if op == GpuOp::SharedIndex {
                operands.push(self.number(0)?);
            }
            let layout = self.func.intern(&layout);
            view = self.cursor(span).placed(op, &operands, Some(layout))?;
        }
        self.map.insert(old, view);
        Ok(())
    }

    /// Waits until at most the `pending` latest products are in flight.
    fn wait_for(&mut self, fed: &FedLoop, pending: u8) -> Result<()> {
        let sums: Vec<ValueId> = fed.carried_products.iter().map(|&id| self.func.op(id).results[0]).collect();
        let results = self.wait(&sums.iter().map(|&sum| self.mapped(sum)).collect::<Vec<_>>(), pending)?;
        for &wait in &fed.waits {
            let operation = self.func.op(wait).clone();
            for (&operand, &result) in operation.operands.iter().zip(&operation.results) {
                if let Some(position) = sums.iter().position(|&sum| sum == operand) {
                    self.map.insert(result, results[position]);
                }
            }
        }
        Ok(())
    }

    fn wait(&mut self, tiles: &[ValueId], pending: u8) -> Result<Vec<ValueId>> {
        let wait = self.cursor(Span::UNKNOWN).op(GpuOp::WgmmaWait { pending }, tiles, &[])?;
        let results = self.func.op(wait).results.clone();
        for (&tile, &result) in tiles.iter().zip(&results) {
            self.func.values[result.index()].layout = self.func.value(tile).layout;
        }
        Ok(results)
    }

    /// After the loop: waits for the last products, and releases what they read.
    fn drain(&mut self, fed: &FedLoop, ring: &Ring, operation: &Operation, last: &[ValueId]) -> Result<()> {
        let args = self.func.region(operation.regions[0]).args.clone();
        let positions = self.sums(fed, &args).chain(fed.crossing.iter().copied());
        let sums: Vec<ValueId> = positions.map(|index| operation.results[index]).collect();
        let tiles: Vec<ValueId> = sums.iter().map(|&sum| self.mapped(sum)).collect();
        let results = self.wait(&tiles, 0)?;
        for (sum, result) in sums.into_iter().zip(results) {
            self.map.insert(sum, result);
        }
        let Some(&previous) = last.last() else { return Ok(()) };
        if matches!(operation.op, Op::Control(ControlOp::For { runs: true, .. })) {
            return self.release(fed, ring, previous, operation.span);
        }
        // A loop that has not run has read nothing.
        let runs = [self.mapped(operation.operands[0]), self.mapped(operation.operands[1])];
        let runs = self.cursor(operation.span).value(Op::compare(CmpOp::Lt), &runs)?;
        let outer = std::mem::take(&mut self.out);
        self.release(fed, ring, previous, operation.span)?;
        let regions = vec![self.yielding(&[])?, self.yielding(&[])?];
        self.out = outer;
        let condition = Operation { results: Vec::new(), ..operation.clone() };
        self.finish(&condition, ControlOp::If, vec![runs], regions, &[], &[])
    }
}

/// Whether a tile is zeros.
fn is_zero(func: &Func, tile: ValueId) -> bool {
    match splat_source(func, tile).and_then(|scalar| constant(func, scalar)) {
        Some(Literal::Float(bits)) => bits == 0,
        Some(Literal::Int(number)) => number == 0,
        Some(Literal::Bool(_)) | None => false,
    }
}
