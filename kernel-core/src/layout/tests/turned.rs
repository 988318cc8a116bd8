//! Accesses that lanes make in another order, executed on all threads of a program.

use super::{Random, layouts_of};
use crate::layout::{
    LayoutDim, LinearLayout, SharedAccess, SwizzleWidth, TurnedAccess, VectorAccess, WARP_SIZE, nvmma_shared,
    shared_access, wgmma_accumulator,
};

/// The words that a thread's accesses write, in order: where, and of which register.
fn written(access: &SharedAccess, turned: &TurnedAccess, thread: u32) -> Vec<Vec<(u32, u32)>> {
    let (lane, warp) = (thread % WARP_SIZE, thread / WARP_SIZE);
    let base = turned.thread.evaluate(&[(LayoutDim::Lane, lane), (LayoutDim::Warp, warp)]);
    let is_turned = lane >> turned.lane_bit & 1 == 1;
    let one = |index: usize| {
        let own = &access.accesses[index];
        let of = if is_turned { &access.accesses[turned.partners[index] as usize] } else { own };
        let first = ((base ^ own.xor_bytes) + own.add_bytes) / 4;
        (first..).zip(of.registers.iter().copied()).collect()
    };
    (0..access.accesses.len()).map(one).collect()
}

/// Every element of 32 bits gets to its place, and banks are as busy as is said.
fn check(registers: &LinearLayout, shared: &LinearLayout) -> [u32; 2] {
    let access = shared_access(registers, shared, 32).unwrap();
    let turned = access.turned().expect("an order without conflicts");
    let data = super::simulate::tile(registers);
    let mut memory = vec![None; shared.in_size(LayoutDim::Offset) as usize];
    let threads: Vec<_> = (0..data.len() as u32).map(|thread| written(&access, &turned, thread)).collect();
    for (thread, accesses) in threads.iter().enumerate() {
        for &(word, register) in accesses.iter().flatten() {
            memory[word as usize] = Some(data[thread][register as usize]);
        }
    }
    let flat = shared.row_major();
    let places = (0..memory.len() as u64).map(|offset| Some(flat.apply_flat(offset)));
    assert!(places.eq(memory.iter().copied()), "an element is elsewhere");
    for group in threads.chunks((WARP_SIZE / access.width) as usize) {
        for index in 0..access.accesses.len() {
            let mut banks = [0; 32];
            group.iter().flat_map(|accesses| &accesses[index]).for_each(|(word, _)| banks[*word as usize % 32] += 1);
            assert_eq!(banks.iter().max(), Some(&(turned.conflicts + 1)), "bank conflicts differ from the formula");
        }
    }
    [access.conflicts, turned.conflicts]
}

#[test]
fn sums_of_products_are_written_to_swizzled_blocks_without_conflicts() {
    for (shape, n) in [([64, 64], 64), ([128, 32], 32), ([128, 128], 128)] {
        let registers = wgmma_accumulator(&shape, n, [shape[0] / 16, 1]).unwrap();
        let shared = nvmma_shared(&shape, SwizzleWidth::B128, 32, false).unwrap();
        assert_eq!(check(&registers, &shared), [1, 0], "{shape:?}");
    }
}

#[test]
fn accesses_without_conflicts_stay_in_order() {
    let registers = wgmma_accumulator(&[64, 64], 64, [4, 1]).unwrap();
    let shared = nvmma_shared(&[64, 64], SwizzleWidth::B128, 16, false).unwrap();
    let access = shared_access(&registers, &shared, 16).unwrap();
    assert_eq!(access.conflicts, 0);
    assert_eq!(access.turned(), None);
}

/// What a thread's accesses write, sorted: at which byte which registers.
fn sorted(access: &SharedAccess, turned: Option<&TurnedAccess>, thread: u32) -> Vec<(u32, Vec<u32>)> {
    let (lane, warp) = (thread % WARP_SIZE, thread / WARP_SIZE);
    let form = turned.map_or(&access.thread, |turned| &turned.thread);
    let base = form.evaluate(&[(LayoutDim::Lane, lane), (LayoutDim::Warp, warp)]);
    let turned = turned.filter(|turned| lane >> turned.lane_bit & 1 == 1);
    let of = |index: usize| turned.map_or(index, |turned| turned.partners[index] as usize);
    let one = |(index, one): (usize, &VectorAccess)| {
        ((base ^ one.xor_bytes) + one.add_bytes, access.accesses[of(index)].registers.clone())
    };
    let mut written: Vec<(u32, Vec<u32>)> = access.accesses.iter().enumerate().map(one).collect();
    written.sort();
    written
}

#[test]
fn every_lane_writes_what_it_would_in_order() {
    let mut random = Random::new(31);
    let (mut seen, mut redundant) = ([0; 3], 0);
    for shape in [[16, 16], [64, 32], [32, 128], [64, 64]] {
        for (warps, size) in [(1, 0), (4, 0), (4, 1), (8, 2), (4, 2)] {
            let bits = 8 << size;
            for swizzle in [SwizzleWidth::None, SwizzleWidth::B32, SwizzleWidth::B64, SwizzleWidth::B128] {
                let Ok(shared) = nvmma_shared(&shape, swizzle, bits, false) else { continue };
                for registers in layouts_of(&shape, warps, &mut random) {
                    let access = shared_access(&registers, &shared, bits).unwrap();
                    let Some(turned) = access.turned() else { continue };
                    assert!(turned.conflicts < access.conflicts);
                    seen[size] += 1;
                    redundant += usize::from(access.redundant_lanes != 0);
                    for thread in 0..warps * WARP_SIZE {
                        let (in_turns, in_order) =
                            (sorted(&access, Some(&turned), thread), sorted(&access, None, thread));
                        assert_eq!(in_turns, in_order, "{registers} to {shared}, thread {thread}");
                    }
                }
            }
        }
    }
    assert!(seen.iter().all(|&count| count > 0) && redundant > 0, "{seen:?}, {redundant} with copies");
}
