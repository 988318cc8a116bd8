//! `let a = tensor_desc(pointer, shape, strides, block);`: descriptors that the kernel makes itself.
//!
//! Such a descriptor is no value either: `let` gives it its name, and from there on it is like a parameter.

use std::rc::Rc;

use kernel_core::ir::{DType, DTypeBound, DescOp, Dim, Dt, MAX_TENSOR_RANK, ParamId, ParamKind};
use syn::{Expr, ExprCall, Local, Pat, PatIdent};

use super::args::Args;
use super::call::turbofish_of;
use super::{Binding, Checker, Context};
use crate::error::{Checked, Reported};
use crate::ops;
use crate::source_range::{SourceRange, bare};
use crate::tree::NodeId;
use crate::types::{DtRef, VElem, VTy, may_be};

/// The operation that makes one.
const NAME: &str = "tensor_desc";

/// A descriptor that a name stands for.
#[derive(Clone, Debug)]
pub(super) enum Descriptor {
    /// A parameter.
    Param(ParamId),
    /// What the kernel makes.
    Made(Rc<Made>),
}

/// A descriptor that the kernel makes.
#[derive(Debug)]
pub(super) struct Made {
    /// Its name.
    pub name: String,
    /// The operation that makes it.
    pub node: NodeId,
    /// The pointer parameter in whose buffer the tensor lies.
    pub base: ParamId,
    /// The dtype of that buffer.
    pub dt: Dt,
    /// The shape of the blocks.
    pub block: Vec<Dim>,
    /// Whether the buffer may be written.
    pub mutable: bool,
}

impl Checker<'_> {
    /// Binds the name of a descriptor, if that is what the `let` makes.
    pub(super) fn named_descriptor(&mut self, local: &Local) -> bool {
        let init = local.init.as_ref().filter(|init| init.diverge.is_none()).map(|init| bare(&init.expr));
        let (Pat::Ident(name), Some(Expr::Call(call))) = (&local.pat, init) else { return false };
        if !self.makes_descriptor(call) || name.by_ref.is_some() || name.subpat.is_some() {
            return false;
        }
        if let Some(token) = &name.mutability {
            let message = "a tensor descriptor is not mutable";
            self.report_help(SourceRange::at(token.span), message, "remove `mut`; a second one gets a name of its own");
        }
        let binding = match self.make_descriptor(name, call) {
            Ok(made) => Binding::Desc(Descriptor::Made(Rc::new(made))),
            Err(_) => Binding::Poison,
        };
        let ident = name.ident.to_string();
        self.bind(&ident, binding);
        let line = name.ident.span().start().line;
        self.scopes.last_mut().into_iter().for_each(|scope| scope.declared.push((ident.clone(), line)));
        true
    }

    /// Whether a call is that of the operation, and of no function or closure of its name.
    fn makes_descriptor(&self, call: &ExprCall) -> bool {
        let Expr::Path(path) = bare(&call.func) else { return false };
        let is_function = || self.functions.find(&self.frame.calls, NAME).is_some();
        path.path.is_ident(NAME) && self.lookup(NAME).is_none() && (self.frame.calls.is_empty() || !is_function())
    }

    /// `tensor_desc(..)` where a value is due.
    pub(super) fn unnamed_descriptor(&mut self, args: &Args<'_>) -> Reported {
        let message = "a tensor descriptor is no value: it is given a name";
        self.report_help(args.place, message, "write `let a = tensor_desc(..);`, and use `a`")
    }

    fn make_descriptor(&mut self, name: &PatIdent, call: &ExprCall) -> Checked<Made> {
        let place = SourceRange::of_tokens(call);
        let row = ops::find(NAME).ok_or_else(Reported::earlier)?;
        let turbofish = match bare(&call.func) {
            Expr::Path(path) => path.path.segments.last().and_then(turbofish_of),
            _ => None,
        };
        let args = self.args(row, None, &call.args, turbofish, place)?;
        if self.contexts.contains(&Context::Closure) {
            let help = "make the descriptor in front of the call that takes the closure";
            return Err(self.report_help(place, format!("`{NAME}` in a closure is not supported"), help));
        }
        let pointer = self.desc_base(&args);
        let block = self.desc_block(&args);
        let rank = block.as_ref().ok().map(Vec::len);
        let sizes = self.extents(&args, 1, rank, "the shape", "a size");
        let strides = self.extents(&args, 2, rank, "the strides", "a stride");
        let (node, base, dt, mutable) = pointer?;
        let pads_with_nan = self.padding(&args, dt);
        let (block, mut operands) = (block?, vec![node]);
        operands.extend(sizes?);
        operands.extend(strides?);
        let name = name.ident.to_string();
        let op = DescOp::MakeDesc { block: block.clone(), pads_with_nan: pads_with_nan?, name: name.clone() };
        // Only its parameter matters: no other operation ever sees the node.
        let node = self.op(op, operands, VTy { elem: VElem::Ptr(base), shape: Vec::new() }, place);
        Ok(Made { name, node, base, dt, block, mutable })
    }

    /// The pointer, its parameter, the dtype there, and whether it may be written.
    fn desc_base(&mut self, args: &Args<'_>) -> Checked<(NodeId, ParamId, Dt, bool)> {
        let pointer = self.arg(args, 0)?;
        let ty = self.ty(pointer).clone();
        if let VElem::Ptr(param) = ty.elem
            && ty.is_scalar()
            && let ParamKind::Ptr { dt, mutable } = self.func.param(param).kind
        {
            return Ok((pointer.node, param, dt, mutable));
        }
        let message = format!("a tensor begins at a scalar pointer, found {}", self.show(pointer));
        let help = "give a `Ptr` or `PtrMut` parameter, or one moved by a scalar: `x + first`";
        Err(self.report_help(pointer.place, message, help))
    }

    /// The shape of the blocks.
    fn desc_block(&mut self, args: &Args<'_>) -> Checked<Vec<Dim>> {
        let expr = args.expr(3).ok_or_else(Reported::earlier)?;
        let block = self.shape_arg(expr)?;
        if (1..=MAX_TENSOR_RANK).contains(&block.len()) {
            return Ok(block);
        }
        let message = format!("a tensor has 1 to {MAX_TENSOR_RANK} dimensions, found {}", block.len());
        Err(self.report_help(SourceRange::of(expr), message, "merge dimensions that are adjacent in memory"))
    }

    /// `[m, k]`: an i32 or i64 scalar per dimension.
    fn extents(
        &mut self,
        args: &Args<'_>,
        index: usize,
        rank: Option<usize>,
        what: &str,
        one: &str,
    ) -> Checked<Vec<NodeId>> {
        let expr = args.expr(index).ok_or_else(Reported::earlier)?;
        let Expr::Array(array) = bare(expr) else {
            let message = format!("{what} of a tensor must stand in brackets, one number for each dimension");
            let help = "write `tensor_desc(pointer, [m, k], [k, 1], [M, K])`";
            return Err(self.report_help(SourceRange::of(expr), message, help));
        };
        let values: Vec<Checked<NodeId>> = array.elems.iter().map(|expr| self.extent(expr, one)).collect();
        if let Some(rank) = rank.filter(|&rank| rank != array.elems.len()) {
            let plural = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
            let (given, wanted) = (plural(array.elems.len(), "number"), plural(rank, "dimension"));
            let message = format!("{what} must have one number for each of the blocks' {wanted}, found {given}");
            let help = "write `tensor_desc(pointer, [m, k], [k, 1], [M, K])`";
            return Err(self.report_help(SourceRange::of(expr), message, help));
        }
        values.into_iter().collect()
    }

    fn extent(&mut self, expr: &Expr, what: &str) -> Checked<NodeId> {
        let value = self.operand(expr)?;
        if !self.ty(value).is_scalar() {
            let message = format!("{what} of a tensor is a scalar, found {}", self.show(value));
            return Err(self.report_help(value.place, message, "give one number for each dimension"));
        }
        if let VElem::Data(dt) = self.ty(value).elem
            && self.types.known(dt) == Some(Dt::Known(DType::I32))
        {
            return Ok(value.node);
        }
        self.expect(value, DtRef::from(DType::I64), &format!("{what} of a tensor, if it is no `i32`,"))?;
        Ok(value.node)
    }

    /// `padding = nan`
    fn padding(&mut self, args: &Args<'_>, dt: Dt) -> Checked<bool> {
        let Some(expr) = args.named("padding") else { return Ok(false) };
        let nan = self.keyword(expr, "padding", &[("zero", false), ("nan", true)])?;
        let floats = match dt {
            Dt::Known(dtype) => dtype.is_float(),
            Dt::Param(id) => self.func.dtype_params[id.index()].bound == DTypeBound::Float,
        };
        if !nan || floats {
            return Ok(nan);
        }
        let message = format!("{} has no NaN to read outside the tensor", self.show_fixed(dt));
        let help = match dt {
            Dt::Param(id) if may_be(&self.func, dt, DTypeBound::Float) => {
                format!("bound the dtype: `{}: Float`", self.func.dtype_params[id.index()].name)
            }
            Dt::Param(_) | Dt::Known(_) => "leave `padding` out: elements outside read as zero".to_string(),
        };
        Err(self.report_help(SourceRange::of(expr), message, help))
    }
}
