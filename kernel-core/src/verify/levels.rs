//! The rules of types (T) and levels (L). The structure is known to hold.

use super::{Errors, MAX_ELEMENTS};
use crate::ir::infer::yield_types;
use crate::ir::{
    Atom, AttrMap, ConstId, ConstOrigin, ConstParam, ConstTy, ControlOp, CreateOp, DType, Def, Dim, Dt, DtypeId, Elem,
    Func, GpuOp, Level, Literal, MAX_TENSOR_RANK, Op, Operation, Param, ParamId, ParamKind, Passing, RegionId,
    SharedRange, Span, Ty, Unroll, ValueId, result_types,
};
use crate::num;

pub(super) fn check<'f>(func: &'f Func, errors: &mut Errors<'f>) {
    let mut checker = Checker { func, errors, open: Vec::new(), counters: Vec::new() };
    checker.header();
    checker.region(func.body);
}

struct Checker<'c, 'f> {
    func: &'f Func,
    errors: &'c mut Errors<'f>,
    /// The counters of the loops around the place.
    open: Vec<ConstId>,
    /// The counters of all loops so far.
    counters: Vec<ConstId>,
}

/// Whether every constexpr in the dimension is one of the kernel's, or the counter of a loop around the place.
fn is_closed(func: &Func, open: &[ConstId], dim: &Dim) -> bool {
    let Dim::Poly(poly) = dim else { return true };
    poly.terms.iter().flat_map(|term| &term.0).all(|atom| match atom {
        Atom::Const(id) => func
            .const_params
            .get(id.index())
            .is_some_and(|param| param.origin != ConstOrigin::Counter || open.contains(id)),
        Atom::Div(a, b) | Atom::Rem(a, b) | Atom::Min(a, b) | Atom::Max(a, b) => {
            is_closed(func, open, a) && is_closed(func, open, b)
        }
        Atom::Power(exponent) => is_closed(func, open, exponent),
    })
}

/// Leaves attributes as they are, and fails on dimensions that are not closed.
struct Closed<'c>(&'c Func, &'c [ConstId]);

impl AttrMap for Closed<'_> {
    fn dt(&mut self, dt: Dt) -> Option<Dt> {
        Some(dt)
    }

    fn dim(&mut self, dim: &Dim) -> Option<Dim> {
        is_closed(self.0, self.1, dim).then(|| dim.clone())
    }

    fn shape(&mut self, shape: &[Dim]) -> Option<Vec<Dim>> {
        shape.iter().map(|dim| self.dim(dim)).collect()
    }
}

impl Checker<'_, '_> {
    fn generic(&self) -> bool {
        self.func.level == Level::Generic
    }

    fn header(&mut self) {
        let func = self.func;
        let unknown = Span::UNKNOWN;
        let symbolic = !func.dtype_params.is_empty() || !func.const_params.is_empty();
        if symbolic && !self.generic() {
            self.errors.push(unknown, "a bound kernel has no dtype parameters and no constexprs");
        }
        for (i, param) in func.dtype_params.iter().enumerate() {
            if param.accumulator_of.is_some_and(|of| of.index() >= i) {
                self.errors.push(unknown, format!("dtype parameter `{}` follows from one before it", param.name));
            }
            if func.dtype_params[..i].iter().any(|p| p.name == param.name) {
                self.errors.push(unknown, format!("two dtype parameters are named `{}`", param.name));
            }
        }
        for (i, param) in func.const_params.iter().enumerate() {
            self.const_param(param);
            if func.const_params[..i].iter().any(|p| p.name == param.name) {
                self.errors.push(unknown, format!("two constexprs are named `{}`", param.name));
            }
        }
        if self.func.level != Level::Placed && !func.layouts.is_empty() {
            self.errors.push(unknown, "only a placed kernel has layouts");
        }
        if self.func.level != Level::Placed && func.programs.is_some() {
            self.errors.push(unknown, "only a placed kernel says for how many programs there shall be room");
        }
        if func.programs == Some(0) {
            self.errors.push(unknown, "room for no program");
        }
        for param in &func.params {
            self.param_kind(param);
            let hidden = param.kind.is_hidden();
            if hidden && self.generic() {
                self.errors.push(param.span, format!("parameter `{}` has no place in a generic kernel", param.name));
            }
            let power = |n: u32| n == 0 || n.is_power_of_two();
            let facts = &param.facts;
            if ![facts.divisible_by, facts.len_divisible_by, facts.stride_divisible_by].into_iter().all(power) {
                self.errors.push(param.span, format!("a divisor of `{}` is not a power of two", param.name));
            }
            self.passing(param);
            let dt = param.kind.dt();
            if !self.generic() && matches!(dt, Some(Dt::Param(_))) {
                self.errors.push(param.span, format!("the dtype of parameter `{}` is not bound", param.name));
            }
            self.value(param.value, param.span, "parameter");
        }
    }

    /// What the value of a constexpr comes from exists, and is of its type.
    fn const_param(&mut self, param: &ConstParam) {
        let exists = |of: DtypeId| of.index() < self.func.dtype_params.len();
        let fits = match param.origin {
            ConstOrigin::Counter => matches!(param.ty, ConstTy::Int(_)),
            ConstOrigin::Launch => true,
            ConstOrigin::NumWarps | ConstOrigin::Capability => param.ty != ConstTy::Bool,
            ConstOrigin::Given(of) => {
                let optional = |param: &Param| param.passing == Passing::Optional;
                self.func.params.get(of.index()).is_some_and(optional) && param.ty == ConstTy::Bool
            }
            ConstOrigin::Bits(of) => exists(of) && param.ty != ConstTy::Bool,
            ConstOrigin::IsDtype(of, dt) => {
                let known = match dt {
                    Dt::Known(_) => true,
                    Dt::Param(id) => exists(id),
                };
                exists(of) && known && param.ty == ConstTy::Bool
            }
        };
        if !fits {
            self.errors.push(Span::UNKNOWN, format!("constexpr `{}` cannot be computed", param.name));
        }
    }

    /// What a parameter stands for without an argument exists, and is of its kind.
    fn passing(&mut self, param: &Param) {
        if param.passing != Passing::Always && !self.generic() {
            self.errors.push(param.span, format!("whether `{}` has an argument is not bound", param.name));
        }
        if let Passing::InPlace(of) = param.passing {
            let dtypes = match (&param.kind, self.func.params.get(of.index())) {
                (ParamKind::Ptr { dt, mutable: false }, Some(other)) if other.passing == Passing::Always => {
                    Some((*dt, &other.kind))
                }
                _ => None,
            };
            if !dtypes.is_some_and(|(dt, other)| *other == ParamKind::Ptr { dt, mutable: true }) {
                self.errors.push(param.span, format!("`{}` cannot be in place of that parameter", param.name));
            }
        }
    }

    /// What a parameter refers to exists, and the blocks of a tensor are tiles.
    fn param_kind(&mut self, param: &Param) {
        let func = self.func;
        let kind_of = |of: ParamId| func.params.get(of.index()).map(|p| &p.kind);
        match &param.kind {
            ParamKind::Length(of) => {
                if !matches!(kind_of(*of), Some(ParamKind::Ptr { .. })) {
                    self.errors.push(param.span, format!("`{}` is the length of no buffer", param.name));
                }
            }
            // The parameter may have become a pointer.
            ParamKind::DescShape { of, axis } | ParamKind::DescStride { of, axis } => {
                let known = matches!(kind_of(*of), Some(ParamKind::Ptr { .. } | ParamKind::Desc { .. }));
                if !known || usize::from(*axis) >= MAX_TENSOR_RANK {
                    self.errors.push(param.span, format!("`{}` is a dimension of no tensor", param.name));
                }
            }
            ParamKind::Desc { dt, block, .. } => {
                if block.is_empty() || block.len() > MAX_TENSOR_RANK {
                    let message = format!("the tensor `{}` has {} dimensions, not 1 to 5", param.name, block.len());
                    self.errors.push(param.span, message);
                }
                self.ty(&Ty::tile(*dt, block.clone()), param.span, "parameter");
            }
            ParamKind::Ptr { .. } | ParamKind::Scalar(_) | ParamKind::ConstScalar(_) | ParamKind::ReportSlot => {}
        }
    }

    fn region(&mut self, id: RegionId) {
        let func = self.func;
        for (_, operation) in func.region_ops(id) {
            let counter = self.counter(operation);
            self.open.extend(counter);
            for &inner in &operation.regions {
                for &arg in &func.region(inner).args {
                    self.value(arg, operation.span, operation.op.name());
                }
                self.region(inner);
            }
            self.open.truncate(self.open.len() - usize::from(counter.is_some()));
            self.operation(operation);
        }
    }

    /// L14: the constexpr that is the counter of a loop, of one alone.
    fn counter(&mut self, operation: &Operation) -> Option<ConstId> {
        let Op::Control(ControlOp::For { unroll, counter: Some(counter), .. }) = operation.op else { return None };
        let origin = self.func.const_params.get(counter.index()).map(|param| param.origin);
        let name = operation.op.name();
        if origin != Some(ConstOrigin::Counter) || unroll != Unroll::Full {
            self.errors.push(operation.span, format!("`{name}`: only an unrolled loop has a counter, of that kind"));
        } else if self.counters.contains(&counter) {
            self.errors.push(operation.span, format!("`{name}`: another loop has the same counter"));
        }
        self.counters.push(counter);
        Some(counter)
    }

    fn operation(&mut self, operation: &Operation) {
        let (func, span, name) = (self.func, operation.span, operation.op.name());
        if !operation.op.levels().contains(func.level) {
            self.errors.push(span, format!("`{name}` does not occur at this level"));
        }
        match result_types(func, &operation.op, &operation.operands, &operation.regions) {
            Err(e) => self.errors.push(span, format!("`{name}`: {e}")),
            Ok(tys) => {
                if !operation.results.iter().map(|&v| func.ty(v)).eq(&tys) {
                    self.errors.push(span, format!("`{name}`: the results have other types than the operands give"));
                }
            }
        }
        self.groups(operation);
        self.shared(operation);
        if self.generic()
            && matches!(operation.op, Op::Control(ControlOp::For { runs, no_wrap, .. }) if runs || no_wrap)
        {
            self.errors.push(span, format!("`{name}`: nothing is known of the launches of a generic kernel"));
        }
        if let Op::Control(ControlOp::For { unroll, stages, unroll_by, stages_by, .. }) = &operation.op {
            let twice = (unroll_by.is_some() && *unroll != Unroll::Auto) || (stages_by.is_some() && *stages != 0);
            if twice || (!self.generic() && (unroll_by.is_some() || stages_by.is_some())) {
                let what = "what a constexpr says of a loop, binding puts in its place";
                self.errors.push(span, format!("`{name}`: {what}"));
            }
        }
        if let Op::Create(CreateOp::Const { value, dtype }) = &operation.op {
            self.literal(*value, *dtype, span);
        }
        if self.generic() && operation.op.map_attrs(&mut Closed(func, &self.open)).is_none() {
            self.errors.push(span, format!("`{name}`: a dimension names a constexpr that does not exist there"));
        }
        for &result in &operation.results {
            self.value(result, span, name);
        }
        if !self.generic() {
            let folded = |v: &ValueId| match func.value(*v).def {
                Def::Param(p) => matches!(func.param(p).kind, ParamKind::ConstScalar(_)),
                Def::Arg(..) | Def::Result(..) => false,
            };
            if operation.operands.iter().any(folded) {
                self.errors.push(span, format!("`{name}` uses a `const` parameter, which binding folds"));
            }
        }
        if func.level == Level::Placed && operation.op.is_elementwise() {
            let layout = |v: &ValueId| func.value(*v).layout.map(|l| &func.layouts[l.index()]);
            let first = operation.results.first().and_then(layout);
            if !operation.operands.iter().all(|v| layout(v) == first) {
                self.errors.push(span, format!("`{name}`: operands and result have different layouts"));
            }
        }
    }

    /// L11: where its shared memory is.
    fn shared(&mut self, operation: &Operation) {
        let (op, places) = (&operation.op, &operation.shared);
        if places.is_empty() {
            return;
        }
        let name = op.name();
        // Votes take no bytes.
        let votes = matches!(op, Op::Control(ControlOp::Reduce { .. }))
            && operation.operands.iter().all(|&tile| self.func.ty(tile).dtype() == Some(DType::Bool));
        if self.func.level != Level::Placed {
            self.errors.push(operation.span, format!("`{name}` has a place in shared memory before it is placed"));
        } else if places.iter().any(|place| place.passes == 0 || place.bytes() == 0 && !votes) {
            self.errors.push(operation.span, format!("`{name}` has a place in shared memory without bytes or passes"));
        } else if op.allocates_shared() {
            if !matches!(places.as_slice(), &[place] if place == SharedRange::new(place.start, place.end)) {
                self.errors
                    .push(operation.span, format!("`{name}` has one place in shared memory, in which nobody meets"));
            }
        } else if !op.may_exchange() {
            self.errors.push(operation.span, format!("`{name}` passes nothing through shared memory"));
        }
    }

    /// T2 of groups of warps; the regions of all others are counted and typed by the type rules.
    fn groups(&mut self, operation: &Operation) {
        let Op::Gpu(GpuOp::WarpGroups { warps, roles, registers }) = &operation.op else { return };
        let (name, count) = (operation.op.name(), operation.regions.len());
        if warps.len() != count || roles.len() != count || registers.len() != count {
            self.errors.push(operation.span, format!("`{name}`: one entry of warps, roles and registers per region"));
        }
        for &region in &operation.regions {
            let silent = yield_types(self.func, region).is_ok_and(|tys| tys.is_empty());
            if !silent || !self.func.region(region).args.is_empty() {
                self.errors.push(operation.span, format!("`{name}`: regions take and yield nothing"));
            }
        }
    }

    /// T3
    fn literal(&mut self, value: Literal, dtype: Dt, span: Span) {
        let Dt::Known(dtype) = dtype else {
            if matches!(value, Literal::Bool(_)) {
                self.errors.push(span, "`const`: a truth value is of dtype `bool`");
            }
            return;
        };
        let fits = match value {
            Literal::Bool(_) => dtype == DType::Bool,
            Literal::Int(i) => {
                let int = dtype.is_int() && (dtype.int_min()..=dtype.int_max()).contains(&i);
                int || (self.generic() && (dtype.is_float() || dtype.is_int()))
            }
            Literal::Float(_) => dtype.is_float() && (self.generic() || num::normalise(value, dtype) == Some(value)),
        };
        if !fits {
            self.errors.push(span, format!("`const`: the constant is no {dtype}"));
        }
    }

    /// L3, L4, L5 for one value.
    fn value(&mut self, id: ValueId, span: Span, name: &str) {
        let value = self.func.value(id);
        self.ty(&value.ty, span, name);
        let tile = matches!(value.ty.elem, Elem::Data(_) | Elem::Ptr(_)) && !value.ty.is_scalar();
        match (self.func.level, value.layout) {
            (Level::Generic | Level::Bound, None) => {}
            (Level::Generic | Level::Bound, Some(_)) => {
                self.errors.push(span, format!("`{name}`: only values of a placed kernel have layouts"));
            }
            (Level::Placed, None) => {
                if tile {
                    self.errors.push(span, format!("`{name}`: a tile has no layout"));
                }
            }
            (Level::Placed, Some(layout)) => {
                let shape = self.func.layouts[layout.index()].tile_shape();
                let fits =
                    value.ty.dims().is_some_and(|dims| dims.iter().copied().eq(shape.iter().map(|&d| i64::from(d))));
                let is_view = matches!(value.ty.elem, Elem::Shared(_));
                let inner = value.ty.dims().is_some_and(|dims| {
                    let skip = dims.len().checked_sub(shape.len());
                    skip.is_some_and(|skip| dims[skip..].iter().copied().eq(shape.iter().map(|&d| i64::from(d))))
                });
                if is_view && !inner {
                    self.errors.push(span, format!("`{name}`: the layout is not of the view's innermost dimensions"));
                } else if value.ty.is_scalar() {
                    self.errors.push(span, format!("`{name}`: a scalar has a layout"));
                } else if tile && !fits {
                    self.errors.push(span, format!("`{name}`: the layout has another shape than the tile"));
                }
            }
        }
    }

    fn ty(&mut self, ty: &Ty, span: Span, name: &str) {
        if self.generic() {
            if !ty.shape.iter().all(|d| is_closed(self.func, &self.open, d)) {
                self.errors.push(span, format!("`{name}`: a dimension names a constexpr that does not exist there"));
            }
            return;
        }
        if matches!(ty.elem, Elem::Data(Dt::Param(_)) | Elem::Shared(Dt::Param(_))) {
            self.errors.push(span, format!("`{name}`: a dtype is not bound"));
        }
        let Some(dims) = ty.dims() else {
            self.errors.push(span, format!("`{name}`: a dimension is not bound"));
            return;
        };
        if !matches!(ty.elem, Elem::Data(_) | Elem::Ptr(_)) {
            return;
        }
        if dims.iter().any(|&d| d <= 0 || !(d as u64).is_power_of_two()) {
            self.errors.push(span, format!("`{name}`: the dimensions {dims:?} are not all powers of two"));
        } else if ty.numel().is_none_or(|n| n > MAX_ELEMENTS) {
            self.errors.push(span, format!("`{name}`: a tile has more than {MAX_ELEMENTS} elements"));
        }
    }
}
