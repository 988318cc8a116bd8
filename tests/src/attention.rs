//! Attention, forward and backward: loops of products of which one feeds the next.

use tilewright::prelude::*;

/// Attention: `out = softmax(q * k^T * scale) * v`, of base 2, and the logarithm of each row's sum. With `CAUSAL`, row `i`
/// sees keys up to `i`.
macro_rules! forward {
    ($name:ident, $(#[$mark:ident])*) => {
        #[kernel(flush = true)]
        pub fn $name<T: Float, const D: usize, const M: usize, const N: usize, const CAUSAL: bool>(
            q: TensorDesc<T, { [M, D] }>,
            k: TensorDesc<T, { [N, D] }>,
            v: TensorDesc<T, { [N, D] }>,
            out: PtrMut<f32>,
            lse: PtrMut<f32>,
            len: i32,
            scale: f32,
        ) {
            let first = program_id(0) * M;
            let i = first + arange(0, M);
            let x = q.load([first, 0]);
            let mut peak = full::<f32>([M], -1e30);
            let mut total = zeros::<f32>([M]);
            let mut acc = zeros::<f32>([M, D]);
            let end = if CAUSAL { minimum(len, first + M) } else { len };
            $(#[$mark])*
            for start in (0..end).step_by(N) {
                let mut s = dot(x, k.load([start, 0]).trans());
                if CAUSAL {
                    if start + N > first {
                        s = select(i[(.., None)] >= start + arange(0, N), s, -1e30);
                    }
                }
                let higher = maximum(peak, max(s, axis = 1) * scale);
                let p = exp2(s * scale - higher[(.., None)]);
                let alpha = exp2(peak - higher);
                total = total * alpha + sum(p, axis = 1);
                acc *= alpha[(.., None)];
                acc = dot(p as T, v.load([start, 0]), acc = acc);
                peak = higher;
            }
            store(lse + i, peak + log2(total));
            store(out + i[(.., None)] * D + arange(0, D), acc / total[(.., None)]);
        }
    };
}
forward!(forward,);
forward!(forward_divided, #[warp_specialize]);

/// The same, without causality, where the weights of a block are multiplied an iteration later: the products of an
/// iteration do not depend on each other.
macro_rules! skewed {
    ($name:ident, $(#[$mark:ident])*) => {
        #[kernel(flush = true)]
        pub fn $name<T: Float, const D: usize, const M: usize, const N: usize>(
            q: TensorDesc<T, { [M, D] }>,
            k: TensorDesc<T, { [N, D] }>,
            v: TensorDesc<T, { [N, D] }>,
            out: PtrMut<f32>,
            lse: PtrMut<f32>,
            len: i32,
            scale: f32,
        ) {
            let first = program_id(0) * M;
            let i = first + arange(0, M);
            let x = q.load([first, 0]);
            let mut peak = full::<f32>([M], -1e30);
            let mut total = zeros::<f32>([M]);
            let mut acc = zeros::<f32>([M, D]);
            let mut weights = zeros::<T>([M, N]);
            $(#[$mark])*
            for start in (0..len).step_by(N) {
                let s = dot(x, k.load([start, 0]).trans());
                acc = dot(weights, v.load([start - N, 0]), acc = acc);
                let higher = maximum(peak, max(s, axis = 1) * scale);
                let p = exp2(s * scale - higher[(.., None)]);
                let alpha = exp2(peak - higher);
                total = total * alpha + sum(p, axis = 1);
                acc *= alpha[(.., None)];
                weights = p as T;
                peak = higher;
            }
            acc = dot(weights, v.load([(len - 1) / N * N, 0]), acc = acc);
            store(lse + i, peak + log2(total));
            store(out + i[(.., None)] * D + arange(0, D), acc / total[(.., None)]);
        }
    };
}
skewed!(skewed,);
skewed!(skewed_divided, #[warp_specialize]);

/// The gradients of the keys and the values of a block: `dv = p^T * dout`, `dk = (p o (dout * v^T - delta))^T * q`.
macro_rules! keys_backward {
    ($name:ident, $(#[$mark:ident])*) => {
        #[kernel(flush = true)]
        pub fn $name<T: Float, const D: usize, const M: usize, const N: usize, const CAUSAL: bool>(
            q: TensorDesc<T, { [M, D] }>,
            k: TensorDesc<T, { [N, D] }>,
            v: TensorDesc<T, { [N, D] }>,
            dout: TensorDesc<T, { [M, D] }>,
            lse: Ptr<f32>,
            delta: Ptr<f32>,
            dk: PtrMut<f32>,
            dv: PtrMut<f32>,
            len: i32,
            scale: f32,
        ) {
            let first = program_id(0) * N;
            let j = first + arange(0, N);
            let (keys, values) = (k.load([first, 0]), v.load([first, 0]));
            let mut to_keys = zeros::<f32>([N, D]);
            let mut to_values = zeros::<f32>([N, D]);
            let begin = if CAUSAL { first / M * M } else { 0 };
            $(#[$mark])*
            for start in (begin..len).step_by(M) {
                let i = start + arange(0, M);
                let (rows, gradients) = (q.load([start, 0]), dout.load([start, 0]));
                let s = dot(keys, rows.trans());
                let mut p = exp2(s * scale - load(lse + i, mask = i < len));
                if CAUSAL {
                    p = select(i >= j[(.., None)], p, 0.0);
                }
                to_values = dot(p as T, gradients, acc = to_values);
                let dp = dot(values, gradients.trans());
                let ds = p * (dp - load(delta + i, mask = i < len));
                to_keys = dot(ds as T, rows, acc = to_keys);
            }
            store(dk + j[(.., None)] * D + arange(0, D), to_keys);
            store(dv + j[(.., None)] * D + arange(0, D), to_values);
        }
    };
}
keys_backward!(keys_backward,);
keys_backward!(keys_backward_divided, #[warp_specialize]);

/// The gradient of a block of rows: `dq = (p o (dout * v^T - delta)) * k`.
macro_rules! rows_backward {
    ($name:ident, $(#[$mark:ident])*) => {
        #[kernel(flush = true)]
        pub fn $name<T: Float, const D: usize, const M: usize, const N: usize, const CAUSAL: bool>(
            q: TensorDesc<T, { [M, D] }>,
            k: TensorDesc<T, { [N, D] }>,
            v: TensorDesc<T, { [N, D] }>,
            dout: TensorDesc<T, { [M, D] }>,
            lse: Ptr<f32>,
            delta: Ptr<f32>,
            dq: PtrMut<f32>,
            len: i32,
            scale: f32,
        ) {
            let first = program_id(0) * M;
            let i = first + arange(0, M);
            let (rows, gradients) = (q.load([first, 0]), dout.load([first, 0]));
            let (sums, deltas) = (load(lse + i), load(delta + i));
            let mut to_rows = zeros::<f32>([M, D]);
            let end = if CAUSAL { minimum(len, first + M) } else { len };
            $(#[$mark])*
            for start in (0..end).step_by(N) {
                let keys = k.load([start, 0]);
                let s = dot(rows, keys.trans());
                let dp = dot(gradients, v.load([start, 0]).trans());
                let mut p = exp2(s * scale - sums[(.., None)]);
                if CAUSAL {
                    p = select(i[(.., None)] >= start + arange(0, N), p, 0.0);
                }
                let ds = p * (dp - deltas[(.., None)]);
                to_rows = dot(ds as T, keys, acc = to_rows);
            }
            store(dq + i[(.., None)] * D + arange(0, D), to_rows);
        }
    };
}
rows_backward!(rows_backward,);
rows_backward!(rows_backward_divided, #[warp_specialize]);
