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
//! | [`devices`] | the devices to test on |
//!
//! The reference shares no code with the interpreter, so that a mistake has to be made twice to pass.

pub mod assembler;
pub mod author;
pub mod case;
pub mod data;
pub mod devices;
pub mod expect;
pub mod reference;
pub mod rounding;
pub mod samples;
