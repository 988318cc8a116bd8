//! Kernels of kinds that libraries of operators have, written as their users write them, and compared with the host.
//!
//! | module | what it holds |
//! |---|---|
//! | `features` | what the reference lists, once each |
//! | `spectral` | Fourier's and Hadamard's transforms: shapes that a loop halves, structs carried by it |
//! | `geometry` | sampling of images between pixels, boxes that suppress others: masks, bits, order among programs |
//! | `paths` | time warping and Viterbi's algorithm: diagonals, pointers back |
//! | `graphs` | sparse rows, components: bounds in memory, atomics until nothing changes |
//! | `sets` | compaction in one pass, hash tables: programs that wait for the one before, elements that try again |
//! | `chance` | tokens by their probabilities, prices of options: sorting, random numbers |
//! | `small` | factors of small matrices, numbers of 4 bits: one matrix per program, tables in tiles |

mod chance;
mod features;
mod geometry;
mod graphs;
mod paths;
mod sets;
mod small;
mod spectral;

/// Numbers between -1 and 1 that look random.
pub fn numbers(len: usize, seed: u32) -> Vec<f32> {
    let hash = |i: u32| {
        let x = (i.wrapping_add(seed.wrapping_mul(0x9E37_79B9))).wrapping_mul(0x85EB_CA6B);
        let x = (x ^ x >> 13).wrapping_mul(0xC2B2_AE35);
        x ^ x >> 16
    };
    (0..len as u32).map(|i| (hash(i) >> 8) as f32 / (1 << 23) as f32 - 1.0).collect()
}

/// A number that may be so far from what it should be.
#[track_caller]
pub fn close(got: f32, want: f64, bound: f64) {
    assert!((f64::from(got) - want).abs() <= bound, "{got}, not {want} (within {bound})");
}
