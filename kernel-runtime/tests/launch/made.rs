//! Launches of kernels that make tensors themselves.

use crate::kernels::{GATHER, gather, leak};
use crate::on_devices;
use half::f16;
use kernel_runtime::launch::{Call, KernelSource};
use kernel_runtime::{Buffer, Device, Error, Result};

/// Copies `[m, n]` of rows that are `s` apart, with elements that are `t` apart.
const COPY: KernelSource = KernelSource {
    name: "copy",
    module: "tests",
    files: &[],
    ir: r#"kernel copy "src/copy.rs" safe generic {
        param %x x: ptr f32
        param %out out: ptr_mut f32
        param %m m: i32
        param %n n: i32
        param %s s: i64
        param %t t: i32
        %one: i64 = const 1
        %from: desc x[4, 8] = make_desc %x, %m, %n, %s, %t {block = [4, 8], pads_with_nan = false, name = "from"} @7:9+4
        %to: desc out[4, 8] = make_desc %out, %m, %n, %n, %one {block = [4, 8], pads_with_nan = false, name = "to"} @8:9+2
        %four: i32 = const 4
        %eight: i32 = const 8
        %i: i32 = program_id {axis = 0}
        %row: i32 = mul %i, %four
        %j: i32 = program_id {axis = 1}
        %column: i32 = mul %j, %eight
        %v: f32[4, 8] = desc_load %from, %row, %column
        desc_store %to, %v, %row, %column
        return
    }"#,
    num_warps: None,
    num_stages: None,
    max_registers: None,
};

/// The launch with these numbers, of a buffer of 200 elements.
fn copy(
    kernel: &'static kernel_runtime::launch::Kernel,
    device: &Device,
    [m, n, s, t]: [usize; 4],
) -> Result<(Vec<f32>, Vec<f32>)> {
    let data: Vec<f32> = (0..200).map(|i| i as f32).collect();
    let (x, mut out) = (device.upload(&data)?, device.zeros::<f32>(m * n)?);
    let call = Call::new(kernel, ()).ptr::<f32>(&x).ptr_mut::<f32>(&mut out);
    let call = call.scalar(m as i32).scalar(n as i32).scalar(s as i64).scalar(t as i32);
    call.grid((m.div_ceil(4), n.div_ceil(8))).launch(device)?;
    let want = (0..m * n).map(|i| (i / n * s + i % n * t) as f32).collect();
    Ok((out.to_vec()?, want))
}

#[test]
fn tensors_of_any_strides_are_read() -> Result<()> {
    on_devices(|device| {
        let kernel = leak(COPY);
        // Twice, in an order in which each launch is unlike the one before.
        for _ in 0..2 {
            for numbers in [[8, 16, 16, 1], [8, 16, 20, 1], [5, 7, 9, 1], [8, 16, 1, 8], [8, 16, 0, 1], [9, 9, 20, 2]] {
                let (got, want) = copy(kernel, device, numbers)?;
                assert_eq!(got, want, "{numbers:?}");
            }
        }
        let most = if device.is_cuda() { 16 } else { 2 };
        assert!(kernel.compilations() <= most, "{} variants", kernel.compilations());
        Ok(())
    })
}

/// The product of a `[64, 64]` and its transpose, as blocks that the hardware copies where it can.
const SQUARE: KernelSource = KernelSource {
    name: "square",
    module: "tests",
    files: &[],
    ir: r#"kernel square "src/square.rs" safe generic {
        param %x x: ptr f16
        param %out out: ptr_mut f32
        %zero: i32 = const 0
        %one: i64 = const 1
        %size: i32 = const 64
        %from: desc x[64, 64] = make_desc %x, %size, %size, %size, %one {block = [64, 64], pads_with_nan = false, name = "from"} @7:9+4
        %to: desc out[64, 64] = make_desc %out, %size, %size, %size, %one {block = [64, 64], pads_with_nan = false, name = "to"} @8:9+2
        %none: f32 = const 0.0
        %acc: f32[64, 64] = splat %none
        %v: f16[64, 64] = desc_load %from, %zero, %zero
        %w: f16[64, 64] = permute %v {perm = [1, 0]}
        %d: f32[64, 64] = dot %v, %w, %acc {precision = tf32}
        desc_store %to, %d, %zero, %zero
        return
    }"#,
    num_warps: None,
    num_stages: None,
    max_registers: None,
};

/// A thread that has done nothing else yet has no current context, without which the driver makes no map of a tensor.
#[test]
fn threads_copy_tensors_as_the_first_one_did() -> Result<()> {
    on_devices(|device| {
        let kernel = leak(SQUARE);
        let values: Vec<f16> = (0..64 * 64).map(|i| f16::from_f32((i * 7 % 11) as f32 - 5.0)).collect();
        let at = |row: usize, column: usize| values[row * 64 + column].to_f32();
        let sum = |i: usize| (0..64).map(|k| at(i / 64, k) * at(i % 64, k)).sum();
        let want: Vec<f32> = (0..64 * 64).map(sum).collect();
        let x = device.upload(&values)?;
        let mut outs = [device.zeros::<f32>(64 * 64)?, device.zeros::<f32>(64 * 64)?];
        let launch = |out: &mut Buffer<f32>| {
            Call::new(kernel, ()).ptr::<f16>(&x).ptr_mut::<f32>(out).grid(1).num_warps(4).launch(device)
        };
        let [first, second] = &mut outs;
        launch(first)?;
        let variants = kernel.compilations();
        std::thread::scope(|scope| scope.spawn(|| launch(second)).join().expect("the thread ends"))?;
        for out in outs {
            assert_eq!(out.to_vec()?, want);
        }
        assert_eq!(kernel.compilations(), variants, "the tensors are copied in the same way");
        Ok(())
    })
}

#[test]
fn a_tensor_that_does_not_fit_is_refused_at_each_launch() -> Result<()> {
    on_devices(|device| {
        let kernel = leak(COPY);
        for _ in 0..2 {
            for numbers in [[10, 20, 21, 1], [2, 200, 1, 1]] {
                let refused = copy(kernel, device, numbers);
                let Err(error @ Error::InvalidTensor { .. }) = refused else { panic!("{numbers:?}: {refused:?}") };
                let text = error.to_string();
                assert!(text.contains("`from` of kernel `copy`") && text.contains("its buffer has 200"), "{text}");
            }
            let (got, want) = copy(kernel, device, [10, 20, 20, 1])?;
            assert_eq!(got, want, "a launch that is refused leaves nothing behind");
        }
        Ok(())
    })
}

/// Nothing is made for a launch of no programs.
#[test]
fn a_launch_of_no_programs_is_not_refused() -> Result<()> {
    on_devices(|device| {
        let (x, mut out) = (device.zeros::<f32>(1)?, device.zeros::<f32>(1)?);
        let call = Call::new(leak(COPY), ()).ptr::<f32>(&x).ptr_mut::<f32>(&mut out);
        call.scalar(100i32).scalar(100i32).scalar(1i64).scalar(1i32).grid(0).launch(device)
    })
}

/// What is copied through a tensor that the kernel makes depends on the buffer in which that lies.
#[test]
fn errors_follow_the_data_through_tensors() -> Result<()> {
    on_devices(|device| {
        let (gathers, copies) = (leak(GATHER), leak(COPY));
        let x = device.upload(&[1.0f32, 2.0, 3.0])?;
        let (mut bad, mut out) = (device.zeros::<f32>(2)?, device.zeros::<f32>(2)?);
        gather(gathers, &x, &mut bad, 3, 1.0).grid(2).launch(device)?;
        let call = Call::new(copies, ()).ptr::<f32>(&bad).ptr_mut::<f32>(&mut out);
        call.scalar(1i32).scalar(2i32).scalar(2i64).scalar(1i32).grid(1).launch(device)?;
        assert!(matches!(out.to_vec(), Err(Error::OutOfBounds { .. })), "the second element was never loaded");
        assert_eq!(out.to_vec()?, [1.0, 0.0]);
        // What is written anew depends on nothing.
        let (fresh, mut out) = (device.upload(&[5.0f32, 6.0])?, bad);
        let call = Call::new(copies, ()).ptr::<f32>(&fresh).ptr_mut::<f32>(&mut out);
        call.scalar(1i32).scalar(2i32).scalar(2i64).scalar(1i32).grid(1).launch(device)?;
        let _ = out.to_vec();
        assert_eq!(out.to_vec()?, [5.0, 6.0]);
        Ok(())
    })
}
