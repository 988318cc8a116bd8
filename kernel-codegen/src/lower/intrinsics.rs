//! The intrinsics that may be emitted.
//!
//! LLVM ends the process on an intrinsic that the target cannot select, so nothing outside this table is ever
//! called. Each row is selected on every [`Target`](crate::Target) for the types named; a test emits them all.
//! The approximation instructions of the special function unit are inline assembly instead: their intrinsics were
//! renamed between LLVM versions, and LLVM could fold none of them anyway.

/// An intrinsic of LLVM that every target selects.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Intrinsic {
    /// The number of the thread in its block.
    ThreadIdX,
    /// The number of the block in the grid.
    BlockId(u8),
    /// The number of blocks in the grid.
    GridSize(u8),
    /// All threads of the block meet.
    BlockBarrier,
    /// So many threads meet at a barrier with a number.
    NamedBarrier,
    /// Threads arrive at a barrier with a number, at which others wait for so many.
    NamedArrival,
    /// All threads of the block meet; whether any passed true.
    BlockBarrierOr,
    /// So many threads meet at a barrier with a number; whether any passed true.
    NamedBarrierOr,
    /// All threads of the warp meet.
    WarpBarrier,
    /// Whether any thread of the warp passed true.
    WarpAny,
    /// The value of lane `own ^ mask`; i32.
    ShuffleButterfly,
    /// The value of a lane; i32.
    ShuffleIndex,
    /// `a * b + c`, one rounding; f32, f64.
    Fma,
    /// Correctly rounded square root; f32, f64.
    Sqrt,
    /// f32, f64.
    Abs,
    /// f32, f64.
    Floor,
    /// f32, f64.
    Ceil,
    /// f32, f64.
    Trunc,
    /// To the nearest, halves to the even one; f32, f64.
    RoundEven,
    /// f32, f64.
    CopySign,
    /// A NaN operand is ignored; f32, f64.
    MinNum,
    /// As `MinNum`.
    MaxNum,
    /// NaN if an operand is; f32 (f64 is expanded).
    Minimum,
    /// As `Minimum`.
    Maximum,
    /// Saturates; NaN gives 0. Integers of 8 to 64 bits from f32, f64.
    FloatToSigned,
    /// As `FloatToSigned`.
    FloatToUnsigned,
    /// Integers.
    SMin,
    /// Integers.
    SMax,
    /// Integers.
    UMin,
    /// Integers.
    UMax,
    /// Integers.
    CountOnes,
    /// With whether zero may give anything; integers.
    LeadingZeros,
    /// As `LeadingZeros`.
    TrailingZeros,
    /// Integers.
    ReverseBits,
    /// Upper and lower word, and by how much they are shifted to the left, modulo the width; integers.
    FunnelShiftLeft,
    /// Upper and lower word, and by how much they are shifted to the right, modulo the width; integers.
    FunnelShiftRight,
    /// Integers.
    SaturatingAddSigned,
    /// Integers.
    SaturatingAddUnsigned,
    /// Integers.
    SaturatingSubSigned,
    /// Integers.
    SaturatingSubUnsigned,
}

impl Intrinsic {
    /// LLVM's name, without the overloaded types.
    pub(super) fn name(self) -> &'static str {
        match self {
            Intrinsic::ThreadIdX => "llvm.nvvm.read.ptx.sreg.tid.x",
            Intrinsic::BlockId(0) => "llvm.nvvm.read.ptx.sreg.ctaid.x",
            Intrinsic::BlockId(1) => "llvm.nvvm.read.ptx.sreg.ctaid.y",
            Intrinsic::BlockId(_) => "llvm.nvvm.read.ptx.sreg.ctaid.z",
            Intrinsic::GridSize(0) => "llvm.nvvm.read.ptx.sreg.nctaid.x",
            Intrinsic::GridSize(1) => "llvm.nvvm.read.ptx.sreg.nctaid.y",
            Intrinsic::GridSize(_) => "llvm.nvvm.read.ptx.sreg.nctaid.z",
            Intrinsic::BlockBarrier => "llvm.nvvm.barrier.cta.sync.aligned.all",
            Intrinsic::NamedBarrier => "llvm.nvvm.barrier.cta.sync.aligned.count",
            Intrinsic::NamedArrival => "llvm.nvvm.barrier.cta.arrive.aligned.count",
            Intrinsic::BlockBarrierOr => "llvm.nvvm.barrier.cta.red.or.aligned.all",
            Intrinsic::NamedBarrierOr => "llvm.nvvm.barrier.cta.red.or.aligned.count",
            Intrinsic::WarpBarrier => "llvm.nvvm.bar.warp.sync",
            Intrinsic::WarpAny => "llvm.nvvm.vote.any.sync",
            Intrinsic::ShuffleButterfly => "llvm.nvvm.shfl.sync.bfly.i32",
            Intrinsic::ShuffleIndex => "llvm.nvvm.shfl.sync.idx.i32",
            Intrinsic::Fma => "llvm.fma",
            Intrinsic::Sqrt => "llvm.sqrt",
            Intrinsic::Abs => "llvm.fabs",
            Intrinsic::Floor => "llvm.floor",
            Intrinsic::Ceil => "llvm.ceil",
            Intrinsic::Trunc => "llvm.trunc",
            Intrinsic::RoundEven => "llvm.roundeven",
            Intrinsic::CopySign => "llvm.copysign",
            Intrinsic::MinNum => "llvm.minnum",
            Intrinsic::MaxNum => "llvm.maxnum",
            Intrinsic::Minimum => "llvm.minimum",
            Intrinsic::Maximum => "llvm.maximum",
            Intrinsic::FloatToSigned => "llvm.fptosi.sat",
            Intrinsic::FloatToUnsigned => "llvm.fptoui.sat",
            Intrinsic::SMin => "llvm.smin",
            Intrinsic::SMax => "llvm.smax",
            Intrinsic::UMin => "llvm.umin",
            Intrinsic::UMax => "llvm.umax",
            Intrinsic::CountOnes => "llvm.ctpop",
            Intrinsic::LeadingZeros => "llvm.ctlz",
            Intrinsic::TrailingZeros => "llvm.cttz",
            Intrinsic::ReverseBits => "llvm.bitreverse",
            Intrinsic::FunnelShiftLeft => "llvm.fshl",
            Intrinsic::FunnelShiftRight => "llvm.fshr",
            Intrinsic::SaturatingAddSigned => "llvm.sadd.sat",
            Intrinsic::SaturatingAddUnsigned => "llvm.uadd.sat",
            Intrinsic::SaturatingSubSigned => "llvm.ssub.sat",
            Intrinsic::SaturatingSubUnsigned => "llvm.usub.sat",
        }
    }
}
