//! Making instructions that `inkwell` does not make, and changing those that it made, without ever
//! reading an opcode back.

use std::borrow::Cow;
use std::ffi::c_uint;

use inkwell::attributes::AttributeLoc;
use inkwell::builder::Builder;
use inkwell::context::AsContextRef;
use inkwell::intrinsics::Intrinsic;
use inkwell::module::Module;
use inkwell::types::{AsTypeRef, BasicTypeEnum, FunctionType};
use inkwell::values::{
    AsValueRef, BasicMetadataValueEnum, CallSiteValue, FastMathFlags, FunctionValue, InstructionValue, PointerValue,
};
use llvm_sys::LLVMInlineAsmDialect;
use llvm_sys::core::{
    LLVMConstInt, LLVMGetInlineAsm, LLVMGetMDKindIDInContext, LLVMInt32TypeInContext, LLVMIsAAllocaInst,
    LLVMIsAAtomicCmpXchgInst, LLVMIsAAtomicRMWInst, LLVMIsAInstruction, LLVMIsALoadInst, LLVMIsAStoreInst,
    LLVMMDNodeInContext2, LLVMMDStringInContext2, LLVMMetadataAsValue, LLVMSetAlignment, LLVMSetMetadata,
    LLVMSetVolatile, LLVMValueAsMetadata,
};
use llvm_sys::debuginfo::{LLVMMetadataReplaceAllUsesWith, LLVMTemporaryMDNode};
use llvm_sys::prelude::{LLVMMetadataRef, LLVMValueRef};

use crate::error::Error;
use crate::kernel::kind;

/// What inline assembly does besides computing its results; LLVM treats it accordingly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AsmEffects {
    /// Nothing: it may be merged with an equal one, moved, and removed if unused.
    Pure,
    /// Something that must happen in program order, but not to memory that LLVM knows of.
    Ordered,
    /// It reads or writes memory: no other access moves across it.
    Memory,
    /// As `Ordered`, and threads do it together: it is never duplicated, or moved to where fewer or
    /// more threads reach it.
    Convergent,
    /// As `Memory` and `Convergent`: barriers, for example.
    ConvergentMemory,
}

impl AsmEffects {
    fn ordered(self) -> bool {
        self != AsmEffects::Pure
    }

    fn memory(self) -> bool {
        matches!(self, AsmEffects::Memory | AsmEffects::ConvergentMemory)
    }

    fn convergent(self) -> bool {
        matches!(self, AsmEffects::Convergent | AsmEffects::ConvergentMemory)
    }
}

/// The constraints, with results that take no operand's register if there are several instructions: LLVM assumes that
/// all operands are read before any result is written.
fn apart<'c>(assembly: &str, constraints: &'c str) -> Cow<'c, str> {
    let several = assembly.matches(';').count() > 1;
    if several && constraints.contains('=') { constraints.replace('=', "=&").into() } else { constraints.into() }
}

/// Calls inline PTX. `constraints` are LLVM's (`"=f,f,l"`), results first; operands are `$0`, `$1`...
/// in `assembly`. Assembly with labels must be wrapped in `{ }`, because it may appear more than
/// once. The memory clobber of `effects` is added here, and results of several instructions are
/// kept apart from the operands, which a later instruction may still read.
///
/// # Errors
///
/// [`Error::Builder`] if the builder has no position, or arguments do not fit the type.
pub fn inline_asm<'ctx>(
    builder: &Builder<'ctx>,
    function_type: FunctionType<'ctx>,
    assembly: &str,
    constraints: &str,
    arguments: &[BasicMetadataValueEnum<'ctx>],
    effects: AsmEffects,
) -> Result<CallSiteValue<'ctx>, Error> {
    let parameters = function_type.count_param_types() as usize;
    if parameters != arguments.len() {
        let given = arguments.len();
        let message = format!("inline assembly of {parameters} operands given {given}: {assembly}");
        return Err(Error::Builder(message));
    }
    let clobber = match (effects.memory(), constraints.is_empty()) {
        (false, _) => "",
        (true, true) => "~{memory}",
        (true, false) => ",~{memory}",
    };
    let constraints = format!("{}{clobber}", apart(assembly, constraints));
    // SAFETY: the texts are passed with their lengths and copied; the type is live. The value is a
    // pointer to a function.
    let callee = unsafe {
        PointerValue::new(LLVMGetInlineAsm(
            function_type.as_type_ref(),
            assembly.as_ptr().cast(),
            assembly.len(),
            constraints.as_ptr().cast(),
            constraints.len(),
            effects.ordered().into(),
            0,
            LLVMInlineAsmDialect::LLVMInlineAsmDialectATT,
            0,
        ))
    };
    let call = builder.build_indirect_call(function_type, callee, arguments, "")?;
    let context = function_type.get_context();
    let nounwind = context.create_enum_attribute(kind("nounwind"), 0);
    call.add_attribute(AttributeLoc::Function, nounwind);
    if effects.convergent() {
        set_convergent(call, function_type);
    }
    Ok(call)
}

/// Marks a call as one that threads make together. `function_type` is that of the callee.
pub fn set_convergent<'ctx>(call: CallSiteValue<'ctx>, function_type: FunctionType<'ctx>) {
    let attribute = function_type.get_context().create_enum_attribute(kind("convergent"), 0);
    call.add_attribute(AttributeLoc::Function, attribute);
}

/// Declares an intrinsic, such as `llvm.nvvm.read.ptx.sreg.tid.x`, or returns its declaration.
/// `types` are the types it is overloaded on, empty if it is not.
///
/// # Errors
///
/// [`Error::Intrinsic`] if the loaded LLVM does not know it, or if it is overloaded and `types` is
/// empty. Whether the types fit is not checked here but by LLVM's verifier.
pub fn intrinsic<'ctx>(
    module: &Module<'ctx>,
    name: &str,
    types: &[BasicTypeEnum<'ctx>],
) -> Result<FunctionValue<'ctx>, Error> {
    Intrinsic::find(name)
        // LLVM finds an intrinsic by the longest known start of a name, for overloaded ones.
        .filter(|found| found.is_overloaded() != types.is_empty())
        .and_then(|found| found.get_declaration(module, types))
        .ok_or_else(|| Error::Intrinsic { name: name.to_string(), types: types.len() })
}

/// Sets the floating-point flags of the instruction that made `value`. Does nothing if it was folded
/// to a constant or takes no such flags.
///
/// Both operations need `AllowContract` to become an `fma`, and merging two equal instructions keeps
/// only the flags that both have: set them on every one that is made.
pub fn set_fast_math(value: impl AsValueRef, flags: FastMathFlags) {
    let value = value.as_value_ref();
    // SAFETY: the value is live. Casting asks for the class, which is no opcode.
    let instruction = unsafe { LLVMIsAInstruction(value) };
    if !instruction.is_null() {
        // SAFETY: it is an instruction, as just found.
        let instruction = unsafe { InstructionValue::new(instruction) };
        if instruction.can_use_fast_math_flags() {
            // The only error is that the instruction takes no flags, which was just asked.
            let _ = instruction.set_fast_math_flags(flags);
        }
    }
}

/// Sets the alignment in bytes of a load, store, `alloca` or atomic; LLVM takes it literally, so a
/// vector access with less than its own size is split. Does nothing for other instructions or if
/// `bytes` is not a power of two.
pub fn set_alignment(instruction: impl AsValueRef, bytes: u32) {
    let value = instruction.as_value_ref();
    if bytes.is_power_of_two() && (is_access(value) || is_alloca(value)) {
        // SAFETY: the instruction is live and of a class that has an alignment.
        unsafe { LLVMSetAlignment(value, bytes) };
    }
}

/// Makes a load, store or atomic volatile. Does nothing for other instructions.
pub fn set_volatile(instruction: impl AsValueRef) {
    let value = instruction.as_value_ref();
    if is_access(value) {
        // SAFETY: the instruction is live and of a class that can be volatile.
        unsafe { LLVMSetVolatile(value, 1) };
    }
}

/// Whether an instruction accesses memory and has an alignment.
fn is_access(value: LLVMValueRef) -> bool {
    // SAFETY: the value is live; casting asks for its class.
    unsafe {
        !LLVMIsALoadInst(value).is_null()
            || !LLVMIsAStoreInst(value).is_null()
            || !LLVMIsAAtomicRMWInst(value).is_null()
            || !LLVMIsAAtomicCmpXchgInst(value).is_null()
    }
}

/// Whether an instruction is an `alloca`.
fn is_alloca(value: LLVMValueRef) -> bool {
    // SAFETY: the value is live; casting asks for its class.
    unsafe { !LLVMIsAAllocaInst(value).is_null() }
}

/// What LLVM, and through it ptxas, is to do with a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopHint {
    /// Leave it: becomes `.pragma "nounroll"`, which ptxas heeds too.
    NoUnroll,
    /// Unroll it this many times.
    Unroll(u32),
    /// Unroll it completely.
    UnrollFully,
}

/// Attaches a hint to the branch that closes a loop.
///
/// Loop metadata is a node of its own per loop that names itself, which `inkwell` cannot make.
pub fn set_loop_hint(module: &Module<'_>, latch: InstructionValue<'_>, hint: LoopHint) {
    let context = module.get_context().as_ctx_ref();
    let (name, count) = match hint {
        LoopHint::NoUnroll => ("llvm.loop.unroll.disable", None),
        LoopHint::Unroll(count) => ("llvm.loop.unroll.count", Some(count)),
        LoopHint::UnrollFully => ("llvm.loop.unroll.full", None),
    };
    // SAFETY: the context and the instruction are live; texts go with their lengths and are copied;
    // each node gets as many operands as its array has; the temporary node is replaced before it is
    // lost, and replacing frees it.
    unsafe {
        let mut hint = vec![LLVMMDStringInContext2(context, name.as_ptr().cast(), name.len())];
        hint.extend(count.map(|count| {
            let number = LLVMConstInt(LLVMInt32TypeInContext(context), u64::from(count), 0);
            LLVMValueAsMetadata(number)
        }));
        let hint = LLVMMDNodeInContext2(context, hint.as_mut_ptr(), hint.len());
        let itself = LLVMTemporaryMDNode(context, std::ptr::null_mut(), 0);
        let mut operands: [LLVMMetadataRef; 2] = [itself, hint];
        let node = LLVMMDNodeInContext2(context, operands.as_mut_ptr(), operands.len());
        LLVMMetadataReplaceAllUsesWith(itself, node);
        const KIND: &str = "llvm.loop";
        let kind = LLVMGetMDKindIDInContext(context, KIND.as_ptr().cast(), KIND.len() as c_uint);
        LLVMSetMetadata(latch.as_value_ref(), kind, LLVMMetadataAsValue(context, node));
    }
}

#[cfg(test)]
mod tests {
    use super::apart;

    #[test]
    fn results_of_several_instructions_are_kept_apart() {
        let several = "mov.b32 $0, 0; mov.b32 $1, 0; @$3 ld.global.v2.b32 {$0, $1}, [$2];";
        assert_eq!(apart(several, "=r,=r,l,b"), "=&r,=&r,l,b");
        assert_eq!(
            apart("{ .reg .pred %p; setp.ne.b32 %p, $1, 0; @%p atom.global.add.u32 $0, [$2], $3; }", "=r,r,l,r"),
            "=&r,r,l,r"
        );
        // One instruction reads its operands before it writes its results.
        assert_eq!(apart("ld.global.v2.b32 {$0, $1}, [$2];", "=r,=r,l"), "=r,=r,l");
        assert_eq!(apart("st.global.b32 [$0], $1; st.global.b32 [$0], $2;", "l,r,r"), "l,r,r");
    }
}
