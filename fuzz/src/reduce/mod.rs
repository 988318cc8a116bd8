//! Makes a small kernel of one that differs.
//!
//! Each [`edits::Edit`] makes the case a little smaller: it deletes an operation, takes a branch, halves a size, switches
//! an option back. What still verifies and still differs at the same stage is kept, until no edit helps.
//!
//! Sums that were exact may begin to round where numbers change. So where the two results lie far apart at first, they
//! must do so to the end, and small differences of floats count for nothing.

pub mod edits;

use crate::case::Case;
use crate::oracle::{Difference, Ways, check, check_launch};
use tilewright::Device;

/// A smaller case, with what is still different.
pub struct Reduced {
    /// The case.
    pub case: Case,
    /// What differs.
    pub difference: Difference,
    /// How many candidates were tried.
    pub tried: usize,
}

/// Where a difference shows, without what changes while a kernel shrinks.
fn stage(difference: &Difference) -> (String, bool) {
    (difference.stage.clone(), difference.what.starts_with("panic"))
}

/// Shrinks a case, which is run in every way, or launched on a device; `None` if nothing differs. At most `limit` candidates are
/// tried.
pub fn reduce(case: &Case, device: Option<&Device>, limit: usize) -> Option<Reduced> {
    let check = |case: &Case, ways: Ways| match device {
        Some(device) => check_launch(case, device),
        None => check(case, ways),
    };
    let exact = Ways { emulate: true, roughly: false };
    let mut difference = check(case, exact).err()?;
    let goal = stage(&difference);
    let needs_emulator = goal.0 == "emulator" || goal.0.starts_with("compile");
    let rough = Ways { emulate: needs_emulator, roughly: true };
    let ways = match check(case, rough) {
        Err(found) if stage(&found) == goal => rough,
        _ => Ways { roughly: false, ..rough },
    };
    let (mut case, mut tried) = (case.clone(), 0);
    loop {
        let mut helped = false;
        for kind in edits::KINDS {
            let mut at = 0;
            while let Some(edited) = kind(&case, at) {
                if tried >= limit {
                    return Some(Reduced { case, difference, tried });
                }
                tried += 1;
                let still = edited.and_then(|edited| {
                    let found = check(&edited, ways).err()?;
                    (stage(&found) == goal).then_some((edited, found))
                });
                match still {
                    // What comes next has moved to this place.
                    Some((edited, found)) => {
                        (case, difference, helped) = (edited, found, true);
                    }
                    None => at += 1,
                }
            }
        }
        if !helped {
            return Some(Reduced { case, difference, tried });
        }
    }
}
