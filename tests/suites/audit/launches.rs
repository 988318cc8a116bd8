//! Launches from several threads and on several streams, buffers that are dropped early, errors for the right reader.

use std::sync::Barrier;

use tilewright::prelude::*;
use tilewright_tests::devices::check;

#[kernel]
fn scale<const BLOCK: usize>(x: Ptr<f32>, out: PtrMut<f32>, factor: f32, n: i32) {
    let i = program_id(0) * BLOCK + arange(0, BLOCK);
    store(out + i, load(x + i, mask = i < n) * factor, mask = i < n);
}

/// Enough work that a launch is still running when the next statement does something.
const LARGE: usize = 1 << 20;

#[test]
fn a_kernel_launched_from_many_threads() {
    check(|device| {
        let barrier = Barrier::new(8);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8usize)
                .map(|thread| {
                    let barrier = &barrier;
                    scope.spawn(move || -> Result<(), Error> {
                        let xs: Vec<f32> = (0..1000 + thread).map(|i| i as f32).collect();
                        let x = device.upload(&xs)?;
                        barrier.wait();
                        for round in 0..20 {
                            let factor = (thread * 100 + round) as f32;
                            let mut out = device.zeros::<f32>(xs.len())?;
                            // Different constexprs on different threads: some are compiled at the same time.
                            let consts = ScaleConsts { BLOCK: 64 << (thread % 3) };
                            let grid = xs.len().div_ceil(consts.BLOCK);
                            consts.call(&x, &mut out, factor, xs.len() as i32).grid(grid).launch(device)?;
                            let want: Vec<f32> = xs.iter().map(|x| x * factor).collect();
                            assert_eq!(out.to_vec()?, want, "thread {thread}, round {round}");
                        }
                        Ok(())
                    })
                })
                .collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("a thread panicked"))
        })
    });
}

#[test]
fn an_error_goes_to_the_thread_whose_launch_it_was() {
    check(|device| {
        let barrier = Barrier::new(8);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8usize)
                .map(|thread| {
                    let barrier = &barrier;
                    scope.spawn(move || -> Result<(), Error> {
                        let x = device.full(100, 2.0f32)?;
                        let mut out = device.zeros::<f32>(100)?;
                        barrier.wait();
                        for round in 0..20 {
                            let wrong = (thread + round) % 3 == 0;
                            // Each thread its own length, so that an error says whose it is.
                            let n = if wrong { 101 + thread as i32 } else { 100 };
                            let mut part = out.slice_mut(..100 - thread)?;
                            let n = n - thread as i32 * if wrong { 2 } else { 1 };
                            scale::<128>(&x, &mut part, 1.0, n).grid(1).launch(device)?;
                            match (wrong, part.to_vec()) {
                                (false, Ok(values)) => assert!(values.iter().all(|&v| v == 2.0)),
                                (true, Err(Error::OutOfBounds { len, .. })) => assert_eq!(len, 100 - thread as u64),
                                (_, other) => panic!("thread {thread}, round {round}: {other:?}"),
                            }
                        }
                        Ok(())
                    })
                })
                .collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("a thread panicked"))
        })
    });
}

#[test]
fn buffers_dropped_right_after_a_launch() {
    check(|device| {
        let mut results = Vec::new();
        for round in 0..10 {
            let x = device.full(LARGE, round as f32)?;
            let mut middle = device.zeros::<f32>(LARGE)?;
            let mut out = device.zeros::<f32>(LARGE)?;
            scale::<1024>(&x, &mut middle, 2.0, LARGE as i32).grid(LARGE.div_ceil(1024)).launch(device)?;
            drop(x);
            // Fills memory that was freed, if it was freed too early.
            let noise = device.full(LARGE, -1.0f32)?;
            scale::<1024>(&middle, &mut out, 2.0, LARGE as i32).grid(LARGE.div_ceil(1024)).launch(device)?;
            drop(middle);
            drop(noise);
            results.push(out);
        }
        for (round, out) in results.iter().enumerate() {
            assert!(out.to_vec()?.iter().all(|&v| v == 4.0 * round as f32), "round {round}");
        }
        Ok(())
    });
}

#[test]
fn buffers_used_on_several_streams() {
    check(|device| {
        let (first, second) = (device.new_stream()?, device.new_stream()?);
        let mut a = device.full(LARGE, 1.0f32)?;
        let mut b = device.zeros::<f32>(LARGE)?;
        let grid = LARGE.div_ceil(1024);
        for _ in 0..10 {
            // Each launch reads what the one before wrote, on another stream, without anybody waiting.
            scale::<1024>(&a, &mut b, 2.0, LARGE as i32).stream(&first).grid(grid).launch(device)?;
            scale::<1024>(&b, &mut a, 1.0, LARGE as i32).stream(&second).grid(grid).launch(device)?;
        }
        assert!(a.to_vec()?.iter().all(|&v| v == 1024.0));
        // Written by the host while a stream may still read it.
        scale::<1024>(&a, &mut b, 1.0, LARGE as i32).stream(&first).grid(grid).launch(device)?;
        a.fill(7.0)?;
        assert!(b.to_vec()?.iter().all(|&v| v == 1024.0));
        drop((first, second));
        assert!(a.to_vec()?.iter().all(|&v| v == 7.0));
        Ok(())
    });
}

#[test]
fn an_error_is_delivered_once_to_whoever_reads_the_result() {
    check(|device| {
        let x = device.full(10, 1.0f32)?;
        let (mut bad, mut good) = (device.zeros::<f32>(10)?, device.zeros::<f32>(10)?);
        scale::<32>(&x, &mut bad, 1.0, 11).grid(1).launch(device)?;
        // The next launches and other buffers know nothing of it.
        scale::<32>(&x, &mut good, 3.0, 10).grid(1).launch(device)?;
        assert_eq!(good.to_vec()?, [3.0; 10]);
        assert!(matches!(bad.to_vec(), Err(Error::OutOfBounds { .. })));
        assert_eq!(bad.to_vec()?, [1.0; 10], "the second time it is gone");
        device.synchronize()?;

        // Two errors that nobody reads: synchronising gives them in order, one at a time.
        scale::<32>(&x, &mut bad, 1.0, 12).grid(1).launch(device)?;
        let mut short = bad.slice_mut(..5)?;
        scale::<32>(&x, &mut short, 1.0, 6).grid(1).launch(device)?;
        let lengths = [device.synchronize(), device.synchronize()].map(|result| match result {
            Err(Error::OutOfBounds { len, .. }) => len,
            other => panic!("{other:?}"),
        });
        assert_eq!(lengths, [10, 5]);
        device.synchronize()
    });
}

#[test]
fn errors_of_one_stream_are_not_those_of_another() {
    check(|device| {
        let (first, second) = (device.new_stream()?, device.new_stream()?);
        let x = device.full(10, 1.0f32)?;
        let (mut a, mut b) = (device.zeros::<f32>(10)?, device.zeros::<f32>(10)?);
        scale::<32>(&x, &mut a, 1.0, 11).stream(&first).grid(1).launch(device)?;
        scale::<32>(&x, &mut b, 1.0, 10).stream(&second).grid(1).launch(device)?;
        second.synchronize()?;
        assert!(matches!(first.synchronize(), Err(Error::OutOfBounds { .. })));
        first.synchronize()?;
        assert_eq!(b.to_vec()?, [1.0; 10]);
        Ok(())
    });
}

#[test]
fn a_stream_of_another_device_is_refused() {
    check(|device| {
        let x = device.full(10, 1.0f32)?;
        if device.is_cuda() {
            let mut elsewhere = Device::cpu().zeros::<f32>(10)?;
            let refused = scale::<32>(&x, &mut elsewhere, 1.0, 10).grid(1).launch(device);
            match refused {
                Err(Error::WrongDevice { argument, .. }) => assert_eq!(&*argument, "out"),
                other => panic!("{other:?}"),
            }
        }
        Ok(())
    });
}

#[kernel(max_registers = 64)]
fn sums(x: Ptr<f32>, out: PtrMut<f32>) {
    let v = load(x + arange(0, 1024));
    store(out + arange(0, 1024), cumsum(v, axis = 0));
}

#[test]
fn registers_are_limited_by_kernels_and_calls() {
    check(|device| {
        let x = device.full(1024, 1.0f32)?;
        let mut out = device.zeros::<f32>(1024)?;
        sums(&x, &mut out).grid(1).launch(device)?;
        sums(&x, &mut out).max_registers(32).grid(1).launch(device)?;
        assert!(out.to_vec()?.iter().enumerate().all(|(i, &v)| v == i as f32 + 1.0));
        for registers in [0, 8, 256] {
            let launched = sums(&x, &mut out).max_registers(registers).grid(1).launch(device);
            assert!(matches!(launched, Err(Error::InvalidSetting { .. })), "{registers}");
        }
        Ok(())
    });
}
