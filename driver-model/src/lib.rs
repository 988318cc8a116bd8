//! A model of the CUDA driver, for tests on machines without a GPU.
//!
//! This crate is built twice in one: a shared library with the functions of the driver that the runtime calls, which runs
//! kernels in the emulator of PTX, and what tests ask it with. A test process opens the library as `libcuda.so`, found in a
//! temporary folder that stands in its `LD_LIBRARY_PATH`; the file itself has another name, so that no other test finds it.
//!
//! ```no_run
//! use tilewright_driver_model::{Settings, in_model, trace};
//!
//! #[test]
//! fn a_launch_is_one_call() {
//!     // In the parent this runs the same test again, in a process that has the model; there it gives `true`.
//!     if !in_model("a_launch_is_one_call", &Settings::default()) {
//!         return;
//!     }
//!     let before = trace().len();
//!     // .. what is tested ..
//!     let calls = &trace()[before..];
//!     assert!(calls.iter().all(|call| call.function == "cuLaunchKernelEx"));
//! }
//! ```
//!
//! **It is late.** What a stream is given is done when somebody waits for it, or at a random time before, in a random one
//! of the orders that streams and events allow. So a missing wait shows as a wrong result, for some [`Settings::seed`].
//!
//! **It is strict.** Where the driver refuses, the model gives the driver's error. Where the driver's behaviour is
//! undefined, it notes a *violation*: memory that is used before, after or beside its life, in the order that was asked for
//! whatever the order in which things ran; handles that are gone; kernels that reach beyond memory; and what the model does
//! not know, rather than to guess. A process with violations fails its test ([`Run::check`]).
//!
//! **It writes everything down**: each call, in [`trace`].
//!
//! | module | what it is |
//! |---|---|
//! | `client` | what tests use |
//! | `api` | the driver's functions, by what they are about |
//! | `model` | what lies behind them: `work`, the operations of streams and their order; `memory`; `code`; `capture`, `graph` |

#![cfg(target_os = "linux")]

#[cfg(feature = "model")]
mod api;
mod client;
#[cfg(feature = "model")]
mod model;

pub use client::{
    Call, Run, Schedule, Settings, find_library, in_model, is_the_driver, library, run, run_again, take_violations,
    trace,
};
