//! Loads and stores: vector widths, predicates.

mod support;

use support::{assemble, compiles_everywhere, count, hopper};

const ADD: &str = include_str!("kernels/add.tile");
const SOFTMAX: &str = include_str!("kernels/softmax.tile");

#[test]
fn vector_add_is_four_vector_loads_and_two_vector_stores() {
    let compiled = hopper(ADD, 4);
    if std::env::var_os("SHOW").is_some() { println!("{}\n{}\n{:?}", compiled.ptx, compiled.report, compiled.timings); println!("{}", compiled.placed_ir()); }
    assert_eq!(count(&compiled.ptx, "ld.global.nc.v4.b32"), 4);
    assert_eq!(count(&compiled.ptx, "st.global.v4.b32"), 2);
    if let Some(assembled) = assemble(&compiled) {
        println!("{assembled:?}");
    }
    compiles_everywhere(ADD);
}

#[test]
fn softmax() {
    let compiled = hopper(SOFTMAX, 8);
    if std::env::var_os("SHOW").is_some() { println!("{}\n{}\n{:?}", compiled.ptx, compiled.report, compiled.timings); println!("{}", compiled.placed_ir()); }
    assert_eq!(count(&compiled.ptx, "ld.global.nc.v4.b32"), 4);
    println!("{:?}", assemble(&compiled));
    compiles_everywhere(SOFTMAX);
}
