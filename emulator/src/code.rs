//! Code that has been parsed, and launches of it.

use kernel_codegen::Compiled;

use super::arithmetic::bits;
use super::global::Global;
use super::parse::{Program, parse};

/// A kernel, parsed.
pub struct Code {
    pub(super) program: Program,
    /// Whether launches may begin before those before them have ended.
    pub(super) begins_early: bool,
    params: Vec<usize>,
}

impl Code {
    /// Parses the one kernel of a module, which has the name `entry`. Panics where the text is not what the code generator
    /// writes.
    pub fn parse(ptx: &str, entry: &str) -> Code {
        let program = parse(ptx, entry);
        let begins_early = program.instructions.iter().any(|instruction| instruction.name == "griddepcontrol");
        Code { program, begins_early, params: params(ptx, entry) }
    }

    /// The bytes of each parameter.
    pub fn params(&self) -> &[usize] {
        &self.params
    }

    /// Whether launches may begin before those before them have ended.
    pub fn begins_early(&self) -> bool {
        self.begins_early
    }
}

/// The bytes of each parameter in the head of a kernel, which says `.param .u64 .ptr .align 1 name_param_0,`, or of arrays of
/// bytes `.param .align 64 .b8 name_param_1[128]`.
fn params(ptx: &str, entry: &str) -> Vec<usize> {
    let start = ptx.find(".visible .entry").expect("a kernel");
    let head = &ptx[start..start + ptx[start..].find("\n{").expect("a body")];
    let lines = head.lines().filter_map(|line| line.trim().strip_prefix(".param "));
    let param = |line: &str| {
        let words: Vec<&str> = line.trim_end_matches([',', ')', ' ']).split_whitespace().collect();
        let name = words.last().expect("a parameter's name");
        assert!(name.starts_with(&format!("{entry}_param_")), "{line}");
        let is_type = |word: &&&str| word.len() > 2 && word.as_bytes()[2].is_ascii_digit();
        let ty = words.iter().find(is_type).expect("a parameter's type").trim_start_matches('.');
        let count = name.split_once('[').map_or(1, |(_, count)| count.trim_end_matches(']').parse().expect("a count"));
        bits(ty) as usize / 8 * count
    };
    lines.map(param).collect()
}

/// A launch of parsed code.
pub struct Programs<'a> {
    /// The kernel.
    pub code: &'a Code,
    /// Bits per parameter.
    pub params: &'a [u64],
    /// The programs along each axis.
    pub grid: [u32; 3],
    /// Threads per program, all along the first axis.
    pub threads: u32,
    /// Bytes of shared memory per program.
    pub shared_bytes: u32,
    /// Decides the order in which threads run.
    pub seed: u64,
}

/// A launch of a compiled kernel.
pub struct Launch<'a> {
    /// The kernel.
    pub compiled: &'a Compiled,
    /// Bits per kernel parameter, in the order of the ABI.
    pub params: Vec<u64>,
    /// The programs along each axis.
    pub grid: [u32; 3],
    /// Decides the order in which threads run.
    pub seed: u64,
}

impl Launch<'_> {
    /// Runs all programs of the grid.
    pub fn run(&self, memory: &mut dyn Global) {
        let Launch { compiled, params, grid, seed } = self;
        let (threads, shared_bytes) = (compiled.threads(), compiled.shared_bytes);
        let code = Code::parse(&compiled.ptx, &compiled.entry);
        Programs { code: &code, params, grid: *grid, threads, shared_bytes, seed: *seed }.run(memory);
    }
}
