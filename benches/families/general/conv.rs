//! Convolutions, channels last.

use crate::families::frame::{Library, Row, tensor};
use tilewright::prelude::*;
use tilewright_bench::data::{Input, Output, Segment, Tolerance};
use tilewright_bench::element::Element;
use tilewright_bench::{Failure, Stage};
use tilewright_kernels::general::{self, ConvConfig, ConvWeightConfig, Convolution};

/// Images, their height, which is their width, channels of the image and of the result; filters are 3 by 3.
#[derive(Clone, Copy)]
struct Size {
    images: usize,
    side: usize,
    channels: usize,
}

impl Size {
    fn of(stage: &Stage) -> Size {
        stage.either(Size { images: 32, side: 56, channels: 64 }, Size { images: 1, side: 6, channels: 16 })
    }

    fn image(self) -> [usize; 4] {
        [self.images, self.side, self.side, self.channels]
    }

    fn filters(self) -> [usize; 4] {
        [self.channels, 3, 3, self.channels]
    }

    fn len(self) -> usize {
        self.image().iter().product()
    }

    fn row(self, work: &'static str) -> Row {
        let Size { images, side, channels } = self;
        let filters: usize = self.filters().iter().product();
        let bytes = 2 * (2 * self.len() + filters);
        let flops = 2.0 * (images * side * side) as f64 * filters as f64;
        Row::moving(work, format!("{images}x{side}x{side}x{channels} 3x3"), f16::NAME, bytes).computing(flops)
    }

    fn library<'a>(self, library: Library<'a>) -> Library<'a> {
        let sizes = [self.images * self.side * self.side, self.channels, self.channels];
        let tried =
            [(128, 64, 64, 4, 3), (64, 64, 64, 4, 4), (128, 64, 64, 8, 4), (256, 64, 64, 8, 3), (128, 64, 32, 4, 6)];
        let configs = tried.map(|(block_m, block_n, block_k, num_warps, num_stages)| ConvConfig {
            block_m,
            block_n,
            block_k,
            num_warps,
            num_stages,
        });
        library.tried(f16::ELEMENT, &sizes, &configs)
    }
}

const SAME: [usize; 2] = [1, 1];

/// Pixels that are compared: a corner, one in the middle, the last.
fn pixels(sizes: Size) -> [usize; 3] {
    let all = sizes.images * sizes.side * sizes.side;
    [0, all / 2 + sizes.side / 2, all - 1]
}

/// The sums over the 3 by 3 neighbours of a pixel of what `term` adds: the neighbour's channels, and the tap.
fn around(
    sizes: Size,
    data: &Input<f16>,
    pixel: usize,
    mut term: impl FnMut(&[f64], usize),
    turned: bool,
) -> Result<(), Failure> {
    let Size { side, channels, .. } = sizes;
    let (image, y, x) = (pixel / (side * side), pixel / side % side, pixel % side);
    for tap in 0..9 {
        let (i, j) = (tap / 3, tap % 3);
        let (i, j) = if turned { (2 - i, 2 - j) } else { (i, j) };
        let (Some(row), Some(column)) = ((y + i).checked_sub(1), (x + j).checked_sub(1)) else { continue };
        if row < side && column < side {
            let place = (image * side + row) * side + column;
            term(&data.read(place * channels, channels)?, tap);
        }
    }
    Ok(())
}

/// Sums of 576 products of about 1 by 1/24, rounded once.
fn output(device: &Device, sizes: Size, expected: Vec<Segment>) -> Result<Output<f16>, Error> {
    Output::new(device, sizes.len(), 0, Tolerance::of::<f16>(1e-5, 4.0), expected)
}

pub fn forward(stage: &mut Stage) -> Result<(), Failure> {
    let (device, sizes) = (stage.device(), Size::of(stage));
    let channels = sizes.channels;
    let x = Input::<f16>::normal(&device, 1, sizes.len(), 0)?;
    let filters = Input::<f16>::scaled(&device, 2, 9 * channels * channels, 1.0 / 24.0)?;
    let f = filters.read(0, filters.len())?;
    let mut expected = Vec::new();
    for pixel in pixels(sizes) {
        let mut values = vec![0.0; channels];
        let add = |x: &[f64], tap: usize| {
            for (o, sum) in values.iter_mut().enumerate() {
                let own = &f[(o * 9 + tap) * channels..][..channels];
                *sum += own.iter().zip(x).map(|(f, x)| f * x).sum::<f64>();
            }
        };
        around(sizes, &x, pixel, add, false)?;
        expected.push(Segment { at: pixel * channels, values });
    }
    let out = output(&device, sizes, expected)?;
    let library = sizes.library(Library::new(stage, |cx| {
        let (x, filters) = (tensor(&x, sizes.image())?, tensor(&filters, sizes.filters())?);
        let y = general::conv2d(cx, x, filters, None, Convolution::default().padding(SAME))?;
        out.give(y.into_buffer());
        Ok(())
    }));
    sizes.row("conv2d").hold(stage, vec![&out], Vec::new(), library)
}

pub fn backward_input(stage: &mut Stage) -> Result<(), Failure> {
    let (device, sizes) = (stage.device(), Size::of(stage));
    let channels = sizes.channels;
    let dy = Input::<f16>::normal(&device, 1, sizes.len(), 0)?;
    let filters = Input::<f16>::scaled(&device, 2, 9 * channels * channels, 1.0 / 24.0)?;
    let f = filters.read(0, filters.len())?;
    let mut expected = Vec::new();
    for pixel in pixels(sizes) {
        let mut values = vec![0.0; channels];
        let add = |dy: &[f64], tap: usize| {
            for (o, dy) in dy.iter().enumerate() {
                let own = &f[(o * 9 + tap) * channels..][..channels];
                values.iter_mut().zip(own).for_each(|(sum, f)| *sum += dy * f);
            }
        };
        around(sizes, &dy, pixel, add, true)?;
        expected.push(Segment { at: pixel * channels, values });
    }
    let out = output(&device, sizes, expected)?;
    let library = sizes.library(Library::new(stage, |cx| {
        let (filters, dy) = (tensor(&filters, sizes.filters())?, tensor(&dy, sizes.image())?);
        let convolution = Convolution::default().padding(SAME);
        out.give(general::conv2d_backward_input(cx, sizes.image(), filters, dy, convolution)?.into_buffer());
        Ok(())
    }));
    sizes.row("conv2d_backward_input").hold(stage, vec![&out], Vec::new(), library)
}

fn weight_configs() -> [ConvWeightConfig; 8] {
    let tried = [
        (64, 4, 4, 528),
        (64, 4, 2, 1056),
        (64, 4, 3, 264),
        (64, 4, 3, 396),
        (64, 4, 3, 792),
        (64, 4, 3, 1056),
        (128, 4, 2, 528),
        (128, 8, 2, 396),
    ];
    tried.map(|(block_k, num_warps, num_stages, programs)| ConvWeightConfig {
        block_m: 64,
        block_n: 64,
        block_k,
        num_warps,
        num_stages,
        programs,
    })
}

pub fn backward_weight(stage: &mut Stage) -> Result<(), Failure> {
    let (device, sizes) = (stage.device(), Size::of(stage));
    let Size { images, side, channels } = sizes;
    let x = Input::<f16>::normal(&device, 1, sizes.len(), 0)?;
    let dy = Input::<f16>::normal(&device, 2, sizes.len(), 0)?;
    // The taps of the first filter, for the first channel of the image: a row of the image at a time.
    let mut values = [0.0; 9];
    for image in 0..images {
        let width = side * channels;
        let read = |data: &Input<f16>, row: usize| data.read((image * side + row) * width, width);
        for row in 0..side {
            let dy = read(&dy, row)?;
            for i in 0..3 {
                let Some(from) = (row + i).checked_sub(1).filter(|from| *from < side) else { continue };
                let x = read(&x, from)?;
                for j in 0..3 {
                    let inside = (0..side).filter(|q| (1..=side).contains(&(q + j)));
                    let terms = inside.map(|q| dy[q * channels] * x[(q + j - 1) * channels]);
                    values[3 * i + j] += terms.sum::<f64>();
                }
            }
        }
    }
    let expected = (0..9).map(|tap| Segment { at: tap * channels, values: vec![values[tap]] }).collect();
    // Sums of as many products of about 1 as there are pixels, in f32.
    let pixels = (images * side * side) as f64;
    let tolerance = Tolerance { relative: f16::HALF_ULP, absolute: 1e-5 * pixels.sqrt() };
    let out = Output::<f16>::new(&device, 9 * channels * channels, 0, tolerance, expected)?;
    let library = Library::new(stage, |cx| {
        let (x, dy) = (tensor(&x, sizes.image())?, tensor(&dy, sizes.image())?);
        let convolution = Convolution::default().padding(SAME);
        out.give(general::conv2d_backward_weight(cx, x, dy, sizes.filters(), convolution)?.into_buffer());
        Ok(())
    })
    .tried(f16::ELEMENT, &[images * side * side, channels, channels], &weight_configs());
    sizes.row("conv2d_backward_weight").hold(stage, vec![&out], Vec::new(), library)
}
