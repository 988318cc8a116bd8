//! Compiled kernels in files: shipped with a program that then needs neither LLVM nor the feature `jit`, only the driver.
//!
//! An archive holds variants of kernels, each with its PTX, machine code where an [assembler](Ptxas) was there when it was
//! built, and all that a launch must know of it. It is filled in one of
//! two ways:
//!
//! - by a run: `TILEWRIGHT_RECORD=kernels.twa` adds every variant that a launch on a GPU uses, in whichever process;
//! - by a list, in a `build.rs` or a program of its own, with an [`ArchiveBuilder`]. No GPU is needed.
//!
//! A program embeds it with `tilewright::embed_archive!("kernels.twa")` before its first launch, or loads it from a file
//! with [`load`].
//!
//! Variants are told apart by constexprs, dtypes, options, target, and what is known of arguments (alignment, divisibility).
//! A launch runs the variant for just its arguments, if there is one; else one compiled for the occasion, where the program
//! can compile; else one of the archive that takes less for granted: so an archive serves all arguments if it has a variant
//! that [assumes](crate::launch::CompileRequest::assume) nothing. Where there is none either, the launch is
//! [`Error::MissingCode`], which names the variant and has the line that adds it.
//!
//! [`Call::shipped`](crate::launch::Call::shipped) says what the program's archives have for a launch, so that a test without
//! a GPU sees what is missing.
//!
//! An archive is for programs with the version of Tilewright that made it; others refuse it. So it is made anew where
//! Tilewright is updated, as in a `build.rs`, or as a step of a release.
//!
//! # The cache
//!
//! What is compiled at launches is kept on disk for the next run, in archives of one variant each: in the user's folder for
//! caches (`~/.cache/tilewright`), about 1 GiB of it; what was used longest ago goes first. `TILEWRIGHT_CACHE` names another
//! folder, or turns it `off`, and `TILEWRIGHT_CACHE_SIZE` sets the size. Any number of processes may share it, and it may be
//! removed at any time. Keys cover the kernel (but not where in its file it stands), all that tells variants apart, the
//! version of Tilewright, and LLVM. A file that cannot be read, or is damaged, counts as missing.
//!
//! Beside it lies machine code, by PTX, driver and GPU, of kernels of which the driver's linker makes the same code as its
//! compiler: those without shared memory. Others are compiled by the driver in each process, which keeps what it makes in a
//! cache of its own.

use crate::error::{Error, Result};
pub use crate::launch::Ptxas;
use crate::launch::{Assumes, CompileRequest, Target, entries_of, shipped};
use kernel_archive::{Entry, write};
use std::path::Path;

/// Lets launches find the variants of an archive, for the rest of the process; gives how many it has. `embed_archive!` calls
/// it.
///
/// # Errors
///
/// [`Error::Archive`] if the bytes are no archive, one whose index is damaged, or of another version of Tilewright. A variant
/// is looked at when it is launched first; one that is damaged counts as missing.
pub fn add(bytes: &'static [u8]) -> Result<usize> {
    shipped::add("the embedded archive", bytes)
}

/// As [`add`], of a file, which is read into memory and kept there. All of it is held against its checksums first.
///
/// # Errors
///
/// [`Error::Archive`] as for [`add`], and if the file cannot be read or anything in it is damaged.
pub fn load(path: impl AsRef<Path>) -> Result<usize> {
    let (name, bytes) = (name(&path), read(&path)?);
    // Opened before it is kept, so that what is no archive is not.
    kernel_archive::Reader::new(&bytes)
        .and_then(|archive| (0..archive.len()).try_for_each(|index| archive.entry(index).map(drop)))
        .map_err(|error| Error::Archive { archive: name.as_str().into(), reason: error.to_string().into() })?;
    shipped::add(&name, Box::leak(bytes.into_boxed_slice()))
}

/// What errors call an archive.
fn name(path: impl AsRef<Path>) -> String {
    format!("the archive {}", path.as_ref().display())
}

fn read(path: impl AsRef<Path>) -> Result<Vec<u8>> {
    let refuse =
        |error: std::io::Error| Error::Archive { archive: name(&path).into(), reason: error.to_string().into() };
    std::fs::read(&path).map_err(refuse)
}

/// Compiles kernels into an archive, without a GPU.
///
/// ```no_run
/// # use kernel_runtime::archive::ArchiveBuilder;
/// # use kernel_runtime::launch::{CompileRequest, Target};
/// # fn build(request: CompileRequest) -> kernel_runtime::Result<()> {
/// let mut archive = ArchiveBuilder::new();
/// // `request` is `AddConsts { BLOCK: 1024 }.request::<f32>()`
/// archive.add(request, &[Target::sm_80(), Target::sm_90a()])?;
/// archive.write("kernels.twa")
/// # }
/// ```
#[derive(Debug, Default)]
pub struct ArchiveBuilder {
    entries: Vec<Entry>,
    ptxas: Option<Ptxas>,
}

impl ArchiveBuilder {
    /// An empty archive.
    pub fn new() -> ArchiveBuilder {
        ArchiveBuilder::default()
    }

    /// Has the variants that are added from here on get machine code beside their PTX, for GPUs of just their targets'
    /// compute capabilities: launches there are not kept waiting for the driver's compiler, not even the first time. Other
    /// GPUs, and drivers older than the assembler, compile the PTX.
    ///
    /// Machine code is that of the driver's compiler if the assembler is of the CUDA release that the driver supports, and
    /// else that of another version of the same compiler.
    pub fn machine_code(&mut self, ptxas: Ptxas) -> &mut ArchiveBuilder {
        self.ptxas = Some(ptxas);
        self
    }

    /// Compiles a kernel for targets and adds it: the variant for launches whose arguments are as the request assumes; and
    /// where launches must meet conditions to run it (a length that suffices), the slower one for those that do not. Of a
    /// kernel that makes tensors (`tensor_desc`), both are added a second time, for tensors that the hardware's copies cannot
    /// use.
    ///
    /// # Errors
    ///
    /// Those of [`CompileRequest::compile`], and [`Error::Unsupported`] for what the assembler refuses.
    pub fn add<A: Assumes>(&mut self, request: CompileRequest<A>, targets: &[Target]) -> Result<&mut ArchiveBuilder> {
        for target in targets {
            let entries = request.entries(*target, self.ptxas.as_ref())?;
            self.entries.extend(entries);
        }
        Ok(self)
    }

    /// Adds the variants of an archive, such as one that was recorded; those without machine code get it, if that was asked
    /// for.
    ///
    /// # Errors
    ///
    /// [`Error::Archive`] as for [`load`], [`Error::Unsupported`] for what the assembler refuses.
    pub fn add_archive(&mut self, path: impl AsRef<Path>) -> Result<&mut ArchiveBuilder> {
        let name = name(&path);
        self.entries.extend(entries_of(&read(&path)?, &name, self.ptxas.as_ref())?);
        Ok(self)
    }

    /// The variants so far, as text: kernel, dtypes, constexprs, target and what is known of the arguments.
    pub fn variants(&self) -> impl Iterator<Item = String> {
        self.entries.iter().map(|entry| entry.head.identity.to_string())
    }

    /// The bytes of the archive. The same kernels give the same bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        write(&self.entries)
    }

    /// Writes the archive: whole, or not at all.
    ///
    /// # Errors
    ///
    /// [`Error::Archive`] if the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        kernel_archive::file::replace(path.as_ref(), &self.to_bytes()).map_err(|error| Error::Archive {
            archive: name(&path).into(),
            reason: format!("it cannot be written: {error}").into(),
        })
    }
}
