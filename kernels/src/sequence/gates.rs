//! Logarithms of decays, as kernels sum them up.

use tilewright::prelude::*;

/// The least logarithm of a decay, of which `exp` is 0 already. Gates below it count as that: no decay changes, and running
/// sums keep digits behind a gate that forgets everything, so that their differences are decays still.
#[device]
pub(super) fn least<A: Float>() -> A {
    if A::BITS == 64 { -746.0 } else { -104.0 }
}
