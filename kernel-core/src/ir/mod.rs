//! The tile IR: one data structure at three levels (generic, bound, placed).
//!
//! A [`Func`] is an arena of values, operations and regions. [`Op`] is declared by the op table in
//! [`ops`]; [`infer`] gives every operation's result types; [`effects`] says what it touches.

pub mod banks;
mod builder;
pub mod dim;
pub mod dtype;
pub mod effects;
pub mod format;
pub mod func;
pub mod hint;
mod ids;
pub mod infer;
mod infer_dot;
mod infer_gpu;
mod infer_tile;
pub mod known;
mod layouts;
mod level;
pub mod names;
mod needs;
pub mod ops;
mod params;
pub mod ptx;
pub mod queries;
pub mod recipe;
pub mod scaled;
mod shared_range;
pub mod span;
pub mod table;
pub mod types;

pub use builder::Builder;
pub use dim::{Atom, Dim, DimError, Poly};
pub use dtype::{DType, DTypeBound};
pub use effects::{Effect, Resource};
pub use func::{Bound, Def, Func, Generic, Placed, Region, Safety, Subnormals, Value};
pub use ids::{BankId, ConstId, DtypeId, LayoutId, OpId, ParamId, RegionId, ValueId};
pub use infer::{TypeError, result_types};
pub use infer_dot::{MAX_TENSOR_RANK, accumulators, product_dtypes};
pub use layouts::LayoutTable;
pub use level::{Level, Levels};
pub use names::{
    AtomicOp, BinaryOp, CacheModifier, CmpOp, CounterKind, DotInstruction, DotPrecision, EvictionPolicy, FactorFormat,
    FenceKind, GroupPart, GroupRole, HintKind, LimitKind, Literal, MAX_STAGES, MemOrder, MemScope, ScaledFactors,
    StoreMode, UnaryOp, Unroll,
};
pub use ops::{
    ControlOp, CreateOp, DescOp, DotOp, ElementwiseOp, FloatFlags, GpuOp, MemoryOp, Op, Operation, ShapeOp, TileOp,
    view,
};
pub use params::{ByPointers, ConstOrigin, ConstParam, ConstTy, DtypeParam, Facts, IntTy, Param, ParamKind, Passing};
pub use ptx::InlinePtx;
pub use recipe::Recipe;
pub use shared_range::SharedRange;
pub use span::{CallId, FileId, Files, Span};
pub use table::{AttrMap, Cost, Does, Elements, Given, OpRow, Regions, Threads, Touched};
pub use types::{Dt, Elem, Ty};
