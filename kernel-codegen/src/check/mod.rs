//! Memory safety that costs nothing where it can be proved.
//!
//! Three steps on the bound IR, before placement:
//!
//! 1. [`pointers`] brings every address to one form: the buffer of a known parameter and one tile of offsets;
//! 2. [`describe`] gives the interval of those offsets as a small program ([`LaunchConditions`]) over the launch's
//!    scalars, lengths and grid, with masks, loops and `if` conditions as hypotheses;
//! 3. [`mod@insert`] puts each access in a [`Class`]: decided by the host at launch, or checked per lane by a
//!    `check_bounds` that joins the access's mask.
//!
//! ```text
//! %9: f32[BLOCK] = load %p, %m            ; %m = %off < %n
//! ```
//! stays as it is with the launch condition `0 <= %off <= n - 1 < len(x)`, evaluated without wrapping; if a
//! launch does not meet it, the variant of the kernel with [`Checks::EveryAccess`] runs instead:
//! ```text
//! %m2: bool[BLOCK] = check_bounds %off, %len, %m {param = 0, store = false}
//! %9: f32[BLOCK] = load %p, %m2
//! ```
//!
//! Divisions that such conditions show to need no sign are done without (`unsigned_division`), and offsets that loops compute are
//! shown not to wrap (`no_wrap`), which pipelines make use of. Loops that multiply are shown to run (`nonzero_trip`).
//!
//! Promises ([`hints`]) are checked in safe kernels, before anything relies on them: like assertions, by the host where
//! it can ([`decide`]), else by each program.
//!
//! A lane that the bounds refuse reads zero, in a load with `other` too, which is what a lane reads that the kernel's
//! own mask leaves out: there `load %p, %m, %other` becomes `load %p, %m2, (select %m, zeros, %other)`.

pub mod decide;
pub mod describe;
pub mod hints;
pub mod insert;
pub mod lanes;
mod no_wrap;
mod nonzero_trip;
pub mod pointers;
mod unsigned_division;

pub use hints::{Kept, Promise};
pub use insert::{Access, AccessKind, CheckPlan, Class, insert};
pub use kernel_core::backend::{Checks, LaunchConditions, LaunchEnv, LaunchValues};
