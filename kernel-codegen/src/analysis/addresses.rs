//! Which asynchronous products compute where their factors lie in each iteration of a loop.
//!
//! ```text
//! for ..                                  LLVM moves out of the loop what each iteration computes anew,
//!     wgmma %k, %q, ..                    and an instruction needs an address for 16 elements along K:
//!     wgmma %v, %g, ..                    eight for each of %k, %v, %s and %k, of 128 elements
//!     wgmma %s, %k, ..
//! ```
//!
//! An address that is the same for all warps is a constant, or in uniform registers, of which there are few. Where each four
//! warps read rows or columns of their own it depends on the warp, and out of the loop it takes registers for all of its
//! iterations: 64 in attention's gradients in one kernel, where there are 20 to spare. One addition in the loop costs less.

use std::collections::BTreeSet;

use kernel_core::edit::{Structure, walk};
use kernel_core::ir::{Elem, Func, GpuOp, Op, OpId, RegionId, ValueId};
use kernel_core::layout::LayoutDim;

use super::allocation::root;
use super::warp_groups::{shares_registers, warp_groups_of};

/// Bytes of a row of a factor that one instruction reads.
const ROW_BYTES: u32 = 32;
/// Registers of an address.
const WORDS: u32 = 2;
/// The registers that addresses may take throughout a loop.
const MOST: u32 = 40;
/// The uniform registers that addresses may take: there are 63, and more than these ptxas keeps in others.
const MOST_UNIFORM: u32 = 64;

/// The products of the loops whose addresses would take too many registers.
pub(crate) fn computed_in_iterations(func: &Func) -> BTreeSet<OpId> {
    let mut bodies: Vec<RegionId> = Vec::new();
    walk(func, &mut |id| {
        if func.op(id).op.is_loop() {
            bodies.extend(&func.op(id).regions);
        }
    });
    let mut found = BTreeSet::new();
    let structure = Structure::new(func);
    // Where groups have all registers of the multiprocessor between them, each counts.
    let shares = warp_groups_of(func).is_some_and(shares_registers);
    for body in bodies {
        let ops = &func.region(body).ops;
        let products: Vec<OpId> =
            ops.iter().copied().filter(|&id| matches!(func.op(id).op, Op::Gpu(GpuOp::Wgmma { .. }))).collect();
        let mut known: BTreeSet<(ValueId, LayoutDim, bool)> = BTreeSet::new();
        let (mut registers, mut uniform) = (0, 0);
        for &product in &products {
            let operands = &func.op(product).operands;
            for (&factor, dim) in operands[..2].iter().zip([LayoutDim::Axis(0), LayoutDim::Axis(1)]) {
                let own = differs(func, operands[2], dim);
                if stays(func, &structure, body, factor) && known.insert((factor, dim, own)) {
                    *if own { &mut registers } else { &mut uniform } += WORDS * instructions(func, factor, dim);
                }
            }
        }
        if registers > MOST || (shares && uniform > MOST_UNIFORM) {
            found.extend(products);
        }
    }
    found
}

/// Whether a factor in shared memory lies at the same place in every iteration.
fn stays(func: &Func, structure: &Structure, body: RegionId, factor: ValueId) -> bool {
    if !matches!(func.ty(factor).elem, Elem::Shared(_)) {
        return false;
    }
    let Some(made) = func.defining_op(factor) else { return false };
    root(func, factor) == Some(made)
        || structure.region_of(made).is_some_and(|region| !structure.encloses(body, region))
}

/// Whether groups of four warps hold different parts of a sum along an axis.
fn differs(func: &Func, sum: ValueId, dim: LayoutDim) -> bool {
    let bases = func.layout(sum).map(|layout| layout.bases_along(LayoutDim::Warp, dim)).unwrap_or_default();
    bases.iter().skip(2).any(|&base| base != 0)
}

/// How many instructions along K read a factor.
fn instructions(func: &Func, factor: ValueId, dim: LayoutDim) -> u32 {
    let shape = func.tile_shape(factor);
    let depth = if dim == LayoutDim::Axis(0) { shape.last() } else { shape.first() };
    let bytes = func.ty(factor).dtype().map_or(0, |dtype| dtype.bytes());
    depth.map_or(0, |depth| depth * bytes / ROW_BYTES)
}
