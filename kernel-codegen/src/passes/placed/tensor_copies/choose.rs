//! Whose blocks the hardware copies.

use std::collections::BTreeSet;

use kernel_core::backend::nvidia::TensorCopies;
use kernel_core::edit::{Uses, walk, walk_region};
use kernel_core::ir::{
    AtomicOp, ControlOp, DType, DescOp, Dim, DotOp, Dt, Func, Literal, Op, OpId, Param, ParamId, ParamKind, RegionId,
    ValueId, known, view,
};
use kernel_core::target::Target;

use super::super::carry::{self, EnclosingRegion};
use super::SharedRoom;
use crate::analysis::axis::AxisAnalysis;
use crate::boxes::box_layout;

/// Addresses and strides of tensors that can be copied are multiples of this many bytes.
const UNIT: u32 = 16;

/// What [`choose`] decides.
#[derive(Default)]
pub(crate) struct Chosen {
    /// The parameters whose blocks are copied by the hardware.
    pub(crate) copied: BTreeSet<ParamId>,
    /// Whether blocks of some could go through registers instead: they take shared memory that something else might need.
    pub(crate) spares: bool,
}

/// Decides whose blocks are copied by the hardware.
pub(crate) fn choose(func: &Func, target: Target, copies: TensorCopies, room: SharedRoom) -> Chosen {
    if !target.has_tensor_copies() || copies == TensorCopies::Never {
        return Chosen::default();
    }
    let tensors = Tensors::of(func);
    if tensors.ops.is_empty() {
        return Chosen::default();
    }
    let axis = AxisAnalysis::new(func);
    let beside = if room == SharedRoom::Much { tensors.beside_products(func) } else { BTreeSet::new() };
    let ids = (0..func.params.len()).map(|index| ParamId::new(index as u32));
    let copied = ids.filter(|&id| {
        let near = tensors.products.contains(&id) || beside.contains(&id);
        let useful = copies == TensorCopies::Always || near;
        useful && can_be_copied(func.param(id)) && tensors.fit(func, id) && tensors.begin_at_units(func, &axis, id)
    });
    let copied: BTreeSet<ParamId> = copied.collect();
    let spares = beside.iter().any(|id| copied.contains(id) && !tensors.products.contains(id));
    Chosen { copied, spares }
}

/// Whether the hardware can copy blocks of a tensor of which that is known.
///
/// It reads element by element where a block reaches beyond the tensor, but it writes whole units: a row that ends
/// within one would be written up to the unit's end, which is padding, another tensor or nobody's memory (seen on an
/// H100 with rows of 107 f16). So what is stored to needs rows of whole units.
fn can_be_copied(param: &Param) -> bool {
    let ParamKind::Desc { dt, block, mutable } = &param.kind else { return false };
    let (Some(dtype), Some(shape)) = (dt.known(), block_shape(block)) else { return false };
    let (facts, bytes) = (&param.facts, dtype.bytes());
    let aligned = facts.divisible_by.is_multiple_of(UNIT) && facts.divisible_by > 0;
    let strides = shape.len() == 1 || facts.stride_divisible_by.saturating_mul(bytes) >= UNIT;
    // Bytes are copied as such, so that an 8-bit float cannot be padded with NaN.
    let padding = !facts.pads_with_nan || (dtype.is_float() && !dtype.is_fp8());
    let rows = !mutable || facts.len_divisible_by.saturating_mul(bytes) >= UNIT;
    aligned && strides && rows && padding && box_layout(&shape, bytes * 8).is_some()
}

pub(super) fn block_shape(block: &[Dim]) -> Option<Vec<u32>> {
    block.iter().map(|dim| u32::try_from(dim.as_const()?).ok()).collect()
}

/// What a kernel does with its tensors.
pub(super) struct Tensors {
    /// Operations of descriptors, with the operations that they are in.
    pub(super) ops: Vec<(ParamId, OpId, Vec<EnclosingRegion>)>,
    /// Tensors that feed matrix products, and tensors that are stored to in kernels with products.
    products: BTreeSet<ParamId>,
}

impl Tensors {
    pub(super) fn of(func: &Func) -> Tensors {
        let mut uses = Tensors { ops: Vec::new(), products: BTreeSet::new() };
        uses.region(func, func.body, &mut Vec::new());
        let mut factors = Vec::new();
        walk(func, &mut |id| {
            if let Op::Dot(DotOp::Dot { .. }) = func.op(id).op {
                factors.extend_from_slice(&func.op(id).operands[..2]);
            }
        });
        let has_products = !factors.is_empty();
        let mut seen = BTreeSet::new();
        while let Some(value) = factors.pop() {
            let Some(operation) = func.def_op(value).filter(|_| seen.insert(value)) else { continue };
            if let Some(load) = view::DescLoad::of(operation) {
                uses.products.extend(func.ty(load.descriptor).descriptor());
            } else if operation.op.is_arithmetic() {
                factors.extend_from_slice(&operation.operands);
            }
        }
        if has_products {
            let stored = |op: &Op| matches!(op, Op::Desc(DescOp::DescStore | DescOp::DescReduce { .. }));
            let stored: Vec<ParamId> =
                uses.ops.iter().filter(|(_, id, _)| stored(&func.op(*id).op)).map(|(param, ..)| *param).collect();
            uses.products.extend(stored);
        }
        uses
    }

    fn region(&mut self, func: &Func, region: RegionId, around: &mut Vec<EnclosingRegion>) {
        for &id in &func.region(region).ops {
            let operation = func.op(id);
            if let (Op::Desc(_), Some(&tensor)) = (&operation.op, operation.operands.first())
                && let Some(param) = func.ty(tensor).descriptor()
            {
                self.ops.push((param, id, around.clone()));
            }
            for (index, &inner) in operation.regions.iter().enumerate() {
                around.push(EnclosingRegion { owner: id, region: index });
                self.region(func, inner, around);
                around.pop();
            }
        }
    }

    /// Tensors whose blocks meet the sums of a product, element by element, and are loaded outside the loop that adds them up:
    /// threads that have sums of `wgmma` have few neighbours of a row each, and would load them, or give them to each other, a few
    /// bytes at a time.
    fn beside_products(&self, func: &Func) -> BTreeSet<ParamId> {
        let (mut sums, uses) = (BTreeSet::new(), Uses::new(func));
        sums_of(func, func.body, &mut sums);
        let loaded = self.ops.iter().filter(|(_, id, around)| {
            let innermost = around.iter().rposition(|site| carry::is_loop(func, *site));
            let region = carry::innermost(func, &around[..innermost.map_or(0, |at| at + 1)]);
            func.op(*id).op == Op::Desc(DescOp::DescLoad) && !multiplies(func, region)
        });
        let met = loaded.filter(|(_, id, _)| meets(func, &uses, &sums, func.op(*id).results[0]));
        met.map(|(param, ..)| *param).collect()
    }

    /// Whether all blocks of a tensor are known to begin at multiples of a unit of their rows: the hardware refuses others as an
    /// illegal instruction (seen on an H200).
    fn begin_at_units(&self, func: &Func, axis: &AxisAnalysis, param: ParamId) -> bool {
        let Some(dtype) = func.param(param).kind.dt().and_then(Dt::known) else { return false };
        self.ops.iter().filter(|(of, ..)| *of == param).all(|(_, id, _)| {
            let innermost = func.op(*id).operands.last().map(|&last| axis.of(func, last));
            innermost.is_some_and(|info| {
                let divisor = info.dims.first().map_or(1, |dim| dim.divisibility);
                info.constant == Some(0) || divisor.saturating_mul(u64::from(dtype.bytes())).is_multiple_of(UNIT.into())
            })
        })
    }

    /// Whether copies keep the order of the accesses to a tensor: it is only loaded, or only stored to, and there in loops of
    /// which the kernel says that their iterations do not depend on each other, at places of which no two store to the same
    /// elements. Copies to memory end in any order, so that of two that store to the same elements either might have the last
    /// word. Of reductions none has: they give the same in any order.
    fn fit(&self, func: &Func, param: ParamId) -> bool {
        let own: Vec<_> = self.ops.iter().filter(|(of, ..)| *of == param).collect();
        let carried = |around: &[EnclosingRegion]| around.iter().all(|site| carries_phases(func, *site));
        let is = |op: DescOp| own.iter().all(|(_, id, _)| func.op(*id).op == Op::Desc(op.clone()));
        if own.is_empty() || !own.iter().all(|(.., around)| carried(around)) {
            false
        } else if is(DescOp::DescLoad) {
            true
        } else if is(DescOp::DescStore) {
            let coordinates: Vec<_> = own.iter().map(|(_, id, _)| &func.op(*id).operands[2..]).collect();
            let differ =
                |at: usize| coordinates[..at].iter().all(|other| are_disjoint(func, param, coordinates[at], other));
            own.iter().enumerate().all(|(at, (.., around))| apart(func, coordinates[at], around) && differ(at))
        } else if let [(_, id, _)] = own.as_slice()
            && let Op::Desc(DescOp::DescReduce { op }) = func.op(*id).op
        {
            // Which block is added first does not matter.
            reduces(op, &func.param(param).kind)
        } else {
            false
        }
    }
}

/// Whether blocks of a tensor at two places have no element in common: along a dimension they begin at constants that are at
/// least a block apart.
fn are_disjoint(func: &Func, param: ParamId, one: &[ValueId], other: &[ValueId]) -> bool {
    let ParamKind::Desc { block, .. } = &func.param(param).kind else { return false };
    let start = |value: ValueId| match known::constant(func, value)? {
        Literal::Int(start) => Some(start),
        Literal::Bool(_) | Literal::Float(_) => None,
    };
    block.iter().zip(one.iter().zip(other)).any(|(size, (&one, &other))| {
        let starts = start(one).zip(start(other)).zip(size.as_const());
        starts.is_some_and(|((one, other), size)| one.abs_diff(other) >= u128::from(size.unsigned_abs()))
    })
}

/// Whether a product is among the operations of a region, or in its conditions.
fn multiplies(func: &Func, region: RegionId) -> bool {
    func.region(region).ops.iter().any(|&id| {
        let operation = func.op(id);
        let inside = |&inner: &RegionId| !operation.op.is_loop() && multiplies(func, inner);
        matches!(operation.op, Op::Dot(DotOp::Dot { .. })) || operation.regions.iter().any(inside)
    })
}

/// Whether something computed from a value element by element is computed from sums too.
fn meets(func: &Func, uses: &Uses, sums: &BTreeSet<ValueId>, value: ValueId) -> bool {
    let (mut values, mut seen) = (vec![value], BTreeSet::new());
    while let Some(value) = values.pop() {
        for &user in uses.of(value).iter().filter(|&&user| seen.insert(user)) {
            let operation = func.op(user);
            let same = operation.results.iter().all(|&result| func.ty(result).numel() == func.ty(value).numel());
            if !same || !(operation.op.is_arithmetic() || operation.moved_operand().is_some()) {
                continue;
            }
            if operation.results.iter().any(|result| sums.contains(result)) {
                return true;
            }
            values.extend(&operation.results);
        }
    }
    false
}

/// The sums of products, and what is computed from them element by element.
fn sums_of(func: &Func, region: RegionId, sums: &mut BTreeSet<ValueId>) {
    for &id in &func.region(region).ops {
        let operation = func.op(id);
        for &inner in &operation.regions {
            sums_of(func, inner, sums);
            let yielded = func.yielded(inner).iter().zip(&operation.results);
            sums.extend(
                yielded.filter(|(value, _)| sums.contains(value)).map(|(_, result)| *result).collect::<Vec<_>>(),
            );
        }
        let is_product = matches!(operation.op, Op::Dot(DotOp::Dot { .. }));
        let is_elementwise = operation.op.is_arithmetic() || operation.moved_operand().is_some();
        if is_product || (is_elementwise && operation.operands.iter().any(|operand| sums.contains(operand))) {
            sums.extend(&operation.results);
        }
    }
}

/// Whether something in the regions of an operation can see a value that each iteration changes.
fn carries_phases(func: &Func, site: EnclosingRegion) -> bool {
    let owner = func.op(site.owner);
    // A condition yields nothing but itself.
    owner.op.is_loop_or_branch() && owner.condition_region() != Some(owner.regions[site.region])
}

/// Whether the hardware combines blocks of that dtype in memory.
fn reduces(op: AtomicOp, kind: &ParamKind) -> bool {
    let dtype = kind.dt().and_then(Dt::known);
    match op {
        AtomicOp::Add => {
            matches!(dtype, Some(DType::F16 | DType::BF16 | DType::F32 | DType::I32 | DType::U32 | DType::U64))
        }
        AtomicOp::Min | AtomicOp::Max => matches!(dtype, Some(DType::I32 | DType::U32 | DType::I64 | DType::U64)),
        AtomicOp::And | AtomicOp::Or | AtomicOp::Xor => {
            matches!(dtype, Some(DType::I32 | DType::U32 | DType::I64 | DType::U64))
        }
        AtomicOp::Exchange => false,
    }
}

/// Whether iterations store to different blocks: all loops around a store are said to have independent iterations,
/// and a coordinate is computed in the innermost of them.
fn apart(func: &Func, coordinates: &[ValueId], around: &[EnclosingRegion]) -> bool {
    // Conditions, and groups of warps, run what is in them once.
    let mut loops = around.iter().rev().filter(|site| func.op(site.owner).op.is_loop()).map(|site| {
        let marked = matches!(func.op(site.owner).op, Op::Control(ControlOp::For { warp_specialize: true, .. }));
        (site, marked)
    });
    let Some((innermost, marked)) = loops.next() else { return true };
    let mut inside: BTreeSet<ValueId> = BTreeSet::new();
    for &region in &func.op(innermost.owner).regions {
        inside.extend(&func.region(region).args);
        walk_region(func, region, &mut |id| inside.extend(&func.op(id).results));
    }
    marked && loops.all(|(_, marked)| marked) && coordinates.iter().any(|coordinate| inside.contains(coordinate))
}
