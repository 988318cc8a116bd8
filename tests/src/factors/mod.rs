//! Whether the code of the hardware multiplies by what its PTX says: factors in registers that outlive an iteration of
//! a loop.
//!
//! ```text
//! F2FP R56, ..                           x, once
//! LOOP: HGMMA R24, R56, ..               reads x in the first iteration, and p in all others
//!       F2FP R56, ..                     p
//!       HGMMA R32, R56, ..
//! ```
//!
//! An assembler may give two factors one register while both are needed; some versions of ptxas do
//! (`lower/held_factors.rs` of the code generator has the picture). The result is a kernel that is wrong in some
//! iterations. Nothing in the PTX shows it, and no message tells.
//!
//! The check follows every register of a factor back to the instructions that compute it ([`flow`]). A *mixture* is a
//! register that was written outside of a loop around the product in one iteration, and inside of it in another, as
//! `R56` above. In PTX ([`ptx`]) only factors that a loop carries are mixtures. If the code of the hardware
//! ([`sass`]) has more of them than its PTX, a register was given away.
//!
//! All matrix instructions are looked at: `wgmma` with its left factor in registers, and both factors of `mma.sync`.

pub mod flow;
pub mod ptx;
pub mod sass;
#[cfg(test)]
mod tests;

use crate::assembler::{assemble_to, disassemble};
use flow::Code;

/// What was looked at in a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Checked {
    /// Matrix instructions of the hardware with factors in registers.
    pub products: usize,
    /// Registers of factors that a loop carries.
    pub carried: usize,
}

/// Assembles a kernel for an architecture such as `sm_90a`, and compares what its products multiply.
///
/// `None` if there is nothing to compare, as the kernel has no loop with such products, or if ptxas or nvdisasm is
/// missing, which is said on standard error.
///
/// # Errors
/// With the product and what writes its factor, if the code differs from the PTX. With the instruction, if there is one
/// that is not known here.
pub fn check_sass(kernel: &str, architecture: &str) -> Result<Option<Checked>, String> {
    let written = ptx::read(kernel)?;
    if !written.has_factors_in_loops() {
        return Ok(None);
    }
    let Some((_, cubin)) = assemble_to(kernel, architecture) else { return Ok(None) };
    let Some(listing) = disassemble(&cubin) else { return Ok(None) };
    compare(&written, &sass::read(&listing)?).map(Some)
}

/// [`check_sass`] of a kernel that has been assembled, and disassembled to this listing.
///
/// # Errors
/// As [`check_sass`].
pub fn check_listing(kernel: &str, listing: &str) -> Result<Option<Checked>, String> {
    let written = ptx::read(kernel)?;
    if !written.has_factors_in_loops() {
        return Ok(None);
    }
    compare(&written, &sass::read(listing)?).map(Some)
}

/// Compares PTX with what was made of it.
///
/// # Errors
/// As [`check_sass`].
pub fn compare(written: &Code, made: &Code) -> Result<Checked, String> {
    let products = made.steps.iter().filter(|step| !step.factors.is_empty()).count();
    if products == 0 {
        return Err("the PTX has products with factors in registers, what was made of it has none".to_string());
    }
    let (carried, mixed) = (written.mixes()?, made.mixes()?);
    let Some(mix) = mixed.first().filter(|_| mixed.len() > carried.len()) else {
        return Ok(Checked { products, carried: carried.len() });
    };
    let lines = |places: &[usize]| -> String {
        places.iter().map(|&at| format!("\n    {at}: {}", made.steps[at].text)).collect()
    };
    Err(format!(
        "{} registers of factors are written both outside and inside of a loop, in the PTX {}; the first is R{} of\n    \
         {}: {}\nfrom outside of the loop comes{}\nfrom inside{}",
        mixed.len(),
        carried.len(),
        mix.register,
        mix.product,
        made.steps[mix.product].text,
        lines(&mix.outside),
        lines(&mix.inside),
    ))
}
