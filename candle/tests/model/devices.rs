//! Devices that tensors are on.

use super::common::message;
use super::ops::{gather, replace, silu};
use super::{calls, in_the_model, numbers};
use candle_core::{Device, Result, Tensor, Var};
use tilewright_candle::prelude::{Spec, TensorMut, TensorRef, like};
use tilewright_candle::rows::swiglu;
use tilewright_candle::{Op, apply};
use tilewright_driver_model::Settings;

/// The message of an error that must be, without where it was made.
#[track_caller]
fn said<T>(result: Result<T>) -> String {
    message(result).lines().next().unwrap_or_default().to_string()
}

/// Asserts that ops of tensors on two devices are refused, whether one requires a gradient or not.
fn check_apart((first, here): (&Device, &str), (second, there): (&Device, &str)) -> Result<()> {
    let (a, b) = (Tensor::new(&[1f32, 2.0], first)?, Tensor::new(&[3f32, 4.0], second)?);
    let (a_variable, b_variable) = (Var::from_tensor(&a)?, Var::from_tensor(&b)?);
    let refused = |op: &str, other: &str, name: &str| {
        format!("{op}: `{other}` is on {there}, `{name}` on {here}; one device is accepted: use `to_device`")
    };
    let (_, asked) = calls(|| {
        for (a, b) in [(&a, &b), (&a, b_variable.as_tensor()), (a_variable.as_tensor(), &b)] {
            assert_eq!(said(swiglu(a, b)), refused("swiglu", "b", "a"));
        }
        assert_eq!(said(replace(&a, &b)), refused("replace", "x", "y"));
        assert_eq!(
            said(gather(&a, &Tensor::new(&[0i64], &Device::Cpu)?.to_device(second)?)),
            refused("gather", "index", "x")
        );
        Ok(())
    })?;
    let launched = asked.iter().find(|call| call.function.contains("Launch"));
    assert_eq!(launched, None, "nothing is launched");
    Ok(())
}

/// An op whose gradient is on the CPU.
struct Elsewhere;

impl Op<1, 1> for Elsewhere {
    const NAME: &'static str = "elsewhere";
    const INPUTS: [&'static str; 1] = ["x"];

    fn outputs(&self, [x]: [TensorRef<'_>; 1]) -> tilewright::Result<[Spec; 1]> {
        Ok([like(x)])
    }

    fn forward(&self, _: [TensorRef<'_>; 1], _: [TensorMut<'_>; 1]) -> tilewright::Result<()> {
        Ok(())
    }

    fn backward(&self, _: [&Tensor; 1], _: [&Tensor; 1], dy: &Tensor) -> Result<[Option<Tensor>; 1]> {
        Ok([Some(dy.to_device(&Device::Cpu)?)])
    }
}

in_the_model! {
    fn gradients_on_other_devices_than_their_tensors_are_refused(Settings::default()) {
        let x = Var::from_tensor(&Tensor::new(&[1f32, 2.0], &Device::new_cuda(0)?)?)?;
        let accepted = "the device that is accepted is that of `x`, cuda:0";
        assert_eq!(
            said(apply(Elsewhere, [x.as_tensor()])?.backward()),
            format!("elsewhere: the gradient of `x` is on the CPU; {accepted}")
        );
        Ok(())
    }

    fn tensors_of_two_devices_are_refused(Settings { devices: 2, ..Settings::default() }) {
        // cudarc frees memory of a default stream in whatever context is current.
        let (first, second) = (Device::new_cuda_with_stream(0)?, Device::new_cuda_with_stream(1)?);
        check_apart((&Device::Cpu, "the CPU"), (&first, "cuda:0"))?;
        check_apart((&first, "cuda:0"), (&Device::Cpu, "the CPU"))?;
        check_apart((&first, "cuda:0"), (&second, "cuda:1"))?;
        // Each alone is one.
        for device in [&first, &second] {
            assert_eq!(numbers(&silu(&Tensor::new(&[0f32, 0.0], device)?)?), [0.0, 0.0]);
        }
        Ok(())
    }

    /// The memory is candle's then: nothing is copied, and candle frees it.
    fn tensors_of_the_library_become_candles(Settings::default()) {
        let device = Device::new_cuda(0)?;
        let ours = tilewright_candle::device(&device)?;
        let made = tilewright_kernels::Tensor::upload(&ours, &[0f32, 1.0, 2.0], [3]).map_err(candle_core::Error::wrap)?;
        let (x, asked) = calls(|| tilewright_candle::into_candle(made, &device))?;
        assert!(asked.iter().all(|call| !call.function.contains("Mem")), "{asked:?}");
        assert_eq!(numbers(&x), [0.0, 1.0, 2.0]);
        let expected = numbers(&silu(&x.to_device(&Device::Cpu)?)?);
        assert!(numbers(&silu(&x)?).iter().zip(expected).all(|(y, expected)| (y - expected).abs() <= 1e-6));
        let ((), asked) = calls(|| {
            drop(x);
            Ok(())
        })?;
        assert_eq!(asked.iter().filter(|call| call.function == "cuMemFreeAsync").count(), 1);
        tilewright_candle::synchronize(&device)
    }

    fn streams_of_devices_that_are_dropped_end(Settings::default()) {
        let use_one = || -> Result<u64> {
            let device = Device::new_cuda_with_stream(0)?;
            let x = Tensor::new(&[1f32, 2.0], &device)?;
            silu(&x)?;
            tilewright_candle::synchronize(&device)?;
            Ok(device.as_cuda_device()?.cuda_stream().cu_stream().addr() as u64)
        };
        let (_, asked) = calls(|| {
            let first = use_one()?;
            let ended: Vec<u64> = (0..20).map(|_| use_one()).collect::<Result<_>>()?;
            Ok((first, ended))
        })?;
        let of = |name: &str| asked.iter().filter(|call| call.function.starts_with(name)).count();
        let (made, ended) = (of("cuStreamCreate"), of("cuStreamDestroy"));
        // One is kept until another is asked for.
        assert!(made >= 21 && ended + 1 >= made, "{made} streams were made, {ended} have ended");
        Ok(())
    }
}
