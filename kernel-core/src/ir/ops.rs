//! The op table: every operation of the tile IR, declared once.
//!
//! Operations are grouped, and a `match` over operations is exhaustive within each group, so that adding
//! a row makes the compiler list every place that has to learn it.
//! Operand and result types are the job of [`super::infer`].

use super::dim::Dim;
use super::dtype::DType;
use super::names::{
    AtomicOp, BinaryOp, CacheModifier, CmpOp, DotInstruction, DotPrecision, EvictionPolicy, FenceKind, HintKind,
    LimitKind, Literal, MemOrder, MemScope, StoreMode, UnaryOp, Unroll,
};
use super::table::{Levels, OpRow, op_group};
use super::types::Dt;

op_group! {
    /// Operations that make a value from nothing, from a scalar or from the launch.
    CreateOp: "create";
    /// A constant scalar.
    Const = "const" @ ALL { value: Literal, dtype: Dt };
    /// The value of a symbolic integer expression over constexprs, as a scalar of `dtype` (also `bool`: nonzero).
    ConstExpr = "const_expr" @ GENERIC { value: Dim, dtype: Dt };
    /// An extreme or special value of a dtype.
    Limit = "limit" @ GENERIC { kind: LimitKind, dtype: Dt };
    /// Index of this program along a grid axis (0, 1 or 2), i32.
    ProgramId = "program_id" @ ALL { axis: u8 };
    /// Number of programs along a grid axis, i32.
    NumPrograms = "num_programs" @ ALL { axis: u8 };
    /// The integers `lo..hi` as an i32 tile of rank 1.
    Arange = "arange" @ ALL { lo: Dim, hi: Dim };
    /// A tile whose elements all are the scalar operand.
    Splat = "splat" @ ALL { shape: Vec<Dim> };
}

op_group! {
    /// Elementwise operations: operands and result have one shape.
    ElementwiseOp: "elementwise";
    /// One operand.
    Unary = "unary" @ ALL { op: UnaryOp };
    /// Two operands of one type.
    Binary = "binary" @ ALL { op: BinaryOp };
    /// Two operands of one type (pointers into one buffer too); the result is `bool`.
    Compare = "compare" @ ALL { op: CmpOp };
    /// `(condition, a, b)`: a where the condition holds, else b.
    Select = "select" @ ALL;
    /// `(a, b, c)`: a * b + c with one rounding (floats); f16 and bf16 round the result of f32.
    Fma = "fma" @ ALL;
    /// Conversion as Rust's `as`: truncates, saturates from float to integer, rounds to nearest even; to `bool`: nonzero.
    Cast = "cast" @ ALL { to: Dt };
    /// The same bits as another dtype of the same width.
    Bitcast = "bitcast" @ ALL { to: Dt };
}

op_group! {
    /// Operations that rearrange elements.
    ShapeOp: "shape";
    /// Inserts a dimension of size 1 before `axis`.
    ExpandDims = "expand_dims" @ ALL { axis: u8 };
    /// Repeats along dimensions of size 1 until the tile has the shape; ranks are equal.
    Broadcast = "broadcast" @ ALL { shape: Vec<Dim> };
    /// The same elements in row-major order in another shape; a scalar from a tile of one element.
    Reshape = "reshape" @ ALL { shape: Vec<Dim> };
    /// Dimension `i` of the result is dimension `perm[i]` of the operand.
    Permute = "permute" @ ALL { perm: Vec<u8> };
    /// The same value, with a promise that the compiler relies on: what breaks it ends the program in the interpreter
    /// and in safe kernels, and is undefined on a GPU in `unsafe` ones and where it is `believed`.
    Hint = "hint" @ ALL { kind: HintKind, n: Dim, multiple: Dim, axis: u8, believed: bool };
    /// The part of a tile that begins at `start` and has that shape.
    Slice = "slice" @ PLACED { start: Vec<Dim>, shape: Vec<Dim> };
    /// The same tile in another layout; the result's layout says which.
    ConvertLayout = "convert_layout" @ PLACED;
}

op_group! {
    /// Pointers and global memory.
    MemoryOp: "memory";
    /// `(pointer, integer offset)` of one shape: the pointer moved by that many elements.
    AddPtr = "add_ptr" @ ALL;
    /// `(pointer [, mask [, other]])`: the elements there; `other`, or zero, where the mask is false.
    Load = "load" @ ALL { cache: CacheModifier, eviction: EvictionPolicy };
    /// `(pointer, value [, mask])`: writes the elements where the mask holds.
    Store = "store" @ ALL { cache: CacheModifier, eviction: EvictionPolicy };
    /// `(pointer, value [, mask])`: read-modify-write; the result is what was there, zero where the mask is false.
    AtomicRmw = "atomic_rmw" @ ALL { op: AtomicOp, order: MemOrder, scope: MemScope };
    /// `(offsets, length [, mask])`: the mask (true without one) where `0 <= offset < length`, else false; a lane
    /// that the mask admits and the bounds refuse is reported as an out-of-bounds access (a store if `store`)
    /// to the buffer of parameter number `param`. Offsets are integers, the length an i64 scalar. After `bind` only.
    CheckBounds = "check_bounds" @ LOWERED { param: u32, store: bool };
    /// `(pointer, expected, value [, mask])`: stores the value where the memory holds the expected one; the result is
    /// what was there, zero where the mask is false.
    AtomicCas = "atomic_cas" @ ALL { order: MemOrder, scope: MemScope };
}

op_group! {
    /// Matrix products.
    DotOp: "dot";
    /// `(a [.., M, K], b [.., K, N], acc [.., M, N])`: `acc` plus the matrix product. Products are exact and sums are in
    /// f32 (f64, wrapping i32), in any order, with either sign of zero; an f16 accumulator is rounded at the end, or more often. `by` is the
    /// instruction that computes it, which a code generator chooses before placement: a placed kernel has one.
    Dot = "dot" @ ALL { precision: DotPrecision, by: Option<DotInstruction> };
}

op_group! {
    /// Blocks of tensors in global memory, through descriptors. Coordinates are i32 scalars, one per dimension, in
    /// elements of the tensor; they may be negative or beyond it.
    DescOp: "desc";
    /// `(descriptor, coordinates...)`: the block that begins there. Elements outside the tensor read as zero, or as
    /// NaN if the descriptor was made so.
    DescLoad = "desc_load" @ ALL;
    /// `(descriptor, value, coordinates...)`: writes the block that begins there; elements outside are dropped.
    DescStore = "desc_store" @ ALL;
    /// `(descriptor, value, coordinates...)`: combines the block with what is there, one atomic per element.
    DescReduce = "desc_reduce" @ ALL { op: AtomicOp };
    /// `(descriptor, rows, column)`: of a matrix with blocks `[1, C]`, the rows of an i32 tile `[R]` from that column on,
    /// as a tile `[R, C]`.
    DescGather = "desc_gather" @ ALL;
    /// `(descriptor, value, rows, column)`: writes the rows that `desc_gather` would read.
    DescScatter = "desc_scatter" @ ALL;
}

op_group! {
    /// Structured control flow, reductions and checks.
    ControlOp: "control";
    /// `(lo, hi, step, carried...)`, one region `(i, carried...)` that yields the next carried values:
    /// runs for `i = lo, lo + step, ..` while `i < hi`, without wrapping; never if `step <= 0`.
    /// `reverse` runs through the same values of `i` backwards. `runs` says that it is known to run at least once, as the
    /// host has found before the launch.
    For = "for" @ ALL { reverse: bool, unroll: Unroll, stages: u8, warp_specialize: bool, runs: bool };
    /// `(carried...)`, regions `(carried...) -> bool` and `(carried...) -> carried...`: runs the second while the first yields true.
    While = "while" @ ALL;
    /// `(condition)`, two regions without arguments that yield the results.
    If = "if" @ ALL;
    /// `(tiles...)` of one shape, a region `(a..., b...)` of scalars that yields their combination, associative and
    /// commutative: combines along `axis`, which the results lack.
    Reduce = "reduce" @ ALL { axis: u8 };
    /// `(tiles...)` of one shape, a region as of `reduce` (associative): running combination along `axis`.
    Scan = "scan" @ ALL { axis: u8, reverse: bool };
    /// Ends a region with its values.
    Yield = "yield" @ ALL;
    /// Ends the kernel's body.
    Return = "return" @ ALL;
    /// `(condition)`: a scalar or a tile of `bool`; if an element is false the program ends and the launch reports the message.
    Assert = "assert" @ ALL { message: String };
    /// `(condition)`: must be known and true when the kernel is bound.
    StaticAssert = "static_assert" @ GENERIC { message: String };
}

op_group! {
    /// Shared memory, asynchronous copies, barriers and warp groups.
    GpuOp: "gpu";
    /// Allocates shared memory: the result is a view of it with that shape, `bytes` aligned to 1024.
    SharedAlloc = "shared_alloc" @ PLACED { shape: Vec<Dim>, dtype: Dt };
    /// `(view, index)`: the sub-view at that index of the outermost dimension.
    SharedIndex = "shared_index" @ PLACED;
    /// `(view)`: the same memory with dimension `i` being dimension `perm[i]` of the operand.
    SharedPermute = "shared_permute" @ PLACED { perm: Vec<u8> };
    /// `(view)`: the tile in it.
    SharedLoad = "shared_load" @ PLACED;
    /// `(view, tile)`: writes the tile into it.
    SharedStore = "shared_store" @ PLACED;
    /// `(view, pointer [, mask])`: copies from global into shared memory; lands at the wait on its token's group.
    AsyncCopy = "async_copy" @ PLACED;
    /// `(tokens...)`: closes a group of asynchronous copies.
    AsyncCommit = "async_commit" @ PLACED;
    /// `(tokens...)`: waits until at most `pending` groups are in flight.
    AsyncWait = "async_wait" @ PLACED { pending: u8 };
    /// All threads of the program (or warp group) meet; shared-memory accesses before it are seen after it.
    Barrier = "barrier" @ PLACED;
    /// The threads of each four warps meet; what each of them accessed before is seen by the others after it.
    GroupBarrier = "group_barrier" @ PLACED;
    /// Orders accesses between memory proxies.
    Fence = "fence" @ PLACED { kind: FenceKind };
    /// Allocates `slots` barriers with phases, each complete after `count` arrivals. They are ready when the kernel begins.
    BarrierAlloc = "barrier_alloc" @ PLACED { slots: u32, count: u32 };
    /// `(barrier, slot [, bytes])`: arrives, expecting that many bytes of asynchronous copies.
    BarrierArrive = "barrier_arrive" @ PLACED;
    /// `(barrier, slot, phase)`: waits until the phase with that parity is complete.
    BarrierWait = "barrier_wait" @ PLACED;
    /// `(a, b, acc [, adds])`: `acc` plus the matrix product, asynchronously, as one group; `a` is a tile or a view, `b` a
    /// view. Where the scalar `adds` is false it is the product alone, whatever `acc` is. The result may only be the accumulator of a further one, be carried by a loop, or be waited for.
    Wgmma = "wgmma" @ PLACED { precision: DotPrecision };
    /// `(tiles...)`: the same tiles, when at most `pending` groups of `wgmma` are in flight.
    WgmmaWait = "wgmma_wait" @ PLACED { pending: u8 };
    /// `(descriptor, view, barrier, slot, coordinates...)`: copies a block into shared memory; its bytes are counted on the
    /// current phase of the barrier, at whose completion they are there.
    TmaLoad = "tma_load" @ PLACED;
    /// `(descriptor, view, coordinates...)`: copies a view out to global memory, asynchronously, as one group. With
    /// `parts`, the view is divided in so many along each dimension, and each four warps copy one of them: the first four
    /// the first, the next ones that behind it along the first dimension.
    TmaStore = "tma_store" @ PLACED { reduce: StoreMode, parts: Vec<u8> };
    /// Waits until at most `pending` groups of `tma_store` still read shared memory.
    TmaStoreWait = "tma_store_wait" @ PLACED { pending: u8 };
    /// Regions run by disjoint groups of warps at the same time; `warps` and `registers` per region.
    WarpGroups = "warp_groups" @ PLACED { warps: Vec<u8>, registers: Vec<u8> };
}

/// An operation of the tile IR with its attributes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// Values from nothing, from a scalar or from the launch.
    Create(CreateOp),
    /// One element at a time.
    Elementwise(ElementwiseOp),
    /// Rearranging elements.
    Shape(ShapeOp),
    /// Pointers and global memory.
    Memory(MemoryOp),
    /// Matrix products.
    Dot(DotOp),
    /// Blocks of tensors through descriptors.
    Desc(DescOp),
    /// Control flow, reductions, checks.
    Control(ControlOp),
    /// Shared memory, asynchronous copies, barriers, warp groups.
    Gpu(GpuOp),
}

impl Op {
    /// The rows of the whole op table.
    pub fn rows() -> impl Iterator<Item = &'static OpRow> {
        [
            CreateOp::ROWS,
            ElementwiseOp::ROWS,
            ShapeOp::ROWS,
            MemoryOp::ROWS,
            DotOp::ROWS,
            DescOp::ROWS,
            ControlOp::ROWS,
            GpuOp::ROWS,
        ]
        .into_iter()
        .flatten()
    }

    /// The name that the text form prints: unary and binary operations have their own, comparisons are `cmp.lt`.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Elementwise(ElementwiseOp::Unary { op }) => op.name(),
            Op::Elementwise(ElementwiseOp::Binary { op }) => op.name(),
            Op::Elementwise(ElementwiseOp::Compare { op }) => match op {
                CmpOp::Eq => "cmp.eq",
                CmpOp::Ne => "cmp.ne",
                CmpOp::Lt => "cmp.lt",
                CmpOp::Le => "cmp.le",
                CmpOp::Gt => "cmp.gt",
                CmpOp::Ge => "cmp.ge",
            },
            Op::Elementwise(
                ElementwiseOp::Select | ElementwiseOp::Fma | ElementwiseOp::Cast { .. } | ElementwiseOp::Bitcast { .. },
            )
            | Op::Create(_)
            | Op::Shape(_)
            | Op::Memory(_)
            | Op::Dot(_)
            | Op::Desc(_)
            | Op::Control(_)
            | Op::Gpu(_) => self.mnemonic(),
        }
    }

    /// The operation's name in the op table.
    pub fn mnemonic(&self) -> &'static str {
        match self {
            Op::Create(op) => op.mnemonic(),
            Op::Elementwise(op) => op.mnemonic(),
            Op::Shape(op) => op.mnemonic(),
            Op::Memory(op) => op.mnemonic(),
            Op::Dot(op) => op.mnemonic(),
            Op::Desc(op) => op.mnemonic(),
            Op::Control(op) => op.mnemonic(),
            Op::Gpu(op) => op.mnemonic(),
        }
    }

    /// Where the operation may occur.
    pub fn levels(&self) -> Levels {
        match self {
            Op::Create(op) => op.levels(),
            Op::Elementwise(op) => op.levels(),
            Op::Shape(op) => op.levels(),
            Op::Memory(op) => op.levels(),
            Op::Dot(op) => op.levels(),
            Op::Desc(op) => op.levels(),
            Op::Control(op) => op.levels(),
            Op::Gpu(op) => op.levels(),
        }
    }

    /// Shorthand for an elementwise operation with one operand.
    pub fn unary(op: UnaryOp) -> Op {
        Op::Elementwise(ElementwiseOp::Unary { op })
    }

    /// Shorthand for an elementwise operation with two operands.
    pub fn binary(op: BinaryOp) -> Op {
        Op::Elementwise(ElementwiseOp::Binary { op })
    }

    /// Shorthand for a comparison.
    pub fn compare(op: CmpOp) -> Op {
        Op::Elementwise(ElementwiseOp::Compare { op })
    }

    /// Shorthand for a conversion.
    pub fn cast(to: impl Into<Dt>) -> Op {
        Op::Elementwise(ElementwiseOp::Cast { to: to.into() })
    }

    /// Shorthand for a constant.
    pub fn constant(value: Literal, dtype: impl Into<Dt>) -> Op {
        Op::Create(CreateOp::Const { value, dtype: dtype.into() })
    }

    /// Shorthand for an i32 constant.
    pub fn i32(value: i32) -> Op {
        Op::constant(Literal::Int(i128::from(value)), DType::I32)
    }

    /// Whether this ends a region.
    pub fn is_terminator(&self) -> bool {
        matches!(self, Op::Control(ControlOp::Yield | ControlOp::Return))
    }
}

impl From<CreateOp> for Op {
    fn from(op: CreateOp) -> Op {
        Op::Create(op)
    }
}

impl From<ElementwiseOp> for Op {
    fn from(op: ElementwiseOp) -> Op {
        Op::Elementwise(op)
    }
}

impl From<ShapeOp> for Op {
    fn from(op: ShapeOp) -> Op {
        Op::Shape(op)
    }
}

impl From<MemoryOp> for Op {
    fn from(op: MemoryOp) -> Op {
        Op::Memory(op)
    }
}

impl From<DotOp> for Op {
    fn from(op: DotOp) -> Op {
        Op::Dot(op)
    }
}

impl From<DescOp> for Op {
    fn from(op: DescOp) -> Op {
        Op::Desc(op)
    }
}

impl From<ControlOp> for Op {
    fn from(op: ControlOp) -> Op {
        Op::Control(op)
    }
}

impl From<GpuOp> for Op {
    fn from(op: GpuOp) -> Op {
        Op::Gpu(op)
    }
}
