//! What all tests share: devices, random numbers, and bounds of errors.

use candle_core::{DType, Device, Result, Tensor, Var};

/// Runs a test on the CPU, then on the first GPU if candle has one.
pub fn on_every_device(test: impl Fn(&Device) -> Result<()>) {
    test(&Device::Cpu).unwrap();
    #[cfg(feature = "cuda")]
    if candle_core::utils::cuda_is_available() {
        let device = Device::new_cuda(0).unwrap();
        test(&device).unwrap();
        tilewright_candle::synchronize(&device).unwrap();
    }
}

/// Random numbers: xorshift64*, the same on every machine.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A tensor of numbers from -2 to 2 that are multiples of 1/32, which all float dtypes but 8-bit ones hold exactly.
    pub fn tensor(&mut self, shape: &[usize], device: &Device) -> Result<Tensor> {
        let numbers: Vec<f64> =
            (0..shape.iter().product()).map(|_| ((self.bits() >> 40) % 129) as f64 / 32.0 - 2.0).collect();
        Tensor::from_vec(numbers, shape, device)
    }

    pub fn variable(&mut self, shape: &[usize], device: &Device) -> Result<Var> {
        Var::from_tensor(&self.tensor(shape, device)?)
    }

    /// Numbers below `limit`.
    pub fn indices(&mut self, shape: &[usize], limit: u32, device: &Device) -> Result<Tensor> {
        let numbers: Vec<u32> = (0..shape.iter().product()).map(|_| (self.bits() >> 40) as u32 % limit).collect();
        Tensor::from_vec(numbers, shape, device)
    }
}

/// The largest relative error of rounding to a dtype.
pub fn rounding(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => (-11f64).exp2(),
        DType::BF16 => (-8f64).exp2(),
        DType::F32 => (-24f64).exp2(),
        DType::F64 => (-53f64).exp2(),
        DType::F8E4M3 => (-4f64).exp2(),
        other => panic!("{other:?} is not a float"),
    }
}

/// What an element is computed from: a sum of at most `terms`, each of at most `magnitude` and through at most `STEPS`
/// functions of at most 4 units of the last place, which are 8 roundings, in f32 or, for f64, in f64.
#[derive(Clone, Copy)]
pub struct Sum {
    pub terms: usize,
    pub magnitude: f64,
    /// Whether something on the way is f32, whatever the dtype.
    pub in_f32: bool,
}

/// More than any op here has in a row.
const STEPS: f64 = 16.0;

impl Sum {
    pub fn of(terms: usize, magnitude: f64) -> Self {
        Sum { terms, magnitude, in_f32: false }
    }

    /// The same with f32 on the way.
    pub fn in_f32(self) -> Self {
        Sum { in_f32: true, ..self }
    }

    /// The error of the element in arithmetic whose roundings are this large: `terms` additions of partial sums, and the
    /// steps of each term.
    fn error(&self, rounding: f64) -> f64 {
        let terms = self.terms as f64;
        terms * self.magnitude * rounding * (8.0 * STEPS + terms)
    }
}

/// Elements in f64, on the host.
pub fn reals(x: &Tensor) -> Vec<f64> {
    // candle's way from f8e4m3 to f64 never ends.
    let x =
        if x.dtype() == DType::F8E4M3 { &x.to_device(&Device::Cpu).unwrap().to_dtype(DType::F32).unwrap() } else { x };
    x.to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// The largest magnitude.
pub fn largest(x: &Tensor) -> f64 {
    reals(x).into_iter().map(f64::abs).fold(0.0, f64::max)
}

/// Asserts that both are the same but for errors of arithmetic: `want` is computed in f64, `got` in f32 (or f64) and
/// rounded to its dtype once.
#[track_caller]
pub fn assert_close(what: &str, got: &Tensor, want: &Tensor, sum: Sum) {
    assert_eq!(got.dims(), want.dims(), "{what}");
    let dtype = got.dtype();
    let arithmetic = rounding(if dtype == DType::F64 && !sum.in_f32 { DType::F64 } else { DType::F32 });
    let before = sum.error(arithmetic) + sum.error(rounding(DType::F64));
    for (at, (got, want)) in reals(got).into_iter().zip(reals(want)).enumerate() {
        // The smallest f16 that is not zero is 2^-24.
        let limit =
            before + rounding(dtype) * (want.abs() + before) + if dtype == DType::F16 { (-25f64).exp2() } else { 0.0 };
        let error = (got - want).abs();
        assert!(
            error <= limit,
            "{what}, {dtype:?}: element {at} is {got}, not {want}: off by {error:e}, at most {limit:e}"
        );
    }
}

/// Asserts that an op gives what candle's own ops give in f64, in all dtypes.
pub fn check_forward(
    what: &str,
    inputs: &[&Tensor],
    sum: Sum,
    op: impl Fn(&[Tensor]) -> Result<Tensor>,
    own: impl Fn(&[Tensor]) -> Result<Tensor>,
) -> Result<()> {
    let exact: Vec<Tensor> = inputs.iter().map(|input| (*input).clone()).collect();
    let want = own(&exact)?;
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        let float = |x: &Tensor| if x.dtype().is_float() { x.to_dtype(dtype) } else { Ok(x.clone()) };
        let inputs = exact.iter().map(float).collect::<Result<Vec<_>>>()?;
        assert_close(what, &op(&inputs)?, &want, sum);
    }
    Ok(())
}

/// Asserts that an op and candle's own ops have the same gradients, in f64.
pub fn check_gradients(
    what: &str,
    variables: &[&Var],
    sum: Sum,
    op: impl Fn(&[Tensor]) -> Result<Tensor>,
    own: impl Fn(&[Tensor]) -> Result<Tensor>,
) -> Result<()> {
    let tensors: Vec<Tensor> = variables.iter().map(|variable| variable.as_tensor().clone()).collect();
    let result = own(&tensors)?;
    // A gradient of the result that is not the same everywhere.
    let weights = Random::new(99).tensor(result.dims(), result.device())?.to_dtype(result.dtype())?;
    let want = (result * &weights)?.sum_all()?.backward()?;
    let got = (op(&tensors)? * &weights)?.sum_all()?.backward()?;
    for (at, variable) in variables.iter().enumerate() {
        let got = got.get(variable).unwrap_or_else(|| panic!("{what}: input {at} has no gradient"));
        let want = want.get(variable).unwrap_or_else(|| panic!("{what}: input {at} has no gradient of candle's"));
        assert_close(&format!("{what}, the gradient of input {at}"), got, want, sum);
    }
    Ok(())
}

/// The message of an error that must be.
#[track_caller]
pub fn message<T>(result: Result<T>) -> String {
    match result {
        Ok(_) => panic!("this should have been refused"),
        Err(error) => error.to_string(),
    }
}
