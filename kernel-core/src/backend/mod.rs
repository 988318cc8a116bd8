//! The line between the middle and the back ends: what turns a bound kernel into something that runs.
//!
//! A [`Backend`] compiles a bound kernel for a target, with options, to an [`Artifact`]: code, the conditions under which a
//! launch may run it, and what its reports of failures mean. Nothing of that is shaped like a GPU; what is, the backend's own
//! types say.
//!
//! | backend | target | code |
//! |---|---|---|
//! | [`Interpreter`](crate::interp::Interpreter) | none | a [`Program`](crate::interp::Program) |
//! | `kernel_codegen::Nvptx` | a [`Target`](crate::target::Target) | [`nvidia::Ptx`] |
//!
//! The data of an artifact are defined here rather than with the code generator, so that the runtime loads and launches
//! kernels without knowing what has made them.

pub mod conditions;
mod error;
pub mod nvidia;
mod timings;

pub use conditions::{LaunchConditions, LaunchEnv, LaunchValues};
pub use error::{CompileError, Internal, Refusal};
pub use timings::Timings;

use crate::ir::{Bound, ParamId, Span};

/// A way to run kernels.
///
/// ```
/// use kernel_core::backend::Backend;
/// use kernel_core::interp::Interpreter;
/// use kernel_core::ir::Bound;
///
/// let text = "kernel nothing \"nothing.rs\" safe bound {\n  return\n}\n";
/// let kernel = Bound::new(kernel_core::text::parse(text)?).expect("bound");
/// let artifact = Interpreter.compile(&kernel, (), &())?;
/// assert!(artifact.conditions.is_empty(), "the interpreter checks every access");
/// // SAFETY: the kernel accesses no memory.
/// unsafe { artifact.code.run(&[], [1, 1, 1])? };
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Backend {
    /// What code is made for: a GPU architecture, the instructions of a CPU; `()` where there is no choice.
    type Target: Copy;
    /// What a caller may choose for this backend.
    type Options: Default;
    /// What runs.
    type Code;

    /// Compiles a kernel.
    ///
    /// # Errors
    /// If the kernel asks for more than the target or the backend has, the options make no sense, or a tool that the
    /// backend needs is missing.
    fn compile(
        &self,
        kernel: &Bound,
        target: Self::Target,
        options: &Self::Options,
    ) -> Result<Artifact<Self::Code>, CompileError>;
}

/// A compiled kernel.
#[derive(Debug)]
pub struct Artifact<C> {
    /// What runs.
    pub code: C,
    /// What a launch must meet to run this code. One that does not meet it runs code with [`Checks::EveryAccess`].
    pub conditions: LaunchConditions,
    /// What the site numbers mean by which running code reports failures.
    pub sites: Vec<Site>,
    /// Texts of the kernel on its way, by the name of the stage, if the options asked for them.
    pub stages: Vec<(&'static str, String)>,
    /// How long it took.
    pub timings: Timings,
}

/// Which checks of accesses a variant of a kernel has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Checks {
    /// Those that no launch condition can replace: the fast variant, which runs where the conditions hold.
    #[default]
    AtLaunch,
    /// One at every access: the variant for launches that do not meet the conditions.
    EveryAccess,
}

/// What a check guards.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum SiteKind {
    /// An access to the buffer of that parameter.
    Bounds {
        /// The buffer.
        param: ParamId,
        /// Whether it is written.
        store: bool,
    },
    /// An `assert!` with that message.
    Assert(String),
}

/// What a report's site number (an index into [`Artifact::sites`]) means.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Site {
    /// Where it is in the source.
    pub span: Span,
    /// What is checked.
    pub kind: SiteKind,
}
