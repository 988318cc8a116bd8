//! Integers of fewer bits: their runs end where the dtype does, shifts count modulo their width, offsets are extended.

mod support;

use kernel_codegen::{Checks, Options, Target, compile};
use support::differential::{Agreement, Given, agrees, agrees_in_warps, agrees_with_options, floats, zeros};

/// `>>` by 17 of 16 bits is one by 1, and by -1 of 32 bits one by 31.
#[test]
fn shifts_count_modulo_the_width() {
    let cases =
        [("u16", 17, "cmp.lt", 1), ("u16", 17, "cmp.eq", 5), ("i32", -1, "cmp.lt", 1), ("i32", 33, "cmp.eq", 3)];
    for (dtype, count, compare, number) in cases {
        let narrow = if dtype == "i32" { "add %r, %zeros".into() } else { "cast %r".to_string() };
        let text = format!(
            "kernel shifts \"shifts.rs\" unsafe bound {{
               param %out out: ptr_mut f32 {{div = 16}}
               %r: i32[256] = arange {{lo = 0, hi = 256}}
               %zero: i32 = const 0
               %zeros: i32[256] = splat %zero
               %x: {dtype}[256] = {narrow}
               %count: {dtype} = const {count}
               %counts: {dtype}[256] = splat %count
               %q: {dtype}[256] = shr %x, %counts
               %number: {dtype} = const {number}
               %numbers: {dtype}[256] = splat %number
               %mask: bool[256] = {compare} %q, %numbers
               %one: f32 = const 1.0
               %ones: f32[256] = splat %one
               %os: *out[256] = splat %out
               %op: *out[256] = add_ptr %os, %r
               store %op, %ones, %mask
               return
             }}"
        );
        agrees(&support::kernel(&text), &[zeros(256)], &[], 1, Agreement::Exact);
    }
}

/// The numbers from 0 on as i8 go on with -128, in the middle of an aligned group of 256 that one thread has.
#[test]
fn runs_of_signed_numbers_end_at_the_greatest() {
    for dtype in ["i8", "u8"] {
        let text = format!(
            "kernel signs \"signs.rs\" unsafe bound {{
               param %x x: ptr f32
               param %out out: ptr_mut f32
               %i: i32[32] = arange {{lo = 0, hi = 32}}
               %j: i32[256] = arange {{lo = 0, hi = 256}}
               %u: u8[256] = cast %j
               %b: {dtype}[256] = cast %u
               %start: {dtype} = const 0
               %starts: {dtype}[256] = splat %start
               %mask: bool[256] = cmp.gt %starts, %b
               %mask1: bool[1, 256] = expand_dims %mask {{axis = 0}}
               %masks: bool[32, 256] = broadcast %mask1
               %distance: i32 = const 33
               %distances: i32[256] = splat %distance
               %column: i32[256] = mul %j, %distances
               %column1: i32[1, 256] = expand_dims %column {{axis = 0}}
               %columns: i32[32, 256] = broadcast %column1
               %row1: i32[32, 1] = expand_dims %i {{axis = 1}}
               %rows: i32[32, 256] = broadcast %row1
               %offsets: i32[32, 256] = add %rows, %columns
               %xs: *x[32, 256] = splat %x
               %xp: *x[32, 256] = add_ptr %xs, %offsets
               %v: f32[32, 256] = load %xp, %masks
               %os: *out[32, 256] = splat %out
               %op: *out[32, 256] = add_ptr %os, %offsets
               store %op, %v
               return
             }}"
        );
        let buffers = [floats(33 * 256, 1), zeros(33 * 256)];
        let given = Given { buffers: &buffers, tensors: &[], scalars: &[] };
        agrees_in_warps(&[1, 4], &support::kernel(&text), &given, 1, Agreement::Exact);
    }
}

/// The place of -1 is the last of the axis, whatever the dtype.
#[test]
fn negative_indices_count_modulo_the_axis() {
    for dtype in ["i8", "i16", "i32", "i64", "u8"] {
        let text = format!(
            "kernel places \"places.rs\" unsafe bound {{
               param %x x: ptr f32 {{div = 16}}
               param %out out: ptr_mut f32 {{div = 16}}
               %i: i32[512] = arange {{lo = 0, hi = 512}}
               %minus: i32 = const -3
               %minuses: i32[512] = splat %minus
               %at: i32[512] = mul %i, %minuses
               %index: {dtype}[512] = cast %at
               %xs: *x[512] = splat %x
               %xp: *x[512] = add_ptr %xs, %i
               %v: f32[512] = load %xp
               %g: f32[512] = gather %v, %index {{axis = 0}}
               %os: *out[512] = splat %out
               %op: *out[512] = add_ptr %os, %i
               store %op, %g
               return
             }}"
        );
        let text = if dtype == "i32" { text.replace("cast %at", "add %at, %minuses") } else { text };
        agrees(&support::kernel(&text), &[floats(512, 7), zeros(512)], &[], 1, Agreement::Exact);
    }
}

/// Two copies at the same offset, which wraps as long as the mask does not hold: neither pointer goes on from there.
#[test]
fn offsets_that_wrap_before_a_mask_holds_are_computed_for_every_copy() {
    let text = "kernel skewed \"skewed.rs\" safe bound {
       param %a a: ptr f32 {div = 16}
       param %b b: ptr f32 {div = 16}
       param %out out: ptr_mut f32 {div = 16}
       param %n n: i32 {div = 16}
       param %start start: i32
       param %trips trips: i32
       %zero: i32 = const 0
       %one: i32 = const 1
       %lanes: i32[256] = arange {lo = 0, hi = 256}
       %none: f32 = const 0.0
       %first: f32[256] = splat %none
       %sum: f32[256] = for %zero, %trips, %one, %first {stages = 3} (%i: i32, %acc: f32[256]) {
         %d: i32 = sub %i, %start
         %in: bool = cmp.ge %d, %zero
         %mask: bool[256] = splat %in
         %row: i32 = mul %d, %n
         %ar: *a = add_ptr %a, %row
         %as: *a[256] = splat %ar
         %ap: *a[256] = add_ptr %as, %lanes
         %av: f32[256] = load %ap, %mask
         %br: *b = add_ptr %b, %row
         %bs: *b[256] = splat %br
         %bp: *b[256] = add_ptr %bs, %lanes
         %bv: f32[256] = load %bp, %mask
         %p: f32[256] = mul %av, %bv
         %s: f32[256] = add %acc, %p
         yield %s
       }
       %os: *out[256] = splat %out
       %op: *out[256] = add_ptr %os, %lanes
       store %op, %sum
       return
     }";
    let kernel = support::kernel(text);
    let options = Options { checks: Checks::AtLaunch, ..Options::default() };
    let buffers = [floats(256, 1), floats(256, 2), zeros(256)];
    let given = Given { buffers: &buffers, tensors: &[], scalars: &[1 << 30, 3, 4] };
    let compiled = compile(&kernel, &Target::sm_90a(), &options).expect("it compiles");
    assert!(compiled.ptx.contains("cp.async"), "{}", compiled.ptx);
    agrees_with_options(&[1, 2, 4], &options, &kernel, &given, 1, Agreement::Exact);
}
