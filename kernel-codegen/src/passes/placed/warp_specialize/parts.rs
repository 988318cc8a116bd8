//! Parts of a slot: what arrives together, and is released together.
//!
//! ```text
//! wait full[q]; %s = wgmma %k, q; wait full[g]; .. %d = wgmma %p, g; wgmma_wait; arrive empty[g]; ..
//! ```
//!
//! Blocks that one product reads are of one part, and so are vectors with factors of a product that computes with them. The
//! barriers that were there for threads that brought them are not needed then.

use kernel_core::ir::{FenceKind, Func, GpuOp, Op, OpId, RegionId};

use super::find::{Copy, reads};
use super::vectors;

/// Divides copies into parts of a slot, in the order in which they are needed: those that one product reads are of one
/// part. Gives for each the wait for the last product that reads it.
pub(super) fn parts(
    func: &Func,
    body: RegionId,
    copies: &mut [Copy],
    products: &[OpId],
    waits: &[OpId],
) -> Vec<Option<OpId>> {
    // Each block in a part of its own, until a product reads two.
    copies.iter_mut().for_each(|copy| copy.part = copy.block);
    for &product in products {
        let read: Vec<usize> = copies.iter().filter(|copy| reads(func, product, copy)).map(|copy| copy.part).collect();
        let Some(&first) = read.iter().min() else { continue };
        copies.iter_mut().filter(|copy| read.contains(&copy.part)).for_each(|copy| copy.part = first);
    }
    join_vectors(func, body, copies, products);
    let mut known: Vec<usize> = copies.iter().map(|copy| copy.part).collect();
    known.sort_unstable();
    known.dedup();
    for copy in copies.iter_mut() {
        copy.part = known.iter().position(|&part| part == copy.part).unwrap_or_default();
    }
    let last = |part: usize| {
        let mut readers = products
            .iter()
            .filter(|&&product| copies.iter().any(|copy| copy.part == part && reads(func, product, copy)));
        let product = *readers.next_back()?;
        waits.iter().copied().find(|&wait| func.op(wait).operands.contains(&func.op(product).results[0]))
    };
    (0..known.len()).map(last).collect()
}

/// Puts vectors into parts with factors, if the last product that reads one of these computes with the vector: then all
/// threads have read it where that product is over.
fn join_vectors(func: &Func, body: RegionId, copies: &mut [Copy], products: &[OpId]) {
    let of_factors = |copies: &[Copy], product: OpId| -> Vec<usize> {
        copies.iter().filter(|copy| reads(func, product, copy)).map(|copy| copy.part).collect()
    };
    for at in 0..copies.len() {
        let Some(read) = copies[at].read else { continue };
        let mut parts: Vec<usize> = products.iter().flat_map(|&product| of_factors(copies, product)).collect();
        parts.sort_unstable();
        parts.dedup();
        let releases = |part: &usize| {
            let last = products.iter().rfind(|&&product| of_factors(copies, product).contains(part));
            last.is_some_and(|&product| vectors::depends(func, body, product, read))
        };
        if let Some(part) = parts.into_iter().find(releases) {
            copies[at].part = part;
        }
    }
}

/// The barriers and fences of a loop in which threads store other things too that are there for copies alone: pairs of
/// barriers with nothing but such stores between them.
pub(super) fn around_copies(func: &Func, body: RegionId, stores: &[OpId]) -> Vec<OpId> {
    let ops = &func.region(body).ops;
    let is_barrier = |id: &OpId| func.op(*id).op == Op::Gpu(GpuOp::Barrier);
    let mut obsolete = Vec::new();
    let mut from = 0;
    while let Some(first) = ops[from..].iter().position(is_barrier).map(|at| from + at) {
        let Some(second) = ops[first + 1..].iter().position(is_barrier).map(|at| first + 1 + at) else { break };
        let between = &ops[first + 1..second];
        let stored = |id: &&OpId| func.op(**id).op == Op::Gpu(GpuOp::SharedStore);
        let is_fence = |id: &&OpId| func.op(**id).op == Op::Gpu(GpuOp::Fence { kind: FenceKind::ProxyAsync });
        let foreign = |id: &OpId| match &func.op(*id).op {
            Op::Gpu(GpuOp::SharedStore) => !stores.contains(id),
            Op::Gpu(GpuOp::Fence { .. } | GpuOp::SharedAlloc { .. }) => false,
            op => !op.is_arithmetic(),
        };
        if between.iter().any(|id| stored(&id)) && !between.iter().any(foreign) {
            obsolete.extend([ops[first], ops[second]]);
            obsolete.extend(between.iter().filter(is_fence));
            from = second + 1;
        } else if between.iter().any(|id| stored(&id)) {
            from = second + 1;
        } else {
            from = second;
        }
    }
    obsolete
}
