//! NVIDIA's assembler, where it is installed: what the hardware would run.
//!
//! `scripts/install-ptxas` puts it into `.ptxas/` of the workspace; one in `PATH` will do too. It needs no GPU.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Once, OnceLock};

/// What ptxas made of a kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Assembled {
    /// Registers per thread.
    pub registers: u32,
    /// Bytes of registers that were stored to memory and loaded back.
    pub spills: u32,
    /// Instructions of the hardware: the size of the code section over 16 bytes, padding included.
    pub instructions: usize,
    /// What it said.
    pub log: String,
}

/// Where a program of NVIDIA's is, if it is installed.
fn search(name: &str) -> Option<PathBuf> {
    let site = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.ptxas/site/nvidia");
    let folders = std::fs::read_dir(site).into_iter().flatten().flatten();
    let installed = folders.map(|folder| folder.path().join("bin").join(name)).find(|path| path.exists());
    let runs = |path: &PathBuf| Command::new(path).arg("--version").output().is_ok_and(|o| o.status.success());
    installed.into_iter().chain([PathBuf::from(name)]).find(runs)
}

fn find() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOUND.get_or_init(|| search("ptxas")).as_deref()
}

fn find_nvdisasm() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let missing = || eprintln!("no nvdisasm: what needs it is skipped; `scripts/install-ptxas` fetches it");
    let search = || {
        search("nvdisasm").or_else(|| {
            missing();
            None
        })
    };
    FOUND.get_or_init(search).as_deref()
}

/// Whether ptxas and nvdisasm are installed.
pub fn is_installed() -> bool {
    find().is_some() && find_nvdisasm().is_some()
}

/// The path of a file for one call, without an extension.
fn scratch_file() -> PathBuf {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("tilewright-tests-{}-{count}", std::process::id()))
}

/// What the hardware would run of an assembled kernel, as text with labels. `None`, said once on standard error, where
/// there is no nvdisasm.
///
/// # Panics
/// If nvdisasm refuses the code.
pub fn disassemble(cubin: &[u8]) -> Option<String> {
    nvdisasm(cubin, &["-c"])
}

fn nvdisasm(cubin: &[u8], options: &[&str]) -> Option<String> {
    let nvdisasm = find_nvdisasm()?;
    let path = scratch_file().with_extension("cubin");
    std::fs::write(&path, cubin).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let output = Command::new(nvdisasm).args(options).arg(&path).output();
    let _ = std::fs::remove_file(&path);
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", nvdisasm.display()));
    assert!(output.status.success(), "nvdisasm refuses this code: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Assembles PTX for an architecture such as `sm_90a`. `None`, said once on standard error, where there is no ptxas.
///
/// # Panics
/// If ptxas refuses the PTX.
pub fn assemble(ptx: &str, architecture: &str) -> Option<Assembled> {
    assemble_to(ptx, architecture).map(|(assembled, _)| assembled)
}

/// The same, with the cubin.
///
/// # Panics
/// If ptxas refuses the PTX.
pub fn assemble_to(ptx: &str, architecture: &str) -> Option<(Assembled, Vec<u8>)> {
    static SAID: Once = Once::new();
    let Some(ptxas) = find() else {
        SAID.call_once(|| eprintln!("no ptxas: what needs it is skipped; `scripts/install-ptxas` fetches it"));
        return None;
    };
    let base = scratch_file();
    let (source, cubin) = (base.with_extension("ptx"), base.with_extension("cubin"));
    std::fs::write(&source, ptx).unwrap_or_else(|error| panic!("{}: {error}", source.display()));
    let output = Command::new(ptxas)
        .args(ptx.contains("\t.loc\t").then_some("-lineinfo"))
        .args(["-v", "-O3", &format!("-arch={architecture}"), "-o"])
        .args([&cubin, &source])
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", ptxas.display()));
    let log = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    let code = std::fs::read(&cubin);
    let _ = (std::fs::remove_file(&source), std::fs::remove_file(&cubin));
    assert!(output.status.success(), "ptxas refuses this PTX:\n{log}\n{ptx}");
    let code = code.unwrap_or_else(|error| panic!("ptxas wrote nothing: {error}\n{log}"));
    let number = |before: &str, after: &str| {
        let end = log.find(after)?;
        let start = log[..end].rfind(before)? + before.len();
        log[start..end].trim().parse().ok()
    };
    let assembled = Assembled {
        registers: number("Used ", " registers").unwrap_or_else(|| panic!("no register count in\n{log}")),
        spills: number(",", " bytes spill stores").unwrap_or_else(|| panic!("no spill count in\n{log}")),
        instructions: code_bytes(&code).unwrap_or_else(|| panic!("no code in the cubin")) / 16,
        log,
    };
    Some((assembled, code))
}

/// Assembles PTX as it is loaded: where it spills, without asking for room for several programs, and for one, and what
/// spills least counts.
pub fn assemble_as_loaded(ptx: &str, architecture: &str) -> Option<Assembled> {
    let mut best = assemble(ptx, architecture)?;
    for programs in [None, Some(1)] {
        if best.spills > 0 {
            let other = assemble(&kernel_codegen::with_min_programs(ptx, programs), architecture)?;
            best = if other.spills < best.spills { other } else { best };
        }
    }
    Some(best)
}

/// The bytes of all sections named `.text.*` of a 64-bit little-endian ELF file ("Executable and Linking Format").
fn code_bytes(elf: &[u8]) -> Option<usize> {
    let field = |at: usize, len: usize| {
        let bytes = elf.get(at..at + len)?;
        Some(bytes.iter().rev().fold(0usize, |value, &byte| value << 8 | usize::from(byte)))
    };
    let (table, entry, count, names) = (field(0x28, 8)?, field(0x3a, 2)?, field(0x3c, 2)?, field(0x3e, 2)?);
    let names = field(table + names * entry + 0x18, 8)?;
    let mut total = 0;
    for index in 0..count {
        let section = table + index * entry;
        let name = elf.get(names + field(section, 4)?..)?;
        if name.starts_with(b".text.") {
            total += field(section + 0x20, 8)?;
        }
    }
    (total > 0).then_some(total)
}

/// Instructions in the text of PTX: statements of the kernel's body that are no directives or labels.
pub fn ptx_instructions(ptx: &str) -> usize {
    let statement = |line: &str| {
        let line = line.split("//").next().unwrap_or_default().trim();
        line.ends_with(';') && !line.starts_with('.')
    };
    ptx.lines().filter(|line| statement(line)).count()
}

/// The instructions of an assembled kernel with the places of the source that they are from, as `file:line`: that of the
/// instruction, then those of the calls that inlined it. `None` where there is no nvdisasm.
///
/// # Panics
/// If nvdisasm refuses the code.
pub fn lines_of(cubin: &[u8]) -> Option<Vec<(String, Vec<String>)>> {
    let text = nvdisasm(cubin, &["-c", "-gi"])?;
    let (mut lines, mut places, mut in_places) = (Vec::new(), Vec::new(), false);
    for line in text.lines().map(str::trim) {
        if let Some(place) = line.strip_prefix("//## File ") {
            if !in_places {
                places.clear();
            }
            in_places = true;
            let quoted: Vec<&str> = place.split('"').collect();
            let number = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
            let first = |text: &str| number(text.split("inlined").next().unwrap_or_default());
            for pair in quoted.chunks_exact(2).map(|pair| pair[1]).zip(quoted[2..].iter().step_by(2)) {
                let place = format!("{}:{}", pair.0, first(pair.1));
                if places.last() != Some(&place) {
                    places.push(place);
                }
            }
        } else if line.starts_with("/*") {
            in_places = false;
            lines.push((line.to_string(), places.clone()));
        }
    }
    Some(lines)
}

#[cfg(test)]
mod tests {
    #[test]
    fn directives_are_no_instructions() {
        let ptx =
            ".visible .entry k(\n.param .u64 a\n)\n{\n\t.reg .b32 %r<2>;\n\tmov.u32 %r1, %tid.x; // x;\n$L:\n\tret;\n}";
        assert_eq!(super::ptx_instructions(ptx), 2);
    }
}
