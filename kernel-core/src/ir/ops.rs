//! The op table: every operation of the tile IR, declared once.
//!
//! A row names the operands, and states what all passes have to know: where the elements of the results come from,
//! what the operation costs, whether threads meet at it, what it does with its regions, and what it touches. Passes
//! ask for these facts ([`super::queries`]), so that they are right for operations that they have never heard of.
//! Those that must know each operation match on all of them, and a new row makes the compiler list them. Operand and
//! result types are the job of [`super::infer`].

use super::dim::Dim;
use super::dtype::DType;
use super::ids::{ConstId, RegionId, ValueId};
use super::level::Levels;
use super::names::{
    AtomicOp, BinaryOp, CacheModifier, CmpOp, CounterKind, DotInstruction, DotPrecision, EvictionPolicy, FactorFormat,
    FenceKind, GroupPart, GroupRole, HintKind, LimitKind, Literal, MemOrder, MemScope, ScaledFactors, StoreMode,
    UnaryOp, Unroll,
};
use super::ptx::InlinePtx;
use super::shared_range::SharedRange;
use super::span::Span;
use super::table::{AttrMap, OpRow, op_group};
use super::types::Dt;
use crate::math::FloatIntFn;

op_group! {
    /// Operations that make a value from nothing, from a scalar or from the launch.
    CreateOp: "create", Create, create;
    /// A constant scalar.
    Const = "const" @ ALL () -> One,
        Made, Arithmetic, Alone, Straight, []
        { value: Literal, dtype: Dt };
    /// The value of a symbolic integer expression over constexprs, as a scalar of `dtype` (also `bool`: nonzero).
    ConstExpr = "const_expr" @ GENERIC () -> One,
        Made, Arithmetic, Alone, Straight, []
        { value: Dim, dtype: Dt };
    /// An extreme or special value of a dtype.
    Limit = "limit" @ GENERIC () -> One,
        Made, Arithmetic, Alone, Straight, []
        { kind: LimitKind, dtype: Dt };
    /// Index of this program along a grid axis (0, 1 or 2), i32.
    ProgramId = "program_id" @ ALL () -> One,
        Made, Arithmetic, Alone, Straight, []
        { axis: u8 };
    /// Number of programs along a grid axis, i32.
    NumPrograms = "num_programs" @ ALL () -> One,
        Made, Arithmetic, Alone, Straight, []
        { axis: u8 };
    /// A number that the hardware counts, or that says where the program runs.
    Counter = "counter" @ ALL () -> One,
        Made, Arithmetic, Alone, Straight, [Observes]
        { which: CounterKind };
    /// The integers `lo..hi` as an i32 tile of rank 1.
    Arange = "arange" @ ALL () -> One,
        Made, Arithmetic, Alone, Straight, []
        { lo: Dim, hi: Dim };
    /// A tile whose elements all are the scalar operand.
    Splat = "splat" @ ALL (scalar: One) -> One,
        Repeated(scalar), Free, Alone, Straight, []
        { shape: Vec<Dim> };
}

op_group! {
    /// Elementwise operations: operands and result have one shape.
    ElementwiseOp: "elementwise", Elementwise, elementwise;
    /// One operand.
    Unary = "unary" @ ALL (a: One) -> One,
        Each, Arithmetic, Alone, Straight, []
        { op: UnaryOp };
    /// Two operands of one type.
    Binary = "binary" @ ALL (a: One, b: One) -> One,
        Each, Arithmetic, Alone, Straight, []
        { op: BinaryOp };
    /// A float and an i32; the result has the type of the float.
    FloatInt = "float_int" @ ALL (a: One, n: One) -> One,
        Each, Arithmetic, Alone, Straight, []
        { op: FloatIntFn };
    /// Two operands of one type (pointers into one buffer too); the result is `bool`.
    Compare = "compare" @ ALL (a: One, b: One) -> One,
        Each, Arithmetic, Alone, Straight, []
        { op: CmpOp };
    /// `(condition, a, b)`: a where the condition holds, else b.
    Select = "select" @ ALL (condition: One, a: One, b: One) -> One,
        Each, Arithmetic, Alone, Straight, [];
    /// `(a, b, c)`: a * b + c with one rounding (floats); f16 and bf16 round the result of f32.
    Fma = "fma" @ ALL (a: One, b: One, c: One) -> One,
        Each, Arithmetic, Alone, Straight, [];
    /// Conversion as Rust's `as`: truncates, saturates from float to integer, rounds to nearest even; to `bool`:
    /// nonzero.
    Cast = "cast" @ ALL (a: One) -> One,
        Each, Arithmetic, Alone, Straight, []
        { to: Dt };
    /// The same bits as another dtype of the same width.
    Bitcast = "bitcast" @ ALL (a: One) -> One,
        Each, Arithmetic, Alone, Straight, []
        { to: Dt };
}

op_group! {
    /// Operations that rearrange elements.
    ShapeOp: "shape", Shape, shape;
    /// Inserts a dimension of size 1 before `axis`.
    ExpandDims = "expand_dims" @ ALL (tile: One) -> One,
        Moved(tile), Free, Alone, Straight, []
        { axis: u8 };
    /// Repeats along dimensions of size 1 until the tile has the shape; ranks are equal.
    Broadcast = "broadcast" @ ALL (tile: One) -> One,
        Moved(tile), Free, Alone, Straight, []
        { shape: Vec<Dim> };
    /// The same elements in row-major order in another shape; a scalar from a tile of one element.
    Reshape = "reshape" @ ALL (tile: One) -> One,
        Moved(tile), Free, Alone, Straight, []
        { shape: Vec<Dim> };
    /// Dimension `i` of the result is dimension `perm[i]` of the operand.
    Permute = "permute" @ ALL (tile: One) -> One,
        Moved(tile), Free, Alone, Straight, []
        { perm: Vec<u8> };
    /// `(a, b)`: two tiles of one type side by side, along a new last dimension of size 2: `[.., 0]` is a, `[.., 1]`
    /// is b.
    Join = "join" @ ALL (a: One, b: One) -> One,
        Joined, Free, Alone, Straight, [];
    /// Half of a tile whose last dimension has size 2, without that dimension: `[.., 1]` if `upper`, else `[.., 0]`.
    Half = "half" @ ALL (tile: One) -> One,
        Moved(tile), Free, Alone, Straight, []
        { upper: bool };
    /// The same value, with a promise that the compiler relies on: what breaks it ends the program in the interpreter
    /// and in safe kernels, and is undefined on a GPU in `unsafe` ones and where it is `believed`.
    Hint = "hint" @ ALL (tile: One) -> One,
        Moved(tile), Free, Alone, Straight, [Promises]
        { kind: HintKind, n: Dim, multiple: Dim, axis: u8, believed: bool };
    /// The part of a tile that begins at `start` and has that shape.
    Slice = "slice" @ PLACED (tile: One) -> One,
        Moved(tile), Free, Alone, Straight, []
        { start: Vec<Dim>, shape: Vec<Dim> };
    /// The same tile in another layout; the result's layout says which.
    ConvertLayout = "convert_layout" @ PLACED (tile: One) -> One,
        Moved(tile), Exchange, Together, Straight, [];
}

op_group! {
    /// Operations that need a whole tile for each element of the result: order, places known when the kernel runs, counts.
    TileOp: "tile", Tile, tile;
    /// `(tile, index)`: along `axis`, each element is that of the tile at the index there, modulo the tile's size; the
    /// result has the index's shape, which along all other dimensions is the tile's.
    Gather = "gather" @ ALL (tile: One, index: One) -> One,
        Other, Exchange, Together, Straight, []
        { axis: u8 };
    /// `(tile, index, value)`: the tile with each value written, along `axis`, to the index there, modulo the tile's
    /// size. Of several values for one place it is one of them. Values and index have one shape, which along all other
    /// dimensions is the tile's.
    Scatter = "scatter" @ ALL (tile: One, index: One, value: One) -> One,
        Other, Exchange, Together, Straight, []
        { axis: u8 };
    /// `(tile [, mask])`: how often each of the integers from 0 up to `bins` occurs where the mask holds; i32.
    Histogram = "histogram" @ ALL (tile: One, mask: Optional) -> One,
        Other, Exchange, Together, Straight, []
        { bins: Dim };
    /// `(tile)`: the first `keep` elements along `axis` in ascending or descending order, or with `indices` where in the
    /// tile they are (i32), the lower index first where elements are equal. Below all else is -inf, above all else NaN
    /// of either sign, which comes out as one NaN; -0 is below +0.
    Sort = "sort" @ ALL (tile: One) -> One,
        Other, Exchange, Together, Straight, []
        { axis: u8, descending: bool, keep: Dim, indices: bool };
}

op_group! {
    /// Pointers and global memory.
    MemoryOp: "memory", Memory, memory;
    /// `(pointer, integer offset)` of one shape: the pointer moved by that many elements.
    AddPtr = "add_ptr" @ ALL (pointer: One, offset: One) -> One,
        Each, Arithmetic, Alone, Straight, [];
    /// `(pointer [, mask [, other]])`: the elements there; `other`, or zero, where the mask is false.
    Load = "load" @ ALL (pointer: One, mask: Optional, other: Optional) -> One,
        Each, Memory, Alone, Straight, [Reads(pointer)]
        { cache: CacheModifier, eviction: EvictionPolicy };
    /// `(pointer, value [, mask])`: writes the elements where the mask holds.
    Store = "store" @ ALL (pointer: One, value: One, mask: Optional) -> No,
        Each, Memory, Alone, Straight, [Writes(pointer)]
        { cache: CacheModifier, eviction: EvictionPolicy };
    /// `(pointer, value [, mask])`: read-modify-write; the result is what was there, zero where the mask is false.
    AtomicRmw = "atomic_rmw" @ ALL (pointer: One, value: One, mask: Optional) -> One,
        Each, Memory, Alone, Straight, [Updates(pointer)]
        { op: AtomicOp, order: MemOrder, scope: MemScope };
    /// `(offsets, length [, mask])`: the mask (true without one) where `0 <= offset < length`, else false; a lane
    /// that the mask admits and the bounds refuse is reported as an out-of-bounds access (a store if `store`)
    /// to the buffer of parameter number `param`. Offsets are integers, the length an i64 scalar. After `bind` only.
    CheckBounds = "check_bounds" @ LOWERED (offsets: One, length: One, mask: Optional) -> One,
        Each, Arithmetic, Alone, Straight, [Reports]
        { param: u32, store: bool };
    /// `(pointer, expected, value [, mask])`: stores the value where the memory holds the expected one; the result is
    /// what was there, zero where the mask is false.
    AtomicCas = "atomic_cas" @ ALL (pointer: One, expected: One, value: One, mask: Optional) -> One,
        Each, Memory, Alone, Straight, [Updates(pointer)]
        { order: MemOrder, scope: MemScope };
}

op_group! {
    /// Matrix products.
    DotOp: "dot", Dot, dot;
    /// `(a [.., M, K], b [.., K, N], acc [.., M, N])`: `acc` plus the matrix product. Products are exact and sums are
    /// in f32 (f64, wrapping i32), in any order, with either sign of zero; an f16 accumulator is rounded at the end,
    /// or more often. `by` is the instruction that computes it, which a code generator chooses before placement: a
    /// placed kernel has one.
    Dot = "dot" @ ALL (a: One, b: One, acc: One) -> One,
        Other, Product, Together, Straight, []
        { precision: DotPrecision, by: Option<DotInstruction> };
    /// `(a [.., M, K], b [.., K, N], acc [.., M, N], scales...)`: `acc` plus the product of factors that share scales, as
    /// [`super::scaled`] says. Each is multiplied by its scale in f32, rounded to bf16, or to f16 if one of them is f16,
    /// and then they are multiplied as by `dot`.
    DotScaled = "dot_scaled" @ UNPLACED (a: One, b: One, acc: One, scales: Many) -> One,
        Other, Product, Together, Straight, []
        { a_format: FactorFormat, b_format: FactorFormat, scaled: ScaledFactors };
}

op_group! {
    /// Blocks of tensors in global memory, through descriptors. Coordinates are i32 scalars, one per dimension, in
    /// elements of the tensor; they may be negative or beyond it.
    DescOp: "desc", Desc, desc;
    /// `(pointer, extents...)`: the descriptor of a tensor that begins at a scalar pointer. The extents are i32 or i64
    /// scalars: a size per dimension, then a stride in elements per dimension. Binding makes a parameter of it, or pointers.
    MakeDesc = "make_desc" @ GENERIC (pointer: One, extents: Many) -> One,
        Other, Arithmetic, Alone, Straight, []
        { block: Vec<Dim>, pads_with_nan: bool, name: String };
    /// `(descriptor, coordinates...)`: the block that begins there. Elements outside the tensor read as zero, or as
    /// NaN if the descriptor was made so.
    DescLoad = "desc_load" @ ALL (descriptor: One, coordinates: Many) -> One,
        Other, Memory, Together, Straight, [Reads(descriptor)];
    /// `(descriptor, value, coordinates...)`: writes the block that begins there; elements outside are dropped.
    DescStore = "desc_store" @ ALL (descriptor: One, value: One, coordinates: Many) -> No,
        Other, Memory, Together, Straight, [Writes(descriptor)];
    /// `(descriptor, value, coordinates...)`: combines the block with what is there, one atomic per element.
    DescReduce = "desc_reduce" @ ALL (descriptor: One, value: One, coordinates: Many) -> No,
        Other, Memory, Together, Straight, [Writes(descriptor)]
        { op: AtomicOp };
    /// `(descriptor, rows, column)`: of a matrix with blocks `[1, C]`, the rows of an i32 tile `[R]` from that column
    /// on, as a tile `[R, C]`.
    DescGather = "desc_gather" @ ALL (descriptor: One, rows: One, column: One) -> One,
        Other, Memory, Together, Straight, [Reads(descriptor)];
    /// `(descriptor, value, rows, column)`: writes the rows that `desc_gather` would read.
    DescScatter = "desc_scatter" @ ALL (descriptor: One, value: One, rows: One, column: One) -> No,
        Other, Memory, Together, Straight, [Writes(descriptor)];
}

op_group! {
    /// Structured control flow, reductions and checks.
    ControlOp: "control", Control, control;
    /// `(lo, hi, step, carried...)`, one region `(i, carried...)` that yields the next carried values:
    /// runs for `i = lo, lo + step, ..` while `i < hi`, without wrapping; never if `step <= 0`.
    /// `reverse` runs through the same values of `i` backwards. Binding unrolls loops with `unroll = full`; in their
    /// bodies the constexpr `counter` is `i`. With `unroll = 4` the code generator repeats the body as often per trip.
    /// What constexprs say of either is `unroll_by` and `stages_by` until binding puts the number into `unroll` and `stages`. What the host has found before the launch:
    /// `runs` says that it runs at least once, `no_wrap` that integer sums, differences and products of its body do not
    /// wrap where offsets of its accesses are made of them, in lanes that the masks of these admit.
    For = "for" @ ALL (lo: One, hi: One, step: One, carried: Many) -> Many,
        Yielded, Control, Alone, Loop(1), []
        { reverse: bool, unroll: Unroll, counter: Option<ConstId>, stages: u8, warp_specialize: bool, runs: bool, no_wrap: bool, unroll_by: Option<Dim>, stages_by: Option<Dim> };
    /// `(carried...)`, regions `(carried...) -> bool` and `(carried...) -> carried...`: runs the second while the
    /// first yields true.
    While = "while" @ ALL (carried: Many) -> Many,
        Yielded, Control, Alone, Loop(2), [Ends];
    /// `(condition)`, two regions without arguments that yield the results.
    If = "if" @ ALL (condition: One) -> Many,
        Yielded, Control, Alone, Branch(2), [];
    /// `(tiles...)` of one shape, a region `(a..., b...)` of scalars that yields their combination, associative and
    /// commutative: combines along `axis`, which the results lack.
    Reduce = "reduce" @ ALL (tiles: Many) -> Many,
        Yielded, Exchange, Together, Combine(1), []
        { axis: u8 };
    /// `(tiles...)` of one shape, a region as of `reduce` (associative): running combination along `axis`.
    Scan = "scan" @ ALL (tiles: Many) -> Many,
        Yielded, Exchange, Together, Combine(1), []
        { axis: u8, reverse: bool };
    /// `(tiles...)` of one shape, a region `(a...)` of scalars that yields an element of each result: runs it for each
    /// element. `ptx` are instructions that compute the same, which a code generator takes instead; those that are not
    /// pure do more than that.
    Map = "map" @ ALL (tiles: Many) -> Many,
        Each, Arithmetic, Alone, Apply(1), []
        { ptx: Option<InlinePtx> };
    /// Ends a region with its values.
    Yield = "yield" @ ALL (values: Many) -> No,
        Other, Control, Alone, Straight, [];
    /// Ends the kernel's body.
    Return = "return" @ ALL () -> No,
        Other, Control, Alone, Straight, [];
    /// `(condition)`: a scalar or a tile of `bool`; if an element is false the program ends and the launch reports
    /// the message.
    Assert = "assert" @ ALL (condition: One) -> No,
        Other, Control, Alone, Straight, [Ends]
        { message: String };
    /// `(values...)` of one shape: prints the text with the values in the places of its `{}`, on a line that begins with
    /// the program, and of tiles one line per element, with its index.
    Print = "print" @ ALL (values: Many) -> No,
        Other, Control, Alone, Straight, [Reports]
        { text: String };
    /// `(condition)`: must be known and true when the kernel is bound.
    StaticAssert = "static_assert" @ GENERIC (condition: One) -> No,
        Other, Control, Alone, Straight, [Ends]
        { message: String };
}

op_group! {
    /// Shared memory, asynchronous copies, barriers and warp groups.
    GpuOp: "gpu", Gpu, gpu;
    /// Allocates shared memory: the result is a view of it with that shape, `bytes` aligned to 1024.
    SharedAlloc = "shared_alloc" @ PLACED () -> One,
        Other, Arithmetic, Together, Straight, [Writes(shared)]
        { shape: Vec<Dim>, dtype: Dt };
    /// `(view, index)`: the sub-view at that index of the outermost dimension.
    SharedIndex = "shared_index" @ PLACED (view: One, index: One) -> One,
        Other, Arithmetic, Alone, Straight, [];
    /// `(view)`: the same memory with dimension `i` being dimension `perm[i]` of the operand.
    SharedPermute = "shared_permute" @ PLACED (view: One) -> One,
        Other, Arithmetic, Alone, Straight, []
        { perm: Vec<u8> };
    /// `(view)`: the tile in it.
    SharedLoad = "shared_load" @ PLACED (view: One) -> One,
        Other, Memory, Together, Straight, [Reads(shared)];
    /// `(view, tile)`: writes the tile into it.
    SharedStore = "shared_store" @ PLACED (view: One, tile: One) -> No,
        Other, Memory, Together, Straight, [Writes(shared)];
    /// `(view, pointer [, mask])`: copies from global into shared memory; lands at the wait on its token's group.
    AsyncCopy = "async_copy" @ PLACED (view: One, pointer: One, mask: Optional) -> One,
        Other, Memory, Together, Straight, [Writes(shared), Writes(barriers), Reads(pointer)];
    /// `(tokens...)`: closes a group of asynchronous copies.
    AsyncCommit = "async_commit" @ PLACED (tokens: Many) -> One,
        Other, Arithmetic, Together, Straight, [Writes(shared), Writes(barriers)];
    /// `(tokens...)`: waits until at most `pending` groups are in flight.
    AsyncWait = "async_wait" @ PLACED (tokens: Many) -> One,
        Other, Wait, Together, Straight, [Writes(shared), Writes(barriers)]
        { pending: u8 };
    /// All threads of the program (or warp group) meet; shared-memory accesses before it are seen after it.
    Barrier = "barrier" @ PLACED () -> No,
        Other, Wait, Together, Straight, [Writes(shared), Writes(barriers)];
    /// The threads of each four warps meet; what each of them accessed before is seen by the others after it.
    WarpgroupBarrier = "warpgroup_barrier" @ PLACED () -> No,
        Other, Wait, Together, Straight, [Writes(shared), Writes(barriers)];
    /// Each four warps of a group of eight wait for their turn; the first four have the first one. It orders when code
    /// runs, and no accesses.
    TurnBegin = "turn_begin" @ PLACED () -> No,
        Other, Wait, Together, Straight, [Writes(barriers)];
    /// They let the other four have theirs, which is behind the one that they have had.
    TurnEnd = "turn_end" @ PLACED () -> No,
        Other, Arithmetic, Together, Straight, [Writes(barriers)];
    /// Orders accesses between memory proxies.
    Fence = "fence" @ PLACED () -> No,
        Other, Arithmetic, Together, Straight, [Writes(shared), Writes(barriers)]
        { kind: FenceKind };
    /// Allocates `slots` barriers with phases, each complete after `count` arrivals. They are ready when the kernel
    /// begins.
    MbarrierAlloc = "mbarrier_alloc" @ PLACED () -> One,
        Other, Arithmetic, Together, Straight, [Writes(shared), Writes(barriers)]
        { slots: u32, count: u32 };
    /// `(barrier, slot [, bytes])`: arrives, expecting that many bytes of asynchronous copies.
    MbarrierArrive = "mbarrier_arrive" @ PLACED (barrier: One, slot: One, bytes: Optional) -> No,
        Other, Arithmetic, Alone, Straight, [Writes(shared), Writes(barriers)];
    /// `(barrier, slot, phase)`: waits until the phase with that parity is complete.
    MbarrierWait = "mbarrier_wait" @ PLACED (barrier: One, slot: One, phase: One) -> No,
        Other, Wait, Alone, Straight, [Writes(shared), Writes(barriers)];
    /// `(a, b, acc [, adds])`: `acc` plus the matrix product, asynchronously, as one group; `a` is a tile or a view,
    /// `b` a view. Where the scalar `adds` is false it is the product alone, whatever `acc` is. The result may only
    /// be the accumulator of a further one, be carried by a loop, or be waited for. With `part`, each warp group adds only
    /// what some of the elements along K give for its columns.
    Wgmma = "wgmma" @ PLACED (a: One, b: One, acc: One, adds: Optional) -> One,
        Other, Product, Together, Straight, [Reads(shared), Writes(barriers)]
        { precision: DotPrecision, part: GroupPart };
    /// `(tiles...)`: the same tiles, when at most `pending` groups of `wgmma` are in flight.
    WgmmaWait = "wgmma_wait" @ PLACED (tiles: Many) -> Many,
        Other, Wait, Together, Straight, [Writes(shared), Writes(barriers)]
        { pending: u8 };
    /// `(descriptor, view, barrier, slot, coordinates...)`: copies a block into shared memory; its bytes are counted
    /// on the current phase of the barrier, at whose completion they are there.
    TmaLoad = "tma_load" @ PLACED (descriptor: One, view: One, barrier: One, slot: One, coordinates: Many) -> No,
        Other, Memory, Alone, Straight, [Writes(shared), Writes(barriers), Reads(descriptor)];
    /// `(descriptor, view, coordinates...)`: copies a view out to global memory, asynchronously, as one group. With
    /// `parts`, the view is divided in so many along each dimension, and each four warps copy one of them: the first
    /// four the first, the next ones that behind it along the first dimension.
    TmaStore = "tma_store" @ PLACED (descriptor: One, view: One, coordinates: Many) -> No,
        Other, Memory, Alone, Straight, [Reads(shared), Writes(barriers), Writes(descriptor)]
        { reduce: StoreMode, parts: Vec<u8> };
    /// Waits until at most `pending` groups of `tma_store` still read shared memory.
    TmaStoreWait = "tma_store_wait" @ PLACED () -> No,
        Other, Wait, Alone, Straight, [Writes(shared), Writes(barriers)]
        { pending: u8 };
    /// Regions run by disjoint groups of warps at the same time; `warps`, `roles` and `registers` (of each thread; 0
    /// leaves them as they are) per region.
    WarpGroups = "warp_groups" @ PLACED () -> No,
        Other, Control, Together, Concurrent, [Writes(shared), Writes(barriers)]
        { warps: Vec<u8>, roles: Vec<GroupRole>, registers: Vec<u8> };
    /// Makes each warp sleep, half of the times not at all, else for up to `longest` nanoseconds: a power of two less
    /// one. How long is a hash of `seed`, of the warp and of the clock.
    Delay = "delay" @ PLACED () -> No,
        Other, Wait, Alone, Straight, [Writes(shared), Writes(barriers)]
        { seed: u32, longest: u32 };
    /// Lets the launch behind this one begin, if it may before this one has ended: when all programs have come here or
    /// ended.
    LaunchDependents = "launch_dependents" @ PLACED () -> No,
        Other, Arithmetic, Alone, Straight, [Writes(shared), Writes(barriers)];
    /// Waits until the launches before this one have ended, and sees what they wrote. At once in a launch that did not
    /// begin early.
    GridWait = "grid_wait" @ PLACED () -> No,
        Other, Wait, Alone, Straight, [Writes(shared), Writes(barriers)];
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
    /// Whole tiles: order, places known when the kernel runs, counts.
    Tile(TileOp),
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

/// Does the same with the operation of any group.
macro_rules! in_group {
    ($op:expr, $inner:ident => $result:expr) => {
        match $op {
            Op::Create($inner) => $result,
            Op::Elementwise($inner) => $result,
            Op::Shape($inner) => $result,
            Op::Tile($inner) => $result,
            Op::Memory($inner) => $result,
            Op::Dot($inner) => $result,
            Op::Desc($inner) => $result,
            Op::Control($inner) => $result,
            Op::Gpu($inner) => $result,
        }
    };
}

impl Op {
    /// The rows of the whole op table.
    pub fn rows() -> impl Iterator<Item = &'static OpRow> {
        [
            CreateOp::ROWS,
            ElementwiseOp::ROWS,
            ShapeOp::ROWS,
            TileOp::ROWS,
            MemoryOp::ROWS,
            DotOp::ROWS,
            DescOp::ROWS,
            ControlOp::ROWS,
            GpuOp::ROWS,
        ]
        .into_iter()
        .flatten()
    }

    /// The row of the op table.
    pub fn row(&self) -> &'static OpRow {
        in_group!(self, op => op.row())
    }

    /// The name that the text form prints: unary and binary operations have their own, comparisons are `cmp.lt`.
    pub fn name(&self) -> &'static str {
        let Op::Elementwise(op) = self else { return self.mnemonic() };
        match op {
            ElementwiseOp::Unary { op } => op.name(),
            ElementwiseOp::Binary { op } => op.name(),
            ElementwiseOp::FloatInt { op } => op.name(),
            ElementwiseOp::Compare { op } => match op {
                CmpOp::Eq => "cmp.eq",
                CmpOp::Ne => "cmp.ne",
                CmpOp::Lt => "cmp.lt",
                CmpOp::Le => "cmp.le",
                CmpOp::Gt => "cmp.gt",
                CmpOp::Ge => "cmp.ge",
            },
            ElementwiseOp::Select | ElementwiseOp::Fma | ElementwiseOp::Cast { .. } | ElementwiseOp::Bitcast { .. } => {
                self.mnemonic()
            }
        }
    }

    /// The operation's name in the op table.
    pub fn mnemonic(&self) -> &'static str {
        self.row().mnemonic
    }

    /// Where the operation may occur.
    pub fn levels(&self) -> Levels {
        self.row().levels
    }

    /// The operation with the dtypes and dimensions of its attributes mapped; `None` if the map fails on one.
    pub fn map_attrs(&self, map: &mut impl AttrMap) -> Option<Op> {
        in_group!(self, op => op.map_attrs(map).map(Op::from))
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
}

/// Flags of floating-point operations.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FloatFlags {
    /// The operation may be fused with its neighbours (`a * b + c` into one rounding).
    pub contract: bool,
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

/// Each operation's operands by name: `view::Load::of(operation)` has `pointer`, `mask` and `other`.
pub mod view {
    pub use super::control::*;
    pub use super::create::*;
    pub use super::desc::*;
    pub use super::dot::*;
    pub use super::elementwise::*;
    pub use super::gpu::*;
    pub use super::memory::*;
    pub use super::shape::*;
    pub use super::tile::*;
}
