//! Launches: arguments, grids, caches, errors. On the CPU, and on the first GPU if there is one.

mod kernels;
mod made;
mod refused;

use kernel_runtime::launch::{Call, GRID_LIMITS, Kernel, Target};
use kernel_runtime::{Access, Device, Error, Result, Stream, ViewMut};
use kernels::{ADD, AddConsts, COUNT, GATHER, INLINED, add, count, gather, inlined, leak};
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

/// `0, 1, 2, ..` and their sums with themselves.
fn inputs(n: usize) -> (Vec<f32>, Vec<f32>) {
    let xs: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let sums = xs.iter().map(|x| x + x).collect();
    (xs, sums)
}

#[test]
fn a_kernel_is_called_like_a_function() -> Result<()> {
    on_devices(|device| {
        let n = 1000;
        let (xs, sums) = inputs(n);
        let x = device.upload(&xs)?;
        let y = device.upload(&xs)?;
        let mut out = device.zeros::<f32>(n)?;
        add::<_, 128>(&x, &y, &mut out, n as i32).grid(n.div_ceil(128)).launch(device)?;
        assert_eq!(out.to_vec()?, sums);

        let mut out = device.zeros::<f32>(n)?;
        AddConsts { BLOCK: 256 }
            .call(leak(ADD), &x, &y, &mut out, n as i32)
            .grid_with(|c| n.div_ceil(c.BLOCK))
            .num_warps(2)
            .launch(device)?;
        assert_eq!(out.to_vec()?, sums);
        Ok(())
    })
}

#[test]
fn other_dtypes_are_other_variants() -> Result<()> {
    on_devices(|device| {
        let x = device.upload(&[i64::MAX, 2, 3])?;
        let mut out = device.zeros::<i64>(3)?;
        add::<i64, 4>(&x, &x, &mut out, 3).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [-2, 4, 6], "sums wrap");
        let x = device.upload(&[half::f16::from_f32(0.5); 3])?;
        let mut out = device.zeros(3)?;
        add::<_, 4>(&x, &x, &mut out, 3).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [half::f16::ONE; 3]);
        Ok(())
    })
}

#[test]
fn views_are_arguments() -> Result<()> {
    on_devices(|device| {
        let (xs, _) = inputs(64);
        let x = device.upload(&xs)?;
        let mut out = device.zeros::<f32>(64)?;
        {
            let tail = x.slice(32..)?;
            let (mut left, right) = out.split_at_mut(16)?;
            add::<_, 16>(&tail, x.slice(16..)?, right, 16).grid(1).launch(device)?;
            add::<_, 16>(&left.as_view(), &tail, device.zeros::<f32>(16)?.as_view_mut(), 16).grid(1).launch(device)?;
            add::<_, 16>(tail, tail, &mut left, 16).grid(1).launch(device)?;
        }
        let mut expected = [0.0; 64];
        for i in 0..16 {
            expected[i] = 2.0 * (32 + i) as f32;
            expected[16 + i] = (32 + i + 16 + i) as f32;
        }
        assert_eq!(out.to_vec()?, expected);
        Ok(())
    })
}

#[test]
fn each_combination_is_compiled_once() -> Result<()> {
    let kernel = leak(ADD);
    let device = Device::cpu();
    let x = device.zeros::<f32>(64)?;
    let mut out = device.zeros::<f32>(64)?;
    for n in [1, 2, 16, 64, 64] {
        AddConsts { BLOCK: 16 }.call(kernel, &x, &x, &mut out, n).grid(4).launch(&device)?;
    }
    assert_eq!(kernel.compilations(), 1, "the interpreter takes nothing from the values of arguments");
    AddConsts { BLOCK: 32 }.call(kernel, &x, &x, &mut out, 64).grid(2).launch(&device)?;
    AddConsts { BLOCK: 32 }.call(kernel, &x, &x, &mut out, 64).grid(2).launch(&Device::cpu())?;
    assert_eq!(kernel.compilations(), 2, "constexprs are part of the key, devices of one kind are not");
    let ints = device.zeros::<i32>(64)?;
    let mut int_out = device.zeros::<i32>(64)?;
    AddConsts { BLOCK: 32 }.call(kernel, &ints, &ints, &mut int_out, 64).grid(2).launch(&device)?;
    assert_eq!(kernel.compilations(), 3, "dtypes are part of the key");
    Ok(())
}

#[test]
fn constants_are_folded_and_part_of_the_key() -> Result<()> {
    on_devices(|device| {
        let kernel = leak(GATHER);
        let x = device.upload(&[1.0f32, 2.0, 3.0, 4.0])?;
        let mut out = device.zeros::<f32>(2)?;
        for (eps, expected) in [(10.0, [10.0, 30.0]), (0.5, [0.5, 1.5]), (10.0, [10.0, 30.0])] {
            gather(kernel, &x, &mut out, 2, eps).grid(2).launch(device)?;
            assert_eq!(out.to_vec()?, expected);
        }
        assert_eq!(kernel.compilations(), 2);
        Ok(())
    })
}

#[test]
fn threads_share_one_compilation() -> Result<()> {
    on_devices(|device| {
        let kernel = leak(ADD);
        let (xs, sums) = inputs(1 << 12);
        let x = device.upload(&xs)?;
        std::thread::scope(|scope| {
            let launches: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        let mut out = device.zeros::<f32>(xs.len())?;
                        let grid = xs.len() / 256;
                        for _ in 0..10 {
                            AddConsts { BLOCK: 256 }
                                .call(kernel, &x, &x, &mut out, xs.len() as i32)
                                .grid(grid)
                                .launch(device)?;
                        }
                        out.to_vec()
                    })
                })
                .collect();
            for launch in launches {
                assert_eq!(launch.join().expect("no thread panics"), Ok(sums.clone()));
            }
        });
        assert_eq!(kernel.compilations(), 1);
        Ok(())
    })
}

/// The first thing that a thread does is to launch: nothing has made a context current on it.
#[test]
fn a_new_thread_may_launch() -> Result<()> {
    on_devices(|device| {
        let kernel = leak(COUNT);
        let mut out = device.zeros::<i32>(1)?;
        for _ in 0..3 {
            let out = &mut out;
            let launched = std::thread::scope(|scope| {
                scope.spawn(|| count(kernel, out, 1).grid(1).launch(device)).join().expect("no panic")
            });
            launched?;
        }
        assert_eq!(out.to_vec()?, [3]);
        Ok(())
    })
}

#[test]
fn a_grid_with_a_zero_runs_nothing() -> Result<()> {
    on_devices(|device| {
        let kernel = leak(COUNT);
        let mut out = device.zeros::<i32>(1)?;
        count(kernel, &mut out, 100).grid(0).launch(device)?;
        count(kernel, &mut out, 100).grid((3, 0u8)).launch(device)?;
        count(kernel, &mut out, 100).grid([3, 2, 0]).launch(device)?;
        assert_eq!(out.to_vec()?, [0]);
        assert_eq!(kernel.compilations(), 0);
        count(kernel, &mut out, 100).grid((3u32, 5i64, 2usize)).launch(device)?;
        assert_eq!(out.to_vec()?, [30]);
        Ok(())
    })
}

#[test]
fn grids_beyond_the_hardware_are_refused() -> Result<()> {
    on_devices(|device| {
        let kernel = leak(COUNT);
        let mut out = device.zeros::<i32>(1)?;
        let mut launch = |grid: [i64; 3]| count(kernel, &mut out, 1).grid(grid).launch(device);
        for (axis, limit) in GRID_LIMITS.into_iter().enumerate() {
            for value in [i64::from(limit) + 1, -1] {
                let mut grid = [1; 3];
                grid[axis] = value;
                assert_eq!(launch(grid), Err(Error::InvalidGrid { axis, value, limit: limit.into() }));
            }
        }
        let text = launch([-1, 1, 1]).expect_err("a negative grid").to_string();
        assert!(text.contains("-1 programs along axis 0"), "{text}");
        assert_eq!(out.to_vec()?, [0]);
        Ok(())
    })
}

/// The error of the add kernel's first load past the end of `x`.
fn past_the_end(program: u32, offset: i64, len: u64) -> Error {
    Error::OutOfBounds {
        kernel: "gather".into(),
        file: "src/gather.rs".into(),
        line: 4,
        column: 17,
        calls: Box::new([]),
        program_id: [program, 0, 0],
        offset,
        len,
        access: Access::Load,
        argument: "x".into(),
    }
}

#[test]
fn errors_reach_whoever_reads_what_the_launch_wrote() -> Result<()> {
    on_devices(|device| {
        let kernel = leak(GATHER);
        let x = device.upload(&[1.0f32, 2.0, 3.0])?;
        let mut good = device.zeros::<f32>(1)?;
        let mut bad = device.zeros::<f32>(2)?;
        gather(kernel, &x, &mut bad, 3, 1.0).grid(2).launch(device)?;
        gather(kernel, &x, &mut good, 3, 1.0).grid(1).launch(device)?;
        assert_eq!(good.to_vec()?, [1.0], "another launch's error is not this reader's");
        assert_eq!(bad.to_vec(), Err(past_the_end(1, 3, 3)));
        assert_eq!(bad.to_vec()?, [1.0, 0.0], "an error is delivered once; the suppressed lane read zero");
        device.synchronize()?;

        gather(kernel, &x, &mut bad, -1, 1.0).grid(2).launch(device)?;
        assert_eq!(device.synchronize(), Err(past_the_end(1, -1, 3)));
        assert_eq!(bad.to_vec()?, [1.0, 0.0]);
        Ok(())
    })
}

#[test]
fn a_failed_assertion_names_its_place_and_message() -> Result<()> {
    on_devices(|device| {
        let kernel = leak(COUNT);
        let mut out = device.zeros::<i32>(1)?;
        count(kernel, &mut out, 2).grid((1, 3)).launch(device)?;
        let error = out.to_vec().expect_err("program (0, 2, 0) fails");
        assert_eq!(
            error,
            Error::AssertFailed {
                kernel: "count".into(),
                file: "src/count.rs".into(),
                line: 4,
                column: 5,
                calls: Box::new([]),
                program_id: [0, 2, 0],
                message: "too many".into(),
            }
        );
        assert!(error.is_from_kernel());
        assert_eq!(out.to_vec()?, [2], "the program that failed ended before it counted");
        Ok(())
    })
}

/// What was inlined from another file fails there, when it runs and when it is bound.
#[test]
fn errors_name_the_file_that_they_are_in() -> Result<()> {
    on_devices(|device| {
        let kernel = leak(INLINED);
        let x = device.upload(&[5, -1])?;
        let mut out = device.zeros::<i32>(1)?;
        inlined(kernel, &x, &mut out, 0, 8).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [5 + 28]);

        inlined(kernel, &x, &mut out, 1, 8).grid(1).launch(device)?;
        match out.to_vec() {
            Err(Error::AssertFailed { file, line: 9, column: 5, .. }) => assert_eq!(&*file, "dep/src/lib.rs"),
            other => panic!("{other:?}"),
        }
        inlined(kernel, &x, &mut out, 2, 8).grid(1).launch(device)?;
        match out.to_vec() {
            Err(Error::OutOfBounds { file, line: 8, column: 17, argument, .. }) => {
                assert_eq!((&*file, &*argument), ("dep/src/lib.rs", "x"));
            }
            other => panic!("{other:?}"),
        }

        let error = inlined(kernel, &x, &mut out, 0, 100).grid(1).launch(device).expect_err("100 is no power of two");
        let text = error.to_string();
        assert!(text.contains(" --> dep/src/lib.rs:7:19\n"), "{text}");
        assert!(text.contains("7 |     let numbers = arange(0, N);\n"), "the line of that file: {text}");
        // A tile that is too large for its warps is a mistake in that file too.
        let error = inlined(kernel, &x, &mut out, 0, 1 << 16).grid(1).launch(device).expect_err("one warp is too few");
        assert!(error.to_string().contains(" --> dep/src/lib.rs:7:19\n"), "{error}");
        device.synchronize()
    })
}

#[test]
fn a_launch_never_returns_an_earlier_error() -> Result<()> {
    on_devices(|device| {
        let kernel = leak(COUNT);
        let stream = device.new_stream()?;
        let mut out = device.zeros::<i32>(1)?;
        count(kernel, &mut out, 0).grid(1).stream(&stream).launch(device)?;
        count(kernel, &mut out, 1).grid(1).stream(&stream).launch(device)?;
        assert!(matches!(out.to_vec(), Err(Error::AssertFailed { .. })), "a later launch hides nothing");
        assert_eq!(out.to_vec()?, [1], "an error is delivered once");
        stream.synchronize()
    })
}

#[test]
fn buffers_may_drop_right_after_the_launch() -> Result<()> {
    on_devices(|device| {
        let (xs, sums) = inputs(1 << 16);
        for _ in 0..20 {
            let mut out = device.zeros::<f32>(xs.len())?;
            {
                let x = device.upload(&xs)?;
                let mut scratch = device.zeros::<f32>(xs.len())?;
                let n = xs.len() as i32;
                add::<_, 1024>(&x, &x, &mut scratch, n).grid(xs.len() / 1024).launch(device)?;
                add::<_, 1024>(&x, &x, &mut out, n).grid(xs.len() / 1024).launch(device)?;
            }
            // The memory that was freed may be given out again at once.
            let other = device.full(xs.len(), -1.0f32)?;
            assert_eq!(out.to_vec()?, sums);
            drop(other);
        }
        Ok(())
    })
}

#[test]
fn streams_are_ordered_by_what_they_use() -> Result<()> {
    on_devices(|device| {
        let streams = [device.new_stream()?, device.new_stream()?, device.new_stream()?];
        let ones = device.full(1 << 16, 1.0f32)?;
        let mut a = device.zeros::<f32>(1 << 16)?;
        let mut b = device.zeros::<f32>(1 << 16)?;
        for round in 0..30 {
            let (from, to) = if round % 2 == 0 { (&a, &mut b) } else { (&b, &mut a) };
            add::<_, 1024>(from, &ones, to, 1 << 16).grid(64).stream(&streams[round % 3]).launch(device)?;
        }
        assert_eq!(a.to_vec()?, vec![30.0; 1 << 16]);
        Ok(())
    })
}

/// Two threads write the halves of a buffer, each on a stream of its own, and whoever reads it waits for both.
#[test]
fn halves_are_written_by_two_threads() -> Result<()> {
    on_devices(|device| {
        let half = 1 << 12;
        let (first, second) = (&device.new_stream()?, &device.new_stream()?);
        let ones = device.full(half, 1.0f32)?;
        let mut whole = device.zeros::<f32>(2 * half)?;
        for round in 0..20 {
            let (left, right) = whole.split_at_mut(half)?;
            std::thread::scope(|scope| {
                let write = |mut part: ViewMut<'_, f32>, stream: &Stream| {
                    (0..10).try_for_each(|_| {
                        let n = half as i32;
                        add::<_, 1024>(&ones, &ones, &mut part, n).grid(4).stream(stream).launch(device)
                    })
                };
                let other = scope.spawn(move || write(right, second));
                write(left, first).and(other.join().expect("no panic"))
            })?;
            assert_eq!(whole.to_vec()?, vec![2.0; 2 * half], "round {round}");
            whole.fill(0.0)?;
        }
        Ok(())
    })
}

#[test]
fn kernels_of_many_parameters_are_launched() -> Result<()> {
    const PARAMS: usize = 40;
    let params: String = (0..PARAMS).map(|i| format!("param %p{i} p{i}: i32\n")).collect();
    let sum: String = (0..PARAMS).map(|i| format!("%s{}: i32 = add %s{i}, %p{i}\n", i + 1)).collect();
    let ir = format!(
        "kernel many \"src/many.rs\" safe generic {{\n{params}param %out out: ptr_mut i32\n%s0: i32 = const 0\n{sum}\
         store %out, %s{PARAMS}\nreturn\n}}"
    );
    let source = kernel_runtime::launch::KernelSource { name: "many", ir: Box::leak(ir.into_boxed_str()), ..COUNT };
    let kernel: &'static Kernel = leak(source);
    on_devices(|device| {
        let mut out = device.zeros::<i32>(1)?;
        let call = (0..PARAMS).fold(Call::new(kernel, ()), |call, i| call.scalar(i as i32));
        call.ptr_mut(&mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [(0..PARAMS as i32).sum::<i32>()]);
        Ok(())
    })
}

/// Compiling for a GPU needs no GPU, but LLVM.
#[test]
fn every_stage_can_be_looked_at() -> Result<()> {
    let kernel = leak(ADD);
    let compiled = match (AddConsts { BLOCK: 1024 }).compile::<f32>(kernel, Target::sm_90a()) {
        Ok(compiled) => compiled,
        // A build without the code generator says so.
        Err(error @ Error::Unsupported { .. }) if !cfg!(jit) => {
            let advice = if cfg!(feature = "jit") { "feature `link-llvm`" } else { "feature `jit`" };
            assert!(error.to_string().contains(advice), "{error}");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    assert!(compiled.tile_ir().contains("BLOCK"));
    assert!(compiled.bound_ir().contains("f32[1024]") && !compiled.bound_ir().contains("BLOCK"));
    assert!(compiled.placed_ir().contains("layout"));
    assert!(compiled.llvm_ir().contains("define") && compiled.lowered_llvm_ir().contains("define"));
    assert!(compiled.ptx().contains(".target sm_90a") && compiled.ptx().contains(".entry"));
    assert!(!compiled.report().is_empty());
    let stages: Vec<&str> = compiled.timings().stages().iter().map(|(name, _)| *name).collect();
    assert_eq!(stages, ["parse", "bind", "optimise", "analyse", "place", "lower", "llvm", "emit"]);
    assert_eq!(kernel.compilations(), 1);

    let again = AddConsts { BLOCK: 1024 }.compile::<f32>(kernel, Target::sm_90a())?;
    assert_eq!(again.ptx(), compiled.ptx(), "the same source gives the same code");
    Ok(())
}

/// What is known of real arguments changes the code that is compiled for them.
#[test]
#[cfg(jit)]
fn real_arguments_are_compiled_for_what_they_are() -> Result<()> {
    let kernel = leak(ADD);
    let device = Device::cpu();
    let x = device.zeros::<f32>(1025)?;
    let mut out = device.zeros::<f32>(1024)?;
    let mut ptx = |offset: usize, n: i32| -> Result<String> {
        let call = AddConsts { BLOCK: 1024 }.call(kernel, x.slice(offset..offset + 1024)?, &x, &mut out, n);
        Ok(call.compile(Target::sm_80())?.ptx().to_string())
    };
    let aligned = ptx(0, 1024)?;
    assert!(aligned.contains("ld.global") && aligned.contains(".v4."), "{aligned}");
    let odd = ptx(0, 1023)?;
    assert_ne!(aligned, odd, "a mask that ends anywhere splits vectors");
    assert_ne!(aligned, ptx(1, 1024)?, "a view that starts anywhere has no vector loads");
    assert_eq!(aligned, ptx(0, 2048)?, "the value itself is not part of the code");

    let refused = AddConsts { BLOCK: 100 }.call(kernel, &x, &x, &mut out, 1024).compile(Target::sm_80());
    assert!(matches!(refused, Err(Error::Compile(_))));
    let call = AddConsts { BLOCK: 1024 }.call(kernel, &x, &x, &mut out, 1024);
    assert!(matches!(call.compile_on(&device), Err(Error::Unsupported { .. })), "nothing is compiled for the CPU");
    Ok(())
}

/// What a first launch on the GPU costs, stage by stage, and what the driver's compiler says.
#[test]
fn a_loaded_kernel_reports_its_registers() -> Result<()> {
    if Device::cuda_count() == 0 || !cfg!(jit) {
        println!("skipped: no CUDA device (registers of a loaded kernel)");
        return Ok(());
    }
    let device = Device::cuda(0)?;
    let x = device.zeros::<f32>(1024)?;
    let mut out = device.zeros::<f32>(1024)?;
    let compiled = add::<_, 1024>(&x, &x, &mut out, 1024).compile_on(&device)?;
    assert!(compiled.report().contains("registers per thread"), "{}", compiled.report());
    assert!(compiled.timings().stages().iter().any(|(name, _)| *name == "driver"));
    println!("{}\n{}", compiled.report(), compiled.timings());
    Ok(())
}

/// What needs a GPU needs none here.
#[test]
#[cfg(all(jit, target_os = "linux"))]
fn launches_work_on_the_model_of_the_driver() {
    use tilewright_driver_model::{Settings, run_again};
    run_again(&Settings::default()).called("cuLaunchKernelEx", 150);
}

/// Who asks for a recording learns that there is none, once, and the launches go on.
#[test]
#[cfg(all(jit, target_os = "linux"))]
fn what_cannot_be_recorded_is_said_once_on_the_model() {
    use tilewright_driver_model::{Settings, run};
    let program = std::env::current_exe().expect("a test knows where it is").display().to_string();
    let file = std::env::temp_dir().join(format!("tilewright-no-archive-{}", std::process::id()));
    std::fs::write(&file, "precious").expect("written");
    for (path, why) in [("/nowhere/kernels.twa", "No such file"), (&file.display().to_string(), "no archive")] {
        let variable = format!("TILEWRIGHT_RECORD={path}");
        let arguments = [&variable, &program, "--exact", "other_dtypes_are_other_variants", "--nocapture"];
        let run = run(std::path::Path::new("env"), &arguments, &Settings::default());
        let text = run.check().called("cuLaunchKernelEx", 1).text();
        let said: Vec<&str> = text.lines().filter(|line| line.starts_with("TILEWRIGHT_RECORD: kernel `add`")).collect();
        assert!(matches!(said[..], [line] if line.contains(path) && line.contains(why)), "{text}");
    }
    assert_eq!(std::fs::read_to_string(&file).ok().as_deref(), Some("precious"));
    let _ = std::fs::remove_file(&file);
}
