//! Generated code, looked at without a GPU.

mod determinism;
mod kernels;
mod safety;
mod shape;
