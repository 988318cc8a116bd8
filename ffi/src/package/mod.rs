//! Python packages and wheels around a library of operators.
//!
//! ```text
//! libmy_ops.so ── tilewright_describe() ──> Library ──> my_ops/{__init__, torch, jax, tvm_ffi}.py, .pyi, libmy_ops.so
//!                                                              └──> my_ops-0.1.0-py3-none-manylinux_2_34_x86_64.whl
//! ```
//!
//! A package has the library and Python code that was written for its operators: registration, shapes of results for
//! tracing, gradients. It needs no compiler, and only those of the frameworks that are used.

mod jax;
mod python;
mod stubs;
mod torch;
mod tvm_ffi;
mod wheel;

use crate::error::Result;
use crate::op::Library;
use std::ffi::{CStr, c_char};
use std::path::{Path, PathBuf};

/// A package, in memory.
pub struct Package {
    library: Library,
    /// The name of the library's file inside.
    file: String,
    /// The library.
    bytes: Vec<u8>,
}

impl Package {
    /// Loads a library that `export!` has made, and asks it what it has.
    ///
    /// # Errors
    ///
    /// If it cannot be read or loaded, or exports no operators.
    pub fn of_library(path: &Path) -> Result<Self> {
        let broken = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let bytes = std::fs::read(path).map_err(|error| broken(&error))?;
        let full = path.canonicalize().map_err(|error| broken(&error))?;
        // SAFETY: the library is one of operators, which do nothing when they are loaded.
        let loaded = unsafe { libloading::Library::new(&full) }.map_err(|error| broken(&error))?;
        // SAFETY: `export!` declares the function like this, and the text stays until this thread calls it again.
        let text = unsafe {
            let describe = loaded
                .get::<extern "C" fn() -> *const c_char>("tilewright_describe")
                .map_err(|_| broken(&"it exports no operators: `tilewright_ffi::export!` does"))?;
            CStr::from_ptr(describe()).to_bytes().to_vec()
        };
        let library: Library = serde_json::from_slice(&text)
            .map_err(|error| broken(&format!("its description is of another version of tilewright-ffi: {error}")))?;
        // What it may have started goes on; unloading it would pull its code away.
        std::mem::forget(loaded);
        let file = format!("lib{}.so", library.name);
        Ok(Package { library, file, bytes })
    }

    /// The operators.
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// The files, each with its path.
    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let name = &self.library.name;
        let fill = |template: &str| {
            let lines = self.library.ops.iter().map(|op| format!("- `{}`: {}", op.name, python::summary(op)));
            template
                .replace("@NAME@", name)
                .replace("@VERSION@", &self.library.version)
                .replace("@FILE@", &self.file)
                .replace("@OPS@", &python::doc_text(&lines.collect::<Vec<_>>().join("\n")))
        };
        let texts = [
            ("__init__.py", fill(include_str!("templates/init.py"))),
            ("__init__.pyi", fill(include_str!("templates/init.pyi"))),
            ("_library.py", fill(include_str!("templates/library.py"))),
            ("torch.py", fill(include_str!("templates/torch.py")) + &torch::functions(&self.library)),
            ("torch.pyi", stubs::torch(&self.library)),
            ("jax.py", fill(include_str!("templates/jax.py")) + &jax::functions(&self.library)),
            ("jax.pyi", stubs::jax(&self.library)),
            ("tvm_ffi.py", fill(include_str!("templates/tvm_ffi.py")) + &tvm_ffi::functions(&self.library)),
            ("tvm_ffi.pyi", stubs::tvm_ffi(&self.library)),
            ("py.typed", String::new()),
        ];
        let mut files: Vec<(String, Vec<u8>)> =
            texts.into_iter().map(|(file, text)| (format!("{name}/{file}"), text.into_bytes())).collect();
        files.push((format!("{name}/{}", self.file), self.bytes.clone()));
        files
    }

    /// Writes the package as a folder into `into`, and gives its path.
    ///
    /// # Errors
    ///
    /// If a file cannot be written.
    pub fn write(&self, into: &Path) -> Result<PathBuf> {
        let folder = into.join(&*self.library.name);
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for (path, bytes) in self.files() {
            let path = into.join(path);
            std::fs::write(&path, bytes).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(folder)
    }

    /// Writes the package as a wheel into the folder `into`, and gives its path.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn write_wheel(&self, into: &Path) -> Result<PathBuf> {
        std::fs::create_dir_all(into).map_err(|error| format!("{}: {error}", into.display()))?;
        let (name, bytes) = wheel::build(&self.library, self.files(), &self.bytes)?;
        let path = into.join(name);
        std::fs::write(&path, bytes).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    }
}
