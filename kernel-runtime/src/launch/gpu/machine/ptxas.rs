//! NVIDIA's assembler as a program: on all cores at once, where the driver compiles one kernel after the other, and without
//! a GPU.

use crate::error::{Error, Result};
use crate::settings;
use kernel_archive::{Machine, MachineHead};
use kernel_core::backend::nvidia::Ptx;
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::super::super::target::Target;
use super::super::module::has_lines;
use super::{gpu_name, least_spilled};

/// NVIDIA's assembler, which makes machine code of PTX: the program `ptxas` of the CUDA toolkit, or of the Python package
/// `nvidia-cuda-nvcc`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ptxas {
    path: PathBuf,
    release: (u32, u32),
    version: Box<str>,
}

impl Ptxas {
    /// The one that `TILEWRIGHT_PTXAS` names, else the first of those on the path, in `CUDA_HOME`, in `CUDA_PATH` and in
    /// `/usr/local/cuda`.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if there is none that runs.
    pub fn find() -> Result<Ptxas> {
        let places = settings::ptxas();
        let found = places.iter().filter(|path| path.is_file()).find_map(|path| Ptxas::at(path).ok());
        found.ok_or_else(|| Error::Unsupported {
            what: "making machine code".into(),
            reason: none_found(&places, settings::names_ptxas()).into(),
        })
    }

    /// The one at that path.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if it does not run, or is something else.
    pub fn at(path: impl AsRef<Path>) -> Result<Ptxas> {
        let path = path.as_ref();
        let refuse = |reason: String| Error::Unsupported {
            what: format!("making machine code with {}", path.display()).into(),
            reason: reason.into(),
        };
        let output = Command::new(path).arg("--version").stdin(Stdio::null()).output();
        let output = output.map_err(|error| refuse(error.to_string()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let (release, version) =
            parse_version(&text).ok_or_else(|| refuse("it does not say its release, as ptxas does".to_string()))?;
        Ok(Ptxas { path: path.to_path_buf(), release, version: version.into() })
    }

    /// The release of CUDA that it belongs to: `(13, 0)`. Drivers of this and of later releases load what it makes.
    pub fn release(&self) -> (u32, u32) {
        self.release
    }

    /// One of that release, which is nowhere.
    #[cfg(all(test, jit))]
    pub(super) fn of_release(release: (u32, u32)) -> Ptxas {
        Ptxas { path: PathBuf::from("/nowhere/ptxas"), release, version: "of a test".into() }
    }

    /// Machine code of a variant, for GPUs of one compute capability. Of the alternatives, what spills least is kept, as
    /// when the driver compiles.
    #[doc(hidden)] // For what looks into archives.
    pub fn assemble(&self, code: &Ptx, target: Target, capability: u32) -> Result<Machine> {
        let gpu = gpu_name(target, capability);
        let make = |ptx: &str, min_programs| {
            let (image, log) = self.assemble_text(ptx, &gpu)?;
            let local_bytes = stack_bytes(&log);
            let maker = format!("ptxas {}", self.version);
            Ok(Machine { head: MachineHead { capability, maker, min_programs, local_bytes, log }, image })
        };
        least_spilled(code, make, |machine| machine.head.local_bytes)
    }

    /// Machine code of PTX, and what was said.
    pub(crate) fn assemble_text(&self, ptx: &str, gpu: &str) -> Result<(Vec<u8>, String)> {
        let refuse = |reason: String| Error::Unsupported {
            what: format!("making machine code for {gpu} with {}", self.path.display()).into(),
            reason: reason.into(),
        };
        let folder = Scratch::new().map_err(|error| refuse(format!("no folder for temporary files: {error}")))?;
        let (source, code) = (folder.0.join("kernel.ptx"), folder.0.join("kernel.cubin"));
        fs::write(&source, ptx).map_err(|error| refuse(format!("{}: {error}", source.display())))?;
        let output = Command::new(&self.path)
            .args(["--verbose", "--gpu-name", gpu])
            .args(has_lines(ptx).then_some("--generate-line-info"))
            .arg("--output-file")
            .args([&code, &source])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| refuse(error.to_string()))?;
        let log =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).trim().to_string()).join("\n");
        let log = log.trim().to_string();
        if !output.status.success() {
            return Err(refuse(log));
        }
        let image = fs::read(&code).map_err(|error| refuse(format!("{}: {error}", code.display())))?;
        Ok((image, log))
    }
}

/// Why there is no assembler at these places, which the environment names or which are where one usually is.
fn none_found(places: &[PathBuf], is_named: bool) -> String {
    let variable = settings::PTXAS_VARIABLE;
    match places {
        [] => format!("{variable} is `off`"),
        [place, ..] if is_named => format!("{}, which {variable} names, is no ptxas that runs", place.display()),
        _ => format!(
            "there is no ptxas in {} places; it comes with the CUDA toolkit, and as the Python package \
             `nvidia-cuda-nvcc`; {variable} names one elsewhere",
            places.len()
        ),
    }
}

/// A folder of a process's own that is gone afterwards.
pub(super) struct Scratch(pub(super) PathBuf);

impl Scratch {
    pub(super) fn new() -> std::io::Result<Scratch> {
        let random = RandomState::new().build_hasher().finish();
        let path = std::env::temp_dir().join(format!("tilewright-ptxas-{}-{random:016x}", std::process::id()));
        let builder = fs::DirBuilder::new();
        #[cfg(unix)]
        let builder = {
            let mut private = builder;
            std::os::unix::fs::DirBuilderExt::mode(&mut private, 0o700);
            private
        };
        // An error if it is there: it may be somebody else's.
        builder.create(&path)?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The release and the version in `Cuda compilation tools, release 13.0, V13.0.88`.
fn parse_version(text: &str) -> Option<((u32, u32), &str)> {
    let rest = text.contains("ptxas").then(|| text.split("release ").nth(1))??;
    let (release, rest) = rest.split_once(',')?;
    let (major, minor) = release.split_once('.')?;
    let version = rest.trim_start().strip_prefix('V')?.split_whitespace().next()?;
    Some(((major.parse().ok()?, minor.parse().ok()?), version))
}

/// The bytes of local memory of a thread that ptxas speaks of: `    8 bytes stack frame, ..`.
fn stack_bytes(log: &str) -> u32 {
    let before = log.split(" bytes stack frame").next().filter(|before| before.len() < log.len());
    before.and_then(|before| before.split_whitespace().last()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        let text = "ptxas: NVIDIA (R) Ptx optimizing assembler\nCopyright\nBuilt on Wed\n\
                    Cuda compilation tools, release 12.8, V12.8.93\nBuild cuda_12.8.r12.8/compiler.35583870_0\n";
        assert_eq!(parse_version(text), Some(((12, 8), "12.8.93")));
        for other in ["", "ptxas", "nvcc: release 12.8, V12.8.93", "ptxas release 12, V12.8", "ptxas release 12.8"] {
            assert_eq!(parse_version(other), None, "{other}");
        }
    }

    #[test]
    fn spills_are_read() {
        let log =
            "ptxas info    : Function properties for add\n    40 bytes stack frame, 36 bytes spill stores, 36 bytes";
        assert_eq!((stack_bytes(log), stack_bytes("ptxas info"), stack_bytes("")), (40, 0, 0));
    }

    #[test]
    fn what_is_missing_is_said() {
        let places = ["/a/ptxas", "/b/ptxas"].map(PathBuf::from);
        assert_eq!(none_found(&[], true), "TILEWRIGHT_PTXAS is `off`");
        let named = none_found(&places[..1], true);
        assert!(named.starts_with("/a/ptxas, which TILEWRIGHT_PTXAS names"), "{named}");
        let found = none_found(&places, false);
        assert!(found.contains("in 2 places") && found.contains("nvidia-cuda-nvcc"), "{found}");
    }

    #[test]
    fn what_is_no_assembler_is_refused() {
        let error = Ptxas::at("/nowhere/ptxas").expect_err("refused").to_string();
        assert!(error.contains("/nowhere/ptxas"), "{error}");
        let own = std::env::current_exe().expect("a test has a path");
        let error = Ptxas::at(own).expect_err("refused").to_string();
        assert!(error.contains("does not say its release"), "{error}");
    }
}
