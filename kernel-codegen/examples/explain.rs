//! Prints what becomes of a kernel: its report, its layouts, its PTX, and how long each stage took.
//!
//! ```text
//! cargo run -p tilewright-codegen --example explain -- kernel-codegen/tests/kernels/softmax.tile 8 [ir|llvm|ptx|time [sm_80]]
//! ```

use kernel_codegen::{Options, Target, compile};
use kernel_core::ir::Bound;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let path = arguments.first().ok_or("usage: explain FILE [WARPS [ir|llvm|ptx|time [TARGET]]]")?;
    let num_warps = arguments.get(1).map_or(Ok(4), |warps| warps.parse())?;
    let what = arguments.get(2).map_or("ptx", String::as_str);
    let func = kernel_core::text::parse(&std::fs::read_to_string(path)?)?;
    let kernel = Bound::new(func).map_err(|func| format!("`{}` is not at the bound level", func.name))?;
    let wanted = arguments.get(3).map_or("sm_90a", String::as_str);
    let target = Target::named(wanted).ok_or("no such target")?;
    let options = Options { num_warps, keep_llvm_ir: what == "llvm", ..Options::default() };
    let compiled = compile(&kernel, &target, &options)?;
    match what {
        "ir" => println!("{}", compiled.placed_ir()),
        "llvm" => {
            if let Some(ir) = &compiled.llvm_ir {
                println!("{}\n{}", ir.lowered, ir.optimised);
            }
        }
        "time" => {
            // The first compilation also loads LLVM and fills its tables.
            for _ in 0..5 {
                let timings = compile(&kernel, &target, &options)?.timings;
                println!("{timings}");
            }
        }
        _ => println!("{}", compiled.ptx),
    }
    print!("{}", compiled.report());
    Ok(())
}
