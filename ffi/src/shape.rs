//! The dtypes and shapes of outputs, computed from the arguments of a call.

use crate::call::Arg;
use crate::error::{Error, Result};
use crate::op::{DTypeOf, Dim, Expr, Function, Op, Output, ShapeOf};
use crate::tensor::RawTensor;
use smallvec::SmallVec;
use tilewright::ElementType;

/// The sizes of a shape. Longer ones than most are on the heap.
pub(crate) type Sizes = SmallVec<[i64; 8]>;

/// An output that has to be made: its dtype and shape.
pub(crate) struct Wanted {
    pub dtype: ElementType,
    pub sizes: Sizes,
}

/// The output `name` of a call with these arguments, one per parameter.
///
/// # Errors
///
/// [`Error::Argument`] where a tensor lacks a dimension that the shape speaks of, and where a size cannot be.
pub(crate) fn wanted(op: &Op, name: &str, output: &Output, args: &[Arg<'_>]) -> Result<Wanted> {
    let scope = Scope { op, name, args };
    let dtype = match output.dtype {
        DTypeOf::Fixed(dtype) => dtype,
        DTypeOf::Same(tensor) => scope.tensor(tensor)?.dtype,
    };
    let mut sizes = Sizes::new();
    match &output.shape {
        ShapeOf::Like(tensor) => sizes.extend(scope.tensor(*tensor)?.shape.iter().map(|size| *size as i64)),
        ShapeOf::Dims(dims) => {
            for dim in dims.iter() {
                scope.extend(&mut sizes, dim)?;
            }
        }
    }
    Ok(Wanted { dtype, sizes })
}

struct Scope<'s, 'a> {
    op: &'s Op,
    name: &'s str,
    args: &'s [Arg<'a>],
}

impl<'a> Scope<'_, 'a> {
    fn tensor(&self, at: usize) -> Result<&RawTensor<'a>> {
        match &self.args[at] {
            Arg::Tensor(tensor) => Ok(tensor),
            _ => Err(Error::argument(
                &self.op.params[at].name,
                "is missing",
                format!("a tensor, as `{}` needs", self.name),
            )),
        }
    }

    fn extend(&self, sizes: &mut Sizes, dim: &Dim) -> Result<()> {
        match dim {
            Dim::Size(expr) => {
                let size = self.size(expr)?;
                if size < 0 {
                    return Err(Error::argument(
                        self.name,
                        format_args!("would have a dimension of size {size}"),
                        "0 or more",
                    ));
                }
                sizes.push(size);
            }
            Dim::Part { tensor, from, to } => {
                let shape = self.tensor(*tensor)?.shape;
                // As in Python: bounds beyond the ends are the ends.
                let rank = shape.len() as i64;
                let bound = |at: i64| (if at < 0 { at + rank } else { at }).clamp(0, rank) as usize;
                let (from, to) = (bound(from.unwrap_or(0)), bound(to.unwrap_or(rank)));
                sizes.extend(shape[from..to.max(from)].iter().map(|size| *size as i64));
            }
        }
        Ok(())
    }

    fn size(&self, expr: &Expr) -> Result<i64> {
        match expr {
            Expr::Int(value) => Ok(*value),
            Expr::Attribute(at) => match &self.args[*at] {
                Arg::Int(value) => Ok(*value),
                _ => Err(Error::argument(&self.op.params[*at].name, "is missing", "an integer")),
            },
            Expr::Size { tensor, axis } => {
                let shape = self.tensor(*tensor)?.shape;
                let at = if *axis < 0 { axis + shape.len() as i64 } else { *axis };
                let size = usize::try_from(at).ok().and_then(|at| shape.get(at));
                size.map(|size| *size as i64).ok_or_else(|| {
                    let given = format!("has {} dimensions", shape.len());
                    let accepted = format!("a tensor with dimension {axis}, which the shape of `{}` needs", self.name);
                    Error::argument(&self.op.params[*tensor].name, given, accepted)
                })
            }
            Expr::Apply(function, of) => {
                let (a, b) = (self.size(&of[0])?, self.size(&of[1])?);
                function.apply(a, b).ok_or_else(|| {
                    Error::argument(
                        self.name,
                        format!("would have a size of {a} {} {b}", function.symbol()),
                        "a number",
                    )
                })
            }
        }
    }
}

impl Function {
    /// The value as Python computes it. `None` where there is none that `i64` can hold.
    fn apply(self, a: i64, b: i64) -> Option<i64> {
        match self {
            Function::Add => a.checked_add(b),
            Function::Sub => a.checked_sub(b),
            Function::Mul => a.checked_mul(b),
            Function::Div => {
                let quotient = a.checked_div(b)?;
                let is_below = a % b != 0 && (a < 0) != (b < 0);
                Some(quotient - i64::from(is_below))
            }
            Function::Rem => {
                let rest = a.checked_rem(b)?;
                Some(if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest })
            }
            Function::Min => Some(a.min(b)),
            Function::Max => Some(a.max(b)),
        }
    }

    /// How messages write it.
    fn symbol(self) -> &'static str {
        match self {
            Function::Add => "+",
            Function::Sub => "-",
            Function::Mul => "*",
            Function::Div => "/",
            Function::Rem => "%",
            Function::Min => "min",
            Function::Max => "max",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{AttributeType, Kind, Param, Vmap};
    use crate::tensor::Place;
    use std::borrow::Cow;

    const N: Expr = Expr::Attribute(1);

    fn op() -> Op {
        let params = vec![
            Param { name: "x".into(), kind: Kind::Input { optional: false } },
            Param { name: "n".into(), kind: Kind::Attribute { of: AttributeType::Int, default: None } },
        ];
        let (name, docs) = ("test".into(), "".into());
        Op { name, docs, params: params.into(), backward: None, vmap: Vmap::Sequential, scratch: false }
    }

    fn size(axis: i64) -> Expr {
        Expr::Size { tensor: 0, axis }
    }

    fn apply(function: Function, a: Expr, b: Expr) -> Expr {
        Expr::Apply(function, Cow::Owned(vec![a, b]))
    }

    /// The shape of `dims` for a tensor of 4 × 6 × 10 and `n = 3`, or what is wrong.
    fn check(dims: Vec<Dim>, expected: Result<&[i64], &str>) {
        let x = RawTensor {
            address: 0,
            dtype: ElementType::BF16,
            place: Place::Cpu,
            shape: &[4, 6, 10],
            strides: None,
            len: 240,
        };
        let output = Output { dtype: DTypeOf::Same(0), shape: ShapeOf::Dims(dims.into()), with: None };
        let found = wanted(&op(), "y", &output, &[Arg::Tensor(x), Arg::Int(3)]);
        match (found, expected) {
            (Ok(found), Ok(expected)) => {
                assert_eq!((found.dtype, found.sizes.as_slice()), (ElementType::BF16, expected));
            }
            (Err(found), Err(expected)) => assert_eq!(found.to_string(), expected),
            (found, expected) => panic!("{:?} against {expected:?}", found.map(|found| found.sizes)),
        }
    }

    #[test]
    fn sizes_are_computed_as_python_does() {
        let of = |expr| vec![Dim::Size(expr)];
        check(of(size(0)), Ok(&[4]));
        check(of(size(-1)), Ok(&[10]));
        check(of(apply(Function::Div, size(2), N)), Ok(&[3]));
        check(of(apply(Function::Max, N, size(1))), Ok(&[6]));
        check(of(apply(Function::Rem, size(2), N)), Ok(&[1]));
        let minus = |value| apply(Function::Sub, Expr::Int(0), Expr::Int(value));
        check(of(apply(Function::Add, Expr::Int(9), apply(Function::Div, minus(7), Expr::Int(2)))), Ok(&[5]));
        check(of(apply(Function::Rem, minus(7), Expr::Int(4))), Ok(&[1]));
    }

    #[test]
    fn parts_of_shapes_are_cut_as_python_does() {
        let part = |from, to| vec![Dim::Part { tensor: 0, from, to }, Dim::Size(N)];
        check(part(None, Some(-1)), Ok(&[4, 6, 3]));
        check(part(Some(1), None), Ok(&[6, 10, 3]));
        check(part(Some(1), Some(2)), Ok(&[6, 3]));
        check(part(Some(2), Some(1)), Ok(&[3]));
        check(part(Some(-9), Some(9)), Ok(&[4, 6, 10, 3]));
    }

    #[test]
    fn sizes_that_cannot_be_are_errors() {
        let of = |expr| vec![Dim::Size(expr)];
        check(
            of(size(3)),
            Err("`x` has 3 dimensions; accepted: a tensor with dimension 3, which the shape of `y` needs"),
        );
        check(
            of(size(-4)),
            Err("`x` has 3 dimensions; accepted: a tensor with dimension -4, which the shape of `y` needs"),
        );
        check(of(apply(Function::Sub, N, size(0))), Err("`y` would have a dimension of size -1; accepted: 0 or more"));
        check(of(apply(Function::Div, N, Expr::Int(0))), Err("`y` would have a size of 3 / 0; accepted: a number"));
        check(
            of(apply(Function::Mul, N, Expr::Int(i64::MAX))),
            Err("`y` would have a size of 3 * 9223372036854775807; accepted: a number"),
        );
    }
}
