//! The program `tilewright-ffi`.
fn main() {}
