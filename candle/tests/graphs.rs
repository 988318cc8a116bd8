//! Ops in CUDA graphs that candle's stream is captured into.

use crate::common::{Random, reals};
use candle_core::cuda_backend::WrapErr;
use candle_core::cuda_backend::cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use candle_core::{DType, Device, Result, Tensor};
use tilewright_candle::attention::{Attention, attention, decode};
use tilewright_candle::products::linear;
use tilewright_candle::rows::{rms_norm, softmax, swiglu};

const MODE: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
/// Results are memory of the graph, which each replay has anew.
const FLAGS: CUgraphInstantiate_flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;

/// Runs a test if there is a GPU.
fn on_gpu(test: fn() -> Result<()>) {
    if candle_core::utils::cuda_is_available() {
        test().unwrap();
    } else {
        println!("skipped: no CUDA device");
    }
}

#[test]
fn captured_ops_are_replayed_with_changed_inputs() {
    on_gpu(|| replays(&Device::new_cuda(0)?));
}

#[test]
fn ops_on_a_stream_of_its_own_are_captured_without_events() {
    on_gpu(|| {
        let device = Device::new_cuda_with_stream(0)?;
        // SAFETY: all tensors of this context are used on one stream.
        unsafe { device.as_cuda_device()?.disable_event_tracking() };
        replays(&device)
    });
}

#[test]
fn a_capture_of_memory_with_events_is_refused() {
    on_gpu(|| {
        let device = Device::new_cuda_with_stream(0)?;
        let stream = device.as_cuda_device()?.cuda_stream();
        let x = Tensor::ones((4, 64), DType::F32, &device)?;
        softmax(&x)?;
        device.synchronize()?;
        stream.begin_capture(MODE).w()?;
        let captured = softmax(&x).map(|_| ());
        // What candle did before has spoilt the capture or not: the next one is good.
        let _ = stream.end_capture(FLAGS);
        let message = captured.expect_err("events are refused").to_string();
        assert!(message.contains("softmax") && message.contains("disable_event_tracking"), "{message}");
        assert_eq!(reals(&softmax(&x)?)[0], 1.0 / 64.0);
        tilewright_candle::synchronize(&device)
    });
}

fn replays(device: &Device) -> Result<()> {
    let stream = device.as_cuda_device()?.cuda_stream();
    let mut random = Random::new(81);
    let mut tensor = |shape: &[usize]| random.tensor(shape, device)?.to_dtype(DType::BF16);
    let (x, others, weight) = (tensor(&[2, 64, 256])?, tensor(&[5, 64, 256])?, tensor(&[256])?);
    let (square, keys) = (tensor(&[256, 256])?, tensor(&[2, 4, 64, 32])?);
    let lengths = Tensor::new(&[40u32, 64], device)?;
    // Norms, gates, products, and attention with memory for parts of its results.
    let layer = || -> Result<Vec<Tensor>> {
        let normed = rms_norm(&x, &weight, 1e-5)?;
        let heads = normed.reshape((2, 64, 8, 32))?.transpose(1, 2)?;
        let mixed = attention(&heads, &keys, &keys, Attention::default().causal())?;
        let next = decode(&heads.narrow(2, 63, 1)?, &keys, &keys, Some(&lengths), Attention::default())?;
        Ok(vec![softmax(&linear(&swiglu(&normed, &x)?, &square)?)?, mixed, next])
    };
    // What is compiled and loaded once is no part of a graph.
    layer()?;
    device.synchronize()?;
    stream.begin_capture(MODE).w()?;
    let captured = layer();
    let graph = stream.end_capture(FLAGS).w()?.expect("something was captured");
    let captured = captured?;
    let mut seen = Vec::new();
    for round in 0..1000 {
        x.slice_set(&others.narrow(0, round % 4, 2)?.contiguous()?, 0, 0)?;
        graph.launch().w()?;
        if round % 50 == 0 {
            for (got, want) in captured.iter().zip(layer()?) {
                assert_eq!(reals(got), reals(&want), "round {round}");
            }
            seen.push(reals(&captured[0]));
        }
    }
    assert!(seen.windows(2).all(|pair| pair[0] != pair[1]), "inputs change results");
    tilewright_candle::synchronize(device)
}
