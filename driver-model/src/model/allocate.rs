//! Allocations and copies, by the host and in streams.

use super::capture::Target;
use super::work::Point;
use super::{Action, Code, End, Kind, Model, Outcome, current};
use std::alloc::Layout;
use std::sync::Arc;

/// Page-locked memory begins on a page.
const PAGE: usize = 4096;

impl Model {
    fn device_memory(&self, address: u64) -> Option<super::memory::Found> {
        self.space.find(address)
    }

    /// Allocates for everybody, now.
    pub(crate) fn allocate(&mut self, call: u64, bytes: usize) -> Result<u64, Code> {
        self.refuse_prohibited()?;
        if bytes == 0 {
            return Err(Code::CUDA_ERROR_INVALID_VALUE);
        }
        let point = self.work.host_point(call);
        let base = self.space.reserve(bytes as u64, Some(&point)).ok_or(Code::CUDA_ERROR_OUT_OF_MEMORY)?;
        self.space.begin(base, bytes as u64, Kind::Device, current(), &point);
        self.must(|model| model.space.born(&point, base));
        Ok(base)
    }

    /// Allocates for what comes behind this in the stream.
    pub(crate) fn allocate_on(&mut self, call: u64, stream: usize, bytes: usize) -> Result<u64, Code> {
        let own = match self.target(stream)? {
            Target::Stream(own) => own,
            Target::Capture(capture) => return self.allocate_in_graph(capture, stream, bytes),
        };
        self.refuse_prohibited()?;
        if bytes == 0 {
            return Err(Code::CUDA_ERROR_INVALID_VALUE);
        }
        let (after, context) = (self.tails(own), self.streams[&own].context);
        let preview = self.work.preview(call, self.streams[&own].line, &after);
        let base = self.space.reserve(bytes as u64, Some(&preview)).ok_or(Code::CUDA_ERROR_OUT_OF_MEMORY)?;
        let point = self.enqueue_after(call, own, &after, Action::Born(base));
        self.space.begin(base, bytes as u64, Kind::Pool, context, &point);
        self.let_time_pass();
        Ok(base)
    }

    /// Allocates for what comes behind this in each launch of the graph.
    fn allocate_in_graph(&mut self, capture: usize, stream: usize, bytes: usize) -> Result<u64, Code> {
        if bytes == 0 {
            return Err(Code::CUDA_ERROR_INVALID_VALUE);
        }
        let base = self.space.reserve(bytes as u64, None).ok_or(Code::CUDA_ERROR_OUT_OF_MEMORY)?;
        self.space.give_to_graph(base, bytes as u64, current());
        self.add_node(capture, stream, Action::Born(base))?;
        Ok(base)
    }

    /// A launch of a graph has been given a node. If that allocates or frees, the memory's life begins or ends there.
    pub(super) fn live_by_node(&mut self, action: &Action, point: &Arc<Point>) {
        match action {
            Action::Born(base) if !self.space.begin_again(*base, point) => {
                self.violate(&format!("a graph allocates {base:#x} again, which nobody has freed"));
            }
            Action::Dies(base) => {
                let _ = self.end_life(*base, point, &[Kind::Pool]);
            }
            Action::Born(_) | Action::Marker | Action::Keep(_) | Action::Kernel(_) => {}
            Action::Copy { .. } | Action::Fill { .. } | Action::Call(..) => {}
        }
    }

    /// Frees now. Whoever asks says that nobody uses it any more.
    pub(crate) fn free(&mut self, call: u64, address: u64) -> Outcome {
        self.refuse_prohibited()?;
        if address == 0 {
            return Ok(());
        }
        let point = self.work.host_point(call);
        self.end_life(address, &point, &[Kind::Device, Kind::Pool])?;
        self.must(|model| model.space.died(&point, address));
        Ok(())
    }

    /// Frees once the stream has done what it was given.
    pub(crate) fn free_on(&mut self, call: u64, stream: usize, address: u64) -> Outcome {
        let own = match self.target(stream)? {
            Target::Stream(own) => own,
            Target::Capture(capture) if self.space.is_of_graph(address) => {
                return self.add_node(capture, stream, Action::Dies(address));
            }
            Target::Capture(capture) => {
                self.invalidate(capture);
                return Err(Code::CUDA_ERROR_INVALID_VALUE);
            }
        };
        self.refuse_prohibited()?;
        let after = self.tails(own);
        let point = self.enqueue_after(call, own, &after, Action::Dies(address));
        self.end_life(address, &point, &[Kind::Device, Kind::Pool])?;
        self.let_time_pass();
        Ok(())
    }

    fn end_life(&mut self, address: u64, point: &Arc<Point>, kinds: &[Kind]) -> Outcome {
        if let Some(found) = self.device_memory(address)
            && !kinds.contains(&found.kind)
        {
            return Err(Code::CUDA_ERROR_INVALID_VALUE);
        }
        match self.space.end(address, point) {
            Ok(_) => Ok(()),
            Err(what) => {
                self.violate(&what);
                Err(Code::CUDA_ERROR_INVALID_VALUE)
            }
        }
    }

    /// Page-locked memory of the host.
    pub(crate) fn allocate_host(&mut self, call: u64, bytes: usize) -> Result<*mut u8, Code> {
        self.refuse_prohibited()?;
        let layout = Layout::from_size_align(bytes, PAGE).map_err(|_| Code::CUDA_ERROR_INVALID_VALUE)?;
        if bytes == 0 {
            return Err(Code::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the layout has a size.
        let memory = unsafe { std::alloc::alloc_zeroed(layout) };
        if memory.is_null() {
            return Err(Code::CUDA_ERROR_OUT_OF_MEMORY);
        }
        let point = self.work.host_point(call);
        self.space.add_host(memory, bytes as u64, current(), &point);
        Ok(memory)
    }

    /// Frees page-locked memory. It stays where it is, so that whoever uses it all the same is found out.
    pub(crate) fn free_host(&mut self, call: u64, address: usize) -> Outcome {
        self.refuse_prohibited()?;
        let point = self.work.host_point(call);
        self.end_life(address as u64, &point, &[Kind::Host])?;
        self.must(|model| model.space.died(&point, address as u64));
        Ok(())
    }

    /// Does what can only fail by a mistake of the caller.
    fn must(&mut self, run: impl FnOnce(&mut Model) -> Result<(), String>) {
        if let Err(what) = run(self) {
            self.violate(&what);
        }
    }

    /// Memory of the GPU, for a copy or the like.
    fn on_device(&mut self, address: u64, bytes: usize) -> Result<End, Code> {
        if bytes > 0 && self.device_memory(address).is_none() {
            self.violate(&format!("{bytes} bytes at {address:#x} are no memory"));
            return Err(Code::CUDA_ERROR_INVALID_VALUE);
        }
        Ok(End::Known(address))
    }

    /// Memory of the host; whether the driver knows it.
    fn on_host(&self, address: usize) -> (End, bool) {
        match self.device_memory(address as u64) {
            Some(_) => (End::Known(address as u64), true),
            None => (End::Host(address), false),
        }
    }

    /// Copies from the host. What is pageable has been read when this returns, unless the GPU reads it in place.
    pub(crate) fn copy_in(&mut self, call: u64, to: u64, from: usize, bytes: usize, stream: usize) -> Outcome {
        let to = self.on_device(to, bytes)?;
        let (mut from, is_known) = self.on_host(from);
        let is_captured = matches!(self.target(stream)?, Target::Capture(_));
        if let (End::Host(address), false, false) = (&from, self.settings.reads_pageable, is_known || is_captured) {
            // SAFETY: callers give memory of this size.
            let data = unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<u8>(*address), bytes) };
            from = End::Bytes(data.into());
        }
        self.enqueue(call, stream, Action::Copy { to, from, bytes }).map(drop)
    }

    /// Copies to the host. What is pageable has been written when this returns, unless the GPU writes it in place.
    pub(crate) fn copy_out(&mut self, call: u64, to: usize, from: u64, bytes: usize, stream: usize) -> Outcome {
        let from = self.on_device(from, bytes)?;
        let (to, is_known) = self.on_host(to);
        let point = self.enqueue(call, stream, Action::Copy { to, from, bytes })?;
        match point {
            Some(point) if !is_known && !self.settings.reads_pageable => self.reach(&point),
            Some(_) | None => Ok(()),
        }
    }

    /// Copies within the GPU.
    pub(crate) fn copy_within(&mut self, call: u64, to: u64, from: u64, bytes: usize, stream: usize) -> Outcome {
        let (to, from) = (self.on_device(to, bytes)?, self.on_device(from, bytes)?);
        self.enqueue(call, stream, Action::Copy { to, from, bytes }).map(drop)
    }

    /// Fills memory of the GPU.
    pub(crate) fn fill(&mut self, call: u64, at: (u64, usize), pattern: u32, count: usize, stream: usize) -> Outcome {
        let (address, size) = at;
        self.on_device(address, size * count)?;
        if !address.is_multiple_of(size as u64) {
            return Err(Code::CUDA_ERROR_INVALID_VALUE);
        }
        self.enqueue(call, stream, Action::Fill { address, size, pattern, count }).map(drop)
    }

    /// After a call that waits for the legacy default stream, on which it works.
    pub(crate) fn and_wait(&mut self, done: Outcome) -> Outcome {
        done?;
        self.synchronize_stream(0)
    }
}
