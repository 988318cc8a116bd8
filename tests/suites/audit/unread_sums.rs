//! Loops of products in which a mask takes sums away that nobody has read: the next product of these must begin at zero.
//!
//! ptxas takes such sums for registers that a product does not write (`unread.rs` of the code generator).

use tilewright::launch::CompiledKernel;
use tilewright::prelude::*;
use tilewright_tests::devices::check;

const STEPS: usize = 4;
/// Rows of all steps' factors.
const ROWS: [usize; 2] = [STEPS * 64, STEPS * 32];

/// Sums of products, of which each step takes those away whose row is larger than its number. Compilers know
/// which those are.
macro_rules! cut {
    ($name:ident, $factor:ident, $sum:ident, |$acc:ident, $keep:ident| $kept:expr) => {
        #[kernel(num_warps = 4)]
        fn $name(a: TensorDesc<$factor, { [64, 32] }>, b: TensorDesc<$factor, { [32, 32] }>, out: PtrMut<$sum>) {
            let row = arange(0, 64);
            let mut $acc = zeros::<$sum>([64, 32]);
            #[unroll(2)]
            for step in 0..STEPS as i32 {
                let $keep = (row <= step)[(.., None)];
                $acc = $kept;
                $acc = dot(a.load([step * 64, 0]), b.load([step * 32, 0]).trans(), acc = $acc);
            }
            store(out + row[(.., None)] * 32 + arange(0, 32), $acc);
        }
    };
}
cut!(cut_integers, i8, i32, |acc, keep| acc * keep as i32);
cut!(cut_floats, f16, f32, |acc, keep| select(keep, acc, 0.0));

/// What is left: of the products of the last steps, as many as a row keeps.
fn want(a: &[i32], b: &[i32]) -> Vec<i32> {
    let product = |step: usize, row: usize, column: usize| -> i32 {
        (0..32).map(|k| a[(step * 64 + row) * 32 + k] * b[(step * 32 + column) * 32 + k]).sum()
    };
    let sums = |i: usize| (i / 32, i % 32);
    let kept = |row: usize| row.clamp(1, STEPS) - 1..STEPS;
    (0..64 * 32).map(sums).map(|(row, column)| kept(row).map(|step| product(step, row, column)).sum()).collect()
}

fn numbers(len: usize, salt: usize) -> Vec<i32> {
    (0..len).map(|i| ((i * 31 + i / 32 * 7 + salt) % 7) as i32 - 3).collect()
}

#[test]
fn sums_that_a_mask_takes_away_begin_at_zero() {
    let (a, b) = (numbers(ROWS[0] * 32, 1), numbers(ROWS[1] * 32, 4));
    let want = want(&a, &b);
    check(|device| {
        let bytes = |values: &[i32]| device.upload(&values.iter().map(|&value| value as i8).collect::<Vec<i8>>());
        let (left, right, mut out) = (bytes(&a)?, bytes(&b)?, device.zeros::<i32>(64 * 32)?);
        let (x, y) = (TensorDesc::new(&left, [ROWS[0], 32])?, TensorDesc::new(&right, [ROWS[1], 32])?);
        cut_integers(&x, &y, &mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, want);

        let halves =
            |values: &[i32]| device.upload(&values.iter().map(|&v| f16::from_f32(v as f32)).collect::<Vec<f16>>());
        let (left, right, mut out) = (halves(&a)?, halves(&b)?, device.zeros::<f32>(64 * 32)?);
        let (x, y) = (TensorDesc::new(&left, [ROWS[0], 32])?, TensorDesc::new(&right, [ROWS[1], 32])?);
        cut_floats(&x, &y, &mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, want.iter().map(|&sum| sum as f32).collect::<Vec<f32>>());
        Ok(())
    });
}

/// Half of the sums of a thread are those of the eight rows further down, which no step keeps.
#[test]
fn sums_that_nobody_reads_are_read_for_ptxas() {
    let readers = |compiled: Result<CompiledKernel, Error>| {
        compiled.unwrap_or_else(|error| panic!("{error}")).ptx().matches("@%never st.shared").count()
    };
    assert!(readers(CutIntegersConsts {}.compile(Target::sm_90a())) > 0);
    assert!(readers(CutFloatsConsts {}.compile(Target::sm_90a())) > 0);
}
