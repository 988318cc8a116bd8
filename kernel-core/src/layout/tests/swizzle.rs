//! Shared memory: swizzles found for conversions, and given ones.

use super::simulate::{run_shared, tile};
use super::{Random, SHAPES, layouts_of};
use crate::layout::{
    Blocked, LayoutDim, LayoutError, LinearLayout, MmaVersion, Operand, SharedPlan, SwizzleOptions, SwizzleWidth,
    dot_operand, mma_v2_accumulator, nvmma_shared, optimal_swizzle, shared_access, swizzled_shared, wgmma_accumulator,
};

/// The plan that may take as much memory as it likes.
fn swizzle(src: &LinearLayout, dst: &LinearLayout, elem_bits: u32) -> Result<SharedPlan, LayoutError> {
    optimal_swizzle(src, dst, elem_bits, &SwizzleOptions::default())
}

fn blocked(shape: &[u32], order: &[u8], per_thread: u32, warps: u32) -> LinearLayout {
    Blocked::coalesced(shape, order, per_thread, warps).layout(shape).unwrap()
}

#[test]
fn every_plan_moves_every_element_with_the_conflicts_it_claims() {
    let mut random = Random::new(31);
    for shape in SHAPES {
        for (warps, elem_bits) in [(1, 8), (4, 32)] {
            let layouts = layouts_of(shape, warps, &mut random);
            for (index, src) in layouts.iter().enumerate() {
                for dst in layouts[index % 5..].iter().step_by(5) {
                    let plan = swizzle(src, dst, elem_bits).unwrap();
                    assert_eq!(run_shared(&plan, &tile(src)), tile(dst), "{src} to {dst}");
                }
            }
        }
    }
}

#[test]
fn transposition_is_free_of_conflicts_and_wide() {
    for elem_bits in [8, 16, 32, 64] {
        let wide = 128 / elem_bits;
        let rows = blocked(&[64, 64], &[1, 0], wide, 4);
        let columns = blocked(&[64, 64], &[0, 1], wide, 4);
        let plan = swizzle(&rows, &columns, elem_bits).unwrap();
        assert_eq!((plan.store.conflicts, plan.load.conflicts), (0, 0), "{elem_bits} bits");
        assert!(plan.store.width.max(plan.load.width) * elem_bits >= 64, "{elem_bits} bits");
    }
}

#[test]
fn accumulators_go_out_in_full_rows_without_conflicts() {
    for (accumulator, shape) in [
        (mma_v2_accumulator(&[64, 64], [4, 1]).unwrap(), [64, 64]),
        (wgmma_accumulator(&[128, 128], 128, [4, 1]).unwrap(), [128, 128]),
    ] {
        for elem_bits in [16, 32] {
            let rows = blocked(&shape, &[1, 0], 128 / elem_bits, 4);
            let plan = swizzle(&accumulator, &rows, elem_bits).unwrap();
            assert_eq!((plan.store.conflicts, plan.load.conflicts), (0, 0), "{elem_bits} bits");
            // No more wavefronts than the data has: 32 words each.
            let words = shape[0] * shape[1] * elem_bits / 32 / 4;
            assert_eq!((plan.store.wavefronts(), plan.load.wavefronts()), (words / 32, words / 32));
        }
    }
}

#[test]
fn copies_are_stored_once_per_thread() {
    let row = blocked(&[64, 64], &[1, 0], 4, 4).slice(0).unwrap();
    let column = blocked(&[64, 64], &[1, 0], 4, 4).slice(1).unwrap();
    let plan = swizzle(&row, &column, 32).unwrap();
    assert_eq!(plan.bytes, 64 * 4);
    assert_eq!(plan.store.redundant_warps, 0b11);
    assert_ne!(plan.store.redundant_lanes, 0);
    assert_eq!(run_shared(&plan, &tile(&row)), tile(&column));
}

#[test]
fn little_memory_means_several_passes() {
    let rows = blocked(&[128, 128], &[1, 0], 4, 4);
    let columns = wgmma_accumulator(&[128, 128], 128, [4, 1]).unwrap();
    let whole = swizzle(&rows, &columns, 32).unwrap();
    assert_eq!((whole.bytes, whole.reps), (65536, 1));
    for (max, reps) in [(65536, 1), (40000, 2), (16384, 4)] {
        let options = SwizzleOptions { max_bytes: Some(max) };
        let plan = optimal_swizzle(&rows, &columns, 32, &options).unwrap();
        assert_eq!((plan.bytes, plan.reps), (65536 / reps, reps));
        assert_eq!(run_shared(&plan, &tile(&rows)), tile(&columns));
        assert_eq!(plan.layout.in_size(LayoutDim::Reps), reps);
    }
    let options = SwizzleOptions { max_bytes: Some(256) };
    let error = optimal_swizzle(&rows, &columns, 32, &options).unwrap_err();
    assert!(matches!(error, LayoutError::ScratchTooSmall { needed, allowed: 256 } if needed > 256));
}

#[test]
fn given_layouts_are_accessed_as_wide_as_they_allow() {
    // A global load of 8 f16 per thread into the tile that wgmma reads: 16-byte stores, no conflicts.
    let rows = blocked(&[64, 64], &[1, 0], 8, 4);
    let operand = nvmma_shared(&[64, 64], SwizzleWidth::B128, 16, false).unwrap();
    let access = shared_access(&rows, &operand, 16).unwrap();
    assert_eq!((access.width, access.conflicts), (8, 0));
    assert_eq!(access.accesses.len(), 4);
    // Without the swizzle the rows collide when read by columns.
    let plain = swizzled_shared(&[64, 64], 1, 1, 1, &[1, 0]).unwrap();
    let columns = blocked(&[64, 64], &[0, 1], 1, 4);
    assert_eq!(shared_access(&columns, &plain, 32).unwrap().conflicts, 31);
    // The accumulator into an unswizzled tile: 8 rows in the same banks.
    let accumulator = mma_v2_accumulator(&[64, 64], [4, 1]).unwrap();
    assert_eq!(shared_access(&accumulator, &plain, 16).unwrap().conflicts, 7);
    // An operand fragment from the swizzled tile.
    let fragment = dot_operand(&[64, 64], Operand::A, 2, MmaVersion::V2, [4, 1]).unwrap();
    let access = shared_access(&fragment, &operand, 16).unwrap();
    assert_eq!((access.width, access.conflicts), (2, 0));
}

#[test]
fn constants_fold_into_immediates_where_bits_are_disjoint() {
    let rows = blocked(&[64, 64], &[1, 0], 4, 4);
    let plain = swizzled_shared(&[64, 64], 1, 1, 1, &[1, 0]).unwrap();
    let access = shared_access(&rows, &plain, 32).unwrap();
    assert!(access.is_additive());
    assert_eq!(access.accesses.iter().map(|access| access.add_bytes).collect::<Vec<_>>(), {
        let step = 64 * 64 * 4 / 8;
        (0..8).map(|index| index * step).collect::<Vec<_>>()
    });
}

#[test]
fn wide_elements_and_wrong_widths() {
    let (rows, columns) = (blocked(&[32, 32], &[1, 0], 1, 2), blocked(&[32, 32], &[0, 1], 1, 2));
    let plan = swizzle(&rows, &columns, 128).unwrap();
    assert_eq!(plan.store.width, 1);
    assert_eq!(run_shared(&plan, &tile(&rows)), tile(&columns));
    assert!(matches!(swizzle(&rows, &columns, 4), Err(LayoutError::BadParameters { .. })));
}
