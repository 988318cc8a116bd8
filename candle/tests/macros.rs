//! Ops that users write.

use crate::common::{Random, Sum, check_forward, check_gradients, message, on_every_device};
use candle_core::{DType, Device, Var};
use std::path::Path;
use std::process::Command;
use tilewright_candle::prelude::*;
use tilewright_candle::{Op, apply, call_in_place};

/// out = a * x + y
#[kernel]
fn axpy_kernel<T: Float, const BLOCK: usize>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>, a: f64, n: i32) {
    let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = offsets < n;
    let value = a as T::Acc * load(x + offsets, mask = mask) as T::Acc + load(y + offsets, mask = mask) as T::Acc;
    store(out + offsets, value as T, mask = mask);
}

/// out = factor * x, or 0 without an `x`.
#[kernel]
fn scale_kernel<T: Float, const BLOCK: usize>(x: Ptr<T>, out: PtrMut<T>, factor: f64, n: i32) {
    let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = offsets < n;
    store(out + offsets, (factor as T::Acc * load(x + offsets, mask = mask) as T::Acc) as T, mask = mask);
}

/// Sums of rows, and their largest elements.
#[kernel]
fn sum_and_max_kernel<const BLOCK: usize>(x: Ptr<f32>, sums: PtrMut<f32>, most: PtrMut<f32>, columns: i32) {
    let column = arange(0, BLOCK);
    let mask = column < columns;
    let from = x + program_id(0) * columns + column;
    store(sums + program_id(0), sum(load(from, mask = mask)));
    store(most + program_id(0), max(load(from, mask = mask, other = f32::NEG_INFINITY)));
}

candle_op! {
    /// `a * x + y`.
    fn axpy(x, y; a: f64) -> (out: like(x)) {
        dispatch!(x => T in [f16, bf16, f32, f64] {
            let n = x.len();
            axpy_kernel::<T, 64>(x.flat()?, y.flat()?, out.flat_mut()?, a, n as i32).grid(n.div_ceil(64)).launch(x.device())
        })
    }
    backward(dout) -> (y: dy, x: dx) {
        dispatch!(dout => T in [f16, bf16, f32, f64] {
            let n = dout.len();
            scale_kernel::<T, 64>(dout.flat()?, dx.flat_mut()?, a, n as i32).grid(n.div_ceil(64)).launch(x.device())?;
            scale_kernel::<T, 64>(dout.flat()?, dy.flat_mut()?, 1.0, n as i32).grid(n.div_ceil(64)).launch(x.device())
        })
    }
}

candle_op! {
    fn sum_and_max(x) -> (sums: Spec::new(DType::F32, x.shape::<2>()?[0]), most: Spec::new(DType::F32, x.shape::<2>()?[0])) {
        let [rows, columns] = x.shape()?;
        sum_and_max_kernel::<64>(x.flat()?, sums.flat_mut()?, most.flat_mut()?, columns as i32).grid(rows).launch(x.device())
    }
}

candle_op! {
    fn axpy_in_place(mut y, x; a: f64) -> (before: like(x)) {
        dispatch!(x => T in [f16, bf16, f32, f64] {
            let (n, mut y) = (x.len(), y.flat_mut::<T>()?);
            let grid = n.div_ceil(64);
            scale_kernel::<T, 64>(&y, before.flat_mut()?, 1.0, n as i32).grid(grid).launch(x.device())?;
            axpy_update::<T, 64>(x.flat()?, &mut y, a, n as i32).grid(grid).launch(x.device())
        })
    }
}

candle_op! {
    /// `x`, whatever `whole` is.
    fn same(x, whole) -> (out: like(x)) {
        let n = x.len();
        scale_kernel::<f32, 64>(x.flat()?, out.flat_mut()?, 1.0, n as i32).grid(n.div_ceil(64)).launch(x.device())
    }
    backward(dout) -> (x: dx) {
        let n = dout.len();
        scale_kernel::<f32, 64>(dout.flat()?, dx.flat_mut()?, 1.0, n as i32).grid(n.div_ceil(64)).launch(x.device())
    }
}

/// An op with this gradient.
struct WithGradient(fn(&Tensor) -> candle_core::Result<Tensor>);

impl Op<1, 1> for WithGradient {
    const NAME: &'static str = "with_gradient";
    const INPUTS: [&'static str; 1] = ["x"];

    fn outputs(&self, [x]: [TensorRef<'_>; 1]) -> Result<[Spec; 1]> {
        Ok([like(x)])
    }

    fn forward(&self, _: [TensorRef<'_>; 1], _: [TensorMut<'_>; 1]) -> Result<()> {
        Ok(())
    }

    fn backward(&self, _: [&Tensor; 1], _: [&Tensor; 1], dy: &Tensor) -> candle_core::Result<[Option<Tensor>; 1]> {
        Ok([Some(self.0(dy)?)])
    }
}

/// y += a * x
#[kernel]
fn axpy_update<T: Float, const BLOCK: usize>(x: Ptr<T>, y: PtrMut<T>, a: f64, n: i32) {
    let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = offsets < n;
    let value = a as T::Acc * load(x + offsets, mask = mask) as T::Acc + load(y + offsets, mask = mask) as T::Acc;
    store(y + offsets, value as T, mask = mask);
}

#[test]
fn attributes_reach_both_bodies_and_gradients_their_tensors() {
    on_every_device(|device| {
        let mut random = Random::new(21);
        let (x, y) = (random.variable(&[3, 50], device)?, random.variable(&[3, 50], device)?);
        let sum = Sum::of(2, 6.0);
        let op = |x: &[Tensor]| axpy(&x[0], &x[1], 3.0);
        let own = |x: &[Tensor]| (&x[0] * 3.0)? + &x[1];
        check_forward("axpy", &[&x.detach(), &y.detach()], sum, op, own)?;
        check_gradients("axpy", &[&x, &y], sum, op, own)?;
        // Of an input that requires none, the gradient is computed and dropped.
        let constant = y.detach();
        check_gradients("axpy", &[&x], sum, |x| axpy(&x[0], &constant, 3.0), |x| (&x[0] * 3.0)? + &constant)
    });
}

#[test]
fn a_gradient_is_contiguous_whatever_comes_in() {
    let x = Var::zeros((3, 4), DType::F32, &Device::Cpu).unwrap();
    // The gradient of a sum has strides of 0.
    let gradients = axpy(&x, &x, 2.0).unwrap().sum_all().unwrap().backward().unwrap();
    assert_eq!(gradients.get(&x).unwrap().to_vec2::<f32>().unwrap(), [[3.0; 4]; 3]);
}

#[test]
fn an_op_gives_all_that_it_makes() {
    on_every_device(|device| {
        let x = Tensor::new(&[[1f32, 5.0, -2.0], [0.0, -1.0, -4.0]], device)?;
        let [sums, most] = sum_and_max(&x)?;
        assert_eq!((sums.to_vec1::<f32>()?, most.to_vec1::<f32>()?), (vec![4.0, -5.0], vec![5.0, 0.0]));
        Ok(())
    });
}

#[test]
fn an_op_in_place_changes_the_tensor_and_gives_the_rest() {
    on_every_device(|device| {
        let (x, y) = (Tensor::new(&[1f32, 2.0], device)?, Tensor::new(&[10f32, 20.0], device)?);
        let before = axpy_in_place(&y, &x, 3.0)?;
        assert_eq!((before.to_vec1::<f32>()?, y.to_vec1::<f32>()?), (vec![10.0, 20.0], vec![13.0, 26.0]));
        // A variable is changed by whoever trains it.
        let weight = Var::new(&[1f32, 1.0], device)?;
        axpy_in_place(&weight, &x, -1.0)?;
        assert_eq!(weight.to_vec1::<f32>()?, [0.0, -1.0]);
        Ok(())
    });
}

#[test]
fn tensors_that_require_a_gradient_are_refused_where_there_is_none() {
    let x = Var::zeros((2, 3), DType::F32, &Device::Cpu).unwrap();
    let y = Tensor::zeros((2, 3), DType::F32, &Device::Cpu).unwrap();
    let text = message(sum_and_max(&x));
    let wanted = "`x` requires a gradient, which this op does not have; `detach` it where none is needed";
    assert!(text.starts_with(&format!("sum_and_max: {wanted}")), "{text}");
    assert!(sum_and_max(&x.detach()).is_ok());
    assert!(message(axpy_in_place(&y, &x, 1.0)).starts_with(&format!("axpy_in_place: {wanted}")));
    let derived = (x.as_tensor() + 1.0).unwrap();
    assert!(message(axpy_in_place(&derived, &y, 1.0)).starts_with("axpy_in_place: `y` requires a gradient"));
}

#[test]
fn integers_computed_of_variables_require_no_gradient() {
    let device = Device::Cpu;
    let x = Var::new(&[[1f32, 2.0], [3.0, 4.0]], &device).unwrap();
    let whole = Var::zeros(3, DType::F32, &device).unwrap().to_dtype(DType::I64).unwrap();
    // Whatever candle says of it.
    assert!(whole.track_op());
    let y = same(&x.detach(), &whole).unwrap();
    assert!(!y.track_op(), "nothing of it is differentiated");
    let gradients = same(&x, &whole).unwrap().sum_all().unwrap().backward().unwrap();
    assert_eq!(gradients.get(&x).unwrap().to_vec2::<f32>().unwrap(), [[1.0; 2]; 2]);
    assert!(gradients.get(&whole).is_none(), "no zeros are made");
    call_in_place("changed", ("whole", &whole), [], |[]| Ok([]), |_, [], []| Ok(())).unwrap();
}

#[test]
fn gradients_that_do_not_fit_their_tensors_are_refused() {
    on_every_device(|device| {
        let x = Var::zeros((2, 3), DType::F32, device)?;
        let backward = |gradient| apply(WithGradient(gradient), [x.as_tensor()])?.sum_all()?.backward();
        let refused = |gradient, says: &str| {
            let text = message(backward(gradient));
            assert!(text.starts_with(&format!("with_gradient: the gradient of `x` {says}")), "{text}");
        };
        refused(|dy| dy.to_dtype(DType::F64), "is of f64; the dtype that is accepted is that of `x`, f32");
        refused(|dy| dy.t(), "has the shape [3, 2]; the shape that is accepted is that of `x`, [2, 3]");
        assert_eq!(backward(|dy| Ok(dy.clone()))?.get(&x).expect("one fits").to_vec2::<f32>()?, [[1.0; 3]; 2]);
        Ok(())
    });
}

/// What rustc says of an op, of which it expands the macro.
fn said_of(op: &str) -> String {
    let macros = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/macros.rs");
    let program = format!(
        "#[macro_use]\n#[path = {macros:?}]\nmod macros;\n\
         pub mod candle_core {{ pub struct Tensor; pub type Result<T> = std::result::Result<T, ()>; }}\n\
         candle_op! {{ {op} }}\n\
         pub fn calls_it(x: &candle_core::Tensor) {{ let _ = scaled(x, 2.0); }}"
    );
    let (source, made) = (Path::new(env!("CARGO_TARGET_TMPDIR")).join("op.rs"), "op.rmeta");
    std::fs::write(&source, program).expect("a file of the target folder");
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
    rustc.args(["--edition", "2024", "--crate-type", "lib", "--emit", "metadata", "-o"]);
    let output = rustc.arg(source.with_file_name(made)).arg(&source).output().expect("rustc runs");
    String::from_utf8(output.stderr).expect("rustc writes UTF-8")
}

#[test]
fn an_op_in_place_has_no_gradient() {
    for made in ["", "-> (before: like(x))"] {
        let text =
            said_of(&format!("fn scaled(mut x; by: f64) {made} {{ Ok(()) }} backward(dx) -> (x: d) {{ Ok(()) }}"));
        let wanted = "error: `scaled` changes `x` in place and has `backward`, but candle differentiates no op in place; \
                      leave `mut` out and make a tensor, as in `scaled(x) -> (y: like(x))`, or leave `backward` out\n";
        assert!(text.starts_with(wanted), "{text}");
        assert!(text.ends_with("error: aborting due to 1 previous error\n\n"), "one message: {text}");
    }
}
