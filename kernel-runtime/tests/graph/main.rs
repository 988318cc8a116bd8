//! Graphs: what is recorded, what replays do, who gets their errors. On the CPU, and on the first
//! GPU if there is one.

#[allow(dead_code, reason = "shared with the tests of launches")]
#[path = "../launch/kernels.rs"]
mod kernels;

use kernel_runtime::bench::Bench;
use kernel_runtime::launch::{Call, Kernel};
use kernel_runtime::{Buffer, Device, Error, Graph, LaunchId, Result};
use kernels::{ADD, AddConsts, COUNT, GATHER, add, count, gather, leak};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs a check on the CPU, and on the first GPU or says that it is skipped there.
fn on_devices(check: impl Fn(&Device) -> Result<()>) -> Result<()> {
    static SKIPPED: AtomicUsize = AtomicUsize::new(0);
    check(&Device::cpu())?;
    if Device::cuda_count() > 0 {
        return check(&Device::cuda(0)?);
    }
    let skipped = SKIPPED.fetch_add(1, Ordering::Relaxed) + 1;
    println!("skipped: no CUDA device ({skipped} GPU checks of this run)");
    Ok(())
}

const N: usize = 1000;

/// `out = from + to` for buffers of [`N`] elements.
fn accumulate(from: &Buffer<f32>, to: &Buffer<f32>, out: &mut Buffer<f32>, device: &Device) -> Result<()> {
    add::<_, 128>(from, to, out, N as i32).grid(N.div_ceil(128)).launch(device)
}

#[test]
fn nothing_runs_before_the_replay() -> Result<()> {
    on_devices(|device| {
        let ones = device.full(N, 1.0f32)?;
        let (mut a, mut b) = (device.zeros::<f32>(N)?, device.zeros::<f32>(N)?);
        let graph = device.capture(|| {
            accumulate(&ones, &a, &mut b, device)?;
            accumulate(&ones, &b, &mut a, device)
        })?;
        assert_eq!(graph.len(), 2);
        assert_eq!(a.to_vec()?, [0.0; N], "a recorded launch does not run");
        for _ in 0..5 {
            graph.replay()?;
        }
        assert_eq!(a.to_vec()?, [10.0; N]);
        a.fill(-10.0)?;
        graph.replay()?;
        assert_eq!((a.to_vec()?, b.to_vec()?), (vec![-8.0; N], vec![-9.0; N]), "buffers are free between replays");
        Ok(())
    })
}

/// A benchmark by graphs does the work once by hand, then in each round as often as the graph has it.
#[test]
fn a_benchmark_replays_work_from_a_graph() -> Result<()> {
    on_devices(|device| {
        let ones = device.full(N, 1.0f32)?;
        let (mut a, mut b) = (device.zeros::<f32>(N)?, device.zeros::<f32>(N)?);
        let mut bench = Bench::new(device)?.rounds(3).graph(5);
        let measured = bench.run("twice", || {
            accumulate(&ones, &a, &mut b, device)?;
            accumulate(&ones, &b, &mut a, device)
        })?;
        assert_eq!(measured.times.len(), 3);
        assert_eq!(a.to_vec()?, [2.0 * (1 + 3 * 5) as f32; N]);
        Ok(())
    })
}

/// The first launch of a kernel may be a recorded one: it is compiled and loaded meanwhile.
#[test]
fn a_kernel_may_be_compiled_while_it_is_recorded() -> Result<()> {
    on_devices(|device| {
        let kernel = leak(ADD);
        let x = device.full(N, 2.0f32)?;
        let mut out = device.zeros::<f32>(N)?;
        let mut record = |device: &Device| {
            device.capture(|| AddConsts { BLOCK: 256 }.call(kernel, &x, &x, &mut out, N as i32).grid(4).launch(device))
        };
        let graph = record(device)?;
        assert_eq!(kernel.compilations(), 1);
        drop(record(device)?);
        assert_eq!(kernel.compilations(), 1);
        graph.replay()?;
        assert_eq!(out.to_vec()?, [4.0; N]);
        Ok(())
    })
}

#[test]
fn scalars_and_grids_are_those_of_the_recording() -> Result<()> {
    on_devices(|device| {
        let kernel = leak(COUNT);
        let mut out = device.zeros::<i32>(1)?;
        let graph = device.capture(|| {
            for programs in [1, 2, 3] {
                count(kernel, &mut out, programs).grid(programs).launch(device)?;
            }
            count(kernel, &mut out, 1).grid(0).launch(device)
        })?;
        assert_eq!(graph.len(), 3, "a launch of no programs is none");
        graph.replay()?;
        graph.replay()?;
        assert_eq!(out.to_vec()?, [12]);
        Ok(())
    })
}

#[test]
fn a_graph_keeps_its_buffers() -> Result<()> {
    on_devices(|device| {
        let mut out = device.zeros::<f32>(N)?;
        let graph = {
            let (x, mut scratch) = (device.full(N, 3.0f32)?, device.zeros::<f32>(N)?);
            device.capture(|| {
                accumulate(&x, &x, &mut scratch, device)?;
                accumulate(&x, &scratch, &mut out, device)
            })?
        };
        // The memory would be given out again here.
        let others: Vec<_> = (0..4).map(|_| device.full(N, -1.0f32)).collect::<Result<_>>()?;
        graph.replay()?;
        assert_eq!(out.to_vec()?, [9.0; N]);
        for other in &others {
            assert_eq!(other.to_vec()?, [-1.0; N]);
        }
        drop(out);
        graph.replay()?;
        drop(graph);
        device.synchronize()
    })
}

/// A failing launch between two good ones: its own reader gets the error, once per look.
#[test]
fn errors_of_replays_reach_the_reader() -> Result<()> {
    on_devices(|device| {
        let kernel = leak(GATHER);
        let x = device.upload(&[1.0f32, 2.0, 3.0])?;
        let mut good = device.zeros::<f32>(1)?;
        let mut bad = device.zeros::<f32>(2)?;
        let graph = device.capture(|| {
            gather(kernel, &x, &mut good, 3, 1.0).grid(1).launch(device)?;
            gather(kernel, &x, &mut bad, 3, 1.0).grid(2).launch(device)?;
            gather(kernel, &x, &mut good, 3, 2.0).grid(1).launch(device)
        })?;
        let is_past_the_end = |error: &Error| {
            matches!(error, Error::OutOfBounds { argument, offset: 3, len: 3, program_id: [1, 0, 0], .. }
                if &**argument == "x")
        };
        for _ in 0..3 {
            graph.replay()?;
            assert_eq!(good.to_vec()?, [2.0], "another launch's error is not this reader's");
            let error = bad.to_vec().expect_err("the launch fails in every replay");
            assert!(is_past_the_end(&error), "{error}");
            assert_eq!(bad.to_vec()?, [1.0, 0.0], "an error is delivered once");
            device.synchronize()?;
        }
        graph.replay()?;
        graph.replay()?;
        let error = device.synchronize().expect_err("two replays have failed");
        assert!(is_past_the_end(&error), "{error}");
        while let Err(error) = device.synchronize() {
            assert!(is_past_the_end(&error), "{error}");
        }
        graph.replay()?;
        drop(graph);
        let error = device.synchronize().expect_err("the error outlives the graph");
        assert!(is_past_the_end(&error), "{error}");
        Ok(())
    })
}

/// Launches that meet the conditions for unchecked code, and such that do not, in one graph.
#[test]
fn each_launch_is_checked_as_it_was_recorded() -> Result<()> {
    on_devices(|device| {
        let x = device.full(N, 1.0f32)?;
        let mut long = device.zeros::<f32>(N)?;
        let mut short = device.zeros::<f32>(N - 1)?;
        let graph = device.capture(|| {
            add::<_, 128>(&x, &x, &mut long, N as i32).grid(8).launch(device)?;
            add::<_, 128>(&x, &x, &mut short, N as i32).grid(8).launch(device)
        })?;
        graph.replay()?;
        assert_eq!(long.to_vec()?, [2.0; N]);
        assert!(matches!(short.to_vec(), Err(Error::OutOfBounds { offset: 999, len: 999, .. })));
        assert_eq!(short.to_vec()?, [2.0; N - 1]);
        Ok(())
    })
}

#[test]
fn replays_are_ordered_with_other_streams() -> Result<()> {
    on_devices(|device| {
        let n = 1 << 16;
        let (stream, other) = (device.new_stream()?, device.new_stream()?);
        let ones = device.full(n, 1.0f32)?;
        let (mut a, mut b) = (device.zeros::<f32>(n)?, device.zeros::<f32>(n)?);
        let graph = stream
            .capture(|stream| add::<_, 1024>(&ones, &a, &mut b, n as i32).grid(64).stream(stream).launch(device))?;
        assert_eq!(graph.stream(), &stream);
        for _ in 0..20 {
            graph.replay()?;
            add::<_, 1024>(&ones, &b, &mut a, n as i32).grid(64).stream(&other).launch(device)?;
        }
        assert_eq!(a.to_vec()?, vec![40.0; n]);
        Ok(())
    })
}

/// Another thread launches on the same buffers while a graph that uses them is replayed: every
/// launch sees a state between two others.
#[test]
fn replays_and_launches_of_other_threads_do_not_mix() -> Result<()> {
    on_devices(|device| {
        let n = 1 << 12;
        let ones = device.full(n, 1.0f32)?;
        let (mut a, mut b, mut sum) = (device.zeros::<f32>(n)?, device.zeros::<f32>(n)?, device.zeros::<f32>(n)?);
        let stream = device.new_stream()?;
        let graph = stream.capture(|stream| {
            add::<_, 1024>(&ones, &a, &mut b, n as i32).grid(4).stream(stream).launch(device)?;
            add::<_, 1024>(&ones, &b, &mut a, n as i32).grid(4).stream(stream).launch(device)
        })?;
        std::thread::scope(|scope| {
            let replays = scope.spawn(|| (0..50).try_for_each(|_| graph.replay()));
            for _ in 0..50 {
                // Both are even numbers that no replay changes meanwhile.
                add::<_, 1024>(&a, &a, &mut sum, n as i32).grid(4).launch(device)?;
                let seen = sum.to_vec()?;
                assert!(seen.iter().all(|value| *value == seen[0] && value % 4.0 == 0.0), "{:?}", &seen[..8]);
            }
            replays.join().expect("the thread does not panic")
        })?;
        assert_eq!(a.to_vec()?, vec![100.0; n]);
        Ok(())
    })
}

fn check_refused(result: Result<impl std::fmt::Debug>, what: &str) {
    match result {
        Err(error @ Error::Unsupported { .. }) => {
            let text = error.to_string();
            assert!(text.contains(what) && text.contains("capture"), "{text}");
        }
        other => panic!("{what}: {other:?}"),
    }
}

#[test]
fn only_launches_on_the_stream_can_be_recorded() -> Result<()> {
    on_devices(|device| {
        let kernel = leak(COUNT);
        let stream = device.new_stream()?;
        let mut out = device.full(1, 7i32)?;
        let mut other = device.zeros::<i32>(1)?;
        let event = stream.record()?;
        let graph = stream.capture(|stream| {
            check_refused(device.zeros::<i32>(4), "allocating a buffer");
            check_refused(device.upload(&[1]), "allocating a buffer");
            check_refused(out.copy(), "allocating a buffer");
            check_refused(out.to_vec(), "reading a buffer");
            check_refused(out.copy_from_slice(&[3]), "writing a buffer");
            check_refused(out.fill(3), "filling a buffer");
            check_refused(out.copy_from(&other), "copying a buffer");
            check_refused(stream.synchronize(), "synchronising");
            check_refused(device.synchronize(), "synchronising");
            check_refused(stream.record(), "event");
            check_refused(stream.wait(&event), "event");
            check_refused(stream.capture(|_| Ok(())), "another capture");
            check_refused(out.prepare_write(stream, LaunchId::next()), "by hand");
            check_refused(count(kernel, &mut other, 1).grid(1).launch(device), "another stream");
            // Another thread is not concerned.
            std::thread::scope(|scope| {
                let launched = scope.spawn(|| {
                    count(kernel, &mut other, 1).grid(1).stream(stream).launch(device)?;
                    assert_eq!(other.to_vec()?, [1]);
                    device.zeros::<i32>(4)?.to_vec()
                });
                launched.join().expect("the thread does not panic")
            })?;
            count(kernel, &mut out, 1).grid(1).stream(stream).launch(device)
        })?;
        assert_eq!(graph.len(), 1);
        graph.replay()?;
        assert_eq!(out.to_vec()?, [8]);
        Ok(())
    })
}

#[test]
fn a_capture_that_fails_leaves_nothing_behind() -> Result<()> {
    on_devices(|device| {
        let kernel = leak(COUNT);
        let mut out = device.zeros::<i32>(1)?;
        let failed = device.capture(|| {
            count(kernel, &mut out, 1).grid(1).launch(device)?;
            count(kernel, &mut out, 1).grid(-1).launch(device)
        });
        assert!(matches!(failed, Err(Error::InvalidGrid { .. })), "{failed:?}");
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = device.capture(|| {
                count(kernel, &mut out, 1).grid(1).launch(device)?;
                panic!("on purpose")
            });
        }));
        assert!(panicked.is_err());
        count(kernel, &mut out, 1).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [1], "launches are launches again");
        let empty = device.capture(|| Ok(()))?;
        assert!(empty.is_empty());
        empty.replay()
    })
}

#[test]
fn memory_that_a_graph_uses_cannot_be_given_away() -> Result<()> {
    on_devices(|device| {
        let kernel = leak(COUNT);
        let mut out = device.zeros::<i32>(1)?;
        let graph = device.capture(|| count(kernel, &mut out, 1).grid(1).launch(device))?;
        assert!(matches!(out.into_cudarc(), Err(Error::Unsupported { .. })));
        graph.replay()
    })
}

/// Many launches with many records: more than one page of them.
#[test]
fn long_graphs_are_replayed() -> Result<()> {
    on_devices(|device| {
        let kernel: &'static Kernel = leak(COUNT);
        let mut out = device.zeros::<i32>(300)?;
        let graph: Graph = device.capture(|| {
            (0..300).try_for_each(|index| {
                let limit = if index % 100 == 7 { 0 } else { 1 };
                count(kernel, out.slice_mut(index..index + 1)?, limit).grid(1).launch(device)
            })
        })?;
        for _ in 0..3 {
            graph.replay()?;
        }
        let mut failures = 0;
        while let Err(error) = device.synchronize() {
            assert!(matches!(error, Error::AssertFailed { .. }), "{error}");
            failures += 1;
        }
        assert!((3..=9).contains(&failures), "three launches fail in each replay: {failures}");
        let expected: Vec<i32> = (0..300).map(|index| if index % 100 == 7 { 0 } else { 3 }).collect();
        assert_eq!(out.to_vec()?, expected);
        Ok(())
    })
}

/// The default stream of a thread is another one on each. Whoever waits where the graph was recorded waits for the replays of
/// all threads.
#[test]
fn replays_of_another_thread_are_waited_for() -> Result<()> {
    if Device::cuda_count() == 0 || cfg!(not(jit)) {
        println!("skipped: no CUDA device");
        return Ok(());
    }
    // SAFETY: every thread has this stream, in the primary context.
    let device = unsafe { Device::of_stream(0, 2)? };
    let x = device.full(3, 1.0f32)?;
    let mut out = device.zeros::<f32>(2)?;
    let graph = device.capture(|| gather(leak(GATHER), &x, &mut out, 3, 1.0).grid(2).launch(&device))?;
    std::thread::scope(|scope| scope.spawn(|| graph.replay()).join().expect("the thread does not panic"))?;
    let error = device.synchronize().expect_err("the index is beyond the end");
    assert!(matches!(error, Error::OutOfBounds { .. }), "{error}");
    Ok(())
}

#[test]
fn a_call_may_be_made_in_one_capture_and_dropped() -> Result<()> {
    on_devices(|device| {
        let kernel = leak(COUNT);
        let mut out = device.zeros::<i32>(1)?;
        let graph = device.capture(|| {
            let _unlaunched = Call::new(kernel, ()).ptr_mut(&mut out).scalar(1i32).grid(1);
            Ok(())
        })?;
        assert!(graph.is_empty());
        Ok(())
    })
}

/// What needs a GPU needs none here.
#[test]
#[cfg(all(jit, target_os = "linux"))]
fn graphs_work_on_the_model_of_the_driver() {
    use tilewright_driver_model::{Schedule, Settings, run_again};
    run_again(&Settings::default().schedule(Schedule::Late))
        .called("cuGraphLaunch", 50)
        .called("cuGraphAddKernelNode_v2", 300);
}
