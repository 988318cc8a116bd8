//! Buffers of ours in graphs that somebody else captures.

use super::failing::{BEYOND, choose, number};
use super::kernels::add;
use super::owner::{Owner, on_a_gpu};
use super::{N, numbers};
use kernel_runtime::{Buffer, Device, LaunchId, Result};

/// Other buffers, which are given memory that is free.
fn others(device: &Device) -> Result<Vec<Buffer<f32>>> {
    (0..20).map(|_| device.full(N, -1.0f32)).collect()
}

/// The graph has addresses of buffers that safe code may drop.
#[test]
fn buffers_live_as_long_as_graphs_of_somebody_else() -> Result<()> {
    on_a_gpu(|| {
        let owner = Owner::new();
        let device = owner.device()?;
        let to = owner.zeros(N);
        let (x, y) = (device.upload(&numbers())?, device.upload(&numbers())?);
        let (ones, mut filled) = (device.full(N, 1.0f32)?, device.zeros::<f32>(N)?);
        let (mut sum, mut copied) = (device.zeros::<f32>(N)?, device.zeros::<f32>(N)?);
        let graph = owner.capture(|| {
            add::<_, 64>(&x, &y, &mut sum, N as i32).grid(5).launch(&device)?;
            filled.fill(1.0)?;
            copied.copy_from(&ones)?;
            // SAFETY: all is used in the order of the owner's stream and of its graph.
            let mut to = unsafe { device.borrow_mut::<f32>(to, N)? };
            to.copy_from(&copied.as_view())?;
            add::<_, 64>(&sum, to.as_view(), &mut copied, N as i32).grid(5).launch(&device)?;
            to.copy_from(&copied.as_view())
        })?;
        drop((x, y, sum, ones, filled, copied));
        let others = others(&device)?;
        for _ in 0..3 {
            graph.replay();
        }
        owner.wait();
        assert_eq!(owner.read(to, N), numbers().iter().map(|x| 2.0 * x + 1.0).collect::<Vec<f32>>());
        for other in &others {
            assert_eq!(other.to_vec()?, vec![-1.0; N], "it is somebody else's memory");
        }
        drop(graph);
        owner.check_that_buffers_are_freed(6, || device.synchronize())
    })
}

#[test]
fn buffers_of_launches_that_can_fail_live_as_long() -> Result<()> {
    on_a_gpu(|| {
        let owner = Owner::new();
        let device = owner.device()?;
        let (x, index) = (device.upload(&numbers())?, owner.upload(&[7i64]));
        let mut out = device.zeros::<f32>(1)?;
        let graph = owner.capture(|| {
            // SAFETY: all is used in the order of the owner's stream and of its graph.
            choose(&x, unsafe { device.borrow(index, 1)? }, &mut out).grid(1).launch(&device)
        })?;
        drop((x, out));
        let others = others(&device)?;
        owner.write(index, &[BEYOND + 5]);
        graph.replay();
        owner.wait();
        assert_eq!(number(device.poll_error().map_or(Ok(()), Err)), Some(5));
        owner.write(index, &[8i64]);
        graph.replay();
        owner.wait();
        for other in &others {
            assert_eq!(other.to_vec()?, vec![-1.0; N]);
        }
        drop(graph);
        // Whoever allocates may need the memory.
        owner.check_that_buffers_are_freed(2, || device.zeros::<f32>(1).map(std::mem::forget))?;
        device.synchronize()
    })
}

/// Uses that are given to the stream by hand are captured, too.
#[test]
fn buffers_that_are_prepared_by_hand_live_as_long() -> Result<()> {
    on_a_gpu(|| {
        let owner = Owner::new();
        let device = owner.device()?;
        let (stream, mut out) = (device.default_stream(), device.zeros::<f32>(N)?);
        let graph = owner.capture(|| {
            let raw = out.prepare_write(stream, LaunchId::next())?;
            owner.fill(raw.address.get(), N);
            Ok(())
        })?;
        drop(out);
        let others = others(&device)?;
        graph.replay();
        owner.wait();
        for other in &others {
            assert_eq!(other.to_vec()?, vec![-1.0; N]);
        }
        drop(graph);
        owner.check_that_buffers_are_freed(1, || device.synchronize())
    })
}

/// They are nodes of the graph, which frees them itself.
#[test]
fn buffers_that_are_allocated_in_a_capture_are_left_to_the_graph() -> Result<()> {
    on_a_gpu(|| {
        let owner = Owner::new();
        let device = owner.device()?;
        let (x, to) = (device.upload(&numbers())?, owner.zeros(N));
        let graph = owner.capture(|| {
            let mut double = device.zeros::<f32>(N)?;
            add::<_, 64>(&x, &x, &mut double, N as i32).grid(5).launch(&device)?;
            let copied = double.copy()?;
            // SAFETY: all is used in the order of the owner's stream and of its graph.
            let to = unsafe { device.borrow_mut::<f32>(to, N)? };
            let captured = add::<_, 64>(&copied, &double, to, N as i32).grid(5).launch(&device);
            owner.check_that_buffers_are_freed(2, || {
                drop((double, copied));
                Ok(())
            })?;
            captured
        })?;
        for _ in 0..3 {
            graph.replay();
        }
        owner.wait();
        assert_eq!(owner.read(to, N), numbers().iter().map(|x| 4.0 * x).collect::<Vec<f32>>());
        drop(graph);
        owner.check_that_buffers_are_freed(0, || device.synchronize())?;
        owner.check_that_buffers_are_freed(1, || {
            drop(x);
            Ok(())
        })
    })
}

/// A free would be one of the graph's, of memory that it has not allocated.
#[test]
fn buffers_that_drop_in_a_capture_are_freed_behind_it() -> Result<()> {
    on_a_gpu(|| {
        let owner = Owner::new();
        let device = owner.device()?;
        let (x, to) = (device.upload(&numbers())?, owner.zeros(N));
        let unused = device.zeros::<f32>(N)?;
        let mut used = device.zeros::<f32>(N)?;
        let double = |to: u64| -> Result<()> {
            // SAFETY: all is used in the order of the owner's stream and of its graph.
            let to = unsafe { device.borrow_mut::<f32>(to, N)? };
            add::<_, 64>(&x, &x, to, N as i32).grid(5).launch(&device)
        };
        let earlier = owner.capture(|| used.fill(1.0))?;
        drop(used);
        let graph = owner.capture(|| {
            drop(earlier);
            drop(unused);
            // Whoever asks for errors frees what graphs kept that are gone.
            assert_eq!(device.poll_error(), None);
            double(to)
        })?;
        owner.check_that_buffers_are_freed(2, || device.zeros::<f32>(N).map(std::mem::forget))?;
        graph.replay();
        owner.wait();
        assert_eq!(owner.read(to, N), numbers().iter().map(|x| 2.0 * x).collect::<Vec<f32>>());
        device.synchronize()
    })
}

/// What is captured costs, what is not costs one question.
#[test]
fn only_buffers_of_ours_cost_a_question_on_streams_of_somebody_else() -> Result<()> {
    on_a_gpu(|| {
        let (owner, ours) = (Owner::new(), Device::cuda(0)?);
        let device = owner.device()?;
        for (device, expected) in [(&device, &["cuStreamGetCaptureInfo_v2"][..]), (&ours, &[])] {
            let (x, out) = (device.upload(&numbers())?, std::cell::RefCell::new(device.zeros::<f32>(N)?));
            owner.check_calls_of_launches(expected, || {
                add::<_, 128>(&x, &x, &mut *out.borrow_mut(), N as i32).grid(3).launch(device)
            })?;
        }
        Ok(())
    })
}
