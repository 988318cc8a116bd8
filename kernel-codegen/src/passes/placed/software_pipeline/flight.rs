//! Products that may stay in flight over the end of an iteration.
//!
//! They may if nothing in the loop looks at an accumulator: each is carried from product to product and on to the next
//! iteration, and what the products read lies in slots that are not written again before they are over, or in memory
//! that the loop leaves as it is.

use std::collections::BTreeSet;

use kernel_core::edit::{Uses, walk_region};
use kernel_core::ir::{Elem, Func, GpuOp, Op, OpId, RegionId, ValueId};

use super::find::Found;
use crate::analysis::allocation::root;

/// The accumulators of a loop, all of whose products may stay in flight.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Flight {
    /// The position of the carried accumulator and its last product.
    pub(super) chains: Vec<(usize, ValueId)>,
    /// Waits that go, whose results are those of their products.
    pub(super) waits: Vec<OpId>,
    /// The last product in program order.
    pub(super) last: OpId,
    /// Products per iteration.
    pub(super) count: u8,
}

/// What becomes of a loop's products.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flown {
    /// They stay in flight over the end of an iteration.
    InFlight,
    /// They are waited for, as this says.
    Waits(&'static str),
}

/// An accumulator is looked at before the iteration is over.
const LOOKED_AT: &str = "its sum, or that of another product in the loop, is used in the same iteration";
/// It is no accumulator of the loop.
const NOT_CARRIED: &str = "its sum, or that of another product in the loop, is not what the next iteration adds to";
/// It may not run.
const CONDITIONAL: &str = "it, or another product in the loop, stands under a condition";
/// What it reads may be overwritten.
const NO_SLOT: &str = "a factor of it, or of another product in the loop, is not fetched ahead";

/// Looks for accumulators in flight.
///
/// # Errors
/// Why a product has to be waited for in its iteration.
pub(super) fn find(func: &Func, body: RegionId, found: &Found) -> Result<Flight, &'static str> {
    let (mut products, mut waits) = (BTreeSet::new(), BTreeSet::new());
    let uses = Uses::within(func, body);
    walk_region(func, body, &mut |id| {
        let operation = func.op(id);
        if matches!(operation.op, Op::Gpu(GpuOp::Wgmma { .. })) {
            products.insert(id);
        }
        if matches!(operation.op, Op::Gpu(GpuOp::WgmmaWait { .. })) {
            waits.insert(id);
        }
    });
    let own = &func.region(body).ops;
    let last = *own.iter().rev().find(|id| products.contains(id)).ok_or(CONDITIONAL)?;
    let end = *own.last().ok_or(CONDITIONAL)?;
    if !products.iter().chain(&waits).all(|id| own.contains(id)) {
        return Err(CONDITIONAL);
    }
    if !products.iter().all(|&id| reads_slots(func, body, id, found)) {
        return Err(NO_SLOT);
    }
    let mut chains = Vec::new();
    let (mut left, mut waits_left) = (products.clone(), waits.clone());
    for (position, &arg) in func.region(body).args.iter().skip(1).enumerate() {
        let Some(first) = uses.only(arg).filter(|user| products.contains(user)) else { continue };
        let (mut product, mut carried) = (first, arg);
        let result = loop {
            if func.op(product).operands[2] != carried || !left.remove(&product) {
                return Err(LOOKED_AT);
            }
            let raw = func.op(product).results[0];
            carried = match uses.only(raw).ok_or(LOOKED_AT)? {
                wait if waits.contains(&wait) => {
                    if func.op(wait).operands != [raw] || !waits_left.remove(&wait) {
                        return Err(LOOKED_AT);
                    }
                    func.op(wait).results[0]
                }
                _ => raw,
            };
            match uses.only(carried).ok_or(LOOKED_AT)? {
                next if products.contains(&next) => product = next,
                user if user == end => break raw,
                _ => return Err(LOOKED_AT),
            }
        };
        if func.yielded(body).get(position) != Some(&carried) {
            return Err(NOT_CARRIED);
        }
        chains.push((position, result));
    }
    let whole = left.is_empty() && waits_left.is_empty() && !chains.is_empty();
    let count = u8::try_from(products.len()).map_err(|_| "the loop has too many products to count")?;
    if whole { Ok(Flight { chains, waits: waits.into_iter().collect(), last, count }) } else { Err(NOT_CARRIED) }
}

/// Whether both factors of a product lie in slots of the pipeline, or were stored before the loop: nothing is written
/// to an allocation that stands there and feeds products.
fn reads_slots(func: &Func, body: RegionId, product: OpId, found: &Found) -> bool {
    func.op(product).operands[..2].iter().all(|&factor| reads_slot(func, body, factor, found))
}

fn reads_slot(func: &Func, body: RegionId, factor: ValueId, found: &Found) -> bool {
    matches!(func.ty(factor).elem, Elem::Shared(_))
        && root(func, factor).is_some_and(|alloc| {
            !is_inside(func, body, alloc)
                || found.candidates.iter().any(|candidate| candidate.feeds.iter().any(|feed| feed.alloc == alloc))
        })
}

/// The same of the factors of a product that lie in shared memory.
pub(super) fn may_read_longer(func: &Func, body: RegionId, product: OpId, found: &Found) -> bool {
    let [left, right] = [0, 1].map(|index| func.op(product).operands[index]);
    let in_registers = !matches!(func.ty(left).elem, Elem::Shared(_));
    (in_registers || reads_slot(func, body, left, found)) && reads_slot(func, body, right, found)
}

fn is_inside(func: &Func, body: RegionId, id: OpId) -> bool {
    let mut inside = false;
    walk_region(func, body, &mut |other| inside |= other == id);
    inside
}

/// The one product among the operations of a body, if threads copy all that is copied: they do so while it runs, where it is
/// waited for in its iteration. The slot that is written was left at the barrier that this iteration has behind it.
pub(super) fn only_product(func: &Func, body: &[OpId], found: &Found) -> Option<OpId> {
    let mut products = Vec::new();
    for &id in body {
        let operation = func.op(id);
        products.extend(operation.op.multiplies().then_some(id));
        for &inner in &operation.regions {
            walk_region(func, inner, &mut |id| products.extend(func.op(id).op.multiplies().then_some(id)));
        }
    }
    let by_threads = found.candidates.iter().all(|candidate| !candidate.is_tensor());
    match *products {
        [only] if by_threads && body.contains(&only) && matches!(func.op(only).op, Op::Gpu(GpuOp::Wgmma { .. })) => {
            Some(only)
        }
        _ => None,
    }
}
