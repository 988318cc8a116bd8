//! Programs that wait for each other, and kernels that never end.
//!
//! On a GPU only programs that it holds at the same time can wait for each other, so the grids that run there are small.

use std::time::{Duration, Instant};

use tilewright::prelude::*;
use tilewright_tests::devices::{check, on_every_device};

/// Far more than any of these launches takes, so that a test on the CPU that would hang fails.
const HANG: Duration = Duration::from_secs(60);

#[kernel]
fn wait_for_the_next(flags: PtrMut<i32>) {
    let p = program_id(0);
    while p < num_programs(0) - 1 && atomic_cas(flags + p + 1, 1, 1) != 1 {}
    atomic_exchange(flags + p, 1);
}

#[kernel]
fn wait_for_the_one_before(flags: PtrMut<i32>) {
    let p = program_id(0);
    while p > 0 && load(flags + p - 1) != 1 {}
    atomic_exchange(flags + p, 1);
}

#[test]
fn few_programs_wait_for_their_neighbours() {
    check(|device| {
        for n in [1, 2, 4, 64] {
            let mut flags = device.zeros::<i32>(n)?;
            wait_for_the_next(&mut flags).grid(n).launch(device)?;
            assert_eq!(flags.to_vec()?, vec![1; n], "upwards");
            let mut flags = device.zeros::<i32>(n)?;
            wait_for_the_one_before(&mut flags).grid(n).launch(device)?;
            assert_eq!(flags.to_vec()?, vec![1; n], "downwards");
        }
        Ok(())
    });
}

#[test]
fn on_the_cpu_any_number_of_programs_may_wait() -> Result<(), Error> {
    let device = Device::cpu();
    let n = 5000;
    let mut flags = device.zeros::<i32>(n)?;
    wait_for_the_next(&mut flags).grid(n).time_limit(HANG).launch(&device)?;
    assert_eq!(flags.to_vec()?, vec![1; n]);
    let mut flags = device.zeros::<i32>(n)?;
    wait_for_the_one_before(&mut flags).grid(n).time_limit(HANG).launch(&device)?;
    assert_eq!(flags.to_vec()?, vec![1; n]);
    Ok(())
}

#[kernel]
fn wait_for_the_tile_before(flags: PtrMut<i32>) {
    let p = program_id(0);
    let one = arange(0, 1);
    while p > 0 && reshape(load(flags + p - 1 + one), []) != 1 {}
    atomic_exchange(flags + p + one, 1);
}

#[test]
fn programs_wait_for_a_tile_of_one_element() {
    check(|device| {
        for n in [1, 2, 4, 64] {
            let mut flags = device.zeros::<i32>(n)?;
            wait_for_the_tile_before(&mut flags).grid(n).launch(device)?;
            assert_eq!(flags.to_vec()?, vec![1; n]);
        }
        Ok(())
    });
}

/// All programs count on while each decides by what it has seen: what its threads do together, they all do.
#[kernel]
fn decided_by_tile<const N: usize>(counter: PtrMut<i32>, out: PtrMut<i32>, sums: PtrMut<i32>) {
    let p = program_id(0);
    let (one, two, i) = (arange(0, 1), arange(0, 2), arange(0, N));
    let mut v = zeros::<i32>([N]);
    let mut total = 0;
    for _ in 0..64 {
        let ticket = reshape(atomic_add(counter + one, 1), []);
        let now = reshape(load(counter + one), []);
        let (other, _) = split(load(counter + two));
        // Sums pass through shared memory, where all threads meet.
        if now % 3 == 1 {
            v += now;
            total += sum(v);
        }
        if (ticket + other) % 3 == 1 {
            v += other;
            total += sum(v);
        }
        let mut turns = now % 4;
        while turns > 0 {
            v += 1;
            total += max(v);
            turns -= 1;
        }
    }
    store(out + p * N + i, v);
    store(sums + p, total);
}

#[test]
fn what_a_tile_decides_is_the_same_for_all_threads() {
    check(|device| {
        for (programs, warps) in [(1, 1), (8, 4), (64, 8)] {
            let mut counter = device.zeros::<i32>(2)?;
            let (mut out, mut sums) = (device.zeros::<i32>(256 * programs)?, device.zeros::<i32>(programs)?);
            let call = decided_by_tile::<256>(&mut counter, &mut out, &mut sums);
            call.grid(programs).num_warps(warps).launch(device)?;
            assert_eq!(counter.to_vec()?, [64 * programs as i32, 0]);
            for own in out.to_vec()?.chunks(256) {
                assert!(own.iter().all(|&v| v == own[0]), "threads have gone different ways: {own:?}");
            }
        }
        Ok(())
    });
}

/// One pass over the data: each program sums its block, and finds the sum of all before by looking back, from one to the
/// next, until one has its own running sum. `state` is 1 once a block's sum is there, 2 once its running sum is.
#[kernel]
fn running_sums<const N: usize>(
    x: Ptr<i32>,
    out: PtrMut<i32>,
    sums: PtrMut<i32>,
    running: PtrMut<i32>,
    state: PtrMut<i32>,
) {
    let p = program_id(0);
    let i = p * N + arange(0, N);
    let v = load(x + i);
    let own = sum(v);
    store(sums + p, own);
    atomic_exchange(state + p, 1);
    let mut before = 0;
    let mut j = p - 1;
    while j >= 0 {
        let mut seen = 0;
        while seen == 0 {
            seen = atomic_add(state + j, 0);
        }
        if seen == 2 {
            before += load(running + j);
            j = -1;
        } else {
            before += load(sums + j);
            j -= 1;
        }
    }
    store(running + p, before + own);
    atomic_exchange(state + p, 2);
    store(out + i, cumsum(v, axis = 0) + before);
}

#[test]
fn a_scan_in_one_pass_looks_back() {
    on_every_device(|device| {
        let programs = if device.is_cuda() { 128 } else { 1000 };
        let n = programs * 32;
        let run = || {
            let x: Vec<i32> = (0..n as i32).map(|i| i % 7 - 2).collect();
            let (xs, mut out) = (device.upload(&x)?, device.zeros::<i32>(n)?);
            let (mut sums, mut running) = (device.zeros::<i32>(programs)?, device.zeros::<i32>(programs)?);
            let mut state = device.zeros::<i32>(programs)?;
            running_sums::<32>(&xs, &mut out, &mut sums, &mut running, &mut state).grid(programs).launch(device)?;
            let want: Vec<i32> = x.iter().scan(0, |sum, v| Some(std::mem::replace(sum, *sum + v) + v)).collect();
            assert_eq!(out.to_vec()?, want);
            Ok::<(), Error>(())
        };
        run().unwrap_or_else(|error| panic!("on {device}: {error}"));
    });
}

#[kernel]
fn waits_for_ever(flags: PtrMut<i32>, out: PtrMut<i32>, who: i32) {
    let p = program_id(0);
    while p == who && load(flags) == 0 {}
    store(out + p, 1);
}

#[kernel]
fn never_ends(out: PtrMut<i32>) {
    let mut i = 0;
    while i < 10 {
        for _ in 0..3 {
            i = 0;
        }
    }
    store(out, i);
}

/// The line of the source on which `text` stands first.
fn line_of(text: &str) -> u32 {
    let source = include_str!("waiting.rs");
    source.lines().zip(1..).find(|(line, _)| line.contains(text)).map_or(0, |(_, number)| number)
}

/// Limits for launches that never end. A busy machine may not come far in a short time, so longer ones are tried too.
const LIMITS: [Duration; 3] = [Duration::from_millis(50), Duration::from_secs(2), Duration::from_secs(40)];

#[test]
fn a_limit_of_time_names_the_kernel_the_program_and_the_line() -> Result<(), Error> {
    let device = Device::cpu();
    for limit in LIMITS {
        let (mut flags, mut out) = (device.zeros::<i32>(1)?, device.zeros::<i32>(20)?);
        let start = Instant::now();
        waits_for_ever(&mut flags, &mut out, 3).grid(20).time_limit(limit).launch(&device)?;
        assert!(start.elapsed() >= limit);
        let error = out.to_vec().expect_err("program 3 waits for ever");
        let text = error.to_string();
        assert!(error.is_from_kernel());
        let Error::TimeLimit { kernel, file, line, program_id, limit: told, .. } = error else { panic!("{error}") };
        assert_eq!((&*kernel, told), ("waits_for_ever", limit));
        assert!(file.ends_with("waiting.rs"), "{file}");
        let want: Vec<i32> = (0..20).map(|p| i32::from(p != 3)).collect();
        let written = out.to_vec()?;
        if written != want && limit < LIMITS[2] {
            continue;
        }
        assert_eq!(written, want, "the error is delivered once, and the others have run");
        assert_eq!((program_id, line), ([3, 0, 0], line_of("while p == who")));
        let help = "program (3, 0, 0) was here; look for a loop that never ends or waits for what no program does, or \
                    raise the limit";
        let stopped = format!("kernel `waits_for_ever` was stopped after its limit of {limit:?}; {help}");
        assert!(text.ends_with(&stopped), "{text}");
        return device.synchronize();
    }
    Ok(())
}

#[test]
fn a_limit_of_time_names_a_loop_that_waits_for_nothing() -> Result<(), Error> {
    let device = Device::cpu();
    let lines = [line_of("while i < 10"), line_of("for _ in 0..3")];
    let mut out = device.zeros::<i32>(1)?;
    let mut line_with = |limit| {
        never_ends(&mut out).grid(1).time_limit(limit).launch(&device)?;
        let Err(Error::TimeLimit { line, .. }) = out.to_vec() else { panic!("it never ends") };
        Ok::<u32, Error>(line)
    };
    for limit in LIMITS {
        if lines.contains(&line_with(limit)?) {
            return Ok(());
        }
    }
    panic!("the loops are in lines {lines:?}");
}

#[test]
fn a_limit_that_is_not_reached_changes_nothing() -> Result<(), Error> {
    let device = Device::cpu();
    let (mut flags, mut out) = (device.zeros::<i32>(1)?, device.zeros::<i32>(20)?);
    waits_for_ever(&mut flags, &mut out, -1).grid(20).time_limit(HANG).launch(&device)?;
    assert_eq!(out.to_vec()?, [1; 20]);
    device.synchronize()
}

#[test]
fn limits_that_mean_nothing_are_refused() {
    on_every_device(|device| {
        let run = |limit| {
            let (mut flags, mut out) = (device.zeros::<i32>(1)?, device.zeros::<i32>(1)?);
            waits_for_ever(&mut flags, &mut out, -1).grid(1).time_limit(limit).launch(device)
        };
        let error = run(Duration::ZERO).expect_err("no time at all");
        assert!(matches!(&error, Error::InvalidSetting { name, .. } if &**name == "time_limit"), "{error}");
        match run(HANG) {
            Ok(()) => assert!(!device.is_cuda()),
            Err(error) => {
                assert!(device.is_cuda() && error.to_string().contains("nothing can stop a kernel"), "{error}")
            }
        }
    });
}

#[kernel]
fn fails_while_others_wait(flags: PtrMut<i32>) {
    let p = program_id(0);
    while p < num_programs(0) - 1 && atomic_cas(flags + p + 1, 1, 1) != 1 {}
    assert!(p != 5, "not program 5");
    atomic_exchange(flags + p, 1);
}

#[test]
fn a_failure_that_others_wait_for_is_told_instead_of_the_limit() -> Result<(), Error> {
    let device = Device::cpu();
    for limit in LIMITS {
        let mut flags = device.zeros::<i32>(8)?;
        fails_while_others_wait(&mut flags).grid(8).time_limit(limit).launch(&device)?;
        let error = flags.to_vec().expect_err("program 5 fails");
        if flags.to_vec()? == [0, 0, 0, 0, 0, 0, 1, 1] {
            assert!(matches!(&error, Error::AssertFailed { program_id: [5, 0, 0], .. }), "{error}");
            return device.synchronize();
        }
    }
    panic!("the programs after 5 do not run");
}
