//! The text form of the tile IR: printing and parsing, at every level.
//!
//! [`print()`] and [`parse()`] are inverse to each other: printing what was parsed from a print gives that print.
//! The text is what `#[kernel]` embeds in a binary, what snapshots and `.tile` tests hold, and what a cache key is
//! made of, so it is exact: floats come back bit for bit.
//!
//! ```text
//! kernel add "src/main.rs" safe generic {
//!   dtype T: Num                              ; dtype parameters and their bounds
//!   dtype "T::Acc": Num = accumulator T       ; those that follow from others
//!   const BLOCK: usize                        ; constexprs and their types
//!   const "T::BITS": usize = bits T           ; those that binding computes: `is T f16`, `num_warps`
//!   param %0 x: ptr T @3:5+1                  ; parameters; @ is the place in the source: line, column, length
//!   param %1 out: ptr_mut T {div = 16}        ; in braces what is known of the argument
//!   param %2 n: i32                           ; `optional` or `in_place 1` behind the type: there may be no argument
//!   %3: i32 = program_id {axis = 0} @7:10+13  ; results with their types, operation, attributes, place
//!   %4: i32 = const_expr BLOCK
//!   %5: i32 = mul %3, %4
//!   %6: i32[BLOCK] = splat %5                 ; attributes that repeat the result's type are left out
//!   %7: i32[BLOCK] = arange {lo = 0, hi = BLOCK}
//!   %8: i32[BLOCK] = add %6, %7
//!   %9: i32[BLOCK] = splat %2
//!   %10: bool[BLOCK] = cmp.lt %8, %9
//!   %11: *x[BLOCK] = splat %0                 ; pointers are typed by the parameter they point into
//!   %12: *x[BLOCK] = add_ptr %11, %8
//!   %13: T[BLOCK] = load %12, %10
//!   %14: T[BLOCK] = add contract %13, %13     ; `contract` is the float flag
//!   %15: *out[BLOCK] = splat %1
//!   %16: *out[BLOCK] = add_ptr %15, %8
//!   store %16, %14, %10 {cache = cs}
//!   return
//! }
//! ```
//!
//! An operation's regions follow it: `for %lo, %hi, %step, %init (%i: i32, %acc: f32) { .. }`,
//! `if %c { .. } else { .. }`, `while %a (%b: i32) { .. } do (%c: i32) { .. }`; other regions are joined by `with`.
//! What was inlined from another source file than the kernel's names it: `  file f1 = "dep/src/lib.rs"` first of all, and
//! `@f1:3:5+1`. So does what a call has led to: `  call c1 @9:1+4`, and `@c1:f1:3:5+1`. Line ends mean nothing, `;` starts a comment, values may have any name when read and are numbered when printed.
//! Names that are no plain words are quoted. At the placed level `layout #0 = ..` lines list the layouts,
//! and a value's layout stands behind its type: `%3: f32[64] #0`.

mod attr;
pub(crate) mod dims;
mod layouts;
mod lexer;
mod parse;
mod print;
mod recipes;
mod types;

#[cfg(test)]
mod tests;

pub use attr::{Attr, AttrParser, AttrPrinter, ParseError};
pub use parse::{MAX_REGIONS, parse, parse_located};
pub use print::{print, print_without_spans};
