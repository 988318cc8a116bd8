//! Factors that no loop around a product changes: nothing of them is left in the loop.

use tilewright::prelude::*;

/// Attention without its sums.
#[kernel(num_warps = 8)]
fn weigh<const D: usize, const M: usize, const N: usize, const DIVIDED: bool>(
    q: TensorDesc<f16, { [M, D] }>,
    k: TensorDesc<f16, { [N, D] }>,
    v: TensorDesc<f16, { [N, D] }>,
    out: PtrMut<f32>,
    len: i32,
) {
    let x = q.load([program_id(0) * M, 0]);
    let mut acc = zeros::<f32>([M, D]);
    if DIVIDED {
        #[warp_specialize]
        for start in (0..len).step_by(N) {
            let s = exp2(dot(x, k.load([start, 0]).trans()));
            acc = dot(s as f16, v.load([start, 0]), acc = acc);
        }
    } else {
        for start in (0..len).step_by(N) {
            let s = exp2(dot(x, k.load([start, 0]).trans()));
            acc = dot(s as f16, v.load([start, 0]), acc = acc);
        }
    }
    store(out + arange(0, M)[(.., None)] * D + arange(0, D), acc);
}

/// The lines of a kernel's placed IR between the first loop with a product and its end.
fn loop_of_products(ir: &str) -> Vec<&str> {
    let lines: Vec<&str> = ir.lines().collect();
    let product = lines.iter().position(|line| line.contains("= wgmma ")).expect("a product");
    let first = lines[..product].iter().rposition(|line| line.contains("= for ")).expect("a loop");
    let depth = |line: &str| line.len() - line.trim_start().len();
    let end = lines[first + 1..].iter().position(|line| depth(line) == depth(lines[first])).expect("its end");
    lines[first..first + end + 1].to_vec()
}

#[test]
fn a_loop_stores_no_factor_that_it_does_not_change() {
    let compiled = WeighConsts { D: 128, M: 128, N: 64, DIVIDED: false }.compile(Target::sm_90a());
    let compiled = compiled.unwrap_or_else(|error| panic!("{error}"));
    let body = loop_of_products(compiled.placed_ir());
    assert!(!body.iter().any(|line| line.contains("shared_store")), "{}", body.join("\n"));
}

/// Groups of warps that share nothing but what they are fed meet nowhere in the loop.
#[test]
fn groups_of_warps_do_not_meet_in_a_loop_whose_factors_are_fed() {
    let compiled = WeighConsts { D: 128, M: 128, N: 64, DIVIDED: true }.compile(Target::sm_90a());
    let compiled = compiled.unwrap_or_else(|error| panic!("{error}"));
    let body = loop_of_products(compiled.placed_ir());
    let meets = |line: &&str| line.contains("shared_store") || line.trim() == "barrier" || line.contains("fence");
    assert_eq!(body.iter().filter(|line| meets(line)).count(), 0, "{}", body.join("\n"));
    assert!(compiled.placed_ir().contains("warp_groups"));
}

/// A factor that is there throughout leaves less room for slots than one would think without it: kernels that ask for
/// no number of stages take what fits.
#[test]
fn kept_factors_take_room() {
    for divided in [false, true] {
        // 64 KiB for the factor, 64 KiB for the blocks of an iteration: three stages have no room beside it.
        let compiled = WeighConsts { D: 256, M: 128, N: 64, DIVIDED: divided }.compile(Target::sm_90a());
        let compiled = compiled.unwrap_or_else(|error| panic!("{error}"));
        let stages = if divided { "through 2 slots" } else { "with 2 stages" };
        let report = compiled.report().to_string();
        assert!(report.contains(stages), "{report}");
    }
}

/// Causal attention: blocks that every row sees, then those on the diagonal.
#[kernel(num_warps = 8)]
fn causal<const D: usize, const M: usize, const N: usize>(
    q: TensorDesc<f16, { [M, D] }>,
    k: TensorDesc<f16, { [N, D] }>,
    v: TensorDesc<f16, { [N, D] }>,
    out: PtrMut<f32>,
) {
    let first = program_id(0) * M;
    let x = q.load([first, 0]);
    let mut acc = zeros::<f32>([M, D]);
    #[warp_specialize]
    for start in (0..first).step_by(N) {
        let s = exp2(dot(x, k.load([start, 0]).trans()));
        acc = dot(s as f16, v.load([start, 0]), acc = acc);
    }
    #[warp_specialize]
    for start in (first..first + M).step_by(N) {
        let s = exp2(dot(x, k.load([start, 0]).trans()));
        let seen = first + arange(0, M)[(.., None)] >= start + arange(0, N);
        acc = dot(select(seen, s, 0.0) as f16, v.load([start, 0]), acc = acc);
    }
    store(out + (first + arange(0, M))[(.., None)] * D + arange(0, D), acc);
}

/// Two rings would take twice the memory that there is.
#[test]
fn loops_that_follow_each_other_share_a_ring() {
    let compiled = CausalConsts { D: 128, M: 128, N: 128 }.compile(Target::sm_90a());
    let compiled = compiled.unwrap_or_else(|error| panic!("{error}"));
    let report = compiled.report().to_string();
    assert_eq!(report.matches("through 2 slots of 65536 bytes").count(), 2, "{report}");
    assert_eq!(compiled.placed_ir().matches("shared f16[2, 128, 128]").count(), 2, "a ring for `k`, and one for `v`");
}

/// Keys are read before values are needed: their part of a slot is waited for by itself, and is free for the next behind
/// the scores. That of the values is free when the next scores are there, as their product is in flight until then.
#[test]
fn what_another_product_reads_comes_and_goes_by_itself() {
    let compiled = WeighConsts { D: 128, M: 128, N: 64, DIVIDED: true }.compile(Target::sm_90a());
    let compiled = compiled.unwrap_or_else(|error| panic!("{error}"));
    let steps = ["mbarrier_wait", "= wgmma ", "= wgmma_wait", "mbarrier_arrive", "= exp2"];
    let found: Vec<&str> = loop_of_products(compiled.placed_ir())
        .iter()
        .filter_map(|line| steps.iter().find(|step| line.contains(*step)).copied())
        .collect();
    let wanted = [&steps[..4], &steps[3..], &steps[..2]].concat();
    assert_eq!(found, wanted);
}

/// Scores and sums of one block of keys, as gradients of attention need them.
#[kernel(num_warps = 8)]
fn two_orders<const D: usize, const M: usize, const N: usize>(
    q: TensorDesc<f16, { [M, D] }>,
    k: TensorDesc<f16, { [N, D] }>,
    out: PtrMut<f32>,
    len: i32,
) {
    let x = q.load([program_id(0) * M, 0]);
    let mut acc = zeros::<f32>([M, D]);
    #[warp_specialize]
    for start in (0..len).step_by(N) {
        let block = k.load([start, 0]);
        let s = exp2(dot(x, block.trans()));
        acc = dot(s as f16, block, acc = acc);
    }
    store(out + arange(0, M)[(.., None)] * D + arange(0, D), acc);
}

#[test]
fn a_block_that_is_read_in_two_orders_is_fetched_once() {
    let compiled = TwoOrdersConsts { D: 128, M: 128, N: 64 }.compile(Target::sm_90a());
    let compiled = compiled.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        compiled.placed_ir().matches("tma_load").count(),
        2,
        "one of `q`, one of `k`:\n{}",
        compiled.placed_ir()
    );
    let report = compiled.report().to_string();
    assert!(report.contains("slots of 16384 bytes"), "{report}");
}
