//! Marking functions and their parameters, and the memory that a kernel is launched with.
//!
//! LLVM reads launch bounds from string attributes. The older `!nvvm.annotations` metadata is turned
//! into these only when LLVM *parses* a module, so it has no effect on one built in memory.

use inkwell::AddressSpace;
use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::module::{Linkage, Module};
use inkwell::types::{AnyTypeEnum, ArrayType};
use inkwell::values::{FunctionValue, GlobalValue};

/// The calling convention of a kernel (`ptx_kernel`): it becomes an `.entry`.
pub const PTX_KERNEL: u32 = 71;

/// LLVM's numbers for the memory spaces of a GPU.
pub mod space {
    /// Any of the others; the hardware finds out which. Slower than the space itself.
    pub const GENERIC: u16 = 0;
    /// Device memory.
    pub const GLOBAL: u16 = 1;
    /// The memory that a block shares.
    pub const SHARED: u16 = 3;
}

/// What a kernel promises about how it is launched. ptxas divides the registers by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelBounds {
    /// The exact number of threads in a block, in x, y and z (`.reqntid`).
    pub block: [u32; 3],
    /// The least number of blocks per multiprocessor (`.minnctapersm`). Kernels that use
    /// `setmaxnreg` need 1 here: ptxas ignores `setmaxnreg` in small kernels otherwise.
    pub min_blocks: Option<u32>,
    /// The most registers of a thread (`.maxnreg`); the rest is spilled. ptxas takes no `min_blocks` beside it.
    pub max_registers: Option<u32>,
}

impl KernelBounds {
    /// Blocks of `threads` threads in x, and no other promise.
    pub const fn block(threads: u32) -> Self {
        KernelBounds { block: [threads, 1, 1], min_blocks: None, max_registers: None }
    }
}

/// Makes a function a kernel with these bounds.
///
/// The bounds are emitted as `.reqntid` and never as `.maxntid`, which ptxas refuses beside it.
pub fn mark_kernel(function: FunctionValue<'_>, bounds: &KernelBounds) {
    function.set_call_conventions(PTX_KERNEL);
    function.set_linkage(Linkage::External);
    add(function, AttributeLoc::Function, "nounwind");
    let triple = |[x, y, z]: [u32; 3]| format!("{x},{y},{z}");
    let attributes = [
        ("nvvm.reqntid", Some(triple(bounds.block))),
        ("nvvm.minctasm", bounds.min_blocks.map(|count| count.to_string())),
        ("nvvm.maxnreg", bounds.max_registers.map(|count| count.to_string())),
    ];
    for (key, value) in attributes {
        if let Some(value) = value {
            add_string(function, AttributeLoc::Function, key, &value);
        }
    }
}

/// Makes f32 instructions of a function take subnormal numbers for zeros of their sign (`.ftz`).
pub fn mark_flushing(function: FunctionValue<'_>) {
    add_string(function, AttributeLoc::Function, "denormal-fp-math-f32", "preserve-sign,preserve-sign");
}

/// What is known about a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterFact {
    /// No other pointer of the kernel reaches what this one reaches, if either is written through.
    NoAlias,
    /// The kernel only reads through this pointer. Together with `NoAlias`, loads may use the
    /// read-only path (`ld.global.nc`).
    ReadOnly,
    /// The pointer is a multiple of this many bytes, a power of two.
    Aligned(u32),
}

/// States a fact about a pointer parameter; LLVM relies on it.
pub fn mark_parameter(function: FunctionValue<'_>, parameter: u32, fact: ParameterFact) {
    match fact {
        ParameterFact::NoAlias => add(function, AttributeLoc::Param(parameter), "noalias"),
        ParameterFact::ReadOnly => add(function, AttributeLoc::Param(parameter), "readonly"),
        ParameterFact::Aligned(bytes) => function.set_param_alignment(parameter, bytes),
    }
}

/// Makes a pointer parameter one whose `pointee` lies in the parameter memory itself, unchanged by
/// the kernel: how a tensor map (`[128 x i8]`, 64 bytes aligned) is passed. Without it LLVM copies
/// the pointee into each thread's local memory.
pub fn mark_grid_constant(function: FunctionValue<'_>, parameter: u32, pointee: ArrayType<'_>, alignment: u32) {
    let location = AttributeLoc::Param(parameter);
    let context = function.get_type().get_context();
    let pointee = AnyTypeEnum::ArrayType(pointee);
    let by_value = context.create_type_attribute(kind("byval"), pointee);
    function.add_attribute(location, by_value);
    function.set_param_alignment(parameter, alignment);
    add_string(function, location, "nvvm.grid_constant", "");
}

/// Declares the shared memory whose size is given at launch: `[0 x i8]`, `alignment` bytes aligned.
/// A module has at most one, so a second call with the same name returns the first.
pub fn dynamic_shared_memory<'ctx>(module: &Module<'ctx>, name: &str, alignment: u32) -> GlobalValue<'ctx> {
    if let Some(memory) = module.get_global(name) {
        return memory;
    }
    let bytes = module.get_context().i8_type().array_type(0);
    let memory = module.add_global(bytes, Some(AddressSpace::from(space::SHARED)), name);
    memory.set_linkage(Linkage::External);
    memory.set_alignment(alignment);
    memory
}

/// The number of an attribute that every LLVM this crate accepts has.
pub(crate) fn kind(name: &str) -> u32 {
    let kind = Attribute::get_named_enum_kind_id(name);
    debug_assert_ne!(kind, 0, "LLVM knows no attribute {name}");
    kind
}

/// Adds an attribute without a value.
fn add(function: FunctionValue<'_>, location: AttributeLoc, name: &str) {
    let context = function.get_type().get_context();
    function.add_attribute(location, context.create_enum_attribute(kind(name), 0));
}

/// Adds an attribute that is text.
fn add_string(function: FunctionValue<'_>, location: AttributeLoc, key: &str, value: &str) {
    let context = function.get_type().get_context();
    function.add_attribute(location, context.create_string_attribute(key, value));
}
