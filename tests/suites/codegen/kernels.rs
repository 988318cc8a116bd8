//! The kernels whose code is looked at: the memory-bound ones of the benchmarks, each safe and unsafe.

// Launchers are not called here: the kernels are compiled by the structs of their constexprs.
#![allow(dead_code)]

use tilewright::prelude::*;

/// A safe kernel and an unsafe one with one body.
macro_rules! both {
    ($safe:ident, $unchecked:ident, { $($generics:tt)* }, ($($params:tt)*), { $($body:tt)* }) => {
        #[kernel]
        pub fn $safe<$($generics)*>($($params)*) { $($body)* }

        #[kernel]
        pub unsafe fn $unchecked<$($generics)*>($($params)*) { $($body)* }
    };
}

both!(add, add_unchecked, { T: Num, const BLOCK: usize }, (x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>, n: i32), {
    let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = offsets < n;
    store(out + offsets, load(x + offsets, mask = mask) + load(y + offsets, mask = mask), mask = mask);
});

both!(softmax, softmax_unchecked, { T: Float, const BLOCK: usize }, (x: Ptr<T>, out: PtrMut<T>, columns: i32), {
    let column = arange(0, BLOCK);
    let mask = column < columns;
    let offsets = program_id(0) * columns + column;
    let row = load(x + offsets, mask = mask, other = T::NEG_INFINITY) as f32;
    let numerator = exp(row - max(row, axis = 0));
    store(out + offsets, (numerator / sum(numerator, axis = 0)) as T, mask = mask);
});

both!(
    layer_norm,
    layer_norm_unchecked,
    { T: Float, const BLOCK: usize },
    (
        x: Ptr<T>,
        weight: Ptr<T>,
        bias: Ptr<T>,
        out: PtrMut<T>,
        means: PtrMut<f32>,
        rstds: PtrMut<f32>,
        columns: i32,
        eps: Const<f32>,
    ),
    {
        let row = program_id(0);
        let column = arange(0, BLOCK);
        let mask = column < columns;
        let offsets = row * columns + column;
        let values = load(x + offsets, mask = mask) as f32;
        let mean = sum(values, axis = 0) / columns as f32;
        let centred = select(mask, values - mean, 0.0);
        let variance = sum(centred * centred, axis = 0) / columns as f32;
        let rstd = rsqrt(variance + eps);
        let scale = load(weight + column, mask = mask) as f32;
        let shift = load(bias + column, mask = mask) as f32;
        store(out + offsets, (centred * rstd * scale + shift) as T, mask = mask);
        store(means + row, mean);
        store(rstds + row, rstd);
    }
);

// As many programs as the GPU runs at once, each of which takes one row after another.
both!(
    persistent_softmax,
    persistent_softmax_unchecked,
    { T: Float, const BLOCK: usize },
    (x: Ptr<T>, out: PtrMut<T>, rows: i32, columns: i32),
    {
        let column = arange(0, BLOCK);
        let mask = column < columns;
        for row in (program_id(0)..rows).step_by(num_programs(0)) {
            let offsets = row * columns + column;
            let values = load(x + offsets, mask = mask, other = T::NEG_INFINITY) as f32;
            let numerator = exp(values - max(values, axis = 0));
            store(out + offsets, (numerator / sum(numerator, axis = 0)) as T, mask = mask);
        }
    }
);

both!(
    persistent_add,
    persistent_add_unchecked,
    { T: Num, const BLOCK: usize },
    (x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>, n: i32),
    {
        for first in (program_id(0) * BLOCK..n).step_by(num_programs(0) * BLOCK) {
            let offsets = first + arange(0, BLOCK);
            let mask = offsets < n;
            store(out + offsets, load(x + offsets, mask = mask) + load(y + offsets, mask = mask), mask = mask);
        }
    }
);

// A row in pieces: the mask is needed in the last iteration of each loop only.
both!(online_softmax, online_softmax_unchecked, { T: Float, const BLOCK: usize }, (x: Ptr<T>, out: PtrMut<T>, columns: i32), {
    let lane = arange(0, BLOCK);
    let start = program_id(0) * columns;
    let mut peaks = full::<f32>([BLOCK], -1e30);
    let mut sums = zeros::<f32>([BLOCK]);
    for first in (0..columns).step_by(BLOCK) {
        let column = first + lane;
        let values = load(x + start + column, mask = column < columns, other = T::NEG_INFINITY) as f32;
        let higher = maximum(peaks, values);
        sums = sums * exp(peaks - higher) + exp(values - higher);
        peaks = higher;
    }
    let peak = max(peaks, axis = 0);
    let total = sum(sums * exp(peaks - peak), axis = 0);
    for first in (0..columns).step_by(BLOCK) {
        let column = first + lane;
        let values = load(x + start + column, mask = column < columns) as f32;
        store(out + start + column, (exp(values - peak) / total) as T, mask = column < columns);
    }
});

/// A kernel compiled for a Hopper GPU, as launches with aligned arguments run it.
pub struct Sample {
    /// Which kernel, dtype and block.
    pub name: String,
    /// Bytes of an element.
    pub bytes: usize,
    /// Elements per program.
    pub block: usize,
    /// PTX of the safe kernel.
    pub safe: String,
    /// PTX of the unsafe one.
    pub unchecked: String,
    /// LLVM IR of the safe kernel, as it is lowered.
    pub lowered: String,
    /// The report of the safe kernel.
    pub report: String,
}

/// PTX, lowered LLVM IR and report.
fn texts(compiled: Result<tilewright::launch::CompiledKernel, Error>) -> (String, String, String) {
    let compiled = compiled.unwrap_or_else(|error| panic!("{error}"));
    (compiled.ptx().to_string(), compiled.lowered_llvm_ir().to_string(), compiled.report().to_string())
}

/// Samples of two kernels, for some dtypes; `arguments` are those of `compile`.
macro_rules! samples {
    ($kernel:literal, $safe:ident, $unchecked:ident, $block:expr, $arguments:tt, $($dtype:ident)*) => {
        vec![$({
            let (safe, lowered, report) = texts($safe { BLOCK: $block }.compile::<$dtype> $arguments);
            let (unchecked, ..) = texts($unchecked { BLOCK: $block }.compile::<$dtype> $arguments);
            let name = format!(concat!($kernel, " ", stringify!($dtype), " {}"), $block);
            Sample { name, bytes: size_of::<$dtype>(), block: $block, safe, unchecked, lowered, report }
        }),*]
    };
}

/// All kernels, for several dtypes and blocks.
pub fn all() -> Vec<Sample> {
    let mut all = Vec::new();
    for block in [256usize, 1024] {
        all.extend(samples!("add", AddConsts, AddUncheckedConsts, block, (Target::sm_90a()), f32 f16 u8 i64));
        all.extend(samples!("persistent add", PersistentAddConsts, PersistentAddUncheckedConsts, block, (Target::sm_90a()), f32 f16 i64));
    }
    for block in [1024usize, 4096] {
        all.extend(samples!("softmax", SoftmaxConsts, SoftmaxUncheckedConsts, block, (Target::sm_90a()), f32 f16 bf16));
        all.extend(samples!("persistent softmax", PersistentSoftmaxConsts, PersistentSoftmaxUncheckedConsts, block, (Target::sm_90a()), f32 f16 bf16));
        all.extend(samples!("online softmax", OnlineSoftmaxConsts, OnlineSoftmaxUncheckedConsts, block, (Target::sm_90a()), f32 bf16));
        all.extend(samples!("layer norm", LayerNormConsts, LayerNormUncheckedConsts, block, (Target::sm_90a(), 1e-5), f32 f16 bf16));
    }
    all
}
