//! Asynchronous copies from global to shared memory: `cp.async`.
//!
//! A copy moves 4, 8 or 16 bytes that are contiguous on both sides. A lane that is masked off copies nothing and fills
//! with zeros: the instruction takes a predicate for that. What is narrower is loaded and stored, at once.

use kernel_core::ir::Operation;
use kernel_llvm::AsmEffects;
use kernel_llvm::inkwell::values::{IntValue, PointerValue};

use super::ir::Value;
use super::packing::{Words, memory_bits};
use super::shared::SharedOffset;
use super::{Lower, Result};
use crate::analysis::vectors::{Copy, Vectors};

/// The narrowest copy, in bytes.
const MIN_BYTES: u32 = 4;
/// The widest copy, in bytes, which goes past the first-level cache.
const MAX_BYTES: u32 = 16;

impl<'ctx> Lower<'_, 'ctx> {
    pub(super) fn async_copy(&mut self, operation: &Operation) -> Result<()> {
        let (view, pointer) = (operation.operands[0], operation.operands[1]);
        let mask = operation.operands.get(2).copied();
        let shared = self.view_layout(operation, view)?.clone();
        let Some(layout) = self.layout(pointer).cloned() else { return Err(self.malformed(operation)) };
        let bits = memory_bits(self.dtype(pointer));
        let copy = Vectors::of_copy(self.func, self.axis, operation, (&layout, &shared));
        let Copy { vectors, access, offsets } = copy.map_err(|error| self.layout_error(&error))?;
        let owner = self.owner(Some(&layout));
        let (pointers, masks) = (self.registers(pointer), mask.map(|mask| self.registers(mask)));
        let thread = self.thread_offset(&access);
        let variable = access.thread.mask();
        let start = SharedOffset::moved(self.view(view));
        for (group, offset) in vectors.groups.iter().zip(offsets) {
            let first = group[0] as usize;
            let constant = offset * bits / 8;
            let to = self.access_address(thread, start, constant & variable, constant & !variable);
            let from = self.ir.pointer(pointers[first]);
            let wanted = self.predicate(masks.as_ref().map(|masks| masks[first]), None);
            let bytes = vectors.width * bits / 8;
            if (MIN_BYTES..=MAX_BYTES).contains(&bytes) {
                self.copy_vector(bytes, to, from, wanted, owner);
            } else {
                self.copy_now(group.len() as u32, bits, to, from, wanted, owner);
            }
        }
        self.token(operation);
        Ok(())
    }

    /// One asynchronous copy.
    fn copy_vector(
        &self,
        bytes: u32,
        to: PointerValue<'ctx>,
        from: PointerValue<'ctx>,
        wanted: Option<IntValue<'ctx>>,
        owner: Option<IntValue<'ctx>>,
    ) {
        let ir = &self.ir;
        let cache = if bytes == MAX_BYTES { "cg" } else { "ca" };
        let to = ir.pointer_to_int(to, ir.int_type(32));
        let mut arguments: Vec<Value> = vec![to.into(), from.into()];
        let mut constraints = "r,l".to_string();
        // Not the number of bytes to read: the hardware takes a predicate, and ptxas would get one from the number by
        // selections and a comparison, where conjunctions of predicates are part of the comparisons that they join.
        let ignored = wanted.map_or(String::new(), |wanted| {
            arguments.push(ir.not(wanted).into());
            constraints.push_str(",b");
            ", $2".to_string()
        });
        let guard = owner.map_or(String::new(), |owner| {
            arguments.push(owner.into());
            constraints.push_str(",b");
            format!("@${} ", arguments.len() - 1)
        });
        let assembly = format!("{guard}cp.async.{cache}.shared.global [$0], [$1], {bytes}{ignored};");
        ir.asm(&[], &assembly, &constraints, &arguments, AsmEffects::Memory);
    }

    /// A copy that is too narrow for the instruction: done at once, which nobody can tell from one that lands early.
    fn copy_now(
        &self,
        width: u32,
        bits: u32,
        to: PointerValue<'ctx>,
        from: PointerValue<'ctx>,
        wanted: Option<IntValue<'ctx>>,
        owner: Option<IntValue<'ctx>>,
    ) {
        let ir = &self.ir;
        let words = Words::new(bits, width);
        let register = ir.int_type(words.register_bits());
        let (mut arguments, mut constraints): (Vec<Value>, _) =
            (vec![from.into()], format!("={},l", words.constraint()));
        let guarded = wanted.map_or(String::new(), |wanted| {
            arguments.push(wanted.into());
            constraints.push_str(",b");
            format!("mov.b{} $0, 0;\n\t@$2 ", words.register_bits())
        });
        let assembly = format!("{guarded}ld.global{} $0, [$1];", words.suffix());
        let loaded = ir.asm(&[register.into()], &assembly, &constraints, &arguments, AsmEffects::Memory);
        let instruction = format!("st.shared{}", words.suffix());
        let to = ir.pointer_to_int(to, ir.int_type(32));
        let (mut arguments, mut constraints): (Vec<Value>, _) =
            (vec![to.into(), loaded[0]], format!("r,{}", words.constraint()));
        let guard = owner.map_or(String::new(), |owner| {
            arguments.push(owner.into());
            constraints.push_str(",b");
            "@$2 ".to_string()
        });
        ir.asm(&[], &format!("{guard}{instruction} [$0], $1;"), &constraints, &arguments, AsmEffects::Memory);
    }

    pub(super) fn async_commit(&mut self, operation: &Operation) {
        self.ir.asm(&[], "cp.async.commit_group;", "", &[], AsmEffects::Memory);
        self.token(operation);
    }

    pub(super) fn async_wait(&mut self, operation: &Operation, pending: u8) {
        self.ir.asm(&[], &format!("cp.async.wait_group {pending};"), "", &[], AsmEffects::Memory);
        self.token(operation);
    }

    fn token(&mut self, operation: &Operation) {
        if let Some(&token) = operation.results.first() {
            self.set(token, vec![self.ir.i32(0).into()]);
        }
    }
}
