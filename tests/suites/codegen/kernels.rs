//! The kernels whose code is looked at: the memory-bound ones of the benchmarks, each safe and unsafe.

use tilewright::prelude::*;

/// A safe kernel and an unsafe one with one body.
macro_rules! both {
    ($safe:ident, $unchecked:ident, { $($generics:tt)* }, ($($params:tt)*), $body:block) => {
        #[kernel]
        pub fn $safe<$($generics)*>($($params)*) $body

        #[kernel]
        pub unsafe fn $unchecked<$($generics)*>($($params)*) $body
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

/// The PTX of a kernel for a Hopper GPU.
fn ptx(compiled: Result<tilewright::launch::CompiledKernel, Error>) -> String {
    compiled.unwrap_or_else(|error| panic!("{error}")).ptx().to_string()
}

/// Each kernel with its name: the PTX of the safe variant that launches run, and that of the unsafe one.
pub fn all() -> Vec<(String, String, String)> {
    let target = Target::sm_90a;
    let mut all = Vec::new();
    for block in [256usize, 1024] {
        let pair = |consts: usize| {
            let (safe, unchecked) = (AddConsts { BLOCK: consts }, AddUncheckedConsts { BLOCK: consts });
            [
                ("f32", ptx(safe.compile::<f32>(target())), ptx(unchecked.compile::<f32>(target()))),
                ("f16", ptx(safe.compile::<f16>(target())), ptx(unchecked.compile::<f16>(target()))),
                ("u8", ptx(safe.compile::<u8>(target())), ptx(unchecked.compile::<u8>(target()))),
            ]
        };
        all.extend(pair(block).map(|(dtype, safe, raw)| (format!("add {dtype} {block}"), safe, raw)));
    }
    for block in [1024usize, 4096] {
        let (safe, unchecked) = (SoftmaxConsts { BLOCK: block }, SoftmaxUncheckedConsts { BLOCK: block });
        let pairs = [
            ("f32", ptx(safe.compile::<f32>(target())), ptx(unchecked.compile::<f32>(target()))),
            ("f16", ptx(safe.compile::<f16>(target())), ptx(unchecked.compile::<f16>(target()))),
        ];
        all.extend(pairs.map(|(dtype, safe, raw)| (format!("softmax {dtype} {block}"), safe, raw)));
        let (safe, unchecked) = (LayerNormConsts { BLOCK: block }, LayerNormUncheckedConsts { BLOCK: block });
        let pairs = [
            ("f32", ptx(safe.compile::<f32>(target(), 1e-5)), ptx(unchecked.compile::<f32>(target(), 1e-5))),
            ("f16", ptx(safe.compile::<f16>(target(), 1e-5)), ptx(unchecked.compile::<f16>(target(), 1e-5))),
        ];
        all.extend(pairs.map(|(dtype, safe, raw)| (format!("layer norm {dtype} {block}"), safe, raw)));
    }
    all
}
