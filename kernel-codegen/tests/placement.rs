//! Layouts: which conversions remain, how wide accesses are, where barriers stand.

mod support;

use kernel_codegen::report::ConversionKind;
use kernel_codegen::{CodegenError, Compiled, Options, Target, compile};
use support::{assemble, count, hopper, kernel};

const ADD: &str = include_str!("kernels/add.tile");
const SOFTMAX: &str = include_str!("kernels/softmax.tile");
const ROWS: &str = include_str!("kernels/rows.tile");
const BIAS: &str = include_str!("kernels/bias.tile");
const TRANSPOSE: &str = include_str!("kernels/transpose.tile");

fn registers(compiled: &Compiled) -> Option<u32> {
    let assembled = assemble(compiled)?;
    assert_eq!(assembled.spill_bytes, 0);
    Some(assembled.registers)
}

#[test]
fn vector_add_is_four_vector_loads_and_two_vector_stores_without_a_branch() {
    let compiled = hopper(ADD, 4);
    assert_eq!(count(&compiled.ptx, "ld.global.nc.v4.b32"), 4, "{}", compiled.ptx);
    assert_eq!(count(&compiled.ptx, "ld.global"), 4);
    assert_eq!(count(&compiled.ptx, "st.global.v4.b32"), 2);
    assert_eq!(count(&compiled.ptx, "st.global"), 2);
    assert_eq!(count(&compiled.ptx, "setp"), 2, "one comparison per vector");
    assert_eq!(count(&compiled.ptx, "bra"), 0);
    // 24 values, and addresses.
    assert!(registers(&compiled).is_none_or(|registers| registers <= 32));
}

#[test]
fn without_alignment_facts_accesses_are_narrow() {
    let compiled = hopper(&ADD.replace("{div = 16, len_div = 16}", "").replace("{div = 16}", ""), 4);
    assert_eq!(count(&compiled.ptx, "v4"), 0, "{}", compiled.ptx);
    assert_eq!(count(&compiled.ptx, "ld.global.nc.b32"), 16);
}

/// Each warp accesses 512 consecutive bytes, by vectors or without, before the next one follows; 16-bit elements that
/// are no vectors are left where they were.
#[test]
fn warps_have_whole_runs_of_elements() {
    let unaligned = ADD.replace("{div = 16, len_div = 16}", "").replace("{div = 16}", "");
    let halves = unaligned.replace("f32", "f16");
    for (text, layout) in [
        (ADD, "register: [1] [2] [512]; lane: [4] [8] [16] [32] [64]; warp: [128] [256] -> (dim0:1024)"),
        (&unaligned, "register: [32] [64] [512]; lane: [1] [2] [4] [8] [16]; warp: [128] [256] -> (dim0:1024)"),
        (&halves, "register: [128] [256] [512]; lane: [1] [2] [4] [8] [16]; warp: [32] [64] -> (dim0:1024)"),
    ] {
        let report = hopper(text, 4).report().to_string();
        assert!(report.contains(layout), "{report}");
    }
}

#[test]
fn softmax_loads_everything_first_and_meets_twice() {
    let compiled = hopper(SOFTMAX, 8);
    assert_eq!(compiled.report().conversions, []);
    assert_eq!(count(&compiled.ptx, "ld.global.nc.v4.b32"), 4);
    let last_load = compiled.ptx.rfind("ld.global.nc").expect("loads");
    let first_use = compiled.ptx.find("max.f32").expect("a reduction");
    assert!(last_load < first_use, "{}", compiled.ptx);
    assert_eq!(count(&compiled.ptx, "bar.sync"), 2, "one per reduction");
    assert_eq!(count(&compiled.ptx, "shfl.sync.bfly"), 10);
    assert_eq!(count(&compiled.ptx, "ld.shared.v4.b32"), 4, "partial results of eight warps, twice");
    assert_eq!(count(&compiled.ptx, "bra"), 0);
}

#[test]
fn rows_that_fit_a_warp_need_no_shared_memory() {
    let compiled = hopper(ROWS, 4);
    assert_eq!((compiled.report().conversions.len(), compiled.shared_bytes), (0, 0), "{}", compiled.report());
    assert_eq!(count(&compiled.ptx, "bar.sync"), 0);
    assert_eq!(count(&compiled.ptx, "ld.global.nc.v4.b32"), 2, "eight halves each");
    assert_eq!(count(&compiled.ptx, "st.global.v4.b32"), 2);
}

#[test]
fn a_broadcast_row_is_loaded_where_it_is_used() {
    let compiled = hopper(BIAS, 4);
    assert_eq!(compiled.report().conversions, [], "{}", compiled.report());
}

#[test]
fn a_transpose_goes_once_through_shared_memory_without_bank_conflicts() {
    let compiled = hopper(TRANSPOSE, 4);
    let report = compiled.report();
    let kinds: Vec<&ConversionKind> = report.conversions.iter().map(|conversion| &conversion.kind).collect();
    let expected = ConversionKind::Shared { bytes: 64 * 64 * 4, store_conflicts: 0, load_conflicts: 0 };
    assert_eq!(kinds, [&expected]);
    assert_eq!(compiled.shared_bytes, 64 * 64 * 4);
    assert_eq!(count(&compiled.ptx, "bar.sync"), 1);
    assert_eq!(count(&compiled.ptx, "ld.global.nc.v4.b32"), 8);
    assert_eq!(count(&compiled.ptx, "st.global.v4.b32"), 8);
}

#[test]
fn a_barrier_stands_where_lanes_exchange_through_memory_and_nowhere_else() {
    let compiled = hopper(include_str!("kernels/inplace.tile"), 4);
    // Between reading neighbours and overwriting them; what follows stays in each thread.
    assert_eq!(count(&compiled.ptx, "bar.sync"), 1, "{}", compiled.ptx);
    let one_warp = hopper(include_str!("kernels/inplace.tile"), 1);
    assert_eq!(count(&one_warp.ptx, "bar.sync"), 0);
    assert_eq!(count(&one_warp.ptx, "bar.warp.sync"), 1);
}

#[test]
fn pieces_of_a_row_stay_in_their_threads_wherever_the_row_starts() {
    let compiled = hopper(include_str!("kernels/pieces.tile"), 4);
    assert_eq!(count(&compiled.ptx, "bar.sync"), 0, "{}", compiled.ptx);
    // Its neighbour's element, and a row that moves from iteration to iteration.
    let shifted = hopper(include_str!("kernels/shift.tile"), 4);
    assert!(count(&shifted.ptx, "bar.sync") > 1, "{}", shifted.ptx);
    let text = include_str!("kernels/pieces.tile").replace("splat %base", "splat %moving");
    let moving = "    %iteration: i32 = div %k, %step\n    %moving: i32 = mul %iteration, %n\n    %ks: i32[512]";
    let moving = hopper(&text.replace("    %ks: i32[512]", moving), 4);
    assert!(count(&moving.ptx, "bar.sync") >= 1, "{}", moving.ptx);
}

#[test]
fn only_the_last_iteration_of_a_loop_has_masks() {
    let text = include_str!("kernels/pieces.tile");
    let masked =
        |ptx: &str| ptx.lines().filter(|line| line.trim_start().starts_with("@%") && line.contains(".global")).count();
    let compiled = hopper(text, 4);
    let placed = compiled.placed_ir();
    assert_eq!(placed.lines().filter(|line| line.trim_start().starts_with("for ")).count(), 2, "{placed}");
    // Four loads and four stores; the others, of iterations that are joined, have none.
    assert_eq!(masked(&compiled.ptx), 8, "{}", compiled.ptx);
    assert!(count(&compiled.ptx, "ld.global") >= 8);
    let masks = |text: &str| masked(&hopper(text, 4).ptx);
    // Where a mask ends somewhere else, the step is longer than the piece, or the loop starts below zero, it stays.
    let other_end = text.replace("%ns: i32[512] = splat %n", "%ns: i32[512] = splat %row");
    assert!(masks(&other_end) == count(&hopper(&other_end, 4).ptx, ".global.b32"));
    let short_steps = text.replace("const 512", "const 511");
    assert!(masks(&short_steps) == count(&hopper(&short_steps, 4).ptx, ".global.b32"));
    let below_zero = text.replace("%zero: i32 = const 0", "%zero: i32 = const -512");
    assert!(masks(&below_zero) == count(&hopper(&below_zero, 4).ptx, ".global.b32"));

    let options = Options { disabled_passes: vec!["peel_masked_tail".to_string()], ..Options::default() };
    let plain = compile(&kernel(text), &Target::sm_90a(), &options).expect("it compiles");
    assert_eq!(masked(&plain.ptx), count(&plain.ptx, "ld.global") + count(&plain.ptx, "st.global"));
}

#[test]
fn a_loop_over_rows_has_a_barrier_per_reduction() {
    let text = include_str!("kernels/persistent.tile");
    let compiled = hopper(text, 4);
    assert_eq!(count(&compiled.ptx, "bar.sync"), 2, "{}", compiled.ptx);
    assert_eq!(count(&compiled.ptx, "ld.global.nc.v2.b32"), 1, "{}", compiled.ptx);
    assert_eq!(count(&compiled.ptx, "st.global.v2.b32"), 1);
    // One reduction alone takes turns with itself, which takes a second barrier.
    let one = text.replace("splat %sum", "splat %max");
    assert_eq!(count(&hopper(&one, 4).ptx, "bar.sync"), 2);
}

#[test]
fn the_report_names_every_access() {
    let text = hopper(ADD, 4).report().to_string();
    assert!(text.contains("load `x`: 2 x 16 bytes per thread (4 elements each), masked, decided at launch"), "{text}");
    assert!(text.contains("store `out`: 2 x 16 bytes per thread"), "{text}");
}

fn refusal(text: &str, options: &Options) -> String {
    match compile(&kernel(text), &Target::sm_90a(), options) {
        Err(CodegenError::Refused(refusal)) => refusal.to_string(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it compiles"),
    }
}

#[test]
fn places_in_other_files_are_named_by_them() {
    let text = ADD.replace("safe bound {", "safe bound {\n  file f1 = \"dep/src/lib.rs\"");
    let inlined = text.replace("load %xp, %mask", "load %xp, %mask @f1:7:9+4");
    assert_ne!(inlined, text);
    let report = hopper(&inlined, 4).report().to_string();
    assert!(report.contains("dep/src/lib.rs:7:9: load `x`"), "{report}");
    assert!(report.contains("add.rs: load `y`"), "{report}");
    let large: String = text.replace("1024", "524288").lines().fold(String::new(), |text, line| {
        let place = if line.starts_with("  %") { " @f1:3:5+6" } else { "" };
        format!("{text}{line}{place}\n")
    });
    let refused = refusal(&large, &Options { num_warps: 1, ..Options::default() });
    assert!(refused.contains("at dep/src/lib.rs:3:5"), "{refused}");
}

#[test]
fn what_cannot_be_compiled_is_refused_with_a_reason() {
    let three = refusal(ADD, &Options { num_warps: 3, ..Options::default() });
    assert!(three.contains("a program of 3 warps") && three.contains("power of two from 1 to 32"), "{three}");
    let many = refusal(ADD, &Options { num_warps: 64, ..Options::default() });
    assert!(many.contains("64 needed, 32 allowed"), "{many}");
    let huge = refusal(&ADD.replace("1024", "524288"), &Options { num_warps: 1, ..Options::default() });
    assert!(huge.contains("elements in a tile of 1 warp ") && huge.contains("or use 16 warps"), "{huge}");
    let endless = refusal(&ADD.replace("1024", "1048576"), &Options { num_warps: 16, ..Options::default() });
    assert!(endless.contains("or use 32 warps"), "{endless}");
    let wide = TRANSPOSE.replace("64", "256");
    let shared = refusal(&wide, &Options { num_warps: 8, ..Options::default() });
    assert!(shared.contains("262144 needed, 232448 allowed"), "{shared}");
}

#[test]
fn loads_of_constant_memory_are_issued_before_the_first_reduction() {
    let text = include_str!("kernels/layernorm.tile");
    let compiled = hopper(text, 4);
    let last_load = compiled.ptx.rfind("ld.global.nc").expect("loads");
    assert!(last_load < compiled.ptx.find("shfl.sync").expect("a reduction"), "{}", compiled.ptx);
    let disabled_passes = vec!["hoist_loads".to_string()];
    let options = Options { disabled_passes, ..Options::default() };
    let plain = compile(&kernel(text), &Target::sm_90a(), &options).expect("it compiles");
    assert!(plain.ptx.rfind("ld.global.nc") > plain.ptx.find("shfl.sync"));
}

#[test]
fn pointers_that_walk_stay_aligned() {
    let compiled = hopper(include_str!("kernels/walk.tile"), 4);
    let vectors = count(&compiled.ptx, "ld.global.nc.v4.b32");
    assert_eq!(vectors, count(&compiled.ptx, "ld.global"), "{}", compiled.ptx);
    assert_eq!(compiled.report().conversions, []);
    // Two iterations of the loop issue their loads together, and one is left over where their number is odd.
    assert_eq!(vectors, 2 * (2 + 1), "{}", compiled.ptx);
}

#[test]
fn a_ragged_mask_asks_for_no_vectors() {
    // The weights are aligned, but a mask that may end anywhere takes their elements one by one: then neighbouring
    // lanes must hold neighbouring elements, of the rows too.
    let compiled = hopper(&include_str!("kernels/layernorm.tile").replace("{div = 16}", ""), 4);
    assert_eq!(count(&compiled.ptx, "ld.global.nc.v"), 0, "{}", compiled.ptx);
    let layouts = compiled.placed_ir();
    assert!(layouts.contains("lane [1] [2] [4] [8] [16]"), "{layouts}");
}

#[test]
fn a_small_transpose_is_read_in_half_sectors_rather_than_converted() {
    let compiled = hopper(&TRANSPOSE.replace("64", "32"), 8);
    assert_eq!(compiled.report().conversions, [], "{}", compiled.report());
    assert_eq!(count(&compiled.ptx, "ld.global.nc.b32"), 4);
    assert_eq!(count(&compiled.ptx, "st.global.v4.b32"), 1);
    // Bytes would leave seven eighths of each sector unused.
    let bytes = TRANSPOSE.replace("64", "32").replace("f32", "u8");
    let compiled = hopper(&bytes, 8);
    assert_eq!(compiled.report().conversions.len(), 1, "{}", compiled.report());
}
