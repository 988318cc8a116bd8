//! Compiling launches before they are made, on as many threads as there are.

use super::gpu::machine::assembler::Assembler;
use super::shape::CallShape;
use super::target::Target;
use crate::device::Device;
use crate::error::Result;

/// Compiles launches for a device before they are made, on any thread: to PTX, and to machine code if NVIDIA's assembler is
/// found in the release of the driver, or one is named by `TILEWRIGHT_PTXAS`. The driver's own compiler works for one thread
/// at a time, and takes the one that launches.
///
/// ```text
/// let (compiler, shapes) = (AheadCompiler::of(&device), shapes_of(|| call.launch(&device))?);
/// thread::scope(|scope| shapes.iter().for_each(|shape| drop(scope.spawn(|| compiler.compile(shape)))));
/// ```
#[derive(Debug)]
pub struct AheadCompiler {
    target: Option<Target>,
    assembler: Option<Assembler>,
}

impl AheadCompiler {
    /// A compiler for a device. Looks for an assembler, which takes some milliseconds.
    pub fn of(device: &Device) -> AheadCompiler {
        AheadCompiler { target: device.target(), assembler: Assembler::of(device) }
    }

    /// Whether machine code is made, so that the driver has nothing left to compile.
    pub fn assembles(&self) -> bool {
        self.assembler.is_some()
    }

    /// Compiles what a launch would, which it then finds compiled. Launches of which the same is known have the same code,
    /// which is compiled once. Nothing on the CPU.
    ///
    /// # Errors
    ///
    /// Those of a first launch.
    pub fn compile(&self, shape: &CallShape) -> Result<()> {
        shape.assemble_ahead(self.target, self.assembler.as_ref())
    }
}
