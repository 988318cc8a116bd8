//! Who uses a value.

use super::walk::walk_region;
use crate::ir::{Func, OpId, RegionId, ValueId};

/// The users of every value, as they were when this was made.
#[derive(Clone, Debug)]
pub struct Uses {
    by_value: Vec<Vec<OpId>>,
}

impl Uses {
    /// All uses in a kernel.
    pub fn new(func: &Func) -> Uses {
        Uses::within(func, func.body)
    }

    /// The uses in a region and in the regions in it.
    pub fn within(func: &Func, region: RegionId) -> Uses {
        let mut by_value = vec![Vec::new(); func.values.len()];
        walk_region(func, region, &mut |id| {
            for operand in &func.op(id).operands {
                by_value[operand.index()].push(id);
            }
        });
        Uses { by_value }
    }

    /// The operations that use a value, in program order; one that has it as several operands stands there as often.
    pub fn of(&self, value: ValueId) -> &[OpId] {
        self.by_value.get(value.index()).map_or(&[], Vec::as_slice)
    }

    /// The operation that uses a value, if it is used exactly once.
    pub fn only(&self, value: ValueId) -> Option<OpId> {
        match self.of(value) {
            &[user] => Some(user),
            _ => None,
        }
    }
}

/// Makes every operand that is `old` be `new`. For one replacement: a pass with many uses
/// [`Rewriter`](super::Rewriter), which needs one walk for all.
pub fn replace_all_uses(func: &mut Func, old: ValueId, new: ValueId) {
    for operand in func.ops.iter_mut().flat_map(|op| &mut op.operands) {
        if *operand == old {
            *operand = new;
        }
    }
}
