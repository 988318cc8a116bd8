//! Placement: gives every tile a layout, which says which thread holds which element.
//!
//! ```text
//! before:  %6: i32[1024] = arange ..     %10: *x[1024] = add_ptr ..     %13: f32[1024] = load %10
//! after:   the same with a layout behind each type, and `convert_layout` where two layouts meet
//! ```
//!
//! # How layouts are chosen
//!
//! 1. [`coalesce`]: every access to global memory gets the layout in which neighbouring threads access neighbouring
//!    vectors of up to 16 bytes. All accesses of one shape agree, so that a kernel that loads, computes and stores
//!    needs no conversions at all; but for factors of products, which go to shared memory ([`factors`]).
//! 2. [`natural`], forwards: values whose computation is worth something get one layout, where they are *computed*.
//!    Loads, atomics, reductions and loop-carried values are the anchors; arithmetic inherits the layout of its
//!    first operand that has one.
//!    The accumulator of a matrix product has the layout of the instruction that it carries ([`product`]), and a loop
//!    that carries it carries it in that layout. What a factor of `mma.sync` is unpacked from is computed in the layouts in
//!    which it stays in its threads ([`unpacked`]).
//! 3. [`demand`], backwards: every user says in which layout it needs its operands. A value that is cheap to
//!    compute (made by `arange`, `splat`, constants, and integer arithmetic, comparisons, pointer arithmetic on
//!    such) is computed anew in each layout that is asked for; others are converted once per layout.
//! 4. [`rewrite`]: emits the copies and the conversions.
//!
//! # What it costs
//!
//! A conversion through shared memory costs, per element, a store, a load and the address arithmetic, and two
//! barriers; about 30 to 60 cycles of latency that nothing hides. Recomputing an offset or a mask costs one or two
//! integer instructions per element, of which LLVM drops most (only the first of a vector is used for an address).
//! So offsets and masks are always recomputed. A special-function instruction has a quarter of the throughput of
//! an addition and a load has memory traffic, so these are converted, not repeated, with two exceptions:
//! a small tile that is loaded from memory which does not change (a bias, a row of weights) is loaded in the layout
//! of its first user, and a small tile is stored in the layout in which it was computed. There the wasted
//! sectors cost less than an iteration through shared memory ([`coalesce::suits`] says how many may be wasted).
//!
//! `expand_dims` and `broadcast` cost nothing in any layout: their operand is wanted in the projection of the
//! result's layout. For the result of a reduction that is the very layout that the reduction leaves, so that
//! `x - max(x, axis = 1)` needs no conversion.

mod coalesce;
mod demand;
mod factors;
mod home;
mod product;
mod rewrite;
mod tile;
pub(crate) mod transfer;
mod unpacked;

use std::collections::{BTreeMap, BTreeSet};

use kernel_core::edit::walk;
use kernel_core::ir::{Def, Func, LayoutId, LayoutTable, OpId, Span, ValueId};
use kernel_core::layout::{LayoutError, LinearLayout, WARP_SIZE};
use kernel_core::target::{MAX_PER_THREAD, MAX_WARPS, Target};

use crate::analysis::axis::AxisAnalysis;
use crate::error::CodegenError;
use factors::Factors;

/// Where a value can be computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Home {
    /// Anywhere, again and again.
    Rematerialise,
    /// In any one layout: that of the first who asks.
    AnyOne,
    /// In this layout.
    At(LayoutId),
}

/// The layouts of a kernel, each once.
#[derive(Default, Debug)]
struct Table {
    layouts: LayoutTable,
}

impl Table {
    /// The identifier of a layout, without redundant registers.
    fn intern(&mut self, layout: &LinearLayout) -> LayoutId {
        self.layouts.intern(&layout.remove_broadcast_registers().layout)
    }

    fn get(&self, id: LayoutId) -> &LinearLayout {
        &self.layouts[id.index()]
    }
}

/// What the steps of placement share.
struct Placement<'f> {
    func: &'f Func,
    axis: &'f AxisAnalysis,
    target: Target,
    num_warps: u32,
    factors: Factors,
    table: Table,
    /// The layout of each access to global memory on tiles, by operation.
    access: Vec<Option<LayoutId>>,
    /// The layout in which an operation with effects, a reduction or a loop works, by operation.
    chosen: Vec<Option<LayoutId>>,
    /// The layouts of the operands of a matrix product or an operation on whole tiles, by operation.
    products: BTreeMap<OpId, Vec<LayoutId>>,
    /// Where values are computed that become factors of products in their own threads.
    unpacked: BTreeMap<ValueId, LayoutId>,
    /// The loads that those are unpacked from.
    packed: BTreeSet<OpId>,
    /// Per value.
    homes: Vec<Home>,
    /// Whether the body of a loop is visited for the first time, to learn where carried values are computed.
    first_visit: bool,
    /// Per value, the layouts asked for, the first first.
    demands: Vec<Vec<LayoutId>>,
}

impl Placement<'_> {
    fn home(&self, value: ValueId) -> Home {
        self.homes[value.index()]
    }

    /// The numbers of a tile's shape; empty for a scalar.
    fn shape(&self, value: ValueId) -> Vec<u32> {
        self.func.tile_shape(value)
    }

    /// Notes that `value` is wanted in `layout`. A value that may be computed anywhere is then computed there.
    fn want(&mut self, value: ValueId, layout: LayoutId) {
        if !self.is_tile(value) {
            return;
        }
        if self.home(value) == Home::AnyOne {
            // A load goes where its sectors are used, if nobody asks for it in a layout that suits it.
            let home = match self.func.value(value).def {
                Def::Result(op, _) if !coalesce::suits(self, op, layout) => self.access[op.index()].unwrap_or(layout),
                Def::Result(..) | Def::Param(_) | Def::Arg(..) => layout,
            };
            self.homes[value.index()] = Home::At(home);
        }
        let demands = &mut self.demands[value.index()];
        if !demands.contains(&layout) {
            demands.push(layout);
        }
    }

    fn is_tile(&self, value: ValueId) -> bool {
        !self.func.ty(value).is_scalar()
    }

    /// The tiles among some values, with their places.
    fn tiles(&self, values: &[ValueId]) -> Vec<(usize, ValueId)> {
        values.iter().copied().enumerate().filter(|&(_, value)| self.is_tile(value)).collect()
    }

    /// Turns an error of the layout algebra into one about an operation.
    fn layout<T>(&self, op: OpId, result: Result<T, LayoutError>) -> Result<T, CodegenError> {
        let span = self.func.op(op).span;
        result.map_err(|error| CodegenError::refuse(self.func, span, format!("no layout for this operation: {error}")))
    }
}

/// Gives every tile of a bound kernel a layout for `num_warps` warps of a target. Matrix products have their instructions.
///
/// # Errors
/// If a tile has a dimension that is not a power of two, or too many elements.
pub(crate) fn place(func: Func, axis: &AxisAnalysis, target: Target, num_warps: u32) -> Result<Func, CodegenError> {
    check_shapes(&func, num_warps)?;
    let mut placement = Placement {
        func: &func,
        axis,
        target,
        num_warps,
        factors: Factors::of(&func),
        table: Table::default(),
        access: vec![None; func.ops.len()],
        chosen: vec![None; func.ops.len()],
        products: BTreeMap::new(),
        unpacked: BTreeMap::new(),
        packed: BTreeSet::new(),
        homes: vec![Home::Rematerialise; func.values.len()],
        first_visit: false,
        demands: vec![Vec::new(); func.values.len()],
    };
    unpacked::choose(&mut placement)?;
    coalesce::choose(&mut placement)?;
    home::region(&mut placement, func.body)?;
    demand::region(&mut placement, func.body)?;
    let Placement { table, chosen, products, homes, demands, .. } = placement;
    rewrite::apply(func, table, &rewrite::Decisions { chosen, products, homes, demands })
}

fn too_large(func: &Func, span: Span, elements: u64, num_warps: u32) -> CodegenError {
    let per_warp = MAX_PER_THREAD.unsigned_abs() * u64::from(WARP_SIZE);
    let what = match num_warps {
        1 => "elements in a tile of 1 warp".to_string(),
        warps => format!("elements in a tile of {warps} warps"),
    };
    let enough = elements.div_ceil(per_warp).next_power_of_two();
    let more = if enough <= u64::from(MAX_WARPS) { format!(", or use {enough} warps") } else { String::new() };
    CodegenError::refuse(func, span, what)
        .amounts(elements, per_warp * u64::from(num_warps))
        .help(format!("a thread holds up to {MAX_PER_THREAD} of them: loop over smaller tiles{more}"))
}

fn check_shapes(func: &Func, num_warps: u32) -> Result<(), CodegenError> {
    let limit = MAX_PER_THREAD * i64::from(num_warps * WARP_SIZE);
    let mut problem = None;
    walk(func, &mut |id| {
        let operation = func.op(id);
        for &result in &operation.results {
            let dims = func.ty(result).dims().unwrap_or_default();
            if let Some(&dim) = dims.iter().find(|&&dim| dim < 1 || dim & (dim - 1) != 0) {
                let what = format!("a tile dimension of {dim}, which is not a power of two");
                let error = CodegenError::refuse(func, operation.span, what);
                problem.get_or_insert(error.help("use the next power of two and mask the rest"));
            } else if func.ty(result).numel().is_none_or(|numel| numel > limit) {
                let needed = func.ty(result).numel().map_or(u64::MAX, i64::unsigned_abs);
                problem.get_or_insert(too_large(func, operation.span, needed, num_warps));
            }
        }
    });
    problem.map_or(Ok(()), Err)
}
