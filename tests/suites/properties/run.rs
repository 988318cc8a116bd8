//! Runs a kernel in the interpreter without the runtime around it.

use kernel_core::interp::{Fault, HostBuffer, HostScalar, run_kernel, run_ordered};
use kernel_core::ir::{Bound, Generic, Placed};
use kernel_core::passes::{Bindings, bind};
use kernel_core::text;
use tilewright_tests::case::{Arg, Case, from_host, to_host};
use tilewright_tests::data::Data;

/// The kernel of a case, bound and not yet optimised.
pub fn bound(case: &Case) -> Bound {
    let func = case.func.clone();
    let generic = Generic::new(func).unwrap_or_else(|func| panic!("not generic:\n{}", text::print(&func)));
    bind(&generic, &Bindings::default()).unwrap_or_else(|errors| panic!("{errors:?}\n{}", text::print(generic.func())))
}

/// What the kernel's outputs hold after a run on the case's arguments.
pub fn interpret(kernel: &Bound, case: &Case) -> Vec<Data> {
    run(case, |buffers, scalars, grid| run_kernel(kernel, buffers, scalars, grid))
        .unwrap_or_else(|fault| panic!("{fault}\n{}", text::print(kernel.func())))
}

/// As [`interpret`], of the placed kernel: with copies that take their time, and faults where nothing orders accesses
/// to shared memory.
///
/// # Errors
/// What goes wrong there.
pub fn interpret_placed(kernel: &Placed, case: &Case) -> Result<Vec<Data>, Fault> {
    run(case, |buffers, scalars, grid| run_ordered(kernel, buffers, &[], scalars, grid))
}

/// Calls `launch` with the arguments of a case, and gives the outputs.
fn run(
    case: &Case,
    launch: impl FnOnce(&mut [HostBuffer], &[HostScalar], [u32; 3]) -> Result<(), Fault>,
) -> Result<Vec<Data>, Fault> {
    let (mut buffers, mut scalars, mut outputs) = (Vec::new(), Vec::new(), Vec::new());
    for arg in &case.args {
        match arg {
            Arg::In(data) => buffers.push(to_host(data)),
            Arg::Out { before, .. } => {
                outputs.push(buffers.len());
                buffers.push(to_host(before));
            }
            Arg::Scalar(dtype, bits) => scalars.push(HostScalar::from_bits(*dtype, *bits)),
        }
    }
    launch(&mut buffers, &scalars, case.grid.map(|n| n as u32))?;
    Ok(outputs.into_iter().map(|index| from_host(&buffers[index])).collect())
}
