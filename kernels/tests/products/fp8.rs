use super::{UNIT, lost_of_bytes, product};
use crate::common::{Random, assert_close, message, on_every_device};
use tilewright::prelude::*;
use tilewright_kernels::products::fp8::{self, BLOCK, LARGEST};
use tilewright_kernels::{Context, Tensor, TensorViewMut, general};

/// What a scale is by its definition, in the same arithmetic.
fn scale(values: impl Iterator<Item = f32>) -> f32 {
    (values.map(f32::abs).fold(0.0, f32::max) / LARGEST).max(f32::MIN_POSITIVE)
}

fn bits(values: &[F8E4M3]) -> Vec<u64> {
    values.iter().map(|value| value.to_f64().to_bits()).collect()
}

/// Rows of 0 and numbers of very different sizes, in each.
fn input(random: &mut Random, rows: usize, columns: usize) -> Vec<f32> {
    let size = |row: usize| if row % 5 == 3 { 0.0 } else { 10f64.powi((row % 7) as i32 - 3) };
    (0..rows * columns).map(|at| (random.normal() * size(at / columns)) as f32).collect()
}

#[test]
fn quantising_divides_by_the_scale_and_rounds() {
    on_every_device(|cx| {
        for [rows, columns] in [[1, 1], [40, 128], [33, 200], [150, 70]] {
            let x = input(&mut Random::new(1), rows, columns);
            let tensor = Tensor::upload(cx.device(), &x, [rows, columns])?;
            let at = |i: usize, j: usize| x[i * columns + j];
            let check = |what: &str, got: &[F8E4M3], scales: &dyn Fn(usize, usize) -> f32| {
                let each = (0..rows * columns).map(|at| (at / columns, at % columns));
                let want: Vec<_> = each.map(|(i, j)| F8E4M3::from_f32(at(i, j) / scales(i, j))).collect();
                assert_eq!(bits(got), bits(&want), "{what}, {rows} x {columns}");
            };
            let blocks = columns.div_ceil(BLOCK);
            let part = |at: usize, size: usize| at * BLOCK..size.min(at * BLOCK + BLOCK);

            let (got, scales) = fp8::quantise_blocks(cx, &tensor)?;
            let want: Vec<f32> =
                (0..rows * blocks).map(|b| scale(part(b % blocks, columns).map(|j| at(b / blocks, j)))).collect();
            assert_eq!(scales.to_vec()?, want);
            check("blocks", &got.to_vec()?, &|i, j| want[i * blocks + j / BLOCK]);

            let (got, scales) = fp8::quantise_squares(cx, &tensor)?;
            let square =
                |b: usize| part(b / blocks, rows).flat_map(move |i| part(b % blocks, columns).map(move |j| at(i, j)));
            let want: Vec<f32> = (0..rows.div_ceil(BLOCK) * blocks).map(|b| scale(square(b))).collect();
            assert_eq!(scales.to_vec()?, want);
            check("squares", &got.to_vec()?, &|i, j| want[i / BLOCK * blocks + j / BLOCK]);

            let (got, scales) = fp8::quantise_rows(cx, &tensor)?;
            let want: Vec<f32> = (0..rows).map(|i| scale((0..columns).map(|j| at(i, j)))).collect();
            assert_eq!(scales.to_vec()?, want);
            check("rows", &got.to_vec()?, &|i, _| want[i]);

            let (got, one) = fp8::quantise_tensor(cx, &tensor)?;
            let want = scale(x.iter().copied());
            assert_eq!(one.to_vec()?, [want]);
            check("tensor", &got.to_vec()?, &|_, _| want);
        }
        Ok(())
    });
}

/// Random bytes and scales, and the numbers that they stand for.
struct Factor {
    bytes: Tensor<F8E4M3, 2>,
    scales: Tensor<f32, 2>,
    reals: Vec<f64>,
}

/// A scale for each `tall` times `wide` elements.
fn factor(cx: &Context, random: &mut Random, shape: [usize; 2], [tall, wide]: [usize; 2]) -> Result<Factor, Error> {
    let [rows, columns] = shape;
    let groups = [rows.div_ceil(tall), columns.div_ceil(wide)];
    let scales: Vec<f32> = (0..groups[0] * groups[1]).map(|_| 0.01 + random.uniform() as f32).collect();
    let bytes: Vec<F8E4M3> = (0..rows * columns).map(|_| F8E4M3::from_f64(random.normal() * 10.0)).collect();
    let of = |at: usize| scales[at / columns / tall * groups[1] + at % columns / wide];
    let reals = bytes.iter().enumerate().map(|(at, x)| x.to_f64() * f64::from(of(at))).collect();
    let scales = Tensor::upload(cx.device(), &scales, groups)?;
    Ok(Factor { bytes: Tensor::upload(cx.device(), &bytes, shape)?, scales, reals })
}

#[test]
fn scales_of_blocks_multiply_their_sums() {
    on_every_device(|cx| {
        for [m, n, k] in [[1, 1, 1], [20, 144, 256], [33, 130, 200], [70, 16, 400]] {
            let mut random = Random::new(2);
            let a = factor(cx, &mut random, [m, k], [1, BLOCK])?;
            let b = factor(cx, &mut random, [k, n], [BLOCK, BLOCK])?;
            let want = product(&a.reals, &b.reals, [m, n, k]);
            // Scaling each step of 128 and adding it rounds twice more.
            let loss = lost_of_bytes(BLOCK) + (2.0 * (k as f64 / 128.0) + 4.0) * UNIT;
            let bound = |at: usize, _| want.sizes[at] * loss;
            let y: Tensor<bf16, 2> = fp8::matmul_blocks(cx, &a.bytes, &a.scales, &b.bytes, &b.scales)?;
            assert_close("row-major", &y.to_vec()?, &want.sums, bound);
            let down = general::contiguous(cx, b.bytes.view().transpose(0, 1)?)?;
            let scales = general::contiguous(cx, b.scales.view().transpose(0, 1)?)?;
            let (down, scales) = (down.view().transpose(0, 1)?, scales.view().transpose(0, 1)?);
            let y: Tensor<f32, 2> = fp8::matmul_blocks(cx, &a.bytes, &a.scales, down, scales)?;
            assert_close("by columns", &y.to_vec()?, &want.sums, bound);
            // Rows that the hardware does not copy.
            let mut out = cx.device().full(m * (n + 1), f16::NAN)?;
            let part = TensorViewMut::with_strides(&mut out, [m, n], [n + 1, 1])?;
            fp8::matmul_blocks_into(cx, &a.bytes, &a.scales, down, scales, part)?;
            for (i, row) in out.to_vec()?.chunks(n + 1).enumerate() {
                assert_close("pointers", &row[..n], &want.sums[i * n..][..n], |j, _| bound(i * n + j, 0.0));
                assert!(row[n].is_nan());
            }
        }
        Ok(())
    });
}

#[test]
fn scales_of_rows_columns_and_tensors_multiply_the_sums() {
    on_every_device(|cx| {
        let [m, n, k] = [35, 48, 80];
        for [tall, wide] in [[1, 1], [m, n], [m, 1]] {
            let mut random = Random::new(3);
            let a = factor(cx, &mut random, [m, k], [tall, k])?;
            let b = factor(cx, &mut random, [k, n], [k, wide])?;
            let want = product(&a.reals, &b.reals, [m, n, k]);
            let scales = |factor: &Factor| factor.scales.to_vec();
            let a_scale = Tensor::upload(cx.device(), &scales(&a)?, [m / tall])?;
            let b_scale = Tensor::upload(cx.device(), &scales(&b)?, [n / wide])?;
            let y: Tensor<bf16, 2> = fp8::matmul(cx, &a.bytes, &a_scale, &b.bytes, &b_scale)?;
            let loss = lost_of_bytes(k) + 2.0 * UNIT;
            assert_close("scaled", &y.to_vec()?, &want.sums, |at, _| want.sizes[at] * loss);
        }
        Ok(())
    });
}

#[test]
fn scales_of_other_shapes_are_refused() {
    on_every_device(|cx| {
        let x = Tensor::<F8E4M3, 2>::zeros(cx.device(), [130, 130])?;
        let (rows, squares) = (Tensor::zeros(cx.device(), [130, 2])?, Tensor::zeros(cx.device(), [2, 2])?);
        let wrong = |a: &Tensor<f32, 2>, b: &Tensor<f32, 2>| message(fp8::matmul_blocks::<_, f32>(cx, &x, a, &x, b));
        assert_eq!(wrong(&squares, &squares), "`a_scale` has the shape [2, 2]; the other arguments ask for [130, 2]");
        assert_eq!(wrong(&rows, &rows), "`b_scale` has the shape [130, 2]; the other arguments ask for [2, 2]");
        let one = Tensor::<f32, 1>::zeros(cx.device(), [7])?;
        assert_eq!(
            message(fp8::matmul::<_, f32>(cx, &x, &one, &x, &one)),
            "`a_scale` has the shape [7]; the other arguments ask for [130]"
        );
        Ok(())
    });
}
