use super::{UNIT, lost, product};
use crate::common::{Random, Real, assert_close, message, on_every_device};
use tilewright::prelude::*;
use tilewright::tune::bucket;
use tilewright_kernels::products::{Activation, GatedMatmul, GatedMatmulConfig};
use tilewright_kernels::{Context, Table, Tensor, TensorView, TensorViewMut, general, rows};

/// Rows, columns and the length of sums: less than a block, whole blocks, none of them, and rows that the hardware does not copy.
const SIZES: [[usize; 3]; 5] = [[1, 1, 1], [5, 3, 7], [32, 32, 32], [33, 40, 72], [70, 24, 130]];

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

/// What is expected, with the bound of the error before it is rounded.
struct Expected {
    products: Vec<f64>,
    sizes: Vec<f64>,
    gated: Vec<f64>,
    bounds: Vec<f64>,
}

/// `loss` is that of sums, relative to the sums of absolute values.
fn expected(x: &[f64], weights: &[f64], [m, n, k]: [usize; 3], gate: impl Fn(f64) -> f64, loss: f64) -> Expected {
    let both = product(x, weights, [m, 2 * n, k]);
    let at = |i: usize| (i / n * 2 * n + i % n, i / n * 2 * n + n + i % n);
    let gated = (0..m * n).map(|i| gate(both.sums[at(i).0]) * both.sums[at(i).1]).collect();
    let bound = |i: usize| {
        let (gates, ups) = at(i);
        let (a, b) = (both.sums[gates], both.sums[ups]);
        // As for activations: none is steeper than 1.13, and each is within 40 units of its argument.
        let off = 1.13 * both.sizes[gates] * loss + 40.0 * UNIT * a.abs();
        (b.abs() + both.sizes[ups] * loss) * off + both.sizes[ups] * loss * a.abs() + 2.0 * UNIT * (a * b).abs()
    };
    Expected { bounds: (0..m * n).map(bound).collect(), gated, products: both.sums, sizes: both.sizes }
}

fn check<T: Real>(cx: &Context, sizes: &[[usize; 3]], loss: impl Fn(usize) -> f64) -> Result<(), Error> {
    for &[m, n, k] in sizes {
        let mut random = Random::new((m * n + k) as u64);
        let ((x, xs), (w, ws)) = (random.tensor::<T, 2>(cx, [m, k]), random.tensor::<T, 2>(cx, [k, 2 * n]));
        let want = expected(&xs, &ws, [m, n, k], silu, loss(k));
        let down = general::contiguous(cx, w.view().transpose(0, 1)?)?;
        for weights in [w.view(), down.view().transpose(0, 1)?] {
            let what = format!("{m} x {n} x {k} of {}, strides {:?}", T::ELEMENT, weights.strides());
            let y = GatedMatmul::default().run(cx, &x, weights)?;
            assert_close(&what, &y.to_vec()?, &want.gated, |at, _| want.bounds[at]);
            // Into rows with gaps, which stay as they are.
            let mut products = Tensor::<T, 2>::zeros(cx.device(), [m, 2 * n])?;
            let mut out = cx.device().full(m * (n + 8), T::of(7.0))?;
            let part = TensorViewMut::with_strides(&mut out, [m, n], [n + 8, 1])?;
            GatedMatmul::default().run_into_keeping(cx, &x, weights, &mut products, part)?;
            for (i, row) in out.to_vec()?.chunks(n + 8).enumerate() {
                let bound = |j: usize, _| want.bounds[i * n + j];
                assert_close(&what, &row[..n], &want.gated[i * n..][..n], bound);
                assert!(row[n..].iter().all(|x| x.real() == 7.0), "{what}: gaps of row {i}");
            }
            let loss = loss(k);
            assert_close(&what, &products.to_vec()?, &want.products, |at, _| want.sizes[at] * loss);
        }
    }
    Ok(())
}

/// Rows are for calls that keep products, or for those that do not.
#[test]
fn tables_tell_calls_that_keep_products_apart() -> Result<(), Error> {
    let cx = Context::new(&Device::cpu());
    let (x, weights) = (Tensor::<f32, 2>::zeros(cx.device(), [4, 8])?, Tensor::<f32, 2>::zeros(cx.device(), [8, 16])?);
    let (mut products, mut out) = (Tensor::zeros(cx.device(), [4, 16])?, Tensor::zeros(cx.device(), [4, 8])?);
    let gated = GatedMatmul::default();
    let (plain, asked) = cx.asked(|cx| gated.run_into(cx, &x, &weights, &mut out));
    let (keeping, asked_keeping) = cx.asked(|cx| gated.run_into_keeping(cx, &x, &weights, &mut products, &mut out));
    plain.and(keeping)?;
    let [plain, keeping] = [asked, asked_keeping].map(|asked| bucket(&asked[0].sizes));
    assert_eq!((plain, keeping), (vec![4, 8, 8, 1], vec![4, 8, 8, 2]));
    Ok(())
}

#[test]
fn gates_of_f16_and_bf16() {
    on_every_device(|cx| {
        check::<f16>(cx, &SIZES, lost)?;
        check::<bf16>(cx, &SIZES, lost)
    });
}

#[test]
fn gates_of_f32_and_f64() {
    on_every_device(|cx| {
        check::<f32>(cx, &SIZES[..4], |k| lost(k) + 1.01 * UNIT)?;
        // The bound of the gate is that of f32.
        check::<f64>(cx, &SIZES[..4], |k| (k as f64 + 2.0) * f64::ROUNDING)
    });
}

#[test]
fn each_activation_gates() {
    on_every_device(|cx| {
        let [m, n, k] = [18, 16, 40];
        let mut random = Random::new(2);
        let ((x, xs), (w, ws)) = (random.tensor::<f16, 2>(cx, [m, k]), random.tensor::<f16, 2>(cx, [k, 2 * n]));
        type Gate = fn(f64) -> f64;
        let cases: [(Activation, Gate); 4] = [
            (Activation::None, |x| x),
            (Activation::Relu, |x| x.max(0.0)),
            (Activation::Silu, silu),
            (Activation::GeluTanh, |x| {
                x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh()) / 2.0
            }),
        ];
        for (activation, gate) in cases {
            let want = expected(&xs, &ws, [m, n, k], gate, lost(k));
            let y = GatedMatmul::default().activation(activation).run(cx, &x, &w)?;
            assert_close(&format!("{activation:?}"), &y.to_vec()?, &want.gated, |at, _| want.bounds[at]);
        }
        Ok(())
    });
}

/// Programs that take several tiles each, of warp groups: more than a GPU has multiprocessors.
#[test]
fn programs_take_tile_after_tile() {
    on_every_device(|cx| {
        let [m, n, k] = if cx.device().compute_capability().is_some() { [1300, 264, 200] } else { [150, 40, 72] };
        let mut random = Random::new(3);
        let ((x, xs), (w, ws)) = (random.tensor::<bf16, 2>(cx, [m, k]), random.tensor::<bf16, 2>(cx, [2 * n, k]));
        let weights = w.view().transpose(0, 1)?;
        let turned: Vec<f64> = (0..k * 2 * n).map(|at| ws[at % (2 * n) * k + at / (2 * n)]).collect();
        let want = expected(&xs, &turned, [m, n, k], silu, lost(k));
        let config = GatedMatmulConfig { bm: 64, bn: 32, bk: 64, group: 4, num_warps: 4, num_stages: 3 };
        for kept in [0, 1] {
            let mut table = Table::new();
            table.insert(cx.device().name(), bf16::ELEMENT, &[m, n, k, kept], config);
            let cx = cx.clone().with_table(table);
            let mut y = Tensor::<bf16, 2>::zeros(cx.device(), [m, n])?;
            if kept == 1 {
                let mut products = Tensor::<bf16, 2>::zeros(cx.device(), [m, 2 * n])?;
                GatedMatmul::default().run_into_keeping(&cx, &x, weights, &mut products, &mut y)?;
                let bound = |at: usize, _| want.sizes[at] * lost(k);
                assert_close("products", &products.to_vec()?, &want.products, bound);
            } else {
                GatedMatmul::default().run_into(&cx, &x, weights, &mut y)?;
            }
            assert_close("gated", &y.to_vec()?, &want.gated, |at, _| want.bounds[at]);
        }
        Ok(())
    });
}

/// What is kept is what the gradient of the gate asks for.
#[test]
fn what_is_kept_gives_gradients() {
    on_every_device(|cx| {
        let [m, n, k] = [9, 12, 16];
        let mut random = Random::new(4);
        let ((x, xs), (w, ws)) = (random.tensor::<f64, 2>(cx, [m, k]), random.tensor::<f64, 2>(cx, [k, 2 * n]));
        let (dy, dys) = random.tensor::<f64, 2>(cx, [m, n]);
        let mut products = Tensor::<f64, 2>::zeros(cx.device(), [m, 2 * n])?;
        let (mut y, mut d) = (Tensor::zeros(cx.device(), [m, n])?, Tensor::zeros(cx.device(), [m, 2 * n])?);
        GatedMatmul::default().run_into_keeping(cx, &x, &w, &mut products, &mut y)?;
        rows::swiglu_backward_halves_into(cx, &products, &dy, &mut d)?;
        let dw = tilewright_kernels::products::matmul(cx, x.view().transpose(0, 1)?, &d)?.to_vec()?;
        let some = [0, n - 1, n, 2 * n + 3, k * 2 * n - 1];
        let y = |ws: &[f64]| expected(&xs, ws, [m, n, k], silu, 0.0).gated;
        for (&at, want) in some.iter().zip(crate::common::differences(&ws, &dys, &some, y)) {
            assert!((dw[at] - want).abs() < 1e-6 * (1.0 + want.abs()), "{at}: {} and {want}", dw[at]);
        }
        Ok(())
    });
}

#[test]
fn rows_of_any_rank_and_none() {
    on_every_device(|cx| {
        let mut random = Random::new(5);
        let ((x, xs), (w, ws)) = (random.tensor::<f32, 3>(cx, [2, 3, 8]), random.tensor::<f32, 2>(cx, [8, 8]));
        let want = expected(&xs, &ws, [6, 4, 8], silu, lost(8) + 1.01 * UNIT);
        let y = GatedMatmul::default().run(cx, &x, &w)?;
        assert_eq!(y.shape(), [2, 3, 4]);
        assert_close("three", &y.to_vec()?, &want.gated, |at, _| want.bounds[at]);
        let none = TensorView::new(x.buffer(), [0, 8])?;
        assert_eq!(GatedMatmul::default().run(cx, none, &w)?.shape(), [0, 4]);
        // Sums of nothing are zero.
        let (x, w) = (Tensor::<f32, 2>::zeros(cx.device(), [3, 0])?, Tensor::<f32, 2>::zeros(cx.device(), [0, 4])?);
        assert_eq!(GatedMatmul::default().run(cx, &x, &w)?.to_vec()?, [0.0; 6]);
        Ok(())
    });
}

#[test]
fn what_does_not_fit_is_refused() {
    on_every_device(|cx| {
        let [x, odd, short] =
            [[4, 6], [6, 5], [5, 4]].map(|shape| Tensor::<f32, 2>::zeros(cx.device(), shape).unwrap());
        assert_eq!(
            message(GatedMatmul::default().run(cx, &x, &odd)),
            "`weights` has 5 columns; give those of the gate and as many of what it multiplies"
        );
        assert_eq!(
            message(GatedMatmul::default().run(cx, &x, &short)),
            "`weights` has the shape [5, 4]; the other arguments ask for [6, 4]"
        );
        let w = Tensor::<f32, 2>::zeros(cx.device(), [6, 8])?;
        let (mut y, mut products) =
            (Tensor::<f32, 2>::zeros(cx.device(), [4, 4])?, Tensor::<f32, 2>::zeros(cx.device(), [4, 7])?);
        assert_eq!(
            message(GatedMatmul::default().run_into_keeping(cx, &x, &w, &mut products, &mut y)),
            "`products` has the shape [4, 7]; the other arguments ask for [4, 8]"
        );
        assert_eq!(
            message(GatedMatmul::default().run(cx, x.view().transpose(0, 1)?, &w)),
            "`x` has the shape [6, 4] and strides [1, 6]: its last dimension is not contiguous; copy it with \
             `general::contiguous` first"
        );
        Ok(())
    });
}
