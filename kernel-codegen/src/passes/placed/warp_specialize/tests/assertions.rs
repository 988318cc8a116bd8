//! Assertions of divided kernels, and prints, which keep a kernel in one piece.

use kernel_core::edit::ops_in_order;
use kernel_core::interp::Fault;
use kernel_core::ir::{ControlOp, Op, OpId};
use kernel_core::text::parse;

use super::super::{Specialize, run};
use super::{Kernel, Mark, PLAIN, Sizes, WIDE, launch, verified};
use crate::{Options, Target};

/// An assertion that stands before everything else ends all warps of the program, or none.
#[test]
fn assertions_are_made_before_the_sides_part() {
    let limit = 3;
    let assertion = format!(
        "%limit: i32 = const {limit}\n%twice: i32 = add %first, %first\n%is: bool = cmp.lt %twice, %limit\n\
         assert %is {{message = \"x\"}}\nfor %first"
    );
    for (case, kernel) in [PLAIN, WIDE, Kernel { mark: Mark::Outer, ..PLAIN }].into_iter().enumerate() {
        let text = kernel.text().replacen("for %first", &assertion, 1);
        let undivided = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let mut func = undivided.clone();
        let options = Options { num_stages: kernel.stages, num_warps: kernel.warps(), ..Options::default() };
        let (divided, loops) = run(&mut func, Target::sm_90a(), &options, Specialize::IfProfitable)
            .unwrap_or_else(|error| panic!("{error}"));
        verified(&func);
        assert!(divided, "{loops:?}");
        let is_assert = |id: &&OpId| matches!(func.op(**id).op, Op::Control(ControlOp::Assert { .. }));
        let all = ops_in_order(&func);
        let outside = &func.region(func.body).ops;
        assert_eq!((all.iter().filter(is_assert).count(), outside.iter().filter(is_assert).count()), (1, 1));
        // The first two programs are within the limit.
        for programs in [1, 2, 3, 5] {
            let sizes = Sizes { rows: 3, columns: 2, iterations: 4, programs };
            let (want, before) = launch(&undivided, sizes);
            let (got, after) = launch(&func, sizes);
            let failed =
                |result: &Result<(), Fault>| result.as_ref().err().map(|fault| (fault.program_id, fault.kind.clone()));
            assert_eq!(failed(&before), failed(&after), "{case} {programs}");
            assert_eq!(before.is_err(), programs > 2);
            assert_eq!(want, got, "{case} {programs}: what other programs do");
        }
    }
}

/// What becomes of a kernel that nothing else keeps in one piece.
fn refusal(text: &str, options: &Options) -> Vec<String> {
    let mut func = parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let options = Options { num_stages: PLAIN.stages, num_warps: PLAIN.warps(), ..options.clone() };
    let (divided, loops) =
        run(&mut func, Target::sm_90a(), &options, Specialize::IfProfitable).unwrap_or_else(|error| panic!("{error}"));
    assert!(!divided, "{loops:?}");
    loops.into_iter().map(|report| report.what).collect()
}

#[test]
fn kernels_that_print_are_not_divided() {
    let text = Kernel { mark: Mark::Outer, ..PLAIN }.text();
    let text = text.replacen("for %first", "print %first {text = \"{}\"}\nfor %first", 1);
    let expected = "not specialised: the kernel prints, which both sides would do";
    assert_eq!(refusal(&text, &Options::default()), [expected]);
}

#[test]
fn kernels_with_a_limit_of_registers_are_not_divided() {
    let options = Options { max_registers: Some(128), ..Options::default() };
    let found = refusal(&Kernel { mark: Mark::Outer, ..PLAIN }.text(), &options);
    assert!(found.len() == 1 && found[0].contains("`max_registers` is given"), "{found:?}");
}
