//! A kernel that is split into functions is compiled to the code of the kernel in one piece.

use tilewright::Target;

mod pieces {
    use tilewright::prelude::*;

    #[device]
    pub(super) fn normalised<T: Float, const M: usize, const N: usize>(x: Tile<T, { [M, N] }>) -> Tile<T, { [M, N] }> {
        let shifted = x - max(x, axis = 1, keep_dims = true);
        let weights = exp(shifted);
        weights / sum(weights, axis = 1, keep_dims = true)
    }

    #[device]
    pub(super) fn block<const M: usize, const N: usize>(n: i32) -> (Tile<i32, { [M, N] }>, Tile<bool, { [M, N] }>) {
        let (rows, columns) = (program_id(0) * M + arange(0, M), arange(0, N));
        let mask = (rows < n)[(.., None)] & (columns < n)[(None, ..)];
        (rows[(.., None)] * n + columns[(None, ..)], mask)
    }

    #[device]
    pub(super) fn read<T: Float, const M: usize, const N: usize>(
        x: Ptr<T>,
        offsets: Tile<i32, { [M, N] }>,
        mask: Tile<bool, { [M, N] }>,
    ) -> Tile<T, { [M, N] }> {
        load(x + offsets, mask = mask, other = T::NEG_INFINITY)
    }
}

/// As one piece.
mod whole {
    use tilewright::prelude::*;

    #[kernel]
    pub(super) fn rows<T: Float, const M: usize, const N: usize>(x: Ptr<T>, out: PtrMut<T>, n: i32) {
        let (rows, columns) = (program_id(0) * M + arange(0, M), arange(0, N));
        let mask = (rows < n)[(.., None)] & (columns < n)[(None, ..)];
        let offsets = rows[(.., None)] * n + columns[(None, ..)];
        let x = load(x + offsets, mask = mask, other = T::NEG_INFINITY);
        let shifted = x - max(x, axis = 1, keep_dims = true);
        let weights = exp(shifted);
        let value = weights / sum(weights, axis = 1, keep_dims = true);
        store(out + offsets, value, mask = mask);
    }
}

/// Of functions and a closure.
mod split {
    use super::pieces::{block, normalised, read};
    use tilewright::prelude::*;

    #[kernel]
    pub(super) fn rows<T: Float, const M: usize, const N: usize>(x: Ptr<T>, out: PtrMut<T>, n: i32) {
        let (offsets, mask) = block::<M, N>(n);
        let write = |value| store(out + offsets, value, mask = mask);
        write(normalised(read(x, offsets, mask)));
    }
}

/// Descriptors and optional arguments that closures use.
mod closures {
    use tilewright::prelude::*;

    #[device]
    fn product<const M: usize, const N: usize, const K: usize>(
        k: i32,
        a: impl Fn(i32) -> Tile<f16, { [M, K] }>,
        b: impl Fn(i32) -> Tile<f16, { [K, N] }>,
        finish: impl Fn(Tile<f32, { [M, N] }>) -> Tile<f32, { [M, N] }>,
    ) -> Tile<f32, { [M, N] }> {
        let mut acc = zeros([M, N]);
        for step in (0..k).step_by(K) {
            acc = dot(a(step), b(step), acc = acc);
        }
        finish(acc)
    }

    #[kernel]
    pub(super) fn matmul<const M: usize, const N: usize, const K: usize>(
        a: TensorDesc<f16, { [M, K] }>,
        b: TensorDesc<f16, { [K, N] }>,
        bias: Option<Ptr<f32>>,
        c: TensorDescMut<f32, { [M, N] }>,
        k: i32,
    ) {
        let (row, column) = (program_id(0) * M, program_id(1) * N);
        let biased = |acc| if let Some(bias) = bias { acc + load(bias + column + arange(0, N)) } else { acc };
        let acc = product::<M, N, K>(k, |step| a.load([row, step]), |step| b.load([step, column]), biased);
        c.store([row, column], acc);
    }
}

/// The same, with functions that take what closures read.
mod passed {
    use tilewright::prelude::*;

    #[device]
    fn product<T: Float, const M: usize, const N: usize, const K: usize>(
        a: TensorDesc<T, { [M, K] }>,
        b: TensorDesc<T, { [K, N] }>,
        bias: Option<Ptr<f32>>,
        (row, column): (i32, i32),
        k: i32,
    ) -> Tile<f32, { [M, N] }> {
        let mut acc = zeros([M, N]);
        for step in (0..k).step_by(K) {
            acc = dot(a.load([row, step]), b.load([step, column]), acc = acc);
        }
        biased(acc, bias, column)
    }

    #[device]
    fn biased<const M: usize, const N: usize>(
        x: Tile<f32, { [M, N] }>,
        bias: Option<Ptr<f32>>,
        column: i32,
    ) -> Tile<f32, { [M, N] }> {
        if let Some(bias) = bias { x + load(bias + column + arange(0, N)) } else { x }
    }

    #[device]
    fn write<T: Float, const M: usize, const N: usize>(
        c: TensorDescMut<T, { [M, N] }>,
        (row, column): (i32, i32),
        value: Tile<T, { [M, N] }>,
    ) {
        c.store([row, column], value);
    }

    #[kernel]
    pub(super) fn matmul<const M: usize, const N: usize, const K: usize>(
        a: TensorDesc<f16, { [M, K] }>,
        b: TensorDesc<f16, { [K, N] }>,
        bias: Option<Ptr<f32>>,
        c: TensorDescMut<f32, { [M, N] }>,
        k: i32,
    ) {
        let place = (program_id(0) * M, program_id(1) * N);
        write(c, place, product(a, b, bias, place, k));
    }

    /// Without an argument that anybody could pass.
    #[kernel]
    pub(super) fn unbiased<const M: usize, const N: usize, const K: usize>(
        a: TensorDesc<f16, { [M, K] }>,
        b: TensorDesc<f16, { [K, N] }>,
        c: TensorDescMut<f32, { [M, N] }>,
        k: i32,
    ) {
        let place = (program_id(0) * M, program_id(1) * N);
        write(c, place, product(a, b, None, place, k));
    }

    /// With an argument that is always there.
    #[kernel]
    pub(super) fn biased_always<const M: usize, const N: usize, const K: usize>(
        a: TensorDesc<f16, { [M, K] }>,
        b: TensorDesc<f16, { [K, N] }>,
        bias: Ptr<f32>,
        c: TensorDescMut<f32, { [M, N] }>,
        k: i32,
    ) {
        let place = (program_id(0) * M, program_id(1) * N);
        write(c, place, product(a, b, Some(bias), place, k));
    }
}

mod without_closures {
    use tilewright::prelude::*;

    #[kernel]
    pub(super) fn matmul<const M: usize, const N: usize, const K: usize>(
        a: TensorDesc<f16, { [M, K] }>,
        b: TensorDesc<f16, { [K, N] }>,
        bias: Option<Ptr<f32>>,
        c: TensorDescMut<f32, { [M, N] }>,
        k: i32,
    ) {
        let (row, column) = (program_id(0) * M, program_id(1) * N);
        let mut acc = zeros::<f32>([M, N]);
        for step in (0..k).step_by(K) {
            acc = dot(a.load([row, step]), b.load([step, column]), acc = acc);
        }
        if let Some(bias) = bias {
            acc = acc + load(bias + column + arange(0, N));
        }
        c.store([row, column], acc);
    }
}

#[test]
fn descriptors_and_optional_arguments_of_functions_cost_nothing() {
    let (m, n, k) = (64, 64, 32);
    for (target, biased) in [(Target::sm_80(), true), (Target::sm_90a(), true), (Target::sm_90a(), false)] {
        let split = closures::MatmulConsts { M: m, N: n, K: k }.compile(target, biased);
        let whole = without_closures::MatmulConsts { M: m, N: n, K: k }.compile(target, biased);
        let passed = passed::MatmulConsts { M: m, N: n, K: k }.compile(target, biased);
        let all = [split, whole, passed].map(|compiled| compiled.unwrap_or_else(|error| panic!("{error}")));
        let [split, whole, passed] = all.each_ref().map(|compiled| compiled.ptx());
        assert_eq!(split, whole);
        assert_eq!(passed, whole);
        // Where the call says what is there, as where the launch does.
        let decided = match biased {
            true => passed::BiasedAlwaysConsts { M: m, N: n, K: k }.compile(target).map(|c| c.ptx().to_string()),
            false => passed::UnbiasedConsts { M: m, N: n, K: k }.compile(target).map(|c| c.ptx().to_string()),
        };
        let decided = decided.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(decided.replace("biased_always", "matmul").replace("unbiased", "matmul"), whole);
    }
}

#[test]
fn a_kernel_of_functions_is_the_kernel_in_one_piece() {
    let (whole, split) = (whole::RowsConsts { M: 16, N: 128 }, split::RowsConsts { M: 16, N: 128 });
    for target in [Target::sm_80(), Target::sm_90a()] {
        let whole = whole.compile::<f32>(target).unwrap_or_else(|error| panic!("{error}"));
        let split = split.compile::<f32>(target).unwrap_or_else(|error| panic!("{error}"));
        // The text of the IR also says where each operation comes from.
        let places = |text: String| -> Vec<String> {
            let line = |line: &str| line.split(" @").next().unwrap_or_default().to_string();
            text.lines().filter(|line| !line.starts_with("  call c")).map(line).collect()
        };
        assert_eq!(places(whole.tile_ir().to_string()), places(split.tile_ir().to_string()));
        assert_eq!(whole.ptx(), split.ptx());
    }
}
