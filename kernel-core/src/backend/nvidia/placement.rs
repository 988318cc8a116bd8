//! What a kernel takes of a GPU and what its launch costs, read from the placed kernel before any code is generated.

/// A launch whose cost is estimated.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LaunchShape {
    /// For each parameter of the caller the value of an integer scalar; `None` of all others.
    pub scalars: Vec<Option<i128>>,
    /// For each parameter of the caller the elements of a buffer; `None` of all others.
    pub lengths: Vec<Option<u64>>,
    /// Bytes of all buffers: what comes from memory at least once, or goes there.
    pub bytes: u64,
    /// The programs along each axis.
    pub grid: [u32; 3],
    /// Multiprocessors of the GPU.
    pub processors: u32,
}

/// What programs do, summed over loops.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Work {
    /// Operations of matrix products: two for a multiplication with its sum.
    pub flops: f64,
    /// Cycles of a multiprocessor's units for matrix products, by the instructions that were chosen.
    pub product_cycles: f64,
    /// Bytes that go between global memory and a program.
    pub global_bytes: f64,
    /// Bytes that go through shared memory.
    pub shared_bytes: f64,
    /// Elements that are computed one by one.
    pub elements: f64,
    /// Waits for other threads, or for what is in flight.
    pub waits: f64,
    /// Loads that a program waits for where they stand.
    pub stalls: f64,
}

/// What a placed kernel takes, and what a launch of it costs.
#[derive(Clone, PartialEq, Debug)]
pub struct Placement {
    /// Warps per program, with those that only fetch.
    pub num_warps: u32,
    /// Bytes of shared memory per program.
    pub shared_bytes: u32,
    /// Registers of a thread that are alive at once: what is needed at the least.
    pub registers: u32,
    /// The registers that a thread can have.
    pub register_limit: u32,
    /// Programs that a multiprocessor holds at once, by everything that is known before the driver compiles.
    pub programs: u32,
    /// What the first program does.
    pub work: Work,
    /// The estimated time of the launch in cycles. For ranking: it orders candidates, and promises nothing.
    pub cycles: f64,
    /// Equal for kernels that become the same code.
    pub digest: u64,
}
