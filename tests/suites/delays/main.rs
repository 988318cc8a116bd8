//! Asynchronous kernels under random delays: results must not depend on how long anything takes.
//!
//! Products by pointers (`cp.async`), by descriptors (tensor copies and barriers with phases) and by persistent
//! programs whose warps are divided are built with `nanosleep` around every asynchronous copy and product, every
//! arrival and every wait. On a GPU they give the bits that they give without, for several seeds, depths of pipelines
//! and numbers of iterations, on small integers, of which every sum is known, and on other numbers. Without one, the
//! code is looked at: the delays stand where they should, nothing has any by default, and ptxas takes it.

mod code;
mod kernels;
mod results;
