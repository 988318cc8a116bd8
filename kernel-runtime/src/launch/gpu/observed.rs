//! Loaded code as profiles know it.

use super::super::kernel::Kernel;
use super::super::lines;
use super::module::Loaded;
use super::variant::Variant;
use crate::device::Device;
use crate::driver::CaptureMode;
use crate::error::Result;
use crate::profile::CodeRun;
use crate::profile::observed::{Code, note_loaded};
use std::sync::Arc;

/// A variant that was loaded.
struct Observed {
    kernel: &'static Kernel,
    variant: &'static Variant,
    run: CodeRun,
}

/// Lets those who look at launches know code that was loaded.
pub(super) fn note(kernel: &'static Kernel, variant: &'static Variant, loaded: &Loaded) {
    let (code, usage) = (&variant.artifact.code, loaded.usage());
    let run = CodeRun {
        threads: code.threads(),
        registers: usage.registers,
        shared_bytes: code.shared_bytes + usage.static_shared_bytes,
        local_bytes: usage.local_bytes,
    };
    note_loaded(&code.entry, kernel.name(), kernel.place(), Arc::new(Observed { kernel, variant, run }));
}

impl Code for Observed {
    fn run(&self) -> CodeRun {
        self.run
    }

    fn variant(&self) -> usize {
        std::ptr::from_ref(self.variant).addr()
    }

    fn load_again(&self, device: &Device) -> Result<()> {
        let Some(ctx) = device.cuda_context() else { return Ok(()) };
        let _mode = CaptureMode::relaxed();
        self.variant.load_anew(self.kernel.definition(), device, ctx).map(drop)
    }

    fn source_line(&self, file: &str, line: u32) -> Option<(&'static str, &'static str)> {
        let files = self.kernel.definition().source().files;
        let known = files.iter().find(|known| known.name == file || lines::path(known.name) == file)?;
        let text = known.lines.iter().find(|(number, _)| *number == line).map_or("", |(_, text)| text);
        Some((known.name, text))
    }
}
