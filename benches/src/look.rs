//! Compiles configurations without running them, and hands their PTX on.
//!
//! A GPU is not needed for it, and inputs may be anything: what is compiled depends on dtypes, constexprs and what is
//! known of the arguments (alignment, divisibility), which the buffers have at full size.

use std::cell::RefCell;
use std::fmt;
use std::path::PathBuf;
use std::rc::Rc;

use tilewright::Target;

use crate::{Failure, How};

/// Whether a configuration is to be compiled, by its name.
type Wants = dyn Fn(&str) -> bool;
/// Takes the PTX of a kernel with its name.
type Keep = dyn Fn(&str, &str) -> Result<(), Failure>;

/// For which target configurations are compiled, which of them, and what becomes of the code.
#[derive(Clone)]
pub struct Look {
    target: Target,
    wants: Rc<Wants>,
    keep: Rc<Keep>,
}

impl Look {
    /// Compiles configurations whose names `wants` accepts, and gives `keep` each kernel: a name without spaces, which
    /// ends in the kernel's number within its configuration, and the PTX.
    pub fn new(
        target: Target,
        wants: impl Fn(&str) -> bool + 'static,
        keep: impl Fn(&str, &str) -> Result<(), Failure> + 'static,
    ) -> Look {
        Look { target, wants: Rc::new(wants), keep: Rc::new(keep) }
    }

    /// Writes the PTX of all configurations for Hopper to files in a folder, which is made.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub fn into_folder(folder: PathBuf) -> Result<Look, Failure> {
        std::fs::create_dir_all(&folder)?;
        let write = move |name: &str, ptx: &str| Ok(std::fs::write(folder.join(format!("{name}.ptx")), ptx)?);
        Ok(Look::new(Target::sm_90a(), |_| true, write))
    }

    /// Whether the configuration of that name is to be compiled.
    pub fn wants(&self, name: &str) -> bool {
        (self.wants)(&file_name(name))
    }

    /// Compiles the kernels that `launch` submits, if the configuration of that name is wanted. What was compiled before
    /// something failed is handed on all the same.
    ///
    /// # Errors
    /// That of `launch`, or of what takes the code.
    pub fn at(&self, name: &str, launch: impl FnOnce(&How<'_>) -> Result<(), Failure>) -> Result<(), Failure> {
        if !self.wants(name) {
            return Ok(());
        }
        let name = file_name(name);
        let code = RefCell::new(Vec::new());
        let launched = launch(&How::Compile(self.target, &code));
        for (number, ptx) in code.into_inner().into_iter().enumerate() {
            (self.keep)(&format!("{name}_{number}"), &ptx)?;
        }
        launched
    }
}

/// A name without what file names should not have.
fn file_name(name: &str) -> String {
    name.replace([' ', '*'], "_")
}

/// Two are the same if one is a clone of the other.
impl PartialEq for Look {
    fn eq(&self, other: &Look) -> bool {
        self.target == other.target && Rc::ptr_eq(&self.wants, &other.wants) && Rc::ptr_eq(&self.keep, &other.keep)
    }
}

impl Eq for Look {}

impl fmt::Debug for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Look").field("target", &self.target).finish_non_exhaustive()
    }
}
