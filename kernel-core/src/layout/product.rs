//! Whether tiles lie in threads as the matrix instructions find them there.

use super::{LayoutDim, LinearLayout};

/// The most columns of a `wgmma`.
const MAX_COLUMNS: u32 = 256;

/// Whether the lanes and warps of factors `[.., M, K]` and `[.., K, N]` and accumulator `[.., M, N]` hold what
/// `mma.sync` wants of them, where a thread has `k_width` consecutive elements along K in a word.
pub fn is_mma_v2(a: &LinearLayout, b: &LinearLayout, acc: &LinearLayout, k_width: u32) -> bool {
    let rank = acc.tile_shape().len() as u8;
    let [m, n, left, right] = [rank - 2, rank - 1, rank - 1, rank - 2].map(LayoutDim::Axis);
    let wraps = |layout: &LinearLayout, dim: LayoutDim, bases: [u32; 5]| {
        let size = layout.out_size(dim);
        layout.bases_along(LayoutDim::Lane, dim) == bases.map(|base| base % size)
    };
    let rows = [0, 0, 1, 2, 4];
    let along = [k_width, 2 * k_width, 0, 0, 0];
    let lanes = wraps(a, m, rows)
        && wraps(a, left, along)
        && wraps(b, right, along)
        && wraps(b, n, rows)
        && wraps(acc, m, rows)
        && wraps(acc, n, [2, 4, 0, 0, 0]);
    let warps = |layout: &LinearLayout, dim: LayoutDim| layout.bases_along(LayoutDim::Warp, dim);
    let still = |layout: &LinearLayout, dim: LayoutDim| warps(layout, dim).iter().all(|&base| base == 0);
    let batches = (0..rank - 2).map(LayoutDim::Axis).all(|dim| {
        let same = |layout: &LinearLayout| {
            warps(layout, dim) == warps(acc, dim)
                && layout.bases_along(LayoutDim::Lane, dim).iter().all(|&base| base == 0)
        };
        same(a) && same(b) && same(acc)
    });
    let own = warps(a, m) == warps(acc, m) && warps(b, n) == warps(acc, n) && still(a, left) && still(b, right);
    lanes && batches && own
}

/// The columns of one `wgmma` on an accumulator in this layout; `None` if the layout is not one of `wgmma`.
pub fn wgmma_columns(acc: &LinearLayout) -> Option<u32> {
    if acc.tile_shape().len() != 2 {
        return None;
    }
    let (m, n) = (LayoutDim::Axis(0), LayoutDim::Axis(1));
    let (rows, columns) = (acc.bases_along(LayoutDim::Warp, m), acc.bases_along(LayoutDim::Warp, n));
    let lanes = acc.bases_along(LayoutDim::Lane, m) == [0, 0, 1, 2, 4]
        && acc.bases_along(LayoutDim::Lane, n) == [2, 4, 0, 0, 0];
    let group = rows.get(..2) == Some(&[16, 32]) && columns.get(..2) == Some(&[0, 0]);
    let between = columns.iter().copied().filter(|&base| base > 0).min().unwrap_or(u32::MAX);
    (lanes && group).then_some(acc.out_size(n).min(between).min(MAX_COLUMNS)).filter(|&columns| columns >= 8)
}

/// How the elements along K of a product by `wgmma` are dealt over the warp groups that have columns of the same rows: each
/// has a part of them, one behind the other in the order of the groups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupParts {
    /// The elements of a part.
    pub extent: u32,
    /// For each bit of a warp's number, the element at which its part begins.
    pub starts: Vec<u32>,
    /// For each bit of a part's number, the bit of a column that its group has.
    pub columns: Vec<u32>,
}

impl GroupParts {
    /// How many there are.
    pub fn count(&self) -> u32 {
        1 << self.columns.len()
    }

    /// The part of the warp group that has a column.
    pub fn of_column(&self, column: u32) -> u32 {
        self.columns.iter().enumerate().map(|(bit, &base)| u32::from(column & base != 0) << bit).sum()
    }
}

/// The parts of `k` elements along K for an accumulator in this layout; `None` if it is not one of `wgmma`, or if no two warp
/// groups have columns of the same rows, or if there are not as many elements.
pub fn group_parts(acc: &LinearLayout, k: u32) -> Option<GroupParts> {
    wgmma_columns(acc)?;
    let bases = acc.bases_along(LayoutDim::Warp, LayoutDim::Axis(1));
    let columns: Vec<u32> = bases.iter().copied().filter(|&base| base != 0).collect();
    let extent = k.checked_shr(columns.len() as u32).filter(|&extent| extent > 0 && !columns.is_empty())?;
    let mut next = extent;
    let start = |&base: &u32| {
        let start = if base == 0 { 0 } else { next };
        next <<= u32::from(base != 0);
        start
    };
    let starts = bases.iter().map(start).collect();
    Some(GroupParts { extent, starts, columns })
}

/// Whether a factor of rows `[M, K]` lies in the registers of the warp groups that multiply it for an accumulator, where a
/// thread has `k_width` consecutive elements along K in a word: whole, or each group's part, if there are any.
pub fn is_wgmma_left(a: &LinearLayout, acc: &LinearLayout, k_width: u32, parts: Option<&GroupParts>) -> bool {
    let (rows, along) = (LayoutDim::Axis(0), LayoutDim::Axis(1));
    let same_rows =
        [LayoutDim::Lane, LayoutDim::Warp].iter().all(|&dim| a.bases_along(dim, rows) == acc.bases_along(dim, rows));
    let warps = a.bases_along(LayoutDim::Warp, along);
    let own = match parts {
        None => warps.iter().all(|&base| base == 0),
        Some(parts) => warps == parts.starts,
    };
    same_rows && own && a.bases_along(LayoutDim::Lane, along) == [k_width, 2 * k_width, 0, 0, 0]
}
