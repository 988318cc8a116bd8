//! The tile IR: one data structure at three levels (generic, bound, placed).
//!
//! A [`Func`] is an arena of values, operations and regions. [`Op`] is declared by the op table in
//! [`ops`]; [`infer`] gives every operation's result types; [`effects`] says what it touches.

pub mod banks;
mod builder;
pub mod dim;
pub mod dtype;
pub mod effects;
pub mod func;
pub mod hint;
pub mod infer;
mod infer_dot;
mod infer_gpu;
pub mod known;
mod layouts;
pub mod names;
mod needs;
pub mod ops;
pub mod queries;
pub mod span;
pub mod table;
pub mod types;

pub use builder::Builder;
pub use dim::{Atom, Dim, DimError, Poly};
pub use dtype::{Bound, DType};
pub use effects::{Effect, Resource};
pub use func::{
    BankId, BoundFunc, ConstId, ConstParam, ConstTy, Def, DtypeId, DtypeParam, Facts, FloatFlags, Func, Generic, IntTy,
    LayoutId, Level, OpId, Operation, Param, ParamId, ParamKind, Placed, Region, RegionId, Safety, SharedRange, Value,
    ValueId,
};
pub use infer::{TypeError, result_types};
pub use infer_dot::{MAX_TENSOR_RANK, accumulators, product_dtypes};
pub use layouts::LayoutTable;
pub use names::{
    AtomicOp, BinaryOp, CacheModifier, CmpOp, DotInstruction, DotPrecision, EvictionPolicy, FenceKind, GroupRole,
    HintKind, LimitKind, Literal, MemOrder, MemScope, StoreMode, UnaryOp, Unroll,
};
pub use ops::{ControlOp, CreateOp, DescOp, DotOp, ElementwiseOp, GpuOp, MemoryOp, Op, ShapeOp, view};
pub use span::{FileId, Files, Span};
pub use table::{AttrMap, Cost, Does, Elements, Given, Levels, OpRow, Regions, Threads, Touched};
pub use types::{Dt, Elem, Ty};
