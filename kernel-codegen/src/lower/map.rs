//! Regions that compute single elements: once per register, each with its own way through loops and conditions.
//!
//! Threads may take different ways in a region, as nothing in it makes them meet. Behind it they are together again.

use kernel_core::ir::{InlinePtx, Operation};

use super::ir::Value;
use super::{Lower, Result};

impl<'ctx> Lower<'_, 'ctx> {
    pub(super) fn map_elements(&mut self, operation: &Operation, ptx: Option<&InlinePtx>) -> Result<()> {
        let (Some(&first), &[region]) = (operation.results.first(), operation.regions.as_slice()) else {
            return Err(self.malformed(operation));
        };
        let count = self.register_count(first);
        let operands: Vec<_> = operation.operands.iter().map(|&operand| self.registers(operand)).collect();
        if operands.iter().any(|registers| registers.len() != count) {
            return Err(self.malformed(operation));
        }
        let mut results = vec![Vec::with_capacity(count); operation.results.len()];
        let pack = ptx.map_or(1, |ptx| usize::from(ptx.pack));
        for start in (0..count).step_by(pack) {
            let elements = start..count.min(start + pack);
            let arguments: Vec<&[Value]> = operands.iter().map(|registers| &registers[elements.clone()]).collect();
            let given = match ptx {
                Some(ptx) => self.inline_ptx(operation, ptx, &arguments)?,
                None => {
                    let element: Vec<Value> = arguments.iter().map(|values| values[0]).collect();
                    self.combine(region, &element, &[])?.into_iter().map(|value| vec![value]).collect()
                }
            };
            for (registers, given) in results.iter_mut().zip(given) {
                registers.extend(given.into_iter().take(elements.len()));
            }
        }
        for (&result, registers) in operation.results.iter().zip(results) {
            self.set(result, registers);
        }
        Ok(())
    }
}
