//! The door to PyTorch: operators of its dispatcher, through libtorch's stable C interface.
//!
//! `import torch` has loaded libtorch when the Python package calls [`register`], which finds its functions there: nothing is
//! linked, and one library of operators works with every PyTorch from 2.9 on; operators that take strings are left out before
//! 2.10, whose stable interface has none. For each operator it defines a schema and a
//! kernel for the CPU and for CUDA; for one with outputs also the overload `out`, which writes outputs that are given.

mod api;
mod boxed;
mod schema;

use crate::call::{CallFn, Exported, c_string, guarded, kept};
use crate::error::{Error, Result};
use crate::op::Op;
pub(crate) use api::name as dtype_name;
use api::{Api, Boxed, Handle};
use std::ffi::c_char;
use std::ptr;
use std::sync::OnceLock;

/// An operator with its kernels.
#[derive(Clone, Copy)]
pub struct Registration {
    op: &'static Op,
    functional: Boxed,
    out: Boxed,
}

impl Registration {
    /// That of an operator.
    pub const fn of<O: Exported>() -> Self {
        Registration { op: O::OP, functional: functional::<O>, out: out::<O> }
    }
}

unsafe extern "C-unwind" fn functional<O: Exported>(stack: *mut u64, _inputs: u64, _outputs: u64) {
    // SAFETY: PyTorch calls kernels with a stack of their schema's arguments.
    unsafe { enter(O::OP, O::call, stack, boxed::Outputs::Made) }
}

unsafe extern "C-unwind" fn out<O: Exported>(stack: *mut u64, _inputs: u64, _outputs: u64) {
    // SAFETY: as above.
    unsafe { enter(O::OP, O::call, stack, boxed::Outputs::Given) }
}

/// Calls an operator, and raises its error. Nothing that has a destructor is alive when C++'s exception passes, but the text.
unsafe fn enter(op: &'static Op, function: CallFn, stack: *mut u64, outputs: boxed::Outputs) {
    // SAFETY: the caller's promise.
    let Err(text) = (unsafe { boxed::call(op, function, stack, outputs) }) else { return };
    // SAFETY: all strings end with a zero byte. It throws.
    unsafe { (Api::get().functions.check)(false, c"".as_ptr(), c"".as_ptr(), 0, text.as_ptr()) };
}

/// Registers the operators of a library. Gives null, or what is wrong.
pub fn register(library: &str, operators: &[Registration]) -> *const c_char {
    static DONE: OnceLock<Result<()>> = OnceLock::new();
    match DONE.get_or_init(|| guarded(|| register_all(library, operators))) {
        Ok(()) => ptr::null(),
        Err(error) => kept(c_string(&format!("the operators of `{library}` cannot be registered: {error}"))),
    }
}

fn register_all(library: &str, operators: &[Registration]) -> Result<()> {
    let api = Api::load()?;
    let operators = operators.iter().filter(|registration| api.strings.is_some() || !registration.op.takes_string());
    let (namespace, file) = (c_string(library), c_string(file!()));
    let mut fragment = ptr::null_mut();
    // SAFETY: the strings end with a zero byte. libtorch keeps copies. The library is never deleted, as operators must stay.
    let code = unsafe { (api.functions.init_fragment)(namespace.as_ptr(), file.as_ptr(), 0, &mut fragment) };
    checked(code, "the namespace")?;
    for Registration { op, .. } in operators.clone() {
        define(api, fragment, &schema::functional(op))?;
        if op.outputs().next().is_some() {
            define(api, fragment, &schema::out(op))?;
        }
    }
    for key in [c"CPU", c"CUDA"] {
        let mut kernels: Handle = ptr::null_mut();
        // SAFETY: as above.
        let code =
            unsafe { (api.functions.init_impl)(namespace.as_ptr(), key.as_ptr(), file.as_ptr(), 0, &mut kernels) };
        checked(code, "the namespace")?;
        for Registration { op, functional, out } in operators.clone() {
            implement(api, kernels, &op.name, *functional)?;
            if op.outputs().next().is_some() {
                implement(api, kernels, &format!("{}.out", op.name), *out)?;
            }
        }
    }
    Ok(())
}

fn define(api: &Api, fragment: Handle, schema: &str) -> Result<()> {
    let text = c_string(schema);
    // SAFETY: the library is open, and the string ends with a zero byte.
    checked(unsafe { (api.functions.define)(fragment, text.as_ptr()) }, schema)
}

fn implement(api: &Api, kernels: Handle, name: &str, kernel: Boxed) -> Result<()> {
    let text = c_string(name);
    // SAFETY: as above; the kernel takes what its schema says.
    checked(unsafe { (api.functions.implement)(kernels, text.as_ptr(), kernel) }, name)
}

fn checked(code: api::Code, what: &str) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    Err(Error::from(format!("PyTorch refuses `{what}`; if another copy of the library is loaded, load only one")))
}
