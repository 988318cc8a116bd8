//! The rules S1 to S5.

use super::Errors;
use crate::ir::{ControlOp, Def, Dt, Elem, Func, Level, Op, OpId, ParamId, RegionId, Span, Ty, ValueId};

pub(super) fn check<'f>(func: &'f Func, errors: &mut Errors<'f>) {
    let mut checker = Checker {
        func,
        errors,
        visible: vec![false; func.values.len()],
        seen_ops: vec![false; func.ops.len()],
        seen_regions: vec![false; func.regions.len()],
    };
    checker.params();
    if func.body.index() >= func.regions.len() {
        checker.errors.push(Span::UNKNOWN, "the kernel has no body");
        return;
    }
    if !func.region(func.body).args.is_empty() {
        checker.errors.push(Span::UNKNOWN, "the kernel's body has arguments");
    }
    checker.region(func.body, Span::UNKNOWN);
}

struct Checker<'c, 'f> {
    func: &'f Func,
    errors: &'c mut Errors<'f>,
    /// Values that an operand may name at the present place.
    visible: Vec<bool>,
    seen_ops: Vec<bool>,
    seen_regions: Vec<bool>,
}

impl Checker<'_, '_> {
    fn params(&mut self) {
        for (before, call) in self.func.files.calls().iter().enumerate() {
            self.source_place(*call, before);
        }
        for (index, param) in self.func.params.iter().enumerate() {
            let id = ParamId::new(index as u32);
            let dt = param.kind.dt();
            if dt.is_some_and(|dt| !self.dt_exists(dt)) {
                self.errors.push(param.span, format!("parameter `{}` has an unknown dtype parameter", param.name));
            }
            self.source_place(param.span, usize::MAX);
            self.define(param.value, Def::Param(id), param.span);
        }
    }

    fn dt_exists(&self, dt: Dt) -> bool {
        match dt {
            Dt::Known(_) => true,
            Dt::Param(id) => id.index() < self.func.dtype_params.len(),
        }
    }

    /// Whether a value is a parameter that a launch has no argument for.
    fn is_omitted(&self, value: ValueId) -> bool {
        match self.func.value(value).def {
            Def::Param(id) => self.func.level != Level::Generic && self.func.param(id).facts.omitted,
            Def::Arg(..) | Def::Result(..) => false,
        }
    }

    /// The place of a call names another of those `before` it only.
    fn source_place(&mut self, span: Span, before: usize) {
        if !self.func.files.lists(span, before) {
            self.errors.push(span, "a place names a source file or call that does not exist");
        }
    }

    fn ty_exists(&self, ty: &Ty) -> bool {
        match ty.elem {
            Elem::Data(dt) | Elem::Shared(dt) => self.dt_exists(dt),
            Elem::Ptr(param) | Elem::Desc(param) => param.index() < self.func.params.len(),
            Elem::Token | Elem::Barrier => true,
        }
    }

    /// Checks the definition of a value and makes it visible.
    fn define(&mut self, value: ValueId, def: Def, span: Span) {
        let Some(data) = self.func.values.get(value.index()) else {
            self.errors.push(span, "a value that does not exist is defined");
            return;
        };
        if data.def != def {
            self.errors.push(span, format!("the value defined as {def:?} says that it is {:?}", data.def));
        }
        if !self.ty_exists(&data.ty) {
            self.errors.push(span, "a value's type names a parameter that does not exist");
        }
        if data.layout.is_some_and(|l| l.index() >= self.func.layouts.len()) {
            self.errors.push(span, "a value's layout does not exist");
        }
        self.visible[value.index()] = true;
    }

    fn region(&mut self, id: RegionId, span: Span) {
        let Some(region) = self.func.regions.get(id.index()) else {
            self.errors.push(span, "a region does not exist");
            return;
        };
        if std::mem::replace(&mut self.seen_regions[id.index()], true) {
            self.errors.push(span, "a region belongs to two operations");
            return;
        }
        for (index, &arg) in (0u32..).zip(&region.args) {
            self.define(arg, Def::Arg(id, index), span);
        }
        let terminator = Op::Control(if id == self.func.body { ControlOp::Return } else { ControlOp::Yield });
        for (position, &op) in region.ops.iter().enumerate() {
            self.operation(op, span);
            let Some(operation) = self.func.ops.get(op.index()) else { continue };
            let last = position + 1 == region.ops.len();
            if last && operation.op != terminator {
                self.errors.push(operation.span, format!("a region must end in `{}`", terminator.name()));
            } else if !last && operation.op.is_terminator() {
                self.errors.push(operation.span, format!("`{}` in the middle of a region", operation.op.name()));
            }
        }
        if region.ops.is_empty() {
            self.errors.push(span, format!("a region must end in `{}`", terminator.name()));
        }
        // What the region defines is not visible behind it.
        let results = region.ops.iter().filter_map(|op| self.func.ops.get(op.index())).flat_map(|op| &op.results);
        for value in region.args.iter().chain(results) {
            if let Some(visible) = self.visible.get_mut(value.index()) {
                *visible = false;
            }
        }
    }

    fn operation(&mut self, id: OpId, span: Span) {
        let Some(operation) = self.func.ops.get(id.index()) else {
            self.errors.push(span, "an operation does not exist");
            return;
        };
        let name = operation.op.name();
        if std::mem::replace(&mut self.seen_ops[id.index()], true) {
            self.errors.push(operation.span, format!("`{name}` stands in two places"));
            return;
        }
        self.source_place(operation.span, usize::MAX);
        for operand in &operation.operands {
            match self.visible.get(operand.index()) {
                Some(true) if self.is_omitted(*operand) => {
                    self.errors.push(operation.span, format!("`{name}`: a parameter without an argument is used"));
                }
                Some(true) => {}
                Some(false) => self.errors.push(operation.span, format!("`{name}`: an operand is not defined here")),
                None => self.errors.push(operation.span, format!("`{name}`: an operand does not exist")),
            }
        }
        for &region in &operation.regions {
            if region == self.func.body {
                self.errors.push(operation.span, format!("`{name}` owns the kernel's body"));
            } else {
                self.region(region, operation.span);
            }
        }
        for (index, &result) in (0u32..).zip(&operation.results) {
            self.define(result, Def::Result(id, index), operation.span);
        }
    }
}
