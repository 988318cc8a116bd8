//! The kernels of other suites.

use tilewright::prelude::*;

use super::Collector;

#[path = "../../codegen/attention_kernels.rs"]
mod attention;
#[path = "../../codegen/kernels.rs"]
mod codegen;
#[allow(dead_code, reason = "nothing is launched")]
#[path = "../../delays/kernels.rs"]
mod delays;
#[allow(dead_code, reason = "the suite compares them with others")]
#[path = "../../codegen/made_kernels.rs"]
mod made;
#[path = "../../codegen/pressed.rs"]
mod pressed;

use delays::{CONFIGS, Form, MOST_TRIPS, Matrices, Task};

/// Compiles all of them: those of the suite `codegen` for Hopper alone, as that does.
pub(super) fn compile(to: &mut Collector<'_>) {
    if to.target == Target::sm_90a() {
        for codegen::Sample { name, safe, unchecked, .. } in codegen::all() {
            to.add(&format!("codegen/{name}"), |_| Ok(safe));
            to.add(&format!("codegen/{name} unchecked"), |_| Ok(unchecked));
        }
        for (name, compiled) in attention::all().unwrap_or_else(|error| panic!("{error}")) {
            to.add(&format!("attention/{name}"), |_| Ok(compiled.ptx().to_string()));
        }
    }
    for (form, name) in (0..).zip(["before the loop", "in the loop", "by each program"]) {
        to.add(&format!("made tensors {name}"), |target| Ok(made::of_made(form, target, made::SIZE, 0)?.0));
    }
    for pressed::Sample { name, compiled } in pressed::products(to.target).into_iter().chain(pressed::rows(to.target)) {
        to.add(&format!("pressed/{name}"), |_| Ok(compiled.ptx().to_string()));
    }
    for form in [Form::Pointers, Form::Descriptors, Form::Persistent] {
        for config in CONFIGS {
            let delays::Config { bm, bn, bk, warps, stages } = config;
            for seed in [None, Some(1)] {
                let build = if seed.is_some() { " with delays" } else { "" };
                let name = format!("delays/{form:?} {bm}x{bn}x{bk} warps={warps} stages={stages}{build}");
                to.add(&name, |target| {
                    let device = Device::cpu();
                    let (m, n, depth) = (256, 256, MOST_TRIPS * bk);
                    let (a, b, c) = (device.zeros(m * depth)?, device.zeros(depth * n)?, device.zeros(m * n)?);
                    let mut matrices = Matrices { a, b, c, m, n, depth };
                    let compiled = delays::call(form, config, seed, &mut matrices, depth, Task::Compile(target))?;
                    Ok(compiled.map(|compiled| compiled.ptx().to_string()).unwrap_or_default())
                });
            }
        }
    }
}
