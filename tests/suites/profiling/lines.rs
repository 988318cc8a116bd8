//! Line information: which instructions are from which lines, through functions that were inlined.

use tilewright::prelude::*;
use tilewright_tests::assembler::{assemble_to, lines_of};
use tilewright_tests::lines::places;

/// The line before the kernel and its functions.
const FIRST: u32 = line!();
#[device]
fn squared<const N: usize>(x: Tile<f32, { [N] }>) -> Tile<f32, { [N] }> {
    x * x
}

#[device]
fn cubed<const N: usize>(x: Tile<f32, { [N] }>) -> Tile<f32, { [N] }> {
    x * squared(x)
}

#[kernel]
fn cubes<const BLOCK: usize>(x: Ptr<f32>, out: PtrMut<f32>) {
    let i = program_id(0) * BLOCK + arange(0, BLOCK);
    let value = load(x + i);
    store(out + i, cubed(value));
}

fn request() -> tilewright::launch::CompileRequest<CubesAssumed> {
    CubesConsts { BLOCK: 128 }.request()
}

fn ptx(lines: bool) -> String {
    request().line_info(lines).compile(Target::sm_90a()).expect("it compiles").ptx().to_string()
}

/// This file, as tools find it.
fn file() -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").join(file!());
    path.to_string_lossy().into_owned()
}

#[test]
fn ptx_names_lines_and_the_calls_that_led_to_them() {
    let at = |line: u32, column: u32| format!("{}:{}:{column}", file(), FIRST + line);
    let found = places(&ptx(true));
    let has = |place: &str| assert!(found.iter().any(|found| found == place), "{place} in {found:#?}");
    has(&at(14, 17));
    has(&at(15, 5));
    has(&format!("{} in squared at {}", at(3, 5), at(8, 9)));
    has(&format!("{} in cubed at {}", at(8, 5), at(15, 20)));
}

#[test]
fn without_being_asked_ptx_names_nothing() {
    let plain = request().compile(Target::sm_90a()).expect("it compiles").ptx().to_string();
    assert_eq!(plain, ptx(false));
    for word in [".loc", ".file", ".debug", file!()] {
        assert!(!plain.contains(word), "{word} in {plain}");
    }
}

/// What `compute-sanitizer`, `cuda-gdb` and Nsight read: the table of lines in the code of the hardware.
#[test]
fn the_hardwares_code_has_the_lines() {
    let Some((_, cubin)) = assemble_to(&ptx(true), "sm_90a") else { return };
    let Some(lines) = lines_of(&cubin) else { return };
    let of = |instruction: &str| {
        let at = lines.iter().position(|(sass, _)| sass.contains(instruction));
        lines[at.unwrap_or_else(|| panic!("no {instruction} in {lines:#?}"))].1.clone()
    };
    let place = |line: u32| format!("{}:{}", file(), FIRST + line);
    assert_eq!(of("LDG"), [place(14)]);
    assert_eq!(of("STG"), [place(15)]);
    assert_eq!(lines.iter().filter(|(_, at)| *at == [place(3), place(8), place(15)]).count(), 1, "{lines:#?}");
    assert_eq!(lines.iter().filter(|(_, at)| *at == [place(8), place(15)]).count(), 1, "{lines:#?}");
}
