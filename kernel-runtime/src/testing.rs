//! What tests of the compiler reach, and programs do not.

/// Calls whose kernels can be built with random delays.
pub trait Delays {
    /// Random delays on the GPU, from this seed, around every asynchronous copy and product, every arrival and every
    /// wait. What a kernel computes must not depend on them; only its time does. Each seed is compiled anew.
    #[must_use]
    fn delays(self, seed: u64) -> Self;
}
