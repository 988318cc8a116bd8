//! Results are those of the CPU, and a call is the allocation of its results and the launch of its kernels: the host neither
//! waits nor copies.

use super::common::{Random, Sum, assert_close};
use super::ops::{operator_silu, silu};
use super::{calls, check_no_wait, functions, in_the_model, without_events};
use candle_core::{DType, Device, Result, Tensor, Var};
use tilewright_candle::attention::{Attention, attention};
use tilewright_candle::products::linear;
use tilewright_candle::rows::{layer_norm, rms_norm, softmax, swiglu};
use tilewright_driver_model::{Schedule, Settings};

type Op = fn(&[Tensor]) -> Result<Tensor>;

/// An op, the shapes of its inputs, and what a sum of its results is made of.
struct Case {
    name: &'static str,
    op: Op,
    inputs: &'static [&'static [usize]],
    sum: Sum,
    /// The bytes of what it makes: its result, then what is kept for a gradient.
    makes: &'static [u64],
}

fn cases() -> Vec<Case> {
    let case = |name, op: Op, inputs, sum: Sum, makes| Case { name, op, inputs, sum: sum.in_f32(), makes };
    vec![
        case("silu", |x| silu(&x[0]), &[&[5, 40]], Sum::of(1, 2.0), &[800]),
        case("silu of tilewright-ffi", |x| operator_silu(&x[0]), &[&[5, 40]], Sum::of(4, 2.0), &[800]),
        case("softmax", |x| softmax(&x[0]), &[&[5, 40]], Sum::of(40, 1.0), &[800]),
        case("rms_norm", |x| rms_norm(&x[0], &x[1], 1e-5), &[&[5, 40], &[40]], Sum::of(40, 4.0), &[800]),
        case(
            "layer_norm",
            |x| layer_norm(&x[0], &x[1], &x[2], 1e-5),
            &[&[5, 40], &[40], &[40]],
            Sum::of(40, 4.0),
            &[800],
        ),
        case("swiglu", |x| swiglu(&x[0], &x[1]), &[&[5, 40], &[5, 40]], Sum::of(1, 4.0), &[800]),
        case("linear", |x| linear(&x[0], &x[1]), &[&[5, 40], &[24, 40]], Sum::of(40, 4.0), &[480]),
        case(
            "attention",
            |x| attention(&x[0], &x[1], &x[2], Attention::default().causal()),
            &[&[1, 2, 16, 16], &[1, 2, 16, 16], &[1, 2, 16, 16]],
            Sum::of(16, 8.0),
            &[2048, 128],
        ),
    ]
}

/// The inputs of a case, in f64 on the CPU.
fn inputs(case: &Case) -> Result<Vec<Tensor>> {
    let mut random = Random::new(7);
    case.inputs.iter().map(|shape| random.tensor(shape, &Device::Cpu)).collect()
}

fn uploaded(inputs: &[Tensor], device: &Device) -> Result<Vec<Tensor>> {
    inputs.iter().map(|input| input.to_dtype(DType::F32)?.to_device(device)).collect()
}

/// Whether an input requires a gradient, for which an op may make and keep more than its result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gradient {
    Wanted,
    No,
}

/// What the host asks for in a call whose kernels are loaded: memory and the launch; candle has `events` events for each piece of
/// memory. So nothing is waited for, and nothing copied.
#[track_caller]
fn check_call(case: &Case, gradient: Gradient, events: usize, run: impl Fn() -> Result<Tensor>) -> Result<Tensor> {
    run()?;
    let (result, calls) = calls(&run)?;
    let made = if gradient == Gradient::Wanted { case.makes } else { &case.makes[..1] };
    let allocated = [vec!["cuMemAllocAsync"], vec!["cuEventCreate"; events]].concat().repeat(made.len());
    assert_eq!(functions(&calls), [allocated, vec!["cuLaunchKernelEx"]].concat(), "{}", case.name);
    let bytes: Vec<u64> = calls.iter().filter_map(|call| call.detail("bytes")).collect();
    assert_eq!(bytes, made, "{}", case.name);
    let mut streams: Vec<u64> = calls.iter().filter_map(|call| call.detail("stream")).collect();
    streams.dedup();
    assert_eq!(streams.len(), 1, "{}: one stream", case.name);
    Ok(result)
}

fn check_calls(device: &Device, events: usize) -> Result<()> {
    for case in cases() {
        let exact = inputs(&case)?;
        let want = (case.op)(&exact)?;
        let x = uploaded(&exact, device)?;
        let got = check_call(&case, Gradient::No, events, || (case.op)(&x))?;
        assert_close(case.name, &got.to_device(&Device::Cpu)?, &want, case.sum);
        let variables = x.iter().map(Var::from_tensor).collect::<Result<Vec<_>>>()?;
        let variables: Vec<Tensor> = variables.iter().map(|variable| variable.as_tensor().clone()).collect();
        let got = check_call(&case, Gradient::Wanted, events, || (case.op)(&variables))?;
        assert_close(case.name, &got.to_device(&Device::Cpu)?.detach(), &want, case.sum);
    }
    tilewright_candle::synchronize(device)
}

/// The gradients of a net of many ops, by candle.
fn gradients(x: &[Var]) -> Result<Vec<Tensor>> {
    let normed = layer_norm(&rms_norm(&x[0], &x[1], 1e-5)?, &x[1], &x[2], 1e-5)?;
    let gated = swiglu(&silu(&normed)?, &softmax(&x[0])?)?;
    let made = swiglu(&linear(&gated, &x[3])?, &linear(&x[0], &x[3])?)?;
    let store = made.backward()?;
    Ok(x.iter().map(|variable| store.get(variable).expect("a gradient").clone()).collect())
}

in_the_model! {
    fn a_call_allocates_its_results_and_launches(Settings::default().schedule(Schedule::Late)) {
        // Two events for each piece of memory, whether streams need them or not.
        check_calls(&Device::new_cuda(0)?, 2)
    }

    fn a_call_without_events_allocates_its_results_and_launches(Settings::default().schedule(Schedule::Late)) {
        check_calls(&without_events()?, 0)
    }

    /// With more streams candle orders them by events, on the GPU.
    fn streams_wait_for_each_other_and_the_host_for_none(Settings::default()) {
        let (first, second) = (Device::new_cuda_with_stream(0)?, Device::new_cuda_with_stream(0)?);
        let x = Tensor::new(&[1f32, 2.0, 3.0, 4.0], &first)?;
        let on_second = Tensor::new(&[1f32; 4], &second)?;
        swiglu(&softmax(&x)?, &on_second)?;
        let (y, calls) = calls(|| swiglu(&softmax(&x)?, &on_second))?;
        check_no_wait(&calls);
        let functions = functions(&calls);
        let count = |name: &str| functions.iter().filter(|call| **call == name).count();
        assert_eq!((count("cuMemAllocAsync"), count("cuLaunchKernelEx")), (2, 2), "{functions:?}");
        assert!(count("cuStreamWaitEvent") > 0, "{functions:?}");
        let host = Device::Cpu;
        let want = swiglu(&softmax(&x.to_device(&host)?)?, &on_second.to_device(&host)?)?;
        assert_close("swiglu", &y.to_device(&host)?, &want, Sum::of(4, 1.0));
        Ok(())
    }

    fn gradients_are_those_of_the_cpu(Settings::default()) {
        let mut random = Random::new(5);
        let mut tensor = |shape: &[usize]| random.tensor(shape, &Device::Cpu);
        let exact = [tensor(&[6, 32])?, tensor(&[32])?, tensor(&[32])?, tensor(&[16, 32])?];
        let device = Device::new_cuda(0)?;
        let variables = |x: &[Tensor]| x.iter().map(Var::from_tensor).collect::<Result<Vec<_>>>();
        let (want, x) = (gradients(&variables(&exact)?)?, variables(&uploaded(&exact, &device)?)?);
        let (got, calls) = calls(|| gradients(&x))?;
        check_no_wait(&calls);
        for (at, (got, want)) in got.iter().zip(want).enumerate() {
            // A chain of sums over rows, columns and products.
            let sum = Sum::of(6 * 32 * 16, 64.0).in_f32();
            assert_close(&format!("the gradient of {at}"), &got.to_device(&Device::Cpu)?, &want, sum);
        }
        tilewright_candle::synchronize(&device)
    }
}
