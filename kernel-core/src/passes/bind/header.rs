//! Binding a kernel's parameters.

use super::Binder;
use crate::ir::{
    Builder, ConstOrigin, ConstTy, DType, Dim, Dt, Facts, IntTy, Level, Literal, Op, Param, ParamId, ParamKind,
    Passing, RegionId, Span, ValueId,
};
use crate::num;

impl Binder<'_> {
    /// Checks the bindings against the kernel's parameters, and adds the parameters to the bound kernel.
    pub(super) fn header(&mut self) {
        debug_assert_eq!(self.source.level, Level::Generic);
        let given = self.source.dtype_params.iter().filter(|p| p.is_given()).count();
        self.count("dtypes", given, self.bindings.dtypes.len());
        let given = self.source.given_consts().count();
        self.count("constexpr values", given, self.bindings.consts.len());
        let is_const = |p: &&Param| matches!(p.kind, ParamKind::ConstScalar(_));
        let const_scalars = self.source.params.iter().filter(is_const).count();
        self.count("values of `Const` parameters", const_scalars, self.bindings.const_scalars.len());
        if !self.errors.is_empty() {
            return;
        }
        self.dtypes();
        self.consts();
        let mut scalars = self.bindings.const_scalars.iter();
        for (index, param) in self.source.params.iter().enumerate() {
            let facts = self.bindings.facts.get(index).cloned().unwrap_or_default();
            self.param(param, facts, &mut scalars);
        }
        for (id, param) in (0u32..).map(ParamId::new).zip(&self.source.params) {
            let own = self.stands_for(id);
            if own != id {
                self.map[param.value.index()] = self.func.params.get(own.index()).map(|other| other.value);
            }
        }
    }

    fn count(&mut self, what: &str, wanted: usize, given: usize) {
        if wanted != given {
            self.error(Span::UNKNOWN, format!("the kernel takes {wanted} {what}, but {given} are given"), None);
        }
    }

    fn dtypes(&mut self) {
        let mut given = self.bindings.dtypes.iter().copied();
        for param in &self.source.dtype_params {
            let dtype = match param.accumulator_of {
                // It stands before.
                Some(of) => self.dtypes.get(of.index()).map(|dtype| dtype.accumulator()),
                None => given.next(),
            };
            let Some(dtype) = dtype else { return };
            self.dtypes.push(dtype);
            if !param.bound.admits(dtype) {
                let allowed: Vec<&str> =
                    DType::ALL.into_iter().filter(|&d| param.bound.admits(d)).map(DType::name).collect();
                self.error(
                    Span::UNKNOWN,
                    format!("`{}` is {dtype}, which is not {}", param.name, param.bound.name()),
                    Some(format!("{} allows {}", param.bound.name(), allowed.join(", "))),
                );
            }
        }
    }

    fn consts(&mut self) {
        let mut given = self.bindings.consts.iter().copied();
        for param in &self.source.const_params {
            let value = match param.origin {
                // Each iteration of its loop gives one.
                ConstOrigin::Counter => {
                    self.consts.push(None);
                    continue;
                }
                ConstOrigin::Launch => given.next().unwrap_or_default(),
                ConstOrigin::NumWarps => self.num_warps().into(),
                ConstOrigin::Capability => self.bindings.capability.into(),
                ConstOrigin::Given(of) => (!self.is_omitted(of)).into(),
                ConstOrigin::Bits(of) => self.dtype(Dt::Param(of)).bits().into(),
                ConstOrigin::IsDtype(of, dt) => (self.dtype(Dt::Param(of)) == self.dtype(dt)).into(),
            };
            self.consts.push(Some(value));
            let (name, min, max) = match param.ty {
                ConstTy::Bool => ("bool", 0, 1),
                // As on the 64-bit hosts that kernels are written for; the value itself has 64 bits.
                ConstTy::Int(IntTy::Usize) => ("usize", 0, i128::from(u64::MAX)),
                ConstTy::Int(IntTy::Isize) => ("isize", i128::from(i64::MIN), i128::from(i64::MAX)),
                ConstTy::Int(IntTy::Fixed(dtype)) => (dtype.name(), dtype.int_min(), dtype.int_max()),
            };
            if !(min..=max).contains(&i128::from(value)) {
                let shown = param.show(value);
                // Of unsigned types, only what is too large for the signed 64 bits of a value looks negative.
                let (problem, help) = match value < 0 && max == i128::from(u64::MAX) {
                    true => {
                        (format!("`{shown}` is more than a constexpr can be"), format!("the limit is {}", i64::MAX))
                    }
                    false => (format!("`{shown}` does not fit {name}"), format!("{name} holds {min}..={max}")),
                };
                self.error(Span::UNKNOWN, problem, Some(help));
            }
        }
    }

    /// Whether no argument is passed for a parameter.
    fn is_omitted(&self, id: ParamId) -> bool {
        self.bindings.facts.get(id.index()).is_some_and(|facts| facts.omitted)
    }

    /// The parameter whose buffer is read through this one.
    pub(super) fn stands_for(&self, id: ParamId) -> ParamId {
        match self.source.param(id).passing {
            Passing::InPlace(of) if self.is_omitted(id) => of,
            Passing::InPlace(_) | Passing::Always | Passing::Optional => id,
        }
    }

    fn num_warps(&mut self) -> u32 {
        if self.bindings.num_warps.is_none() {
            let message = "the kernel asks for the number of its warps, which is not given".to_string();
            self.error(Span::UNKNOWN, message, None);
        }
        self.bindings.num_warps.unwrap_or(1)
    }

    fn param<'l>(&mut self, param: &Param, facts: Facts, scalars: &mut impl Iterator<Item = &'l Literal>) {
        let kind = match &param.kind {
            ParamKind::Ptr { dt, mutable } => ParamKind::Ptr { dt: self.dtype(*dt).into(), mutable: *mutable },
            ParamKind::Desc { dt, block, mutable } => {
                // What comes of a block without a value was reported with it.
                let Some(block) = self.shape(block, param.span) else { return };
                ParamKind::Desc { dt: self.dtype(*dt).into(), block, mutable: *mutable }
            }
            ParamKind::Scalar(dt) => ParamKind::Scalar(self.dtype(*dt).into()),
            ParamKind::ConstScalar(dt) => ParamKind::ConstScalar(self.dtype(*dt).into()),
            ParamKind::ReportSlot
            | ParamKind::Length(_)
            | ParamKind::DescShape { .. }
            | ParamKind::DescStride { .. } => param.kind.clone(),
        };
        let id = self.func.add_param(&param.name, kind.clone(), param.span);
        let value = self.func.params[id.index()].value;
        let power = |n: u32| if n.is_power_of_two() { n } else { 0 };
        let facts = Facts {
            divisible_by: power(facts.divisible_by),
            equals_one: facts.equals_one && matches!(kind, ParamKind::Scalar(_)),
            len_divisible_by: power(facts.len_divisible_by),
            stride_divisible_by: power(facts.stride_divisible_by),
            pads_with_nan: facts.pads_with_nan && matches!(kind, ParamKind::Desc { .. }),
            omitted: facts.omitted,
        };
        if facts.omitted && param.passing == Passing::Always {
            self.error(param.span, format!("no argument is passed for parameter `{}`", param.name), None);
        }
        let is_one = facts.equals_one;
        self.func.params[id.index()].facts = facts;
        let stands_for = match kind {
            ParamKind::ConstScalar(dt) => {
                let literal = scalars.next().copied();
                literal.and_then(|literal| self.const_scalar(param, literal, self.dtype(dt)))
            }
            ParamKind::Scalar(dt) if is_one && self.dtype(dt).is_int() => {
                self.constant(Literal::Int(1), self.dtype(dt), param.span)
            }
            ParamKind::Ptr { .. }
            | ParamKind::Desc { .. }
            | ParamKind::Scalar(_)
            | ParamKind::ReportSlot
            | ParamKind::Length(_)
            | ParamKind::DescShape { .. }
            | ParamKind::DescStride { .. } => Some(value),
        };
        self.map[param.value.index()] = stands_for;
    }

    fn const_scalar(&mut self, param: &Param, literal: Literal, dtype: DType) -> Option<ValueId> {
        match num::normalise(literal, dtype) {
            Some(value) => self.constant(value, dtype, param.span),
            None => {
                let value = super::operation::show_literal(literal);
                self.error(param.span, format!("`{} = {value}` does not fit {dtype}", param.name), None);
                None
            }
        }
    }

    /// Appends a constant to the start of the body.
    fn constant(&mut self, value: Literal, dtype: DType, span: Span) -> Option<ValueId> {
        let body = self.func.body;
        self.constant_in(value, dtype, span, body)
    }

    /// Appends a constant to a region.
    pub(super) fn constant_in(
        &mut self,
        value: Literal,
        dtype: DType,
        span: Span,
        region: RegionId,
    ) -> Option<ValueId> {
        Builder::new(&mut self.func, region).one(Op::constant(value, dtype), &[], span).ok()
    }

    /// ` with BLOCK = 64, N = 0`: the values of the constexprs that dimensions mention; empty if they mention none.
    pub(super) fn with_values(&self, dims: &[&Dim]) -> String {
        let mut list = Vec::new();
        for (id, value) in (0..).map(crate::ir::ConstId::new).zip(&self.consts) {
            if let Some(value) = value.filter(|_| dims.iter().any(|dim| super::shapes::mentions(dim, id))) {
                list.push(format!("{} = {value}", self.const_name(id)));
            }
        }
        if list.is_empty() { String::new() } else { format!(" with {}", list.join(", ")) }
    }
}
