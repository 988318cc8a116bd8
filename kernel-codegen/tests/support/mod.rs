//! What the tests of generated code share: kernels from text, ptxas, counting instructions.

#![allow(dead_code, reason = "each test file uses a part")]

pub mod checked;
pub mod differential;
pub mod registers;
pub mod written;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use kernel_codegen::{Compiled, Options, Target, compile};
use kernel_core::ir::Bound;
use kernel_core::layout::LinearLayout;

/// A kernel from its text form at the bound level.
pub fn kernel(text: &str) -> Bound {
    let func = kernel_core::text::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    if let Err(problems) = kernel_core::verify::verify(&func) {
        panic!("{problems:?}");
    }
    Bound::new(func).unwrap_or_else(|_| panic!("the kernel is not bound"))
}

/// The lines of a kernel that make `%matrix_at`, the addresses of all elements of a matrix in row-major order, from the name of
/// its parameter and two tiles of `i32` with the numbers of its rows and columns: what they are called, and how many there are.
pub fn addresses(matrix: &str, (row, rows): (&str, usize), (column, columns): (&str, usize)) -> String {
    let (shape, tall) = (format!("[{rows}, {columns}]"), format!("[{rows}, 1]"));
    format!(
        "  %{matrix}_width: i32 = const {columns}
  %{matrix}_widths: i32{tall} = splat %{matrix}_width
  %{matrix}_row: i32{tall} = expand_dims %{row} {{axis = 1}}
  %{matrix}_first: i32{tall} = mul %{matrix}_row, %{matrix}_widths
  %{matrix}_firsts: i32{shape} = broadcast %{matrix}_first
  %{matrix}_column: i32[1, {columns}] = expand_dims %{column} {{axis = 0}}
  %{matrix}_columns: i32{shape} = broadcast %{matrix}_column
  %{matrix}_offsets: i32{shape} = add %{matrix}_firsts, %{matrix}_columns
  %{matrix}_start: *{matrix}{shape} = splat %{matrix}
  %{matrix}_at: *{matrix}{shape} = add_ptr %{matrix}_start, %{matrix}_offsets"
    )
}

/// A layout in the text form.
pub fn layout_text(layout: &LinearLayout) -> String {
    let ins = layout.ins().map(|(dim, _)| {
        let bases: Vec<String> = layout.bases(dim).iter().map(|basis| format!(" {basis:?}")).collect();
        format!("{dim}{}", bases.concat())
    });
    let outs = layout.outs().map(|(dim, size)| format!("{dim} {size}"));
    format!("{} -> {}", ins.collect::<Vec<_>>().join(", "), outs.collect::<Vec<_>>().join(", "))
}

/// Compiles a kernel for Hopper with that many warps.
pub fn hopper(text: &str, num_warps: u32) -> Compiled {
    let options = Options { num_warps, ..Options::default() };
    compile(&kernel(text), &Target::sm_90a(), &options).unwrap_or_else(|error| panic!("{error}"))
}

/// Compiles a kernel for Hopper with four warps.
pub fn compile_for_hopper(kernel: &Bound) -> Compiled {
    compile(kernel, &Target::sm_90a(), &Options::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// How often `needle` occurs in the PTX.
pub fn count(ptx: &str, needle: &str) -> usize {
    ptx.matches(needle).count()
}

/// What ptxas says about a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assembled {
    pub registers: u32,
    pub spill_bytes: u32,
    pub barriers: u32,
}

/// The assembler: `TILEWRIGHT_PTXAS`, what `scripts/install-ptxas` put into `.ptxas` in the repository's root, or one
/// on the path.
fn ptxas() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        if let Some(path) = std::env::var_os("TILEWRIGHT_PTXAS") {
            return Some(PathBuf::from(path));
        }
        let site = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.join(".ptxas/site/nvidia");
        let installed = std::fs::read_dir(site).into_iter().flatten().flatten();
        let installed = installed.map(|folder| folder.path().join("bin/ptxas"));
        let on_path =
            std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join("ptxas")).collect::<Vec<_>>();
        installed.chain(on_path).find(|path| path.is_file())
    };
    let found = FOUND.get_or_init(find).as_deref();
    if found.is_none() {
        eprintln!("skipped: no ptxas (`scripts/install-ptxas` fetches it; TILEWRIGHT_PTXAS names another)");
    }
    found
}

/// Assembles a kernel; as when one is loaded, what spills least of its PTX and the alternatives counts.
/// `None` if there is no ptxas here. Panics on errors and on performance warnings.
pub fn assemble(compiled: &Compiled) -> Option<Assembled> {
    let mut best = assemble_ptx(&compiled.ptx, compiled.target)?;
    for (_, ptx) in compiled.alternatives() {
        if best.spill_bytes > 0 {
            let other = assemble_ptx(&ptx, compiled.target)?;
            best = if other.spill_bytes < best.spill_bytes { other } else { best };
        }
    }
    Some(best)
}

/// Assembles PTX as it is.
pub fn assemble_ptx(ptx: &str, target: Target) -> Option<Assembled> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let ptxas = ptxas()?;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let file = std::env::temp_dir().join(format!("tilewright-{}-{number}.ptx", std::process::id()));
    std::fs::write(&file, ptx).expect("the temporary folder is writable");
    let output = Command::new(ptxas)
        .args(["-v", "--gpu-name", target.name(), "-o", "/dev/null"])
        .arg(&file)
        .output()
        .expect("ptxas runs");
    let log = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let _ = std::fs::remove_file(&file);
    assert!(output.status.success(), "ptxas refuses:\n{log}\n{ptx}");
    assert!(!log.contains("(C75"), "ptxas warns:\n{log}\n{ptx}");
    Some(Assembled {
        registers: number_before(&log, " registers"),
        spill_bytes: number_before(&log, " bytes spill stores") + number_before(&log, " bytes spill loads"),
        barriers: number_before(&log, " barriers"),
    })
}

fn number_before(log: &str, what: &str) -> u32 {
    let Some(end) = log.find(what) else { return 0 };
    let digits: String = log[..end].chars().rev().take_while(char::is_ascii_digit).collect();
    digits.chars().rev().collect::<String>().parse().unwrap_or(0)
}

/// Compiles a kernel for every target with several numbers of warps, assembles each, and checks that compiling twice
/// gives the same bytes and that nothing spills.
pub fn compiles_everywhere(text: &str) {
    let kernel = kernel(text);
    for target in Target::all() {
        for num_warps in [1, 4, 8] {
            let options = Options { num_warps, ..Options::default() };
            let compiled = compile(&kernel, &target, &options).unwrap_or_else(|error| panic!("{error}"));
            if num_warps == 4 {
                let again = compile(&kernel, &target, &options).unwrap_or_else(|error| panic!("{error}"));
                assert_eq!(compiled.ptx, again.ptx, "compiling is deterministic");
            }
            if let Some(assembled) = assemble(&compiled) {
                assert_eq!(assembled.spill_bytes, 0, "{} with {num_warps} warps spills", target.name());
            }
        }
    }
}
