//! Machine code that is made before it is loaded, on any thread: the driver's compiler works for one caller at a time.

use super::super::stored::machines;
use super::super::variant::Variant;
use super::Shelf;
use super::ptxas::Ptxas;
use crate::device::Device;
use crate::driver;
use crate::launch::Target;
use crate::settings;

/// An assembler for a device.
#[derive(Debug)]
pub(crate) struct Assembler {
    pub(super) ptxas: Ptxas,
    pub(super) device: Device,
    pub(super) target: Target,
    pub(super) capability: u32,
    /// Whether its code is that of the driver, so that launches may find it later.
    pub(super) is_drivers: bool,
}

impl Assembler {
    /// The assembler that the environment names, or one of the release of CUDA that the driver supports, whose code is the
    /// code of the driver's compiler. `None` if there is none, or the device is no GPU.
    pub(crate) fn of(device: &Device) -> Option<Assembler> {
        let (target, (major, minor)) = (device.target()?, device.compute_capability()?);
        let release = driver::load().ok()?.release();
        let found = settings::ptxas();
        let ptxas = choose(found.iter().filter_map(|path| Ptxas::at(path).ok()), settings::names_ptxas(), release)?;
        let is_drivers = ptxas.release() == release;
        log::debug!("{device} is tuned with code of {ptxas:?}");
        Some(Assembler { ptxas, device: device.clone(), target, capability: 10 * major + minor, is_drivers })
    }

    /// Gives a variant its machine code, unless it is known. What the assembler does not make, the driver does when the
    /// variant is loaded.
    pub(in super::super) fn assemble(&self, variant: &Variant) {
        let code = &variant.artifact.code;
        let shelf = machines(&self.device, false);
        if variant.machine.get().is_some() {
            return;
        }
        if let Some(found) = shelf.find(&code.text) {
            drop(variant.machine.set(found));
            return;
        }
        match self.ptxas.assemble(code, self.target, self.capability) {
            Ok(machine) => {
                if self.is_drivers {
                    shelf.keep(&code.text, &machine);
                }
                drop(variant.machine.set(machine));
            }
            Err(error) => log::debug!("kernel `{}` is left to the driver: {error}", code.entry),
        }
    }
}

/// The assembler to use beside a driver of a release of CUDA: of those that were found, the first of that release; one that
/// was named, whatever it is.
pub(super) fn choose(mut found: impl Iterator<Item = Ptxas>, is_named: bool, release: (u32, u32)) -> Option<Ptxas> {
    found.find(|ptxas| is_named || ptxas.release() == release)
}
