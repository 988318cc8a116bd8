//! How many bytes of scratch memory a call takes, asked before XLA lays out memory.
//!
//! ```text
//! {"op": "linear", "gpu": 0, "operands": [["float32", [64, 32]], ..], "results": [..], "attributes": {..}}  ──>  4096
//! ```
//!
//! The function of the operator runs with tensors that are nowhere. Its launches are noted instead of made, and what it takes
//! is counted. So nobody has to say twice how much that is.

use super::arguments::{Given, read};
use super::memory::Pieces;
use crate::call::{self, Arg, Args, CallFn, Exported};
use crate::error::{Error, Result};
use crate::op::{AttributeType, DTYPES, Op, Value};
use crate::scratch::{Block, Memory, Scratch};
use crate::tensor::{NOWHERE, Place, RawTensor};
use crate::torch::dtype_name;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use tilewright::Device;
use tilewright::launch::shapes_of;

/// An operator that can be asked.
pub struct Measured {
    op: &'static Op,
    function: CallFn,
}

impl Measured {
    /// The operator `O`.
    pub(crate) const fn of<O: Exported>() -> Self {
        Measured { op: O::OP, function: O::call }
    }
}

/// How many bytes the call takes that JSON describes, and -1 where that is not known.
///
/// # Safety
///
/// `request` is a string that ends with a zero byte.
pub unsafe fn scratch(ops: &[Measured], request: *const c_char) -> i64 {
    // SAFETY: the caller's promise.
    let request = unsafe { CStr::from_ptr(request) };
    let bytes = call::guarded(|| {
        let request: Request = serde_json::from_slice(request.to_bytes()).map_err(|error| error.to_string())?;
        request.measure(ops)
    });
    bytes.ok().and_then(|bytes| i64::try_from(bytes).ok()).unwrap_or(-1)
}

/// A call that is to be made.
#[derive(Deserialize)]
struct Request {
    op: String,
    /// The index of the GPU, or none for the CPU.
    gpu: Option<u32>,
    operands: Vec<Tensor>,
    results: Vec<Tensor>,
    attributes: BTreeMap<String, Value>,
}

/// A dtype, by the name that NumPy has for it, and a shape.
#[derive(Deserialize)]
struct Tensor(String, Vec<i64>);

impl Request {
    fn measure(&self, ops: &[Measured]) -> Result<usize> {
        let Some(Measured { op, function }) = ops.iter().find(|measured| measured.op.name == self.op) else {
            return Err(format!("there is no operator `{}`", self.op).into());
        };
        let (place, device) = match self.gpu {
            None => (Place::Cpu, Device::cpu()),
            // SAFETY: the default stream is always there.
            Some(index) => (Place::Cuda(index), unsafe { Device::of_stream(index as usize, 0) }?),
        };
        let (operands, results) = (self.operands.iter(), self.results.iter());
        let mut tensors = Tensors { place, operands, results, attributes: &self.attributes, next: NOWHERE };
        let args = read(op, &mut tensors)?;
        call::check_outputs(op, &args)?;
        let counted = Counted::default();
        let scratch = Scratch::new(&device, &counted);
        let mut done = Ok(());
        shapes_of(|| {
            done = function(Args::new(op, &args, &device, &scratch));
            Ok(())
        })?;
        done.map(|()| counted.0.bytes())
    }
}

/// Tensors that are nowhere, each at an address of its own.
struct Tensors<'a> {
    place: Place,
    operands: std::slice::Iter<'a, Tensor>,
    results: std::slice::Iter<'a, Tensor>,
    attributes: &'a BTreeMap<String, Value>,
    /// The next address.
    next: u64,
}

impl<'a> Tensors<'a> {
    fn tensor(&mut self, name: &str, tensor: Option<&'a Tensor>) -> Result<RawTensor<'a>> {
        let Some(Tensor(dtype, sizes)) = tensor else {
            return Err(Error::argument(name, "is missing", "a dtype and a shape"));
        };
        let known = DTYPES.into_iter().find(|known| dtype_name(*known) == dtype);
        let (Some(dtype), Some((shape, len))) = (known, RawTensor::sizes(sizes)) else {
            return Err(Error::argument(name, format_args!("is {dtype} of shape {sizes:?}"), "what can be"));
        };
        // As far apart as allocations are, and aligned as they are.
        const APART: u64 = 256;
        let address = self.next;
        let end = (len as u64).checked_mul(dtype.size() as u64).and_then(|bytes| address.checked_add(bytes));
        let next = end.and_then(|end| (end + 1).checked_next_multiple_of(APART));
        self.next = next.ok_or("the tensors are larger than memory can be")?;
        Ok(RawTensor { address, dtype, place: self.place, shape, strides: None, len })
    }
}

impl<'a> Given<'a> for Tensors<'a> {
    fn operand(&mut self, name: &str) -> Result<RawTensor<'a>> {
        let operand = self.operands.next();
        self.tensor(name, operand)
    }

    fn result(&mut self, name: &str) -> Result<RawTensor<'a>> {
        let result = self.results.next();
        self.tensor(name, result)
    }

    fn written(&mut self, _name: &str, _operand: &RawTensor<'a>) -> Result<()> {
        self.results.next();
        Ok(())
    }

    fn attribute(&self, name: &str, of: AttributeType) -> Option<Arg<'a>> {
        match (of, self.attributes.get(name)?) {
            (AttributeType::Int, Value::Int(value)) => Some(Arg::Int(*value)),
            (AttributeType::Float, Value::Float(value)) => Some(Arg::Float(*value)),
            (AttributeType::Bool, Value::Bool(value)) => Some(Arg::Bool(*value)),
            (AttributeType::Str, Value::Str(value)) => Some(Arg::Str(value)),
            _ => None,
        }
    }
}

/// Memory that is counted and not there.
#[derive(Default)]
struct Counted(Pieces);

impl Memory for Counted {
    fn take(&self, bytes: usize) -> Result<Block> {
        // Below the tensors, and as little memory.
        let start = self.0.next(bytes, (NOWHERE / 2) as usize);
        let start = start.ok_or("more scratch memory is asked for than can be counted")?;
        Ok(Block { address: NOWHERE / 2 + start as u64, handle: 0 })
    }

    fn give_back(&self, _block: Block) {}

    fn clear(&self, _block: Block, _bytes: usize) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Kind, Param, Vmap};
    use std::borrow::Cow;

    const OP: &Op = &Op {
        name: Cow::Borrowed("takes"),
        docs: Cow::Borrowed(""),
        params: Cow::Borrowed(&[
            Param { name: Cow::Borrowed("x"), kind: Kind::Input { optional: false } },
            Param { name: Cow::Borrowed("how"), kind: Kind::Attribute { of: AttributeType::Str, default: None } },
        ]),
        backward: None,
        vmap: Vmap::Sequential,
        scratch: true,
    };

    /// Takes as many floats as `x` has and one more, in an order that `how` says, with what else it says between.
    fn takes(mut args: Args<'_>) -> Result<()> {
        let (x, how, scratch) = (args.tensor(), args.str(), args.scratch());
        let mut one = scratch.take::<f32>(1)?;
        match how {
            "reads" => drop(x.slice::<f32>()?),
            "copies" => drop(x.flat::<f32>()?.to_vec()?),
            "fills" => one.fill(1.0)?,
            "copies on the device" => drop(x.flat::<f32>()?.copy()?),
            "fails" => return Err("it fails".into()),
            "panics" => panic!("it panics"),
            _ => {}
        }
        scratch.take::<f32>(x.len()).map(drop)
    }

    /// What the library says of `x` of this dtype and shape.
    fn check(dtype: &str, shape: &str, how: &str, expected: i64) {
        let text = format!(
            r#"{{"op": "takes", "gpu": null, "operands": [["{dtype}", {shape}]], "results": [], "attributes": {{"how": {{"str": "{how}"}}}}}}"#
        );
        let text = std::ffi::CString::new(text).expect("no zero byte");
        // SAFETY: a string that ends with a zero byte.
        let found = unsafe { scratch(&[Measured { op: OP, function: takes }], text.as_ptr()) };
        assert_eq!(found, expected, "{how}");
    }

    #[test]
    fn what_a_function_takes_is_counted_in_pieces() {
        check("float32", "[3, 100]", "", 256 + 1280);
        check("float32", "[64]", "", 256 + 256);
        check("float32", "[0]", "", 256 + 256);
        check("float32", "[1099511627776]", "", 256 + 4398046511104);
    }

    #[test]
    fn memory_that_is_not_there_is_not_touched() {
        check("float32", "[64]", "fills", 512);
        check("float32", "[64]", "copies on the device", 512);
    }

    #[test]
    fn where_a_function_needs_values_or_fails_nothing_is_known() {
        check("float32", "[64]", "reads", -1);
        check("float32", "[64]", "copies", -1);
        check("float32", "[64]", "fails", -1);
        check("float32", "[64]", "panics", -1);
        check("complex64", "[64]", "", -1);
        check("float32", "[-1]", "", -1);
        check("float32", "[1152921504606846976]", "", -1);
    }
}
