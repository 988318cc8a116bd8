//! Why a kernel cannot be compiled for a GPU.

use kernel_core::backend::{CompileError, Internal, Refusal};
use kernel_core::edit::EditError;
use kernel_core::ir::{Func, Span};

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

impl From<CodegenError> for CompileError {
    fn from(error: CodegenError) -> CompileError {
        match error {
            CodegenError::Refused(refusal) => CompileError::Refused(refusal),
            CodegenError::Internal(internal) => CompileError::Internal(internal),
            CodegenError::Llvm(error) => CompileError::Tool(error.to_string()),
        }
    }
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
            file: func.files.name(span).to_string(),
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
            file: func.files.name(span).to_string(),
            span,
            step: step.to_string(),
            what: what.into(),
        }))
    }

    /// The same, at this place in the source if it names none.
    pub(crate) fn at(mut self, func: &Func, place: Span) -> CodegenError {
        let (span, file) = match &mut self {
            CodegenError::Refused(refusal) => (&mut refusal.span, &mut refusal.file),
            CodegenError::Internal(internal) => (&mut internal.span, &mut internal.file),
            CodegenError::Llvm(_) => return self,
        };
        if *span == Span::UNKNOWN {
            (*span, *file) = (place, func.files.name(place).to_string());
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
