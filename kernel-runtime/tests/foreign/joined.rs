//! Streams of ours that somebody else captures: they wait for a captured stream, or somebody has a handle of them.

use super::failing::{BEYOND, choose, number};
use super::kernels::add;
use super::owner::{Graph, Owner, on_a_gpu};
use super::{N, numbers};
use kernel_runtime::{Buffer, Device, Error, Result, Stream};
use std::cell::RefCell;

/// What a captured launch on a stream of ours uses. Nothing of it needs to be ordered in the capture.
struct Work<'o> {
    owner: &'o Owner,
    device: Device,
    stream: Stream,
    x: Buffer<f32>,
    index: u64,
    out: RefCell<Buffer<f32>>,
    sum: RefCell<Buffer<f32>>,
}

impl<'o> Work<'o> {
    /// Its launches have been made once.
    fn new(owner: &'o Owner, device: Device, stream: Stream) -> Result<Self> {
        let (x, index) = (device.upload(&numbers())?, owner.upload(&[3i64]));
        let (out, sum) = (RefCell::new(device.zeros(1)?), RefCell::new(device.zeros(N)?));
        let work = Work { owner, device, stream, x, index, out, sum };
        work.launch()?;
        work.stream.synchronize()?;
        Ok(work)
    }

    fn launch_fallible(&self) -> Result<()> {
        // SAFETY: all is used in the order of the streams and of their graph.
        let index = unsafe { self.device.borrow(self.index, 1)? };
        choose(&self.x, index, &mut *self.out.borrow_mut()).grid(1).stream(&self.stream).launch(&self.device)
    }

    /// One launch that can fail and one that cannot.
    fn launch(&self) -> Result<()> {
        self.launch_fallible()?;
        let sum = &mut *self.sum.borrow_mut();
        add::<_, 64>(&self.x, &self.x, sum, N as i32).grid(5).stream(&self.stream).launch(&self.device)
    }

    /// What is refused on a captured stream.
    fn check_refusals(&self) {
        let refused = |done: Result<()>| {
            let text = done.expect_err("the stream is captured").to_string();
            assert!(text.contains("a stream that is being captured"), "{text}");
        };
        refused(self.out.borrow_mut().copy_from_slice(&[1.0]));
        refused(self.sum.borrow().to_vec().map(drop));
        refused(self.stream.synchronize());
    }

    /// Replays report errors, and use memory that is there: of so many buffers.
    fn check_replays(self, graph: Graph, kept: usize) -> Result<()> {
        let Work { owner, device, stream, x, index, out, sum } = self;
        drop((x, out, sum));
        let others: Vec<Buffer<f32>> = (0..20).map(|_| device.full(N, -1.0f32)).collect::<Result<_>>()?;
        for round in 1..4 {
            owner.write(index, &[BEYOND + round]);
            graph.replay_on(owner);
            owner.wait();
            assert_eq!(number(stream.synchronize()), Some(round));
            assert_eq!(stream.synchronize(), Ok(()));
        }
        for other in &others {
            assert_eq!(other.to_vec()?, vec![-1.0; N]);
        }
        drop(graph);
        owner.check_that_buffers_are_freed(kept, || stream.synchronize())
    }
}

#[test]
fn streams_that_wait_for_a_captured_one_are_captured() -> Result<()> {
    on_a_gpu(|| {
        let (owner, ours) = (Owner::new(), Device::cuda(0)?);
        let (device, stream) = (owner.device()?, ours.new_stream()?);
        let work = Work::new(&owner, ours.clone(), stream.clone())?;
        let graph = owner.capture(|| {
            stream.wait(&device.default_stream().record()?)?;
            work.launch()?;
            work.check_refusals();
            device.default_stream().wait(&stream.record()?)
        })?;
        work.check_replays(graph, 3)
    })
}

/// The order of two uses of a buffer is one of the graph.
#[test]
fn streams_that_use_captured_buffers_are_captured() -> Result<()> {
    on_a_gpu(|| {
        let (owner, ours) = (Owner::new(), Device::cuda(0)?);
        let (device, stream) = (owner.device()?, ours.new_stream()?);
        let work = Work::new(&owner, ours.clone(), stream.clone())?;
        let mut between = device.zeros::<f32>(N)?;
        let graph = owner.capture(|| {
            between.fill(1.0)?;
            let sum = &mut *work.sum.borrow_mut();
            add::<_, 64>(&between, &between, sum, N as i32).grid(5).stream(&stream).launch(&ours)?;
            work.launch_fallible()?;
            device.default_stream().wait(&stream.record()?)
        })?;
        drop(between);
        work.check_replays(graph, 4)
    })
}

#[test]
fn streams_that_were_handed_out_are_captured() -> Result<()> {
    on_a_gpu(|| {
        let (owner, ours) = (Owner::new(), Device::cuda(0)?);
        let stream = ours.new_stream()?;
        let work = Work::new(&owner, ours.clone(), stream.clone())?;
        let graph = Owner::of(stream.cudarc().expect("of a GPU")).capture(|| {
            work.check_refusals();
            work.launch()
        })?;
        work.check_replays(graph, 3)
    })
}

/// A slice of cudarc has a handle of the stream that it was made on.
#[test]
fn streams_of_buffers_that_were_given_away_are_captured() -> Result<()> {
    on_a_gpu(|| {
        let (owner, ours) = (Owner::new(), Device::cuda(0)?);
        let stream = ours.default_stream().clone();
        let work = Work::new(&owner, ours.clone(), stream.clone())?;
        let slice = ours.zeros::<f32>(1)?.into_cudarc()?;
        let graph = Owner::of(slice.stream()).capture(|| work.launch())?;
        assert_eq!(ours.wrap_stream(slice.stream().clone())?, stream);
        drop(slice);
        work.check_replays(graph, 3)
    })
}

/// Our graphs keep buffers and records, which a graph of somebody else would use when they are gone.
#[test]
fn graphs_of_ours_are_refused_in_captures_of_somebody_else() -> Result<()> {
    on_a_gpu(|| {
        let owner = Owner::new();
        let device = owner.device()?;
        let x = device.upload(&numbers())?;
        let mut out = device.zeros::<f32>(N)?;
        let mut record = || device.capture(|| add::<_, 64>(&x, &x, &mut out, N as i32).grid(5).launch(&device));
        let graph = record()?;
        let mut inner = None;
        let outer = owner.capture(|| {
            let refused = graph.replay();
            assert!(matches!(&refused, Err(Error::Unsupported { .. })), "{refused:?}");
            let text = refused.expect_err("it is captured").to_string();
            assert!(text.contains("replaying a graph on a stream that is being captured"), "{text}");
            // Recording gives nothing to the stream.
            inner = Some(record()?);
            Ok(())
        })?;
        outer.replay();
        owner.wait();
        assert_eq!(out.to_vec()?, vec![0.0; N]);
        for graph in [Some(graph), inner].into_iter().flatten() {
            graph.replay()?;
            assert_eq!(out.to_vec()?, numbers().iter().map(|x| 2.0 * x).collect::<Vec<f32>>());
            out.fill(0.0)?;
        }
        device.synchronize()
    })
}

/// A buffer that was used last in a capture makes the stream of the replay a part of it.
#[test]
fn graphs_of_ours_are_refused_where_buffers_were_captured() -> Result<()> {
    on_a_gpu(|| {
        let (owner, ours) = (Owner::new(), Device::cuda(0)?);
        let (device, stream) = (owner.device()?, ours.new_stream()?);
        let (mut x, mut out) = (device.zeros::<f32>(N)?, ours.zeros::<f32>(N)?);
        let graph =
            stream.capture(|_| add::<_, 64>(&x, &x, &mut out, N as i32).grid(5).stream(&stream).launch(&ours))?;
        graph.replay()?;
        device.default_stream().wait(&stream.record()?)?;
        // It is written on the owner's stream before the capture, so that the fill waits for nobody.
        x.fill(1.0)?;
        let outer = owner.capture(|| {
            x.fill(2.0)?;
            let refused = graph.replay().expect_err("it would be captured").to_string();
            assert!(refused.contains("replaying a graph on a stream that is being captured"), "{refused}");
            device.default_stream().wait(&stream.record()?)
        })?;
        drop(graph);
        outer.replay();
        owner.wait();
        assert_eq!((x.to_vec()?, out.to_vec()?), (vec![2.0; N], vec![0.0; N]));
        Ok(())
    })
}

/// Waiting for somebody else costs nothing later, unless that is captured.
#[test]
fn streams_of_ours_beside_others_stay_fast() -> Result<()> {
    on_a_gpu(|| {
        let (owner, ours) = (Owner::new(), Device::cuda(0)?);
        let stream = ours.new_stream()?;
        stream.wait(&owner.device()?.default_stream().record()?)?;
        let (x, out) = (ours.upload(&numbers())?, RefCell::new(ours.zeros::<f32>(N)?));
        owner.check_calls_of_launches(&[], || {
            add::<_, 128>(&x, &x, &mut *out.borrow_mut(), N as i32).grid(3).stream(&stream).launch(&ours)
        })
    })
}

/// Launches from before the capture may still write to the records of a stream that drops meanwhile.
#[test]
fn records_of_streams_stay_where_a_capture_keeps_from_waiting() -> Result<()> {
    on_a_gpu(|| {
        let (owner, ours) = (Owner::new(), Device::cuda(0)?);
        let (x, index, out) = (owner.upload(&numbers()), owner.upload(&[BEYOND + 1]), owner.zeros(1));
        let stream = ours.new_stream()?;
        let shared = Owner::of(stream.cudarc().expect("of a GPU"));
        // SAFETY: the memory stays.
        let (x, index, out) = unsafe { (ours.borrow(x, N)?, ours.borrow(index, 1)?, ours.borrow_mut(out, 1)?) };
        choose(x, index, out).grid(1).stream(&stream).launch(&ours)?;
        shared.capture(|| {
            drop(stream);
            Ok(())
        })?;
        shared.wait();
        ours.synchronize()
    })
}

/// The same of a graph of ours, whose errors are told when the stream can be waited for.
#[test]
fn records_of_graphs_stay_where_a_capture_keeps_from_waiting() -> Result<()> {
    on_a_gpu(|| {
        let ours = Device::cuda(0)?;
        let (x, index, mut out) = (ours.upload(&numbers())?, ours.upload(&[BEYOND + 1])?, ours.zeros(1)?);
        let graph = ours.capture(|| choose(&x, &index, &mut out).grid(1).launch(&ours))?;
        let shared = Owner::of(ours.default_stream().cudarc().expect("of a GPU"));
        graph.replay()?;
        shared.capture(|| {
            drop((graph, x, index));
            Ok(())
        })?;
        shared.wait();
        assert_eq!(number(out.to_vec()), Some(1));
        ours.synchronize()
    })
}

/// Work on a stream of the moment, which may go when the captured one has waited for it.
#[test]
fn streams_may_drop_while_they_are_captured() -> Result<()> {
    on_a_gpu(|| {
        let (owner, ours) = (Owner::new(), Device::cuda(0)?);
        let device = owner.device()?;
        let (x, out) = (owner.upload(&numbers()), owner.zeros(N));
        let graph = owner.capture(|| {
            let stream = ours.new_stream()?;
            stream.wait(&device.default_stream().record()?)?;
            // SAFETY: all is used in the order of the graph.
            let (x, out) = unsafe { (ours.borrow::<f32>(x, N)?, ours.borrow_mut::<f32>(out, N)?) };
            add::<_, 64>(x, x, out, N as i32).grid(5).stream(&stream).launch(&ours)?;
            device.default_stream().wait(&stream.record()?)
        })?;
        graph.replay();
        owner.wait();
        assert_eq!(owner.read(out, N), numbers().iter().map(|x| 2.0 * x).collect::<Vec<f32>>());
        Ok(())
    })
}
