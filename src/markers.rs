//! The types that kernels name. They mean something to `#[kernel]` only and have no values, but
//! exist so that imports and editors resolve them.

use std::marker::PhantomData;

/// A buffer that the kernel reads: `x: Ptr<f32>` or, with a dtype parameter, `x: Ptr<T>`.
///
/// `ptr + offsets` is a tile of pointers, `ptr + offset` a pointer; `load` reads through them. The
/// caller passes `&Buffer<T>` or a view. The memory does not change while the kernel runs.
pub struct Ptr<T>(Never, PhantomData<T>);

/// A buffer that the kernel reads and writes: `out: PtrMut<f32>`.
///
/// As [`Ptr`], and `store` and atomics write through it. The caller passes `&mut Buffer<T>` or an
/// exclusive view.
pub struct PtrMut<T>(Never, PhantomData<T>);

/// A scalar that is folded into the code: `eps: Const<f32>`. The kernel is compiled once for each
/// value. Constexprs of integer types and `bool` are const generics instead.
pub struct Const<T>(Never, PhantomData<T>);

/// A tile of a dtype, for annotations: `let acc: Tile<f32, { [M, N] }> = zeros([M, N]);`.
///
/// The braces are Rust's, around the shape.
pub struct Tile<T>(Never, PhantomData<T>);

/// What a `#[device]` function takes outside of kernels: nothing can be made of this type, so that only kernels call it.
pub struct KernelOnly(#[allow(dead_code)] Never);

/// Nothing of this type can be made.
enum Never {}
