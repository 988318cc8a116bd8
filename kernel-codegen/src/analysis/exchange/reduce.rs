//! How the partial results of a reduction's warps get to all of them.

use kernel_core::ir::{BinaryOp, DType, ElementwiseOp, Func, Op, Operation, RegionId};
use kernel_core::layout::{
    LayoutDim, LayoutError, LinearLayout, ReductionPlan, SelectLevel, SharedAccess, shared_access,
};

/// Bits of the widest access to shared memory.
const ACCESS_BITS: u32 = 128;

/// Up to so many bits of warps, each thread combines all of their partial results.
const DIRECT_BITS: u32 = 4;

/// Whether a reduction asks all elements of a tile, and which question: if any is true (`Or`) or all are (`And`). Threads that
/// have copies may answer too, so all of them vote, and a barrier counts the votes.
pub(crate) fn vote(func: &Func, reduction: &Operation) -> Option<BinaryOp> {
    let (&[tile], &[result], &[region]) =
        (reduction.operands.as_slice(), reduction.results.as_slice(), reduction.regions.as_slice())
    else {
        return None;
    };
    let of_all = func.ty(tile).dtype() == Some(DType::Bool) && func.layout(result).is_none();
    combination(func, region, 0).filter(|op| of_all && matches!(op, BinaryOp::Or | BinaryOp::And))
}

/// The one operation by which a region combines the two elements of an operand, in either order, if that is all that it does.
pub(crate) fn combination(func: &Func, region: RegionId, operand: usize) -> Option<BinaryOp> {
    let args = &func.region(region).args;
    let pair = [*args.get(operand)?, *args.get(args.len() / 2 + operand)?];
    let operation = func.def_op(*func.yielded(region).get(operand)?)?;
    let operands = operation.operands.as_slice();
    match operation.op {
        Op::Elementwise(ElementwiseOp::Binary { op }) if operands == pair || operands == [pair[1], pair[0]] => Some(op),
        _ => None,
    }
}

/// The partial results of all operands.
pub(crate) struct WarpExchange {
    /// Where each begins, and how it goes.
    pub(crate) exchanges: Vec<(u32, Exchange)>,
    /// Bytes of them all.
    pub(crate) bytes: u32,
}

impl WarpExchange {
    /// That of operands with so many bits to an element.
    ///
    /// # Errors
    /// If the layouts of the plan do not fit each other.
    pub(crate) fn new(plan: &ReductionPlan, bits: &[u32]) -> Result<WarpExchange, LayoutError> {
        let own = own_bits(plan, bits.iter().copied().max().unwrap_or(0));
        let (mut exchanges, mut bytes) = (Vec::with_capacity(bits.len()), 0);
        for &bits in bits {
            exchanges.push((bytes, Exchange::new(plan, bits, own)?));
            let size = (1u32 << plan.partials.total_out_bits()) * bits / 8;
            bytes = (bytes + size).next_multiple_of(16);
        }
        Ok(WarpExchange { exchanges, bytes })
    }
}

/// How the partial results of the warps go through shared memory.
pub(crate) struct Exchange {
    pub(crate) store: SharedAccess,
    pub(crate) load: SharedAccess,
    /// Values that each thread reads: its results, times the warps whose partial results it combines itself.
    pub(crate) registers: usize,
    /// The exchanges of lanes that combine the rest of the warps.
    pub(crate) lane_steps: Vec<SelectLevel>,
}

impl Exchange {
    /// The exchange in which each thread combines so many of the warp bits itself, and lanes the others.
    fn new(plan: &ReductionPlan, elem_bits: u32, own_bits: u32) -> Result<Exchange, LayoutError> {
        let warps = plan.partials.tile_shape().len() as u8 - 1;
        let (readers, lane_steps) = readers(plan, warps, own_bits)?;
        let through = |shared: LinearLayout| {
            let store = shared_access(&plan.partials, &shared, elem_bits)?;
            Ok((store, shared_access(&readers, &shared, elem_bits)?))
        };
        // Elements of the result are neighbours, warps far apart: then neither side has bank conflicts, if neighbouring lanes have
        // neighbours.
        let order: Vec<u8> = [warps].into_iter().chain(0..warps).collect();
        let (mut store, mut load) = through(shared_in_order(&plan.partials, &order)?)?;
        if store.conflicts + load.conflicts > 0 {
            let (other_store, other_load) = through(shared_by_lanes(&plan.partials, elem_bits)?)?;
            if other_store.wavefronts() + other_load.wavefronts() < store.wavefronts() + load.wavefronts() {
                (store, load) = (other_store, other_load);
            }
        }
        Ok(Exchange { store, load, registers: readers.in_size(LayoutDim::Register) as usize, lane_steps })
    }
}

/// How many of the bits that count warps each thread combines itself after the exchange.
///
/// Those of 16 warps are four accesses of 16 bytes, combined sooner than shuffles would be. Of more, a thread reads
/// four, and lanes that would all hold the same combine these by shuffles: at 32 warps that is 10 instructions in
/// place of 39, in each warp, and 4 registers in place of 32. On an H100 that is worth 3 to 8 % of a softmax or layer
/// norm whose programs have 32 warps, and 40 % where a second program fits beside the first for it. At 16 warps it
/// gains nothing where all loads are in flight anyway, and costs 3 % of an RMS norm of unaligned rows.
fn own_bits(plan: &ReductionPlan, widest: u32) -> u32 {
    let bits = plan.warp_bits.count_ones();
    let own = (ACCESS_BITS / widest.max(1)).max(1).ilog2().min(bits);
    if bits > DIRECT_BITS && bits - own <= alike_lanes(plan).count() as u32 { own } else { bits }
}

/// The bits of lanes that all hold the same results.
fn alike_lanes(plan: &ReductionPlan) -> impl Iterator<Item = usize> {
    let columns = plan.result.columns(LayoutDim::Lane).iter().enumerate();
    columns.filter(|(_, column)| **column == 0).map(|(bit, _)| bit)
}

/// Which partial results each thread reads, and the exchanges of lanes that combine the others: per result of its own
/// those of `1 << own_bits` warps, lanes that hold the same results those of different warps. Neighbouring warps are
/// next to each other, so that operands keep their order.
fn readers(plan: &ReductionPlan, axis: u8, own_bits: u32) -> Result<(LinearLayout, Vec<SelectLevel>), LayoutError> {
    let layout = plan.result.expand_dims(axis);
    let warp_bit = |bit: u32| -> Vec<u32> { (0..=axis).map(|dim| if dim == axis { 1 << bit } else { 0 }).collect() };
    let mut registers = layout.bases(LayoutDim::Register);
    registers.extend((0..own_bits).map(warp_bit));
    let mut lanes = layout.bases(LayoutDim::Lane);
    let across = own_bits..plan.warp_bits.count_ones();
    let steps = across.zip(alike_lanes(plan)).map(|(bit, lane)| {
        lanes[lane] = warp_bit(bit);
        SelectLevel { xor: 1 << lane, lanes: 1 << lane, warps: 0 }
    });
    let steps = steps.collect();
    let others = layout.ins().map(|(dim, _)| dim).filter(|dim| !matches!(dim, LayoutDim::Register | LayoutDim::Lane));
    let others = others.map(|dim| (dim, layout.bases(dim)));
    let ins: Vec<_> = [(LayoutDim::Register, registers), (LayoutDim::Lane, lanes)].into_iter().chain(others).collect();
    let outs: Vec<_> = layout.outs().map(|(dim, _)| (dim, plan.partials.out_size(dim))).collect();
    Ok((LinearLayout::from_bases(&ins, &outs)?, steps))
}

/// Shared memory that holds the tile of `layout` as threads do: vectors of a lane's registers, lane by lane, then the rest of the
/// registers, and warps.
fn shared_by_lanes(layout: &LinearLayout, elem_bits: u32) -> Result<LinearLayout, LayoutError> {
    let copies = layout.free_variable_masks();
    let own = |dim: LayoutDim| {
        let mask = copies.iter().find(|(of, _)| *of == dim).map_or(0, |&(_, mask)| mask);
        let bases = layout.bases(dim).into_iter().enumerate();
        bases.filter(move |(bit, _)| mask >> bit & 1 == 0).map(|(_, base)| base).collect::<Vec<_>>()
    };
    let registers = own(LayoutDim::Register);
    let vector = (ACCESS_BITS / elem_bits).max(1).ilog2().min(registers.len() as u32) as usize;
    let (within, beyond) = registers.split_at(vector);
    let bases = [within, &own(LayoutDim::Lane), beyond, &own(LayoutDim::Warp)].concat();
    let outs: Vec<_> = layout.outs().map(|(dim, _)| (dim, layout.out_size(dim))).collect();
    LinearLayout::from_bases(&[(LayoutDim::Offset, bases)], &outs)
}

/// Shared memory that holds the tile of `layout` with its axes in `order`, slowest first.
pub(crate) fn shared_in_order(layout: &LinearLayout, order: &[u8]) -> Result<LinearLayout, LayoutError> {
    let mut shared = LinearLayout::empty();
    for &axis in order.iter().rev() {
        let dim = LayoutDim::Axis(axis);
        shared = shared.product(&LinearLayout::identity1d(layout.out_size(dim), LayoutDim::Offset, dim)?)?;
    }
    let names: Vec<LayoutDim> = layout.outs().map(|(dim, _)| dim).collect();
    shared.transpose_outs(&names)
}

/// Shared memory that holds the tile of `layout` row by row.
pub(crate) fn row_major_shared(layout: &LinearLayout) -> Result<LinearLayout, LayoutError> {
    let order: Vec<u8> = (0..layout.tile_shape().len() as u8).collect();
    shared_in_order(layout, &order)
}
