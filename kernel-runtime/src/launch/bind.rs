//! From the generic tile IR and a launch's types to the bound IR, which both backends start from.

use super::definition::{Definition, user_params};
use super::spec::{ParamSpec, Spec};
use super::target::Target;
use crate::dtype::ElementType;
use crate::error::{Error, Result};
use kernel_core::backend::Timings;
use kernel_core::diag::Diagnostic;
use kernel_core::ir::{Bound, ConstParam, Dt, DtypeParam, Func, ParamKind, Passing, Safety};
use kernel_core::passes::{self, Bindings, PassOptions};

/// The kernel with everything that `spec` says put in, optimised as far as no target is needed. Kernels may ask what they
/// are compiled for: `target`, or the CPU.
pub(super) fn bind(
    kernel: &Definition,
    spec: &Spec<'_>,
    target: Option<Target>,
    timings: &mut Timings,
) -> Result<Bound> {
    let generic = timings.stage("parse", || kernel.generic())?;
    check_signature(kernel, generic.func(), spec)?;
    let bindings = Bindings {
        dtypes: spec.dtypes.to_vec(),
        consts: spec.constants.to_vec(),
        const_scalars: spec
            .params
            .iter()
            .filter_map(|param| match param {
                ParamSpec::Const(value) => Some(value.literal()),
                ParamSpec::Buffer { .. }
                | ParamSpec::Scalar { .. }
                | ParamSpec::Omitted(_)
                | ParamSpec::Tensor { .. } => None,
            })
            .collect(),
        facts: spec.params.iter().map(|param| param.facts()).collect(),
        num_warps: spec.tuning.num_warps,
        capability: target.map_or(0, Target::capability),
        rough_tensors: spec.tuning.rough_tensors,
    };
    let refused = |errors: Vec<_>| compile_error(kernel, errors, &values(generic.func(), spec));
    let mut bound = timings.stage("bind", || passes::bind(generic, &bindings)).map_err(refused)?;
    timings.stage("optimise", || passes::optimise(&mut bound, &PassOptions::default())).map_err(refused)?;
    Ok(bound)
}

/// One error of all that is wrong with a kernel, with lines of its source.
pub(super) fn compile_error(kernel: &Definition, errors: Vec<Diagnostic>, values: &str) -> Error {
    let mut diagnostics = errors.into_iter().map(|error| {
        let diagnostic = kernel.with_source(error);
        if values.is_empty() { diagnostic } else { diagnostic.note(values) }
    });
    let first = diagnostics
        .next()
        .unwrap_or_else(|| Diagnostic::new(format!("kernel `{}` cannot be compiled", kernel.name()), "", 0, 0));
    diagnostics.fold(first, Diagnostic::and).into()
}

/// `in kernel `add` with T = f32, BLOCK = 1000`.
pub(super) fn values(func: &Func, spec: &Spec<'_>) -> String {
    let dtypes = given_dtypes(func).zip(spec.dtypes).map(|(param, dtype)| format!("{} = {dtype}", param.name));
    let constants = given_constants(func).zip(spec.constants).map(|(param, &value)| param.show(value));
    let values: Vec<String> = dtypes.chain(constants).collect();
    match values.as_slice() {
        [] => String::new(),
        values => format!("in kernel `{}` with {}", func.name, values.join(", ")),
    }
}

/// The dtype parameters that a call gives.
fn given_dtypes(func: &Func) -> impl Iterator<Item = &DtypeParam> {
    func.dtype_params.iter().filter(|param| param.is_given())
}

/// The constexprs that a call gives.
fn given_constants(func: &Func) -> impl Iterator<Item = &ConstParam> {
    func.const_params.iter().filter(|param| param.is_given())
}

/// [`values`] of a kernel that may be unreadable.
pub(super) fn shown_values(kernel: &Definition, spec: &Spec<'_>) -> String {
    kernel.generic().map_or_else(|_| String::new(), |generic| values(generic.func(), spec))
}

/// Refuses a call that does not fit the kernel. Launchers that `#[kernel]` makes always fit; this
/// is what makes [`Call`](super::Call) safe for everybody else.
fn check_signature(kernel: &Definition, func: &Func, spec: &Spec<'_>) -> Result<()> {
    let mismatch = |reason: String| Error::Unsupported {
        what: format!("this call of kernel `{}`", kernel.name()).into(),
        reason: reason.into(),
    };
    let count = |what: &str, expected: usize, actual: usize| match expected == actual {
        true => Ok(()),
        false => Err(mismatch(format!("it has {expected} {what}, the call gives {actual}"))),
    };
    if func.safety == Safety::Unsafe && spec.safety == Safety::Safe {
        return Err(mismatch("it is an `unsafe fn`, use `UnsafeCall`".into()));
    }
    count("dtype parameters", given_dtypes(func).count(), spec.dtypes.len())?;
    count("constexprs", given_constants(func).count(), spec.constants.len())?;
    count("parameters", user_params(func).count(), spec.params.len())?;
    for (param, dtype) in given_dtypes(func).zip(spec.dtypes) {
        if !param.bound.admits(*dtype) {
            return Err(mismatch(format!("`{}` must be {}, `{dtype}` is not", param.name, param.bound.name())));
        }
    }
    let element = |dt: Dt| element_type(dt, spec.dtypes);
    for (param, given) in user_params(func).zip(spec.params) {
        let fits = match (&param.kind, given) {
            (ParamKind::Ptr { dt, mutable }, ParamSpec::Buffer { mutable: given_mutable, .. }) => {
                // A kernel that only reads may be given what may be written.
                (!mutable || *given_mutable).then_some(*dt)
            }
            (ParamKind::Desc { dt, block, mutable }, ParamSpec::Tensor { mutable: given_mutable, facts, .. }) => {
                ((!mutable || *given_mutable) && block.len() == usize::from(facts.rank)).then_some(*dt)
            }
            (ParamKind::Scalar(dt), ParamSpec::Scalar { .. }) | (ParamKind::ConstScalar(dt), ParamSpec::Const(_)) => {
                Some(*dt)
            }
            (kind, ParamSpec::Omitted(_)) => kind.dt().filter(|_| param.passing != Passing::Always),
            (
                _,
                ParamSpec::Buffer { .. } | ParamSpec::Scalar { .. } | ParamSpec::Const(_) | ParamSpec::Tensor { .. },
            ) => None,
        };
        if fits.and_then(element) != Some(given.element()) {
            return Err(mismatch(format!(
                "parameter `{}` takes something else than the {} of {} that is given",
                param.name,
                given_kind(given),
                given.element(),
            )));
        }
    }
    Ok(())
}

fn given_kind(param: &ParamSpec) -> &'static str {
    match param {
        ParamSpec::Buffer { mutable: false, .. } => "shared buffer",
        ParamSpec::Buffer { mutable: true, .. } => "exclusive buffer",
        ParamSpec::Scalar { .. } => "scalar",
        ParamSpec::Const(_) => "constant",
        ParamSpec::Tensor { .. } => "tensor",
        ParamSpec::Omitted(_) => "absence",
    }
}

/// What a dtype of a parameter of the kernel is in this call.
pub(super) fn element_type(dt: Dt, dtypes: &[ElementType]) -> Option<ElementType> {
    match dt {
        Dt::Known(dtype) => Some(dtype),
        Dt::Param(id) => dtypes.get(id.index()).copied(),
    }
}
