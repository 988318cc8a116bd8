//! The `; run:` lines of `kernel-core`'s `.tile` file tests, on generated code: the PTX runs on the CPU, thread by
//! thread in random orders, and must do what the lines say, faults included.

mod support;

use std::path::Path;

use kernel_codegen::checks::LaunchEnv;
use kernel_codegen::{Checks, Compiled, Options, Target, TensorCopies, compile};
use kernel_core::interp::{HostBuffer, HostTensor};
use kernel_core::ir::Literal;
use kernel_core::ir::{Bound, DType, ParamKind};
use kernel_core::num::from_bits;
use support::differential::{Agreement, Given, compare, emulate_with_tensors, from_bytes};
use tilewright_filetests::{Argument, Case, Failure, RunLine, split_cases};

/// A line's arguments as the emulator takes them.
struct Launch<'l> {
    line: &'l str,
    buffers: Vec<HostBuffer>,
    /// What the buffers must hold afterwards, where the line says so.
    after: Vec<Option<HostBuffer>>,
    /// How descriptors see their buffers.
    tensors: Vec<HostTensor>,
    scalars: Vec<i32>,
    grid: u32,
    faults: bool,
}

fn buffer(dtype: DType, bits: &[u64]) -> HostBuffer {
    let size = dtype.bytes() as usize;
    let bytes: Vec<u8> = bits.iter().flat_map(|bits| bits.to_le_bytes()[..size].to_vec()).collect();
    from_bytes(dtype, &bytes)
}

impl<'l> Launch<'l> {
    fn new(line: &'l str, kernel: &Bound) -> Result<Launch<'l>, String> {
        let run = RunLine::parse(line)?;
        let [grid, 1, 1] = run.grid()? else { return Err("the emulator's grid has one axis".to_string()) };
        let faults = run.fault.is_some();
        let (buffers, after, tensors, scalars) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut launch = Launch { line, buffers, after, tensors, scalars, grid, faults };
        for argument in run.arguments(kernel.func())? {
            match argument {
                Argument::Buffer { dtype, bits, after, tensor, .. } => {
                    launch.tensors.extend(tensor);
                    launch.buffers.push(buffer(dtype, &bits));
                    launch.after.push(after.map(|bits| buffer(dtype, &bits)));
                }
                Argument::Scalar(dtype, bits) => match (from_bits(bits, dtype), dtype) {
                    (Literal::Int(number), DType::I32) => launch.scalars.push(number as i32),
                    _ => return Err("the emulator's scalars are i32".to_string()),
                },
            }
        }
        Ok(launch)
    }

    /// Whether a variant's launch conditions hold; without checks it must not run otherwise.
    fn may_run(&self, kernel: &Bound, compiled: &Compiled) -> bool {
        let (mut buffers, mut scalars) = (self.buffers.iter(), self.scalars.iter());
        let (mut lengths, mut numbers) = (Vec::new(), Vec::new());
        for param in &kernel.func().params {
            let is_buffer = matches!(param.kind, ParamKind::Ptr { .. } | ParamKind::Desc { .. });
            let is_scalar = matches!(param.kind, ParamKind::Scalar(_));
            lengths.push(if is_buffer { buffers.next().map_or(0, |buffer| buffer.len() as u64) } else { 0 });
            numbers.push(if is_scalar { scalars.next().map(|&number| i128::from(number)) } else { None });
        }
        let env = LaunchEnv { scalars: &numbers, lengths: &lengths, grid: [self.grid, 1, 1] };
        compiled.conditions.hold(&env)
    }

    fn check(&self, kernel: &Bound) -> Result<(), String> {
        let mut ran = 0;
        for checks in [Checks::AtLaunch, Checks::EveryAccess] {
            for num_warps in [1, 4] {
                // The emulator has no tensor copies.
                let tensor_copies = TensorCopies::Never;
                let options = Options { num_warps, checks, tensor_copies, ..Options::default() };
                let compiled = compile(kernel, &Target::sm_90a(), &options).map_err(|error| error.to_string())?;
                if !self.may_run(kernel, &compiled) {
                    continue;
                }
                ran += 1;
                let given = Given { buffers: &self.buffers, tensors: &self.tensors, scalars: &self.scalars };
                for seed in 1..3 {
                    let (found, record) = emulate_with_tensors(kernel, &compiled, &given, self.grid, seed);
                    let what = format!("run: {}\n{checks:?}, {num_warps} warps\n{}", self.line, compiled.ptx);
                    for (want, got) in self.after.iter().zip(&found) {
                        if let Some(want) = want {
                            compare(want, got, Agreement::Exact, &what);
                        }
                    }
                    assert_eq!(record[0] != 0, self.faults, "whether there is a report; {what}");
                }
            }
        }
        if ran > 0 { Ok(()) } else { Err("no variant ran".to_string()) }
    }
}

fn check_case(case: &Case<'_>) -> Result<usize, String> {
    for line in &case.runs {
        let text = |failure| match failure {
            Failure::Test(message) => message,
            Failure::Kernel(errors) => errors[0].to_string(),
        };
        let kernel = Bound::new(case.run_stages().map_err(text)?).map_err(|_| "the kernel is not bound")?;
        Launch::new(line, &kernel)?.check(&kernel)?;
    }
    Ok(case.runs.len())
}

#[test]
fn run_lines_hold_in_generated_code() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernel-core/tests/filetests/run");
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut count = 0;
    for path in entries.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "tile"))
    {
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for case in split_cases(&text) {
            let checked = check_case(&case);
            count += checked.unwrap_or_else(|error| panic!("{}:{}: {error}", path.display(), case.line));
        }
    }
    assert!(count > 0, "no file has a `; run:` line");
}
