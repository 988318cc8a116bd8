//! The runtime of Tilewright: devices, streams and buffers.
//!
//! Internal to [Tilewright](https://docs.rs/tilewright): only the crate `tilewright` is public API. This one may change
//! in any release.
//!
//! | module | what it is |
//! |---|---|
//! | [`device`] | [`Device`]: a GPU through the CUDA driver, or the CPU |
//! | [`buffer`], [`view`] | [`Buffer`], [`View`], [`ViewMut`]: typed memory of a device |
//! | `foreign`, `borrowed` | streams and memory of somebody else |
//! | [`tensor`] | [`TensorDesc`], [`TensorDescMut`]: buffers seen as tensors |
//! | [`stream`], [`event`] | [`Stream`], [`Event`]: order and time |
//! | `ledger`, `error_queue` | which launches have failed, and whose errors the reader of a buffer is told |
//! | [`graph`] | [`Graph`]: launches that are recorded once and replayed at the price of one |
//! | [`report_slot`] | how a running kernel reports an error |
//! | [`dtype`] | the element types and the bounds of kernels' type parameters |
//! | [`error`] | [`Error`]: everything that can go wrong |
//! | [`archive`] | compiled kernels in files: building them, shipping them with a program |
//! | [`launch`] | kernels with their arguments: compiling, caching, running |
//! | [`tune`], [`mod@bench`] | which configuration is fastest, and how long things take |
//! | [`mod@profile`] | which kernels took how long |
//! | [`settings`] | the environment variables |
//! | [`testing`] | what tests reach, and programs do not |
//!
//! Only the CUDA driver is needed for a GPU, and nothing for the CPU. Without a driver everything
//! that asks for a GPU is an ordinary error.

pub mod archive;
pub mod bench;
mod borrowed;
pub mod buffer;
mod claimed_memory;
mod context;
#[cfg(test)]
mod counting;
pub mod device;
mod driver;
pub mod dtype;
pub mod error;
mod error_queue;
pub mod event;
mod foreign;
mod freed_later;
mod gate;
pub mod graph;
pub mod launch;
mod ledger;
pub mod profile;
pub mod report_slot;
mod ring;
pub mod settings;
mod storage;
pub mod stream;
pub mod tensor;
#[doc(hidden)]
pub mod testing;
mod tracking;
mod transfer;
pub mod tune;
pub mod view;
mod watchers;

pub use buffer::Buffer;
pub use device::Device;
pub use dtype::{DType, ElementType, Float, Int, Num, Signed};
pub use error::{Access, CallSite, Error, Result};
pub use event::Event;
pub use foreign::synchronize_all;
pub use graph::Graph;
pub use kernel_core::diag::Diagnostic;
pub use profile::profile;
pub use report_slot::{LaunchId, LaunchRecord, ReportSource};
pub use storage::Address;
pub use stream::{RecordHandle, Stream};
pub use tensor::{TensorDesc, TensorDescMut};
pub use view::{RawBuffer, View, ViewMut};
