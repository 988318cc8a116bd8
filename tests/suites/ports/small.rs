//! Small matrices, and numbers of four bits.

use tilewright::prelude::*;
use tilewright_tests::devices::check;

use crate::numbers;

/// The lower factor of symmetric positive matrices, one per program: `L` with `L * L^T = A`, and what solves `A * x = b`.
#[kernel]
fn factored<T: Float, const N: usize>(a: Ptr<T>, b: Ptr<T>, factor: PtrMut<T>, solution: PtrMut<T>, n: i32) {
    let (row, column) = (arange(0, N)[(.., None)], arange(0, N));
    let at = program_id(0) * n * n + row * n + column;
    let inside = (row < n) & (column < n);
    // What is beyond the matrix is one of its own, which changes nothing.
    let mut rest = select(inside, load(a + at, mask = inside) as T::Acc, (row == column) as i32 as T::Acc);
    let mut l = zeros::<T::Acc>([N, N]);
    for k in 0..n {
        let below = sum(select(column == k, rest, 0 as T::Acc), axis = 1);
        let pivot = sum(select(arange(0, N) == k, below, 0 as T::Acc));
        let own = select(arange(0, N) >= k, below * (1 as T::Acc / sqrt(pivot)), 0 as T::Acc);
        rest -= own[(.., None)] * own;
        l = select(column == k, own[(.., None)], l);
    }
    store(factor + at, l as T, mask = inside);
    // L y = b from the first row on, then L^T x = y from the last one.
    let i = arange(0, N);
    let mut x = load(b + program_id(0) * n + i, mask = i < n) as T::Acc;
    #[unroll]
    for pass in 0..2 {
        let own = if pass == 0 { l } else { trans(l) };
        for step in 0..n {
            let k = if pass == 0 { step } else { n - 1 - step };
            let column_of = sum(select(column == k, own, 0 as T::Acc), axis = 1);
            let value = sum(select(i == k, x / column_of, 0 as T::Acc));
            let open = if pass == 0 { i > k } else { i < k };
            x = select(i == k, value, select(open, x - column_of * value, x));
        }
    }
    store(solution + program_id(0) * n + i, x as T, mask = i < n);
}

#[test]
fn matrices_are_factored_and_solved() {
    check(|device| {
        for n in [1usize, 5, 8] {
            let raw: Vec<f64> = numbers(2 * n * n, 14).iter().map(|&x| x.into()).collect();
            let wanted: Vec<f64> = numbers(2 * n, 15).iter().map(|&x| x.into()).collect();
            let (mut a, mut b) = (vec![0.0f64; 2 * n * n], vec![0.0f64; 2 * n]);
            for (m, i) in (0..2).flat_map(|m| (0..n).map(move |i| (m, i))) {
                for j in 0..n {
                    let product: f64 = (0..n).map(|k| raw[(m * n + i) * n + k] * raw[(m * n + j) * n + k]).sum();
                    // Eigenvalues are between 1 and 1 + n * n.
                    a[(m * n + i) * n + j] = product + f64::from(u8::from(i == j));
                    b[m * n + i] += a[(m * n + i) * n + j] * wanted[m * n + j];
                }
            }
            let (x, y) = (device.upload(&a)?, device.upload(&b)?);
            let (mut l, mut solved) = (device.zeros::<f64>(2 * n * n)?, device.zeros::<f64>(2 * n)?);
            factored::<_, 8>(&x, &y, &mut l, &mut solved, n as i32).grid(2).launch(device)?;
            // Backward stable: 3 n^2 roundings of numbers below (1 + n * n), times the condition.
            let scale = (1 + n * n) as f64;
            let bound = 3.0 * (n * n) as f64 * scale * scale * f64::EPSILON;
            let l = l.to_vec()?;
            for (m, i, j) in (0..2).flat_map(|m| (0..n).flat_map(move |i| (0..n).map(move |j| (m, i, j)))) {
                let of = |i: usize, k: usize| l[(m * n + i) * n + k];
                let product: f64 = (0..n).map(|k| of(i, k) * of(j, k)).sum();
                assert!((product - a[(m * n + i) * n + j]).abs() <= bound, "{n}: {product}");
                assert!(j <= i || of(i, j) == 0.0, "above the diagonal");
            }
            for (got, want) in solved.to_vec()?.iter().zip(&wanted) {
                assert!((got - want).abs() <= bound, "{n}: {got}, not {want}");
            }
        }
        Ok(())
    });
}

/// Numbers of four bits stand for these shares of the greatest magnitude of their block, which lie closer near zero.
#[device]
fn share_of<const N: usize>(code: Tile<i32, { [N] }>) -> Tile<f32, { [N] }> {
    let x = (code - 8) as f32 / 7.5 + 0.5 / 7.5;
    x * abs(x)
}

/// Blocks of numbers as codes of four bits, two in a byte, and the greatest magnitude of each block.
#[kernel]
fn packed<T: Float, const N: usize>(x: Ptr<T>, bytes: PtrMut<u8>, scales: PtrMut<f32>, n: i32) {
    static_assert!(N % 2 == 0);
    let block = program_id(0);
    let i = block * N + arange(0, N);
    let v = load(x + i, mask = i < n) as f32;
    let greatest = max(abs(v));
    store(scales + block, greatest);
    let share = if greatest > 0.0 { v / greatest } else { v };
    let codes = share_of(arange(0, 16));
    let code = argmin(abs(share[(.., None)] - codes), axis = 1);
    let (low, high) = split(reshape(code, [N / 2, 2]));
    let at = block * (N / 2) + arange(0, N / 2);
    store(bytes + at, (low | high << 4) as u8, mask = at * 2 < n);
}

/// The numbers again.
#[kernel]
fn unpacked<T: Float, const N: usize>(bytes: Ptr<u8>, scales: Ptr<f32>, out: PtrMut<T>, n: i32) {
    static_assert!(N % 2 == 0);
    let block = program_id(0);
    let at = block * (N / 2) + arange(0, N / 2);
    let byte = load(bytes + at, mask = at * 2 < n) as i32;
    let table = share_of(arange(0, 16));
    let value = gather(table, interleave(byte & 15, byte >> 4)) * load(scales + block);
    let i = block * N + arange(0, N);
    store(out + i, value as T, mask = i < n);
}

#[test]
fn numbers_of_four_bits_are_the_nearest() {
    check(|device| {
        let n = 150;
        let mut x = numbers(n, 16);
        // A block of zeros.
        x[64..128].fill(0.0);
        let (input, mut bytes) = (device.upload(&x)?, device.zeros::<u8>(n.div_ceil(2))?);
        let (mut scales, mut out) = (device.zeros::<f32>(3)?, device.zeros::<f32>(n)?);
        packed::<_, 64>(&input, &mut bytes, &mut scales, n as i32).grid(3).launch(device)?;
        unpacked::<_, 64>(&bytes, &scales, &mut out, n as i32).grid(3).launch(device)?;
        let shares: Vec<f64> = (0..16).map(|code| (f64::from(code) - 7.5) / 7.5).map(|x| x * x.abs()).collect();
        for (block, (got, x)) in out.to_vec()?.chunks(64).zip(x.chunks(64)).enumerate() {
            let greatest = x.iter().fold(0.0f64, |most, &x| most.max(f64::from(x).abs()));
            assert_eq!(f64::from(scales.to_vec()?[block]), greatest);
            for (&got, &x) in got.iter().zip(x) {
                let off = |share: f64| (share * greatest - f64::from(x)).abs();
                let least = shares.iter().map(|&share| off(share)).fold(f64::INFINITY, f64::min);
                let error = (f64::from(got) - f64::from(x)).abs();
                assert!(error <= least + 4.0 * f64::from(f32::EPSILON), "{got} for {x}: {error}, not {least}");
            }
        }
        Ok(())
    });
}
