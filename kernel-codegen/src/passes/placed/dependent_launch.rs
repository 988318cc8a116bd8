//! Makes a kernel that may begin before the launches before it have ended wait for them:
//! [`Options::dependent_launch`](crate::Options::dependent_launch).
//!
//! ```text
//!                                 launch_dependents
//! %i = arange ..                  %i = arange ..
//! %p = add_ptr ..       becomes   %p = add_ptr ..
//!                                 grid_wait
//! %x = load %p                    %x = load %p
//! ```
//!
//! A GPU starts the programs of such a launch when all programs of the one before have said that it may, or have ended, and
//! there is room. What they do until they wait (parameters, indices, the phases of barriers) then costs no time, and
//! neither does the launch.
//!
//! **The wait** stands in the kernel's body, where every thread of every program comes, before the first operation that may
//! touch what others see: memory, reports, what is printed. So no access overtakes the launches before, and launches do not
//! overtake each other either: one that did not wait could end before the one before it, and the next, which waits for this
//! one alone, begin to read too early. A program that touches nothing waits for that reason.
//!
//! **The next launch** may begin as soon as all programs have, which is the first thing they say: its own wait is for the
//! end of this launch and for what it wrote, however early it began. Its programs take no room from programs of this one,
//! which all have theirs by then.
//!
//! Needs a kernel in which everything else has its place. The verifier's rule L16 holds it to what is said here.

use kernel_core::edit::{Cursor, Result};
use kernel_core::ir::{Func, GpuOp, OpId};

/// The pass's name in errors.
const PASS: &str = "dependent_launch";

/// Runs the pass.
///
/// # Errors
/// If the pass makes a mistake.
pub(crate) fn run(func: &mut Func) -> Result<()> {
    let body = func.body;
    let ops = std::mem::take(&mut func.regions[body.index()].ops);
    let ends = |func: &Func, id: OpId| func.op(id).op.is_terminator();
    let first = ops.iter().position(|&id| ends(func, id) || func.reaches_out(id)).unwrap_or(ops.len());
    let mut out = Vec::with_capacity(ops.len() + 2);
    let span = |at: usize, func: &Func| ops.get(at).map(|&id| func.op(id).span).unwrap_or_default();
    let (start, access) = (span(0, func), span(first, func));
    Cursor::new(func, &mut out, PASS).at(start).effect(GpuOp::LaunchDependents, &[])?;
    out.extend(&ops[..first]);
    Cursor::new(func, &mut out, PASS).at(access).effect(GpuOp::GridWait, &[])?;
    out.extend(&ops[first..]);
    func.regions[body.index()].ops = out;
    Ok(())
}
