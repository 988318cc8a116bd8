//! Blocks that are fetched once for all iterations of a loop.

use kernel_core::ir::{Func, GpuOp, Op};
use kernel_core::text::{parse, print};

use super::super::{Specialize, run};
use super::{Kernel, LoopSite, Mark, PLAIN, Sizes, WIDE, gpu, launch, sites, verified};
use crate::report::LoopReport;
use crate::{Options, Target};

/// Slots so many that the kernel has a multiprocessor for itself: a block that is held has a second slot there.
const ALONE: u32 = 150;

/// The kernel's text with the first block of the first factor read in front of the loop, for all its iterations.
fn text(kernel: Kernel) -> String {
    let text = kernel.text();
    let (m, loop_at) = (kernel.m, text.find("%sum: ").expect("a loop"));
    let (before, behind) = text.split_at(loop_at);
    let held = format!(
        "%va: f16[{m}, 16] #5 = desc_load %a, %i, %zero
         %sa: shared f16[{m}, 16] #1 = shared_alloc
         barrier
         %vf: f16[{m}, 16] #5 = convert_layout %va
         shared_store %sa, %vf
         fence {{kind = proxy_async}}
         barrier\n"
    );
    let drop = ["%va: f16", "%sa: shared", "%vf: f16", "shared_store %sa"];
    let lines = behind.lines().filter(|line| !drop.iter().any(|start| line.trim_start().starts_with(start)));
    // The conversion of the layout stands in front of the first barrier.
    let held = held.replacen("barrier\n", "", 1).replacen("shared_store", "barrier\nshared_store", 1);
    format!("{before}{held}{}", lines.collect::<Vec<_>>().join("\n"))
}

fn func(kernel: Kernel) -> Func {
    let text = text(kernel);
    let func = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    verified(&func);
    func
}

fn divided(kernel: Kernel) -> (Func, Vec<LoopReport>) {
    let mut func = func(kernel);
    let options = Options { num_stages: kernel.stages, num_warps: kernel.warps(), ..Options::default() };
    let (divided, loops) =
        run(&mut func, Target::sm_90a(), &options, Specialize::IfProfitable).unwrap_or_else(|error| panic!("{error}"));
    verified(&func);
    assert!(divided, "{loops:?}");
    (func, loops)
}

fn is_held(loops: &[LoopReport]) -> bool {
    loops.iter().any(|report| report.what.contains("fetched ahead for the whole loop"))
}

fn waits(func: &Func, side: usize) -> Vec<LoopSite> {
    sites(func, side, &gpu(|op| *op == GpuOp::MbarrierWait))
}

#[test]
fn blocks_in_front_of_a_loop_are_fetched_once() {
    let mut seed = 5u32;
    let mut random = move |below: u32| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        i64::from((seed >> 16) % below)
    };
    for case in 0..80 {
        let kernel = Kernel {
            stages: if case % 5 == 0 { ALONE } else { 1 + random(4) as u32 },
            scales: case % 3 == 1,
            skips: case % 4 == 3,
            ..if case % 10 == 4 { WIDE } else { PLAIN }
        };
        let (func_held, loops) = divided(kernel);
        assert!(is_held(&loops), "{kernel:?} {loops:?}");
        // Threads store nothing but sums.
        let stores = sites(&func_held, 0, &gpu(|op| *op == GpuOp::SharedStore));
        let pieces = sites(&func_held, 0, &gpu(|op| matches!(op, GpuOp::TmaStore { .. })));
        assert_eq!(stores.len(), pieces.len(), "{}", print(&func_held));
        for programs in [1, 2] {
            let sizes = Sizes { rows: random(4), columns: random(4), iterations: random(5), programs };
            let (want, before) = launch(&func(kernel), sizes);
            let (got, after) = launch(&func_held, sizes);
            assert_eq!((before, after), (Ok(()), Ok(())), "{kernel:?} {sizes:?}\n{}", print(&func_held));
            assert_eq!(want, got, "{kernel:?} {sizes:?}\n{}", print(&func_held));
        }
    }
}

#[test]
fn a_second_slot_is_taken_where_a_kernel_is_alone() {
    let slots = |stages| {
        let (func, _) = divided(Kernel { stages, ..PLAIN });
        let view = func.op(sites(&func, 1, &gpu(|op| *op == GpuOp::TmaLoad))[0].id).operands[1];
        let slots = func.op(func.defining_op(view).expect("a view")).operands[0];
        func.ty(slots).shape[0].as_const()
    };
    assert_eq!((slots(3), slots(ALONE)), (Some(1), Some(2)));
}

/// A block that something else reads stays with the threads, and so does one that a barrier is not its own alone.
#[test]
fn blocks_with_other_uses_stay_with_the_threads() {
    let changes = [
        ("desc_store %c", "%other: f16[64, 16] #5 = add %va, %va\ndesc_store %c"),
        ("barrier\nshared_store %sa, %vf", "shared_store %sa, %vf"),
        ("%vf: f16[64, 16] #5 = convert_layout %va", "%vf: f16[64, 16] #5 = add %va, %va"),
    ];
    for (from, to) in changes {
        let text = text(PLAIN);
        let changed = text.replacen(from, to, 1);
        assert_ne!(text, changed);
        let mut func = parse(&changed).unwrap_or_else(|error| panic!("{error}\n{changed}"));
        let options = Options { num_stages: 3, num_warps: 4, ..Options::default() };
        let (_, loops) = run(&mut func, Target::sm_90a(), &options, Specialize::IfProfitable).expect("no mistake");
        assert!(!is_held(&loops), "{from}: {loops:?}");
    }
    // The loop over tiles takes turns only if threads of both groups have nothing else to do.
    assert!(!is_held(&Kernel { mark: Mark::Outer, ..PLAIN }.divided().1));
}

/// Mistakes with the barriers of such a block are found.
#[test]
fn mistakes_are_found() {
    type Plant = fn(&mut Func);
    let plants: [(&str, Plant); 5] = [
        ("the consumers do not wait for the block", |f| remove(f, |f| waits(f, 0)[0])),
        ("the producer does not wait for its slot", |f| remove(f, |f| waits(f, 1)[0])),
        ("the slot is not released", |f| {
            remove(f, |f| *sites(f, 0, &gpu(|op| *op == GpuOp::MbarrierArrive)).last().expect("an arrival"));
        }),
        ("the slot is released before the loop", |f| {
            let arrival = *sites(f, 0, &gpu(|op| *op == GpuOp::MbarrierArrive)).last().expect("an arrival");
            let is_loop = |op: &Op| matches!(op, Op::Control(kernel_core::ir::ControlOp::For { .. }));
            let inner = sites(f, 0, &is_loop)[1].id;
            let ops = &mut f.regions[arrival.region.index()].ops;
            ops.retain(|&id| id != arrival.id);
            let at = ops.iter().position(|&id| id == inner).expect("the loop");
            ops.insert(at, arrival.id);
        }),
        ("the block is not fetched", |f| remove(f, |f| sites(f, 1, &gpu(|op| *op == GpuOp::TmaLoad))[0])),
    ];
    for stages in [3, ALONE] {
        for (name, plant) in &plants {
            let kernel = Kernel { stages, ..PLAIN };
            let (mut planted, _) = divided(kernel);
            plant(&mut planted);
            let found = [1, 2, 5].iter().any(|&iterations| {
                let sizes = Sizes { rows: 3, columns: 3, iterations, programs: 1 };
                let (got, after) = launch(&planted, sizes);
                after.is_err() || got != launch(&func(kernel), sizes).0
            });
            assert!(found, "{name}, {stages} stages: {}", print(&planted));
        }
    }
}

fn remove(func: &mut Func, site: impl Fn(&Func) -> LoopSite) {
    let site = site(func);
    func.regions[site.region.index()].ops.retain(|&id| id != site.id);
}
