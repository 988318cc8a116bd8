//! Why a kernel cannot be compiled for a GPU.

use std::fmt;

use kernel_core::edit::EditError;
use kernel_core::ir::{Func, Span};

/// A kernel that the code generator refuses, with its place in the source.
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
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodegenError {
    /// The kernel asks for what the target or the code generator cannot do.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// The compiler made a mistake, and noticed.
    #[error("{0}")]
    Internal(Box<Internal>),
    /// LLVM is missing or failed.
    #[error(transparent)]
    Llvm(#[from] kernel_llvm::Error),
}

impl From<kernel_llvm::LoadError> for CodegenError {
    fn from(error: kernel_llvm::LoadError) -> CodegenError {
        CodegenError::Llvm(error.into())
    }
}

impl From<Box<EditError>> for CodegenError {
    fn from(error: Box<EditError>) -> CodegenError {
        let (step, what) = (error.pass.to_string(), error.what());
        CodegenError::Internal(Box::new(Internal {
            kernel: error.kernel,
            file: error.file,
            span: error.span,
            step,
            what,
        }))
    }
}

impl CodegenError {
    /// A refusal of something in `func`.
    pub(crate) fn refuse(func: &Func, span: Span, what: impl Into<String>) -> CodegenError {
        CodegenError::Refused(Box::new(Refusal {
            kernel: func.name.clone(),
            file: func.file.clone(),
            span,
            what: what.into(),
            needed: None,
            limit: None,
            help: None,
        }))
    }

    /// A mistake of the compiler's own.
    pub(crate) fn internal(func: &Func, span: Span, step: &str, what: impl Into<String>) -> CodegenError {
        CodegenError::Internal(Box::new(Internal {
            kernel: func.name.clone(),
            file: func.file.clone(),
            span,
            step: step.to_string(),
            what: what.into(),
        }))
    }

    /// The same, at this place in the source if it names none.
    pub(crate) fn at(mut self, place: Span) -> CodegenError {
        let span = match &mut self {
            CodegenError::Refused(refusal) => &mut refusal.span,
            CodegenError::Internal(internal) => &mut internal.span,
            CodegenError::Llvm(_) => return self,
        };
        if *span == Span::UNKNOWN {
            *span = place;
        }
        self
    }

    /// The same with a suggestion.
    pub(crate) fn help(mut self, help: impl Into<String>) -> CodegenError {
        if let CodegenError::Refused(refusal) = &mut self {
            refusal.help = Some(help.into());
        }
        self
    }

    /// Whether more of something is needed than there is, so that another way of doing the same might be possible.
    pub(crate) fn exceeds_a_limit(&self) -> bool {
        matches!(self, CodegenError::Refused(refusal) if refusal.limit.is_some())
    }

    /// The same with the amounts that make it so.
    pub(crate) fn amounts(mut self, needed: u64, limit: u64) -> CodegenError {
        if let CodegenError::Refused(refusal) = &mut self {
            (refusal.needed, refusal.limit) = (Some(needed), Some(limit));
        }
        self
    }
}
