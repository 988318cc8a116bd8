//! Regions that compute single elements.

use crate::ir::Operation;

use super::super::instructions::{Inst, Map};
use super::fold::is_elementwise;
use super::{Compiler, Result, unsupported};

impl Compiler<'_> {
    /// Without loops the region computes on all elements at once, else on one after the other.
    pub(super) fn map(&mut self, operation: &Operation) -> Result<()> {
        let region = self.sub_region(operation, 0)?;
        let inputs = self.regs(&operation.operands)?;
        let mut outputs = Vec::with_capacity(operation.results.len());
        for &result in &operation.results {
            outputs.push(self.define(result)?);
        }
        let Some(n) = outputs.first().map(|&output| self.info(output).n) else {
            return unsupported("an operation on elements without a result", self.span);
        };
        let vectorised = is_elementwise(self.func, region);
        let at = self.emit(Inst::Return);
        let mut code = self.region_code(region, vectorised.then_some(n))?;
        code.left = code.left.iter().chain(&code.right).copied().collect();
        code.right = Box::default();
        let (inputs, outputs) = (inputs.into(), outputs.into());
        self.insts[at.index()] = Inst::Map(Box::new(Map { code, vectorised, inputs, outputs, n }));
        self.land(at);
        Ok(())
    }
}
