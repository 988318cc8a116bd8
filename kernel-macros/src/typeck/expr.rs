//! Expressions.

use kernel_core::ir::infer::Needs;
use kernel_core::ir::{DType, DTypeBound, Dim, Dt, Op, UnaryOp};
use syn::{Expr, ExprCast, ExprField, ExprUnary, Member, UnOp};

use super::block::Flow;
use super::stmt::is_self;
use super::{Checker, Operand, Val};
use crate::error::{Checked, Reported};
use crate::help::Help;
use crate::names::is_screaming;
use crate::signature::type_name;
use crate::source_range::{SourceRange, bare};
use crate::tree::{Kind, Node, VOp};
use crate::types::{Class, Declared, DtRef, VElem, VTy};

/// The most parts of a tuple, counted through all levels: tuples of tuples would grow without end.
const MAX_TUPLE: usize = 1024;
/// The most levels of tuples in tuples.
const MAX_LEVELS: usize = 64;

impl Checker<'_> {
    /// The value of an expression.
    pub(super) fn expr(&mut self, expr: &Expr) -> Checked<Val> {
        match expr {
            Expr::Binary(_) => self.chain(expr),
            Expr::Lit(lit) => self.literal(lit),
            Expr::Path(path) if path.qself.is_none() => self.path(&path.path),
            Expr::Paren(paren) => {
                let place = SourceRange::of(expr);
                Ok(match self.expr(&paren.expr)? {
                    Val::One(operand) => Val::One(Operand { place, ..operand }),
                    other @ (Val::Tuple(..) | Val::Unit(_)) => other,
                })
            }
            Expr::Group(group) => self.expr(&group.expr),
            Expr::Unary(unary) => self.unary(unary, SourceRange::of(expr)),
            Expr::Call(call) => self.call(call, SourceRange::of(expr)),
            Expr::MethodCall(_) | Expr::Cast(_) | Expr::Index(_) | Expr::Field(_) => self.postfix(expr),
            Expr::Tuple(tuple) => {
                let parts: Vec<_> = tuple.elems.iter().map(|e| self.expr(e)).collect();
                let place = SourceRange::of(expr);
                if parts.is_empty() {
                    return Ok(Val::Unit(place));
                }
                let val = Val::Tuple(parts.into_iter().collect::<Checked<_>>()?, place);
                self.bounded(val, place)
            }
            Expr::Struct(literal) => self.struct_literal(literal, SourceRange::of(expr)),
            Expr::Block(block) if block.label.is_some() => Err(self.unsupported(expr)),
            Expr::If(_) | Expr::Block(_) | Expr::Unsafe(_) | Expr::Loop(_) => {
                let flow = self.tail(expr);
                self.value(flow, expr)
            }
            other => Err(self.unsupported(other)),
        }
    }

    /// What an expression gives, which must give something.
    fn value(&mut self, flow: Flow, expr: &Expr) -> Checked<Val> {
        let message = match (flow, bare(expr)) {
            (Flow::Value(val), _) => return val,
            (Flow::Diverges, Expr::If(_)) => "no branch of this `if` gives a value",
            (Flow::Diverges, Expr::Loop(_)) => "no `break` gives this loop a value",
            (Flow::Diverges, _) => "this block never gives a value",
        };
        Err(self.no_value(SourceRange::of(expr), message))
    }

    /// The value of an expression for a variable. None if control never comes to it, although the source has
    /// one: then there is no such variable.
    pub(super) fn value_if_reached(&mut self, expr: &Expr) -> Option<Checked<Val>> {
        if !matches!(bare(expr), Expr::If(_) | Expr::Block(_) | Expr::Unsafe(_) | Expr::Loop(_)) {
            return Some(self.expr(expr));
        }
        let before = self.unreached;
        match self.tail(expr) {
            Flow::Diverges if self.unreached > before || self.frame.via.is_some() => None,
            flow => Some(self.value(flow, expr)),
        }
    }

    /// The single value of an expression.
    pub(super) fn operand(&mut self, expr: &Expr) -> Checked<Operand> {
        let val = self.expr(expr)?;
        self.one(val)
    }

    /// Checks in a scope of its own, with the statements around it.
    pub(super) fn scoped<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        self.scopes.push(super::Scope::default());
        let result = f(self);
        self.end_scope();
        result
    }

    /// Refuses a tuple that is too large.
    pub(super) fn bounded(&mut self, val: Val, place: SourceRange) -> Checked<Val> {
        let (size, levels) = val.size();
        if size <= MAX_TUPLE && levels <= MAX_LEVELS {
            return Ok(val);
        }
        let message = if size > MAX_TUPLE {
            format!("a tuple has at most {MAX_TUPLE} parts, those of its parts included")
        } else {
            format!("tuples nest at most {MAX_LEVELS} deep")
        };
        Err(self.report_help(place, message, "give its parts names of their own"))
    }

    /// A part of a tuple or a struct.
    pub(super) fn field(&mut self, field: &ExprField, base: Val) -> Checked<Val> {
        let place = SourceRange::between(SourceRange::of(&field.base).start, SourceRange::of_tokens(&field.member).end);
        match (&base, &field.member) {
            (Val::Tuple(parts, _), member) => {
                let index = self.part(parts.record.as_ref(), parts.len(), member)?;
                Ok(parts[index].clone().at(place))
            }
            (_, Member::Named(name)) => {
                let name = name.to_string();
                let help = match name.as_str() {
                    "shape" | "len" => "shapes are known from the constexprs: use those".to_string(),
                    "dtype" => "dtypes are known by their names: `x as T`, `if T == f16 { .. }`".to_string(),
                    "T" => format!("write `trans({})`", self.source.operand(SourceRange::of(&field.base))),
                    _ => format!("for a method write `.{name}()`"),
                };
                Err(self.report_help(SourceRange::of_tokens(&field.member), "values in a kernel have no fields", help))
            }
            _ => Err(self.report(SourceRange::of_tokens(&field.member), "this is not a tuple")),
        }
    }

    fn unary(&mut self, unary: &ExprUnary, place: SourceRange) -> Checked<Val> {
        if is_self(unary) {
            return self.expr(&unary.expr).map(|val| val.at(place));
        }
        if let UnOp::Deref(_) = unary.op {
            let operand = self.operand(&unary.expr)?;
            return Err(match self.ty(operand).elem {
                VElem::Ptr(_) => {
                    let help = "read with `load(pointer)`, write with `store(pointer, value)`";
                    self.report_help(place, "pointers are not dereferenced with `*`", help)
                }
                VElem::Data(_) => {
                    let help = "for a square write `x * x`, for a power `exp2(log2(x) * y)` where `x > 0`; values are no references";
                    self.report_help(place, "`*` in front of a value is not supported in kernels", help)
                }
            });
        }
        let operand = self.operand(&unary.expr)?;
        match unary.op {
            UnOp::Neg(_) => self.negate(operand, place).map(Val::One),
            UnOp::Not(_) => {
                self.need(operand, Needs::Bits, "`!`")?;
                Ok(Val::One(self.not(operand, place)))
            }
            _ => Err(self.report(place, "this operator is not supported in kernels")),
        }
    }

    /// `!x`, of what has bits.
    pub(super) fn not(&mut self, operand: Operand, place: SourceRange) -> Operand {
        let ty = self.ty(operand).clone();
        let node = match self.node(operand.node).kind {
            Kind::Bool(value) => {
                self.new_node(Node { kind: Kind::Bool(!value), ty, dim: None, constexpr: true, place })
            }
            _ => self.op(Op::unary(UnaryOp::Not), vec![operand.node], ty, place),
        };
        Operand { node, place }
    }

    /// `-x`
    pub(super) fn negate(&mut self, operand: Operand, place: SourceRange) -> Checked<Operand> {
        let Node { kind, ty, dim, .. } = self.node(operand.node).clone();
        if let Some(dim) = dim {
            let negative = self.dim_result(dim.neg(), place)?;
            let declared = self.declared(operand);
            return Ok(Operand { node: self.constexpr(negative, declared, place), place });
        }
        // A negative literal is a literal.
        let literal = match kind {
            Kind::Float(number) => Some(Kind::Float(-number)),
            Kind::Int(Dim::Const(value)) => value.checked_neg().map(|v| Kind::Int(Dim::Const(v))),
            Kind::BigInt(value) => Some(Kind::BigInt(-value)),
            _ => None,
        };
        if let Some(kind) = literal {
            return Ok(Operand { node: self.new_node(Node { kind, ty, dim: None, constexpr: true, place }), place });
        }
        self.need(operand, Needs::Bound(DTypeBound::Signed), "`-`")?;
        let node = self.op(Op::unary(UnaryOp::Neg), vec![operand.node], ty, place);
        Ok(Operand { node, place })
    }

    /// `CONSTANT as f32` and `CONSTANT as T` of a constant of the user's crate.
    pub(super) fn cast_of_constant(&mut self, cast: &ExprCast, place: SourceRange) -> Option<Checked<Operand>> {
        let Expr::Path(path) = bare(&cast.expr) else { return None };
        if let Some(dt) = self.dtype_of_parameter(&cast.ty) {
            return self.is_value_constant(&path.path).then(|| self.constant_as_parameter(&path.path, dt, place));
        }
        let dtype = DType::from_name(&type_name(&cast.ty)?)?;
        self.is_value_constant(&path.path).then(|| self.converted_constant(&path.path, dtype, place))
    }

    /// What a type is that names a dtype parameter, `T` or `T::Acc`, which in an inlined function may be known.
    fn dtype_of_parameter(&mut self, ty: &syn::Type) -> Option<Dt> {
        let syn::Type::Path(path) = ty else { return None };
        let names: Vec<String> = path.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let is_parameter = names.first().is_some_and(|name| DType::from_name(name).is_none());
        if is_parameter { self.dtype_of_names(&names) } else { None }
    }

    /// `operand as dtype`
    pub(super) fn cast_expr(
        &mut self,
        cast: &ExprCast,
        operand: Checked<Operand>,
        place: SourceRange,
    ) -> Checked<Operand> {
        let target = type_name(&cast.ty).unwrap_or_default();
        if matches!(target.as_str(), "usize" | "isize") {
            let operand = operand?;
            if self.node(operand.node).dim.is_some() {
                return Ok(Operand { place, ..operand });
            }
        }
        let dt = self.dtype(&cast.ty);
        self.cast(operand?, dt?, place)
    }

    /// Whether a path names a constant of the user's crate that no shape needs.
    fn is_value_constant(&mut self, path: &syn::Path) -> bool {
        let Some(last) = path.segments.last().map(|s| s.ident.to_string()) else { return false };
        let local = path.get_ident().is_some() && self.lookup(&last).is_some();
        let names: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        let limit = names.split_last().is_some_and(|(_, dtype)| self.dtype_of_names(dtype).is_some());
        let shape = self.shape_constants.contains(&quote::ToTokens::to_token_stream(path).to_string());
        is_screaming(&last) && !local && !limit && !shape && self.dtype_by_name(&last).is_none()
    }

    /// `x as dtype`
    pub(super) fn cast(&mut self, operand: Operand, to: Dt, place: SourceRange) -> Checked<Operand> {
        let dt = match self.ty(operand).elem {
            VElem::Data(dt) => dt,
            VElem::Ptr(_) => {
                let help = "convert what it points to: `load(pointer) as f32`; where it points is an offset that the kernel has";
                return Err(self.report_help(place, "a pointer keeps its buffer, and is no number", help));
            }
        };
        let Node { kind, ty, dim, .. } = self.node(operand.node).clone();
        if to == Dt::Known(DType::Bool) && self.types.resolve(dt) != DtRef::from(DType::Bool) {
            let help = self.truth(operand, place);
            return Err(self.report_help(place, "a number cannot be converted to `bool`", help));
        }
        if self.types.known(dt) == Some(to) {
            return Ok(Operand { place, ..operand });
        }
        let result = ty.with_dt(DtRef::Fixed(to));
        // Literals take the dtype directly, as in Rust; other constexprs are converted from i64, which holds them all.
        let literal = matches!(kind, Kind::Int(Dim::Const(_)) | Kind::BigInt(_) | Kind::Float(..));
        let class = self.types.class(dt);
        let constexpr = dim.is_some();
        let direct = match (class, to) {
            (Some(Class::Int), Dt::Known(d)) => literal && d.is_int(),
            (Some(Class::Float), Dt::Known(d)) => literal && d.is_float(),
            (Some(Class::Any), _) | (_, Dt::Param(_)) | (None, _) => false,
        };
        if direct {
            let node = Node { kind, ty: result, dim: None, constexpr: true, place };
            return Ok(Operand { node: self.new_node(node), place });
        }
        let mut source = operand.node;
        // `1 << N` is shifted in a dtype of its own, unless it is `usize`.
        let (shifted, kind) = match (kind, dim) {
            (Kind::Op(..), Some(dim)) if self.types.declared(dt) == Declared::Several => (false, Kind::Int(dim)),
            (kind @ Kind::Op(..), _) => (true, kind),
            (kind, _) => (false, kind),
        };
        if let (false, true, Some(class)) = (shifted, literal || constexpr, class) {
            let wide = if class == Class::Float { DType::F64 } else { DType::I64 };
            let node = Node { kind, ty: VTy::scalar(wide), dim: None, constexpr: true, place: operand.place };
            source = self.new_node(node);
        }
        Ok(Operand { node: self.eval(VOp::Cast, vec![source], result, place), place })
    }

    /// Says what to write instead of syntax that kernels do not have.
    pub(super) fn unsupported(&mut self, expr: &Expr) -> Reported {
        let place = SourceRange::of(expr);
        let (what, help) = match expr {
            Expr::Match(e) => {
                let help: Help = match self.option(&e.expr) {
                    Some(option) => {
                        let name = option.name;
                        format!("write `if let Some({name}) = {name} {{ .. }} else {{ .. }}`").into()
                    }
                    None => "write `if .. else if .. else`".into(),
                };
                return self.report_help(
                    SourceRange::at(e.match_token.span),
                    "`match` is not supported in kernels",
                    help,
                );
            }
            Expr::Break(_) => ("`break` inside an expression is", "write it as a statement: `if .. { break; }`"),
            Expr::Continue(_) => {
                ("`continue` inside an expression is", "write it as a statement: `if .. { continue; }`")
            }
            Expr::Return(_) => ("`return` inside an expression is", "write it as a statement: `if .. { return; }`"),
            Expr::Assign(_) => ("an assignment as a value is", "write it as a statement of its own"),
            Expr::Closure(_) => (
                "a closure here is",
                "give it a name, `let f = |a| ..;`, or pass it to `reduce` or a `#[device]` function",
            ),
            Expr::Array(_) => ("an array as a value is", "make a tile: `full([N], value)`, `zeros::<f32>([N])`"),
            Expr::Repeat(_) => ("an array as a value is", "make a tile: `full([N], value)`"),
            Expr::Range(_) => ("a range here is", "make a tile of it: `arange(lo, hi)`"),
            Expr::Reference(_) => ("`&` is", "values are copied: write the name alone"),
            Expr::RawAddr(_) => ("`&raw` is", "values are copied: write the name alone"),
            Expr::Let(_) => {
                ("`let` here is", "it stands alone in `if let Some(x) = x { .. }`, where `x` is an optional parameter")
            }
            Expr::Macro(_) => {
                ("a macro as a value is", "kernels have `assert!`, `static_assert!` and `println!`, as statements")
            }
            Expr::Await(_) | Expr::Async(_) => ("`async` is", "remove it"),
            Expr::Try(_) => ("`?` is", "a failed `assert!` ends the program and is reported by the launch"),
            Expr::ForLoop(_) | Expr::While(_) => {
                ("a `for` or `while` as a value is", "assign to a `let mut` variable in it; a `loop` has a value")
            }
            Expr::Const(_) => ("a `const` block is", "declare a `const` outside the kernel"),
            Expr::Infer(_) => ("`_` as a value is", "name a value"),
            Expr::Block(_) => ("a label on a block is", "labels stand on loops: `'outer: for ..`"),
            Expr::Path(_) => ("`<T>::` is", "write `T::MAX`"),
            _ => ("this is", "the documentation of `#[kernel]` lists what is"),
        };
        self.report_help(place, format!("{what} not supported in kernels"), help)
    }
}
