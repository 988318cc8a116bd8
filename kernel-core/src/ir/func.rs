//! A kernel as an arena of values, operations and regions.
//!
//! Control flow is structured: an operation may own *regions*, each a list of operations with block
//! arguments that ends in `yield` (or, for the kernel's body, in `return`). Values dominate their uses
//! by nesting, so there are no branches, no blocks and no phi nodes.

use super::dtype::DType;
use super::ids::{BankId, ConstId, LayoutId, OpId, ParamId, RegionId, ValueId};
use super::layouts::LayoutTable;
use super::level::Level;
use super::ops::Operation;
use super::params::{ByPointers, ConstParam, DtypeParam, Facts, Param, ParamKind, Passing};
use super::span::{Files, Span};
use super::types::{Dt, Ty};
use crate::layout::LinearLayout;

/// Whether accesses are checked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Safety {
    /// A `#[kernel] fn`: no access leaves its buffer.
    Safe,
    /// A `#[kernel] unsafe fn`: unchecked.
    Unsafe,
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

#[cfg(feature = "passes")]
impl Value {
    /// Puts it where another value is.
    pub fn lie_as(&mut self, other: &Value) {
        (self.layout, self.bank) = (other.layout, other.bank);
    }
}

/// A region: block arguments and operations, the last of which is `yield` (or `return`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Region {
    /// Block arguments.
    pub args: Vec<ValueId>,
    /// Operations in program order.
    pub ops: Vec<OpId>,
}

/// What the arithmetic of f32 does with subnormal numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Subnormals {
    /// They are numbers like others.
    #[default]
    Kept,
    /// They are taken for zeros of their sign, where they go into arithmetic, comparisons and elementary functions and where
    /// they come out: PTX's `.ftz`. So may be those of bf16, which is computed in f32. Signs are changed in bits.
    Flushed,
}

/// A kernel at any level. Use [`Generic`], [`Bound`] and [`Placed`] in signatures.
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
    /// What f32 does with subnormal numbers.
    pub subnormals: Subnormals,
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
    /// Tensors that the kernel makes and accesses through pointers (bound and placed levels), for the report.
    pub by_pointers: Vec<ByPointers>,
}

impl Func {
    /// An empty kernel without parameters.
    pub fn new(name: &str, file: &str, safety: Safety) -> Func {
        Func {
            name: name.to_string(),
            files: Files::new(file),
            level: Level::Generic,
            safety,
            subnormals: Subnormals::default(),
            dtype_params: Vec::new(),
            const_params: Vec::new(),
            params: Vec::new(),
            values: Vec::new(),
            ops: Vec::new(),
            regions: vec![Region::default()],
            body: RegionId::new(0),
            layouts: LayoutTable::default(),
            programs: None,
            by_pointers: Vec::new(),
        }
    }

    /// The constexprs whose values the launch gives, in the order in which it gives them.
    pub fn given_consts(&self) -> impl Iterator<Item = (ConstId, &ConstParam)> {
        (0..).map(ConstId::new).zip(&self.const_params).filter(|(_, param)| param.is_given())
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
        let (passing, facts) = (Passing::Always, Facts::default());
        self.params.push(Param { name: name.to_string(), kind, passing, facts, recipe: None, value, span });
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

    /// The identifier of a layout, which is added to the kernel's table if it is not there.
    pub fn intern(&mut self, layout: &LinearLayout) -> LayoutId {
        self.layouts.intern(layout)
    }

    /// The layout of a value, if it has one.
    pub fn layout(&self, value: ValueId) -> Option<&LinearLayout> {
        self.layouts.get(self.value(value).layout?.index())
    }

    /// The numbers of a tile's shape; empty for a scalar. At the bound and placed levels, where all are known.
    pub fn tile_shape(&self, value: ValueId) -> Vec<u32> {
        let dims = self.ty(value).dims().unwrap_or_default();
        dims.into_iter().map(|dim| u32::try_from(dim).unwrap_or(0)).collect()
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
    Bound = Bound;
    /// A kernel whose tiles have layouts: what the GPU code generator lowers.
    Placed = Placed;
}
