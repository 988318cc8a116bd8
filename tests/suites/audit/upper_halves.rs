//! Tiles of 8-bit floats of which compilers know that a mask lets rows through no more: what stands in their place is converted.
//!
//! ptxas converts the upper halves of words wrongly that it finds to be known (`upper_halves.rs` of the code generator).

use tilewright::prelude::*;
use tilewright_tests::assembler::{assemble_to, disassemble};
use tilewright_tests::devices::check;

const ROWS: usize = 64;
const COLUMNS: usize = 16;
const INNER: usize = 32;

/// The product of a matrix, of which rows from `SEEN` on are `other`, with another one.
#[kernel(num_warps = 1)]
fn seen<T: Float, const SEEN: usize, const OTHER: i32>(a: Ptr<T>, b: Ptr<T>, out: PtrMut<f16>) {
    let (row, inner, column) = (arange(0, ROWS), arange(0, INNER), arange(0, COLUMNS));
    let mask = (row < SEEN)[(.., None)];
    let x = load(a + (row[(.., None)] * INNER + inner), mask = mask, other = OTHER as T);
    let y = load(b + (inner[(.., None)] * COLUMNS + column));
    store(out + (row[(.., None)] * COLUMNS + column), dot(x, y, out = f16));
}

/// Small integers, whose sums f16 holds.
fn numbers(len: usize, salt: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 31 + i / INNER * 7 + salt) % 5) as f32 - 2.0).collect()
}

fn check_rows<T: Float, const SEEN: usize, const OTHER: i32>(of: fn(f32) -> T) {
    let (a, b) = (numbers(ROWS * INNER, 1), numbers(INNER * COLUMNS, 3));
    let factor = |row: usize, k: usize| if row < SEEN { a[row * INNER + k] } else { OTHER as f32 };
    let sum = |row: usize, column: usize| (0..INNER).map(|k| factor(row, k) * b[k * COLUMNS + column]).sum::<f32>();
    let want: Vec<f16> = (0..ROWS * COLUMNS).map(|i| f16::from_f32(sum(i / COLUMNS, i % COLUMNS))).collect();
    check(|device| {
        let bytes = |numbers: &[f32]| device.upload(&numbers.iter().map(|&x| of(x)).collect::<Vec<T>>());
        let (a, b, mut out) = (bytes(&a)?, bytes(&b)?, device.zeros::<f16>(ROWS * COLUMNS)?);
        seen::<T, SEEN, OTHER>(&a, &b, &mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, want, "{SEEN} rows, {OTHER} behind them");
        Ok(())
    });
}

#[test]
fn rows_behind_the_last_one_are_what_stands_in_their_place() {
    check_rows::<F8E4M3, 17, 2>(F8E4M3::from_f32);
    check_rows::<F8E4M3, 17, 0>(F8E4M3::from_f32);
    check_rows::<F8E4M3, 40, -1>(F8E4M3::from_f32);
    check_rows::<F8E5M2, 17, 2>(F8E5M2::from_f32);
    check_rows::<F8E5M2, 33, 0>(F8E5M2::from_f32);
}

/// The words that ptxas converts are registers, 0, or two or four bytes of 2.0, which it shows as f32: 0x4040 and 0x40404040.
#[test]
fn ptxas_converts_the_numbers_that_there_are() {
    let (two, zero) = (SeenConsts { SEEN: 17, OTHER: 2 }, SeenConsts { SEEN: 17, OTHER: 0 });
    for compiled in [
        two.request::<F8E4M3>().compile(Target::sm_90a()),
        two.request::<F8E5M2>().compile(Target::sm_90a()),
        zero.request::<F8E4M3>().compile(Target::sm_90a()),
        zero.request::<F8E5M2>().compile(Target::sm_90a()),
    ] {
        let compiled = compiled.unwrap_or_else(|error| panic!("{error}"));
        let Some(text) = assemble_to(compiled.ptx(), "sm_90a").and_then(|(_, cubin)| disassemble(&cubin)) else {
            return;
        };
        let words = text.lines().filter_map(|line| line.split_once("UNPACK_B ")?.1.split([',', ';']).nth(1));
        let words: Vec<&str> = words.map(str::trim).collect();
        assert!(!words.is_empty(), "{text}");
        let known = ["2.3048557141214591183e-41", "3.0039215087890625"];
        let wrong = words.iter().find(|word| !word.starts_with('R') && !known.contains(word));
        assert_eq!(wrong, None, "{}", compiled.ptx());
    }
}
