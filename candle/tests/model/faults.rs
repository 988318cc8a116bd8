//! Elements that do not exist: nothing is touched, and an error says where the kernel would have.

use super::common::message;
use super::ops::{gather, line, scatter, silu};
use super::{in_the_model, numbers};
use candle_core::{Device, Result, Tensor};
use tilewright_driver_model::Settings;

/// Asserts that an error is that of an earlier launch, at this line.
#[track_caller]
fn fails_at<T>(result: Result<T>, says: &str, place: &str) {
    let text = message(result);
    assert!(text.contains(says) && text.contains(place), "this does not say `{says}` and `{place}`: {text}");
}

in_the_model! {
    fn a_load_beyond_the_end_is_an_error_of_the_next_op(Settings::default()) {
        let device = Device::new_cuda(0)?;
        let x = Tensor::new(&[1f32, 2.0, 3.0, 4.0], &device)?;
        let (good, bad) = (Tensor::new(&[3i64, 0], &device)?, Tensor::new(&[1i64, 4], &device)?);
        let place = line("let value = load(x + at");
        assert_eq!(numbers(&gather(&x, &good)?), [4.0, 1.0]);
        gather(&x, &bad)?;
        // What candle waits for knows nothing of it.
        device.synchronize()?;
        fails_at(silu(&x), "silu: an earlier launch on this stream has failed", &place);
        // Nobody is told twice, and all goes on.
        assert_eq!(numbers(&gather(&x, &good)?), [4.0, 1.0]);
        tilewright_candle::synchronize(&device)?;
        gather(&x, &bad)?;
        fails_at(tilewright_candle::synchronize(&device), "gather_kernel", &place);
        tilewright_candle::synchronize(&device)
    }

    fn a_store_beyond_the_end_writes_nothing(Settings::default()) {
        let device = Device::new_cuda(0)?;
        // A tensor between elements of others.
        let all = Tensor::from_vec(vec![0f32; 16], 16, &device)?;
        let out = all.narrow(0, 4, 8)?;
        let x = Tensor::new(&[1f32, 2.0, 3.0, 4.0], &device)?;
        let index = Tensor::new(&[0i64, 8, -1, 7], &device)?;
        let place = line("store(out + at");
        scatter(&out, &x, &index)?;
        fails_at(tilewright_candle::synchronize(&device), "scatter_kernel", &place);
        let written = numbers(&all);
        let (before, inside, after) = (&written[..4], &written[4..12], &written[12..]);
        assert_eq!((before, after), (&[0.0; 4][..], &[0.0; 4][..]));
        // What of the rest was written before the fault is nobody's promise.
        assert!(inside[1..7].iter().all(|number| *number == 0.0), "{inside:?}");
        scatter(&out, &x, &index)?;
        device.synchronize()?;
        fails_at(silu(&x), "silu: an earlier launch on this stream has failed", &place);
        scatter(&out, &x, &Tensor::new(&[0i64, 1, 2, 7], &device)?)?;
        assert_eq!(numbers(&all)[4..12], [1.0, 2.0, 3.0, 0.0, 0.0, 0.0, 0.0, 4.0]);
        tilewright_candle::synchronize(&device)
    }
}
