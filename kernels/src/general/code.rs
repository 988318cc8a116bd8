//! What the GPU would run: registers, spills and the width of accesses of kernels as they are launched.

use tilewright::launch::CompiledKernel;
use tilewright::{Result, Target};
use tilewright_tests::assembler;

/// What is asked of a kernel.
pub(crate) struct Code {
    pub ptx: String,
    pub report: String,
    pub name: &'static str,
}

/// Compiles a kernel for Hopper. `None` where there is no LLVM.
pub(crate) fn code(name: &'static str, compile: impl FnOnce(Target) -> Result<CompiledKernel>) -> Option<Code> {
    let compiled = match compile(Target::sm_90a()) {
        Ok(compiled) => compiled,
        Err(error) => panic!("{name}: {error}"),
    };
    Some(Code { ptx: compiled.ptx().to_owned(), report: compiled.report().to_string(), name })
}

impl Code {
    /// How often an instruction with this beginning occurs.
    pub(crate) fn count(&self, instruction: &str) -> usize {
        self.ptx.lines().filter(|line| line.contains(instruction)).count()
    }

    /// Asserts that ptxas spills nothing, and returns the registers of a thread, if it is installed.
    #[track_caller]
    pub(crate) fn fits(&self) -> Option<u32> {
        let assembled = assembler::assemble_as_loaded(&self.ptx, "sm_90a")?;
        eprintln!("{}: {} registers, {} bytes spilled, {} instructions, loads {:?}", self.name, assembled.registers, assembled.spills, assembled.instructions, self.accesses());
        Some(assembled.registers)
    }

    /// The kinds of accesses to global memory, with their number.
    pub(crate) fn accesses(&self) -> std::collections::BTreeMap<String, usize> {
        let mut kinds = std::collections::BTreeMap::new();
        for word in self.ptx.split_whitespace().filter(|word| word.starts_with("ld.global") || word.starts_with("st.global")) {
            *kinds.entry(word.to_owned()).or_default() += 1;
        }
        kinds
    }
}
