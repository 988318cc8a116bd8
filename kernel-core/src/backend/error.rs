//! Why a backend could not compile a kernel.

use std::fmt;

use crate::ir::Span;

/// A kernel that a backend refuses, with its place in the source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The kernel's name.
    pub kernel: String,
    /// The source file, as rustc names it.
    pub file: String,
    /// The place in that file.
    pub span: Span,
    /// What is wrong, with the values that make it so. Where a limit is exceeded, what it is a limit of: `bytes of
    /// shared memory`.
    pub what: String,
    /// The amount needed, where a limit is exceeded.
    pub needed: Option<u64>,
    /// The limit that is exceeded.
    pub limit: Option<u64>,
    /// What to do about it.
    pub help: Option<String>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let too_many = if self.needed.is_some() { "too many " } else { "" };
        write!(f, "{too_many}{} in kernel `{}` at {}", self.what, self.kernel, self.file)?;
        if self.span.line > 0 {
            write!(f, ":{}:{}", self.span.line, self.span.column)?;
        }
        if let (Some(needed), Some(limit)) = (self.needed, self.limit) {
            write!(f, " ({needed} needed, {limit} allowed)")?;
        }
        if let Some(help) = &self.help {
            write!(f, "; help: {help}")?;
        }
        Ok(())
    }
}

/// A rule of the compiler's own that it broke: a mistake in Tilewright, never in the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Internal {
    /// The kernel's name.
    pub kernel: String,
    /// The source file, as rustc names it.
    pub file: String,
    /// The operation at which it shows; line 0 where it is about no single operation.
    pub span: Span,
    /// The step that made the mistake: the name of a pass, or `lowering`.
    pub step: String,
    /// What does not hold.
    pub what: String,
}

impl fmt::Display for Internal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "internal error in step `{}` of compiling kernel `{}` at {}", self.step, self.kernel, self.file)?;
        if self.span.line > 0 {
            write!(f, ":{}:{}", self.span.line, self.span.column)?;
        }
        write!(f, ": {}; the mistake is Tilewright's, not the kernel's: please report it with the kernel", self.what)
    }
}

/// Why a kernel could not be compiled.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CompileError {
    /// The kernel asks for what the target or the backend cannot do.
    Refused(Box<Refusal>),
    /// The compiler made a mistake, and noticed.
    Internal(Box<Internal>),
    /// A tool that the backend uses is missing or failed.
    Tool(String),
    /// There is no such backend in this build; why, and what to do.
    Unavailable(String),
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CompileError::Refused(refusal) => refusal.fmt(f),
            CompileError::Internal(internal) => internal.fmt(f),
            CompileError::Tool(message) | CompileError::Unavailable(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for CompileError {}
