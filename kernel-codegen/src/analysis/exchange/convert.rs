//! How a tile gets from one layout to another: in registers, by shuffles, or through shared memory.

use kernel_core::ir::{Func, Operation};
use kernel_core::layout::{
    Conversion, ConversionOptions, LayoutError, LinearLayout, MatrixAccess, SharedAccess, SharedPlan, SwizzleOptions,
    SwizzleWidth, SyncScope, convert_with, matrix_access, nvmma_shared, shared_access,
};

use super::{Step, bits};
use kernel_core::target::Target;

/// A larger tile goes through shared memory in several passes, so that programs do not crowd each other out.
pub(crate) const MAX_BYTES: u32 = 48 * 1024;

/// Conversions that take at most so much shared memory.
fn within(bytes: u32) -> ConversionOptions {
    ConversionOptions { swizzle: SwizzleOptions { max_bytes: Some(bytes) }, ..ConversionOptions::default() }
}

/// A conversion whose stores are matrices.
pub(crate) struct MatrixPlan {
    pub(crate) store: MatrixAccess,
    pub(crate) load: SharedAccess,
    pub(crate) bytes: u32,
}

impl MatrixPlan {
    /// How a tile gets to another layout by `stmatrix` and wide loads, both without bank conflicts.
    fn new(target: Target, from: &LinearLayout, to: &LinearLayout, bits: u32, allowed: u32) -> Option<MatrixPlan> {
        let bytes = (1u32 << from.total_out_bits()) * bits / 8;
        if !target.has_stmatrix() || bits != 16 || bytes > allowed {
            return None;
        }
        let shape = from.tile_shape();
        let sizes = [shape.last().copied()?, shape.iter().rev().nth(1).copied()?];
        [false, true].into_iter().zip(sizes).find_map(|(transposed, row)| {
            let shared = nvmma_shared(&shape, SwizzleWidth::widest_for(row * bits / 8), bits, transposed).ok()?;
            let by_matrices = |transposed| matrix_access(from, &shared, bits, transposed).ok().flatten();
            let store = by_matrices(false).or_else(|| by_matrices(true))?;
            let load = shared_access(to, &shared, bits).ok()?;
            let fits = store.conflicts == 0 && load.conflicts == 0;
            fits.then_some(MatrixPlan { store, load, bytes })
        })
    }

    /// Whether it takes fewer instructions than vectors and passes do.
    fn is_shorter_than(&self, plan: &SharedPlan) -> bool {
        let own = self.store.instructions.len() + self.load.accesses.len();
        own < plan.store.accesses.len() + plan.load.accesses.len()
    }
}

/// The way of a tile.
pub(crate) enum Route {
    /// As the layouts alone say.
    Plain(Conversion),
    /// Through shared memory, by instructions that store matrices.
    Matrices(MatrixPlan),
}

impl Route {
    /// The way of elements of `bits` bits that takes at most `allowed` bytes of shared memory, if there is one; some tiles
    /// cannot be cut into passes. The bytes of a way allow the same way.
    ///
    /// # Errors
    /// If the layouts are not of one tile.
    pub(crate) fn new(
        target: Target,
        from: &LinearLayout,
        to: &LinearLayout,
        bits: u32,
        allowed: u32,
    ) -> Result<Route, LayoutError> {
        let plan = match convert_with(from, to, bits, &within(allowed)) {
            Err(LayoutError::ScratchTooSmall { .. }) => convert_with(from, to, bits, &ConversionOptions::default()),
            plan => plan,
        }?;
        if let Conversion::SharedMemory(shared) = &plan
            && let Some(matrices) = MatrixPlan::new(target, from, to, bits, allowed)
            && matrices.is_shorter_than(shared)
        {
            return Ok(Route::Matrices(matrices));
        }
        Ok(Route::Plain(plan))
    }

    /// The way of a conversion of a placed kernel: it follows from the layouts and from the bytes that it has been given.
    ///
    /// # Errors
    /// If the layouts are not of one tile.
    pub(crate) fn of(
        func: &Func,
        operation: &Operation,
        target: Target,
        from: &LinearLayout,
        to: &LinearLayout,
    ) -> Result<Route, LayoutError> {
        let allowed = operation.shared.first().map_or(MAX_BYTES, |range| range.bytes());
        Route::new(target, from, to, bits(func, operation.operands[0]), allowed)
    }

    /// What goes through shared memory.
    pub(super) fn step(&self) -> Option<Step> {
        match self {
            Route::Matrices(plan) => Some(Step { bytes: plan.bytes, scope: SyncScope::Block, passes: 1 }),
            Route::Plain(Conversion::SharedMemory(plan)) => {
                Some(Step { bytes: plan.bytes, scope: plan.scope, passes: plan.reps })
            }
            Route::Plain(Conversion::NoOp | Conversion::RegisterPermute(_) | Conversion::Shuffle(_)) => None,
        }
    }
}

/// Bytes of shared memory that a conversion takes.
pub(crate) fn conversion_bytes(from: &LinearLayout, to: &LinearLayout, elem_bits: u32) -> u32 {
    let plan = match convert_with(from, to, elem_bits, &within(MAX_BYTES)) {
        Err(LayoutError::ScratchTooSmall { .. }) => convert_with(from, to, elem_bits, &ConversionOptions::default()),
        plan => plan,
    };
    if let Ok(Conversion::SharedMemory(plan)) = plan { plan.bytes } else { 0 }
}
