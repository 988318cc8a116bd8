//! Several threads and registers hold an element: it counts once, and all that hold it have the same result.

mod support;

use support::differential::ints;
use support::written::{check, placed};

/// Layouts of 128 elements in which several hold a bit of the coordinate, and their warps.
const SHARED_BITS: [(&str, u32); 8] = [
    ("register [1], lane [2] [4] [8] [16] [32], warp [32] [64]", 4),
    ("register [1], lane [2] [4] [8] [16] [2], warp [32] [64]", 4),
    ("register [64], lane [1] [2] [4] [8] [16], warp [32] [64]", 4),
    ("register [1] [1] [64], lane [1] [2] [4] [8] [16], warp [32]", 2),
    ("register [1] [1], lane [2] [4] [8] [16] [32], warp [64]", 2),
    ("register [1] [2], lane [4] [8] [16] [32] [4], warp [64] [64]", 4),
    ("register, lane [1] [2] [4] [8] [16], warp [32] [64] [32] [64]", 16),
    ("register [2] [1], lane [2] [4] [8] [16] [32], warp [1] [64] [32] [0]", 16),
];

/// The layouts of [`SHARED_BITS`], each with those in which other threads have the copies: where a thread looks for its
/// elements in its own warp and lane first, it takes the copies.
fn with_other_owners() -> impl Iterator<Item = (String, String, u32)> {
    SHARED_BITS.into_iter().flat_map(|(layout, warps)| {
        let places: Vec<usize> = layout.match_indices('[').map(|(at, _)| at).collect();
        let others = places.into_iter().map(move |at| {
            let end = at + layout[at..].find(']').unwrap_or(0);
            format!("{}[0{}", &layout[..at], &layout[end..])
        });
        let whole = |other: &String| {
            let bases: Vec<u32> = other.split(['[', ']']).filter_map(|word| word.parse().ok()).collect();
            (0..7).all(|bit| bases.contains(&(1 << bit)))
        };
        others.filter(whole).map(move |other| (format!("{layout} -> dim0 128"), format!("{other} -> dim0 128"), warps))
    })
}

/// Of the threads and registers that hold an element, those count that memory is written by.
#[test]
fn scans_count_each_element_once() {
    for (layout, warps) in [
        ("register [1], lane [2] [4] [8] [16] [32], warp [64] [0] -> dim0 128", 4),
        ("register [1] [1], lane [2] [4] [8] [16] [32], warp [64] -> dim0 128", 2),
        ("register [1], lane [2] [4] [8] [16] [1], warp [32] [64] -> dim0 128", 4),
        ("register [1], lane [2] [4] [8] [16] [16], warp [32] [64] -> dim0 128", 4),
        ("register [1], lane [2] [4] [8] [16] [32], warp [32] [64] -> dim0 128", 4),
    ] {
        let body = "  %i: i32[128] #0 = arange {lo = 0, hi = 128}
  %xs: *x[128] #0 = splat %x
  %xp: *x[128] #0 = add_ptr %xs, %i
  %v: i32[128] #0 = load %xp
  %w: i32[128] #0 = scan %v {axis = 0, reverse = false} (%p: i32, %q: i32) {
    %m: i32 = add %p, %q
    yield %m
  }
  %os: *out[128] #0 = splat %out
  %op: *out[128] #0 = add_ptr %os, %i
  store %op, %w";
        let kernel = placed(&["%x x: ptr i32", "%out out: ptr_mut i32"], &[layout], body);
        check(&kernel, warps, &[ints(128, 3), vec![0i32; 128].into()]);
    }
}

/// Threads that hold copies have their prefixes too.
#[test]
fn scans_give_copies_their_prefixes() {
    let mut count = 0;
    for (layout, other, warps) in with_other_owners() {
        for reverse in [false, true] {
            let body = format!(
                "  %i: i32[128] #0 = arange {{lo = 0, hi = 128}}
  %xs: *x[128] #0 = splat %x
  %xp: *x[128] #0 = add_ptr %xs, %i
  %v: i32[128] #0 = load %xp
  %w: i32[128] #0, %u: i32[128] #0 = scan %v, %i {{axis = 0, reverse = {reverse}}} (%p: i32, %s: i32, %q: i32, %t: i32) {{
    %m: i32 = add %p, %q
    yield %m, %t
  }}
  %c: i32[128] #1 = convert_layout %w
  %d: i32[128] #1 = convert_layout %u
  %z: i32[128] #1 = xor %c, %d
  %j: i32[128] #1 = arange {{lo = 0, hi = 128}}
  %os: *out[128] #1 = splat %out
  %op: *out[128] #1 = add_ptr %os, %j
  store %op, %z"
            );
            let kernel = placed(&["%x x: ptr i32", "%out out: ptr_mut i32"], &[&layout, &other], &body);
            check(&kernel, warps, &[ints(128, 3), vec![0i32; 128].into()]);
        }
        count += 1;
    }
    assert!(count >= 16, "{count} pairs of layouts");
}

/// Sums count each element once, and all threads have the same one as the first and the last.
#[test]
fn reductions_of_copies_are_those_of_the_elements() {
    for (layout, warps) in SHARED_BITS {
        let threads = 32 * warps;
        let body = format!(
            "  %i: i32[128] #0 = arange {{lo = 0, hi = 128}}
  %xs: *x[128] #0 = splat %x
  %xp: *x[128] #0 = add_ptr %xs, %i
  %v: i32[128] #0 = load %xp
  %sum: i32 = reduce %v {{axis = 0}} (%a: i32, %b: i32) {{
    %ab: i32 = add %a, %b
    yield %ab
  }}
  %first: i32, %last: i32 = reduce %v, %i {{axis = 0}} (%p: i32, %s: i32, %q: i32, %t: i32) {{
    yield %p, %t
  }}
  %far: i32 = const 1000
  %ends: i32 = mul %far, %last
  %both: i32 = xor %first, %ends
  %all: i32 = add %both, %sum
  %j: i32[{threads}] #1 = arange {{lo = 0, hi = {threads}}}
  %os: *out[{threads}] #1 = splat %out
  %op: *out[{threads}] #1 = add_ptr %os, %j
  %w: i32[{threads}] #1 = splat %all
  store %op, %w"
        );
        let bits = |range: std::ops::Range<u32>| range.map(|bit| format!(" [{}]", 1 << bit)).collect::<String>();
        let own = format!("register, lane{}, warp{} -> dim0 {threads}", bits(0..5), bits(5..5 + warps.ilog2()));
        let layout = format!("{layout} -> dim0 128");
        let kernel = placed(&["%x x: ptr i32", "%out out: ptr_mut i32"], &[&layout, &own], &body);
        check(&kernel, warps, &[ints(128, 3), vec![0i32; threads as usize].into()]);
    }
}

/// Of all that hold an element, in threads and in registers, one does the atomic, and tells the others what was there.
#[test]
fn atomics_count_each_element_once() {
    for (layout, other, warps) in with_other_owners() {
        let body = "  %i: i32[128] #0 = arange {lo = 0, hi = 128}
  %xs: *x[128] #0 = splat %x
  %xp: *x[128] #0 = add_ptr %xs, %i
  %old: i32[128] #0 = atomic_rmw %xp, %i {op = add, order = relaxed, scope = device}
  %w: i32[128] #1 = convert_layout %old
  %j: i32[128] #1 = arange {lo = 0, hi = 128}
  %os: *out[128] #1 = splat %out
  %op: *out[128] #1 = add_ptr %os, %j
  store %op, %w";
        let kernel = placed(&["%x x: ptr_mut i32", "%out out: ptr_mut i32"], &[&layout, &other], body);
        check(&kernel, warps, &[ints(128, 3), vec![0i32; 128].into()]);
    }
}
