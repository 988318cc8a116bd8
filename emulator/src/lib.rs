//! Runs the PTX of a kernel on the CPU, thread by thread, so that generated code can be compared with the interpreter
//! on a machine without a GPU.
//!
//! It knows the instructions that the code generator emits and refuses all others by name. Threads run in a random
//! order, each as far as it can: to a barrier, a shuffle or the end. So a missing barrier shows as a wrong result in
//! some order, an access out of bounds or of uninitialised shared memory as a panic or as noise.

mod arithmetic;
mod barriers;
mod code;
mod global;
mod host;
mod matrix;
mod parse;
mod reduce;
mod run;
mod shared;

pub use code::{Code, Launch, Programs};
pub use global::{Global, Memory, Touch};
pub use host::{Given, bytes, emulate, emulate_placed, emulate_with_tensors, from_bytes, numbers};
