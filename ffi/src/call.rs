//! One call of an operator, after a door has read its arguments and before it gives its results back.
//!
//! ```text
//! door: arguments ──> check ──> outputs: wanted, allocated or checked ──> run ──> door: results, or the error's text
//! ```

use crate::device;
use crate::error::{Error, Result};
use crate::native::Operator;
use crate::op::{Kind, Op, Output, Value};
use crate::scratch::{Memory, Scratch};
use crate::shape::{Wanted, wanted};
use crate::tensor::{Place, RawTensor, TensorMut, TensorRef};
use smallvec::SmallVec;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tilewright::Device;

/// An argument, or its absence.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Arg<'a> {
    Tensor(RawTensor<'a>),
    Int(i64),
    Float(f64),
    Bool(bool),
    Str(&'a str),
    /// An optional argument that was not given, or an output that is still to be made.
    None,
}

/// The arguments of a call, one per parameter. Longer ones than most are on the heap.
pub(crate) type ArgList<'a> = SmallVec<[Arg<'a>; 10]>;

/// An operator that can be exported: what `#[op]` makes of a function.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an operator",
    label = "not an operator",
    note = "a function with `#[op(..)]` is one"
)]
pub trait Exported: Sized {
    /// What it is.
    const OP: &'static Op;

    /// The operator that computes its gradient.
    const BACKWARD: Option<&'static Operator> = None;

    /// How frameworks that are written in Rust call it.
    const OPERATOR: Operator = Operator::new(Self::OP, Self::call, Self::BACKWARD);

    /// How PyTorch calls it.
    const REGISTRATION: crate::torch::Registration = crate::torch::Registration::of::<Self>();

    /// How XLA's door asks how much scratch memory it takes.
    const MEASURED: crate::xla::Measured = crate::xla::Measured::of::<Self>();

    /// Calls the function.
    ///
    /// # Errors
    ///
    /// Those of the function.
    fn call(args: Args<'_>) -> Result<()>;

    /// How TVM-FFI calls it.
    ///
    /// # Safety
    ///
    /// As for [`tvm_ffi::call`](crate::tvm_ffi::call).
    unsafe fn tvm_ffi(
        function: *mut c_void,
        args: *const crate::tvm_ffi::Any,
        count: i32,
        result: *mut crate::tvm_ffi::Any,
    ) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { crate::tvm_ffi::call::<Self>(function, args, count, result) }
    }

    /// How XLA calls it.
    ///
    /// # Safety
    ///
    /// As for [`xla::call`](crate::xla::call).
    unsafe fn xla(recording: crate::xla::Recording, frame: *mut crate::xla::CallFrame) -> *mut crate::xla::XlaError {
        // SAFETY: the caller's promise.
        unsafe { crate::xla::call::<Self>(recording, frame) }
    }
}

/// How an operator is called: [`Exported::call`].
pub(crate) type CallFn = fn(Args<'_>) -> Result<()>;

/// The arguments of a call on their way into the function, which takes each once, in order.
///
/// Its methods panic on arguments of another kind than the parameter's: doors give them by the kinds that [`Op::params`] has,
/// and `#[op]` reads them by the same.
pub struct Args<'a> {
    op: &'static Op,
    values: std::iter::Enumerate<std::slice::Iter<'a, Arg<'a>>>,
    device: &'a Device,
    scratch: &'a Scratch<'a>,
}

impl<'a> Args<'a> {
    /// Of a call with these values, one per parameter.
    pub(crate) fn new(op: &'static Op, values: &'a [Arg<'a>], device: &'a Device, scratch: &'a Scratch<'a>) -> Self {
        Args { op, values: values.iter().enumerate(), device, scratch }
    }

    fn next(&mut self) -> (&'static str, Arg<'a>) {
        let (at, arg) = self.values.next().expect("an argument for each parameter");
        (&self.op.params[at].name, *arg)
    }

    /// A tensor to read.
    pub fn tensor(&mut self) -> TensorRef<'a> {
        self.optional_tensor().expect("a tensor")
    }

    /// A tensor to read, if it was given.
    pub fn optional_tensor(&mut self) -> Option<TensorRef<'a>> {
        match self.next() {
            (name, Arg::Tensor(tensor)) => Some(TensorRef::new(name, tensor, self.device)),
            (_, Arg::None) => None,
            (name, other) => unreachable!("`{name}` is {other:?}"),
        }
    }

    /// A tensor to write.
    pub fn tensor_mut(&mut self) -> TensorMut<'a> {
        self.optional_tensor_mut().expect("a tensor")
    }

    /// A tensor to write, if the output is wanted.
    pub fn optional_tensor_mut(&mut self) -> Option<TensorMut<'a>> {
        match self.next() {
            (name, Arg::Tensor(tensor)) => Some(TensorMut::new(name, tensor, self.device)),
            (_, Arg::None) => None,
            (name, other) => unreachable!("`{name}` is {other:?}"),
        }
    }

    /// An integer.
    pub fn int(&mut self) -> i64 {
        self.optional_int().expect("an integer")
    }

    /// An integer, if one was given.
    pub fn optional_int(&mut self) -> Option<i64> {
        match self.next() {
            (_, Arg::Int(value)) => Some(value),
            (_, Arg::None) => None,
            (name, other) => unreachable!("`{name}` is {other:?}"),
        }
    }

    /// A float.
    pub fn float(&mut self) -> f64 {
        self.optional_float().expect("a float")
    }

    /// A float, if one was given.
    pub fn optional_float(&mut self) -> Option<f64> {
        match self.next() {
            (_, Arg::Float(value)) => Some(value),
            (_, Arg::None) => None,
            (name, other) => unreachable!("`{name}` is {other:?}"),
        }
    }

    /// A truth value.
    pub fn bool(&mut self) -> bool {
        match self.next() {
            (_, Arg::Bool(value)) => value,
            (name, other) => unreachable!("`{name}` is {other:?}"),
        }
    }

    /// A string.
    pub fn str(&mut self) -> &'a str {
        match self.next() {
            (_, Arg::Str(value)) => value,
            (name, other) => unreachable!("`{name}` is {other:?}"),
        }
    }

    /// Scratch memory, which is no argument.
    pub fn scratch(&self) -> &'a Scratch<'a> {
        self.scratch
    }
}

/// The place of the tensors that were given.
///
/// # Errors
///
/// [`Error::Argument`] if they are in several, or there is none.
pub(crate) fn place(op: &Op, args: &[Arg<'_>]) -> Result<Place> {
    let mut first: Option<(usize, Place)> = None;
    for (at, arg) in args.iter().enumerate() {
        let Arg::Tensor(tensor) = arg else { continue };
        match first {
            None => first = Some((at, tensor.place)),
            Some((_, place)) if place == tensor.place => {}
            Some((other, place)) => {
                let name = &op.params[at].name;
                let given = format_args!("is on {}", tensor.place).to_string();
                return Err(Error::argument(
                    name,
                    given,
                    format_args!("{place}, where `{}` is", op.params[other].name),
                ));
            }
        }
    }
    first.map(|(_, place)| place).ok_or_else(|| Error::from("at least one tensor is needed, to tell the device"))
}

/// Whether an output is to be made: not that of an optional input that was not given.
pub(crate) fn is_wanted(output: &Output, args: &[Arg<'_>]) -> bool {
    output.with.is_none_or(|with| !matches!(args[with], Arg::None))
}

/// The argument of a parameter for which the caller gave none.
///
/// # Errors
///
/// [`Error::Argument`] if it must be given.
pub(crate) fn default<'a>(name: &str, kind: &'a Kind) -> Result<Arg<'a>> {
    Ok(match kind {
        Kind::Input { optional: true } | Kind::OptionalAttribute { .. } => Arg::None,
        Kind::Attribute { default: Some(value), .. } => match value {
            Value::Int(value) => Arg::Int(*value),
            Value::Float(value) => Arg::Float(*value),
            Value::Bool(value) => Arg::Bool(*value),
            Value::Str(value) => Arg::Str(value),
        },
        _ => return Err(Error::argument(name, "is missing", "an argument for each parameter without a default")),
    })
}

/// Checks that the caller gave no tensor for an output that is not to be made.
///
/// # Errors
///
/// [`Error::Argument`] if there is one, which nobody would write.
pub(crate) fn check_absent(op: &Op, name: &str, output: &Output, given: &Arg<'_>) -> Result<()> {
    match (given, output.with) {
        (Arg::Tensor(_), Some(with)) => {
            let with = &op.params[with].name;
            Err(Error::argument(name, format_args!("is given, but `{with}` is not"), "both, or neither"))
        }
        _ => Ok(()),
    }
}

/// Checks an output that the caller gave.
///
/// # Errors
///
/// [`Error::Argument`] if its dtype or shape is another than that of the output.
pub(crate) fn check_given(name: &str, given: &RawTensor<'_>, wanted: &Wanted) -> Result<()> {
    let fits = given.shape.len() == wanted.sizes.len()
        && given.shape.iter().zip(&wanted.sizes).all(|(given, wanted)| *given as i64 == *wanted);
    if fits && given.dtype == wanted.dtype {
        return Ok(());
    }
    let text = format!("is {} of shape {:?}", given.dtype, given.shape);
    Err(Error::argument(name, text, format_args!("{} of shape {:?}", wanted.dtype, wanted.sizes)))
}

/// Checks that what is written shares memory with no other tensor: the function may rely on that. Outputs that a door has
/// allocated itself, of which `has_fresh_outputs` speaks, need no look.
///
/// # Errors
///
/// [`Error::Argument`] if it does.
pub(crate) fn check_disjoint(op: &Op, args: &[Arg<'_>], has_fresh_outputs: bool) -> Result<()> {
    let is_fresh = |kind: &Kind| has_fresh_outputs && kind.is_output();
    for (at, param) in op.params.iter().enumerate() {
        let is_written = param.kind == Kind::InPlace || param.kind.is_output();
        let Arg::Tensor(written) = &args[at] else { continue };
        if !is_written || is_fresh(&param.kind) || written.len == 0 {
            continue;
        }
        for (other_at, other_param) in op.params.iter().enumerate() {
            let Arg::Tensor(other) = &args[other_at] else { continue };
            if other_at == at || is_fresh(&other_param.kind) || other.len == 0 || !overlap(written, other) {
                continue;
            }
            let given = format!("is written, and shares memory with `{}`", other_param.name);
            return Err(Error::argument(&param.name, given, "a tensor with memory of its own (copy one of them)"));
        }
    }
    Ok(())
}

/// Whether the memory between the first and the last elements overlaps.
fn overlap(a: &RawTensor<'_>, b: &RawTensor<'_>) -> bool {
    // A tensor with negative strides reaches to both sides; no operator can use it, which its function will say.
    let end = |t: &RawTensor<'_>| t.address.saturating_add((t.span().unwrap_or(0) * t.dtype.size()) as u64);
    a.address < end(b) && b.address < end(a)
}

/// Calls the function of an operator.
///
/// # Errors
///
/// That of the function; that of an earlier launch on this stream which nobody has taken, on the CPU that of its own.
pub(crate) fn run<'a>(
    op: &'static Op,
    function: CallFn,
    args: &'a [Arg<'a>],
    device: &'a Device,
    memory: &'a dyn Memory,
) -> Result<()> {
    match device.poll_error() {
        Some(error) if device.is_cuda() => {
            return Err(Error::Other(format!("an earlier launch on this stream failed: {error}").into()));
        }
        // On the CPU it is what a function that panicked has left: nobody else's.
        Some(_) => drop(all_errors(device)),
        None => (),
    }
    let scratch = Scratch::new(device, memory);
    let done = function(Args::new(op, args, device, &scratch));
    // On the CPU a launch is over when it returns. Its error is taken also where the function has another one to tell.
    match if device.is_cuda() { None } else { all_errors(device) } {
        Some(error) => done.and(Err(error.into())),
        None => done,
    }
}

/// The first error of a call's launches on the CPU, which has been told all of them then: none is left for the next call.
fn all_errors(device: &Device) -> Option<tilewright::Error> {
    let first = device.poll_error();
    while device.poll_error().is_some() {}
    first
}

/// Runs a door's code. Panics become errors: none may reach the framework.
pub(crate) fn guarded<R>(body: impl FnOnce() -> Result<R>) -> Result<R> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| Err(panic_text(&*payload)))
}

/// What a panic said.
#[cold]
fn panic_text(payload: &(dyn std::any::Any + Send)) -> Error {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or("with a value that is no text")).into()
}

/// The text of an error for the framework. C strings end at the first zero byte, so there is none in it.
#[cold]
pub(crate) fn message(op: &str, error: &Error) -> std::ffi::CString {
    c_string(&format!("{op}: {error}"))
}

/// A C string; zero bytes are left out.
pub(crate) fn c_string(text: &str) -> std::ffi::CString {
    let bytes: Vec<u8> = text.bytes().filter(|byte| *byte != 0).collect();
    std::ffi::CString::new(bytes).unwrap_or_default()
}

/// Waits for all devices that operators were called on. Gives the text of the oldest error that nobody has taken, or null.
pub fn synchronize() -> *const std::ffi::c_char {
    match guarded(device::synchronize) {
        Ok(()) => std::ptr::null(),
        Err(error) => kept(c_string(&error.to_string())),
    }
}

/// The string, for the caller to read until this thread calls again.
pub(crate) fn kept(text: std::ffi::CString) -> *const std::ffi::c_char {
    thread_local! {
        static LAST: std::cell::RefCell<std::ffi::CString> = std::cell::RefCell::default();
    }
    LAST.with(|last| {
        *last.borrow_mut() = text;
        last.borrow().as_ptr()
    })
}

/// The description of a library as JSON, made once, for the generator of Python packages.
pub fn describe(name: &str, version: &str, ops: &[&Op]) -> *const std::ffi::c_char {
    let ops = ops.iter().map(|op| (*op).clone()).collect();
    let library = crate::op::Library { name: name.to_string().into(), version: version.to_string().into(), ops };
    kept(c_string(&serde_json::to_string(&library).unwrap_or_default()))
}

/// Checks all outputs of a call, which the caller gave.
///
/// # Errors
///
/// [`Error::Argument`] for one that is missing, does not fit or is not made, or shares memory.
pub(crate) fn check_outputs(op: &Op, args: &[Arg<'_>]) -> Result<()> {
    for (at, param) in op.params.iter().enumerate() {
        let Kind::Output(output) = &param.kind else { continue };
        if !is_wanted(output, args) {
            check_absent(op, &param.name, output, &args[at])?;
            continue;
        }
        let Arg::Tensor(given) = &args[at] else { return Err(Error::argument(&param.name, "is missing", "a tensor")) };
        check_given(&param.name, given, &wanted(op, &param.name, output, args)?)?;
    }
    check_disjoint(op, args, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::RuntimeMemory;
    use tilewright::prelude::*;

    /// Reads behind the last element.
    #[kernel]
    fn reads_behind(x: Ptr<f32>, y: PtrMut<f32>, n: i64) {
        store(y, load(x + n));
    }

    fn fail_twice(device: &Device) -> Result<()> {
        let (x, mut y) = (device.zeros::<f32>(8)?, device.zeros::<f32>(1)?);
        for n in [8, 9] {
            reads_behind(&x, &mut y, n).grid(1).launch(device)?;
        }
        Ok(())
    }

    fn call(device: &Device, function: CallFn) -> Result<()> {
        guarded(|| run(Op::MISTAKEN, function, &[], device, &RuntimeMemory::new(device)))
    }

    #[test]
    fn errors_of_a_call_on_the_cpu_are_not_those_of_the_next() {
        let device = Device::cpu();
        let told = call(&device, |args| fail_twice(args.device)).expect_err("both launches fail").to_string();
        assert!(told.contains("loads element 8 of `x`"), "the first is told: {told}");
        call(&device, |_| Ok(())).expect("the second was told with it");
        let own = call(&device, |args| fail_twice(args.device).and(Err("of its own".into())));
        assert_eq!(own.expect_err("it says so").to_string(), "of its own");
        call(&device, |_| Ok(())).expect("nothing is left where the function fails itself");
        let panicked = call(&device, |args| fail_twice(args.device).map(|()| panic!("at the end")));
        assert_eq!(panicked.expect_err("it has").to_string(), "panicked: at the end");
        call(&device, |_| Ok(())).expect("nor where it panics");
    }
}
