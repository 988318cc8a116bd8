//! The tool `tile-opt`, as people call it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn finding(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("findings").join(name)
}

fn tile_opt(file: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tile-opt"));
    command.arg(file).args(words).output().expect("tile-opt runs")
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn passes_run_up_to_one_and_what_they_leave_computes_the_same() {
    let file = finding("tensor_copy_overtakes_loads_f8.tile");
    let bound = printed(&tile_opt(&file, &[]));
    assert!(bound.contains("desc_load") && bound.contains(" bound {"), "{bound}");
    let placed = printed(&tile_opt(&file, &["--upto", "membar", "--run"]));
    assert!(placed.contains(" placed {") && placed.contains("tma_load") && placed.contains("barrier"), "{placed}");
    // What was printed is read again, and goes on from there.
    let half = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tile_opt_half.tile");
    printed(&tile_opt(&file, &["--upto", "tensor_copies", "--out", half.to_str().expect("a path")]));
    assert_eq!(printed(&tile_opt(&half, &["--passes", "membar"])), placed);
}

#[test]
fn what_cannot_be_done_is_said() {
    let file = finding("negation_in_a_maximum_of_three.tile");
    for (words, said) in [
        (vec!["--upto", "pipelin"], "there is no pass `pipelin`, but promises"),
        (vec!["--passes", "membar"], "membar"),
        (vec!["--target", "sm_91"], "there is no target `sm_91`"),
        (vec!["--reduce"], "nothing to reduce"),
    ] {
        let output = tile_opt(&file, &words);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(said), "{words:?}: {text}");
    }
}
