//! Convolutions and their gradients, into tensors and in workspaces that are given.

use super::check;
use crate::common::{Random, message, on_every_device, read};
use tilewright::prelude::*;
use tilewright_kernels::Tensor;
use tilewright_kernels::general::{self, Convolution};

/// A convolution of one dimension is that of images of one row.
#[test]
fn convolutions_of_lines_into_tensors() {
    on_every_device(|cx| {
        let (device, how) = (cx.device(), Convolution::default().padding([0, 2]).stride([1, 2]).groups(2));
        let mut random = Random::new(80);
        let (filters, _) = &random.tensor::<f16, 3>(cx, [4, 3, 5]);
        let image = filters.view().reshape([4, 1, 3, 5])?;
        for n in [2, 0] {
            let (x, _) = &random.tensor::<f16, 3>(cx, [n, 9, 10]);
            let (dy, _) = &random.tensor::<f16, 3>(cx, [n, 6, 4]);
            let (rows, drows) = (x.view().reshape([n, 1, 9, 10])?, dy.view().reshape([n, 1, 6, 4])?);
            let want = (
                general::conv2d(cx, rows, image, None, how)?.to_vec()?,
                general::conv2d_backward_input(cx, rows.shape(), image, drows, how)?.to_vec()?,
                general::conv2d_backward_weight(cx, rows, drows, image.shape(), how)?.to_vec()?,
            );
            let got = (
                general::conv1d(cx, x, filters, None, how)?.to_vec()?,
                general::conv1d_backward_input(cx, x.shape(), filters, dy, how)?.to_vec()?,
                general::conv1d_backward_weight(cx, x, dy, filters.shape(), how)?,
            );
            assert_eq!((&got.0, &got.1, got.2.to_vec()?), (&want.0, &want.1, want.2));
            let (mut y, mut dx) = (Tensor::zeros(device, dy.shape())?, Tensor::zeros(device, x.shape())?);
            let stream = device.new_stream()?;
            let graph = stream.capture(|stream| {
                let cx = cx.clone().with_stream(stream);
                general::conv1d_into(&cx, x, filters, None, how, &mut y)?;
                general::conv1d_backward_input_into(&cx, filters, dy, how, &mut dx)
            })?;
            graph.replay()?;
            assert_eq!((y.to_vec()?, dx.to_vec()?), (want.0, want.1));
            let mut dfilters = Tensor::zeros(device, filters.shape())?;
            general::conv1d_backward_weight_into(cx, x, dy, how, &mut dfilters)?;
            assert_eq!(read(&dfilters)?, read(&got.2)?);
            let room = general::conv1d_backward_weight_workspace(cx, x, filters.shape(), how)?;
            check(cx, (room, f32::NAN), got.2, |cx, workspace, out| {
                general::conv1d_backward_weight_into_with(cx, x, dy, how, out, workspace)
            })?;
        }
        let (x, mut y) = (Tensor::<f16, 3>::zeros(device, [1, 9, 10])?, Tensor::zeros(device, [1, 5, 4])?);
        let refused = message(general::conv1d_into(cx, &x, filters, None, how, &mut y));
        assert_eq!(refused, "`out` has the shape [1, 5, 4]; the other arguments ask for [1, 6, 4]");
        // With that stride there is one row, of padding alone.
        for tall in [how.padding([1, 2]), how.padding([1, 2]).stride([3, 1])] {
            let refused = message(general::conv1d_into(cx, &x, filters, None, tall, &mut y));
            assert_eq!(refused, "`convolution` has a padding of height; leave it at 0");
        }
        Ok(())
    });
}

#[test]
fn convolutions_into_tensors() {
    on_every_device(|cx| {
        let (device, how) = (cx.device(), Convolution::default().padding([1, 1]));
        let filters_shape = [4, 3, 3, 5];
        let mut random = Random::new(67);
        let (filters, _) = &random.tensor::<f16, 4>(cx, filters_shape);
        // Of no images gradients are sums over nothing.
        for n in [2, 0] {
            let (x, _) = &random.tensor::<f16, 4>(cx, [n, 6, 7, 5]);
            let (dy, _) = &random.tensor::<f16, 4>(cx, [n, 6, 7, 4]);
            let want = (
                general::conv2d(cx, x, filters, None, how)?,
                general::conv2d_backward_input(cx, x.shape(), filters, dy, how)?,
            );
            let (mut y, mut dx) = (Tensor::zeros(device, dy.shape())?, Tensor::zeros(device, x.shape())?);
            let stream = device.new_stream()?;
            let graph = stream.capture(|stream| {
                let cx = cx.clone().with_stream(stream);
                general::conv2d_into(&cx, x, filters, None, how, &mut y)?;
                general::conv2d_backward_input_into(&cx, filters, dy, how, &mut dx)
            })?;
            graph.replay()?;
            assert_eq!((read(&y)?, read(&dx)?), (read(&want.0)?, read(&want.1)?));
            let room = general::conv2d_backward_weight_workspace(cx, x, filters_shape, how)?;
            let want = general::conv2d_backward_weight(cx, x, dy, filters_shape, how)?;
            assert!(n > 0 || want.to_vec()? == [f16::ZERO; 180]);
            let mut dfilters = Tensor::zeros(device, filters_shape)?;
            general::conv2d_backward_weight_into(cx, x, dy, how, &mut dfilters)?;
            assert_eq!(read(&dfilters)?, read(&want)?);
            check(cx, (room, f32::NAN), want, |cx, workspace, out| {
                general::conv2d_backward_weight_into_with(cx, x, dy, how, out, workspace)
            })?;
        }
        Ok(())
    });
}

/// So many parts that their sums are added up in pieces.
#[test]
fn gradients_of_many_pixels_within_a_workspace() {
    on_every_device(|cx| {
        let (how, filters_shape) = (Convolution::default(), [16, 1, 1, 8]);
        let mut random = Random::new(68);
        let (x, _) = &random.tensor::<bf16, 4>(cx, [1, 260, 256, 8]);
        let (dy, _) = &random.tensor::<bf16, 4>(cx, [1, 260, 256, 16]);
        let room = general::conv2d_backward_weight_workspace(cx, x, filters_shape, how)?;
        assert!(room > 130 * 128, "{room}");
        let want = general::conv2d_backward_weight(cx, x, dy, filters_shape, how)?;
        check(cx, (room, f32::NAN), want, |cx, workspace, out| {
            general::conv2d_backward_weight_into_with(cx, x, dy, how, out, workspace)
        })
    });
}
