//! Tuning where the driver's context breaks: on the model of the driver, which says what a GPU would.
#![cfg(all(jit, target_os = "linux"))]

#[allow(dead_code, reason = "shared with the tests of launches")]
#[path = "launch/kernels.rs"]
mod kernels;

use kernel_runtime::launch::{Constexprs, UnsafeCall};
use kernel_runtime::tune::{Ended, FailureKind, Space, Tuner, read_log};
use kernel_runtime::{Device, Result};
use kernels::{ADD, AddConsts, leak};
use tilewright_driver_model::{Settings, in_model, take_violations};

impl Constexprs for AddConsts {
    type Values = [i64; 1];

    const NAMES: &'static [&'static str] = &["BLOCK"];

    fn values(self) -> [i64; 1] {
        [self.BLOCK as i64]
    }

    fn from_values(values: &[i64]) -> Option<Self> {
        Some(AddConsts { BLOCK: usize::try_from(*values.first()?).ok()? })
    }
}

/// A kernel without checks that writes where nothing is takes the device with it, but not what is known so far.
#[test]
fn a_kernel_that_breaks_the_context_ends_the_search() -> Result<()> {
    if !in_model("a_kernel_that_breaks_the_context_ends_the_search", &Settings::default()) {
        return Ok(());
    }
    const N: usize = 64;
    const BREAKS: usize = 256;
    let source =
        kernel_runtime::launch::KernelSource { ir: Box::leak(ADD.ir.replace("safe g", "unsafe g").into()), ..ADD };
    let (kernel, device) = (leak(source), Device::cuda(0)?);
    let (x, mut out) = (device.zeros::<f32>(N)?, device.zeros::<f32>(N)?);
    let space = Space::new().constexpr(0, [64, BREAKS as i64]).starting_at(AddConsts { BLOCK: 64 });
    let outcome = Tuner::new(space).run(&device, |config, trial| {
        // Beyond the buffers.
        let n = if config.BLOCK == BREAKS { i32::MAX } else { N as i32 };
        let call = UnsafeCall::new(kernel, config.consts).dtype::<f32>().constant(config.BLOCK as i64);
        let call = call.ptr::<f32>(&x).ptr::<f32>(&x).ptr_mut::<f32>(&mut out).scalar(n);
        let programs = if config.BLOCK == BREAKS { 16 } else { N.div_ceil(config.BLOCK) };
        // SAFETY: the model looks at every access.
        unsafe { trial.launch_unchecked(call.grid(programs)) }
    })?;
    assert!(!take_violations().is_empty(), "the model has seen it");
    assert_eq!(outcome.ended, Ended::Lost);
    assert_eq!(outcome.best.BLOCK, 64, "{:?}", outcome.finalists);
    let last = outcome.tried.last().map(|tried| (tried.config.BLOCK, tried.result.as_ref().map_err(|why| why.kind)));
    assert_eq!(last, Some((BREAKS, Err(FailureKind::Lost))));
    let [warning] = &outcome.warnings[..] else { panic!("{:?}", outcome.warnings) };
    assert!(warning.contains("this is the best so far"), "{warning}");
    Ok(())
}

/// What was measured of other code, or code that another driver compiled, is measured again.
#[test]
fn trials_name_the_compiler_and_the_driver() -> Result<()> {
    if !in_model("trials_name_the_compiler_and_the_driver", &Settings::default()) {
        return Ok(());
    }
    const N: usize = 64;
    let path = std::env::temp_dir().join(format!("tilewright-trials-{}.jsonl", std::process::id()));
    for device in [Device::cpu(), Device::cuda(0)?] {
        let (x, mut out) = (device.zeros::<f32>(N)?, device.zeros::<f32>(N)?);
        let kernel = leak(ADD);
        Tuner::new(Space::<AddConsts>::new().constexpr(0, [64]))
            .log(&path)
            .run(&device, |config, trial| trial.launch(config.call(kernel, &x, &x, &mut out, N as i32).grid(1)))?;
    }
    let versions: Vec<String> = read_log(&path)?.into_iter().map(|record| record.subject.version).collect();
    std::fs::remove_file(&path).expect("a log");
    let [on_cpu, on_gpu] = &versions[..] else { panic!("{versions:?}") };
    let driver = on_gpu.strip_prefix(on_cpu).expect("the same compiler");
    assert!(driver.contains("driver ") && driver.contains("of CUDA "), "{driver}");
    assert!(on_cpu.len() > env!("CARGO_PKG_VERSION").len(), "{on_cpu} tells changed sources apart");
    Ok(())
}
