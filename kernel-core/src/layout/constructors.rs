//! Layouts of tiles in registers: blocked, and what shape operations make of a layout.

use super::linear::log2;
use super::{ColumnAction, LayoutDim, LayoutError, LinearLayout};

/// Lanes per warp.
pub const WARP_SIZE: u32 = 32;

/// The parameters of a blocked layout: who holds what, as counts per tile axis.
///
/// ```
/// use kernel_core::layout::Blocked;
/// let layout = Blocked {
///     size_per_thread: vec![1, 8],
///     threads_per_warp: vec![4, 8],
///     repeats: vec![1, 1],
///     warps: vec![4, 1],
///     order: vec![1, 0],
/// }
/// .layout(&[64, 64])
/// .unwrap();
/// assert_eq!(
///     layout.to_string(),
///     "register: [0, 1] [0, 2] [0, 4] [16, 0] [32, 0]; \
///      lane: [0, 8] [0, 16] [0, 32] [1, 0] [2, 0]; \
///      warp: [4, 0] [8, 0] -> (dim0:64, dim1:64)"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Blocked {
    /// Contiguous elements of one thread.
    pub size_per_thread: Vec<u32>,
    /// Lanes of one warp; their product is 32.
    pub threads_per_warp: Vec<u32>,
    /// How often a warp repeats that, in further registers, before the next warp follows.
    pub repeats: Vec<u32>,
    /// Warps of the program.
    pub warps: Vec<u32>,
    /// The axes from the fastest to the slowest: row-major is `[rank - 1, .., 0]`.
    pub order: Vec<u8>,
}

impl Blocked {
    /// The layout for coalesced memory accesses: `per_thread` elements along the fastest axis,
    /// then lanes, then warps laid along `order` until the shape is covered.
    pub fn coalesced(shape: &[u32], order: &[u8], per_thread: u32, num_warps: u32) -> Blocked {
        let rank = shape.len();
        let mut size_per_thread = vec![1; rank];
        let (mut lanes, mut warps) = (vec![1; rank], vec![1; rank]);
        let (mut lanes_left, mut warps_left) = (WARP_SIZE, num_warps);
        for (index, &axis) in order.iter().enumerate() {
            let axis = axis as usize;
            // An order that is no permutation is refused by `layout`.
            let Some(&extent) = shape.get(axis) else { continue };
            let last = index + 1 == order.len();
            if index == 0 {
                size_per_thread[axis] = per_thread.min(extent).max(1);
            }
            let room = (extent / size_per_thread[axis]).max(1);
            // What does not fit anywhere is replicated along the slowest axis.
            lanes[axis] = if last { lanes_left } else { lanes_left.min(room) };
            lanes_left /= lanes[axis];
            let room = (room / lanes[axis]).max(1);
            warps[axis] = if last { warps_left } else { warps_left.min(room) };
            warps_left /= warps[axis].max(1);
        }
        Blocked { size_per_thread, threads_per_warp: lanes, repeats: vec![1; rank], warps, order: order.to_vec() }
    }

    /// The layout of a tile of `shape`.
    ///
    /// A shape larger than the block is tiled with registers; where the block is larger than the shape,
    /// lanes and warps hold copies (zero bases) and surplus registers are left out.
    ///
    /// # Errors
    /// Ranks that differ, sizes that are no powers of two, an order that is no permutation.
    pub fn layout(&self, shape: &[u32]) -> Result<LinearLayout, LayoutError> {
        let rank = shape.len();
        let lists = [&self.size_per_thread, &self.threads_per_warp, &self.repeats, &self.warps];
        let ranks = lists.map(|list| list.len());
        if ranks.iter().any(|&len| len != rank) || self.order.len() != rank {
            return Err(LayoutError::BadParameters {
                constructor: "blocked",
                message: format!("the parameters {self:?} do not all have the rank of the shape {shape:?}"),
            });
        }
        if self.threads_per_warp.iter().product::<u32>() != WARP_SIZE {
            return Err(LayoutError::BadParameters {
                constructor: "blocked",
                message: format!("threads_per_warp {:?} must multiply to {WARP_SIZE}", self.threads_per_warp),
            });
        }
        check_order("blocked", &self.order)?;
        let tile = identity_nd(LayoutDim::Register, &self.size_per_thread, &self.order)?
            .product(&identity_nd(LayoutDim::Lane, &self.threads_per_warp, &self.order)?)?
            .product(&identity_nd(LayoutDim::Register, &self.repeats, &self.order)?)?
            .product(&identity_nd(LayoutDim::Warp, &self.warps, &self.order)?)?;
        fit_to_shape(&tile, shape)
    }
}

/// Checks that `order` is a permutation of `0..order.len()`.
pub(super) fn check_order(constructor: &'static str, order: &[u8]) -> Result<(), LayoutError> {
    if (0..order.len()).all(|axis| order.contains(&(axis as u8))) {
        Ok(())
    } else {
        let message = format!("the order {order:?} is not a permutation of the axes");
        Err(LayoutError::BadParameters { constructor, message })
    }
}

/// `input` runs over a box of `shape`, along the axes in `order`, fastest first.
pub(super) fn identity_nd(input: LayoutDim, shape: &[u32], order: &[u8]) -> Result<LinearLayout, LayoutError> {
    let mut layout = LinearLayout::empty();
    for &axis in order {
        let line = LinearLayout::identity1d(shape[axis as usize], input, LayoutDim::Axis(axis))?;
        layout = layout.product(&line)?;
    }
    Ok(layout)
}

/// Makes the layout of one block that of a whole tile: cut down where the block is larger, tiled up with
/// registers (in the order of the block's outputs) where it is smaller. The axes come out in order.
pub(super) fn fit_to_shape(tile: &LinearLayout, shape: &[u32]) -> Result<LinearLayout, LayoutError> {
    let mut layout = tile.clone();
    let names: Vec<LayoutDim> = tile.outs().map(|(dim, _)| dim).collect();
    for &name in &names {
        let size = axis_size(shape, name)?;
        if layout.out_size(name) > size {
            layout = layout.resize_out(name, size)?;
        }
    }
    layout = layout.remove_zero_bases_along(LayoutDim::Register);
    for &name in &names {
        let missing = axis_size(shape, name)? / layout.out_size(name);
        layout = layout.product(&LinearLayout::identity1d(missing, LayoutDim::Register, name)?)?;
    }
    layout.transpose_outs(&axes(shape.len()))
}

fn axis_size(shape: &[u32], name: LayoutDim) -> Result<u32, LayoutError> {
    let size = match name {
        LayoutDim::Axis(axis) => shape.get(axis as usize).copied(),
        _ => None,
    };
    let size = size.ok_or(LayoutError::UnknownDim(name))?;
    log2("a dimension of the tile", size)?;
    Ok(size)
}

/// `[Axis(0), .., Axis(rank - 1)]`.
pub(super) fn axes(rank: usize) -> Vec<LayoutDim> {
    (0..rank).map(|axis| LayoutDim::Axis(axis as u8)).collect()
}

/// What the shape operations of the language make of a layout in registers.
/// None of them moves data between threads.
impl LinearLayout {
    /// The layout of a reduction over `axis`: the coordinate is dropped, later axes move down,
    /// and registers that become redundant are left out.
    ///
    /// # Errors
    /// The axis is absent.
    pub fn slice(&self, axis: u8) -> Result<LinearLayout, LayoutError> {
        let dropped = self.drop_out(LayoutDim::Axis(axis))?;
        let sliced = dropped.shift_axes(axis, -1);
        Ok(sliced.remove_broadcast_registers().layout)
    }

    /// The layout with a new axis of size 1 before the present `axis`.
    pub fn expand_dims(&self, axis: u8) -> LinearLayout {
        let mut layout = self.shift_axes(axis, 1);
        layout.outs.push((LayoutDim::Axis(axis), 0));
        layout.sorted_axes()
    }

    /// Renames `Axis(a)`, for `a >= from`, to `Axis(a + by)`.
    fn shift_axes(&self, from: u8, by: i8) -> LinearLayout {
        let shift = |&(dim, bits): &(LayoutDim, u32)| match dim {
            LayoutDim::Axis(axis) if axis >= from => (LayoutDim::Axis(axis.wrapping_add_signed(by)), bits),
            other => (other, bits),
        };
        LinearLayout { outs: self.outs.iter().map(shift).collect(), ..self.clone() }
    }

    /// The axes in order `Axis(0)`, `Axis(1)`, ..
    fn sorted_axes(&self) -> LinearLayout {
        let mut names: Vec<LayoutDim> = self.outs.iter().map(|&(dim, _)| dim).collect();
        names.sort_unstable();
        // A sorted list of the names is a reordering of them.
        self.transpose_outs(&names).unwrap_or_else(|_| self.clone())
    }

    /// The layout after axes of size 1 are broadcast to `shape`: the copies are new registers.
    ///
    /// # Errors
    /// Another rank, or a size that is neither 1 nor the target's.
    pub fn broadcast_to(&self, shape: &[u32]) -> Result<LinearLayout, LayoutError> {
        let own = self.tile_shape();
        let fits = own.len() == shape.len() && own.iter().zip(shape).all(|(&from, &to)| from == to || from == 1);
        if !fits {
            return Err(LayoutError::DimsDiffer {
                operation: "broadcast_to",
                left: format!("{own:?}"),
                right: format!("{shape:?}"),
            });
        }
        fit_to_shape(self, shape)
    }

    /// The layout after a permutation: axis `i` of the result is axis `order[i]` of this tile.
    ///
    /// # Errors
    /// `order` is not a permutation of the axes.
    pub fn permute(&self, order: &[u8]) -> Result<LinearLayout, LayoutError> {
        check_order("permute", order)?;
        if order.len() != self.outs.len() {
            return Err(LayoutError::BadParameters {
                constructor: "permute",
                message: format!("the order {order:?} does not have the rank {}", self.outs.len()),
            });
        }
        let rename = |&(dim, bits): &(LayoutDim, u32)| match dim {
            LayoutDim::Axis(axis) => {
                let place = order.iter().position(|&from| from == axis);
                place.map(|place| (LayoutDim::Axis(place as u8), bits)).ok_or(LayoutError::UnknownDim(dim))
            }
            other => Ok((other, bits)),
        };
        let outs = self.outs.iter().map(rename).collect::<Result<_, _>>()?;
        Ok(LinearLayout { outs, ..self.clone() }.sorted_axes())
    }

    /// The layout after a row-major reshape. Every reshape keeps its data in place.
    ///
    /// # Errors
    /// Another number of elements, or sizes that are no powers of two.
    pub fn reshape(&self, shape: &[u32]) -> Result<LinearLayout, LayoutError> {
        let minor_to_major: Vec<LayoutDim> = axes(self.tile_shape().len()).into_iter().rev().collect();
        let flat = self.transpose_outs(&minor_to_major)?;
        let outs: Vec<_> = axes(shape.len()).into_iter().zip(shape.iter().copied()).rev().collect();
        flat.reshape_outs(&outs)?.transpose_outs(&axes(shape.len()))
    }

    /// The tile as one row-major dimension, `Axis(0)`.
    pub fn row_major(&self) -> LinearLayout {
        let mut names: Vec<LayoutDim> = self.outs.iter().map(|&(dim, _)| dim).collect();
        names.sort_unstable();
        names.reverse();
        let ordered = self.transpose_outs(&names).unwrap_or_else(|_| self.clone());
        ordered.flatten_outs(LayoutDim::Axis(0))
    }

    /// The layout of `join(a, b)`, both in this layout: a new last axis of size 2,
    /// along which the first register bit runs.
    ///
    /// # Errors
    /// More than 63 bits.
    pub fn join(&self) -> Result<LinearLayout, LayoutError> {
        let axis = LayoutDim::Axis(self.outs.len() as u8);
        let pair = LinearLayout::identity1d(2, LayoutDim::Register, axis)?;
        let names: Vec<LayoutDim> = self.ins.iter().map(|&(dim, _)| dim).collect();
        let joined = pair.product(self)?.sorted_axes();
        if names.contains(&LayoutDim::Register) { joined.transpose_ins(&names) } else { Ok(joined) }
    }

    /// The inverse of [`LinearLayout::join`]: the layout of both halves along the last axis (of size 2),
    /// and which registers of this layout each half has. `None` where the last axis is not in the registers.
    pub fn split(&self) -> Option<(LinearLayout, [Vec<u32>; 2])> {
        let last = LayoutDim::Axis(u8::try_from(self.outs.len().checked_sub(1)?).ok()?);
        if self.out_size(last) != 2 {
            return None;
        }
        let vectors = self.vectors(last, 2);
        if vectors.width != 2 {
            return None;
        }
        let half = |side: usize| vectors.groups.iter().map(|pair| pair[side]).collect();
        // The first registers of the pairs are indexed by combinations of bits, which make the half's bases.
        let bases = (0..vectors.groups.len().ilog2()).map(|bit| vectors.groups[1 << bit][0]).collect();
        let action = ColumnAction::from_parts(bases, self.in_bits(LayoutDim::Register));
        let halves = action.apply_to_layout(self, LayoutDim::Register).drop_out(last).ok()?;
        Some((halves, [half(0), half(1)]))
    }
}
