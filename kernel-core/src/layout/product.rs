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
