//! The table itself: no operation without a test.

use kernel_core::ir::{Level, Op};

/// What the modules beside this one run, by mnemonic; operations with an enum of their own run all of it.
const TESTED: &[(&str, &[&str])] = &[
    ("elementwise", &["unary", "binary", "compare", "select", "fma", "cast", "bitcast"]),
    ("reduce", &["reduce", "scan"]),
    ("shape", &["expand_dims", "broadcast", "reshape", "permute", "const", "limit", "splat", "arange"]),
    ("shape (grid)", &["program_id", "num_programs"]),
    ("memory", &["add_ptr", "load", "store", "atomic_rmw", "atomic_cas"]),
    ("control", &["for", "while", "if", "yield", "return"]),
    ("dot", &["dot"]),
    (
        "the file tests of `kernel-core`, on the CPU and on the GPU",
        &["hint", "desc_load", "desc_store", "desc_reduce", "desc_gather", "desc_scatter"],
    ),
    ("the suite `audit`, through `#[kernel]`", &["assert", "static_assert", "const_expr", "check_bounds"]),
];

#[test]
fn every_operation_before_placement_is_tested() {
    let tested: Vec<&str> = TESTED.iter().flat_map(|(_, ops)| ops.iter().copied()).collect();
    for row in Op::rows() {
        let user = row.levels.contains(Level::Generic) || row.levels.contains(Level::Bound);
        assert_eq!(user, tested.contains(&row.mnemonic), "`{}`: extend the suite, then this table", row.mnemonic);
    }
    assert!(tested.iter().all(|name| Op::rows().any(|row| row.mnemonic == *name)), "the table names what is gone");
}
