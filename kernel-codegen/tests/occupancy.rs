//! How much room for programs ptxas is asked to make, and what it makes of it.

mod support;

use kernel_codegen::{Compiled, Options, Target, compile, with_min_programs};
use support::{assemble_ptx, hopper, kernel};

const LAYER_NORM: &str = include_str!("kernels/layernorm_bf16.tile");

fn asked(text: &str, num_warps: u32) -> Option<u32> {
    let compiled = hopper(text, num_warps);
    let directive = compiled.min_programs.map(|programs| format!("\n.minnctapersm {programs}\n{{"));
    match directive {
        Some(directive) => assert!(compiled.ptx.contains(&directive), "{}", compiled.ptx),
        None => assert!(!compiled.ptx.contains(".minnctapersm"), "{}", compiled.ptx),
    }
    compiled.min_programs
}

#[test]
fn kernels_in_which_nothing_waits_ask_for_nothing() {
    for text in [include_str!("kernels/add.tile"), include_str!("kernels/gather.tile")] {
        assert_eq!([4, 32].map(|warps| asked(text, warps)), [None; 2]);
    }
}

#[test]
fn kernels_of_many_loads_and_plain_arithmetic_ask_for_registers_to_load_into() {
    let add = include_str!("kernels/add.tile");
    // 64 and 32 loaded registers per thread; with fewer, other programs hide the loads.
    assert_eq!([1, 2, 4].map(|warps| asked(add, warps)), [Some(25), Some(16), None]);
}

#[test]
fn loops_and_barriers_ask_for_1024_threads() {
    let waiting =
        [("a loop", include_str!("kernels/loops.tile")), ("a barrier", include_str!("kernels/transpose.tile"))];
    for (what, text) in waiting {
        assert_eq!([4, 8, 16].map(|warps| asked(text, warps)), [Some(8), Some(4), Some(2)], "{what}");
    }
}

/// Programs that wait for their rows together have 40 KB on their way, if what they keep of the rows fits the registers.
#[test]
fn short_rows_ask_for_more_programs() {
    // Rows of 2 KB, of 8 KB, for which five are asked for where they fit, and of 16 KB, for which it is three; in 8 warps
    // there is room for four beside what ptxas is given anyway.
    let row = |columns: &str| LAYER_NORM.replace("16384", columns);
    assert_eq!([4, 8].map(|warps| asked(&row("1024"), warps)), [Some(16), Some(8)]);
    assert_eq!([8, 16].map(|warps| asked(&row("4096"), warps)), [Some(5), Some(4)]);
    assert_eq!([8, 16].map(|warps| asked(&row("8192"), warps)), [Some(4), Some(3)]);
    // A row of 4 KB that all warps reduce, or rows that each have a warp.
    for text in [include_str!("kernels/layernorm.tile"), include_str!("kernels/rows.tile")] {
        assert_eq!([4, 8, 16].map(|warps| asked(text, warps)), [Some(10), Some(8), Some(4)]);
    }
}

/// Two programs of 1024 threads have 32 registers per thread, which are enough for tiles of few registers.
#[test]
fn programs_of_1024_threads_have_a_second_one_beside_them() {
    let row = include_str!("kernels/layernorm.tile").replace("1024", "8192");
    assert_eq!(asked(&row, 32), Some(2));
    let compiled = hopper(&row, 32);
    let Some(assembled) = assemble_ptx(&compiled.ptx, compiled.target) else { return };
    assert!(assembled.registers <= 32, "{assembled:?}");
    assert_eq!(assembled.spill_bytes, 0);
}

#[test]
fn no_more_programs_are_asked_for_than_fit() {
    let layer_norm = include_str!("kernels/layernorm.tile");
    // The room of a multiprocessor of each target.
    for (target, programs) in [(Target::sm_80(), 32), (Target::sm_89(), 24), (Target::sm_90a(), 32)] {
        let options = Options { num_warps: 1, ..Options::default() };
        let compiled = compile(&kernel(&layer_norm.replace("1024", "256")), &target, &options).expect("it compiles");
        assert_eq!(compiled.min_programs, Some(programs), "{}", target.name());
    }
    // A tile of 64 KiB in shared memory: a fourth would need more than the 228 KiB that there are.
    let transpose = include_str!("kernels/transpose.tile").replace("64", "128");
    assert_eq!((hopper(&transpose, 4).shared_bytes, asked(&transpose, 4)), (64 * 1024, Some(3)));
    // A row of 16, 32, 64 or 128 registers per thread.
    assert_eq!([32, 16, 8, 4].map(|warps| asked(LAYER_NORM, warps)), [Some(1), Some(2), Some(2), Some(3)]);
}

#[test]
fn a_row_of_16384_in_16_warps_leaves_room_for_two_programs() {
    let compiled = hopper(LAYER_NORM, 16);
    let Some(assembled) = assemble_ptx(&compiled.ptx, compiled.target) else { return };
    assert!(assembled.registers <= 64, "{assembled:?}");
    assert_eq!(assembled.spill_bytes, 0);
    // Left alone, ptxas takes more, and there is room for one.
    let alone = with_min_programs(&compiled.ptx, None);
    assert!(assemble_ptx(&alone, compiled.target).is_some_and(|assembled| assembled.registers > 64));
}

#[test]
fn the_directive_of_emitted_code_can_be_changed() {
    let texts = [
        include_str!("kernels/add.tile"),
        include_str!("kernels/softmax.tile"),
        include_str!("kernels/loops.tile"),
        include_str!("kernels/verdict.tile"),
    ];
    for target in Target::all() {
        for text in texts {
            let compiled = compile(&kernel(text), &target, &Options::default()).expect("it compiles");
            let directive = |count: u32| format!("\n.minnctapersm {count}\n{{\n");
            let (three, none) = (with_min_programs(&compiled.ptx, Some(3)), with_min_programs(&compiled.ptx, None));
            assert_eq!((three.matches(".minnctapersm").count(), three.matches(&directive(3)).count()), (1, 1));
            assert!(!none.contains(".minnctapersm"), "{none}");
            // There and back gives the same bytes.
            assert_eq!(with_min_programs(&none, compiled.min_programs), compiled.ptx);
            assert_eq!(with_min_programs(&three, compiled.min_programs), compiled.ptx);
            for ptx in [three, none] {
                assemble_ptx(&ptx, target);
            }
        }
    }
}

#[test]
fn alternatives_are_what_was_not_asked_for() {
    let of = |compiled: &Compiled| compiled.alternatives().map(|(programs, _)| programs).collect::<Vec<_>>();
    assert_eq!(of(&hopper(include_str!("kernels/add.tile"), 4)), [Some(1)]);
    assert_eq!(of(&hopper(LAYER_NORM, 16)), [None, Some(1)]);
    assert_eq!(of(&hopper(LAYER_NORM, 32)), [None]);
    for (programs, ptx) in hopper(LAYER_NORM, 16).alternatives() {
        assert_eq!(ptx.contains(".minnctapersm 1\n"), programs == Some(1));
    }
}
