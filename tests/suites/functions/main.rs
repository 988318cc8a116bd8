//! `#[device]` functions and closures with names, on every device: results against plain Rust, and code that is the same
//! as that of a kernel in one piece.

mod code;
mod constants;
mod methods;
mod names;
mod places;
mod results;
mod returns;
mod structs;
