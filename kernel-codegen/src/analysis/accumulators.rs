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
//! A bank holds one tile at a time. A value *stays* in the bank of the value that it is made from if nobody needs the bank
//! afterwards: a product goes on with its accumulator, a loop carries a bank around, both branches of a condition leave
//! their tile in one. Wherever a value does not stay it is copied. What other operations need of a bank is read where
//! the value is defined, and is an ordinary tile from there on.

use std::collections::BTreeSet;

use kernel_core::ir::{ControlOp, DType, Def, Func, GpuOp, Op, OpId, Operation, RegionId, Regions, ValueId, view};

/// Registers with names of their own that hold one tile.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Bank(u32);

impl Bank {
    /// The number in the names of its registers.
    pub(crate) fn number(self) -> u32 {
        self.0
    }
}

/// The banks of a kernel.
#[derive(Default)]
pub(crate) struct Accumulators {
    /// Per value, where it lives; `None` for what LLVM has.
    banks: Vec<Option<Bank>>,
    /// Values that need no copy to become another one.
    stays: BTreeSet<(ValueId, ValueId)>,
    /// Per value, whether it is read from its bank where it is defined.
    read: Vec<bool>,
    /// Per value, whether a wait for all products is its only use, in the region where it is defined.
    waited: Vec<bool>,
    /// Per bank, a value of those that live there.
    samples: Vec<ValueId>,
}

impl Accumulators {
    /// Gives the accumulators of a placed kernel their banks.
    pub(crate) fn new(func: &Func) -> Accumulators {
        if !func.ops.iter().any(|operation| is_product(&operation.op)) {
            return Accumulators { banks: vec![None; func.values.len()], ..Accumulators::default() };
        }
        let uses = Uses::new(func);
        let mut copied = BTreeSet::new();
        // A loop carries a tile in a bank if each trip leaves it there, which a walk that assumes so finds out.
        loop {
            let mut walk = Walk::new(func, &uses, &copied);
            walk.region(func.body);
            if walk.failed.is_empty() {
                return walk.finish();
            }
            copied.extend(walk.failed);
        }
    }

    /// Where a value lives, if not in values of LLVM.
    pub(crate) fn bank(&self, value: ValueId) -> Option<Bank> {
        self.banks.get(value.index()).copied().flatten()
    }

    /// Whether `from` becomes `to` by staying where it is.
    pub(crate) fn stays(&self, from: ValueId, to: ValueId) -> bool {
        self.stays.contains(&(from, to))
    }

    /// Whether `to` lives in a bank into which `from` has to be copied.
    pub(crate) fn is_filled(&self, from: ValueId, to: ValueId) -> bool {
        self.bank(to).is_some() && !self.stays(from, to)
    }

    /// Whether all that becomes of a loop's result is that its products are waited for, behind the loop, in the bank.
    pub(crate) fn is_waited_for(&self, value: ValueId) -> bool {
        self.waited.get(value.index()).copied().unwrap_or(false)
    }

    /// Whether a value that lives in a bank is read from it where it is defined.
    pub(crate) fn is_read(&self, value: ValueId) -> bool {
        self.read.get(value.index()).copied().unwrap_or(false)
    }

    /// The banks, each with a value that lives there.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Bank, ValueId)> {
        (0..).map(Bank).zip(self.samples.iter().copied())
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
    /// Per region, the operation that it belongs to and the region in which that stands.
    owners: Vec<Option<(OpId, RegionId)>>,
    /// Per operation, the region in which it stands.
    homes: Vec<RegionId>,
    /// Per value, the uses that may go on in its bank.
    going_on: Vec<Vec<Use>>,
    /// Per value, whether it has others.
    others: Vec<bool>,
}

impl<'f> Uses<'f> {
    fn new(func: &'f Func) -> Uses<'f> {
        let values = func.values.len();
        let mut uses = Uses {
            func,
            owners: vec![None; func.regions.len()],
            homes: vec![func.body; func.ops.len()],
            going_on: vec![Vec::new(); values],
            others: vec![false; values],
        };
        uses.region(func.body, None);
        uses
    }

    fn region(&mut self, region: RegionId, owner: Option<OpId>) {
        for (id, operation) in self.func.region_ops(region) {
            self.homes[id.index()] = region;
            for (index, &operand) in operation.operands.iter().enumerate() {
                let op = &operation.op;
                let goes_on = op.takes_in_flight(index)
                    && match op {
                        Op::Control(ControlOp::Yield) => {
                            owner.is_some_and(|owner| carries_banks(&self.func.op(owner).op))
                        }
                        op => !op.is_loop() || carries_banks(op),
                    };
                match goes_on {
                    true => self.going_on[operand.index()].push(Use { op: id, region }),
                    false => self.others[operand.index()] = true,
                }
            }
            for &inner in &operation.regions {
                self.owners[inner.index()] = Some((id, region));
                self.region(inner, Some(id));
            }
        }
    }

    /// The region in which a value is defined.
    fn definition(&self, value: ValueId) -> RegionId {
        match self.func.value(value).def {
            Def::Param(_) => self.func.body,
            Def::Arg(region, _) => region,
            Def::Result(op, _) => self.homes[op.index()],
        }
    }

    /// The operation whose regions run again and again that a region is in.
    fn repeats(&self, mut region: RegionId) -> Option<OpId> {
        while let Some((owner, outer)) = self.owners[region.index()] {
            match self.func.op(owner).op.regions() {
                Regions::Branch(_) | Regions::Concurrent => region = outer,
                Regions::Loop(_) | Regions::Combine(_) | Regions::Straight => return Some(owner),
            }
        }
        None
    }

    /// Whether two uses are in different regions of one operation. Where neither is in a loop in which the value is not
    /// defined, no thread comes to both.
    fn exclude(&self, one: Use, other: Use) -> bool {
        let mut inside = Vec::new();
        let mut region = one.region;
        while let Some((owner, outer)) = self.owners[region.index()] {
            inside.push((owner, region));
            region = outer;
        }
        let mut region = other.region;
        while let Some((owner, outer)) = self.owners[region.index()] {
            if let Some((_, own)) = inside.iter().find(|(op, _)| *op == owner) {
                return *own != region;
            }
            region = outer;
        }
        false
    }

    /// Whether an operation may take over the bank of a value: it comes once for each time that the value is defined, and
    /// none comes beside it that could as well.
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
    banks: Vec<Option<Bank>>,
    stays: BTreeSet<(ValueId, ValueId)>,
    /// Per value, by how many uses it stays.
    staying: Vec<usize>,
    /// Per bank, whether a product writes it.
    multiplied: Vec<bool>,
}

impl<'a, 'f> Walk<'a, 'f> {
    fn new(func: &'f Func, uses: &'a Uses<'f>, copied: &'a BTreeSet<ValueId>) -> Walk<'a, 'f> {
        let count = func.values.len();
        Walk {
            func,
            uses,
            copied,
            failed: Vec::new(),
            banks: vec![None; count],
            stays: BTreeSet::new(),
            staying: vec![0; count],
            multiplied: Vec::new(),
        }
    }

    fn region(&mut self, region: RegionId) {
        for (id, operation) in self.func.region_ops(region) {
            if let Some(product) = view::Wgmma::of(operation) {
                let bank = self.begin(product.acc, operation.results[0], id);
                self.multiplied[bank.0 as usize] = true;
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
    fn taken(&self, from: ValueId, to: ValueId, user: OpId) -> Option<Bank> {
        let same = self.func.value(from).layout == self.func.value(to).layout;
        self.banks[from.index()].filter(|_| same && self.uses.takes(from, user))
    }

    /// Makes `to` live where `from` does, if it may.
    fn go_on(&mut self, from: ValueId, to: ValueId, user: OpId) -> Option<Bank> {
        let bank = self.taken(from, to, user);
        if bank.is_some() {
            self.banks[to.index()] = bank;
            self.stay(from, to);
        }
        bank
    }

    fn stay(&mut self, from: ValueId, to: ValueId) {
        self.stays.insert((from, to));
        self.staying[from.index()] += 1;
    }

    /// The same, or gives `to` a bank of its own.
    fn begin(&mut self, from: ValueId, to: ValueId, user: OpId) -> Bank {
        self.go_on(from, to, user).unwrap_or_else(|| {
            let bank = Bank(self.multiplied.len() as u32);
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
            if self.taken(next, arg, end) == Some(bank) {
                self.stay(next, arg);
                self.banks[result.index()] = Some(bank);
            } else {
                self.failed.push(arg);
            }
        }
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
            let Some(bank) = bank.filter(|&bank| given.insert(bank)) else { continue };
            self.banks[result.index()] = Some(bank);
            for (value, end) in ends {
                if self.taken(value, result, end) == Some(bank) {
                    self.stay(value, result);
                }
            }
        }
    }

    /// Forgets banks that no product writes, and finds what is read.
    fn finish(mut self) -> Accumulators {
        let mut names = vec![None; self.multiplied.len()];
        let mut samples = Vec::new();
        for (value, place) in self.banks.iter_mut().enumerate() {
            let Some(bank) = *place else { continue };
            *place = self.multiplied[bank.0 as usize].then(|| {
                *names[bank.0 as usize].get_or_insert_with(|| {
                    samples.push(ValueId::new(value as u32));
                    Bank(samples.len() as u32 - 1)
                })
            });
        }
        let banks = self.banks;
        self.stays.retain(|(from, _)| banks[from.index()].is_some());
        let is_read = |v: usize| self.uses.going_on[v].len() > self.staying[v] || self.uses.others[v];
        let read = (0..banks.len()).map(|v| banks[v].is_some() && is_read(v)).collect();
        let waited = self.func.values.iter().enumerate().map(|(v, _)| {
            let [one] = self.uses.going_on[v].as_slice() else { return false };
            let at_once = self.func.op(one.op).op == Op::Gpu(GpuOp::WgmmaWait { pending: 0 });
            at_once && !self.uses.others[v] && self.uses.definition(ValueId::new(v as u32)) == one.region
        });
        let waited = waited.collect();
        Accumulators { banks, stays: self.stays, read, waited, samples }
    }
}

fn is_product(op: &Op) -> bool {
    matches!(op, Op::Gpu(GpuOp::Wgmma { .. }))
}

/// Whether what the regions of an operation yield may stay in its bank.
fn carries_banks(op: &Op) -> bool {
    matches!(op, Op::Control(ControlOp::For { .. } | ControlOp::If))
}

/// Whether a value may be an accumulator: a tile of words of 32 bits.
fn is_sum(func: &Func, value: ValueId) -> bool {
    let word = matches!(func.ty(value).dtype(), Some(DType::F32 | DType::I32));
    word && func.value(value).layout.is_some()
}
