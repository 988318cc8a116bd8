//! What elementwise kernels have in common: vectors in, a vector out.

use tilewright::{View, ViewMut};
use tilewright_bench::cubin::Argument;
use tilewright_bench::data::{Input, Output, Segment, Tolerance};
use tilewright_bench::element::Element;
use tilewright_bench::shape::Vector;
use tilewright_bench::{Contender, Contest, Failure, How, Stage};

/// Block sizes and warps to try.
pub const CONFIGS: [(usize, u32); 7] = [(512, 4), (512, 8), (1024, 4), (1024, 8), (2048, 4), (2048, 8), (4096, 8)];

/// What a call of a kernel needs: block size and warps, inputs, output.
pub struct Call<'a, T: Element> {
    pub block: usize,
    pub warps: u32,
    pub x: &'a [View<'a, T>],
    pub out: ViewMut<'a, T>,
    pub n: i32,
}

impl<T: Element> Call<'_, T> {
    /// How many programs it takes.
    pub fn programs(&self) -> usize {
        (self.n as usize).div_ceil(self.block)
    }
}

/// A way to write a kernel: a name, and what submits it.
pub type Method<T> = (&'static str, fn(Call<'_, T>, &How<'_>) -> Result<(), Failure>);

/// An elementwise work.
pub struct Elementwise<T: Element> {
    pub work: &'static str,
    pub inputs: usize,
    pub methods: Vec<Method<T>>,
    /// Arguments that the peer takes after the length.
    pub extra: Vec<Argument>,
    /// The result at an index, from the inputs there.
    pub reference: fn(usize, &[f64]) -> f64,
    /// Relative error of the f32 arithmetic; results are about 1 in size.
    pub arithmetic: f64,
}

/// Which elements are compared with the reference: both ends, and some between.
fn sampled(n: usize) -> Vec<(usize, usize)> {
    let len = n.min(3000);
    vec![(0, len), (n / 2, len.min(n - n / 2)), (n - len, len)]
}

impl<T: Element> Elementwise<T> {
    pub fn contest(&self, stage: &mut Stage, vector: Vector) -> Result<(), Failure> {
        let device = stage.device();
        let Vector { len, start } = vector;
        let inputs = (0..self.inputs).map(|i| Input::<T>::normal(&device, i as u64 + 1, len, start));
        let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
        let mut expected = Vec::new();
        for (at, count) in sampled(len) {
            let data = inputs.iter().map(|x| x.read(at, count)).collect::<Result<Vec<_>, _>>()?;
            let value = |i: usize| (self.reference)(at + i, &data.iter().map(|x| x[i]).collect::<Vec<_>>());
            expected.push(Segment { at, values: (0..count).map(value).collect() });
        }
        let out = Output::<T>::new(&device, len, start, Tolerance::of::<T>(self.arithmetic, 1.0), expected)?;
        let mut ours = Contender::ours();
        for &(method, submit) in &self.methods {
            for (block, warps) in CONFIGS {
                let (inputs, out) = (&inputs, &out);
                ours.config(format!("{method} BLOCK={block} warps={warps}").trim().to_string(), move |how| {
                    let x = inputs.iter().map(Input::view).collect::<Result<Vec<_>, _>>()?;
                    let mut out = out.lock();
                    submit(Call { block, warps, x: &x, out: out.view()?, n: len as i32 }, how)
                });
            }
        }
        let mut arguments: Vec<Argument> = inputs.iter().map(Input::argument).collect();
        arguments.extend([out.argument(), Argument::I32(len as i32)]);
        arguments.extend(&self.extra);
        let triton = stage.triton((self.work, T::NAME, vector.variant()), arguments, |e| {
            Some([len.div_ceil(e.get("BLOCK")?), 1, 1])
        })?;
        stage.hold(Contest {
            work: self.work,
            shape: vector.to_string(),
            dtype: T::NAME,
            bytes: ((self.inputs + 1) * len * size_of::<T>()) as f64,
            flops: 0.0,
            outputs: vec![&out],
            contenders: vec![triton, ours],
        })
    }
}
