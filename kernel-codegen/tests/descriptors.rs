//! Tensor descriptors where the target has no tensor copies: masked accesses that compute the same, as wide as can be.

mod support;

use kernel_codegen::checks::Class;
use kernel_codegen::{AbiParam, Options, Target, compile};
use kernel_core::interp::{HostBuffer, HostTensor};
use support::differential::{Agreement, agrees_with_tensors, floats, ints, noise};
use support::{compiles_everywhere, count, kernel};

/// Copies blocks of a matrix, moved.
const SHIFTED: &str = r#"kernel shifted "k.rs" safe bound {
  param %0 x: desc f32[16, 32] FACTS
  param %1 out: desc_mut f32[16, 32] FACTS
  param %2 down: i32
  param %3 right: i32
  %4: i32 = program_id {axis = 0}
  %5: i32 = const 16
  %6: i32 = mul %4, %5
  %7: i32 = add %6, %2
  %8: f32[16, 32] = desc_load %0, %7, %3
  %9: i32 = const 0
  desc_store %1, %8, %6, %9
  return
}
"#;

/// What is known of tensors with rows of whole vectors.
const ALIGNED: &str = "{div = 16, len_div = 4, stride_div = 4}";

fn shifted(facts: &str) -> String {
    SHIFTED.replace("FACTS", facts)
}

fn tensor(shape: &[u64], strides: &[u64], pads_with_nan: bool) -> HostTensor {
    HostTensor { shape: shape.to_vec(), strides: strides.to_vec(), pads_with_nan }
}

#[test]
fn blocks_inside_and_outside() {
    let buffers = [floats(2000, 1), floats(2000, 2)];
    for (facts, tensors, by) in [
        ("", [tensor(&[40, 30], &[31, 1], false), tensor(&[40, 29], &[33, 1], false)], [0, 0]),
        ("", [tensor(&[40, 30], &[31, 1], false), tensor(&[40, 29], &[33, 1], false)], [-7, 5]),
        ("", [tensor(&[40, 30], &[30, 1], false), tensor(&[40, 30], &[30, 1], false)], [i32::MIN, 0]),
        ("", [tensor(&[40, 30], &[30, 1], false), tensor(&[40, 30], &[30, 1], false)], [0, i32::MAX]),
        (ALIGNED, [tensor(&[40, 28], &[32, 1], false), tensor(&[33, 32], &[36, 1], false)], [0, 0]),
        (ALIGNED, [tensor(&[40, 28], &[32, 1], false), tensor(&[33, 32], &[36, 1], false)], [1, -3]),
        (ALIGNED, [tensor(&[0, 28], &[32, 1], false), tensor(&[33, 32], &[36, 1], false)], [0, 0]),
    ] {
        let kernel = kernel(&shifted(facts));
        agrees_with_tensors(&kernel, &buffers, &tensors, &by, 3, Agreement::Exact);
    }
}

#[test]
fn padding_with_nan() {
    let text = shifted("").replace("x: desc f32[16, 32]", "x: desc f32[16, 32] {pad_nan}");
    let buffers = [floats(2000, 1), floats(2000, 2)];
    let tensors = [tensor(&[40, 30], &[31, 1], true), tensor(&[40, 29], &[33, 1], false)];
    for by in [[0, 0], [-7, 5], [100, 0]] {
        agrees_with_tensors(&kernel(&text), &buffers, &tensors, &by, 3, Agreement::Exact);
    }
}

/// Where rows are whole vectors, accesses are: as wide as through pointers.
#[test]
fn known_rows_are_accessed_in_vectors() {
    // Columns from 0 on; of others nothing is known.
    let text = shifted(ALIGNED).replace("desc_load %0, %7, %3", "desc_load %0, %7, %c");
    let text = text.replace("%4: i32 = program_id", "%c: i32 = const 0\n  %4: i32 = program_id");
    let compiled = compile(&kernel(&text), &Target::sm_80(), &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(count(&compiled.ptx, "ld.global.nc.v4.b32"), 1, "{}", compiled.ptx);
    assert_eq!(count(&compiled.ptx, "st.global.v4.b32"), 1, "{}", compiled.ptx);
    // Nothing is decided at launch, nothing is reported: the descriptor is proof enough.
    assert!(compiled.conditions.is_empty() && compiled.sites.is_empty());
    assert!(compiled.report().accesses.iter().all(|access| access.class == Some(Class::Described)));
    let shapes = compiled.abi.iter().filter(|param| matches!(param, AbiParam::Shape(..))).count();
    let strides = compiled.abi.iter().filter(|param| matches!(param, AbiParam::Stride(..))).count();
    assert_eq!((shapes, strides), (4, 2), "{:?}", compiled.abi);
}

#[test]
fn unknown_rows_are_accessed_element_by_element() {
    let compiled =
        compile(&kernel(&shifted("")), &Target::sm_80(), &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(count(&compiled.ptx, ".v4"), 0, "{}", compiled.ptx);
}

const RANK_FIVE: &str = r#"kernel five "k.rs" safe bound {
  param %0 x: desc i32[2, 1, 2, 4, 8]
  param %1 out: desc_mut i32[2, 1, 2, 4, 8]
  param %2 i: i32
  param %3 j: i32
  %4: i32 = const 1
  %5: i32[2, 1, 2, 4, 8] = desc_load %0, %2, %4, %3, %2, %3
  desc_store %1, %5, %4, %4, %2, %3, %2
  desc_reduce %1, %5, %2, %2, %2, %2, %2 {op = add}
  return
}
"#;

#[test]
fn tensors_of_five_dimensions() {
    let buffers = [ints(1200, 1), ints(1200, 2)];
    let strides = [300, 140, 62, 11, 1];
    let tensors = [tensor(&[3, 2, 3, 5, 10], &strides, false), tensor(&[3, 2, 2, 5, 9], &strides, false)];
    for by in [[0, 0], [1, 1], [-1, 2], [3, -3]] {
        agrees_with_tensors(&kernel(RANK_FIVE), &buffers, &tensors, &by, 1, Agreement::Exact);
    }
}

const ROWS: &str = r#"kernel rows "k.rs" safe bound {
  param %0 numbers: ptr i32
  param %1 x: desc f32[1, 16]
  param %2 out: desc_mut f32[1, 16]
  param %3 from: i32
  param %4 to: i32
  %5: i32[8] = arange {lo = 0, hi = 8}
  %6: *numbers[8] = splat %0
  %7: *numbers[8] = add_ptr %6, %5
  %8: i32[8] = load %7
  %9: f32[8, 16] = desc_gather %1, %8, %3
  desc_scatter %2, %9, %8, %4
  return
}
"#;

#[test]
fn rows_by_number() {
    let numbers = HostBuffer::from(vec![5, 0, -1, 19, 20, 7, i32::MAX, i32::MIN]);
    let buffers = [numbers, floats(500, 1), floats(500, 2)];
    let tensors = [tensor(&[20, 20], &[21, 1], false), tensor(&[20, 20], &[22, 1], false)];
    for by in [[0, 0], [-3, 9], [19, -15], [20, 3]] {
        agrees_with_tensors(&kernel(ROWS), &buffers, &tensors, &by, 1, Agreement::Exact);
    }
}

const LINE: &str = r#"kernel line "k.rs" safe bound {
  param %0 x: desc i8[256] FACTS
  param %1 out: desc_mut i8[256] FACTS
  param %2 n: i32
  %3: i32 = const 0
  %4: i32 = const 256
  for %3, %2, %4 (%i: i32) {
    %5: i8[256] = desc_load %0, %i
    desc_store %1, %5, %i
    yield
  }
  return
}
"#;

#[test]
fn lines_in_a_loop() {
    let bytes = |salt| HostBuffer::from(noise(700, salt).map(|x| x as i8).collect::<Vec<i8>>());
    let buffers = [bytes(1), bytes(2)];
    for (facts, len) in [("", 700), ("", 513), ("{div = 16, len_div = 16}", 688)] {
        let tensors = [tensor(&[len], &[1], false), tensor(&[len], &[1], false)];
        agrees_with_tensors(&kernel(&LINE.replace("FACTS", facts)), &buffers, &tensors, &[700], 1, Agreement::Exact);
    }
}

#[test]
fn descriptors_assemble_for_every_target() {
    for text in [&shifted(""), &shifted(ALIGNED), RANK_FIVE, ROWS, &LINE.replace("FACTS", "")] {
        compiles_everywhere(text);
    }
}
