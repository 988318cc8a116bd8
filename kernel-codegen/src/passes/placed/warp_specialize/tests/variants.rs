//! Kernels that differ from the plain one in a single point that decides what the pass may do, or how.

use kernel_core::ir::{Func, GpuOp, Op};
use kernel_core::text::{parse, print};

use super::super::{Specialize, run};
use super::{Kernel, Mark, PLAIN, Sizes, WIDE, gpu, is_meeting, launch, sites, verified};
use crate::report::LoopReport;
use crate::{Options, Target};

/// Divides the kernel that `change` makes of another's text; returns both, and what is reported.
fn divided(kernel: Kernel, change: impl Fn(String) -> String) -> (Func, Func, Vec<LoopReport>) {
    let text = change(kernel.text());
    assert_ne!(text, kernel.text(), "something is changed");
    let whole = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    verified(&whole);
    let mut func = whole.clone();
    let options = Options { num_stages: kernel.stages, num_warps: kernel.warps(), ..Options::default() };
    let (divided, loops) =
        run(&mut func, Target::sm_90a(), &options, Specialize::IfProfitable).unwrap_or_else(|error| panic!("{error}"));
    verified(&func);
    assert!(divided, "{loops:?}");
    (whole, func, loops)
}

fn same(whole: &Func, divided: &Func, iterations: impl IntoIterator<Item = i64>) {
    for iterations in iterations {
        for programs in [1, 2] {
            let sizes = Sizes { rows: 3, columns: 3, iterations, programs };
            let (want, before) = launch(whole, sizes);
            let (got, after) = launch(divided, sizes);
            assert_eq!((before, after), (Ok(()), Ok(())), "{sizes:?}\n{}", print(divided));
            assert_eq!(want, got, "{sizes:?}\n{}", print(divided));
        }
    }
}

/// Behind a loop that is known to run nothing asks whether it has: its last slot is released all the same.
#[test]
fn loops_that_are_known_to_run_release_their_last_slot() {
    for mark in [Mark::Inner, Mark::Outer] {
        for stages in 1..4 {
            let (whole, func, _) = divided(Kernel { mark, stages, ..PLAIN }, |text| {
                text.replace("} (%at: i32", ", runs = true} (%at: i32")
            });
            same(&whole, &func, [1, 2, 3, 7]);
        }
    }
}

/// The first product of a tile overwrites registers that nobody has set, if the sums begin with zeros; else it adds.
#[test]
fn sums_that_begin_with_zeros_are_overwritten_and_others_added_to() {
    let overwrites = |func: &Func| {
        let products = sites(func, 0, &gpu(|op| matches!(op, GpuOp::Wgmma { .. })));
        products.iter().map(|site| func.op(site.id).operands.len() == 4).collect::<Vec<_>>()
    };
    for mark in [Mark::Inner, Mark::Outer] {
        let kernel = Kernel { mark, ..PLAIN };
        assert_eq!(overwrites(&kernel.divided().0), [true]);
        for start in ["1.5", "-0.0"] {
            let (whole, func, _) = divided(kernel, |text| text.replace("const 0.0", &format!("const {start}")));
            assert_eq!(overwrites(&func), [false], "{start}");
            same(&whole, &func, [0, 1, 4]);
        }
    }
}

/// A block that two products of an iteration read stays until the second one is over: where threads store the other factor,
/// and where groups take turns.
#[test]
fn slots_are_released_behind_the_last_product_that_reads_them() {
    let product = "%d: f32[64, 16] #0 = wgmma %sa, %sb, %acc {precision = tf32}";
    let twice = "%d1: f32[64, 16] #0 = wgmma %sa, %sb, %acc {precision = tf32}
                 %w1: f32[64, 16] #0 = wgmma_wait %d1 {pending = 0}
                 %d: f32[64, 16] #0 = wgmma %sa, %sb, %w1 {precision = tf32}";
    for kernel in [Kernel { mixed: true, ..PLAIN }, Kernel { scales: true, mark: Mark::Outer, ..PLAIN }] {
        for stages in 1..4 {
            let (whole, func, _) = divided(Kernel { stages, ..kernel }, |text| text.replace(product, twice));
            same(&whole, &func, [0, 1, 2, 3, 7]);
        }
    }
}

/// A last block of which the loop wants less than a whole one takes a slot as any other.
#[test]
fn groups_count_iterations_that_are_not_whole() {
    for stages in 1..4 {
        let (whole, func, loops) = divided(Kernel { mark: Mark::Outer, stages, ..PLAIN }, |text| {
            text.replace(
                "%end: i32 = mul %iterations, %k",
                "%all: i32 = mul %iterations, %k\n%end: i32 = sub %all, %one",
            )
        });
        assert!(loops[0].what.contains("in ping-pong"), "{loops:?}");
        same(&whole, &func, [0, 1, 2, 3, 7]);
    }
}

/// What is read and written through pointers behind the products of a tile is so tile by tile; what other tiles need before their
/// products, or are carried, keeps groups from turns.
#[test]
fn groups_that_take_turns_keep_the_order_of_what_tiles_write() {
    let kernel = Kernel { mark: Mark::Outer, ..PLAIN };
    let shifted = |kind: &str| {
        let param = format!("param %p p: {kind} i32\nparam %tiles");
        move |text: String| {
            text.replace("param %tiles", &param).replace(
                "desc_store %c, %sum, %i, %j",
                "%shift: i32 = load %p\n%far: i32 = add %j, %shift\ndesc_store %c, %sum, %i, %far",
            )
        }
    };
    let stores = |text: String| {
        let text = text.replace("param %tiles", "param %p p: ptr_mut i32\nparam %tiles");
        text.replace("desc_store %c, %sum, %i, %j", "store %p, %tile\ndesc_store %c, %sum, %i, %j")
    };
    let carries = |text: String| {
        let text = text.replace("for %first, %tiles, %count {", "%last: i32 = for %first, %tiles, %count, %zero {");
        let text = text.replace("(%tile: i32) {", "(%tile: i32, %before: i32) {");
        let (body, end) = text.rsplit_once("yield").expect("the loop over tiles");
        format!("{body}%after: i32 = add %before, %tile\nyield %after{end}")
    };
    let in_turns = |loops: &[LoopReport]| loops[0].what.contains("in ping-pong");
    assert!(in_turns(&divided(kernel, shifted("ptr")).2));
    let waits = |func: &Func| sites(func, 0, &gpu(|op| *op == GpuOp::MbarrierWait)).len();
    let unordered = waits(&kernel.divided().0);
    for (kernel, change) in [(kernel, &shifted("ptr_mut") as &dyn Fn(String) -> String), (kernel, &stores)] {
        for stages in 1..4 {
            let (whole, func, loops) = divided(Kernel { stages, ..kernel }, change);
            assert!(in_turns(&loops), "{loops:?}");
            assert_eq!(waits(&func), unordered + 1, "a group waits for what the other writes");
            for iterations in [0, 1, 2, 3, 7] {
                // Several programs would write to one place.
                let sizes = Sizes { rows: 3, columns: 3, iterations, programs: 1 };
                assert_eq!(launch(&whole, sizes), launch(&func, sizes), "{stages} {sizes:?}");
            }
        }
    }
    let early = |text: String| {
        let param = "param %p p: ptr_mut i32\nparam %tiles";
        let text = text
            .replace("param %tiles", param)
            .replace("desc_store %c, %sum, %i, %j", "store %p, %tile\ndesc_store %c, %sum, %i, %j");
        let (before, behind) = text.split_once("%sum: f32").expect("the loop of products");
        format!("{before}%last: i32 = load %p\n%sum: f32{behind}")
            .replace("desc_store %c, %sum, %i, %j", "%far: i32 = add %j, %last\ndesc_store %c, %sum, %i, %far")
    };
    assert!(!in_turns(&divided(kernel, early).2));
    let (whole, func, loops) = divided(kernel, carries);
    assert!(!in_turns(&loops));
    same(&whole, &func, [0, 1, 4]);
}

/// A tile of which the two groups of warps hold every other row is copied out by one thread, for which all have to
/// wait.
#[test]
fn tiles_that_groups_hold_in_stripes_leave_as_a_whole() {
    let stripes = "register [0, 1] [0, 2] [0, 4] [0, 8] [0, 16] [0, 32], lane [0, 64] [2, 0] [4, 0] [8, 0] [16, 0], \
                   warp [32, 0] [64, 0] [1, 0] -> dim0 128, dim1 128";
    let (whole, func, _) = divided(WIDE, |text| {
        text.replace("param %a a:", &format!("layout #6 = {stripes}\nparam %a a:"))
            .replace("desc_store %c, %sum", "%held: f32[128, 128] #6 = convert_layout %sum\ndesc_store %c, %held")
    });
    let meetings = sites(&func, 0, &gpu(is_meeting));
    let all = meetings.iter().filter(|site| func.op(site.id).op == Op::Gpu(GpuOp::Barrier));
    assert_eq!((all.count(), meetings.len()), (2, 2), "{}", print(&func));
    same(&whole, &func, [1, 3]);
}

/// Blocks that are added to what is in memory still are when they leave in pieces.
#[test]
fn reductions_leave_in_pieces_too() {
    for kernel in [PLAIN, WIDE, Kernel { mark: Mark::Outer, ..PLAIN }] {
        let (whole, func, _) = divided(kernel, |text| {
            text.replace("desc_store %c, %sum, %i, %j", "desc_reduce %c, %sum, %i, %j {op = add}")
        });
        same(&whole, &func, [0, 1, 3]);
    }
}
