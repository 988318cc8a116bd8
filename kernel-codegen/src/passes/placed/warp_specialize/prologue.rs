//! Assertions of a kernel that is divided.
//!
//! An assertion that fails ends its program, all threads together. In a divided kernel one side would end, and the
//! other wait for it at a barrier for ever. So assertions are made before the sides part, with the scalars that they
//! look at:
//! ```text
//! %row = program_id; %fits = cmp.lt %row, %rows; assert %fits      all threads, nothing is in flight yet
//! warp_groups { .. } with { .. }
//! ```
//! That is the same only for those that stand before everything that the kernel does. Most others that are left here,
//! in loops or about data, are of kernels that are not divided. (What the host can decide is not left here.)

use std::collections::BTreeSet;

use kernel_core::edit::walk;
use kernel_core::ir::{ControlOp, Def, Func, Op, OpId, ValueId};

use super::find::NotFed;

/// What all threads do before the sides part: assertions, and the scalars that they look at, in the order of the
/// kernel.
#[derive(Default, Debug)]
pub(super) struct Prologue {
    pub(super) ops: Vec<OpId>,
}

impl Prologue {
    /// The assertions of a kernel.
    ///
    /// # Errors
    /// If one of them stands behind something that the kernel does, or looks at more than scalars.
    pub(super) fn of(func: &Func) -> Result<Prologue, NotFed> {
        let mut asserts = Vec::new();
        walk(func, &mut |id| {
            if is_assert(&func.op(id).op) {
                asserts.push(id);
            }
        });
        let body = &func.region(func.body).ops;
        let acts = |id: &OpId| {
            let operation = func.op(*id);
            let writes = func.own_effects(*id).iter().any(|effect| effect.writes);
            !operation.regions.is_empty() || (writes && !is_assert(&operation.op))
        };
        let before = &body[..body.iter().position(acts).unwrap_or(body.len())];
        let mut needed = BTreeSet::new();
        for id in asserts {
            let refuse = |reason: &str| NotFed::new(func.op(id).span, reason);
            if !before.contains(&id) {
                return Err(refuse(
                    "an `assert!` behind what the kernel does would end one side, and the other would wait for it",
                ));
            }
            needed.insert(id);
            if !scalars(func, func.op(id).operands.clone(), &mut needed) {
                return Err(refuse(
                    "an `assert!` about more than scalars would end one side, and the other would wait for it",
                ));
            }
        }
        Ok(Prologue { ops: before.iter().copied().filter(|id| needed.contains(id)).collect() })
    }
}

/// Whether an operation may end the program.
pub(super) fn is_assert(op: &Op) -> bool {
    matches!(op, Op::Control(ControlOp::Assert { .. }))
}

/// Notes the operations that values are made by; false if any thread can not make them by itself.
fn scalars(func: &Func, mut work: Vec<ValueId>, needed: &mut BTreeSet<OpId>) -> bool {
    while let Some(value) = work.pop() {
        if !func.ty(value).is_scalar() {
            return false;
        }
        let id = match func.value(value).def {
            Def::Param(_) => continue,
            // Nothing with regions comes before an assertion.
            Def::Arg(..) => return false,
            Def::Result(id, _) => id,
        };
        // Memory may have another value when the sides read it.
        if !func.op(id).op.is_local() {
            return false;
        }
        if needed.insert(id) {
            work.extend(&func.op(id).operands);
        }
    }
    true
}
