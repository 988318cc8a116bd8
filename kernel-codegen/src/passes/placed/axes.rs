//! Which dimensions of a loaded block are those of the shared memory that it goes to.
//!
//! ```text
//! %a: f16[1, 128, 64] = desc_load ..
//! %b: f16[128, 64] = reshape %a                     dimensions 1 and 2 of the block
//! %c: f16[64, 128] = permute %b {perm = [1, 0]}     dimensions 2 and 1
//! shared_store %view, %c
//! ```
//! A copy that fills shared memory by itself leaves the block as it is in the tensor. What the threads would have done
//! to it on the way, its readers do to the view: an index drops a dimension of one element, a permutation of the view
//! is one of its elements.

use kernel_core::ir::{Func, GpuOp, Op, Operation, ShapeOp};
use kernel_core::layout::LinearLayout;

use crate::place::transfer::inverse;

/// For each dimension of the shared memory, the dimension of the block. Leading dimensions of one element may be left
/// out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Axes {
    rank: u8,
    of: Vec<u8>,
}

impl Axes {
    /// Of a block of so many dimensions as it is.
    pub(super) fn all(rank: usize) -> Axes {
        let rank = rank as u8;
        Axes { rank, of: (0..rank).collect() }
    }

    /// What they are after an operation on the tile; `None` if it does more than name elements anew.
    pub(super) fn after(&self, func: &Func, operation: &Operation) -> Option<Axes> {
        let (Op::Shape(op), Some(source)) = (&operation.op, operation.moved_operand()) else { return None };
        let of = if *op == ShapeOp::ConvertLayout {
            self.of.clone()
        } else if let ShapeOp::Permute { perm } = op {
            perm.iter().map(|&axis| self.of.get(usize::from(axis)).copied()).collect::<Option<_>>()?
        } else if let ShapeOp::Reshape { .. } = op {
            let (from, to) = (func.tile_shape(source), func.tile_shape(operation.results[0]));
            let dropped = from.len().checked_sub(to.len())?;
            let in_order = self.of.iter().copied().eq(self.dropped()..self.rank);
            let drops_ones = from[..dropped].iter().all(|&size| size == 1) && from[dropped..] == to;
            if !in_order || !drops_ones {
                return None;
            }
            self.of[dropped..].to_vec()
        } else {
            return None;
        };
        Some(Axes { rank: self.rank, of })
    }

    /// How many leading dimensions are left out.
    pub(super) fn dropped(&self) -> u8 {
        self.rank - self.of.len() as u8
    }

    /// The permutation of those that are left, if it changes anything.
    pub(super) fn order(&self) -> Option<Vec<u8>> {
        let order: Vec<u8> = self.of.iter().map(|&axis| axis - self.dropped()).collect();
        let is_plain = order.iter().copied().eq(0..order.len() as u8);
        (!is_plain).then_some(order)
    }

    /// The layout of the block as it is, and then without one leading dimension more each time until none is left to
    /// drop, where the shared memory has the layout `held`.
    pub(super) fn layouts(&self, held: &LinearLayout) -> Option<Vec<LinearLayout>> {
        if held.tile_shape().len() != self.of.len() {
            return None;
        }
        let kept = match self.order() {
            Some(order) => held.permute(&inverse(&order)).ok()?,
            None => held.clone(),
        };
        let mut layouts = vec![kept];
        for _ in 0..self.dropped() {
            let wider = layouts.last()?.expand_dims(0);
            layouts.push(wider);
        }
        layouts.reverse();
        Some(layouts)
    }

    /// The views by which readers get from the block as it is to shared memory in the layout `held`, one of the other, where
    /// `narrower` are the layouts without one leading dimension more each.
    pub(super) fn views(&self, narrower: &[LinearLayout], held: Option<&LinearLayout>) -> Vec<(GpuOp, LinearLayout)> {
        let dropped = narrower.iter().map(|layout| (GpuOp::SharedIndex, layout.clone()));
        let order = self.order().zip(held).map(|(perm, held)| (GpuOp::SharedPermute { perm }, held.clone()));
        dropped.chain(order).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel_core::layout::{SwizzleWidth, nvmma_shared};
    use kernel_core::text::parse;

    /// The axes of a block after the shape operations of a kernel on it.
    fn axes(block: &str, body: &str) -> Option<Axes> {
        let text = format!(
            "kernel test \"test.rs\" unsafe bound {{
             %zero: f32 = const 0.0
             %a: f32[{block}] = splat %zero
             {body}
             return
             }}"
        );
        let func = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let mut axes = Some(Axes::all(block.split(',').count()));
        kernel_core::edit::walk(&func, &mut |id| {
            let operation = func.op(id);
            if matches!(operation.op, Op::Shape(_)) {
                axes = axes.as_ref().and_then(|axes| axes.after(&func, operation));
            }
        });
        axes
    }

    /// How many leading dimensions are dropped, and the order of the others.
    fn check(block: &str, body: &str, expected: Option<(u8, Option<Vec<u8>>)>) {
        let found = axes(block, body).map(|axes| (axes.dropped(), axes.order()));
        assert_eq!(found, expected, "{block}: {body}");
    }

    #[test]
    fn leading_dimensions_of_one_element_are_dropped_and_others_permuted() {
        check("64, 32", "", Some((0, None)));
        check("64, 32", "%b: f32[32, 64] = permute %a {perm = [1, 0]}", Some((0, Some(vec![1, 0]))));
        check("1, 64, 32", "%b: f32[64, 32] = reshape %a", Some((1, None)));
        check("1, 1, 64, 32", "%b: f32[64, 32] = reshape %a", Some((2, None)));
        let both = "%b: f32[64, 32] = reshape %a\n%c: f32[32, 64] = permute %b {perm = [1, 0]}";
        check("1, 64, 32", both, Some((1, Some(vec![1, 0]))));
    }

    #[test]
    fn what_moves_elements_between_dimensions_is_no_renaming() {
        check("2, 64, 32", "%b: f32[128, 32] = reshape %a", None);
        check("64, 1, 32", "%b: f32[64, 32] = reshape %a", None);
        check("64, 32", "%b: f32[1, 64, 32] = reshape %a", None);
        let after = "%b: f32[1, 32, 64] = permute %a {perm = [0, 2, 1]}\n%c: f32[32, 64] = reshape %b";
        check("1, 64, 32", after, None);
    }

    #[test]
    fn the_block_lies_as_its_readers_want_it() {
        let layout = |shape: &[u32]| nvmma_shared(shape, SwizzleWidth::B128, 16, false).expect("a layout");
        let dropped = axes("1, 1, 64, 32", "%b: f32[64, 32] = reshape %a").expect("a renaming");
        let layouts = dropped.layouts(&layout(&[64, 64])).expect("of the same rank");
        assert_eq!(layouts, [layout(&[1, 1, 64, 64]), layout(&[1, 64, 64]), layout(&[64, 64])]);
        assert_eq!(dropped.layouts(&layout(&[1, 64, 64])), None);
    }
}
