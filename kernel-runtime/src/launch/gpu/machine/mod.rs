//! Machine code: where it comes from before the driver's compiler is asked, and where it goes.
//!
//! | module | what it is |
//! |---|---|
//! | `link` | the driver's linker, which gives machine code back |
//! | `ptxas` | NVIDIA's assembler as a program, where there is one |
//! | `nvdisasm` | its disassembler, to look at code |
//! | `assembler` | code that is made with it before it is loaded, on any thread |
//!
//! The driver compiles PTX when it is loaded, for 8 to 300 ms, and gives nothing back to keep. It keeps files of its own in
//! `~/.nv/ComputeCache`, which containers lose. So code is looked for in this order:
//!
//! 1. with the variant: an archive of the program has it, or a tuner has had it assembled;
//! 2. in the cache on disk, under the PTX, the driver and the GPU;
//! 3. the driver compiles. If the PTX was compiled before, so that this need not have been, the driver keeps no files, and its
//!    linker makes the same code ([`links_alike`]), that compiles, and gives machine code that is put into the cache.
//!
//! What is known of the routes: for add, softmax and a product with `setmaxnreg`, the files of driver 580.159.04 (CUDA 13.0)
//! have the instructions that ptxas 13.0.88 makes, each of them. What the linker makes, which compiles as for several files,
//! ignores `setmaxnreg`, and does not know where shared memory begins, which costs instructions; of kernels without both it
//! is the same but for the choice between instructions that move a constant. So kernels with shared memory are left to the
//! driver, and to ptxas.

pub(crate) mod assembler;
pub(super) mod link;
pub mod nvdisasm;
pub mod ptxas;
#[cfg(all(test, jit))]
mod tests;

use super::super::target::Target;
use crate::error::Result;
use kernel_archive::{Machine, MachineHead};
use kernel_core::backend::nvidia::Ptx;

/// What a driver does with code, or what stands in for it.
pub(super) trait Driver {
    /// Code in a context.
    type Loaded;

    /// Loads machine code.
    fn load_machine(&self, machine: &Machine) -> Result<Self::Loaded>;

    /// Compiles PTX that asks for room for so many programs, and loads it.
    fn compile(&self, ptx: &str, min_programs: Option<u32>) -> Result<Self::Loaded>;

    /// Compiles PTX by the driver's linker: the code, and what it said.
    fn link(&self, ptx: &str) -> Result<(Vec<u8>, String)>;

    /// Bytes of spilled registers.
    fn local_bytes(&self, loaded: &Self::Loaded) -> u32;
}

/// Where machine code is kept between processes.
pub(super) trait Shelf {
    /// What was kept for that PTX.
    fn find(&self, ptx: &str) -> Option<Machine>;

    /// Keeps it.
    fn keep(&self, ptx: &str, machine: &Machine);

    /// The name of the driver, and the compute capability that code is for, where the linker shall make what is missing.
    fn place(&self) -> Option<(&str, u32)>;
}

/// Nothing is kept: what is looked at is compiled by the driver.
pub(super) struct NoShelf;

impl Shelf for NoShelf {
    fn find(&self, _: &str) -> Option<Machine> {
        None
    }

    fn keep(&self, _: &str, _: &Machine) {}

    fn place(&self) -> Option<(&str, u32)> {
        None
    }
}

/// Loads code: machine code if there is some that the driver accepts, else what it compiles.
pub(super) fn load<D: Driver>(driver: &D, code: &Ptx, own: Option<&Machine>, shelf: &dyn Shelf) -> Result<D::Loaded> {
    let load = |machine: &Machine| match driver.load_machine(machine) {
        Ok(loaded) => Some(loaded),
        // A driver that is older than what made it, for one. There is the PTX.
        Err(error) => {
            log::debug!("machine code of {} is not used: {error}", machine.head.maker);
            None
        }
    };
    let loaded = own.and_then(load).or_else(|| load(&shelf.find(&code.text)?));
    if let Some(loaded) = loaded {
        return Ok(loaded);
    }
    let place = shelf.place().filter(|_| links_alike(code));
    let best = least_spilled(
        code,
        |ptx, programs| compile(driver, place, ptx, programs),
        |(loaded, _)| driver.local_bytes(loaded),
    );
    let (loaded, machine) = best?;
    if let Some(machine) = machine {
        shelf.keep(&code.text, &machine);
    }
    Ok(loaded)
}

/// Compiles and loads PTX; gives machine code where it is to be kept and can be had.
fn compile<D: Driver>(
    driver: &D,
    place: Option<(&str, u32)>,
    ptx: &str,
    min_programs: Option<u32>,
) -> Result<(D::Loaded, Option<Machine>)> {
    if let Some((name, capability)) = place
        && let Ok((image, log)) = driver.link(ptx)
    {
        let maker = format!("the linker of {name}");
        let head = MachineHead { capability, maker, min_programs, local_bytes: 0, log };
        let mut machine = Machine { head, image };
        if let Ok(loaded) = driver.load_machine(&machine) {
            machine.head.local_bytes = driver.local_bytes(&loaded);
            return Ok((loaded, Some(machine)));
        }
    }
    // What the linker refuses is refused again, with the reason.
    Ok((driver.compile(ptx, min_programs)?, None))
}

/// Code of the version of the PTX that is kept: as long as it spills more than a few registers, the alternatives are tried;
/// of all, what spills least is kept.
pub(super) fn least_spilled<T>(
    code: &Ptx,
    mut make: impl FnMut(&str, Option<u32>) -> Result<T>,
    spilled: impl Fn(&T) -> u32,
) -> Result<T> {
    let mut best = make(&code.text, code.min_programs)?;
    let mut programs = code.min_programs;
    for (other_programs, ptx) in code.alternatives() {
        if spilled(&best) <= tolerated(programs) {
            break;
        }
        // That it cannot be made another way does not take away the code that there is.
        if let Ok(other) = make(&ptx, other_programs)
            && spilled(&other) < spilled(&best)
        {
            (best, programs) = (other, other_programs);
        }
    }
    Ok(best)
}

/// Bytes of spilled registers with which code is kept that was asked to make room for so many programs. A multiprocessor
/// that loses one program of two loses more than a few accesses to the first-level cache cost: layer norm of rows of
/// 12289 f32 takes 0.22 ms with 8 bytes spilled, and 0.30 ms with none.
fn tolerated(min_programs: Option<u32>) -> u32 {
    const FEW: u32 = 16;
    if min_programs.is_some_and(|programs| programs > 1) { FEW } else { 0 }
}

/// Whether the driver's linker makes the code that its compiler makes: there is an entry and nothing else, which neither
/// has shared memory nor sets registers.
fn links_alike(code: &Ptx) -> bool {
    const HEADER: [&str; 5] = [".version", ".target", ".address_size", "//", ".visible .entry"];
    let mut lines = code.text.lines().map(str::trim_start).filter(|line| !line.is_empty());
    let entry_is_first = lines.find(|line| !HEADER[..4].iter().any(|word| line.starts_with(word)));
    entry_is_first.is_some_and(|line| line.starts_with(HEADER[4]))
        && code.text.matches(".entry").count() == 1
        && ![".shared", "setmaxnreg", ".func", "call", ".extern", ".const"].iter().any(|word| code.text.contains(word))
}

/// What ptxas is told to make code for: the target by its name where the GPU is the target's own, and else the GPU, which
/// code of older targets is compiled for when it is loaded.
pub(super) fn gpu_name(target: Target, capability: u32) -> String {
    if target.capability() == capability { target.name().to_string() } else { format!("sm_{capability}") }
}
