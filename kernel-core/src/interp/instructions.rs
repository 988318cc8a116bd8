//! The instructions of a prepared kernel, and what they need.

use std::ops::Range;

use crate::ir::{CmpOp, CounterKind, DType, GroupPart, HintKind, LayoutId, ParamId};
use crate::layout::{GroupParts, SyncScope};

use super::fault::Access;
use super::lanes::{Bits, Fn1, Fn2, Fn3};
use super::print::Print;
use super::product::Product;
use super::registers::{Holders, LoopId, Part, Parts, Pc, RegId};
use super::scaled::ScaledProduct;
use super::tiles::{ByIndex, Histogram, Sort};

/// One exchange of values through shared memory.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// Where in the arena.
    pub(super) bytes: Range<usize>,
    /// Who meets between the writes and the reads.
    pub(super) scope: SyncScope,
    /// Whether all threads meet before the writes.
    pub(super) meets: bool,
}

/// Binary operations that affine tiles are closed under.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Symbolic {
    Add,
    Sub,
    Mul,
    Opaque,
}

/// A copy between strided arrangements: size and source stride of every dimension of the result, in elements.
pub(super) type Strides = Box<[(usize, usize)]>;

/// A load and where its elements go.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub param: ParamId,
    pub dtype: DType,
    pub pointer: RegId,
    pub mask: Option<RegId>,
    pub other: Option<RegId>,
    pub out: RegId,
}

/// A store.
#[derive(Clone, Debug)]
pub(super) struct Store {
    pub param: ParamId,
    pub dtype: DType,
    pub pointer: RegId,
    pub value: RegId,
    pub mask: Option<RegId>,
}

/// What an atomic does to memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum AtomicKind {
    /// Combines the memory with the value.
    Combine(Fn2),
    /// Stores the value.
    Exchange,
    /// Stores the value if the memory has the bits of what is expected.
    CompareExchange(RegId),
}

/// An atomic.
#[derive(Clone, Debug)]
pub(super) struct Atomic {
    pub param: ParamId,
    pub dtype: DType,
    pub kind: AtomicKind,
    pub pointer: RegId,
    pub value: RegId,
    pub mask: Option<RegId>,
    pub out: RegId,
}

/// A promise.
#[derive(Clone, Debug)]
pub(super) struct Hint {
    pub kind: HintKind,
    pub n: usize,
    pub multiple: usize,
    pub axis: usize,
    pub a: RegId,
    pub out: RegId,
    /// What is said where the promise does not hold.
    pub message: Box<str>,
}

/// A bounds check that joins a mask.
#[derive(Clone, Debug)]
pub(super) struct CheckBounds {
    pub param: ParamId,
    pub access: Access,
    /// Converts the offsets to pointers.
    pub widen: Fn1,
    pub offsets: RegId,
    pub len: RegId,
    pub mask: Option<RegId>,
    pub out: RegId,
    /// Room for the widened offsets.
    pub room: usize,
}

/// How a reduction or scan combines elements.
#[derive(Clone, Debug)]
pub(super) enum Combine {
    /// One operation; f16 and bf16 sums and products convert to f32 before and from it after.
    Single { f: Fn2, widen: Option<(Fn1, Fn1)> },
    /// A region on tiles of elements, or, where it does more than arithmetic, on one element at a time.
    Region { code: RegionCode, vectorised: bool },
}

/// The code of a region that combines elements.
#[derive(Clone, Debug)]
pub(super) struct RegionCode {
    pub start: Pc,
    /// Where the kernel goes on.
    pub end: Pc,
    pub left: Box<[RegId]>,
    pub right: Box<[RegId]>,
    pub yields: Box<[RegId]>,
    /// Every register that the region defines.
    pub regs: Range<u32>,
}

/// Which of the two is computed along the axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FoldKind {
    Reduce,
    Scan { reverse: bool },
}

/// A reduction or scan of tiles of shape `[outer, len, inner]` along the middle.
#[derive(Clone, Debug)]
pub(super) struct Fold {
    pub kind: FoldKind,
    pub combine: Combine,
    pub inputs: Box<[RegId]>,
    pub outputs: Box<[RegId]>,
    pub outer: usize,
    pub len: usize,
    pub inner: usize,
    /// Size of an element while it is combined, per input.
    pub bytes: Box<[usize]>,
    /// Two places in the arena per input, each large enough for all elements.
    pub work: Box<[[usize; 2]]>,
}

/// A region for each element of tiles: its arguments are on the left side of the code.
#[derive(Clone, Debug)]
pub(super) struct Map {
    pub code: RegionCode,
    /// Whether the region computes on all elements at once.
    pub vectorised: bool,
    pub inputs: Box<[RegId]>,
    pub outputs: Box<[RegId]>,
    /// How many elements.
    pub n: usize,
}

/// Where a block of a tensor is.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub param: ParamId,
    pub dtype: DType,
    /// The shape of the block.
    pub dims: Box<[usize]>,
    /// The registers of its coordinates.
    pub coordinates: Box<[RegId]>,
}

/// What happens to a block.
#[derive(Clone, Copy, Debug)]
pub(super) enum BlockAccess {
    /// Read into the home of the register.
    Load {
        out: RegId,
    },
    Store {
        value: RegId,
    },
    /// Each element is combined with what is there.
    Reduce {
        value: RegId,
        f: Fn2,
    },
}

/// Rows of a matrix, given by a tile.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    pub param: ParamId,
    pub dtype: DType,
    pub rows: RegId,
    pub column: RegId,
    pub columns: usize,
    /// Whether they are read into `value` or written from it.
    pub load: bool,
    pub value: RegId,
}

/// A product of tiles.
#[derive(Clone, Debug)]
pub(super) struct Dot {
    pub product: Product,
    pub a: RegId,
    pub b: RegId,
    pub acc: RegId,
    pub out: RegId,
    /// Room in the arena.
    pub room: usize,
}

/// A product of factors with scales.
#[derive(Clone, Debug)]
pub(super) struct DotScaled {
    pub product: ScaledProduct,
    pub factors: [RegId; 2],
    pub scales: [Option<RegId>; 2],
    pub acc: RegId,
    pub out: RegId,
    /// Room in the arena.
    pub room: usize,
}

/// An asynchronous product.
#[derive(Clone, Debug)]
pub(super) struct Wgmma {
    pub product: Product,
    /// The elements along K that count.
    pub part: GroupPart,
    /// Which warp group has which of them, unless all count.
    pub parts: Option<GroupParts>,
    pub a: RegId,
    /// Whether the first factor is a view.
    pub a_shared: bool,
    pub b: RegId,
    pub acc: RegId,
    /// Whether the accumulator counts, if that is asked.
    pub adds: Option<RegId>,
    pub out: RegId,
}

/// The bounds of a `for`.
#[derive(Clone, Debug)]
pub(super) struct ForBounds {
    pub lo: RegId,
    pub hi: RegId,
    pub step: RegId,
    pub reverse: bool,
}

/// One instruction.
#[derive(Clone, Debug)]
pub(super) enum Inst {
    /// A known scalar.
    Const {
        out: RegId,
        bits: Bits,
    },
    ProgramId {
        out: RegId,
        axis: u8,
    },
    NumPrograms {
        out: RegId,
        axis: u8,
    },
    Counter {
        out: RegId,
        which: CounterKind,
    },
    Arange {
        out: RegId,
        lo: i64,
    },
    Splat {
        out: RegId,
        scalar: RegId,
    },
    Unary {
        f: Fn1,
        a: RegId,
        out: RegId,
    },
    /// A conversion; between integers a formula stays one.
    Cast {
        f: Fn1,
        a: RegId,
        out: RegId,
    },
    Binary {
        f: Fn2,
        symbolic: Symbolic,
        a: RegId,
        b: RegId,
        out: RegId,
    },
    Compare {
        f: Fn2,
        op: CmpOp,
        a: RegId,
        b: RegId,
        out: RegId,
    },
    Select {
        f: Fn3,
        condition: RegId,
        a: RegId,
        b: RegId,
        out: RegId,
    },
    Fma {
        f: Fn3,
        a: RegId,
        b: RegId,
        c: RegId,
        out: RegId,
    },
    /// The same value, which may stay a formula.
    Move {
        a: RegId,
        out: RegId,
    },
    /// The same bits in memory of their own.
    CopyLanes {
        a: RegId,
        out: RegId,
    },
    ExpandDims {
        a: RegId,
        out: RegId,
        axis: u8,
    },
    Broadcast {
        a: RegId,
        out: RegId,
        strides: Strides,
    },
    Reshape {
        a: RegId,
        out: RegId,
    },
    Permute {
        a: RegId,
        out: RegId,
        perm: Box<[u8]>,
        strides: Strides,
    },
    /// A tile whose elements are those of several tiles in turn.
    Take {
        out: RegId,
        from: Box<[Part]>,
        /// Of each of them: as many elements as the result has for it.
        strides: Strides,
    },
    Load(Box<Load>),
    Dot(Box<Dot>),
    DotScaled(Box<DotScaled>),
    /// A block of a tensor is loaded, stored or combined.
    Block {
        block: Box<Block>,
        access: BlockAccess,
    },
    /// Rows of a matrix are gathered or scattered.
    Rows(Box<Rows>),
    Store(Box<Store>),
    Atomic(Box<Atomic>),
    CheckBounds(Box<CheckBounds>),
    ByIndex(Box<ByIndex>),
    Histogram(Box<Histogram>),
    Sort(Box<Sort>),
    Hint(Box<Hint>),
    Fold(Box<Fold>),
    Map(Box<Map>),
    Assert {
        condition: RegId,
        message: Box<str>,
    },
    Print(Box<Print>),
    /// Begins a loop at the next instruction, or goes to `exit`.
    ForBegin {
        state: LoopId,
        bounds: Box<ForBounds>,
        index: RegId,
        exit: Pc,
    },
    /// Goes back to `body` for the next index.
    ForNext {
        state: LoopId,
        index: RegId,
        body: Pc,
    },
    BranchUnless {
        condition: RegId,
        to: Pc,
    },
    Jump {
        to: Pc,
    },
    /// Goes back to the condition of a `while`. If the loop `waits` for memory that other programs may write, the turn
    /// of its program may end here.
    Again {
        to: Pc,
        waits: bool,
    },
    /// Ends the code of a region that combines elements, or of a warp group.
    RegionEnd,
    /// Ends the program.
    Return,
    /// What an operation passes through shared memory; the operation itself follows.
    Exchange {
        steps: Box<[Step]>,
    },
    SharedAlloc {
        out: RegId,
        offset: usize,
        bytes: usize,
    },
    SharedIndex {
        view: RegId,
        index: RegId,
        out: RegId,
        count: usize,
        bytes: usize,
        /// Size of an element.
        element: usize,
    },
    SharedPermute {
        view: RegId,
        out: RegId,
        /// The dimensions of the operand.
        dims: Box<[usize]>,
        perm: Box<[u8]>,
    },
    SharedLoad {
        view: RegId,
        out: RegId,
        holders: Holders,
    },
    SharedStore {
        view: RegId,
        value: RegId,
        holders: Holders,
    },
    /// All threads of the group meet.
    Barrier,
    /// The threads of each four warps meet.
    WarpgroupBarrier,
    /// Half of the group has its turn, for which the other half waits.
    TurnBegin,
    /// The other half has had its turn, too.
    TurnEnd,
    /// Ordinary writes become visible to asynchronous readers.
    ProxyFence,
    /// The load's result is the data in flight.
    AsyncCopy {
        view: RegId,
        load: Box<Load>,
        token: RegId,
        layout: Option<LayoutId>,
    },
    AsyncCommit {
        token: RegId,
    },
    AsyncWait {
        token: RegId,
        pending: u8,
    },
    MbarrierAlloc {
        out: RegId,
        slots: u32,
        count: u32,
    },
    MbarrierArrive {
        barrier: RegId,
        slot: RegId,
        bytes: Option<RegId>,
    },
    MbarrierWait {
        barrier: RegId,
        slot: RegId,
        phase: RegId,
    },
    Wgmma(Box<Wgmma>),
    WgmmaWait {
        /// Operands and results.
        tiles: Box<[(RegId, RegId)]>,
        pending: u8,
    },
    TmaLoad {
        block: Box<Block>,
        view: RegId,
        barrier: RegId,
        slot: RegId,
    },
    TmaStore {
        block: Box<Block>,
        view: RegId,
        reduce: Option<Fn2>,
        /// The parts that each four warps copy, where each copy their own.
        parts: Option<Parts>,
    },
    TmaStoreWait {
        pending: u8,
    },
    WarpGroups {
        entries: Box<[Pc]>,
        exit: Pc,
    },
}
