//! The rules that every kernel keeps, at each level. Run by tests and after every pass in debug builds.
//!
//! **Structure**
//! - S1: identifiers of values, operations, regions, parameters, layouts, dtype parameters, constexprs and
//!   source files are in range.
//! - S2: each operation stands in one region, once; each region belongs to one operation, the body to none.
//! - S3: a value's definition names it back: result *i* of an operation, argument *i* of a region, a parameter.
//! - S4: an operand is a parameter, an argument of an enclosing region, or a result of an earlier operation of the
//!   same or an enclosing region.
//! - S5: a region ends in `yield`, the body in `return`; neither stands anywhere else. The body has no arguments.
//!
//! **Types**
//! - T1: the results of an operation have the types that [`crate::ir::result_types`] gives for its operands, which
//!   includes the types of region arguments and yields and that stores and atomics go through mutable pointers.
//! - T2: only operations with regions in the op table have them; `warp_groups` has one per entry of `warps`, `roles` and
//!   `registers`, without arguments and yields.
//! - T3: a constant is of the kind of its dtype: truth values for `bool`, integers in range for integers. At the bound
//!   and placed levels a float constant is a float that its dtype represents exactly.
//! - T4: the region of `map` computes with scalars of data, without memory, effects or other regions than those of
//!   loops and conditions. A `static_assert` is none of these: binding decides it.
//! - T5: in a safe kernel PTX computes in registers alone.
//!
//! **Levels**
//! - L1: the op table allows the operation at the kernel's level.
//! - L2 (generic): no hidden parameters; names of dtype parameters and constexprs are unique.
//! - L3 (bound, placed): no dtype parameters, no constexprs, no symbolic dimension, and no use of a `const` parameter.
//! - L4 (bound, placed): dimensions are powers of two; a tile has at most [`MAX_ELEMENTS`] elements.
//! - L5 (placed): every tile of data or pointers has a layout of its shape; scalars have none. Before, nothing has one.
//! - L6 (placed): operands and results of elementwise operations have one layout, those of `map` too.
//! - L7: `length` names a buffer parameter, `desc_shape` and `desc_stride` a tensor, whose blocks are tiles of rank 1 to 5;
//!   facts are powers of two or 0.
//! - L8 (placed): the result of `wgmma` is, until it is waited for, used once at most: as the accumulator of a further
//!   product, as a carried or yielded value, or by `wgmma_wait`. A wait that leaves products in flight is one for those
//!   alone since which so many others have begun, on every way to it.
//! - L9 (placed): the layout of a view has the shape of the view's innermost dimensions.
//! - L10: a placed product says which instruction computes it, a generic one does not. The instruction has a form for
//!   the product's dtypes, precision and sizes. In a placed kernel accumulator and result have one layout; what
//!   `mma` reads, and the accumulator of `wgmma`, lie in threads as the instruction wants them. A
//!   `wgmma` of own parts, which warp groups hold, stands in front of the one of the others, and both are one group.
//! - L11: only placed kernels say where their shared memory is, and for how many programs there shall be room, which is
//!   one at least. Places have bytes; allocations have one, with no exchange in it, and besides them operations that pass
//!   values between threads have some.
//! - L12 (placed): a bank holds tiles of one type and layout, of asynchronous products, waits, loops and conditions. Who
//!   goes on with the tile in a bank finds it there: nothing else was put there since, in no iteration. What a loop
//!   carries in a bank is in it behind the loop: it stays there in each iteration, or is put back at its end. What is
//!   waited for stays. Nothing is put into a bank that a product may still be writing.
//! - L13 (generic): no loop says what the host has found before a launch (`runs`, `no_wrap`).
//! - L14 (generic): a constexpr of kind `counter` is that of one loop, which binding unrolls, and is mentioned inside it
//!   alone.
//! - L15: a generic kernel leaves no tensor to the host. What the host computes of one lies in the buffer of an earlier
//!   parameter, in steps of integers and truth values that name earlier ones.
//! - L16 (placed): a kernel that may begin before the launches before it have ended (`launch_dependents`, `grid_wait`) waits
//!   for them once, in its body, and touches neither memory nor anything else that others see before that.
//! - L17 (placed): turns are taken in one group of eight warps that consume. On every way through it each turn that begins
//!   ends before the next one and before the group does, and in a turn all threads of the group never meet.

mod banks;
mod flight;
mod launches;
mod levels;
mod maps;
mod products;
mod recipes;
mod structure;
#[cfg(test)]
mod tests;
mod turns;

pub use flight::tiles_in_flight;

use crate::diag::Diagnostic;
use crate::ir::{Func, Level, Span};

/// The most elements that a tile has, as in Triton.
pub const MAX_ELEMENTS: i64 = 1 << 20;

/// Checks every rule of this module.
///
/// # Errors
/// All violations, in program order. The later groups of rules are only checked where the earlier ones hold.
pub fn verify(func: &Func) -> Result<(), Vec<Diagnostic>> {
    let mut errors = Errors { func, list: Vec::new() };
    structure::check(func, &mut errors);
    if errors.list.is_empty() {
        levels::check(func, &mut errors);
    }
    if errors.list.is_empty() {
        maps::check(func, &mut errors);
        products::check(func, &mut errors);
        recipes::check(func, &mut errors);
    }
    if errors.list.is_empty() && func.level == Level::Placed {
        flight::check(func, &mut errors);
        launches::check(func, &mut errors);
        turns::check(func, &mut errors);
    }
    if errors.list.is_empty() {
        banks::check(func, &mut errors);
    }
    if errors.list.is_empty() { Ok(()) } else { Err(errors.list) }
}

/// The violations so far.
struct Errors<'f> {
    func: &'f Func,
    list: Vec<Diagnostic>,
}

impl Errors<'_> {
    fn push(&mut self, span: Span, message: impl Into<String>) {
        self.list.push(Diagnostic::at(&self.func.files, span, message.into()));
    }
}
