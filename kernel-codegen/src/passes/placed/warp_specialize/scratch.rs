//! The shared memory that conversions and reductions of the consumers take beside their rings and factors.

use std::collections::BTreeSet;

use kernel_core::edit::{Structure, walk};
use kernel_core::ir::{ControlOp, Cost, Func, Op, OpId, ValueId, view};
use kernel_core::target::Target;

use super::find::FedLoop;
use crate::analysis::exchange::{ALIGNMENT, Exchanges, Threads, conversion_bytes, tile_bytes};

/// Bytes that are left for a reduction, if there is room: then those that follow each other take turns between places.
const REDUCTION_BYTES: u32 = 8 * 1024;

/// Bytes for what threads pass each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Scratch {
    /// While the factors that the consumers have stored are read.
    along: u32,
    /// Behind the loops of a program that has no other tile: in the place of those factors, if that is enough
    /// (`analysis/allocation`).
    behind: u32,
}

impl Scratch {
    /// What is taken where there is room.
    pub(super) fn usual(func: &Func, structure: &Structure, fed_loops: &[FedLoop]) -> Scratch {
        let bytes = |id: OpId| match func.op(id).op.cost() {
            Cost::Exchange => REDUCTION_BYTES.max(tile_bytes(func, func.op(id))),
            _ => 0,
        };
        let Scratch { along, behind } = Scratch::of(func, structure, fed_loops, &bytes);
        Scratch { along: along.max(behind), behind: 0 }
    }

    /// What has to be there.
    pub(super) fn least(
        func: &Func,
        target: Target,
        structure: &Structure,
        fed_loops: &[FedLoop],
        num_warps: u32,
    ) -> Scratch {
        let exchanges = Exchanges::new(func, target, num_warps);
        let bytes = |id: OpId| {
            let steps = exchanges.of(func, id, Threads::Group(num_warps), 0);
            // What layouts do not allow is said where exchanges are placed.
            let bytes = steps.map(|steps| steps.iter().map(|step| step.bytes.next_multiple_of(ALIGNMENT)).sum());
            bytes.unwrap_or(REDUCTION_BYTES)
        };
        Scratch::of(func, structure, fed_loops, &bytes)
    }

    /// With so many bytes for an operation that is no conversion.
    fn of(func: &Func, structure: &Structure, fed_loops: &[FedLoop], bytes: &dyn Fn(OpId) -> u32) -> Scratch {
        let replaced = replaced(func, fed_loops);
        let is_loop = |id: OpId| matches!(func.op(id).op, Op::Control(ControlOp::For { .. } | ControlOp::While));
        let single = fed_loops.iter().all(|fed| !structure.around(fed.owner).any(is_loop));
        let end = fed_loops.iter().map(|fed| structure.extent(fed.owner).end).max().filter(|_| single);
        let mut scratch = Scratch { along: 0, behind: 0 };
        walk(func, &mut |id| {
            let operation = func.op(id);
            let own = match view::ConvertLayout::of(operation) {
                Some(_) if replaced.contains(&operation.results[0]) => 0,
                Some(convert) => converted_bytes(func, convert.tile, operation.results[0]),
                None => bytes(id),
            };
            let is_behind = end.is_some_and(|end| structure.extent(id).start >= end);
            let most = if is_behind { &mut scratch.behind } else { &mut scratch.along };
            *most = own.max(*most);
        });
        scratch
    }

    /// Whether nothing is passed on.
    pub(super) fn is_empty(self) -> bool {
        self.along.max(self.behind) == 0
    }

    /// Bytes of that and of the factors that the consumers store.
    pub(super) fn beside(self, factors: u32) -> u32 {
        (self.along + factors).max(self.behind)
    }
}

/// What threads would store of the blocks that are fetched, as it is on its way there.
fn replaced(func: &Func, fed_loops: &[FedLoop]) -> BTreeSet<ValueId> {
    let mut replaced = BTreeSet::new();
    for &store in fed_loops.iter().flat_map(|fed| &fed.stores) {
        let way = |value: &ValueId| func.op(func.defining_op(*value)?).moved_operand();
        replaced.extend(std::iter::successors(Some(func.op(store).operands[1]), way));
    }
    replaced
}

fn converted_bytes(func: &Func, from: ValueId, to: ValueId) -> u32 {
    let bits = func.ty(from).dtype().map_or(64, |dtype| dtype.bytes() * 8);
    func.layout(from).zip(func.layout(to)).map_or(0, |(from, to)| conversion_bytes(from, to, bits))
}
