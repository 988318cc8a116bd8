//! What the code generator returns.

use kernel_core::backend::nvidia::{self, AbiParam, Ptx};
use kernel_core::backend::{Artifact, LaunchConditions, Site, Timings};
use kernel_core::ir::{CallId, FileId, Placed};

use crate::analysis::warp_groups::sets_registers;
use crate::lower::begins_early;
use crate::report::{Notes, Report, Reported};
use kernel_core::target::Target;

/// The text of a module before and after LLVM's optimiser.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LlvmIr {
    /// As lowered.
    pub lowered: String,
    /// As optimised.
    pub optimised: String,
    /// Where line information was asked for: what the names of its files stand for, which are numbers from 0. Each is a file
    /// with the call that inlined what is there.
    pub origins: Vec<(FileId, CallId)>,
}

/// A kernel compiled for one target.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The name of the kernel's entry in the PTX.
    pub entry: String,
    /// The PTX.
    pub ptx: String,
    /// What it was compiled for.
    pub target: Target,
    /// The kernel with layouts, as it was lowered.
    pub placed: Placed,
    /// The LLVM IR, if the options asked for it.
    pub llvm_ir: Option<LlvmIr>,
    /// Dynamic shared memory that each program needs, in bytes.
    pub shared_bytes: u32,
    /// Warps per program, with those that only fetch: the block has 32 times as many threads, in x.
    pub num_warps: u32,
    /// For how many programs per multiprocessor the PTX asks ptxas to make room; `None` if it decides alone.
    /// [`crate::with_min_programs`] changes it.
    pub min_programs: Option<u32>,
    /// The kernel's parameters, in order.
    pub abi: Vec<AbiParam>,
    /// What the site numbers of reports mean.
    pub sites: Vec<Site>,
    /// What a launch must meet to run this variant.
    pub conditions: LaunchConditions,
    pub(crate) notes: Notes,
    /// The warps that layouts speak of.
    pub(crate) layout_warps: u32,
    /// How long it took.
    pub timings: Timings,
}

impl Compiled {
    /// Threads per program.
    pub fn threads(&self) -> u32 {
        self.num_warps * kernel_core::layout::WARP_SIZE
    }

    /// What to try, one after the other, as long as the PTX makes the driver spill registers: see [`Ptx::alternatives`].
    pub fn alternatives(&self) -> impl Iterator<Item = (Option<u32>, String)> {
        nvidia::alternatives(&self.ptx, self.min_programs, self.sets_registers())
    }

    /// Whether the PTX itself says how many registers threads have.
    fn sets_registers(&self) -> bool {
        // Groups of warps that change their numbers of registers need a multiprocessor of their own.
        self.notes.max_registers.is_some() || sets_registers(self.placed.func())
    }

    /// What was decided, for a person to read.
    pub fn report(&self) -> Report {
        self.reported().report()
    }

    fn reported(&self) -> Reported {
        let (placed, notes) = (self.placed.clone(), self.notes.clone());
        Reported { placed, target: self.target, num_warps: self.layout_warps, notes }
    }

    /// The text form of the kernel with layouts.
    pub fn placed_ir(&self) -> String {
        kernel_core::text::print(self.placed.func())
    }
}

impl From<Compiled> for Artifact<Ptx> {
    fn from(compiled: Compiled) -> Artifact<Ptx> {
        let sets_registers = compiled.sets_registers();
        let dependent_launch = begins_early(compiled.placed.func());
        let (target, num_warps) = (compiled.target, compiled.layout_warps);
        let stages = compiled.llvm_ir.as_ref().map(|_| ("placed", compiled.placed_ir()));
        let reported = Reported { placed: compiled.placed, target, num_warps, notes: compiled.notes };
        let llvm = compiled.llvm_ir.into_iter().flat_map(|ir| [("lowered", ir.lowered), ("llvm", ir.optimised)]);
        Artifact {
            stages: stages.into_iter().chain(llvm).collect(),
            conditions: compiled.conditions,
            sites: compiled.sites,
            timings: compiled.timings,
            code: Ptx {
                entry: compiled.entry,
                text: compiled.ptx,
                shared_bytes: compiled.shared_bytes,
                num_warps: compiled.num_warps,
                min_programs: compiled.min_programs,
                sets_registers,
                dependent_launch,
                abi: compiled.abi,
                report: Box::new(reported),
            },
        }
    }
}
