//! Loops in which threads compute with vectors that come with the factors, pass a factor on through shared memory, and add
//! blocks to memory, as attention's gradients in one kernel do: what each pass leaves computes the same.

mod support;

use kernel_codegen::{Options, Target, compile_watched};
use kernel_core::interp::{HostBuffer, HostTensor, run_ordered, run_placed_with_tensors, run_with_tensors};
use kernel_core::ir::Placed;
use support::differential::{Agreement, compare};
use support::kernel;

/// Small whole numbers: sums of their products are exact.
fn numbers(len: usize, salt: u32) -> impl Iterator<Item = f32> {
    (0..len as u32).map(move |i| ((i * 7 + salt * 13) % 5) as f32 - 2.0)
}

fn halves(len: usize, salt: u32) -> HostBuffer {
    numbers(len, salt).map(half::f16::from_f32).collect::<Vec<_>>().into()
}

/// `%k` is multiplied by blocks of `%q`, a vector of `%l` is subtracted, the result goes on as a factor from registers and,
/// transposed, from shared memory; what the latter makes is added to `%s`.
fn text([factors, sums]: [&str; 2]) -> String {
    let facts = "{div = 16, len_div = 16, stride_div = 16}";
    format!(
        "kernel gradients \"gradients.rs\" unsafe bound {{
  param %q q: desc f16[64, 64] {facts}
  param %k k: desc f16[128, 64] {facts}
  param %l l: desc f32[64] {facts}
  param %s s: desc_mut f32[64, 64] {facts}
  param %o o: desc_mut f32[128, 64] {facts}
  param %n n: i32
  %zero: i32 = const 0
  %one: i32 = const 1
  %two: i32 = const 2
  %step: i32 = const 64
  %none: f32 = const 0.0
  %start: f32[128, 64] = splat %none
  %begin: f32[64, 64] = splat %none
  %sixteenth: f32 = const 0.0625
  %small: f32[128, 64] = splat %sixteenth
  %keys: f16[128, 64] = desc_load %k, %zero, %zero
  %total: f32[128, 64] = for %zero, %two, %one, %start (%again: i32, %outer: f32[128, 64]) {{
    %sum: f32[128, 64] = for %zero, %n, %step, %outer {{warp_specialize = true}} (%i: i32, %acc: f32[128, 64]) {{
      %y: f16[64, 64] = desc_load %q, %i, %zero
      %yt: f16[64, 64] = permute %y {{perm = [1, 0]}}
      %c: f32[128, 64] = dot %keys, %yt, %start {{precision = tf32}}
      %v: f32[64] = desc_load %l, %i
      %row: f32[1, 64] = expand_dims %v {{axis = 0}}
      %rows: f32[128, 64] = broadcast %row
      %t: f32[128, 64] = mul %c, %small
{factors}
      %p: f16[128, 64] = cast %u
      %pt: f16[64, 128] = permute %p {{perm = [1, 0]}}
      %change: f32[64, 64] = dot %pt, %keys, %begin {{precision = tf32}}
      %d: f32[128, 64] = dot %p, %y, %acc {{precision = tf32}}
{sums}
      desc_reduce %s, %moved, %i, %zero {{op = add}}
      yield %d
    }}
    yield %sum
  }}
  desc_store %o, %total, %zero, %zero
  return
}}"
    )
}

/// The factors are computed with the vector.
const IN_FACTORS: [&str; 2] =
    ["      %u: f32[128, 64] = sub %t, %rows", "      %moved: f32[64, 64] = add %change, %begin"];

/// No product depends on the vector.
const BEHIND_PRODUCTS: [&str; 2] = [
    "      %u: f32[128, 64] = add %t, %start",
    "      %wide: f32[64, 64] = broadcast %row\n      %moved: f32[64, 64] = add %change, %wide",
];

fn check(vector: [&str; 2], num_warps: u32, num_stages: u32) -> Vec<String> {
    let kernel = kernel(&text(vector));
    let tensors = [
        HostTensor::contiguous(&[192, 64]),
        HostTensor::contiguous(&[128, 64]),
        HostTensor::contiguous(&[192]),
        HostTensor::contiguous(&[192, 64]),
        HostTensor::contiguous(&[128, 64]),
    ];
    let rows: HostBuffer = numbers(192, 3).collect::<Vec<_>>().into();
    let zeros = |len: usize| -> HostBuffer { vec![0f32; len].into() };
    let buffers = [halves(192 * 64, 1), halves(128 * 64, 2), rows, zeros(192 * 64), zeros(128 * 64)];
    let mut after: Vec<(&str, Placed)> = Vec::new();
    let options = Options { num_warps, num_stages, ..Options::default() };
    let mut watch = |pass, func: &_, _: &_| after.extend(Placed::new(Clone::clone(func)).ok().map(|func| (pass, func)));
    let compiled = compile_watched(&kernel, &Target::sm_90a(), &options, &mut watch);
    let compiled = compiled.unwrap_or_else(|error| panic!("{error}"));
    for trips in [0, 1, 3] {
        let scalars = [(64 * trips).into()];
        let mut expected = buffers.to_vec();
        run_with_tensors(&kernel, &mut expected, &tensors, &scalars, [1; 3]).unwrap_or_else(|error| panic!("{error}"));
        for (pass, placed) in &after {
            let what = format!("{num_warps} warps, {num_stages} stages, {trips} iterations, after `{pass}`");
            let mut found = buffers.to_vec();
            // Barriers are complete behind `exchanges`.
            let run = if *pass == "accumulator_banks" { run_ordered } else { run_placed_with_tensors };
            run(placed, &mut found, &tensors, &scalars, [1; 3]).unwrap_or_else(|error| panic!("{what}: {error}"));
            for (want, got) in expected.iter().zip(&found) {
                compare(want, got, Agreement::Exact, &what);
            }
        }
    }
    compiled.report().loops.iter().map(|told| told.what.clone()).collect()
}

#[test]
fn vectors_come_with_factors_and_sums_leave_by_tensor_copies() {
    for (num_warps, num_stages) in [(8, 2), (4, 3)] {
        let loops = check(IN_FACTORS, num_warps, num_stages);
        let bytes = 64 * 64 * 2 + 64 * 4;
        assert!(loops.iter().any(|what| what.contains(&format!("{num_stages} slots of {bytes} bytes"))), "{loops:?}");
    }
}

/// Threads of four warps meet before one of them says that all have read.
#[test]
fn vectors_that_no_product_depends_on_have_slots_of_their_own() {
    check(BEHIND_PRODUCTS, 8, 2);
}
