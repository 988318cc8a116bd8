//! Reductions with names of their own, along several axes, and with the index of the extreme.

use tilewright::prelude::*;
use tilewright_tests::devices::check;

#[kernel]
fn along_rows<const M: usize, const N: usize>(
    x: Ptr<i32>,
    products: PtrMut<i32>,
    parities: PtrMut<i32>,
    all_positive: PtrMut<bool>,
    any_negative: PtrMut<bool>,
) {
    let (r, c) = (arange(0, M), arange(0, N));
    let t = load(x + (r[(.., None)] * N + c[(None, ..)]));
    store(products + r, prod(t, axis = 1));
    store(parities + r, t.xor_sum(axis = 1));
    store(all_positive + r, all(t > 0, axis = 1));
    store(any_negative + r, (t < 0).any(axis = 1));
}

fn rows(m: usize, n: usize) -> Vec<i32> {
    (0..m * n).map(|i| (i as i32).wrapping_mul(1_103_515_245) >> (i % 7 + 20)).collect()
}

#[test]
fn rows_are_multiplied_and_asked() {
    check(|device| {
        for m in [1, 4, 32] {
            let run = |n: usize, launch: &Launch<'_>| -> Result<(), tilewright::Error> {
                let xs = rows(m, n);
                let (mut p, mut q) = (device.zeros::<i32>(m)?, device.zeros::<i32>(m)?);
                let (mut a, mut b) = (device.zeros::<bool>(m)?, device.zeros::<bool>(m)?);
                launch(&device.upload(&xs)?, (&mut p, &mut q, &mut a, &mut b))?;
                let by_row = |f: &dyn Fn(&[i32]) -> i32| xs.chunks(n).map(f).collect::<Vec<i32>>();
                let asked = |f: &dyn Fn(&[i32]) -> bool| xs.chunks(n).map(f).collect::<Vec<bool>>();
                assert_eq!(p.to_vec()?, by_row(&|row| row.iter().fold(1, |a: i32, &b| a.wrapping_mul(b))), "{m} {n}");
                assert_eq!(q.to_vec()?, by_row(&|row| row.iter().fold(0, |a, &b| a ^ b)), "{m} {n}");
                assert_eq!(a.to_vec()?, asked(&|row| row.iter().all(|&x| x > 0)), "{m} {n}");
                assert_eq!(b.to_vec()?, asked(&|row| row.iter().any(|&x| x < 0)), "{m} {n}");
                Ok(())
            };
            macro_rules! of_size {
                ($m:literal) => {
                    if m == $m {
                        run(1, &|x, (p, q, a, b)| along_rows::<$m, 1>(x, p, q, a, b).grid(1).launch(device))?;
                        run(64, &|x, (p, q, a, b)| along_rows::<$m, 64>(x, p, q, a, b).grid(1).launch(device))?;
                        run(512, &|x, (p, q, a, b)| along_rows::<$m, 512>(x, p, q, a, b).grid(1).launch(device))?;
                    }
                };
            }
            of_size!(1);
            of_size!(4);
            of_size!(32);
        }
        Ok(())
    });
}

type Launch<'a> = dyn Fn(&Buffer<i32>, Outputs<'_>) -> Result<(), tilewright::Error> + 'a;

type Outputs<'a> = (&'a mut Buffer<i32>, &'a mut Buffer<i32>, &'a mut Buffer<bool>, &'a mut Buffer<bool>);

#[kernel]
fn along_axes(x: Ptr<i32>, out: PtrMut<i32>) {
    let (i, j, k) = (arange(0, 4), arange(0, 8), arange(0, 16));
    let t = load(x + (i[(.., None, None)] * 128 + j[(None, .., None)] * 16 + k[(None, None, ..)]));
    store(out + j, sum(t, axis = [0, 2]));
    store(out + 8 + k, max(t, axis = (0, 1)));
    store(out + 24 + i, sum(t, axis = [-1, 1], keep_dims = true).reshape([4]));
    store(out + 28, sum(t, axis = [0, 1, 2]));
}

#[test]
fn several_axes_are_reduced_at_once() {
    check(|device| {
        let xs: Vec<i32> = (0..512).map(|i| (i * 37 + 11) % 101 - 50).collect();
        let mut out = device.zeros::<i32>(29)?;
        along_axes(&device.upload(&xs)?, &mut out).grid(1).launch(device)?;
        let at = |i: usize, j: usize, k: usize| xs[i * 128 + j * 16 + k];
        let all = || (0..4).flat_map(|i| (0..8).flat_map(move |j| (0..16).map(move |k| (i, j, k))));
        let sum = |keep: &dyn Fn((usize, usize, usize)) -> bool| {
            all().filter(|&place| keep(place)).map(|(i, j, k)| at(i, j, k)).sum::<i32>()
        };
        let mut want: Vec<i32> = (0..8).map(|own| sum(&|(_, j, _)| j == own)).collect();
        want.extend((0..16).map(|own| all().filter(|p| p.2 == own).map(|(i, j, k)| at(i, j, k)).max().unwrap()));
        want.extend((0..4).map(|own| sum(&|(i, ..)| i == own)));
        want.push(sum(&|_| true));
        assert_eq!(out.to_vec()?, want);
        Ok(())
    });
}

#[kernel]
fn extremes<const N: usize>(x: Ptr<f32>, out: PtrMut<f32>, places: PtrMut<i32>) {
    let (r, c) = (arange(0, 4), arange(0, N));
    let t = load(x + (r[(.., None)] * N + c[(None, ..)]));
    let (largest, at) = max(t, axis = 1, return_indices = true);
    let (smallest, where_small) = t.min(axis = 1, return_indices = true, keep_dims = true);
    store(out + r, largest);
    store(out + 4 + r, smallest.reshape([4]));
    store(places + r, at);
    store(places + 4 + r, where_small.reshape([4]));
}

#[test]
fn extremes_come_with_the_first_of_their_places() {
    check(|device| {
        let mut xs: Vec<f32> = (0..512).map(|i| ((i * 29) % 17) as f32 - 8.0).collect();
        xs[3] = f32::NAN;
        let (mut out, mut places) = (device.zeros::<f32>(8)?, device.zeros::<i32>(8)?);
        extremes::<128>(&device.upload(&xs)?, &mut out, &mut places).grid(1).launch(device)?;
        let first = |row: &[f32], best: f32| row.iter().position(|&x| x == best).unwrap() as i32;
        let (mut values, mut indices) = (Vec::new(), Vec::new());
        for f in [f32::max, f32::min] {
            for row in xs.chunks(128) {
                let best = row.iter().copied().fold(f32::NAN, f);
                values.push(best);
                indices.push(first(row, best));
            }
        }
        assert_eq!((out.to_vec()?, places.to_vec()?), (values, indices));
        Ok(())
    });
}

#[kernel]
fn moments<const M: usize, const N: usize>(x: Ptr<f32>, h: Ptr<f16>, out: PtrMut<f32>, halves: PtrMut<f16>) {
    let at = arange(0, M)[(.., None)] * N + arange(0, N)[(None, ..)];
    let (t, g) = (load(x + at), load(h + at));
    let (row, column) = (arange(0, M), arange(0, N));
    store(out + row, mean(t, axis = 1));
    store(out + M + row, t.var(axis = 1));
    store(out + 2 * M + column, var(t, axis = 0, correction = 1));
    store(out + 2 * M + N, mean(t));
    store(out + 2 * M + N + 1, var(t, axis = [0, 1], correction = 1));
    store(out + 2 * M + N + 2 + at, t - mean(t, axis = 1, keep_dims = true));
    store(halves + row, mean(g, axis = 1));
    store(halves + M + row, var(g, axis = 1));
}

#[test]
fn moments_are_those_of_f64_and_do_not_overflow_in_f16() {
    check(|device| {
        let (m, n) = (8, 256);
        let xs: Vec<f32> = (0..m * n).map(|i| ((i * 97) % 31) as f32 * 0.5 + 100.0 * (i / n) as f32).collect();
        // Sums of 256 and of squares are beyond 65,504.
        let hs: Vec<f16> = (0..m * n).map(|i| f16::from_f32(1000.0 + ((i * 53) % 64) as f32 * 8.0)).collect();
        let (mut out, mut halves) = (device.zeros::<f32>(2 * m + n + 2 + m * n)?, device.zeros::<f16>(2 * m)?);
        moments::<8, 256>(&device.upload(&xs)?, &device.upload(&hs)?, &mut out, &mut halves).grid(1).launch(device)?;
        let (out, halves) = (out.to_vec()?, halves.to_vec()?);
        let mean = |line: &[f64]| line.iter().sum::<f64>() / line.len() as f64;
        let var = |line: &[f64], correction: usize| {
            let mean = mean(line);
            line.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / (line.len() - correction) as f64
        };
        // A sum of 2,048 takes 11 roundings of halves in a tree; the distances have errors of the mean, 800 of 7.
        let close = |got: f32, want: f64| (f64::from(got) - want).abs() <= want.abs() * 32.0 * f64::from(f32::EPSILON);
        let wide: Vec<f64> = xs.iter().map(|&x| f64::from(x)).collect();
        for i in 0..m {
            let row = &wide[i * n..][..n];
            assert!(close(out[i], mean(row)), "mean of row {i}: {} not {}", out[i], mean(row));
            let distances = &out[2 * m + n + 2 + i * n..][..n];
            assert!((0..n).all(|k| distances[k] == xs[i * n + k] - out[i]), "distances in row {i}");
            // The error of the mean squared is far below that of the squares.
            assert!(close(out[m + i], var(row, 0)), "variance of row {i}: {} not {}", out[m + i], var(row, 0));
            let row: Vec<f64> = hs[i * n..][..n].iter().map(|h| h.to_f64()).collect();
            for (got, want) in [(halves[i], mean(&row)), (halves[m + i], var(&row, 0))] {
                // One rounding, of a value that is off by a few of f32's.
                let unit = want.abs() * f64::from(f16::EPSILON);
                assert!((got.to_f64() - want).abs() <= 0.51 * unit, "{got} not {want} in row {i}");
            }
        }
        for k in 0..n {
            let column: Vec<f64> = (0..m).map(|i| wide[i * n + k]).collect();
            assert!(close(out[2 * m + k], var(&column, 1)), "variance of column {k}");
        }
        assert!(close(out[2 * m + n], mean(&wide)), "mean of all");
        assert!(close(out[2 * m + n + 1], var(&wide, 1)), "variance of all");
        Ok(())
    });
}

#[kernel]
fn probabilities<T: Float, const M: usize, const N: usize>(x: Ptr<T>, rows: PtrMut<T>, columns: PtrMut<T>) {
    let at = arange(0, M)[(.., None)] * N + arange(0, N)[(None, ..)];
    let t = load(x + at);
    store(rows + at, softmax(t));
    store(columns + at, t.softmax(axis = 0));
}

#[test]
fn a_softmax_sums_to_one_along_its_axis() {
    check(|device| {
        let (m, n) = (8, 256);
        let xs: Vec<f32> = (0..m * n).map(|i| ((i * 97) % 31) as f32 * 0.5 - 7.0).collect();
        let (mut rows, mut columns) = (device.zeros::<f32>(m * n)?, device.zeros::<f32>(m * n)?);
        probabilities::<f32, 8, 256>(&device.upload(&xs)?, &mut rows, &mut columns).grid(1).launch(device)?;
        let (rows, columns) = (rows.to_vec()?, columns.to_vec()?);
        let softmax = |line: &[f64]| {
            let largest = line.iter().copied().fold(f64::MIN, f64::max);
            let sum: f64 = line.iter().map(|x| (x - largest).exp()).sum();
            line.iter().map(|x| (x - largest).exp() / sum).collect::<Vec<f64>>()
        };
        // exp is within 2 ulp, the sum of 256 within 8 roundings of halves, and the quotient rounds once.
        let close = |got: f32, want: f64| (f64::from(got) - want).abs() <= want * 12.0 * f64::from(f32::EPSILON);
        for i in 0..m {
            let want = softmax(&xs[i * n..][..n].iter().map(|&x| f64::from(x)).collect::<Vec<f64>>());
            assert!((0..n).all(|k| close(rows[i * n + k], want[k])), "row {i}");
        }
        for k in 0..n {
            let want = softmax(&(0..m).map(|i| f64::from(xs[i * n + k])).collect::<Vec<f64>>());
            assert!((0..m).all(|i| close(columns[i * n + k], want[i])), "column {k}");
        }
        Ok(())
    });
}

#[kernel]
fn scaled<const N: usize>(out: PtrMut<i32>) {
    let i = arange(0, 16);
    let sum = |a, b| if N > 0 { a + b * (64 / N) } else { maximum(a, b) };
    store(out, reduce(i, axis = 0, |a, b| sum(a, b)));
    store(out + 1, reduce(i, axis = 0, |a, b| if N != 0 && a > b * (64 / N) { a } else { maximum(a, b) }));
    store(out + 16 + i, associative_scan(i, axis = 0, |a, b| if N == 0 { a + b } else { a + b * (64 / N) }));
}

#[test]
fn constexprs_choose_how_elements_are_combined() {
    check(|device| {
        let sums: Vec<i32> = (0..16).map(|i| i * (i + 1) / 2).collect();
        for (n, first) in [(0, 15), (64, 120)] {
            let mut out = device.zeros::<i32>(32)?;
            ScaledConsts { N: n }.call(&mut out).grid(1).launch(device)?;
            let out = out.to_vec()?;
            assert_eq!((&out[..2], &out[16..]), (&[first, 15][..], &sums[..]), "N = {n}");
        }
        Ok(())
    });
}
