//! Turns in generated code, run thread by thread: both halves of a group have as many, one after the other, and nobody waits
//! for ever, whatever loops do.

mod support;

use kernel_codegen::{Compiled, Options, Target, compile, compile_placed};
use kernel_core::interp::{HostBuffer, HostTensor, run_ordered, run_with_tensors};
use kernel_core::ir::{Bound, Func, Placed};
use support::differential::{Agreement, compare, emulate_placed, from_bytes};
use support::registers::Registers;
use support::{assemble, kernel};

/// What a thread of each half does in its turn: it counts it.
const COUNT: &str =
    "%was_N: i32[256] #0 = atomic_rmw %counts, %ones, %first {op = add, order = relaxed, scope = device}";

/// A loop whose halves have a turn at the end of each iteration and the beginning of the next, fed through two slots.
fn consumer(name: &str, end: &str, before: &str) -> String {
    let [inside, behind] = ["in", "behind"].map(|at| COUNT.replace("_N", &format!("_{name}_{at}")));
    format!(
        "turn_begin
      %done_{name}: i32 = for %zero, %{end}, %one, %{before} (%i_{name}: i32, %trip_{name}: i32) {{
        %slot_{name}: i32 = rem %trip_{name}, %two
        %round_{name}: i32 = div %trip_{name}, %two
        %phase_{name}: i32 = rem %round_{name}, %two
        mbarrier_wait %full, %slot_{name}, %phase_{name}
        {inside}
        turn_end
        %next_{name}: i32 = add %trip_{name}, %one
        turn_begin
        mbarrier_arrive %empty, %slot_{name}
        yield %next_{name}
      }}
      {behind}
      turn_end"
    )
}

fn producer(name: &str, end: &str, before: &str) -> String {
    format!(
        "%sent_{name}: i32 = for %zero, %{end}, %one, %{before} (%p_{name}: i32, %fetch_{name}: i32) {{
        %to_{name}: i32 = rem %fetch_{name}, %two
        %time_{name}: i32 = div %fetch_{name}, %two
        %parity_{name}: i32 = rem %time_{name}, %two
        %free_{name}: i32 = xor %parity_{name}, %one
        mbarrier_wait %empty, %to_{name}, %free_{name}
        mbarrier_arrive %full, %to_{name}
        %further_{name}: i32 = add %fetch_{name}, %one
        yield %further_{name}
      }}"
    )
}

/// A kernel that goes through tiles. Each has a loop of as many iterations as its number, and one of `trips`.
fn text(tiles: u32, trips: u32) -> String {
    let (causal, fixed) = (consumer("c", "tile", "begun"), consumer("f", "trips", "done_c"));
    let (causal_copies, fixed_copies) = (producer("c", "piece", "fetched"), producer("f", "trips", "sent_c"));
    format!(
        "kernel turns \"k.rs\" unsafe placed {{
  layout #0 = register, lane [1] [2] [4] [8] [16], warp [32] [64] [128] -> dim0 256
  param %count count: ptr_mut i32
  %zero: i32 = const 0
  %one: i32 = const 1
  %two: i32 = const 2
  %trips: i32 = const {trips}
  %tiles: i32 = const {tiles}
  %full: barrier[2] = mbarrier_alloc {{slots = 2, count = 1}}
  %empty: barrier[2] = mbarrier_alloc {{slots = 2, count = 1}}
  fence {{kind = barrier_init}}
  barrier
  warp_groups {{warps = [8, 4], roles = [consumer, producer], registers = [0, 0]}} {{
    %threads: i32[256] #0 = arange {{lo = 0, hi = 256}}
    %four: i32 = const 128
    %fours: i32[256] #0 = splat %four
    %zeros: i32[256] #0 = splat %zero
    %ones: i32[256] #0 = splat %one
    %half: i32[256] #0 = div %threads, %fours
    %within: i32[256] #0 = rem %threads, %fours
    %first: bool[256] #0 = cmp.eq %within, %zeros
    %all: *count[256] #0 = splat %count
    %counts: *count[256] #0 = add_ptr %all, %half
    %done: i32 = for %zero, %tiles, %one, %zero (%tile: i32, %begun: i32) {{
      {causal}
      barrier
      {fixed}
      yield %done_f
    }}
    yield
  }} with {{
    %sent: i32 = for %zero, %tiles, %one, %zero (%piece: i32, %fetched: i32) {{
      {causal_copies}
      {fixed_copies}
      yield %sent_f
    }}
    yield
  }}
  return
}}
"
    )
}

/// How many turns each half has.
fn turns(tiles: u32, trips: u32) -> i32 {
    (0..tiles).map(|tile| tile + 1 + trips + 1).sum::<u32>() as i32
}

fn compiled(text: &str) -> (Func, Compiled) {
    let func = kernel_core::text::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    kernel_core::verify::verify(&func).unwrap_or_else(|problems| panic!("{problems:?}\n{text}"));
    let placed = Placed::new(func.clone()).unwrap_or_else(|_| panic!("a placed kernel"));
    let options = Options { num_warps: 8, ..Options::default() };
    let compiled = compile_placed(&placed, &Target::sm_90a(), &options).unwrap_or_else(|error| panic!("{error}"));
    (func, compiled)
}

/// Runs a kernel thread by thread. Nobody may wait for ever, and nobody may come to a barrier again before the others have.
fn emulated(text: &str, seed: u64) -> HostBuffer {
    let (func, compiled) = compiled(text);
    emulate_placed(&func, &compiled, &[vec![0i32; 2].into()], seed).remove(0)
}

#[test]
fn halves_have_all_their_turns() {
    for (tiles, trips) in [(0, 3), (1, 0), (1, 1), (1, 2), (3, 0), (3, 1), (2, 5), (4, 3)] {
        let text = text(tiles, trips);
        let expected = HostBuffer::from(vec![turns(tiles, trips); 2]);
        for seed in 1..6 {
            assert_eq!(emulated(&text, seed), expected, "{tiles} tiles, {trips} trips, seed {seed}");
        }
        let mut placed = [vec![0i32; 2].into()];
        let kernel = Placed::new(compiled(&text).0).unwrap_or_else(|_| panic!("a placed kernel"));
        run_ordered(&kernel, &mut placed, &[], &[], [1, 1, 1]).unwrap_or_else(|fault| panic!("{fault}"));
        assert_eq!(placed, [expected], "{tiles} tiles, {trips} trips");
    }
}

/// With one slot, the half that has its turn waits for a slot that the other reads until it has had its turn.
#[test]
#[should_panic(expected = "deadlock")]
fn one_slot_is_too_few() {
    let ring = "%two: i32 = const 2\n  %ring: i32 = const 1";
    let text = text(1, 3).replace("[2]", "[1]").replace("slots = 2", "slots = 1").replace("%two: i32 = const 2", ring);
    let text =
        text.replace("rem %trip_f, %two", "rem %trip_f, %ring").replace("div %trip_f, %two", "div %trip_f, %ring");
    emulated(
        &text.replace("rem %fetch_f, %two", "rem %fetch_f, %ring").replace("div %fetch_f, %two", "div %fetch_f, %ring"),
        1,
    );
}

/// Barriers 1 and 2 are those of the groups, 3 and 4 those of four warps each, 5 and 6 those of their turns: each half waits
/// at its own and arrives at the other's, and the second half lets the first begin.
#[test]
fn each_half_waits_for_the_other() {
    let (_, compiled) = compiled(&text(2, 2));
    let _ = assemble(&compiled);
    let values = Registers::of(&compiled.ptx);
    let operand = |line: &str| {
        line.trim_end_matches(';').split([' ', '\t', ',']).filter(|word| !word.is_empty()).nth(1).map(str::to_string)
    };
    let numbers = |how: &str| -> Vec<[u32; 2]> {
        let lines = compiled.ptx.lines().map(str::trim).filter(|line| line.contains(how) && line.ends_with(", 256;"));
        lines.filter_map(operand).map(|number| [values.at(&number, 0), values.at(&number, 128)]).collect()
    };
    let (mut waits, mut arrivals) = (numbers(".sync"), numbers(".arrive"));
    waits.retain(|numbers| *numbers != [1, 1]);
    assert!(!waits.is_empty() && waits.iter().all(|numbers| *numbers == [5, 6]), "{waits:?}\n{}", compiled.ptx);
    assert_eq!(arrivals.iter().filter(|numbers| **numbers == [5, 5]).count(), 1, "{arrivals:?}\n{}", compiled.ptx);
    arrivals.retain(|numbers| *numbers != [5, 5]);
    assert!(
        !arrivals.is_empty() && arrivals.iter().all(|numbers| *numbers == [6, 5]),
        "{arrivals:?}\n{}",
        compiled.ptx
    );
}

/// The kernels of the pass's file tests, with turns and without, as they are written and placed: of no iteration, of one, of
/// a part of one, and of more than there are slots.
#[test]
fn kernels_with_turns_compute_the_same() {
    let ends = |text: &str| text.find("\n}\n").map_or(text.len(), |end| end + 3);
    let kernels = include_str!("passes/turns.tile").split("kernel attention").skip(1);
    let (mut with_turns, mut count) = (0, 0);
    for text in kernels.map(|text| format!("kernel attention{}", &text[..ends(text)])) {
        let kernel = kernel(&text);
        let options = Options { num_warps: 8, num_stages: 2, ..Options::default() };
        let compiled = compile(&kernel, &Target::sm_90a(), &options).unwrap_or_else(|error| panic!("{error}"));
        with_turns += usize::from(compiled.placed_ir().contains("turn_begin"));
        count += 1;
        // The persistent one counts tiles, the others keys.
        let sizes = if text.contains("%tile") { [0, 1, 2, 3] } else { [0, 1, 384, 700] };
        for n in sizes {
            agrees(&kernel, &compiled, n);
        }
    }
    // Those that have one slot or four warps in the file test have more here.
    assert_eq!((with_turns, count), (5, 9));
}

/// Compares a kernel as written with the placed one. All sums are exact: a row of `q` has one number, so that scores are
/// small integers, of which the exponentials are powers of two.
fn agrees(kernel: &Bound, compiled: &Compiled, n: i32) {
    const ROWS: usize = 512;
    let halves = |at: &dyn Fn(usize, usize) -> i32| {
        let numbers = (0..ROWS * 64).map(|i| half::f16::from_f32(at(i / 64, i % 64) as f32));
        from_bytes(kernel_core::ir::DType::F16, &numbers.flat_map(half::f16::to_le_bytes).collect::<Vec<u8>>())
    };
    let small = |i: usize| (i.wrapping_mul(2_654_435_769) >> 20) as i32 % 7 - 3;
    let q = halves(&|row, column| i32::from(row % 64 == column));
    let (k, v) = (halves(&|row, column| small(64 * row + column)), halves(&|row, column| small(column + 91 * row)));
    let tensor = |columns: u64| HostTensor::contiguous(&[ROWS as u64, columns]);
    let tensors = [tensor(64), tensor(64), tensor(64), tensor(128)];
    let mut expected = [q, k, v, vec![0f32; ROWS * 128].into()];
    let mut found = expected.clone();
    run_with_tensors(kernel, &mut expected, &tensors, &[n.into()], [1, 1, 1]).unwrap_or_else(|fault| panic!("{fault}"));
    run_ordered(&compiled.placed, &mut found, &tensors, &[n.into()], [1, 1, 1])
        .unwrap_or_else(|fault| panic!("{fault} with {n}\n{}", compiled.placed_ir()));
    for (want, got) in expected.iter().zip(&found) {
        compare(want, got, Agreement::Exact, &compiled.placed_ir());
    }
}
