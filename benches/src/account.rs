//! The runtime's own account of compilations, as lines that a process prints and another one reads.

use crate::Failure;

/// Prints the runtime's own account of each stage.
struct Stages;

impl log::Log for Stages {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        println!("    {}", record.args());
    }

    fn flush(&self) {}
}

/// Has the account printed from here on.
///
/// # Errors
///
/// If the process has a logger already.
pub fn print() -> Result<(), Failure> {
    log::set_logger(&Stages).map_err(|e| e.to_string())?;
    log::set_max_level(log::LevelFilter::Debug);
    Ok(())
}

/// The two parts of a launch that the runtime's account names: `` compiled kernel `add` for sm_90a: .., total 2.2 ms ``
/// and `` loaded kernel `add` on cuda:0: .., total 8.6 ms ``.
pub fn part(line: &str) -> Option<(String, f64)> {
    let (part, rest) = match line.trim().split_once(" kernel `")? {
        ("compiled", rest) => ("before the driver", rest),
        ("loaded", rest) => ("in the driver", rest),
        _ => return None,
    };
    let (name, rest) = rest.split_once('`')?;
    let ms = rest.rsplit_once("total ")?.1.strip_suffix(" ms")?.parse().ok()?;
    Some((format!("{name} {part}"), ms))
}
