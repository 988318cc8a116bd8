//! Chains of elementwise functions in one kernel: cosine then sine, GELU, SwiGLU.

use tilewright::prelude::*;
use tilewright_bench::element::Element;
use tilewright_bench::{Failure, Stage, Submit};

use super::elementwise::Elementwise;

/// `out = sin(cos(x))`
#[kernel]
pub fn cos_sin<T: Float, const BLOCK: usize>(x: Ptr<T>, out: PtrMut<T>, n: i32) {
    let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = offsets < n;
    let value = load(x + offsets, mask = mask) as f32;
    store(out + offsets, sin(cos(value)) as T, mask = mask);
}

/// `out = 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`
#[kernel]
pub fn gelu<T: Float, const BLOCK: usize>(x: Ptr<T>, out: PtrMut<T>, n: i32) {
    let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = offsets < n;
    let value = load(x + offsets, mask = mask) as f32;
    let inner = 0.7978845608 * (value + 0.044715 * value * value * value);
    store(out + offsets, (0.5 * value * (1.0 + tanh(inner))) as T, mask = mask);
}

/// The same by `(1 + tanh(u)) / 2 = sigmoid(2 u)`.
#[kernel]
pub fn gelu_sigmoid<T: Float, const BLOCK: usize>(x: Ptr<T>, out: PtrMut<T>, n: i32) {
    let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = offsets < n;
    let value = load(x + offsets, mask = mask) as f32;
    let inner = 0.7978845608 * (value + 0.044715 * value * value * value);
    store(out + offsets, (value * sigmoid(2.0 * inner)) as T, mask = mask);
}

/// `out = gate sigmoid(gate) up`
#[kernel]
pub fn swiglu<T: Float, const BLOCK: usize>(gate: Ptr<T>, up: Ptr<T>, out: PtrMut<T>, n: i32) {
    let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = offsets < n;
    let g = load(gate + offsets, mask = mask) as f32;
    let u = load(up + offsets, mask = mask) as f32;
    store(out + offsets, (g * sigmoid(g) * u) as T, mask = mask);
}

fn cos_sin_work<T: Element>() -> Elementwise<T> {
    Elementwise {
        work: "cos_sin",
        inputs: 1,
        methods: vec![("", |c, how| {
            let grid = c.programs();
            CosSinConsts { BLOCK: c.block }.call(c.x[0], c.out, c.n).grid(grid).num_warps(c.warps).submit(how)
        })],
        extra: Vec::new(),
        reference: |_, x| x[0].cos().sin(),
        arithmetic: 1e-6,
    }
}

fn gelu_work<T: Element>() -> Elementwise<T> {
    Elementwise {
        work: "gelu",
        inputs: 1,
        methods: vec![
            ("tanh", |c, how| {
                let grid = c.programs();
                GeluConsts { BLOCK: c.block }.call(c.x[0], c.out, c.n).grid(grid).num_warps(c.warps).submit(how)
            }),
            ("sigmoid", |c, how| {
                let grid = c.programs();
                GeluSigmoidConsts { BLOCK: c.block }.call(c.x[0], c.out, c.n).grid(grid).num_warps(c.warps).submit(how)
            }),
        ],
        extra: Vec::new(),
        reference: |_, x| {
            let u = (2.0 / std::f64::consts::PI).sqrt() * (x[0] + 0.044715 * x[0].powi(3));
            0.5 * x[0] * (1.0 + u.tanh())
        },
        arithmetic: 2e-6,
    }
}

fn swiglu_work<T: Element>() -> Elementwise<T> {
    Elementwise {
        work: "swiglu",
        inputs: 2,
        methods: vec![("", |c, how| {
            let grid = c.programs();
            SwigluConsts { BLOCK: c.block }.call(c.x[0], c.x[1], c.out, c.n).grid(grid).num_warps(c.warps).submit(how)
        })],
        extra: Vec::new(),
        reference: |_, x| x[0] / (1.0 + (-x[0]).exp()) * x[1],
        arithmetic: 2e-6,
    }
}

fn contests<T: Element>(stage: &mut Stage, work: &Elementwise<T>) -> Result<(), Failure> {
    for vector in stage.vectors(vec![1 << 26]) {
        work.contest(stage, vector)?;
    }
    Ok(())
}

pub fn cos_sin_contests(stage: &mut Stage) -> Result<(), Failure> {
    contests::<f32>(stage, &cos_sin_work())?;
    contests::<bf16>(stage, &cos_sin_work())
}

pub fn gelu_contests(stage: &mut Stage) -> Result<(), Failure> {
    contests::<f32>(stage, &gelu_work())?;
    contests::<bf16>(stage, &gelu_work())
}

pub fn swiglu_contests(stage: &mut Stage) -> Result<(), Failure> {
    contests::<f32>(stage, &swiglu_work())?;
    contests::<bf16>(stage, &swiglu_work())
}
