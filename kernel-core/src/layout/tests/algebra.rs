//! Laws of the operations, exhaustively on small maps and on random larger ones.

use super::{Random, random_bijection, random_layout};
use crate::layout::{ColumnAction, LayoutDim, LayoutError, LinearLayout};

const A: LayoutDim = LayoutDim::Axis(0);
const B: LayoutDim = LayoutDim::Axis(1);

/// Every map from `ins` to `outs` bits.
fn all_maps(ins: u32, outs: u32) -> impl Iterator<Item = LinearLayout> {
    (0..1u64 << (ins * outs)).map(move |code| {
        let columns = (0..ins).map(|bit| code >> (bit * outs) & ((1 << outs) - 1)).collect();
        LinearLayout::from_parts(vec![(LayoutDim::Offset, ins)], vec![(A, outs)], columns)
    })
}

fn identity(bits: u32, input: LayoutDim, output: LayoutDim) -> LinearLayout {
    LinearLayout::identity1d(1 << bits, input, output).unwrap()
}

#[test]
fn every_small_map_is_inverted_exactly_if_it_is_a_bijection() {
    for bits in 1..=3 {
        for map in all_maps(bits, bits) {
            let mut image: Vec<u64> = (0..1 << bits).map(|x| map.apply_flat(x)).collect();
            image.sort_unstable();
            image.dedup();
            let bijective = image.len() == 1 << bits;
            assert_eq!(map.is_invertible(), bijective);
            match map.invert() {
                Ok(inverse) => {
                    assert!(bijective);
                    assert_eq!(map.compose(&inverse).unwrap(), identity(bits, LayoutDim::Offset, LayoutDim::Offset));
                    assert_eq!(inverse.compose(&map).unwrap(), identity(bits, A, A));
                }
                Err(error) => assert!(!bijective && error == LayoutError::NotInvertible),
            }
        }
    }
}

#[test]
fn four_bit_bijections_are_inverted() {
    // All maps of 4 bits whose first column is 1: every bijection, up to a change of outputs.
    let mut bijections = 0;
    for map in all_maps(3, 4) {
        let columns = [&[1], map.all_columns()].concat();
        let map = LinearLayout::from_parts(vec![(LayoutDim::Offset, 4)], vec![(A, 4)], columns);
        if let Ok(inverse) = map.invert() {
            bijections += 1;
            assert_eq!(map.compose(&inverse).unwrap(), identity(4, LayoutDim::Offset, LayoutDim::Offset));
        }
    }
    // The order of GL(4, 2) is 20160, and 15 values of the first column are equivalent.
    assert_eq!(bijections, 20160 / 15);
}

#[test]
fn the_pseudoinverse_is_a_right_inverse_with_free_bits_zero() {
    for (ins, outs) in [(2, 1), (3, 2), (4, 2), (4, 3), (3, 3)] {
        for map in all_maps(ins, outs) {
            let Ok(inverse) = map.pseudoinvert() else {
                assert!(!map.is_surjective());
                continue;
            };
            assert_eq!(inverse.compose(&map).unwrap(), identity(outs, A, A));
            let free = map.free_variable_mask(LayoutDim::Offset);
            assert!(inverse.all_columns().iter().all(|column| column & u64::from(free) == 0));
            assert_eq!(free.count_ones(), ins - outs);
        }
    }
}

#[test]
fn invert_and_compose_finds_every_element_again() {
    let mut random = Random::new(1);
    for _ in 0..500 {
        let outs = [(A, 3), (B, 4)];
        let inner = random_layout(&mut random, &[(LayoutDim::Register, 3), (LayoutDim::Lane, 5)], &outs);
        let outer = random_layout(&mut random, &[(LayoutDim::Offset, 9)], &[(B, 4), (A, 3)]);
        match inner.invert_and_compose(&outer) {
            Ok(map) => {
                let again = map.compose(&outer).unwrap().transpose_outs(&[A, B]).unwrap();
                assert_eq!(again, inner);
            }
            Err(error) => {
                assert!(!outer.is_surjective());
                assert!(matches!(error, LayoutError::OutsideImage { .. }));
            }
        }
    }
}

#[test]
fn composition_is_application_and_associative() {
    let mut random = Random::new(2);
    for _ in 0..300 {
        let f = random_layout(&mut random, &[(LayoutDim::Register, 2), (LayoutDim::Lane, 3)], &[(A, 3), (B, 2)]);
        let g = random_layout(&mut random, &[(B, 3), (A, 3)], &[(LayoutDim::Offset, 6)]);
        let h = random_layout(&mut random, &[(LayoutDim::Offset, 6)], &[(A, 2), (LayoutDim::Bank, 5)]);
        let fg = f.compose(&g).unwrap();
        for index in 0..32 {
            let inner = f.apply(&[(LayoutDim::Register, index & 3), (LayoutDim::Lane, index >> 2)]);
            let outer = g.apply(&inner);
            assert_eq!(
                fg.apply_to(&[(LayoutDim::Register, index & 3), (LayoutDim::Lane, index >> 2)], LayoutDim::Offset),
                outer[0].1
            );
        }
        assert_eq!(fg.compose(&h).unwrap(), f.compose(&g.compose(&h).unwrap()).unwrap());
    }
}

/// Three random factors with some dimensions in common.
fn factors(random: &mut Random) -> [LinearLayout; 3] {
    [
        random_layout(random, &[(LayoutDim::Register, 2), (LayoutDim::Lane, 1)], &[(A, 2), (B, 1)]),
        random_layout(random, &[(LayoutDim::Lane, 2), (LayoutDim::Warp, 1)], &[(B, 2)]),
        random_layout(random, &[(LayoutDim::Warp, 1), (LayoutDim::Register, 2)], &[(LayoutDim::Axis(2), 1), (A, 2)]),
    ]
}

#[test]
fn the_product_is_associative_and_empty_is_neutral() {
    let mut random = Random::new(3);
    for _ in 0..300 {
        let [a, b, c] = factors(&mut random);
        assert_eq!(&(&a * &b) * &c, &a * &(&b * &c));
        assert_eq!(&a * &LinearLayout::empty(), a);
        assert_eq!(&LinearLayout::empty() * &a, a);
    }
}

#[test]
fn division_undoes_the_product() {
    let mut random = Random::new(4);
    for _ in 0..300 {
        let [a, b, c] = factors(&mut random);
        for (left, right) in [(&a, &b), (&b, &c), (&a, &c), (&c, &a)] {
            let product = left * right;
            let found = product.divide_left(left).unwrap();
            assert_eq!(ordered_like(&found, right), *right);
        }
        // A factor that is not there is not found.
        let odd = random_layout(&mut random, &[(LayoutDim::Register, 2)], &[(A, 2)]);
        let product = &a * &b;
        match product.divide_left(&odd) {
            Some(rest) => assert_eq!(ordered_like(&(&odd * &rest), &product), product),
            None => assert!(
                a.sublayout(&[LayoutDim::Register], &[A]).unwrap() != odd
                    || !is_zero(&a, LayoutDim::Register, B)
                    || !is_zero(&a, LayoutDim::Lane, A)
            ),
        }
    }
}

/// Whether no bit of `input` moves the coordinate along `out`.
fn is_zero(layout: &LinearLayout, input: LayoutDim, out: LayoutDim) -> bool {
    layout.bases_along(input, out).iter().all(|&base| base == 0)
}

/// `layout` with its dimensions in the order of `model`.
fn ordered_like(layout: &LinearLayout, model: &LinearLayout) -> LinearLayout {
    let ins: Vec<LayoutDim> = model.ins().map(|(dim, _)| dim).collect();
    let outs: Vec<LayoutDim> = model.outs().map(|(dim, _)| dim).collect();
    layout.transpose_ins(&ins).unwrap().transpose_outs(&outs).unwrap()
}

#[test]
fn division_checks_the_whole_block_diagonal() {
    // Lane 0 also moves inside the register tile, so the tile is no factor.
    let mixed =
        LinearLayout::from_bases(&[(LayoutDim::Register, vec![vec![1]]), (LayoutDim::Lane, vec![vec![3]])], &[(A, 4)])
            .unwrap();
    assert_eq!(mixed.divide_left(&identity(1, LayoutDim::Register, A)), None);
}

#[test]
fn reshaping_keeps_the_flattened_map() {
    let mut random = Random::new(5);
    for _ in 0..200 {
        let map = random_layout(&mut random, &[(LayoutDim::Register, 3), (LayoutDim::Lane, 4)], &[(A, 2), (B, 5)]);
        let outs = map.reshape_outs(&[(A, 16), (B, 2), (LayoutDim::Axis(2), 4)]).unwrap();
        let ins = map.reshape_ins(&[(LayoutDim::Offset, 32), (LayoutDim::Block, 4)]).unwrap();
        for index in 0..128 {
            assert_eq!(outs.apply_flat(index), map.apply_flat(index));
            assert_eq!(ins.apply_flat(index), map.apply_flat(index));
        }
        assert_eq!(map.flatten_outs(A).all_columns(), map.all_columns());
        assert!(map.reshape_outs(&[(A, 64)]).is_err());
        // Row-major tiles: the reshape of a reshape, and the flat index.
        let tile = map.reshape(&[8, 2, 8]).unwrap();
        assert_eq!(tile.row_major(), map.row_major());
        assert_eq!(tile.reshape(&[4, 32]).unwrap(), map);
    }
}

#[test]
fn transposing_concatenating_and_cutting_agree_with_application() {
    let mut random = Random::new(6);
    for _ in 0..200 {
        let map = random_layout(&mut random, &[(LayoutDim::Register, 3), (LayoutDim::Lane, 2)], &[(A, 3), (B, 4)]);
        let turned =
            map.transpose_outs(&[B, A]).unwrap().transpose_ins(&[LayoutDim::Lane, LayoutDim::Register]).unwrap();
        let cut = map.resize_out(B, 4).unwrap();
        let grown = map.resize_out(B, 64).unwrap();
        let halves = [&[LayoutDim::Register][..], &[LayoutDim::Lane]].map(|ins| map.sublayout(ins, &[A, B]).unwrap());
        let sides = [A, B].map(|out| map.sublayout(&[LayoutDim::Register, LayoutDim::Lane], &[out]).unwrap());
        assert_eq!(halves[0].concat_ins(&halves[1]).unwrap(), map);
        assert_eq!(sides[0].concat_outs(&sides[1]).unwrap(), map);
        assert!(halves[0].concat_ins(&halves[0]).is_err());
        for (register, lane) in (0..8).flat_map(|register| (0..4).map(move |lane| (register, lane))) {
            let point = [(LayoutDim::Register, register), (LayoutDim::Lane, lane)];
            let (a, b) = (map.apply_to(&point, A), map.apply_to(&point, B));
            assert_eq!((turned.apply_to(&point, A), turned.apply_to(&point, B)), (a, b));
            assert_eq!((grown.apply_to(&point, A), grown.apply_to(&point, B)), (a, b));
            assert_eq!((cut.apply_to(&point, A), cut.apply_to(&point, B)), (a, b % 4));
        }
    }
}

#[test]
fn a_quotient_drops_exactly_the_trivial_dimensions() {
    let mut random = Random::new(7);
    let inner = random_bijection(&mut random, 4).rename_out(A, LayoutDim::Offset).unwrap();
    let map =
        &(&inner * &identity(2, LayoutDim::Lane, LayoutDim::Lane)) * &identity(1, LayoutDim::Warp, LayoutDim::Warp);
    assert!(map.is_trivial_over(&[LayoutDim::Lane, LayoutDim::Warp]));
    assert_eq!(map.quotient(&[LayoutDim::Warp, LayoutDim::Lane]).unwrap(), inner);
    assert!(!map.is_trivial_over(&[LayoutDim::Offset]) || inner == identity(4, LayoutDim::Offset, LayoutDim::Offset));
    // A lane that also feeds the offset is not trivial.
    let mut leaking = map.clone();
    leaking.columns[4] |= 1;
    assert_eq!(leaking.quotient(&[LayoutDim::Lane]), None);
    assert!(leaking.quotient(&[LayoutDim::Warp]).is_some());
}

#[test]
fn wrong_bases_are_refused_with_their_place() {
    let from = |bases: Vec<Vec<u32>>, size| LinearLayout::from_bases(&[(LayoutDim::Lane, bases)], &[(A, size)]);
    assert_eq!(
        from(vec![vec![1], vec![4]], 4),
        Err(LayoutError::BasisOutOfRange { dim: LayoutDim::Lane, bit: 1, out: A, value: 4, size: 4 })
    );
    assert_eq!(
        from(vec![vec![1, 2]], 4),
        Err(LayoutError::BasisRank { dim: LayoutDim::Lane, bit: 0, got: 2, expected: 1 })
    );
    assert!(matches!(from(vec![], 3), Err(LayoutError::NotPowerOfTwo { value: 3, .. })));
    assert_eq!(LinearLayout::from_bases(&[], &[(A, 2), (A, 2)]), Err(LayoutError::DuplicateDim(A)));
    let wide: Vec<_> = (0..4).map(|axis| (LayoutDim::Axis(axis), 1 << 20)).collect();
    assert_eq!(LinearLayout::from_bases(&[], &wide), Err(LayoutError::TooManyBits { bits: 80 }));
}

#[test]
fn actions_move_values_as_they_move_layouts() {
    let mut random = Random::new(8);
    for _ in 0..200 {
        let map = random_layout(&mut random, &[(LayoutDim::Register, 4), (LayoutDim::Lane, 2)], &[(A, 6)]);
        let bases: Vec<u32> = (0..random.below(5)).map(|_| random.below(16) as u32).collect();
        let action = ColumnAction::new(bases, 16).unwrap();
        let moved = action.apply_to_layout(&map, LayoutDim::Register);
        let held = |layout: &LinearLayout, lane| -> Vec<u32> {
            let registers = 0..layout.in_size(LayoutDim::Register);
            registers.map(|r| layout.apply_to(&[(LayoutDim::Register, r), (LayoutDim::Lane, lane)], A)).collect()
        };
        for lane in 0..4 {
            assert_eq!(held(&moved, lane), action.apply(&held(&map, lane)));
        }
        // Without redundant registers, and back.
        let removed = map.remove_broadcast_registers();
        assert!(removed.layout.sublayout(&[LayoutDim::Register], &[A]).unwrap().is_injective());
        let round = removed.remove.then(&removed.restore).unwrap();
        assert_eq!(round.apply_to_layout(&map, LayoutDim::Register), map);
    }
}
