//! Placed kernels in layouts that placement seldom chooses: what threads exchange, and which of those that hold the
//! same access memory.

mod support;

use kernel_codegen::report::{ConversionKind, Narrow};
use kernel_core::interp::HostBuffer;
use kernel_core::layout::{SwizzleWidth, nvmma_shared, shared_access, wgmma_accumulator};
use support::differential::{emulate_placed, ints};
use support::written::{check, compiled, placed};
use support::{count, layout_text};

/// Numbers that look random.
struct Random(u32);

impl Random {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 12) % end
    }

    /// So many numbers of so many bits, of which none is the sum of others.
    fn basis(&mut self, bits: u32) -> Vec<u32> {
        let (mut basis, mut sums) = (Vec::new(), vec![0]);
        while basis.len() < bits as usize {
            let next = self.below(1 << bits);
            if !sums.contains(&next) {
                sums.extend(sums.clone().iter().map(|sum| sum ^ next));
                basis.push(next);
            }
        }
        basis
    }
}

/// Bits of lanes, and of the warps of a program of four.
const LANE_BITS: u32 = 5;
const WARP_BITS: u32 = 2;

fn text_of(registers: u32, basis: &[u32]) -> String {
    let list = |range: std::ops::Range<u32>| -> String {
        basis[range.start as usize..range.end as usize].iter().map(|at| format!(" [{at}]")).collect()
    };
    let (lanes, warps) = (registers + LANE_BITS, registers + LANE_BITS + WARP_BITS);
    let [register, lane, warp] = [list(0..registers), list(registers..lanes), list(lanes..warps)];
    format!("register{register}, lane{lane}, warp{warp} -> dim0 {}", 1u32 << basis.len())
}

/// Elements change registers and lanes, in other ways in each warp.
#[test]
fn elements_change_places_within_their_warps() {
    let (mut random, mut shuffled) = (Random(7), 0);
    for case in 0..96 {
        let (registers, dtype) = (case % 4, ["i32", "i64", "i8", "f64", "i16", "bool"][case as usize / 4 % 6]);
        let inside = registers + LANE_BITS;
        let from = random.basis(inside + WARP_BITS);
        let mut to = from.clone();
        // A few exchanges and sums of bits of registers and lanes; and warps in which those are negated.
        for _ in 0..1 + random.below(3) {
            let (a, b) = (random.below(inside) as usize, random.below(inside) as usize);
            match random.below(2) {
                0 => to.swap(a, b),
                _ if a != b => to[a] ^= to[b],
                _ => {}
            }
        }
        for warp in inside..inside + WARP_BITS {
            if random.below(3) > 0 {
                to[warp as usize] ^= from[random.below(inside) as usize];
            }
        }
        let n = 1u32 << from.len();
        let body = format!(
            "  %i: i32[{n}] #0 = arange {{lo = 0, hi = {n}}}
  %xs: *x[{n}] #0 = splat %x
  %xp: *x[{n}] #0 = add_ptr %xs, %i
  %v: {dtype}[{n}] #0 = load %xp
  %w: {dtype}[{n}] #1 = convert_layout %v
  %j: i32[{n}] #1 = arange {{lo = 0, hi = {n}}}
  %os: *out[{n}] #1 = splat %out
  %op: *out[{n}] #1 = add_ptr %os, %j
  store %op, %w"
        );
        let params = [&format!("%x x: ptr {dtype}")[..], &format!("%out out: ptr_mut {dtype}")[..]];
        let kernel = placed(&params, &[&text_of(registers, &from), &text_of(registers, &to)], &body);
        let number = |i: u32| i64::from(i.wrapping_mul(2_654_435_769)) << 16 ^ i64::from(i);
        let x: HostBuffer = match dtype {
            "i32" => (0..n).map(|i| number(i) as i32).collect::<Vec<_>>().into(),
            "i64" => (0..n).map(number).collect::<Vec<_>>().into(),
            "i8" => (0..n).map(|i| number(i) as i8).collect::<Vec<_>>().into(),
            "i16" => (0..n).map(|i| number(i) as i16).collect::<Vec<_>>().into(),
            "bool" => (0..n).map(|i| number(i) >> 20 & 1 == 1).collect::<Vec<_>>().into(),
            _ => (0..n).map(|i| number(i) as f64).collect::<Vec<_>>().into(),
        };
        let out = HostBuffer::zeros(x.dtype(), n as usize);
        let compiled = check(&kernel, 4, &[x, out]);
        let by_shuffles = |kind: &ConversionKind| matches!(kind, ConversionKind::Shuffles(1..));
        shuffled += usize::from(compiled.report().conversions.iter().any(|one| by_shuffles(&one.kind)));
    }
    assert!(shuffled >= 48, "{shuffled} of 96 by shuffles");
}

/// Of 32 warps that each have a row, no two lanes have a column in common: every thread adds up its own.
#[test]
fn columns_of_32_warps_have_all_rows() {
    let layouts = [
        "register, lane [1] [2] [4] [8] [16], warp [32] [64] [128] [256] [512] -> dim0 1024",
        "register, lane [0, 1] [0, 2] [0, 4] [0, 8] [0, 16], warp [1, 0] [2, 0] [4, 0] [8, 0] [16, 0] -> dim0 32, dim1 32",
        "register, lane [1] [2] [4] [8] [16], warp [0] [0] [0] [0] [0] -> dim0 32",
    ];
    let body = "  %i: i32[1024] #0 = arange {lo = 0, hi = 1024}
  %xs: *x[1024] #0 = splat %x
  %xp: *x[1024] #0 = add_ptr %xs, %i
  %v: i32[1024] #0 = load %xp
  %t: i32[32, 32] #1 = reshape %v
  %s: i32[32] #2 = reduce %t {axis = 0} (%p: i32, %q: i32) {
    %m: i32 = add %p, %q
    yield %m
  }
  %j: i32[32] #2 = arange {lo = 0, hi = 32}
  %os: *out[32] #2 = splat %out
  %op: *out[32] #2 = add_ptr %os, %j
  store %op, %s";
    let kernel = placed(&["%x x: ptr i32", "%out out: ptr_mut i32"], &layouts, body);
    check(&kernel, 32, &[ints(1024, 5), vec![0i32; 32].into()]);
}

/// Partial sums that lie as those of products do, rows beside each other in a warp: they go through shared memory as threads hold
/// them, since in the order of the tile the lanes of 8 rows would meet in the same banks.
#[test]
fn sums_of_products_meet_in_no_bank() {
    let one_place = [
        "register [1] [512] [8], lane [2] [4] [64] [128] [256], warp [16] [32] [1024] -> dim0 2048",
        "register [0, 0, 1] [0, 8, 0] [0, 0, 8], lane [0, 0, 2] [0, 0, 4] [0, 1, 0] [0, 2, 0] [0, 4, 0], \
         warp [0, 0, 16] [0, 0, 32] [1, 0, 0] -> dim0 2, dim1 16, dim2 64",
        "register [0, 1] [8, 0] [0, 8], lane [0, 2] [0, 4] [1, 0] [2, 0] [4, 0], warp [0, 16] [0, 32] [0, 0] \
         -> dim0 16, dim1 64",
        "register [1] [512] [8], lane [2] [4] [64] [128] [256], warp [16] [32] [0] -> dim0 1024",
    ];
    // Lanes and warps that have what others have.
    let several = [
        "register [1] [256] [8] [128], lane [2] [4] [32] [64] [0], warp [16] [0] [512] -> dim0 1024",
        "register [0, 0, 1] [0, 8, 0] [0, 0, 8] [0, 4, 0], lane [0, 0, 2] [0, 0, 4] [0, 1, 0] [0, 2, 0] [0, 0, 0], \
         warp [0, 0, 16] [0, 0, 0] [1, 0, 0] -> dim0 2, dim1 16, dim2 32",
        "register [0, 1] [8, 0] [0, 8] [4, 0], lane [0, 2] [0, 4] [1, 0] [2, 0] [0, 0], warp [0, 16] [0, 0] [0, 0] \
         -> dim0 16, dim1 32",
        "register [1] [256] [8] [128], lane [2] [4] [32] [64] [0], warp [16] [0] [0] -> dim0 512",
    ];
    for (layouts, columns) in [(one_place, 64), (several, 32)] {
        for dtype in ["i32", "i64"] {
            let (all, sums) = (32 * columns, 16 * columns);
            let body = format!(
                "  %i: i32[{all}] #0 = arange {{lo = 0, hi = {all}}}
  %xs: *x[{all}] #0 = splat %x
  %xp: *x[{all}] #0 = add_ptr %xs, %i
  %v: {dtype}[{all}] #0 = load %xp
  %t: {dtype}[2, 16, {columns}] #1 = reshape %v
  %s: {dtype}[16, {columns}] #2 = reduce %t {{axis = 0}} (%p: {dtype}, %q: {dtype}) {{
    %m: {dtype} = add %p, %q
    yield %m
  }}
  %r: {dtype}[{sums}] #3 = reshape %s
  %j: i32[{sums}] #3 = arange {{lo = 0, hi = {sums}}}
  %os: *out[{sums}] #3 = splat %out
  %op: *out[{sums}] #3 = add_ptr %os, %j
  store %op, %r"
            );
            let params = [format!("%x x: ptr {dtype}"), format!("%out out: ptr_mut {dtype}")];
            let kernel = placed(&params.each_ref().map(String::as_str), &layouts, &body);
            let numbers = (0..all).map(|i: i64| i * 7919 % 1000 - 500);
            let buffers: [HostBuffer; 2] = if dtype == "i32" {
                [numbers.map(|i| i as i32).collect::<Vec<_>>().into(), vec![0i32; sums as usize].into()]
            } else {
                [numbers.collect::<Vec<i64>>().into(), vec![0i64; sums as usize].into()]
            };
            let compiled = check(&kernel, 8, &buffers);
            let shared = &compiled.report().shared;
            assert!(shared.len() == 2 && shared.iter().all(|one| one.conflicts == 0 && one.bytes == 16), "{shared:?}");
        }
    }
}

/// Sums of products go to swizzled shared memory as they lie, in which lanes of two rows would meet in a bank: half of the lanes
/// write their vectors in another order, each to its place.
#[test]
fn lanes_that_write_in_turns_write_each_element_to_its_place() {
    let (sums, shared) =
        (wgmma_accumulator(&[64, 64], 64, [4, 1]), nvmma_shared(&[64, 64], SwizzleWidth::B128, 32, false));
    let (sums, shared) = (sums.expect("a layout"), shared.expect("a layout"));
    assert!(shared_access(&sums, &shared, 32).expect("an access").turned().is_some());
    let [row, column] = [
        "register [8], lane [0] [0] [1] [2] [4], warp [16] [32] -> dim0 64",
        "register [1] [8] [16] [32], lane [2] [4] [0] [0] [0], warp [0] [0] -> dim0 64",
    ];
    let high = "register [8, 0], lane [0, 0] [0, 0] [1, 0] [2, 0] [4, 0], warp [16, 0] [32, 0] -> dim0 64, dim1 1";
    let wide = "register [0, 1] [0, 8] [0, 16] [0, 32], lane [0, 2] [0, 4] [0, 0] [0, 0] [0, 0], warp [0, 0] [0, 0] \
                -> dim0 1, dim1 64";
    let layouts = [&layout_text(&sums), row, column, high, wide, &layout_text(&shared)];
    let body = "  %row: i32[64] #1 = arange {lo = 0, hi = 64}
  %column: i32[64] #2 = arange {lo = 0, hi = 64}
  %high: i32[64, 1] #3 = expand_dims %row {axis = 1}
  %wide: i32[1, 64] #4 = expand_dims %column {axis = 0}
  %pitch: i32 = const 64
  %pitches: i32[64, 1] #3 = splat %pitch
  %starts: i32[64, 1] #3 = mul %high, %pitches
  %from: i32[64, 64] #0 = broadcast %starts
  %along: i32[64, 64] #0 = broadcast %wide
  %at: i32[64, 64] #0 = add %from, %along
  %xs: *x[64, 64] #0 = splat %x
  %xp: *x[64, 64] #0 = add_ptr %xs, %at
  %v: i32[64, 64] #0 = load %xp
  %s: shared i32[64, 64] #5 = shared_alloc
  shared_store %s, %v
  barrier
  %w: i32[64, 64] #0 = shared_load %s
  %os: *out[64, 64] #0 = splat %out
  %op: *out[64, 64] #0 = add_ptr %os, %at
  store %op, %w";
    let kernel = placed(&["%x x: ptr i32", "%out out: ptr_mut i32"], &layouts, body);
    let numbers: Vec<i32> = (0..64 * 64).collect();
    check(&kernel, 4, &[numbers.into(), vec![-1i32; 64 * 64].into()]);
}

/// Of equal values any may be the largest, but it is one and the same for all lanes.
#[test]
fn all_lanes_have_one_result() {
    let choose = "%k: i32 = select %first, %a2, %b2";
    let by_maximum = "%none: i32 = const 0
    %k1: i32 = select %first, %a2, %none
    %k2: i32 = select %first, %none, %b2
    %k: i32 = maximum %k1, %k2";
    for (last, combine) in [("a selection", choose), ("a maximum of others", by_maximum)] {
        let body = format!(
            "  %i: i32[128] #0 = arange {{lo = 0, hi = 128}}
  %xs: *x[128] #0 = splat %x
  %xp: *x[128] #0 = add_ptr %xs, %i
  %v: i32[128] #0 = load %xp
  %top: i32, %at: i32 = reduce %v, %i {{axis = 0}} (%a1: i32, %a2: i32, %b1: i32, %b2: i32) {{
    %first: bool = cmp.gt %a1, %b1
    %m: i32 = maximum %a1, %b1
    {combine}
    yield %m, %k
  }}
  %j: i32[32] #1 = arange {{lo = 0, hi = 32}}
  %os: *out[32] #1 = splat %out
  %op: *out[32] #1 = add_ptr %os, %j
  %all: i32[32] #1 = splat %at
  store %op, %all"
        );
        let layouts = [
            "register [1] [64], lane [2] [4] [8] [16] [32], warp -> dim0 128",
            "register, lane [1] [2] [4] [8] [16], warp -> dim0 32",
        ];
        let kernel = placed(&["%x x: ptr i32", "%out out: ptr_mut i32"], &layouts, &body);
        let compiled = compiled(&kernel, 1);
        let values: Vec<i32> = (0..128).map(|i| (i * 11) % 4).collect();
        let buffers = [values.clone().into(), vec![-1i32; 32].into()];
        let found = emulate_placed(kernel.func(), &compiled, &buffers, 1);
        let places = found[1].as_slice::<i32>().expect("i32");
        assert!(places.iter().all(|&place| place == places[0]), "{last}: {places:?}\n{}", compiled.ptx);
        assert_eq!(values[places[0] as usize], 3, "{last}");
    }
}

/// Of 64 elements each is held by two of 128 threads; one of them loads, copies and stores for both.
const HELD_TWICE: &str = "register, lane [1] [2] [4] [8] [16], warp [32] [0] -> dim0 64";

#[test]
fn one_of_the_threads_that_hold_an_element_accesses_memory() {
    let head = "  %i: i32[64] #0 = arange {lo = 0, hi = 64}
  %xs: *x[64] #0 = splat %x
  %xp: *x[64] #0 = add_ptr %xs, %i
  %os: *out[64] #0 = splat %out
  %op: *out[64] #0 = add_ptr %os, %i
  %n: i32 = const 37
  %ns: i32[64] #0 = splat %n
  %m: bool[64] #0 = cmp.lt %i, %ns\n";
    let layouts = [HELD_TWICE, "offset [1] [2] [4] [8] [16] [32] -> dim0 64"];
    let params = ["%x x: ptr_mut i32", "%out out: ptr_mut i32"];
    let copy = "  %s: shared i32[64] #1 = shared_alloc
  %t: token = async_copy %s, %xpMASK
  %g: token = async_commit %t
  %w: token = async_wait %g {pending = 0}
  barrier
  %v: i32[64] #0 = shared_load %s
  store %op, %v";
    for (body, instruction) in [
        ("  %v: i32[64] #0 = load %xp\n  store %op, %v".to_string(), "st.global"),
        ("  %v: i32[64] #0 = load %xp\n  store %op, %v, %m".to_string(), "st.global"),
        (
            "  %v: i32[64] #0 = atomic_rmw %xp, %i {op = add, order = relaxed, scope = device}".to_string(),
            "atom.relaxed",
        ),
        (copy.replace("MASK", ""), "cp.async.ca"),
        (copy.replace("MASK", ", %m"), "cp.async.ca"),
    ] {
        let kernel = placed(&params, &layouts, &format!("{head}{body}"));
        let compiled = check(&kernel, 4, &[ints(64, 3), vec![-1i32; 64].into()]);
        let mut lines = compiled.ptx.lines().filter(|line| line.contains(instruction)).peekable();
        assert!(lines.peek().is_some(), "{instruction}\n{}", compiled.ptx);
        assert!(lines.all(|line| line.trim().starts_with('@')), "{instruction} by all\n{}", compiled.ptx);
    }
}

/// Four columns of four rows in each thread: memory runs along rows, shared memory along columns, so that no two
/// elements go together.
#[test]
fn copies_are_as_wide_as_both_sides_allow() {
    let tile =
        "register [0, 1] [0, 2] [1, 0] [2, 0], lane [0, 4] [0, 8] [4, 0] [8, 0] [16, 0], warp -> dim0 32, dim1 16";
    let row = "register [1] [2], lane [4] [8] [0] [0] [0], warp -> dim0 16";
    let column = "register [1] [2], lane [0] [0] [4] [8] [16], warp -> dim0 32";
    let (high, wide) = (
        "register [1, 0] [2, 0], lane [0, 0] [0, 0] [4, 0] [8, 0] [16, 0], warp -> dim0 32, dim1 1",
        "register [0, 1] [0, 2], lane [0, 4] [0, 8] [0, 0] [0, 0] [0, 0], warp -> dim0 1, dim1 16",
    );
    let along = |rows: &str, columns: &str| format!("offset {rows} {columns} -> dim0 32, dim1 16");
    let (rows, columns) = ("[1, 0] [2, 0] [4, 0] [8, 0] [16, 0]", "[0, 1] [0, 2] [0, 4] [0, 8]");
    let halves = "[0, 1] [1, 0] [2, 0] [4, 0] [8, 0] [16, 0]";
    for (shared, bytes, copies) in
        [(along(columns, rows), 16, 4), (along(rows, columns), 4, 16), (along(halves, "[0, 2] [0, 4] [0, 8]"), 4, 16)]
    {
        let body = "  %row: i32[32] #2 = arange {lo = 0, hi = 32}
  %column: i32[16] #1 = arange {lo = 0, hi = 16}
  %high: i32[32, 1] #3 = expand_dims %row {axis = 1}
  %wide: i32[1, 16] #4 = expand_dims %column {axis = 0}
  %pitch: i32 = const 16
  %pitches: i32[32, 1] #3 = splat %pitch
  %starts: i32[32, 1] #3 = mul %high, %pitches
  %from: i32[32, 16] #0 = broadcast %starts
  %along: i32[32, 16] #0 = broadcast %wide
  %at: i32[32, 16] #0 = add %from, %along
  %xs: *x[32, 16] #0 = splat %x
  %xp: *x[32, 16] #0 = add_ptr %xs, %at
  %os: *out[32, 16] #0 = splat %out
  %op: *out[32, 16] #0 = add_ptr %os, %at
  %s: shared i32[32, 16] #5 = shared_alloc
  %t: token = async_copy %s, %xp
  %g: token = async_commit %t
  %w: token = async_wait %g {pending = 0}
  barrier
  %v: i32[32, 16] #0 = shared_load %s
  store %op, %v";
        let layouts = [tile, row, column, high, wide, &shared];
        let kernel = placed(&["%x x: ptr i32 {div = 16}", "%out out: ptr_mut i32 {div = 16}"], &layouts, body);
        let compiled = check(&kernel, 1, &[ints(512, 4), vec![0i32; 512].into()]);
        let narrow = compiled.report().accesses[0].narrow;
        assert_eq!(narrow, (bytes < 16).then_some(Narrow::Shared), "{}", compiled.report());
        let of = |bytes: u32| {
            let end = format!("], {bytes};");
            compiled.ptx.lines().filter(|line| line.contains("cp.async.c") && line.ends_with(&end)).count()
        };
        let counts = [of(16), of(4)];
        assert_eq!(counts, if bytes == 16 { [copies, 0] } else { [0, copies] }, "{shared}\n{}", compiled.ptx);
    }
}

/// Elements of two bytes that are not neighbours are stored by their threads: zeros where the mask says so.
#[test]
fn narrow_copies_bring_zeros_for_masked_lanes() {
    let layouts =
        ["register [32], lane [1] [2] [4] [8] [16], warp -> dim0 64", "offset [1] [2] [4] [8] [16] [32] -> dim0 64"];
    let body = "  %i: i32[64] #0 = arange {lo = 0, hi = 64}
  %xs: *x[64] #0 = splat %x
  %xp: *x[64] #0 = add_ptr %xs, %i
  %os: *out[64] #0 = splat %out
  %op: *out[64] #0 = add_ptr %os, %i
  %n: i32 = const 37
  %ns: i32[64] #0 = splat %n
  %m: bool[64] #0 = cmp.lt %i, %ns
  %s: shared i16[64] #1 = shared_alloc
  %t: token = async_copy %s, %xp, %m
  %g: token = async_commit %t
  %w: token = async_wait %g {pending = 0}
  barrier
  %v: i16[64] #0 = shared_load %s
  store %op, %v";
    let kernel = placed(&["%x x: ptr i16", "%out out: ptr_mut i16"], &layouts, body);
    let x: Vec<i16> = (1..65).map(|i| i * 7).collect();
    let compiled = check(&kernel, 1, &[x.into(), vec![-1i16; 64].into()]);
    // The register of a load is set first: it is not to hold what some other value left there.
    let zeros = compiled.ptx.lines().filter(|line| line.trim().starts_with("mov.b16") && line.ends_with(", 0;"));
    assert_eq!((count(&compiled.ptx, "ld.global.b16"), zeros.count()), (2, 2), "{}", compiled.ptx);
}

/// Products find their factors wherever a Hopper has shared memory, of which a program may have 227 KiB.
#[test]
fn factors_may_lie_in_the_last_of_many_slots() {
    let rows =
        "register [0, 1] [0, 2] [0, 4] [8, 0] [16, 0], lane [0, 8] [0, 16] [0, 32] [1, 0] [2, 0], warp [4, 0] [32, 0]";
    let shared = nvmma_shared(&[64, 64], SwizzleWidth::B128, 16, false).expect("a layout");
    let acc = wgmma_accumulator(&[64, 64], 64, [4, 1]).expect("a layout");
    let [row, column] = [
        "register [8] [16], lane [0] [0] [0] [1] [2], warp [4] [32] -> dim0 64",
        "register [1] [2] [4], lane [8] [16] [32] [0] [0], warp [0] [0] -> dim0 64",
    ];
    let high =
        "register [8, 0] [16, 0], lane [0, 0] [0, 0] [0, 0] [1, 0] [2, 0], warp [4, 0] [32, 0] -> dim0 64, dim1 1";
    let wide = "register [0, 1] [0, 2] [0, 4], lane [0, 8] [0, 16] [0, 32] [0, 0] [0, 0], warp [0, 0] [0, 0] -> dim0 1, dim1 64";
    let whole = format!("{rows} -> dim0 64, dim1 64");
    let layouts = [&whole, row, column, high, wide, &layout_text(&shared), &layout_text(&acc)];
    for (slots, number) in [(28, 27), (28, 16), (28, 15), (28, 0)] {
        let body = format!(
            "  %row: i32[64] #1 = arange {{lo = 0, hi = 64}}
  %column: i32[64] #2 = arange {{lo = 0, hi = 64}}
  %high: i32[64, 1] #3 = expand_dims %row {{axis = 1}}
  %wide: i32[1, 64] #4 = expand_dims %column {{axis = 0}}
  %pitch: i32 = const 64
  %pitches: i32[64, 1] #3 = splat %pitch
  %starts: i32[64, 1] #3 = mul %high, %pitches
  %from: i32[64, 64] #0 = broadcast %starts
  %along: i32[64, 64] #0 = broadcast %wide
  %at: i32[64, 64] #0 = add %from, %along
  %xs: *x[64, 64] #0 = splat %x
  %xp: *x[64, 64] #0 = add_ptr %xs, %at
  %v: f16[64, 64] #0 = load %xp
  %all: shared f16[{slots}, 64, 64] #5 = shared_alloc
  %number: i32 = const {number}
  %s: shared f16[64, 64] #5 = shared_index %all, %number
  shared_store %s, %v
  fence {{kind = proxy_async}}
  barrier
  %z: f32 = const 0.0
  %zs: f32[64, 64] #6 = splat %z
  %p: f32[64, 64] #6 = wgmma %s, %s, %zs
  %p1: f32[64, 64] #6 = wgmma_wait %p {{pending = 0}}
  %r: f32[64, 64] #0 = convert_layout %p1
  %os: *out[64, 64] #0 = splat %out
  %op: *out[64, 64] #0 = add_ptr %os, %at
  store %op, %r"
        );
        let kernel = placed(&["%x x: ptr f16 {div = 16}", "%out out: ptr_mut f32 {div = 16}"], &layouts, &body);
        let halves: Vec<half::f16> = (0..4096).map(|i| half::f16::from_f32(((i * 11) % 7 - 3) as f32)).collect();
        check(&kernel, 4, &[halves.into(), vec![0f32; 4096].into()]);
    }
}

#[test]
fn offsets_may_be_negative() {
    let layouts = ["register [1], lane [2] [4] [8] [16] [32], warp -> dim0 64"];
    let body = "  %far: i32 = const 100
  %middle: *x = add_ptr %x, %far
  %xs: *x[64] #0 = splat %middle
  %i: i32[64] #0 = arange {lo = 0, hi = 64}
  %back: i32[64] #0 = neg %i
  %xp: *x[64] #0 = add_ptr %xs, %back
  %v: i32[64] #0 = load %xp
  %os: *out[64] #0 = splat %out
  %op: *out[64] #0 = add_ptr %os, %i
  store %op, %v";
    let kernel = placed(&["%x x: ptr i32", "%out out: ptr_mut i32"], &layouts, body);
    check(&kernel, 1, &[ints(128, 6), vec![0i32; 64].into()]);
}

/// One value for the pointers of all iterations, which go on by one element: others have stored what a thread loads.
#[test]
fn pointers_that_move_from_iteration_to_iteration_are_others_each_time() {
    let layouts = ["register [1] [2], lane [4] [8] [16] [32] [64], warp [128] [256] -> dim0 512"];
    let body = |moved: &str| {
        format!(
            "  %zero: i32 = const 0
  %one: i32 = const 1
  %five: i32 = const 5
  %i: i32[512] #0 = arange {{lo = 0, hi = 512}}
  %xs: *x[512] #0 = splat %x
  for %zero, %five, %one (%k: i32) {{
    %ks: i32[512] #0 = splat {moved}
    %at: i32[512] #0 = add %i, %ks
    %p: *x[512] #0 = add_ptr %xs, %at
    %v: i32[512] #0 = load %p
    %w: i32[512] #0 = add %v, %v
    store %p, %w
    yield
  }}"
        )
    };
    for (moved, barriers) in [("%k", 1), ("%zero", 0)] {
        let compiled = check(&placed(&["%x x: ptr_mut i32"], &layouts, &body(moved)), 4, &[ints(520, 7)]);
        assert_eq!(count(&compiled.ptx, "bar.sync"), barriers, "{moved}\n{}", compiled.ptx);
    }
}
