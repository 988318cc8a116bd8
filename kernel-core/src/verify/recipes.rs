//! L15: what the host computes of a tensor that the kernel makes.

use super::Errors;
use crate::ir::recipe::{From, MAX_STEPS, is_total, is_total_unary};
use crate::ir::{DType, Dt, Func, Level, Param, ParamKind, Recipe};

/// Checks the recipes of all parameters.
pub(super) fn check(func: &Func, errors: &mut Errors<'_>) {
    for (index, param) in func.params.iter().enumerate() {
        let Some(recipe) = &param.recipe else { continue };
        if func.level == Level::Generic {
            errors.push(param.span, format!("parameter `{}` has no place in a generic kernel", param.name));
        } else if let Some(problem) = wrong(func, index, param, recipe) {
            errors.push(param.span, format!("the host cannot make the tensor `{}`: {problem}", param.name));
        }
    }
    if func.level == Level::Generic && !func.by_pointers.is_empty() {
        errors.push(crate::ir::Span::UNKNOWN, "a generic kernel does not say how its tensors are accessed");
    }
}

/// What is wrong with a recipe.
fn wrong(func: &Func, index: usize, param: &Param, recipe: &Recipe) -> Option<String> {
    let earlier = |id: crate::ir::ParamId| func.params.get(id.index()).filter(|_| id.index() < index);
    let Some(ParamKind::Ptr { dt, mutable }) = earlier(recipe.base).map(|base| &base.kind) else {
        return Some("it lies in no buffer".to_string());
    };
    // The parameter may have become a pointer, whose rank is that of what is left.
    let (own, writes) = match &param.kind {
        ParamKind::Desc { dt, block, mutable } if block.len() == recipe.sizes.len() => (dt, mutable),
        ParamKind::Ptr { dt, mutable } => (dt, mutable),
        _ => return Some("it has another number of dimensions".to_string()),
    };
    if own != dt || (*writes && !mutable) || recipe.sizes.len() != recipe.strides.len() {
        return Some("it is another tensor than its buffer holds".to_string());
    }
    if recipe.steps.len() > MAX_STEPS {
        return Some(format!("that takes more than {MAX_STEPS} steps"));
    }
    let dtype = |step: u16| recipe.steps.get(usize::from(step)).map(|step| step.dtype);
    let named = recipe.offsets.iter().chain(&recipe.sizes).chain(&recipe.strides);
    if !named.into_iter().all(|&step| dtype(step).is_some_and(DType::is_int)) {
        return Some("a size, a stride or the start is no integer".to_string());
    }
    for (number, step) in recipe.steps.iter().enumerate() {
        let before = step.from.operands().all(|operand| usize::from(operand) < number);
        let is = |operand: u16, wanted: DType| dtype(operand) == Some(wanted);
        let fits = match step.from {
            From::Const(value) if step.dtype == DType::Bool => matches!(value, 0 | 1),
            From::Const(value) => (step.dtype.int_min()..=step.dtype.int_max()).contains(&value),
            From::Arg(id) => earlier(id).is_some_and(|arg| arg.kind == ParamKind::Scalar(Dt::Known(step.dtype))),
            From::Unary(op, a) => is(a, step.dtype) && is_total_unary(op, step.dtype),
            From::Binary(op, a, b) => is(a, step.dtype) && is(b, step.dtype) && is_total(op, step.dtype),
            From::Compare(_, a, b) => step.dtype == DType::Bool && dtype(a) == dtype(b),
            From::Select(condition, a, b) => is(condition, DType::Bool) && is(a, step.dtype) && is(b, step.dtype),
            From::Cast(_) => true,
        };
        if step.dtype.is_float() || !before || !fits {
            return Some(format!("step {number} does not fit its operands"));
        }
    }
    None
}
