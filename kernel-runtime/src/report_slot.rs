//! How a running kernel reports an error: launch ids, records and where their texts come from.
//!
//! A launch that can fail gets one [`LaunchRecord`] in page-locked host memory. The first program
//! that fails claims it (`atom.cas` of `state` from 0 to [`LaunchRecord::CLAIMED`]) and fills in
//! the rest; later programs see that it is taken and go on. The host looks at the record only
//! when the launch is complete, so no order between the fields matters. What a record *means* is
//! known to the launch: its [`ReportSource`] makes the [`Error`].

use crate::error::Error;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of a launch.
///
/// Numbers increase over the whole process, in the order in which launches are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaunchId(NonZeroU64);

impl LaunchId {
    /// A number that is larger than all before it.
    #[inline]
    pub fn next() -> Self {
        Self::reserve(1)
    }

    /// The first of `count` consecutive numbers, which are larger than all before them and belong
    /// to the caller.
    #[inline]
    pub(crate) fn reserve(count: u64) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let first = LAST.fetch_add(count, Ordering::Relaxed).wrapping_add(1);
        // 2^64 operations take centuries, so the number is never zero.
        LaunchId(NonZeroU64::new(first).unwrap_or(NonZeroU64::MAX))
    }

    /// The number that comes `index` later.
    pub(crate) fn plus(self, index: u64) -> Self {
        LaunchId(self.0.saturating_add(index))
    }

    /// The number itself.
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

/// What the first failing program of a launch writes, 64 bytes that the GPU addresses directly.
///
/// The offsets of the fields are part of the interface to generated code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C, align(64))]
pub struct LaunchRecord {
    /// Byte 0. Zero, or [`LaunchRecord::CLAIMED`] once a program has claimed the record.
    pub state: u32,
    /// Byte 4. Which access or assertion of the kernel failed.
    pub site: u32,
    /// Bytes 8, 12 and 16. The program that failed.
    pub program_id: [u32; 3],
    /// Byte 20. Free for the kernel's own use.
    pub detail: u32,
    /// Byte 24. The offset of the access in elements.
    pub offset: i64,
    /// Byte 32. The length of the argument in elements.
    pub len: u64,
    /// Bytes 40 to 63, zero.
    pub reserved: [u64; 3],
}

impl LaunchRecord {
    /// The value of `state` once a program has claimed the record.
    pub const CLAIMED: u32 = 1;
}

const _: () = {
    assert!(size_of::<LaunchRecord>() == 64);
    assert!(std::mem::offset_of!(LaunchRecord, program_id) == 8);
    assert!(std::mem::offset_of!(LaunchRecord, offset) == 24);
    assert!(std::mem::offset_of!(LaunchRecord, len) == 32);
};

/// Turns the record of a launch into an error. It is kept until the launch is complete, so the
/// launcher shares one per compiled kernel rather than making one per launch.
///
/// Every `Fn(&LaunchRecord) -> Error` is one.
pub trait ReportSource: Send + Sync {
    /// The error that the record describes. `record.state` is not zero. The record comes from
    /// the GPU, so this accepts any values in it and does not panic.
    fn error(&self, record: &LaunchRecord) -> Error;
}

impl<F: Fn(&LaunchRecord) -> Error + Send + Sync> ReportSource for F {
    fn error(&self, record: &LaunchRecord) -> Error {
        self(record)
    }
}
