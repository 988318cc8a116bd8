//! Ops over candle's tensors, on the CPU, and with the feature `cuda` on the first GPU too.

mod attention;
mod bridge;
mod common;
mod macros;
mod operators;
mod products;
mod refusals;
mod rows;
