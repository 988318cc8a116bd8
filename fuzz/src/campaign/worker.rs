//! A process that runs seeds: the parent names a block on a line of its input, and each seed's outcome is a line of its
//! output. So a crash or a hang has a seed.
//!
//! ```text
//! > 0 500
//! < seed 0
//! < agrees 3f
//! < seed 1
//! < refused 80 bytes of shared memory
//! < seed 2
//! < differs 11 codegen membar: ..
//! < end
//! ```

use std::io::{BufRead, Write};

use tilewright::Device;

use super::{Mode, Settings};
use crate::generate::features::Features;
use crate::generate::generate;
use crate::oracle::{Agreement, Ways, check, check_launch, quiet_panics};

/// What became of a seed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// All ways agree.
    Agrees,
    /// The code generator refused the kernel.
    Refused(String),
    /// They do not.
    Differs(String),
    /// The kernel has not what it must have, and was not run.
    LeftOut,
}

/// The device that launches of a mode go to.
///
/// # Errors
/// If there is no GPU.
pub fn device(mode: Mode) -> Result<Option<Device>, String> {
    match mode {
        Mode::Passes => Ok(None),
        Mode::Cpu => Ok(Some(Device::cpu())),
        Mode::Gpu => Device::cuda(0).map(Some).map_err(|error| error.to_string()),
    }
}

/// Runs a seed: on a device, if there is one, else in every way that needs none.
pub fn run_seed(seed: u64, settings: &Settings, device: Option<&Device>) -> (Features, Outcome) {
    let (case, features) = generate(seed);
    if settings.with.is_some_and(|feature| !features.contains(feature)) {
        return (features, Outcome::LeftOut);
    }
    let emulate = settings.emulate_every > 0 && seed.is_multiple_of(settings.emulate_every);
    let agreement = match device {
        Some(device) => check_launch(&case, device),
        None => check(&case, Ways { emulate, roughly: false }),
    };
    let outcome = match agreement {
        Ok(Agreement::Full) => Outcome::Agrees,
        Ok(Agreement::Refused(why)) => Outcome::Refused(why),
        Err(difference) => Outcome::Differs(format!("{}: {}", difference.stage, difference.what)),
    };
    (features, outcome)
}

/// Serves blocks until the input ends.
///
/// # Errors
/// If the parent has gone, or there is no such device.
pub fn serve(settings: &Settings) -> std::io::Result<()> {
    quiet_panics();
    let device = device(settings.mode).map_err(std::io::Error::other)?;
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let mut numbers = line.split(' ').filter_map(|number| number.parse::<u64>().ok());
        let (Some(start), Some(end)) = (numbers.next(), numbers.next()) else { continue };
        for seed in start..end {
            writeln!(output, "seed {seed}")?;
            output.flush()?;
            let (features, outcome) = run_seed(seed, settings, device.as_ref());
            let bits = features.bits();
            let one_line = |text: String| text.replace(['\n', '\r'], " ").chars().take(400).collect::<String>();
            match outcome {
                Outcome::Agrees => writeln!(output, "agrees {bits:x}")?,
                Outcome::Refused(why) => writeln!(output, "refused {bits:x} {}", one_line(why))?,
                Outcome::Differs(what) => writeln!(output, "differs {bits:x} {}", one_line(what))?,
                Outcome::LeftOut => writeln!(output, "left out")?,
            }
        }
        writeln!(output, "end")?;
        output.flush()?;
    }
    Ok(())
}
