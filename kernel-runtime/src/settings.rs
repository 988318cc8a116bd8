//! The one place where environment variables are read.
//!
//! | variable | values | meaning |
//! |---|---|---|
//! | `TILEWRIGHT_DEVICE` | `cpu`, `cuda`, `cuda:1` | what `Device::best()` returns |
//!
//! Each variable has a pure function that parses its value, so that tests need not change the
//! environment of the process.

use crate::error::{Error, Result};

/// The variable that `Device::best()` obeys.
pub const DEVICE_VARIABLE: &str = "TILEWRIGHT_DEVICE";

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
}
