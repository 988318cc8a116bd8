//! The CPU interpreter: the definition of every operation.
//!
//! [`Program::new`] turns a bound kernel into a flat list of instructions on registers, once;
//! [`Program::run`] runs a grid of programs on all cores. Whole tiles are computed at a time by loops that the
//! compiler vectorises, in an arena per thread: nothing is allocated per operation. Uniform tiles and tiles that
//! are affine in their coordinates stay formulas.
//!
//! # What it defines
//!
//! - **Arithmetic** is total: see [`crate::ir::BinaryOp`] and its kind. The 8-bit floats, f16 and bf16 go through f32
//!   and round once per operation; no multiplication is fused with an addition, whatever the `contract` flag allows.
//!   Elementary functions are those of [`crate::math`].
//! - **Matrix products** multiply exactly and sum in f32 (f64, wrapping i32), one product after the other; an f16 accumulator
//!   is rounded at the end. `tf32` rounds the factors first, `tf32x3` adds the products of a large and a small part.
//!   `bf16x3` and `bf16x6` multiply terms that are bf16 ([`crate::ir::scaled`]).
//! - **Reductions** are balanced trees, described in the module that computes them; a sum or product of 8-bit
//!   floats, f16 or bf16 accumulates in f32.
//! - **Blocks of tensors** read zero, or NaN, outside their tensor and write nothing there; coordinates never wrap.
//! - **Memory.** Every access is checked, in unsafe kernels too. A lane out of bounds is suppressed (it reads zero,
//!   also where the load has an `other`) and reported; the program goes on. A failed `assert` ends its program. All
//!   programs run to their end; the fault returned is the first of the program with the smallest linear index (x
//!   fastest) that has one. A GPU, where programs run at the same time, reports any one of all failures.
//!   A launch with a limit of time that passes before they do returns such a fault, else that of the limit.
//!   `atomic_cas` compares bits. Memory that a kernel may write is accessed with relaxed atomics per element.
//! - **Progress.** Programs that wait for others, in a `while` that reads memory which those may write, run in turns: each
//!   makes progress, with any number of programs and threads. Others run one after the other.
//! - **Placed kernels** run with adversarial timing: asynchronous copies land at their wait and no earlier, shared
//!   memory is poisoned before, warp groups are coroutines and waits that nothing can complete are faults. On request
//!   ([`Program::checks_order`]) accesses to shared memory that no barrier, wait or fence orders are faults too.
//!
//! ```
//! use kernel_core::interp::{HostBuffer, run_kernel};
//! use kernel_core::ir::*;
//!
//! // out[i] = i * i
//! let mut func = Func::new("squares", "squares.rs", Safety::Safe);
//! func.level = Level::Bound;
//! let kind = ParamKind::Ptr { dt: DType::I32.into(), mutable: true };
//! let out = func.add_param("out", kind, Span::UNKNOWN);
//! let (start, body) = (func.param(out).value, func.body);
//! let mut b = Builder::new(&mut func, body);
//! let i = b.one(CreateOp::Arange { lo: 0.into(), hi: 8.into() }, &[], Span::UNKNOWN)?;
//! let square = b.one(Op::binary(BinaryOp::Mul), &[i, i], Span::UNKNOWN)?;
//! let start = b.one(CreateOp::Splat { shape: vec![8.into()] }, &[start], Span::UNKNOWN)?;
//! let pointers = b.one(MemoryOp::AddPtr, &[start, i], Span::UNKNOWN)?;
//! let (cache, eviction) = (CacheModifier::Default, EvictionPolicy::Normal);
//! b.op(MemoryOp::Store { cache, eviction }, &[pointers, square], &[], Span::UNKNOWN)?;
//! b.op(ControlOp::Return, &[], &[], Span::UNKNOWN)?;
//!
//! let mut buffers = [HostBuffer::from(vec![0i32; 8])];
//! run_kernel(&Bound::new(func).expect("bound"), &mut buffers, &[], [1, 1, 1])?;
//! assert_eq!(buffers[0].as_slice::<i32>(), Some(&[0, 1, 4, 9, 16, 25, 36, 49][..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod affine;
mod asynchronous;
mod buffers;
mod cast;
mod code;
mod compile;
mod compute;
mod desc;
mod elementwise;
mod executor;
mod fault;
mod float_int;
mod flush;
mod fold;
mod gpu;
mod gpu_state;
mod groups;
mod hint;
mod host;
mod instructions;
mod lanes;
mod launch;
mod loops;
mod map;
mod memory;
mod order;
mod print;
mod product;
mod registers;
mod round;
mod scaled;
mod schedule;
mod storage;
mod tiles;
mod turn;
mod warp_turns;

pub use buffers::Tensor;
pub use fault::{Access, Fault, FaultKind};
pub use host::{
    HostBuffer, HostElement, HostScalar, HostTensor, run_kernel, run_ordered, run_placed, run_placed_with_tensors,
    run_with_tensors,
};
pub use launch::{Arg, Interpreter, Program};
