//! Bounds checks: what masks say of the offsets under them.

mod support;

use support::checked::{Launch, MASKED, copy, holds};

/// Whether one program with `n` may read and write buffers of `len` elements.
fn fits(source: &str, n: i128, len: u64) -> bool {
    holds(source, &Launch { scalars: &[None, None, Some(n)], lengths: &[len, len, 0], grid: 1 })
}

/// What each form of a mask says of the offsets under it, to the last one.
#[test]
fn masks_say_what_their_comparisons_say() {
    let with = |mask: &str| MASKED.replace("%10: bool[64] = cmp.lt %8, %9", mask);
    let launch = |source: &str, n, len, grid| {
        holds(source, &Launch { scalars: &[None, None, Some(n)], lengths: &[len, len, 0], grid })
    };
    let at_most = with("%10: bool[64] = cmp.le %8, %9");
    assert!(launch(&at_most, 99, 100, 2) && !launch(&at_most, 100, 100, 2));
    let not_above = with("%20: bool[64] = cmp.gt %8, %9\n  %10: bool[64] = not %20");
    assert!(launch(&not_above, 99, 100, 2) && !launch(&not_above, 100, 100, 2));
    // A disjunction says what both of its parts say, which is nothing here.
    let either = with("%20: bool[64] = cmp.lt %8, %9\n  %21: bool[64] = cmp.ge %8, %9\n  %10: bool[64] = or %20, %21");
    assert!(!launch(&either, 100, 100, 2) && launch(&either, 100, 128, 2));
    // From below: offsets from -64 on, of which the mask leaves those from a bound on.
    let from = |bound: i32| {
        let mask = format!(
            "%20: bool[64] = cmp.lt %8, %9\n  %21: i32 = const {bound}\n  %22: i32[64] = splat %21
            %23: bool[64] = cmp.ge %8, %22\n  %10: bool[64] = and %20, %23"
        );
        with(&mask).replace("%5: i32 = mul %3, %4", "%24: i32 = mul %3, %4\n  %5: i32 = sub %24, %4")
    };
    assert!(launch(&from(0), 100, 100, 3) && !launch(&from(-1), 100, 100, 3) && !launch(&from(-2), 100, 100, 3));
}

/// A reshaped tile that is used along two axes is two different tiles: a mask of the one says nothing of the other.
#[test]
fn masks_of_a_reshaped_tile_are_about_their_own_axis() {
    let launch = |mask: &str, n, len| {
        let body = format!(
            "  %i: i32[16] = arange {{lo = 0, hi = 16}}
  %j: i32[4, 4] = reshape %i
  %k: i32[4, 4] = permute %j {{perm = [1, 0]}}
  %ns: i32[4, 4] = splat %n
  %mask: bool[4, 4] = cmp.lt {mask}, %ns"
        );
        fits(&copy("[4, 4]", &body, "%j", Some("%mask")), n, len)
    };
    assert!(launch("%j", 5, 5) && !launch("%j", 5, 4));
    // Where element `[1, 0]` of the permuted tile is below 5, the offset is that of `[0, 1]`; the largest is 12.
    assert!(launch("%k", 5, 16) && !launch("%k", 5, 5));
}

/// What is joined lies within the bounds of both halves, wherever they are used.
#[test]
fn joined_offsets_are_bounded_by_both_halves() {
    let launch = |halves: &str, n, len| {
        let body = format!(
            "  %i: i32[16] = arange {{lo = 0, hi = 16}}
  %ns: i32[16] = splat %n
  %far: i32[16] = add %i, %ns
  %j: i32[16, 2] = join {halves}"
        );
        fits(&copy("[16, 2]", &body, "%j", None), n, len)
    };
    for halves in ["%i, %far", "%far, %i"] {
        assert!(launch(halves, 100, 116) && !launch(halves, 100, 115) && !launch(halves, -1, 116));
        assert!(launch(halves, 0, 16) && !launch(halves, 0, 15));
    }
    assert!(launch("%i, %i", 100, 16) && !launch("%i, %i", 100, 15));
}

/// A mask of the first half says nothing of the second.
#[test]
fn masks_of_one_half_do_not_bound_the_other() {
    let body = "  %i: i32[16] = arange {lo = 0, hi = 16}
  %ns: i32[16] = splat %n
  %far: i32[16] = add %i, %ns
  %j: i32[16, 2] = join %i, %far
  %c: i32 = const 16
  %cs: i32[16] = splat %c
  %m: bool[16] = cmp.lt %i, %cs
  %ms: bool[16, 2] = join %m, %m";
    let launch = |n, len| fits(&copy("[16, 2]", body, "%j", Some("%ms")), n, len);
    assert!(launch(100, 116) && !launch(100, 115));
}

/// A permutation that is not its own inverse: the mask bounds the axis that it is of.
#[test]
fn masks_follow_permuted_axes() {
    let body = "  %a: i32[2] = arange {lo = 0, hi = 2}
  %b: i32[4] = arange {lo = 0, hi = 4}
  %c: i32[8] = arange {lo = 0, hi = 8}
  %a1: i32[2, 1] = expand_dims %a {axis = 1}
  %a2: i32[2, 1, 1] = expand_dims %a1 {axis = 2}
  %b1: i32[1, 4] = expand_dims %b {axis = 0}
  %b2: i32[1, 4, 1] = expand_dims %b1 {axis = 2}
  %c1: i32[1, 8] = expand_dims %c {axis = 0}
  %c2: i32[1, 1, 8] = expand_dims %c1 {axis = 0}
  %a3: i32[2, 4, 8] = broadcast %a2
  %b3: i32[2, 4, 8] = broadcast %b2
  %c3: i32[2, 4, 8] = broadcast %c2
  %k32: i32 = const 32
  %s32: i32[2, 4, 8] = splat %k32
  %k8: i32 = const 8
  %s8: i32[2, 4, 8] = splat %k8
  %ao: i32[2, 4, 8] = mul %a3, %s32
  %bo: i32[2, 4, 8] = mul %b3, %s8
  %ab: i32[2, 4, 8] = add %ao, %bo
  %off: i32[2, 4, 8] = add %ab, %c3
  %turned: i32[4, 8, 2] = permute %off {perm = [1, 2, 0]}
  %ns: i32[4] = splat %n
  %m: bool[4] = cmp.lt %b, %ns
  %m1: bool[4, 1] = expand_dims %m {axis = 1}
  %m2: bool[4, 1, 1] = expand_dims %m1 {axis = 2}
  %mask: bool[4, 8, 2] = broadcast %m2";
    let launch = |n, len| fits(&copy("[4, 8, 2]", body, "%turned", Some("%mask")), n, len);
    assert!(launch(2, 48) && !launch(2, 47) && launch(4, 64) && !launch(4, 63));
}
