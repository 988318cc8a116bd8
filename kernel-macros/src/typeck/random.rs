//! Random numbers: Philox 4x32 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"), keyed and counted as Triton does.
//!
//! ```text
//! randint4x(seed, offset)   key: the halves of the seed; counter: (offset, offset >> 32, 0, 0); 10 rounds
//! rand                      the first word as a float in [0, 1)
//! randn                     Box-Muller of the first two
//! ```
//!
//! The functions are written in the language of kernels, and checked where they are called.

use kernel_core::ir::infer::Needs;
use kernel_core::ir::{DType, DTypeBound, Dt};
use proc_macro2::{Group, Span, TokenStream, TokenTree};
use syn::Block;

use super::args::Args;
use super::block::Flow;
use super::{Binding, Checker, Val};
use crate::error::{Checked, Reported};
use crate::ops::Random;
use crate::source_range::{SourceRange, bare};
use crate::types::DtRef;

/// The multipliers of a round.
const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
/// What the halves of the key grow by in each round.
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
/// Rounds, if the call does not say.
const ROUNDS: i64 = 10;
/// The most rounds that a call may ask for.
const MAX_ROUNDS: i64 = 32;
/// The names of the four words.
const WORDS: [&str; 4] = ["c0", "c1", "c2", "c3"];

impl Checker<'_> {
    /// `rand(seed, offset)` and its kind.
    pub(super) fn random(&mut self, args: &Args<'_>, random: Random) -> Checked<Val> {
        let what = format!("`{}`", args.row.name);
        let rounds = match args.named("n_rounds") {
            None => ROUNDS,
            Some(expr) => {
                let rounds = self.literal_int(bare(expr), "a number of rounds")?;
                if !(1..=MAX_ROUNDS).contains(&rounds) {
                    let message = format!("{what} takes 1 to {MAX_ROUNDS} rounds");
                    return Err(self.report(SourceRange::of(expr), message));
                }
                rounds
            }
        };
        let [seed, offset] = self.arg_values(args)?;
        let integers = [seed, offset].map(|operand| self.need(operand, Needs::Bound(DTypeBound::Int), &what));
        integers.into_iter().collect::<Checked<()>>()?;
        if !self.ty(seed).is_scalar() {
            let message = format!("the seed of {what} is a scalar, found {}", self.show(seed));
            return Err(self.report_help(seed.place, message, "let the offset differ from element to element"));
        }
        let wide = match self.node_dt(offset.node).map(|dt| self.types.resolve(dt)) {
            Some(DtRef::Fixed(Dt::Known(DType::I64 | DType::U64))) => true,
            Some(DtRef::Fixed(Dt::Param(_))) => {
                let message = format!("the offset of {what} has a dtype that the kernel leaves open");
                let help = format!("convert it: `{} as i32`", self.source(offset));
                return Err(self.report_help(offset.place, message, help));
            }
            Some(DtRef::Fixed(Dt::Known(_)) | DtRef::Var(_)) | None => false,
        };
        let code = body(random, wide, rounds as u32);
        let tokens = code.parse::<TokenStream>().map(|tokens| at(tokens, args.place.start));
        let Ok(block) = tokens.map_err(drop).and_then(|tokens| syn::parse2::<Block>(tokens).map_err(drop)) else {
            return Err(self.report(args.place, format!("internal error: the body of {what} cannot be read")));
        };
        let value = self.written(|c| {
            c.bind("seed", Binding::Value(seed.node));
            c.bind("offset", Binding::Value(offset.node));
            c.block(&block.stmts, true, args.place.end)
        });
        match value {
            Flow::Value(value) => value,
            Flow::Diverges => Err(Reported::earlier()),
        }
    }
}

/// The body of a function of `seed` and `offset`.
fn body(random: Random, wide: bool, rounds: u32) -> String {
    let high = if wide { "(offset >> 32) as u32" } else { "c0 & 0" };
    let mut code = format!(
        "{{ let key = seed as u64;
        let (k0, k1) = (key as u32, (key >> 32) as u32);
        let c0 = offset as u32;
        let (c1, c2) = ({high}, c0 & 0);
        let c3 = c2;"
    );
    let [a, b] = MULTIPLIERS;
    for round in 0..rounds {
        let [grown0, grown1] = WEYL.map(|weyl| weyl.wrapping_mul(round));
        // Both halves of a product at once: one instruction.
        code += &format!(
            "let (low, high) = ({a}u64 * c0 as u64, {b}u64 * c2 as u64);
            let (c0, c1, c2, c3) = ((high >> 32) as u32 ^ c1 ^ (k0 + {grown0}), high as u32,
                (low >> 32) as u32 ^ c3 ^ (k1 + {grown1}), low as u32);"
        );
    }
    code += &match random {
        Random::Int { words } => list(&WORDS[..words]),
        Random::Uniform { words } => list(&WORDS[..words].iter().map(|word| uniform(word)).collect::<Vec<_>>()),
        Random::Normal { words: 1 } => format!("{} {}", pair("c0", "c1"), "r * cos(angle)"),
        Random::Normal { .. } => format!(
            "let (n0, n1) = {{ {} (r * cos(angle), r * sin(angle)) }};
            let (n2, n3) = {{ {} (r * cos(angle), r * sin(angle)) }};
            (n0, n1, n2, n3)",
            pair("c0", "c1"),
            pair("c2", "c3")
        ),
    };
    code + "}"
}

fn list<T: AsRef<str>>(items: &[T]) -> String {
    match items {
        [one] => one.as_ref().to_string(),
        many => format!("({})", many.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ")),
    }
}

/// A word as a float in [0, 1): its absolute value, scaled so that the largest stays below 1.
fn uniform(word: &str) -> String {
    format!("{{ let bits = bitcast::<i32>({word}); select(bits < 0, -bits - 1, bits) as f32 * 4.6566127342e-10 }}")
}

/// Radius and angle of the Box-Muller transform of two words.
fn pair(first: &str, second: &str) -> String {
    format!(
        "let r = sqrt(-2.0 * log(maximum({}, 1.0e-7))); let angle = {} * 6.283185307179586;",
        uniform(first),
        uniform(second)
    )
}

/// The same tokens, where the call stands.
fn at(tokens: TokenStream, span: Span) -> TokenStream {
    let placed = tokens.into_iter().map(|token| match token {
        TokenTree::Group(group) => {
            let mut placed = Group::new(group.delimiter(), at(group.stream(), span));
            placed.set_span(span);
            TokenTree::Group(placed)
        }
        mut other => {
            other.set_span(span);
            other
        }
    });
    placed.collect()
}
