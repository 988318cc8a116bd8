//! What a pass is, and what passes know and say besides the kernel.

use std::collections::BTreeSet;
use std::rc::Rc;

use kernel_core::backend::nvidia::Options;
use kernel_core::diag::Diagnostic;
use kernel_core::ir::{Func, ParamId, Safety, Span};
use kernel_core::target::Target;

use super::placed::tensor_copies::SharedRoom;
use crate::analysis::axis::AxisAnalysis;
use crate::checks::{CheckPlan, Checks};
use crate::error::CodegenError;
use crate::occupancy::Need;
use crate::report::{LoopReport, StayReport, WaitReport};

/// A pass over a kernel of the level `K`.
pub(crate) struct Pass<K> {
    /// What it is called in [`Options::disabled_passes`], in [`run_named`](super::list::run_named), and by who watches.
    pub(crate) name: &'static str,
    when: When,
    pub(crate) run: Run<K>,
}

/// What a pass does.
pub(super) type Run<K> = fn(&mut K, &mut Unit) -> Result<(), CodegenError>;

/// When a pass runs. Where it need not run, what a kernel computes does not depend on it.
#[derive(Clone, Copy)]
enum When {
    Always,
    /// Unless [`Options::disabled_passes`] has its name.
    UnlessDisabled,
    /// If the options ask for it, as this says.
    Asked(fn(&Options) -> bool),
}

impl<K> Pass<K> {
    pub(super) const fn needed(name: &'static str, run: Run<K>) -> Pass<K> {
        Pass { name, when: When::Always, run }
    }

    pub(super) const fn optional(name: &'static str, run: Run<K>) -> Pass<K> {
        Pass { name, when: When::UnlessDisabled, run }
    }

    pub(super) const fn asked(name: &'static str, by: fn(&Options) -> bool, run: Run<K>) -> Pass<K> {
        Pass { name, when: When::Asked(by), run }
    }

    /// Whether it runs with these options.
    pub(crate) fn runs(&self, options: &Options) -> bool {
        match self.when {
            When::Always => true,
            When::UnlessDisabled => options.runs(self.name),
            When::Asked(by) => by(options),
        }
    }

    pub(super) fn may_be_disabled(&self) -> bool {
        matches!(self.when, When::UnlessDisabled)
    }
}

/// What passes know besides the kernel, and what they say of it.
#[derive(Clone)]
pub(crate) struct Unit {
    pub(crate) target: Target,
    pub(crate) options: Options,
    /// What is checked, and what of it at launch.
    pub(crate) plan: CheckPlan,
    /// The tensors whose blocks are copied by the hardware.
    pub(super) copied: BTreeSet<ParamId>,
    /// How much shared memory their blocks may take, and whether some could do with less.
    pub(crate) room: SharedRoom,
    pub(crate) spares: bool,
    /// Whether the kernel has been divided among warps.
    pub(super) divided: bool,
    /// What became of its loops.
    pub(crate) loops: Vec<LoopReport>,
    /// The loads in loops that are not fetched ahead.
    pub(crate) stays: Vec<StayReport>,
    /// The products that are waited for.
    pub(crate) waits: Vec<WaitReport>,
    /// What the kernel needs, if because of that there is less room for programs.
    pub(crate) need: Option<Need>,
    /// What is known of the placed kernel's numbers.
    pub(crate) axis: Option<Rc<AxisAnalysis>>,
}

impl Unit {
    pub(crate) fn new(target: Target, options: &Options) -> Unit {
        Unit {
            target,
            options: options.clone(),
            plan: CheckPlan::default(),
            copied: BTreeSet::new(),
            room: SharedRoom::default(),
            spares: false,
            divided: false,
            loops: Vec::new(),
            stays: Vec::new(),
            waits: Vec::new(),
            need: None,
            axis: None,
        }
    }

    /// Whether launches must meet conditions to run this variant: it is the one of a safe kernel that relies on them.
    pub(crate) fn decides_at_launch(&self, func: &Func) -> bool {
        (func.safety, self.options.checks) == (Safety::Safe, Checks::AtLaunch)
    }
}

/// The first rule of the verifier that a pass broke.
pub(super) fn broken(pass: &str, func: &Func, problems: &[Diagnostic]) -> CodegenError {
    let first = problems.first();
    let span = first.map_or(Span::UNKNOWN, |first| first.span(&func.files));
    let what = first.map_or("the kernel breaks a rule that has no text", |first| &first.message);
    CodegenError::internal(func, span, pass, what)
}
