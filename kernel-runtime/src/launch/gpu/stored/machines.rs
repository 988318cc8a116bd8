//! Machine code in the cache on disk, by PTX, driver and GPU. Whatever goes wrong, there is none.

use super::super::machine::Shelf;
use super::shelf;
use crate::device::Device;
use crate::driver;
use crate::settings;
use kernel_archive::{Cache, Machine};

/// The machine code of a device in the cache.
pub(in super::super) struct Machines<'c> {
    cache: Option<&'c Cache>,
    driver: &'c str,
    capability: u32,
    /// Whether what is missing shall be made by the linker.
    links: bool,
}

/// The machine code that the process's cache has for a device. What it lacks of a variant that was compiled before is made
/// by the linker if the driver keeps nothing itself: the linker takes a seventh longer than the compiler, so nobody waits for
/// it who compiles a kernel for the first time, or has a driver that remembers.
pub(in super::super) fn machines(device: &Device, is_stored: bool) -> Machines<'static> {
    let (major, minor) = device.compute_capability().unwrap_or_default();
    let driver = driver::load().map_or("", driver::Driver::name);
    Machines::new(shelf::cache(), driver, 10 * major + minor, || is_stored && !settings::driver_keeps_code())
}

impl<'c> Machines<'c> {
    pub(in super::super) fn new(
        cache: Option<&'c Cache>,
        driver: &'c str,
        capability: u32,
        links: impl FnOnce() -> bool,
    ) -> Machines<'c> {
        // Without a name nobody knows whose code it is.
        let cache = cache.filter(|_| !driver.is_empty());
        Machines { cache, driver, capability, links: cache.is_some() && links() }
    }

    /// Whether the device runs that code. Code for an older GPU of its generation would run too, and is not what the driver
    /// makes.
    pub(in super::super) fn is_for(&self, machine: &Machine) -> bool {
        machine.head.capability == self.capability
    }
}

impl Shelf for Machines<'_> {
    fn find(&self, ptx: &str) -> Option<Machine> {
        let key = Machine::key(ptx, self.capability, self.driver);
        Machine::decode(&self.cache?.get(key)?).ok().filter(|machine| self.is_for(machine))
    }

    fn keep(&self, ptx: &str, machine: &Machine) {
        if let Some(cache) = self.cache {
            shelf::put(cache, Machine::key(ptx, self.capability, self.driver), &machine.encode());
        }
    }

    fn place(&self) -> Option<(&str, u32)> {
        self.links.then_some((self.driver, self.capability))
    }
}
