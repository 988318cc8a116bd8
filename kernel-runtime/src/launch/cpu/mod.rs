//! The CPU backend: the interpreter runs the bound tile IR.
//!
//! The kernel has run when `launch` returns. What fails in it is reported like on a GPU all the
//! same: to the stream, for whoever reads what the launch wrote.

pub(super) mod variant;

use super::args::{Arg, enter};
use super::bind::shown_values;
use super::invocation::{Dispatch, Invocation};
use super::kernel::Kernel;
use super::key::Key;
use super::loads;
use super::made::{For, Outcome};
use super::spec::{ParamSpecs, Spec, Tuning};
use crate::error::{Error, Result};
use crate::graph::{HostLaunch, capture};
use crate::report_slot::LaunchId;
use crate::settings;
use crate::storage::Address;
use crate::tensor::{Inner, Padding};
use kernel_core::backend::Checks;
use kernel_core::interp;
use smallvec::SmallVec;
use std::time::Duration;
use variant::CpuVariant;

/// Stands for the CPU in keys.
const CPU: u64 = 0;

/// A launch in the interpreter's terms.
struct CpuLaunch {
    kernel: &'static Kernel,
    variant: &'static CpuVariant,
    inputs: SmallVec<[interp::Arg; 12]>,
    grid: [u32; 3],
    /// How long it may take.
    limit: Option<Duration>,
}

/// Runs the kernel, or records it.
pub(super) fn launch(call: &mut Invocation<'_>, dispatch: &Dispatch<'_>) -> Result<()> {
    let kernel = call.kernel;
    let num_warps = call.tuning()?.num_warps;
    // The number of warps is nothing to the interpreter, but perhaps to the kernel.
    let asked = num_warps.filter(|_| kernel.definition().asks_for_warps());
    let mut tuning = Tuning { num_warps: asked, ..Tuning::default() };
    let (variant, inputs) = loop {
        let variant = call.with_spec(tuning, |spec| -> Result<_> {
            let variant = variant(kernel, spec)?;
            let shown = || shown_values(kernel.definition(), spec);
            variant.largest.check(kernel.definition(), &variant.names.files, num_warps, shown)?;
            Ok(variant)
        })?;
        match variant.made.make(kernel.definition(), &call.args, tuning.rough_tensors, For::Cpu)? {
            Outcome::Tensors(tensors) => break (variant, inputs(kernel, variant, &call.args, &tensors)?),
            Outcome::Rough(bits) => tuning.rough_tensors |= bits,
        }
    };
    let limit = call.time_limit.map_or_else(settings::time_limit, |limit| Ok(Some(limit)))?;
    let launch = CpuLaunch { kernel, variant, inputs, grid: dispatch.grid, limit };
    if capture::is_active() {
        return capture::record(dispatch.stream, |recording| {
            for (index, arg) in call.args.iter().enumerate() {
                arg.note(recording, variant.loads.loads_from(index))?;
            }
            recording.add_host_launch(Box::new(launch))
        });
    }
    let id = LaunchId::next();
    // Until the end, as the kernel runs here and now.
    let _entered = enter(&call.args);
    for arg in call.args.iter() {
        arg.prepare(dispatch.stream)?;
    }
    // SAFETY: the buffers are borrowed here: those that the kernel writes exclusively, the others
    // so that nobody writes them. `prepare` has waited for earlier uses.
    let (failed, result) = match unsafe { launch.run() } {
        Err(error) if error.is_from_kernel() => (Some(error), Ok(())),
        result => (None, result),
    };
    let ledger = dispatch.stream.ledger();
    if failed.is_some() || variant.loads.reads_suspect(&call.args, ledger) {
        let uses = variant.loads.uses(&call.args);
        let place = ledger.lock().append_ended(dispatch.stream.id(), id, failed, uses);
        loads::set_suspect(&call.args, place);
    }
    result
}

// SAFETY: the inputs are addresses, which whoever calls `run` vouches for.
unsafe impl Send for CpuLaunch {}
// SAFETY: as above.
unsafe impl Sync for CpuLaunch {}

impl HostLaunch for CpuLaunch {
    unsafe fn run(&self) -> Result<()> {
        // SAFETY: buffers hold as many elements of their dtypes, aligned and initialised, as they
        // did when the launch was made; the caller vouches for their life and use. What a kernel
        // stores to a `bool` is 0 or 1.
        let result = unsafe { self.variant.program.run_within(&self.inputs, self.grid, self.limit) };
        result.map_err(|fault| self.variant.explain(self.kernel.definition(), fault))
    }
}

/// The variant for these constexprs and dtypes, made if nobody has. The interpreter gains nothing
/// from knowing arguments, nor from options that the kernel does not ask for, so they are left out of the key.
fn variant(kernel: &'static Kernel, spec: &Spec<'_>) -> Result<&'static CpuVariant> {
    let params: ParamSpecs = spec.params.iter().map(|param| param.without_facts()).collect();
    let spec = Spec { params: &params, ..*spec };
    kernel.cpu.get_or_make(&Key::new(&spec, CPU, Checks::EveryAccess), || CpuVariant::new(kernel.definition(), &spec))
}

/// The arguments as the interpreter takes them.
fn inputs(
    kernel: &Kernel,
    variant: &CpuVariant,
    args: &[Arg<'_>],
    tensors: &[Inner<'_>],
) -> Result<SmallVec<[interp::Arg; 12]>> {
    if variant.made.is_empty() {
        return args.iter().map(|arg| input(kernel, arg)).collect();
    }
    variant.made.extend(args, tensors).iter().map(|arg| input(kernel, arg)).collect()
}

/// An argument as the interpreter takes it.
fn input(kernel: &Kernel, arg: &Arg<'_>) -> Result<interp::Arg> {
    match arg.as_buffer() {
        None => Ok(interp::Arg::Scalar(arg.bits())),
        Some((Address::Host(ptr), len)) => Ok(match arg.as_tensor() {
            Some(tensor) => interp::Arg::Tensor(interp::Tensor {
                ptr,
                rank: tensor.shape().len(),
                shape: tensor.all_shape(),
                strides: tensor.all_strides(),
                pads_with_nan: tensor.padding() == Padding::Nan,
            }),
            None => interp::Arg::Buffer { ptr, len },
        }),
        Some((Address::Device(_), _)) => Err(Error::Unsupported {
            what: format!("running kernel `{}` on the CPU", kernel.name()).into(),
            reason: "a buffer is not in host memory".into(),
        }),
    }
}
