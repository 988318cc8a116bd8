//! What failing programs report, as errors that name the kernel, the place and the argument.

use super::definition::Definition;
use crate::error::{Access, CallSite, Error};
use kernel_core::ir::{Files, Func, ParamId, Span};
use std::time::Duration;

/// A place in a kernel and the program that failed there.
pub(super) struct FaultAt<'f> {
    pub(super) kernel: &'static Definition,
    pub(super) files: &'f Files,
    pub(super) span: Span,
    pub(super) program_id: [u32; 3],
}

impl FaultAt<'_> {
    fn calls(&self) -> Box<[CallSite]> {
        let site = |call: Span| {
            let file = self.files.name(call).into();
            CallSite { file, line: call.line, column: call.column }
        };
        self.files.calls_to(self.span).map(site).collect()
    }

    /// An access outside the buffer of `argument`.
    pub(super) fn out_of_bounds(&self, argument: &str, access: Access, offset: i64, len: u64) -> Error {
        Error::OutOfBounds {
            kernel: self.kernel.name().into(),
            file: self.files.name(self.span).into(),
            line: self.span.line,
            column: self.span.column,
            calls: self.calls(),
            program_id: self.program_id,
            offset,
            len,
            access,
            argument: argument.into(),
        }
    }

    /// A failed assertion.
    pub(super) fn assertion(&self, message: &str) -> Error {
        Error::AssertFailed {
            kernel: self.kernel.name().into(),
            file: self.files.name(self.span).into(),
            line: self.span.line,
            column: self.span.column,
            calls: self.calls(),
            program_id: self.program_id,
            message: message.into(),
        }
    }

    /// A program that was stopped when the launch's time was over.
    pub(super) fn late(&self, limit: Duration) -> Error {
        Error::TimeLimit {
            kernel: self.kernel.name().into(),
            file: self.files.name(self.span).into(),
            line: self.span.line,
            column: self.span.column,
            calls: self.calls(),
            program_id: self.program_id,
            limit,
        }
    }
}

/// The names of a kernel's parameters and source files, for errors that come after its IR is gone.
pub(super) struct Names {
    params: Box<[Box<str>]>,
    pub(super) files: Files,
}

impl Names {
    pub(super) fn of(func: &Func) -> Self {
        let params = func.params.iter().map(|param| param.name.as_str().into()).collect();
        Names { params, files: func.files.clone() }
    }

    /// A parameter's name; empty for a number that none has.
    pub(super) fn param(&self, param: ParamId) -> &str {
        self.params.get(param.index()).map_or("", |name| name)
    }
}
