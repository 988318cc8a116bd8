//! The table itself: no operation without a test, and few places that pass over whole groups.

use kernel_core::ir::{Level, Op};
use tilewright_tests::sources;

/// What the modules beside this one run, by mnemonic; operations with an enum of their own run all of it.
const TESTED: &[(&str, &[&str])] = &[
    ("elementwise", &["unary", "binary", "float_int", "compare", "select", "fma", "cast", "bitcast"]),
    ("reduce", &["reduce", "scan"]),
    ("shape", &["expand_dims", "broadcast", "reshape", "permute", "join", "const", "limit", "splat", "arange"]),
    ("tiles", &["half", "gather", "scatter", "histogram", "sort"]),
    ("shape (grid)", &["program_id", "num_programs"]),
    ("memory", &["add_ptr", "load", "store", "atomic_rmw", "atomic_cas"]),
    ("control", &["for", "while", "if", "yield", "return"]),
    ("dot", &["dot"]),
    ("scaled", &["dot_scaled"]),
    (
        "the file tests of `kernel-core`, on the CPU and on the GPU",
        &["hint", "desc_load", "desc_store", "desc_reduce", "desc_gather", "desc_scatter"],
    ),
    (
        "the suite `audit`, through `#[kernel]`",
        &["assert", "print", "static_assert", "const_expr", "check_bounds", "counter", "map", "make_desc"],
    ),
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

/// How many alternatives the sources may have that name a group of operations and nothing of it, as `Op::Gpu(..)` with a
/// blank. A match that names groups to pass over them is not listed by the compiler when an operation is added: ask the
/// table instead (`kernel_core::ir::queries`).
const GROUPS_PASSED_OVER: usize = 42;

#[test]
fn groups_are_not_passed_over() {
    let mut found = Vec::new();
    for file in sources::all(&["."]) {
        let groups = ["Create", "Elementwise", "Shape", "Tile", "Memory", "Dot", "Desc", "Control", "Gpu"];
        let count: usize = groups.iter().map(|group| file.text.matches(&format!("Op::{group}(_)")).count()).sum();
        found.extend((count > 0).then_some((count, file.path)));
    }
    let total: usize = found.iter().map(|(count, _)| count).sum();
    found.sort();
    assert!(total <= GROUPS_PASSED_OVER, "{total} alternatives pass over groups of operations: {found:#?}");
}
