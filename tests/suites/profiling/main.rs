//! What tools are told of kernels: lines of the source in PTX, ranges, profiles, counters and samples.

mod counters;
mod lines;
mod profiles;
mod ranges;
