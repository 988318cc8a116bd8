//! Tensors that kernels make: the code is that of tensors that are passed, where the host can make them.

use tilewright::prelude::*;

use super::made_kernels::{SIZE, of_made, of_passed};

const LOAD: &str = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes";
const STORE: &str = "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group";
/// The instructions of a kernel, without its name, the numbers of registers and how parameters are read.
fn instructions(ptx: &str) -> Vec<String> {
    let body = ptx.lines().map(str::trim).filter(|line| line.ends_with(';') && !line.starts_with(".reg"));
    let body = body.filter(|line| !line.contains("param") && !line.starts_with("cvta") && !line.starts_with("mov.b64"));
    body.map(|line| line.split_whitespace().next().unwrap_or_default().to_string()).collect()
}

#[test]
fn tensors_that_the_host_makes_are_like_those_that_are_passed() -> Result<(), Error> {
    let want = of_passed()?;
    assert!(want.contains(LOAD) && want.contains(STORE) && want.contains("setmaxnreg"), "{want}");
    for form in [0, 1] {
        let (code, report) = of_made(form, Target::sm_90a(), SIZE, 0)?;
        assert_eq!(instructions(&code), instructions(&want), "{form}: {code}");
        for name in ["a", "b", "c"] {
            assert!(report.contains(&format!("tensor `{name}`: made by the host at each launch")), "{report}");
        }
    }
    Ok(())
}

#[test]
fn tensors_that_copies_cannot_use_are_accessed_by_threads() -> Result<(), Error> {
    for (columns, first) in [(SIZE - 4, 0), (SIZE, 1)] {
        let (code, report) = of_made(0, Target::sm_90a(), columns, first)?;
        assert!(!code.contains(LOAD), "{code}");
        assert!(report.contains("tensor `a`: made by the host at each launch"), "{report}");
    }
    let (code, _) = of_made(0, Target::sm_80(), SIZE, 0)?;
    assert!(!code.contains("cp.async.bulk"), "{code}");
    Ok(())
}

#[test]
fn what_depends_on_the_program_is_accessed_through_pointers() -> Result<(), Error> {
    let (code, report) = of_made(2, Target::sm_90a(), SIZE, 0)?;
    assert!(
        report.contains("tensor `b`: accessed through pointers: its shape is not known before the launch"),
        "{report}"
    );
    assert!(report.contains("tensor `a`: made by the host at each launch"), "{report}");
    assert!(code.contains(LOAD), "the other factor is copied: {code}");
    Ok(())
}
