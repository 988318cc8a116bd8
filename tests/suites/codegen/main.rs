//! Generated code, looked at without a GPU.

mod attention;
mod attention_kernels;
mod determinism;
mod end;
mod guide;
mod held_factors;
mod kept_factors;
mod kernels;
mod looking;
mod made_kernels;
mod made_tensors;
mod names;
mod negations;
mod pressed;
mod ptx;
mod reports;
mod room;
mod safety;
mod shape;
mod sums;
mod tensors;
mod turns;
