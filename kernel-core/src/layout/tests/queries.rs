//! Vectors, redundancy, code forms and reductions.

use super::{Random, SHAPES, layouts_of, random_layout};
use crate::layout::{Blocked, LayoutDim, LinearLayout, mma_v2_accumulator, reduction, wgmma_accumulator};

#[test]
fn redundant_threads_are_masked() {
    let layout = Blocked::coalesced(&[64], &[0], 4, 4).layout(&[64]).unwrap();
    assert_eq!(
        layout.free_variable_masks(),
        [(LayoutDim::Register, 0), (LayoutDim::Lane, 0b10000), (LayoutDim::Warp, 0b11)]
    );
    // With the free bits zero, every element is still reached.
    let mut random = Random::new(11);
    for _ in 0..200 {
        let map =
            random_layout(&mut random, &[(LayoutDim::Register, 2), (LayoutDim::Lane, 4)], &[(LayoutDim::Axis(0), 5)]);
        let free = map.free_variable_mask(LayoutDim::Register) | map.free_variable_mask(LayoutDim::Lane) << 2;
        let image = |keep: &dyn Fn(u64) -> bool| {
            let mut image: Vec<u64> = (0..64).filter(|&x| keep(x)).map(|x| map.apply_flat(x)).collect();
            let count = image.len();
            image.sort_unstable();
            image.dedup();
            (image.clone(), count == image.len())
        };
        let (all, _) = image(&|_| true);
        let (kept, unique) = image(&|x| x & u64::from(free) == 0);
        assert_eq!(all, kept);
        assert!(unique);
    }
}

#[test]
fn the_vector_width_counts_consecutive_registers() {
    let rows = Blocked::coalesced(&[64, 64], &[1, 0], 8, 4).layout(&[64, 64]).unwrap();
    assert_eq!(rows.num_consecutive(LayoutDim::Register, LayoutDim::Axis(1)), 8);
    assert_eq!(rows.num_consecutive(LayoutDim::Register, LayoutDim::Axis(0)), 1);
    let accumulator = mma_v2_accumulator(&[64, 32], [4, 1]).unwrap();
    assert_eq!(accumulator.num_consecutive(LayoutDim::Register, LayoutDim::Axis(1)), 2);
    // A lane that moves inside the vector breaks it.
    let broken = LinearLayout::from_bases(
        &[(LayoutDim::Register, vec![vec![1], vec![2]]), (LayoutDim::Lane, vec![vec![6]])],
        &[(LayoutDim::Axis(0), 8)],
    )
    .unwrap();
    assert_eq!(broken.num_consecutive(LayoutDim::Register, LayoutDim::Axis(0)), 2);
    assert_eq!(broken.vectors(LayoutDim::Axis(0), 8).width, 2);
    // One that moves by the first element leaves no vector at all.
    let single = LinearLayout::from_bases(
        &[(LayoutDim::Register, vec![vec![1], vec![2]]), (LayoutDim::Lane, vec![vec![5]])],
        &[(LayoutDim::Axis(0), 8)],
    )
    .unwrap();
    assert_eq!(single.num_consecutive(LayoutDim::Register, LayoutDim::Axis(0)), 1);
    assert_eq!(single.vectors(LayoutDim::Axis(0), 8).width, 1);
}

#[test]
fn vectors_are_contiguous_aligned_and_complete() {
    let mut random = Random::new(12);
    for shape in SHAPES {
        for layout in layouts_of(shape, 4, &mut random) {
            let out = LayoutDim::Axis(shape.len() as u8 - 1);
            let vectors = layout.vectors(out, 8);
            assert!(vectors.width >= layout.num_consecutive(LayoutDim::Register, out).min(8));
            let at = |register, lane| {
                layout.apply(&[(LayoutDim::Register, register), (LayoutDim::Lane, lane), (LayoutDim::Warp, 1)])
            };
            let mut listed: Vec<u32> = Vec::new();
            for group in &vectors.groups {
                assert_eq!(group.len(), vectors.width as usize);
                for lane in [0, 13, 31] {
                    let first = at(group[0], lane);
                    assert_eq!(first[shape.len() - 1].1 % vectors.width, 0);
                    for (element, &register) in group.iter().enumerate() {
                        let mut expected = first.clone();
                        expected[shape.len() - 1].1 += element as u32;
                        assert_eq!(at(register, lane), expected);
                    }
                }
                listed.extend(group);
            }
            for register in 0..layout.in_size(LayoutDim::Register) {
                let canonical = vectors.canonical.source_of(register as usize) as u32;
                assert!(listed.contains(&canonical));
                assert_eq!(at(register, 7), at(canonical, 7));
            }
        }
    }
}

#[test]
fn code_forms_give_the_coordinates() {
    let mut random = Random::new(13);
    let ins = [(LayoutDim::Register, 3), (LayoutDim::Lane, 5), (LayoutDim::Warp, 2)];
    for _ in 0..100 {
        let layout = random_layout(&mut random, &ins, &[(LayoutDim::Axis(0), 6), (LayoutDim::Axis(1), 4)]);
        for out in [LayoutDim::Axis(0), LayoutDim::Axis(1)] {
            let form = layout.coordinate_form(out);
            let terms = form.thread.terms();
            for place in 0..1024u32 {
                let point = [
                    (LayoutDim::Register, place & 7),
                    (LayoutDim::Lane, place >> 3 & 31),
                    (LayoutDim::Warp, place >> 8),
                ];
                let expected = layout.apply_to(&point, out);
                let constant = form.registers[(place & 7) as usize];
                assert_eq!(form.thread.evaluate(&point) ^ constant, expected);
                let value = |dim| point.iter().find(|(name, _)| *name == dim).map_or(0, |p| p.1);
                let parts: Vec<u32> = terms.iter().map(|term| term.evaluate(value(term.input))).collect();
                assert_eq!(parts.iter().fold(constant, |sum, part| sum ^ part), expected);
            }
        }
    }
    // A blocked layout costs one shift per input.
    let rows = Blocked::coalesced(&[1024], &[0], 4, 4).layout(&[1024]).unwrap();
    let form = rows.coordinate_form(LayoutDim::Axis(0));
    assert_eq!(form.registers, [0, 1, 2, 3, 512, 513, 514, 515]);
    assert_eq!(form.thread.terms().len(), 2);
    assert!(form.is_additive());
}

/// Sums a tile along an axis as the plan says, and compares with the sums of its elements.
#[test]
fn reductions_count_every_element_once() {
    let mut random = Random::new(14);
    for shape in SHAPES {
        for warps in [1, 4] {
            for layout in layouts_of(shape, warps, &mut random) {
                for axis in 0..shape.len() as u8 {
                    check_reduction(&layout, axis, warps);
                }
            }
        }
    }
}

fn check_reduction(layout: &LinearLayout, axis: u8, warps: u32) {
    let plan = reduction(layout, axis).unwrap();
    // The value of an element is a power of its coordinate along the axis, so that sums tell copies.
    let size = layout.tile_shape()[axis as usize];
    let weight = |coordinate: u32| 1u128.wrapping_shl(coordinate % 61) + u128::from(coordinate) * 1_000_003;
    let expected: u128 = (0..size).map(weight).sum();
    let value = |register, lane, warp| {
        weight(layout.apply_to(
            &[(LayoutDim::Register, register), (LayoutDim::Lane, lane), (LayoutDim::Warp, warp)],
            LayoutDim::Axis(axis),
        ))
    };
    for (group, registers) in plan.in_thread.iter().enumerate() {
        let mut sums: Vec<u128> = (0..warps * 32)
            .map(|thread| registers.iter().map(|&register| value(register, thread % 32, thread / 32)).sum())
            .collect();
        for step in &plan.lane_steps {
            sums = (0..sums.len()).map(|thread| sums[thread] + sums[thread ^ step.xor as usize]).collect();
        }
        for bit in (0..5).filter(|bit| plan.warp_bits >> bit & 1 == 1) {
            sums = (0..sums.len()).map(|thread| sums[thread] + sums[thread ^ (32 << bit)]).collect();
        }
        assert!(sums.iter().all(|&sum| sum == expected), "{layout} along {axis}");
        // Each group belongs to the element that the result's layout says.
        for thread in 0..warps * 32 {
            let at = |layout: &LinearLayout, register| {
                layout.apply(&[
                    (LayoutDim::Register, register),
                    (LayoutDim::Lane, thread % 32),
                    (LayoutDim::Warp, thread / 32),
                ])
            };
            let mut of_tile: Vec<u32> = at(layout, registers[0]).iter().map(|c| c.1).collect();
            of_tile.remove(axis as usize);
            let of_result: Vec<u32> = at(&plan.result, group as u32).iter().map(|c| c.1).collect();
            assert_eq!(of_result, of_tile);
        }
    }
    assert_eq!(plan.partials.total_out_bits(), plan.result.total_out_bits() + plan.warp_bits.count_ones());
    assert!(plan.partials.is_surjective());
}

/// Threads that hold the same elements in other orders combine them in one: what a thread has combined, as coordinates.
#[test]
fn copies_are_combined_in_one_order() {
    let bases = |bases: &[u32]| bases.iter().map(|&base| vec![base]).collect::<Vec<_>>();
    for (registers, lanes, warps) in [
        (&[1][..], [2, 4, 8, 16, 32], &[32, 64][..]),
        (&[1, 64], [1, 2, 4, 8, 16], &[32, 64]),
        (&[1, 2], [4, 8, 16, 32, 3], &[64, 64, 66]),
        (&[3, 2], [4, 8, 16, 1, 32], &[64, 5]),
        (&[], [1, 2, 4, 8, 16], &[32, 64, 32, 96]),
        (&[1, 1], [2, 4, 8, 16, 2], &[32, 64, 99, 0]),
    ] {
        let ins = [
            (LayoutDim::Register, bases(registers)),
            (LayoutDim::Lane, bases(&lanes)),
            (LayoutDim::Warp, bases(warps)),
        ];
        let layout = LinearLayout::from_bases(&ins, &[(LayoutDim::Axis(0), 128)]).unwrap();
        let plan = reduction(&layout, 0).unwrap();
        let threads: Vec<(u32, u32)> =
            (0..1 << warps.len()).flat_map(|warp| (0..32).map(move |lane| (lane, warp))).collect();
        let combined = |&(lane, warp): &(u32, u32)| -> Vec<u32> {
            let mut members = plan.in_thread[0].clone();
            for turn in plan.turns.iter().filter(|turn| turn.holds(lane, warp)) {
                members = (0..members.len()).map(|at| members[at ^ turn.xor as usize]).collect();
            }
            let point = |register| [(LayoutDim::Register, register), (LayoutDim::Lane, lane), (LayoutDim::Warp, warp)];
            members.into_iter().map(|register| layout.apply_to(&point(register), LayoutDim::Axis(0))).collect()
        };
        let mut values: Vec<Vec<u32>> = threads.iter().map(combined).collect();
        for step in &plan.lane_steps {
            let joined = threads.iter().enumerate().map(|(at, &(lane, warp))| {
                let (own, other) = (&values[at], &values[at ^ step.xor as usize]);
                if step.holds(lane, warp) { [&other[..], own].concat() } else { [&own[..], other].concat() }
            });
            values = joined.collect();
        }
        // Of each partial result there is one, whoever writes it.
        let mut partials = vec![Vec::new(); 1 << plan.warp_bits.count_ones()];
        for (&(lane, warp), value) in threads.iter().zip(values) {
            let partial = &mut partials[plan
                .partials
                .apply_to(&[(LayoutDim::Lane, lane), (LayoutDim::Warp, warp)], LayoutDim::Axis(0))
                as usize];
            assert!(partial.is_empty() || *partial == value, "{layout}: {partial:?} and {value:?}");
            *partial = value;
        }
        let mut all = partials.concat();
        all.sort_unstable();
        assert_eq!(all, (0..128).collect::<Vec<_>>(), "{layout}");
    }
}

/// A part has of every element the thread that the tile has, wherever in the tile it begins.
#[test]
fn parts_of_tiles_stay_in_their_threads() {
    let check = |tile: &LinearLayout, shape: [u32; 2]| {
        let part = tile.part(&shape).unwrap_or_else(|| panic!("{tile} in parts of {shape:?}"));
        assert_eq!(part.tile_shape(), shape);
        let threads = |layout: &LinearLayout| layout.in_size(LayoutDim::Lane) * layout.in_size(LayoutDim::Warp);
        assert_eq!(threads(&part), threads(tile));
        let of = |layout: &LinearLayout, register: u32, thread: u32| {
            let (lane, warp) = (thread % 32, thread / 32);
            layout.apply(&[(LayoutDim::Register, register), (LayoutDim::Lane, lane), (LayoutDim::Warp, warp)])
        };
        for thread in 0..threads(tile) {
            let whole: Vec<_> =
                (0..tile.in_size(LayoutDim::Register)).map(|register| of(tile, register, thread)).collect();
            for register in 0..part.in_size(LayoutDim::Register) {
                let inside = of(&part, register, thread);
                for start in [[0, 0], [tile.tile_shape()[0] - shape[0], tile.tile_shape()[1] - shape[1]]] {
                    let at: Vec<_> = inside
                        .iter()
                        .map(|&(dim, at)| (dim, at + start[usize::from(dim == LayoutDim::Axis(1))]))
                        .collect();
                    assert!(whole.contains(&at), "{tile}: {at:?} is not in thread {thread}");
                }
            }
        }
    };
    let two_groups = wgmma_accumulator(&[256, 128], 128, [8, 1]).unwrap();
    check(&two_groups, [128, 64]);
    check(&two_groups, [256, 8]);
    check(&Blocked::coalesced(&[64, 64], &[1, 0], 8, 4).layout(&[64, 64]).unwrap(), [16, 64]);
    assert_eq!(two_groups.part(&[64, 128]), None, "half of the warps would hold nothing");
    assert_eq!(two_groups.part(&[128, 4]), None, "half of the lanes would hold nothing");
    assert_eq!(two_groups.part(&[512, 64]), None, "larger than the tile");
}

#[test]
fn groups_of_four_warps_divide_tiles() {
    let parts = |shape: [u32; 2], warps: [u32; 2]| wgmma_accumulator(&shape, 64, warps).unwrap().warp_group_parts();
    assert_eq!(parts([128, 64], [8, 1]), Some(vec![2, 1]));
    assert_eq!(parts([64, 64], [4, 1]), Some(vec![1, 1]));
    assert_eq!(parts([128, 128], [8, 2]), Some(vec![2, 2]));
    assert_eq!(parts([64, 128], [4, 2]), Some(vec![1, 2]));
    assert_eq!(parts([256, 64], [8, 1]), None, "each group has rows in both halves");
    assert_eq!(parts([64, 64], [8, 1]), None, "both groups have all rows");
    // Lanes that go into the other group's half: a group then has no half of its own.
    let bit = |bit: u32| vec![1 << bit];
    let mixed = [bit(0), bit(1), bit(2), bit(3), vec![1 << 4 | 1 << 7]];
    let mixed = LinearLayout::from_bases(
        &[(LayoutDim::Lane, mixed.to_vec()), (LayoutDim::Warp, vec![bit(5), bit(6), bit(7)])],
        &[(LayoutDim::Axis(0), 256)],
    );
    assert_eq!(mixed.unwrap().warp_group_parts(), None);
    assert_eq!(mma_v2_accumulator(&[128, 64], [8, 1]).unwrap().warp_group_parts(), Some(vec![2, 1]));
    assert_eq!(mma_v2_accumulator(&[64, 128], [4, 2]).unwrap().warp_group_parts(), Some(vec![2, 1]));
    assert_eq!(mma_v2_accumulator(&[64, 128], [2, 4]).unwrap().warp_group_parts(), None, "every second 16 rows");
}
