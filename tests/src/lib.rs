//! What the test suites of Tilewright share.
//!
//! | module | what it is |
//! |---|---|
//! | [`data`] | elements of any dtype, by their bits |
//! | [`samples`] | the values of a dtype that break things, and random ones |
//! | [`mod@reference`] | every elementwise operation again, written from its definition on wide integers and f64 |
//! | [`rounding`] | rounding to any float format, in integers |
//! | [`expect`] | what a result must be: bits, or a number and a bound in ulps |
//! | [`author`] | writes kernels in the tile IR |
//! | [`case`] | a kernel, its arguments and what must come out, run on a device |
//! | [`assembler`] | ptxas, where it is installed |
//! | [`attention`] | attention, forward and backward |
//! | [`devices`] | the devices to test on |
//! | [`sources`] | the sources of the workspace, for tests of what they must not contain |
//! | [`factors`] | whether the hardware multiplies by what the PTX says |
//! | [`functions`] | `#[device]` functions for kernels of other crates |
//!
//! The reference shares no code with the interpreter, so that a mistake has to be made twice to pass.
//!
//! The suite `snapshots` holds the hashes of the PTX of every kernel of the examples, benchmarks and tests; its
//! documentation says how to accept new ones. The example `ptx` writes that PTX to files, and tables of what ptxas makes of
//! them.
//!
//! # Under compute-sanitizer
//!
//! The suites are ordinary programs, so that they run under it on a machine with a GPU:
//!
//! ```text
//! compute-sanitizer --tool racecheck target/debug/deps/audit-<hash>
//! PROPTEST_CASES=100 compute-sanitizer --tool racecheck target/debug/deps/properties-<hash> products_on_the_gpu
//! ```
//!
//! `racecheck` sees what threads themselves do to shared memory: conversions of layouts, reductions, staging, `cp.async`,
//! and barriers of both kinds. It does not see what tensor copies write and what `wgmma` reads; for these the
//! interpreter of placed kernels (`run_ordered`) and builds with random delays count. On an H100 the suite `audit` takes
//! 6 seconds under it, and 150 cases of the second command 40. The suite `delays`, whose launches sleep at every turn, was
//! not done after half a minute.

pub mod assembler;
pub mod attention;
pub mod author;
pub mod case;
pub mod data;
pub mod devices;
pub mod expect;
pub mod factors;
pub mod functions;
pub mod lines;
pub mod reference;
pub mod rounding;
pub mod samples;
pub mod sources;
