//! What the report says, word for word.

mod support;

use kernel_codegen::report::ConversionKind;
use kernel_codegen::{Options, Report, Target, Usage, compile_placed};
use kernel_core::ir::Placed;
use kernel_core::text::parse;
use support::hopper;

/// The report without its layouts, which are the matter of other tests.
fn lines(report: &Report) -> Vec<String> {
    let text = report.to_string();
    text.lines().filter(|line| !line.starts_with("  layout #")).map(str::to_string).collect()
}

#[test]
fn before_a_kernel_is_loaded() {
    let report = hopper(include_str!("kernels/softmax.tile"), 8).report();
    let expected = [
        "kernel softmax for sm_90a: 8 warps, 64 bytes of shared memory, 2 barriers",
        "  registers per thread: not known before a GPU has loaded the kernel; ptxas is asked for room for 4 programs",
        "  occupancy: 8 programs per multiprocessor, 64 of 64 warps, limited by threads (by shared memory 202, \
         programs 32)",
        "  softmax.rs: load `x`: 4 x 16 bytes per thread (4 elements each), masked, layout #0",
        "  softmax.rs: store `out`: 4 x 16 bytes per thread (4 elements each), masked, layout #0",
        "  no conversions between layouts",
    ];
    assert_eq!(lines(&report), expected, "{report}");
    assert!(report.to_string().contains("\n  layout #0: "), "{report}");
}

#[test]
fn once_the_driver_has_compiled_it() {
    let mut report = hopper(include_str!("kernels/softmax.tile"), 8).report();
    let usage = Usage { registers: 40, min_programs: Some(4), ..Usage::default() };
    report.usage = Some(usage.clone());
    let expected = [
        "  40 registers per thread, no spills; ptxas was asked for room for 4 programs",
        "  occupancy: 6 programs per multiprocessor, 48 of 64 warps, limited by registers (by shared memory 202, \
         threads 8, programs 32)",
    ];
    assert_eq!(lines(&report)[1..3], expected);

    let log = "ptxas info    : Used 255 registers\n\n".to_string();
    report.usage = Some(Usage { registers: 255, local_bytes: 416, min_programs: None, log, ..usage });
    let expected = [
        "  255 registers per thread, 416 bytes of them spilled to memory; asked for room for 4 programs, ptxas spilled \
         more",
        "  occupancy: 1 program per multiprocessor, 8 of 64 warps, limited by registers (by shared memory 202, \
         threads 8, programs 32)",
    ];
    assert_eq!(lines(&report)[1..3], expected);
    assert_eq!(lines(&report).last().map(String::as_str), Some("  driver: ptxas info    : Used 255 registers"));
}

#[test]
fn a_kernel_without_directive_says_nothing_of_it() {
    let mut report = hopper(include_str!("kernels/add.tile"), 4).report();
    assert_eq!(lines(&report)[1], "  registers per thread: not known before a GPU has loaded the kernel");
    report.usage = Some(Usage { registers: 24, ..Usage::default() });
    assert_eq!(lines(&report)[1], "  24 registers per thread, no spills");
    report.usage = Some(Usage { registers: 255, local_bytes: 8, min_programs: Some(1), ..Usage::default() });
    let line = "  255 registers per thread, 8 bytes of them spilled to memory; ptxas was asked for room for 1 program";
    assert_eq!(lines(&report)[1], line);
}

#[test]
fn conversions_say_which_way_they_go_and_what_it_costs() {
    let mut report = hopper(include_str!("kernels/transpose.tile"), 4).report();
    let conversion =
        |report: &Report| lines(report).into_iter().find(|line| line.contains("conversion")).unwrap_or_default();
    let free = "  transpose.rs: conversion from #1 to #0 through 16384 bytes of shared memory, without bank conflicts";
    assert_eq!(conversion(&report), free);
    report.conversions[0].kind = ConversionKind::Shared { bytes: 64, store_conflicts: 0, load_conflicts: 3 };
    let dear = "  transpose.rs: conversion from #1 to #0 through 64 bytes of shared memory, bank conflicts: 0 extra \
                wavefronts per store, 3 per load";
    assert_eq!(conversion(&report), dear);
    report.conversions[0].kind = ConversionKind::Shuffles(4);
    assert_eq!(conversion(&report), "  transpose.rs: conversion from #1 to #0 with 4 shuffles");
    report.conversions[0].kind = ConversionKind::Registers;
    assert_eq!(conversion(&report), "  transpose.rs: conversion from #1 to #0 in registers");
}

/// Rows of 32 words in shared memory, of which each column is one bank. Threads write pieces of rows, four words at once, and
/// read pieces of columns, word by word.
const CROSSED: &str = r#"
kernel crossed "crossed.rs" unsafe placed {
  param %p p: ptr_mut f32
  layout #0 = register [0, 1] [0, 2] [0, 4], lane [0, 8] [0, 16] [1, 0] [2, 0] [4, 0], warp [8, 0] [16, 0] -> dim0 32, dim1 32
  layout #1 = register [1, 0] [2, 0] [4, 0], lane [8, 0] [16, 0] [0, 1] [0, 2] [0, 4], warp [0, 8] [0, 16] -> dim0 32, dim1 32
  layout #2 = offset [0, 1] [0, 2] [0, 4] [0, 8] [0, 16] [1, 0] [2, 0] [4, 0] [8, 0] [16, 0] -> dim0 32, dim1 32
  %x: f32 = const 1.0
  %a: f32[32, 32] #0 = splat %x
  %v: shared f32[32, 32] #2 = shared_alloc
  shared_store %v, %a @7:3+5
  barrier
  %b: f32[32, 32] #1 = shared_load %v @8:3+5
  %q: *p[32, 32] #1 = splat %p
  store %q, %b
  return
}
"#;

/// Of a store, a quarter of a warp writes 32 words in two rows of half of the banks: each bank is wanted twice. Of a load, the
/// lanes read eight columns of four rows: each bank is wanted four times.
#[test]
fn lanes_that_meet_in_a_bank_are_counted() {
    let func = parse(CROSSED).unwrap_or_else(|error| panic!("{error}"));
    let placed = Placed::new(func).expect("it is placed");
    let report = compile_placed(&placed, &Target::sm_90a(), &Options::default()).expect("it compiles").report();
    let seen: Vec<_> = report
        .shared
        .iter()
        .map(|one| (one.span.line, one.what, one.instructions, one.bytes, one.by_matrices, one.conflicts))
        .collect();
    assert_eq!(seen, [(7, "shared_store", 2, 16, false, 1), (8, "shared_load", 8, 4, false, 3)]);
}

/// The partial results of warps: one word of each, then those of all at once.
#[test]
fn reductions_pass_words_without_conflicts() {
    let report = hopper(include_str!("kernels/softmax.tile"), 8).report();
    let seen: Vec<_> = report.shared.iter().map(|one| (one.what, one.bytes, one.conflicts)).collect();
    let reduction = [("reduce, writes", 4, 0), ("reduce, reads", 16, 0)];
    assert_eq!(seen, [reduction, reduction].concat());
}
