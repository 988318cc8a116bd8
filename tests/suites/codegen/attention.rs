//! What ptxas makes of attention.

use tilewright_tests::assembler::assemble;

use super::attention_kernels::all;

/// The lines of the placed loop that multiplies.
fn iteration(ir: &str) -> Vec<&str> {
    let lines: Vec<&str> = ir.lines().collect();
    let product = lines.iter().position(|line| line.contains("= wgmma ")).expect("a product");
    let first = lines[..product].iter().rposition(|line| line.contains("= for ")).expect("a loop");
    let depth = |line: &str| line.len() - line.trim_start().len();
    let end = lines[first + 1..].iter().position(|line| depth(line) == depth(lines[first])).expect("its end");
    lines[first..first + end + 1].to_vec()
}

/// Nothing spills, and no product is waited for by ptxas (`C75xx`).
#[test]
fn products_in_flight_stay_asynchronous_and_nothing_spills() {
    for (name, compiled) in all().unwrap_or_else(|error| panic!("{error}")) {
        let Some(assembled) = assemble(compiled.ptx(), "sm_90a") else { return };
        assert_eq!(assembled.spills, 0, "{name}: {}", assembled.log);
        assert!(!assembled.log.contains("C75"), "{name}: {}", assembled.log);
    }
}

/// Where an iteration waits, and for how many products, beside what it computes.
fn steps(name: &str) -> Vec<&'static str> {
    let steps = ["= wgmma ", "{pending = 0}", "{pending = 1}", "= exp2", "yield"];
    let all = all().unwrap_or_else(|error| panic!("{error}"));
    let (_, compiled) = all.iter().find(|(other, _)| *other == name).unwrap_or_else(|| panic!("no {name}"));
    let found = iteration(compiled.placed_ir());
    found.iter().filter_map(|line| steps.iter().find(|step| line.contains(*step)).copied()).collect()
}

#[test]
fn the_second_product_is_in_flight_until_the_sum_is_rescaled() {
    let steps = steps("forward_divided 128/128/128 causal false warps=8 stages=2");
    let once = ["= wgmma ", "{pending = 0}"];
    assert_eq!(steps.iter().filter(|step| step.contains("wgmma")).count(), 2);
    assert_eq!(steps.iter().filter(|step| step.contains("pending")).count(), 1, "{steps:?}");
    assert_eq!(steps[..2], once);
}

#[test]
fn products_that_do_not_depend_on_each_other_are_begun_together() {
    for name in
        ["skewed_divided 128/128/64 warps=8 stages=2", "rows_backward_divided 128/128/64 causal false warps=8 stages=2"]
    {
        assert_eq!(steps(name)[..3], ["= wgmma ", "= wgmma ", "{pending = 1}"], "{name}");
    }
}
