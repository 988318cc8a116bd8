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
