//! `.tile` file tests: tile IR as text with what should become of it.
//!
//! A file holds cases. A case starts with a line `; test COMMAND`, then comes a kernel:
//!
//! ```text
//! ; test bind BLOCK=64 | pass fold | pass dce
//! ; check: const 64
//! ; check-not: const_expr
//! kernel k "k.rs" safe generic {
//!   const BLOCK: usize
//!   %0: i32 = const_expr BLOCK
//!   ..
//! ```
//!
//! - Commands are stages joined by `|`; each gets the kernel that the one before it made.
//!   `roundtrip`, `verify`, `bind NAME=VALUE ..`, `pass NAME`, `optimise [-NAME ..]`: one file each. The code
//!   generator's tests have stages of their own (`kernel-codegen/tests/passes.rs`).
//! - `; check: TEXT`: a line of the output contains the text, below the line that the check before it found.
//!   `; check-not: TEXT`: no line contains it.
//! - `; run: ARGUMENTS => RESULTS`: a launch and what comes of it; [`RunLine`] says how it is written. `kernel-core` runs
//!   it in the interpreter, before and after every pass ([`interpret`]), `kernel-codegen` in generated code, and the
//!   package of the whole project's tests through the runtime, on a GPU if there is one.
//! - `; error: TEXT` at the end of the line that is to blame; on the line `kernel ..` if no operation is.
//!   All errors must be named, and a case that names errors must fail with exactly those.
//! - `; output:` behind the kernel starts the exact output, each line behind `;   `.
//!   `TILEWRIGHT_BLESS=1 cargo test` writes it anew.
//!
//! Whatever a case tests, its kernel and every output are also printed and parsed again.

mod bind;
mod case;
mod check;
mod failure;
mod folder;
mod line;
mod optimise;
mod pass;
mod roundtrip;
mod run;
mod stage;
mod verify;

pub use bind::bindings;
pub use case::{Case, split_cases};
pub use failure::Failure;
pub use folder::{files, run_folder};
pub use line::{Argument, RunLine, comparable};
pub use run::interpret;
