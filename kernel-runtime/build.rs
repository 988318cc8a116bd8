//! Decides whether kernels can be compiled for GPUs: `cfg(jit)`.
//!
//! The feature `jit` asks for it, and is on by default. It has an effect where the LLVM of the Rust toolchain can be loaded,
//! which `kernel-llvm` does on x86-64 and aarch64 Linux, and with the feature `link-llvm` everywhere. `kernel-codegen` and
//! `kernel-llvm` say the same of themselves: elsewhere they are empty.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(jit)");
    let has = |feature: &str| std::env::var_os(format!("CARGO_FEATURE_{feature}")).is_some();
    let target = |what: &str| std::env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    let is_loaded = target("OS") == "linux" && matches!(target("ARCH").as_str(), "x86_64" | "aarch64");
    if has("LINK_LLVM") || has("JIT") && is_loaded {
        println!("cargo::rustc-cfg=jit");
    }
}
