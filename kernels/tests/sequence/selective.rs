//! Selective scans.

use super::{Expected, upload};
use crate::common::{Random, Real, assert_close, on_every_device};
use tilewright::prelude::*;
use tilewright_kernels::sequence::{self, SelectiveScan};
use tilewright_kernels::{Context, general};

/// The inputs of a selective scan.
struct Selective {
    shape: [usize; 4],
    u: Vec<f64>,
    delta: Vec<f64>,
    a: Vec<f64>,
    b: Vec<f64>,
    c: Vec<f64>,
    skip: Vec<f64>,
    bias: Vec<f64>,
}

impl Selective {
    fn new<T: Real>(shape @ [batch, channels, len, state]: [usize; 4]) -> Self {
        let mut random = Random::new(83);
        let mut rounded = |len: usize, factor: f64| -> Vec<f64> {
            (0..len).map(|_| T::of(random.normal() * factor).real()).collect()
        };
        Selective {
            shape,
            u: rounded(batch * channels * len, 1.0),
            delta: rounded(batch * channels * len, 1.0),
            a: rounded(channels * state, 1.0).iter().map(|a| -a.abs()).collect(),
            b: rounded(batch * state * len, 1.0),
            c: rounded(batch * state * len, 1.0),
            skip: rounded(channels, 1.0),
            bias: rounded(channels, 0.5),
        }
    }

    /// The results, with the sizes of what they add up.
    fn expected(&self) -> Expected {
        let [batch, channels, len, state] = self.shape;
        let mut expected = Expected { y: Vec::new(), size: Vec::new() };
        for (one, d) in (0..batch).flat_map(|one| (0..channels).map(move |d| (one, d))) {
            let (mut h, mut size) = (vec![0.0; state], vec![0.0; state]);
            for t in 0..len {
                let at = (one * channels + d) * len + t;
                let step = (self.delta[at] + self.bias[d]).exp().ln_1p();
                let skipped = self.skip[d] * self.u[at];
                let (mut y, mut total) = (skipped, skipped.abs());
                for n in 0..state {
                    let place = (one * state + n) * len + t;
                    let (decay, gain) = ((step * self.a[d * state + n]).exp(), step * self.b[place] * self.u[at]);
                    (h[n], size[n]) = (decay * h[n] + gain, decay * size[n] + gain.abs());
                    y += self.c[place] * h[n];
                    total += self.c[place].abs() * size[n];
                }
                expected.y.push(y);
                expected.size.push(total);
            }
        }
        expected
    }

    /// The loss whose gradient is taken: the products of results and `dy`.
    fn loss(&self, dy: &[f64]) -> f64 {
        self.expected().y.iter().zip(dy).map(|(y, dy)| y * dy).sum()
    }
}

fn check_selective<T: Real + general::Real>(cx: &Context, shape: [usize; 4]) -> Result<(), Error>
where
    T::Sums: Real,
{
    let [batch, channels, len, state] = shape;
    let inputs = Selective::new::<T>(shape);
    let u = upload::<T, 3>(cx, &inputs.u, [batch, channels, len])?;
    let delta = upload::<T, 3>(cx, &inputs.delta, [batch, channels, len])?;
    let a = upload::<T::Sums, 2>(cx, &inputs.a, [channels, state])?;
    let b = upload::<T, 3>(cx, &inputs.b, [batch, state, len])?;
    let c = upload::<T, 3>(cx, &inputs.c, [batch, state, len])?;
    let skip = upload::<T::Sums, 1>(cx, &inputs.skip, [channels])?;
    let bias = upload::<T::Sums, 1>(cx, &inputs.bias, [channels])?;
    let options = SelectiveScan::default().skip(&skip).bias(&bias).softplus();
    let (y, _) = sequence::selective_scan(cx, &u, &delta, &a, &b, &c, options)?;
    let want = inputs.expected();
    // Of each step an exponential (2 + 1.25 |x| units, of its argument, which is off by 8), and products.
    let relative = T::STEP * (40.0 + 8.0 * len as f64);
    assert_close("selective scan", &y.to_vec()?, &want.y, |at, _| relative * want.size[at]);
    Ok(())
}

#[test]
fn a_selective_scan_is_its_recurrence() {
    on_every_device(|cx| {
        check_selective::<f64>(cx, [2, 5, 70, 3])?;
        check_selective::<f32>(cx, [1, 4, 130, 16])?;
        check_selective::<bf16>(cx, [1, 3, 20, 4])
    });
}

/// Every gradient against differences of the recurrence in f64.
#[test]
fn gradients_of_a_selective_scan_are_differences() {
    on_every_device(|cx| {
        let shape @ [batch, channels, len, state] = [2, 3, 67, 2];
        let inputs = Selective::new::<f64>(shape);
        let (dy, dys) = Random::new(84).tensor::<f64, 3>(cx, [batch, channels, len]);
        let u = upload::<f64, 3>(cx, &inputs.u, [batch, channels, len])?;
        let delta = upload::<f64, 3>(cx, &inputs.delta, [batch, channels, len])?;
        let a = upload::<f64, 2>(cx, &inputs.a, [channels, state])?;
        let b = upload::<f64, 3>(cx, &inputs.b, [batch, state, len])?;
        let c = upload::<f64, 3>(cx, &inputs.c, [batch, state, len])?;
        let skip = upload::<f64, 1>(cx, &inputs.skip, [channels])?;
        let bias = upload::<f64, 1>(cx, &inputs.bias, [channels])?;
        let options = SelectiveScan::default().skip(&skip).bias(&bias).softplus();
        let got = sequence::selective_scan_backward(cx, &u, &delta, &a, &b, &c, options, &dy)?;
        type Field = fn(&mut Selective) -> &mut Vec<f64>;
        let fields: [(&str, Vec<f64>, Field); 7] = [
            ("u", got.u.to_vec()?, |x| &mut x.u),
            ("delta", got.delta.to_vec()?, |x| &mut x.delta),
            ("a", got.a.to_vec()?, |x| &mut x.a),
            ("b", got.b.to_vec()?, |x| &mut x.b),
            ("c", got.c.to_vec()?, |x| &mut x.c),
            ("skip", got.skip.map_or(Ok(Vec::new()), |x| x.to_vec())?, |x| &mut x.skip),
            ("bias", got.bias.map_or(Ok(Vec::new()), |x| x.to_vec())?, |x| &mut x.bias),
        ];
        let mut moved = Selective::new::<f64>(shape);
        for (name, got, field) in fields {
            assert_eq!(got.len(), field(&mut moved).len(), "{name}");
            // All of few, some of many: with both ends and both sides of a tile's end.
            for at in (0..got.len()).filter(|at| got.len() < 20 || at % 31 == 0 || (62..67).contains(&(at % 67))) {
                let h = 1e-5;
                let mut losses = [0.0; 2];
                for (loss, by) in losses.iter_mut().zip([h, -h]) {
                    field(&mut moved)[at] += by;
                    *loss = moved.loss(&dys);
                    field(&mut moved)[at] -= by;
                }
                let want = (losses[0] - losses[1]) / (2.0 * h);
                // Losses are below 1e4 and have 15 digits; the third derivative is below 1e4.
                let error = (got[at] - want).abs();
                assert!(error <= 1e4 * 1e-15 / h * 4.0 + 1e4 * h * h, "{name} {at}: {} {want}", got[at]);
            }
        }
        Ok(())
    });
}
