//! Who does what: sums that a loop carries, what computes with them, and what that needs of the scores.

use std::collections::BTreeSet;

use kernel_core::edit::{Structure, walk};
use kernel_core::ir::{ControlOp, DType, Elem, Func, GpuOp, Op, OpId, RegionId, ShapeOp, Ty, ValueId};
use kernel_core::target::{BARRIER_BYTES, GROUP_WARPS, SWIZZLE_ALIGNMENT, Target};

use super::passed::passed_bytes;
use super::suits::{Made, suits, turns};
use crate::analysis::warp_groups::{MAX_REGISTERS, REGISTER_UNIT, registers_at_start};
use crate::occupancy::words;
use crate::passes::placed::warp_specialize::find::FedLoop;
use crate::passes::placed::warp_specialize::{BESIDE_TILES, factor_bytes};

/// Registers of a thread that adds, beside its sums: what it adds, and addresses.
const BESIDE_SUMS: u32 = 48;
/// Registers of the thread that fetches. It has no more than the hardware's least, as the others take all that there are.
pub(super) const PRODUCER_REGISTERS: u32 = 24;
/// Registers of a thread that computes scores, beside those of a product: weights, and addresses.
const BESIDE_SCORES: u32 = 72;
/// The fewest registers with which a group computes scores.
const LEAST_REGISTERS: u32 = 104;
/// Bytes that are left for reductions of scores.
const REDUCTION_BYTES: u32 = 1024;

/// A sum that a loop carries.
#[derive(Clone, Debug)]
pub(super) struct Sum {
    /// The product that adds to it.
    pub(super) product: OpId,
    /// What depends on it.
    pub(super) values: BTreeSet<ValueId>,
    /// What it needs of the scores.
    pub(super) needs: BTreeSet<ValueId>,
}

/// Who does what.
#[derive(Clone, Debug)]
pub(in crate::passes::placed::warp_specialize) struct Roles {
    pub(super) sums: Vec<Sum>,
    /// The products of scores.
    pub(super) scores: BTreeSet<OpId>,
    /// The sums whose groups store to one buffer, by their numbers, in the order in which they do.
    pub(super) turns: Vec<usize>,
    /// What is passed on: in each iteration, and behind the loop.
    pub(super) passed: [Vec<ValueId>; 2],
    /// Registers of each thread: of scores, of each sum.
    pub(super) registers: (u32, u32),
}

/// Why the iterations of a loop are not shared.
pub(in crate::passes::placed::warp_specialize) enum Alone {
    /// One group can do them.
    Suits,
    /// They cannot be, for this reason.
    Because(&'static str),
}

use Alone::Because;

impl Roles {
    /// How the iterations of a loop are shared.
    pub(in crate::passes::placed::warp_specialize) fn of(
        func: &Func,
        target: Target,
        fed: &FedLoop,
    ) -> Result<Roles, Alone> {
        if !fed.carried_products.is_empty() {
            return Err(Alone::Suits);
        }
        let added = carried_by(func, fed);
        let taken: u32 = added.iter().map(|product| words(func, func.op(*product).results[0])).sum();
        if added.len() < 2 || taken + BESIDE_TILES <= MAX_REGISTERS {
            return Err(Alone::Suits);
        }
        let structure = Structure::new(func);
        let body = func.op(fed.owner).regions[0];
        let is_inner = structure.around(fed.owner).next().is_some();
        let stored = |id: &OpId| func.op(*id).op == Op::Gpu(GpuOp::SharedStore) && !fed.stores.contains(id);
        // Iterations are counted by what the loop counts with.
        let counts = *func.ty(func.region(body).args[0]) == Ty::scalar(DType::I32)
            && matches!(func.op(fed.owner).op, Op::Control(ControlOp::For { reverse: false, .. }));
        if is_inner {
            return Err(Because("it is inside other control flow"));
        }
        if !counts {
            return Err(Because("it does not count upwards in i32"));
        }
        if func.region(body).ops.iter().any(stored) {
            return Err(Because("threads store factors of its products"));
        }
        let products: Vec<OpId> = func
            .region(body)
            .ops
            .iter()
            .copied()
            .filter(|id| matches!(func.op(*id).op, Op::Gpu(GpuOp::Wgmma { .. })))
            .collect();
        let scores: BTreeSet<OpId> = products.into_iter().filter(|product| !added.contains(product)).collect();
        let of = |products: &[OpId]| {
            dependent(func, &products.iter().map(|product| func.op(*product).results[0]).collect::<Vec<_>>())
        };
        let looked_at = of(&scores.iter().copied().collect::<Vec<_>>());
        let mut sums: Vec<Sum> = Vec::new();
        for product in added {
            let values = of(&[product]);
            let meets = |sum: &Sum| !sum.values.is_disjoint(&values);
            let scored = scores.iter().any(|score| func.op(*score).operands.iter().any(|value| values.contains(value)));
            if scored || sums.iter().any(meets) {
                return Err(Because("its sums depend on each other, or scores on them"));
            }
            let needs = needed(func, &structure, &values, &looked_at);
            let needs = needs.ok_or(Because("a sum needs what has no place in shared memory"))?;
            sums.push(Sum { product, needs, values });
        }
        if scores.is_empty() {
            return Err(Because("it has no products beside its sums"));
        }
        if !suits(func, &structure, fed, &sums, &looked_at) {
            return Err(Because(
                "the kernel reads what it writes, or stores in control flow, or does what only one group may",
            ));
        }
        let turns =
            turns(func, &sums).ok_or(Because("its results are stored to one buffer in an order of no group"))?;
        let (mut within, mut behind) = (Vec::new(), Vec::new());
        let all: BTreeSet<ValueId> = sums.iter().flat_map(|sum| &sum.needs).copied().collect();
        for value in all {
            match Made::of(func, &structure, fed.owner, value).ok_or(Because("a sum needs what is made in no group"))? {
                Made::Within => within.push(value),
                Made::Behind => behind.push(value),
            }
        }
        // A product that goes on with another one has its registers.
        let begun: BTreeSet<OpId> = scores.iter().filter_map(|&score| goes_on_with(func, score)).collect();
        let taken: u32 = scores.difference(&begun).map(|score| words(func, func.op(*score).results[0])).sum();
        let groups = sums.len() as u32 + 2;
        let at_start = registers_at_start(target, groups * GROUP_WARPS, 1);
        let widest = sums.iter().map(|sum| words(func, func.op(sum.product).results[0])).max().unwrap_or(0);
        let own = (widest + BESIDE_SUMS).next_multiple_of(REGISTER_UNIT).min(MAX_REGISTERS);
        let left = (at_start * groups).saturating_sub(PRODUCER_REGISTERS + own * sums.len() as u32);
        let left = left.min(MAX_REGISTERS) / REGISTER_UNIT * REGISTER_UNIT;
        if left < LEAST_REGISTERS.max(taken + BESIDE_SCORES) {
            return Err(Because("groups for its scores and its sums would need more registers than there are"));
        }
        Ok(Roles { sums, scores, turns, passed: [within, behind], registers: (left, own) })
    }

    /// Bytes of shared memory: rings, factors that the groups store, and what is passed on.
    pub(super) fn shared_bytes(&self, func: &Func, fed: &FedLoop) -> u32 {
        let passed: u32 = self.passed.iter().flatten().map(|&value| passed_bytes(func, value)).sum();
        let between = 3 + self.turns.len() + self.sums.len();
        let barriers = (fed.releases.len() as u32 * (2 * fed.stages + 1) + between as u32) * BARRIER_BYTES;
        barriers.next_multiple_of(SWIZZLE_ALIGNMENT)
            + fed.ring_bytes()
            + factor_bytes(func, std::slice::from_ref(fed), &[])
            + passed
            + REDUCTION_BYTES
    }
}

/// The products that add to what a loop carries, from one iteration to the next.
fn carried_by(func: &Func, fed: &FedLoop) -> Vec<OpId> {
    let body = func.op(fed.owner).regions[0];
    let is_waited_for =
        |value: &&ValueId| func.def_op(**value).is_some_and(|made| matches!(made.op, Op::Gpu(GpuOp::WgmmaWait { .. })));
    func.yielded(body).iter().filter(is_waited_for).filter_map(|&value| product_of(func, value)).collect()
}

/// The product whose sum a product adds to.
fn goes_on_with(func: &Func, product: OpId) -> Option<OpId> {
    let sum = *func.op(product).operands.get(2)?;
    product_of(func, sum)
}

/// The product that a value is the sum of, waited for or not.
fn product_of(func: &Func, value: ValueId) -> Option<OpId> {
    let mut made = func.defining_op(value)?;
    if let Op::Gpu(GpuOp::WgmmaWait { .. }) = func.op(made).op {
        let at = func.op(made).results.iter().position(|&result| result == value)?;
        made = func.defining_op(func.op(made).operands[at])?;
    }
    matches!(func.op(made).op, Op::Gpu(GpuOp::Wgmma { .. })).then_some(made)
}

/// What is computed from some values, and what control flow hands on of that.
fn dependent(func: &Func, seeds: &[ValueId]) -> BTreeSet<ValueId> {
    let mut found: BTreeSet<ValueId> = seeds.iter().copied().collect();
    loop {
        let before = found.len();
        walk(func, &mut |id| {
            let operation = func.op(id);
            match &operation.op {
                Op::Control(ControlOp::For { .. }) => {
                    let body = operation.regions[0];
                    let (args, yields) = (&func.region(body).args, func.yielded(body));
                    for at in 0..operation.results.len() {
                        if [operation.operands[3 + at], args[1 + at], yields[at]].iter().any(|v| found.contains(v)) {
                            found.extend([args[1 + at], operation.results[at]]);
                        }
                    }
                }
                Op::Control(ControlOp::If) => {
                    let all = found.contains(&operation.operands[0]);
                    for at in 0..operation.results.len() {
                        let yields = |region: &RegionId| found.contains(&func.yielded(*region)[at]);
                        if all || operation.regions.iter().any(yields) {
                            found.insert(operation.results[at]);
                        }
                    }
                }
                Op::Gpu(GpuOp::WgmmaWait { .. }) => {
                    let pairs = operation.operands.iter().zip(&operation.results);
                    found.extend(
                        pairs.filter(|(tile, _)| found.contains(tile)).map(|(_, &result)| result).collect::<Vec<_>>(),
                    );
                }
                _ if operation.operands.iter().any(|value| found.contains(value)) => found.extend(&operation.results),
                _ => {}
            }
        });
        if found.len() == before {
            return found;
        }
    }
}

/// What the operations on a sum need that depends on scores and not on the sum: as few bytes as there are on the way.
fn needed(
    func: &Func,
    structure: &Structure,
    own: &BTreeSet<ValueId>,
    scores: &BTreeSet<ValueId>,
) -> Option<BTreeSet<ValueId>> {
    let (mut needs, mut work) = (BTreeSet::new(), Vec::new());
    walk(func, &mut |id| {
        let operation = func.op(id);
        let touches = operation.results.iter().chain(&operation.operands).any(|value| own.contains(value));
        if !touches {
            return;
        }
        match &operation.op {
            Op::Control(ControlOp::For { .. }) => {}
            Op::Control(ControlOp::If) => work.push(operation.operands[0]),
            Op::Control(ControlOp::Yield) => {
                let Some(owner) = structure.around(id).next() else { return };
                let results = &func.op(owner).results;
                let handed = operation.operands.iter().zip(results).filter(|(_, result)| own.contains(result));
                work.extend(handed.map(|(value, _)| value));
            }
            _ => work.extend(&operation.operands),
        }
    });
    while let Some(value) = work.pop() {
        if own.contains(&value) || !scores.contains(&value) {
            continue;
        }
        let made = func.def_op(value);
        let is_rearranged = |op: &Op| matches!(op, Op::Shape(shape) if *shape != ShapeOp::ConvertLayout);
        let is_bool = func.ty(value).dtype() == Some(DType::Bool);
        match made {
            Some(operation)
                if is_rearranged(&operation.op)
                    || (is_bool && !func.ty(value).is_scalar()) && operation.op.is_arithmetic() =>
            {
                work.extend(&operation.operands);
            }
            _ => {
                needs.insert(value);
            }
        }
    }
    // Numbers and truth values of threads have a place; other things are not passed on.
    let passes = |value: &ValueId| matches!(func.ty(*value).elem, Elem::Data(_)) && func.ty(*value).dtype().is_some();
    needs.iter().all(passes).then_some(needs)
}
