//! Devices, buffers, views, streams and the errors of launches, on the CPU and, where there is
//! one, on a GPU.

use half::{bf16, f16};
use kernel_runtime::{
    Access, Buffer, DType, Device, Error, LaunchId, LaunchRecord, ReportSource, Result, Stream, View, ViewMut,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs a check on the CPU, and on the first GPU or says that it is skipped there.
fn on_devices(check: impl Fn(&Device) -> Result<()>) -> Result<()> {
    check(&Device::cpu())?;
    if let Some(gpu) = gpu() {
        check(&gpu)?;
    }
    Ok(())
}

/// The first GPU, or `None` with a message.
fn gpu() -> Option<Device> {
    static SKIPPED: AtomicUsize = AtomicUsize::new(0);
    if Device::cuda_count() > 0 {
        return Some(Device::cuda(0).expect("a device that is counted can be opened"));
    }
    let skipped = SKIPPED.fetch_add(1, Ordering::Relaxed) + 1;
    println!("skipped: no CUDA device ({skipped} GPU checks of this run)");
    None
}

fn out_of_bounds(site: u32) -> Error {
    Error::OutOfBounds {
        kernel: "kernel".into(),
        file: "kernel.rs".into(),
        line: site,
        column: 1,
        calls: Box::new([]),
        program_id: [1, 2, 3],
        offset: -5,
        len: 4,
        access: Access::Load,
        argument: "x".into(),
    }
}

/// Acts as a launch on `stream` that writes `out` and fails if `site` says where.
fn launch<T: DType>(stream: &Stream, mut out: ViewMut<'_, T>, site: Option<u32>) -> Result<LaunchId> {
    let source: Arc<dyn ReportSource> = Arc::new(|record: &LaunchRecord| out_of_bounds(record.site));
    let record = stream.acquire_record(source)?;
    let launch = record.id();
    out.prepare_write(stream, launch)?;
    if let Some(site) = site {
        match stream.cudarc() {
            None => stream.push_error(launch, out_of_bounds(site)),
            Some(cudarc) => {
                use cudarc::driver::sys::cuMemsetD32Async;
                stream.bind()?;
                for (offset, value) in [(4, site), (0, LaunchRecord::CLAIMED)] {
                    // SAFETY: the record is 64 bytes of memory that the GPU can write.
                    let code = unsafe { cuMemsetD32Async(record.device_ptr() + offset, value, 1, cudarc.cu_stream()) };
                    code.result().expect("filling a record");
                }
            }
        }
    }
    record.launched();
    Ok(launch)
}

#[test]
fn values_of_every_dtype_come_back() -> Result<()> {
    fn check<T: DType>(device: &Device, values: &[T]) -> Result<()> {
        let buffer = device.upload(values)?;
        assert_eq!((buffer.len(), buffer.device()), (values.len(), device));
        assert_eq!(buffer.to_vec()?, values);
        let mut target = vec![values[0]; values.len()];
        buffer.read_into(&mut target)?;
        assert_eq!(target, values);
        assert_eq!(buffer.copy()?.to_vec()?, values);
        assert_eq!(buffer.to_device(&Device::cpu())?.to_vec()?, values);

        let last = values[values.len() - 1];
        for len in [0, 1, 5, 10_000] {
            assert_eq!(device.full(len, last)?.to_vec()?, vec![last; len]);
        }
        let mut filled = device.upload(values)?;
        filled.slice_mut(1..2)?.fill(last)?;
        let mut expected = values.to_vec();
        expected[1] = last;
        assert_eq!(filled.to_vec()?, expected);
        Ok(())
    }
    on_devices(|device| {
        check(device, &[true, false, true])?;
        check(device, &[i8::MIN, -1, 0, i8::MAX])?;
        check(device, &[i16::MIN, -1, 0, 0x1234])?;
        check(device, &[i32::MIN, -1, 0, 0x1234_5678])?;
        check(device, &[i64::MIN, -1, 0, 0x1234_5678_9abc_def0])?;
        check(device, &[u8::MIN, 1, u8::MAX])?;
        check(device, &[u16::MIN, 1, u16::MAX])?;
        check(device, &[u32::MIN, 1, u32::MAX])?;
        check(device, &[u64::MIN, 1, u64::MAX])?;
        check(device, &[f16::MIN, f16::ZERO, f16::INFINITY, f16::from_f32(1.5)])?;
        check(device, &[bf16::MIN, bf16::ZERO, bf16::INFINITY, bf16::from_f32(1.5)])?;
        check(device, &[f32::MIN, 0.0, f32::INFINITY, 1.5])?;
        check(device, &[f64::MIN, 0.0, f64::INFINITY, 1.1])
    })
}

#[test]
fn zeros_are_zeros() -> Result<()> {
    on_devices(|device| {
        assert_eq!(device.zeros::<f32>(1000)?.to_vec()?, vec![0.0; 1000]);
        assert_eq!(device.zeros::<bool>(3)?.to_vec()?, [false; 3]);
        Ok(())
    })
}

#[test]
fn what_nobody_wrote_is_a_value_all_the_same() -> Result<()> {
    on_devices(|device| {
        assert_eq!(device.empty::<bool>(1000)?.to_vec()?, [false; 1000]);
        let mut buffer = device.empty::<f32>(1000)?;
        let unwritten = buffer.to_vec()?;
        if !device.is_cuda() {
            let expected = if cfg!(debug_assertions) { f32::from_bits(u32::MAX) } else { 0.0 };
            assert!(unwritten.iter().all(|x| x.to_bits() == expected.to_bits()));
        }
        buffer.slice_mut(..500)?.fill(1.0)?;
        assert_eq!(buffer.slice(..500)?.to_vec()?, [1.0; 500]);
        for len in [0, 1] {
            assert_eq!(device.empty::<f64>(len)?.to_vec()?.len(), len);
        }
        assert!(matches!(device.empty::<f64>(usize::MAX), Err(Error::OutOfMemory { .. })));
        Ok(())
    })
}

#[test]
fn bytes_of_a_kernel_that_are_no_bool_are_read_as_true() -> Result<()> {
    let device = Device::cpu();
    let mut buffer = device.zeros::<bool>(4)?;
    let raw = buffer.prepare_write(device.default_stream(), LaunchId::next())?;
    let kernel_runtime::Address::Host(pointer) = raw.address else { panic!("a CPU buffer is on the host") };
    // SAFETY: the buffer has four bytes and is borrowed by nobody else.
    unsafe { pointer.add(1).write(2) };
    assert_eq!(buffer.to_vec()?, [false, true, false, false]);
    let mut target = [true; 4];
    buffer.read_into(&mut target)?;
    assert_eq!(target, [false, true, false, false]);
    Ok(())
}

#[test]
fn views_are_parts() -> Result<()> {
    on_devices(|device| {
        let mut buffer = device.upload(&(0..10).collect::<Vec<i32>>())?;
        assert_eq!(buffer.slice(3..6)?.to_vec()?, [3, 4, 5]);
        assert_eq!(buffer.slice(3..=6)?.slice(1..)?.to_vec()?, [4, 5, 6]);
        assert_eq!(buffer.slice(..)?.len(), 10);
        let (left, right) = buffer.split_at(4)?;
        assert_eq!((left.len(), right.to_vec()?), (4, vec![4, 5, 6, 7, 8, 9]));
        assert_eq!(right.raw().address.get() - left.raw().address.get(), 16);

        let (mut left, mut right) = buffer.split_at_mut(5)?;
        left.copy_from(&right.as_view())?;
        right.reborrow().slice_mut(1..3)?.copy_from_slice(&[-1, -2])?;
        assert_eq!(buffer.to_vec()?, [5, 6, 7, 8, 9, 5, -1, -2, 8, 9]);
        assert_eq!(buffer.slice(5..8)?.copy()?.to_vec()?, [5, -1, -2]);

        let source = device.upload(&[7; 10])?;
        buffer.copy_from(&source)?;
        assert_eq!(buffer.to_vec()?, [7; 10]);
        Ok(())
    })
}

#[test]
fn wrong_ranges_and_lengths_are_errors() -> Result<()> {
    on_devices(|device| {
        let mut buffer = device.zeros::<u8>(4)?;
        #[allow(clippy::reversed_empty_ranges)]
        for range in [0..5, 3..2, 5..5, usize::MAX..usize::MAX] {
            assert!(matches!(buffer.slice(range.clone()), Err(Error::InvalidRange { len: 4, .. })), "{range:?}");
            assert!(buffer.slice_mut(range).is_err());
        }
        assert!(buffer.slice(..=usize::MAX).is_err());
        assert!(buffer.split_at_mut(5).is_err());
        let mismatch = |expected, actual| move |error: &Error| matches!(error, Error::LengthMismatch { expected: e, actual: a, .. } if (*e, *a) == (expected, actual));
        assert!(buffer.copy_from_slice(&[1; 5]).is_err_and(|error| mismatch(4, 5)(&error)));
        assert!(buffer.read_into(&mut [0; 3]).is_err_and(|error| mismatch(4, 3)(&error)));
        let other = device.zeros(2)?;
        assert!(buffer.copy_from(&other).is_err_and(|error| mismatch(4, 2)(&error)));
        Ok(())
    })
}

#[test]
fn buffers_without_elements_work() -> Result<()> {
    on_devices(|device| {
        let mut empty = device.upload::<f64>(&[])?;
        assert!(empty.is_empty() && empty.to_vec()?.is_empty());
        empty.copy_from_slice(&[])?;
        empty.fill(1.0)?;
        empty.read_into(&mut [])?;
        let copy = empty.copy()?;
        empty.copy_from(&copy)?;
        let (left, right) = empty.split_at_mut(0)?;
        assert!(left.is_empty() && right.is_empty());
        assert_ne!(empty.raw().address.get(), 0);
        assert!(device.zeros::<i8>(0)?.slice(0..0)?.to_vec()?.is_empty());
        Ok(())
    })
}

#[test]
fn addresses_are_aligned() -> Result<()> {
    on_devices(|device| {
        for len in [1, 3, 100] {
            assert_eq!(device.zeros::<u8>(len)?.raw().address.get() % 64, 0);
        }
        Ok(())
    })
}

#[test]
fn absurd_sizes_are_errors() -> Result<()> {
    on_devices(|device| {
        for len in [usize::MAX, usize::MAX / 8, usize::MAX / 8 + 1, isize::MAX as usize / 8, 1 << 56] {
            let result = device.zeros::<u64>(len);
            let Err(Error::OutOfMemory { requested, .. }) = result else { panic!("{len} elements: {result:?}") };
            assert!(requested as usize >= 1 << 59, "{requested}");
        }
        let result = device.full::<u8>(isize::MAX as usize, 1);
        assert!(matches!(result, Err(Error::OutOfMemory { .. })), "{result:?}");
        // Nothing is broken afterwards.
        assert_eq!(device.zeros::<u8>(1)?.to_vec()?, [0]);
        Ok(())
    })
}

#[test]
fn a_missing_driver_is_an_error() {
    if Device::cuda_count() > 0 {
        println!("skipped: this machine has a CUDA device");
        return;
    }
    let error = Device::cuda(0).expect_err("there is no device");
    assert!(matches!(error, Error::NoDriver { .. } | Error::NoSuchDevice { count: 0, .. } | Error::Driver { .. }));
    assert!(error.to_string().contains("Device::cpu()"), "{error}");
}

#[test]
fn a_device_that_does_not_exist_is_an_error() {
    let count = Device::cuda_count();
    match Device::cuda(count + 7).expect_err("there are fewer devices") {
        Error::NoSuchDevice { requested, count: found } => assert_eq!((requested, found), (count + 7, count)),
        Error::NoDriver { .. } => assert_eq!(count, 0),
        error => panic!("{error}"),
    }
}

#[test]
fn devices_describe_themselves() -> Result<()> {
    let cpu = Device::cpu();
    assert_eq!((cpu.to_string().as_str(), cpu.is_cuda(), cpu.compute_capability()), ("cpu", false, None));
    assert_eq!(cpu, Device::cpu());
    on_devices(|device| {
        assert!(!device.name().is_empty() && device.multiprocessor_count() > 0);
        let (free, total) = device.memory_info()?;
        assert!(free > 0 && free <= total);
        assert_eq!(*device, device.clone());
        device.trim_memory()
    })?;
    if let Some(gpu) = gpu() {
        assert!(gpu.is_cuda() && gpu != cpu && gpu == Device::cuda(0)?);
        assert!(gpu.compute_capability().is_some_and(|capability| capability >= (5, 0)));
        assert!(cpu.zeros::<f32>(4)?.prepare_read(gpu.default_stream(), LaunchId::next()).is_err());
    }
    Ok(())
}

#[test]
fn an_error_belongs_to_the_launch_that_wrote_the_buffer() -> Result<()> {
    on_devices(|device| {
        let stream = device.new_stream()?;
        let (mut a, mut b) = (device.zeros::<f32>(8)?, device.zeros::<f32>(8)?);
        launch(&stream, a.as_view_mut(), Some(1))?;
        // A later launch starts as if nothing had happened, and its result is fine.
        launch(&stream, b.as_view_mut(), None)?;
        assert_eq!(b.to_vec()?, [0.0; 8]);
        assert_eq!(a.to_vec(), Err(out_of_bounds(1)));
        assert_eq!(a.to_vec()?, [0.0; 8], "an error is delivered once");
        stream.synchronize()
    })
}

#[test]
fn synchronising_gives_the_oldest_error_first() -> Result<()> {
    on_devices(|device| {
        let (first, second) = (device.new_stream()?, device.new_stream()?);
        let mut buffers: Vec<Buffer<i32>> = (0..4).map(|_| device.zeros(1)).collect::<Result<_>>()?;
        for (index, buffer) in buffers.iter_mut().enumerate() {
            let stream = if index % 2 == 0 { &first } else { &second };
            launch(stream, buffer.as_view_mut(), Some(index as u32))?;
        }
        assert_eq!(second.synchronize(), Err(out_of_bounds(1)));
        assert_eq!(buffers[2].to_vec(), Err(out_of_bounds(2)));
        assert_eq!(device.synchronize(), Err(out_of_bounds(0)));
        assert_eq!(device.synchronize(), Err(out_of_bounds(3)));
        device.synchronize()
    })
}

#[test]
fn halves_on_two_streams_have_their_own_errors() -> Result<()> {
    on_devices(|device| {
        let (first, second) = (device.new_stream()?, device.new_stream()?);
        let mut buffer = device.zeros::<u8>(100)?;
        let (left, right) = buffer.split_at_mut(50)?;
        launch(&first, left, Some(1))?;
        launch(&second, right, Some(2))?;
        assert_eq!(buffer.slice(50..)?.to_vec(), Err(out_of_bounds(2)));
        assert_eq!(buffer.slice(50..)?.to_vec()?, [0; 50]);
        assert_eq!(buffer.to_vec(), Err(out_of_bounds(1)));
        assert_eq!(buffer.to_vec()?, [0; 100]);
        Ok(())
    })
}

#[test]
fn a_host_write_makes_a_buffer_good_again() -> Result<()> {
    on_devices(|device| {
        let stream = device.new_stream()?;
        let mut buffer = device.zeros::<i16>(3)?;
        launch(&stream, buffer.as_view_mut(), Some(9))?;
        buffer.copy_from_slice(&[1, 2, 3])?;
        assert_eq!(buffer.to_vec()?, [1, 2, 3]);
        assert_eq!(stream.synchronize(), Err(out_of_bounds(9)));
        Ok(())
    })
}

#[test]
fn launches_beyond_the_ring_lose_no_error() -> Result<()> {
    on_devices(|device| {
        let stream = device.new_stream()?;
        let mut buffer = device.zeros::<u8>(1)?;
        for index in 0..5000u32 {
            launch(&stream, buffer.as_view_mut(), (index % 1000 == 0).then_some(index))?;
        }
        for index in 0..5 {
            assert_eq!(stream.synchronize(), Err(out_of_bounds(index * 1000)));
        }
        stream.synchronize()
    })
}

#[test]
fn a_launch_that_is_given_up_reports_nothing() -> Result<()> {
    on_devices(|device| {
        let stream = device.new_stream()?;
        let source: Arc<dyn ReportSource> = Arc::new(|_: &LaunchRecord| out_of_bounds(0));
        let first = stream.acquire_record(source.clone())?;
        let address = first.device_ptr();
        drop(first);
        let second = stream.acquire_record(source)?;
        assert_eq!(second.device_ptr(), address, "its record is used again");
        drop(second);
        stream.synchronize()
    })
}

#[test]
fn buffers_order_the_streams_that_use_them() -> Result<()> {
    let Some(device) = gpu() else { return Ok(()) };
    // Large enough that each copy takes a while, so that a missing wait shows.
    let len = 1 << 24;
    let streams: Vec<Stream> = (0..4).map(|_| device.new_stream()).collect::<Result<_>>()?;
    let sources: Vec<Buffer<u32>> = (0..4).map(|i| device.full(len, i)).collect::<Result<_>>()?;
    let mut target = device.zeros::<u32>(len)?;
    for round in 0..8 {
        let which = round % 4;
        let stream = &streams[which];
        let copy = LaunchId::next();
        let from = sources[which].prepare_read(stream, copy)?;
        let to = target.prepare_write(stream, copy)?;
        let cudarc = stream.cudarc().expect("a GPU has cudarc streams");
        stream.bind()?;
        // SAFETY: both buffers have `len` elements and were prepared for this stream.
        unsafe {
            cudarc::driver::result::memcpy_dtod_async(to.address.get(), from.address.get(), len * 4, cudarc.cu_stream())
        }
        .expect("copying");
        // Dropped while the copy of the next round may still run.
        drop(target.copy()?);
    }
    assert!(target.to_vec()?.iter().all(|value| *value == 3));
    Ok(())
}

#[test]
fn cudarc_slices_come_and_go() -> Result<()> {
    let cpu = Device::cpu().zeros::<f32>(1)?;
    assert!(matches!(cpu.into_cudarc(), Err(Error::Unsupported { .. })));
    let Some(device) = gpu() else { return Ok(()) };
    let slice = device.upload(&[1.0f32, 2.0, 3.0])?.into_cudarc()?;
    assert_eq!(slice.len(), 3);
    let mut buffer = Buffer::from_cudarc(&device, slice)?;
    buffer.slice_mut(..1)?.fill(4.0)?;
    assert_eq!(buffer.to_vec()?, [4.0, 2.0, 3.0]);

    let ctx = cudarc::driver::CudaContext::new(0).expect("a context");
    for stream in [ctx.default_stream(), ctx.per_thread_stream(), ctx.new_stream().expect("a stream")] {
        let foreign = Device::from_cudarc(ctx.clone(), stream.clone())?;
        assert_eq!(foreign, device);
        let slice = stream.clone_htod(&[5.0f32, 6.0]).expect("an upload");
        let mut buffer = Buffer::from_cudarc(&foreign, slice)?;
        buffer.slice_mut(1..)?.fill(7.0)?;
        // Read on another thread, for which a per-thread stream is another stream.
        let values = std::thread::scope(|scope| scope.spawn(|| buffer.to_vec()).join().expect("no panic"))?;
        assert_eq!(values, [5.0, 7.0]);
        let slice = buffer.into_cudarc()?;
        assert_eq!(stream.clone_dtoh(&slice).expect("a download"), [5.0, 7.0]);
    }
    Ok(())
}

#[test]
fn foreign_memory_has_one_owner_and_is_aligned() -> Result<()> {
    let Some(device) = gpu() else { return Ok(()) };
    let stream = device.default_stream().cudarc().expect("a GPU has cudarc streams").clone();
    let address = device.upload(&(0..64).collect::<Vec<u32>>())?.into_cudarc()?.leak();
    // SAFETY: the ranges are parts of an allocation of 256 bytes that has been leaked. They overlap, which is what the
    // runtime has to notice; nothing but the first is used or freed.
    let slice = |bytes: u64, len: usize| unsafe { stream.upgrade_device_ptr::<u32>(address + bytes, len) };
    let is_refused = |result: Result<Buffer<u32>>, why: &str| match result {
        Err(error @ Error::Unsupported { .. }) => assert!(error.to_string().contains(why), "{error}"),
        other => panic!("{why}: {other:?}"),
    };
    is_refused(Buffer::from_cudarc(&device, slice(2, 4)), "not a multiple");
    let whole = Buffer::from_cudarc(&device, slice(0, 64))?;
    for (bytes, len) in [(0, 64), (0, 1), (128, 8), (252, 1)] {
        is_refused(Buffer::from_cudarc(&device, slice(bytes, len)), "another buffer has a part");
    }
    assert_eq!(whole.to_vec()?, (0..64).collect::<Vec<u32>>(), "the first is as good as before");
    // Given away and wrapped again: the memory is free in between.
    let mut again = Buffer::from_cudarc(&device, whole.into_cudarc()?)?;
    again.fill(7)?;
    assert_eq!(again.to_vec()?, [7; 64]);
    drop(again);
    device.synchronize()
}

#[test]
fn events_measure_and_order() -> Result<()> {
    on_devices(|device| {
        let (first, second) = (device.new_stream()?, device.new_stream()?);
        let start = first.record()?;
        let mut buffer = device.zeros::<u64>(1 << 20)?;
        launch(&first, buffer.as_view_mut(), None)?;
        let end = first.record()?;
        second.wait(&end)?;
        second.synchronize()?;
        assert!(end.is_complete()? && start.elapsed_ms(&end)? >= 0.0);
        end.synchronize()?;
        if device.is_cuda() {
            let cpu = Device::cpu().default_stream().record()?;
            assert!(matches!(start.elapsed_ms(&cpu), Err(Error::Unsupported { .. })));
        }
        Ok(())
    })
}

#[test]
fn threads_share_devices_streams_and_buffers() -> Result<()> {
    fn is_shareable<T: Send + Sync>() {}
    is_shareable::<Device>();
    is_shareable::<Stream>();
    is_shareable::<Buffer<f32>>();
    is_shareable::<View<'_, bool>>();
    is_shareable::<ViewMut<'_, f64>>();
    is_shareable::<Error>();
    on_devices(|device| {
        let shared = device.upload(&(0..1000).collect::<Vec<i32>>())?;
        let stream = device.new_stream()?;
        let work = |thread: i32| -> Result<()> {
            for round in 0..50u32 {
                assert_eq!(shared.slice(round as usize..)?.to_vec()?[0], round as i32);
                let reader = if round % 2 == 0 { &stream } else { device.default_stream() };
                shared.prepare_read(reader, LaunchId::next())?;
                let mut own = device.upload(&[thread; 10])?;
                let site = thread as u32 * 1000 + round;
                launch(&stream, own.as_view_mut(), Some(site))?;
                assert_eq!(own.to_vec(), Err(out_of_bounds(site)), "each launch's error reaches its own reader");
                assert_eq!(own.copy()?.to_vec()?, [thread; 10]);
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || work(thread))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
        })?;
        stream.synchronize()
    })
}

#[test]
fn an_error_that_nobody_takes_is_logged_once() -> Result<()> {
    use std::sync::Mutex;
    struct Collect;
    static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
    impl log::Log for Collect {
        fn enabled(&self, _: &log::Metadata<'_>) -> bool {
            true
        }
        fn log(&self, record: &log::Record<'_>) {
            LINES.lock().expect("no panic").push(record.args().to_string());
        }
        fn flush(&self) {}
    }
    log::set_logger(&Collect).expect("the only logger of this test binary");
    log::set_max_level(log::LevelFilter::Error);
    on_devices(|device| {
        let site = 77_000 + u32::from(device.is_cuda());
        let stream = device.new_stream()?;
        let mut buffer = device.zeros::<u8>(1)?;
        launch(&stream, buffer.as_view_mut(), Some(site))?;
        // The buffer keeps the stream that it was used on.
        drop((stream, buffer));
        let logged = |site: u32| {
            let lines = LINES.lock().expect("no panic");
            lines.iter().filter(|line| line.contains(&out_of_bounds(site).to_string())).count()
        };
        assert_eq!(logged(site), 1);

        // As long as a buffer depends on the launch, its reader may still be told.
        let site = site + 100;
        let (stream, mut copy) = (device.new_stream()?, device.zeros::<u8>(1)?);
        let mut buffer = device.zeros::<u8>(1)?;
        launch(&stream, buffer.as_view_mut(), Some(site))?;
        copy.copy_from(&buffer)?;
        drop((stream, buffer));
        assert_eq!(logged(site), 0);
        drop(copy);
        assert_eq!(logged(site), 1);
        Ok(())
    })
}

/// What needs a GPU needs none here.
#[test]
#[cfg(all(jit, target_os = "linux"))]
fn memory_works_on_the_model_of_the_driver() {
    use tilewright_driver_model::{Settings, run_again};
    for (pools, allocates) in [(true, "cuMemAllocAsync"), (false, "cuMemAlloc_v2")] {
        let run = run_again(&Settings { pools, ..Settings::default() });
        run.called("cuMemcpyHtoDAsync_v2", 100).called("cuMemcpyDtoHAsync_v2", 500).called(allocates, 500);
    }
}
