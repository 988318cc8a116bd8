//! Type annotations: `let x: f32 = ..`, `let acc: Tile<f32, { [M, N] }> = ..`.

use kernel_core::ir::{DType, DTypeBound, Dt, ParamKind};
use syn::{GenericArgument, PathArguments, Type};

use super::record::Record;
use super::{Binding, Checker, Constexpr, Operand, Val};
use crate::error::{Checked, Reported};
use crate::help::Help;
use crate::names::{closest, dtype_of_other_languages, foreign_float8};
use crate::signature::{braced, generic_name, strip, type_name};
use crate::source_range::SourceRange;
use crate::tree::Kind;
use crate::types::{DtRef, VElem, VTy};

/// What a type annotation says.
#[derive(Clone)]
pub(super) enum Annotation {
    /// `_`
    Inferred,
    /// A scalar or a tile.
    Data(VTy),
    /// `Ptr<T>` or `PtrMut<T>`.
    Pointer(Dt, bool),
    /// `usize`: a constexpr.
    Constexpr,
    /// A tuple of them, or a struct.
    Tuple(Vec<Annotation>, Option<Record>),
}

impl Checker<'_> {
    /// Reads the type of a `let`.
    pub(super) fn annotation(&mut self, ty: &Type) -> Checked<Annotation> {
        let place = SourceRange::of_type(ty);
        let path = match strip(ty) {
            Type::Infer(_) => return Ok(Annotation::Inferred),
            Type::Tuple(tuple) => {
                let parts: Vec<_> = tuple.elems.iter().map(|t| self.annotation(t)).collect();
                return Ok(Annotation::Tuple(parts.into_iter().collect::<Checked<_>>()?, None));
            }
            Type::Path(path) if path.qself.is_none() => &path.path,
            _ => return Err(self.bad_annotation(place)),
        };
        let Some(last) = path.segments.last() else { return Err(self.bad_annotation(place)) };
        if let Some(record) = self.record(path) {
            return self.record_type(&record, path, place);
        }
        self.not_itself(path)?;
        let name = last.ident.to_string();
        match (&last.arguments, name.as_str()) {
            (PathArguments::None, "usize" | "isize") => Ok(Annotation::Constexpr),
            (PathArguments::None, _) => self.dtype(ty).map(|dt| Annotation::Data(VTy::scalar(DtRef::Fixed(dt)))),
            (PathArguments::AngleBracketed(args), "Tile") => {
                let args: Vec<&GenericArgument> = args.args.iter().collect();
                self.tile_annotation(&args, place).map(Annotation::Data)
            }
            (PathArguments::AngleBracketed(args), "Ptr" | "PtrMut") => match args.args.first() {
                Some(GenericArgument::Type(inner)) => {
                    self.dtype(inner).map(|dt| Annotation::Pointer(dt, name == "PtrMut"))
                }
                _ => Err(self.bad_annotation(place)),
            },
            _ => Err(self.bad_annotation(place)),
        }
    }

    fn bad_annotation(&mut self, place: SourceRange) -> Reported {
        let help = "write a dtype as `f32`, or `Tile<f32, { [M, N] }>`";
        self.report_help(place, "this is not the type of a value in a kernel", help)
    }

    fn tile_annotation(&mut self, args: &[&GenericArgument], place: SourceRange) -> Checked<VTy> {
        let [GenericArgument::Type(inner), shape] = args else {
            let help = "write `Tile<f32, { [M, N] }>`";
            return Err(self.report_help(place, "a tile has a dtype and a shape", help));
        };
        let dt = self.dtype(inner);
        let Some(expr) = braced(shape) else {
            let help = "write the shape in braces: `Tile<f32, { [M, N] }>`";
            return Err(self.report_help(SourceRange::of_tokens(shape), "this is not a shape", help));
        };
        let shape = self.shape_arg(expr);
        Ok(VTy { elem: VElem::Data(DtRef::Fixed(dt?)), shape: shape? })
    }

    /// The dtype that a type names.
    pub(super) fn dtype(&mut self, ty: &Type) -> Checked<Dt> {
        if let Some(dt) = self.associated_dtype(ty) {
            return dt;
        }
        let place = SourceRange::of_type(ty);
        let name = type_name(ty).unwrap_or_default();
        if self.signature.broken.contains(&name) {
            return Err(Reported::earlier());
        }
        if let Some(dt) = self.dtype_by_name(&name) {
            return Ok(dt);
        }
        if matches!(name.as_str(), "usize" | "isize") {
            let help = "write `i32`, `i64` or `u32`";
            let message = format!("`{name}` is only the type of constexprs, because its width depends on the host");
            return Err(self.report_help(place, message, help));
        }
        if matches!(generic_name(ty).as_deref(), Some("Ptr" | "PtrMut")) {
            let message = "no value becomes a pointer: a pointer keeps its buffer, whose length bounds what it reaches";
            let help = "pass one buffer, and offsets into it: `load(x + offsets)`; for bits of another dtype, \
                        `bitcast::<f32>(load(x))` of a `Ptr<u32>`";
            return Err(self.report_help(place, message, help));
        }
        if let Some(message) = foreign_float8(&name) {
            return Err(self.report_help(place, message, "8-bit floats are `f8e4m3` and `f8e5m2`"));
        }
        let message = "this is not a dtype";
        if let Some(ours) = dtype_of_other_languages(&name) {
            return Err(self.report_help(place, message, Help::write(place, ours)));
        }
        if DTypeBound::from_name(&name).is_some() {
            let help = format!("it is a bound: name a dtype parameter, as `T` of `T: {name}`");
            return Err(self.report_help(place, message, help));
        }
        if name == "constexpr" {
            let help = "declare it in the generics: `const N: usize`";
            return Err(self.report_help(place, "a constexpr is a const generic and no parameter", help));
        }
        let params: Vec<String> = self.func.dtype_params.iter().map(|p| p.name.clone()).collect();
        let names = params.iter().map(String::as_str).chain(DType::ALL.map(DType::name));
        let help = match closest(&name, names) {
            Some(close) => Help::meant(place, close),
            None => {
                let known = ["Ptr", "PtrMut", "Const", "Tile", "String", "Vec"].contains(&name.as_str());
                let alias = match name.starts_with(char::is_uppercase) && !known {
                    true => "; an alias is not seen: write the dtype that it is",
                    false => "",
                };
                format!("dtypes are {}{alias}", DType::ALL.map(|d| format!("`{d}`")).join(", ")).into()
            }
        };
        Err(self.report_help(place, message, help))
    }

    /// Makes a value have an annotated type.
    pub(super) fn annotate(&mut self, val: Val, annotation: &Annotation) -> Checked<Val> {
        self.have_type(val, annotation, "the annotation says")
    }

    /// Makes a value have the type that something says, as in `the annotation says`.
    pub(super) fn have_type(&mut self, val: Val, annotation: &Annotation, says: &str) -> Checked<Val> {
        match (val, annotation) {
            (val, Annotation::Inferred) => Ok(val),
            (Val::Tuple(vals, place), Annotation::Tuple(annotations, record))
                if vals.record == *record && vals.len() == annotations.len() =>
            {
                Ok(Val::Tuple(self.have_types(&vals, annotations, says)?, place))
            }
            (val, Annotation::Tuple(annotations, record)) => {
                let message = match record {
                    Some(record) => format!("{says} the struct `{record:?}`, but this is {}", self.show_val(&val)),
                    None => format!("expected a tuple of {} values", annotations.len()),
                };
                Err(self.report(val.place(), message))
            }
            (val, Annotation::Constexpr) => {
                let operand = self.one(val)?;
                if self.node(operand.node).dim.is_none() {
                    if self.node(operand.node).constexpr {
                        let (message, help) = self.no_dim(operand, None, "a `usize`");
                        return Err(self.report_help(operand.place, message, help));
                    }
                    let message = "`usize` is only the type of constexprs, and this is known only at launch";
                    return Err(self.report_help(operand.place, message, "write `i32`, `i64` or `u32`"));
                }
                Ok(Val::One(operand))
            }
            (val, Annotation::Pointer(dt, mutable)) => {
                let operand = self.one(val)?;
                let wanted = ParamKind::Ptr { dt: *dt, mutable: *mutable };
                match self.ty(operand).elem {
                    VElem::Ptr(param) if self.func.param(param).kind == wanted => Ok(Val::One(operand)),
                    VElem::Ptr(_) | VElem::Data(_) => {
                        let message = format!("{says} a pointer of another type; this is {}", self.show(operand));
                        let help = "a pointer keeps its buffer and its dtype: convert what it points to, \
                                    `load(x) as f32`, or its bits, `bitcast::<f32>(load(x))`";
                        Err(self.report_help(operand.place, message, help))
                    }
                }
            }
            (val, Annotation::Data(ty)) => {
                let operand = self.one(val)?;
                self.has_type(operand, ty, says)?;
                // A constexpr whose type is given no longer adapts.
                let node = self.node(operand.node).clone();
                let fixed = self.new_or_same(operand, node);
                self.annotated.push(fixed.node);
                Ok(Val::One(fixed))
            }
        }
    }

    fn new_or_same(&mut self, operand: Operand, mut node: crate::tree::Node) -> Operand {
        if node.dim.take().is_none() {
            return operand;
        }
        // `1 << N` is computed where it stands.
        if matches!(node.kind, Kind::Op(..)) {
            self.nodes[operand.node.0].dim = None;
            return operand;
        }
        Operand { node: self.new_node(node), place: operand.place }
    }

    fn has_type(&mut self, operand: Operand, ty: &VTy, says: &str) -> Checked<()> {
        let own = self.ty(operand).clone();
        let VElem::Data(dt) = ty.elem else { return Ok(()) };
        if !self.same_shape(&own.shape, &ty.shape) {
            let message = format!("{says} {}, but this is {}", self.show_ty(ty), self.show_ty(&own));
            return Err(self.report(operand.place, message));
        }
        self.expect(operand, dt, "the value")
    }

    /// What a name becomes when a value is bound to it for good.
    pub(super) fn binding_of(&self, val: &Val) -> Binding {
        match val {
            Val::One(operand) => match &self.node(operand.node).dim {
                Some(dim) => {
                    let (dim, declared) = (dim.clone(), self.declared(*operand));
                    Binding::Dim(Constexpr { dim, declared, shift: self.shift(operand.node) })
                }
                None => Binding::Value(operand.node),
            },
            Val::Tuple(parts, _) => {
                Binding::Tuple(parts.iter().map(|p| self.binding_of(p)).collect(), parts.record.clone())
            }
            Val::Unit(_) => Binding::Tuple(Vec::new(), None),
        }
    }
}
