//! Group norm.

use super::norm::{EPS, normed};
use crate::families::frame::{Library, Row, size, tensor, triton};
use tilewright::prelude::*;
use tilewright_bench::cubin::Argument;
use tilewright_bench::data::{Input, Output, Segment, Tolerance, sampled};
use tilewright_bench::element::Element;
use tilewright_bench::{Failure, Stage};
use tilewright_kernels::rows::{self, GroupNormConfig, Norm};

/// Samples, channels, elements of a channel, and groups of channels.
#[derive(Clone, Copy)]
struct Size {
    samples: usize,
    channels: usize,
    inner: usize,
    groups: usize,
}

impl Size {
    fn of(stage: &Stage) -> Size {
        let full = Size { samples: 128, channels: 512, inner: 512, groups: 32 };
        stage.either(full, Size { samples: 2, channels: 8, inner: 40, groups: 2 })
    }

    fn shape(self) -> [usize; 3] {
        [self.samples, self.channels, self.inner]
    }

    fn len(self) -> usize {
        self.samples * self.channels * self.inner
    }

    /// Elements of a group.
    fn group(self) -> usize {
        self.channels / self.groups * self.inner
    }

    fn name(self) -> String {
        format!("{}x{}x{}", self.samples, self.channels, self.inner)
    }

    fn library<'a>(self, library: Library<'a>) -> Library<'a> {
        let sizes = [self.samples * self.groups, self.channels / self.groups, self.inner];
        let tried = [(16, 512, 8), (16, 512, 16), (16, 512, 32), (4, 512, 8), (8, 512, 4)];
        let configs = tried.map(|(channels, block, num_warps)| GroupNormConfig { channels, block, num_warps });
        library.tried(bf16::ELEMENT, &sizes, &configs)
    }
}

pub fn forward(stage: &mut Stage) -> Result<(), Failure> {
    let (device, sizes) = (stage.device(), Size::of(stage));
    let Size { samples, channels, inner, groups } = sizes;
    let x = Input::<bf16>::normal(&device, 6, sizes.len(), 0)?;
    let weight = Input::<bf16>::normal(&device, 7, channels, 0)?;
    let bias = Input::<bf16>::normal(&device, 8, channels, 0)?;
    let (w, b) = (weight.read(0, channels)?, bias.read(0, channels)?);
    let mut expected = Vec::new();
    for group in sampled(samples * groups) {
        let at = group * sizes.group();
        let (data, _) = normed(&x.read(at, sizes.group())?, true);
        let first = group % groups * (channels / groups);
        let scaled = |(i, x): (usize, f64)| x * w[first + i / inner] + b[first + i / inner];
        expected.push(Segment { at, values: data.into_iter().enumerate().map(scaled).collect() });
    }
    let out = Output::<bf16>::new(&device, sizes.len(), 0, Tolerance::of::<bf16>(8e-6, 4.0), expected)?;
    let library = sizes.library(Library::new(stage, |cx| {
        let norm = Norm::default().weight(tensor(&weight, [channels])?).bias(tensor(&bias, [channels])?);
        let y = rows::group_norm(cx, tensor(&x, sizes.shape())?, groups, &norm.eps(f64::from(EPS)))?;
        out.give(y.into_buffer());
        Ok(())
    }));
    let pointers = [x.argument(), weight.argument(), bias.argument(), out.argument()];
    let numbers = [size(channels / groups), size(inner), size(groups), Argument::F32(EPS)];
    let arguments = pointers.into_iter().chain(numbers).collect();
    let peers = triton(stage, ("group_norm", bf16::NAME), arguments, |_| Some([samples * groups, 1, 1]))?;
    Row::moving("group_norm", sizes.name(), bf16::NAME, 4 * sizes.len()).hold(stage, vec![&out], peers, library)
}

pub fn backward(stage: &mut Stage) -> Result<(), Failure> {
    let (device, sizes) = (stage.device(), Size::of(stage));
    let Size { samples, channels, inner, groups } = sizes;
    let x = Input::<bf16>::normal(&device, 6, sizes.len(), 0)?;
    let dy = Input::<bf16>::normal(&device, 9, sizes.len(), 0)?;
    let weight = Input::<bf16>::normal(&device, 7, channels, 0)?;
    let bias = Input::<bf16>::normal(&device, 8, channels, 0)?;
    let w = weight.read(0, channels)?;
    let mut expected = Vec::new();
    for group in sampled(samples * groups) {
        let (at, count) = (group * sizes.group(), sizes.group() as f64);
        let (normed, rstd) = normed(&x.read(at, sizes.group())?, true);
        let first = group % groups * (channels / groups);
        let scaled = dy.read(at, sizes.group())?;
        let g: Vec<f64> = scaled.iter().enumerate().map(|(i, dy)| dy * w[first + i / inner]).collect();
        let along = g.iter().zip(&normed).map(|(g, x)| g * x).sum::<f64>() / count;
        let mean = g.iter().sum::<f64>() / count;
        let values = g.iter().zip(&normed).map(|(g, x)| rstd * (g - mean - x * along)).collect();
        expected.push(Segment { at, values });
    }
    let out = Output::<bf16>::new(&device, sizes.len(), 0, Tolerance::of::<bf16>(8e-6, 2.0), expected)?;
    let library = sizes.library(Library::new(stage, |cx| {
        let norm = Norm::default().weight(tensor(&weight, [channels])?).bias(tensor(&bias, [channels])?);
        let (x, dy) = (tensor(&x, sizes.shape())?, tensor(&dy, sizes.shape())?);
        let gradients = rows::group_norm_backward(cx, x, dy, groups, &norm.eps(f64::from(EPS)))?;
        out.give(gradients.dx.into_buffer());
        Ok(())
    }));
    let row = Row::moving("group_norm_backward", sizes.name(), bf16::NAME, 6 * sizes.len());
    row.hold(stage, vec![&out], Vec::new(), library)
}
