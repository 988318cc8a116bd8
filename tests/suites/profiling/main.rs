//! What tools are told of kernels: lines of the source in PTX, ranges, and profiles.

mod lines;
mod profiles;
mod ranges;
