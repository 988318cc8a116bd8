//! Mistakes that one may make with barriers, fences, slots and phases, planted in divided kernels: each is found.

use kernel_core::ir::{ControlOp, DType, Def, Func, GpuOp, Literal, Op, OpId, StoreMode, ValueId};

use super::{
    CRAMPED, Kernel, LoopSite, Mark, PLAIN, Sizes, gpu, is_fence, is_meeting, is_store, is_store_wait, launch, sites,
};

/// Something that a programmer may get wrong.
struct Fault {
    name: &'static str,
    plant: fn(&mut Func),
}

fn remove(func: &mut Func, site: LoopSite) {
    func.regions[site.region.index()].ops.retain(|&id| id != site.id);
}

fn set_number(func: &mut Func, value: ValueId, number: i128) {
    let Def::Result(id, _) = func.value(value).def else { panic!("a constant") };
    func.ops[id.index()].op = Op::constant(Literal::Int(number), DType::I32);
}

/// The loop over tiles of one side, whose last operands are its slot and its phase.
fn tiles(func: &Func, side: usize) -> OpId {
    sites(func, side, &|op| matches!(op, Op::Control(ControlOp::For { .. })))[0].id
}

/// The loop over iterations.
fn iterations(func: &Func, side: usize) -> OpId {
    sites(func, side, &|op| matches!(op, Op::Control(ControlOp::For { .. })))[1].id
}

fn is_wait(op: &GpuOp) -> bool {
    *op == GpuOp::MbarrierWait
}

fn is_arrival(op: &GpuOp) -> bool {
    *op == GpuOp::MbarrierArrive
}

const FAULTS: &[Fault] = &[
    Fault { name: "the consumers do not wait for a slot to fill", plant: |f| remove(f, sites(f, 0, &gpu(is_wait))[0]) },
    Fault {
        name: "the producer does not wait for a slot to empty",
        plant: |f| remove(f, sites(f, 1, &gpu(is_wait))[0]),
    },
    Fault { name: "no slot is released in an iteration", plant: |f| remove(f, sites(f, 0, &gpu(is_arrival))[0]) },
    Fault { name: "the last slot is not released", plant: |f| remove(f, sites(f, 0, &gpu(is_arrival))[1]) },
    Fault { name: "no bytes are announced", plant: |f| remove(f, sites(f, 1, &gpu(is_arrival))[0]) },
    Fault {
        name: "too few bytes are announced",
        plant: |f| {
            let bytes = f.op(sites(f, 1, &gpu(is_arrival))[0].id).operands[2];
            set_number(f, bytes, 2048);
        },
    },
    Fault { name: "one block is not fetched", plant: |f| remove(f, sites(f, 1, &gpu(|op| *op == GpuOp::TmaLoad))[1]) },
    Fault {
        name: "the producer begins with the phase of the consumers",
        plant: |f| {
            let phase = *f.op(tiles(f, 1)).operands.last().expect("a phase");
            set_number(f, phase, 0);
        },
    },
    Fault {
        name: "the consumers begin with the phase of the producer",
        plant: |f| {
            let phase = *f.op(tiles(f, 0)).operands.last().expect("a phase");
            set_number(f, phase, 1);
        },
    },
    Fault { name: "the phase of the consumers never changes", plant: |f| freeze(f, 0) },
    Fault { name: "the phase of the producer never changes", plant: |f| freeze(f, 1) },
    Fault { name: "the consumers begin each tile with the first slot", plant: |f| restart(f, 0) },
    Fault { name: "the producer begins each tile with the first slot", plant: |f| restart(f, 1) },
    Fault {
        name: "a slot is released while its product is in flight",
        plant: |f| {
            let arrival = sites(f, 0, &gpu(is_arrival))[0].id;
            let slot = f.op(sites(f, 0, &gpu(is_wait))[0].id).operands[1];
            f.ops[arrival.index()].operands[1] = slot;
        },
    },
    Fault {
        name: "too many products stay in flight",
        plant: |f| {
            let wait = sites(f, 0, &gpu(|op| matches!(op, GpuOp::WgmmaWait { pending: 1 })))[0].id;
            f.ops[wait.index()].op = GpuOp::WgmmaWait { pending: 2 }.into();
        },
    },
    Fault {
        name: "a tile is stored over one on its way out",
        plant: |f| remove(f, sites(f, 0, &gpu(is_store_wait))[0]),
    },
    Fault { name: "the last tile is not waited for", plant: |f| remove(f, sites(f, 0, &gpu(is_store_wait))[1]) },
    Fault { name: "a tile is not shown to its copy", plant: |f| remove(f, sites(f, 0, &gpu(is_fence))[0]) },
    Fault {
        name: "a tile is written before others know that the one before has left",
        plant: |f| remove(f, sites(f, 0, &gpu(is_meeting))[0]),
    },
    Fault {
        name: "a tile is copied before others have written it",
        plant: |f| remove(f, sites(f, 0, &gpu(is_meeting))[1]),
    },
];

/// What may be wrong with pieces that each four warps store.
const PIECES: &[Fault] = &[
    Fault {
        name: "a piece is stored over the one before the last",
        plant: |f| remove(f, sites(f, 0, &gpu(is_store_wait))[1]),
    },
    Fault {
        name: "too many pieces are on their way",
        plant: |f| {
            let wait = sites(f, 0, &gpu(is_store_wait))[1].id;
            f.ops[wait.index()].op = GpuOp::TmaStoreWait { pending: 2 }.into();
        },
    },
    Fault {
        name: "a piece is written before others know that there is room",
        plant: |f| remove(f, sites(f, 0, &gpu(is_meeting))[3]),
    },
    Fault {
        name: "a piece is copied before others have written it",
        plant: |f| remove(f, sites(f, 0, &gpu(is_meeting))[2]),
    },
    Fault { name: "a piece is not shown to its copy", plant: |f| remove(f, sites(f, 0, &gpu(is_fence))[1]) },
    Fault {
        name: "one thread copies what other warps have written",
        plant: |f| {
            let store = sites(f, 0, &gpu(is_store))[1].id;
            f.ops[store.index()].op = GpuOp::TmaStore { reduce: StoreMode::Store, parts: vec![] }.into();
        },
    },
    Fault {
        name: "warps copy columns of which they have written rows",
        plant: |f| {
            let store = sites(f, 0, &gpu(is_store))[1].id;
            f.ops[store.index()].op = GpuOp::TmaStore { reduce: StoreMode::Store, parts: vec![1, 2] }.into();
        },
    },
    Fault {
        name: "a piece goes where the one before it is",
        plant: |f| {
            let indices = sites(f, 0, &gpu(|op| *op == GpuOp::SharedIndex));
            let staging = f.op(indices[indices.len() - 1].id).operands[0];
            let own: Vec<OpId> =
                indices.iter().map(|site| site.id).filter(|&id| f.op(id).operands[0] == staging).collect();
            let slot = f.op(own[0]).operands[1];
            f.ops[own[1].index()].operands[1] = slot;
        },
    },
];

/// What may be wrong with turns, in the first of two groups.
const TURNS: &[Fault] = &[
    Fault { name: "a group does not wait for its turn", plant: |f| remove(f, sites(f, 0, &gpu(is_wait))[0]) },
    Fault { name: "the other never gets its turn", plant: |f| remove(f, sites(f, 0, &gpu(is_arrival))[1]) },
    Fault {
        name: "a group goes on from where its own tile ended",
        plant: |f| {
            let turn = sites(f, 0, &|op| matches!(op, Op::Control(ControlOp::If)))[0].id;
            let others = *f.region(f.op(turn).regions[1]).ops.last().expect("a yield");
            let ahead = f.region(f.op(tiles(f, 0)).regions[0]).args[1];
            f.ops[others.index()].operands[0] = ahead;
        },
    },
    Fault {
        name: "both groups begin",
        plant: |f| {
            let first = f.op(tiles(f, 0)).operands[5];
            set_number(f, first, 1);
        },
    },
];

/// The loop over iterations yields the phase that it was given.
fn freeze(func: &mut Func, side: usize) {
    let body = func.op(iterations(func, side)).regions[0];
    // Behind the counter: sums, the slot, the phase, and for the consumers the slot before.
    let args = func.region(body).args.len() - if side == 0 { 2 } else { 1 };
    let phase = func.region(body).args[args];
    let last = *func.region(body).ops.last().expect("a yield");
    func.ops[last.index()].operands[args - 1] = phase;
}

/// The loop over tiles gives each the slot that it itself was given.
fn restart(func: &mut Func, side: usize) {
    let outer = tiles(func, side);
    let slot = func.op(outer).operands[3];
    let inner = iterations(func, side);
    let position = func.op(inner).operands.len() - if side == 0 { 3 } else { 2 };
    func.ops[inner.index()].operands[position] = slot;
}

#[test]
fn planted_faults_are_found() {
    check_planted(PLAIN, Sizes { rows: 3, columns: 2, iterations: 7, programs: 1 }, FAULTS);
    let turns = Kernel { mark: Mark::Outer, ..PLAIN };
    check_planted(turns, Sizes { rows: 3, columns: 3, iterations: 8, programs: 1 }, TURNS);
    check_planted(CRAMPED, Sizes { rows: 1, columns: 2, iterations: 1, programs: 1 }, PIECES);
}

fn check_planted(kernel: Kernel, sizes: Sizes, faults: &[Fault]) {
    let (right, _) = launch(&kernel.func(), sizes);
    for Fault { name, plant } in faults {
        let (mut func, _) = kernel.divided();
        assert_eq!(launch(&func, sizes), (right.clone(), Ok(())));
        plant(&mut func);
        let (got, result) = launch(&func, sizes);
        assert!(
            result.is_err() || got.iter().zip(&right).any(|(a, b)| a.to_bits() != b.to_bits()),
            "not found: {name}"
        );
    }
}
