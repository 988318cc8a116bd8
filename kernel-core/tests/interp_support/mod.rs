//! Running kernels in the text form in the interpreter.

// Each test binary uses a part of this.
#![allow(dead_code)]

use kernel_core::interp::{Fault, FaultKind, HostBuffer, HostElement, HostScalar, run_kernel, run_placed};
use kernel_core::ir::{Bound, Placed};
use kernel_core::text::parse;
use kernel_core::verify::verify;

/// A bound kernel from its parameters and body, verified.
pub fn bound(params: &str, body: &str) -> Bound {
    let text = format!("kernel test \"test.rs\" safe bound {{\n{params}\n{body}\nreturn\n}}\n");
    let func = parse(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    if let Err(errors) = verify(&func) {
        panic!("{errors:?}\n{text}");
    }
    Bound::new(func).expect("the text says `bound`")
}

/// A placed kernel. Its tiles lack layouts, which the interpreter ignores, so it is not verified.
pub fn placed(params: &str, body: &str) -> Placed {
    let text = format!("kernel test \"test.rs\" safe placed {{\n{params}\n{body}\nreturn\n}}\n");
    Placed::new(parse(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"))).expect("the text says `placed`")
}

/// Runs a bound kernel that must not fault; returns its buffers.
pub fn run(func: &Bound, buffers: Vec<HostBuffer>, scalars: &[HostScalar], grid: [u32; 3]) -> Vec<HostBuffer> {
    let (buffers, result) = try_run(func, buffers, scalars, grid);
    result.unwrap_or_else(|fault| panic!("{fault}"));
    buffers
}

/// Runs a bound kernel; returns its buffers and how it went.
pub fn try_run(
    func: &Bound,
    mut buffers: Vec<HostBuffer>,
    scalars: &[HostScalar],
    grid: [u32; 3],
) -> (Vec<HostBuffer>, Result<(), Fault>) {
    let result = run_kernel(func, &mut buffers, scalars, grid);
    (buffers, result)
}

/// Runs a placed kernel with one program.
pub fn try_run_placed(func: &Placed, mut buffers: Vec<HostBuffer>) -> (Vec<HostBuffer>, Result<(), Fault>) {
    let result = run_placed(func, &mut buffers, &[], [1, 1, 1]);
    (buffers, result)
}

/// The kind of the fault that a run ended with.
pub fn fault(result: Result<(), Fault>) -> FaultKind {
    result.expect_err("the kernel must fault").kind
}

/// The elements of a buffer.
pub fn elements<T: HostElement>(buffer: &HostBuffer) -> Vec<T> {
    buffer.as_slice().unwrap_or_else(|| panic!("the buffer is of {}", buffer.dtype())).to_vec()
}

/// Lines that make pointers `%name: *param[n]` to the elements `0..n` of parameter `%param`.
pub fn pointers(name: &str, param: &str, n: usize) -> String {
    format!(
        "%{name}_i: i32[{n}] = arange {{lo = 0, hi = {n}}}\n\
         %{name}_s: *{param}[{n}] = splat %{param}\n\
         %{name}: *{param}[{n}] = add_ptr %{name}_s, %{name}_i\n"
    )
}

/// Applies an operation to whole buffers: `%r = {op}` of `%a`, `%b`, `%c` as far as there are inputs, which
/// must be of one length.
pub fn map(op: &str, inputs: Vec<HostBuffer>, result: kernel_core::ir::DType) -> HostBuffer {
    let n = inputs[0].len();
    let block = n.next_power_of_two();
    let (mut params, mut body) = (String::new(), String::new());
    body += &format!("%ix: i32[{block}] = arange {{lo = 0, hi = {block}}}\n%n: i32 = const {n}\n");
    body += &format!("%ns: i32[{block}] = splat %n\n%mask: bool[{block}] = cmp.lt %ix, %ns\n");
    for (name, input) in ["a", "b", "c"].iter().zip(&inputs) {
        let dtype = input.dtype();
        params += &format!("param %p{name} p{name}: ptr {dtype}\n");
        body += &pointers(&format!("q{name}"), &format!("p{name}"), block);
        body += &format!("%{name}: {dtype}[{block}] = load %q{name}, %mask\n");
    }
    params += &format!("param %pr pr: ptr_mut {result}\n");
    body += &format!("%r: {result}[{block}] = {op}\n");
    body += &pointers("qr", "pr", block);
    body += "store %qr, %r, %mask\n";
    let mut buffers = inputs;
    buffers.push(HostBuffer::zeros(result, n));
    run(&bound(&params, &body), buffers, &[], [1, 1, 1]).pop().expect("the result is the last buffer")
}
