//! What the report says, word for word.

mod support;

use kernel_codegen::report::ConversionKind;
use kernel_codegen::{Report, Usage};
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
