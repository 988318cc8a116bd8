//! NVIDIA's disassembler as a program: machine code as text, with the lines of the source that it is from.

use crate::error::{Error, Result};
use crate::settings;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::ptxas::Scratch;

/// NVIDIA's disassembler: the program `nvdisasm` of the CUDA toolkit, or of the Python package `nvidia-cuda-nvdisasm`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Nvdisasm {
    path: PathBuf,
}

impl Nvdisasm {
    /// The one beside the assembler that `TILEWRIGHT_PTXAS` names, else the first of those on the path, in `CUDA_HOME`, in
    /// `CUDA_PATH` and in `/usr/local/cuda`.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if there is none that runs.
    pub fn find() -> Result<Nvdisasm> {
        let places = settings::nvdisasm();
        let found = places.iter().filter(|path| path.is_file()).find_map(|path| Nvdisasm::at(path).ok());
        found.ok_or_else(|| Error::Unsupported {
            what: "showing machine code".into(),
            reason: format!(
                "there is no nvdisasm in {} places; install the Python package `nvidia-cuda-nvdisasm` or the CUDA toolkit, \
                 and put its folder on the PATH",
                places.len()
            )
            .into(),
        })
    }

    /// The one at that path.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if it does not run, or is something else.
    pub fn at(path: impl AsRef<Path>) -> Result<Nvdisasm> {
        let path = path.as_ref();
        let output = Command::new(path).arg("--version").stdin(Stdio::null()).output();
        let output = output.map_err(|error| refuse(path, error.to_string()))?;
        match String::from_utf8_lossy(&output.stdout).contains("nvdisasm") {
            true => Ok(Nvdisasm { path: path.to_path_buf() }),
            false => Err(refuse(path, "it does not say its name, as nvdisasm does".to_string())),
        }
    }

    /// The instructions of machine code, with labels, and comments about the lines of the source where it says which.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for code that it refuses, as that of a later architecture.
    pub fn disassemble(&self, image: &[u8]) -> Result<String> {
        let refuse = |reason: String| refuse(&self.path, reason);
        let folder = Scratch::new().map_err(|error| refuse(format!("no folder for temporary files: {error}")))?;
        let code = folder.0.join("kernel.cubin");
        fs::write(&code, image).map_err(|error| refuse(format!("{}: {error}", code.display())))?;
        let output = Command::new(&self.path)
            .args(["--print-code", "--print-line-info-inline"])
            .arg(&code)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| refuse(error.to_string()))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(refuse(String::from_utf8_lossy(&output.stderr).trim().to_string())),
        }
    }
}

fn refuse(path: &Path, reason: String) -> Error {
    Error::Unsupported { what: format!("showing machine code by {}", path.display()).into(), reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_disassembler_is_refused() {
        let error = Nvdisasm::at("/nowhere/nvdisasm").expect_err("refused").to_string();
        assert!(error.contains("/nowhere/nvdisasm"), "{error}");
        let own = std::env::current_exe().expect("a test has a path");
        let error = Nvdisasm::at(own).expect_err("refused").to_string();
        assert!(error.contains("does not say its name"), "{error}");
    }
}
