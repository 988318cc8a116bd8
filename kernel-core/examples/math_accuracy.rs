//! Measures how much of its bound the error of every f32 function takes up over all bit patterns, with approximation
//! instructions that are exact and with ones that are off by one ulp either way.
//!
//! ```sh
//! cargo run --release -p tilewright-core --example math_accuracy            # all 2^32, about three core-hours
//! cargo run --release -p tilewright-core --example math_accuracy -- 97      # every 97th, two minutes
//! ```

use std::thread;

use kernel_core::math::{ApproximationError, FloatTy, Host, MathFn, evaluate_f64, single, ulp_bound_at};

/// The error found that is the largest share of its bound, in ulps, and where.
#[derive(Clone, Copy, Default)]
struct Worst {
    ulps: f64,
    bound: f64,
    argument: f32,
}

impl Worst {
    fn share(self) -> f64 {
        if self.bound > 0.0 { self.ulps / self.bound } else { 0.0 }
    }
}

/// The function in f64; our own f64 functions are within 2 ulp of f64, far below what is measured.
fn reference(function: MathFn, x: f64) -> f64 {
    match function {
        MathFn::Exp => x.exp(),
        MathFn::Exp2 => x.exp2(),
        MathFn::Expm1 => x.exp_m1(),
        MathFn::Log => x.ln(),
        MathFn::Log2 => x.log2(),
        MathFn::Log1p => x.ln_1p(),
        MathFn::Sin => x.sin(),
        MathFn::Cos => x.cos(),
        MathFn::Exp10 => 10.0_f64.powf(x),
        MathFn::Log10 => x.log10(),
        MathFn::Tan => x.tan(),
        MathFn::Asin => x.asin(),
        MathFn::Acos => x.acos(),
        MathFn::Atan => x.atan(),
        MathFn::Sinh => x.sinh(),
        MathFn::Cosh => x.cosh(),
        MathFn::Tanh => x.tanh(),
        MathFn::Sqrt => x.sqrt(),
        MathFn::Rsqrt => 1.0 / x.sqrt(),
        MathFn::Cbrt => x.cbrt(),
        MathFn::Asinh
        | MathFn::Acosh
        | MathFn::Atanh
        | MathFn::Erf
        | MathFn::Erfc
        | MathFn::Erfinv
        | MathFn::Lgamma
        | MathFn::Tgamma
        | MathFn::Sigmoid => evaluate_f64(function, x),
    }
}

/// The error of `got` in units of f32; infinite where the two differ in kind.
fn error_in_ulps(got: f32, want: f64) -> f64 {
    if want.is_nan() || got.is_nan() {
        return if want.is_nan() == got.is_nan() { 0.0 } else { f64::INFINITY };
    }
    // Infinity stands for 2^128, where the next f32 would be.
    let top = 2.0_f64.powi(128);
    let finite = |x: f64| if x.abs() > top { top.copysign(x) } else { x };
    let exponent = want.abs().log2().floor().clamp(-126.0, 127.0) as i32;
    (finite(f64::from(got)) - finite(want)).abs() / 2.0_f64.powi(exponent - 23)
}

fn scan(function: MathFn, error: ApproximationError, first: u64, stride: u64) -> Worst {
    let machine = Host::<f32>::with_error(error);
    let mut worst = Worst::default();
    for bits in (first..1 << 32).step_by(stride as usize) {
        let argument = f32::from_bits(bits as u32);
        let got = single::apply(&machine, function, argument);
        let ulps = error_in_ulps(got, reference(function, f64::from(argument)));
        let found = Worst { ulps, bound: ulp_bound_at(function, FloatTy::F32, f64::from(argument)), argument };
        if found.share() > worst.share() {
            worst = found;
        }
    }
    worst
}

/// Scans on all processors.
fn scan_in_parallel(function: MathFn, error: ApproximationError, stride: u64) -> Worst {
    let threads = thread::available_parallelism().map_or(1, |count| count.get() as u64);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|worker| scope.spawn(move || scan(function, error, worker * stride, threads * stride)))
            .collect();
        let results = workers.into_iter().filter_map(|worker| worker.join().ok());
        results.fold(Worst::default(), |a, b| if b.share() > a.share() { b } else { a })
    })
}

fn main() {
    let stride = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1_u64).max(1);
    println!("{:8} {:>6} {:>6} {:>9} {:>14} {:>6}", "function", "ex2", "rcp", "ulp", "at", "bound");
    for &function in MathFn::ALL {
        let errors: &[(f64, f64)] = match function {
            MathFn::Exp | MathFn::Exp2 | MathFn::Exp10 | MathFn::Erf | MathFn::Erfc => {
                &[(0.0, 0.0), (1.0, 0.0), (-1.0, 0.0)]
            }
            MathFn::Sinh | MathFn::Cosh | MathFn::Tanh | MathFn::Sigmoid => {
                &[(0.0, 0.0), (1.0, 0.5), (1.0, -0.5), (-1.0, 0.5), (-1.0, -0.5)]
            }
            MathFn::Expm1
            | MathFn::Log
            | MathFn::Log2
            | MathFn::Log10
            | MathFn::Log1p
            | MathFn::Tan
            | MathFn::Asin
            | MathFn::Acos
            | MathFn::Atan
            | MathFn::Asinh
            | MathFn::Acosh
            | MathFn::Atanh
            | MathFn::Sin
            | MathFn::Cos
            | MathFn::Sqrt
            | MathFn::Rsqrt
            | MathFn::Cbrt
            | MathFn::Erfinv
            | MathFn::Lgamma
            | MathFn::Tgamma => &[(0.0, 0.0)],
        };
        for &(ex2, rcp) in errors {
            let error = ApproximationError { ex2, rcp, ..ApproximationError::default() };
            let Worst { ulps, bound, argument } = scan_in_parallel(function, error, stride);
            println!("{:8} {ex2:>6} {rcp:>6} {ulps:>9.4} {argument:>14e} {bound:>6}", format!("{function:?}"));
        }
    }
}
