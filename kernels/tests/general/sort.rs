//! Sorting, the largest elements, and sampling.

use crate::common::{Random, message, on_every_device};
use tilewright::prelude::*;
use tilewright_kernels::general::{self, Extreme, Number, Order, Sampling};
use tilewright_kernels::{Context, Tensor, TensorView, TensorViewMut};

/// Floats with many ties, zeros of both signs, infinities and NaNs.
fn floats(random: &mut Random, len: usize) -> Vec<f32> {
    let special = [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0];
    let one = |random: &mut Random| match random.below(4) {
        0 => special[random.below(6)],
        1 => random.below(9) as f32 - 4.0,
        _ => random.normal() as f32,
    };
    (0..len).map(|_| one(random)).collect()
}

/// A key that orders floats as `sort` does.
fn key(x: f32) -> i64 {
    if x.is_nan() {
        return i64::MAX;
    }
    let bits = x.to_bits() as i32;
    i64::from(if bits < 0 { i32::MIN - bits - 1 } else { bits })
}

/// The indices of a row in order.
fn order<E: Copy>(row: &[E], descending: bool, key: impl Fn(E) -> i64) -> Vec<i32> {
    let mut order: Vec<i32> = (0..row.len() as i32).collect();
    let of = |at: &i32| key(row[*at as usize]);
    order.sort_by(|a, b| if descending { of(b).cmp(&of(a)) } else { of(a).cmp(&of(b)) });
    order
}

fn check_sort(cx: &Context, rows: usize, columns: usize) -> Result<(), Error> {
    let x = floats(&mut Random::new(columns as u64), rows * columns);
    let tensor = Tensor::upload(cx.device(), &x, [rows, columns])?;
    for (direction, descending) in [(Order::Ascending, false), (Order::Descending, true)] {
        let want: Vec<i32> = x.chunks(columns).flat_map(|row| order(row, descending, key)).collect();
        let (values, places) = general::sort(cx, &tensor, direction)?;
        assert_eq!(places.to_vec()?, want, "{columns} {direction:?}");
        let sorted: Vec<i64> =
            want.iter().enumerate().map(|(at, &place)| key(x[at / columns * columns + place as usize])).collect();
        let keys = |x: Tensor<f32, 2>| Ok::<_, Error>(x.to_vec()?.into_iter().map(key).collect::<Vec<_>>());
        assert_eq!(keys(values)?, sorted, "{columns} {direction:?}");
        if columns < 1000 {
            assert_eq!(keys(general::sort_values(cx, &tensor, direction)?)?, sorted);
            assert_eq!(general::argsort(cx, &tensor, direction)?.to_vec()?, want);
        }
    }
    Ok(())
}

#[test]
fn rows_are_sorted_in_registers() {
    on_every_device(|cx| {
        for columns in [1, 2, 7, 64, 300] {
            check_sort(cx, 3, columns)?;
        }
        Ok(())
    });
}

#[test]
fn long_rows_are_sorted_by_their_digits() {
    on_every_device(|cx| check_sort(cx, 1, 2 * 16_384 + 77));
}

/// Rows of a matrix with gaps, of one dtype, sorted as `i64` are that `key` makes of its elements.
fn check_digits<T: Number>(cx: &Context, of: impl Fn(u64) -> T, key: impl Fn(T) -> i64 + Copy) -> Result<(), Error> {
    let (columns, stride) = (16_400, 16_404);
    let mut random = Random::new(size_of::<T>() as u64);
    // Few values, so that the sort shows whether it is stable, but for the last byte.
    let x: Vec<T> = (0..2 * stride).map(|_| of(random.bits() & 0xff00_0000_0000_03ff)).collect();
    let buffer = cx.device().upload(&x)?;
    let tensor = TensorView::with_strides(&buffer, [2, columns], [stride, 1])?;
    let rows = || x.chunks(stride).map(|row| &row[..columns]);
    let want: Vec<i32> = rows().flat_map(|row| order(row, false, key)).collect();
    let sorted: Vec<i64> = rows()
        .zip(want.chunks(columns))
        .flat_map(|(row, order)| order.iter().map(|at| key(row[*at as usize])).collect::<Vec<_>>())
        .collect();
    assert!(general::argsort(cx, tensor, Order::Ascending)?.to_vec()? == want, "places of {}", T::ELEMENT);
    let values = general::sort_values(cx, tensor, Order::Ascending)?.to_vec()?;
    assert!(values.into_iter().map(key).eq(sorted), "values of {}", T::ELEMENT);
    Ok(())
}

#[test]
fn long_rows_of_every_width_are_sorted_by_their_digits() {
    on_every_device(|cx| {
        check_digits::<i8>(cx, |bits| bits as i8, i64::from)?;
        check_digits::<u16>(cx, |bits| (bits >> 52) as u16 | bits as u16, i64::from)?;
        let bf16_of = |bits: u64| bf16::from_bits((bits >> 48) as u16 | (bits & 0xff) as u16);
        check_digits::<bf16>(cx, bf16_of, |x| key(x.to_f32()))?;
        check_digits::<i32>(cx, |bits| (bits >> 32 | bits) as i32, i64::from)?;
        check_digits::<i64>(cx, |bits| bits as i64, |x| x)
    });
}

#[test]
fn long_rows_of_f64_are_sorted_by_their_digits() {
    on_every_device(|cx| {
        let key = |x: f64| match x.to_bits() as i64 {
            _ if x.is_nan() => i64::MAX,
            bits if bits < 0 => i64::MIN - bits - 1,
            bits => bits,
        };
        check_digits::<f64>(cx, f64::from_bits, key)
    });
}

#[test]
fn integers_are_sorted_into_parts() {
    on_every_device(|cx| {
        let mut random = Random::new(30);
        let x: Vec<i8> = (0..2 * 50).map(|_| random.bits() as i8).collect();
        let tensor = Tensor::upload(cx.device(), &x, [2, 50])?;
        let (mut values, mut places) = (cx.device().full(128, 1i8)?, cx.device().full(100, -1i32)?);
        let part = TensorViewMut::with_strides(&mut values, [2, 50], [64, 1])?;
        general::sort_into(cx, &tensor, Order::Descending, part, TensorViewMut::new(&mut places, [2, 50])?)?;
        let want: Vec<i32> = x.chunks(50).flat_map(|row| order(row, true, i64::from)).collect();
        assert_eq!(places.to_vec()?, want);
        let values = values.to_vec()?;
        assert_eq!(values[64..114], want[50..].iter().map(|&at| x[50 + at as usize]).collect::<Vec<_>>());
        assert_eq!(values[50..64], [1; 14]);
        let refused = message(general::sort(cx, tensor.view().permute([1, 0])?, Order::Ascending));
        assert!(refused.contains("its last dimension is not contiguous"), "{refused}");
        Ok(())
    });
}

#[test]
fn the_largest_and_smallest_elements_are_the_first_of_a_sort() {
    on_every_device(|cx| {
        // Rows in one piece, in groups, and in groups of groups.
        for (rows, columns, ks) in [(3, 50, &[1, 7, 50][..]), (2, 5000, &[1, 10]), (1, 530_001, &[3])] {
            let x = floats(&mut Random::new(columns as u64), rows * columns);
            let tensor = Tensor::upload(cx.device(), &x, [rows, columns])?;
            for &k in ks {
                for (extreme, descending) in [(Extreme::Largest, true), (Extreme::Smallest, false)] {
                    let first = |row: &[f32]| order(row, descending, key).into_iter().take(k).collect::<Vec<_>>();
                    let want: Vec<i32> = x.chunks(columns).flat_map(first).collect();
                    let (values, places) = general::topk(cx, &tensor, k, extreme)?;
                    assert_eq!(places.to_vec()?, want, "{k} of {columns} {extreme:?}");
                    let values: Vec<i64> = values.to_vec()?.into_iter().map(key).collect();
                    let at = |(at, place): (usize, &i32)| key(x[at / k * columns + *place as usize]);
                    assert_eq!(values, want.iter().enumerate().map(at).collect::<Vec<_>>());
                }
            }
        }
        Ok(())
    });
}

#[test]
fn elements_that_cannot_be_taken() {
    on_every_device(|cx| {
        let x = Tensor::upload(cx.device(), &[3i32, i32::MIN, i32::MIN], [1, 3])?;
        assert_eq!(general::topk(cx, &x, 3, Extreme::Largest)?.1.to_vec()?, [0, 1, 2]);
        assert_eq!(general::topk(cx, &x, 0, Extreme::Largest)?.1.len(), 0);
        let refused = message(general::topk(cx, &x, 4, Extreme::Largest));
        assert_eq!(refused, "`k` is 4; `k` is at most 3, of rows of 3");
        let y = Tensor::<f32, 2>::zeros(cx.device(), [2, 3])?;
        let refused = message(general::sample(cx, &y, Sampling::default().top_k(0)));
        assert_eq!(refused, "`top_k` is Some(0); it is between 1 and 1024");
        let refused = message(general::sample(cx, &y, Sampling::default().top_p(1.5)));
        assert_eq!(refused, "`top_p` is 1.5; it is between 0 and 1");
        for temperature in [f32::INFINITY, f32::NAN, -1.0] {
            let refused = message(general::sample(cx, &y, Sampling::default().temperature(temperature)));
            assert_eq!(refused, format!("`temperature` is {temperature}; it is at least 0 and finite"));
        }
        Ok(())
    });
}

/// Counts of draws against probabilities: each count is within 5 standard deviations, which 1 in 1.7e6 misses; the seeds
/// are fixed.
fn check_draws(cx: &Context, sampling: Sampling, allowed: &[f64]) -> Result<(), Error> {
    let rows = 300;
    let logits: Vec<f32> = vec![0.0, 1.0, 3.0, 2.0, -1.0, f32::NEG_INFINITY, 2.5];
    let x = Tensor::upload(cx.device(), &logits.repeat(rows), [rows, logits.len()])?;
    let total: f64 = allowed.iter().sum();
    let mut counts = vec![0; logits.len()];
    let drawn = general::sample(cx, &x, sampling)?.to_vec()?;
    drawn.iter().for_each(|&token| counts[token as usize] += 1);
    for (count, weight) in counts.iter().zip(allowed) {
        let p = weight / total;
        let deviation = (rows as f64 * p * (1.0 - p)).sqrt();
        let off = (f64::from(*count) - rows as f64 * p).abs();
        assert!(off <= 5.0 * deviation, "{counts:?}: {count} of {rows} for {p}");
    }
    let few = x.view().narrow(0, 0..20)?;
    assert_eq!(general::sample(cx, few, sampling)?.to_vec()?, drawn[..20], "the same seed");
    assert_ne!(general::sample(cx, few, sampling.seed(77))?.to_vec()?, drawn[..20], "another seed");
    Ok(())
}

#[test]
fn tokens_are_drawn_by_their_probabilities() {
    on_every_device(|cx| {
        let e = |x: f64| x.exp();
        check_draws(cx, Sampling::default().seed(5), &[e(0.0), e(1.0), e(3.0), e(2.0), e(-1.0), 0.0, e(2.5)])?;
        let two = [e(0.0), e(0.5), e(1.5), e(1.0), e(-0.5), 0.0, e(1.25)];
        check_draws(cx, Sampling::default().temperature(2.0).seed(6), &two)?;
        check_draws(cx, Sampling::default().top_k(3).seed(7), &[0.0, 0.0, e(3.0), e(2.0), 0.0, 0.0, e(2.5)])?;
        // The probabilities are 0.45, 0.27, 0.17, 0.06, ..: the third reaches 0.8.
        check_draws(cx, Sampling::default().top_p(0.8).seed(8), &[0.0, 0.0, e(3.0), e(2.0), 0.0, 0.0, e(2.5)])?;
        check_draws(cx, Sampling::default().top_p(0.6).top_k(3).seed(9), &[0.0, 0.0, e(3.0), 0.0, 0.0, 0.0, e(2.5)])
    });
}

/// Temperatures next to 0 take the largest, and a random number of 0 rules nothing out.
#[test]
fn draws_at_the_edges() {
    on_every_device(|cx| {
        let x = Tensor::upload(cx.device(), &[1.0f32, 3.0, 2.0, 0.0], [1, 4])?;
        for temperature in [1e-6, 1e-20, 1e-38, 1e-45] {
            let sampling = Sampling::default().temperature(temperature);
            for sampling in [sampling, sampling.top_k(3), sampling.top_p(0.9)] {
                assert_eq!(general::sample(cx, &x, sampling)?.to_vec()?, [1], "{temperature}");
            }
        }
        // With this seed the random number of the first row's column 3 is 0.
        let x = Tensor::upload(cx.device(), &[0.0f32, 0.0, 0.0, 40.0], [1, 4])?;
        assert_eq!(general::sample(cx, &x, Sampling::default().seed(632_961_658))?.to_vec()?, [3]);
        Ok(())
    });
}

#[test]
fn the_likeliest_token_of_long_rows() {
    on_every_device(|cx| {
        let columns = 40_000;
        let mut x: Vec<f32> = Random::new(3).normals(2 * columns);
        (x[17_001], x[columns + 39_999]) = (60.0, 60.0);
        let x = Tensor::upload(cx.device(), &x, [2, columns])?;
        let default = Sampling::default();
        // The inverse of 1e-40 would be infinite in f32.
        let cold = [default.temperature(0.0), default.temperature(1e-40), default.temperature(1e-40).top_k(5)];
        for sampling in [[default, default.top_p(0.9)].as_slice(), &cold].concat() {
            assert_eq!(general::sample(cx, &x, sampling)?.to_vec()?, [17_001, 39_999]);
        }
        Ok(())
    });
}
