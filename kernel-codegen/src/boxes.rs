//! How a block of a tensor lies in shared memory, so that tensor copies can write and read it: as boxes.
//!
//! A tensor copy moves one *box* of up to 256 elements along each dimension. In shared memory a box lies row after
//! row; if it is swizzled, its rows are as long as the swizzle is wide (32, 64 or 128 bytes). So a block is cut into
//! boxes, one after the other:
//!
//! ```text
//! f16 [128, 128]   panels of 64 columns (128 bytes), swizzled: two boxes of [128, 64]
//! f32 [1024]       four boxes of [256]
//! f16 [512, 64]    two boxes of [256, 64]
//! ```
//!
//! Which boxes a layout is made of is found from the layout: nothing else says it.

use kernel_core::ir::{DType, Func, GpuOp, Op, Operation, ParamId, ValueId, view};
use kernel_core::layout::{LayoutDim, LinearLayout, SwizzleWidth, nvmma_shared, swizzled_shared};

use kernel_core::backend::nvidia::MapSwizzle;

/// The most elements of a box along a dimension.
const MAX_SIDE: u32 = 256;
/// Boxes lie at multiples of this many bytes.
const BOX_ALIGNMENT: u32 = 128;
/// The innermost side of a box is a multiple of this many bytes.
const MIN_ROW_BYTES: u32 = 16;

/// The boxes of a block in shared memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Boxes {
    /// The elements of a box along each dimension, outermost first.
    pub(crate) side: Vec<u32>,
    /// How the rows of a box are swizzled.
    pub(crate) swizzle: MapSwizzle,
    /// Where each box begins in the block, in elements, in the order in which they lie in memory.
    pub(crate) starts: Vec<Vec<u32>>,
    /// The bytes of a box.
    pub(crate) bytes: u32,
}

/// The boxes that a layout of shared memory (offset to coordinates) is made of; `None` if it is not made of boxes.
pub(crate) fn boxes_of(layout: &LinearLayout, elem_bits: u32) -> Option<Boxes> {
    boxes_within(layout, elem_bits, &layout.tile_shape())
}

/// As [`boxes_of`], with boxes of which each lies in one part of the block: the block is made of parts of that shape.
pub(crate) fn boxes_within(layout: &LinearLayout, elem_bits: u32, part: &[u32]) -> Option<Boxes> {
    let shape = layout.tile_shape();
    candidates(&shape, elem_bits)
        .find(|(known, ..)| known == layout)
        .and_then(|(layout, swizzle, row)| cut(&layout, &shape, part, swizzle, row, elem_bits))
}

/// The tensor that a copy is from or to, and its boxes.
pub(crate) fn copied(func: &Func, operation: &Operation) -> Option<(ParamId, Option<Boxes>)> {
    let (descriptor, view, parts): (_, _, &[u8]) = if let Some(load) = view::TmaLoad::of(operation) {
        (load.descriptor, load.view, &[])
    } else if let (Some(store), Op::Gpu(GpuOp::TmaStore { parts, .. })) = (view::TmaStore::of(operation), &operation.op)
    {
        (store.descriptor, store.view, parts)
    } else {
        return None;
    };
    Some((func.ty(descriptor).descriptor()?, view_boxes(func, view, parts)))
}

/// The boxes of a view that is divided in so many parts along each dimension; undivided if there is no number.
pub(crate) fn view_boxes(func: &Func, view: ValueId, parts: &[u8]) -> Option<Boxes> {
    let layout = &func.layouts[func.value(view).layout?.index()];
    let bits = func.ty(view).dtype().map_or(8, DType::bytes) * 8;
    let mut part = layout.tile_shape();
    part.iter_mut().zip(parts).for_each(|(size, &parts)| *size /= u32::from(parts));
    boxes_within(layout, bits, &part)
}

/// The best layout for a block of that shape that is made of boxes: with the widest swizzle that it allows.
pub(crate) fn box_layout(shape: &[u32], elem_bits: u32) -> Option<LinearLayout> {
    let mut fitting = candidates(shape, elem_bits)
        .filter(|(layout, swizzle, row)| cut(layout, shape, shape, *swizzle, *row, elem_bits).is_some());
    fitting.next().map(|(layout, ..)| layout)
}

/// Layouts for a block, the best first, with the swizzle and the elements of a box's row.
fn candidates(shape: &[u32], elem_bits: u32) -> impl Iterator<Item = (LinearLayout, MapSwizzle, u32)> {
    let swizzled = [
        (SwizzleWidth::B128, MapSwizzle::Bytes128),
        (SwizzleWidth::B64, MapSwizzle::Bytes64),
        (SwizzleWidth::B32, MapSwizzle::Bytes32),
        (SwizzleWidth::None, MapSwizzle::None),
    ];
    let order: Vec<u8> = (0..shape.len() as u8).rev().collect();
    let plain = swizzled_shared(shape, 1, 1, 1, &order).ok();
    let last = shape.last().copied().unwrap_or(1);
    let plain = plain.map(|layout| (layout, MapSwizzle::None, last.min(MAX_SIDE)));
    let shape = shape.to_vec();
    let mut all: Vec<(LinearLayout, MapSwizzle, u32)> = swizzled
        .into_iter()
        .filter_map(|(width, swizzle)| {
            let layout = nvmma_shared(&shape, width, elem_bits, false).ok()?;
            Some((layout, swizzle, width.row_bytes() * 8 / elem_bits))
        })
        .collect();
    // Rows of 16 bytes are there for `wgmma`; a block that no swizzle fits lies row after row.
    let narrow = all.iter().position(|(_, swizzle, _)| *swizzle == MapSwizzle::None).map(|at| all.remove(at));
    all.extend(plain);
    all.extend(narrow);
    all.into_iter()
}

/// Cuts a layout of rows of `row` elements into boxes as large as can be, none of which is in two parts.
fn cut(
    layout: &LinearLayout,
    shape: &[u32],
    part: &[u32],
    swizzle: MapSwizzle,
    row: u32,
    elem_bits: u32,
) -> Option<Boxes> {
    let (&last, outer) = shape.split_last()?;
    if *part.last()? < row {
        return None;
    }
    let mut side = vec![1; shape.len()];
    side[shape.len() - 1] = row;
    // Rows follow each other in memory, those of the innermost outer dimension first. Unswizzled rows that are longer
    // than a box's are in pieces, so that a box has one.
    let mut whole = swizzle != MapSwizzle::None || row == last || row * elem_bits / 8 == MIN_ROW_BYTES;
    for (axis, &size) in outer.iter().enumerate().rev() {
        if whole {
            side[axis] = size.min(MAX_SIDE).min(part[axis]);
            whole = side[axis] == size;
        }
    }
    let elements: u32 = side.iter().product();
    let total: u32 = shape.iter().product();
    let bytes = elements * elem_bits / 8;
    let row_bytes = row * elem_bits / 8;
    if elements == 0 || row_bytes < MIN_ROW_BYTES || (total > elements && !bytes.is_multiple_of(BOX_ALIGNMENT)) {
        return None;
    }
    let rank = shape.len() as u8;
    let start = |first: u32| -> Vec<u32> {
        let at = layout.apply(&[(LayoutDim::Offset, first)]);
        let along = |axis: u8| {
            at.iter().find(|(dim, _)| *dim == LayoutDim::Axis(axis)).map_or(0, |(_, coordinate)| *coordinate)
        };
        (0..rank).map(along).collect()
    };
    let starts: Vec<Vec<u32>> = (0..total / elements).map(|index| start(index * elements)).collect();
    let aligned = starts.iter().all(|start| start.iter().zip(&side).all(|(at, side)| at % side == 0));
    aligned.then_some(Boxes { side, swizzle, starts, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boxes(shape: &[u32], elem_bits: u32) -> Boxes {
        let layout = box_layout(shape, elem_bits).unwrap_or_else(|| panic!("{shape:?}"));
        boxes_of(&layout, elem_bits).unwrap_or_else(|| panic!("{shape:?}"))
    }

    fn check(shape: &[u32], elem_bits: u32, side: &[u32], swizzle: MapSwizzle, count: usize) {
        let found = boxes(shape, elem_bits);
        assert_eq!((found.side.as_slice(), found.swizzle, found.starts.len()), (side, swizzle, count), "{shape:?}");
    }

    #[test]
    fn blocks_are_cut_into_the_largest_boxes() {
        check(&[128, 64], 16, &[128, 64], MapSwizzle::Bytes128, 1);
        check(&[128, 128], 16, &[128, 64], MapSwizzle::Bytes128, 2);
        check(&[128, 256], 8, &[128, 128], MapSwizzle::Bytes128, 2);
        check(&[512, 64], 16, &[256, 64], MapSwizzle::Bytes128, 2);
        check(&[64, 32], 16, &[64, 32], MapSwizzle::Bytes64, 1);
        check(&[64, 16], 16, &[64, 16], MapSwizzle::Bytes32, 1);
        check(&[64, 8], 16, &[64, 8], MapSwizzle::None, 1);
        check(&[1024], 32, &[256], MapSwizzle::None, 4);
        check(&[1, 512], 32, &[1, 256], MapSwizzle::None, 2);
        check(&[4, 512], 32, &[1, 256], MapSwizzle::None, 8);
        check(&[4, 16], 64, &[4, 16], MapSwizzle::None, 1);
        check(&[2, 8, 32], 32, &[2, 8, 32], MapSwizzle::Bytes128, 1);
        check(&[2, 2, 4, 8, 32], 32, &[2, 2, 4, 8, 32], MapSwizzle::Bytes128, 1);
    }

    #[test]
    fn boxes_begin_where_the_layout_says() {
        assert_eq!(boxes(&[128, 128], 16).starts, [[0, 0], [0, 64]]);
        assert_eq!(boxes(&[512, 128], 16).starts, [[0, 0], [256, 0], [0, 64], [256, 64]]);
        assert_eq!(boxes(&[2, 512], 32).starts, [[0, 0], [0, 256], [1, 0], [1, 256]]);
    }

    #[test]
    fn rows_of_less_than_16_bytes_are_no_boxes() {
        assert_eq!(box_layout(&[64, 4], 16), None);
        assert_eq!(box_layout(&[8], 8), None);
        assert!(box_layout(&[16], 8).is_some());
    }

    /// Every element lies where the hardware puts it: rows one after the other, units of 16 bytes swapped.
    #[test]
    fn elements_lie_where_the_hardware_puts_them() {
        for (shape, elem_bits) in
            [(&[64, 128][..], 16), (&[16, 32], 16), (&[32, 8], 32), (&[4, 8, 64], 8), (&[4, 512], 32)]
        {
            let layout = box_layout(shape, elem_bits).unwrap_or_else(|| panic!("{shape:?}"));
            let found = boxes(shape, elem_bits);
            let bytes = elem_bits / 8;
            let mask = match found.swizzle {
                MapSwizzle::None => 0,
                MapSwizzle::Bytes32 => 1,
                MapSwizzle::Bytes64 => 3,
                MapSwizzle::Bytes128 => 7,
            };
            for (number, start) in found.starts.iter().enumerate() {
                for inside in 0..found.side.iter().product::<u32>() {
                    let mut rest = inside;
                    let mut at = start.clone();
                    for axis in (0..shape.len()).rev() {
                        at[axis] += rest % found.side[axis];
                        rest /= found.side[axis];
                    }
                    let address = number as u32 * found.bytes + inside * bytes;
                    let swizzled = address ^ ((address >> 7 & mask) << 4);
                    let there = layout.apply(&[(LayoutDim::Offset, swizzled / bytes)]);
                    let there: Vec<u32> = there.iter().map(|(_, coordinate)| *coordinate).collect();
                    assert_eq!(there, at, "{shape:?}, box {number}");
                }
            }
        }
    }
}
