//! Products of matrices, against f64 on the host.

mod fp8;
mod gated;
mod grouped;
mod matmul;
mod quantised;

/// The largest relative error of an f32.
const UNIT: f64 = 1.0 / (1u64 << 24) as f64;

/// A product on the host, and the sums of absolute values that errors are relative to.
pub struct Reference {
    pub sums: Vec<f64>,
    pub sizes: Vec<f64>,
}

/// `a @ b` of row-major matrices.
pub fn product(a: &[f64], b: &[f64], [m, n, k]: [usize; 3]) -> Reference {
    let (mut sums, mut sizes) = (vec![0.0; m * n], vec![0.0; m * n]);
    for i in 0..m {
        for t in 0..k {
            let x = a[i * k + t];
            for j in 0..n {
                sums[i * n + j] += x * b[t * n + j];
                sizes[i * n + j] += (x * b[t * n + j]).abs();
            }
        }
    }
    Reference { sums, sizes }
}

/// What `k` additions lose, relative to the sum of absolute values: a tensor core may drop a bit in each, and one more.
pub fn lost(k: usize) -> f64 {
    (k as f64 + 2.0) * 2.0 * UNIT
}

/// The same for 8-bit floats, of which Hopper adds up 32 products at a time, keeping 13 bits of the largest.
pub fn lost_of_bytes(k: usize) -> f64 {
    lost(k) + (k as f64 / 32.0 + 2.0) * 2.0 / (1u64 << 13) as f64
}
