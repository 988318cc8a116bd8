//! Launches that somebody else captures into graphs, and replays.

use super::failing::{BEYOND, choose, number};
use super::kernels::add;
use super::owner::{Owner, on_a_gpu};
use super::{N, numbers};
use kernel_runtime::{Buffer, Device, Error, Result, Stream, profile, synchronize_all};

#[test]
fn what_somebody_else_captures_runs_at_each_replay() -> Result<()> {
    on_a_gpu(|| {
        let owner = Owner::new();
        let device = owner.device()?;
        let (x, sum, out) = (owner.upload(&numbers()), owner.zeros(N), owner.zeros(N));
        let double = |from: u64, to: u64| -> Result<()> {
            // SAFETY: all is used in the order of the owner's stream and of its graph.
            let (from, to) = unsafe { (device.borrow::<f32>(from, N)?, device.borrow_mut::<f32>(to, N)?) };
            add::<_, 64>(from, from, to, N as i32).grid(5).launch(&device)
        };
        // Kernels are compiled and loaded in the capture, which that does not disturb.
        let graph = owner.capture(|| double(x, sum).and_then(|()| double(sum, out)))?;
        for round in 0..20u16 {
            let inputs: Vec<f32> = numbers().iter().map(|x| x + f32::from(round)).collect();
            owner.write(x, &inputs);
            graph.replay();
            owner.wait();
            assert_eq!(owner.read(out, N), inputs.iter().map(|x| 4.0 * x).collect::<Vec<f32>>(), "round {round}");
        }
        assert_eq!(device.synchronize(), Ok(()));
        Ok(())
    })
}

/// Events around a launch would be recorded into the capture.
#[test]
fn profiles_leave_captures_of_somebody_else_alone() -> Result<()> {
    on_a_gpu(|| {
        let owner = Owner::new();
        let device = owner.device()?;
        let (x, out) = (owner.upload(&numbers()), owner.zeros(N));
        let double = || -> Result<()> {
            // SAFETY: all is used in the order of the owner's stream and of its graph.
            let (x, out) = unsafe { (device.borrow::<f32>(x, N)?, device.borrow_mut::<f32>(out, N)?) };
            add::<_, 64>(x, x, out, N as i32).grid(5).launch(&device)
        };
        let (graph, profile) = profile(&device, || {
            double()?;
            owner.capture(double)
        })?;
        assert_eq!(profile.kernels.len(), 1, "what is captured has not run: {profile}");
        graph.replay();
        owner.wait();
        assert_eq!(owner.read(out, N), numbers().iter().map(|x| 2.0 * x).collect::<Vec<f32>>());
        Ok(())
    })
}

#[test]
fn replays_report_errors_for_as_long_as_the_graph_lives() -> Result<()> {
    on_a_gpu(|| {
        let owner = Owner::new();
        let device = owner.device()?;
        let (x, index, out) = (owner.upload(&numbers()), owner.upload(&[BEYOND + 1]), owner.zeros(1));
        let run = || -> Result<()> {
            // SAFETY: all is used in the order of the owner's stream and of its graph.
            let (x, index, out) =
                unsafe { (device.borrow(x, N)?, device.borrow(index, 1)?, device.borrow_mut(out, 1)?) };
            choose(x, index, out).grid(1).launch(&device)
        };
        run()?;
        // More than one block of records, after launches that are not captured and whose errors nobody has asked for.
        let graph = owner.capture(|| {
            let refused = device.synchronize();
            assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
            (0..70).try_for_each(|_| run())
        })?;
        assert_eq!(number(device.synchronize()), Some(1), "that of the first launch");
        for round in 2..5 {
            owner.write(index, &[BEYOND + round]);
            graph.replay();
            owner.wait();
            for _ in 0..70 {
                assert_eq!(number(device.poll_error().map_or(Ok(()), Err)), Some(round));
            }
            assert_eq!(device.poll_error(), None);
        }
        owner.write(index, &[7i64]);
        graph.replay();
        owner.wait();
        assert_eq!((device.poll_error(), owner.read(out, 1)), (None, vec![7.0]));
        // The graph goes while it runs, and what it has to say is heard.
        owner.write(index, &[BEYOND + 6]);
        graph.replay();
        drop(graph);
        owner.wait();
        assert_eq!(number(device.poll_error().map_or(Ok(()), Err)), Some(6));
        while device.poll_error().is_some() {}
        run()?;
        assert_eq!(number(device.synchronize()), Some(6));
        Ok(())
    })
}

/// What launches need beside what they are given: the graph keeps it, so that nobody else has it between replays.
#[test]
fn scratch_memory_of_a_capture_belongs_to_the_graph() -> Result<()> {
    on_a_gpu(|| {
        let owner = Owner::new();
        let device = owner.device()?;
        let (x, out) = (owner.upload(&numbers()), owner.zeros(N));
        let double = |from: u64, to: u64| -> Result<()> {
            // SAFETY: all is used in the order of the owner's stream and of its graph, which keeps what it uses.
            let (from, to) = unsafe { (device.borrow::<f32>(from, N)?, device.borrow_mut::<f32>(to, N)?) };
            add::<_, 64>(from, from, to, N as i32).grid(5).launch(&device)
        };
        assert_eq!((device.captured_scratch(N * 4)?, device.is_captured()?), (None, false), "nobody captures");
        let mut scratch = None;
        let graph = owner.capture(|| {
            assert_eq!(device.is_captured(), Ok(true));
            let address = device.captured_scratch(N * 4)?.expect("somebody captures");
            scratch = Some(address);
            double(x, address).and_then(|()| double(address, out))
        })?;
        let scratch = scratch.expect("it was captured");
        assert_eq!(scratch % 256, 0);
        for round in 0..5u16 {
            // Nobody else is given it meanwhile.
            let others: Vec<u64> = (0..20).map(|_| owner.zeros(N)).collect();
            assert!(!others.contains(&scratch));
            let inputs: Vec<f32> = numbers().iter().map(|x| x + f32::from(round)).collect();
            owner.write(x, &inputs);
            graph.replay();
            owner.wait();
            assert_eq!(owner.read(out, N), inputs.iter().map(|x| 4.0 * x).collect::<Vec<f32>>(), "round {round}");
        }
        drop(graph);
        assert_eq!(device.poll_error(), None);
        assert_eq!(device.synchronize(), Ok(()));
        Ok(())
    })
}

/// The stream that was captured may have nothing to do any more, and nobody who asks it.
#[test]
fn what_a_graph_kept_is_freed_by_whoever_asks_next() -> Result<()> {
    on_a_gpu(|| {
        let (idle, owner) = (Owner::new(), Owner::new());
        let (device, other) = (idle.device()?, owner.device()?);
        let (x, index, out) = (idle.upload(&numbers()), idle.upload(&[BEYOND + 3]), idle.zeros(1));
        let graph = idle.capture(|| {
            // SAFETY: all is used in the order of the owner's stream and of its graph.
            let (x, index, out) =
                unsafe { (device.borrow(x, N)?, device.borrow(index, 1)?, device.borrow_mut(out, 1)?) };
            choose(x, index, out).grid(1).launch(&device)?;
            device.captured_scratch(N * 4).map(drop)
        })?;
        graph.replay();
        idle.wait();
        drop(graph);
        let mut heard = None;
        owner.check_that_memory_is_freed(|| {
            heard = number(other.poll_error().map_or(Ok(()), Err));
            Ok(())
        })?;
        assert_eq!(heard, Some(3), "what it reported is heard");
        assert_eq!((device.poll_error(), other.poll_error()), (None, None));
        Ok(())
    })
}

/// A framework captures on a stream of its own, and replays on whichever is its current one.
#[test]
fn errors_of_replays_on_other_streams_are_told() -> Result<()> {
    on_a_gpu(|| {
        let (captured, owner) = (Owner::new(), Owner::new());
        let (device, other) = (captured.device()?, owner.device()?);
        let (x, index, out) = (captured.upload(&numbers()), captured.upload(&[BEYOND + 2]), captured.zeros(1));
        let graph = captured.capture(|| {
            // SAFETY: all is used in the order of the graph.
            let (x, index, out) =
                unsafe { (device.borrow(x, N)?, device.borrow(index, 1)?, device.borrow_mut(out, 1)?) };
            choose(x, index, out).grid(1).launch(&device)
        })?;
        graph.replay_on(&owner);
        owner.wait();
        assert_eq!(number(other.poll_error().map_or(Ok(()), Err)), Some(2), "the next call on that stream");
        assert_eq!((device.poll_error(), other.poll_error()), (None, None));
        // Those who wait for the captured stream alone do not know where it runs.
        graph.replay_on(&owner);
        assert_eq!(number(synchronize_all(std::slice::from_ref(&device))), Some(2));
        assert_eq!(synchronize_all(&[device.clone(), other.clone()]), Ok(()));
        // Each device's error is kept for the next time.
        for device in [&device, &other] {
            // SAFETY: each writes its own, and all is waited for.
            let (x, index, own) =
                unsafe { (device.borrow(x, N)?, device.borrow(index, 1)?, device.borrow_mut(owner.zeros(1), 1)?) };
            choose(x, index, own).grid(1).launch(device)?;
        }
        for expected in [Some(2), Some(2), None] {
            assert_eq!(number(synchronize_all(&[device.clone(), other.clone()])), expected);
        }
        Ok(())
    })
}

/// The mode keeps all threads from what waits, but for those who say that they know what they do.
#[test]
fn waits_leave_captures_of_other_streams_alone() -> Result<()> {
    on_a_gpu(|| {
        let (captured, owner) = (Owner::new(), Owner::new());
        let (device, other) = (captured.device()?, owner.device()?);
        let (x, sum, out) = (owner.upload(&numbers()), owner.zeros(N), owner.zeros(N));
        let double = |device: &Device, to: u64| -> Result<()> {
            // SAFETY: each writes its own, in the order of its stream.
            let (x, to) = unsafe { (device.borrow::<f32>(x, N)?, device.borrow_mut::<f32>(to, N)?) };
            add::<_, 64>(x, x, to, N as i32).grid(5).launch(device)
        };
        double(&other, sum)?;
        let graph = captured.capture(|| {
            double(&device, out)?;
            other.synchronize()
        })?;
        graph.replay();
        captured.wait();
        assert_eq!(captured.read(out, N), owner.read(sum, N));
        Ok(())
    })
}

/// All that the runtime does with streams and memory of its own.
#[test]
fn work_of_ours_leaves_captures_of_others_alone() -> Result<()> {
    on_a_gpu(|| {
        let (captured, ours) = (Owner::new(), Device::cuda(0)?);
        let device = captured.device()?;
        let (x, out) = (captured.upload(&numbers()), captured.zeros(N));
        let (own_x, index) = (ours.upload(&numbers())?, ours.upload(&[BEYOND + 1])?);
        let choose_on = |stream: &Stream, to: &mut Buffer<f32>| -> Result<()> {
            choose(&own_x, &index, to).grid(1).stream(stream).launch(&ours)
        };
        let (kept, stream) = (ours.zeros::<f32>(1)?, ours.new_stream()?);
        let mut of_stream = ours.zeros(1)?;
        choose_on(&stream, &mut of_stream)?;
        let graph = captured.capture(|| {
            // SAFETY: all is used in the order of the graph.
            let (x, out) = unsafe { (device.borrow::<f32>(x, N)?, device.borrow_mut::<f32>(out, N)?) };
            add::<_, 64>(x, x, out, N as i32).grid(5).launch(&device)?;
            let (numbers, mut own) = (ours.upload(&numbers())?, ours.zeros(1)?);
            captured.check_capture("buffers");
            choose_on(ours.default_stream(), &mut own)?;
            captured.check_capture("a launch");
            assert_eq!(number(own.to_vec().map(drop)), Some(1));
            captured.check_capture("a read");
            let end = ours.default_stream().record()?;
            while !end.is_complete()? {}
            end.synchronize()?;
            captured.check_capture("an event");
            // The stream's launches are over when its records go.
            assert_eq!(number(stream.synchronize()), Some(1));
            captured.check_capture("waiting");
            drop((stream, of_stream));
            captured.check_capture("the end of a stream");
            let graph = ours.capture(|| choose_on(ours.default_stream(), &mut own))?;
            captured.check_capture("recording a graph");
            graph.replay()?;
            captured.check_capture("a replay");
            drop(graph);
            captured.check_capture("the end of a graph");
            assert_eq!(number(ours.synchronize()), Some(1));
            drop((numbers, own, kept));
            captured.check_capture("the end of buffers");
            Ok(())
        })?;
        graph.replay();
        captured.wait();
        assert_eq!(captured.read(out, N), numbers().iter().map(|x| 2.0 * x).collect::<Vec<f32>>());
        Ok(())
    })
}

/// A replay would copy from memory of the host that has long been another's.
#[test]
fn copies_with_the_host_are_refused_in_captures_of_somebody_else() -> Result<()> {
    on_a_gpu(|| {
        let owner = Owner::new();
        let device = owner.device()?;
        let (x, wide) = (owner.upload(&numbers()), owner.upload(&[0.0f64; 4]));
        let refused = |done: Result<()>| {
            let text = done.expect_err("the graph would keep it").to_string();
            assert!(text.contains("on a stream that is being captured"), "{text}");
        };
        let graph = owner.capture(|| {
            // SAFETY: all is used in the order of the graph.
            let (mut x, mut wide) = unsafe { (device.borrow_mut::<f32>(x, N)?, device.borrow_mut::<f64>(wide, 4)?) };
            refused(x.copy_from_slice(&numbers()));
            refused(x.to_vec().map(drop));
            refused(wide.fill(1.0));
            x.fill(2.0)
        })?;
        graph.replay();
        owner.wait();
        assert_eq!(owner.read(x, N), vec![2.0; N]);
        device.synchronize()
    })
}

/// A launch that is captured has not run: what a buffer holds is what it held.
#[test]
fn captured_launches_leave_errors_of_buffers_where_they_are() -> Result<()> {
    on_a_gpu(|| {
        let owner = Owner::new();
        let device = owner.device()?;
        let (x, bad, good) = (owner.upload(&numbers()), owner.upload(&[BEYOND + 8]), owner.upload(&[5i64]));
        let mut out = device.zeros::<f32>(1)?;
        let mut run = |index: u64| -> Result<()> {
            // SAFETY: all is used in the order of the owner's stream and of its graph.
            let (x, index) = unsafe { (device.borrow(x, N)?, device.borrow(index, 1)?) };
            choose(x, index, &mut out).grid(1).launch(&device)
        };
        run(bad)?;
        let graph = owner.capture(|| run(good))?;
        assert_eq!(number(out.to_vec().map(drop)), Some(8));
        drop(graph);
        while device.poll_error().is_some() {}
        Ok(())
    })
}
