//! Which variant a launch asks for, as archives name it.

use super::super::super::spec::{ParamSpec, Spec, Tuning};
use super::Wanted;
use crate::tensor::Padding;
use kernel_archive::{Entry, Identity, Options, Param};
use kernel_core::ir::Safety;

impl Wanted<'_> {
    /// Looks for the variant: for one that serves all lengths, then for that of the launch's own.
    pub(super) fn find(&self, look: impl Fn(&Identity) -> Option<Entry>) -> Option<Entry> {
        let own = self.identity();
        let all = own.for_all_lengths();
        if all == own {
            return look(&own);
        }
        look(&all).filter(|entry| !entry.head.code.uses_lengths()).or_else(|| look(&own))
    }

    /// Everything that the code depends on, but for the compiler.
    pub(in super::super) fn identity(&self) -> Identity {
        let Spec { dtypes, constants, params, tuning, safety } = *self.spec;
        Identity {
            kernel: self.kernel.name().to_string(),
            ir: match tuning.line_info {
                // Code that names places depends on them.
                Some(true) => self.kernel.places().digest_with(self.kernel.source().ir, &self.kernel.line_info()),
                Some(false) | None => self.kernel.places().digest(),
            },
            dtypes: dtypes.to_vec(),
            constants: constants.to_vec(),
            params: params.iter().map(|param| known(*param)).collect(),
            options: options(tuning),
            safe: safety == Safety::Safe,
            checks: self.checks,
            target: self.target.name().to_string(),
        }
    }
}

fn options(tuning: Tuning) -> Options {
    let Tuning { num_warps, num_stages, max_registers, dependent_launch, delays, line_info, rough_tensors } = tuning;
    let line_info = line_info.unwrap_or_default();
    Options { num_warps, num_stages, max_registers, dependent_launch, delays, line_info, rough_tensors }
}

fn known(param: ParamSpec) -> Param {
    match param {
        ParamSpec::Buffer { element, mutable, alignment, len_divisor } => {
            Param::Buffer { element, mutable, alignment, len_divisor }
        }
        ParamSpec::Scalar { element, divisor, one } => Param::Scalar { element, divisor, one },
        ParamSpec::Const(value) => Param::Const { element: value.element, bits: value.bits },
        ParamSpec::Omitted(element) => Param::Omitted { element },
        ParamSpec::Tensor { element, mutable, aligned, facts } => Param::Tensor {
            element,
            mutable,
            rank: facts.rank,
            nan: facts.padding == Padding::Nan,
            aligned,
            strides: facts.strides,
            rows: facts.rows,
            copies: facts.copies,
        },
    }
}
