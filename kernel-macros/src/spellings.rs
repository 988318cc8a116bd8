//! What to write instead of a name that other languages or libraries use.
//!
//! Who follows such a hint must get right numbers for all inputs, or read for which: `log(1.0 + x)` has lost every digit
//! of a small `x`, which is why `log1p` exists. Tests compile the code of each row and run that of mathematics.

use crate::help::Help;
use crate::libdevice;
use crate::source_range::SourceRange;

/// A row: the names that it is known by, the arguments of the call, what to write with them in braces, and what is to be
/// known of it. A row without code says it all in the remark.
pub struct Spelling {
    /// Names, with spaces between them.
    pub names: &'static str,
    /// The arguments, with spaces between them.
    pub args: &'static str,
    /// An expression that replaces the call.
    pub code: &'static str,
    /// What follows the code in the message.
    pub remark: &'static str,
}

/// A row with code.
pub const fn row(names: &'static str, args: &'static str, code: &'static str) -> Spelling {
    Spelling { names, args, code, remark: "" }
}

/// A row without.
pub const fn remark(names: &'static str, remark: &'static str) -> Spelling {
    Spelling { names, args: "", code: "", remark }
}

impl Spelling {
    /// With a remark behind the code.
    pub const fn but(mut self, remark: &'static str) -> Spelling {
        self.remark = remark;
        self
    }
}

/// Rows of many languages.
const SPELLINGS: &[Spelling] = &[
    // Mathematics
    row("powf", "x y", "pow({x}, {y})"),
    row("square sqr", "x", "{x} * {x}"),
    row("ln", "x", "log({x})"),
    row("ln_1p", "x", "log1p({x})"),
    row("exp_m1", "x", "expm1({x})"),
    row("arcsin", "x", "asin({x})"),
    row("arccos", "x", "acos({x})"),
    row("arctan", "x", "atan({x})"),
    row("arcsinh", "x", "asinh({x})"),
    row("arccosh", "x", "acosh({x})"),
    row("arctanh", "x", "atanh({x})"),
    row("arctan2", "y x", "atan2({y}, {x})"),
    row("scalbn", "x n", "ldexp({x}, {n})"),
    row("next_up", "x", "nextafter({x}, f32::INFINITY)").but(" of `f32`"),
    row("next_down", "x", "nextafter({x}, f32::NEG_INFINITY)").but(" of `f32`"),
    row("gamma", "x", "tgamma({x})"),
    row("ln_gamma gammaln", "x", "lgamma({x})"),
    row("rint roundeven nearbyint", "x", "round_ties_even({x})"),
    row("frac", "x", "fract({x})"),
    row("fmod", "x y", "{x} % {y}"),
    row("sign signum", "x", "select({x} > 0.0, 1.0, select({x} < 0.0, -1.0, 0.0))").but(", 0 for zeros and NaN"),
    row("isnan", "x", "is_nan({x})"),
    row("is_inf isinf isinfd", "x", "is_infinite({x})"),
    row("isfinite isfinited finitef", "x", "is_finite({x})"),
    row("recip reciprocal", "x", "1.0 / {x}"),
    row("fabs", "x", "abs({x})"),
    row("fdiv truediv", "a b", "{a} / {b}"),
    row("mul_add", "a b c", "fma({a}, {b}, {c})"),
    row("div_ceil ceil_div", "a b", "cdiv({a}, {b})").but(" of positive integers"),
    row("wrapping_add", "a b", "{a} + {b}"),
    row("wrapping_sub", "a b", "{a} - {b}"),
    row("wrapping_mul", "a b", "{a} * {b}"),
    row("abs_diff", "a b", "maximum({a}, {b}) - minimum({a}, {b})").but(", which wraps as all differences do"),
    remark(
        "checked_add checked_sub checked_mul",
        "kernels have no `Option`: `let (sum, wrapped) = overflowing_add(a, b);` says whether the sum has wrapped, and \
         `overflowing_sub` and `overflowing_mul` do so of differences and products",
    ),
    row("popc popcount ctpop bit_count", "x", "count_ones({x})"),
    row("clz ctlz", "x", "leading_zeros({x})"),
    row("ctz cttz", "x", "trailing_zeros({x})"),
    row("brev bitreverse", "x", "reverse_bits({x})"),
    row("rotl", "x n", "rotate_left({x}, {n})"),
    row("rotr", "x n", "rotate_right({x}, {n})"),
    row("fmin", "a b", "minimum({a}, {b})"),
    row("fmax", "a b", "maximum({a}, {b})"),
    row("where_ where ifelse", "condition a b", "select({condition}, {a}, {b})"),
    // Networks
    row("relu", "x", "maximum({x}, 0.0)").but("; NaN becomes 0, but stays with `propagate_nan = true`"),
    row("silu swish", "x", "{x} * sigmoid({x})"),
    row("gelu", "x", "0.5 * {x} * (1.0 + erf({x} * 0.70710678119))"),
    row("matmul", "a b", "dot({a}, {b})"),
    row("mma gemm", "a b c", "dot({a}, {b}, acc = {c})"),
    // Dtypes
    row("cast astype into", "x", "{x} as f32"),
    row("transmute to_bits", "x", "bitcast::<u32>({x})").but(" of `f32`"),
    row("from_bits", "x", "bitcast::<f32>({x})"),
    row("clone copy to_owned", "x", "{x}"),
    // Shapes
    row("transpose", "x", "trans({x})").but(", which swaps the last two axes"),
    row("view", "x shape", "reshape({x}, {shape})"),
    row("broadcast", "x shape", "broadcast_to({x}, {shape})").but("; operators broadcast by themselves"),
    row("unsqueeze", "x axis", "expand_dims({x}, {axis})"),
    row("squeeze", "x", "reshape({x}, [N])").but(", the shape without the axes of size 1"),
    row("ravel flatten", "x", "reshape({x}, [M * N])").but(" of `[M, N]`"),
    row("ones", "shape", "full({shape}, 1.0)"),
    row("zeros_like empty_like", "x", "zeros::<f32>([N])").but(" with the dtype and the shape of `x`"),
    row("ones_like full_like", "x", "full([N], 1.0)").but(" with the shape of `x`"),
    row("make_range", "lo hi", "arange({lo}, {hi})"),
    // Reductions and scans
    row("max_element", "x", "max({x}, axis = 0)"),
    row("scan", "x", "associative_scan({x}, axis = 0, |a, b| a + b)"),
    row("cummax", "x", "associative_scan({x}, axis = 0, |a, b| maximum(a, b))"),
    row("cummin", "x", "associative_scan({x}, axis = 0, |a, b| minimum(a, b))"),
    // Memory and the grid
    row("atomic_xchg atomic_swap", "pointer value", "atomic_exchange({pointer}, {value})"),
    row("atomic_sub", "pointer value", "atomic_add({pointer}, -{value})").but("; an unsigned number is `0 - value`"),
    row("compare_exchange", "pointer expected value", "atomic_cas({pointer}, {expected}, {value})"),
    row("block_id block_idx", "", "program_id(0)"),
    row("grid_dim num_blocks", "", "num_programs(0)"),
    remark("thread_idx thread_id", "a program works on whole tiles, whose elements `arange(0, BLOCK)` numbers"),
    remark(
        "make_block_ptr",
        "make a descriptor, `let a = tensor_desc(x, [m, n], [n, 1], [M, N]);`, and `a.load([i, j])`",
    ),
    remark(
        "make_tensor_descriptor",
        "write `let a = tensor_desc(x, [m, n], [n, 1], [M, N]);`: the shape of the blocks is last",
    ),
    remark(
        "inline_asm_elementwise inline_asm asm",
        "PTX and a closure that says what it computes: `inline_ptx(\"neg.f32 $0, $1;\", x, |a| -a)`",
    ),
    remark("advance", "move the pointer, `pointer += step`, or the coordinates of a descriptor"),
    remark(
        "debug_barrier barrier syncthreads __syncthreads sync_threads",
        "leave it out: the accesses of a program happen in order",
    ),
    // The rest
    row("device_assert", "condition message", "assert!({condition}, {message})").but(", a statement"),
    remark("static_assert", "it is a macro: `static_assert!(condition)`"),
    remark("device_print static_print print printf", "write `println!(\"x = {}\", x)`"),
    remark(
        "range static_range",
        "a loop runs over a range: `for i in lo..hi`, with `#[unroll]` unrolled, with `#[unroll(4)]` in part",
    ),
    remark(
        "philox philox_impl random",
        "write `randint4x(seed, offset)`, which gives the four words of Philox 4x32, or `rand`, or `randn`",
    ),
];

/// Rows whose code is another one where the first argument is an integer.
const OF_INTEGERS: &[Spelling] = &[
    row("sign signum", "x", "clamp({x}, -1, 1)"),
    row("relu", "x", "maximum({x}, 0)"),
    row("is_power_of_two", "x", "count_ones({x}) == 1"),
];

/// Those of unsigned integers.
const OF_UNSIGNED: &[Spelling] = &[row("sign signum", "x", "minimum({x}, 1)"), row("relu", "x", "{x}")];

/// Those of a dtype parameter, to which literals do not adapt.
const OF_PARAMETERS: &[Spelling] = &[
    remark(
        "sign signum",
        "write `select(x > 0 as T, 1 as T, select(x < 0 as T, 0 as T - 1 as T, 0 as T))` of a `T: Int`",
    ),
    remark("relu", "write `maximum(x, 0 as T)` of a `T: Int`"),
    row("is_power_of_two", "x", "count_ones({x}) == 1"),
];

/// The row of a name where the first argument is an integer: whether it has a sign, if that is known.
pub fn of_integers(name: &str, signed: Option<bool>) -> Option<&'static Spelling> {
    let rows = match signed {
        Some(true) => OF_INTEGERS.iter().chain(&[]),
        Some(false) => OF_UNSIGNED.iter().chain(OF_INTEGERS),
        None => OF_PARAMETERS.iter().chain(&[]),
    };
    rows.into_iter().find(|row| row.names.split(' ').any(|known| known == name))
}

/// Methods of Rust and of other libraries. As names of functions they are the user's.
const METHODS: &[Spelling] = &[
    row("add", "a b", "{a} + {b}"),
    row("sub", "a b", "{a} - {b}"),
    row("mul", "a b", "{a} * {b}"),
    row("div", "a b", "{a} / {b}"),
    row("rem", "a b", "{a} % {b}"),
    row("bitand", "a b", "{a} & {b}"),
    row("bitor", "a b", "{a} | {b}"),
    row("bitxor", "a b", "{a} ^ {b}"),
    row("shl", "a b", "{a} << {b}"),
    row("shr", "a b", "{a} >> {b}"),
    row("not", "a", "!{a}"),
    row("eq", "a b", "{a} == {b}"),
    row("ne", "a b", "{a} != {b}"),
    row("lt", "a b", "{a} < {b}"),
    row("le", "a b", "{a} <= {b}"),
    row("gt", "a b", "{a} > {b}"),
    row("ge", "a b", "{a} >= {b}"),
    row("t", "x", "trans({x})").but(", which swaps the last two axes"),
    row("map", "x f", "map_elementwise({x}, {f})"),
    remark("isqrt", ROOT),
    remark("fold", "write `reduce(x, axis = 0, |a, b| a + b)`, of an associative and commutative closure"),
    remark("get", "tiles have no single elements: read memory with `load(pointer + i)`, or reduce the tile"),
    remark(
        "iter into_iter iter_mut zip enumerate for_each collect",
        "operators and operations take whole tiles, and a loop runs over a range: `for i in lo..hi`",
    ),
];

/// What stands for the square root of an integer.
pub const ROOT: &str = "of an `i32` write `sqrt(n as f64) as i32`, which rounds down";

/// The row of a name that a method has elsewhere.
pub fn of_methods(name: &str) -> Option<&'static Spelling> {
    METHODS.iter().find(|row| row.names.split(' ').any(|known| known == name))
}

/// All rows that have names.
pub fn all() -> impl Iterator<Item = &'static Spelling> {
    SPELLINGS.iter().chain(libdevice::ROWS)
}

/// The row of a name.
pub fn find(name: &str) -> Option<&'static Spelling> {
    all().find(|row| row.names.split(' ').any(|known| known == name)).or_else(|| libdevice::composed(name))
}

/// Characters of code that a message shows with the user's arguments in it.
const MAX_CODE: usize = 160;

impl Spelling {
    /// The code with the names of its arguments.
    pub fn plain(&self) -> String {
        self.args.split(' ').fold(self.code.to_string(), |code, arg| {
            let written = if arg == "shape" { "[M, N]" } else { arg };
            code.replace(&format!("{{{arg}}}"), written)
        })
    }

    /// Whether the code stands for the call, whatever its arguments are: it names nothing else.
    fn replaces(&self) -> bool {
        let other = ["[N]", "* N", "N -", "BINS", "n as f32", "assert!"];
        !self.code.is_empty() && !other.iter().any(|name| self.code.contains(name))
    }

    /// The help for a call at `place` with those arguments, as operands of operators, in parentheses if asked for.
    pub fn help(&self, args: &[String], place: SourceRange, parentheses: bool) -> Help {
        if self.code.is_empty() {
            return self.remark.into();
        }
        let names: Vec<&str> = self.args.split(' ').filter(|name| !name.is_empty()).collect();
        // Where a shape is due, other languages take a tile that has it.
        let known = |(name, arg): (&&str, &String)| arg != "(..)" && (*name != "shape" || arg.starts_with('['));
        let known = args.len() == names.len() && names.iter().zip(args).all(known);
        if known && self.replaces() {
            let code = names.iter().zip(args).fold(self.code.to_string(), |code, (name, arg)| put(&code, name, arg));
            if code.len() <= MAX_CODE {
                return Help::write(place, within(code, parentheses)).and(self.remark);
            }
        }
        format!("write `{}`{}", self.plain(), self.remark).into()
    }
}

/// Puts an argument in its places. Alone between brackets and commas it needs no parentheses of its own.
fn put(code: &str, name: &str, arg: &str) -> String {
    let bare = without_parentheses(arg);
    let alone = [("(", ")"), ("(", ","), (" ", ","), (" ", ")")];
    let code = alone.iter().fold(code.to_string(), |code, (before, after)| {
        // Behind an operator stands a space too.
        let before = if *before == " " { ", " } else { before };
        code.replace(&format!("{before}{{{name}}}{after}"), &format!("{before}{bare}{after}"))
    });
    code.replace(&format!("{{{name}}}"), arg)
}

/// An operation in parentheses, where the expression around it would take it apart.
fn within(code: String, parentheses: bool) -> String {
    let call = code.ends_with(')') && code.chars().take_while(|c| c.is_alphanumeric() || *c == '_').count() > 0;
    let depth_one = call && closes_at_end(&code);
    if parentheses && !depth_one && code.contains(' ') { format!("({code})") } else { code }
}

/// An expression without the parentheses around it.
pub fn without_parentheses(code: &str) -> &str {
    let inner = code.strip_prefix('(').and_then(|code| code.strip_suffix(')'));
    inner.filter(|_| closes_at_end(code)).unwrap_or(code)
}

/// Whether the first bracket closes at the end.
fn closes_at_end(code: &str) -> bool {
    let mut depth = 0usize;
    for (i, c) in code.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            ' ' if depth == 0 => return false,
            _ => continue,
        }
        if depth == 0 && i + 1 < code.len() && c == ')' {
            return false;
        }
    }
    true
}
