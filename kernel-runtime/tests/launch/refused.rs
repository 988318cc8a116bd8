//! Launches that are refused before they run: devices, options, calls and texts that do not fit.

use crate::kernels::{ADD, COUNT, GATHER, add, count, leak};
use crate::on_devices;
use kernel_runtime::launch::{Call, KernelSource, UnsafeCall};
use kernel_runtime::{Device, Error, Result};

#[test]
fn buffers_of_another_device_are_named() -> Result<()> {
    let cpu = Device::cpu();
    let other_cpu = Device::cpu();
    let x = other_cpu.zeros::<f32>(4)?;
    let mut out = cpu.zeros::<f32>(4)?;
    add::<_, 4>(&x, &x, &mut out, 4).grid(1).launch(&cpu)?;
    if Device::cuda_count() == 0 {
        println!("skipped: no CUDA device (buffers on another device)");
        return Ok(());
    }
    let gpu = Device::cuda(0)?;
    let wrong = |argument: &str, actual: &str, expected: &str| {
        Err(Error::WrongDevice { argument: argument.into(), actual: actual.into(), expected: expected.into() })
    };
    let y = gpu.zeros::<f32>(4)?;
    assert_eq!(add::<_, 4>(&x, &y, &mut out, 4).grid(1).launch(&cpu), wrong("y", "cuda:0", "cpu"));
    assert_eq!(add::<_, 4>(&y, &y, &mut out, 4).grid(1).launch(&gpu), wrong("out", "cpu", "cuda:0"));
    let stream = gpu.new_stream()?;
    let launched = add::<_, 4>(&x, &x, &mut out, 4).grid(1).stream(&stream).launch(&cpu);
    assert_eq!(launched, wrong("", "cuda:0", "cpu"));

    // Nor are they taken by a kernel that has been launched there with arguments just like them.
    let mut there = gpu.zeros::<f32>(4)?;
    for stream in [gpu.default_stream(), &stream] {
        add::<_, 4>(&y, &y, &mut there, 4).grid(1).stream(stream).launch(&gpu)?;
        for grid in [1, 0] {
            let launched = add::<_, 4>(&y, &y, &mut out, 4).grid(grid).stream(stream).launch(&gpu);
            assert_eq!(launched, wrong("out", "cpu", "cuda:0"));
        }
    }
    // The same GPU opened again is no other device, but has a stream of its own.
    let again = Device::cuda(0)?;
    add::<_, 4>(&y, &y, &mut there, 4).grid(1).launch(&again)?;
    add::<_, 4>(&there, &y, &mut gpu.zeros::<f32>(4)?, 4).grid(1).launch(&gpu)?;
    gpu.synchronize()?;
    again.synchronize()
}

#[test]
fn what_does_not_bind_shows_its_source() -> Result<()> {
    on_devices(|device| {
        let x = device.zeros::<f32>(4)?;
        let mut out = device.zeros::<f32>(4)?;
        let error = add::<_, 100>(&x, &x, &mut out, 4).grid(1).launch(device).expect_err("100 is no power of two");
        let Error::Compile(diagnostic) = &error else { panic!("{error}") };
        assert_eq!((&*diagnostic.file, diagnostic.line), ("src/add.rs", 4));
        let text = error.to_string();
        assert!(text.contains("let offsets = program_id(0) * BLOCK + arange(0, BLOCK);"), "{text}");
        assert!(text.contains("T = f32, BLOCK = 100"), "{text}");
        assert!(text.contains("100") && text.contains("power of two"), "{text}");
        device.synchronize()
    })
}

#[test]
fn options_are_checked() -> Result<()> {
    on_devices(|device| {
        let x = device.zeros::<f32>(4)?;
        let mut out = device.zeros::<f32>(4)?;
        for warps in [0, 5, 64] {
            let launched = add::<_, 4>(&x, &x, &mut out, 4).grid(1).num_warps(warps).launch(device);
            assert!(matches!(launched, Err(Error::InvalidSetting { .. })), "{warps}");
        }
        let launched = add::<_, 4>(&x, &x, &mut out, 4).grid(0).num_stages(0).launch(device);
        assert!(matches!(launched, Err(Error::InvalidSetting { .. })), "a grid of zero checks its arguments too");
        add::<_, 4>(&x, &x, &mut out, 4).grid(1).num_warps(1).num_stages(2).launch(device)
    })
}

/// That the call does not fit the kernel, for the reason that contains `what`.
fn check_mismatch(result: Result<()>, what: &str) {
    match result {
        Err(Error::Unsupported { reason, .. }) => assert!(reason.contains(what), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_call_that_does_not_fit_its_kernel_is_an_error() -> Result<()> {
    on_devices(|device| {
        let kernel = leak(GATHER);
        let x = device.zeros::<f32>(4)?;
        let doubles = device.zeros::<f64>(4)?;
        let mut out = device.zeros::<f32>(4)?;
        // Not a closure, whose calls would all borrow for the same time.
        macro_rules! call {
            () => {
                Call::new(kernel, ())
            };
        }
        check_mismatch(call!().grid(1).launch(device), "4 parameters");
        check_mismatch(call!().dtype::<f32>().grid(1).launch(device), "0 dtype parameters");
        check_mismatch(call!().constant(3).grid(1).launch(device), "0 constexprs");
        let wrong = call!().ptr(&doubles).ptr_mut(&mut out).scalar(1i64).const_scalar(1.0f32);
        check_mismatch(wrong.grid(1).launch(device), "`x`");
        let wrong = call!().ptr(&x).ptr(&x).scalar(1i64).const_scalar(1.0f32);
        check_mismatch(wrong.grid(1).launch(device), "`out`");
        let wrong = call!().ptr(&x).ptr_mut(&mut out).scalar(1i32).const_scalar(1.0f32);
        check_mismatch(wrong.grid(1).launch(device), "`stride`");
        let wrong = call!().ptr(&x).ptr_mut(&mut out).scalar(1i64).scalar(1.0f32);
        check_mismatch(wrong.grid(1).launch(device), "`eps`");
        let wrong = Call::new(leak(ADD), ()).dtype::<bool>().constant(4).ptr(&x).ptr(&x).ptr_mut(&mut out).scalar(4);
        check_mismatch(wrong.grid(1).launch(device), "Num");
        assert_eq!(kernel.compilations(), 0);
        Ok(())
    })
}

#[test]
fn unsafe_kernels_need_an_unsafe_launch() -> Result<()> {
    let mut source = COUNT;
    let ir = source.ir.replace("safe generic", "unsafe generic");
    source.ir = Box::leak(ir.into_boxed_str());
    let kernel = leak(source);
    on_devices(|device| {
        let mut out = device.zeros::<i32>(1)?;
        check_mismatch(count(kernel, &mut out, 1).grid(1).launch(device), "unsafe fn");
        let call = UnsafeCall::new(kernel, ()).ptr_mut(&mut out).scalar(1i32).grid(1);
        // SAFETY: the only access is to the first element, which is there.
        unsafe { call.launch(device)? };
        assert_eq!(out.to_vec()?, [1]);
        Ok(())
    })
}

#[test]
fn text_that_is_no_kernel_is_an_error() -> Result<()> {
    for ir in ["", "kernel", "kernel k \"\" safe bound {\n return\n}"] {
        let kernel = leak(KernelSource { ir, ..COUNT });
        let launched = Call::new(kernel, ()).grid(1).launch(&Device::cpu());
        let Err(Error::Compile(diagnostic)) = launched else { panic!("{launched:?}") };
        assert!(diagnostic.message.contains("kernel `count`"), "{diagnostic}");
        assert!(diagnostic.help.is_some());
    }
    Ok(())
}
