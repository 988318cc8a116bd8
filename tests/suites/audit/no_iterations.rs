//! Products whose loops do not run: sums of nothing are zero, whatever was in the registers.

use tilewright::prelude::*;
use tilewright_tests::devices::check;

/// A product by pointers; the rows of `a` and the columns of `b` are `stride` elements apart.
#[kernel]
fn by_pointers<const M: usize, const N: usize, const K: usize>(
    a: Ptr<f16>,
    b: Ptr<f16>,
    out: PtrMut<f32>,
    from: i32,
    depth: i32,
    stride: i32,
) {
    let (rows, columns) = (arange(0, M), arange(0, N));
    let mut acc = zeros::<f32>([M, N]);
    for step in (from..depth).step_by(K) {
        let inner = step + arange(0, K);
        let x = load(a + rows[(.., None)] * stride + inner, mask = inner < depth);
        let y = load(b + columns * stride + inner[(.., None)], mask = (inner < depth)[(.., None)]);
        acc = dot(x, y, acc = acc);
    }
    store(out + rows[(.., None)] * N + columns, acc + 0.5);
}

/// The same by descriptors, with tiles in a loop whose iterations are independent.
#[kernel]
fn by_descriptors<const M: usize, const N: usize, const K: usize>(
    a: TensorDesc<f16, { [M, K] }>,
    b: TensorDesc<f16, { [N, K] }>,
    out: TensorDescMut<f32, { [M, N] }>,
    from: i32,
    depth: i32,
    tiles: i32,
) {
    #[warp_specialize]
    for tile in 0..tiles {
        let mut acc = zeros::<f32>([M, N]);
        for step in (from..depth).step_by(K) {
            acc = dot(a.load([tile * M, step]), b.load([0, step]).trans(), acc = acc);
        }
        out.store([tile * M, 0], acc + 0.5);
    }
}

/// Where the loop begins and ends; none, one and two iterations.
const SPANS: [[i32; 2]; 7] = [[0, 0], [0, 64], [64, 64], [0, -5], [64, 128], [i32::MAX, i32::MIN], [0, 128]];

/// What every element is: the factors are ones.
fn sum([from, depth]: [i32; 2]) -> f32 {
    (i64::from(depth) - i64::from(from)).max(0) as f32 + 0.5
}

#[test]
fn loops_of_products_that_do_not_run() {
    check(|device| {
        let ones = device.full(128 * 128, f16::ONE)?;
        for span in SPANS {
            for num_warps in [4, 8] {
                let mut out = device.full(64 * 64, f32::NAN)?;
                by_pointers::<64, 64, 64>(&ones, &ones, &mut out, span[0], span[1], 128)
                    .num_warps(num_warps)
                    .grid(1)
                    .launch(device)?;
                assert_eq!(out.to_vec()?, vec![sum(span); 64 * 64], "pointers, {span:?}, {num_warps} warps");

                let mut out = device.full(128 * 64, f32::NAN)?;
                let (a, b) = (TensorDesc::new(&ones, [128, 128])?, TensorDesc::new(&ones, [128, 128])?);
                let mut to = TensorDescMut::new(&mut out, [128, 64])?;
                by_descriptors::<64, 64, 64>(&a, &b, &mut to, span[0], span[1], 2)
                    .num_warps(num_warps)
                    .grid(1)
                    .launch(device)?;
                assert_eq!(out.to_vec()?, vec![sum(span); 128 * 64], "descriptors, {span:?}, {num_warps} warps");
            }
        }
        Ok(())
    });
}
