//! Ops in CUDA graphs that candle's stream is captured into.
//!
//! A program of its own, and one test: a driver of the 580 series may crash where a thread ends that has used its default stream
//! while another one captures.

#[allow(dead_code, reason = "the other tests use more")]
mod common;

use candle_core::cuda_backend::WrapErr;
use candle_core::cuda_backend::cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use candle_core::{DType, Device, Result, Tensor};
use common::{Random, reals};
use tilewright_candle::attention::{Attention, attention, decode};
use tilewright_candle::products::linear;
use tilewright_candle::rows::{rms_norm, softmax, swiglu};

const MODE: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
/// Results are memory of the graph, which each replay has anew.
const FLAGS: CUgraphInstantiate_flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;

#[test]
fn ops_are_captured_and_replayed() {
    if !candle_core::utils::cuda_is_available() {
        println!("skipped: no CUDA device");
        return;
    }
    replays(&Device::new_cuda(0).unwrap()).unwrap();
    let device = Device::new_cuda_with_stream(0).unwrap();
    // SAFETY: all tensors of this context are used on one stream.
    unsafe { device.as_cuda_device().unwrap().disable_event_tracking() };
    replays(&device).unwrap();
    refused().unwrap();
}

/// A graph would have to wait for events that were recorded outside.
fn refused() -> Result<()> {
    let device = Device::new_cuda_with_stream(0)?;
    let stream = device.as_cuda_device()?.cuda_stream();
    let x = Tensor::ones((4, 64), DType::F32, &device)?;
    softmax(&x)?;
    device.synchronize()?;
    stream.begin_capture(MODE).w()?;
    let captured = softmax(&x).map(|_| ());
    stream.end_capture(FLAGS).w()?;
    let message = captured.expect_err("events are refused").to_string();
    assert!(message.contains("softmax") && message.contains("disable_event_tracking"), "{message}");
    assert_eq!(reals(&softmax(&x)?)[0], 1.0 / 64.0);
    tilewright_candle::synchronize(&device)
}

/// A thousand replays with changed inputs give what calls give.
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
