//! Binding one operation.

use super::Binder;
use super::shapes::is_shape;
use super::unroll::copied_ops;
use crate::ir::known::constant;
use crate::ir::{
    AttrMap, Builder, ConstOrigin, ControlOp, CreateOp, DType, DescOp, Dim, Dt, ElementwiseOp, Literal, MAX_STAGES,
    MemoryOp, Op, OpId, Operation, RegionId, ShapeOp, Span, Unroll, ValueId,
};
use crate::num;
use crate::passes::fold::evaluate;

/// The number of elements of a bound shape.
fn elements(shape: &[Dim]) -> Option<i64> {
    Dim::product(shape).ok()?.as_const()
}

/// A constant as Rust writes it.
pub(super) fn show_literal(literal: Literal) -> String {
    match literal {
        Literal::Bool(value) => value.to_string(),
        Literal::Int(value) => value.to_string(),
        Literal::Float(bits) => format!("{:?}", f64::from_bits(bits)),
    }
}

/// Binds attributes of an operation at that place.
struct DTypeBound<'b, 's> {
    binder: &'b mut Binder<'s>,
    span: Span,
}

impl AttrMap for DTypeBound<'_, '_> {
    fn dt(&mut self, dt: Dt) -> Option<Dt> {
        Some(Dt::Known(self.binder.dtype(dt)))
    }

    fn dim(&mut self, dim: &Dim) -> Option<Dim> {
        self.binder.checked_dim(dim, self.span).map(Dim::from)
    }

    fn shape(&mut self, shape: &[Dim]) -> Option<Vec<Dim>> {
        self.binder.shape(shape, self.span)
    }
}

impl Binder<'_> {
    /// Binds an operation to the end of a region of the bound kernel.
    pub(super) fn operation(&mut self, id: OpId, to: RegionId) {
        let source = self.source;
        let operation = source.op(id);
        if let Op::Control(op) = &operation.op {
            match op {
                ControlOp::If => {
                    if let Some(taken) = self.known_branch(operation) {
                        return self.inline(operation, taken, to);
                    }
                    if self.combines {
                        return self.straightened(operation, to);
                    }
                }
                ControlOp::StaticAssert { message } => return self.static_assert(operation, message),
                ControlOp::For { reverse, unroll: Unroll::Full, counter, .. } => {
                    return self.unrolled(id, *reverse, *counter, to);
                }
                ControlOp::For { .. }
                | ControlOp::While
                | ControlOp::Reduce { .. }
                | ControlOp::Scan { .. }
                | ControlOp::Map { .. }
                | ControlOp::Yield
                | ControlOp::Return
                | ControlOp::Print { .. }
                | ControlOp::Assert { .. } => {}
            }
        }
        // Blocks that nothing reads or writes may have any shape.
        if matches!(operation.op, Op::Desc(DescOp::MakeDesc { .. }))
            && operation.results.iter().all(|&result| !self.used[result.index()])
        {
            return;
        }
        let combines = matches!(operation.op, Op::Control(ControlOp::Reduce { .. } | ControlOp::Scan { .. }));
        let outer = self.combines;
        self.combines |= combines;
        let regions: Vec<RegionId> = operation.regions.iter().map(|&region| self.inner_region(region)).collect();
        self.combines = outer;
        let op = self.op(&operation.op, operation.span);
        let operands: Option<Vec<ValueId>> = operation.operands.iter().map(|&v| self.mapped(v)).collect();
        // What is missing was reported where it went missing.
        let (Some(mut op), Some(operands)) = (op, operands) else { return };
        if !self.loop_hints(&operation.op, &mut op, operation.span) {
            return;
        }
        if !self.bitcast_fits(&op, &operands, operation.span)
            || !self.atomic_fits(&op, &operands, operation.span)
            || !self.reshape_fits(operation, &op, &operands)
        {
            return;
        }
        let yields_missing = regions.iter().any(|&r| !self.ends(r));
        if yields_missing {
            return;
        }
        if let Op::Control(ControlOp::For { unroll: Unroll::By(factor), .. }) = op {
            let copied = regions.first().map_or(0, |&body| copied_ops(&self.func, body));
            if !self.affords(operation.span, u128::from(factor), copied) {
                return;
            }
        }
        let (op, operands) = match evaluate(&self.func, &op, &operands) {
            Some((value, dtype)) => (Op::constant(value, dtype), Vec::new()),
            None => (op, operands),
        };
        let mut builder = Builder::new(&mut self.func, to);
        builder.flags = operation.flags;
        match builder.op(op, &operands, &regions, operation.span) {
            Ok(new) => {
                let results = self.func.op(new).results.clone();
                for (at, (&old, new)) in operation.results.iter().zip(results).enumerate() {
                    if self.is_tile(old, new, operation.span) {
                        let agreed = self.agreed(&operation.op, &regions, at);
                        let constant = agreed.zip(self.func.ty(new).dtype());
                        self.map[old.index()] = match constant {
                            Some((value, dtype)) => self.constant_in(value, dtype, operation.span, to),
                            None => Some(new),
                        };
                    }
                }
            }
            // A call whose assertion fails has said what is wrong with it.
            Err(_) if self.is_reported(operation.span) => {}
            Err(error) => self.error(operation.span, format!("`{}`: {error}", operation.op.name()), None),
        }
    }

    /// The constant that both branches of an `if` give, whichever the launch takes: what depends on it is decided here.
    fn agreed(&self, op: &Op, regions: &[RegionId], at: usize) -> Option<Literal> {
        let (Op::Control(ControlOp::If), &[then, otherwise]) = (op, regions) else { return None };
        let given = |region: RegionId| {
            let &last = self.func.region(region).ops.last()?;
            constant(&self.func, *self.func.op(last).operands.get(at)?)
        };
        given(then).filter(|value| given(otherwise) == Some(*value))
    }

    /// Whether a result can have the shape that follows from those of the operands; a mistake is reported.
    fn is_tile(&mut self, old: ValueId, new: ValueId, span: Span) -> bool {
        is_shape(&self.func.ty(new).shape) || self.shape(&self.source.ty(old).shape, span).is_some()
    }

    /// Puts the numbers in their places that constexprs have said of a loop; whether it can have them.
    fn loop_hints(&mut self, source: &Op, op: &mut Op, span: Span) -> bool {
        let Op::Control(ControlOp::For { unroll, stages, unroll_by, stages_by, .. }) = op else { return true };
        let number = |dim: Option<Dim>| dim.as_ref().and_then(Dim::as_const);
        let (factor, depth) = (number(unroll_by.take()), number(stages_by.take()));
        let Op::Control(ControlOp::For { unroll_by, stages_by, .. }) = source else { return true };
        if let (Some(said), Some(factor)) = (unroll_by, factor) {
            match Unroll::joining(factor) {
                Some(joined) => *unroll = joined,
                None => return self.no_hint("unroll", said, Unroll::MOST, span),
            }
        }
        if let (Some(said), Some(depth)) = (stages_by, depth) {
            match u8::try_from(depth).ok().filter(|depth| (1..=MAX_STAGES).contains(depth)) {
                Some(depth) => *stages = depth,
                None => return self.no_hint("stages", said, MAX_STAGES, span),
            }
        }
        true
    }

    fn no_hint(&mut self, name: &str, said: &Dim, most: u8, span: Span) -> bool {
        let message =
            format!("`#[{name}({})]` takes a number from 1 to {most}{}", self.show(said), self.with_values(&[said]));
        self.error(span, message, None);
        false
    }

    fn inner_region(&mut self, from: RegionId) -> RegionId {
        let source = self.source;
        let to = self.func.new_region([]);
        for &arg in &source.region(from).args {
            // A type without a value comes from an operation that was reported.
            if let Some(ty) = self.ty(source.ty(arg)) {
                let new = self.func.add_region_arg(to, ty);
                self.map[arg.index()] = Some(new);
            }
        }
        self.region(from, to);
        to
    }

    /// Whether a bound region got its terminator: it does not if what it yields is missing.
    fn ends(&self, region: RegionId) -> bool {
        self.func.region(region).ops.last().is_some_and(|&op| self.func.op(op).op.is_terminator())
    }

    /// The region that an `if` on a known condition takes.
    fn known_branch(&self, operation: &Operation) -> Option<RegionId> {
        let condition = self.mapped(*operation.operands.first()?)?;
        match constant(&self.func, condition)? {
            Literal::Bool(true) => operation.regions.first().copied(),
            Literal::Bool(false) => operation.regions.get(1).copied(),
            Literal::Int(_) | Literal::Float(_) => None,
        }
    }

    fn inline(&mut self, operation: &Operation, region: RegionId, to: RegionId) {
        let source = self.source;
        let Some((&last, ops)) = source.region(region).ops.split_last() else { return };
        for &op in ops {
            self.operation(op, to);
        }
        for (result, &value) in operation.results.iter().zip(&source.op(last).operands) {
            self.map[result.index()] = self.mapped(value);
        }
    }

    /// Both branches of an `if`, one after the other: `select` chooses. They have no effects where elements are combined.
    fn straightened(&mut self, operation: &Operation, to: RegionId) {
        let source = self.source;
        let mut yields = Vec::new();
        for &region in &operation.regions {
            let Some((&last, ops)) = source.region(region).ops.split_last() else { return };
            ops.iter().for_each(|&op| self.operation(op, to));
            yields.push(&source.op(last).operands);
        }
        let ([then, otherwise], Some(&condition)) = (yields.as_slice(), operation.operands.first()) else { return };
        for ((&result, &a), &b) in operation.results.iter().zip(*then).zip(*otherwise) {
            let chosen: Option<Vec<ValueId>> = [condition, a, b].iter().map(|&value| self.mapped(value)).collect();
            // What is missing was reported where it went missing.
            let Some(chosen) = chosen else { continue };
            match Builder::new(&mut self.func, to).op(ElementwiseOp::Select, &chosen, &[], operation.span) {
                Ok(new) => self.map[result.index()] = self.func.op(new).results.first().copied(),
                Err(error) => self.error(operation.span, format!("`if`: {error}"), None),
            }
        }
    }

    fn static_assert(&mut self, operation: &Operation, message: &str) {
        let Some(condition) = operation.operands.first().and_then(|&v| self.mapped(v)) else { return };
        match constant(&self.func, condition) {
            Some(Literal::Bool(true)) => {}
            Some(_) => {
                let consts = self.source.const_params.iter().zip(&self.consts);
                let consts = consts
                    .filter(|(param, _)| !matches!(param.origin, ConstOrigin::IsDtype(..) | ConstOrigin::Given(_)));
                let values: Vec<String> = consts.filter_map(|(p, v)| v.map(|v| format!("{} = {v}", p.name))).collect();
                let what = if message.is_empty() { String::new() } else { format!(": {message}") };
                let with = if values.is_empty() { String::new() } else { format!(" (with {})", values.join(", ")) };
                self.error(operation.span, format!("static assertion failed{what}{with}"), None);
            }
            None => {
                let message = "the condition of `static_assert!` is not known before the launch".to_string();
                let help = "it may use constexprs, `Const` parameters and literals; use `assert!` for the rest";
                self.error(operation.span, message, Some(help.to_string()));
            }
        }
    }

    /// The operation with its attributes bound; mistakes are reported.
    fn op(&mut self, op: &Op, span: Span) -> Option<Op> {
        if let Op::Create(op) = op {
            return self.create(op, span);
        }
        op.map_attrs(&mut DTypeBound { binder: self, span })
    }

    fn create(&mut self, op: &CreateOp, span: Span) -> Option<Op> {
        Some(match op {
            CreateOp::Const { value, dtype } => {
                let dtype = self.dtype(*dtype);
                let Some(value) = num::normalise(*value, dtype) else {
                    self.literal_error(&format!("the literal {}", show_literal(*value)), dtype, span);
                    return None;
                };
                Op::constant(value, dtype)
            }
            CreateOp::ConstExpr { value, dtype } => {
                let dtype = self.dtype(*dtype);
                let number = self.checked_dim(value, span)?;
                let literal = match dtype {
                    DType::Bool => Some(Literal::Bool(number != 0)),
                    _ => num::normalise(Literal::Int(number.into()), dtype),
                };
                let Some(literal) = literal else {
                    let what = match value {
                        Dim::Const(_) => format!("the value {number}"),
                        Dim::Poly(_) => format!("`{}` is {number}, which", self.show(value)),
                    };
                    self.literal_error(&what, dtype, span);
                    return None;
                };
                Op::constant(literal, dtype)
            }
            CreateOp::Limit { kind, dtype } => {
                let dtype = self.dtype(*dtype);
                let Some(value) = num::limit(*kind, dtype) else {
                    self.error(span, format!("{dtype} has no value `{}`", kind.name()), None);
                    return None;
                };
                Op::constant(value, dtype)
            }
            CreateOp::Arange { lo, hi } => {
                let (lo, hi) = self.arange(lo, hi, span)?;
                CreateOp::Arange { lo: lo.into(), hi: hi.into() }.into()
            }
            CreateOp::ProgramId { .. }
            | CreateOp::NumPrograms { .. }
            | CreateOp::Counter { .. }
            | CreateOp::Splat { .. } => op.map_attrs(&mut DTypeBound { binder: self, span })?.into(),
        })
    }

    fn literal_error(&mut self, what: &str, dtype: DType, span: Span) {
        let help = if dtype.is_int() {
            Some(format!("{dtype} holds {}..={}", dtype.int_min(), dtype.int_max()))
        } else {
            num::limit(crate::ir::LimitKind::Max, dtype)
                .map(|max| format!("the largest {dtype} is {}", num::show(max, dtype)))
        };
        self.error(span, format!("{what} does not fit {dtype}"), help);
    }

    /// Whether memory can be changed at once in elements of that dtype.
    fn atomic_fits(&mut self, op: &Op, operands: &[ValueId], span: Span) -> bool {
        let is_atomic = matches!(
            op,
            Op::Memory(MemoryOp::AtomicRmw { .. } | MemoryOp::AtomicCas { .. }) | Op::Desc(DescOp::DescReduce { .. })
        );
        let dtype = operands.get(1).filter(|_| is_atomic).and_then(|&v| self.func.ty(v).dtype());
        let Some(dtype) = dtype.filter(|dtype| dtype.bits() < 16) else { return true };
        let message = format!("atomics work on dtypes of at least 16 bits, {dtype} has {}", dtype.bits());
        self.error(span, message, Some("use i32 in memory".to_string()));
        false
    }

    /// Whether a reshape keeps the elements, where only the values of constexprs decide.
    fn reshape_fits(&mut self, operation: &Operation, op: &Op, operands: &[ValueId]) -> bool {
        let (Op::Shape(ShapeOp::Reshape { shape }), Op::Shape(ShapeOp::Reshape { shape: written })) =
            (op, &operation.op)
        else {
            return true;
        };
        let (Some(&bound), Some(&source)) = (operands.first(), operation.operands.first()) else { return true };
        let own = self.func.ty(bound).shape.clone();
        let (Some(before), Some(after)) = (elements(&own), elements(shape)) else { return true };
        if before == after {
            return true;
        }
        let own_written = self.source.ty(source).shape.clone();
        let (from, to) = (self.show_shape(&own_written, &own), self.show_shape(written, shape));
        let dims: Vec<&Dim> = own_written.iter().chain(written).collect();
        let with = self.with_values(&dims);
        let message = format!("`reshape` keeps the elements, but {from} has {before} and {to} has {after}{with}");
        self.error(operation.span, message, Some("choose a shape with as many elements".to_string()));
        false
    }

    /// A shape as it is written, and what it is if that is something else.
    fn show_shape(&self, written: &[Dim], bound: &[Dim]) -> String {
        let show = |shape: &[Dim]| {
            let dims: Vec<String> = shape.iter().map(|dim| self.show(dim)).collect();
            format!("[{}]", dims.join(", "))
        };
        if written == bound { show(bound) } else { format!("`{}` = {}", show(written), show(bound)) }
    }

    /// Whether a bitcast keeps the width, which only the dtypes decide.
    fn bitcast_fits(&mut self, op: &Op, operands: &[ValueId], span: Span) -> bool {
        let Op::Elementwise(ElementwiseOp::Bitcast { to: Dt::Known(to) }) = op else { return true };
        let Some(from) = operands.first().and_then(|&v| self.func.ty(v).dtype()) else { return true };
        if from.bits() == to.bits() {
            return true;
        }
        let message =
            format!("a bitcast keeps the width, but {from} has {} bits and {to} has {}", from.bits(), to.bits());
        self.error(span, message, Some("use `as` to convert the value".to_string()));
        false
    }
}
