//! Tests of the elementary functions: accuracy against references that share nothing with them,
//! special values, and the shape of the code.

mod binary;
mod double;
mod shape;
mod single;
mod specials;
