//! Conversions between all kinds of layouts, executed on data.

use super::simulate::{run, run_shuffle, tile};
use super::{Random, SHAPES, layouts_of, random_bijection};
use crate::layout::conversion::shuffle_plan;
use crate::layout::swizzle::SyncScope;
use crate::layout::{
    Blocked, Conversion, LayoutDim, LayoutError, LinearLayout, MmaVersion, Operand, ShuffleKind, conversion_map,
    convert, dot_operand, mma_v2_accumulator, wgmma_accumulator,
};

/// Converts, executes, and compares every register of every thread.
fn check(src: &LinearLayout, dst: &LinearLayout, elem_bits: u32) -> Conversion {
    let conversion = convert(src, dst, elem_bits).unwrap();
    let (data, expected) = (tile(src), tile(dst));
    assert_eq!(run(&conversion, &data), expected, "{src} to {dst}");
    if let Some(plan) = shuffle_plan(src, dst, elem_bits).unwrap() {
        assert_eq!(run_shuffle(&plan, &data), expected, "shuffles from {src} to {dst}");
    }
    conversion
}

#[test]
fn every_pair_of_layouts_converts() {
    let mut random = Random::new(21);
    let mut kinds = [0; 4];
    for shape in SHAPES {
        for warps in [1, 2, 4, 8] {
            let layouts = layouts_of(shape, warps, &mut random);
            for (index, src) in layouts.iter().enumerate() {
                for (offset, dst) in layouts.iter().enumerate() {
                    // Every second pair, of large tiles (which take most of the time) every eighth:
                    // others for every number of warps.
                    let step = if shape.iter().product::<u32>() >= 1024 { 8 } else { 2 };
                    if !(index + offset + warps.ilog2() as usize).is_multiple_of(step) {
                        continue;
                    }
                    let elem_bits = [8, 16, 32, 64][(index + 3 * offset) % 4];
                    let kind = match check(src, dst, elem_bits) {
                        Conversion::NoOp => 0,
                        Conversion::RegisterPermute(_) => 1,
                        Conversion::Shuffle(_) => 2,
                        Conversion::SharedMemory(_) => 3,
                    };
                    kinds[kind] += 1;
                }
            }
        }
    }
    assert!(kinds.iter().all(|&count| count > 15), "every kind of conversion occurs: {kinds:?}");
}

#[test]
fn any_linear_exchange_inside_a_warp_can_be_shuffled() {
    let mut random = Random::new(22);
    let outs = [(LayoutDim::Axis(0), 1 << 8)];
    for round in 0..300 {
        let registers = 3;
        // Two arbitrary bijections from (register, lane) to the tile, not only permutations of bits.
        let mut layout = || {
            let bits = random_bijection(&mut random, registers + 5);
            bits.reshape_ins(&[(LayoutDim::Register, 1 << registers), (LayoutDim::Lane, 32)])
                .unwrap()
                .reshape_outs(&outs)
                .unwrap()
        };
        let (src, dst) = (layout(), layout());
        let plan = shuffle_plan(&src, &dst, 32).unwrap();
        assert!(plan.is_some(), "round {round}: no copies, so there is always a plan");
        for bits in [8, 16, 32] {
            check(&src, &dst, bits);
        }
    }
}

#[test]
fn equal_layouts_need_nothing() {
    let layout = mma_v2_accumulator(&[64, 32], [4, 1]).unwrap();
    assert_eq!(convert(&layout, &layout, 32), Ok(Conversion::NoOp));
    // Copies do not count as movement.
    let small = Blocked::coalesced(&[16], &[0], 1, 8).layout(&[16]).unwrap();
    assert_eq!(convert(&small, &small, 32), Ok(Conversion::NoOp));
}

#[test]
fn registers_are_renamed_where_threads_keep_their_elements() {
    let layout = Blocked::coalesced(&[64, 64], &[1, 0], 4, 4).layout(&[64, 64]).unwrap();
    let turned = LinearLayout::from_bases(
        &[
            (LayoutDim::Register, layout.bases(LayoutDim::Register).into_iter().rev().collect()),
            (LayoutDim::Lane, layout.bases(LayoutDim::Lane)),
            (LayoutDim::Warp, layout.bases(LayoutDim::Warp)),
        ],
        &[(LayoutDim::Axis(0), 64), (LayoutDim::Axis(1), 64)],
    )
    .unwrap();
    assert!(matches!(check(&layout, &turned, 16), Conversion::RegisterPermute(_)));
    // A broadcast along rows: the column vector of a slice, as the tile's layout wants it.
    let column = layout.slice(1).unwrap();
    let wanted = layout.drop_out(LayoutDim::Axis(1)).unwrap();
    assert!(matches!(check(&column, &wanted, 32), Conversion::RegisterPermute(_)));
}

#[test]
fn one_transposition_is_butterflies_for_half_of_the_registers() {
    // Register bit 0 and lane bit 2 change places.
    let layout = |register: Vec<u32>, lane: Vec<u32>| {
        let bases = |list: Vec<u32>| list.into_iter().map(|basis| vec![basis]).collect();
        let ins = [
            (LayoutDim::Register, bases(register)),
            (LayoutDim::Lane, bases(lane)),
            (LayoutDim::Warp, vec![vec![128]]),
        ];
        LinearLayout::from_bases(&ins, &[(LayoutDim::Axis(0), 256)]).unwrap()
    };
    let src = layout(vec![1, 2], vec![4, 8, 16, 32, 64]);
    let dst = layout(vec![16, 2], vec![4, 8, 1, 32, 64]);
    let Conversion::Shuffle(plan) = check(&src, &dst, 32) else { panic!("shuffles expected") };
    assert_eq!((plan.pre.len(), plan.post.len(), plan.shuffles()), (1, 1, 2));
    let kinds: Vec<_> = plan.exchanges.iter().map(|exchange| plan.kind(exchange)).collect();
    assert!(kinds.contains(&ShuffleKind::Butterfly(4)) && kinds.contains(&ShuffleKind::None));
    // Lanes permuted among themselves: one indexed shuffle per register, no select.
    let dst = layout(vec![1, 2], vec![8, 4, 64, 16, 32]);
    let Conversion::Shuffle(plan) = check(&src, &dst, 32) else { panic!("shuffles expected") };
    assert_eq!((plan.levels(), plan.shuffles()), (0, 4));
    // Two transpositions: more selects than shared memory costs, though the shuffles would do.
    let dst = layout(vec![16, 8], vec![4, 2, 1, 32, 64]);
    let Conversion::SharedMemory(plan) = check(&src, &dst, 32) else { panic!("shared memory expected") };
    assert_eq!(plan.scope, SyncScope::Warp);
    assert!(shuffle_plan(&src, &dst, 32).unwrap().is_some_and(|plan| plan.levels() == 2));
}

/// Sums of a product become 8-bit factors of the next one: of four sums that lie side by side or in the row below, none changes
/// its place among them.
#[test]
fn narrow_elements_move_as_words() {
    let sums = wgmma_accumulator(&[128, 128], 128, [8, 1]).unwrap();
    let factor = dot_operand(&[128, 128], Operand::A, 4, MmaVersion::V3, [8, 1]).unwrap();
    let Conversion::Shuffle(plan) = check(&sums, &factor, 8) else { panic!("shuffles expected") };
    assert_eq!((plan.per_word, plan.levels(), plan.shuffles()), (4, 1, 16));
    // 16 bits have half as many in a word, and 32 bits are words.
    for (bits, per_word, shuffles) in [(16, 2, 32), (32, 1, 64)] {
        let Conversion::Shuffle(plan) = check(&sums, &factor, bits) else { panic!("shuffles expected") };
        assert_eq!((plan.per_word, plan.shuffles()), (per_word, shuffles));
    }
}

#[test]
fn movement_between_warps_goes_through_shared_memory() {
    let rows = Blocked::coalesced(&[64, 64], &[1, 0], 4, 4).layout(&[64, 64]).unwrap();
    let columns = Blocked::coalesced(&[64, 64], &[0, 1], 4, 4).layout(&[64, 64]).unwrap();
    let Conversion::SharedMemory(plan) = check(&rows, &columns, 32) else { panic!("shared memory expected") };
    assert_eq!((plan.scope, plan.reps), (SyncScope::Block, 1));
}

#[test]
fn the_conversion_map_leads_back_to_the_source() {
    let mut random = Random::new(23);
    for shape in SHAPES {
        let layouts = layouts_of(shape, 4, &mut random);
        for src in &layouts {
            for dst in &layouts {
                let map = conversion_map(src, dst).unwrap();
                let [src, dst] = [src, dst].map(|layout| {
                    let all = [LayoutDim::Register, LayoutDim::Lane, LayoutDim::Warp, LayoutDim::Block];
                    let sizes: Vec<_> = all.iter().map(|&dim| (dim, layout.in_size(dim))).collect();
                    layout.reshape_ins(&sizes).unwrap()
                });
                assert_eq!(map.compose(&src).unwrap(), dst);
            }
        }
    }
}

#[test]
fn impossible_conversions_say_why() {
    let layout = |shape: &[u32], warps| Blocked::coalesced(shape, &[0], 1, warps).layout(shape).unwrap();
    assert!(matches!(convert(&layout(&[128], 4), &layout(&[64], 4), 32), Err(LayoutError::DimsDiffer { .. })));
    assert!(matches!(convert(&layout(&[128], 4), &layout(&[128], 2), 32), Err(LayoutError::DimsDiffer { .. })));
    assert!(matches!(convert(&layout(&[256], 4), &layout(&[256], 4).permute(&[0]).unwrap(), 32), Ok(Conversion::NoOp)));
    // Sub-byte elements cannot go through shared memory.
    let (a, b) = (layout(&[1024], 4), Blocked::coalesced(&[1024], &[0], 8, 4).layout(&[1024]).unwrap());
    assert!(matches!(convert(&a, &b, 1), Err(LayoutError::BadParameters { .. })));
    // A source that lacks elements.
    let part = LinearLayout::zeros1d(32, LayoutDim::Lane, LayoutDim::Axis(0), 32).unwrap();
    assert!(matches!(
        convert(&part, &layout(&[32], 1), 32),
        Err(LayoutError::OutsideImage { dim: LayoutDim::Lane, bit: 0 })
    ));
}
