//! Whoever reads data that depends on a failed launch is told its error: on the CPU, and on the first GPU
//! if there is one.

mod kernels;
mod random;

use kernel_runtime::{Buffer, Device, LaunchId, Result};
use kernels::{BEYOND, choose, number, on_devices, pick, spread};

/// A source that depends on nothing, and `N` buffers to write.
fn buffers<const N: usize>(device: &Device) -> Result<(Buffer<f32>, [Buffer<f32>; N])> {
    let made: Vec<Buffer<f32>> = (0..N).map(|_| device.zeros(8)).collect::<Result<_>>()?;
    let made = made.try_into().unwrap_or_else(|_| unreachable!("as many as were asked for"));
    Ok((device.full(8, 1.0)?, made))
}

#[test]
fn a_later_launch_hides_nothing() -> Result<()> {
    on_devices(|device| {
        let (x, [mut o]) = buffers(device)?;
        pick(&x, &mut o, Some(1)).grid(1).launch(device)?;
        pick(&x, &mut o, None).grid(1).launch(device)?;
        assert_eq!(number(o.to_vec()), Some(1));
        assert_eq!(o.to_vec()?[0], 1.0, "an error is delivered once, the data is that of the last launch");
        device.synchronize()
    })
}

#[test]
fn the_oldest_error_comes_first_and_each_comes_once() -> Result<()> {
    on_devices(|device| {
        let (x, [mut o, mut other]) = buffers(device)?;
        for failure in 1..=3 {
            pick(&x, &mut o, Some(failure)).grid(1).launch(device)?;
        }
        pick(&x, &mut other, Some(4)).grid(1).launch(device)?;
        assert_eq!(number(o.to_vec()), Some(1));
        assert_eq!(number(device.synchronize()), Some(2));
        assert_eq!(number(o.read_into(&mut [0.0; 8])), Some(3));
        assert_eq!(number(o.to_vec()), None);
        assert_eq!(number(other.to_vec()), Some(4));
        device.synchronize()
    })
}

#[test]
fn errors_go_along_chains() -> Result<()> {
    on_devices(|device| {
        let (x, [mut tmp, mut a, mut b, mut out, mut unrelated]) = buffers(device)?;
        pick(&x, &mut tmp, Some(1)).grid(1).launch(device)?;
        spread(&tmp, &mut a, &mut b).grid(1).launch(device)?;
        pick(&b, &mut out, None).grid(1).launch(device)?;
        pick(&x, &mut unrelated, None).grid(1).launch(device)?;
        drop((tmp, b));
        assert_eq!(unrelated.to_vec()?[0], 1.0);
        assert_eq!(number(out.to_vec()), Some(1));
        assert_eq!(number(a.to_vec()), None, "it has been delivered");
        device.synchronize()
    })
}

/// What a launch writes depends on what it loads from, and on nothing else that it is given.
#[test]
fn what_is_only_written_is_not_read() -> Result<()> {
    on_devices(|device| {
        let (x, [mut more, mut out]) = buffers(device)?;
        pick(&x, &mut out, Some(1)).grid(1).launch(device)?;
        spread(&x, &mut more, &mut out).grid(1).launch(device)?;
        assert_eq!(number(more.to_vec()), None);
        assert_eq!(number(out.to_vec()), Some(1));
        pick(&x, &mut more, Some(2)).grid(1).launch(device)?;
        spread(&x, &mut more, &mut out).grid(1).launch(device)?;
        assert_eq!(number(out.to_vec()), Some(2), "`more` is loaded from");
        device.synchronize()
    })
}

#[test]
fn copies_inherit() -> Result<()> {
    on_devices(|device| {
        let (x, [mut o, mut part, mut whole]) = buffers(device)?;
        pick(&x, &mut o, Some(1)).grid(1).launch(device)?;
        let copy = o.copy()?;
        o.copy_from_slice(&[2.0; 8])?;
        assert_eq!(o.to_vec()?, [2.0; 8]);
        assert_eq!(number(copy.copy()?.to_vec()), Some(1));
        assert_eq!(number(copy.to_vec()), None);

        pick(&x, &mut o, Some(2)).grid(1).launch(device)?;
        part.slice_mut(4..)?.copy_from(&o.slice(..4)?)?;
        assert_eq!(number(part.slice(..4)?.to_vec()), None);
        assert_eq!(number(part.to_vec()), Some(2));

        pick(&x, &mut o, Some(3)).grid(1).launch(device)?;
        pick(&x, &mut whole, Some(4)).grid(1).launch(device)?;
        whole.copy_from(&o)?;
        assert_eq!(number(whole.to_vec()), Some(3), "nothing is left of what launch 4 wrote");
        assert_eq!(number(whole.to_vec()), None);
        assert_eq!(number(device.synchronize()), Some(4));

        pick(&x, &mut o, Some(5)).grid(1).launch(device)?;
        let there = o.to_device(&Device::cpu());
        // From a GPU it goes through the host, which is a read.
        assert_eq!(there.is_err(), device.is_cuda());
        assert_eq!(number(there.and_then(|copy| copy.to_vec())), Some(5));
        device.synchronize()
    })
}

#[test]
fn the_host_clears_what_it_sets_as_a_whole() -> Result<()> {
    type Set = fn(&mut Buffer<f32>) -> Result<()>;
    let wholes: [Set; 3] =
        [|o| o.copy_from_slice(&[2.0; 8]), |o| o.fill(2.0), |o| o.slice_mut(..)?.copy_from_slice(&[2.0; 8])];
    let parts: [Set; 3] = [
        |o| o.slice_mut(..4)?.copy_from_slice(&[2.0; 4]),
        |o| o.slice_mut(1..)?.fill(2.0),
        |o| {
            o.slice_mut(..4)?.fill(2.0)?;
            o.slice_mut(4..)?.fill(2.0)
        },
    ];
    on_devices(|device| {
        for (index, (whole, part)) in wholes.into_iter().zip(parts).enumerate() {
            let (x, [mut o]) = buffers(device)?;
            pick(&x, &mut o, Some(1)).grid(1).launch(device)?;
            whole(&mut o)?;
            assert_eq!(o.to_vec()?, [2.0; 8], "whole {index}");
            assert_eq!(number(device.synchronize()), Some(1), "whole {index}");
            pick(&x, &mut o, Some(2)).grid(1).launch(device)?;
            part(&mut o)?;
            assert_eq!(number(o.to_vec()), Some(2), "part {index}");
            device.synchronize()?;
        }
        // Eight bytes with different halves are filled in steps.
        let mut wide = device.zeros::<f64>(10_000)?;
        let index = device.upload(&[BEYOND + 3])?;
        let (x, [mut o]) = buffers(device)?;
        choose(&x, &index, &mut o).grid(1).launch(device)?;
        wide.fill(1.1)?;
        assert_eq!(wide.to_vec()?, [1.1; 10_000]);
        assert_eq!(number(o.to_vec()), Some(3));
        Ok(())
    })
}

#[test]
fn halves_are_told_apart_and_half_a_rewrite_hides_nothing() -> Result<()> {
    on_devices(|device| {
        let (x, [mut o, mut left, mut right]) = buffers(device)?;
        let (mut low, mut high) = o.split_at_mut(4)?;
        pick(&x, &mut low, Some(1)).grid(1).launch(device)?;
        pick(&x, &mut high, None).grid(1).launch(device)?;
        pick(&x, &mut low, None).grid(1).launch(device)?;
        pick(o.slice(..4)?, &mut left, None).grid(1).launch(device)?;
        pick(o.slice(4..)?, &mut right, None).grid(1).launch(device)?;
        assert_eq!((number(right.to_vec()), number(o.slice(4..)?.to_vec())), (None, None));
        assert_eq!(number(left.to_vec()), Some(1));
        assert_eq!(number(o.to_vec()), None);
        device.synchronize()
    })
}

#[test]
fn errors_cross_streams() -> Result<()> {
    on_devices(|device| {
        let streams = [device.new_stream()?, device.new_stream()?, device.new_stream()?];
        let (x, [mut a, mut b, mut c, mut d]) = buffers(device)?;
        let index = device.upload(&[BEYOND + 1, 0])?;
        choose(&x, &index, &mut a).grid(1).stream(&streams[0]).launch(device)?;
        choose(&a, index.slice(1..)?, &mut b).grid(1).stream(&streams[1]).launch(device)?;
        pick(&b, &mut c, None).grid(1).stream(&streams[2]).launch(device)?;
        pick(&x, &mut d, None).grid(1).stream(&streams[2]).launch(device)?;
        assert_eq!(number(d.to_vec()), None);
        for stream in &streams[1..] {
            stream.synchronize()?;
        }
        assert_eq!(number(c.to_vec()), Some(1), "the record is that of another stream");
        assert_eq!((number(a.to_vec()), number(b.to_vec())), (None, None));
        device.synchronize()
    })
}

/// The stream and the buffer of the launch are gone, but not what depends on it.
#[test]
fn an_error_outlives_its_stream() -> Result<()> {
    on_devices(|device| {
        let (x, [mut out]) = buffers(device)?;
        let index = device.upload(&[BEYOND + 1])?;
        {
            let stream = device.new_stream()?;
            let mut tmp = device.zeros::<f32>(8)?;
            choose(&x, &index, &mut tmp).grid(1).stream(&stream).launch(device)?;
            pick(&tmp, &mut out, None).grid(1).launch(device)?;
        }
        assert_eq!(number(out.to_vec()), Some(1));
        assert_eq!(number(out.to_vec()), None);
        device.synchronize()
    })
}

#[test]
fn thousands_of_launches_without_a_look_lose_nothing() -> Result<()> {
    on_devices(|device| {
        let (x, [mut a, mut b, mut unrelated]) = buffers(device)?;
        let mut indices = vec![0; 8000];
        for bad in [3, 2999, 7000] {
            indices[bad] = BEYOND + bad as i64;
        }
        let index = device.upload(&indices)?;
        for round in 0..indices.len() {
            let (from, to) = if round % 2 == 0 { (&a, &mut b) } else { (&b, &mut a) };
            choose(from, index.slice(round..)?, to).grid(1).launch(device)?;
            pick(&x, &mut unrelated, None).grid(1).launch(device)?;
        }
        assert_eq!(number(unrelated.to_vec()), None);
        let copy = a.copy()?;
        assert_eq!(number(copy.to_vec()), Some(3));
        assert_eq!(number(a.to_vec()), Some(2999));
        assert_eq!(number(b.to_vec()), Some(7000));
        assert_eq!(number(a.to_vec()), None);
        device.synchronize()
    })
}

#[test]
fn each_launch_of_a_replay_has_its_own_error() -> Result<()> {
    on_devices(|device| {
        let (x, [mut a, mut b, mut c, mut saved]) = buffers(device)?;
        let mut index = device.upload(&[0, BEYOND + 1])?;
        let graph = device.capture(|| {
            choose(&x, &index, &mut a).grid(1).launch(device)?;
            choose(&x, index.slice(1..)?, &mut b).grid(1).launch(device)?;
            pick(&b, &mut c, None).grid(1).launch(device)
        })?;
        graph.replay()?;
        assert_eq!(number(a.to_vec()), None);
        assert_eq!(number(c.to_vec()), Some(1), "a launch of the graph reads what another has written");
        assert_eq!((number(b.to_vec()), number(device.synchronize())), (None, None));

        // The error of a replay is that of what was copied then, whatever later replays do.
        graph.replay()?;
        saved.copy_from(&b)?;
        index.copy_from_slice(&[0, 0])?;
        b.fill(0.0)?;
        c.fill(0.0)?;
        graph.replay()?;
        graph.replay()?;
        assert_eq!(number(a.to_vec()), None);
        assert_eq!(number(saved.to_vec()), Some(1));
        assert_eq!((number(b.to_vec()), number(c.to_vec()), number(device.synchronize())), (None, None, None));
        Ok(())
    })
}

#[test]
fn replays_pass_errors_on() -> Result<()> {
    on_devices(|device| {
        let (x, [mut a, mut b, mut c]) = buffers(device)?;
        let graph = device.capture(|| pick(&a, &mut b, None).grid(1).launch(device))?;
        pick(&x, &mut a, Some(1)).grid(1).launch(device)?;
        graph.replay()?;
        spread(&x, &mut c, &mut a).grid(1).launch(device)?;
        assert_eq!(number(c.to_vec()), None);
        assert_eq!(number(b.to_vec()), Some(1));
        graph.replay()?;
        assert_eq!(number(b.to_vec()), None);
        drop(graph);
        device.synchronize()
    })
}

#[test]
fn launches_of_several_threads_keep_their_errors_apart() -> Result<()> {
    on_devices(|device| {
        let shared = device.new_stream()?;
        let x = device.full(8, 1.0f32)?;
        let work = |thread: i64| -> Result<()> {
            let own = device.new_stream()?;
            let mut buffers: Vec<Buffer<f32>> = (0..3).map(|_| device.zeros(8)).collect::<Result<_>>()?;
            for round in 0..100 {
                let (failure, stream) = (1000 * thread + round, if round % 2 == 0 { &own } else { &shared });
                let index = device.upload(&[BEYOND + failure, 0])?;
                let [a, b, c] = &mut buffers[..] else { unreachable!("there are three") };
                choose(&x, &index, &mut *a).grid(1).stream(stream).launch(device)?;
                choose(&*a, index.slice(1..)?, &mut *b).grid(1).stream(&shared).launch(device)?;
                choose(&x, index.slice(1..)?, &mut *c).grid(1).stream(&own).launch(device)?;
                assert_eq!(number(c.to_vec()), None);
                assert_eq!(number(b.to_vec()), Some(failure));
                assert_eq!(number(a.to_vec()), None);
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || work(thread))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
        })?;
        device.synchronize()
    })
}

/// A launch by hand reads what a kernel failed to write.
#[test]
fn launches_by_hand_pass_errors_on() -> Result<()> {
    on_devices(|device| {
        let (x, [mut a, mut b, mut c]) = buffers(device)?;
        pick(&x, &mut a, Some(1)).grid(1).launch(device)?;
        let (by_hand, stream) = (LaunchId::next(), device.default_stream());
        b.prepare_write(stream, by_hand)?;
        a.prepare_read(stream, by_hand)?;
        pick(&b, &mut c, None).grid(1).launch(device)?;
        assert_eq!(number(c.to_vec()), Some(1));
        assert_eq!((number(a.to_vec()), number(b.to_vec())), (None, None));
        device.synchronize()
    })
}

/// What needs a GPU needs none here.
#[test]
#[cfg(all(jit, target_os = "linux"))]
fn errors_arrive_on_the_model_of_the_driver() {
    use tilewright_driver_model::{Settings, run_again};
    run_again(&Settings { reads_pageable: true, ..Settings::default() })
        .called("cuLaunchKernelEx", 10_000)
        .called("cuGraphLaunch", 5);
}
