//! Which tiles live in registers that PTX names: the accumulators of asynchronous products.
//!
//! ```text
//! %0 = splat 0.0                                                     values of LLVM
//! %4 = for .. (%1 = %0) { %2 = wgmma %a, %b, %1; %3 = wgmma_wait {pending = 1} %2; yield %3 }
//! %5 = wgmma_wait {pending = 0} %4                                   %1 to %5: one bank
//! store %p, %5                                                       read from it
//! ```
//!
//! Hardware writes the registers of an accumulator at some time until the wait. To LLVM they would be values that every
//! product and every wait makes anew, hundreds in each, and it would have to be kept from moving any of them. So such a
//! tile lives in a *bank*: registers that the kernel declares, whose names stand in the text of the instructions.
//!
//! A bank holds one tile at a time. A value *stays* in the bank of the value that it is made from if nobody needs the
//! bank afterwards: a product goes on with its accumulator, a loop carries a bank around, both branches of a
//! condition leave their tile in one. Wherever a value does not stay it is copied. What other operations need of a
//! bank is read where the value is defined, and is an ordinary tile from there on.
//!
//! A sum that each iteration computes with, as attention rescales its own, returns to the bank that the loop carries:
//! where a product begins with what was computed, or at the end of the iteration.
//!
//! ```text
//! for .. (%1 = %0) { %2 = mul %1, %alpha; %3 = wgmma %a, %b, %2; %4 = wgmma_wait %3; yield %4 }     all in one bank
//! for .. (%1 = %0) { %2 = wgmma %a, %b, %1; %3 = wgmma_wait %2; %4 = mul %3, %alpha; yield %4 }     but %4
//! ```
//!
//! Carried as values of LLVM, and filled into a bank in each iteration, it would cost a move per register: ptxas gives
//! the registers of a bank to others where it is not needed.

use std::collections::BTreeSet;

use kernel_core::edit::Structure;
use kernel_core::ir::banks::becomes;
use kernel_core::ir::{
    BankId, ControlOp, DType, Def, Func, GpuOp, Op, OpId, Operation, RegionId, Regions, ValueId, view,
};
use kernel_core::verify::tiles_in_flight;

use crate::analysis::banks::Banks;
use crate::error::CodegenError;

/// Gives the accumulators of a placed kernel their banks.
///
/// # Errors
/// If a tile would have to be copied while a product is still writing it.
pub(crate) fn run(func: &mut Func) -> Result<(), CodegenError> {
    if !func.ops.iter().any(|operation| is_product(&operation.op)) {
        return Ok(());
    }
    for (value, bank) in banks(func).into_iter().enumerate() {
        func.values[value].bank = bank;
    }
    check_flights(func)
}

/// Per value, where it lives; `None` for what LLVM has.
fn banks(func: &Func) -> Vec<Option<BankId>> {
    let uses = Uses::new(func);
    let mut copied = BTreeSet::new();
    // A loop carries a tile in a bank if each iteration leaves it there or puts it back, which a walk that assumes so
    // finds out.
    loop {
        let mut walk = Walk::new(func, &uses, &copied);
        walk.region(func.body);
        if walk.failed.is_empty() {
            return walk.finish();
        }
        copied.extend(walk.failed);
    }
}

/// Refuses kernels that would read a tile which a product is still writing.
fn check_flights(func: &Func) -> Result<(), CodegenError> {
    let (flying, banks) = (tiles_in_flight(func), Banks::new(func));
    let mut values = (0..).map(ValueId::new).zip(flying).filter(|(_, flies)| *flies);
    match values.find(|&(value, _)| banks.bank(value).is_none() || banks.is_read(value)) {
        None => Ok(()),
        Some((value, _)) => {
            let span = func.def_op(value).map_or_else(Default::default, |operation| operation.span);
            let what = "a product in flight whose accumulator would have to be copied";
            Err(CodegenError::refuse(func, span, what))
        }
    }
}

/// A use of a value by an operation that may go on in the value's bank.
#[derive(Clone, Copy)]
struct Use {
    op: OpId,
    /// The region in which the operation stands.
    region: RegionId,
}

/// Who uses which value, and what is inside of what.
struct Uses<'f> {
    func: &'f Func,
    structure: Structure,
    /// Per value, the uses that may go on in its bank.
    going_on: Vec<Vec<Use>>,
}

impl<'f> Uses<'f> {
    fn new(func: &'f Func) -> Uses<'f> {
        let structure = Structure::new(func);
        let mut going_on = vec![Vec::new(); func.values.len()];
        for &op in structure.order() {
            let Some(region) = structure.region_of(op) else { continue };
            for (index, &operand) in func.op(op).operands.iter().enumerate() {
                if becomes(func, op, index, structure.owner(region)).is_some() {
                    going_on[operand.index()].push(Use { op, region });
                }
            }
        }
        Uses { func, structure, going_on }
    }

    /// The operation that a region belongs to, and the region in which that stands.
    fn outwards(&self, region: RegionId) -> Option<(OpId, RegionId)> {
        let owner = self.structure.owner(region)?;
        Some((owner, self.structure.region_of(owner)?))
    }

    /// The region in which a value is defined.
    fn definition(&self, value: ValueId) -> RegionId {
        match self.func.value(value).def {
            Def::Param(_) => self.func.body,
            Def::Arg(region, _) => region,
            Def::Result(op, _) => self.structure.region_of(op).unwrap_or(self.func.body),
        }
    }

    /// The operation whose regions run again and again that a region is in.
    fn repeats(&self, mut region: RegionId) -> Option<OpId> {
        while let Some((owner, outer)) = self.outwards(region) {
            match self.func.op(owner).op.regions() {
                Regions::Branch(_) | Regions::Concurrent => region = outer,
                Regions::Loop(_) | Regions::Combine(_) | Regions::Apply(_) | Regions::Straight => return Some(owner),
            }
        }
        None
    }

    /// Whether two uses are in different regions of one operation. Where neither is in a loop in which the value is not
    /// defined, no thread comes to both.
    fn exclude(&self, one: Use, other: Use) -> bool {
        let mut inside = Vec::new();
        let mut region = one.region;
        while let Some((owner, outer)) = self.outwards(region) {
            inside.push((owner, region));
            region = outer;
        }
        let mut region = other.region;
        while let Some((owner, outer)) = self.outwards(region) {
            if let Some((_, own)) = inside.iter().find(|(op, _)| *op == owner) {
                return *own != region;
            }
            region = outer;
        }
        false
    }

    /// Whether an operation may take over the bank of a value: it comes once for each time that the value is defined,
    /// and none comes beside it that could as well.
    fn takes(&self, value: ValueId, user: OpId) -> bool {
        let all = &self.going_on[value.index()];
        let mut own = all.iter().filter(|found| found.op == user);
        let (Some(&own), None) = (own.next(), own.next()) else { return false };
        self.repeats(own.region) == self.repeats(self.definition(value))
            && all.iter().all(|other| other.op == user || self.exclude(own, *other))
    }
}

/// One walk over the kernel in program order.
struct Walk<'a, 'f> {
    func: &'f Func,
    uses: &'a Uses<'f>,
    /// Arguments of loops that live in no bank.
    copied: &'a BTreeSet<ValueId>,
    /// Arguments that do not, as was found out.
    failed: Vec<ValueId>,
    banks: Vec<Option<BankId>>,
    /// Per bank, whether a product writes it.
    multiplied: Vec<bool>,
}

impl<'a, 'f> Walk<'a, 'f> {
    fn new(func: &'f Func, uses: &'a Uses<'f>, copied: &'a BTreeSet<ValueId>) -> Walk<'a, 'f> {
        let count = func.values.len();
        Walk { func, uses, copied, failed: Vec::new(), banks: vec![None; count], multiplied: Vec::new() }
    }

    fn region(&mut self, region: RegionId) {
        for (id, operation) in self.func.region_ops(region) {
            if let Some(product) = view::Wgmma::of(operation) {
                let bank = self.begin(product.acc, operation.results[0], id);
                self.multiplied[bank.index()] = true;
            } else if let Some(wait) = view::WgmmaWait::of(operation) {
                for (&operand, &result) in wait.tiles.iter().zip(&operation.results) {
                    self.go_on(operand, result, id);
                }
            } else if let Op::Control(ControlOp::For { .. }) = operation.op {
                self.for_loop(id, operation);
            } else if let Op::Control(ControlOp::If) = operation.op {
                self.condition(operation);
            } else {
                operation.regions.iter().for_each(|&inner| self.region(inner));
            }
        }
    }

    /// The bank of `from`, if `user` may make `to` of it in place.
    fn taken(&self, from: ValueId, to: ValueId, user: OpId) -> Option<BankId> {
        let same = self.func.value(from).layout == self.func.value(to).layout;
        self.banks[from.index()].filter(|_| same && self.uses.takes(from, user))
    }

    /// Makes `to` live where `from` does, if it may.
    fn go_on(&mut self, from: ValueId, to: ValueId, user: OpId) -> Option<BankId> {
        let bank = self.taken(from, to, user);
        if bank.is_some() {
            self.banks[to.index()] = bank;
        }
        bank
    }

    /// The same, or gives `to` a bank of its own.
    fn begin(&mut self, from: ValueId, to: ValueId, user: OpId) -> BankId {
        self.go_on(from, to, user).unwrap_or_else(|| {
            let bank = BankId::new(self.multiplied.len() as u32);
            self.multiplied.push(false);
            self.banks[to.index()] = Some(bank);
            bank
        })
    }

    fn for_loop(&mut self, id: OpId, operation: &Operation) {
        let func = self.func;
        let body = operation.regions[0];
        let carried: Vec<(ValueId, ValueId)> =
            operation.operands[3..].iter().copied().zip(func.region(body).args[1..].iter().copied()).collect();
        for &(init, arg) in carried.iter().filter(|(_, arg)| is_sum(func, *arg) && !self.copied.contains(arg)) {
            self.begin(init, arg, id);
        }
        self.region(body);
        let Some(&end) = func.region(body).ops.last() else { return };
        for ((&(_, arg), &next), &result) in carried.iter().zip(func.yielded(body)).zip(&operation.results) {
            let Some(bank) = self.banks[arg.index()] else { continue };
            match self.taken(next, arg, end) {
                Some(other) if other != bank && !self.return_to(bank, other, body) => self.failed.push(arg),
                // What lies in no bank is put into this one at the end of the iteration.
                Some(_) | None => self.banks[result.index()] = Some(bank),
            }
        }
    }

    /// Has a tile that an iteration begins in a bank of its own, and carries on as what lies in `bank`, begin there; if
    /// nobody goes on with that by then.
    fn return_to(&mut self, bank: BankId, other: BankId, body: RegionId) -> bool {
        let func = self.func;
        let ops = &func.region(body).ops;
        let position = |id: OpId| ops.iter().position(|&op| op == id);
        let values = |wanted: BankId| -> Vec<ValueId> {
            let all = (0..).map(ValueId::new).zip(&self.banks);
            all.filter(|(_, bank)| **bank == Some(wanted)).map(|(value, _)| value).collect()
        };
        let mut first = ops.len();
        for value in values(other) {
            let Def::Result(op, _) = func.value(value).def else { return false };
            let Some(at) = position(op) else { return false };
            first = first.min(at);
        }
        let is_over = |found: &Use| found.region == body && position(found.op).is_some_and(|at| at < first);
        let goes_on = |value: ValueId| self.uses.going_on[value.index()].iter();
        let inside = values(bank).into_iter().filter(|&value| self.uses.definition(value) == body);
        let is_free = inside.flat_map(goes_on).all(is_over);
        if is_free {
            for place in self.banks.iter_mut().filter(|place| **place == Some(other)) {
                *place = Some(bank);
            }
            self.multiplied[bank.index()] |= self.multiplied[other.index()];
        }
        is_free
    }

    /// Both branches leave a result in the bank in which one of them has it.
    fn condition(&mut self, operation: &Operation) {
        let func = self.func;
        operation.regions.iter().for_each(|&inner| self.region(inner));
        let mut given = BTreeSet::new();
        for (index, &result) in operation.results.iter().enumerate() {
            let ends = operation.regions.iter().filter_map(|&region| {
                let end = *func.region(region).ops.last()?;
                Some((*func.op(end).operands.get(index)?, end))
            });
            let ends: Vec<(ValueId, OpId)> = ends.collect();
            let bank = ends.iter().find_map(|&(value, end)| self.taken(value, result, end));
            let lost = |&(value, end): &(ValueId, OpId)| {
                self.banks[value.index()] == bank && self.taken(value, result, end) != bank
            };
            let Some(bank) = bank.filter(|_| !ends.iter().any(lost)).filter(|&bank| given.insert(bank)) else {
                continue;
            };
            self.banks[result.index()] = Some(bank);
        }
    }

    /// Forgets banks that no product writes, and numbers the others.
    fn finish(mut self) -> Vec<Option<BankId>> {
        let mut names = vec![None; self.multiplied.len()];
        let mut count = 0;
        for place in &mut self.banks {
            let Some(bank) = *place else { continue };
            *place = self.multiplied[bank.index()].then(|| {
                *names[bank.index()].get_or_insert_with(|| {
                    count += 1;
                    BankId::new(count - 1)
                })
            });
        }
        self.banks
    }
}

fn is_product(op: &Op) -> bool {
    matches!(op, Op::Gpu(GpuOp::Wgmma { .. }))
}

/// Whether a value may be an accumulator: a tile of words of 32 bits.
fn is_sum(func: &Func, value: ValueId) -> bool {
    let word = matches!(func.ty(value).dtype(), Some(DType::F32 | DType::I32));
    word && func.value(value).layout.is_some()
}
