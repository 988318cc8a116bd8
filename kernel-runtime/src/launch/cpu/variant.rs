//! A kernel prepared for the interpreter, and what its faults mean.

use super::super::bind::bind;
use super::super::definition::Definition;
use super::super::fault::{FaultAt, Names};
use super::super::loads::Loads;
use super::super::made::Recipes;
use super::super::spec::Spec;
use super::super::tile_size::LargestTile;
use crate::error::{Access, Error, Result};
use kernel_core::backend::{Backend, Timings};
use kernel_core::interp::{self, Fault, FaultKind, Interpreter, Program};

/// The interpreter's form of a variant.
pub(in super::super) struct CpuVariant {
    pub(super) program: Program,
    pub(super) names: Names,
    pub(super) loads: Loads,
    pub(super) made: Recipes,
    pub(super) largest: LargestTile,
}

impl CpuVariant {
    /// Prepares the kernel.
    pub(in super::super) fn new(kernel: &Definition, spec: &Spec<'_>) -> Result<CpuVariant> {
        let mut timings = Timings::default();
        let bound = bind(kernel, spec, None, &mut timings)?;
        let artifact = Interpreter.compile(&bound, (), &()).map_err(|error| Error::Internal {
            message: format!("kernel `{}` cannot be interpreted: {error}", kernel.name()).into(),
        })?;
        timings.append(artifact.timings);
        kernel.count_compilation();
        log::debug!("prepared kernel `{}` for the CPU: {timings}", kernel.name());
        let (names, loads, made) = (Names::of(bound.func()), Loads::of(bound.func()), Recipes::of(bound.func()));
        let program = artifact.code.prints_to(|line| println!("{line}"));
        Ok(CpuVariant { program, names, loads, made, largest: LargestTile::of(&bound) })
    }

    /// The interpreter's fault as an error of this launch.
    pub(super) fn explain(&self, kernel: &'static Definition, fault: Fault) -> Error {
        let at = FaultAt { kernel, files: &self.names.files, span: fault.span, program_id: fault.program_id };
        match &fault.kind {
            FaultKind::OutOfBounds { param, offset, len, access } => {
                let access = match access {
                    interp::Access::Load => Access::Load,
                    interp::Access::Store => Access::Store,
                    interp::Access::Atomic => Access::Atomic,
                };
                at.out_of_bounds(self.names.param(*param), access, *offset, *len)
            }
            FaultKind::Assert { message } => at.assertion(message),
            FaultKind::TimeLimit { limit } => at.late(*limit),
            FaultKind::SharedOutOfBounds { .. }
            | FaultKind::Deadlock { .. }
            | FaultKind::Turn { .. }
            | FaultKind::Race { .. }
            | FaultKind::InvalidLaunch { .. }
            | FaultKind::Unsupported { .. } => Error::Unsupported {
                what: format!("running kernel `{}` on the CPU", kernel.name()).into(),
                reason: fault.to_string().into(),
            },
        }
    }
}
