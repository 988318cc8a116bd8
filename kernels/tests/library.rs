//! Every function of the library, on the CPU and on the GPU if there is one, against f64 on the host.

mod common;

mod activations;
mod attention;
mod general;
mod linear_cross_entropy;
mod losses;
mod norms;
mod products;
mod rows;
mod sequence;
mod training;
mod tuning;
mod workspaces;
