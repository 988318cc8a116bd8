//! Names and constants: variables, constexprs, `f32::MAX`, and constants of the user's crate.

use kernel_core::ir::{BinaryOp, ConstId, ConstParam, ConstTy, DType, DTypeBound, Dim, Dt, IntTy, LimitKind};
use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Expr, ExprLit, Lit, Path, Token};

use super::record::Parts;
use super::{Binding, Checker, Constexpr, Context, Operand, Shift, Val};
use crate::decimal::Decimal;
use crate::error::{Checked, Reported};
use crate::help::Help;
use crate::names::{closest, is_screaming};
use crate::ops;
use crate::source_range::{SourceRange, bare};
use crate::tree::{Constant, Kind, Node, Stmt, VOp};
use crate::types::{BOOL, Class, Declared, DtRef, VTy, admits, dtype_param};

/// Unknown names for which a similar one is looked for.
const MAX_SUGGESTIONS: usize = 100;

impl Checker<'_> {
    /// A path as a value.
    pub(super) fn path(&mut self, path: &Path) -> Checked<Val> {
        let place = SourceRange::of_path(path);
        if let Some(ident) = path.get_ident() {
            return self.name(&ident.to_string(), path, place);
        }
        let names: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        if let Some((limit, dtype)) = names.split_last()
            && let Some(dt) = self.dtype_of_names(dtype)
        {
            return self.limit(dt, &dtype.join("::"), limit, place).map(Val::One);
        }
        match names.last() {
            Some(last) if is_screaming(last) => self.constant(path.to_token_stream(), last, place).map(Val::One),
            _ => {
                let written = names.join("::");
                let message = format!("`{written}` is not known in a kernel");
                let help = "a kernel uses its parameters, constexprs and constants in SCREAMING_CASE";
                Err(self.report_help(place, message, help))
            }
        }
    }

    fn name(&mut self, name: &str, path: &Path, place: SourceRange) -> Checked<Val> {
        match self.lookup(name) {
            Some((binding, outside)) => self.use_binding(&binding, name, outside, place),
            None if is_screaming(name) && self.dtype_by_name(name).is_none() => {
                self.constant(path.to_token_stream(), name, place).map(Val::One)
            }
            None => Err(self.unknown_name(name, place)),
        }
    }

    /// The value of a name.
    pub(super) fn use_binding(
        &mut self,
        binding: &Binding,
        name: &str,
        outside: bool,
        place: SourceRange,
    ) -> Checked<Val> {
        match binding {
            Binding::Value(node) => {
                let constant = matches!(
                    self.node(*node).kind,
                    Kind::Int(_) | Kind::BigInt(_) | Kind::Float(..) | Kind::Bool(_) | Kind::ConstBool(_)
                );
                if outside && !constant {
                    return Err(self.captured(name, place));
                }
                let operand = Operand { node: *node, place };
                self.seen_by_element(operand, name)?;
                Ok(Val::One(operand))
            }
            Binding::Var(_) if outside => Err(self.captured_variable(name, place)),
            Binding::Var(var) => {
                let ty = self.variables[var.0].ty.clone();
                let node = self.slot(ty, place);
                self.seen_by_element(Operand { node, place }, name)?;
                self.stmts.push(Stmt::Read(node, *var));
                self.reads.insert(node.0, *var);
                self.varying.insert(node.0);
                Ok(Val::One(Operand { node, place }))
            }
            Binding::Dim(constexpr) => self.use_constexpr(constexpr, place).map(Val::One),
            Binding::ConstBool(id) => {
                let kind = Kind::ConstBool(*id);
                let node = self.new_node(Node { kind, ty: VTy::scalar(BOOL), dim: None, constexpr: true, place });
                Ok(Val::One(Operand { node, place }))
            }
            Binding::Tuple(parts, record) => {
                let parts = parts.iter().map(|part| self.use_binding(part, name, outside, place));
                let mut parts = parts.collect::<Checked<Parts>>()?;
                parts.record.clone_from(record);
                Ok(Val::Tuple(parts, place))
            }
            Binding::Desc(_) => {
                let message = format!("`{name}` is a tensor descriptor, which is no value");
                let help = format!("read a block of the tensor: `{name}.load([i, j])`");
                Err(self.report_help(place, message, help))
            }
            Binding::Option(..) => {
                let help = format!("take it where it is there: `if let Some({name}) = {name} {{ .. }}`");
                Err(self.report_help(place, format!("there may be no argument for `{name}`"), help))
            }
            Binding::Closure(_) => {
                let help = format!("call it, `{name}(..)`, or pass it to a `#[device]` function");
                Err(self.report_help(place, format!("`{name}` is a closure, which is no value"), help))
            }
            Binding::Poison => Err(Reported::earlier()),
        }
    }

    /// A constexpr at one of its uses, where it adapts.
    fn use_constexpr(&mut self, constexpr: &Constexpr, place: SourceRange) -> Checked<Operand> {
        let Constexpr { dim, declared, shift } = constexpr.clone();
        let mut of = |dim, declared| Operand { node: self.constexpr(dim, declared, place), place };
        match shift {
            Some(Shift { op, number, count }) => {
                let (number, count) = (of(number, declared), of(count, Declared::Open));
                let what = if op == BinaryOp::Shl { "`<<`" } else { "`>>`" };
                self.arith(op, what, number, count, place, place)
            }
            None => Ok(of(dim, declared)),
        }
    }

    fn captured(&mut self, name: &str, place: SourceRange) -> Reported {
        let message = format!("the closure uses `{name}`; it sees only its own arguments, literals and constexprs");
        self.report_help(place, message, "apply it to the tile before or after the call")
    }

    fn captured_variable(&mut self, name: &str, place: SourceRange) -> Reported {
        if self.contexts.contains(&Context::Closure) {
            return self.captured(name, place);
        }
        let message = format!("the closure uses the mutable variable `{name}`, which may change before it is called");
        self.report_help(place, message, format!("copy it in front of the closure, `let now = {name};`, or pass it"))
    }

    pub(super) fn unknown_name(&mut self, name: &str, place: SourceRange) -> Reported {
        let message = format!("`{name}` is not known in this kernel");
        if let Some(row) = ops::find(name) {
            let message = format!("`{name}` is an operation, which must be called");
            return self.report_help(place, message, format!("write `{}`", row.usage()));
        }
        if name == "target_info" {
            return self.report_help(place, message, "the target is a number: `capability() >= 90`");
        }
        if matches!(name, "tl" | "triton" | "libdevice") {
            let help = "operations are called by their names alone: `load(pointer)`";
            return self.report_help(place, message, help);
        }
        if self.signature.broken.iter().any(|broken| broken == name) {
            return Reported::earlier();
        }
        if self.dtype_by_name(name).is_some() {
            let help = format!("for a conversion write `x as {name}`");
            return self.report_help(place, format!("`{name}` is a dtype, not a value"), help);
        }
        if let Some(help) = foreign_value(name, place) {
            return self.report_help(place, message, help);
        }
        if let Some(&(_, line)) = self.ended.iter().rev().find(|(ended, _)| ended == name) {
            let message = format!("`{name}` ends with the block in which it is declared (line {line})");
            let help =
                format!("declare it before the block: `let {name} = if .. {{ .. }} else {{ .. }};`, or `let mut`");
            return self.report_help(place, message, help);
        }
        // Each suggestion compares with every name, so a kernel full of unknown names would take long.
        self.unknown_names += 1;
        if self.unknown_names > MAX_SUGGESTIONS {
            return self.report(place, message);
        }
        let visible: Vec<String> = self.scopes.iter().flat_map(|s| s.names.iter().map(|(n, _)| n.clone())).collect();
        match closest(name, visible.iter().map(String::as_str)) {
            Some(close) => {
                let help = Help::meant(place, close);
                self.report_help(place, message, help)
            }
            None => {
                let help = "a kernel uses its parameters, constexprs and constants in SCREAMING_CASE";
                self.report_help(place, message, help)
            }
        }
    }

    /// The dtype or dtype parameter of that name.
    pub(super) fn dtype_by_name(&self, name: &str) -> Option<Dt> {
        let param = match &self.frame.dtypes {
            // A function sees its own dtype parameters, and not those of the kernel.
            Some(own) => own.iter().find(|(own, _)| own == name).map(|(_, dt)| *dt),
            None => dtype_param(&self.func, name).map(Dt::Param),
        };
        param.or_else(|| DType::from_name(name).map(Dt::Known))
    }

    /// `T::MIN`, `f32::NEG_INFINITY`.
    fn limit(&mut self, dt: Dt, dtype: &str, name: &str, place: SourceRange) -> Checked<Operand> {
        let kind = match name {
            "MIN" => LimitKind::Min,
            "MAX" => LimitKind::Max,
            "INFINITY" => LimitKind::Infinity,
            "NEG_INFINITY" => LimitKind::NegInfinity,
            "NAN" => LimitKind::Nan,
            "EPSILON" => LimitKind::Epsilon,
            "MIN_POSITIVE" => LimitKind::MinPositive,
            "BITS" => return Ok(self.width_of(dt, place)),
            _ => {
                let names = ["MIN", "MAX", "INFINITY", "NEG_INFINITY", "NAN", "EPSILON", "MIN_POSITIVE", "BITS"];
                let message = format!("`{dtype}::{name}` is not a constant that kernels know");
                let help = match closest(name, names) {
                    Some(close) => Help::meant(place, &format!("{dtype}::{close}")),
                    None => Help::from(format!("there are {}", names.map(|n| format!("`{dtype}::{n}`")).join(", "))),
                };
                return Err(self.report_help(place, message, help));
            }
        };
        let bound = if matches!(kind, LimitKind::Min | LimitKind::Max) { DTypeBound::Num } else { DTypeBound::Float };
        if self.signature.broken.iter().any(|b| b == dtype) {
            return Err(Reported::earlier());
        }
        if !admits(&self.func, dt, bound) {
            let message = format!("`{dtype}` has no `{name}`");
            let help = match dt {
                Dt::Param(_) => format!("bound it by `{}`: `{dtype}: {}`", bound.name(), bound.name()),
                Dt::Known(_) => "integers have `MIN` and `MAX`".to_string(),
            };
            return Err(self.report_help(place, message, help));
        }
        let ty = VTy::scalar(DtRef::Fixed(dt));
        Ok(Operand { node: self.eval(VOp::Limit(kind), Vec::new(), ty, place), place })
    }

    /// What names a constant where the kernel stands, and the field that exports it, if this is a function.
    ///
    /// The names that an inlined function uses mean nothing there. What the function has exported has a field for each.
    pub(super) fn exported(&self, tokens: TokenStream, name: &str) -> (TokenStream, Ident) {
        let mut hasher = DefaultHasher::new();
        (&self.frame.key, key(&tokens)).hash(&mut hasher);
        let field = Ident::new(&format!("{name}_{:016x}", hasher.finish()), Span::call_site());
        match &self.frame.via {
            Some(via) => (quote!(#via(::core::marker::PhantomData).#field), field),
            None => (tokens, field),
        }
    }

    /// Refuses a constant that a method needs of a struct which the kernel does not name: nothing leads there.
    pub(super) fn unnamed(&mut self, name: &str, place: SourceRange) -> Reported {
        let message = format!("the constant `{name}` is out of reach where nothing names the struct");
        self.report_help(place, message, "say the type of the value where it is made: `let mut value: State<..> = ..;`")
    }

    /// A constant of the user's crate.
    pub(super) fn constant(&mut self, tokens: TokenStream, name: &str, place: SourceRange) -> Checked<Operand> {
        let is_shape = self.shape_constants.contains(&key(&tokens));
        if self.frame.via.as_ref().is_some_and(TokenStream::is_empty) {
            return Err(self.unnamed(name, place));
        }
        let (tokens, field) = self.exported(tokens, name);
        let is_known = |known: &Constant| known.is(&tokens, &field) && (known.shape.is_some() || !is_shape);
        let index = match self.constants.iter().position(is_known) {
            Some(index) => index,
            None => {
                let shape = is_shape.then(|| {
                    let ty = ConstTy::Int(IntTy::Usize);
                    let name = crate::names::free_name(&self.func, name);
                    self.func.const_params.push(ConstParam::given(name, ty));
                    ConstId::new(self.func.const_params.len() as u32 - 1)
                });
                let dt = self.types.fresh_constant();
                let (name, through) = (name.to_string(), self.outermost_call());
                self.constants.push(Constant { name, tokens, field, through, dt, shape, place });
                self.constants.len() - 1
            }
        };
        if let Some(id) = self.constants[index].shape {
            return Ok(Operand { node: self.constexpr(Dim::param(id), Declared::Several, place), place });
        }
        Ok(self.constant_operand(index, place))
    }

    pub(super) fn constant_operand(&mut self, index: usize, place: SourceRange) -> Operand {
        let (kind, ty) = (Kind::Constant(index), VTy::scalar(self.constants[index].dt));
        Operand { node: self.new_node(Node { kind, ty, dim: None, constexpr: true, place }), place }
    }

    /// A literal.
    pub(super) fn literal(&mut self, lit: &ExprLit) -> Checked<Val> {
        let place = SourceRange::at(lit.lit.span());
        let node = match &lit.lit {
            Lit::Bool(b) => {
                Node { kind: Kind::Bool(b.value), ty: VTy::scalar(BOOL), dim: None, constexpr: true, place }
            }
            Lit::Int(int) => return self.int_literal(int, place).map(Val::One),
            Lit::Float(float) => self.float_literal(float.base10_digits(), float.suffix(), place)?,
            Lit::Str(_) | Lit::ByteStr(_) | Lit::CStr(_) | Lit::Char(_) => {
                let help = match &lit.lit {
                    Lit::Char(char) => Help::write(place, u32::from(char.value()).to_string()),
                    _ => "strings appear only as the message of `assert!`".into(),
                };
                return Err(self.report_help(place, "a kernel has no texts", help));
            }
            Lit::Byte(byte) => {
                let help = format!("write `{}`", byte.value());
                return Err(self.report_help(place, "a kernel has no byte literals", help));
            }
            Lit::Verbatim(_) | _ => return Err(self.report(place, "this literal is not supported in kernels")),
        };
        Ok(Val::One(Operand { node: self.new_node(node), place }))
    }

    fn int_literal(&mut self, int: &syn::LitInt, place: SourceRange) -> Checked<Operand> {
        let suffix = int.suffix();
        if let Some(dtype) = DType::from_name(suffix).filter(|d| d.is_float()) {
            let node = self.float_literal(int.base10_digits(), dtype.name(), place)?;
            return Ok(Operand { node: self.new_node(node), place });
        }
        let Ok(value) = int.base10_digits().parse::<i128>() else {
            return Err(self.report(place, "this literal does not fit any integer dtype"));
        };
        let dt = match suffix {
            "" | "usize" | "isize" => None,
            _ => match DType::from_name(suffix).filter(|d| d.is_int()) {
                Some(dtype) => Some(dtype),
                None => {
                    let help = "integer suffixes are `i8` to `i64` and `u8` to `u64`";
                    return Err(self.report_help(place, format!("`{suffix}` is not an integer dtype"), help));
                }
            },
        };
        let ty = match dt {
            Some(dtype) => VTy::scalar(dtype),
            None => VTy::scalar(self.types.fresh(Class::Int)),
        };
        let (kind, dim) = match i64::try_from(value) {
            Ok(small) => (Kind::Int(Dim::Const(small)), dt.is_none().then_some(Dim::Const(small))),
            Err(_) => (Kind::BigInt(value), None),
        };
        Ok(Operand { node: self.new_node(Node { kind, ty, dim, constexpr: true, place }), place })
    }

    fn float_literal(&mut self, digits: &str, suffix: &str, place: SourceRange) -> Checked<Node> {
        let Some(number) = Decimal::parse(digits) else {
            return Err(self.report(place, "this is not a float"));
        };
        let dt = match suffix {
            "" => self.types.fresh(Class::Float),
            _ => match DType::from_name(suffix).filter(|d| d.is_float()) {
                Some(dtype) => dtype.into(),
                None => {
                    let help = "float suffixes are `f8e4m3`, `f8e5m2`, `f16`, `bf16`, `f32` and `f64`";
                    return Err(self.report_help(place, format!("`{suffix}` is not a float dtype"), help));
                }
            },
        };
        let (kind, ty) = (Kind::Float(number), VTy::scalar(dt));
        Ok(Node { kind, ty, dim: None, constexpr: true, place })
    }
}

/// What a name of Python, or of its libraries, is here.
fn foreign_value(name: &str, place: SourceRange) -> Option<Help> {
    Some(match name {
        "inf" | "Inf" | "infinity" => Help::write(place, "f32::INFINITY").and("; below zero `f32::NEG_INFINITY`"),
        "nan" | "NaN" => Help::write(place, "f32::NAN"),
        "True" => Help::write(place, "true"),
        "False" => Help::write(place, "false"),
        "None" => {
            "an argument that is not needed is left out; whether a parameter is there says `parameter.is_none()`".into()
        }
        "math" | "np" | "torch" | "jnp" => {
            "operations are called by their names alone, `sqrt(x)`; infinity is `f32::INFINITY`".into()
        }
        _ => return None,
    })
}

/// Tokens as a text that identifies them.
fn key(tokens: &TokenStream) -> String {
    tokens.to_string()
}

/// Paths in SCREAMING_CASE that occur where a shape is written. They are taken to be `usize`, as constexprs are.
pub fn collect_shape_constants<'t>(
    body: &[syn::Stmt],
    blocks: &[Expr],
    types: impl Iterator<Item = &'t syn::Type>,
) -> BTreeSet<String> {
    let mut collector = Collector { depth: 0, found: BTreeSet::new() };
    for block in blocks {
        collector.visit_expr(block);
    }
    for stmt in body {
        collector.visit_stmt(stmt);
    }
    for ty in types {
        collector.visit_type(ty);
    }
    collector.found
}

struct Collector {
    /// How many shapes surround the place.
    depth: usize,
    found: BTreeSet<String>,
}

impl Collector {
    fn inside(&mut self, f: impl FnOnce(&mut Self)) {
        self.depth += 1;
        f(self);
        self.depth -= 1;
    }

    /// Arguments, of which those at `numbers` are no shapes where they stand in brackets: coordinates, sizes and strides.
    fn arguments(&mut self, args: &Punctuated<Expr, Token![,]>, numbers: &Range<usize>) {
        for (at, arg) in args.iter().enumerate() {
            match bare(arg) {
                Expr::Array(array) if numbers.contains(&at) => {
                    array.elems.iter().for_each(|expr| self.visit_expr(expr))
                }
                _ => self.visit_expr(arg),
            }
        }
    }
}

impl<'ast> Visit<'ast> for Collector {
    fn visit_expr_array(&mut self, array: &'ast syn::ExprArray) {
        self.inside(|c| visit::visit_expr_array(c, array));
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.visit_expr(&call.receiver);
        call.turbofish.iter().for_each(|turbofish| visit::visit_angle_bracketed_generic_arguments(self, turbofish));
        let coordinates = ops::find_desc(&call.method.to_string()).map_or(0..0, |_| 0..1);
        self.arguments(&call.args, &coordinates);
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        let name = match &*call.func {
            Expr::Path(path) => path.path.get_ident().map(ToString::to_string),
            _ => None,
        };
        let name = name.unwrap_or_default();
        self.visit_expr(&call.func);
        match name.as_str() {
            "arange" => self.inside(|c| c.arguments(&call.args, &(0..0))),
            // Sizes and strides are numbers; then comes the shape of the blocks.
            "tensor_desc" => self.arguments(&call.args, &(1..3)),
            _ => self.arguments(&call.args, &ops::find_desc(&name).map_or(0..0, |_| 1..2)),
        }
    }

    fn visit_path_arguments(&mut self, arguments: &'ast syn::PathArguments) {
        self.inside(|c| visit::visit_path_arguments(c, arguments));
    }

    fn visit_type_path(&mut self, path: &'ast syn::TypePath) {
        // The name of a constant looks like a type where it is a generic argument.
        if self.depth > 0 && path.path.segments.last().is_some_and(|s| is_screaming(&s.ident.to_string())) {
            self.found.insert(key(&path.path.to_token_stream()));
        }
        self.inside(|c| visit::visit_type_path(c, path));
    }

    fn visit_attribute(&mut self, attr: &'ast syn::Attribute) {
        if let syn::Meta::List(list) = &attr.meta
            && (list.path.is_ident("stages") || list.path.is_ident("unroll"))
        {
            self.screaming(list.tokens.clone());
        }
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        if mac.path.is_ident("static_assert") {
            self.screaming(mac.tokens.clone());
        }
    }

    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        let screaming = path.path.segments.last().is_some_and(|s| is_screaming(&s.ident.to_string()));
        if self.depth > 0 && screaming {
            self.found.insert(key(&path.path.to_token_stream()));
        }
        visit::visit_expr_path(self, path);
    }
}

impl Collector {
    /// Names and paths among the tokens of a macro.
    fn screaming(&mut self, tokens: TokenStream) {
        let mut path = TokenStream::new();
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    let is_last = is_screaming(&ident.to_string());
                    path.extend([TokenTree::Ident(ident)]);
                    if is_last {
                        self.found.insert(key(&std::mem::take(&mut path)));
                    }
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => path.extend([TokenTree::Punct(punct)]),
                TokenTree::Group(group) => {
                    path = TokenStream::new();
                    self.screaming(group.stream());
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => path = TokenStream::new(),
            }
        }
    }
}
