use crate::common::{Random, Real, assert_close, assert_slopes, differences, message, on_every_device, reals};
use tilewright::prelude::*;
use tilewright_kernels::rows::{self, Dropout, EmbeddingWorkspace, Gelu, Pairs, Rotary};
use tilewright_kernels::{Context, Table, Tensor, TensorView};

#[derive(Clone, Copy, PartialEq)]
enum Gate {
    Silu,
    Gelu(Gelu),
}

const GATES: [Gate; 3] = [Gate::Silu, Gate::Gelu(Gelu::Tanh), Gate::Gelu(Gelu::Erf)];

/// The error function: its series, which loses no more than `exp(x^2)` of f64's digits; 1 where that says nothing.
fn erf(x: f64) -> f64 {
    if x.abs() > 5.0 {
        return x.signum();
    }
    let (mut term, mut sum, mut n) = (x, x, 0.0);
    while term.abs() > 1e-18 * sum.abs() {
        n += 1.0;
        term *= -x * x / n;
        sum += term / (2.0 * n + 1.0);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

impl Gate {
    /// The value, the derivative, and the size of what cancels in each, in units of half the last place: exponentials err
    /// by 4 + 2.5 |u| of them, and a dozen operations follow.
    fn of(self, a: f64) -> (f64, f64, f64) {
        let logistic = |u: f64| 1.0 / (1.0 + (-u).exp());
        match self {
            Gate::Silu => {
                let s = logistic(a);
                (a * s, s * (1.0 + a * (1.0 - s)), (24.0 + 8.0 * a.abs()) * (1.0 + a.abs()) * s)
            }
            Gate::Gelu(Gelu::Tanh) => {
                let k = 2.0 * (2.0 / std::f64::consts::PI).sqrt();
                let cubed = 0.044715 * a * a;
                let (u, slope) = (k * a * (1.0 + cubed), k * (1.0 + 3.0 * cubed));
                let s = logistic(u);
                let size = (24.0 + 8.0 * u.abs()) * (1.0 + a.abs() * (1.0 + slope)) * s;
                (a * s, s + a * s * (1.0 - s) * slope, size)
            }
            Gate::Gelu(Gelu::Erf) => {
                let p = 0.5 * (1.0 + erf(a / std::f64::consts::SQRT_2));
                let density = (-0.5 * a * a).exp() / std::f64::consts::TAU.sqrt();
                // `1 + erf` of negative numbers is a difference.
                (a * p, p + a * density, (24.0 + 4.0 * a * a) * (1.0 + a.abs()))
            }
        }
    }

    fn forward<T: Float>(
        self,
        cx: &Context,
        a: TensorView<'_, T, 2>,
        b: TensorView<'_, T, 2>,
    ) -> Result<Tensor<T, 2>, Error> {
        match self {
            Gate::Silu => rows::swiglu(cx, a, b),
            Gate::Gelu(gelu) => rows::geglu(cx, a, b, gelu),
        }
    }

    #[allow(clippy::type_complexity)]
    fn backward<T: Float>(
        self,
        cx: &Context,
        a: TensorView<'_, T, 2>,
        b: TensorView<'_, T, 2>,
        dy: TensorView<'_, T, 2>,
    ) -> Result<(Tensor<T, 2>, Tensor<T, 2>), Error> {
        match self {
            Gate::Silu => rows::swiglu_backward(cx, a, b, dy),
            Gate::Gelu(gelu) => rows::geglu_backward(cx, a, b, gelu, dy),
        }
    }
}

fn check_gate<T: Real>(cx: &Context, gate: Gate, shape: [usize; 2]) -> Result<(), Error> {
    let mut random = Random::new(shape[1] as u64);
    let (a, a_reals) = random.tensor::<T, 2>(cx, shape);
    let (b, b_reals) = random.tensor::<T, 2>(cx, shape);
    let (dy, dy_reals) = random.tensor::<T, 2>(cx, shape);
    let each: Vec<_> = a_reals.iter().map(|a| gate.of(*a)).collect();
    let want: Vec<f64> = each.iter().zip(&b_reals).map(|((value, ..), b)| value * b).collect();
    let bound = |at: usize, factor: f64| T::STEP * each[at].2 * factor.abs();
    let y = gate.forward(cx, a.view(), b.view())?;
    assert_close("gated", &y.to_vec()?, &want, |at, _| bound(at, b_reals[at]));
    let (da, db) = gate.backward(cx, a.view(), b.view(), dy.view())?;
    let factors: Vec<f64> = b_reals.iter().zip(&dy_reals).map(|(b, dy)| b * dy).collect();
    let want: Vec<f64> = each.iter().zip(&factors).map(|((_, slope, _), factor)| slope * factor).collect();
    assert_close("da", &da.to_vec()?, &want, |at, _| bound(at, factors[at]));
    let want: Vec<f64> = each.iter().zip(&dy_reals).map(|((value, ..), dy)| value * dy).collect();
    assert_close("db", &db.to_vec()?, &want, |at, _| bound(at, dy_reals[at]));

    // In place, the same numbers.
    let (mut a, mut b) = (a, b);
    match gate {
        Gate::Silu => rows::swiglu_backward_in_place(cx, &mut a, &mut b, &dy)?,
        Gate::Gelu(gelu) => rows::geglu_backward_in_place(cx, &mut a, &mut b, gelu, &dy)?,
    }
    assert_eq!((reals(&a.to_vec()?), reals(&b.to_vec()?)), (reals(&da.to_vec()?), reals(&db.to_vec()?)));
    Ok(())
}

#[test]
fn gated_activations_in_every_dtype() {
    on_every_device(|cx| {
        for gate in GATES {
            check_gate::<f32>(cx, gate, [1, 1])?;
            check_gate::<f32>(cx, gate, [3, 700])?;
            check_gate::<f16>(cx, gate, [2, 64])?;
            check_gate::<bf16>(cx, gate, [2, 1025])?;
            check_gate::<f64>(cx, gate, [2, 50])?;
        }
        Ok(())
    });
}

/// Both halves of one tensor, as a fused linear layer leaves them.
#[test]
fn gated_halves_of_one_tensor() {
    on_every_device(|cx| {
        let (both, x) = Random::new(2).tensor::<f32, 2>(cx, [3, 2 * 1100]);
        let (a, b) = (both.view().narrow(1, 0..1100)?, both.view().narrow(1, 1100..2200)?);
        let y = rows::swiglu(cx, a, b)?;
        let each = |at: usize| (Gate::Silu.of(x[at / 1100 * 2200 + at % 1100]), x[at / 1100 * 2200 + 1100 + at % 1100]);
        let want: Vec<f64> = (0..3300).map(|at| each(at).0.0 * each(at).1).collect();
        assert_close("halves", &y.to_vec()?, &want, |at, _| f32::STEP * each(at).0.2 * each(at).1.abs());
        // Its gradient, into the halves of one.
        let (dy, _) = Random::new(3).tensor::<f32, 2>(cx, [3, 1100]);
        let (da, db) = rows::swiglu_backward(cx, a, b, &dy)?;
        let mut dx = Tensor::<f32, 2>::empty(cx.device(), [3, 2 * 1100])?;
        rows::swiglu_backward_halves_into(cx, &both, &dy, &mut dx)?;
        let halves = dx.to_vec()?;
        for (at, row) in halves.chunks(2 * 1100).enumerate() {
            assert_eq!(row[..1100], da.to_vec()?[at * 1100..(at + 1) * 1100]);
            assert_eq!(row[1100..], db.to_vec()?[at * 1100..(at + 1) * 1100]);
        }
        assert_eq!(
            message(rows::swiglu_backward_halves_into(cx, &dy, &dy, &mut dx)),
            "`x` has the shape [3, 1100]; the other arguments ask for [3, 2200]"
        );
        let short = both.view().narrow(1, 0..7)?;
        assert_eq!(
            message(rows::swiglu(cx, a, short)),
            "`b` has the shape [3, 7]; the other arguments ask for [3, 1100]"
        );
        let none = a.narrow(0, 1..1)?;
        assert_eq!(rows::swiglu(cx, none, none)?.len(), 0);
        Ok(())
    });
}

#[test]
fn gradients_of_gates_are_slopes() {
    on_every_device(|cx| {
        for gate in GATES {
            let mut random = Random::new(4);
            let (a, a_reals) = random.tensor::<f64, 2>(cx, [1, 8]);
            let (b, _) = random.tensor::<f64, 2>(cx, [1, 8]);
            let (dy, dy_reals) = random.tensor::<f64, 2>(cx, [1, 8]);
            let f = |a: &[f64]| {
                let a = Tensor::upload(cx.device(), a, [1, 8]).unwrap();
                gate.forward(cx, a.view(), b.view()).unwrap().to_vec().unwrap()
            };
            let (da, _) = gate.backward(cx, a.view(), b.view(), dy.view())?;
            let at = [0, 1, 2, 3, 4, 5, 6, 7];
            assert_slopes("gate", &da.to_vec()?, &at, &differences(&a_reals, &dy_reals, &at, f));
        }
        Ok(())
    });
}

/// `x` rotated; `table` gives the row of each token.
fn rotated(
    x: &[f64],
    [tokens, heads, dim]: [usize; 3],
    pairs: Pairs,
    angle: impl Fn(usize, usize) -> (f64, f64),
) -> Vec<f64> {
    let mut out = x.to_vec();
    for token in 0..tokens {
        for head in 0..heads {
            let first = (token * heads + head) * dim;
            for i in 0..dim / 2 {
                let (a, b) = match pairs {
                    Pairs::Halves => (first + i, first + i + dim / 2),
                    Pairs::Interleaved => (first + 2 * i, first + 2 * i + 1),
                };
                let (cos, sin) = angle(token, i);
                (out[a], out[b]) = (x[a] * cos - x[b] * sin, x[b] * cos + x[a] * sin);
            }
        }
    }
    out
}

/// In place, alone and as some of the heads of each token, it is what it is apart.
fn check_rotary_in_place<T: Real>(
    cx: &Context,
    x: &Tensor<T, 4>,
    [cos, sin]: [&Tensor<f32, 2>; 2],
    options: &Rotary<'_>,
    apart: &Tensor<T, 4>,
) -> Result<(), Error> {
    let mut alone = Tensor::upload(cx.device(), &x.to_vec()?, x.shape())?;
    rows::rotary_in_place(cx, &mut alone, cos, sin, options)?;
    assert_eq!(reals(&alone.to_vec()?), reals(&apart.to_vec()?));
    let [batch, tokens, heads, dim] = x.shape();
    let token = heads * dim;
    let around: Vec<T> = x.to_vec()?.chunks(token).flat_map(|token| token.repeat(3)).collect();
    let mut part = Tensor::upload(cx.device(), &around, [batch, tokens, 3 * heads, dim])?;
    rows::rotary_in_place(cx, part.view_mut().narrow(2, heads..2 * heads)?, cos, sin, options)?;
    let (got, before, expected) = (reals(&part.to_vec()?), reals(&around), reals(&apart.to_vec()?));
    for (at, (got, before)) in got.chunks(token).zip(before.chunks(token)).enumerate() {
        let rotated = &expected[at / 3 * token..][..token];
        assert_eq!(got, if at % 3 == 1 { rotated } else { before }, "part {at}");
    }
    Ok(())
}

fn check_rotary<T: Real>(cx: &Context, [batch, tokens, heads, dim]: [usize; 4]) -> Result<(), Error> {
    let mut random = Random::new(dim as u64);
    let (x, x_reals) = random.tensor::<T, 4>(cx, [batch, tokens, heads, dim]);
    let (cos, sin) = rows::rotary_tables(cx, 3 * tokens, dim, 10_000.0)?;
    let (cosines, sines) = (reals(&cos.to_vec()?), reals(&sin.to_vec()?));
    let given: Vec<i32> = (0..batch * tokens).map(|_| random.below(3 * tokens) as i32).collect();
    let positions = Tensor::upload(cx.device(), &given, [batch, tokens])?;
    for pairs in [Pairs::Halves, Pairs::Interleaved] {
        for has_positions in [false, true] {
            let mut options = Rotary::default().pairs(pairs);
            if has_positions {
                options = options.positions(&positions);
            }
            let row = |token: usize| if has_positions { given[token] as usize } else { token % tokens };
            let angle = |token: usize, i: usize| {
                let at = row(token) * (dim / 2) + i;
                (cosines[at], sines[at])
            };
            let want = rotated(&x_reals, [batch * tokens, heads, dim], pairs, angle);
            let y = rows::rotary(cx, &x, &cos, &sin, &options)?;
            // Two products and a sum of elements below 6.
            assert_close("rotary", &y.to_vec()?, &want, |_, _| T::STEP * 2.0 * 12.0);
            let back = |token: usize, i: usize| (angle(token, i).0, -angle(token, i).1);
            let want = rotated(&x_reals, [batch * tokens, heads, dim], pairs, back);
            let dx = rows::rotary(cx, &x, &cos, &sin, &options.backward())?;
            assert_close("backward", &dx.to_vec()?, &want, |_, _| T::STEP * 2.0 * 12.0);
            for (options, apart) in [(options, y), (options.backward(), dx)] {
                check_rotary_in_place(cx, &x, [&cos, &sin], &options, &apart)?;
            }
        }
    }
    Ok(())
}

#[test]
fn rotary_in_every_dtype() {
    on_every_device(|cx| {
        check_rotary::<f32>(cx, [2, 5, 3, 16])?;
        check_rotary::<f32>(cx, [1, 1, 1, 2])?;
        check_rotary::<f16>(cx, [1, 3, 2, 64])?;
        check_rotary::<bf16>(cx, [2, 3, 5, 24])?;
        check_rotary::<f64>(cx, [1, 4, 2, 6])
    });
}

/// Heads before tokens, and a part of each head.
#[test]
fn rotary_of_strided_heads() {
    on_every_device(|cx| {
        let (mut x, x_reals) = Random::new(9).tensor::<f32, 4>(cx, [1, 2, 3, 16]);
        let (cos, sin) = rows::rotary_tables(cx, 3, 8, 100.0)?;
        let (cosines, sines) = (reals(&cos.to_vec()?), reals(&sin.to_vec()?));
        let part = x.view_mut().transpose(1, 2)?.narrow(3, 4..12)?;
        rows::rotary_in_place(cx, part, &cos, &sin, &Rotary::default())?;
        let got = x.to_vec()?;
        for (head, token) in (0..2).flat_map(|head| (0..3).map(move |token| (head, token))) {
            let first = (head * 3 + token) * 16;
            let angle = |_: usize, i: usize| (cosines[token * 4 + i], sines[token * 4 + i]);
            let mut want = x_reals[first..first + 16].to_vec();
            want[4..12].copy_from_slice(&rotated(&x_reals[first + 4..first + 12], [1, 1, 8], Pairs::Halves, angle));
            assert_close("part", &got[first..first + 16], &want, |_, _| f32::STEP * 24.0);
        }
        let odd = x.view().narrow(3, 0..7)?;
        assert_eq!(
            message(rows::rotary(cx, odd, &cos, &sin, &Rotary::default())),
            "`x` has heads of 7 elements; their number is even: elements are rotated in pairs"
        );
        let wide = x.view();
        assert_eq!(
            message(rows::rotary(cx, wide, &cos, &sin, &Rotary::default())),
            "`cos` has the shape [3, 4]; give a row of 8 cosines for each position, 2 rows at least"
        );
        Ok(())
    });
}

#[test]
fn a_position_outside_the_tables_is_reported() {
    on_every_device(|cx| {
        let x = Tensor::<f32, 4>::zeros(cx.device(), [1, 2, 1, 4])?;
        let (cos, sin) = rows::rotary_tables(cx, 3, 4, 100.0)?;
        let positions = Tensor::upload(cx.device(), &[1, 3], [1, 2])?;
        let y = rows::rotary(cx, &x, &cos, &sin, &Rotary::default().positions(&positions))?;
        let error = message(y.to_vec());
        assert!(error.contains("cos_table"), "{error}");
        Ok(())
    });
}

/// Word `index % 4` of Philox 4x32-10 with the counter `index / 4`.
fn philox(seed: u64, index: u64) -> u32 {
    let counter = index / 4;
    let (mut c, mut k) = ([counter as u32, (counter >> 32) as u32, 0, 0], [seed as u32, (seed >> 32) as u32]);
    for _ in 0..10 {
        let (a, b) = (u64::from(c[0]) * 0xD251_1F53, u64::from(c[2]) * 0xCD9E_8D57);
        c = [(b >> 32) as u32 ^ c[1] ^ k[0], b as u32, (a >> 32) as u32 ^ c[3] ^ k[1], a as u32];
        k = [k[0].wrapping_add(0x9E37_79B9), k[1].wrapping_add(0xBB67_AE85)];
    }
    c[(index % 4) as usize]
}

#[test]
fn dropout_drops_what_philox_says() {
    on_every_device(|cx| {
        let (x, x_reals) = Random::new(1).tensor::<f16, 2>(cx, [3, 701]);
        for p in [0.0f32, 0.3, 1.0] {
            let dropout = Dropout { p, seed: 0x1234_5678_9ABC };
            let y = rows::dropout(cx, &x, dropout)?;
            let kept =
                |at: usize| f64::from(philox(0x1234_5678_9ABC, at as u64)) >= (f64::from(p) * 2f64.powi(32)).round();
            let scale = 1.0 / (1.0 - f64::from(p));
            let want: Vec<f64> =
                x_reals.iter().enumerate().map(|(at, x)| if kept(at) { x * scale } else { 0.0 }).collect();
            assert_close("dropout", &y.to_vec()?, &want, |_, want| 2.0 * f32::ROUNDING * want.abs());
            let mut in_place = Tensor::upload(cx.device(), &x.to_vec()?, x.shape())?;
            rows::dropout_in_place(cx, &mut in_place, dropout)?;
            assert_eq!(reals(&in_place.to_vec()?), reals(&y.to_vec()?));
        }
        // The share of zeros: five deviations of a binomial distribution.
        let ones = Tensor::upload(cx.device(), &vec![1.0f32; 20_000], [20_000])?;
        let zeros =
            rows::dropout(cx, &ones, Dropout { p: 0.3, seed: 5 })?.to_vec()?.iter().filter(|x| **x == 0.0).count();
        assert!((zeros as f64 - 6000.0).abs() < 5.0 * (20_000.0f64 * 0.3 * 0.7).sqrt(), "{zeros}");
        assert_eq!(
            message(rows::dropout(cx, &ones, Dropout { p: 1.5, seed: 5 })),
            "`p` of dropout is set to `1.5`; expected a number from 0 to 1"
        );
        assert!(message(rows::dropout(cx, x.view().permute([1, 0])?, Dropout { p: 0.5, seed: 5 })).contains("gaps"));
        Ok(())
    });
}

#[test]
fn embeddings_and_their_gradients() {
    on_every_device(|cx| {
        let mut random = Random::new(6);
        for (entries, columns, n) in [(5, 1, 3), (7, 100, 40), (3, 1100, 9)] {
            let (table, table_reals) = random.tensor::<bf16, 2>(cx, [entries, columns]);
            let ids: Vec<i64> = (0..n).map(|_| random.below(entries) as i64).collect();
            let given = Tensor::upload(cx.device(), &ids, [n])?;
            let y = rows::embedding(cx, &table, &given)?;
            let row = |id: &i64| table_reals[*id as usize * columns..][..columns].to_vec();
            assert_eq!(reals(&y.to_vec()?), ids.iter().flat_map(row).collect::<Vec<_>>());

            let (dy, dy_reals) = random.tensor::<bf16, 2>(cx, [n, columns]);
            let (mut want, mut size) = (vec![1.0; entries * columns], vec![1.0; entries * columns]);
            for (at, id) in ids.iter().enumerate() {
                for column in 0..columns {
                    want[*id as usize * columns + column] += dy_reals[at * columns + column];
                    size[*id as usize * columns + column] += dy_reals[at * columns + column].abs();
                }
            }
            let mut dtable = Tensor::upload(cx.device(), &vec![1.0f32; entries * columns], [entries, columns])?;
            rows::embedding_backward(cx, &dy, &given, &mut dtable)?;
            assert_close("atomic", &dtable.to_vec()?, &want, |at, _| f32::ROUNDING * n as f64 * size[at]);
            let order = Tensor::upload(cx.device(), &rows::positions_in_order(&ids), [n])?;
            let mut dtable = Tensor::upload(cx.device(), &vec![1.0f32; entries * columns], [entries, columns])?;
            rows::embedding_backward_ordered(cx, &dy, &given, &order, &mut dtable)?;
            assert_close("ordered", &dtable.to_vec()?, &want, |at, _| f32::ROUNDING * n as f64 * size[at]);
        }
        Ok(())
    });
}

/// What f32 adds to a table of f64 costs none of its digits.
#[test]
fn a_table_of_f64_keeps_its_digits() {
    on_every_device(|cx| {
        let before = 1.0 + 0.5f64.powi(40);
        let mut dtable = Tensor::upload(cx.device(), &[before; 4], [2, 2])?;
        let dy = Tensor::upload(cx.device(), &[0.5f32, 1.0, 0.25, 2.0], [2, 2])?;
        let (ids, order) = (Tensor::upload(cx.device(), &[1, 1], [2])?, Tensor::upload(cx.device(), &[0, 1], [2])?);
        rows::embedding_backward_ordered(cx, &dy, &ids, &order, &mut dtable)?;
        assert_eq!(dtable.to_vec()?, [before, before, before + 0.75, before + 3.0]);
        Ok(())
    });
}

/// The gradient of a table alone: twice the same, and into a part of a tensor of another dtype.
fn check_gradient_of_table<I: Int>(cx: &Context, ids: &[I], [entries, columns]: [usize; 2], id: impl Fn(&I) -> usize) {
    let n = ids.len();
    let mut random = Random::new(n as u64);
    let given = Tensor::upload(cx.device(), ids, [n]).unwrap();
    let (dy, reals) = random.tensor::<bf16, 2>(cx, [n, columns]);
    let (mut want, mut size) = (vec![0.0; entries * columns], vec![0.0; entries * columns]);
    for (at, row) in ids.iter().map(id).enumerate() {
        for column in 0..columns {
            want[row * columns + column] += reals[at * columns + column];
            size[row * columns + column] += reals[at * columns + column].abs();
        }
    }
    // No more additions than positions.
    let bound = |at: usize, _: f64| f32::ROUNDING * n as f64 * size[at];
    let what = format!("{n} indices of [{entries}, {columns}]");
    let rounded = rows::embedding_gradient(cx, &dy, &given, entries).unwrap().to_vec().unwrap();
    assert_close(&what, &rounded, &want, bound);
    assert_eq!(rows::embedding_gradient(cx, &dy, &given, entries).unwrap().to_vec().unwrap(), rounded, "{what}: again");
    // Into parts of another tensor, full of what should not stay.
    let mut wide =
        Tensor::upload(cx.device(), &vec![f32::NAN; entries * (columns + 3)], [entries, columns + 3]).unwrap();
    let mut order = Tensor::zeros(cx.device(), [EmbeddingWorkspace::<f32>::order(n, entries)]).unwrap();
    let mut sums = Tensor::zeros(cx.device(), [EmbeddingWorkspace::<f32>::sums(n), columns]).unwrap();
    let workspace = EmbeddingWorkspace { order: order.view_mut(), sums: sums.view_mut() };
    let part = wide.view_mut().narrow(1, 0..columns).unwrap();
    rows::embedding_gradient_into(cx, &dy, &given, workspace, part).unwrap();
    let part = wide.view().narrow(1, 0..columns).unwrap().to_vec().unwrap();
    assert_close(&what, &part, &want, bound);
    assert!(wide.view().narrow(1, columns..columns + 3).unwrap().to_vec().unwrap().iter().all(|x| x.is_nan()));
}

#[test]
fn gradients_of_tables_of_any_indices() {
    on_every_device(|cx| {
        let mut random = Random::new(9);
        for (n, entries, columns) in
            [(3, 5, 1), (100, 7, 33), (513, 300, 5), (700, 2, 100), (40, 70_000, 2), (9, 3, 1100)]
        {
            let ids: Vec<usize> = (0..n).map(|_| random.below(entries)).collect();
            let (long, short): (Vec<i64>, Vec<i32>) = ids.iter().map(|id| (*id as i64, *id as i32)).unzip();
            check_gradient_of_table(cx, &long, [entries, columns], |id| *id as usize);
            check_gradient_of_table(cx, &short, [entries, columns], |id| *id as usize);
        }
        // One index has all positions: many chunks, none, and longer ones.
        for n in [1000, 31, 70_000, 270_000] {
            check_gradient_of_table(cx, &vec![6i64; n], [9, 1], |id| *id as usize);
        }
        // Runs that are a chunk of 64, end where one ends, begin where one begins, and reach over some at either end.
        let runs = [(8, 130), (7, 200), (5, 28), (4, 100), (2, 162), (1, 30), (0, 64)];
        let runs: Vec<i32> = runs.into_iter().flat_map(|(id, n)| vec![id; n]).collect();
        check_gradient_of_table(cx, &runs, [9, 20], |id| *id as usize);
        check_gradient_of_table::<i64>(cx, &[], [4, 10], |id| *id as usize);
        check_gradient_of_table::<i64>(cx, &[], [0, 10], |id| *id as usize);
        // In f64 nothing is rounded to f32.
        let (dy, reals) = random.tensor::<f64, 2>(cx, [100, 2]);
        let ids = Tensor::<u8, 1>::zeros(cx.device(), [100])?;
        let want = [0, 1].map(|column| reals.iter().skip(column).step_by(2).sum::<f64>());
        let got = rows::embedding_gradient(cx, &dy, &ids, 1)?.to_vec()?;
        assert_close("f64", &got, &want, |_, _| 100.0 * 100.0 * f64::ROUNDING);
        Ok(())
    });
}

#[test]
fn rows_that_a_table_sums_at_once_fit_into_a_chunk() {
    on_every_device(|cx| {
        let (dy, _) = Random::new(3).tensor::<f32, 2>(cx, [300, 6]);
        let ids = Tensor::<i32, 1>::zeros(cx.device(), [300])?;
        let want = reals(&rows::embedding_gradient(cx, &dy, &ids, 2)?.to_vec()?);
        for (rows_at_once, fits) in [(1, false), (2, true), (64, true), (48, false), (128, false)] {
            let table = Table::parse(&format!(
                "[[embedding]]\ndevice = \"{}\"\ndtype = \"f32, sums\"\nsizes = [2, 6]\nconfig = {{ rows = {rows_at_once}, block = 32, num_warps = 1 }}",
                cx.device().name()
            ))?;
            let found = rows::embedding_gradient(&cx.clone().with_table(table), &dy, &ids, 2);
            let Err(error) = found.as_ref().map(|_| ()) else {
                assert!(fits, "{rows_at_once}");
                assert_close("sums", &found?.to_vec()?, &want, |_, _| 600.0 * 300.0 * f32::ROUNDING);
                continue;
            };
            assert!(!fits && error.to_string().contains("rows and block of embedding sums"), "{rows_at_once}: {error}");
        }
        Ok(())
    });
}

#[test]
fn an_index_outside_the_table_is_reported() {
    on_every_device(|cx| {
        let table = Tensor::<f32, 2>::zeros(cx.device(), [4, 6])?;
        for wrong in [4, -1] {
            let ids = Tensor::upload(cx.device(), &[1, wrong], [2])?;
            let error = message(rows::embedding(cx, &table, &ids)?.to_vec());
            assert!(error.contains("an index is no row of the table"), "{error}");
            let dy = Tensor::<f16, 2>::zeros(cx.device(), [2, 6])?;
            let gradient = rows::embedding_gradient(cx, &dy, &ids, 4).and_then(|gradient| gradient.to_vec());
            assert!(message(gradient).contains("an index is no row of the table"));
        }
        let none = Tensor::<i32, 1>::zeros(cx.device(), [0])?;
        assert_eq!(rows::embedding(cx, &table, &none)?.shape(), [0, 6]);
        Ok(())
    });
}
