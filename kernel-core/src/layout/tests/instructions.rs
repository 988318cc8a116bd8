//! What the matrix instructions read and write, against a simulation of their definitions.

use super::super::{MatrixAccess, SwizzleWidth, matrix_access, nvmma_shared, swizzled_shared, wgmma_operand};
use super::*;

/// What `ldmatrix` gives each register of each lane of a warp, from memory that holds the tile's flattened coordinates.
fn simulate(access: &MatrixAccess, shared: &LinearLayout, elem_bits: u32, warp: u32) -> Vec<Vec<Option<u64>>> {
    let bytes = elem_bits / 8;
    let registers = access.canonical.len();
    let mut held = vec![vec![None; registers]; 32];
    for instruction in &access.instructions {
        let row_of = |lane: u32| {
            let own = access.row.evaluate(&[(LayoutDim::Lane, lane), (LayoutDim::Warp, warp)]);
            (own ^ instruction.xor_bytes) + instruction.add_bytes
        };
        for (matrix, word) in (0u32..).zip(&instruction.words) {
            for lane in 0..32u32 {
                for (element, &register) in (0u32..).zip(word) {
                    let (row, byte) = if access.transposed {
                        (lane % 4 * 2 + element, lane / 4 * 2)
                    } else {
                        (lane / 4, lane % 4 * 4 + element * bytes)
                    };
                    let address = row_of(matrix * 8 + row);
                    assert_eq!(address % 16, 0, "rows are aligned");
                    let offset = u64::from((address + byte) / bytes);
                    held[lane as usize][register as usize] = Some(shared.apply_flat(offset));
                }
            }
        }
    }
    for lane in &mut held {
        let all = lane.clone();
        for (register, &source) in access.canonical.iter().enumerate() {
            lane[register] = all[source as usize];
        }
    }
    held
}

fn check(registers: &LinearLayout, shared: &LinearLayout, elem_bits: u32, transposed: bool) -> MatrixAccess {
    let access = matrix_access(registers, shared, elem_bits, transposed).unwrap();
    let access = access.unwrap_or_else(|| panic!("{registers}\n{shared}"));
    for warp in 0..registers.in_size(LayoutDim::Warp) {
        for (lane, held) in (0u32..).zip(simulate(&access, shared, elem_bits, warp)) {
            for (register, found) in (0u32..).zip(held) {
                let point = [(LayoutDim::Register, register), (LayoutDim::Lane, lane), (LayoutDim::Warp, warp)];
                let wanted = registers.apply_flat(registers.flat_index(&point));
                assert_eq!(found, Some(wanted), "register {register} of lane {lane} in warp {warp}");
            }
        }
    }
    access
}

#[test]
fn operands_are_read_by_matrices_without_conflicts() {
    for (shape, warps) in [([64, 64], [4, 1]), ([128, 32], [2, 4]), ([16, 128], [1, 4])] {
        let [m, k] = shape;
        let row = SwizzleWidth::widest_for(k * 2);
        let a = dot_operand(&[m, k], Operand::A, 2, MmaVersion::V2, warps).unwrap();
        let b = dot_operand(&[k, m], Operand::B, 2, MmaVersion::V2, [warps[1], warps[0]]).unwrap();
        let rows = nvmma_shared(&[m, k], row, 16, false).unwrap();
        // A in rows of K, and B in rows of K, of N, which is read transposed.
        let k_of_b = nvmma_shared(&[k, m], row, 16, true).unwrap();
        let n_of_b = nvmma_shared(&[k, m], SwizzleWidth::widest_for(m * 2), 16, false).unwrap();
        for (registers, shared, transposed) in [(&a, &rows, false), (&b, &k_of_b, false), (&b, &n_of_b, true)] {
            let access = check(registers, shared, 16, transposed);
            assert_eq!(access.conflicts, 0, "{shared}");
            assert!(matrix_access(registers, shared, 16, !transposed).unwrap().is_none());
        }
    }
}

#[test]
fn bytes_and_words_are_read_by_matrices_too() {
    let a = dot_operand(&[32, 64], Operand::A, 4, MmaVersion::V2, [2, 2]).unwrap();
    let rows = nvmma_shared(&[32, 64], SwizzleWidth::B64, 8, false).unwrap();
    assert_eq!(check(&a, &rows, 8, false).conflicts, 0);
    let a = dot_operand(&[32, 32], Operand::A, 1, MmaVersion::V2, [2, 2]).unwrap();
    let rows = nvmma_shared(&[32, 32], SwizzleWidth::B128, 32, false).unwrap();
    let access = check(&a, &rows, 32, false);
    assert_eq!((access.conflicts, access.matrices), (0, 4));
}

#[test]
fn small_tiles_hold_copies_and_plain_memory_conflicts() {
    // One row of A: every lane holds it.
    let a = dot_operand(&[1, 64], Operand::A, 2, MmaVersion::V2, [1, 4]).unwrap();
    let plain = swizzled_shared(&[1, 64], 1, 1, 1, &[1, 0]).unwrap();
    check(&a, &plain, 16, false);
    let a = dot_operand(&[64, 64], Operand::A, 2, MmaVersion::V2, [4, 1]).unwrap();
    let plain = swizzled_shared(&[64, 64], 1, 1, 1, &[1, 0]).unwrap();
    assert_eq!(check(&a, &plain, 16, false).conflicts, 7);
}

#[test]
fn accumulators_are_written_by_matrices() {
    let acc = wgmma_accumulator(&[128, 128], 128, [8, 1]).unwrap();
    let shared = nvmma_shared(&[128, 128], SwizzleWidth::B128, 16, false).unwrap();
    let access = check(&acc, &shared, 16, false);
    assert_eq!((access.conflicts, access.matrices, access.instructions.len()), (0, 4, 8));
}

/// The byte that the hardware reads for row `mn`, byte `k` of an operand's tile (PTX ISA, "Matrix-Descriptor Format").
fn read_by(operand: &super::super::WgmmaOperand, mn: u32, k: u32, elem_bytes: u32) -> u32 {
    let width = operand.swizzle.row_bytes();
    let (row, along) = if operand.contiguous_k { (mn, k * elem_bytes) } else { (k, mn * elem_bytes) };
    let plain = row % 8 * width + row / 8 * operand.stride + along % width + along / width * operand.leading;
    let chunks = width / 16;
    // The address bits that choose the chunk are XORed with bits 7 and up, as many as the swizzle has.
    plain ^ (plain >> 7 & (chunks - 1)) << 4
}

#[test]
fn descriptors_read_the_elements_of_the_layout() {
    let widths = [SwizzleWidth::B32, SwizzleWidth::B64, SwizzleWidth::B128];
    for (elem_bits, ways) in [(16u32, &[false, true][..]), (8, &[false]), (32, &[false])] {
        for width in widths {
            for &mn_is_fast in ways {
                // `[M, K]`, contiguous along K or M.
                let shared = nvmma_shared(&[128, 128], width, elem_bits, mn_is_fast).unwrap();
                let k_tile = 256 / elem_bits;
                let inverse = shared.invert().unwrap();
                let operand = wgmma_operand(&shared, elem_bits, 0, 64, k_tile).unwrap();
                assert_eq!((operand.swizzle, operand.contiguous_k), (width, !mn_is_fast));
                for mn in 0..64 {
                    for k in 0..k_tile {
                        for (mn0, k0) in [(0, 0), (64, 0), (0, k_tile), (64, 3 * k_tile)] {
                            let at = inverse.apply_to(
                                &[(LayoutDim::Axis(0), mn0 + mn), (LayoutDim::Axis(1), k0 + k)],
                                LayoutDim::Offset,
                            );
                            // The swizzle works on whole addresses.
                            let start = operand.offset(mn0, k0);
                            let chunks = width.row_bytes() / 16;
                            let unswizzled = |address: u32| address ^ (address >> 7 & (chunks - 1)) << 4;
                            let read = unswizzled(read_by(&operand, mn, k, elem_bits / 8)) + start;
                            assert_eq!(unswizzled(read), at * elem_bits / 8, "{width:?} {mn} {k}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn other_layouts_have_no_descriptor() {
    let plain = swizzled_shared(&[64, 64], 1, 1, 1, &[1, 0]).unwrap();
    assert!(wgmma_operand(&plain, 16, 0, 64, 16).is_none());
    // Bytes must be contiguous along K.
    let columns = nvmma_shared(&[64, 128], SwizzleWidth::B64, 8, true).unwrap();
    assert!(wgmma_operand(&columns, 8, 0, 64, 32).is_none());
}
