//! What is wrong with a kernel and where, for a person to read.

use std::fmt;

use crate::ir::Span;

/// A mistake in a kernel that shows when its constexprs and argument types are known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostic {
    /// The kernel's name.
    pub kernel: String,
    /// The source file, as rustc names it.
    pub file: String,
    /// The place in that file.
    pub span: Span,
    /// What is wrong, with the values that make it so.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in kernel `{}` at {}", self.message, self.kernel, self.file)?;
        if self.span.line > 0 {
            write!(f, ":{}:{}", self.span.line, self.span.column)?;
        }
        if let Some(help) = &self.help {
            write!(f, "; help: {help}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostic {}
