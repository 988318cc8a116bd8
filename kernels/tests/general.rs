//! Functions over tensors of any shape.

mod conv;
mod elementwise;
mod gather;
mod long;
mod pool;
mod quantise;
mod reduce;
mod scan;
mod sort;
mod workspace;

use crate::common::{Random, message, on_every_device};
use tilewright_kernels::{Tensor, TensorView, TensorViewMut, general};

/// Copies with every order of dimensions on both sides.
#[test]
fn copies_of_any_strides_are_exact() {
    on_every_device(|cx| {
        let mut random = Random::new(1);
        let x: Vec<i32> = (0..3 * 70 * 5 * 65).map(|_| random.bits() as i32).collect();
        let x = Tensor::upload(cx.device(), &x, [3, 70, 5, 65])?;
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1], [0, 1, 3, 2]] {
            let view = x.view().permute(order)?;
            assert_eq!(general::contiguous(cx, view)?.to_vec()?, view.to_vec()?, "{order:?}");
        }
        Ok(())
    });
}

#[test]
fn copies_write_into_parts_and_nothing_else() {
    on_every_device(|cx| {
        let x = Tensor::upload(cx.device(), &[1u8, 2, 3, 4, 5, 6], [2, 3])?;
        let mut buffer = cx.device().full(24, 9u8)?;
        let out = TensorViewMut::with_strides(&mut buffer, [2, 6], [12, 1])?.narrow(1, 2..5)?;
        general::copy_into(cx, &x, out)?;
        let mut want = vec![9; 24];
        want[2..5].copy_from_slice(&[1, 2, 3]);
        want[14..17].copy_from_slice(&[4, 5, 6]);
        assert_eq!(buffer.to_vec()?, want);
        Ok(())
    });
}

#[test]
fn copies_of_more_dimensions_than_a_launch_has() {
    on_every_device(|cx| {
        let x: Vec<u16> = (0..2 * 3 * 2 * 3 * 2 * 3).collect();
        let x = Tensor::upload(cx.device(), &x, [2, 3, 2, 3, 2, 3])?;
        let view = x.view().permute([5, 3, 1, 4, 2, 0])?;
        assert_eq!(general::contiguous(cx, view)?.to_vec()?, view.to_vec()?);
        let repeated = TensorView::new(x.buffer(), [1, 4])?.broadcast(0, 3)?;
        assert_eq!(general::contiguous(cx, repeated)?.to_vec()?, [0, 1, 2, 3].repeat(3));
        assert_eq!(general::contiguous(cx, x.view().narrow(0, 1..1)?)?.len(), 0);
        Ok(())
    });
}

#[test]
fn shapes_that_differ_are_refused() {
    on_every_device(|cx| {
        let x = Tensor::<f32, 2>::zeros(cx.device(), [2, 3])?;
        let mut out = Tensor::<f32, 2>::zeros(cx.device(), [3, 2])?;
        assert_eq!(
            message(general::copy_into(cx, &x, &mut out)),
            "`out` has the shape [3, 2]; the other arguments ask for [2, 3]"
        );
        Ok(())
    });
}
