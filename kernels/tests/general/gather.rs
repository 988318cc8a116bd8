//! Elements at indices, and counts.

use crate::common::{Random, message, on_every_device};
use tilewright_kernels::{Tensor, general};

#[test]
fn slices_are_selected_and_added_along_every_dimension() {
    on_every_device(|cx| {
        let (shape, mut random) = ([6, 5, 70], Random::new(40));
        let x: Vec<i32> = (0..shape.iter().product()).map(|_| random.bits() as i32 % 1000).collect();
        let tensor = Tensor::upload(cx.device(), &x, shape)?;
        for axis in 0..3 {
            let index: Vec<i64> = (0..37).map(|_| random.below(shape[axis]) as i64).collect();
            let indices = Tensor::upload(cx.device(), &index, [37])?;
            let mut wanted = shape;
            wanted[axis] = 37;
            let at = |o: [usize; 3]| (o[0] * shape[1] + o[1]) * shape[2] + o[2];
            let mut want = Vec::new();
            let mut sums = x.clone();
            for a in 0..wanted[0] {
                for b in 0..wanted[1] {
                    for c in 0..wanted[2] {
                        let mut place = [a, b, c];
                        place[axis] = index[place[axis]] as usize;
                        want.push(x[at(place)]);
                        sums[at(place)] += x[at(place)];
                    }
                }
            }
            let got = general::index_select(cx, &tensor, axis, &indices)?;
            assert_eq!(got.to_vec()?, want, "{axis}");
            let mut out = general::contiguous(cx, &tensor)?;
            general::index_add_into(cx, &mut out, axis, &indices, &got)?;
            assert_eq!(out.to_vec()?, sums, "{axis}");
        }
        Ok(())
    });
}

#[test]
fn elements_are_gathered_and_scattered_along_every_dimension() {
    on_every_device(|cx| {
        let (shape, mut random) = ([4, 6, 33], Random::new(41));
        let x: Vec<f32> = (0..shape.iter().product()).map(|_| random.below(100) as f32).collect();
        let tensor = Tensor::upload(cx.device(), &x, shape)?;
        for axis in 0..3 {
            let mut wanted = shape;
            wanted[axis] = 3;
            let len: usize = wanted.iter().product();
            // No index comes twice, so that scattering has one result.
            let mut index = vec![0i32; len];
            let (mut want, mut set, mut sums) = (vec![0.0; len], x.clone(), x.clone());
            for flat in 0..len {
                let mut place = [flat / (wanted[1] * wanted[2]), flat / wanted[2] % wanted[1], flat % wanted[2]];
                let others: usize = (0..3).filter(|&other| other != axis).map(|other| place[other]).sum();
                place[axis] = (others + place[axis]) % shape[axis];
                index[flat] = place[axis] as i32;
                let at = (place[0] * shape[1] + place[1]) * shape[2] + place[2];
                want[flat] = x[at];
                set[at] = flat as f32;
                sums[at] += flat as f32;
            }
            let indices = Tensor::upload(cx.device(), &index, wanted)?;
            assert_eq!(general::gather(cx, &tensor, axis, &indices)?.to_vec()?, want, "{axis}");
            let numbers: Vec<f32> = (0..len).map(|at| at as f32).collect();
            let numbers = Tensor::upload(cx.device(), &numbers, wanted)?;
            let mut out = general::contiguous(cx, &tensor)?;
            general::scatter_into(cx, &mut out, axis, &indices, &numbers)?;
            assert_eq!(out.to_vec()?, set, "{axis}");
            let mut out = general::contiguous(cx, &tensor)?;
            general::scatter_add_into(cx, &mut out, axis, &indices, &numbers)?;
            assert_eq!(out.to_vec()?, sums, "{axis}");
        }
        Ok(())
    });
}

#[test]
fn indices_outside_of_a_dimension_are_reported() {
    on_every_device(|cx| {
        let x = Tensor::upload(cx.device(), &[1.0f32, 2.0, 3.0, 4.0], [2, 2])?;
        for wrong in [-1i32, 2] {
            let index = Tensor::upload(cx.device(), &[0, wrong], [2])?;
            let refused = message(general::index_select(cx, &x, 0, &index)?.to_vec());
            assert!(refused.contains("an index is outside of the dimension"), "{refused}");
        }
        let index = Tensor::<i32, 1>::zeros(cx.device(), [0])?;
        assert_eq!(general::index_select(cx, &x, 1, &index)?.shape(), [2, 0]);
        let index = Tensor::<i32, 2>::zeros(cx.device(), [3, 1])?;
        assert_eq!(
            message(general::gather(cx, &x, 1, &index)),
            "`index` has the shape [3, 1]; the other arguments ask for [2, 1]"
        );
        Ok(())
    });
}

#[test]
fn integers_are_counted() {
    on_every_device(|cx| {
        let mut random = Random::new(42);
        for (len, bins) in [(1, 1), (10_000, 7), (9000, 300), (5000, 5000)] {
            let x: Vec<i16> = (0..len).map(|_| random.below(bins + 20) as i16 - 10).collect();
            let mut want = vec![0; bins];
            x.iter().filter(|&&x| x >= 0 && (x as usize) < bins).for_each(|&x| want[x as usize] += 1);
            let tensor = Tensor::upload(cx.device(), &x, [len])?;
            assert_eq!(general::bincount(cx, &tensor, bins)?.to_vec()?, want, "{len} {bins}");
        }
        let x = Tensor::upload(cx.device(), &[u64::MAX, 1 << 32, 1, 1], [2, 2])?;
        assert_eq!(general::bincount(cx, &x, 2)?.to_vec()?, [0, 2]);
        // One step leads from each to the next, but over elements that are not counted.
        assert_eq!(
            message(general::bincount(cx, x.view().select::<1>(1, 0)?, 2)),
            "`x` has the shape [2] and strides [2]: it is not in row-major order without gaps; copy it with \
             `general::contiguous` first"
        );
        Ok(())
    });
}

#[test]
fn floats_are_counted_in_bins() {
    on_every_device(|cx| {
        let x = [-1.0f32, 0.0, 0.24, 0.25, 0.5, 0.99, 1.0, 1.5, f32::NAN, f32::INFINITY];
        let x = Tensor::upload(cx.device(), &x, [10])?;
        assert_eq!(general::histogram(cx, &x, 4, 0.0, 1.0)?.to_vec()?, [2, 1, 1, 2]);
        assert_eq!(
            message(general::histogram(cx, &x, 4, 1.0, 1.0)),
            "`low` is 1 for `high` = 1; give finite numbers in order"
        );
        let column = Tensor::upload(cx.device(), &[0.0f32; 6], [3, 2])?;
        assert!(
            message(general::histogram(cx, column.view().select::<1>(1, 0)?, 4, 0.0, 1.0)).contains("without gaps")
        );
        Ok(())
    });
}

/// Ranges that f64 has and f32 does not.
#[test]
fn bins_have_a_width_in_the_dtype_that_they_are_computed_in() {
    on_every_device(|cx| {
        let (single, double) =
            (Tensor::upload(cx.device(), &[1.0f32], [1])?, Tensor::upload(cx.device(), &[1.0f64], [1])?);
        for (low, high) in [(1.0, 1.0 + 1e-12), (-1e300, 1e300), (-3e38, 3e38)] {
            let refused = message(general::histogram(cx, &single, 4, low, high));
            assert!(
                refused
                    .ends_with("bins are computed in f32: give numbers that differ in it, and whose difference it has")
            );
            assert_eq!(general::histogram(cx, &double, 4, low, high)?.to_vec()?.iter().sum::<i32>(), 1);
        }
        Ok(())
    });
}
