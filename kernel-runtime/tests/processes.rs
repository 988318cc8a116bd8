//! Processes that launch kernels through one cache on disk, some of which are killed: whatever they find there, what they
//! compute is right. On the model of the driver.
#![cfg(all(jit, target_os = "linux"))]

#[allow(dead_code, reason = "shared with the tests of launches")]
#[path = "launch/kernels.rs"]
mod kernels;

use kernel_runtime::launch::Kernel;
use kernel_runtime::{Device, Result};
use kernels::{ADD, AddConsts, leak};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tilewright_driver_model::{Settings, in_model};

/// Tells a process of this test its number.
const ROLE: &str = "TILEWRIGHT_LAUNCH_STORM";

/// Processes at a time, and for how long.
const PROCESSES: u64 = 8;
const TIME: Duration = Duration::from_secs(4);

/// Variants of the kernel: half of them of another dtype.
const VARIANTS: u64 = 12;

/// What a process launches.
const LAUNCHES: u64 = 4;

/// Numbers without an end, the same for the same seed.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    *state >> 33
}

/// Launches a variant and looks at what it has computed.
fn launch(kernel: &'static Kernel, device: &Device, variant: u64) -> Result<()> {
    const N: usize = 100;
    let block = 16 << (variant / 2);
    if variant.is_multiple_of(2) {
        let (x, mut out) = (device.full(N, 1.5f32)?, device.zeros::<f32>(N)?);
        AddConsts { BLOCK: block }.call(kernel, &x, &x, &mut out, N as i32).grid(N.div_ceil(block)).launch(device)?;
        assert_eq!(out.to_vec()?, [3.0; N]);
    } else {
        let (x, mut out) = (device.full(N, 7i32)?, device.zeros::<i32>(N)?);
        AddConsts { BLOCK: block }.call(kernel, &x, &x, &mut out, N as i32).grid(N.div_ceil(block)).launch(device)?;
        assert_eq!(out.to_vec()?, [14; N]);
    }
    Ok(())
}

/// Does nothing, unless it is one of the processes of the test below.
#[test]
fn a_process_of_the_storm() -> Result<()> {
    let Ok(seed) = std::env::var(ROLE) else { return Ok(()) };
    let mut state = seed.parse().expect("a number");
    let (kernel, device) = (leak(ADD), Device::cuda(0)?);
    (0..LAUNCHES).try_for_each(|_| launch(kernel, &device, next(&mut state) % VARIANTS))
}

/// Starts processes, of which a third is killed wherever they are; gives how many were, and ended well.
fn storm() -> (usize, usize) {
    let child = |seed: u64| -> Child {
        let mut command = Command::new(std::env::current_exe().expect("a test has a path"));
        command.args(["--exact", "a_process_of_the_storm", "--nocapture"]).env(ROLE, seed.to_string());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a process")
    };
    let end = |process: Child| {
        let output = process.wait_with_output().expect("an end");
        let said = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat();
        assert!(output.status.success(), "{}: {said}", output.status);
    };
    let (mut state, start, mut killed, mut ended) = (7, Instant::now(), 0, 0);
    // At least one round, however busy the machine is.
    while ended == 0 || start.elapsed() < TIME {
        let mut running: Vec<Child> = (0..PROCESSES).map(|_| child(next(&mut state))).collect();
        for _ in 0..PROCESSES / 3 {
            std::thread::sleep(Duration::from_millis(next(&mut state) % 100));
            let mut process = running.swap_remove(next(&mut state) as usize % running.len());
            if process.try_wait().expect("a state").is_some() {
                end(process);
            } else {
                process.kill().and_then(|()| process.wait()).expect("an end");
                killed += 1;
            }
        }
        ended += running.len();
        running.into_iter().for_each(end);
    }
    (killed, ended)
}

#[test]
fn processes_that_share_a_cache_launch_what_they_should() -> Result<()> {
    if !in_model("processes_that_share_a_cache_launch_what_they_should", &Settings::default()) {
        return Ok(());
    }
    let (killed, ended) = storm();
    let cache = std::env::var_os("TILEWRIGHT_CACHE").expect("the model's folder");
    let files = std::fs::read_dir(cache).expect("a cache").map(|file| file.expect("a file").path());
    let mut entries = 0;
    for file in files.filter(|file| file.extension().is_some_and(|extension| extension == "twa")) {
        let bytes = std::fs::read(&file).expect("a file that can be read");
        // Variants, and machine code, are held against their checksums.
        let archive = kernel_archive::Reader::new(&bytes).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert!((0..archive.len()).all(|index| archive.entry(index).is_ok()), "{} is damaged", file.display());
        entries += archive.len();
    }
    // What the others have kept, this process finds, and it computes what it should.
    let (kernel, device) = (leak(ADD), Device::cuda(0)?);
    (0..VARIANTS).try_for_each(|variant| launch(kernel, &device, variant))?;
    println!("{ended} processes ended, {killed} were killed; they left {entries} entries");
    assert!(entries > 0, "{ended} processes have kept nothing");
    Ok(())
}
