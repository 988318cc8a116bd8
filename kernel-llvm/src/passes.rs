//! LLVM's optimiser, with the passes that kernels need.
//!
//! `default<O3>` is made for programs of many functions, in memory that pointers walk through: most of its time goes to
//! passes that find nothing in a kernel, one function whose values are in registers already and whose loops are as the
//! placed kernel says. The passes here are those of it that change the code that ptxas makes of kernels, in its order;
//! they take a third of its time.
//!
//! ```text
//! module                always-inline
//! function   clean      ranges of thread numbers, early-cse, instcombine, simplifycfg, correlated-propagation
//!            arrange    reassociate, licm, loop-rotate
//!            loops      indvars, unrolling where a loop must be unrolled
//!            values     gvn, sccp, vector-combine, instcombine, licm, simplifycfg; pairs of halves if there are any
//!            unroll     loop-unroll, instcombine, licm, simplifycfg
//! ```
//!
//! Loops are unrolled behind everything else, by the hints on them ([`LoopHint`](crate::LoopHint)), as only then is
//! their size known. Nothing here fills vectors but the search for pairs of 16-bit floats: a thread's values have the
//! widths that layouts gave them, and the hardware has no wider registers.

use inkwell::module::Module;
use inkwell::passes::PassBuilderOptions;
use inkwell::targets::TargetMachine;

use crate::error::Error;
use crate::machine::{run, verify};

/// What is done about pairs of 16-bit floats, of which one instruction computes two results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlpVectorize {
    /// The module has none besides those that are vectors already.
    Off,
    /// They are searched for, which takes time by the number of values that may be neighbours.
    On,
}

/// The passes up to where pairs are searched for.
const BEFORE_PAIRS: &str = "nvvm-intr-range,simplifycfg,sroa,early-cse,instcombine<no-verify-fixpoint>,simplifycfg,\
    correlated-propagation,reassociate,loop-mssa(licm,loop-rotate,licm),simplifycfg,instcombine<no-verify-fixpoint>,\
    loop(indvars,loop-unroll-full),gvn,sccp,vector-combine,instcombine<no-verify-fixpoint>,loop-mssa(licm),\
    simplifycfg<bonus-inst-threshold=1;forward-switch-cond;switch-range-to-icmp;switch-to-lookup;no-keep-loops;\
    hoist-common-insts;sink-common-insts>";
/// The search for pairs.
const PAIRS: &str = ",slp-vectorizer,vector-combine,instcombine<no-verify-fixpoint>";
/// The passes behind it.
const AFTER_PAIRS: &str = ",loop-unroll<O3>,instcombine<no-verify-fixpoint>,loop-mssa(licm),simplifycfg";
/// What runs where LLVM does not know one of these passes: their names are no stable interface.
const FALLBACK: &str = "default<O3>";

/// Optimises a module, after LLVM's verifier has accepted it.
///
/// The machine goes with it, so that costs and address spaces are those of the GPU.
///
/// # Errors
///
/// [`Error::Invalid`] if the verifier refuses the module, [`Error::Failed`] if a pass does.
pub fn optimise(module: &Module<'_>, machine: &TargetMachine, pairs: SlpVectorize) -> Result<(), Error> {
    verify(module, "before optimising")?;
    run(module, "optimising", || {
        let search = match pairs {
            SlpVectorize::Off => "",
            SlpVectorize::On => PAIRS,
        };
        let passes = format!("always-inline,function<eager-inv>({BEFORE_PAIRS}{search}{AFTER_PAIRS})");
        // A name that is not known is an error before the first pass runs.
        let passed = module.run_passes(&passes, machine, options());
        let passed = passed.or_else(|_| module.run_passes(FALLBACK, machine, options()));
        passed.map_err(|message| message.to_string())
    })
}

fn options() -> PassBuilderOptions {
    let options = PassBuilderOptions::create();
    options.set_loop_unrolling(true);
    options.set_loop_interleaving(false);
    options.set_loop_vectorization(false);
    options.set_loop_slp_vectorization(false);
    options.set_merge_functions(false);
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{load, new_context, new_module, target_machine};

    #[test]
    fn llvm_knows_every_pass() {
        let llvm = load().expect("LLVM loads");
        let machine = target_machine(llvm, "sm_90a", "+ptx80").expect("there is a machine");
        let context = new_context(llvm);
        for search in ["", PAIRS] {
            let module = new_module(&context, "nothing", &machine);
            let passes = format!("always-inline,function<eager-inv>({BEFORE_PAIRS}{search}{AFTER_PAIRS})");
            let outcome = module.run_passes(&passes, &machine, options());
            assert!(outcome.is_ok(), "{}", outcome.map_err(|message| message.to_string()).unwrap_err());
        }
    }
}
