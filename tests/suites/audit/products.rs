//! Matrix products and 8-bit floats as users write them.

use tilewright::prelude::*;
use tilewright_tests::devices::check;

/// A loop over K with masks, any shape of the matrices; the second factor lies transposed.
#[kernel]
fn matmul<F: Float, const M: usize, const N: usize, const K: usize>(
    a: Ptr<F>,
    b: Ptr<F>,
    bias: Ptr<f32>,
    c: PtrMut<F>,
    m: i32,
    n: i32,
    k: i32,
) {
    let rows = (program_id(0) * M + arange(0, M))[(.., None)];
    let columns = program_id(1) * N + arange(0, N);
    let mut acc = zeros([M, N]);
    for step in (0..k).step_by(K) {
        let inner = step + arange(0, K);
        let x = load(a + rows * k + inner, mask = (rows < m) & (inner < k));
        let y = load(b + columns[(.., None)] * k + inner, mask = (columns < n)[(.., None)] & (inner < k));
        acc = dot(x, y.trans(), acc = acc, precision = ieee);
    }
    let sum = acc + load(bias + columns, mask = columns < n);
    store(c + rows * n + columns, sum as F, mask = (rows < m) & (columns < n));
}

/// What the kernel does, in f64: exact on small integers.
fn reference(a: &[f64], b: &[f64], bias: &[f64], [m, n, k]: [usize; 3]) -> Vec<f64> {
    let sum = |i: usize| (0..k).map(|j| a[i / n * k + j] * b[i % n * k + j]).sum::<f64>() + bias[i % n];
    (0..m * n).map(sum).collect()
}

fn integers(len: usize, seed: usize) -> Vec<f64> {
    (0..len).map(|i| ((i * 7 + seed * 13 + i / 5) % 5) as f64 - 2.0).collect()
}

fn check_matmul<F: Float>(device: &Device, of: fn(f64) -> F, number: fn(F) -> f64) -> Result<(), Error> {
    for [m, n, k] in [[1, 1, 1], [17, 33, 65], [64, 32, 16], [5, 100, 3], [70, 1, 40]] {
        let (a, b, bias) = (integers(m * k, 1), integers(n * k, 2), integers(n, 3));
        let upload = |values: &[f64]| device.upload(&values.iter().map(|&x| of(x)).collect::<Vec<_>>());
        let (x, y) = (upload(&a)?, upload(&b)?);
        let shift = device.upload(&bias.iter().map(|&x| x as f32).collect::<Vec<_>>())?;
        let mut c = device.zeros::<F>(m * n)?;
        matmul::<F, 32, 32, 16>(&x, &y, &shift, &mut c, m as i32, n as i32, k as i32)
            .grid((m.div_ceil(32), n.div_ceil(32)))
            .launch(device)?;
        let found: Vec<f64> = c.to_vec()?.into_iter().map(number).collect();
        let want: Vec<f64> = reference(&a, &b, &bias, [m, n, k]).into_iter().map(|x| number(of(x))).collect();
        assert_eq!(found, want, "{} {m}x{n}x{k} on {device}", F::ELEMENT);
    }
    Ok(())
}

#[test]
fn products_of_every_size_and_float() {
    check(|device| {
        check_matmul::<f16>(device, f16::from_f64, f16::to_f64)?;
        check_matmul::<bf16>(device, bf16::from_f64, bf16::to_f64)?;
        check_matmul::<f32>(device, |x| x as f32, f64::from)?;
        check_matmul::<F8E4M3>(device, F8E4M3::from_f64, F8E4M3::to_f64)?;
        check_matmul::<F8E5M2>(device, F8E5M2::from_f64, F8E5M2::to_f64)
    });
}

/// Rows and columns beyond the matrices wrap around instead of being masked, and the pointers move along K.
#[kernel]
fn matmul_wrapped<F: Float, const M: usize, const N: usize, const K: usize>(
    a: Ptr<F>,
    b: Ptr<F>,
    c: PtrMut<f32>,
    m: i32,
    n: i32,
    k: i32,
) {
    let (rows, columns) = (program_id(0) * M + arange(0, M), program_id(1) * N + arange(0, N));
    let inner = arange(0, K);
    let mut pa = a + ((rows % m)[(.., None)] * k + inner);
    let mut pb = b + (inner[(.., None)] * n + columns % n);
    let mut acc = zeros::<f32>([M, N]);
    for step in (0..k).step_by(K) {
        let x = load(pa, mask = inner < k - step);
        let y = load(pb, mask = (inner < k - step)[(.., None)]);
        acc = dot(x, y, acc = acc);
        pa += K;
        pb += K * n;
    }
    store(c + rows[(.., None)] * n + columns, acc, mask = (rows < m)[(.., None)] & (columns < n));
}

#[test]
fn products_whose_rows_and_columns_wrap_around() {
    check(|device| {
        for [m, n, k] in [[1, 1, 1], [17, 33, 65], [64, 32, 16], [80, 48, 208], [5, 100, 3], [144, 16, 64]] {
            let (a, b) = (integers(m * k, 1), integers(n * k, 2));
            let upload = |values: &[f64]| device.upload(&values.iter().map(|&x| f16::from_f64(x)).collect::<Vec<_>>());
            let (x, y) = (upload(&a)?, upload(&b)?);
            let mut c = device.zeros::<f32>(m * n)?;
            matmul_wrapped::<f16, 64, 32, 16>(&x, &y, &mut c, m as i32, n as i32, k as i32)
                .grid((m.div_ceil(64), n.div_ceil(32)))
                .launch(device)?;
            let sum = |i: usize| (0..k).map(|j| a[i / n * k + j] * b[j * n + i % n]).sum::<f64>() as f32;
            assert_eq!(c.to_vec()?, (0..m * n).map(sum).collect::<Vec<_>>(), "{m}x{n}x{k} on {device}");
        }
        Ok(())
    });
}

#[test]
fn a_product_of_f64_does_not_sum_in_f32() {
    check(|device| {
        let (x, bias) = (device.zeros::<f64>(256)?, device.zeros::<f32>(16)?);
        let mut c = device.zeros::<f64>(256)?;
        let launched = matmul::<f64, 16, 16, 16>(&x, &x, &bias, &mut c, 16, 16, 16).grid((1, 1)).launch(device);
        let message = launched.expect_err("the sums are `f32`").to_string();
        assert!(message.contains("a matrix product of f64 accumulates in f64, not in f32"), "{message}");
        Ok(())
    });
}

/// Conversions both ways, arithmetic, a literal, a `Const` parameter and special values.
#[kernel]
fn small_floats(
    x: Ptr<f32>,
    y: Ptr<f8e5m2>,
    scale: f8e4m3,
    shift: Const<f8e4m3>,
    out: PtrMut<f8e4m3>,
    wide: PtrMut<f32>,
) {
    let i = arange(0, 8);
    let small = load(x + i) as f8e4m3;
    let limit = minimum(small * scale + shift, f8e4m3::MAX / 2.0);
    store(out + i, limit + 0.5f8e4m3);
    store(wide + i, load(y + i) as f32);
}

#[test]
fn eight_bit_floats_are_ordinary() {
    check(|device| {
        let x = device.upload(&[0.0f32, 1.06, -3.0, 17.0, 1e6, f32::NEG_INFINITY, 0.001, f32::NAN])?;
        let values = [0.0f32, 1.0, -1.25, 57344.0, 1e9, 0.1, -0.0, 3.0].map(F8E5M2::from_f32);
        let y = device.upload(&values)?;
        let (mut out, mut wide) = (device.zeros::<F8E4M3>(8)?, device.zeros::<f32>(8)?);
        let (scale, shift) = (F8E4M3::from_f32(2.0), F8E4M3::from_f32(1.0));
        small_floats(&x, &y, scale, shift, &mut out, &mut wide).grid(1).launch(device)?;
        let expected = |x: f32| {
            let small = F8E4M3::from_f32(x).to_f32();
            let scaled = F8E4M3::from_f32(F8E4M3::from_f32(small * 2.0).to_f32() + 1.0).to_f32();
            F8E4M3::from_f32(scaled.min(224.0) + 0.5).to_f32()
        };
        let found: Vec<f32> = out.to_vec()?.into_iter().map(F8E4M3::to_f32).collect();
        for (x, found) in x.to_vec()?.into_iter().zip(found) {
            // A NaN is ignored by `minimum`.
            let want = if x.is_nan() { 224.0 } else { expected(x) };
            assert_eq!(found, want, "{x} on {device}");
        }
        assert_eq!(wide.to_vec()?, values.map(F8E5M2::to_f32));
        Ok(())
    });
}
