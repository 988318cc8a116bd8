//! Every function of the library, on the CPU and on the GPU if there is one, against f64 on the host.

mod common;

mod general;
mod rows;
mod sequence;
