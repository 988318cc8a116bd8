//! Operators of `tilewright-ffi`, which PyTorch and JAX call too.

use crate::common::{Random, Sum, assert_close, check_gradients, on_every_device};
use candle_core::{DType, Device, Var};
use tilewright_candle::prelude::*;
use tilewright_candle::rows::{Pairs, rotary, swiglu};
use tilewright_ffi_example as example;

/// The message of an error that must be, without where it was made.
#[track_caller]
fn message<T>(result: candle_core::Result<T>) -> String {
    crate::common::message(result).lines().next().unwrap_or_default().to_string()
}

/// Operators that the example has not.
mod own {
    use tilewright::prelude::*;
    use tilewright_ffi::prelude::*;

    /// to = a * x + b * y
    #[kernel]
    fn sum<const BLOCK: usize>(x: Ptr<f32>, y: Ptr<f32>, to: PtrMut<f32>, a: f64, b: f64, n: i64) {
        let at = program_id(0) as i64 * BLOCK + arange(0, BLOCK) as i64;
        let mask = at < n;
        let sum = a as f32 * load(x + at, mask = mask) + b as f32 * load(y + at, mask = mask);
        store(to + at, sum, mask = mask);
    }

    fn add(x: TensorRef<'_>, y: TensorRef<'_>, to: TensorMut<'_>, [a, b]: [f64; 2]) -> Result<()> {
        let (n, device) = (x.len(), x.device());
        sum::<64>(x.flat::<f32>()?, y.flat::<f32>()?, to.flat_mut::<f32>()?, a, b, n as i64)
            .grid(n.div_ceil(64))
            .launch(device)?;
        Ok(())
    }

    /// `mean` and `square` take a part of `x` and of `y`.
    #[op]
    pub fn averages(mean: TensorMut<'_>, x: TensorRef<'_>, square: TensorMut<'_>, y: TensorRef<'_>) -> Result<()> {
        let device = x.device();
        for (mut to, from) in [(mean, x), (square, y)] {
            let before = device.zeros::<f32>(from.len())?;
            let n = from.len();
            let mut sums = device.zeros::<f32>(n)?;
            sum::<64>(to.as_ref().flat::<f32>()?, from.flat::<f32>()?, &mut sums, 0.5, 0.5, n as i64)
                .grid(n.div_ceil(64))
                .launch(device)?;
            sum::<64>(&sums, &before, to.reborrow().flat_mut::<f32>()?, 1.0, 0.0, n as i64)
                .grid(n.div_ceil(64))
                .launch(device)?;
        }
        Ok(())
    }

    /// `a + b + c + d`, `a - b`.
    #[op(out(all: like(a), difference: like(a)), backward = four_backward)]
    pub fn four(
        a: TensorRef<'_>,
        b: TensorRef<'_>,
        c: TensorRef<'_>,
        d: TensorRef<'_>,
        all: TensorMut<'_>,
        difference: TensorMut<'_>,
        scratch: &Scratch<'_>,
    ) -> Result<()> {
        let (n, device) = (a.len(), a.device());
        let (mut first, mut last) = (scratch.take::<f32>(n)?, scratch.take::<f32>(n)?);
        let grid = n.div_ceil(64);
        sum::<64>(a.flat::<f32>()?, b.flat::<f32>()?, &mut first, 1.0, 1.0, n as i64).grid(grid).launch(device)?;
        sum::<64>(c.flat::<f32>()?, d.flat::<f32>()?, &mut last, 1.0, 1.0, n as i64).grid(grid).launch(device)?;
        sum::<64>(&first, &last, all.flat_mut::<f32>()?, 1.0, 1.0, n as i64).grid(grid).launch(device)?;
        add(a, b, difference, [1.0, -1.0])
    }

    /// The gradients of [`four`]: `b` has none, those of `c` and `d` are one.
    #[op(out(d_a: like(d_all), d_c_and_d: like(d_all)))]
    pub fn four_backward(
        d_all: TensorRef<'_>,
        d_difference: TensorRef<'_>,
        difference: TensorRef<'_>,
        d_a: TensorMut<'_>,
        d_c_and_d: TensorMut<'_>,
    ) -> Result<()> {
        add(d_all, d_difference, d_a, [1.0, 1.0])?;
        // What is kept of the call takes part in it, times nothing.
        add(d_all, difference, d_c_and_d, [1.0, 0.0])
    }

    /// `a + b`
    #[op(out(y: like(a)), backward = misfit_backward)]
    pub fn misfit(a: TensorRef<'_>, b: TensorRef<'_>, y: TensorMut<'_>) -> Result<()> {
        add(a, b, y, [1.0, 1.0])
    }

    /// No gradients of [`misfit`]: one has another dtype than its tensor, the other another shape.
    #[op(out(d_a: f64[..d_y.shape], d_b: d_y.dtype[d_y.shape[0]]))]
    pub fn misfit_backward(d_y: TensorRef<'_>, d_a: TensorMut<'_>, d_b: TensorMut<'_>) -> Result<()> {
        let _ = (d_y, d_a, d_b);
        Ok(())
    }

    /// Changes nothing.
    #[op]
    pub fn holds(a: TensorMut<'_>, b: TensorMut<'_>) -> Result<()> {
        let _ = (a, b);
        Ok(())
    }
}

from_op! {
    /// `x * sigmoid(x)`.
    fn silu(x: &Tensor) -> Tensor = example::silu;
    fn scaled(x: &Tensor, weight: Option<&Tensor>, factor: f64) -> Tensor = example::scaled;
    fn doubled(x: &Tensor) -> Tensor = example::scaled;
    fn scaled_by(x: &Tensor, weight: &Tensor) -> Tensor = example::scaled;
    fn both_scaled(x: &Tensor, w: Option<&Tensor>, factor: f64) -> [Tensor; 2] = example::both_scaled;
    fn first_scaled(x: &Tensor, w: Option<&Tensor>, factor: f64) -> Tensor = example::both_scaled;
    fn row_sum(x: &Tensor) -> Tensor = example::row_sum;
    fn pairs(x: &Tensor, count: i64) -> [Tensor; 2] = example::pairs;
    fn even(x: &Tensor) -> Tensor = example::pairs;
    fn add_assign(x: &Tensor, y: &Tensor, alpha: f64) = example::add_assign;
    fn reversed(x: &Tensor, how: &str) -> Tensor = example::reversed;
    fn shifted(x: &Tensor, by: Option<f64>, negative: bool) -> Tensor = example::shifted;
    fn panics(x: &Tensor) -> Tensor = example::panics;
    fn out_of_bounds(x: &Tensor) -> Tensor = example::launches_out_of_bounds;
    fn averages(mean: &Tensor, x: &Tensor, square: &Tensor, y: &Tensor) = own::averages;
    fn four(a: &Tensor, b: &Tensor, c: &Tensor, d: &Tensor) -> Tensor = own::four;
    fn misfit(a: &Tensor, b: &Tensor) -> Tensor = own::misfit;
    fn holds(a: &Tensor, b: &Tensor) = own::holds;
    fn four_and_difference(a: &Tensor, b: &Tensor, c: &Tensor, d: &Tensor) -> [Tensor; 2] = own::four;
}

#[test]
fn an_operator_is_an_op_with_a_gradient() {
    on_every_device(|device| {
        let x = Random::new(31).variable(&[3, 50], device)?;
        let sum = Sum::of(4, 8.0);
        // The operator computes in the dtype of its tensors.
        for dtype in [DType::F32, DType::F64] {
            let x = x.detach().to_dtype(dtype)?;
            assert_close("silu", &silu(&x)?, &x.silu()?, sum);
        }
        check_gradients("silu", &[&x], sum, |x| silu(&x[0]), |x| x[0].silu())
    });
}

#[test]
fn what_is_optional_may_be_missing() {
    on_every_device(|device| {
        let mut random = Random::new(32);
        let (x, weight) = (random.variable(&[3, 8], device)?, random.variable(&[8], device)?);
        let sum = Sum::of(3, 8.0);
        let with = |x: &[Tensor]| scaled(&x[0], Some(&x[1]), 3.0);
        check_gradients("scaled", &[&x, &weight], sum, with, |x| (&x[0] * 3.0)?.broadcast_mul(&x[1]))?;
        check_gradients("scaled", &[&x], sum, |x| scaled(&x[0], None, 3.0), |x| &x[0] * 3.0)?;
        check_gradients("scaled", &[&x], sum, |x| doubled(&x[0]), |x| Ok(x[0].clone()))?;
        check_gradients("scaled", &[&x, &weight], sum, |x| scaled_by(&x[0], &x[1]), |x| x[0].broadcast_mul(&x[1]))?;
        // A weight that requires no gradient is kept by the op.
        let constant = weight.detach();
        let own = |x: &[Tensor]| (&x[0] * 3.0)?.broadcast_mul(&constant);
        check_gradients("scaled", &[&x], sum, |x| scaled(&x[0], Some(&constant), 3.0), own)?;
        // A result that is there with a tensor, and on which nothing depends.
        let gradients = first_scaled(&x, Some(&weight), 2.0)?.sum_all()?.backward()?;
        let of = |x: &Var| gradients.get(x).expect("a gradient").flatten_all()?.to_vec1::<f64>();
        assert_eq!((of(&x)?, of(&weight)?), (vec![2.0; 24], vec![0.0; 8]));
        let x = x.detach();
        let [y, z] = both_scaled(&x, Some(&constant), 2.0)?;
        assert_eq!(y.to_vec2::<f64>()?, (&x * 2.0)?.to_vec2::<f64>()?);
        assert_eq!(z.to_vec1::<f64>()?, (&constant * 2.0)?.to_vec1::<f64>()?);
        let not_made = "both_scaled: `z` is not made of these tensors";
        assert_eq!(message(both_scaled(&x, None, 2.0)), not_made);
        let variable = Var::from_tensor(&x)?;
        assert_eq!(message(both_scaled(&variable, None, 2.0)), not_made);
        Ok(())
    });
}

#[test]
fn shapes_dtypes_and_attributes_are_the_operators() {
    on_every_device(|device| {
        let x = Tensor::new(&[[1i64, 2, 3, 4, 5], [6, 7, 8, 9, 10]], device)?;
        let [evens, odds] = pairs(&x, 9)?;
        assert_eq!(evens.to_vec2::<i64>()?, [[1, 3], [6, 8]]);
        assert_eq!(odds.to_vec2::<i64>()?, [[2, 4], [7, 9]]);
        assert_eq!(even(&x)?.to_vec2::<i64>()?, [[1, 3], [6, 8]]);
        // candle has no kernel for all at once.
        let x = x.to_dtype(DType::F32)?.to_dtype(DType::BF16)?;
        let sums = row_sum(&x)?;
        assert_eq!((sums.dtype(), sums.to_vec1::<f32>()?), (DType::F32, vec![15.0, 40.0]));
        let x = Tensor::new(&[1f32, 2.0, 3.0], device)?;
        assert_eq!(reversed(&x, "once")?.to_vec1::<f32>()?, [3.0, 2.0, 1.0]);
        assert_eq!(reversed(&x, "twice")?.to_vec1::<f32>()?, [1.0, 2.0, 3.0], "through scratch memory");
        assert_eq!(message(reversed(&x, "never")), "reversed: `how` is \"never\"; accepted: \"once\", \"twice\"");
        Ok(())
    });
    let x = Tensor::new(&[1f32], &Device::Cpu).unwrap();
    let by = [(None, false), (None, true), (Some(4.0), true)];
    let sums = by.map(|(by, negative)| shifted(&x, by, negative).unwrap().to_vec1::<f32>().unwrap()[0]);
    assert_eq!(sums, [2.0, 0.0, -3.0]);
}

#[test]
fn tensors_are_written_where_they_are() {
    on_every_device(|device| {
        let (x, y) = (Tensor::new(&[1f32, 2.0], device)?, Tensor::new(&[10f32, 20.0], device)?);
        add_assign(&x, &y, 3.0)?;
        assert_eq!(x.to_vec1::<f32>()?, [31.0, 62.0]);
        let (mean, square) = (Tensor::zeros(2, DType::F32, device)?, Tensor::ones(2, DType::F32, device)?);
        averages(&mean, &x, &square, &y)?;
        assert_eq!(mean.to_vec1::<f32>()?, [15.5, 31.0]);
        assert_eq!(square.to_vec1::<f32>()?, [5.5, 10.5]);
        let shares = "shares its memory with `mean`, which is changed in place; a copy is accepted: `Tensor::copy`";
        assert_eq!(message(averages(&mean, &x, &mean, &y)), format!("averages: `square` {shares}"));
        assert_eq!(message(averages(&mean, &mean, &square, &y)), format!("averages: `x` {shares}"));
        let weight = Var::ones(2, DType::F32, device)?;
        add_assign(&weight, &y, 1.0)?;
        assert_eq!(weight.to_vec1::<f32>()?, [11.0, 21.0]);
        let derived = (weight.as_tensor() * 2.0)?;
        let refused = message(add_assign(&derived, &y, 1.0));
        assert!(refused.starts_with("add_assign: `x` requires a gradient"), "{refused}");
        Ok(())
    });
}

#[test]
fn gradients_reach_what_requires_one() {
    on_every_device(|device| {
        let mut random = Random::new(33);
        let shape = [2, 30];
        let (a, c) = (random.variable(&shape, device)?, random.variable(&shape, device)?);
        let d = random.variable(&shape, device)?;
        let b = random.tensor(&shape, device)?.to_dtype(a.dtype())?;
        let as_f32 = |x: &Tensor| x.to_dtype(DType::F32);
        let (a, b) = (Var::from_tensor(&as_f32(&a)?)?, as_f32(&b)?);
        let (c, d) = (Var::from_tensor(&as_f32(&c)?)?, Var::from_tensor(&as_f32(&d)?)?);
        let gradients = (four(&a, &b, &c, &d)? * 3.0)?.sum_all()?.backward()?;
        for (name, x) in [("a", &a), ("c", &c), ("d", &d)] {
            let gradient = gradients.get(x).unwrap_or_else(|| panic!("{name} has a gradient"));
            assert_eq!(gradient.flatten_all()?.to_vec1::<f32>()?, [3.0; 60], "{name}");
        }
        let variable = Var::from_tensor(&b)?;
        let refused = message(four(&a, &variable, &c, &d));
        assert!(refused.starts_with("four: `b` requires a gradient, which this op does not have"), "{refused}");
        let refused = message(four_and_difference(&a, &b, &c, &d));
        assert!(
            refused.starts_with("four: `difference` has a gradient, and candle differentiates by one"),
            "{refused}"
        );
        let [_, difference] = four_and_difference(&a.detach(), &b, &c.detach(), &d.detach())?;
        assert_eq!(difference.to_vec2::<f32>()?, (a.as_tensor() - &b)?.to_vec2::<f32>()?);
        Ok(())
    });
    let x = Var::zeros((2, 3), DType::F32, &Device::Cpu).unwrap();
    assert!(message(row_sum(&x)).starts_with("row_sum: `x` requires a gradient, which this op does not have"));
}

#[test]
fn gradients_that_do_not_fit_their_tensors_are_refused() {
    on_every_device(|device| {
        let variable = || Var::zeros((2, 3), DType::F32, device);
        let (a, b) = (variable()?, variable()?);
        let backward = |a: &Tensor, b: &Tensor| misfit(a, b)?.sum_all()?.backward();
        let accepted = "the dtype that is accepted is that of `a`, f32";
        assert_eq!(message(backward(&a, &b)), format!("misfit: the gradient of `a` is of f64; {accepted}"));
        let accepted = "the shape that is accepted is that of `b`, [2, 3]";
        let refused = message(backward(&a.detach(), &b));
        assert_eq!(refused, format!("misfit: the gradient of `b` has the shape [2]; {accepted}"));
        Ok(())
    });
}

#[test]
fn what_does_not_fit_is_refused_by_the_operators_own_words() {
    let device = Device::Cpu;
    let x = Tensor::zeros((3, 4), DType::F32, &device).unwrap();
    let of_u8 = x.to_dtype(DType::U8).unwrap();
    assert_eq!(message(silu(&of_u8)), "silu: `x` has dtype u8; accepted: f32, f16, bf16, f64");
    let strided = x.t().unwrap();
    let text = message(silu(&strided));
    assert!(
        text.starts_with("silu: `x` has shape [4, 3] with strides [1, 4]; accepted: a contiguous tensor"),
        "{text}"
    );
    let short = Tensor::zeros(3, DType::F32, &device).unwrap();
    let text = message(scaled(&x, Some(&short), 1.0));
    assert_eq!(text, "scaled: `weight` has shape [3]; accepted: [4], a number per column");
    assert_eq!(
        message(pairs(&short, 1)),
        "pairs: `x` has 1 dimensions; accepted: a tensor with dimension 1, which the shape of `even` needs"
    );
    let text = message(panics(&x));
    assert!(text.starts_with("panics: panicked: "), "{text}");
    let text = message(out_of_bounds(&x));
    assert!(text.contains("of `x`, which has 12 elements") && text.contains("kernels.rs:"), "{text}");
    assert!(silu(&x).is_ok(), "nothing is left for the next");
}

#[test]
fn what_has_no_gradient_stops_it() {
    on_every_device(|device| {
        let theta = Var::new(&[[0.5f64, 1.0], [0.1, 0.2]], device)?;
        let x = Random::new(34).variable(&[1, 1, 2, 4], device)?;
        // The op has a gradient of `x` alone; candle wants one of all that was computed of variables.
        let (cos, sin) = (theta.cos()?, theta.sin()?);
        let gradients = rotary(&x, &cos, &sin, Pairs::Halves)?.sum_all()?.backward()?;
        assert!(gradients.get(&x).is_some());
        let of_theta = gradients.get(&theta).expect("zeros").flatten_all()?.to_vec1::<f64>()?;
        assert_eq!(of_theta, [0.0; 4]);
        Ok(())
    });
}

#[test]
fn integers_computed_of_variables_are_inputs_like_others() {
    let x = Var::new(&[[1f32, 2.0, 3.0], [4.0, 5.0, 6.0]], &Device::Cpu).unwrap();
    let whole = x.to_dtype(DType::I64).unwrap();
    assert_eq!(even(&whole).unwrap().to_vec2::<i64>().unwrap(), [[1], [4]]);
}

#[test]
fn parts_without_elements_may_begin_anywhere() {
    let x = Tensor::zeros((4, 3), DType::F32, &Device::Cpu).unwrap();
    let nothing = x.narrow(0, 4, 0).unwrap().narrow(1, 3, 0).unwrap();
    assert_eq!(silu(&nothing).unwrap().dims(), [0, 0]);
}

/// Each thread writes what the other reads or writes second.
#[test]
fn threads_that_change_tensors_do_not_wait_for_each_other() {
    let zeros = || Tensor::zeros(8, DType::F32, &Device::Cpu).unwrap();
    let (a, b, x) = (zeros(), zeros(), zeros());
    std::thread::scope(|threads| {
        for (a, b) in [(&a, &b), (&b, &a)] {
            let x = &x;
            threads.spawn(move || {
                for _ in 0..200 {
                    averages(a, x, b, x).unwrap();
                    add_assign(a, b, 1.0).unwrap();
                }
            });
        }
    });
}

/// One thread reads two tensors by this op, in both orders, while another changes them.
fn check_no_deadlock(reads: fn(&Tensor, &Tensor) -> candle_core::Result<Tensor>) {
    let variable = || Var::zeros((1, 1), DType::F32, &Device::Cpu).unwrap();
    let (a, b) = (variable(), variable());
    let (own_a, own_b) = (a.clone(), b.clone());
    let (done, end) = std::sync::mpsc::channel();
    // Neither is joined: a deadlock is to fail the test.
    let reader = std::thread::spawn(move || {
        for _ in 0..2000 {
            reads(&own_a, &own_b).and_then(|_| reads(&own_b, &own_a)).unwrap();
        }
        done.send(()).unwrap();
    });
    std::thread::spawn(move || {
        while !reader.is_finished() {
            holds(&a, &b).unwrap();
        }
    });
    end.recv_timeout(std::time::Duration::from_secs(60)).expect("the reader ends");
}

#[test]
fn threads_that_change_and_read_tensors_do_not_wait_for_each_other() {
    check_no_deadlock(misfit);
    check_no_deadlock(swiglu);
    check_no_deadlock(|a, b| swiglu(&a.detach(), &b.detach()));
}
