//! Arguments of the attribute.

use tilewright::prelude::*;

#[kernel(num_warp = 8)]
fn misspelt() {}

#[kernel(num_warps = 3)]
fn three_warps() {}

#[kernel(contract = 1, num_stages)]
fn no_value() {}

#[kernel(num_stages = 2, num_stages = 3)]
fn twice() {}

#[kernel(max_registers = 8)]
fn too_few_registers() {}

#[kernel(flush = 1)]
fn flush_is_no_number() {}

#[kernel(cluster = 2)]
fn unknown() {}

#[kernel(num_ctas = 2, maxnreg = 64)]
fn of_triton() {}

#[kernel(enable_fp_fusion = false, do_not_specialize = n, noinline)]
fn of_its_decorator() {}

fn main() {}
