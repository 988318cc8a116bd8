//! The contests, by work.

mod gated;
mod loss;
mod norm;
mod rotary;

use tilewright::prelude::*;
use tilewright_bench::data::Input;
use tilewright_bench::element::Element;
use tilewright_bench::{Contender, Failure, How, Stage};
use tilewright_kernels::{Context, TensorView};

/// A benchmark: holds the contests of one work.
type Bench = fn(&mut Stage) -> Result<(), Failure>;

/// All works by the names that `--only` takes.
const ALL: [(&str, Bench); 9] = [
    ("rms_norm", norm::rms_norm),
    ("rms_norm_backward", norm::rms_norm_backward),
    ("layer_norm", norm::layer_norm),
    ("softmax", norm::softmax),
    ("swiglu", gated::swiglu),
    ("swiglu_backward", gated::swiglu_backward),
    ("geglu_backward", gated::geglu_backward),
    ("rotary", rotary::rotary),
    ("cross_entropy_gradient", loss::cross_entropy_gradient),
];

/// Holds all contests that the stage wants.
pub fn all(stage: &mut Stage) -> Result<(), Failure> {
    for (name, bench) in ALL {
        if stage.wants(name) {
            bench(stage)?;
        }
    }
    Ok(())
}

/// The library as a contender: a call of its function.
fn library<'a>(call: impl Fn(&Context) -> Result<(), Failure> + 'a) -> Contender<'a> {
    let mut ours = Contender::ours();
    ours.config("library".to_string(), move |how| match how {
        How::Launch(device) => call(&Context::new(device)),
        How::Compile(..) | How::Inspect(..) => Ok(()),
    });
    ours
}

/// An input as a tensor.
fn tensor<T: Element, const R: usize>(input: &Input<T>, shape: [usize; R]) -> Result<TensorView<'_, T, R>, Error> {
    TensorView::new(input.view()?, shape)
}
