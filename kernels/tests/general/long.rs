//! Sizes near 2^31, where numbers of 32 bits end.

use crate::common::{message, on_every_device};
use tilewright::prelude::*;
use tilewright_kernels::general::{self, Convolution, Direction, Pooling};
use tilewright_kernels::{Context, Tensor};

/// Zeros with a one at the end; `None` where there is no room for a few of them, or no GPU to go over them.
fn one_at_the_end(cx: &Context, shape: [usize; 2]) -> Result<Option<Tensor<f16, 2>>, Error> {
    const ROOM: u64 = 32 << 30;
    if !cx.device().is_cuda() || cx.device().memory_info().is_ok_and(|(free, _)| free < ROOM) {
        return Ok(None);
    }
    let mut x = Tensor::zeros(cx.device(), shape)?;
    let [m, n] = shape;
    let last = x.view_mut().narrow(0, m - 1..m)?.narrow(1, n - 1..n)?;
    last.elements().fill(f16::ONE)?;
    Ok(Some(x))
}

fn last(x: &Tensor<f16, 2>) -> Result<f16, Error> {
    let [m, n] = x.shape();
    Ok(x.view().narrow(0, m - 1..m)?.narrow(1, n - 1..n)?.to_vec()?[0])
}

/// The last of several pieces begins below 2^31 and would end behind it.
#[test]
fn pieces_of_long_rows_are_whole() {
    on_every_device(|cx| {
        let shape = [46340, 46340];
        let Some(x) = one_at_the_end(cx, shape)? else { return Ok(()) };
        assert_eq!(general::sum_all(cx, &x)?.to_vec()?, [f16::ONE]);
        assert_eq!(general::max_all(cx, &x)?.to_vec()?, [f16::ONE]);
        let len = shape[0] * shape[1];
        let row = x.view().reshape([1, len])?;
        let (value, place) = general::argmax(cx, row, 1)?;
        assert_eq!((value.to_vec()?, place.to_vec()?), (vec![f16::ONE], vec![len as i32 - 1]));
        let sums = general::cumsum(cx, row, 1, Direction::Forward)?;
        assert_eq!((last(&sums)?, sums.view().narrow(1, len - 2..len - 1)?.to_vec()?[0]), (f16::ONE, f16::ZERO));
        assert_eq!(last(&general::contiguous(cx, &x)?)?, f16::ONE);
        Ok(())
    });
}

/// Two dimensions that follow each other are longer than one may be.
#[test]
fn dimensions_are_not_joined_beyond_what_is_counted() {
    on_every_device(|cx| {
        let Some(x) = one_at_the_end(cx, [131_072, 16_384])? else { return Ok(()) };
        assert_eq!(last(&general::relu(cx, &x)?)?, f16::ONE);
        assert_eq!(last(&general::contiguous(cx, &x)?)?, f16::ONE);
        let row = x.view().narrow(0, 131_071..131_072)?;
        assert_eq!(last(&general::add(cx, &x, row)?)?, f16::from_f32(2.0));
        Ok(())
    });
}

/// What is refused is refused before memory is asked for.
#[test]
fn results_beyond_what_is_counted_are_refused() -> Result<(), Error> {
    let pooling = Pooling::new([2, 2]).stride([1, 1]).padding([1, 1]);
    let text = message(pooling.result([2048, 1023, 1023, 1]));
    assert!(text.contains("`out`") && text.contains("2147483648"), "{text}");
    let text = message(Pooling::new([2, 2]).stride([usize::MAX, 1]).result([1, 2, 2, 1]));
    assert!(text.contains("`pooling`"), "{text}");
    let convolution = Convolution::default().stride([1 << 31, 1]);
    let text = message(convolution.result([1, 4, 4, 1], [1, 2, 2, 1]));
    assert!(text.contains("`convolution`"), "{text}");
    assert_eq!(pooling.result([2, 1023, 1023, 1])?, [2, 1024, 1024, 1]);
    Ok(())
}
