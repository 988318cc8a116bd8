//! Why a launch went wrong.

use std::fmt;
use std::time::Duration;

use crate::ir::{FileId, Files, ParamId, Span};

/// The first thing that went wrong in a launch: of the program with the smallest linear index that met one, the
/// first in its program order. A limit of time comes after all else.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// What happened.
    pub kind: FaultKind,
    /// The operation that it happened in.
    pub span: Span,
    /// The source file that it is from, where that is not the kernel's own.
    pub file: Option<Box<str>>,
    /// The program that it happened in.
    pub program_id: [u32; 3],
}

impl Fault {
    /// A fault at a place in the kernel's own file, as far as is known.
    pub fn new(kind: FaultKind, span: Span, program_id: [u32; 3]) -> Fault {
        Fault { kind, span, file: None, program_id }
    }

    /// A fault of a whole launch.
    pub(super) fn of_launch(kind: FaultKind) -> Fault {
        Fault::new(kind, Span::UNKNOWN, [0; 3])
    }

    /// The same with the name of its source file.
    pub(super) fn named(self, files: &Files) -> Fault {
        match self.span.file {
            FileId::OWN => self,
            file => Fault { file: files.get(file).map(Into::into), ..self },
        }
    }
}

/// What an access out of bounds wanted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// To read.
    Load,
    /// To write.
    Store,
    /// To read and write as one.
    Atomic,
}

/// What went wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// An access left the buffer of its parameter. The lane was suppressed and the program went on.
    OutOfBounds {
        /// The parameter whose buffer it is.
        param: ParamId,
        /// Where the access went, in elements from the buffer's start.
        offset: i64,
        /// The buffer's length in elements.
        len: u64,
        /// What it wanted.
        access: Access,
    },
    /// An `assert!` failed. Its program ended.
    Assert {
        /// The message of the assertion.
        message: String,
    },
    /// An index into shared memory or a slot of barriers does not exist. The program ended.
    SharedOutOfBounds {
        /// The index.
        index: i64,
        /// How many there are.
        len: u64,
    },
    /// A wait on a barrier that nothing can complete any more. The program ended.
    Deadlock {
        /// The slot of the barrier that was waited on.
        slot: i64,
        /// The parity of the phase.
        phase: i32,
    },
    /// Half of a warp group waits for a turn that cannot come, or is not where the other half needs it. The program ended.
    Turn {
        /// What stands where it may not.
        message: String,
    },
    /// Accesses to shared memory that nothing orders, in a run that checks it. The program went on.
    Race {
        /// What meets what.
        message: String,
    },
    /// The launch took longer than its limit. The programs that had not ended were stopped, and those that had not
    /// begun never ran.
    TimeLimit {
        /// How long it was allowed to take.
        limit: Duration,
    },
    /// The arguments do not fit the kernel's parameters, or the grid is larger than a GPU's. Nothing ran.
    InvalidLaunch {
        /// What does not fit.
        message: String,
    },
    /// The kernel cannot be run: an operation of another level, or tiles that exceed the address space. Nothing ran.
    Unsupported {
        /// What cannot be run.
        message: String,
    },
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Access::Load => "load",
            Access::Store => "store",
            Access::Atomic => "atomic",
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            FaultKind::OutOfBounds { param, offset, len, access } => write!(
                f,
                "{access} out of bounds: element {offset} of the buffer of parameter {} which has {len}",
                param.index()
            )?,
            FaultKind::Assert { message } => write!(f, "assertion failed: {message}")?,
            FaultKind::SharedOutOfBounds { index, len } => {
                write!(f, "index {index} into shared memory or barriers of {len}")?;
            }
            FaultKind::Deadlock { slot, phase } => {
                write!(f, "deadlock: nothing can complete phase {phase} of barrier {slot}")?;
            }
            FaultKind::Turn { message } => write!(f, "deadlock: {message}")?,
            FaultKind::TimeLimit { limit } => write!(f, "the launch took longer than its limit of {limit:?}")?,
            FaultKind::Race { message } => f.write_str(message)?,
            FaultKind::InvalidLaunch { message } | FaultKind::Unsupported { message } => {
                return f.write_str(message);
            }
        }
        let [x, y, z] = self.program_id;
        write!(f, ", in program ({x}, {y}, {z})")?;
        if self.span != Span::UNKNOWN {
            f.write_str(", at ")?;
            match &self.file {
                Some(file) => write!(f, "{file}:{}:{}", self.span.line, self.span.column)?,
                None => write!(f, "{}", self.span)?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}
