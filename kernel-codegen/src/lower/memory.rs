//! Loads and stores of global memory.
//!
//! Each vector of a thread's registers (`analysis/vectors.rs`) is one predicated instruction of inline PTX, never a
//! branch:
//!
//! ```text
//! mov.b32 $0, 0; ..                        what masked lanes read, if anybody sees it
//! @$5 ld.global.nc.v4.b32 {$0,$1,$2,$3}, [$4];
//! ```
//!
//! Memory that does not change during a launch (`Ptr`) is read through the non-coherent path by assembly that LLVM
//! may move and merge; everything else is ordered (`sideeffect`, memory clobber).

use kernel_core::ir::{CacheModifier, EvictionPolicy, Operation, ParamId, ValueId};
use kernel_llvm::AsmEffects;
use kernel_llvm::inkwell::values::{IntValue, PointerValue};

use super::ir::Value;
use super::packing::{Words, memory_bits};
use super::{Lower, Result};
use crate::analysis::control::{is_mutable, is_read_once};
use crate::analysis::vectors::Vectors;

impl<'ctx> Lower<'_, 'ctx> {
    pub(super) fn add_pointer(&mut self, operation: &Operation) {
        let (pointer, offset) = (operation.operands[0], operation.operands[1]);
        let (bases, offsets) = (self.registers(pointer), self.registers(offset));
        let element = self.ir.int_type(memory_bits(self.dtype(pointer)));
        let (dtype, wide) = (self.dtype(offset), self.ir.int_type(64));
        let apart = self.apart[offset.index()];
        let moved = |(base, offset): (&Value<'ctx>, &Value<'ctx>)| {
            let (base, offset) =
                (self.ir.pointer(*base), self.ir.resize(self.ir.int(*offset), wide, dtype.is_signed_int()));
            match apart {
                true => self.ir.offset_apart(element, base, offset).into(),
                false => self.ir.offset(element, base, offset).into(),
            }
        };
        let registers = bases.iter().zip(offsets.iter()).map(moved).collect();
        self.set(operation.results[0], registers);
    }

    /// The vectors in which a tile is accessed at `pointer`.
    pub(super) fn vectors(&self, pointer: ValueId, mask: Option<ValueId>) -> Vectors {
        Vectors::at(self.func, self.axis, pointer, mask)
    }

    /// The parameter whose buffer a pointer points into, and whether the kernel may write it.
    pub(super) fn buffer(&self, pointer: ValueId) -> (ParamId, bool) {
        let param = self.func.ty(pointer).pointee().unwrap_or_else(|| {
            self.ir.bug(format!("value {} is accessed and is no pointer", pointer.index()));
            ParamId::new(0)
        });
        (param, is_mutable(self.func, param))
    }

    pub(super) fn load(&mut self, operation: &Operation, cache: CacheModifier, eviction: EvictionPolicy) -> Result<()> {
        let (pointer, result) = (operation.operands[0], operation.results[0]);
        let (mask, other) = (operation.operands.get(1).copied(), operation.operands.get(2).copied());
        let (_, mutable) = self.buffer(pointer);
        // The launches before may still write when this one begins, so its memory does change during the launch.
        let mutable = mutable || self.begins_early;
        let vectors = self.vectors(pointer, mask);
        let (pointers, masks) = (self.registers(pointer), mask.map(|mask| self.registers(mask)));
        let others = other.map(|other| self.registers(other));
        let read_once = is_read_once(self.func, &self.steering, operation);
        let owner = if read_once { self.owner(None) } else { None };
        let instruction = match self.awaited[result.index()] {
            // It may wait for another program: what that writes has to arrive, which a line of the first cache never
            // does.
            true => "ld.relaxed.gpu.global".to_string(),
            false => load_instruction(mutable, cache, eviction),
        };
        let effects = if mutable { AsmEffects::Memory } else { AsmEffects::Pure };
        let mut registers = vec![self.element_type(result).const_zero(); self.register_count(result)];
        for group in &vectors.groups {
            let first = group[0] as usize;
            let predicate = self.predicate(masks.as_ref().map(|masks| masks[first]), owner);
            let other: Option<Vec<Value>> =
                others.as_ref().map(|others| group.iter().map(|&register| others[register as usize]).collect());
            let address = self.ir.pointer(pointers[first]);
            let loaded =
                self.load_vector(&instruction, effects, address, predicate, other.as_deref(), result, group.len());
            for (&register, value) in group.iter().zip(loaded) {
                registers[register as usize] = value;
            }
        }
        if !operation.shared.is_empty() {
            registers = vec![self.broadcast_from_first(registers[0])];
        }
        self.set(result, registers);
        Ok(())
    }

    /// The conjunction of a mask and the owner of the elements; `None` if it always holds.
    pub(super) fn predicate(&self, mask: Option<Value<'ctx>>, owner: Option<IntValue<'ctx>>) -> Option<IntValue<'ctx>> {
        let mask = mask.map(|mask| self.ir.int(mask)).filter(|mask| mask.get_zero_extended_constant() != Some(1));
        match (mask, owner) {
            (Some(mask), Some(owner)) => Some(self.ir.and(mask, owner)),
            (mask, owner) => mask.or(owner),
        }
    }

    /// One load of `width` elements of the type of `result`.
    #[expect(clippy::too_many_arguments, reason = "the operands of one instruction")]
    fn load_vector(
        &self,
        instruction: &str,
        effects: AsmEffects,
        address: PointerValue<'ctx>,
        predicate: Option<IntValue<'ctx>>,
        other: Option<&[Value<'ctx>]>,
        result: ValueId,
        width: usize,
    ) -> Vec<Value<'ctx>> {
        let ir = &self.ir;
        let elem_bits = memory_bits(self.dtype(result));
        let words = Words::new(elem_bits, width as u32);
        let count = words.count as usize;
        let letter = words.constraint();
        let outputs: Vec<String> = (0..count).map(|i| format!("${i}")).collect();
        let mut arguments: Vec<Value> = vec![address.into()];
        let mut constraints = vec![format!("={letter}"); count];
        constraints.push("l".to_string());
        let mut assembly = String::new();
        if let Some(predicate) = predicate {
            let register = words.register_bits();
            let initial: Option<Vec<IntValue>> = other.map(|other| ir.pack(other, words));
            let initial = initial.filter(|words| words.iter().any(|word| word.get_zero_extended_constant() != Some(0)));
            let seen = if self.unseen[result.index()] { 0 } else { count };
            for i in 0..seen {
                match initial.as_ref().and_then(|words| words.get(i)) {
                    Some(&word) => {
                        arguments.push(word.into());
                        constraints.push(letter.to_string());
                        assembly.push_str(&format!("mov.b{register} ${i}, ${};\n\t", count + arguments.len() - 1));
                    }
                    None => assembly.push_str(&format!("mov.b{register} ${i}, 0;\n\t")),
                }
            }
            arguments.push(predicate.into());
            constraints.push("b".to_string());
            assembly.push_str(&format!("@${} ", count + arguments.len() - 1));
        }
        let list = if count == 1 { outputs.concat() } else { format!("{{{}}}", outputs.join(", ")) };
        assembly.push_str(&format!("{instruction}{} {list}, [${count}];", words.suffix()));
        let ty = ir.int_type(words.register_bits()).into();
        let loaded = ir.asm(&vec![ty; count], &assembly, &constraints.join(","), &arguments, effects);
        ir.unpack(&loaded, words, self.element_type(result), elem_bits)
    }

    pub(super) fn store(
        &mut self,
        operation: &Operation,
        cache: CacheModifier,
        eviction: EvictionPolicy,
    ) -> Result<()> {
        let (pointer, value) = (operation.operands[0], operation.operands[1]);
        let mask = operation.operands.get(2).copied();
        let vectors = self.vectors(pointer, mask);
        let owner = self.owner(self.layout(pointer));
        let (pointers, values) = (self.registers(pointer), self.registers(value));
        let masks = mask.map(|mask| self.registers(mask));
        let instruction = store_instruction(cache, eviction);
        for group in &vectors.groups {
            let first = group[0] as usize;
            let predicate = self.predicate(masks.as_ref().map(|masks| masks[first]), owner);
            let elements: Vec<Value> = group.iter().map(|&register| values[register as usize]).collect();
            let words = Words::new(memory_bits(self.dtype(pointer)), group.len() as u32);
            let address: Value = self.ir.pointer(pointers[first]).into();
            self.store_vector(&format!("{instruction}{}", words.suffix()), "l", address, predicate, &elements, words);
        }
        Ok(())
    }

    /// One predicated store of elements, packed into `words`. `space` is the constraint of the address.
    pub(super) fn store_vector(
        &self,
        instruction: &str,
        space: &str,
        address: Value<'ctx>,
        predicate: Option<IntValue<'ctx>>,
        elements: &[Value<'ctx>],
        words: Words,
    ) {
        let packed = self.ir.pack(elements, words);
        let mut arguments = vec![address];
        let mut constraints = vec![space.to_string()];
        for &word in &packed {
            arguments.push(word.into());
            constraints.push(words.constraint().to_string());
        }
        let operands: Vec<String> = (1..=packed.len()).map(|i| format!("${i}")).collect();
        let list = if packed.len() == 1 { operands.concat() } else { format!("{{{}}}", operands.join(", ")) };
        let guard = predicate.map_or(String::new(), |predicate| {
            arguments.push(predicate.into());
            constraints.push("b".to_string());
            format!("@${} ", arguments.len() - 1)
        });
        let assembly = format!("{guard}{instruction} [$0], {list};");
        self.ir.asm(&[], &assembly, &constraints.join(","), &arguments, AsmEffects::Memory);
    }
}

/// The instruction of a load, up to the vector and type.
fn load_instruction(mutable: bool, cache: CacheModifier, eviction: EvictionPolicy) -> String {
    let coherent = if mutable { "" } else { ".nc" };
    let priority = match eviction {
        EvictionPolicy::Normal => "",
        EvictionPolicy::First => ".L1::evict_first",
        EvictionPolicy::Last => ".L1::evict_last",
    };
    if !priority.is_empty() {
        return format!("ld.global{coherent}{priority}");
    }
    match cache {
        CacheModifier::Default | CacheModifier::Wb | CacheModifier::Wt => format!("ld.global{coherent}"),
        CacheModifier::Ca => format!("ld.global.ca{coherent}"),
        CacheModifier::Cg => format!("ld.global.cg{coherent}"),
        CacheModifier::Cs => format!("ld.global.cs{coherent}"),
        CacheModifier::Cv => "ld.global.cv".to_string(),
    }
}

/// The instruction of a store, up to the vector and type.
fn store_instruction(cache: CacheModifier, eviction: EvictionPolicy) -> &'static str {
    match (eviction, cache) {
        (EvictionPolicy::First, _) => "st.global.L1::evict_first",
        (EvictionPolicy::Last, _) => "st.global.L1::evict_last",
        (EvictionPolicy::Normal, CacheModifier::Wb) => "st.global.wb",
        (EvictionPolicy::Normal, CacheModifier::Cg) => "st.global.cg",
        (EvictionPolicy::Normal, CacheModifier::Cs) => "st.global.cs",
        (EvictionPolicy::Normal, CacheModifier::Wt) => "st.global.wt",
        (EvictionPolicy::Normal, CacheModifier::Default | CacheModifier::Ca | CacheModifier::Cv) => "st.global",
    }
}
