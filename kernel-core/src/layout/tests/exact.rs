//! Layouts whose bases are known, as Triton 3.6 prints them.

use crate::layout::{
    Blocked, LayoutDim, LinearLayout, MmaVersion, Operand, SwizzleWidth, dot_operand, mma_v2_accumulator, nvmma_shared,
    swizzled_shared, wgmma_accumulator,
};

fn check(layout: &LinearLayout, expected: &str) {
    assert_eq!(layout.to_string(), expected);
}

fn blocked(size: [u32; 2], threads: [u32; 2], warps: [u32; 2], order: [u8; 2], shape: [u32; 2]) -> LinearLayout {
    let parameters = Blocked {
        size_per_thread: size.to_vec(),
        threads_per_warp: threads.to_vec(),
        repeats: vec![1, 1],
        warps: warps.to_vec(),
        order: order.to_vec(),
    };
    parameters.layout(&shape).unwrap()
}

#[test]
fn blocked_is_tiled_up_with_registers() {
    check(
        &blocked([1, 8], [4, 8], [4, 1], [1, 0], [64, 64]),
        "register: [0, 1] [0, 2] [0, 4] [16, 0] [32, 0]; lane: [0, 8] [0, 16] [0, 32] [1, 0] [2, 0]; \
         warp: [4, 0] [8, 0] -> (dim0:64, dim1:64)",
    );
}

#[test]
fn blocked_larger_than_the_shape_holds_copies() {
    check(
        &blocked([1, 4], [4, 8], [4, 1], [1, 0], [8, 16]),
        "register: [0, 1] [0, 2]; lane: [0, 4] [0, 8] [0, 0] [1, 0] [2, 0]; warp: [4, 0] [0, 0] -> (dim0:8, dim1:16)",
    );
    // A row shorter than one thread's part leaves registers out.
    check(
        &blocked([1, 4], [32, 1], [1, 1], [1, 0], [64, 2]),
        "register: [0, 1] [32, 0]; lane: [1, 0] [2, 0] [4, 0] [8, 0] [16, 0]; warp: -> (dim0:64, dim1:2)",
    );
}

#[test]
fn the_coalesced_block_follows_the_order() {
    let block = Blocked::coalesced(&[64, 64], &[1, 0], 8, 4);
    assert_eq!(block.size_per_thread, [1, 8]);
    assert_eq!(block.threads_per_warp, [4, 8]);
    assert_eq!(block.warps, [4, 1]);
    let block = Blocked::coalesced(&[1024], &[0], 4, 4);
    assert_eq!((block.threads_per_warp, block.warps), (vec![32], vec![4]));
}

#[test]
fn mma_accumulators() {
    check(
        &mma_v2_accumulator(&[64, 32], [4, 1]).unwrap(),
        "register: [0, 1] [8, 0] [0, 8] [0, 16]; lane: [0, 2] [0, 4] [1, 0] [2, 0] [4, 0]; \
         warp: [16, 0] [32, 0] -> (dim0:64, dim1:32)",
    );
    check(
        &wgmma_accumulator(&[64, 64], 64, [4, 1]).unwrap(),
        "register: [0, 1] [8, 0] [0, 8] [0, 16] [0, 32]; lane: [0, 2] [0, 4] [1, 0] [2, 0] [4, 0]; \
         warp: [16, 0] [32, 0] -> (dim0:64, dim1:64)",
    );
    check(
        &wgmma_accumulator(&[128, 128], 64, [8, 1]).unwrap(),
        "register: [0, 1] [8, 0] [0, 8] [0, 16] [0, 32] [0, 64]; lane: [0, 2] [0, 4] [1, 0] [2, 0] [4, 0]; \
         warp: [16, 0] [32, 0] [64, 0] -> (dim0:128, dim1:128)",
    );
}

#[test]
fn dot_operands() {
    check(
        &dot_operand(&[64, 16], Operand::A, 2, MmaVersion::V2, [4, 1]).unwrap(),
        "register: [0, 1] [8, 0] [0, 8]; lane: [0, 2] [0, 4] [1, 0] [2, 0] [4, 0]; \
         warp: [16, 0] [32, 0] -> (dim0:64, dim1:16)",
    );
    check(
        &dot_operand(&[16, 32], Operand::B, 2, MmaVersion::V2, [4, 1]).unwrap(),
        "register: [1, 0] [8, 0] [0, 8] [0, 16]; lane: [2, 0] [4, 0] [0, 1] [0, 2] [0, 4]; \
         warp: [0, 0] [0, 0] -> (dim0:16, dim1:32)",
    );
    // The accumulator of one product is the left operand of the next: same data, if the width fits.
    let accumulator = wgmma_accumulator(&[64, 16], 16, [4, 1]).unwrap();
    let operand = dot_operand(&[64, 16], Operand::A, 2, MmaVersion::V3, [4, 1]).unwrap();
    assert_eq!(accumulator, operand);
}

#[test]
fn wrong_parameters_are_refused() {
    assert!(wgmma_accumulator(&[64, 64], 12, [4, 1]).is_err());
    assert!(wgmma_accumulator(&[64, 64], 64, [2, 2]).is_err());
    assert!(mma_v2_accumulator(&[64], [4, 1]).is_err());
    assert!(nvmma_shared(&[64, 32], SwizzleWidth::B128, 16, false).is_err());
    assert!(nvmma_shared(&[4, 64], SwizzleWidth::B128, 16, false).is_err());
    assert!(nvmma_shared(&[64, 64], SwizzleWidth::B128, 64, false).is_err());
    assert!(swizzled_shared(&[64, 64], 3, 1, 8, &[1, 0]).is_err());
    assert!(swizzled_shared(&[64, 64], 8, 1, 8, &[1, 1]).is_err());
    let block = Blocked {
        size_per_thread: vec![1],
        threads_per_warp: vec![16],
        repeats: vec![1],
        warps: vec![1],
        order: vec![0],
    };
    assert!(block.layout(&[32]).is_err());
    assert!(Blocked { threads_per_warp: vec![32], ..block.clone() }.layout(&[32, 2]).is_err());
    assert!(Blocked { threads_per_warp: vec![32], ..block }.layout(&[24]).is_err());
}

#[test]
fn nvmma_core_matrices() {
    let core = |width, rows, columns| nvmma_shared(&[rows, columns], width, 16, false).unwrap();
    check(
        &core(SwizzleWidth::B128, 8, 64),
        "offset: [0, 1] [0, 2] [0, 4] [0, 8] [0, 16] [0, 32] [1, 8] [2, 16] [4, 32] -> (dim0:8, dim1:64)",
    );
    check(
        &core(SwizzleWidth::B64, 8, 32),
        "offset: [0, 1] [0, 2] [0, 4] [0, 8] [0, 16] [1, 0] [2, 8] [4, 16] -> (dim0:8, dim1:32)",
    );
    check(
        &core(SwizzleWidth::B32, 8, 16),
        "offset: [0, 1] [0, 2] [0, 4] [0, 8] [1, 0] [2, 0] [4, 8] -> (dim0:8, dim1:16)",
    );
    check(&core(SwizzleWidth::None, 8, 8), "offset: [0, 1] [0, 2] [0, 4] [1, 0] [2, 0] [4, 0] -> (dim0:8, dim1:8)");
    check(
        &core(SwizzleWidth::B128, 16, 128),
        "offset: [0, 1] [0, 2] [0, 4] [0, 8] [0, 16] [0, 32] [1, 8] [2, 16] [4, 32] [8, 0] [0, 64] \
         -> (dim0:16, dim1:128)",
    );
    check(
        &nvmma_shared(&[64, 16], SwizzleWidth::B128, 16, true).unwrap(),
        "offset: [1, 0] [2, 0] [4, 0] [8, 0] [16, 0] [32, 0] [8, 1] [16, 2] [32, 4] [0, 8] -> (dim0:64, dim1:16)",
    );
    check(
        &nvmma_shared(&[2, 8, 64], SwizzleWidth::B128, 16, false).unwrap(),
        "offset: [0, 0, 1] [0, 0, 2] [0, 0, 4] [0, 0, 8] [0, 0, 16] [0, 0, 32] [0, 1, 8] [0, 2, 16] [0, 4, 32] \
         [1, 0, 0] -> (dim0:2, dim1:8, dim2:64)",
    );
}

/// The hardware XORs address bits 4.. with bits 7..: three bits of them for 128 bytes, two for 64, one for 32.
#[test]
fn nvmma_layouts_are_what_the_hardware_swizzles() {
    for (width, bits) in
        [(SwizzleWidth::B128, 7), (SwizzleWidth::B64, 3), (SwizzleWidth::B32, 1), (SwizzleWidth::None, 0)]
    {
        for elem_bytes in [1u32, 2, 4] {
            let row_elements = width.row_bytes() / elem_bytes;
            let layout = nvmma_shared(&[32, row_elements], width, elem_bytes * 8, false).unwrap();
            for row in 0..32 {
                for column in 0..row_elements {
                    let plain = row * width.row_bytes() + column * elem_bytes;
                    let swizzled = plain ^ (plain >> 7 & bits) << 4;
                    let found = layout.apply(&[(LayoutDim::Offset, swizzled / elem_bytes)]);
                    assert_eq!(found, [(LayoutDim::Axis(0), row), (LayoutDim::Axis(1), column)]);
                }
            }
        }
    }
}

#[test]
fn swizzled_shared_xors_the_column_with_the_phase() {
    for (vec, per_phase, max_phase) in [(8, 1, 8), (4, 2, 4), (1, 1, 1), (2, 4, 8)] {
        let layout = swizzled_shared(&[16, 64], vec, per_phase, max_phase, &[1, 0]).unwrap();
        let turned = swizzled_shared(&[64, 16], vec, per_phase, max_phase, &[0, 1]).unwrap();
        assert!(layout.is_invertible());
        for (row, column) in (0..16).flat_map(|row| (0..64).map(move |column| (row, column))) {
            let swizzled = column ^ (vec * (row / per_phase % max_phase) % 64);
            let point = [(LayoutDim::Offset, row * 64 + swizzled)];
            assert_eq!(layout.apply(&point), [(LayoutDim::Axis(0), row), (LayoutDim::Axis(1), column)]);
            assert_eq!(turned.apply(&point), [(LayoutDim::Axis(0), column), (LayoutDim::Axis(1), row)]);
        }
    }
    let batched = swizzled_shared(&[4, 8, 16], 1, 1, 1, &[2, 1, 0]).unwrap();
    assert_eq!(
        batched.apply(&[(LayoutDim::Offset, (3 * 8 + 5) * 16 + 7)]).iter().map(|c| c.1).collect::<Vec<_>>(),
        [3, 5, 7]
    );
}

#[test]
fn shape_operations_follow_the_coordinates() {
    let layout = blocked([2, 4], [4, 8], [2, 2], [1, 0], [32, 64]);
    let names = [LayoutDim::Register, LayoutDim::Lane, LayoutDim::Warp];
    let size = |dim| layout.in_size(dim);
    let sliced = layout.drop_out(LayoutDim::Axis(0)).unwrap();
    let expanded = layout.expand_dims(1);
    let turned = layout.permute(&[1, 0]).unwrap();
    let flat = layout.reshape(&[2048]).unwrap();
    for place in 0..size(names[0]) * size(names[1]) * size(names[2]) {
        let point = [
            (names[0], place % size(names[0])),
            (names[1], place / size(names[0]) % 32),
            (names[2], place / size(names[0]) / 32),
        ];
        let (row, column) = (layout.apply_to(&point, LayoutDim::Axis(0)), layout.apply_to(&point, LayoutDim::Axis(1)));
        assert_eq!(sliced.apply_to(&point, LayoutDim::Axis(1)), column);
        assert_eq!(
            expanded.apply(&point),
            [(LayoutDim::Axis(0), row), (LayoutDim::Axis(1), 0), (LayoutDim::Axis(2), column)]
        );
        assert_eq!(turned.apply(&point), [(LayoutDim::Axis(0), column), (LayoutDim::Axis(1), row)]);
        assert_eq!(flat.apply(&point), [(LayoutDim::Axis(0), row * 64 + column)]);
    }
    // A slice keeps one register per element, under the axes that are left.
    check(&layout.slice(0).unwrap(), "register: [1] [2]; lane: [4] [8] [16] [0] [0]; warp: [32] [0] -> (dim0:64)");
    // Broadcasting appends registers.
    check(
        &layout.slice(0).unwrap().expand_dims(0).broadcast_to(&[4, 64]).unwrap(),
        "register: [0, 1] [0, 2] [1, 0] [2, 0]; lane: [0, 4] [0, 8] [0, 16] [0, 0] [0, 0]; \
         warp: [0, 32] [0, 0] -> (dim0:4, dim1:64)",
    );
    assert!(layout.broadcast_to(&[64, 64]).is_err());
    assert!(layout.permute(&[0, 0]).is_err());
    assert!(layout.slice(2).is_err());
}

#[test]
fn join_and_split_are_inverses() {
    let layout = blocked([2, 4], [4, 8], [2, 2], [1, 0], [32, 64]);
    let joined = layout.join().unwrap();
    assert_eq!(joined.tile_shape(), [32, 64, 2]);
    let (halves, [first, second]) = joined.split().unwrap();
    assert_eq!(halves, layout);
    for (register, (&a, &b)) in first.iter().zip(&second).enumerate() {
        let of = |joint| joined.apply(&[(LayoutDim::Register, joint), (LayoutDim::Lane, 5)]);
        let expected = layout.apply(&[(LayoutDim::Register, register as u32), (LayoutDim::Lane, 5)]);
        assert_eq!((of(a)[..2].to_vec(), of(b)[..2].to_vec()), (expected.clone(), expected));
        assert_eq!((of(a)[2].1, of(b)[2].1), (0, 1));
    }
    // The last axis in the lanes: nothing to split inside a thread.
    let across = blocked([1, 1], [16, 2], [4, 1], [1, 0], [64, 2]);
    assert_eq!(across.split(), None);
}
