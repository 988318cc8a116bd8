//! What the hardware would run of the kernels at their default configurations. Needs LLVM and ptxas, but no GPU.

use tilewright::launch::CompiledKernel;
use tilewright_tests::assembler::{Assembled, assemble_to, disassemble};

/// A kernel for Hopper.
pub(crate) struct Code {
    pub(crate) sass: String,
    pub(crate) assembled: Assembled,
}

impl Code {
    /// `None` where ptxas or nvdisasm is missing.
    pub(crate) fn of(compiled: &CompiledKernel) -> Option<Code> {
        let (assembled, cubin) = assemble_to(compiled.ptx(), "sm_90a")?;
        Some(Code { sass: disassemble(&cubin)?, assembled })
    }

    /// How often an instruction is there whose text has all of these parts.
    pub(crate) fn count(&self, parts: &[&str]) -> usize {
        self.sass.lines().filter(|line| parts.iter().all(|part| line.contains(part))).count()
    }

    /// One line about it.
    pub(crate) fn summary(&self) -> String {
        let count = |parts: &[&str]| self.count(parts);
        format!(
            "{} registers, {} bytes spilled, {} instructions, {} HGMMA/QGMMA, {} HMMA/QMMA/DMMA, {} UTMALDG, {} UTMASTG, \
             {} LDGSTS.128 of {}, {} LDG.128 of {}, {} STG.128 of {}, {} C75xx",
            self.assembled.registers,
            self.assembled.spills,
            self.assembled.instructions,
            count(&["GMMA.64x"]),
            count(&["MMA.1"]) + count(&["DMMA"]),
            count(&["UTMALDG"]),
            count(&["UTMASTG"]),
            count(&["LDGSTS", ".128"]),
            count(&["LDGSTS"]),
            count(&["LDG.E", ".128"]),
            count(&["LDG.E"]),
            count(&["STG.E", ".128"]),
            count(&["STG.E"]),
            self.assembled.log.matches("C75").count(),
        )
    }

    /// Neither spills nor anything that ptxas complains about.
    #[track_caller]
    pub(crate) fn assert_clean(&self, what: &str) {
        assert_eq!(self.assembled.spills, 0, "{what}: {}", self.summary());
        assert!(!self.assembled.log.contains("C75"), "{what}: {}", self.assembled.log);
    }
}
