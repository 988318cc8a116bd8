//! Ops in graphs that candle's stream is captured into.

use super::ops::{gather, line, replace};
use super::{calls, functions, in_the_model, numbers, without_events};
use candle_core::cuda_backend::WrapErr;
use candle_core::cuda_backend::cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use candle_core::{Device, Result, Tensor};
use tilewright_candle::attention::{Attention, attention};
use tilewright_candle::rows::{rms_norm, softmax};
use tilewright_driver_model::Settings;

const MODE: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
/// Results are memory of the graph, which each replay has anew.
const FLAGS: CUgraphInstantiate_flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;

fn tensor(first: u16, shape: &[usize], device: &Device) -> Result<Tensor> {
    let count: usize = shape.iter().product();
    let numbers: Vec<f32> = (first..).step_by(7).map(|number| f32::from(number % 31) / 8.0).take(count).collect();
    Tensor::from_vec(numbers, shape, device)
}

/// Replays with changed inputs give what calls give, and an index beyond the end in one of them is told afterwards.
fn check_replays(device: &Device) -> Result<()> {
    let stream = device.as_cuda_device()?.cuda_stream();
    let (x, weight) = (tensor(1, &[1, 2, 16, 16], device)?, tensor(3, &[16], device)?);
    let index = Tensor::new(&[0i64, 17, 511], device)?;
    let layer = || -> Result<Vec<Tensor>> {
        let normed = rms_norm(&x, &weight, 1e-5)?;
        let mixed = attention(&normed, &x, &x, Attention::default().causal())?;
        Ok(vec![mixed, softmax(&normed)?, gather(&normed.flatten_all()?, &index)?])
    };
    let change = |round: u16| replace(&x, &tensor(round, &[1, 2, 16, 16], device)?);
    change(0)?;
    // What is compiled and loaded once is no part of a graph.
    layer()?;
    device.synchronize()?;
    stream.begin_capture(MODE).w()?;
    let captured = layer();
    let graph = stream.end_capture(FLAGS).w()?.expect("something was captured");
    let captured = captured?;
    let mut seen = Vec::new();
    for round in 1..6 {
        change(round)?;
        let ((), replayed) = calls(|| graph.launch().w())?;
        assert_eq!(functions(&replayed), ["cuGraphLaunch"]);
        for (got, want) in captured.iter().zip(layer()?) {
            assert_eq!(numbers(got), numbers(&want), "round {round}");
        }
        seen.push(numbers(&captured[0]));
    }
    assert!(seen.windows(2).all(|pair| pair[0] != pair[1]), "inputs change results");
    tilewright_candle::synchronize(device)?;

    replace(&index, &Tensor::new(&[0i64, 512, 1], device)?)?;
    graph.launch().w()?;
    let text = tilewright_candle::synchronize(device).expect_err("the replay has failed").to_string();
    assert!(text.contains(&line("let value = load(x + at")), "{text}");
    replace(&index, &Tensor::new(&[0i64, 1, 2], device)?)?;
    graph.launch().w()?;
    assert_eq!(numbers(&captured[2]), numbers(&layer()?[2]));
    tilewright_candle::synchronize(device)
}

in_the_model! {
    fn the_stream_of_a_thread_is_captured_and_replayed(Settings::default()) {
        check_replays(&Device::new_cuda(0)?)
    }

    fn another_stream_is_captured_and_replayed(Settings::default().seed(2)) {
        check_replays(&without_events()?)
    }

    /// A graph would have to wait for events that were recorded outside.
    fn a_capture_with_events_is_refused(Settings::default()) {
        let device = Device::new_cuda_with_stream(0)?;
        let stream = device.as_cuda_device()?.cuda_stream();
        let x = tensor(1, &[4, 64], &device)?;
        let before = numbers(&softmax(&x)?);
        device.synchronize()?;
        stream.begin_capture(MODE).w()?;
        let captured = softmax(&x).map(|_| ());
        stream.end_capture(FLAGS).w()?;
        let message = captured.expect_err("events are refused").to_string();
        assert!(message.contains("softmax") && message.contains("disable_event_tracking"), "{message}");
        assert_eq!(numbers(&softmax(&x)?), before);
        tilewright_candle::synchronize(&device)
    }
}
