//! Lines of the source, for tools: `.file` and `.loc` in PTX.
//!
//! ```text
//! .file 1 "/home/me/app/src/add.rs"
//!     .loc    1 7 15        the place of what follows
//!     ld.global.v4.b32 ...
//! ```
//!
//! They come of LLVM's debug metadata with an *emission kind* of directives alone. Any other makes LLVM write the tables
//! of a debugger too, and `.target sm_90a, debug`, with which ptxas optimises nothing.

use std::ffi::{c_char, c_uint};
use std::marker::PhantomData;

use inkwell::builder::Builder;
use inkwell::context::{AsContextRef, Context};
use inkwell::module::{FlagBehavior, Module};
use inkwell::values::{AsValueRef, FunctionValue};
use llvm_sys::LLVMModule;
use llvm_sys::core::LLVMSetCurrentDebugLocation2;
use llvm_sys::debuginfo::{
    LLVMCreateDIBuilder, LLVMDIBuilderCreateDebugLocation, LLVMDIBuilderCreateFile, LLVMDIBuilderCreateFunction,
    LLVMDIBuilderCreateLexicalBlockFile, LLVMDIBuilderCreateSubroutineType, LLVMDIBuilderFinalize, LLVMDIFlagZero,
    LLVMDWARFSourceLanguage, LLVMDebugMetadataVersion, LLVMDisposeDIBuilder, LLVMSetSubprogram,
};
use llvm_sys::prelude::{LLVMBool, LLVMContextRef, LLVMDIBuilderRef, LLVMMetadataRef};

/// `DICompileUnit::DebugDirectivesOnly`: the C API has no name for it, but hands the number on.
const DIRECTIVES_ONLY: c_uint = 3;

unsafe extern "C" {
    /// That of `llvm_sys`, whose `Kind` is a Rust enum without the one that is wanted.
    fn LLVMDIBuilderCreateCompileUnit(
        builder: LLVMDIBuilderRef,
        language: LLVMDWARFSourceLanguage,
        file: LLVMMetadataRef,
        producer: *const c_char,
        producer_len: usize,
        is_optimized: LLVMBool,
        flags: *const c_char,
        flags_len: usize,
        runtime_version: c_uint,
        split_name: *const c_char,
        split_name_len: usize,
        kind: c_uint,
        dwo_id: c_uint,
        split_debug_inlining: LLVMBool,
        for_profiling: LLVMBool,
        sysroot: *const c_char,
        sysroot_len: usize,
        sdk: *const c_char,
        sdk_len: usize,
    ) -> LLVMMetadataRef;
}

/// Says of the instructions of a function which lines of the source they are from.
pub struct LineTable<'ctx> {
    builder: LLVMDIBuilderRef,
    context: LLVMContextRef,
    /// The function, as metadata.
    function: LLVMMetadataRef,
    lives: PhantomData<&'ctx LLVMModule>,
}

/// A file of the source.
#[derive(Clone, Copy, Debug)]
pub struct LineFile<'ctx>(LLVMMetadataRef, PhantomData<&'ctx LLVMModule>);

/// A place in the source.
#[derive(Clone, Copy, Debug)]
pub struct LineLocation<'ctx>(LLVMMetadataRef, PhantomData<&'ctx LLVMModule>);

impl<'ctx> LineTable<'ctx> {
    /// For a function that stands at a line of a file.
    pub fn new(
        context: &'ctx Context,
        module: &Module<'ctx>,
        function: FunctionValue<'ctx>,
        file: &str,
        line: u32,
    ) -> LineTable<'ctx> {
        // Metadata of any other version is dropped.
        // SAFETY: it reads a constant.
        let version = context.i32_type().const_int(unsafe { LLVMDebugMetadataVersion() }.into(), false);
        module.add_basic_value_flag("Debug Info Version", FlagBehavior::Warning, version);
        // SAFETY: the module is alive, and outlives the builder; texts are given with their lengths.
        unsafe {
            let builder = LLVMCreateDIBuilder(module.as_mut_ptr());
            let file = make_file(builder, file);
            let unit = make_unit(builder, file);
            let ty = LLVMDIBuilderCreateSubroutineType(builder, file, std::ptr::null_mut(), 0, LLVMDIFlagZero);
            let name = function.get_name().to_bytes();
            let (at, len, none) = (name.as_ptr().cast(), name.len(), ptr(""));
            let flags = LLVMDIFlagZero;
            let own =
                LLVMDIBuilderCreateFunction(builder, unit, at, len, none, 0, file, line, ty, 1, 1, line, flags, 1);
            LLVMSetSubprogram(function.as_value_ref(), own);
            LineTable { builder, context: context.as_ctx_ref(), function: own, lives: PhantomData }
        }
    }

    /// A file by its name.
    pub fn file(&self, name: &str) -> LineFile<'ctx> {
        // SAFETY: the builder is alive, and the function its own.
        let scope = unsafe {
            let file = make_file(self.builder, name);
            LLVMDIBuilderCreateLexicalBlockFile(self.builder, self.function, file, 0)
        };
        LineFile(scope, PhantomData)
    }

    /// A place in a file. Lines and columns count from 1; LLVM keeps 16 bits of a column.
    pub fn location(&self, file: LineFile<'ctx>, line: u32, column: u32) -> LineLocation<'ctx> {
        // SAFETY: the metadata is of this context.
        let at = unsafe { LLVMDIBuilderCreateDebugLocation(self.context, line, column, file.0, std::ptr::null_mut()) };
        LineLocation(at, PhantomData)
    }
}

/// # Safety
/// The builder is alive.
unsafe fn make_file(builder: LLVMDIBuilderRef, name: &str) -> LLVMMetadataRef {
    // SAFETY: promised by the caller; the texts are given with their lengths.
    unsafe { LLVMDIBuilderCreateFile(builder, ptr(name), name.len(), ptr(""), 0) }
}

/// # Safety
/// The builder is alive, and the file its own.
unsafe fn make_unit(builder: LLVMDIBuilderRef, file: LLVMMetadataRef) -> LLVMMetadataRef {
    let language = LLVMDWARFSourceLanguage::LLVMDWARFSourceLanguageRust;
    let (producer, none, kind) = ("tilewright", ptr(""), DIRECTIVES_ONLY);
    let (made_by, len) = (ptr(producer), producer.len());
    // SAFETY: promised by the caller; the texts are given with their lengths.
    unsafe {
        LLVMDIBuilderCreateCompileUnit(
            builder, language, file, made_by, len, 1, none, 0, 0, none, 0, kind, 0, 1, 0, none, 0, none, 0,
        )
    }
}

impl Drop for LineTable<'_> {
    /// What was made stays in the module.
    fn drop(&mut self) {
        // SAFETY: the builder is alive until here.
        unsafe {
            LLVMDIBuilderFinalize(self.builder);
            LLVMDisposeDIBuilder(self.builder);
        }
    }
}

/// The place of the instructions that a builder makes from now on; `None` for no place.
pub fn set_location<'ctx>(builder: &Builder<'ctx>, location: Option<LineLocation<'ctx>>) {
    let location = location.map_or(std::ptr::null_mut(), |location| location.0);
    // SAFETY: the builder is alive, and the location of its context.
    unsafe { LLVMSetCurrentDebugLocation2(builder.as_mut_ptr(), location) }
}

fn ptr(text: &str) -> *const c_char {
    text.as_ptr().cast()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KernelBounds, emit_ptx, load, mark_kernel, new_context, new_module, target_machine};

    #[test]
    fn instructions_have_their_lines_and_ptxas_its_optimiser() {
        let llvm = load().expect("LLVM loads");
        let machine = target_machine(llvm, "sm_90a", "+ptx80").expect("there is a machine");
        let context = new_context(llvm);
        let module = new_module(&context, "lines", &machine);
        let i32 = context.i32_type();
        let pointer = context.ptr_type(inkwell::AddressSpace::from(crate::space::GLOBAL));
        let function = module.add_function("lines", context.void_type().fn_type(&[pointer.into()], false), None);
        mark_kernel(function, &KernelBounds::block(32));
        let builder = context.create_builder();
        builder.position_at_end(context.append_basic_block(function, "entry"));

        let lines = LineTable::new(&context, &module, function, "add.rs", 3);
        let (own, other) = (lines.file("add.rs"), lines.file("half.rs"));
        let at = function.get_nth_param(0).expect("a parameter").into_pointer_value();
        set_location(&builder, Some(lines.location(own, 7, 5)));
        let value = builder.build_load(i32, at, "").expect("it builds").into_int_value();
        set_location(&builder, Some(lines.location(other, 21, 9)));
        let value = builder.build_int_mul(value, value, "").expect("it builds");
        set_location(&builder, Some(lines.location(own, 8, 5)));
        builder.build_store(at, value).expect("it builds");
        builder.build_return(None).expect("it builds");
        drop(lines);

        let ptx = emit_ptx(&module, &machine).expect("it is right");
        let ptx: Vec<&str> = ptx.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let before = |instruction: &str| {
            let at = ptx.iter().position(|line| line.starts_with(instruction)).expect("the instruction is there");
            ptx[at - 1]
        };
        assert_eq!(before("ld.global"), ".loc\t1 7 5");
        assert_eq!(before("mul.lo"), ".loc\t2 21 9");
        assert_eq!(before("st.global"), ".loc\t1 8 5");
        assert!(ptx.contains(&".file\t1 \"add.rs\"") && ptx.contains(&".file\t2 \"half.rs\""), "{ptx:?}");
        assert!(ptx.contains(&".target sm_90a"), "not `, debug`: {ptx:?}");
        assert!(!ptx.iter().any(|line| line.contains(".debug_line") || line.contains(".debug_info")), "{ptx:?}");
    }
}
