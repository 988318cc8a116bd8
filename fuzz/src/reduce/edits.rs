//! Ways to make a case a little smaller.

use kernel_codegen::TensorCopies;
use kernel_core::edit::{Uses, compact, ops_in_order, replace_all_uses};
use kernel_core::ir::{
    AttrMap, Bound, Builder, ControlOp, CreateOp, DType, Dim, Dt, Elem, Func, Literal, Op, OpId, RegionId, Span,
    Unroll, ValueId,
};
use kernel_core::text::parse;
use kernel_core::verify::verify;

use crate::case::{Case, Pattern};

/// An edit of one kind at its `index`-th place: `None` where there are no more places, `Some(None)` where it does not
/// apply there.
pub type Edit = fn(&Case, usize) -> Option<Option<Case>>;

/// All kinds, those that help most first.
pub const KINDS: [Edit; 11] = [
    inline_regions,
    delete_ops,
    replace_by_operand,
    replace_by_zero,
    drop_carried,
    fold,
    drop_unused_params,
    halve_sizes,
    plain_options,
    plain_loops,
    plain_inputs,
];

/// The case with another kernel, if that keeps the rules.
fn with(case: &Case, mut func: Func) -> Option<Case> {
    kernel_core::passes::dce::run(&mut func);
    compact(&mut func);
    verify(&func).ok()?;
    Some(Case { kernel: Bound::new(func).ok()?, ..case.clone() })
}

/// The region that lists an operation, and where.
fn place_of(func: &Func, op: OpId) -> Option<(RegionId, usize)> {
    (0..func.regions.len() as u32).map(RegionId::new).find_map(|region| {
        let at = func.region(region).ops.iter().position(|&other| other == op)?;
        Some((region, at))
    })
}

fn remove(func: &mut Func, op: OpId) {
    if let Some((region, at)) = place_of(func, op) {
        func.regions[region.index()].ops.remove(at);
    }
}

/// The `index`-th operation from the end.
fn nth(func: &Func, index: usize) -> Option<OpId> {
    ops_in_order(func).into_iter().rev().nth(index)
}

/// Deletes an operation whose results nobody takes.
fn delete_ops(case: &Case, index: usize) -> Option<Option<Case>> {
    let mut func = case.kernel.func().clone();
    let op = nth(&func, index)?;
    let uses = Uses::new(&func);
    let unused = func.op(op).results.iter().all(|&result| uses.of(result).is_empty());
    if func.op(op).op.is_terminator() || !unused {
        return Some(None);
    }
    remove(&mut func, op);
    Some(with(case, func))
}

/// Values that say where something is written. They stay as they are: otherwise lanes or programs might come to write to
/// one place, and which of them wins is open.
fn places(func: &Func) -> Vec<bool> {
    let mut found = vec![false; func.values.len()];
    let mut left: Vec<ValueId> = Vec::new();
    for op in ops_in_order(func) {
        let operation = func.op(op);
        if operation.op.buffer_access() == Some(true) {
            // A pointer says where, or the coordinates behind a descriptor and a block.
            let place = if let Op::Memory(_) = operation.op { 0..1 } else { 2..operation.operands.len() };
            left.extend(&operation.operands[place]);
        }
    }
    while let Some(value) = left.pop() {
        if !std::mem::replace(&mut found[value.index()], true)
            && let Some(operation) = func.def_op(value)
        {
            left.extend(&operation.operands);
        }
    }
    found
}

/// Takes an operand for the result.
fn replace_by_operand(case: &Case, index: usize) -> Option<Option<Case>> {
    let mut func = case.kernel.func().clone();
    // At most three operands are tried for each operation.
    let op = nth(&func, index / 3)?;
    let operation = func.op(op).clone();
    let ([result], Some(&operand)) = (operation.results.as_slice(), operation.operands.get(index % 3)) else {
        return Some(None);
    };
    if func.ty(*result) != func.ty(operand) || places(&func)[result.index()] {
        return Some(None);
    }
    replace_all_uses(&mut func, *result, operand);
    remove(&mut func, op);
    Some(with(case, func))
}

/// Takes zeros for the results of an operation.
fn replace_by_zero(case: &Case, index: usize) -> Option<Option<Case>> {
    let mut func = case.kernel.func().clone();
    let op = nth(&func, index)?;
    let operation = func.op(op).clone();
    let constant = matches!(operation.op, Op::Create(CreateOp::Const { .. } | CreateOp::Splat { .. }));
    let data = operation.results.iter().all(|&result| matches!(func.ty(result).elem, Elem::Data(_)));
    let fixed = places(&func);
    let place = operation.results.iter().any(|result| fixed[result.index()]);
    if constant || place || !data || operation.results.is_empty() {
        return Some(None);
    }
    let Some((region, at)) = place_of(&func, op) else { return Some(None) };
    for &result in &operation.results {
        let Some(zero) = zeros(&mut func, region, at, result) else { return Some(None) };
        replace_all_uses(&mut func, result, zero);
    }
    remove(&mut func, op);
    Some(with(case, func))
}

/// Zeros of a value's type, made before an operation.
fn zeros(func: &mut Func, region: RegionId, at: usize, like: ValueId) -> Option<ValueId> {
    let ty = func.ty(like).clone();
    let dtype = ty.dtype()?;
    let literal = match dtype {
        DType::Bool => Literal::Bool(false),
        _ if dtype.is_float() => Literal::float(0.0),
        _ => Literal::Int(0),
    };
    let before = func.region(region).ops.len();
    let mut builder = Builder::new(func, region);
    let mut zero = builder.one(Op::constant(literal, dtype), &[], Span::UNKNOWN).ok()?;
    if !ty.is_scalar() {
        zero = builder.one(CreateOp::Splat { shape: ty.shape }, &[zero], Span::UNKNOWN).ok()?;
    }
    // What was appended moves to its place.
    let ops = &mut func.regions[region.index()].ops;
    let new: Vec<OpId> = ops.drain(before..).collect();
    ops.splice(at..at, new);
    Some(zero)
}

/// Takes one of the branches of an `if`, or one trip of a loop.
fn inline_regions(case: &Case, index: usize) -> Option<Option<Case>> {
    let mut func = case.kernel.func().clone();
    let owners: Vec<OpId> = ops_in_order(&func)
        .into_iter()
        .filter(|&op| matches!(func.op(op).op, Op::Control(ControlOp::If | ControlOp::For { .. } | ControlOp::While)))
        .collect();
    let op = *owners.get(index / 2)?;
    let operation = func.op(op).clone();
    let (body, values) = match operation.op {
        Op::Control(ControlOp::If) => (operation.regions[index % 2], Vec::new()),
        Op::Control(ControlOp::For { .. }) if index.is_multiple_of(2) => {
            let first = [operation.operands[0]].into_iter().chain(operation.operands[3..].iter().copied());
            (operation.regions[0], first.collect())
        }
        Op::Control(ControlOp::While) if index.is_multiple_of(2) => (operation.regions[1], operation.operands.clone()),
        _ => return Some(None),
    };
    let Some((region, at)) = place_of(&func, op) else { return Some(None) };
    let args = func.region(body).args.clone();
    args.iter().zip(&values).for_each(|(&arg, &value)| replace_all_uses(&mut func, arg, value));
    let mut ops = std::mem::take(&mut func.regions[body.index()].ops);
    let Some(last) = ops.pop() else { return Some(None) };
    let yields = func.op(last).operands.clone();
    operation.results.iter().zip(yields).for_each(|(&result, value)| replace_all_uses(&mut func, result, value));
    func.regions[region.index()].ops.splice(at..=at, ops);
    Some(with(case, func))
}

/// Folds what is constant, and drops what is there twice, by the passes that do so.
fn fold(case: &Case, index: usize) -> Option<Option<Case>> {
    let mut func = case.kernel.func().clone();
    let pass = kernel_core::passes::PASSES.get(index)?;
    let before = ops_in_order(&func).len();
    let changed = (pass.run)(&mut func).unwrap_or(false);
    Some(with(case, func).filter(|case| changed && ops_in_order(case.kernel.func()).len() < before))
}

/// Drops a carried value of a loop, taking its first value for it everywhere.
fn drop_carried(case: &Case, index: usize) -> Option<Option<Case>> {
    let mut func = case.kernel.func().clone();
    let mut places = ops_in_order(&func).into_iter().flat_map(|op| {
        let carried = match func.op(op).op {
            Op::Control(ControlOp::For { .. }) => func.op(op).results.len(),
            _ => 0,
        };
        (0..carried).map(move |number| (op, number))
    });
    let (op, number) = places.nth(index)?;
    drop(places);
    let operation = func.op(op).clone();
    let (first, region) = (operation.operands[3 + number], operation.regions[0]);
    let arg = func.region(region).args[1 + number];
    replace_all_uses(&mut func, arg, first);
    replace_all_uses(&mut func, operation.results[number], first);
    let Some(&last) = func.region(region).ops.last() else { return Some(None) };
    func.ops[last.index()].operands.remove(number);
    func.ops[op.index()].operands.remove(3 + number);
    func.ops[op.index()].results.remove(number);
    func.regions[region.index()].args.remove(1 + number);
    renumber(&mut func, op, region);
    Some(with(case, func))
}

/// Makes definitions of results and arguments say their places again.
fn renumber(func: &mut Func, op: OpId, region: RegionId) {
    use kernel_core::ir::Def;
    for (index, result) in (0..).zip(func.op(op).results.clone()) {
        func.values[result.index()].def = Def::Result(op, index);
    }
    for (index, arg) in (0..).zip(func.region(region).args.clone()) {
        func.values[arg.index()].def = Def::Arg(region, index);
    }
}

/// Drops a parameter that nothing names, with its argument. Through the text, where parameters have names.
fn drop_unused_params(case: &Case, index: usize) -> Option<Option<Case>> {
    let name = case.kernel.func().params.get(index)?.name.clone();
    let text = case.text();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let names = |line: &str| line.split(|c: char| !is_word(c)).any(|word| word == name);
    let own = |line: &str| line.trim_start().starts_with("param ") && names(line);
    let used = text.lines().filter(|line| !line.starts_with(';') && !own(line)).any(names);
    if used {
        return Some(None);
    }
    // Which line of the header is the argument's.
    let func = case.kernel.func();
    let is_scalar = |kind: &kernel_core::ir::ParamKind| matches!(kind, kernel_core::ir::ParamKind::Scalar(_));
    let scalar = is_scalar(&func.params[index].kind);
    let number = func.params[..index].iter().filter(|param| is_scalar(&param.kind) == scalar).count();
    let prefix = if scalar { "; scalar:" } else { "; buffer:" };
    let (mut seen, mut kept) = (0, String::new());
    for line in text.lines() {
        let header = line.starts_with(prefix);
        seen += usize::from(header);
        if !(own(line) || header && seen == number + 1) {
            kept += line;
            kept.push('\n');
        }
    }
    parse(&kept).ok()?;
    Some(Case::parse(&kept).ok())
}

/// Halves a size in attributes.
struct Halved(i64);

impl Halved {
    fn halve(&self, dim: &mut Dim) {
        if dim.as_const() == Some(self.0) {
            *dim = Dim::from(self.0 / 2);
        }
    }
}

impl AttrMap for Halved {
    fn dt(&mut self, dt: Dt) -> Option<Dt> {
        Some(dt)
    }

    fn dim(&mut self, dim: &Dim) -> Option<Dim> {
        let mut dim = dim.clone();
        self.halve(&mut dim);
        Some(dim)
    }

    fn shape(&mut self, shape: &[Dim]) -> Option<Vec<Dim>> {
        shape.iter().map(|dim| self.dim(dim)).collect()
    }
}

/// Halves a size wherever it is one.
fn halve_sizes(case: &Case, index: usize) -> Option<Option<Case>> {
    let mut func = case.kernel.func().clone();
    let mut sizes: Vec<i64> = func.values.iter().filter_map(|value| value.ty.dims()).flatten().collect();
    sizes.sort_unstable();
    sizes.dedup();
    let size = *sizes.iter().rev().filter(|&&size| size > 1).nth(index)?;
    let halve = |dim: &mut Dim| Halved(size).halve(dim);
    func.values.iter_mut().for_each(|value| value.ty.shape.iter_mut().for_each(halve));
    for operation in &mut func.ops {
        operation.op = operation.op.map_attrs(&mut Halved(size))?;
    }
    for param in &mut func.params {
        if let kernel_core::ir::ParamKind::Desc { block, .. } = &mut param.kind {
            block.iter_mut().for_each(halve);
        }
    }
    Some(with(case, func))
}

/// Switches an option of the launch back to what is plain.
fn plain_options(case: &Case, index: usize) -> Option<Option<Case>> {
    let mut plain = case.clone();
    let options = &mut plain.options;
    match index {
        0 => plain.grid = 1,
        1 => options.num_warps = 1,
        2 => options.num_warps = 4,
        3 => options.num_warps /= 2,
        4 => options.num_stages = 1,
        5 => options.num_stages = 2,
        6 => options.tensor_copies = TensorCopies::Never,
        7 => options.checks = kernel_codegen::Checks::AtLaunch,
        _ => return None,
    }
    let changed = plain.options != case.options || plain.grid != case.grid;
    let smaller = plain.options.num_warps > 0 && plain.options.num_warps <= case.options.num_warps;
    Some((changed && smaller && plain.options.num_stages <= case.options.num_stages).then_some(plain))
}

/// Drops an attribute of a loop.
fn plain_loops(case: &Case, index: usize) -> Option<Option<Case>> {
    let mut func = case.kernel.func().clone();
    let op = ops_in_order(&func)
        .into_iter()
        .filter(|&op| matches!(func.op(op).op, Op::Control(ControlOp::For { .. })))
        .nth(index / 4)?;
    let before = func.op(op).op.clone();
    if let Op::Control(ControlOp::For { reverse, unroll, stages, warp_specialize, .. }) = &mut func.ops[op.index()].op {
        match index % 4 {
            0 => *reverse = false,
            1 => *unroll = Unroll::Auto,
            2 => *stages = 0,
            _ => *warp_specialize = false,
        }
    }
    Some(if func.op(op).op == before { None } else { with(case, func) })
}

/// Makes an argument plain: a scalar 0, 1 or half of what it is, a buffer shorter or of one number.
fn plain_inputs(case: &Case, index: usize) -> Option<Option<Case>> {
    let mut plain = case.clone();
    let scalars = plain.scalars.len() * 2;
    if index < scalars {
        let scalar = &mut plain.scalars[index / 2];
        let before = *scalar;
        *scalar = if index.is_multiple_of(2) { 0 } else { *scalar / 2 };
        return Some((*scalar != before).then_some(plain));
    }
    let index = index - scalars;
    let input = plain.inputs.get_mut(index / 3)?;
    let before = input.clone();
    match index % 3 {
        0 => (input.pattern, input.range) = (Pattern::Zero, (1, 1)),
        1 => (input.pattern, input.salt) = (Pattern::Noise, 1),
        _ if input.tensor.is_none() => input.len = (input.len / 2).max(1),
        _ => {}
    }
    let constant = before.pattern == Pattern::Zero;
    Some((*input != before && !constant).then_some(plain))
}
