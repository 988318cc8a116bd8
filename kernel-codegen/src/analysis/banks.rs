//! What the banks of a placed kernel are used for.

use std::collections::BTreeMap;

use kernel_core::edit::Structure;
use kernel_core::ir::banks::{becomes, stays};
use kernel_core::ir::{BankId, Def, Func, GpuOp, Op, ValueId};

/// The banks of a kernel.
pub(crate) struct Banks<'f> {
    func: &'f Func,
    /// Per value, whether it is read from its bank where it is defined.
    read: Vec<bool>,
    /// Per value, whether a wait for all products is its only use, in the region where it is defined.
    waited: Vec<bool>,
}

impl<'f> Banks<'f> {
    /// Looks at a placed kernel.
    pub(crate) fn new(func: &'f Func) -> Banks<'f> {
        let count = func.values.len();
        let mut banks = Banks { func, read: vec![false; count], waited: vec![false; count] };
        if func.values.iter().all(|value| value.bank.is_none()) {
            return banks;
        }
        let structure = Structure::new(func);
        let mut uses = vec![0; count];
        for &id in structure.order() {
            let operation = func.op(id);
            let region = structure.region_of(id);
            let owner = region.and_then(|region| structure.owner(region));
            let at_once = operation.op == Op::Gpu(GpuOp::WgmmaWait { pending: 0 });
            for (index, operand) in operation.operands.iter().enumerate() {
                let at = operand.index();
                let lives = func.value(*operand).bank.is_some();
                banks.read[at] |= lives && stays(func, id, index, owner).is_none();
                let home = match func.value(*operand).def {
                    Def::Param(_) => Some(func.body),
                    Def::Arg(region, _) => Some(region),
                    Def::Result(op, _) => structure.region_of(op),
                };
                uses[at] += 1;
                banks.waited[at] =
                    uses[at] == 1 && at_once && home == region && becomes(func, id, index, owner).is_some();
            }
        }
        banks
    }

    /// Where a value lives, if not in values of LLVM.
    pub(crate) fn bank(&self, value: ValueId) -> Option<BankId> {
        self.func.value(value).bank
    }

    /// Whether `to` lives in a bank into which `from` has to be copied.
    pub(crate) fn is_filled(&self, from: ValueId, to: ValueId) -> bool {
        self.bank(to).is_some() && self.bank(from) != self.bank(to)
    }

    /// Whether all that becomes of a loop's result is that its products are waited for, behind the loop, in the bank.
    pub(crate) fn is_waited_for(&self, value: ValueId) -> bool {
        self.waited[value.index()]
    }

    /// Whether a value that lives in a bank is read from it where it is defined.
    pub(crate) fn is_read(&self, value: ValueId) -> bool {
        self.read[value.index()]
    }

    /// The banks, each with a value that lives there.
    pub(crate) fn all(&self) -> BTreeMap<BankId, ValueId> {
        let mut samples = BTreeMap::new();
        for (number, value) in (0..).zip(&self.func.values) {
            if let Some(bank) = value.bank {
                samples.entry(bank).or_insert(ValueId::new(number));
            }
        }
        samples
    }
}
