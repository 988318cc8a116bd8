//! Decides whether kernels can be compiled for GPUs: `cfg(jit)`; and gives the compiler a name, for the keys of what it has
//! compiled.
//!
//! The feature `jit` asks for it, and is on by default. It has an effect where the LLVM of the Rust toolchain can be loaded,
//! which `kernel-llvm` does on x86-64 and aarch64 Linux, and with the feature `link-llvm` everywhere. `kernel-codegen` and
//! `kernel-llvm` say the same of themselves: elsewhere they are empty.

use std::path::{Path, PathBuf};

/// The sources of what a launch reads of compiled code, and of what compiles it, beside this folder.
const RUNTIME: [&str; 3] = ["kernel-core/src", "kernel-archive/src", "kernel-runtime/src"];
const COMPILER: [&str; 3] = ["kernel-codegen/src", "kernel-llvm/src", "kernel-llvm/build.rs"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    name_compiler();
    println!("cargo::rustc-check-cfg=cfg(jit)");
    let has = |feature: &str| std::env::var_os(format!("CARGO_FEATURE_{feature}")).is_some();
    let target = |what: &str| std::env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    let is_loaded = target("OS") == "linux" && matches!(target("ARCH").as_str(), "x86_64" | "aarch64");
    if has("LINK_LLVM") || has("JIT") && is_loaded {
        println!("cargo::rustc-cfg=jit");
    }
}

/// Sets `TILEWRIGHT_RUNTIME` and `TILEWRIGHT_COMPILER`: the version, and in a checkout of the repository a hash of the
/// sources, so that who works on Tilewright itself never sees code of yesterday's compiler.
fn name_compiler() {
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let workspace = Path::new("..");
    let is_checkout = RUNTIME.iter().chain(&COMPILER).all(|part| workspace.join(part).exists());
    let hashed = |parts: &[&str]| -> String {
        if !is_checkout {
            return String::new();
        }
        let hash = parts.iter().fold(FNV_OFFSET, |hash, part| {
            println!("cargo::rerun-if-changed=../{part}");
            hash_files(&workspace.join(part), part, hash)
        });
        format!("-{hash:016x}")
    };
    let (runtime, compiler) = (hashed(&RUNTIME), hashed(&COMPILER));
    println!("cargo::rustc-env=TILEWRIGHT_RUNTIME={version}{runtime}");
    println!("cargo::rustc-env=TILEWRIGHT_COMPILER={version}{runtime}{compiler}");
}

/// FNV-1a, which is the same in every version of Rust.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

fn hash_bytes(bytes: &[u8], hash: u64) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME))
}

/// Hashes a file, or all files of a folder in the order of their names, with their names and lengths.
fn hash_files(path: &Path, name: &str, hash: u64) -> u64 {
    if let Ok(entries) = std::fs::read_dir(path) {
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        return paths.iter().fold(hash, |hash, path| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            hash_files(path, &name, hash)
        });
    }
    let bytes = std::fs::read(path).unwrap_or_default();
    let hash = hash_bytes(&(bytes.len() as u64).to_le_bytes(), hash_bytes(name.as_bytes(), hash));
    hash_bytes(&bytes, hash)
}
