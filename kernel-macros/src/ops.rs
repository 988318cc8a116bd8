//! The operations that a kernel may call, one row each: spelling, arguments and what the checker does with them.
//!
//! Every operation is a function; where the row says so it is also a method of its first argument.
//! Adding an operation whose kind exists is one row here; elementary functions have theirs in [`kernel_core::math`].

use kernel_core::ir::{AtomicOp, BinaryOp, CounterKind, HintKind, UnaryOp};
use kernel_core::math::{BinaryMathFn, FloatIntFn, MathFn};

/// What a call does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// `program_id(axis)`
    ProgramId,
    /// `num_programs(axis)`
    NumPrograms,
    /// `num_warps()`
    NumWarps,
    /// `capability()`
    Capability,
    /// `clock()` and its kind
    Counter(CounterKind),
    /// `arange(lo, hi)`
    Arange,
    /// `full(shape, value)`
    Full,
    /// `zeros(shape)`
    Zeros,
    /// `load(pointer)`
    Load,
    /// `store(pointer, value)`
    Store,
    /// One operand.
    Unary(UnaryOp),
    /// One integer operand; the result counts bits, in `u32`.
    Count(UnaryOp),
    /// Two operands of one dtype.
    Binary(BinaryOp),
    /// A float and an `i32`.
    FloatInt(FloatIntFn),
    /// The smaller of two, or with `propagate_nan` the second operation.
    Extreme(BinaryOp, BinaryOp),
    /// `select(condition, a, b)`
    Select,
    /// `fma(a, b, c)`
    Fma,
    /// The wrapped result, and whether it has wrapped.
    Overflowing(Wrapping),
    /// A function that is expanded into operations.
    Composed(Composed),
    /// `x.to::<T>()`
    To,
    /// `bitcast::<T>(x)`
    Bitcast,
    /// Elements in another place or shape.
    Shape(ShapeCall),
    /// Elements in order, at indices, counted.
    Tile(TileCall),
    /// A reduction by one operation.
    Fold(BinaryOp),
    /// `softmax(x, axis = 1)`
    Softmax,
    /// `mean(x, axis = 1)`
    Mean,
    /// `var(x, axis = 1, correction = 0)`
    Var,
    /// A reduction to the index of the extreme: largest if true.
    ArgExtreme(bool),
    /// `reduce(x, axis = 0, |a, b| ..)`
    Reduce,
    /// Running combinations by one operation.
    Running(BinaryOp),
    /// `associative_scan(x, axis = 0, |a, b| ..)`
    Scan,
    /// `atomic_add(pointer, value)` and its kind.
    Atomic(AtomicOp),
    /// `atomic_cas(pointer, expected, value)`
    AtomicCas,
    /// `atomic_load(pointer)`
    AtomicLoad,
    /// `atomic_store(pointer, value)`
    AtomicStore,
    /// `atomic_poll(pointer, |value| ..)`
    AtomicPoll,
    /// `multiple_of(x, n)`
    MultipleOf,
    /// `max_contiguous(x, n)` and its kind.
    Runs(HintKind),
    /// `assume(condition)`
    Assume,
    /// `dot(a, b, acc = ..)`
    Dot,
    /// `map_elementwise(x, y, |a, b| ..)`
    Map,
    /// `inline_ptx("..", x, y, |a, b| ..)`
    InlinePtx,
    /// `dot_scaled(a, b, a_scale = ..)`
    DotScaled,
    /// `rand(seed, offset)` and its kind.
    Random(Random),
    /// An operation of a tensor descriptor.
    Desc(DescCall),
    /// `tensor_desc(pointer, shape, strides, block)`
    TensorDesc,
}

/// What wraps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrapping {
    /// A sum.
    Add,
    /// A difference.
    Sub,
    /// A product.
    Mul,
}

/// Which random numbers a call gives, from one word of the generator each or from all four.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Random {
    /// u32
    Int {
        /// How many.
        words: usize,
    },
    /// f32 in [0, 1)
    Uniform {
        /// How many.
        words: usize,
    },
    /// f32, normally distributed
    Normal {
        /// How many.
        words: usize,
    },
}

/// A function that is expanded into operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Composed {
    /// `clamp(x, lo, hi)`
    Clamp,
    /// `cdiv(a, b)`
    Cdiv,
    /// `fract(x)`
    Fract,
    /// `fdim(x, y)`
    Fdim,
    /// `is_nan(x)`
    IsNan,
    /// `is_infinite(x)`
    IsInfinite,
    /// `is_finite(x)`
    IsFinite,
}

/// How a call rearranges elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShapeCall {
    /// `expand_dims(x, axis)`
    ExpandDims,
    /// `broadcast_to(x, shape)`
    BroadcastTo,
    /// `reshape(x, shape)`
    Reshape,
    /// `trans(x)`
    Trans,
    /// `permute(x, axes)`
    Permute,
    /// `join(a, b)`
    Join,
}

/// What a call does with a whole tile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TileCall {
    /// `split(x)`
    Split,
    /// `cat(a, b)`
    Cat,
    /// `interleave(a, b)`
    Interleave,
    /// `flip(x)`
    Flip,
    /// `gather(x, index)`
    Gather,
    /// `scatter(x, index, value)`
    Scatter,
    /// `histogram(x, bins)`
    Histogram,
    /// `sort(x)`
    Sort,
    /// `argsort(x)`
    Argsort,
    /// `topk(x, k)`
    TopK,
}

/// What a call does with a block of a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DescCall {
    /// `descriptor.load([i, j])`
    Load,
    /// `descriptor.store([i, j], value)`
    Store,
    /// `descriptor.atomic_add([i, j], value)` and its kind
    Reduce(AtomicOp),
    /// `descriptor.gather(rows, column)`
    Gather,
    /// `descriptor.scatter(rows, column, value)`
    Scatter,
}

/// Whether an operation takes a dtype in a turbofish.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turbofish {
    /// It takes none.
    None,
    /// `zeros::<f32>([N])`, inferred if left out.
    Optional,
    /// `bitcast::<i32>(x)`
    Required,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub call: Call,
    /// Positional arguments.
    pub params: &'static [&'static str],
    /// Named arguments, all optional.
    pub options: &'static [&'static str],
    /// The named argument that may also stand last among the positional ones, without its name.
    pub last: Option<&'static str>,
    /// Whether it takes a dtype.
    pub turbofish: Turbofish,
    /// Whether it is a method of its first argument too.
    pub method: bool,
}

impl Row {
    /// Whether the last argument is a closure.
    pub fn takes_closure(&self) -> bool {
        self.params.last() == Some(&"closure")
    }

    /// How a call is written.
    pub fn usage(&self) -> String {
        let fish = if self.turbofish == Turbofish::None { "" } else { "::<f32>" };
        let params = self.params.iter().map(|p| (*p).to_string());
        let options = self.options.iter().map(|o| format!("{o} = .."));
        let all: Vec<String> = params.chain(options).collect();
        if let Call::Desc(_) = self.call {
            return format!("descriptor.{}({})", self.name, all.join(", "));
        }
        format!("{}{fish}({})", self.name, all.join(", "))
    }
}

const fn row(name: &'static str, call: Call, params: &'static [&'static str]) -> Row {
    Row { name, call, params, options: &[], last: None, turbofish: Turbofish::None, method: true }
}

impl Row {
    const fn options(mut self, options: &'static [&'static str]) -> Row {
        self.options = options;
        self
    }

    const fn last(mut self, option: &'static str) -> Row {
        self.last = Some(option);
        self
    }

    const fn turbofish(mut self, turbofish: Turbofish) -> Row {
        self.turbofish = turbofish;
        self
    }

    const fn function(mut self) -> Row {
        self.method = false;
        self
    }
}

const fn random(name: &'static str, random: Random) -> Row {
    row(name, Call::Random(random), &["seed", "offset"]).options(&["n_rounds"]).function()
}

const X: &[&str] = &["x"];
const XN: &[&str] = &["x", "n"];
const XY: &[&str] = &["x", "y"];
const YX: &[&str] = &["y", "x"];
const AB: &[&str] = &["a", "b"];
const PV: &[&str] = &["pointer", "value"];
const AXES: &[&str] = &["axis", "keep_dims"];
const EXTREME: &[&str] = &["axis", "keep_dims", "return_indices"];
const SCAN: &[&str] = &["axis", "reverse"];
const ATOMIC: &[&str] = &["mask", "order", "scope"];

/// All operations but the elementary functions of floats alone.
const OPERATIONS: &[Row] = &[
    row("program_id", Call::ProgramId, &["axis"]).function(),
    row("num_programs", Call::NumPrograms, &["axis"]).function(),
    row("num_warps", Call::NumWarps, &[]).function(),
    row("capability", Call::Capability, &[]).function(),
    row("clock", Call::Counter(CounterKind::Clock), &[]).function(),
    row("globaltimer", Call::Counter(CounterKind::GlobalTimer), &[]).function(),
    row("smid", Call::Counter(CounterKind::Smid), &[]).function(),
    row("arange", Call::Arange, &["lo", "hi"]).function(),
    row("full", Call::Full, &["shape", "value"]).turbofish(Turbofish::Optional).function(),
    row("zeros", Call::Zeros, &["shape"]).turbofish(Turbofish::Optional).function(),
    row("load", Call::Load, &["pointer"]).options(&["mask", "other", "cache", "eviction"]),
    row("store", Call::Store, &["pointer", "value"]).options(&["mask", "cache", "eviction"]),
    row("neg", Call::Unary(UnaryOp::Neg), X),
    row("abs", Call::Unary(UnaryOp::Abs), X),
    row("floor", Call::Unary(UnaryOp::Floor), X),
    row("ceil", Call::Unary(UnaryOp::Ceil), X),
    row("trunc", Call::Unary(UnaryOp::Trunc), X),
    row("round", Call::Unary(UnaryOp::Round), X),
    row("round_ties_even", Call::Unary(UnaryOp::RoundTiesEven), X),
    row("count_ones", Call::Count(UnaryOp::CountOnes), X),
    row("leading_zeros", Call::Count(UnaryOp::LeadingZeros), X),
    row("trailing_zeros", Call::Count(UnaryOp::TrailingZeros), X),
    row("reverse_bits", Call::Unary(UnaryOp::ReverseBits), X),
    row("sqrt_rn", Call::Unary(UnaryOp::SqrtRn), X),
    row("minimum", Call::Extreme(BinaryOp::Min, BinaryOp::MinNan), AB).options(&["propagate_nan"]),
    row("maximum", Call::Extreme(BinaryOp::Max, BinaryOp::MaxNan), AB).options(&["propagate_nan"]),
    row("div_rn", Call::Binary(BinaryOp::DivRn), AB),
    row("umulhi", Call::Binary(BinaryOp::Umulhi), AB),
    row("mulhi", Call::Binary(BinaryOp::Mulhi), AB),
    row("rotate_left", Call::Binary(BinaryOp::RotateLeft), XN),
    row("rotate_right", Call::Binary(BinaryOp::RotateRight), XN),
    row("saturating_add", Call::Binary(BinaryOp::SaturatingAdd), AB),
    row("saturating_sub", Call::Binary(BinaryOp::SaturatingSub), AB),
    row("saturating_mul", Call::Binary(BinaryOp::SaturatingMul), AB),
    row("overflowing_add", Call::Overflowing(Wrapping::Add), AB),
    row("overflowing_sub", Call::Overflowing(Wrapping::Sub), AB),
    row("overflowing_mul", Call::Overflowing(Wrapping::Mul), AB),
    row("copysign", Call::Binary(BinaryOp::CopySign), &["magnitude", "sign"]),
    row("nextafter", Call::Binary(BinaryOp::NextAfter), XY),
    row("powi", Call::FloatInt(FloatIntFn::Powi), XN),
    row("ldexp", Call::FloatInt(FloatIntFn::Ldexp), XN),
    row("fdim", Call::Composed(Composed::Fdim), XY),
    row("cdiv", Call::Composed(Composed::Cdiv), AB),
    row("fract", Call::Composed(Composed::Fract), X),
    row("is_nan", Call::Composed(Composed::IsNan), X),
    row("is_infinite", Call::Composed(Composed::IsInfinite), X),
    row("is_finite", Call::Composed(Composed::IsFinite), X),
    row("select", Call::Select, &["condition", "a", "b"]).function(),
    row("clamp", Call::Composed(Composed::Clamp), &["x", "lo", "hi"]).options(&["propagate_nan"]),
    row("fma", Call::Fma, &["a", "b", "c"]),
    row("to", Call::To, X).turbofish(Turbofish::Required),
    row("bitcast", Call::Bitcast, X).turbofish(Turbofish::Required),
    row("expand_dims", Call::Shape(ShapeCall::ExpandDims), &["x", "axis"]),
    row("broadcast_to", Call::Shape(ShapeCall::BroadcastTo), &["x", "shape"]),
    row("reshape", Call::Shape(ShapeCall::Reshape), &["x", "shape"]),
    row("trans", Call::Shape(ShapeCall::Trans), X),
    row("permute", Call::Shape(ShapeCall::Permute), &["x", "axes"]),
    row("join", Call::Shape(ShapeCall::Join), AB),
    row("split", Call::Tile(TileCall::Split), X),
    row("cat", Call::Tile(TileCall::Cat), AB).options(&["axis"]),
    row("interleave", Call::Tile(TileCall::Interleave), AB),
    row("flip", Call::Tile(TileCall::Flip), X).options(&["axis"]),
    row("gather", Call::Tile(TileCall::Gather), &["x", "index"]).options(&["axis"]),
    row("scatter", Call::Tile(TileCall::Scatter), &["x", "index", "value"]).options(&["axis"]),
    row("histogram", Call::Tile(TileCall::Histogram), &["x", "bins"]).options(&["mask"]),
    row("sort", Call::Tile(TileCall::Sort), X).options(&["axis", "descending"]),
    row("argsort", Call::Tile(TileCall::Argsort), X).options(&["axis", "descending"]),
    row("topk", Call::Tile(TileCall::TopK), &["x", "k"]).options(&["axis", "smallest", "return_indices"]),
    row("sum", Call::Fold(BinaryOp::Add), X).options(AXES),
    row("prod", Call::Fold(BinaryOp::Mul), X).options(AXES),
    row("xor_sum", Call::Fold(BinaryOp::Xor), X).options(AXES),
    row("all", Call::Fold(BinaryOp::And), X).options(AXES),
    row("any", Call::Fold(BinaryOp::Or), X).options(AXES),
    row("max", Call::Fold(BinaryOp::Max), X).options(EXTREME),
    row("min", Call::Fold(BinaryOp::Min), X).options(EXTREME),
    row("mean", Call::Mean, X).options(AXES),
    row("var", Call::Var, X).options(&["axis", "keep_dims", "correction"]),
    row("softmax", Call::Softmax, X).options(&["axis"]),
    row("argmax", Call::ArgExtreme(true), X).options(AXES),
    row("argmin", Call::ArgExtreme(false), X).options(AXES),
    row("reduce", Call::Reduce, &["x", "closure"]).options(AXES),
    row("map_elementwise", Call::Map, &["x, ..", "closure"]).function(),
    row("inline_ptx", Call::InlinePtx, &["text", "x, ..", "closure"]).options(&["pack", "pure"]).function(),
    row("cumsum", Call::Running(BinaryOp::Add), X).options(SCAN),
    row("cumprod", Call::Running(BinaryOp::Mul), X).options(SCAN),
    row("associative_scan", Call::Scan, &["x", "closure"]).options(SCAN),
    row("dot", Call::Dot, AB).options(&["acc", "precision", "out"]).last("acc"),
    row("dot_scaled", Call::DotScaled, AB).options(&["a_scale", "b_scale", "a_format", "b_format", "acc"]),
    row("atomic_add", Call::Atomic(AtomicOp::Add), PV).options(ATOMIC),
    row("atomic_min", Call::Atomic(AtomicOp::Min), PV).options(ATOMIC),
    row("atomic_max", Call::Atomic(AtomicOp::Max), PV).options(ATOMIC),
    row("atomic_and", Call::Atomic(AtomicOp::And), PV).options(ATOMIC),
    row("atomic_or", Call::Atomic(AtomicOp::Or), PV).options(ATOMIC),
    row("atomic_xor", Call::Atomic(AtomicOp::Xor), PV).options(ATOMIC),
    row("atomic_exchange", Call::Atomic(AtomicOp::Exchange), PV).options(ATOMIC),
    row("atomic_cas", Call::AtomicCas, &["pointer", "expected", "value"]).options(ATOMIC),
    row("atomic_load", Call::AtomicLoad, &["pointer"]).options(ATOMIC),
    row("atomic_store", Call::AtomicStore, PV).options(ATOMIC),
    row("atomic_poll", Call::AtomicPoll, &["pointer", "closure"]).options(&["order", "scope"]),
    row("tensor_desc", Call::TensorDesc, &["pointer", "shape", "strides", "block"]).options(&["padding"]).function(),
    row("multiple_of", Call::MultipleOf, XN),
    row("max_contiguous", Call::Runs(HintKind::Contiguous), XN).options(&["multiple_of", "axis"]),
    row("max_constancy", Call::Runs(HintKind::Constant), XN).options(&["axis"]),
    row("assume", Call::Assume, &["condition"]).function(),
    random("randint", Random::Int { words: 1 }),
    random("randint4x", Random::Int { words: 4 }),
    random("rand", Random::Uniform { words: 1 }),
    random("rand4x", Random::Uniform { words: 4 }),
    random("randn", Random::Normal { words: 1 }),
    random("randn4x", Random::Normal { words: 4 }),
];

/// The elementary functions, under their names in the text form.
static FUNCTIONS: [Row; MathFn::ALL.len()] = {
    let mut rows = [row("", Call::ProgramId, X); MathFn::ALL.len()];
    let mut at = 0;
    while at < rows.len() {
        let function = MathFn::ALL[at];
        rows[at] = row(function.name(), Call::Unary(UnaryOp::Math(function)), X);
        at += 1;
    }
    rows
};

static BINARY_FUNCTIONS: [Row; BinaryMathFn::ALL.len()] = {
    let mut rows = [row("", Call::ProgramId, X); BinaryMathFn::ALL.len()];
    let mut at = 0;
    while at < rows.len() {
        let function = BinaryMathFn::ALL[at];
        let params = if matches!(function, BinaryMathFn::Atan2) { YX } else { XY };
        rows[at] = row(function.name(), Call::Binary(BinaryOp::Math(function)), params);
        at += 1;
    }
    rows
};

/// All operations.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    OPERATIONS.iter().chain(&FUNCTIONS).chain(&BINARY_FUNCTIONS)
}

const COORDINATES: &[&str] = &["[i, j]"];
const BLOCK: &[&str] = &["[i, j]", "value"];

/// The operations of tensor descriptors: methods of a descriptor, or functions of which it is the first argument.
/// `params` lists what follows it.
pub const DESC_ROWS: &[Row] = &[
    row("load", Call::Desc(DescCall::Load), COORDINATES),
    row("store", Call::Desc(DescCall::Store), BLOCK),
    row("atomic_add", Call::Desc(DescCall::Reduce(AtomicOp::Add)), BLOCK),
    row("atomic_min", Call::Desc(DescCall::Reduce(AtomicOp::Min)), BLOCK),
    row("atomic_max", Call::Desc(DescCall::Reduce(AtomicOp::Max)), BLOCK),
    row("atomic_and", Call::Desc(DescCall::Reduce(AtomicOp::And)), BLOCK),
    row("atomic_or", Call::Desc(DescCall::Reduce(AtomicOp::Or)), BLOCK),
    row("atomic_xor", Call::Desc(DescCall::Reduce(AtomicOp::Xor)), BLOCK),
    row("gather", Call::Desc(DescCall::Gather), &["rows", "column"]),
    row("scatter", Call::Desc(DescCall::Scatter), &["rows", "column", "value"]),
];

/// The row of that name among the operations of descriptors.
pub fn find_desc(name: &str) -> Option<&'static Row> {
    DESC_ROWS.iter().find(|row| row.name == name)
}

/// The row of that name.
pub fn find(name: &str) -> Option<&'static Row> {
    rows().find(|row| row.name == name)
}
