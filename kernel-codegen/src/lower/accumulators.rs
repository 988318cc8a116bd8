//! Banks: registers of accumulators, which PTX names ([`crate::passes::placed::accumulator_banks`] says what lives
//! where).
//!
//! ```text
//! .reg .b32 %acc0_<128>;                               in the entry block
//! mov.b32 %acc0_0, 0;  ..                              filled before a loop
//! wgmma.mma_async {%acc0_0, ..}, descriptors;          as often as there are products
//! mov.b32 %r7, %acc0_0;  ..                            read behind the last wait
//! ```
//!
//! The pieces of inline assembly stay in their order and in their blocks, so a bank has what the kernel says wherever
//! LLVM moves the code around them.

use kernel_core::ir::{BankId, ValueId};
use kernel_llvm::AsmEffects;
use kernel_llvm::inkwell::types::BasicTypeEnum;
use kernel_llvm::inkwell::values::{BasicValueEnum, IntValue};

use super::Lower;
use super::ir::Value;

/// A bank that is filled behind the wait for the products of its loop, if that has not run.
///
/// Filling it before, on the way around the loop, would make ptxas see registers of products written while others may
/// be in flight, and run these one after the other (C7515).
pub(super) struct Unfilled<'ctx> {
    /// What the loop begins with.
    pub(super) init: ValueId,
    /// The carried tile.
    pub(super) arg: ValueId,
    /// Whether the loop has not run.
    pub(super) never: IntValue<'ctx>,
}

impl<'ctx> Lower<'_, 'ctx> {
    /// Declares the registers of all banks, in the entry block.
    pub(super) fn declare_banks(&mut self) {
        let banks = self.products.banks.all().into_iter();
        let lines: Vec<String> = banks
            .map(|(bank, value)| format!(".reg .b32 %acc{}_<{}>;", bank.index(), self.register_count(value)))
            .collect();
        if lines.is_empty() {
            return;
        }
        self.ir.asm(&[], &lines.join("\n\t"), "", &[], AsmEffects::Convergent);
    }

    /// Makes `to` of `from`, where `to` lives in a bank.
    pub(super) fn fill(&self, from: ValueId, to: ValueId) {
        let Some(bank) = self.products.banks.bank(to) else { return };
        if !self.products.banks.is_filled(from, to) {
            return;
        }
        let registers = self.registers(from);
        let mut arguments: Vec<Value> = Vec::new();
        let mut lines = Vec::with_capacity(registers.len());
        for (number, register) in registers.iter().enumerate() {
            let source = match constant_bits(*register) {
                Some(bits) => bits.to_string(),
                None => {
                    let known = arguments.iter().position(|argument| argument == register);
                    let place = known.unwrap_or(arguments.len());
                    if known.is_none() {
                        arguments.push(*register);
                    }
                    format!("${place}")
                }
            };
            lines.push(format!("mov.b32 {}, {source};", bank_register(bank, number)));
        }
        let constraints: Vec<&str> = arguments.iter().map(|argument| letter(argument.get_type())).collect();
        self.ir.asm(&[], &lines.join("\n\t"), &constraints.join(","), &arguments, AsmEffects::ConvergentMemory);
    }

    /// Fills the banks of loops that have not run, of those whose products have been waited for.
    pub(super) fn fill_unfilled(&mut self, waited: &[ValueId]) {
        for &value in waited {
            let bank = self.products.banks.bank(value);
            let place =
                self.products.unfilled.iter().position(|unfilled| self.products.banks.bank(unfilled.arg) == bank);
            let Some(unfilled) = place.map(|place| self.products.unfilled.swap_remove(place)) else { continue };
            let (fill, end) = (self.block("for.unfilled"), self.block("for.filled"));
            self.ir.branch_if(unfilled.never, fill, end);
            self.ir.builder.position_at_end(fill);
            self.fill(unfilled.init, unfilled.arg);
            self.ir.branch(end);
            self.ir.builder.position_at_end(end);
        }
    }

    /// Lets a value that lives in a bank be used by others, if any does: to be called where it is defined.
    pub(super) fn set_in_bank(&mut self, value: ValueId) {
        let Some(bank) = self.products.banks.bank(value).filter(|_| self.products.banks.is_read(value)) else {
            return;
        };
        let (ty, count) = (self.element_type(value), self.register_count(value));
        let line = |number| format!("mov.b32 ${number}, {};", bank_register(bank, number));
        let lines: Vec<String> = (0..count).map(line).collect();
        let constraints = vec![format!("={}", letter(ty)); count].join(",");
        let types = vec![ty; count];
        let registers = self.ir.asm(&types, &lines.join("\n\t"), &constraints, &[], AsmEffects::ConvergentMemory);
        self.set(value, registers);
    }
}

/// The name of a bank's register.
pub(super) fn bank_register(bank: BankId, register: usize) -> String {
    format!("%acc{}_{register}", bank.index())
}

/// The constraint of an operand of 32 bits.
fn letter(ty: BasicTypeEnum<'_>) -> &'static str {
    match ty {
        BasicTypeEnum::FloatType(_) => "f",
        _ => "r",
    }
}

/// The bits of a constant of 32 bits.
fn constant_bits(value: Value<'_>) -> Option<u32> {
    match value {
        BasicValueEnum::IntValue(number) => number.get_sign_extended_constant().map(|number| number as u32),
        BasicValueEnum::FloatValue(number) => {
            let (number, _) = number.get_constant()?;
            // The payload of a NaN may be lost on the way through an f64.
            (!number.is_nan()).then_some((number as f32).to_bits())
        }
        _ => None,
    }
}
