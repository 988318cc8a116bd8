//! Factors of `mma.sync` that are unpacked in the threads that multiply them.
//!
//! ```text
//! %w: i32[8, 128] = load ..                      8 numbers of 4 bits in each word
//! %n: i32[8, 128, 4] = shr (broadcast %w), ..    arithmetic and rearrangements
//! %b: f16[64, 128] = reshape (permute %n)        dot %a, %b, ..
//! ```
//!
//! Computed where the load lies, a factor would go through shared memory on its way to the instruction, at its full width.
//! Instead the whole chain is placed backwards, in the layouts from which the factor comes out as the instruction reads it,
//! and what is packed changes threads: a quarter of the bytes for words of 4 bits, and none where the load has a slot of a
//! pipeline, as any layout reads that.
//!
//! It pays where threads read vectors of what they alone need. So a kernel lays out the sums' order, or the columns', by what
//! memory has next to each other, as the order does not matter to a product: in the order of memory a word would be read by
//! four lanes, of which each uses two numbers.

use std::collections::BTreeMap;

use kernel_core::edit::walk;
use kernel_core::ir::{DType, DotInstruction, DotOp, LayoutId, MemoryOp, Op, OpId, ValueId};
use kernel_core::layout::LayoutDim;

use super::{Placement, coalesce, product, transfer};
use crate::error::CodegenError;

/// The narrowest vector that a thread reads of what is packed, in bytes: a word.
const PACKED_BYTES: u32 = 4;
/// The narrowest of what is only rearranged: `ldmatrix` reads words.
const MOVED_BYTES: u32 = 8;
/// A load is what a factor is unpacked from if it has at least this part of the factor's bytes: numbers of 2 bits for those of
/// 16. Others are scales.
const MOST_NARROW: u64 = 8;

/// Fixes the layouts of all that such factors are computed from.
pub(super) fn choose(p: &mut Placement<'_>) -> Result<(), CodegenError> {
    let (func, mut products) = (p.func, Vec::new());
    walk(func, &mut |id| {
        if let Op::Dot(DotOp::Dot { by: Some(DotInstruction::Mma), .. }) = func.op(id).op {
            products.push(id);
        }
    });
    for id in products {
        let layouts = product::mma(p, id)?;
        for (&factor, layout) in func.op(id).operands[..2].iter().zip(layouts) {
            let mut chain = Chain::default();
            if chain.back(p, factor, layout).is_some() && chain.pays(p, factor) {
                let packed: Vec<OpId> = chain.sources(p, factor).map(|(id, _)| id).collect();
                p.packed.extend(packed);
                chain.values.into_iter().for_each(|(value, layout)| _ = p.unpacked.entry(value).or_insert(layout));
            }
        }
    }
    Ok(())
}

/// Bytes of a tile.
fn bytes(p: &Placement<'_>, value: ValueId) -> u64 {
    let ty = p.func.ty(value);
    ty.numel().unwrap_or(0).unsigned_abs() * ty.dtype().map_or(0, |dtype: DType| dtype.bytes().into())
}

/// What a factor is computed from.
#[derive(Default)]
struct Chain {
    /// Values with the layouts in which they are wanted.
    values: BTreeMap<ValueId, LayoutId>,
    loads: Vec<(OpId, LayoutId)>,
}

impl Chain {
    /// Follows a value to what is loaded: whether anything is. `None` if it comes from anything else, or cannot be computed in
    /// that layout.
    fn back(&mut self, p: &mut Placement<'_>, value: ValueId, layout: LayoutId) -> Option<bool> {
        if let Some(&known) = self.values.get(&value) {
            return (known == layout).then_some(true);
        }
        let func = p.func;
        let id = func.defining_op(value)?;
        let operation = func.op(id);
        if let Op::Memory(MemoryOp::Load { .. }) = operation.op {
            self.loads.push((id, layout));
            return Some(true);
        }
        if !operation.op.is_arithmetic() {
            return None;
        }
        let wanted = transfer::operand_layouts(func, &mut p.table, id, layout).ok()?;
        let mut loaded = false;
        for (&operand, layout) in operation.operands.iter().zip(wanted) {
            if let (Some(layout), true) = (layout, p.is_tile(operand)) {
                loaded |= self.back(p, operand, layout)?;
            }
        }
        if loaded {
            self.values.insert(value, layout);
        }
        Some(loaded)
    }

    /// The loads that the factor is unpacked from, without those of scales.
    fn sources(&self, p: &Placement<'_>, factor: ValueId) -> impl Iterator<Item = (OpId, LayoutId)> {
        let whole = bytes(p, factor);
        self.loads.iter().copied().filter(move |(id, _)| bytes(p, p.func.op(*id).results[0]) * MOST_NARROW >= whole)
    }

    /// Whether threads read vectors of what they alone need.
    fn pays(&self, p: &Placement<'_>, factor: ValueId) -> bool {
        let whole = bytes(p, factor);
        let mut sources = self.sources(p, factor).peekable();
        sources.peek().is_some()
            && !self.values.is_empty()
            && sources.all(|(id, layout)| {
                let least = if bytes(p, p.func.op(id).results[0]) < whole { PACKED_BYTES } else { MOVED_BYTES };
                let alone = p.table.get(layout).free_variable_mask(LayoutDim::Lane) == 0;
                alone && coalesce::vector_bytes(p, id, layout) >= least
            })
    }
}
