//! What operations carry as attributes: constants, and sets of named choices such as the unary operations.
//!
//! Each choice is declared once with the name that the text form prints, from which its printer and its parser follow:
//! [`UnaryOp::Neg`] is printed as `neg`, and [`CacheModifier::Cg`] as `cache = cg`.

use super::dtype::DType;
use crate::math::{BinaryMathFn, MathFn};

/// A constant: a truth value, an integer or a float, to be read in the dtype beside it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Literal {
    /// `true` or `false`.
    Bool(bool),
    /// An integer of any integer dtype.
    Int(i128),
    /// A float, as the bits of an f64 (every f16, bf16 and f32 is one).
    Float(u64),
}

impl Literal {
    /// A float literal.
    pub fn float(value: f64) -> Literal {
        Literal::Float(value.to_bits())
    }
}

/// Declares an enum of names that serves as an attribute or as a group of operations without attributes. After `..` one
/// more variant may hold the names of another such enum.
macro_rules! name_enum {
    (@all $Enum:ident [$( $Var:ident )*]) => { [ $( $Enum::$Var ),* ] };
    (@all $Enum:ident [$( $Var:ident )*] $Rest:ident $Inner:ident) => {{
        const OWN: &[$Enum] = &[ $( $Enum::$Var ),* ];
        let mut all = [OWN[0]; OWN.len() + $Inner::ALL.len()];
        let mut at = 0;
        while at < all.len() {
            all[at] = if at < OWN.len() { OWN[at] } else { $Enum::$Rest($Inner::ALL[at - OWN.len()]) };
            at += 1;
        }
        all
    }};
    (
        $(#[doc = $gdoc:literal])*
        $Enum:ident;
        $( $(#[doc = $doc:literal])* $Var:ident = $mn:literal ; )*
        $( .. $(#[doc = $rdoc:literal])* $Rest:ident($Inner:ident) ; )?
    ) => {
        $(#[doc = $gdoc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub enum $Enum { $( $(#[doc = $doc])* $Var, )* $( $(#[doc = $rdoc])* $Rest($Inner), )? }

        impl $Enum {
            /// Every one, in the order of the table.
            pub const ALL: &'static [$Enum] = &name_enum!(@all $Enum [$( $Var )*] $( $Rest $Inner )?);

            /// The name in the text form.
            pub fn name(self) -> &'static str {
                match self { $( $Enum::$Var => $mn, )* $( $Enum::$Rest(inner) => $Inner::name(inner), )? }
            }

            /// The one of that name.
            pub fn from_name(name: &str) -> Option<$Enum> {
                match name {
                    $( $mn => Some($Enum::$Var), )*
                    _ => None $( .or_else(|| $Inner::from_name(name).map($Enum::$Rest)) )?,
                }
            }

            /// What it does.
            pub fn doc(self) -> &'static str {
                match self { $( $Enum::$Var => concat!($($doc),*), )* $( $Enum::$Rest(inner) => $Inner::doc(inner), )? }
            }
        }
    };
}

name_enum! {
    /// Which extreme or special value of a dtype.
    LimitKind;
    /// `T::MIN`
    Min = "min";
    /// `T::MAX`
    Max = "max";
    /// `T::INFINITY` (floats)
    Infinity = "infinity";
    /// `T::NEG_INFINITY` (floats)
    NegInfinity = "neg_infinity";
    /// `T::NAN` (floats)
    Nan = "nan";
    /// `T::EPSILON` (floats)
    Epsilon = "epsilon";
    /// `T::MIN_POSITIVE`, the smallest normal number (floats)
    MinPositive = "min_positive";
}

name_enum! {
    /// What a program can ask of the hardware while it runs.
    CounterKind;
    /// Clock cycles of the SM, i64.
    Clock = "clock";
    /// Nanoseconds, i64.
    GlobalTimer = "globaltimer";
    /// The number of the SM that runs the program, i32.
    Smid = "smid";
}

impl CounterKind {
    /// The dtype of its numbers.
    pub fn dtype(self) -> DType {
        match self {
            CounterKind::Clock | CounterKind::GlobalTimer => DType::I64,
            CounterKind::Smid => DType::I32,
        }
    }
}

name_enum! {
    /// Elementwise operations with one operand; the result has its type.
    UnaryOp;
    /// Negation; wraps on signed integers.
    Neg = "neg";
    /// Absolute value; `MIN` stays `MIN`.
    Abs = "abs";
    /// Bitwise complement of integers, negation of `bool`.
    Not = "not";
    /// Rounds down to an integral value (floats).
    Floor = "floor";
    /// Rounds up to an integral value (floats).
    Ceil = "ceil";
    /// Rounds towards zero to an integral value (floats).
    Trunc = "trunc";
    /// Rounds to the nearest integral value, halves away from zero (floats).
    Round = "round";
    /// Rounds to the nearest integral value, halves to the even one (floats).
    RoundTiesEven = "round_ties_even";
    /// Square root, correctly rounded (floats).
    SqrtRn = "sqrt_rn";
    /// The number of ones among the bits (integers).
    CountOnes = "count_ones";
    /// The number of zeros above the highest one; the width of 0 (integers).
    LeadingZeros = "leading_zeros";
    /// The number of zeros below the lowest one; the width of 0 (integers).
    TrailingZeros = "trailing_zeros";
    /// The bits in reverse order (integers).
    ReverseBits = "reverse_bits";
    ..
    /// An elementary function (floats).
    Math(MathFn);
}

name_enum! {
    /// Elementwise operations with two operands of one type; the result has that type.
    BinaryOp;
    /// Sum; wraps on integers.
    Add = "add";
    /// Difference; wraps on integers.
    Sub = "sub";
    /// Product; wraps on integers.
    Mul = "mul";
    /// Quotient: truncates on integers, where x / 0 is 0 and MIN / -1 is MIN; the hardware's fast form on f32.
    Div = "div";
    /// Remainder with the sign of the dividend; x % 0 is x on integers.
    Rem = "rem";
    /// Float quotient, correctly rounded.
    DivRn = "div_rn";
    /// Smaller of the two; a NaN operand is ignored.
    Min = "minimum";
    /// Larger of the two; a NaN operand is ignored.
    Max = "maximum";
    /// Smaller of the two; NaN if an operand is.
    MinNan = "minimum_nan";
    /// Larger of the two; NaN if an operand is.
    MaxNan = "maximum_nan";
    /// Bitwise and (integers, `bool`).
    And = "and";
    /// Bitwise or (integers, `bool`).
    Or = "or";
    /// Bitwise exclusive or (integers, `bool`).
    Xor = "xor";
    /// Shift left; the count is taken modulo the width (integers).
    Shl = "shl";
    /// Shift right, arithmetic on signed integers; the count is taken modulo the width.
    Shr = "shr";
    /// Upper half of the double-width product of the operands read as unsigned (integers).
    Umulhi = "umulhi";
    /// Upper half of the double-width product (integers).
    Mulhi = "mulhi";
    /// Shift left in which the bits that leave come back from the right; the count is taken modulo the width (integers).
    RotateLeft = "rotate_left";
    /// Shift right in which the bits that leave come back from the left; the count is taken modulo the width (integers).
    RotateRight = "rotate_right";
    /// Sum, the nearest number of the dtype where it is none (integers).
    SaturatingAdd = "saturating_add";
    /// Difference, the nearest number of the dtype where it is none (integers).
    SaturatingSub = "saturating_sub";
    /// Product, the nearest number of the dtype where it is none (integers).
    SaturatingMul = "saturating_mul";
    /// The magnitude of the first with the sign of the second, zeros and NaN included (floats).
    CopySign = "copysign";
    /// The number next to the first on the way to the second, which it is where both are equal (floats).
    NextAfter = "nextafter";
    ..
    /// An elementary function (floats).
    Math(BinaryMathFn);
}

name_enum! {
    /// Comparisons. Ordered on floats (false with a NaN), except `ne`.
    CmpOp;
    /// Equal.
    Eq = "eq";
    /// Not equal; true with a NaN.
    Ne = "ne";
    /// Less.
    Lt = "lt";
    /// Less or equal.
    Le = "le";
    /// Greater.
    Gt = "gt";
    /// Greater or equal.
    Ge = "ge";
}

name_enum! {
    /// Where a load or store may keep its data.
    CacheModifier;
    /// The hardware's default.
    Default = "default";
    /// Cache at all levels.
    Ca = "ca";
    /// Cache in L2 only.
    Cg = "cg";
    /// Streaming: likely used once.
    Cs = "cs";
    /// Do not cache: fetch again (loads).
    Cv = "cv";
    /// Write back (stores).
    Wb = "wb";
    /// Write through (stores).
    Wt = "wt";
}

name_enum! {
    /// How soon a cache line should make room.
    EvictionPolicy;
    /// The hardware's default.
    Normal = "normal";
    /// Soon.
    First = "evict_first";
    /// Late.
    Last = "evict_last";
}

name_enum! {
    /// Read-modify-write operations.
    AtomicOp;
    /// Sum.
    Add = "add";
    /// Smaller.
    Min = "min";
    /// Larger.
    Max = "max";
    /// Bitwise and.
    And = "and";
    /// Bitwise or.
    Or = "or";
    /// Bitwise exclusive or.
    Xor = "xor";
    /// Exchange.
    Exchange = "exchange";
}

name_enum! {
    /// Memory order of an atomic.
    MemOrder;
    /// No ordering of other accesses.
    Relaxed = "relaxed";
    /// Later accesses stay later.
    Acquire = "acquire";
    /// Earlier accesses stay earlier.
    Release = "release";
    /// Both.
    AcqRel = "acq_rel";
}

name_enum! {
    /// Among whom an atomic is one.
    MemScope;
    /// The threads of one program.
    Block = "block";
    /// All programs on the device.
    Device = "device";
    /// The host and other devices too.
    System = "system";
}

/// How often the body of a loop is repeated in its code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Unroll {
    /// As the compiler decides: `auto` in the text form.
    Auto,
    /// As often as the loop runs, by binding: `full`.
    Full,
    /// Once: `never`.
    Never,
    /// That many times per trip, and what is left over in a loop of its own: the number.
    By(u8),
}

impl Unroll {
    /// The most copies of a body in one trip.
    pub const MOST: u8 = 64;

    /// That many copies per trip; nothing if there are never as many.
    pub fn joining(copies: i64) -> Option<Unroll> {
        match u8::try_from(copies) {
            Ok(1) => Some(Unroll::Never),
            Ok(copies @ 2..=Unroll::MOST) => Some(Unroll::By(copies)),
            Ok(_) | Err(_) => None,
        }
    }
}

/// The most iterations that `#[stages(16)]` lets be under way.
pub const MAX_STAGES: u8 = 16;

name_enum! {
    /// The proxies between which a fence orders accesses to shared memory.
    FenceKind;
    /// Generic accesses before asynchronous ones (TMA, wgmma).
    ProxyAsync = "proxy_async";
    /// Initialisation of barriers before their use by others.
    BarrierInit = "barrier_init";
}

name_enum! {
    /// How the factors of an f32 matrix product are multiplied. Other dtypes ignore it.
    DotPrecision;
    /// Factors rounded to tf32 (10 bits of fraction, ties away from zero).
    Tf32 = "tf32";
    /// Three products of a split into a large and a small tf32 part: close to f32.
    Tf32x3 = "tf32x3";
    /// Three products of a split into two bf16 terms.
    Bf16x3 = "bf16x3";
    /// Six products of a split into three bf16 terms: as close as f32.
    Bf16x6 = "bf16x6";
    /// Factors as they are.
    Ieee = "ieee";
}

name_enum! {
    /// How the bytes of a factor of a scaled product are read.
    FactorFormat;
    /// As the dtype says: an 8-bit float, bf16 or f16.
    Own = "own";
    /// Two 4-bit floats in each `u8`, neighbours along K: a sign, two bits of exponent, one of fraction. The first is in
    /// the lower half.
    E2m1 = "e2m1";
}

name_enum! {
    /// Which factors of a scaled product have scales.
    ScaledFactors;
    /// Both: that of `a` first.
    Both = "both";
    /// `a` alone.
    Left = "left";
    /// `b` alone.
    Right = "right";
    /// None.
    Neither = "neither";
}

name_enum! {
    /// Which elements along K a warp group multiplies, where several have columns of the same rows. Each of them has a part of
    /// these elements, [`group_parts`](crate::layout::group_parts).
    GroupPart;
    /// All of them.
    Whole = "whole";
    /// Those of its own part, which its threads hold.
    Own = "own";
    /// Those of the other parts.
    Others = "others";
}

/// The instruction that computes a matrix product.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DotInstruction {
    /// Scalar arithmetic: `fma`, one element by a thread.
    Fma,
    /// `mma.sync`: a tile in registers, by a warp.
    Mma,
    /// `wgmma`: 64 rows and so many columns, by four warps. In the text form `wgmma(256)`.
    Wgmma {
        /// The columns of one instruction.
        columns: u32,
    },
}

impl DotInstruction {
    /// The name in the text form, without the columns.
    pub fn name(self) -> &'static str {
        match self {
            DotInstruction::Fma => "fma",
            DotInstruction::Mma => "mma",
            DotInstruction::Wgmma { .. } => "wgmma",
        }
    }
}

name_enum! {
    /// What an asynchronous store from shared memory does to what it finds in global memory.
    StoreMode;
    /// Overwrites it.
    Store = "store";
    /// Adds to it.
    Add = "add";
    /// Keeps the smaller.
    Min = "min";
    /// Keeps the larger.
    Max = "max";
    /// Bitwise and.
    And = "and";
    /// Bitwise or.
    Or = "or";
    /// Bitwise exclusive or.
    Xor = "xor";
}

impl StoreMode {
    /// The atomic operation that it is element by element; `None` where it overwrites.
    pub fn atomic(self) -> Option<AtomicOp> {
        match self {
            StoreMode::Store => None,
            StoreMode::Add => Some(AtomicOp::Add),
            StoreMode::Min => Some(AtomicOp::Min),
            StoreMode::Max => Some(AtomicOp::Max),
            StoreMode::And => Some(AtomicOp::And),
            StoreMode::Or => Some(AtomicOp::Or),
            StoreMode::Xor => Some(AtomicOp::Xor),
        }
    }

    /// The mode that does what an atomic operation does; `None` for an exchange, which is no reduction.
    pub fn of(op: AtomicOp) -> Option<StoreMode> {
        match op {
            AtomicOp::Add => Some(StoreMode::Add),
            AtomicOp::Min => Some(StoreMode::Min),
            AtomicOp::Max => Some(StoreMode::Max),
            AtomicOp::And => Some(StoreMode::And),
            AtomicOp::Or => Some(StoreMode::Or),
            AtomicOp::Xor => Some(StoreMode::Xor),
            AtomicOp::Exchange => None,
        }
    }
}

name_enum! {
    /// What a hint promises of the elements of an integer tile, or of a truth value.
    HintKind;
    /// Along an axis, in groups of `n` that start at multiples of `n`, each element is one more than the one before
    /// it, and the first of each group is a multiple of `multiple`. With `n` = 1: every element is such a multiple.
    Contiguous = "contiguous";
    /// Along an axis, in groups of `n` that start at multiples of `n`, all elements are equal.
    Constant = "constant";
    /// Every element is true.
    Holds = "holds";
}

name_enum! {
    /// Who of a group of warps runs its code.
    GroupRole;
    /// All its threads, which hold tiles and multiply.
    Consumer = "consumer";
    /// One thread, which computes with scalars and asks for copies.
    Producer = "producer";
}
