//! Models of sequences, against their recurrences step by step in f64.

mod selective;

use crate::common::{Random, Real, assert_close, message, on_every_device, reals};
use tilewright::prelude::*;
use tilewright_kernels::sequence;
use tilewright_kernels::{Context, Tensor, general};

/// What the recurrences give, and how large the terms are that they add up.
struct Expected {
    y: Vec<f64>,
    size: Vec<f64>,
}

/// `y[t] = h^T q[t]` where `h` is first multiplied by `decay(t, key)`, then changed by `update`: `h` and the sizes of what it
/// is the sum of, `[keys, values]`, in row-major order.
fn recurrence(
    (len, keys, values): (usize, usize, usize),
    state: &mut (Vec<f64>, Vec<f64>),
    decay: impl Fn(usize, usize) -> f64,
    update: impl Fn(usize, &mut Vec<f64>, &mut Vec<f64>),
    q: impl Fn(usize, usize) -> f64,
) -> Expected {
    let mut expected = Expected { y: Vec::new(), size: Vec::new() };
    for t in 0..len {
        for at in 0..keys * values {
            state.0[at] *= decay(t, at / values);
            state.1[at] *= decay(t, at / values);
        }
        update(t, &mut state.0, &mut state.1);
        for j in 0..values {
            expected.y.push((0..keys).map(|i| q(t, i) * state.0[i * values + j]).sum());
            expected.size.push((0..keys).map(|i| (q(t, i) * state.1[i * values + j]).abs()).sum());
        }
    }
    expected
}

/// The relative error of a result of these sizes: each rounding of a factor to the dtype of inputs, of which at most 6 are on
/// the way of a product, what `tf32x3` loses, and sums in the dtype of sums.
fn bound<T: Real>(len: usize) -> f64 {
    let factors = if T::STEP == T::ROUNDING { 0.0 } else { 6.0 * T::ROUNDING };
    let split = if T::ELEMENT == f64::ELEMENT { 0.0 } else { 4.0 * 0.5f64.powi(20) };
    factors + split + T::STEP * (4.0 * len as f64 + 100.0)
}

/// Elements of `0..1` or around them in the dtype of sums.
fn between<T: general::Real + Real>(
    cx: &Context,
    random: &mut Random,
    low: f64,
    high: f64,
    len: usize,
) -> (Tensor<T::Sums, 1>, Vec<f64>)
where
    T::Sums: Real,
{
    let elements: Vec<T::Sums> = (0..len).map(|_| T::Sums::of(low + (high - low) * random.uniform())).collect();
    let reals = elements.iter().map(|x| x.real()).collect();
    (Tensor::upload(cx.device(), &elements, [len]).unwrap(), reals)
}

/// Gates, of which some forget everything if that is said.
fn gates<T: general::Real + Real>(
    cx: &Context,
    random: &mut Random,
    [low, high]: [f64; 2],
    len: usize,
    forgets: Option<f64>,
) -> (Tensor<T::Sums, 1>, Vec<f64>)
where
    T::Sums: Real,
{
    let (gates, mut reals) = between::<T>(cx, random, low, high, len);
    let Some(forgets) = forgets else { return (gates, reals) };
    reals.iter_mut().skip(3).step_by(7).for_each(|gate| *gate = forgets);
    let elements: Vec<T::Sums> = reals.iter().map(|gate| T::Sums::of(*gate)).collect();
    (Tensor::upload(cx.device(), &elements, [len]).unwrap(), reals)
}

/// The relative error of decays in chunks of so many steps: both running sums are rounded, and with gates that forget they are up
/// to so large.
fn decay_error<T: Real>(forgets: Option<f64>, steps: usize) -> f64 {
    let least = if T::ELEMENT == f64::ELEMENT { 746.0 } else { 104.0 };
    forgets.map_or(0.0, |_| 4.0 * least * steps.div_ceil(7) as f64 * T::STEP)
}

/// Elements of deviation `factor` in the dtype.
fn normals<T: Real, const R: usize>(
    cx: &Context,
    random: &mut Random,
    shape: [usize; R],
    factor: f64,
) -> (Tensor<T, R>, Vec<f64>) {
    let elements: Vec<T> = (0..shape.iter().product()).map(|_| T::of(random.normal() * factor)).collect();
    let reals = elements.iter().map(|x| x.real()).collect();
    (Tensor::upload(cx.device(), &elements, shape).unwrap(), reals)
}

fn check_ssd<T: Real + general::Real>(
    cx: &Context,
    [batch, len, heads, p, groups, n]: [usize; 6],
    forgets: Option<f64>,
) -> Result<(), Error>
where
    T::Sums: Real,
{
    let mut random = Random::new(80);
    let (x, xs) = normals::<T, 4>(cx, &mut random, [batch, len, heads, p], 1.0);
    let (b, bs) = normals::<T, 4>(cx, &mut random, [batch, len, groups, n], 1.0);
    let (c, cs) = normals::<T, 4>(cx, &mut random, [batch, len, groups, n], 1.0);
    let scale = forgets.unwrap_or(1.0);
    let (dt, dts) = gates::<T>(cx, &mut random, [0.01 / scale, 0.3 / scale], batch * len * heads, forgets.map(|_| 1.0));
    let (a, factors) = between::<T>(cx, &mut random, -2.0 * scale, -0.1 * scale, heads);
    let (skip, skips) = between::<T>(cx, &mut random, -1.0, 1.0, heads);
    let (initial, before) = normals::<T::Sums, 4>(cx, &mut random, [batch, heads, n, p], 1.0);
    let times = dt.view().reshape([batch, len, heads])?;
    let (y, last) = sequence::ssd(cx, &x, times, &a, &b, &c, Some(skip.view()), Some(initial.view()))?;
    let (y, last) = (y.to_vec()?, last.to_vec()?);
    for (one, head) in (0..batch).flat_map(|one| (0..heads).map(move |head| (one, head))) {
        let own = (one * heads + head) * n * p;
        let start = before[own..own + n * p].to_vec();
        let mut state = (start.clone(), start.iter().map(|x| x.abs()).collect());
        let token = |t: usize| (one * len + t) * heads + head;
        let of_group = |t: usize, i: usize| ((one * len + t) * groups + head / (heads / groups)) * n + i;
        let update = |t: usize, h: &mut Vec<f64>, size: &mut Vec<f64>| {
            for at in 0..n * p {
                let term = dts[token(t)] * bs[of_group(t, at / p)] * xs[token(t) * p + at % p];
                h[at] += term;
                size[at] += term.abs();
            }
        };
        let decay = |t: usize, _: usize| (dts[token(t)] * factors[head]).exp();
        let want = recurrence((len, n, p), &mut state, decay, update, |t, i| cs[of_group(t, i)]);
        let place = |at: usize| token(at / p) * p + at % p;
        let got: Vec<T> = (0..len * p).map(|at| y[place(at)]).collect();
        let skipped = |at: usize| skips[head] * xs[place(at)];
        let all: Vec<f64> = want.y.iter().enumerate().map(|(at, y)| y + skipped(at)).collect();
        let bound = bound::<T>(len) + decay_error::<T>(forgets, 64);
        assert_close("ssd", &got, &all, |at, _| bound * (want.size[at] + skipped(at).abs()));
        assert_close("ssd state", &last[own..own + n * p], &state.0, |at, _| bound * state.1[at]);
    }
    Ok(())
}

#[test]
fn state_space_duality_is_its_recurrence() {
    on_every_device(|cx| {
        check_ssd::<f64>(cx, [2, 150, 4, 8, 2, 5], None)?;
        check_ssd::<f32>(cx, [1, 65, 2, 16, 1, 20], None)?;
        check_ssd::<bf16>(cx, [1, 64, 1, 3, 1, 16], None)?;
        check_ssd::<f64>(cx, [1, 0, 1, 3, 1, 2], None)
    });
}

/// Behind a gate that forgets everything, others are what they are.
#[test]
fn gates_may_be_of_any_size() {
    on_every_device(|cx| {
        check_ssd::<f32>(cx, [1, 65, 2, 16, 1, 20], Some(1e9))?;
        check_ssd::<f64>(cx, [1, 65, 2, 4, 1, 5], Some(1e18))?;
        check_linear::<f32>(cx, [1, 33, 1, 16, 16], Some(-1e9))?;
        check_linear::<f64>(cx, [1, 33, 1, 5, 7], Some(-1e18))?;
        check_linear::<f32>(cx, [1, 33, 1, 16, 16], Some(f64::NEG_INFINITY))?;
        check_delta::<f32>(cx, [1, 40, 1, 16, 16], Some(-1e9))?;
        check_delta::<f64>(cx, [1, 40, 1, 5, 7], Some(f64::NEG_INFINITY))
    });
}

/// Gradients behind gates that forget everything, of which `exp` is 0 whatever they are.
#[test]
fn gradients_behind_gates_of_any_size() {
    on_every_device(|cx| {
        let [len, keys, values] = [37, 5, 7];
        let mut random = Random::new(87);
        let (q, _) = normals::<f32, 4>(cx, &mut random, [1, len, 1, keys], 1.0);
        let (k, _) = normals::<f32, 4>(cx, &mut random, [1, len, 1, keys], 1.0);
        let (v, _) = normals::<f32, 4>(cx, &mut random, [1, len, 1, values], 1.0);
        let (dy, _) = normals::<f32, 4>(cx, &mut random, [1, len, 1, values], 1.0);
        let gradients = |forgets: f64| {
            let (gate, _) = gates::<f32>(cx, &mut Random::new(88), [-3.0, 0.0], len * keys, Some(forgets));
            let gate = gate.view().reshape([1, len, 1, keys])?;
            let got = sequence::gated_linear_attention_backward(cx, &q, &k, &v, gate, 0.5, None, &dy, None)?;
            Ok::<_, Error>([got.q.to_vec()?, got.k.to_vec()?, got.v.to_vec()?, got.gate.to_vec()?])
        };
        let want = gradients(-104.0)?;
        assert!(want.iter().flatten().all(|x| x.is_finite()));
        for forgets in [-1e3, -1e9, f64::NEG_INFINITY] {
            assert_eq!(gradients(forgets)?, want, "{forgets}");
        }
        check_ssd_gradients(cx)
    });
}

/// Gradients of f32 are those of f64, of steps and factors of which some products forget everything.
fn check_ssd_gradients(cx: &Context) -> Result<(), Error> {
    let [len, p, n] = [70, 3, 4];
    fn gradients<T: Real + general::Real>(cx: &Context, [len, p, n]: [usize; 3]) -> Result<[Vec<f64>; 5], Error>
    where
        T::Sums: Real,
    {
        let mut random = Random::new(89);
        // The same numbers for every dtype.
        let mut normal = |len: usize| (0..len).map(|_| f64::from(random.normal() as f32)).collect::<Vec<f64>>();
        let x = upload::<T, 4>(cx, &normal(len * p), [1, len, 1, p])?;
        let (b, c) = (normal(len * n), normal(len * n));
        let (b, c) = (upload::<T, 4>(cx, &b, [1, len, 1, n])?, upload::<T, 4>(cx, &c, [1, len, 1, n])?);
        let dy = upload::<T, 4>(cx, &normal(len * p), [1, len, 1, p])?;
        let dt: Vec<f64> = normal(len).into_iter().map(|x| f64::from((x.abs() * 1e-9) as f32)).collect();
        let dt: Vec<f64> = dt.iter().enumerate().map(|(at, dt)| if at % 7 == 3 { 1.0 } else { *dt }).collect();
        let dt = upload::<T::Sums, 3>(cx, &dt, [1, len, 1])?;
        let a = upload::<T::Sums, 1>(cx, &[-1e9], [1])?;
        let got = sequence::ssd_backward(cx, &x, &dt, &a, &b, &c, None, None, &dy, None)?;
        let dt = reals(&got.dt.to_vec()?);
        let of_gates = dt.iter().copied().skip(3).step_by(7).collect();
        let (b, c) = (reals(&got.b.to_vec()?), reals(&got.c.to_vec()?));
        Ok([reals(&got.x.to_vec()?), dt, of_gates, b, c])
    }
    let (got, want) = (gradients::<f32>(cx, [len, p, n])?, gradients::<f64>(cx, [len, p, n])?);
    for (got, want) in got.iter().zip(&want) {
        let largest = want.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
        let bound = 64.0 * (bound::<f32>(len) + decay_error::<f32>(Some(-1e9), 64)) * largest;
        assert_close("gradients", got, want, |_, _| bound);
    }
    Ok(())
}

/// Every gradient of the scan of Mamba-2 against differences of its results in f64, which are those of the recurrence.
#[test]
fn gradients_of_state_space_duality_are_differences() {
    on_every_device(|cx| {
        let [batch, len, heads, p, groups, n] = [1, 70, 2, 3, 1, 2];
        let mut random = Random::new(85);
        let mut normal = |len: usize, factor: f64| -> Vec<f64> { (0..len).map(|_| random.normal() * factor).collect() };
        let tokens = batch * len * heads;
        let mut inputs = [
            normal(tokens * p, 1.0),
            normal(tokens, 0.3).iter().map(|x| x.abs()).collect(),
            normal(heads, 1.0).iter().map(|x| -x.abs()).collect(),
            normal(batch * len * groups * n, 1.0),
            normal(batch * len * groups * n, 1.0),
            normal(heads, 1.0),
            normal(batch * heads * n * p, 1.0),
        ];
        let (dy, dlast) = (normal(tokens * p, 1.0), normal(batch * heads * n * p, 1.0));
        let (tokens_shape, state) = ([batch, len, heads, p], [batch, heads, n, p]);
        let (grad, grad_last) = (upload::<f64, 4>(cx, &dy, tokens_shape)?, upload::<f64, 4>(cx, &dlast, state)?);
        let tensors = |inputs: &[Vec<f64>; 7]| {
            let x = upload::<f64, 4>(cx, &inputs[0], tokens_shape)?;
            let dt = upload::<f64, 3>(cx, &inputs[1], [batch, len, heads])?;
            let (a, skip) = (upload::<f64, 1>(cx, &inputs[2], [heads])?, upload::<f64, 1>(cx, &inputs[5], [heads])?);
            let b = upload::<f64, 4>(cx, &inputs[3], [batch, len, groups, n])?;
            let c = upload::<f64, 4>(cx, &inputs[4], [batch, len, groups, n])?;
            Ok::<_, Error>((x, dt, a, b, c, skip, upload::<f64, 4>(cx, &inputs[6], state)?))
        };
        let loss = |inputs: &[Vec<f64>; 7]| {
            let (x, dt, a, b, c, skip, initial) = tensors(inputs)?;
            let (y, last) = sequence::ssd(cx, &x, &dt, &a, &b, &c, Some(skip.view()), Some(initial.view()))?;
            let products = |x: Vec<f64>, y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
            Ok::<f64, Error>(products(y.to_vec()?, &dy) + products(last.to_vec()?, &dlast))
        };
        let (x, dt, a, b, c, skip, initial) = tensors(&inputs)?;
        let (skip, initial, last) = (Some(skip.view()), Some(initial.view()), Some(grad_last.view()));
        let got = sequence::ssd_backward(cx, &x, &dt, &a, &b, &c, skip, initial, &grad, last)?;
        let skips = got.skip.map_or(Ok(Vec::new()), |skip| skip.to_vec())?;
        let (b, c, initial) = (got.b.to_vec()?, got.c.to_vec()?, got.initial.to_vec()?);
        let got = [got.x.to_vec()?, got.dt.to_vec()?, got.a.to_vec()?, b, c, skips, initial];
        for (which, got) in got.into_iter().enumerate() {
            assert_eq!(got.len(), inputs[which].len());
            let every = got.len().div_ceil(6);
            for at in (0..got.len()).step_by(every) {
                let h = 1e-5;
                let mut losses = [0.0; 2];
                for (one, by) in losses.iter_mut().zip([h, -h]) {
                    inputs[which][at] += by;
                    *one = loss(&inputs)?;
                    inputs[which][at] -= by;
                }
                let want = (losses[0] - losses[1]) / (2.0 * h);
                // Losses are below 1e4 and have 15 digits; the third derivative is below 1e4.
                let error = (got[at] - want).abs();
                assert!(error <= 1e4 * 1e-15 / h * 4.0 + 1e4 * h * h, "{which} {at}: {} {want}", got[at]);
            }
        }
        Ok(())
    });
}

fn check_linear<T: Real + general::Real>(
    cx: &Context,
    [batch, len, heads, keys, values]: [usize; 5],
    forgets: Option<f64>,
) -> Result<(), Error>
where
    T::Sums: Real,
{
    let mut random = Random::new(81);
    let (q, qs) = normals::<T, 4>(cx, &mut random, [batch, len, heads, keys], 1.0);
    let (k, ks) = normals::<T, 4>(cx, &mut random, [batch, len, heads, keys], 1.0);
    let (v, vs) = normals::<T, 4>(cx, &mut random, [batch, len, heads, values], 1.0);
    // Gates that keep nearly all, and such that forget all.
    let (gate, gates) = gates::<T>(cx, &mut random, [-3.0, 0.0], batch * len * heads * keys, forgets);
    let (initial, before) = normals::<T::Sums, 4>(cx, &mut random, [batch, heads, keys, values], 1.0);
    let view = gate.view().reshape([batch, len, heads, keys])?;
    let half = T::Sums::of(0.5);
    let (y, last) = sequence::gated_linear_attention(cx, &q, &k, &v, view, half, Some(initial.view()))?;
    let (y, last) = (y.to_vec()?, last.to_vec()?);
    for (one, head) in (0..batch).flat_map(|one| (0..heads).map(move |head| (one, head))) {
        let own = (one * heads + head) * keys * values;
        let start = before[own..own + keys * values].to_vec();
        let mut state = (start.clone(), start.iter().map(|x| x.abs()).collect());
        let token = |t: usize| (one * len + t) * heads + head;
        let update = |t: usize, h: &mut Vec<f64>, size: &mut Vec<f64>| {
            for at in 0..keys * values {
                let term = ks[token(t) * keys + at / values] * vs[token(t) * values + at % values];
                h[at] += term;
                size[at] += term.abs();
            }
        };
        let decay = |t: usize, i: usize| gates[token(t) * keys + i].exp();
        let want = recurrence((len, keys, values), &mut state, decay, update, |t, i| 0.5 * qs[token(t) * keys + i]);
        let got: Vec<T> = (0..len * values).map(|at| y[token(at / values) * values + at % values]).collect();
        let bound = bound::<T>(len) + decay_error::<T>(forgets, 16);
        assert_close("linear", &got, &want.y, |at, _| bound * want.size[at]);
        assert_close("linear state", &last[own..own + keys * values], &state.0, |at, _| bound * state.1[at]);
    }
    Ok(())
}

#[test]
fn gated_linear_attention_is_its_recurrence() {
    on_every_device(|cx| {
        check_linear::<f64>(cx, [2, 40, 2, 5, 7], None)?;
        check_linear::<f32>(cx, [1, 17, 1, 16, 70], None)?;
        check_linear::<bf16>(cx, [1, 33, 1, 16, 16], None)?;
        check_linear::<f64>(cx, [1, 0, 1, 3, 2], None)
    });
}

/// Gradients of gated linear attention against differences of its results in f64, which are those of the recurrence: of some
/// elements of each input, if `single`, and of all inputs moved in one direction.
fn check_linear_gradients(
    cx: &Context,
    [batch, len, heads, keys, values]: [usize; 5],
    single: bool,
) -> Result<(), Error> {
    let mut random = Random::new(86);
    let mut normal = |len: usize| -> Vec<f64> { (0..len).map(|_| random.normal()).collect() };
    let (tokens, states) = (batch * len * heads, batch * heads * keys * values);
    let mut inputs =
        [normal(tokens * keys), normal(tokens * keys), normal(tokens * values), normal(tokens * keys), normal(states)];
    inputs[3].iter_mut().for_each(|gate| *gate = -0.01 - gate.abs());
    let (dy, dlast) = (normal(tokens * values), normal(states));
    let (of_keys, of_values) = ([batch, len, heads, keys], [batch, len, heads, values]);
    let state = [batch, heads, keys, values];
    let tensors = |inputs: &[Vec<f64>; 5]| {
        let (q, k) = (upload::<f64, 4>(cx, &inputs[0], of_keys)?, upload::<f64, 4>(cx, &inputs[1], of_keys)?);
        let (v, gate) = (upload::<f64, 4>(cx, &inputs[2], of_values)?, upload::<f64, 4>(cx, &inputs[3], of_keys)?);
        Ok::<_, Error>((q, k, v, gate, upload::<f64, 4>(cx, &inputs[4], state)?))
    };
    let loss = |inputs: &[Vec<f64>; 5]| {
        let (q, k, v, gate, initial) = tensors(inputs)?;
        let (y, last) = sequence::gated_linear_attention(cx, &q, &k, &v, &gate, 0.5, Some(initial.view()))?;
        let products = |x: Vec<f64>, y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
        Ok::<f64, Error>(products(y.to_vec()?, &dy) + products(last.to_vec()?, &dlast))
    };
    let (q, k, v, gate, initial) = tensors(&inputs)?;
    let (grad, last) = (upload::<f64, 4>(cx, &dy, of_values)?, upload::<f64, 4>(cx, &dlast, state)?);
    let (initial, last) = (Some(initial.view()), Some(last.view()));
    let got = sequence::gated_linear_attention_backward(cx, &q, &k, &v, &gate, 0.5, initial, &grad, last)?;
    let got = [got.q.to_vec()?, got.k.to_vec()?, got.v.to_vec()?, got.gate.to_vec()?, got.initial.to_vec()?];
    let h = 1e-5;
    // Losses are below 1e4 and have 15 digits; the third derivative along a unit is below 1e4.
    let bound = 1e4 * 1e-15 / h * 4.0 + 1e4 * h * h;
    let difference = |inputs: &[Vec<f64>; 5], directions: &[Vec<f64>; 5]| {
        let mut losses = [0.0; 2];
        for (one, by) in losses.iter_mut().zip([h, -h]) {
            let mut moved = inputs.clone();
            for (moved, direction) in moved.iter_mut().flatten().zip(directions.iter().flatten()) {
                *moved += by * direction;
            }
            *one = loss(&moved)?;
        }
        Ok::<f64, Error>((losses[0] - losses[1]) / (2.0 * h))
    };
    let none: [Vec<f64>; 5] = inputs.clone().map(|input| vec![0.0; input.len()]);
    for which in (0..5).filter(|_| single) {
        for at in (0..got[which].len()).step_by(got[which].len().div_ceil(8)) {
            let mut direction = none.clone();
            direction[which][at] = 1.0;
            let want = difference(&inputs, &direction)?;
            assert!((got[which][at] - want).abs() <= bound, "{which} {at}: {} {want}", got[which][at]);
        }
    }
    let direction = inputs.clone().map(|input| normal(input.len()));
    let length = direction.iter().flatten().map(|x| x * x).sum::<f64>().sqrt();
    let direction = direction.map(|input| input.iter().map(|x| x / length).collect());
    let want = difference(&inputs, &direction)?;
    let along: f64 = got.iter().flatten().zip(direction.iter().flatten()).map(|(got, along)| got * along).sum();
    assert!((along - want).abs() <= bound, "{along} {want}");
    Ok(())
}

#[test]
fn gradients_of_gated_linear_attention_are_differences() {
    on_every_device(|cx| {
        check_linear_gradients(cx, [1, 37, 2, 3, 4], true)?;
        // Other blocks for many keys, and two blocks of values.
        check_linear_gradients(cx, [1, 19, 1, 65, 33], false)
    });
}

fn check_delta<T: Real + general::Real>(
    cx: &Context,
    [batch, len, heads, keys, values]: [usize; 5],
    forgets: Option<f64>,
) -> Result<(), Error>
where
    T::Sums: Real,
{
    let mut random = Random::new(82);
    let small = 0.5 / (keys as f64).sqrt();
    let (q, qs) = normals::<T, 4>(cx, &mut random, [batch, len, heads, keys], 1.0);
    let (k, ks) = normals::<T, 4>(cx, &mut random, [batch, len, heads, keys], small);
    let (v, vs) = normals::<T, 4>(cx, &mut random, [batch, len, heads, values], 1.0);
    let (gate, gates) = gates::<T>(cx, &mut random, [-1.0, 0.0], batch * len * heads, forgets);
    let (beta, rates) = between::<T>(cx, &mut random, 0.0, 1.0, batch * len * heads);
    let (initial, before) = normals::<T::Sums, 4>(cx, &mut random, [batch, heads, keys, values], 1.0);
    let by_time = [batch, len, heads];
    let (gate, beta) = (gate.view().reshape(by_time)?, beta.view().reshape(by_time)?);
    let half = T::Sums::of(0.5);
    let (y, last) = sequence::gated_delta_rule(cx, &q, &k, &v, gate, beta, half, Some(initial.view()))?;
    let (y, last) = (y.to_vec()?, last.to_vec()?);
    for (one, head) in (0..batch).flat_map(|one| (0..heads).map(move |head| (one, head))) {
        let own = (one * heads + head) * keys * values;
        let start = before[own..own + keys * values].to_vec();
        let mut state = (start.clone(), start.iter().map(|x| x.abs()).collect());
        let token = |t: usize| (one * len + t) * heads + head;
        let key = |t: usize, i: usize| ks[token(t) * keys + i];
        let update = |t: usize, h: &mut Vec<f64>, size: &mut Vec<f64>| {
            for j in 0..values {
                let known: f64 = (0..keys).map(|i| key(t, i) * h[i * values + j]).sum();
                let known_size: f64 = (0..keys).map(|i| (key(t, i) * size[i * values + j]).abs()).sum();
                let value = vs[token(t) * values + j];
                for i in 0..keys {
                    h[i * values + j] += rates[token(t)] * key(t, i) * (value - known);
                    size[i * values + j] += rates[token(t)] * key(t, i).abs() * (value.abs() + known_size);
                }
            }
        };
        let decay = |t: usize, _: usize| gates[token(t)].exp();
        let want = recurrence((len, keys, values), &mut state, decay, update, |t, i| 0.5 * qs[token(t) * keys + i]);
        let got: Vec<T> = (0..len * values).map(|at| y[token(at / values) * values + at % values]).collect();
        let bound = bound::<T>(len) + decay_error::<T>(forgets, 32);
        assert_close("delta", &got, &want.y, |at, _| bound * want.size[at]);
        assert_close("delta state", &last[own..own + keys * values], &state.0, |at, _| bound * state.1[at]);
    }
    Ok(())
}

#[test]
fn the_gated_delta_rule_is_its_recurrence() {
    on_every_device(|cx| {
        check_delta::<f64>(cx, [2, 70, 2, 5, 7], None)?;
        check_delta::<f32>(cx, [1, 40, 1, 16, 70], None)?;
        check_delta::<bf16>(cx, [1, 33, 1, 16, 16], None)?;
        check_delta::<f64>(cx, [1, 0, 1, 3, 2], None)
    });
}

fn upload<T: Real, const R: usize>(cx: &Context, reals: &[f64], shape: [usize; R]) -> Result<Tensor<T, R>, Error> {
    Tensor::upload(cx.device(), &reals.iter().map(|x| T::of(*x)).collect::<Vec<_>>(), shape)
}

#[test]
fn sequences_that_do_not_fit() {
    on_every_device(|cx| {
        let x = Tensor::<f32, 4>::zeros(cx.device(), [1, 4, 2, 300])?;
        let gate = Tensor::<f32, 3>::zeros(cx.device(), [1, 4, 2])?;
        assert_eq!(
            message(sequence::gated_delta_rule(cx, &x, &x, &x, &gate, &gate, 1.0, None)),
            "`q` has a state of 300; a state has 1 to 256 elements"
        );
        let y = Tensor::<f32, 4>::zeros(cx.device(), [1, 4, 2, 8])?;
        let short = Tensor::<f32, 3>::zeros(cx.device(), [1, 3, 2])?;
        assert_eq!(
            message(sequence::gated_delta_rule(cx, &y, &y, &y, &gate, &short, 1.0, None)),
            "`beta` has the shape [1, 3, 2]; the other arguments ask for [1, 4, 2]"
        );
        Ok(())
    });
}
