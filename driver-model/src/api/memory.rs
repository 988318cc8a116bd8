//! Memory: allocations, copies, fills, and what is known of addresses.

use super::{driver, list, put, put_if};
use crate::model::{Kind, Model};
use cudarc::driver::sys::{CUpointer_attribute_enum as Attribute, CUresult as Code};
use std::ffi::{c_uint, c_void};

/// `CU_MEMHOSTALLOC_PORTABLE`, `_DEVICEMAP` and `_WRITECOMBINED`.
const HOST_FLAGS: c_uint = 7;
/// Of `CUmemorytype`.
const HOST: u32 = 1;
const DEVICE: u32 = 2;

impl Model {
    /// Writes what is known of an address; zeros if nothing is.
    fn describe(&self, attribute: Attribute, address: u64, place: *mut c_void) -> Result<bool, Code> {
        let found = self.space.find(address);
        let is_host = found.as_ref().is_some_and(|found| found.kind == Kind::Host);
        let device = found.as_ref().map(|found| self.device_of(found.context)).transpose()?;
        let or_zero = |value: Option<u64>| value.unwrap_or(0);
        match attribute {
            Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE => {
                let kind = if is_host { HOST } else { DEVICE };
                put(place.cast(), found.as_ref().map_or(0, |_| kind))?;
            }
            Attribute::CU_POINTER_ATTRIBUTE_CONTEXT => {
                put(place.cast(), found.as_ref().map_or(0, |found| found.context))?;
            }
            Attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER => {
                put(place.cast(), or_zero(found.as_ref().map(|_| address)))?;
            }
            Attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER => {
                put(place.cast(), or_zero(found.as_ref().filter(|_| is_host).map(|_| address)))?;
            }
            Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => put(place.cast(), device.unwrap_or(-2))?,
            Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => {
                put(place.cast(), or_zero(found.as_ref().map(|found| found.base)))?;
            }
            Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE => {
                put(place.cast(), found.as_ref().map_or(0, |found| found.bytes as usize))?;
            }
            Attribute::CU_POINTER_ATTRIBUTE_MAPPED => put(place.cast(), i32::from(found.is_some()))?,
            Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED => put(place.cast(), 0i32)?,
            _ => return Err(Code::CUDA_ERROR_NOT_SUPPORTED),
        }
        Ok(found.is_some())
    }
}

driver! {
    Context fn cuMemGetInfo_v2(model, note, free: *mut usize, total: *mut usize) {
        let (free_bytes, total_bytes) = model.space.sizes();
        put(free, free_bytes as usize)?;
        put(total, total_bytes as usize)
    }

    Context fn cuMemAlloc_v2(model, note, address: *mut u64, bytes: usize) {
        note.bytes(bytes);
        let base = model.allocate(note.number, bytes)?;
        note.handle("address", base);
        put(address, base)
    }

    Context fn cuMemFree_v2(model, note, address: u64) {
        note.handle("address", address);
        model.free(note.number, address)
    }

    Context fn cuMemAllocAsync(model, note, address: *mut u64, bytes: usize, stream: usize) {
        note.stream(stream);
        note.bytes(bytes);
        let base = model.allocate_on(note.number, stream, bytes)?;
        note.handle("address", base);
        put(address, base)
    }

    Context fn cuMemFreeAsync(model, note, address: u64, stream: usize) {
        note.stream(stream);
        note.handle("address", address);
        model.free_on(note.number, stream, address)
    }

    Context fn cuMemHostAlloc(model, note, memory: *mut *mut c_void, bytes: usize, flags: c_uint) {
        note.bytes(bytes);
        if flags > HOST_FLAGS {
            return Err(Code::CUDA_ERROR_INVALID_VALUE);
        }
        let allocated = model.allocate_host(note.number, bytes)?;
        note.handle("address", allocated.addr() as u64);
        put(memory, allocated.cast())
    }

    Context fn cuMemAllocHost_v2(model, note, memory: *mut *mut c_void, bytes: usize) {
        note.bytes(bytes);
        let allocated = model.allocate_host(note.number, bytes)?;
        put(memory, allocated.cast())
    }

    Context fn cuMemFreeHost(model, note, memory: *mut c_void) {
        note.handle("address", memory.addr() as u64);
        model.free_host(note.number, memory.addr())
    }

    Context fn cuMemHostGetDevicePointer_v2(model, note, address: *mut u64, memory: *mut c_void, flags: c_uint) {
        let is_host = model.space.find(memory.addr() as u64).is_some_and(|found| found.kind == Kind::Host);
        if flags != 0 || !is_host {
            return Err(Code::CUDA_ERROR_INVALID_VALUE);
        }
        put(address, memory.addr() as u64)
    }

    Context fn cuPointerGetAttributes(
        model,
        note,
        count: c_uint,
        attributes: *const Attribute,
        values: *const *mut c_void,
        address: u64,
    ) {
        let wanted = list(attributes, count as usize)?;
        for (attribute, place) in wanted.into_iter().zip(list(values, count as usize)?) {
            model.describe(attribute, address, place)?;
        }
        Ok(())
    }

    Context fn cuPointerGetAttribute(model, note, value: *mut c_void, attribute: Attribute, address: u64) {
        // Asked for one, the driver refuses memory that it does not know.
        if model.describe(attribute, address, value)? { Ok(()) } else { Err(Code::CUDA_ERROR_INVALID_VALUE) }
    }

    Context fn cuMemGetAddressRange_v2(model, note, base: *mut u64, bytes: *mut usize, address: u64) {
        let found = model.space.find(address).ok_or(Code::CUDA_ERROR_NOT_FOUND)?;
        put_if(base, found.base);
        put_if(bytes, found.bytes as usize);
        Ok(())
    }

    Context fn cuMemcpyHtoDAsync_v2(model, note, to: u64, from: *const c_void, bytes: usize, stream: usize) {
        note.stream(stream);
        note.bytes(bytes);
        note.handle("to", to);
        model.copy_in(note.number, to, from.expose_provenance(), bytes, stream)
    }

    Context fn cuMemcpyDtoHAsync_v2(model, note, to: *mut c_void, from: u64, bytes: usize, stream: usize) {
        note.stream(stream);
        note.bytes(bytes);
        note.handle("from", from);
        model.copy_out(note.number, to.expose_provenance(), from, bytes, stream)
    }

    Context fn cuMemcpyDtoDAsync_v2(model, note, to: u64, from: u64, bytes: usize, stream: usize) {
        note.stream(stream);
        note.bytes(bytes);
        note.handle("to", to);
        note.handle("from", from);
        model.copy_within(note.number, to, from, bytes, stream)
    }

    Context fn cuMemcpyPeerAsync(
        model,
        note,
        to: u64,
        to_context: usize,
        from: u64,
        from_context: usize,
        bytes: usize,
        stream: usize,
    ) {
        note.stream(stream);
        note.bytes(bytes);
        note.handle("to", to);
        note.handle("from", from);
        model.check_context(to_context)?;
        model.check_context(from_context)?;
        for (address, context) in [(to, to_context), (from, from_context)] {
            let own = model.space.find(address).map(|found| found.context);
            if own.is_some_and(|own| own != context) {
                model.violate(&format!("memory at {address:#x} is of another context than the copy says"));
                return Err(Code::CUDA_ERROR_INVALID_VALUE);
            }
        }
        model.copy_within(note.number, to, from, bytes, stream)
    }

    Context fn cuMemcpyHtoD_v2(model, note, to: u64, from: *const c_void, bytes: usize) {
        note.bytes(bytes);
        model.refuse_prohibited()?;
        let copied = model.copy_in(note.number, to, from.expose_provenance(), bytes, 0);
        model.and_wait(copied)
    }

    Context fn cuMemcpyDtoH_v2(model, note, to: *mut c_void, from: u64, bytes: usize) {
        note.bytes(bytes);
        model.refuse_prohibited()?;
        let copied = model.copy_out(note.number, to.expose_provenance(), from, bytes, 0);
        model.and_wait(copied)
    }

    Context fn cuMemcpyDtoD_v2(model, note, to: u64, from: u64, bytes: usize) {
        note.bytes(bytes);
        model.copy_within(note.number, to, from, bytes, 0)
    }

    Context fn cuMemsetD8Async(model, note, to: u64, value: u8, count: usize, stream: usize) {
        note.stream(stream);
        note.bytes(count);
        model.fill(note.number, (to, 1), value.into(), count, stream)
    }

    Context fn cuMemsetD16Async(model, note, to: u64, value: u16, count: usize, stream: usize) {
        note.stream(stream);
        note.bytes(2 * count);
        model.fill(note.number, (to, 2), value.into(), count, stream)
    }

    Context fn cuMemsetD32Async(model, note, to: u64, value: c_uint, count: usize, stream: usize) {
        note.stream(stream);
        note.bytes(4 * count);
        model.fill(note.number, (to, 4), value, count, stream)
    }

    Context fn cuMemsetD8_v2(model, note, to: u64, value: u8, count: usize) {
        note.bytes(count);
        model.fill(note.number, (to, 1), value.into(), count, 0)
    }
}
