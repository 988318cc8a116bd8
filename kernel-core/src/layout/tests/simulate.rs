//! Executes conversions on the data of all threads of a program.

use crate::layout::swizzle::SyncScope;
use crate::layout::{
    Conversion, LayoutDim, LinearLayout, SelectLevel, SharedAccess, SharedPlan, ShuffleKind, ShufflePlan, WARP_SIZE,
};

/// What a place holds before anything is written to it.
const POISON: u64 = u64::MAX;

/// Per thread (warp-major), per register, the element held.
pub(super) type Data = Vec<Vec<u64>>;

/// The data of a tile whose elements are numbered row-major.
pub(super) fn tile(layout: &LinearLayout) -> Data {
    let flat = layout.row_major();
    let place = |thread: u32| [(LayoutDim::Lane, thread % WARP_SIZE), (LayoutDim::Warp, thread / WARP_SIZE)];
    let registers = layout.in_size(LayoutDim::Register);
    let threads = WARP_SIZE * layout.in_size(LayoutDim::Warp);
    let by_register: Vec<u64> =
        (0..registers).map(|r| flat.apply_flat(flat.flat_index(&[(LayoutDim::Register, r)]))).collect();
    let of_thread = |thread| {
        let base = flat.apply_flat(flat.flat_index(&place(thread)));
        by_register.iter().map(|offset| base ^ offset).collect()
    };
    (0..threads).map(of_thread).collect()
}

/// Executes any conversion.
pub(super) fn run(conversion: &Conversion, data: &Data) -> Data {
    match conversion {
        Conversion::NoOp => data.clone(),
        Conversion::RegisterPermute(action) => data.iter().map(|values| action.apply(values)).collect(),
        Conversion::Shuffle(plan) => run_shuffle(plan, data),
        Conversion::SharedMemory(plan) => run_shared(plan, data),
    }
}

/// Executes shuffles: the plan runs once, on values that are the data of all threads.
pub(super) fn run_shuffle(plan: &ShufflePlan, data: &Data) -> Data {
    let threads = data.len();
    let registers = data[0].len();
    let values: Vec<Vec<u64>> =
        (0..registers).map(|register| data.iter().map(|values| values[register]).collect()).collect();
    let lane_of = |thread: usize| thread as u32 % WARP_SIZE;
    let warp_of = |thread: usize| thread as u32 / WARP_SIZE;
    let select = |level: &SelectLevel, yes: &Vec<u64>, no: &Vec<u64>| {
        let pick = |thread| if level.holds(lane_of(thread), warp_of(thread)) { yes[thread] } else { no[thread] };
        Ok::<_, ()>((0..threads).map(pick).collect::<Vec<u64>>())
    };
    let shuffle = |kind: ShuffleKind, value: &Vec<u64>| {
        let from = |thread: usize| {
            let (lane, warp) = (lane_of(thread), warp_of(thread));
            let source = match kind {
                ShuffleKind::None => lane,
                ShuffleKind::Butterfly(mask) => lane ^ mask,
                ShuffleKind::Indexed(constant) => {
                    plan.source_lane.evaluate(&[(LayoutDim::Lane, lane), (LayoutDim::Warp, warp)]) ^ constant
                }
            };
            assert!(source < WARP_SIZE);
            value[(warp * WARP_SIZE + source) as usize]
        };
        Ok((0..threads).map(from).collect())
    };
    // A word of numbers below 2^16.
    let pack = |elements: &[Vec<u64>]| {
        let word = |thread: usize| elements.iter().rev().fold(0, |word, element| word << 16 | element[thread]);
        assert!(elements.iter().flatten().all(|&element| element < 1 << 16), "elements fit");
        Ok::<_, ()>((0..threads).map(word).collect::<Vec<u64>>())
    };
    let unpack = |word: Vec<u64>| {
        let element = |place: u32| word.iter().map(|bits| bits >> (16 * place) & 0xffff).collect();
        Ok::<_, ()>((0..plan.per_word).map(element).collect())
    };
    let words = plan.words(&values, pack).unwrap();
    let results = plan.registers(plan.run(&words, select, shuffle).unwrap(), unpack).unwrap();
    (0..threads).map(|thread| results.iter().map(|value| value[thread]).collect()).collect()
}

/// The threads' parts of the addresses of one side.
fn bases(side: &SharedAccess, threads: usize) -> Vec<u32> {
    let point = |thread: u32| [(LayoutDim::Lane, thread % WARP_SIZE), (LayoutDim::Warp, thread / WARP_SIZE)];
    (0..threads as u32).map(|thread| side.thread.evaluate(&point(thread))).collect()
}

/// The byte address of an access of one thread, checked for alignment and bounds.
fn address(plan: &SharedPlan, side: &SharedAccess, index: usize, base: u32) -> u32 {
    let access = &side.accesses[index];
    let address = (base ^ access.xor_bytes) + access.add_bytes;
    assert_eq!(address % side.access_bytes(), 0, "an access is not aligned");
    assert!(address + side.access_bytes() <= plan.bytes, "an access is out of bounds");
    address
}

/// Executes a pass through shared memory. With warp scope each warp runs alone, on fresh memory.
pub(super) fn run_shared(plan: &SharedPlan, data: &Data) -> Data {
    let elem_bytes = plan.elem_bits / 8;
    let loaded_registers = plan.load.canonical.source_len();
    let mut loaded: Data = vec![vec![POISON; loaded_registers]; data.len()];
    let (stores, loads) = (bases(&plan.store, data.len()), bases(&plan.load, data.len()));
    let together = match plan.scope {
        SyncScope::Warp => WARP_SIZE as usize,
        SyncScope::Block => data.len(),
    };
    for rep in 0..plan.reps {
        for first in (0..data.len()).step_by(together) {
            let mut memory = vec![POISON; (plan.bytes / elem_bytes) as usize];
            let threads = first..first + together;
            for (index, access) in plan.store.accesses.iter().enumerate().filter(|(_, access)| access.rep == rep) {
                for thread in threads.clone() {
                    let start = (address(plan, &plan.store, index, stores[thread]) / elem_bytes) as usize;
                    for (element, &register) in access.registers.iter().enumerate() {
                        memory[start + element] = data[thread][register as usize];
                    }
                }
            }
            for (index, access) in plan.load.accesses.iter().enumerate().filter(|(_, access)| access.rep == rep) {
                for thread in threads.clone() {
                    let start = (address(plan, &plan.load, index, loads[thread]) / elem_bytes) as usize;
                    for (element, &register) in access.registers.iter().enumerate() {
                        loaded[thread][register as usize] = memory[start + element];
                    }
                }
            }
        }
    }
    check_conflicts(plan, &plan.store, &stores);
    check_conflicts(plan, &plan.load, &loads);
    loaded.iter().map(|values| plan.load.canonical.apply(values)).collect()
}

/// Counts the wavefronts of every instruction of every warp bank by bank, and compares with the plan.
fn check_conflicts(plan: &SharedPlan, side: &SharedAccess, bases: &[u32]) {
    let words_per_access = (side.access_bytes() / 4).max(1);
    for index in 0..side.accesses.len() {
        for group in bases.chunks((WARP_SIZE / words_per_access) as usize) {
            let words = group.iter().flat_map(|&base| {
                let first = address(plan, side, index, base) / 4;
                first..first + words_per_access
            });
            let mut words: Vec<u32> = words.collect();
            words.sort_unstable();
            words.dedup();
            let mut banks = [0; 32];
            words.iter().for_each(|word| banks[*word as usize % 32] += 1);
            assert_eq!(banks.iter().max(), Some(&(side.conflicts + 1)), "bank conflicts differ from the formula");
        }
    }
}
