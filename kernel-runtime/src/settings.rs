//! The one place where environment variables are read.
//!
//! | variable | values | meaning |
//! |---|---|---|
//! | `TILEWRIGHT_DEVICE` | `cpu`, `cuda`, `cuda:1` | what `Device::best()` returns |
//! | `TILEWRIGHT_TIME_LIMIT` | seconds: `10`, `0.5` | how long a launch on the CPU may take, where the call does not say; read once |
//!
//! Each variable has a pure function that parses its value, so that tests need not change the
//! environment of the process.

use crate::error::{Error, Result};
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
    match std::env::var_os(DEVICE_VARIABLE) {
        None => Ok(None),
        Some(value) if value.is_empty() => Ok(None),
        Some(value) => parse_device(&value.to_string_lossy()).map(Some),
    }
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
    LIMIT
        .get_or_init(|| match std::env::var_os(TIME_LIMIT_VARIABLE) {
            None => Ok(None),
            Some(value) if value.is_empty() => Ok(None),
            Some(value) => parse_time_limit(&value.to_string_lossy()).map(Some),
        })
        .clone()
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
