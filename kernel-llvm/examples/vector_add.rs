//! Prints the PTX of `out[i] = x[i] + y[i]`, four elements a thread, and how long each step took.
//!
//! ```text
//! cargo run --example vector_add -p tilewright-llvm
//! ```

use std::process::ExitCode;
use std::time::Instant;

use kernel_llvm::inkwell::AddressSpace;
use kernel_llvm::inkwell::context::Context;
use kernel_llvm::inkwell::module::Module;
use kernel_llvm::inkwell::targets::TargetMachine;
use kernel_llvm::inkwell::values::BasicMetadataValueEnum;
use kernel_llvm::{
    AsmEffects, Error, KernelBounds, SlpVectorize, emit_ptx, inline_asm, intrinsic, load, mark_kernel, new_context,
    new_module, optimise, set_alignment, space, target_machine,
};

/// Threads in a block.
const THREADS: u32 = 128;
/// Bytes of four `f32`.
const VECTOR_BYTES: u32 = 16;

fn main() -> ExitCode {
    match compile() {
        Ok(ptx) => {
            println!("{ptx}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Compiles the kernel, and says on standard error how long each step took.
fn compile() -> Result<String, Error> {
    let llvm = load()?;
    eprintln!("LLVM {:?} from {}", llvm.version(), llvm.path().display());
    eprintln!("load: {:?}", llvm.load_time());
    let start = Instant::now();
    let machine = target_machine(llvm, "sm_90a", "+ptx80")?;
    let context = new_context(llvm);
    let module = vector_add(&context, &machine)?;
    eprintln!("machine and build: {:?}", start.elapsed());
    let start = Instant::now();
    optimise(&module, &machine, SlpVectorize::Off)?;
    eprintln!("optimise: {:?}", start.elapsed());
    let start = Instant::now();
    let ptx = emit_ptx(&module, &machine)?;
    eprintln!("emit: {:?}", start.elapsed());
    Ok(ptx)
}

/// Builds the kernel: a vector load from each input, an addition, and a store that a predicate
/// guards instead of a branch.
fn vector_add<'ctx>(context: &'ctx Context, machine: &TargetMachine) -> Result<Module<'ctx>, Error> {
    let module = new_module(context, "vector_add", machine);
    let (i32, f32) = (context.i32_type(), context.f32_type());
    let global = context.ptr_type(AddressSpace::from(space::GLOBAL));
    let vector = f32.vec_type(4);
    let parameters = [global.into(), global.into(), global.into(), i32.into()];
    let kernel = module.add_function("vector_add", context.void_type().fn_type(&parameters, false), None);
    mark_kernel(kernel, &KernelBounds::block(THREADS));

    let builder = context.create_builder();
    builder.position_at_end(context.append_basic_block(kernel, "entry"));
    let register = |name: &str| -> Result<_, Error> {
        let function = intrinsic(&module, name, &[])?;
        let call = builder.build_call(function, &[], "")?;
        Ok(call.try_as_basic_value().unwrap_basic().into_int_value())
    };
    let thread = register("llvm.nvvm.read.ptx.sreg.tid.x")?;
    let block = register("llvm.nvvm.read.ptx.sreg.ctaid.x")?;
    let first = builder.build_int_mul(block, i32.const_int(THREADS.into(), false), "")?;
    let vectors = builder.build_int_add(first, thread, "index")?;
    let parameter = |index| kernel.get_nth_param(index).expect("the kernel has four parameters");
    let at = |index| {
        let base = parameter(index).into_pointer_value();
        // SAFETY: no promise of staying in bounds is attached to the address.
        unsafe { builder.build_gep(vector, base, &[vectors], "") }
    };
    let load = |index| -> Result<_, Error> {
        let value = builder.build_load(vector, at(index)?, "")?;
        set_alignment(value, VECTOR_BYTES);
        Ok(value.into_vector_value())
    };
    let sum = builder.build_float_add(load(0)?, load(1)?, "sum")?;
    let count = parameter(3).into_int_value();
    let inside = builder.build_int_compare(kernel_llvm::inkwell::IntPredicate::ULT, vectors, count, "")?;

    let element = |lane: u64| builder.build_extract_element(sum, i32.const_int(lane, false), "");
    let operands: [BasicMetadataValueEnum; 6] =
        [inside.into(), at(2)?.into(), element(0)?.into(), element(1)?.into(), element(2)?.into(), element(3)?.into()];
    let i1 = context.bool_type();
    let types = [i1.into(), global.into(), f32.into(), f32.into(), f32.into(), f32.into()];
    let store = context.void_type().fn_type(&types, false);
    let assembly = "@$0 st.global.v4.f32 [$1], {$2, $3, $4, $5};";
    inline_asm(&builder, store, assembly, "b,l,f,f,f,f", &operands, AsmEffects::Memory)?;
    builder.build_return(None)?;
    Ok(module)
}
