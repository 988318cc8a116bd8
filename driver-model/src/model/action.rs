//! What an operation does.

use super::code::Function;
use super::memory::Space;
use super::work::Point;
use std::ffi::c_void;
use std::sync::Arc;

/// A function of the host in a stream.
pub(crate) type HostFunction = unsafe extern "C" fn(*mut c_void);

/// What a graph keeps for somebody, until nothing of it is left.
pub(crate) struct UserObject {
    pub(crate) destroy: HostFunction,
    pub(crate) data: usize,
}

impl Drop for UserObject {
    fn drop(&mut self) {
        // SAFETY: whoever has made the object vouches for it.
        unsafe { (self.destroy)(std::ptr::with_exposed_provenance_mut(self.data)) };
    }
}

/// Where a copy reads or writes.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// Memory that the driver knows.
    Known(u64),
    /// Other memory of the host.
    Host(usize),
    /// What was there when the copy was asked for.
    Bytes(Arc<[u8]>),
}

/// A kernel with its arguments.
#[derive(Clone)]
pub(crate) struct KernelWork {
    pub(crate) function: Arc<Function>,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    /// The bits of each parameter.
    pub(crate) params: Vec<u64>,
}

/// An operation.
#[derive(Clone)]
pub(crate) enum Action {
    /// A point in a stream.
    Marker,
    /// The end of a launch of a graph, which keeps these until then.
    Keep(#[expect(dead_code, reason = "they are kept, and then dropped")] Vec<Arc<UserObject>>),
    /// Programs of a kernel.
    Kernel(Arc<KernelWork>),
    /// A copy of so many bytes.
    Copy { to: End, from: End, bytes: usize },
    /// Elements of so many bytes each.
    Fill { address: u64, size: usize, pattern: u32, count: usize },
    /// Memory becomes usable.
    Born(u64),
    /// Memory is given back.
    Dies(u64),
    /// A function of the host, and what it is given.
    Call(HostFunction, usize),
}

impl Action {
    /// Does it. The error says what has been done wrong.
    pub(crate) fn run(&self, point: &Arc<Point>, space: &mut Space, seed: u64) -> Result<(), String> {
        match self {
            Action::Marker | Action::Keep(_) => Ok(()),
            Action::Kernel(kernel) => kernel.run(point, space, seed),
            Action::Copy { to, from, bytes } => copy(point, space, to, from, *bytes),
            Action::Fill { address, size, pattern, count } => {
                let place = space.write(point, *address, size * count)?;
                let element = pattern.to_le_bytes();
                place.chunks_mut(*size).for_each(|chunk| chunk.copy_from_slice(&element[..chunk.len()]));
                Ok(())
            }
            Action::Born(address) => space.born(point, *address),
            Action::Dies(address) => space.died(point, *address),
            Action::Call(function, data) => {
                // SAFETY: whoever has put the function into a stream vouches for it.
                unsafe { function(std::ptr::with_exposed_provenance_mut(*data)) };
                Ok(())
            }
        }
    }
}

fn copy(point: &Point, space: &mut Space, to: &End, from: &End, bytes: usize) -> Result<(), String> {
    let data = match from {
        End::Known(address) => space.read(point, *address, bytes)?.to_vec(),
        End::Host(address) => {
            let place = std::ptr::with_exposed_provenance::<u8>(*address);
            // SAFETY: whoever has asked for the copy vouches for the memory until the copy is done.
            unsafe { std::slice::from_raw_parts(place, bytes) }.to_vec()
        }
        End::Bytes(data) => data.to_vec(),
    };
    match to {
        End::Known(address) => space.write(point, *address, bytes)?.copy_from_slice(&data),
        End::Host(address) => {
            let place = std::ptr::with_exposed_provenance_mut::<u8>(*address);
            // SAFETY: as above.
            unsafe { place.copy_from_nonoverlapping(data.as_ptr(), bytes) };
        }
        End::Bytes(_) => return Err("a copy into nothing".into()),
    }
    Ok(())
}
