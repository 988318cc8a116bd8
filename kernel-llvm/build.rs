//! Records the toolchain whose LLVM is loaded at run time; with `link-llvm`, links an LLVM instead.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The major version of LLVM that the bindings are written against; linking accepts no other.
const MAJOR: &str = "22";
/// The folder of an LLVM installation, as `llvm-sys` itself calls it.
const PREFIX_VARIABLE: &str = "LLVM_SYS_221_PREFIX";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC");
    println!("cargo::rerun-if-env-changed={PREFIX_VARIABLE}");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let sysroot = output(Path::new(&rustc), &["--print", "sysroot"]).unwrap_or_default();
    println!("cargo::rustc-env=TILEWRIGHT_BUILD_SYSROOT={sysroot}");
    if std::env::var_os("CARGO_FEATURE_LINK_LLVM").is_some() {
        link(Path::new(&sysroot));
    }
}

/// Links the LLVM of `LLVM_SYS_221_PREFIX`, else of an `llvm-config` on the path, else the
/// toolchain's own; stops the build with advice if there is none.
fn link(sysroot: &Path) {
    let configs: Vec<PathBuf> = match std::env::var_os(PREFIX_VARIABLE) {
        Some(prefix) => vec![Path::new(&prefix).join("bin/llvm-config")],
        None => vec![format!("llvm-config-{MAJOR}").into(), "llvm-config".into()],
    };
    let of_config = configs.iter().find_map(|config| directives_of_config(config));
    let of_sysroot = || match std::env::var_os(PREFIX_VARIABLE) {
        // Whoever names an LLVM wants that one or an error.
        Some(_) => None,
        None => directives_of_sysroot(sysroot),
    };
    match of_config.or_else(of_sysroot) {
        Some(directives) => {
            for directive in directives {
                println!("cargo::{directive}");
            }
        }
        None => println!(
            "cargo::error=the feature `link-llvm` needs LLVM {MAJOR}: set {PREFIX_VARIABLE} to the folder \
             of an installation, or put llvm-config-{MAJOR} on the path, or build with a rustup toolchain \
             that ships LLVM {MAJOR}; or leave the feature off to load LLVM at run time"
        ),
    }
}

/// What to tell cargo to link the LLVM that an `llvm-config` describes.
fn directives_of_config(config: &Path) -> Option<Vec<String>> {
    let version = output(config, &["--version"])?;
    if version.split('.').next() != Some(MAJOR) {
        return None;
    }
    let mut directives = vec![format!("rustc-link-search=native={}", output(config, &["--libdir"])?)];
    let shared = output(config, &["--link-shared", "--libs"]);
    let (kind, flags) = match shared {
        Some(libs) => ("dylib", libs),
        None => {
            let system = output(config, &["--link-static", "--system-libs"])?;
            let system = system.split_whitespace().filter_map(|flag| flag.strip_prefix("-l"));
            directives.extend(system.map(|name| format!("rustc-link-lib=dylib={name}")));
            directives.push("rustc-link-lib=dylib=stdc++".to_string());
            ("static", output(config, &["--link-static", "--libs"])?)
        }
    };
    let libraries = flags.split_whitespace().filter_map(|flag| flag.strip_prefix("-l"));
    directives.extend(libraries.map(|name| format!("rustc-link-lib={kind}={name}")));
    Some(directives)
}

/// What to tell cargo to link the toolchain's own LLVM. The program then finds it when it is run by
/// cargo, or with the toolchain's `lib` on the dynamic linker's path.
fn directives_of_sysroot(sysroot: &Path) -> Option<Vec<String>> {
    let folder = sysroot.join("lib");
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(&format!("libLLVM.so.{MAJOR}.")))
        .collect();
    names.sort();
    let name = names.first()?;
    Some(vec![
        format!("rustc-link-search=native={}", folder.display()),
        format!("rustc-link-lib=dylib:+verbatim={name}"),
    ])
}

/// The trimmed output of a command, `None` if it cannot be run or fails.
fn output(program: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_string())
}
