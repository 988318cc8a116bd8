//! Pipelined loops in generated code: copies, waits, barriers per iteration, memory; and results in the emulator.

mod support;

use kernel_codegen::{Compiled, Options, Target, compile};
use support::{assemble, count, kernel};

const MATMUL: &str = include_str!("kernels/matmul.tile");

fn compiled(text: &str, target: Target, num_warps: u32, num_stages: u32) -> Compiled {
    // Warps that only copy are another way to the same end.
    let disabled_passes = vec!["warp_specialize".to_string()];
    let options = Options { num_warps, num_stages, disabled_passes, ..Options::default() };
    compile(&kernel(text), &target, &options).unwrap_or_else(|error| panic!("{error}"))
}

/// The body of the loop that has most instructions: from its label to the branch back.
fn main_loop(ptx: &str) -> &str {
    let mut best = "";
    for (start, _) in ptx.match_indices("\n$L__BB") {
        let label = ptx[start + 1..].split(':').next().unwrap_or_default();
        if let Some(length) = ptx[start..]
            .rfind(&format!("bra \t{label};"))
            .or_else(|| ptx[start..].rfind(&format!("bra.uni \t{label};")))
            && length > best.len()
        {
            best = &ptx[start..start + length];
        }
    }
    best
}

#[test]
fn hopper_products_stay_in_flight_while_slots_are_refilled() {
    for stages in [3, 4] {
        let compiled = compiled(MATMUL, Target::sm_90a(), 8, stages);
        let inside = main_loop(&compiled.ptx);
        let barriers = count(inside, "bar.sync") + count(inside, "barrier.sync");
        assert_eq!(barriers, 2, "copies are there, the last product is over: {}", compiled.ptx);
        assert_eq!(count(inside, "wgmma.mma_async"), 4);
        let at = |what| inside.find(what).unwrap_or_else(|| panic!("no {what}: {inside}"));
        assert!(at("wgmma.mma_async") < at("wgmma.wait_group") && at("wgmma.wait_group") < at("cp.async.cg"));
        assert_eq!(count(inside, "wgmma.wait_group.sync.aligned 1"), 1);
        assert_eq!(count(inside, "cp.async.cg.shared.global"), 8, "16 bytes each, for two tiles of 16 KiB");
        assert_eq!(count(inside, &format!("cp.async.wait_group {};", stages - 2)), 1);
        let order = ["cp.async.wait_group", "fence.proxy.async.shared::cta", "bar.sync", "wgmma.mma_async"];
        assert!(order.map(at).is_sorted(), "copies, which are no products' own, are shown to them: {inside}");
        assert_eq!(count(inside, "fence.proxy.async"), 1);
        assert_eq!(compiled.shared_bytes, stages * 32 * 1024, "{}", compiled.report());
        assert!(compiled.report().to_string().contains("products stay in flight"), "{}", compiled.report());
        assert!(assemble(&compiled).is_none_or(|assembled| assembled.spill_bytes == 0));
    }
}

/// The matrix product as safe kernels have it: offsets are converted before they are added up, and masked.
fn masked() -> String {
    MATMUL
        .replace(" unsafe ", " safe ")
        .replace("%av: f16[128, 64] = load %ap", "%av: f16[128, 64] = load %ap, %ma")
        .replace("%bv: f16[64, 128] = load %bp", "%bv: f16[64, 128] = load %bp, %mb")
        .replace(
            "    %mkb: i32[128, 64] = broadcast %mk\n    %kkb: i32[128, 64] = broadcast %kk\n    %oa: i32[128, 64]",
            "    %kks: i32[1, 64] = splat %k
    %kin: bool[1, 64] = cmp.lt %kk, %kks
    %ma: bool[128, 64] = broadcast %kin
    %mkw: i64[128, 1] = cast %mk
    %kkw: i64[1, 64] = cast %kk
    %mkb: i64[128, 64] = broadcast %mkw
    %kkb: i64[128, 64] = broadcast %kkw
    %oa: i64[128, 64]",
        )
        .replace(
            "    %knb: i32[64, 128] = broadcast %kn\n    %n1b: i32[64, 128] = broadcast %n1\n    %ob: i32[64, 128]",
            "    %krs: i32[64, 1] = splat %k
    %kin2: bool[64, 1] = cmp.lt %kr, %krs
    %mb: bool[64, 128] = broadcast %kin2
    %knw: i64[64, 1] = cast %kn
    %n1w: i64[1, 128] = cast %n1
    %knb: i64[64, 128] = broadcast %knw
    %n1b: i64[64, 128] = broadcast %n1w
    %ob: i64[64, 128]",
        )
}

/// Each copy has a pointer of its own that one addition of 64 bits advances: no products, no conversions.
#[test]
fn pointers_of_copies_go_on_from_iteration_to_iteration() {
    for (text, target) in
        [(masked(), Target::sm_90a()), (MATMUL.to_string(), Target::sm_90a()), (masked(), Target::sm_80())]
    {
        let compiled = compiled(&text, target, 8, 3);
        let inside = main_loop(&compiled.ptx);
        assert_eq!(count(inside, "cp.async.cg.shared.global"), 8, "{}", compiled.report());
        assert_eq!(count(inside, "mad.") + count(inside, "mul."), 0, "{inside}");
        assert_eq!(count(inside, "// kept"), 8, "{inside}");
        // What is added is no product that ptxas could do again in each iteration: the stride of the second factor
        // has gone through a shuffle, as two words.
        let before = &compiled.ptx[..compiled.ptx.find(inside).unwrap_or_default()];
        assert!(count(before, "shfl.sync.idx") >= 2, "{}", compiled.ptx);
        assert!(assemble(&compiled).is_none_or(|assembled| assembled.spill_bytes == 0));
    }
    // Nobody has shown that the offsets of these are what they would be without wrapping.
    let unproved = compiled(&masked().replace(" safe ", " unsafe "), Target::sm_90a(), 8, 3);
    assert_eq!(count(main_loop(&unproved.ptx), "// kept"), 0);
}

/// Rows and columns that wrap around instead of being masked are copied by 16 bytes too: the launch shows that what is
/// wrapped is not negative, and 16 divides what it is wrapped by.
#[test]
fn rows_and_columns_that_wrap_around_are_copied_ahead() {
    let wrapped = MATMUL
        .replace(" unsafe ", " safe ")
        .replace("%m1: i32[128, 1] = expand_dims %ms {axis = 1}", "%wm: i32[128] = splat %n\n  %mw: i32[128] = rem %ms, %wm\n  %m1: i32[128, 1] = expand_dims %mw {axis = 1}")
        .replace("%n1: i32[1, 128] = expand_dims %rn {axis = 0}", "%nw: i32[128] = add %rn, %m0s\n  %nx: i32[128] = rem %nw, %wm\n  %n1: i32[1, 128] = expand_dims %nx {axis = 0}");
    let whole = compiled(&wrapped, Target::sm_90a(), 8, 3);
    let inside = main_loop(&whole.ptx);
    assert_eq!(count(inside, "cp.async.cg.shared.global"), 8, "{}", whole.report());
    assert!(whole.report().to_string().contains("products stay in flight"), "{}", whole.report());
    // The columns of a matrix whose width may be anything are not together.
    let ragged = compiled(&wrapped.replace("%n n: i32 {div = 16}", "%n n: i32"), Target::sm_90a(), 8, 3);
    assert_eq!(count(main_loop(&ragged.ptx), "cp.async.cg.shared.global"), 4, "{}", ragged.report());
}

#[test]
fn ampere_products_run_with_one_barrier_per_iteration() {
    let compiled = compiled(MATMUL, Target::sm_80(), 8, 3);
    let inside = main_loop(&compiled.ptx);
    assert_eq!(count(inside, "bar.sync") + count(inside, "barrier.sync"), 1, "{}", compiled.ptx);
    assert_eq!(count(inside, "cp.async.cg.shared.global"), 8);
    assert!(count(inside, "ldmatrix") > 0 && count(inside, "st.shared") == 0);
    assert!(assemble(&compiled).is_none_or(|assembled| assembled.spill_bytes == 0));
}

#[test]
fn pipelining_can_be_switched_off() {
    let options =
        Options { num_warps: 8, disabled_passes: vec!["software_pipeline".to_string()], ..Options::default() };
    let compiled = compile(&kernel(MATMUL), &Target::sm_90a(), &options).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(count(&compiled.ptx, "cp.async"), 0);
    assert!(compiled.report().loops.is_empty());
}

/// A product of blocks of tensors, with factors that are copied by the hardware.
const TENSORS: &str = "kernel tensors \"tensors.rs\" unsafe bound {
  param %a a: desc f16[128, 64] {div = 16, stride_div = 8}
  param %b b: desc f16[64, 128] {div = 16, stride_div = 8}
  param %c c: ptr_mut f32 {div = 16}
  param %k k: i32 {div = 16}
  %zero: i32 = const 0
  %step: i32 = const 64
  %z: f32 = const 0.0
  %acc0: f32[128, 128] = splat %z
  %sum: f32[128, 128] = for %zero, %k, %step, %acc0 (%i: i32, %acc: f32[128, 128]) {
    %va: f16[128, 64] = desc_load %a, %zero, %i
    %vb: f16[64, 128] = desc_load %b, %i, %zero
    %d: f32[128, 128] = dot %va, %vb, %acc {precision = tf32}
    yield %d
  }
  %rm: i32[128] = arange {lo = 0, hi = 128}
  %m1: i32[128, 1] = expand_dims %rm {axis = 1}
  %n1: i32[1, 128] = expand_dims %rm {axis = 0}
  %w: i32 = const 128
  %ws: i32[128, 1] = splat %w
  %mw: i32[128, 1] = mul %m1, %ws
  %mb: i32[128, 128] = broadcast %mw
  %nb: i32[128, 128] = broadcast %n1
  %o: i32[128, 128] = add %mb, %nb
  %cs: *c[128, 128] = splat %c
  %cp: *c[128, 128] = add_ptr %cs, %o
  store %cp, %sum
  return
}";

#[test]
fn blocks_of_tensors_arrive_by_phases() {
    for stages in [2, 3, 4] {
        let compiled = compiled(TENSORS, Target::sm_90a(), 8, stages);
        let inside = main_loop(&compiled.ptx);
        assert_eq!(count(inside, "bar.sync") + count(inside, "barrier.sync"), 1, "{}", compiled.ptx);
        assert_eq!(count(inside, "mbarrier.try_wait"), 1);
        assert_eq!(count(inside, "mbarrier.arrive.expect_tx"), 1);
        assert_eq!(count(inside, "cp.async.bulk.tensor.2d"), 1 + 2, "the second factor has two boxes");
        // The slots, and the barriers before them; the conversion of the result takes the memory of the slots.
        assert_eq!(compiled.shared_bytes, 1024 + stages * 32 * 1024, "{}", compiled.report());
        assert!(assemble(&compiled).is_none_or(|assembled| assembled.spill_bytes == 0));
    }
}

#[test]
fn phases_run_on_over_the_tiles_of_a_persistent_kernel() {
    let text = TENSORS
        .replace("  %sum: f32", "  for %zero, %k, %step (%tile: i32) {\n  %sum: f32")
        .replace("%vb: f16[64, 128] = desc_load %b, %i, %zero", "%vb: f16[64, 128] = desc_load %b, %i, %tile")
        .replace("store %cp, %sum", "store %cp, %sum\nyield\n}");
    let compiled = compiled(&text, Target::sm_90a(), 8, 3);
    assert_eq!(count(&compiled.ptx, "mbarrier.init"), 3, "one per slot, made once");
    assert_eq!(count(&compiled.ptx, "mbarrier.try_wait"), 1);
    assert_eq!(count(&compiled.ptx, "wgmma.wait_group.sync.aligned 1"), 1);
    assert!(assemble(&compiled).is_none_or(|assembled| assembled.spill_bytes == 0));
}

/// Factors that change threads in the loop need shared memory beside the slots: fewer slots are taken then.
#[test]
fn slots_leave_room_for_conversions() {
    let text = MATMUL
        .replace("%rn: i32[128] = arange {lo = 0, hi = 128}", "%rn: i32[16] = arange {lo = 0, hi = 16}")
        .replace("%n1: i32[1, 128]", "%n1: i32[1, 16]")
        .replace("[64, 128]", "[64, 16]")
        .replace("[128, 128]", "[128, 16]")
        .replace("f16", "f64")
        .replace(": f32", ": f64")
        .replace("ptr_mut f32", "ptr_mut f64");
    for stages in [2, 3] {
        let compiled = compiled(&text, Target::sm_80(), 4, stages);
        assert!(compiled.shared_bytes <= 163 * 1024, "{}", compiled.report());
    }
}

/// A persistent product whose tiles go out through shared memory of their own, all the time.
#[test]
fn slots_leave_room_for_tiles_on_their_way_out() {
    let text = "kernel tiles \"tiles.rs\" unsafe bound {
      param %a a: desc f64[128, 32] {div = 16, len_div = 8, stride_div = 8}
      param %b b: desc f64[128, 32] {div = 16, len_div = 8, stride_div = 8}
      param %c c: desc_mut f64[128, 128] {div = 16, len_div = 8, stride_div = 8}
      param %k k: i32 {div = 16}
      param %tiles tiles: i32
      %zero: i32 = const 0
      %one: i32 = const 1
      %bm: i32 = const 128
      %step: i32 = const 32
      %z: f64 = const 0.0
      %acc0: f64[128, 128] = splat %z
      for %zero, %tiles, %one (%tile: i32) {
        %i: i32 = mul %tile, %bm
        %sum: f64[128, 128] = for %zero, %k, %step, %acc0 (%t: i32, %acc: f64[128, 128]) {
          %x: f64[128, 32] = desc_load %a, %i, %t
          %y: f64[128, 32] = desc_load %b, %zero, %t
          %w: f64[32, 128] = permute %y {perm = [1, 0]}
          %d: f64[128, 128] = dot %x, %w, %acc {precision = tf32}
          yield %d
        }
        desc_store %c, %sum, %i, %zero
        yield
      }
      return
    }";
    let compiled = compiled(text, Target::sm_90a(), 8, 3);
    assert!(compiled.shared_bytes <= 227 * 1024, "{}", compiled.report());
}

/// Tiles that change threads between the visits of the pipelined loop do so beside its slots.
#[test]
fn slots_leave_room_for_conversions_between_their_visits() {
    let begin = "%sum: f32[128, 64] = for";
    let text = MATMUL
        .replace("%rn: i32[128] = arange {lo = 0, hi = 128}", "%rn: i32[64] = arange {lo = 0, hi = 64}")
        .replace("%n1: i32[1, 128]", "%n1: i32[1, 64]")
        .replace("[64, 128]", "[64, 64]")
        .replace("[128, 128]", "[128, 64]")
        .replace("f16", "f32")
        .replace(begin, &format!("for %zero, %k, %step (%tile: i32) {{\n  {begin}"))
        .replace("store %cp, %sum\n", "store %cp, %sum\n  yield\n  }\n");
    for stages in [2, 3] {
        let compiled = compiled(&text, Target::sm_80(), 4, stages);
        assert!(compiled.shared_bytes <= 163 * 1024, "{}", compiled.report());
    }
}

/// Joined iterations are pipelined as one, which takes twice the memory, and the last ones follow without a pipeline.
#[test]
fn joined_iterations_are_pipelined_as_one() {
    let joined = MATMUL.replace("for %zero, %k, %step, %acc0 (", "for %zero, %k, %step, %acc0 {unroll = 2} (");
    for (target, products) in [(Target::sm_90a(), "wgmma.mma_async"), (Target::sm_80(), "mma.sync")] {
        let (once, twice) = (compiled(MATMUL, target, 8, 3), compiled(&joined, target, 8, 3));
        let (one, two) = (main_loop(&once.ptx), main_loop(&twice.ptx));
        for what in [products, "cp.async.cg.shared.global"] {
            assert_eq!(count(two, what), 2 * count(one, what), "{what}: {two}");
        }
        // Three stages of 64 KiB, or two where there is no room for them.
        let stages = if target == Target::sm_80() { 2 } else { 3 };
        assert_eq!(twice.shared_bytes, stages * 64 * 1024, "{}", twice.report());
        assert!(assemble(&twice).is_none_or(|assembled| assembled.spill_bytes == 0));
    }
}
