//! Tests of the front end on source text: the IR of each construct, and the message for each mistake.

mod lowering;
mod support;
