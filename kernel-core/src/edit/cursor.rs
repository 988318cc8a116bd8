//! Appends operations, typed by the type rules.

use std::fmt;

use crate::diag::Diagnostic;
use crate::ir::{
    BinaryOp, CmpOp, ControlOp, CreateOp, DType, Dim, ElementwiseOp, FloatFlags, Func, LayoutId, Literal, Op, OpId,
    RegionId, Span, TypeError, ValueId, result_types,
};

/// A pass wrote an operation that breaks a type rule: a mistake of the compiler's own, never of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EditError {
    /// The kernel's name.
    pub kernel: String,
    /// The source file, as rustc names it.
    pub file: String,
    /// The line that the operation would come from.
    pub span: Span,
    /// The pass that wrote it.
    pub pass: &'static str,
    /// The operation's name in the text form.
    pub op: &'static str,
    /// The rule that it breaks.
    pub rule: String,
}

impl EditError {
    /// What is wrong, without the place.
    pub fn what(&self) -> String {
        format!("it wrote a wrong `{}`: {}", self.op, self.rule)
    }
}

impl fmt::Display for EditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a mistake in pass `{}`: {}", self.pass, self.what())?;
        write!(f, ", in kernel `{}` at {}", self.kernel, self.file)?;
        if self.span.line > 0 {
            write!(f, ":{}:{}", self.span.line, self.span.column)?;
        }
        Ok(())
    }
}

impl std::error::Error for EditError {}

impl From<Box<EditError>> for Diagnostic {
    fn from(error: Box<EditError>) -> Diagnostic {
        let message = format!("a mistake in pass `{}`: {}", error.pass, error.what());
        let width = u32::from(error.span.len).max(1);
        Diagnostic { width, ..Diagnostic::new(message, error.file, error.span.line, error.span.column) }
    }
}

/// What an edit gives, or the mistake of the pass that asked for it.
pub type Result<T> = std::result::Result<T, Box<EditError>>;

/// Appends operations to a list, one behind the other. Where the list belongs is for its owner to say: it may be a
/// region's new list, or be put somewhere by [`splice`].
///
/// ```
/// use kernel_core::edit::{Cursor, Place, splice};
/// use kernel_core::ir::{BinaryOp, DType, Func, Safety};
/// let mut func = Func::new("demo", "demo.rs", Safety::Safe);
/// let mut ops = Vec::new();
/// let mut cursor = Cursor::new(&mut func, &mut ops, "demo");
/// let two = cursor.i32(2)?;
/// let four = cursor.binary(BinaryOp::Add, two, two)?;
/// assert_eq!(cursor.func.ty(four).dtype(), Some(DType::I32));
/// let body = func.body;
/// splice(&mut func, Place::Start(body), ops);
/// # Ok::<(), Box<kernel_core::edit::EditError>>(())
/// ```
pub struct Cursor<'e> {
    /// The kernel that is edited.
    pub func: &'e mut Func,
    out: &'e mut Vec<OpId>,
    pass: &'static str,
    span: Span,
    flags: FloatFlags,
}

impl<'e> Cursor<'e> {
    /// A cursor at the end of a list, for a pass of this name.
    pub fn new(func: &'e mut Func, out: &'e mut Vec<OpId>, pass: &'static str) -> Cursor<'e> {
        Cursor { func, out, pass, span: Span::UNKNOWN, flags: FloatFlags::default() }
    }

    /// The same, for operations that come from this line.
    pub fn at(self, span: Span) -> Cursor<'e> {
        Cursor { span, ..self }
    }

    /// The same, for operations with these flags.
    pub fn flags(self, flags: FloatFlags) -> Cursor<'e> {
        Cursor { flags, ..self }
    }

    /// The error about an operation that breaks a rule.
    fn wrong(&self, op: &'static str, rule: impl Into<String>) -> Box<EditError> {
        let (kernel, file) = (self.func.name.clone(), self.func.files.name(self.span).to_string());
        Box::new(EditError { kernel, file, span: self.span, pass: self.pass, op, rule: rule.into() })
    }

    /// Appends an operation that exists.
    pub fn keep(&mut self, id: OpId) {
        self.out.push(id);
    }

    /// Appends an operation with regions.
    ///
    /// # Errors
    /// If operands or regions do not fit the operation. So are the errors of all other methods.
    pub fn op(&mut self, op: impl Into<Op>, operands: &[ValueId], regions: &[RegionId]) -> Result<OpId> {
        let op = op.into();
        let name = op.name();
        match self.func.typed_op(op, operands, regions, self.flags, self.span) {
            Ok(id) => {
                self.out.push(id);
                Ok(id)
            }
            Err(TypeError { message }) => Err(self.wrong(name, message)),
        }
    }

    /// Appends an operation that has no result.
    pub fn effect(&mut self, op: impl Into<Op>, operands: &[ValueId]) -> Result<OpId> {
        let id = self.op(op, operands, &[])?;
        let operation = self.func.op(id);
        match operation.results.as_slice() {
            [] => Ok(id),
            _ => Err(self.wrong(operation.op.name(), "expected an operation without results")),
        }
    }

    /// Appends an operation that has one result, in this layout.
    pub fn placed(&mut self, op: impl Into<Op>, operands: &[ValueId], layout: Option<LayoutId>) -> Result<ValueId> {
        let id = self.op(op, operands, &[])?;
        let operation = self.func.op(id);
        match operation.results.as_slice() {
            &[value] => {
                self.func.values[value.index()].layout = layout;
                Ok(value)
            }
            _ => Err(self.wrong(operation.op.name(), "expected an operation with one result")),
        }
    }

    /// Appends an operation that has one result, without a layout.
    pub fn value(&mut self, op: impl Into<Op>, operands: &[ValueId]) -> Result<ValueId> {
        self.placed(op, operands, None)
    }

    /// Appends an operation that has one result, in the layout of another value.
    pub fn like(&mut self, op: impl Into<Op>, operands: &[ValueId], other: ValueId) -> Result<ValueId> {
        let layout = self.func.value(other).layout;
        self.placed(op, operands, layout)
    }

    /// Makes an operation another one whose results are of the same types, so that they keep their users, and appends
    /// it.
    pub fn turn(&mut self, id: OpId, op: impl Into<Op>, operands: &[ValueId]) -> Result<()> {
        let op = op.into();
        let regions = self.func.op(id).regions.clone();
        let tys = result_types(self.func, &op, operands, &regions)
            .map_err(|TypeError { message }| self.wrong(op.name(), message))?;
        if !self.func.op(id).results.iter().map(|&result| self.func.ty(result)).eq(&tys) {
            return Err(self.wrong(op.name(), format!("its results are not those of `{}`", self.func.op(id).op.name())));
        }
        let operation = &mut self.func.ops[id.index()];
        (operation.op, operation.operands) = (op, operands.to_vec());
        self.keep(id);
        Ok(())
    }

    /// A new region without arguments that holds what `write` appends, and a `yield` of what it returns.
    pub fn region(&mut self, write: impl FnOnce(&mut Cursor<'_>) -> Result<Vec<ValueId>>) -> Result<RegionId> {
        let region = self.func.new_region([]);
        self.fill(region, write)?;
        Ok(region)
    }

    /// Makes what `write` appends, and a `yield` of what it returns, the operations of a region.
    pub fn fill(
        &mut self,
        region: RegionId,
        write: impl FnOnce(&mut Cursor<'_>) -> Result<Vec<ValueId>>,
    ) -> Result<()> {
        let mut ops = Vec::new();
        let (span, flags) = (self.span, self.flags);
        let mut inner = Cursor { func: &mut *self.func, out: &mut ops, pass: self.pass, span, flags };
        let yielded = write(&mut inner)?;
        inner.op(ControlOp::Yield, &yielded, &[])?;
        self.func.regions[region.index()].ops = ops;
        Ok(())
    }

    /// A constant.
    pub fn constant(&mut self, value: Literal, dtype: DType) -> Result<ValueId> {
        self.value(Op::constant(value, dtype), &[])
    }

    /// A constant of dtype i32.
    pub fn i32(&mut self, value: i32) -> Result<ValueId> {
        self.value(Op::i32(value), &[])
    }

    /// A scalar repeated in a shape; itself if that is the shape of a scalar.
    pub fn splat(&mut self, scalar: ValueId, shape: Vec<Dim>) -> Result<ValueId> {
        if shape.is_empty() { Ok(scalar) } else { self.value(CreateOp::Splat { shape }, &[scalar]) }
    }

    /// A scalar repeated in the shape and layout of a tile; itself beside a scalar.
    pub fn splat_like(&mut self, scalar: ValueId, tile: ValueId) -> Result<ValueId> {
        let shape = self.func.ty(tile).shape.clone();
        if shape.is_empty() { Ok(scalar) } else { self.like(CreateOp::Splat { shape }, &[scalar], tile) }
    }

    /// A value converted to a dtype, in its own layout; itself if it has that dtype.
    pub fn cast(&mut self, value: ValueId, to: DType) -> Result<ValueId> {
        if self.func.ty(value).dtype() == Some(to) {
            return Ok(value);
        }
        self.like(Op::cast(to), &[value], value)
    }

    /// The bits of a value as another dtype of the same width, in its own layout; itself if it has that dtype.
    pub fn bitcast(&mut self, value: ValueId, to: DType) -> Result<ValueId> {
        if self.func.ty(value).dtype() == Some(to) {
            return Ok(value);
        }
        self.like(ElementwiseOp::Bitcast { to: to.into() }, &[value], value)
    }

    /// Two operands combined, in the layout of the first.
    pub fn binary(&mut self, op: BinaryOp, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.like(Op::binary(op), &[a, b], a)
    }

    /// Two operands compared, in the layout of the first.
    pub fn compare(&mut self, op: CmpOp, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.like(Op::compare(op), &[a, b], a)
    }

    /// One of two operands, in the layout of the first of them.
    pub fn select(&mut self, condition: ValueId, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.like(ElementwiseOp::Select, &[condition, a, b], a)
    }
}

/// Where a list of operations is put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Before everything in a region.
    Start(RegionId),
    /// Before the terminator of a region, or at the end of one that has none yet.
    End(RegionId),
    /// Before an operation that the region lists.
    Before(RegionId, OpId),
    /// Behind an operation that the region lists.
    After(RegionId, OpId),
    /// In the place of an operation that the region lists.
    Instead(RegionId, OpId),
}

/// Puts operations that are in no region there. Nothing happens if the region does not list the operation that the
/// place names.
pub fn splice(func: &mut Func, place: Place, ops: Vec<OpId>) {
    let (region, anchor) = match place {
        Place::Start(region) | Place::End(region) => (region, None),
        Place::Before(region, op) | Place::After(region, op) | Place::Instead(region, op) => (region, Some(op)),
    };
    let at = anchor.and_then(|anchor| func.region(region).ops.iter().position(|&op| op == anchor));
    let last = func.region(region).ops.len();
    let terminated = func.region_ops(region).next_back().is_some_and(|(_, operation)| operation.op.is_terminator());
    let range = match (place, at) {
        (Place::Start(_), _) => 0..0,
        (Place::End(_), _) => {
            let end = last - usize::from(terminated);
            end..end
        }
        (Place::Before(..), Some(at)) => at..at,
        (Place::After(..), Some(at)) => at + 1..at + 1,
        (Place::Instead(..), Some(at)) => at..at + 1,
        (Place::Before(..) | Place::After(..) | Place::Instead(..), None) => return,
    };
    func.regions[region.index()].ops.splice(range, ops);
}
