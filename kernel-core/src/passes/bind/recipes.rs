//! What the host must compute for a tensor that the kernel makes, if it can.

use std::collections::BTreeMap;

use crate::ir::known::constant;
use crate::ir::recipe::{From, MAX_STEPS, Step, is_total, is_total_unary};
use crate::ir::{
    CreateOp, DType, Def, Dt, ElementwiseOp, Func, Literal, Op, ParamId, ParamKind, Recipe, ValueId, view,
};

/// A recipe.
pub(super) struct Found {
    pub recipe: Recipe,
    /// Whether neighbours along the last dimension are known to be adjacent.
    pub is_dense: bool,
}

/// The recipe of a tensor of that many dimensions from the operands of what makes it, or why there is none.
pub(super) fn find(func: &Func, operands: &[ValueId], rank: usize) -> Result<Found, String> {
    let (Some((&pointer, extents)), mut search) = (operands.split_first(), Search::new(func)) else {
        return Err("nothing is known of it".to_string());
    };
    let (sizes, strides) = extents.split_at(rank.min(extents.len()));
    let (base, offsets) = search.pointer(pointer)?;
    let mut all = |list: &[ValueId], what: &str| -> Result<Vec<u16>, String> {
        list.iter().map(|&value| search.scalar(value, what)).collect()
    };
    let (sizes, strides) = (all(sizes, "its shape")?, all(strides, "its strides")?);
    let innermost = extents.last().and_then(|&last| constant(func, last));
    if let Some(Literal::Int(stride)) = innermost
        && stride != 1
    {
        return Err(format!("its innermost stride is {stride}, not 1"));
    }
    let recipe = Recipe { slot: 0, base, offsets, sizes, strides, steps: search.steps };
    Ok(Found { recipe, is_dense: innermost.is_some() })
}

/// What is computed so far.
struct Search<'f> {
    func: &'f Func,
    steps: Vec<Step>,
    known: BTreeMap<ValueId, u16>,
}

impl<'f> Search<'f> {
    fn new(func: &'f Func) -> Search<'f> {
        Search { func, steps: Vec::new(), known: BTreeMap::new() }
    }

    /// The buffer that a pointer points into, and what it is moved by.
    fn pointer(&mut self, mut pointer: ValueId) -> Result<(ParamId, Vec<u16>), String> {
        let mut offsets = Vec::new();
        loop {
            match self.func.value(pointer).def {
                Def::Param(id) => return Ok((id, offsets)),
                Def::Arg(..) => return Err("where it begins is not known before the launch".to_string()),
                Def::Result(op, _) => {
                    let Some(moved) = view::AddPtr::of(self.func.op(op)) else {
                        return Err("where it begins is not known before the launch".to_string());
                    };
                    offsets.push(self.scalar(moved.offset, "where it begins")?);
                    pointer = moved.pointer;
                }
            }
        }
    }

    /// The step that computes a scalar.
    fn scalar(&mut self, value: ValueId, what: &str) -> Result<u16, String> {
        self.step(value, 0).map_err(|problem| match problem {
            Problem::Varies => format!("{what} is not known before the launch"),
            Problem::TooLong => format!("{what} takes more than {MAX_STEPS} steps to compute"),
        })
    }

    fn step(&mut self, value: ValueId, depth: usize) -> Result<u16, Problem> {
        if let Some(&step) = self.known.get(&value) {
            return Ok(step);
        }
        let ty = self.func.ty(value);
        let dtype = ty.dtype().filter(|dtype| ty.is_scalar() && !dtype.is_float()).ok_or(Problem::Varies)?;
        if depth > MAX_STEPS {
            return Err(Problem::TooLong);
        }
        let from = match self.func.value(value).def {
            Def::Param(id) if self.func.param(id).kind == ParamKind::Scalar(Dt::Known(dtype)) => From::Arg(id),
            Def::Param(_) | Def::Arg(..) => return Err(Problem::Varies),
            Def::Result(op, _) => {
                let operation = self.func.op(op);
                if let Op::Create(CreateOp::Const { value, .. }) = &operation.op {
                    number(*value)?
                } else if let Op::Elementwise(op) = &operation.op {
                    self.elementwise(op, &operation.operands, dtype, depth)?
                } else if let Some(hint) = view::Hint::of(operation) {
                    // It says something of its operand.
                    return self.step(hint.tile, depth + 1);
                } else {
                    return Err(Problem::Varies);
                }
            }
        };
        if self.steps.len() == MAX_STEPS {
            return Err(Problem::TooLong);
        }
        let number = self.steps.len() as u16;
        self.steps.push(Step { dtype, from });
        self.known.insert(value, number);
        Ok(number)
    }

    fn elementwise(
        &mut self,
        op: &ElementwiseOp,
        operands: &[ValueId],
        dtype: DType,
        depth: usize,
    ) -> Result<From, Problem> {
        let possible = match op {
            ElementwiseOp::Unary { op } => is_total_unary(*op, dtype),
            ElementwiseOp::Binary { op } => is_total(*op, dtype),
            ElementwiseOp::Compare { .. } | ElementwiseOp::Select | ElementwiseOp::Cast { .. } => true,
            ElementwiseOp::FloatInt { .. } | ElementwiseOp::Fma | ElementwiseOp::Bitcast { .. } => false,
        };
        if !possible {
            return Err(Problem::Varies);
        }
        let steps: Vec<u16> = operands.iter().map(|&v| self.step(v, depth + 1)).collect::<Result<_, _>>()?;
        Ok(match (op, steps.as_slice()) {
            (ElementwiseOp::Unary { op }, &[a]) => From::Unary(*op, a),
            (ElementwiseOp::Binary { op }, &[a, b]) => From::Binary(*op, a, b),
            (ElementwiseOp::Compare { op }, &[a, b]) => From::Compare(*op, a, b),
            (ElementwiseOp::Select, &[condition, a, b]) => From::Select(condition, a, b),
            (ElementwiseOp::Cast { .. }, &[a]) => From::Cast(a),
            (_, _) => return Err(Problem::Varies),
        })
    }
}

/// Why there is no step.
enum Problem {
    /// It is another in each program, or in each launch with these arguments.
    Varies,
    /// Too much is to be computed.
    TooLong,
}

fn number(value: Literal) -> Result<From, Problem> {
    match value {
        Literal::Int(value) => Ok(From::Const(value)),
        Literal::Bool(value) => Ok(From::Const(value.into())),
        Literal::Float(_) => Err(Problem::Varies),
    }
}
