//! Kernels on streams and memory of somebody else, who may be capturing: on the CPU, and on the first GPU if there is one.

mod buffers;
mod captures;
mod joined;
mod owner;

#[allow(dead_code, reason = "shared with other tests")]
#[path = "../errors/kernels.rs"]
mod failing;
#[allow(dead_code, reason = "shared with other tests")]
#[path = "../launch/kernels.rs"]
mod kernels;

use failing::{BEYOND, choose, number, pick, spread};
use kernel_runtime::launch::shapes_of;
use kernel_runtime::{Device, Error, LaunchId, Result, TensorDesc, View, ViewMut, synchronize_all};
use kernels::add;
use owner::{Owner, on_a_gpu};
use std::sync::Arc;

const N: usize = 300;

fn numbers() -> Vec<f32> {
    (0..N as u16).map(f32::from).collect()
}

#[test]
fn kernels_run_on_slices_of_the_host() -> Result<()> {
    let device = Device::cpu();
    let (x, mut out) = (numbers(), vec![0.0; N]);
    let (x_view, mut out_view) = (device.borrow_slice(&x)?, device.borrow_slice_mut(&mut out)?);
    // One borrow serves twice, and so do two of the same elements.
    add::<_, 128>(x_view, device.borrow_slice(&x)?, &mut out_view, N as i32).grid(3).launch(&device)?;
    let (first, rest) = out_view.split_at_mut(100)?;
    assert_eq!((first.to_vec()?[99], rest.as_view().slice(..1)?.to_vec()?[0]), (198.0, 200.0));
    assert_eq!(out, x.iter().map(|x| x + x).collect::<Vec<f32>>());
    Ok(())
}

#[test]
fn borrowed_elements_are_copied_and_filled_like_others() -> Result<()> {
    let device = Device::cpu();
    let mut elements = numbers();
    let mut own = device.full(N, 7.0f32)?;
    let mut view = device.borrow_slice_mut(&mut elements)?;
    own.copy_from(view.as_view())?;
    assert_eq!(own.to_vec()?, numbers());
    view.fill(3.0)?;
    assert_eq!((view.to_vec()?[N - 1], view.as_view().copy()?.to_vec()?[0]), (3.0, 3.0));
    view.copy_from(&own.as_view())?;
    view.reborrow().slice_mut(..2)?.copy_from_slice(&[-1.0, -2.0])?;
    view.reborrow().slice_mut(2..4)?.copy_from(&own.slice(4..6)?)?;
    assert_eq!(elements[..6], [-1.0, -2.0, 4.0, 5.0, 4.0, 5.0]);
    let nothing: [f64; 0] = [];
    assert!(device.borrow_slice(&nothing)?.to_vec()?.is_empty());
    Ok(())
}

#[test]
fn errors_of_the_cpu_wait_for_whoever_asks() -> Result<()> {
    let device = Device::cpu();
    let (x, index, mut out) = (numbers(), [BEYOND + 3], [0.0f32]);
    let run = |index: &[i64], out: &mut [f32]| -> Result<()> {
        let (x, index) = (device.borrow_slice(&x)?, device.borrow_slice(index)?);
        choose(x, index, device.borrow_slice_mut(out)?).grid(1).launch(&device)
    };
    run(&index, &mut out)?;
    assert_eq!(number(device.poll_error().map_or(Ok(()), Err)), Some(3));
    assert!(device.poll_error().is_none());
    run(&[17], &mut out)?;
    assert_eq!((out[0], device.synchronize()), (17.0, Ok(())));
    Ok(())
}

/// What is done wrong by safe code alone.
#[test]
fn what_cannot_be_is_refused() -> Result<()> {
    let device = Device::cpu();
    let (x, mut out) = (numbers(), vec![0.0f32; N]);
    let mut view = device.borrow_slice_mut(&mut out)?;
    let recorded =
        device.capture(|| spread(device.borrow_slice(&x)?, &mut device.zeros(8)?, &mut view).grid(1).launch(&device));
    assert!(matches!(recorded, Err(Error::Unsupported { .. })), "allocating: {recorded:?}");
    let mut more = device.zeros::<f32>(8)?;
    let recorded = device.capture(|| spread(device.borrow_slice(&x)?, &mut more, &mut view).grid(1).launch(&device));
    let text = recorded.map(drop).expect_err("a graph would keep it").to_string();
    assert!(text.contains("borrowed memory") && text.contains("copy it to a buffer"), "{text}");
    // SAFETY: nothing is read.
    let unaligned = unsafe { device.borrow::<f32>(0x1001, 4) }.map(drop).expect_err("no float is there").to_string();
    assert!(unaligned.contains("0x1001") && unaligned.contains("multiple of 4"), "{unaligned}");
    Ok(())
}

#[test]
fn launches_on_borrowed_memory_are_calls_of_the_driver_alone() -> Result<()> {
    on_a_gpu(|| {
        let owner = Owner::new();
        let device = owner.device()?;
        let (x, sum, out) = (owner.upload(&numbers()), owner.zeros(N), owner.zeros(N));
        for _ in 0..3 {
            // SAFETY: all is used in the order of the owner's stream, which waits below.
            let (x, mut sum) = unsafe { (device.borrow::<f32>(x, N)?, device.borrow_mut::<f32>(sum, N)?) };
            add::<_, 128>(x, x, &mut sum, N as i32).grid(3).launch(&device)?;
            // SAFETY: as above.
            let mut out = unsafe { device.borrow_mut::<f32>(out, N)? };
            add::<_, 128>(&sum, x, &mut out, N as i32).grid(3).launch(&device)?;
        }
        owner.check_that_launches_are_single_calls(|| {
            // SAFETY: as above.
            let (x, sum) = unsafe { (device.borrow::<f32>(x, N)?, device.borrow_mut::<f32>(sum, N)?) };
            add::<_, 128>(x, x, sum, N as i32).grid(3).launch(&owner.device()?)
        })?;
        owner.wait();
        assert_eq!(owner.read(out, N), numbers().iter().map(|x| 3.0 * x).collect::<Vec<f32>>());
        assert_eq!(device.poll_error(), None);
        // SAFETY: nothing is launched on it.
        let elsewhere = unsafe { device.borrow::<f32>(x, N)? };
        let cpu = Device::cpu();
        let refused = pick(elsewhere, &mut cpu.zeros(8)?, None).grid(1).launch(&cpu);
        assert!(matches!(&refused, Err(Error::WrongDevice { argument, .. }) if &**argument == "x"), "{refused:?}");
        let host = numbers();
        let refused = pick(cpu.borrow_slice(&host)?, &mut device.zeros(8)?, None).grid(1).launch(&device);
        assert!(matches!(&refused, Err(Error::WrongDevice { argument, .. }) if &**argument == "x"), "{refused:?}");
        Ok(())
    })
}

#[test]
fn devices_are_found_by_stream_and_thread() -> Result<()> {
    on_a_gpu(|| {
        let owner = Owner::new();
        let (first, again) = (owner.device()?, owner.device()?);
        assert_eq!(first.default_stream(), again.default_stream());
        // SAFETY: the streams of every thread are alive.
        let of = |stream: u64| unsafe { Device::of_stream(0, stream) };
        assert_eq!(of(0)?.default_stream(), of(0)?.default_stream());
        let here = of(2)?;
        assert_eq!(here.default_stream(), of(2)?.default_stream());
        let there = std::thread::spawn(move || of(2)).join().expect("no panic")?;
        assert_ne!(here.default_stream(), there.default_stream());
        assert_eq!(here, there, "memory of one can be used on the other");
        // SAFETY: nothing is launched.
        assert!(matches!(unsafe { Device::of_stream(1000, 0) }, Err(Error::NoSuchDevice { .. })));
        Ok(())
    })
}

/// A device that safe code made of a stream keeps it.
#[test]
fn a_stream_of_cudarc_is_kept() -> Result<()> {
    on_a_gpu(|| {
        let ctx = cudarc::driver::CudaContext::new(0).expect("there is a GPU");
        let stream = ctx.new_stream().expect("a stream");
        let device = Device::of_cudarc(&stream)?;
        assert_eq!(device.default_stream(), Device::of_cudarc(&stream)?.default_stream());
        drop(stream);
        let x = device.upload(&numbers())?;
        let mut out = device.zeros::<f32>(N)?;
        add::<_, 128>(&x, &x, &mut out, N as i32).grid(3).launch(&device)?;
        assert_eq!(out.to_vec()?, numbers().iter().map(|x| x + x).collect::<Vec<f32>>());
        device.synchronize()
    })
}

#[test]
fn streams_of_cudarc_that_nobody_has_end() -> Result<()> {
    on_a_gpu(|| {
        let ctx = cudarc::driver::CudaContext::new(0).expect("there is a GPU");
        let new_stream = || ctx.new_stream().expect("a stream");
        let (ends, stays) = (new_stream(), new_stream());
        let (device, other) = (Device::of_cudarc(&ends)?, Device::of_cudarc(&stays)?);
        let end = Arc::downgrade(&ends);
        drop(ends);
        Device::of_cudarc(&new_stream())?;
        assert_eq!(end.strong_count(), 1, "a device is one who has it");
        drop(device);
        Device::of_cudarc(&new_stream())?;
        assert_eq!(end.strong_count(), 0);
        assert_eq!(Device::of_cudarc(&stays)?.default_stream(), other.default_stream());
        Ok(())
    })
}

/// A kernel fails on the owner's stream, the owner waits in its own way, and the next call is told.
fn check_errors(owner: &Owner) -> Result<()> {
    let device = owner.device()?;
    let (x, good, bad, out) =
        (owner.upload(&numbers()), owner.upload(&[5i64]), owner.upload(&[BEYOND + 9]), owner.zeros(1));
    let run = |index: u64| -> Result<()> {
        // SAFETY: all is used in the order of the owner's stream.
        let (x, index, out) = unsafe { (device.borrow(x, N)?, device.borrow(index, 1)?, device.borrow_mut(out, 1)?) };
        choose(x, index, out).grid(1).launch(&device)
    };
    run(good)?;
    run(bad)?;
    run(good)?;
    owner.wait();
    assert_eq!(number(device.poll_error().map_or(Ok(()), Err)), Some(9), "it was known");
    assert_eq!(device.poll_error(), None);
    assert_eq!(owner.read(out, 1), [5.0]);
    run(bad)?;
    assert_eq!(number(device.synchronize()), Some(9));
    // More launches than there are records.
    for _ in 0..5000 {
        run(good)?;
    }
    run(bad)?;
    assert_eq!(number(device.synchronize()), Some(9));
    assert_eq!(device.synchronize(), Ok(()));
    Ok(())
}

#[test]
fn errors_come_with_the_next_call() -> Result<()> {
    on_a_gpu(|| check_errors(&Owner::new()))
}

#[test]
fn asking_for_errors_costs_no_call_of_the_driver_where_nothing_has_failed() -> Result<()> {
    on_a_gpu(|| {
        let owner = Owner::new();
        let device = owner.device()?;
        let (x, good, bad, out) =
            (owner.upload(&numbers()), owner.upload(&[5i64]), owner.upload(&[BEYOND + 4]), owner.zeros(1));
        let run = |index: u64| -> Result<()> {
            // SAFETY: all is used in the order of the owner's stream.
            let (x, index, out) =
                unsafe { (device.borrow(x, N)?, device.borrow(index, 1)?, device.borrow_mut(out, 1)?) };
            choose(x, index, out).grid(1).launch(&device)
        };
        let check_silence = || {
            owner.check_that_the_driver_is_not_called(|| {
                assert_eq!(device.poll_error(), None);
                Ok(())
            })
        };
        check_silence()?;
        // While they run, and when they are over.
        (0..20).try_for_each(|_| run(good))?;
        check_silence()?;
        owner.wait();
        check_silence()?;
        // One of many is found, whether it is among those that are looked at or not.
        for before in [0, 3, 100, 700] {
            (0..before).try_for_each(|_| run(good))?;
            run(bad)?;
            (0..before).try_for_each(|_| run(good))?;
            owner.wait();
            assert_eq!(number(device.poll_error().map_or(Ok(()), Err)), Some(4), "{before} before it");
            check_silence()?;
        }
        assert!(device.is_current()? && Device::cpu().is_current()?);
        owner.leave_context();
        assert!(!device.is_current()?);
        Ok(())
    })
}

#[test]
fn threads_with_streams_of_their_own_never_wait_for_the_whole_gpu() -> Result<()> {
    on_a_gpu(|| {
        let owner = Owner::of_thread();
        owner.check_that_nothing_waits_for_all(|| check_errors(&owner))?;
        std::thread::spawn(|| check_errors(&Owner::of_thread())).join().expect("no panic")
    })
}

/// What cannot fail has no record that would say where it was launched.
fn check_that_strays_are_waited_for(
    work: impl Fn(&Device, View<'_, f32>, ViewMut<'_, f32>) -> Result<()> + Sync,
) -> Result<Vec<f32>> {
    let owner = Owner::new();
    let ctx = cudarc::driver::CudaContext::new(0).expect("there is a GPU");
    let device = Device::from_cudarc(ctx.clone(), ctx.per_thread_stream())?;
    let (x, out) = (owner.upload(&numbers()), owner.zeros(N));
    std::thread::scope(|scope| {
        // SAFETY: one thread uses them, until all is waited for.
        let run = || work(&device, unsafe { device.borrow(x, N)? }, unsafe { device.borrow_mut(out, N)? });
        scope.spawn(run).join().expect("no panic")
    })?;
    device.synchronize()?;
    Ok(owner.read(out, N))
}

#[test]
fn work_of_other_threads_on_their_default_streams_is_waited_for() -> Result<()> {
    on_a_gpu(|| {
        let sums = check_that_strays_are_waited_for(|device, x, out| {
            add::<_, 128>(x, x, out, N as i32).grid(3).launch(device)
        })?;
        assert_eq!(sums, numbers().iter().map(|x| 2.0 * x).collect::<Vec<f32>>());
        assert_eq!(check_that_strays_are_waited_for(|_, x, mut out| out.copy_from(&x))?, numbers());
        assert_eq!(check_that_strays_are_waited_for(|_, _, mut out| out.fill(5.0))?, vec![5.0; N]);
        Ok(())
    })
}

#[test]
fn the_legacy_stream_is_one_like_others() -> Result<()> {
    on_a_gpu(|| check_errors(&Owner::legacy()))
}

/// Work that is only looked at has addresses of nothing, and touches them neither on the host nor on a GPU.
fn check_nowhere(device: &Device) -> Result<()> {
    const NOWHERE: u64 = 1 << 60;
    // SAFETY: nothing has to be there while launches are noted.
    let (x, mut out) = unsafe { (device.borrow::<f32>(NOWHERE, N)?, device.borrow_mut::<f32>(NOWHERE + 4096, N)?) };
    let mut own = device.upload(&numbers())?;
    let launches = shapes_of(|| {
        out.fill(1.0)?;
        out.copy_from_slice(&numbers())?;
        out.copy_from(&x)?;
        out.copy_from(&own.as_view())?;
        own.as_view_mut().copy_from(&x)?;
        assert_eq!(x.copy()?.to_vec()?, vec![0.0; N]);
        let refused = x.to_vec().expect_err("there is nothing to read");
        assert!(refused.to_string().contains("reading borrowed memory while launches are noted"), "{refused}");
        let by_hand = |done: Result<_, Error>| {
            let refused = done.expect_err("a launch by hand would be made").to_string();
            assert!(refused.contains("a launch by hand over borrowed memory while launches are noted"), "{refused}");
        };
        let stream = device.default_stream();
        by_hand(x.prepare_read(stream, LaunchId::next()));
        by_hand(out.prepare_write(stream, LaunchId::next()));
        add::<_, 64>(x, x, &mut out, N as i32).grid(5).launch(device)
    })?;
    assert_eq!(launches.iter().map(|launch| launch.kernel()).collect::<Vec<_>>(), ["add"]);
    assert_eq!(own.to_vec()?, numbers(), "nothing was there to be copied");
    device.synchronize()
}

#[test]
fn noted_launches_need_no_memory_of_somebody_else() -> Result<()> {
    check_nowhere(&Device::cpu())?;
    on_a_gpu(|| check_nowhere(&Owner::new().device()?))
}

/// What is launched elsewhere looks at other streams too, but not at those that may be gone.
#[test]
fn streams_that_their_owner_has_destroyed_are_left_alone() -> Result<()> {
    on_a_gpu(|| {
        let owner = Owner::new();
        let (x, index, out) = (owner.upload(&numbers()), owner.upload(&[5i64]), owner.zeros(1));
        let run = |device: &Device| -> Result<()> {
            // SAFETY: all is used in the order of one stream after the other.
            let (x, index, out) =
                unsafe { (device.borrow(x, N)?, device.borrow(index, 1)?, device.borrow_mut(out, 1)?) };
            choose(x, index, out).grid(1).launch(device)
        };
        for _ in 0..3 {
            let gone = Owner::new();
            run(&gone.device()?)?;
            gone.wait();
            gone.destroy();
        }
        let device = owner.device()?;
        (0..3000).try_for_each(|_| run(&device))?;
        device.synchronize()
    })
}

#[test]
fn contexts_that_were_current_stay_so() -> Result<()> {
    on_a_gpu(|| {
        // The legacy stream is one of the current context, whichever that is.
        let owner = Owner::legacy();
        let device = owner.device()?;
        let (x, out) = (owner.upload(&numbers()), owner.zeros(N));
        owner.leave_context();
        device.keeping_current(|| {
            // SAFETY: all is used in the order of the owner's stream.
            let (x, out) = unsafe { (device.borrow::<f32>(x, N)?, device.borrow_mut::<f32>(out, N)?) };
            add::<_, 64>(x, x, out, N as i32).grid(5).launch(&device)
        })?;
        assert!(Owner::has_left_context());
        assert_eq!(synchronize_all(std::slice::from_ref(&device)), Ok(()));
        assert!(Owner::has_left_context());
        assert_eq!(Owner::legacy().read(out, N), numbers().iter().map(|x| x + x).collect::<Vec<f32>>());
        Ok(())
    })
}

/// Blocks are copied by descriptors too, of memory of which rows have gaps.
#[test]
fn descriptors_are_made_of_borrowed_memory() -> Result<()> {
    let device = Device::cpu();
    let elements = numbers();
    let tensor = TensorDesc::with_strides(device.borrow_slice(&elements)?, [10, 7], [30, 1])?;
    assert_eq!((tensor.shape(), tensor.strides()), ([10, 7], [30, 1]));
    assert!(TensorDesc::new(device.borrow_slice(&elements)?, [31, 10]).is_err());
    Ok(())
}

/// What needs a GPU needs none here.
#[test]
#[cfg(all(jit, target_os = "linux"))]
fn foreign_streams_work_on_the_model_of_the_driver() {
    use tilewright_driver_model::{Schedule, Settings, run_again};
    for (seed, schedule) in [(1, Schedule::Random), (2, Schedule::Late), (3, Schedule::Random)] {
        let settings = Settings { seed, schedule, reads_pageable: seed == 3, ..Settings::default() };
        run_again(&settings).called("cuGraphLaunch", 20).called("cuLaunchKernelEx", 10_000);
    }
}

/// Where the driver does not allocate in the order of streams, a free waits.
#[test]
#[cfg(all(jit, target_os = "linux"))]
fn captures_are_left_alone_on_the_model_without_pools() {
    use tilewright_driver_model::{Settings, run};
    let program = std::env::current_exe().expect("a test knows where it is");
    let arguments = ["--exact", "captures::work_of_ours_leaves_captures_of_others_alone"];
    let settings = Settings { pools: false, ..Settings::default() };
    run(&program, &arguments, &settings).check().called("cuMemFree_v2", 3);
}
