//! A kernel as an arena of values, operations and regions.
//!
//! Control flow is structured: an operation may own *regions*, each a list of operations with block
//! arguments that ends in `yield` (or, for the kernel's body, in `return`). Values dominate their uses
//! by nesting, so there are no branches, no blocks and no phi nodes.

use super::dim::Dim;
use super::dtype::{Bound, DType};
use super::layouts::LayoutTable;
use super::ops::Op;
use super::span::{Files, Span};
use super::types::{Dt, Ty};
use crate::layout::SyncScope;

macro_rules! ids {
    ($($(#[doc = $doc:literal])* $name:ident;)*) => {$(
        $(#[doc = $doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub struct $name(u32);

        impl $name {
            /// The identifier with that index.
            pub fn new(index: u32) -> $name {
                $name(index)
            }

            /// The index into the arena or list that this identifies an entry of.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

ids! {
    /// A value: a block argument or a result of an operation.
    ValueId;
    /// An operation.
    OpId;
    /// A region.
    RegionId;
    /// A parameter of the kernel, by position.
    ParamId;
    /// A constexpr (const generic) of the kernel, by position.
    ConstId;
    /// A dtype parameter of the kernel, by position.
    DtypeId;
    /// A distributed layout in the kernel's layout table (placed level).
    LayoutId;
    /// A bank: registers with names of their own that hold one accumulator at a time (placed level).
    BankId;
}

/// Whether accesses are checked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Safety {
    /// A `#[kernel] fn`: no access leaves its buffer.
    Safe,
    /// A `#[kernel] unsafe fn`: unchecked.
    Unsafe,
}

/// How far a kernel has been lowered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Shapes and dtypes symbolic.
    Generic,
    /// Constexprs, dtypes and argument facts known.
    Bound,
    /// Layouts on every tile, GPU operations allowed.
    Placed,
}

/// A dtype parameter, `T: Num`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DtypeParam {
    /// Its name in the source.
    pub name: String,
    /// What its dtype must satisfy.
    pub bound: Bound,
}

/// The type of a constexpr.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ConstTy {
    /// `const N: usize` or any integer type; the value must fit it.
    Int(IntTy),
    /// `const FLAG: bool`, valued 0 or 1.
    Bool,
}

/// The Rust integer types that a constexpr may have.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IntTy {
    /// `usize`
    Usize,
    /// `isize`
    Isize,
    /// A fixed-width integer dtype.
    Fixed(DType),
}

/// A constexpr (const generic).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConstParam {
    /// Its name in the source.
    pub name: String,
    /// Its type.
    pub ty: ConstTy,
}

impl ConstParam {
    /// Its value as the user wrote it: `true` rather than 1, and numbers of unsigned 64-bit types that do not fit the
    /// signed 64 bits in which values are kept.
    pub fn show(&self, value: i64) -> String {
        match self.ty {
            ConstTy::Bool if value == 0 => format!("{} = false", self.name),
            ConstTy::Bool if value == 1 => format!("{} = true", self.name),
            ConstTy::Int(IntTy::Usize | IntTy::Fixed(DType::U64)) => format!("{} = {}", self.name, value as u64),
            ConstTy::Bool | ConstTy::Int(_) => format!("{} = {value}", self.name),
        }
    }
}

/// What a parameter of the kernel is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ParamKind {
    /// `Ptr<T>` (`mutable: false`) or `PtrMut<T>`: a buffer of `dt`.
    Ptr {
        /// The buffer's dtype.
        dt: Dt,
        /// Whether the kernel may store through it.
        mutable: bool,
    },
    /// `TensorDesc<T, { [BM, BK] }>`: a tensor of 1 to 5 dimensions in global memory, read and written in blocks.
    Desc {
        /// The tensor's dtype.
        dt: Dt,
        /// The shape of the blocks, one dimension per dimension of the tensor.
        block: Vec<Dim>,
        /// Whether the kernel may store through it.
        mutable: bool,
    },
    /// A scalar given at launch.
    Scalar(Dt),
    /// `Const<f32>` and its kind: a scalar that is folded and part of the cache key.
    ConstScalar(Dt),
    /// A parameter that the compiler adds: where a failed check is reported (u64 address).
    ReportSlot,
    /// A parameter that the compiler adds: the length in elements (i64) of a buffer parameter.
    Length(ParamId),
    /// A parameter that the compiler adds where a descriptor became a pointer: the size (i64) of a dimension of the
    /// tensor that is given as the argument of parameter `of`.
    DescShape {
        /// The parameter whose argument is the tensor.
        of: ParamId,
        /// The dimension, from the outermost.
        axis: u8,
    },
    /// As `DescShape`: the distance (i64) of neighbours along a dimension, in elements.
    DescStride {
        /// The parameter whose argument is the tensor.
        of: ParamId,
        /// The dimension, from the outermost.
        axis: u8,
    },
}

impl ParamKind {
    /// Whether the compiler adds it, so that no argument of the launch stands for it.
    pub fn is_hidden(&self) -> bool {
        match self {
            ParamKind::Ptr { .. } | ParamKind::Desc { .. } | ParamKind::Scalar(_) | ParamKind::ConstScalar(_) => false,
            ParamKind::ReportSlot
            | ParamKind::Length(_)
            | ParamKind::DescShape { .. }
            | ParamKind::DescStride { .. } => true,
        }
    }

    /// The dtype of the buffer, tensor or scalar that the argument is; `None` for what the compiler adds.
    pub fn dt(&self) -> Option<Dt> {
        match self {
            ParamKind::Ptr { dt, .. }
            | ParamKind::Desc { dt, .. }
            | ParamKind::Scalar(dt)
            | ParamKind::ConstScalar(dt) => Some(*dt),
            ParamKind::ReportSlot
            | ParamKind::Length(_)
            | ParamKind::DescShape { .. }
            | ParamKind::DescStride { .. } => None,
        }
    }
}

/// What is known of an argument when the kernel is compiled. Part of the cache key.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Facts {
    /// A power of two that divides it: for a buffer or tensor, its address in bytes; for an integer, its value. 0 or 1: nothing known.
    pub divisible_by: u32,
    /// For an integer: its value, when that is 1.
    pub equals_one: bool,
    /// For a buffer: a power of two that divides its length in elements. 0 or 1: nothing known.
    pub len_divisible_by: u32,
    /// For a tensor: a power of two that divides every stride but the innermost, in elements. 0 or 1: nothing known.
    pub stride_divisible_by: u32,
    /// For a tensor: elements outside read as NaN, not as zero.
    pub pads_with_nan: bool,
}

/// A parameter of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Param {
    /// Its name in the source.
    pub name: String,
    /// What it is.
    pub kind: ParamKind,
    /// What is known of the argument (bound and placed levels).
    pub facts: Facts,
    /// The value that stands for it in the body.
    pub value: ValueId,
    /// Where it is declared.
    pub span: Span,
}

/// Where a value comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Def {
    /// A parameter of the kernel.
    Param(ParamId),
    /// Argument `index` of a region.
    Arg(RegionId, u32),
    /// Result `index` of an operation.
    Result(OpId, u32),
}

/// A value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Value {
    /// Its type.
    pub ty: Ty,
    /// Its definition.
    pub def: Def,
    /// Its layout (placed level, tiles only).
    pub layout: Option<LayoutId>,
    /// The bank in which it lives (placed level, accumulators of asynchronous products only).
    pub bank: Option<BankId>,
}

impl Value {
    /// Puts it where another value is.
    pub(crate) fn lie_as(&mut self, other: &Value) {
        (self.layout, self.bank) = (other.layout, other.bank);
    }
}

/// Flags of floating-point operations.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FloatFlags {
    /// The operation may be fused with its neighbours (`a * b + c` into one rounding).
    pub contract: bool,
}

/// Bytes of a program's shared memory, and who meets where before and after they are written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SharedRange {
    /// The first byte.
    pub start: u32,
    /// The byte behind the last.
    pub end: u32,
    /// Who meets between the writes and the reads of an exchange: all threads, or those of each warp.
    pub scope: SyncScope,
    /// Into how many parts an exchange is cut, as its bytes have room for one at a time: each is written and read before
    /// the next.
    pub passes: u32,
    /// Whether all threads meet before they write, too, as some may still read what was there.
    pub meets: bool,
}

impl SharedRange {
    /// The bytes from `start` up to `end`.
    pub fn new(start: u32, end: u32) -> SharedRange {
        SharedRange { start, end, scope: SyncScope::Block, passes: 1, meets: false }
    }

    /// How many bytes there are.
    pub fn bytes(self) -> u32 {
        self.end.saturating_sub(self.start)
    }

    /// How often all threads meet in an exchange.
    pub fn meetings(self) -> u32 {
        let inside = if self.scope == SyncScope::Block { 2 * self.passes.max(1) - 1 } else { 0 };
        u32::from(self.meets) + inside
    }
}

/// An operation in the arena.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    /// What it does, with its attributes.
    pub op: Op,
    /// Operands.
    pub operands: Vec<ValueId>,
    /// Results.
    pub results: Vec<ValueId>,
    /// Regions that it owns.
    pub regions: Vec<RegionId>,
    /// Flags of floating-point arithmetic.
    pub flags: FloatFlags,
    /// Where its shared memory is (placed level): of an allocation the bytes that it stands for; of an operation whose
    /// threads pass each other values, the bytes of each exchange in turn. In an exchange all threads write, meet and
    /// read; its bytes are free again once they have met after that.
    pub shared: Vec<SharedRange>,
    /// Where it comes from.
    pub span: Span,
}

/// A region: block arguments and operations, the last of which is `yield` (or `return`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Region {
    /// Block arguments.
    pub args: Vec<ValueId>,
    /// Operations in program order.
    pub ops: Vec<OpId>,
}

/// A kernel at any level. Use [`Generic`], [`Bound`](BoundFunc) and [`Placed`] in signatures.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Func {
    /// The kernel's name.
    pub name: String,
    /// The source files that it is from.
    pub files: Files,
    /// The level whose rules hold.
    pub level: Level,
    /// Whether accesses are checked.
    pub safety: Safety,
    /// dtype parameters. Empty after `bind`.
    pub dtype_params: Vec<DtypeParam>,
    /// Constexprs. Empty after `bind`.
    pub const_params: Vec<ConstParam>,
    /// Parameters, hidden ones last.
    pub params: Vec<Param>,
    /// Value arena.
    pub values: Vec<Value>,
    /// Operation arena. Operations that no region lists are dead.
    pub ops: Vec<Operation>,
    /// Region arena.
    pub regions: Vec<Region>,
    /// The kernel's body. Its arguments are empty: parameters are values of their own.
    pub body: RegionId,
    /// Layouts by [`LayoutId`] (placed level).
    pub layouts: LayoutTable,
    /// For how many programs per multiprocessor a back end shall make room (placed level); `None` leaves it to the
    /// back end.
    pub programs: Option<u32>,
}

impl Func {
    /// An empty kernel without parameters.
    pub fn new(name: &str, file: &str, safety: Safety) -> Func {
        Func {
            name: name.to_string(),
            files: Files::new(file),
            level: Level::Generic,
            safety,
            dtype_params: Vec::new(),
            const_params: Vec::new(),
            params: Vec::new(),
            values: Vec::new(),
            ops: Vec::new(),
            regions: vec![Region::default()],
            body: RegionId::new(0),
            layouts: LayoutTable::default(),
            programs: None,
        }
    }

    /// Adds a parameter and returns its identifier; its value is `self.params[id].value`.
    pub fn add_param(&mut self, name: &str, kind: ParamKind, span: Span) -> ParamId {
        let id = ParamId::new(self.params.len() as u32);
        let ty = match &kind {
            ParamKind::Ptr { .. } => Ty::ptr(id),
            ParamKind::Desc { .. } => Ty::desc(id),
            ParamKind::Scalar(dt) | ParamKind::ConstScalar(dt) => Ty::scalar(*dt),
            ParamKind::ReportSlot => Ty::scalar(DType::U64),
            ParamKind::Length(_) | ParamKind::DescShape { .. } | ParamKind::DescStride { .. } => Ty::scalar(DType::I64),
        };
        let value = self.new_value(ty, Def::Param(id));
        self.params.push(Param { name: name.to_string(), kind, facts: Facts::default(), value, span });
        id
    }

    /// Adds a value to the arena.
    pub fn new_value(&mut self, ty: Ty, def: Def) -> ValueId {
        let id = ValueId::new(self.values.len() as u32);
        self.values.push(Value { ty, def, layout: None, bank: None });
        id
    }

    /// Adds an empty region with arguments of these types.
    pub fn new_region(&mut self, args: impl IntoIterator<Item = Ty>) -> RegionId {
        let id = RegionId::new(self.regions.len() as u32);
        self.regions.push(Region::default());
        for ty in args {
            self.add_region_arg(id, ty);
        }
        id
    }

    /// Appends an argument to a region.
    pub fn add_region_arg(&mut self, region: RegionId, ty: Ty) -> ValueId {
        let index = self.regions[region.index()].args.len() as u32;
        let value = self.new_value(ty, Def::Arg(region, index));
        self.regions[region.index()].args.push(value);
        value
    }

    /// The value with that identifier.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// The type of a value.
    pub fn ty(&self, id: ValueId) -> &Ty {
        &self.values[id.index()].ty
    }

    /// The operation with that identifier.
    pub fn op(&self, id: OpId) -> &Operation {
        &self.ops[id.index()]
    }

    /// The region with that identifier.
    pub fn region(&self, id: RegionId) -> &Region {
        &self.regions[id.index()]
    }

    /// The parameter with that identifier.
    pub fn param(&self, id: ParamId) -> &Param {
        &self.params[id.index()]
    }

    /// The operation that defines a value, if one does.
    pub fn def_op(&self, id: ValueId) -> Option<&Operation> {
        self.defining_op(id).map(|op| self.op(op))
    }

    /// The identifier of the operation that defines a value, if one does.
    pub fn defining_op(&self, id: ValueId) -> Option<OpId> {
        match self.value(id).def {
            Def::Result(op, _) => Some(op),
            Def::Param(_) | Def::Arg(..) => None,
        }
    }

    /// The dtype that a pointer value points to.
    pub fn pointee_dt(&self, param: ParamId) -> Option<Dt> {
        match self.param(param).kind {
            ParamKind::Ptr { dt, .. } => Some(dt),
            ParamKind::Desc { .. }
            | ParamKind::Scalar(_)
            | ParamKind::ConstScalar(_)
            | ParamKind::ReportSlot
            | ParamKind::Length(_)
            | ParamKind::DescShape { .. }
            | ParamKind::DescStride { .. } => None,
        }
    }

    /// The operations of a region in program order.
    pub fn region_ops(&self, id: RegionId) -> impl DoubleEndedIterator<Item = (OpId, &Operation)> {
        self.region(id).ops.iter().map(|&op| (op, self.op(op)))
    }

    /// The operands of a region's terminator: what it yields.
    pub fn yielded(&self, id: RegionId) -> &[ValueId] {
        self.region(id).ops.last().map_or(&[], |&op| &self.op(op).operands)
    }
}

macro_rules! levels {
    ($($(#[doc = $doc:literal])* $name:ident = $level:ident;)*) => {$(
        $(#[doc = $doc])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct $name(Func);

        impl $name {
            /// Wraps a kernel of that level.
            ///
            /// # Errors
            /// The kernel itself, if it is of another level.
            pub fn new(func: Func) -> Result<$name, Box<Func>> {
                if func.level == Level::$level { Ok($name(func)) } else { Err(Box::new(func)) }
            }

            /// The kernel.
            pub fn func(&self) -> &Func {
                &self.0
            }

            /// The kernel, to be changed by a pass that keeps the level's rules.
            pub fn func_mut(&mut self) -> &mut Func {
                &mut self.0
            }

            /// The kernel by value.
            pub fn into_func(self) -> Func {
                self.0
            }
        }
    )*};
}

levels! {
    /// A kernel whose shapes and dtypes are symbolic: what `#[kernel]` embeds.
    Generic = Generic;
    /// A kernel whose constexprs, dtypes and argument facts are known: what `bind` makes.
    BoundFunc = Bound;
    /// A kernel whose tiles have layouts: what the GPU code generator lowers.
    Placed = Placed;
}
