//! Blocks that have no room in shared memory on their way to a tensor, for the help of the error.
//!
//! ```text
//! desc_store %c, %sum, %i, %j        of f32[256, 256]: 256 KiB, where the target has 227
//! ```
//!
//! Divided kernels send blocks in pieces. Others send them whole, and no number of stages or warps makes room for
//! such a block there; pointers need none.

use kernel_core::edit::walk;
use kernel_core::ir::{DType, DescOp, Func, GpuOp, Op};

use kernel_core::target::Target;

/// What to do about the first block that the target's shared memory does not hold; `None` if it holds each of them.
pub(crate) fn help(func: &Func, target: Target) -> Option<String> {
    let mut found = None;
    walk(func, &mut |id| {
        let operation = func.op(id);
        let stores = matches!(
            operation.op,
            Op::Desc(DescOp::DescStore | DescOp::DescReduce { .. }) | Op::Gpu(GpuOp::TmaStore { .. })
        );
        let (true, &[tensor, block, ..]) = (stores, operation.operands.as_slice()) else { return };
        let ty = func.ty(block);
        let bytes = ty.numel().unwrap_or(0) * i64::from(ty.dtype().map_or(1, DType::bytes));
        let Some(tensor) = func.ty(tensor).descriptor().filter(|_| bytes > i64::from(target.max_shared_bytes())) else {
            return;
        };
        let name = &func.param(tensor).name;
        found.get_or_insert_with(|| {
            format!(
                "what is stored to `{name}` goes through shared memory as a block of {bytes} bytes: store it through \
                 a pointer, or use smaller tiles"
            )
        });
    });
    found
}
