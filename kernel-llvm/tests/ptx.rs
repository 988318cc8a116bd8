//! From a module built with inkwell to PTX text.

use kernel_llvm::inkwell::attributes::AttributeLoc;
use kernel_llvm::inkwell::builder::Builder;
use kernel_llvm::inkwell::context::Context;
use kernel_llvm::inkwell::module::Module;
use kernel_llvm::inkwell::targets::TargetMachine;
use kernel_llvm::inkwell::types::BasicMetadataTypeEnum;
use kernel_llvm::inkwell::values::{
    BasicMetadataValueEnum, FastMathFlags, FloatValue, FunctionValue, IntValue, PointerValue,
};
use kernel_llvm::inkwell::{AddressSpace, IntPredicate};
use kernel_llvm::{
    AsmEffects, Error, KernelBounds, LoopHint, ParameterFact, SlpVectorize, data_layout, dynamic_shared_memory,
    emit_ptx, inline_asm, intrinsic, load, mark_grid_constant, mark_kernel, mark_parameter, new_context, new_module,
    optimise, set_alignment, set_fast_math, set_loop_hint, set_volatile, space, target_machine,
};

fn context() -> Context {
    new_context(load().expect("the toolchain has an LLVM"))
}

fn machine() -> TargetMachine {
    let llvm = load().expect("the toolchain has an LLVM");
    target_machine(llvm, "sm_90a", "+ptx80").expect("LLVM knows the machine")
}

/// A kernel under construction.
struct Kernel<'ctx> {
    context: &'ctx Context,
    module: Module<'ctx>,
    function: FunctionValue<'ctx>,
    builder: Builder<'ctx>,
}

impl<'ctx> Kernel<'ctx> {
    /// A kernel `k` with `pointers` pointers to global memory followed by one `i32`.
    fn new(context: &'ctx Context, pointers: usize) -> Self {
        let module = new_module(context, "test", &machine());
        let global = context.ptr_type(AddressSpace::from(space::GLOBAL));
        let mut parameters: Vec<BasicMetadataTypeEnum> = vec![global.into(); pointers];
        parameters.push(context.i32_type().into());
        let ty = context.void_type().fn_type(&parameters, false);
        let function = module.add_function("k", ty, None);
        mark_kernel(function, &KernelBounds::block(128));
        let builder = context.create_builder();
        builder.position_at_end(context.append_basic_block(function, "entry"));
        Kernel { context, module, function, builder }
    }

    fn pointer(&self, index: u32) -> PointerValue<'ctx> {
        self.function.get_nth_param(index).expect("a parameter").into_pointer_value()
    }

    fn scalar(&self) -> IntValue<'ctx> {
        self.function.get_last_param().expect("a parameter").into_int_value()
    }

    /// Loads the `f32` at the start of a pointer parameter.
    fn load(&self, index: u32) -> FloatValue<'ctx> {
        let value = self.builder.build_load(self.context.f32_type(), self.pointer(index), "");
        value.expect("the builder has a position").into_float_value()
    }

    /// Ends the kernel and compiles it.
    fn ptx(self) -> String {
        self.builder.build_return(None).expect("the builder has a position");
        let machine = machine();
        optimise(&self.module, &machine, SlpVectorize::On).expect("the module is valid");
        emit_ptx(&self.module, &machine).expect("code can be generated")
    }
}

fn has(ptx: &str, parts: &[&str]) {
    for part in parts {
        assert!(ptx.contains(part), "no `{part}` in:\n{ptx}");
    }
}

#[test]
fn the_header_follows_the_machine_and_shared_pointers_are_short() {
    let context = context();
    let ptx = Kernel::new(&context, 1).ptx();
    has(&ptx, &[".version 8.0\n", ".target sm_90a\n", ".visible .entry k(", ".reqntid 128, 1, 1"]);
    let layout = data_layout(&machine());
    has(&layout, &["p3:32:32", "p4:32:32", "p5:32:32", "i64:64", "n16:32:64"]);
}

#[test]
fn aligned_vectors_load_whole_and_asm_stores_under_a_predicate() -> Result<(), Error> {
    let context = context();
    let k = Kernel::new(&context, 3);
    let (f32, i32) = (context.f32_type(), context.i32_type());
    let load = |index| -> Result<_, Error> {
        let value = k.builder.build_load(f32.vec_type(4), k.pointer(index), "")?;
        set_alignment(value, 16);
        Ok(value.into_vector_value())
    };
    let sum = k.builder.build_float_add(load(0)?, load(1)?, "")?;
    let inside = k.builder.build_int_compare(IntPredicate::ULT, k.scalar(), i32.const_int(7, false), "")?;
    let mut operands: Vec<BasicMetadataValueEnum> = vec![inside.into(), k.pointer(2).into()];
    for lane in 0..4 {
        let lane = i32.const_int(lane, false);
        operands.push(k.builder.build_extract_element(sum, lane, "")?.into());
    }
    let pointer = context.ptr_type(AddressSpace::from(space::GLOBAL)).into();
    let float = f32.into();
    let types = [context.bool_type().into(), pointer, float, float, float, float];
    let store = context.void_type().fn_type(&types, false);
    let assembly = "@$0 st.global.v4.f32 [$1], {$2, $3, $4, $5};";
    let effects = AsmEffects::Memory;
    inline_asm(&k.builder, store, assembly, "b,l,f,f,f,f", &operands, effects)?;
    let ptx = k.ptx();
    has(&ptx, &[".reqntid 128", "ld.global.v4.b32", "add.rn.f32", "setp.lt.u32"]);
    assert!(ptx.contains("@%p1 st.global.v4.f32 [%rd"), "{ptx}");
    assert!(!ptx.contains("bra"), "a masked store is no branch:\n{ptx}");
    Ok(())
}

/// `out = x * y + z`, with the given flags on both operations.
fn multiply_add(flags: FastMathFlags) -> Result<String, Error> {
    let context = context();
    let k = Kernel::new(&context, 4);
    let product = k.builder.build_float_mul(k.load(0), k.load(1), "")?;
    let sum = k.builder.build_float_add(product, k.load(2), "")?;
    for value in [product, sum] {
        set_fast_math(value, flags);
    }
    k.builder.build_store(k.pointer(3), sum)?;
    Ok(k.ptx())
}

#[test]
fn contract_alone_decides_about_fused_multiply_adds() -> Result<(), Error> {
    let with = multiply_add(FastMathFlags::AllowContract)?;
    has(&with, &["fma.rn.f32"]);
    assert!(!with.contains("mul.rn.f32"), "{with}");
    let without = multiply_add(FastMathFlags::empty())?;
    has(&without, &["mul.rn.f32", "add.rn.f32"]);
    assert!(!without.contains("fma"), "{without}");
    Ok(())
}

#[test]
fn elementwise_work_on_halves_is_packed_in_pairs() -> Result<(), Error> {
    let context = context();
    let k = Kernel::new(&context, 2);
    let vector = context.f16_type().vec_type(8);
    let values = k.builder.build_load(vector, k.pointer(0), "")?;
    set_alignment(values, 16);
    let mut result = vector.get_poison();
    for lane in 0..8 {
        let lane = context.i32_type().const_int(lane, false);
        let element = k.builder.build_extract_element(values.into_vector_value(), lane, "")?;
        let element = element.into_float_value();
        let square = k.builder.build_float_mul(element, element, "")?;
        let sum = k.builder.build_float_add(square, element, "")?;
        for value in [square, sum] {
            set_fast_math(value, FastMathFlags::AllowContract);
        }
        result = k.builder.build_insert_element(result, sum, lane, "")?;
    }
    let store = k.builder.build_store(k.pointer(1), result)?;
    set_alignment(store, 16);
    let ptx = k.ptx();
    assert_eq!(ptx.matches("fma.rn.f16x2").count(), 4, "{ptx}");
    has(&ptx, &["ld.global.v4.b32", "st.global.v4.b32"]);
    Ok(())
}

#[test]
fn flags_on_a_folded_constant_are_no_error() -> Result<(), Error> {
    let context = context();
    let k = Kernel::new(&context, 1);
    let one = context.f32_type().const_float(1.0);
    let folded = k.builder.build_float_add(one, one, "")?;
    set_fast_math(folded, FastMathFlags::AllowContract);
    set_alignment(folded, 16);
    k.builder.build_store(k.pointer(0), folded)?;
    has(&k.ptx(), &["1073741824"]);
    Ok(())
}

#[test]
fn bounds_parameters_and_shared_memory_appear_in_the_header() -> Result<(), Error> {
    let context = context();
    let module = new_module(&context, "test", &machine());
    let generic = context.ptr_type(AddressSpace::from(space::GENERIC));
    let global = context.ptr_type(AddressSpace::from(space::GLOBAL));
    let ty = context.void_type().fn_type(&[global.into(), generic.into(), global.into()], false);
    let function = module.add_function("k", ty, None);
    let bounds = KernelBounds { min_blocks: Some(1), ..KernelBounds::block(384) };
    mark_kernel(function, &bounds);
    for fact in [ParameterFact::NoAlias, ParameterFact::ReadOnly, ParameterFact::Aligned(16)] {
        mark_parameter(function, 0, fact);
    }
    mark_grid_constant(function, 1, context.i8_type().array_type(128), 64);
    let shared = dynamic_shared_memory(&module, "smem", 1024);
    assert_eq!(shared, dynamic_shared_memory(&module, "smem", 1024));

    let builder = context.create_builder();
    builder.position_at_end(context.append_basic_block(function, "entry"));
    let parameter = |index| function.get_nth_param(index).expect("present").into_pointer_value();
    let i32 = context.i32_type();
    let value = builder.build_load(i32, parameter(0), "")?.into_int_value();
    // SAFETY: the address makes no promise of staying in bounds.
    let slot = unsafe { builder.build_gep(context.i8_type(), shared.as_pointer_value(), &[value], "")? };
    let store = builder.build_store(slot, value)?;
    set_volatile(store);
    let map = builder.build_load(i32, parameter(1), "")?;
    builder.build_store(parameter(2), map)?;
    builder.build_return(None)?;
    let machine = machine();
    optimise(&module, &machine, SlpVectorize::On)?;
    let ptx = emit_ptx(&module, &machine)?;
    has(
        &ptx,
        &[
            ".reqntid 384, 1, 1",
            ".minnctapersm 1",
            ".param .u64 .ptr .global .align 16 k_param_0",
            ".param .align 64 .b8 k_param_1[128]",
            ".extern .shared .align 1024 .b8 smem[]",
            "ld.global.nc.b32",
            "st.volatile.shared.b32",
        ],
    );
    assert!(!ptx.contains(".maxntid"), "ptxas refuses it beside .reqntid:\n{ptx}");
    assert!(!ptx.contains(".local"), "the tensor map is not copied:\n{ptx}");
    Ok(())
}

/// A loop of `trips` rounds around one inline assembly with these effects.
fn asm_in_loop(effects: AsmEffects, trips: u64, hint: Option<LoopHint>) -> Result<String, Error> {
    let context = context();
    let k = Kernel::new(&context, 1);
    let i32 = context.i32_type();
    let entry = k.builder.get_insert_block().expect("positioned");
    let body = context.append_basic_block(k.function, "body");
    let exit = context.append_basic_block(k.function, "exit");
    k.builder.build_unconditional_branch(body)?;
    k.builder.position_at_end(body);
    let index = k.builder.build_phi(i32, "")?;
    let asm = context.void_type().fn_type(&[], false);
    inline_asm(&k.builder, asm, "// here", "", &[], effects)?;
    let next = k.builder.build_int_add(index.as_basic_value().into_int_value(), i32.const_int(1, false), "")?;
    index.add_incoming(&[(&i32.const_zero(), entry), (&next, body)]);
    let end = match trips {
        0 => k.scalar(),
        _ => i32.const_int(trips, false),
    };
    let again = k.builder.build_int_compare(IntPredicate::ULT, next, end, "")?;
    let latch = k.builder.build_conditional_branch(again, body, exit)?;
    if let Some(hint) = hint {
        set_loop_hint(&k.module, latch, hint);
    }
    k.builder.position_at_end(exit);
    Ok(k.ptx())
}

#[test]
fn loop_hints_reach_the_ptx() -> Result<(), Error> {
    let count = |ptx: &str| ptx.matches("// here").count();
    let kept = asm_in_loop(AsmEffects::Ordered, 4, Some(LoopHint::NoUnroll))?;
    assert_eq!(count(&kept), 1, "{kept}");
    has(&kept, &[".pragma \"nounroll\""]);
    let full = asm_in_loop(AsmEffects::Ordered, 12, Some(LoopHint::UnrollFully))?;
    assert_eq!(count(&full), 12, "{full}");
    let partly = asm_in_loop(AsmEffects::Ordered, 64, Some(LoopHint::Unroll(2)))?;
    assert_eq!(count(&partly), 2, "{partly}");
    Ok(())
}

#[test]
fn convergent_asm_is_not_duplicated_by_run_time_unrolling() -> Result<(), Error> {
    let hint = Some(LoopHint::Unroll(4));
    let count = |ptx: &str| ptx.matches("// here").count();
    let plain = asm_in_loop(AsmEffects::Ordered, 0, hint)?;
    assert!(count(&plain) > 1, "otherwise this test shows nothing:\n{plain}");
    for effects in [AsmEffects::Convergent, AsmEffects::ConvergentMemory] {
        let kept = asm_in_loop(effects, 0, hint)?;
        assert_eq!(count(&kept), 1, "{kept}");
    }
    Ok(())
}

#[test]
fn pure_asm_without_users_vanishes_and_memory_asm_keeps_loads_apart() -> Result<(), Error> {
    let context = context();
    let k = Kernel::new(&context, 2);
    let f32 = context.f32_type();
    let pure = f32.fn_type(&[f32.into()], false);
    let argument = [k.load(0).into()];
    inline_asm(&k.builder, pure, "// unused $0, $1", "=f,f", &argument, AsmEffects::Pure)?;
    let before = k.load(0);
    let fence = context.void_type().fn_type(&[], false);
    inline_asm(&k.builder, fence, "// fence", "", &[], AsmEffects::Memory)?;
    let sum = k.builder.build_float_add(before, k.load(0), "")?;
    k.builder.build_store(k.pointer(1), sum)?;
    let ptx = k.ptx();
    assert!(!ptx.contains("unused"), "{ptx}");
    assert_eq!(ptx.matches("ld.global").count(), 2, "the fence separates the loads:\n{ptx}");
    Ok(())
}

#[test]
fn asm_with_the_wrong_number_of_operands_is_an_error() {
    let context = context();
    let k = Kernel::new(&context, 1);
    let i32 = context.i32_type();
    let ty = context.void_type().fn_type(&[i32.into()], false);
    let result = inline_asm(&k.builder, ty, "// $0", "r", &[], AsmEffects::Pure);
    assert!(matches!(result, Err(Error::Builder(message)) if message.contains("1 operands given 0")));
}

#[test]
fn intrinsics_are_found_by_exact_name_only() {
    let context = context();
    let module = new_module(&context, "test", &machine());
    let f32 = context.f32_type().into();
    assert!(intrinsic(&module, "llvm.nvvm.read.ptx.sreg.tid.x", &[]).is_ok());
    let fma = intrinsic(&module, "llvm.fma", &[f32]).expect("known");
    assert_eq!(fma.get_name().to_bytes(), b"llvm.fma.f32");
    for (name, types) in
        [("llvm.nvvm.no.such.thing", &[][..]), ("llvm.fma", &[][..]), ("llvm.nvvm.read.ptx.sreg.tid.x", &[f32][..])]
    {
        let found = intrinsic(&module, name, types);
        assert!(matches!(found, Err(Error::Intrinsic { .. })), "{name} {types:?} gave {found:?}");
    }
}

#[test]
fn an_invalid_module_is_an_error_at_both_steps() -> Result<(), Error> {
    let context = context();
    let k = Kernel::new(&context, 1);
    // The block has no terminator.
    let machine = machine();
    let Err(Error::Invalid { module, stage, message }) = optimise(&k.module, &machine, SlpVectorize::On) else {
        panic!("the verifier must refuse it");
    };
    assert_eq!((module.as_str(), stage), ("test", "before optimising"));
    assert!(message.contains("terminator"), "{message}");
    let emitted = emit_ptx(&k.module, &machine);
    assert!(matches!(emitted, Err(Error::Invalid { stage: "before code generation", .. })));
    Ok(())
}

#[test]
fn errors_that_llvm_reports_to_the_context_do_not_exit() -> Result<(), Error> {
    let context = context();
    let k = Kernel::new(&context, 1);
    // A register that the machine lacks: LLVM reports an error through the context, whose default
    // handler would end the process.
    let i32 = context.i32_type();
    let ty = context.void_type().fn_type(&[i32.into()], false);
    let operand = [k.scalar().into()];
    inline_asm(&k.builder, ty, "// $0", "{no_such}", &operand, AsmEffects::Ordered)?;
    k.builder.build_return(None)?;
    let machine = machine();
    optimise(&k.module, &machine, SlpVectorize::On)?;
    let Err(Error::Failed { module, stage, message }) = emit_ptx(&k.module, &machine) else {
        panic!("LLVM must refuse the constraint");
    };
    assert_eq!((module.as_str(), stage), ("test", "generating code for"));
    assert!(message.contains("constraint"), "{message}");
    Ok(())
}

#[test]
fn a_fatal_error_names_tilewright_and_the_module() {
    const CHILD: &str = "TILEWRIGHT_FATAL_TEST_CHILD";
    const NAME: &str = "a_fatal_error_names_tilewright_and_the_module";
    if std::env::var_os(CHILD).is_some() {
        // sm_80 has no `elect.sync`: instruction selection gives up.
        let llvm = load().expect("the toolchain has an LLVM");
        let old = target_machine(llvm, "sm_80", "+ptx80").expect("LLVM knows the machine");
        let context = context();
        let k = Kernel::new(&context, 1);
        let elect = intrinsic(&k.module, "llvm.nvvm.elect.sync", &[]).expect("known");
        let call = k.builder.build_call(elect, &[k.scalar().into()], "").expect("positioned");
        let pair = call.try_as_basic_value().unwrap_basic().into_struct_value();
        let lane = k.builder.build_extract_value(pair, 0, "").expect("positioned");
        k.builder.build_store(k.pointer(0), lane).expect("positioned");
        k.builder.build_return(None).expect("positioned");
        let ptx = emit_ptx(&k.module, &old);
        println!("survived: {ptx:?}");
        return;
    }
    let this = std::env::current_exe().expect("this test binary has a path");
    let output = std::process::Command::new(this)
        .args(["--exact", NAME, "--nocapture"])
        .env(CHILD, "1")
        .output()
        .expect("this test binary runs");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    if cfg!(not(feature = "link-llvm")) {
        let expected = "Tilewright: LLVM met a fatal error while generating code for module `test`";
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn the_same_module_gives_the_same_text_every_time() -> Result<(), Error> {
    let first = asm_in_loop(AsmEffects::Ordered, 12, None)?;
    let threads: Vec<_> = (0..3).map(|_| std::thread::spawn(|| asm_in_loop(AsmEffects::Ordered, 12, None))).collect();
    for thread in threads {
        assert_eq!(thread.join().expect("no panic")?, first);
    }
    Ok(())
}

#[test]
fn reading_attributes_back_gives_what_was_set() {
    let context = context();
    let k = Kernel::new(&context, 1);
    assert_eq!(k.function.get_call_conventions(), kernel_llvm::PTX_KERNEL);
    let attribute = k.function.get_string_attribute(AttributeLoc::Function, "nvvm.reqntid");
    let attribute = attribute.expect("set by mark_kernel");
    assert_eq!(attribute.get_string_value().to_bytes(), b"128,1,1");
}
