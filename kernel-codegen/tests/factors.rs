//! What factors of products are unpacked by: two elements of 16 bits at a time.

mod support;

use kernel_core::interp::HostBuffer;
use support::differential::{Agreement, agrees, noise};
use support::{compile_for_hopper, kernel};

/// `x @ ((4-bit numbers of w - 8) * scale)` of one tile, as 16-bit floats whose fraction holds the numbers.
fn unpacked(dtype: &str, one: u32, most: u32, rows: usize) -> String {
    format!(
        "kernel unpacked \"unpacked.rs\" unsafe bound {{
  param %w w: ptr i32 {{div = 16}}
  param %x x: ptr {dtype} {{div = 16}}
  param %s s: ptr {dtype} {{div = 16}}
  param %out out: ptr_mut f32 {{div = 16}}
  %four: i32[4] = arange {{lo = 0, hi = 4}}
  %eight: i32[8] = arange {{lo = 0, hi = 8}}
  %lanes: i32[32] = arange {{lo = 0, hi = 32}}
  %r: i32[4, 1] = expand_dims %four {{axis = 1}}
  %c: i32[1, 32] = expand_dims %lanes {{axis = 0}}
  %width: i32 = const 32
  %widths: i32[4, 1] = splat %width
  %rw: i32[4, 1] = mul %r, %widths
  %rwb: i32[4, 32] = broadcast %rw
  %cb: i32[4, 32] = broadcast %c
  %at: i32[4, 32] = add %rwb, %cb
  %ws: *w[4, 32] = splat %w
  %wp: *w[4, 32] = add_ptr %ws, %at
  %words: i32[4, 32] = load %wp
  %words3: i32[4, 1, 32] = expand_dims %words {{axis = 1}}
  %spread: i32[4, 8, 32] = broadcast %words3
  %bits: i32 = const 4
  %bitss: i32[8] = splat %bits
  %shift: i32[8] = mul %eight, %bitss
  %shift2: i32[8, 1] = expand_dims %shift {{axis = 1}}
  %shift3: i32[1, 8, 1] = expand_dims %shift2 {{axis = 0}}
  %shifts: i32[4, 8, 32] = broadcast %shift3
  %moved: i32[4, 8, 32] = shr %spread, %shifts
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
  %xr: i32[{rows}, 1] = expand_dims %rows {{axis = 1}}
  %xwidths: i32[{rows}, 1] = splat %width
  %xw: i32[{rows}, 1] = mul %xr, %xwidths
  %xwb: i32[{rows}, 32] = broadcast %xw
  %xcb: i32[{rows}, 32] = broadcast %c
  %xat: i32[{rows}, 32] = add %xwb, %xcb
  %xs: *x[{rows}, 32] = splat %x
  %xp: *x[{rows}, 32] = add_ptr %xs, %xat
  %a: {dtype}[{rows}, 32] = load %xp
  %none: f32 = const 0.0
  %start: f32[{rows}, 32] = splat %none
  %d: f32[{rows}, 32] = dot %a, %b, %start {{precision = tf32}}
  %os: *out[{rows}, 32] = splat %out
  %op: *out[{rows}, 32] = add_ptr %os, %xat
  store %op, %d
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
