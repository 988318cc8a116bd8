//! Which left factors of asynchronous products lie in registers that outlive an iteration of a loop.
//!
//! ```text
//! %x = ..                                    computed once
//! for ..                                     behind this loop %x has to be held ([`crate::lower`] says why and how)
//!     %s = wgmma %x, %k, %0
//!     %p = .. %s ..                          differs from iteration to iteration: nothing has to be held
//!     %o = wgmma %p, %v, %acc
//! ```
//!
//! A factor is *held* behind the outermost loop that it stands outside of. One that is computed in the loop of its
//! product may leave it all the same, if optimisers find that it is the same in every iteration; such a factor is
//! held in the iteration. What cannot leave a loop is what depends on the counter of the loop, on what it carries, or
//! on what the optimisers know nothing about: products in flight and atomics.

use std::collections::{BTreeMap, BTreeSet};

use kernel_core::edit::Structure;
use kernel_core::ir::{Def, Elem, Func, GpuOp, MemoryOp, Op, OpId, RegionId, ValueId};

use super::control::sources;

/// The factors of a kernel that have to be held.
#[derive(Default, Debug, PartialEq, Eq)]
pub(crate) struct HeldFactors {
    behind: BTreeMap<RegionId, BTreeSet<ValueId>>,
    in_iterations: BTreeSet<ValueId>,
}

impl HeldFactors {
    /// Finds them in a placed kernel.
    pub(crate) fn new(func: &Func) -> HeldFactors {
        let mut held = HeldFactors::default();
        if !func.ops.iter().any(|operation| matches!(operation.op, Op::Gpu(GpuOp::Wgmma { .. }))) {
            return held;
        }
        let loops = Loops::new(func);
        for &id in loops.structure.order() {
            let operation = func.op(id);
            let Op::Gpu(GpuOp::Wgmma { .. }) = operation.op else { continue };
            let factor = operation.operands[0];
            if matches!(func.ty(factor).elem, Elem::Shared(_)) {
                continue;
            }
            let around = loops.around_op(id);
            let outside = loops.around(factor).len();
            match (around.get(outside), around.last()) {
                (Some(&outermost), _) => {
                    held.behind.entry(outermost).or_default().insert(factor);
                }
                (None, Some(&own)) if !loops.varies(factor, own) => {
                    held.in_iterations.insert(operation.results[0]);
                }
                (None, _) => {}
            }
        }
        held
    }

    /// What has to be held behind the loop whose first region this is.
    pub(crate) fn behind(&self, first_region: RegionId) -> impl Iterator<Item = ValueId> + '_ {
        self.behind.get(&first_region).into_iter().flatten().copied()
    }

    /// Whether the left factor of the product with this result has to be held behind the product.
    pub(crate) fn is_held_in_iteration(&self, result: ValueId) -> bool {
        self.in_iterations.contains(&result)
    }
}

/// The loops around everything, outermost first. A loop is known by its first region.
struct Loops<'f> {
    func: &'f Func,
    structure: Structure,
}

impl<'f> Loops<'f> {
    fn new(func: &'f Func) -> Loops<'f> {
        Loops { func, structure: Structure::new(func) }
    }

    /// The loops among these operations, from the last to the first.
    fn among(&self, ops: impl Iterator<Item = OpId>) -> Vec<RegionId> {
        let first_region = |op| {
            let operation = self.func.op(op);
            operation.regions.first().copied().filter(|_| operation.op.is_loop())
        };
        let mut found: Vec<RegionId> = ops.filter_map(first_region).collect();
        found.reverse();
        found
    }

    /// The loops around an operation.
    fn around_op(&self, op: OpId) -> Vec<RegionId> {
        self.among(self.structure.around(op))
    }

    /// The loops in which a value is defined.
    fn around(&self, value: ValueId) -> Vec<RegionId> {
        match self.func.value(value).def {
            Def::Param(_) => Vec::new(),
            Def::Arg(region, _) => match self.structure.owner(region) {
                Some(owner) => self.among(std::iter::once(owner).chain(self.structure.around(owner))),
                None => Vec::new(),
            },
            Def::Result(op, _) => self.around_op(op),
        }
    }

    /// Whether a value must be computed anew in each iteration of a loop.
    fn varies(&self, value: ValueId, own: RegionId) -> bool {
        let mut seen = BTreeSet::new();
        let mut work = vec![value];
        while let Some(value) = work.pop() {
            if !self.around(value).contains(&own) || !seen.insert(value) {
                continue;
            }
            let stays = match self.func.value(value).def {
                Def::Param(_) => false,
                Def::Arg(..) => self.around(value).last() == Some(&own),
                Def::Result(op, _) => is_opaque(&self.func.op(op).op),
            };
            if stays {
                return true;
            }
            sources(self.func, &self.structure, value, &mut work);
        }
        false
    }
}

/// Whether optimisers leave an operation where it stands, whatever its operands.
fn is_opaque(op: &Op) -> bool {
    let is_atomic = matches!(op, Op::Memory(MemoryOp::AtomicRmw { .. } | MemoryOp::AtomicCas { .. }));
    is_atomic || matches!(op, Op::Gpu(GpuOp::Wgmma { .. } | GpuOp::WgmmaWait { .. }))
}
