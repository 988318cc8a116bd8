//! Every operation of the tile IR on every dtype, on every device, against plain Rust.
//!
//! A case is a row of data; a kernel holds many cases, because compiling for a GPU costs more than running.

mod control;
mod dot;
mod elementwise;
mod memory;
mod reduce;
mod scaled;
mod shape;
mod table;
mod tiles;
