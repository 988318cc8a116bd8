//! Counters and samples on the model of the driver, by a model of CUPTI.
#![cfg(target_os = "linux")]

#[path = "../launch/kernels.rs"]
#[allow(dead_code)]
mod kernels;

use kernel_runtime::launch::Kernel;
use kernel_runtime::profile::{self, COUNTERS, Source};
use kernel_runtime::{Buffer, Device, Error, Result};
use kernels::{ADD, AddConsts, leak};
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use tilewright_driver_model::{Settings, in_model, take_violations};

/// Compiles the model of CUPTI into the folder where this process looks for libraries first; `false`, and a word about it,
/// where there is no rustc.
fn has_cupti(cfg: Option<&str>) -> bool {
    let paths = std::env::var("LD_LIBRARY_PATH").expect("the folder of the model of the driver");
    let folder = Path::new(paths.split(':').next().expect("a folder"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/profile/cupti.rs");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut command = Command::new(&rustc);
    command.args(["--edition=2024", "--crate-type=cdylib", "--crate-name=cupti", "-Cpanic=abort", "-o"]);
    command
        .arg(folder.join("libcupti.so"))
        .arg(source)
        .arg("--check-cfg=cfg(refuses, old, starts_nothing, is_full, collects)");
    let output = match command.args(cfg.map(|cfg| format!("--cfg={cfg}"))).output() {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            eprintln!("skipped: there is no {} to compile a model of CUPTI with", rustc.display());
            return false;
        }
        Err(error) => panic!("{}: {error}", rustc.display()),
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    true
}

fn add(device: &Device, out: &mut Buffer<f32>, grid: usize) -> Result<()> {
    static KERNEL: OnceLock<&Kernel> = OnceLock::new();
    let x = device.full(out.len(), 1.0f32)?;
    let n = out.len() as i32;
    AddConsts { BLOCK: 64 }.call(KERNEL.get_or_init(|| leak(ADD)), &x, &x, out, n).grid(grid).launch(device)
}

#[test]
fn launches_are_counted_one_by_one() -> Result<()> {
    if !in_model("launches_are_counted_one_by_one", &Settings::default()) || !has_cupti(None) {
        return Ok(());
    }
    let device = Device::cuda(0)?;
    let mut out = device.zeros::<f32>(256)?;
    let names = ["fbpa__dram_read_bytes.sum", "other__things.sum"];
    let ((), profile) = profile::counters(&device, &names, || {
        add(&device, &mut out, 4)?;
        add(&device, &mut out, 0)?;
        add(&device, &mut out, 4)
    })?;
    assert_eq!(profile.source, Source::Counters { version: 130_001, passes: 3 });
    let counted: Vec<&[f64]> = profile.kernels.iter().map(|run| &run.counters[..]).collect();
    // What launches nothing is not in a profile, though somebody counts meanwhile.
    assert_eq!(counted, [[11.0, 21.0], [13.0, 23.0]]);
    assert!(profile.kernels.iter().all(|run| run.name == "add" && run.ns() == 1500));
    let code = profile.kernels[0].code.expect("one variant was loaded of each kernel");
    assert!(code.threads >= 32, "{code:?}");
    assert_eq!((&profile.counters[..], out.to_vec()?), (&names.map(String::from)[..], vec![2.0; 256]));
    assert!(profile.to_string().contains("read MB  other__things.sum"), "{profile}");

    // Times are counted anyway, and once.
    let ((), timed) =
        profile::counters(&device, &[names[0], "gpu__time_duration.sum", names[1]], || add(&device, &mut out, 4))?;
    let [read, time, things] = timed.kernels[0].counters[..] else { panic!("{timed}") };
    assert_eq!((time, things - read, timed.kernels[0].ns()), (1500.0, 10.0, 1500));

    // A counter that there is not is named; and whatever went wrong before, the next profile can be made.
    let error =
        profile::counters(&device, &[names[0], "nonsense"], || -> Result<()> { panic!("it runs") }).unwrap_err();
    assert!(error.to_string().contains("GA100 does not count `nonsense`;"), "{error}");
    let failed = profile::counters(&device, &names, || {
        add(&device, &mut device.zeros(16)?, 4).map(|()| device.zeros::<f32>(1 << 40))
    });
    assert!(failed.is_ok_and(|(inner, _)| inner.is_err()), "errors of the work are the work's");
    profile::counters(&device, &names, || add(&device, &mut out, 4))?;
    assert_eq!(take_violations(), Vec::<String>::new());
    Ok(())
}

#[test]
fn samples_are_taken_until_there_are_no_more() -> Result<()> {
    if !in_model("samples_are_taken_until_there_are_no_more", &Settings::default()) || !has_cupti(None) {
        return Ok(());
    }
    let device = Device::cuda(0)?;
    let mut out = device.zeros::<f32>(256)?;
    let ((), profile) = profile::samples(&device, || add(&device, &mut out, 4))?;
    let samples = profile.samples.as_ref().expect("samples");
    let found: Vec<_> =
        samples.lines.iter().map(|at| (at.kernel.as_str(), at.file.as_str(), at.line, at.samples)).collect();
    assert_eq!(found, [("add", "src/add.rs", 6, 8), ("add", "src/add.rs", 7, 5)]);
    assert!(samples.lines[0].text.starts_with("let sum = load(x + offsets"), "{samples}");
    assert_eq!(samples.lines[0].main_stall(), Some(("long_scoreboard", 7)));
    assert_eq!(samples.lines[1].main_stall(), None, "it always went on");
    assert!(matches!(profile.source, Source::Events { .. }) && profile.kernels.len() == 1, "{profile}");
    profile::samples(&device, || add(&device, &mut out, 4))?;
    Ok(())
}

/// What there was room for is shown, and the work's result is not lost.
#[test]
fn samples_without_room_are_those_before() -> Result<()> {
    if in_model("samples_without_room_are_those_before", &Settings::default()) && has_cupti(Some("is_full")) {
        let device = Device::cuda(0)?;
        let mut out = device.zeros::<f32>(256)?;
        let (result, profile) = profile::samples(&device, || add(&device, &mut out, 4).map(|()| 7))?;
        let samples = profile.samples.as_ref().expect("samples");
        // Five at first, and one that came last.
        assert_eq!((result, samples.total(), samples.is_full), (7, 6, true));
        assert!(samples.to_string().contains("no room for all samples"), "{samples}");
    }
    Ok(())
}

/// CUPTI writes where it was told to until it is disabled, also if samples are not taken after all.
#[test]
fn samples_that_do_not_begin_are_an_error() -> Result<()> {
    if in_model("samples_that_do_not_begin_are_an_error", &Settings::default()) && has_cupti(Some("starts_nothing")) {
        let device = Device::cuda(0)?;
        for _ in 0..2 {
            let error = profile::samples(&device, || -> Result<()> { panic!("nothing runs") }).unwrap_err().to_string();
            assert!(error.contains("cuptiPCSamplingStart: CUPTI_ERROR_INVALID_OPERATION"), "{error}");
        }
    }
    Ok(())
}

/// A profile without CUPTI's times leaves nothing enabled behind, which the model looks at when the next one begins.
#[test]
fn collecting_that_does_not_begin_ends() -> Result<()> {
    if in_model("collecting_that_does_not_begin_ends", &Settings::default()) && has_cupti(Some("collects")) {
        let device = Device::cuda(0)?;
        for _ in 0..2 {
            let ((), profile) = kernel_runtime::profile(&device, || Ok(()))?;
            assert!(
                matches!(&profile.source, Source::Events { why } if why.contains("cuptiGetContextId")),
                "{profile}"
            );
        }
    }
    Ok(())
}

/// A thread makes profiles, in which kernels are launched, fail or panic.
fn make_profiles(device: &Device) -> Result<()> {
    let mut out = device.zeros::<f32>(256)?;
    let mut round = 0;
    while round < 16 {
        let work = || match round % 4 {
            0 | 1 => add(device, &mut out, 4),
            2 => Err(Error::Llvm { message: "the work fails".into() }),
            _ => panic!("the work panics"),
        };
        let made = catch_unwind(AssertUnwindSafe(|| match round % 8 {
            0..4 => profile::samples(device, work),
            _ => profile::counters(device, COUNTERS, work),
        }));
        match made {
            Ok(Err(error)) if error.to_string().contains("another one is made") => {
                std::thread::yield_now();
                continue;
            }
            Ok(Err(error)) => assert!(round % 4 == 2 && error.to_string().contains("the work fails"), "{error}"),
            Ok(Ok(_)) => assert!(round % 4 < 2, "it fails"),
            Err(_) => assert_eq!(round % 4, 3),
        }
        round += 1;
    }
    Ok(())
}

/// CUPTI has done all for one profile before the next one begins, of whatever thread, and however it ends.
#[test]
fn profiles_of_two_threads_never_meet() -> Result<()> {
    if in_model("profiles_of_two_threads_never_meet", &Settings::default()) && has_cupti(None) {
        let device = Device::cuda(0)?;
        return std::thread::scope(|scope| {
            let other = scope.spawn(|| make_profiles(&device));
            make_profiles(&device).and(other.join().expect("no panic"))
        });
    }
    Ok(())
}

/// Nothing runs, and the next profile can be made.
fn check_refusals(device: &Device, what: &[&str]) {
    let never = || -> Result<()> { panic!("nothing runs") };
    for error in [profile::counters(device, COUNTERS, never).unwrap_err(), profile::samples(device, never).unwrap_err()]
    {
        assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
        let text = error.to_string();
        assert!(what.iter().all(|what| text.contains(what)), "{text}");
    }
    assert!(kernel_runtime::profile(device, || Ok(())).is_ok(), "times can be had");
}

#[test]
fn who_may_not_count_is_told_what_to_do() -> Result<()> {
    if in_model("who_may_not_count_is_told_what_to_do", &Settings::default()) && has_cupti(Some("refuses")) {
        let device = Device::cuda(0)?;
        let what = ["CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35)", "ERR_NVGPUCTRPERM", "run as root"];
        check_refusals(&device, &what);
        check_refusals(&device, &what);
    }
    Ok(())
}

#[test]
fn an_old_cupti_has_times_and_no_counters() -> Result<()> {
    if in_model("an_old_cupti_has_times_and_no_counters", &Settings::default()) && has_cupti(Some("old")) {
        check_refusals(&Device::cuda(0)?, &["API version 14 is too old", "CUDA 12.6"]);
    }
    Ok(())
}
