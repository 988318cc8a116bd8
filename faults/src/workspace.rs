//! The copy of the workspace that faults are planted in, and its test binaries.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::list::{Fault, TestSpec};
use crate::{Error, plant};

/// Folders that are no part of the workspace.
const LEFT_OUT: [&str; 2] = ["target", "results"];

/// The copy, under `target/faults` of the workspace.
pub struct Workspace {
    root: PathBuf,
    copy: PathBuf,
    target: PathBuf,
}

/// A test binary.
pub struct Binary {
    /// The executable.
    pub executable: PathBuf,
    /// The package's folder, in which cargo would run it.
    pub folder: PathBuf,
}

/// The test binaries, by package and name.
pub type Binaries = BTreeMap<(String, String), Binary>;

impl Workspace {
    /// Of the workspace at this root.
    pub fn new(root: &Path) -> Workspace {
        let work = root.join("target/faults");
        Workspace { root: root.to_path_buf(), copy: work.join("workspace"), target: work.join("build") }
    }

    /// Brings the copy up to date, with all faults in it. Files that stay the same are not written, so that cargo builds
    /// what changed.
    ///
    /// # Errors
    ///
    /// If a fault does not fit its file, or a file cannot be read or written.
    pub fn plant(&self, faults: &[Fault]) -> Result<(), Error> {
        let mut by_file: BTreeMap<&str, Vec<&Fault>> = BTreeMap::new();
        for fault in faults {
            by_file.entry(&fault.file).or_default().push(fault);
        }
        let mut wanted = BTreeSet::new();
        self.copy_folder(Path::new(""), &mut by_file, &mut wanted)?;
        if let Some((&file, faults)) = by_file.first_key_value() {
            let (id, text) = (faults[0].id.clone(), faults[0].from.clone());
            return Err(Error::Stale { id, file: file.to_string(), count: "nowhere", text });
        }
        let module = PathBuf::from("kernel-core/src/mutation.rs");
        self.write(&module, plant::MODULE.as_bytes())?;
        wanted.insert(module);
        self.remove_others(Path::new(""), &wanted)?;
        let (tools, link) = (self.root.join(".ptxas"), self.copy.join(".ptxas"));
        if tools.exists() && !link.exists() {
            std::os::unix::fs::symlink(&tools, &link).map_err(|error| Error::file(&link, error))?;
        }
        Ok(())
    }

    fn copy_folder(
        &self,
        folder: &Path,
        faults: &mut BTreeMap<&str, Vec<&Fault>>,
        wanted: &mut BTreeSet<PathBuf>,
    ) -> Result<(), Error> {
        for entry in entries(&self.root.join(folder))? {
            let path = folder.join(entry.file_name());
            let (name, full) = (entry.file_name(), self.root.join(&path));
            let hidden = name.as_encoded_bytes().starts_with(b".");
            if hidden || LEFT_OUT.iter().any(|left_out| name == *left_out) {
                continue;
            }
            if full.is_dir() {
                self.copy_folder(&path, faults, wanted)?;
                continue;
            }
            let mut bytes = std::fs::read(&full).map_err(|error| Error::file(&full, error))?;
            let key = path.to_string_lossy().into_owned();
            if let Some(own) = faults.remove(key.as_str()) {
                bytes = plant::plant(&String::from_utf8_lossy(&bytes), &own)?.into_bytes();
            }
            if key == "kernel-core/src/lib.rs" {
                bytes.extend_from_slice(b"\n#[allow(missing_docs)]\n#[doc(hidden)]\npub mod mutation;\n");
            }
            self.write(&path, &bytes)?;
            wanted.insert(path);
        }
        Ok(())
    }

    /// Writes a file of the copy, if it is another.
    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), Error> {
        let full = self.copy.join(path);
        if std::fs::read(&full).is_ok_and(|old| old == bytes) {
            return Ok(());
        }
        let folder = full.parent().unwrap_or(&self.copy);
        std::fs::create_dir_all(folder).map_err(|error| Error::file(folder, error))?;
        std::fs::write(&full, bytes).map_err(|error| Error::file(&full, error))?;
        let permissions = std::fs::metadata(self.root.join(path)).map(|data| data.permissions());
        permissions.and_then(|own| std::fs::set_permissions(&full, own)).or_else(|error| match error.kind() {
            // What only the copy has.
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(Error::file(&full, error)),
        })
    }

    /// Removes files of the copy that the workspace no longer has.
    fn remove_others(&self, folder: &Path, wanted: &BTreeSet<PathBuf>) -> Result<(), Error> {
        for entry in entries(&self.copy.join(folder))? {
            let path = folder.join(entry.file_name());
            let full = self.copy.join(&path);
            if entry.file_name().as_encoded_bytes().starts_with(b".")
                || LEFT_OUT.iter().any(|name| entry.file_name() == *name)
            {
                continue;
            }
            if full.is_dir() {
                self.remove_others(&path, wanted)?;
            } else if !wanted.contains(&path) {
                std::fs::remove_file(&full).map_err(|error| Error::file(&full, error))?;
            }
        }
        Ok(())
    }

    /// Builds the binaries of these tests, with some optimisation: verdicts then come sooner than the build takes longer.
    ///
    /// # Errors
    ///
    /// If they do not build.
    pub fn build(&self, tests: &BTreeSet<&TestSpec>) -> Result<Binaries, Error> {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(["test", "--no-run", "--message-format=json-render-diagnostics"]).current_dir(&self.copy);
        for package in tests.iter().map(|test| test.package.as_str()).collect::<BTreeSet<_>>() {
            command.args(["--package", package]);
        }
        for target in tests.iter().map(|test| test.target.as_str()).collect::<BTreeSet<_>>() {
            match target {
                "lib" => command.arg("--lib"),
                name => command.args(["--test", name]),
            };
        }
        // Assertions of debug builds stay: they are part of what sees faults.
        let settings = [("DEV_OPT_LEVEL", "1"), ("DEV_DEBUG", "0"), ("DEV_INCREMENTAL", "true")];
        for (name, value) in settings {
            command.env(format!("CARGO_PROFILE_{name}"), value);
        }
        command.env("CARGO_TARGET_DIR", &self.target).env("RUSTFLAGS", "-Awarnings").env_remove("CARGO_INCREMENTAL");
        let failed = || Error::Build { folder: self.copy.display().to_string() };
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(|error| Error::file(&self.copy, error))?;
        let mut binaries = Binaries::new();
        for line in child.stdout.take().map(std::io::BufReader::new).into_iter().flat_map(BufRead::lines) {
            let message = line.ok().and_then(|line| serde_json::from_str::<Message>(&line).ok());
            if let Some((name, binary)) = message.and_then(Message::binary) {
                binaries.insert(name, binary);
            }
        }
        let status = child.wait().map_err(|error| Error::file(&self.copy, error))?;
        if status.success() { Ok(binaries) } else { Err(failed()) }
    }
}

/// What a folder holds, in the order of the names.
fn entries(folder: &Path) -> Result<Vec<std::fs::DirEntry>, Error> {
    let entries = std::fs::read_dir(folder).map_err(|error| Error::file(folder, error))?;
    let mut entries: Vec<_> = entries.filter_map(Result::ok).collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    Ok(entries)
}

/// What cargo says of a binary that it built.
#[derive(Deserialize)]
struct Message {
    manifest_path: Option<PathBuf>,
    executable: Option<PathBuf>,
    target: Option<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

impl Message {
    fn binary(self) -> Option<((String, String), Binary)> {
        let (target, folder) = (self.target?, self.manifest_path?.parent()?.to_path_buf());
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).ok()?;
        let package: toml::Table = toml::from_str(&manifest).ok()?;
        let package = package.get("package")?.get("name")?.as_str()?.to_string();
        let name = if target.kind.iter().any(|kind| kind == "test") { target.name } else { "lib".to_string() };
        Some(((package, name), Binary { executable: self.executable?, folder }))
    }
}
