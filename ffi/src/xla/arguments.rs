//! From operands, results and attributes to arguments, one per parameter.

use crate::call::{self, Arg, ArgList};
use crate::error::{Error, Result};
use crate::op::{AttributeType, Kind, Op};
use crate::tensor::RawTensor;

/// The attribute that has a bit for each optional tensor, in order: whether it is given.
pub(crate) const GIVEN: &str = "tilewright_given";

/// What a call has, tensors in order and attributes by name. Names of tensors are for messages.
pub(super) trait Given<'a> {
    /// The next operand.
    fn operand(&mut self, name: &str) -> Result<RawTensor<'a>>;

    /// The next result.
    fn result(&mut self, name: &str) -> Result<RawTensor<'a>>;

    /// The next result, which is that of an operand that is written in place.
    fn written(&mut self, name: &str, operand: &RawTensor<'a>) -> Result<()>;

    /// The attribute of this name, if it is there and of this type.
    fn attribute(&self, name: &str, of: AttributeType) -> Option<Arg<'a>>;
}

/// The arguments. What is left of the results is scratch memory.
pub(super) fn read<'a>(op: &Op, from: &mut impl Given<'a>) -> Result<ArgList<'a>> {
    let given = match from.attribute(GIVEN, AttributeType::Int) {
        Some(Arg::Int(given)) => given,
        _ => i64::MAX,
    };
    let mut optional = 0;
    let mut args = ArgList::new();
    for param in op.params.iter() {
        let name = &param.name;
        args.push(match &param.kind {
            Kind::Input { optional: true } => {
                optional += 1;
                if given >> (optional - 1) & 1 == 0 { Arg::None } else { Arg::Tensor(from.operand(name)?) }
            }
            Kind::Input { optional: false } | Kind::InPlace => Arg::Tensor(from.operand(name)?),
            // After all inputs: whether there is one depends on them.
            Kind::Output(_) => Arg::None,
            Kind::Attribute { of, .. } | Kind::OptionalAttribute { of } => {
                let is_optional = matches!(param.kind, Kind::OptionalAttribute { .. });
                match from.attribute(name, *of) {
                    Some(value) => value,
                    None if is_optional => Arg::None,
                    None => return Err(Error::argument(name, "is missing", "an attribute of its type")),
                }
            }
        });
    }
    for (at, param) in op.params.iter().enumerate() {
        if let Kind::Output(output) = &param.kind
            && call::is_wanted(output, &args)
        {
            args[at] = Arg::Tensor(from.result(&param.name)?);
        }
    }
    for (at, param) in op.params.iter().enumerate() {
        if let (Kind::InPlace, Arg::Tensor(operand)) = (&param.kind, args[at]) {
            from.written(&param.name, &operand)?;
        }
    }
    Ok(args)
}
