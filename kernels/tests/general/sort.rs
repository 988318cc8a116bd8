//! Sorting, the largest elements, and sampling.

use crate::common::{Random, message, on_every_device};
use tilewright::prelude::*;
use tilewright_kernels::general::{self, Order};
use tilewright_kernels::{Context, Tensor, TensorViewMut};

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

/// Three runs: two that are merged, and a short one that is merged with both.
#[test]
fn long_rows_are_sorted_in_runs() {
    on_every_device(|cx| check_sort(cx, 1, 2 * 16_384 + 77));
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
