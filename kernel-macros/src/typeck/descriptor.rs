//! Tensor descriptors: their parameters, and the operations on blocks of their tensors.
//!
//! A descriptor is no value: it is named by its parameter, or by the `let` that makes it, only as the receiver of a method, or as an
//! argument of a function.

use kernel_core::ir::{AtomicOp, DType, DescOp, Dim, Dt, Op, ParamId, ParamKind};
use syn::punctuated::Punctuated;
use syn::{AngleBracketedGenericArguments, Expr, Token};

use super::args::Args;
use super::tensor_desc::Descriptor;
use super::{Binding, Checker, Operand, Val};
use crate::error::{Checked, Reported};
use crate::help::Help;
use crate::names::closest;
use crate::ops::{self, DESC_ROWS, DescCall};
use crate::signature::KernelParam;
use crate::source_range::{SourceRange, bare};
use crate::tree::{Kind, Node, NodeId, Stmt};
use crate::types::{DtRef, VElem, VTy, dt_name};

/// What is known of a descriptor where it is used.
pub(super) struct Described {
    /// What the name stands for.
    descriptor: Descriptor,
    name: String,
    /// The dtype of the tensor.
    pub dt: Dt,
    /// The shape of the blocks.
    pub block: Vec<Dim>,
    /// Whether the tensor may be written.
    pub mutable: bool,
}

impl Checker<'_> {
    /// Declares the parameter of a descriptor.
    pub(super) fn descriptor_param(
        &mut self,
        param: &KernelParam,
        dt: Dt,
        mutable: bool,
        place: SourceRange,
    ) -> Checked<ParamId> {
        let block: Expr = match param.block.clone().map(syn::parse2) {
            Some(Ok(block)) => block,
            Some(Err(_)) | None => return Err(Reported::earlier()),
        };
        let block = self.shape_arg(&block)?;
        let kind = ParamKind::Desc { dt, block, mutable };
        Ok(self.func.add_param(&param.ident.to_string(), kind, place.ir_span()))
    }

    /// The descriptor that an expression names.
    pub(super) fn descriptor(&self, expr: &Expr) -> Option<Descriptor> {
        let Expr::Path(path) = bare(expr) else { return None };
        match self.lookup(&path.path.get_ident()?.to_string())? {
            (Binding::Desc(descriptor), _) => Some(descriptor),
            _ => None,
        }
    }

    pub(super) fn described(&self, descriptor: &Descriptor) -> Checked<Described> {
        let (name, dt, block, mutable) = match descriptor {
            Descriptor::Made(made) => (made.name.clone(), made.dt, made.block.clone(), made.mutable),
            Descriptor::Param(param) => {
                let param = self.func.param(*param);
                let ParamKind::Desc { dt, block, mutable } = &param.kind else { return Err(Reported::earlier()) };
                (param.name.clone(), *dt, block.clone(), *mutable)
            }
        };
        Ok(Described { descriptor: descriptor.clone(), name, dt, block, mutable })
    }

    /// `descriptor.name(arguments)`
    pub(super) fn desc_call(
        &mut self,
        descriptor: Descriptor,
        (name, name_place): (&str, SourceRange),
        exprs: &Punctuated<Expr, Token![,]>,
        turbofish: Option<&AngleBracketedGenericArguments>,
        place: SourceRange,
    ) -> Checked<Val> {
        let Some(row) = ops::find_desc(name) else {
            let message = format!("tensor descriptors have no method `{name}`");
            let help = match closest(name, DESC_ROWS.iter().map(|row| row.name)) {
                Some(close) => Help::meant(name_place, close),
                None => {
                    let names: Vec<String> = DESC_ROWS.iter().map(|row| format!("`{}`", row.name)).collect();
                    format!("their methods are {}", names.join(", ")).into()
                }
            };
            return Err(self.report_help(name_place, message, help));
        };
        let mut args = self.args(row, None, exprs, turbofish, place)?;
        args.descriptor = Some(descriptor);
        self.dispatch(&args)
    }

    /// An operation of a descriptor.
    pub(super) fn descriptor_op(&mut self, args: &Args<'_>, call: DescCall) -> Checked<Val> {
        if self.in_closure() {
            let message = format!("`{}` in a closure is not supported", args.row.name);
            let help = "access memory before or after the call that takes the closure";
            return Err(self.report_help(args.place, message, help));
        }
        let descriptor = args.descriptor.as_ref().ok_or_else(Reported::earlier)?;
        let descriptor = self.described(descriptor)?;
        let writable = match call {
            DescCall::Load | DescCall::Gather => Ok(()),
            DescCall::Store | DescCall::Scatter | DescCall::Reduce(_) => self.writable(&descriptor, args.place),
        };
        let result = match call {
            DescCall::Load => self.desc_load(&descriptor, args).map(Val::One),
            DescCall::Store => self.desc_write(&descriptor, args, DescOp::DescStore),
            DescCall::Reduce(op) => self.desc_reduce(&descriptor, args, op),
            DescCall::Gather => self.gather(&descriptor, args).map(Val::One),
            DescCall::Scatter => self.scatter(&descriptor, args),
        };
        writable.and(result)
    }

    pub(super) fn writable(&mut self, descriptor: &Described, place: SourceRange) -> Checked<()> {
        if descriptor.mutable {
            return Ok(());
        }
        let (name, dt) = (&descriptor.name, dt_name(&self.func, descriptor.dt));
        let param = match &descriptor.descriptor {
            Descriptor::Param(param) => *param,
            Descriptor::Made(made) => {
                let base = self.func.param(made.base).name.clone();
                let message = format!("`{name}` lies in the buffer of `{base}`, a `Ptr<{dt}>`, which is read only");
                let ty = self.optional(made.base, format!("PtrMut<{dt}>"));
                return Err(self.report_help(place, message, format!("declare the parameter as `{base}: {ty}`")));
            }
        };
        let message = format!("`{name}` is a `TensorDesc<{dt}, ..>`, which is read only");
        let block = self.shape_source(&descriptor.block);
        let ty = self.optional(param, format!("TensorDescMut<{dt}, {{ {block} }}>"));
        let help = format!("declare the parameter as `{name}: {ty}`");
        Err(self.report_help(place, message, help))
    }

    /// The descriptor as an operand.
    fn descriptor_node(&mut self, descriptor: &Described, place: SourceRange) -> NodeId {
        let param = match &descriptor.descriptor {
            Descriptor::Param(param) => *param,
            Descriptor::Made(made) => return made.node,
        };
        // Only its parameter matters: no other operation ever sees the node.
        let ty = VTy { elem: VElem::Ptr(param), shape: Vec::new() };
        self.new_node(Node { kind: Kind::Param(param), ty, dim: None, constexpr: false, place })
    }

    fn desc_load(&mut self, descriptor: &Described, args: &Args<'_>) -> Checked<Operand> {
        let coordinates = self.coordinates(descriptor, args)?;
        let mut operands = vec![self.descriptor_node(descriptor, args.place)];
        operands.extend(coordinates);
        let ty = VTy { elem: VElem::Data(DtRef::Fixed(descriptor.dt)), shape: descriptor.block.clone() };
        Ok(Operand { node: self.op(DescOp::DescLoad, operands, ty, args.place), place: args.place })
    }

    fn desc_reduce(&mut self, descriptor: &Described, args: &Args<'_>, op: AtomicOp) -> Checked<Val> {
        self.atomic_dtype(descriptor.dt, super::atomic::needs(op), args.row.name, args.place)?;
        self.desc_write(descriptor, args, DescOp::DescReduce { op })
    }

    fn desc_write(&mut self, descriptor: &Described, args: &Args<'_>, op: DescOp) -> Checked<Val> {
        let coordinates = self.coordinates(descriptor, args);
        if coordinates.is_err() && matches!(args.expr(1).map(bare), Some(Expr::Array(_))) {
            // The two have changed places: one mistake.
            return Err(Reported::earlier());
        }
        let value = self.arg(args, 1)?;
        let value = self.block_value(descriptor, value, &descriptor.block, "the blocks of", args.row.name)?;
        let mut operands = vec![self.descriptor_node(descriptor, args.place), value];
        operands.extend(coordinates?);
        self.stmts.push(Stmt::Effect(Op::from(op), operands, args.place));
        Ok(Val::Unit(args.place))
    }

    fn gather(&mut self, descriptor: &Described, args: &Args<'_>) -> Checked<Operand> {
        let (rows, column, shape) = self.rows(descriptor, args)?;
        let operands = vec![self.descriptor_node(descriptor, args.place), rows, column];
        let ty = VTy { elem: VElem::Data(DtRef::Fixed(descriptor.dt)), shape };
        Ok(Operand { node: self.op(DescOp::DescGather, operands, ty, args.place), place: args.place })
    }

    fn scatter(&mut self, descriptor: &Described, args: &Args<'_>) -> Checked<Val> {
        let rows = self.rows(descriptor, args);
        let value = self.arg(args, 2)?;
        let (rows, column, shape) = rows?;
        let value = self.block_value(descriptor, value, &shape, "these rows of", args.row.name)?;
        let operands = vec![self.descriptor_node(descriptor, args.place), value, rows, column];
        self.stmts.push(Stmt::Effect(Op::from(DescOp::DescScatter), operands, args.place));
        Ok(Val::Unit(args.place))
    }

    /// The rows and the column of a gather or scatter, and the shape of what they name.
    fn rows(&mut self, descriptor: &Described, args: &Args<'_>) -> Checked<(NodeId, NodeId, Vec<Dim>)> {
        let name = descriptor.name.clone();
        let [Dim::Const(1), columns] = descriptor.block.as_slice() else {
            let block = self.show_shape(&descriptor.block);
            let message = format!(
                "`{}` takes rows of a matrix, but the blocks of `{name}` have the shape {block}",
                args.row.name
            );
            let help = match descriptor.descriptor {
                Descriptor::Param(_) => "declare blocks of one row: `{ [1, COLUMNS] }`",
                Descriptor::Made(_) => "make it with blocks of one row: `[1, COLUMNS]`",
            };
            return Err(self.report_help(args.place, message, help));
        };
        let (rows, column) = (self.arg(args, 0), self.arg(args, 1));
        let (rows, column) = (rows?, column?);
        self.expect(rows, DtRef::from(DType::I32), "the rows")?;
        let [count] = self.ty(rows).shape.as_slice() else {
            let message = format!("the rows are a tile with one axis, found {}", self.show(rows));
            return Err(self.report_help(
                rows.place,
                message,
                "write the numbers of the rows: `first + arange(0, ROWS)`",
            ));
        };
        let shape = vec![count.clone(), columns.clone()];
        self.check_shape(&shape, args.place)?;
        let column = self.coordinate(column)?;
        Ok((rows.node, column, shape))
    }

    /// `[i, j]`: an i32 scalar per dimension.
    fn coordinates(&mut self, descriptor: &Described, args: &Args<'_>) -> Checked<Vec<NodeId>> {
        let Some(expr) = args.expr(0) else { return Err(Reported::earlier()) };
        let rank = descriptor.block.len();
        let name = descriptor.name.clone();
        let example: Vec<&str> = ["i", "j", "k", "l", "m"].into_iter().take(rank).collect();
        let help = format!(
            "write `{name}.{}([{}]{})`",
            args.row.name,
            example.join(", "),
            match args.row.params.len() {
                1 => "",
                _ => ", value",
            }
        );
        let Expr::Array(array) = bare(expr) else {
            let message = "the coordinates of a block are written in brackets, one for each dimension";
            return Err(self.report_help(SourceRange::of(expr), message, help));
        };
        if array.elems.len() != rank {
            let given = array.elems.len();
            let message = format!(
                "`{name}` has {rank} dimension{}, found {given} coordinate{}",
                if rank == 1 { "" } else { "s" },
                if given == 1 { "" } else { "s" },
            );
            return Err(self.report_help(SourceRange::of(expr), message, help));
        }
        let values: Vec<Checked<NodeId>> =
            array.elems.iter().map(|expr| self.operand(expr).and_then(|value| self.coordinate(value))).collect();
        values.into_iter().collect()
    }

    fn coordinate(&mut self, value: Operand) -> Checked<NodeId> {
        if !self.ty(value).is_scalar() {
            let message = format!("a coordinate is a scalar, found {}", self.show(value));
            let help = "a block begins at its coordinates and has the shape of the parameter's type";
            return Err(self.report_help(value.place, message, help));
        }
        self.expect(value, DtRef::from(DType::I32), "a coordinate")?;
        Ok(value.node)
    }

    /// A value that is written, broadcast to the shape.
    fn block_value(
        &mut self,
        descriptor: &Described,
        value: Operand,
        shape: &[Dim],
        whose: &str,
        call: &str,
    ) -> Checked<NodeId> {
        self.expect(value, DtRef::Fixed(descriptor.dt), "the stored value")?;
        let own = self.ty(value).shape.clone();
        let pairs = own.iter().rev().zip(shape.iter().rev());
        let fits = own.len() <= shape.len() && pairs.clone().all(|(a, b)| a.is_one() || self.same_dim(a, b));
        if fits {
            return Ok(self.expand(value.node, shape, value.place));
        }
        let name = descriptor.name.clone();
        let message = format!(
            "the value of this `{call}` has the shape {}, but {whose} `{name}` have {}",
            self.show_shape(&own),
            self.show_shape(shape)
        );
        let help = format!("it must broadcast to {}", self.show_shape(shape));
        Err(self.report_help(value.place, message, help))
    }
}
