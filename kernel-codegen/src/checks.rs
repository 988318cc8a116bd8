//! What is checked of a kernel, and by whom: the plan that the first passes over a bound kernel make.
//!
//! A safe kernel stays inside its buffers, and what it asserts and hints at is so. Much of that the host can evaluate
//! at launch, because it depends on arguments and the grid alone. So a kernel has two variants: the fast one
//! ([`Checks::AtLaunch`]) runs where its [`LaunchConditions`] hold, the other one ([`Checks::EveryAccess`]), which
//! checks everything itself, runs elsewhere. Who makes the plan:
//!
//! | pass | what it adds |
//! |---|---|
//! | `promises` | hints and assertions, each checked by the program unless it is proved or believed |
//! | `assertions` | conditions for those that the host can decide instead |
//! | `nonzero_trip` | conditions under which loops of products run |
//! | `bounds` | accesses, and conditions for those that the host can decide |
//! | `no_wrap` | conditions under which what loops compute does not wrap |
//! | `unsigned_division` | conditions under which divisions need no sign |
//! | `descriptors` | accesses through tensor descriptors |

use kernel_core::ir::{OpId, ParamId, Span};

pub use kernel_core::backend::{Checks, LaunchConditions, LaunchEnv, LaunchValues};

/// What is checked of a kernel, and what of it at launch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckPlan {
    /// What a launch must meet to run this variant.
    pub conditions: LaunchConditions,
    /// Every access, in program order.
    pub accesses: Vec<Access>,
    /// Every hint and assertion, in the order of their lines.
    pub promises: Vec<Promise>,
}

/// What an access does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AccessKind {
    /// A load.
    Load,
    /// A store.
    Store,
    /// An atomic.
    Atomic,
}

/// How an access of a safe kernel is kept inside its buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    /// By an inequality that the host evaluates at launch.
    LaunchCondition,
    /// By a check that joins its mask, and why the host cannot tell.
    Residual(Open),
    /// By its tensor descriptor: the host has proved that the tensor lies in the buffer, and nothing else is accessed.
    Described,
}

/// Why the host cannot tell where an access goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Open {
    /// Its offsets are made from a value without bounds.
    Unbounded(Unbounded),
    /// They are remainders of loaded numbers, which may be negative.
    Sign,
    /// It can, but this variant is for launches in which something is not so.
    Asked,
}

/// A value that the host knows too little of, from which offsets are made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Unbounded {
    /// Which bounds it lacks.
    pub lacks: Lacks,
    /// How it comes about.
    pub origin: Origin,
    /// Where.
    pub span: Span,
}

/// Which bounds a value lacks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Lacks {
    /// Nothing bounds it below.
    Below,
    /// Nothing bounds it above.
    Above,
    /// Nothing bounds it at all.
    Both,
}

impl Lacks {
    /// Whether both lack a bound on the same side.
    pub(crate) fn meets(self, other: Lacks) -> bool {
        !matches!((self, other), (Lacks::Below, Lacks::Above) | (Lacks::Above, Lacks::Below))
    }

    /// What both lack; if they lack different bounds, what this one lacks.
    pub(crate) fn and(self, other: Lacks) -> Lacks {
        match (self, other) {
            (Lacks::Both, other) => other,
            (one, _) => one,
        }
    }
}

/// How a value comes about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Origin {
    /// A load.
    Loaded(ParamId),
    /// An atomic, which returns what was there before.
    Exchanged(ParamId),
    /// A loop that changes it from iteration to iteration.
    Carried,
    /// Any other operation.
    Computed,
}

impl Class {
    /// The words for the report, from the names of parameters and of places.
    pub(crate) fn words(self, name: &dyn Fn(ParamId) -> String, place: &dyn Fn(Span) -> String) -> String {
        match self {
            Class::LaunchCondition => "decided at launch".to_string(),
            Class::Described => "inside its tensor".to_string(),
            Class::Residual(Open::Asked) => "checked per lane".to_string(),
            Class::Residual(Open::Sign) => {
                "checked per lane: a remainder of what is loaded may be negative".to_string()
            }
            Class::Residual(Open::Unbounded(Unbounded { lacks, origin, span })) => {
                let lacks = match lacks {
                    Lacks::Below => "below",
                    Lacks::Above => "above",
                    Lacks::Both => "at all",
                };
                let what = match origin {
                    Origin::Loaded(param) => format!("what is loaded from `{}`", name(param)),
                    Origin::Exchanged(param) => format!("what an atomic returns of `{}`", name(param)),
                    Origin::Carried => "what the loop carries".to_string(),
                    Origin::Computed => "what is computed".to_string(),
                };
                format!("checked per lane: {what} at {} is not bounded {lacks}", place(span))
            }
        }
    }
}

/// An access of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Access {
    /// Where it is.
    pub span: Span,
    /// What it does.
    pub kind: AccessKind,
    /// The buffer.
    pub param: ParamId,
    /// How it is checked.
    pub class: Class,
}

/// How the compiler knows that what a hint or an assertion says is true.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kept {
    /// From what else it knows.
    Proved,
    /// The host has evaluated it at launch.
    AtLaunch,
    /// Each program checks it.
    Checked,
    /// It does not: the hint stands in an `unsafe` block.
    Believed,
}

impl Kept {
    /// The words for the report.
    pub fn name(self) -> &'static str {
        match self {
            Kept::Proved => "proved",
            Kept::AtLaunch => "decided at launch",
            Kept::Checked => "checked by each program",
            Kept::Believed => "believed",
        }
    }
}

/// A hint or an assertion of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Promise {
    /// Where it is.
    pub span: Span,
    /// The hint as it is written, or the message of the assertion.
    pub what: String,
    /// Why it holds.
    pub kept: Kept,
    /// The assertion, or the one that checks the hint; of no use once another pass has renumbered operations.
    pub(crate) assertion: Option<OpId>,
}
