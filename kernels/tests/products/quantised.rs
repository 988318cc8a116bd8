use super::{UNIT, lost, product};
use crate::common::{Random, Real, assert_close, message, on_every_device};
use tilewright::prelude::*;
use tilewright_kernels::products::quantised::{
    self, Int4, Int8, NF4, Nf4, Packing, QuantisedConfig, dequantise_int4, dequantise_int8, dequantise_nf4,
    quantise_int4, quantise_int8, quantise_nf4,
};
use tilewright_kernels::{Context, Table, Tensor, TensorView, general};

const PACKINGS: [Packing; 2] = [Packing::Awq, Packing::Gptq];

/// The 4 bits of a word that hold row or column `at` of 8.
fn nibble(word: i32, at: usize, packing: Packing) -> i32 {
    let place = if packing == Packing::Awq { at % 2 * 4 + at / 2 } else { at };
    word >> (4 * place) & 15
}

/// Random words, and the numbers that they stand for.
struct Packed<F: DType> {
    words: Tensor<i32, 2>,
    scales: Tensor<F, 2>,
    zeros: Tensor<i32, 2>,
    reals: Vec<f64>,
    symmetric: Vec<f64>,
}

/// Numbers as a dequantised matrix has them.
fn rounded<F: Real>(reals: &[f64]) -> Vec<f64> {
    reals.iter().map(|&real| F::of(real).real()).collect()
}

/// What is multiplied of numbers: with few rows their scales multiply the sums of steps of 32 or more, and nothing is rounded
/// before.
fn multiplied<F: Real>(cx: &Context, rows: usize, group: usize, reals: &[f64]) -> Vec<f64> {
    let few = rows <= 32 || !cx.device().is_cuda();
    if few && group.is_multiple_of(32) { reals.to_vec() } else { rounded::<F>(reals) }
}

fn packed<F: Real>(cx: &Context, [k, n]: [usize; 2], group: usize, packing: Packing) -> Result<Packed<F>, Error> {
    let mut random = Random::new((k + n) as u64);
    let groups = k.div_ceil(group);
    let shape = if packing == Packing::Awq { [k, n / 8] } else { [k / 8, n] };
    let mut words = |len: usize| (0..len).map(|_| random.bits() as i32).collect::<Vec<_>>();
    let (numbers, zeros) = (words(shape[0] * shape[1]), words(groups * n / 8));
    let scales: Vec<F> = (0..groups * n).map(|_| F::of(0.01 + random.uniform())).collect();
    let real = |at: usize, zero: i32| {
        let (i, j) = (at / n, at % n);
        let number = match packing {
            Packing::Awq => nibble(numbers[i * (n / 8) + j / 8], j % 8, packing),
            Packing::Gptq => nibble(numbers[i / 8 * n + j], i % 8, packing),
        };
        f64::from(number - zero) * scales[i / group * n + j].real()
    };
    let zero = |at: usize| {
        let stored = nibble(zeros[at / n / group * (n / 8) + at % n / 8], at % 8, packing);
        if packing == Packing::Awq { stored } else { stored + 1 }
    };
    Ok(Packed {
        reals: (0..k * n).map(|at| real(at, zero(at))).collect(),
        symmetric: (0..k * n).map(|at| real(at, 8)).collect(),
        words: Tensor::upload(cx.device(), &numbers, shape)?,
        scales: Tensor::upload(cx.device(), &scales, [groups, n])?,
        zeros: Tensor::upload(cx.device(), &zeros, [groups, n / 8])?,
    })
}

fn reals<T: Real, const R: usize>(tensor: &Tensor<T, R>) -> Result<Vec<f64>, Error> {
    Ok(tensor.to_vec()?.iter().map(|x| x.real()).collect())
}

/// Rows, columns, the length of sums and groups that end in the middle.
const INT4: [([usize; 3], usize); 4] = [([1, 8, 8], 32), ([3, 40, 128], 32), ([33, 136, 200], 64), ([18, 24, 96], 48)];

fn check_int4<F: Real>(cx: &Context) -> Result<(), Error> {
    for ([m, n, k], group) in INT4 {
        for packing in PACKINGS {
            let made = packed::<F>(cx, [k, n], group, packing)?;
            let (x, xs) = Random::new(4).tensor::<F, 2>(cx, [m, k]);
            for (zeros, weights) in [(Some(made.zeros.view()), &made.reals), (None, &made.symmetric)] {
                let view = Int4::new(&made.words, &made.scales, zeros, group, packing)?;
                assert_eq!(reals(&dequantise_int4(cx, &view)?)?, rounded::<F>(weights), "{packing:?} {k} x {n}");
                let want = product(&xs, &multiplied::<F>(cx, m, group, weights), [m, n, k]);
                let what = format!("{packing:?} {m} x {n} x {k}, groups of {group}");
                let bound = |at: usize, _| want.sizes[at] * lost(k);
                assert_close(&what, &quantised::matmul(cx, &x, &view)?.to_vec()?, &want.sums, bound);
            }
        }
    }
    Ok(())
}

#[test]
fn int4_weights_are_what_their_words_say() {
    on_every_device(|cx| {
        check_int4::<f16>(cx)?;
        check_int4::<bf16>(cx)
    });
}

#[test]
fn int4_weights_come_back_within_a_step() {
    on_every_device(|cx| {
        for ([k, n], group) in [([64, 8], 16), ([200, 72], 128)] {
            let mut random = Random::new(5);
            // A column of positive numbers, one of negative ones, one of zeros.
            let sign = |at: usize, x: f64| [x, x.abs(), -x.abs(), 0.0][at % n % 4];
            let w: Vec<f16> = (0..k * n).map(|at| f16::of(sign(at, random.normal()))).collect();
            let w = Tensor::upload(cx.device(), &w, [k, n])?;
            for packing in PACKINGS {
                let packed = quantise_int4(cx, &w, group, packing)?;
                let (scales, back) = (reals(&packed.scales)?, reals(&dequantise_int4(cx, &packed.view()?)?)?);
                for (at, (want, got)) in reals(&w)?.iter().zip(&back).enumerate() {
                    let scale = scales[at / n / group * n + at % n];
                    let limit = scale * 1.01 + want.abs() * f16::ROUNDING;
                    assert!((want - got).abs() <= limit, "{packing:?}, element {at}: {got}, not {want} by {scale}");
                }
                let down = general::contiguous(cx, w.view().transpose(0, 1)?)?;
                let again = quantise_int4(cx, down.view().transpose(0, 1)?, group, packing)?;
                assert_eq!(again.words.to_vec()?, packed.words.to_vec()?, "strides do not matter");
            }
        }
        Ok(())
    });
}

#[test]
fn int8_weights_in_both_orders() {
    on_every_device(|cx| {
        for [m, n, k] in [[1, 1, 1], [20, 70, 130], [5, 64, 64]] {
            let (w, ws) = Random::new(6).tensor::<f16, 2>(cx, [k, n]);
            let made = quantise_int8(cx, &w)?;
            let (numbers, scales) = (made.numbers.to_vec()?, made.scales.to_vec()?);
            for j in 0..n {
                let largest = (0..k).map(|i| ws[i * n + j].abs() as f32).fold(0.0, f32::max);
                assert_eq!(scales[j], (largest / 127.0).max(f32::MIN_POSITIVE));
            }
            for (at, number) in numbers.iter().enumerate() {
                assert_eq!(f32::from(*number), (ws[at] as f32 / scales[at % n]).round_ties_even());
            }
            let stands: Vec<f64> =
                numbers.iter().enumerate().map(|(at, x)| f64::from(*x) * f64::from(scales[at % n])).collect();
            let back: Tensor<f32, 2> = dequantise_int8(cx, &made.view()?)?;
            assert_close("dequantised", &back.to_vec()?, &stands, |_, _| 0.0);
            let (x, xs) = Random::new(7).tensor::<bf16, 2>(cx, [m, k]);
            let want = product(&xs, &stands, [m, n, k]);
            let bound = |at: usize, _| want.sizes[at] * (lost(k) + 2.0 * UNIT);
            assert_close("rows", &quantised::matmul(cx, &x, &made.view()?)?.to_vec()?, &want.sums, bound);
            let down = general::contiguous(cx, made.numbers.view().transpose(0, 1)?)?;
            let down = Int8::new(down.view().transpose(0, 1)?, &made.scales)?;
            assert_close("columns", &quantised::matmul(cx, &x, &down)?.to_vec()?, &want.sums, bound);
        }
        Ok(())
    });
}

#[test]
fn int8_columns_without_elements_have_scales() {
    on_every_device(|cx| {
        let w = Tensor::<f16, 2>::zeros(cx.device(), [0, 3])?;
        // What is there before does not count.
        let (mut numbers, mut scales) =
            (Tensor::zeros(cx.device(), [0, 3])?, Tensor::upload(cx.device(), &[7.0; 3], [3])?);
        quantised::quantise_int8_into(cx, &w, &mut numbers, &mut scales)?;
        assert_eq!(scales.to_vec()?, [f32::MIN_POSITIVE; 3]);
        let made = quantise_int8(cx, &w)?;
        assert_eq!(made.scales.to_vec()?, [f32::MIN_POSITIVE; 3]);
        let x = Tensor::<bf16, 2>::zeros(cx.device(), [2, 0])?;
        assert_eq!(quantised::matmul(cx, &x, &made.view()?)?.to_vec()?, [bf16::ZERO; 6]);
        Ok(())
    });
}

#[test]
fn nf4_weights_are_the_nearest_of_16() {
    on_every_device(|cx| {
        for [m, n, k] in [[1, 1, 64], [20, 70, 192], [3, 33, 128]] {
            let (w, mut ws) = Random::new(8).tensor::<f32, 2>(cx, [n, k]);
            let made = quantise_nf4(cx, &w)?;
            let largest = made.largest.to_vec()?;
            let bytes = made.bytes.to_vec()?;
            for (at, w) in ws.iter_mut().enumerate() {
                let size = largest[at / 64];
                let code = usize::from(if at % 2 == 0 { bytes[at / 2] >> 4 } else { bytes[at / 2] & 15 });
                let away = |number: f32| (*w / f64::from(size) - f64::from(number)).abs();
                let least = NF4.iter().map(|number| away(*number)).fold(f64::INFINITY, f64::min);
                assert!(away(NF4[code]) <= least + 4.0 * UNIT, "element {at}, {w} by {size} is not {}", NF4[code]);
                *w = bf16::of(f64::from(NF4[code] * size)).real();
            }
            let back: Tensor<bf16, 2> = dequantise_nf4(cx, &made.view()?)?;
            assert_eq!(reals(&back)?, ws);
            let transposed: Vec<f64> = (0..k * n).map(|at| ws[at % n * k + at / n]).collect();
            let (x, xs) = Random::new(9).tensor::<bf16, 2>(cx, [m, k]);
            let want = product(&xs, &transposed, [m, n, k]);
            let y = quantised::matmul(cx, &x, &made.view()?)?;
            assert_close("nf4", &y.to_vec()?, &want.sums, |at, _| want.sizes[at] * lost(k));
        }
        let zeros = Tensor::<f16, 2>::zeros(cx.device(), [1, 64])?;
        let back: Tensor<f16, 2> = dequantise_nf4(cx, &quantise_nf4(cx, &zeros)?.view()?)?;
        assert_eq!(back.to_vec()?, zeros.to_vec()?);
        Ok(())
    });
}

#[test]
fn programs_share_tiles_of_few_rows() {
    on_every_device(|cx| {
        let [m, n, k] = [2, 40, 256];
        let made = packed::<f16>(cx, [k, n], 64, Packing::Gptq)?;
        let view = Int4::new(&made.words, &made.scales, Some(made.zeros.view()), 64, Packing::Gptq)?;
        let (x, xs) = Random::new(10).tensor::<f16, 2>(cx, [m, k]);
        let want = product(&xs, &multiplied::<f16>(cx, m, 64, &made.reals), [m, n, k]);
        let config = QuantisedConfig { bm: 16, bn: 32, bk: 64, splits: 3, num_warps: 4, num_stages: 2 };
        let mut table = Table::new();
        table.insert(cx.device().name(), f16::ELEMENT, &[m, n, k], config);
        let cx = cx.clone().with_table(table);
        assert_eq!(quantised::workspace(&cx, &x, &view)?, 3 * m * n);
        let y = quantised::matmul(&cx, &x, &view)?;
        assert_close("shared", &y.to_vec()?, &want.sums, |at, _| want.sizes[at] * lost(k));
        Ok(())
    });
}

#[test]
fn weights_that_do_not_fit_are_refused() {
    on_every_device(|cx| {
        let words = Tensor::<i32, 2>::zeros(cx.device(), [32, 4])?;
        let scales = Tensor::<f16, 2>::zeros(cx.device(), [1, 32])?;
        assert_eq!(
            message(Int4::new(&words, &scales, None, 16, Packing::Awq)),
            "`scales` has the shape [1, 32]; the other arguments ask for [2, 32]"
        );
        assert_eq!(
            message(Int4::new(&words, &scales, None, 20, Packing::Awq)),
            "`scales` has groups of 20 rows; groups are multiples of 16, or all rows"
        );
        let view = Int4::new(&words, &scales, None, 32, Packing::Awq)?;
        let x = Tensor::<f16, 2>::zeros(cx.device(), [3, 31])?;
        assert_eq!(
            message(quantised::matmul(cx, &x, &view)),
            "`x` has the shape [3, 31]; the other arguments ask for [3, 32]"
        );
        let nothing = TensorView::new(x.buffer(), [0, 32])?;
        assert_eq!(quantised::matmul(cx, nothing, &view)?.shape(), [0, 32]);
        let (bytes, largest) = (Tensor::<u8, 2>::zeros(cx.device(), [2, 48])?, Tensor::zeros(cx.device(), [2, 1])?);
        assert_eq!(
            message(Nf4::new(&bytes, &largest)),
            "`bytes` has rows of 48 bytes; rows are whole blocks of 64 numbers, 32 bytes"
        );
        let single = Tensor::<f32, 2>::zeros(cx.device(), [1, 96])?;
        let int8 = quantise_int8(cx, &Tensor::<f32, 2>::zeros(cx.device(), [96, 8])?)?;
        assert_eq!(
            message(quantised::matmul(cx, &single, &int8.view()?)),
            "`x` has the dtype f32; f16 and bf16 are multiplied"
        );
        Ok(())
    });
}
