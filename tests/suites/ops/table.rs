//! The table itself: no operation without a test, and few places that pass over whole groups.

use std::path::Path;

use kernel_core::ir::{Level, Op};

/// What the modules beside this one run, by mnemonic; operations with an enum of their own run all of it.
const TESTED: &[(&str, &[&str])] = &[
    ("elementwise", &["unary", "binary", "compare", "select", "fma", "cast", "bitcast"]),
    ("reduce", &["reduce", "scan"]),
    ("shape", &["expand_dims", "broadcast", "reshape", "permute", "join", "const", "limit", "splat", "arange"]),
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

/// How many alternatives the sources may have that name a group of operations and nothing of it, as `Op::Gpu(..)` with a
/// blank. A match that names groups to pass over them is not listed by the compiler when an operation is added: ask the
/// table instead (`kernel_core::ir::queries`).
const GROUPS_PASSED_OVER: usize = 38;

#[test]
fn groups_are_not_passed_over() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace is around this package");
    let (mut folders, mut found) = (vec![workspace.to_path_buf()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of the workspace").flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let is_source = path.extension().is_some_and(|extension| extension == "rs");
            if path.is_dir() && !path.is_symlink() && name != "target" && !name.to_string_lossy().starts_with('.') {
                folders.push(path);
            } else if is_source && path.is_file() {
                let text = std::fs::read_to_string(&path).expect("a source");
                let groups = ["Create", "Elementwise", "Shape", "Memory", "Dot", "Desc", "Control", "Gpu"];
                let count: usize = groups.iter().map(|group| text.matches(&format!("Op::{group}(_)")).count()).sum();
                found.extend((count > 0).then_some((count, path)));
            }
        }
    }
    let total: usize = found.iter().map(|(count, _)| count).sum();
    found.sort();
    assert!(total <= GROUPS_PASSED_OVER, "{total} alternatives pass over groups of operations: {found:#?}");
}
