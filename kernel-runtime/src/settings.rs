//! The one place where environment variables are read.
//!
//! | variable | values | meaning |
//! |---|---|---|
//! | `TILEWRIGHT_DEVICE` | `cpu`, `cuda`, `cuda:1` | what `Device::best()` returns |
//! | `TILEWRIGHT_CACHE` | `off`, a folder | where compiled kernels are kept between runs; without it in the user's folder for caches |
//! | `TILEWRIGHT_CACHE_SIZE` | `500M`, `2G` | about how much is kept there; without it 1 GiB |
//! | `TILEWRIGHT_RECORD` | a file | an archive to which the compiled kernels of all launches on GPUs are added |
//! | `TILEWRIGHT_LINE_INFO` | `1`, `0` | whether code for GPUs says which lines of the source it is from, where the call does not say; read once |
//! | `TILEWRIGHT_PTXAS` | `off`, a file | NVIDIA's assembler, for machine code in archives and for tuning; without it one is looked for; its disassembler is looked for beside it first |
//! | `NVTX_INJECTION64_PATH` | a library | set by profilers that take ranges |
//! | `TILEWRIGHT_TIME_LIMIT` | seconds: `10`, `0.5` | how long a launch on the CPU may take, where the call does not say; read once |
//!
//! Each variable has a pure function that parses its value, so that tests need not change the
//! environment of the process.

use crate::error::{Error, Result};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

/// The variable that `Device::best()` obeys.
pub const DEVICE_VARIABLE: &str = "TILEWRIGHT_DEVICE";

/// The variable that limits launches on the CPU.
pub const TIME_LIMIT_VARIABLE: &str = "TILEWRIGHT_TIME_LIMIT";

/// A device by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The CPU.
    Cpu,
    /// The CUDA device with this index.
    Cuda(usize),
}

/// The device that the environment asks for, if it asks for one. An empty value asks for none.
pub fn device_override() -> Result<Option<DeviceChoice>> {
    variable(DEVICE_VARIABLE).map(|value| parse_device(&value.to_string_lossy())).transpose()
}

/// Reads `cpu`, `cuda` (the first one) or `cuda:INDEX`. Case and outer spaces do not matter.
///
/// ```
/// use kernel_runtime::settings::{DeviceChoice, parse_device};
///
/// assert_eq!(parse_device("cuda:1"), Ok(DeviceChoice::Cuda(1)));
/// assert!(parse_device("gpu").is_err());
/// ```
pub fn parse_device(value: &str) -> Result<DeviceChoice> {
    let name = value.trim().to_ascii_lowercase();
    let choice = match name.split_once(':') {
        None if name == "cpu" => Some(DeviceChoice::Cpu),
        None if name == "cuda" => Some(DeviceChoice::Cuda(0)),
        Some(("cuda", index)) if !index.starts_with('+') => index.parse().ok().map(DeviceChoice::Cuda),
        None | Some(_) => None,
    };
    choice.ok_or_else(|| Error::InvalidSetting {
        name: DEVICE_VARIABLE.into(),
        value: value.into(),
        expected: "`cpu`, `cuda`, or `cuda:` and an index from 0".into(),
    })
}

/// How long a launch on the CPU may take by the environment, if it says so. An empty value says nothing. The
/// environment is asked once, as every launch wants to know.
pub fn time_limit() -> Result<Option<Duration>> {
    static LIMIT: OnceLock<Result<Option<Duration>>> = OnceLock::new();
    let read = || variable(TIME_LIMIT_VARIABLE).map(|value| parse_time_limit(&value.to_string_lossy())).transpose();
    LIMIT.get_or_init(read).clone()
}

/// Reads a number of seconds above zero, whole or with a fraction. Outer spaces do not matter.
///
/// ```
/// use kernel_runtime::settings::parse_time_limit;
/// use std::time::Duration;
///
/// assert_eq!(parse_time_limit("0.5"), Ok(Duration::from_millis(500)));
/// assert!(parse_time_limit("soon").is_err());
/// ```
pub fn parse_time_limit(value: &str) -> Result<Duration> {
    let seconds = value.trim().parse().ok();
    let limit = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    limit.filter(|limit| !limit.is_zero()).ok_or_else(|| Error::InvalidSetting {
        name: TIME_LIMIT_VARIABLE.into(),
        value: value.into(),
        expected: "a number of seconds above 0, such as `10` or `0.5`".into(),
    })
}

/// The variable that asks for line information.
pub const LINE_INFO_VARIABLE: &str = "TILEWRIGHT_LINE_INFO";

/// Whether code for GPUs says which lines of the source it is from, by the environment; not if that says nothing.
///
/// # Errors
///
/// [`Error::InvalidSetting`] for another value than `0` and `1`.
pub fn line_info() -> Result<bool> {
    static WANTED: OnceLock<Result<bool>> = OnceLock::new();
    let read = || match variable(LINE_INFO_VARIABLE) {
        None => Ok(false),
        Some(value) => parse_switch(LINE_INFO_VARIABLE, &value.to_string_lossy()),
    };
    WANTED.get_or_init(read).clone()
}

/// Reads `0` or `1`. Outer spaces do not matter.
fn parse_switch(name: &'static str, value: &str) -> Result<bool> {
    match value.trim() {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(Error::InvalidSetting { name: name.into(), value: value.into(), expected: "`0` or `1`".into() }),
    }
}

/// The library of a profiler that takes ranges, which the profiler names itself: the variable is NVTX's.
pub(crate) fn nvtx_injection() -> Option<PathBuf> {
    variable("NVTX_INJECTION64_PATH").map(PathBuf::from)
}

/// The variable that says where compiled kernels are kept.
pub const CACHE_VARIABLE: &str = "TILEWRIGHT_CACHE";

/// The variable that says how much of them is kept.
pub const CACHE_SIZE_VARIABLE: &str = "TILEWRIGHT_CACHE_SIZE";

/// The variable that names an archive to record.
pub const RECORD_VARIABLE: &str = "TILEWRIGHT_RECORD";

/// About how many bytes of compiled kernels are kept where nobody has said.
const USUAL_CACHE_BYTES: u64 = 1 << 30;

/// Where compiled kernels are kept, and about how many bytes of them; `None` if they are not.
///
/// # Errors
///
/// [`Error::InvalidSetting`] for a size that means nothing.
pub fn cache() -> Result<Option<(PathBuf, u64)>> {
    let folder = match variable(CACHE_VARIABLE) {
        Some(value) if value.eq_ignore_ascii_case("off") => return Ok(None),
        Some(folder) => PathBuf::from(folder),
        // What unit tests compile is theirs.
        None if cfg!(test) => return Ok(None),
        None => match etcetera::choose_base_strategy() {
            Ok(folders) => etcetera::BaseStrategy::cache_dir(&folders).join("tilewright"),
            Err(_) => return Ok(None),
        },
    };
    let size = variable(CACHE_SIZE_VARIABLE);
    let size = size.map_or(Ok(USUAL_CACHE_BYTES), |value| parse_size(&value.to_string_lossy()))?;
    Ok(Some((folder, size)))
}

/// The archive that launches are recorded into, if one is named.
pub fn record() -> Option<PathBuf> {
    variable(RECORD_VARIABLE).map(PathBuf::from)
}

/// The variable that names NVIDIA's assembler.
pub const PTXAS_VARIABLE: &str = "TILEWRIGHT_PTXAS";

/// Where NVIDIA's assembler may be: where the environment says, and else on the path and where the CUDA toolkit is.
pub fn ptxas() -> Vec<PathBuf> {
    ptxas_places(variable(PTXAS_VARIABLE), toolkit_folders().into_iter())
}

/// Where NVIDIA's disassembler may be: beside the assembler that the environment names, on the path, and where the CUDA
/// toolkit is.
pub fn nvdisasm() -> Vec<PathBuf> {
    nvdisasm_places(variable(PTXAS_VARIABLE), toolkit_folders().into_iter())
}

/// The folders in which a CUDA toolkit's programs are.
fn toolkit_folders() -> Vec<PathBuf> {
    let path = variable("PATH").unwrap_or_default();
    let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(variable).map(PathBuf::from);
    let toolkits = toolkits.chain([PathBuf::from("/usr/local/cuda")]).map(|folder| folder.join("bin"));
    std::env::split_paths(&path).chain(toolkits).collect()
}

/// The file that was named, none if that is `off`, and if nothing was named those in the folders.
fn ptxas_places(named: Option<OsString>, folders: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    match named {
        Some(value) if value.eq_ignore_ascii_case("off") => Vec::new(),
        Some(path) => vec![PathBuf::from(path)],
        None => folders.map(|folder| folder.join(program("ptxas"))).collect(),
    }
}

/// The file beside the assembler that was named, then those in the folders.
fn nvdisasm_places(assembler: Option<OsString>, folders: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let beside = assembler.and_then(|path| PathBuf::from(path).parent().map(Path::to_path_buf));
    // The parent of a bare name such as `off` is the folder that the program happens to run in.
    let beside = beside.filter(|folder| !folder.as_os_str().is_empty());
    beside.into_iter().chain(folders).map(|folder| folder.join(program("nvdisasm"))).collect()
}

/// The name of a program's file.
fn program(name: &str) -> String {
    format!("{name}{}", std::env::consts::EXE_SUFFIX)
}

/// Whether the environment names an assembler, rather than leaving it to be found.
pub fn names_ptxas() -> bool {
    variable(PTXAS_VARIABLE).is_some()
}

/// Whether the driver keeps what it compiles in files: unless `CUDA_CACHE_DISABLE` forbids it, it does so in
/// `CUDA_CACHE_PATH`, without that in the user's folder, which it makes when it compiles something first. From
/// "CUDA environment variables" in the CUDA programming guide.
pub fn driver_keeps_code() -> bool {
    let usual = || match cfg!(windows) {
        true => Some(PathBuf::from(variable("APPDATA")?).join("NVIDIA").join("ComputeCache")),
        false => Some(PathBuf::from(variable("HOME")?).join(".nv").join("ComputeCache")),
    };
    let folder = variable("CUDA_CACHE_PATH").map(PathBuf::from).or_else(usual);
    keeps_code(variable("CUDA_CACHE_DISABLE"), folder.as_deref())
}

fn keeps_code(disabled: Option<OsString>, folder: Option<&Path>) -> bool {
    disabled.is_none_or(|value| value != "1") && folder.is_some_and(Path::is_dir)
}

/// A variable that is set to something.
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Reads a number of bytes, with `K`, `M` or `G` for powers of 1024. Case and outer spaces do not matter.
///
/// ```
/// use kernel_runtime::settings::parse_size;
///
/// assert_eq!(parse_size("500M"), Ok(500 << 20));
/// assert!(parse_size("much").is_err());
/// ```
pub fn parse_size(value: &str) -> Result<u64> {
    let text = value.trim().to_ascii_uppercase();
    let units = [('K', 10), ('M', 20), ('G', 30)];
    let (number, shift) = units
        .into_iter()
        .find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)))
        .unwrap_or((text.as_str(), 0));
    let number = number.parse::<u64>().ok().filter(|_| number.starts_with(|c: char| c.is_ascii_digit()));
    number.and_then(|number| number.checked_mul(1 << shift)).ok_or_else(|| Error::InvalidSetting {
        name: CACHE_SIZE_VARIABLE.into(),
        value: value.into(),
        expected: "a number of bytes, such as `500M` or `2G`; `TILEWRIGHT_CACHE=off` turns the cache off".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_names_are_read() {
        for (text, expected) in [
            ("cpu", DeviceChoice::Cpu),
            (" CPU ", DeviceChoice::Cpu),
            ("cuda", DeviceChoice::Cuda(0)),
            ("cuda:0", DeviceChoice::Cuda(0)),
            ("Cuda:12", DeviceChoice::Cuda(12)),
        ] {
            assert_eq!(parse_device(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn other_device_names_are_errors_that_name_the_variable() {
        for text in ["gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:+1", "cuda:1:2", "cpu:0", "99999999999999999999"] {
            let error = parse_device(text).expect_err(text).to_string();
            assert!(error.contains(DEVICE_VARIABLE) && error.contains(text), "{error}");
        }
    }

    #[test]
    fn switches_are_on_or_off() {
        assert_eq!((parse_switch("N", "1"), parse_switch("N", " 0 ")), (Ok(true), Ok(false)));
        for text in ["", "yes", "2", "10", "true"] {
            let error = parse_switch("NAME", text).expect_err(text).to_string();
            assert!(error.contains("NAME") && error.contains("`0` or `1`"), "{error}");
        }
    }

    #[test]
    fn sizes_have_units() {
        for (text, expected) in [("0", 0), (" 17 ", 17), ("3k", 3 << 10), ("500M", 500 << 20), ("2g", 2 << 30)] {
            assert_eq!(parse_size(text), Ok(expected), "{text}");
        }
        for text in ["", "G", "-1", "+1", "1.5G", "1 G", "99999999999G", "2T", "off"] {
            let error = parse_size(text).expect_err(text).to_string();
            assert!(error.contains(CACHE_SIZE_VARIABLE) && error.contains(text), "{error}");
        }
    }

    #[test]
    fn assemblers_are_named_or_in_folders() {
        let folders = || ["/a", "/b"].map(PathBuf::from).into_iter();
        assert_eq!(ptxas_places(Some("/c/other".into()), folders()), [PathBuf::from("/c/other")]);
        assert_eq!(ptxas_places(Some("Off".into()), folders()), Vec::<PathBuf>::new());
        let found = ptxas_places(None, folders());
        assert!(found.len() == 2 && found[1].starts_with("/b"), "{found:?}");
    }

    #[test]
    fn disassemblers_are_beside_the_assembler_or_in_folders() {
        let places =
            |named: Option<&str>| nvdisasm_places(named.map(OsString::from), [PathBuf::from("/a")].into_iter());
        let file = |folder: &str| Path::new(folder).join(program("nvdisasm"));
        assert_eq!(places(Some("/c/bin/ptxas")), [file("/c/bin"), file("/a")]);
        assert_eq!((places(Some("off")), places(None)), (vec![file("/a")], vec![file("/a")]));
    }

    #[test]
    fn drivers_keep_code_in_folders_that_are_there() {
        let (here, nowhere) = (std::env::temp_dir(), PathBuf::from("/nowhere/ComputeCache"));
        assert!(keeps_code(None, Some(&here)) && keeps_code(Some("0".into()), Some(&here)));
        assert!(
            !keeps_code(Some("1".into()), Some(&here)) && !keeps_code(None, Some(&nowhere)) && !keeps_code(None, None)
        );
    }

    #[test]
    fn limits_of_time_are_seconds() {
        for (text, expected) in [("10", 10_000), (" 0.5 ", 500), ("1e-3", 1), ("2.25", 2250)] {
            assert_eq!(parse_time_limit(text), Ok(Duration::from_millis(expected)), "{text}");
        }
        for text in ["", "0", "-1", "1s", "inf", "NaN", "1e300", "0.0000000001", "ten"] {
            let error = parse_time_limit(text).expect_err(text).to_string();
            assert!(error.contains(TIME_LIMIT_VARIABLE) && error.contains(text), "{error}");
        }
    }
}
