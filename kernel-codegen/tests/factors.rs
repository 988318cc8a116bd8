//! What factors of products are unpacked by: two elements of 16 bits at a time.

mod support;

use kernel_core::interp::HostBuffer;
use support::differential::{Agreement, agrees, noise};
use support::{addresses, compile_for_hopper, kernel};

/// The lines of a kernel that make `%moved`: words of two dimensions so many times along a third one, the axis 1 or 2, moved down
/// by four bits more each time.
fn moved(words: &str, [m, n]: [usize; 2], axis: usize, times: usize) -> String {
    let (thin, tile, flat, row) = match axis {
        1 => ([m, 1, n], [m, times, n], [times, 1], [1, times, 1]),
        _ => ([m, n, 1], [m, n, times], [1, times], [1, 1, times]),
    };
    let inner = 2 - axis;
    format!(
        "  %deep: i32{thin:?} = expand_dims %{words} {{axis = {axis}}}
  %spread: i32{tile:?} = broadcast %deep
  %times: i32[{times}] = arange {{lo = 0, hi = {times}}}
  %bits: i32 = const 4
  %bitss: i32[{times}] = splat %bits
  %shift: i32[{times}] = mul %times, %bitss
  %shift2: i32{flat:?} = expand_dims %shift {{axis = {inner}}}
  %shift3: i32{row:?} = expand_dims %shift2 {{axis = 0}}
  %shifts: i32{tile:?} = broadcast %shift3
  %moved: i32{tile:?} = shr %spread, %shifts"
    )
}

/// `x @ ((4-bit numbers of w - 8) * scale)` of one tile, as 16-bit floats whose fraction holds the numbers.
fn unpacked(dtype: &str, one: u32, most: u32, rows: usize) -> String {
    let w = addresses("w", ("four", 4), ("lanes", 32));
    let [x, out] = ["x", "out"].map(|matrix| addresses(matrix, ("rows", rows), ("lanes", 32)));
    let moved = moved("words", [4, 32], 1, 8);
    format!(
        "kernel unpacked \"unpacked.rs\" unsafe bound {{
  param %w w: ptr i32 {{div = 16}}
  param %x x: ptr {dtype} {{div = 16}}
  param %s s: ptr {dtype} {{div = 16}}
  param %out out: ptr_mut f32 {{div = 16}}
  %four: i32[4] = arange {{lo = 0, hi = 4}}
  %lanes: i32[32] = arange {{lo = 0, hi = 32}}
{w}
  %words: i32[4, 32] = load %w_at
{moved}
  %numbers: i32[32, 32] = reshape %moved
  %short: i16[32, 32] = cast %numbers
  %low: i16 = const 15
  %lows: i16[32, 32] = splat %low
  %exponent: i16 = const {one}
  %exponents: i16[32, 32] = splat %exponent
  %masked: i16[32, 32] = and %short, %lows
  %filled: i16[32, 32] = or %masked, %exponents
  %floats: {dtype}[32, 32] = bitcast %filled
  %zero: {dtype} = const {most}.0
  %zeros: {dtype}[32, 32] = splat %zero
  %centred: {dtype}[32, 32] = sub %floats, %zeros
  %sp0: *s[32] = splat %s
  %sp: *s[32] = add_ptr %sp0, %lanes
  %scale: {dtype}[32] = load %sp
  %scale2: {dtype}[1, 32] = expand_dims %scale {{axis = 0}}
  %scales: {dtype}[32, 32] = broadcast %scale2
  %b: {dtype}[32, 32] = mul %centred, %scales
  %rows: i32[{rows}] = arange {{lo = 0, hi = {rows}}}
{x}
  %a: {dtype}[{rows}, 32] = load %x_at
  %none: f32 = const 0.0
  %start: f32[{rows}, 32] = splat %none
  %d: f32[{rows}, 32] = dot %a, %b, %start {{precision = tf32}}
{out}
  store %out_at, %d
  return
}}"
    )
}

fn small<T>(len: usize, salt: u32, of: impl Fn(f32) -> T) -> Vec<T> {
    noise(len, salt).map(|number| of((number.rem_euclid(5) - 2) as f32)).collect()
}

#[test]
fn packed_numbers_are_unpacked_in_pairs() {
    for rows in [16, 64] {
        // What the fraction of 128 in bf16, and of 1024 in f16, has room for; 8 is in the middle.
        for (dtype, one, most) in [("bf16", 0x4300, 136), ("f16", 0x6400, 1032)] {
            let kernel = kernel(&unpacked(dtype, one, most, rows));
            let words: Vec<i32> = noise(128, 3).map(|number| number.wrapping_mul(0x9e37_79b9_u32 as i32)).collect();
            let [x, s]: [HostBuffer; 2] = match dtype {
                "bf16" => [(32 * rows, 5), (32, 7)].map(|(len, salt)| small(len, salt, half::bf16::from_f32).into()),
                _ => [(32 * rows, 5), (32, 7)].map(|(len, salt)| small(len, salt, half::f16::from_f32).into()),
            };
            agrees(&kernel, &[words.into(), x, s, vec![0f32; 32 * rows].into()], &[], 1, Agreement::Exact);
            let ptx = compile_for_hopper(&kernel).ptx;
            // Pairs of masks, and differences of pairs, whatever the instruction of LLVM is for them.
            assert!(ptx.contains("983055"), "{ptx}");
            let alone = [format!("sub.{dtype} "), format!("sub.rn.{dtype} "), format!("mul.{dtype} ")];
            assert!(!alone.iter().any(|one| ptx.contains(one.as_str())), "{ptx}");
        }
    }
}

/// `x @ w` of one tile, where words of `w` have 8 numbers along the sums, and a thread of `mma.sync` has all of its words:
/// sums and columns are in the order of memory. `halves` makes words of two numbers each of `%moved`.
fn in_order(halves: &str) -> String {
    let (w, moved) = (addresses("w", ("words", 8), ("columns", 128)), moved("word", [8, 128], 2, 4));
    let (x, out) = (addresses("x", ("rows", 16), ("sums", 64)), addresses("out", ("rows", 16), ("columns", 128)));
    format!(
        "kernel in_order \"in_order.rs\" unsafe bound {{
  param %w w: ptr i32 {{div = 16}}
  param %x x: ptr f16 {{div = 16}}
  param %out out: ptr_mut f32 {{div = 16}}
  %columns: i32[128] = arange {{lo = 0, hi = 128}}
  %sums: i32[64] = arange {{lo = 0, hi = 64}}
  %rows: i32[16] = arange {{lo = 0, hi = 16}}
  %words: i32[8] = arange {{lo = 0, hi = 8}}
{w}
  %word: i32[8, 128] = load %w_at
{moved}
  %sixteen: i32 = const 16
  %sixteens: i32[8, 128, 4] = splat %sixteen
{halves}
  %low: i16[8, 128, 4] = cast %pair
  %upper: i32[8, 128, 4] = shr %pair, %sixteens
  %high: i16[8, 128, 4] = cast %upper
  %both: i16[8, 128, 4, 2] = join %low, %high
  %apart: i16[2, 4, 32, 4, 2, 2, 2] = reshape %both
  %turned: i16[2, 2, 2, 4, 2, 4, 32] = permute %apart {{perm = [0, 4, 5, 1, 6, 3, 2]}}
  %number: i16[64, 128] = reshape %turned
  %floats: f16[64, 128] = bitcast %number
  %middle: f16 = const 1032.0
  %middles: f16[64, 128] = splat %middle
  %b: f16[64, 128] = sub %floats, %middles
{x}
  %a: f16[16, 64] = load %x_at
  %ordered: f16[16, 2, 4, 2, 2, 2] = reshape %a
  %order: f16[16, 2, 2, 2, 4, 2] = permute %ordered {{perm = [0, 1, 4, 5, 2, 3]}}
  %left: f16[16, 64] = reshape %order
  %none: f32 = const 0.0
  %start: f32[16, 128] = splat %none
  %d: f32[16, 128] = dot %left, %b, %start
{out}
  store %out_at, %d
  return
}}"
    )
}

/// Both numbers of a word by one mask, and their exponents.
const TOGETHER: &str = "  %mask: i32 = const 983055
  %masks: i32[8, 128, 4] = splat %mask
  %masked: i32[8, 128, 4] = and %moved, %masks
  %exponent: i32 = const 1677747200
  %exponents: i32[8, 128, 4] = splat %exponent
  %pair: i32[8, 128, 4] = or %masked, %exponents";

/// The same of two words, of which one has the lower half and the other the upper one: exchanged twice, so that it is the same.
const APART: &str = "  %mask: i32 = const 983055
  %masks: i32[8, 128, 4] = splat %mask
  %lows: i32 = const 65535
  %low_half: i32[8, 128, 4] = splat %lows
  %highs: i32 = const -65536
  %high_half: i32[8, 128, 4] = splat %highs
  %down: i32[8, 128, 4] = shr %moved, %sixteens
  %first: i32[8, 128, 4] = and %down, %low_half
  %second: i32[8, 128, 4] = shl %moved, %sixteens
  %swapped: i32[8, 128, 4] = or %first, %second
  %down2: i32[8, 128, 4] = shr %swapped, %sixteens
  %first2: i32[8, 128, 4] = and %down2, %low_half
  %second2: i32[8, 128, 4] = and %moved, %high_half
  %mixed: i32[8, 128, 4] = or %first2, %second2
  %first3: i32[8, 128, 4] = and %moved, %low_half
  %second3: i32[8, 128, 4] = shl %swapped, %sixteens
  %again: i32[8, 128, 4] = or %first3, %second3
  %first4: i32[8, 128, 4] = and %again, %low_half
  %second4: i32[8, 128, 4] = and %mixed, %high_half
  %whole: i32[8, 128, 4] = or %first4, %second4
  %masked: i32[8, 128, 4] = and %whole, %masks
  %exponent: i32 = const 1677747200
  %exponents: i32[8, 128, 4] = splat %exponent
  %pair: i32[8, 128, 4] = xor %masked, %exponents";

#[test]
fn words_along_the_sums_are_unpacked_in_their_threads() {
    let words: Vec<i32> = noise(1024, 3).map(|number| number.wrapping_mul(0x9e37_79b9_u32 as i32)).collect();
    let x = small(1024, 5, half::f16::from_f32);
    for (halves, table) in [(TOGETHER, 0xea), (APART, 0x6a)] {
        let kernel = kernel(&in_order(halves));
        let buffers = [words.clone().into(), x.clone().into(), vec![0f32; 2048].into()];
        agrees(&kernel, &buffers, &[], 1, Agreement::Exact);
        let ptx = compile_for_hopper(&kernel).ptx;
        assert!(ptx.contains(&format!("983055, 1677747200, {table}")), "{ptx}");
    }
}
