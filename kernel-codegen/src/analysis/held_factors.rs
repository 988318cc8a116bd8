//! Which left factors of asynchronous products lie in registers that outlive a trip of a loop.
//!
//! ```text
//! %x = ..                                    computed once
//! for ..                                     behind this loop %x has to be held ([`crate::lower`] says why and how)
//!     %s = wgmma %x, %k, %0
//!     %p = .. %s ..                          differs from trip to trip: nothing has to be held
//!     %o = wgmma %p, %v, %acc
//! ```
//!
//! A factor is *held* behind the outermost loop that it stands outside of. One that is computed in the loop of its product
//! may leave it all the same, if optimisers find that it is the same in every trip; such a factor is held in the trip.
//! What cannot leave a loop is what depends on the counter of the loop, on what it carries, or on what the optimisers
//! know nothing about: products in flight and atomics.

use std::collections::{BTreeMap, BTreeSet};

use kernel_core::ir::{Def, Elem, Func, GpuOp, MemoryOp, Op, RegionId, ValueId};

use super::control::sources;

/// The factors of a kernel that have to be held.
#[derive(Default, Debug, PartialEq, Eq)]
pub(crate) struct HeldFactors {
    behind: BTreeMap<RegionId, BTreeSet<ValueId>>,
    in_trips: BTreeSet<ValueId>,
}

impl HeldFactors {
    /// Finds them in a placed kernel.
    pub(crate) fn new(func: &Func) -> HeldFactors {
        let mut held = HeldFactors::default();
        if !func.ops.iter().any(|operation| matches!(operation.op, Op::Gpu(GpuOp::Wgmma { .. }))) {
            return held;
        }
        let loops = Loops::new(func);
        for (index, operation) in func.ops.iter().enumerate() {
            // Operations that passes have replaced stand in no region.
            let (Op::Gpu(GpuOp::Wgmma { .. }), Some(around)) = (&operation.op, &loops.around_ops[index]) else {
                continue;
            };
            let factor = operation.operands[0];
            if matches!(func.ty(factor).elem, Elem::Shared(_)) {
                continue;
            }
            let outside = loops.around(factor).len();
            match (around.get(outside), around.last()) {
                (Some(&outermost), _) => {
                    held.behind.entry(outermost).or_default().insert(factor);
                }
                (None, Some(&own)) if !loops.varies(factor, own) => {
                    held.in_trips.insert(operation.results[0]);
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
    pub(crate) fn is_held_in_trip(&self, result: ValueId) -> bool {
        self.in_trips.contains(&result)
    }
}

/// The loops around everything, outermost first. A loop is known by its first region.
struct Loops<'f> {
    func: &'f Func,
    around_regions: Vec<Vec<RegionId>>,
    around_ops: Vec<Option<Vec<RegionId>>>,
}

impl<'f> Loops<'f> {
    fn new(func: &'f Func) -> Loops<'f> {
        let around_regions = vec![Vec::new(); func.regions.len()];
        let mut loops = Loops { func, around_regions, around_ops: vec![None; func.ops.len()] };
        loops.region(func.body, &[]);
        loops
    }

    fn region(&mut self, region: RegionId, around: &[RegionId]) {
        let func = self.func;
        self.around_regions[region.index()] = around.to_vec();
        for (id, operation) in func.region_ops(region) {
            self.around_ops[id.index()] = Some(around.to_vec());
            let mut inside = around.to_vec();
            if operation.op.is_loop() {
                inside.extend(operation.regions.first());
            }
            operation.regions.iter().for_each(|&inner| self.region(inner, &inside));
        }
    }

    /// The loops in which a value is defined.
    fn around(&self, value: ValueId) -> &[RegionId] {
        match self.func.value(value).def {
            Def::Param(_) => &[],
            Def::Arg(region, _) => &self.around_regions[region.index()],
            Def::Result(op, _) => self.around_ops[op.index()].as_deref().unwrap_or(&[]),
        }
    }

    /// Whether a value must be computed anew in each trip of a loop.
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
            sources(self.func, value, &mut work);
        }
        false
    }
}

/// Whether optimisers leave an operation where it stands, whatever its operands.
fn is_opaque(op: &Op) -> bool {
    let is_atomic = matches!(op, Op::Memory(MemoryOp::AtomicRmw { .. } | MemoryOp::AtomicCas { .. }));
    is_atomic || matches!(op, Op::Gpu(GpuOp::Wgmma { .. } | GpuOp::WgmmaWait { .. }))
}
