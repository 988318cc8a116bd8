//! The harness of the GPU benchmarks: contenders in one process, interleaved on the same buffers.
//!
//! A [`Contest`] has one row of work and several [`Contender`]s, each with one or more configurations. Every
//! configuration is checked (its outputs are poisoned before, compared with a reference and with each other after)
//! and tried, the best of each contender is kept, and then the kept ones run in turn, round by round, with the L2
//! cache flushed before each run. A contender is judged by the median over the rounds of its rate divided by the
//! first contender's rate in the same round.
//!
//! | module | what it has |
//! |---|---|
//! | [`stage`] | holds contests: modes, filters, timing |
//! | [`data`] | inputs, outputs and their checks |
//! | [`sums`] | how far sums of products may be off |
//! | [`shape`], [`element`] | the sizes and dtypes of contests |
//! | [`cubin`], [`tensor_map`] | Triton's kernels and their tensor descriptors |
//! | [`cublas`], [`library`] | the vendor's kernels |
//! | [`companion`] | contenders in a process beside, round by round |
//! | [`product`] | contests of matrix products |
//! | [`attention_ladder`], [`attention_page`] | the table of the guide to attention, the page of all its rows |
//! | [`look`] | compiles configurations without running them |
//! | [`account`] | how long the stages of compilations took |
//! | [`report`] | results as CSV, as tables, in the README |
//! | [`record`] | results with what limits them: bytes and operations |
//! | [`families`] | the page of the library's families, and a picture of all results |
//! | [`supervise`] | contests in a process of their own, which may die |
//! | [`plot`] | results as pictures |

pub mod account;
pub mod argument;
pub mod attention_ladder;
pub mod attention_page;
pub mod companion;
pub mod cubin;
pub mod cublas;
pub mod data;
pub mod element;
pub mod families;
pub mod library;
pub mod look;
pub mod plot;
pub mod product;
pub mod record;
pub mod report;
pub mod shape;
pub mod stage;
pub mod sums;
pub mod supervise;
pub mod tensor_map;

use std::cell::RefCell;

use tilewright::launch::{Call, CompiledKernel, HasGrid, UnsafeCall};
use tilewright::prelude::*;

pub use stage::Stage;
pub use tilewright::bench::median;

/// Whatever goes wrong in a benchmark: an error of a device, a wrong result, a peer that does not load.
pub type Failure = Box<dyn std::error::Error>;

/// What happens to a call: it runs, or its code is looked at.
pub enum How<'a> {
    /// Launch it on the device's default stream.
    Launch(&'a Device),
    /// Compile it for a target without running it, and keep the code.
    Compile(Target, &'a RefCell<Vec<String>>),
    /// Compile and load it without running it, and keep every stage of its way.
    Inspect(&'a Device, &'a RefCell<Vec<CompiledKernel>>),
}

/// Whether nothing at all can be compiled, so that there is no use in trying the next configuration.
pub fn without_compiler(why: &Failure) -> bool {
    matches!(why.downcast_ref::<Error>(), Some(Error::Llvm { .. })) && kernel_llvm::load().is_err()
}

/// One way to do the work.
pub type Launch<'a> = Box<dyn FnMut(&How<'_>) -> Result<(), Failure> + 'a>;

/// Calls of kernels, which are launched or compiled as [`How`] says.
pub trait Submit {
    /// Launches or compiles.
    ///
    /// # Errors
    /// Those of a launch.
    fn submit(self, how: &How<'_>) -> Result<(), Failure>;
}

impl<C, G: HasGrid> Submit for Call<'_, C, G> {
    fn submit(self, how: &How<'_>) -> Result<(), Failure> {
        match how {
            How::Launch(device) => self.launch(device)?,
            How::Compile(target, code) => code.borrow_mut().push(self.compile(*target)?.ptx().to_string()),
            How::Inspect(device, kernels) => kernels.borrow_mut().push(self.compile_on(device)?),
        }
        Ok(())
    }
}

/// As [`Submit`], for kernels that check nothing.
pub trait SubmitUnchecked {
    /// Launches or compiles.
    ///
    /// # Errors
    /// Those of a launch.
    ///
    /// # Safety
    /// As for the launch of an `unsafe fn` kernel.
    unsafe fn submit(self, how: &How<'_>) -> Result<(), Failure>;
}

impl<C, G: HasGrid> SubmitUnchecked for UnsafeCall<'_, C, G> {
    unsafe fn submit(self, how: &How<'_>) -> Result<(), Failure> {
        match how {
            // SAFETY: the caller's promise.
            How::Launch(device) => unsafe { self.launch(device) }?,
            How::Compile(target, code) => code.borrow_mut().push(self.compile(*target)?.ptx().to_string()),
            How::Inspect(device, kernels) => kernels.borrow_mut().push(self.compile_on(device)?),
        }
        Ok(())
    }
}

/// Somebody who can do the work, in one or more configurations.
pub struct Contender<'a> {
    /// `tilewright`, `triton`, `copy`, ...
    pub name: &'static str,
    /// Configurations with a description each.
    pub configs: Vec<(String, Launch<'a>)>,
}

impl<'a> Contender<'a> {
    /// Tilewright, without configurations so far.
    pub fn ours() -> Contender<'a> {
        Contender { name: "tilewright", configs: Vec::new() }
    }

    /// Adds a configuration.
    pub fn config(&mut self, name: String, launch: impl FnMut(&How<'_>) -> Result<(), Failure> + 'a) {
        self.configs.push((name, Box::new(launch)));
    }
}

/// One row of a benchmark.
pub struct Contest<'a> {
    /// What is done, such as `softmax`.
    pub work: &'static str,
    /// Its size, such as `8192x4096`.
    pub shape: String,
    /// The dtype of the data.
    pub dtype: &'static str,
    /// Bytes that the work itself reads and writes.
    pub bytes: f64,
    /// Operations of tensor cores that it takes; 0 where they are not what limits it.
    pub flops: f64,
    /// What everybody writes.
    pub outputs: Vec<&'a dyn data::Verify>,
    /// Who competes; the first is the one that rates are compared with.
    pub contenders: Vec<Contender<'a>>,
}

/// What a contender reached in a contest.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// What was done.
    pub work: String,
    /// Its size.
    pub shape: String,
    /// Its dtype.
    pub dtype: String,
    /// Who did it.
    pub contender: String,
    /// The best configuration.
    pub config: String,
    /// Median kernel time in milliseconds.
    pub ms: f64,
    /// Bytes moved per second, in GB/s, at that time.
    pub gbps: f64,
    /// Median over the rounds of this contender's rate divided by the first contender's rate in the same round.
    pub ratio: f64,
}
