//! Training: batches, gradients, AdamW.

use std::time::{Duration, Instant};

use tilewright::Result;
use tilewright_kernels::rows::{self, CrossEntropy};
use tilewright_kernels::training::{self, AdamW, AdamWState, Packed, Step};
use tilewright_kernels::{Context, Tensor};

use crate::model::Model;
use crate::parameters::{Parameters, Real};
use crate::random::Random;
use crate::tokens::{Batch, Text};

/// How to train.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub steps: usize,
    /// Sequences of a step.
    pub batch: usize,
    /// The highest learning rate. It rises over the first twentieth of the steps, then falls as a cosine to a tenth.
    pub rate: f32,
    /// A loss is read back, which waits for the device, once in as many steps.
    pub every: usize,
    pub seed: u64,
}

impl Plan {
    fn rate_at(&self, step: usize) -> f32 {
        let warm = (self.steps / 20).max(1);
        if step < warm {
            return self.rate * (step + 1) as f32 / warm as f32;
        }
        let done = (step - warm) as f32 / (self.steps - warm).max(1) as f32;
        self.rate * (0.55 + 0.45 * (std::f32::consts::PI * done).cos())
    }
}

/// What AdamW keeps between steps.
pub struct Optimiser<T: Real> {
    gradients: Parameters<T>,
    means: Packed<f32>,
    squares: Packed<f32>,
    /// The parameters in f32, if those of the model have 16 bits.
    master: Option<Parameters<f32>>,
    decays: Tensor<f32, 1>,
    steps: u64,
}

impl<T: Real> Optimiser<T> {
    /// For a model that was made with this seed.
    pub fn new(model: &Model<T>, seed: u64) -> Result<Self> {
        let (cx, shape) = (&model.cx, model.shape);
        let pack = model.parameters.packed.pack();
        let master = (size_of::<T>() == 2).then(|| Parameters::random(cx, shape, seed)).transpose()?;
        Ok(Optimiser {
            gradients: Parameters::zeros(cx, shape)?,
            means: pack.zeros(cx)?,
            squares: pack.zeros(cx)?,
            master,
            decays: model.parameters.decays(cx, 0.1)?,
            steps: 0,
        })
    }

    /// The gradients of the last step.
    #[cfg(test)]
    pub fn gradients(&self) -> &Parameters<T> {
        &self.gradients
    }

    /// One step: the loss before it, which stays on the device.
    pub fn step(&mut self, model: &mut Model<T>, batch: &Batch, rate: f32) -> Result<Tensor<f32, 1>> {
        let loss = self.differentiate(model, batch)?;
        let cx = &model.cx;
        // Gradients longer than 1 are shortened (Pascanu et al., 2013). The factor is computed and read on the device.
        let norm = training::global_norm(cx, &[self.gradients.packed.all()?])?;
        let factor = training::clip_factor(cx, &norm, 1.0)?;
        self.steps += 1;
        let state = AdamWState {
            mean: self.means.all_mut()?,
            square: self.squares.all_mut()?,
            master: self.master.as_mut().map(|master| master.packed.all_mut()).transpose()?,
        };
        let options = AdamW { rate, beta2: 0.99, ..AdamW::default() };
        let step = Step::new(self.steps).scale(&factor).decays(&self.decays);
        let (parameters, gradients) = (model.parameters.packed.all_mut()?, self.gradients.packed.all()?);
        training::adamw(cx, parameters, gradients, state, &options, step)?;
        Ok(loss)
    }

    /// The loss, and the gradients.
    pub fn differentiate(&mut self, model: &Model<T>, batch: &Batch) -> Result<Tensor<f32, 1>> {
        let (cx, context) = (&model.cx, model.shape.context);
        let ids = vector(cx, &batch.inputs)?;
        let targets = vector(cx, &batch.targets)?;
        let order = vector(cx, &rows::positions_in_order(&batch.inputs))?;
        let kept = model.forward(&ids, batch.inputs.len() / context)?;
        model.backward(kept, &ids, &order, &targets, &mut self.gradients)
    }
}

/// Numbers on the device.
pub fn vector(cx: &Context, numbers: &[i32]) -> Result<Tensor<i32, 1>> {
    Tensor::upload(cx.device(), numbers, [numbers.len()])
}

/// How far training is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Steps that are done.
    pub step: usize,
    pub loss: f32,
    /// Of the steps since the last report.
    pub tokens_per_second: f64,
    pub elapsed: Duration,
}

/// Trains, and reports now and then.
pub fn train<T: Real>(
    model: &mut Model<T>,
    text: &Text,
    plan: &Plan,
    mut report: impl FnMut(Progress),
) -> Result<Vec<Progress>> {
    let (learned, _) = text.parts();
    let mut random = Random::new(plan.seed ^ 0xBA7C4);
    let mut optimiser = Optimiser::new(model, plan.seed)?;
    let (start, mut curve) = (Instant::now(), Vec::new());
    let (mut last, mut since) = (start, 0);
    for step in 0..plan.steps {
        let batch = Batch::random(learned, plan.batch, model.shape.context, &mut random);
        since += batch.inputs.len();
        let loss = optimiser.step(model, &batch, plan.rate_at(step))?;
        if (step + 1) % plan.every == 0 || step == 0 || step + 1 == plan.steps {
            let loss = loss.to_vec()?[0];
            let tokens_per_second = since as f64 / last.elapsed().as_secs_f64();
            let progress = Progress { step: step + 1, loss, tokens_per_second, elapsed: start.elapsed() };
            report(progress);
            curve.push(progress);
            (last, since) = (Instant::now(), 0);
        }
    }
    Ok(curve)
}

/// The mean loss over text that was not learned.
pub fn evaluate<T: Real>(model: &Model<T>, text: &Text, batch: usize) -> Result<f32> {
    let context = model.shape.context;
    let batch = Batch::first(text.parts().1, batch, context);
    let (ids, targets) = (vector(&model.cx, &batch.inputs)?, vector(&model.cx, &batch.targets)?);
    let logits = model.predict(&ids, batch.inputs.len() / context)?;
    Ok(rows::cross_entropy(&model.cx, &logits, &targets, CrossEntropy::default())?.to_vec()?[0])
}
