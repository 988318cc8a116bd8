//! No input makes the macro panic or overflow the stack.

use proc_macro2::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};

use kernel_core::{text, verify};

use super::support::{expand, literal_after, on_half_the_stack};
use crate::device::{self, Found};
use crate::error::Errors;
use crate::expand::expand_into;

/// A small generator with a fixed sequence (Marsaglia's xorshift64).
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below a bound.
    pub fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below.max(1) as u64) as usize
    }

    /// One of a list.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.next(from.len())]
    }
}

/// Words that mean something to the front end.
const WORDS: &[&str] = &[
    "fn",
    "let",
    "mut",
    "if",
    "else",
    "for",
    "in",
    "while",
    "return",
    "as",
    "unsafe",
    "const",
    "match",
    "loop",
    "break",
    "x",
    "y",
    "n",
    "out",
    "i",
    "T",
    "N",
    "BLOCK",
    "LIMIT",
    "f32",
    "i32",
    "bool",
    "f16",
    "usize",
    "Ptr",
    "PtrMut",
    "Const",
    "Tile",
    "Num",
    "load",
    "store",
    "arange",
    "program_id",
    "zeros",
    "full",
    "sum",
    "max",
    "argmax",
    "reduce",
    "select",
    "reshape",
    "permute",
    "mask",
    "other",
    "axis",
    "keep_dims",
    "true",
    "false",
    "None",
    "assert",
    "static_assert",
    "step_by",
    "rev",
    "exp",
    "MIN",
    "MAX",
    "num_warps",
    "crate",
    "self",
    "cdiv",
    "to",
    "bitcast",
    "expand_dims",
];

const PUNCTS: &str = "+-*/%^&|!<>=.,;:#?@'~$";

fn tokens(random: &mut Random, depth: usize) -> TokenStream {
    let count = random.next(if depth == 0 { 30 } else { 10 });
    let mut out = TokenStream::new();
    for _ in 0..count {
        out.extend([token(random, depth)]);
    }
    out
}

fn token(random: &mut Random, depth: usize) -> TokenTree {
    let span = Span::call_site();
    match random.next(8) {
        0 if depth < 5 => {
            let delimiters = [Delimiter::Parenthesis, Delimiter::Brace, Delimiter::Bracket, Delimiter::None];
            Group::new(*random.pick(&delimiters), tokens(random, depth + 1)).into()
        }
        1 | 2 => {
            let puncts: Vec<char> = PUNCTS.chars().collect();
            let spacing = if random.next(2) == 0 { Spacing::Alone } else { Spacing::Joint };
            Punct::new(*random.pick(&puncts), spacing).into()
        }
        3 => match random.next(5) {
            0 => Literal::i64_unsuffixed(random.next(2000) as i64).into(),
            1 => Literal::f64_unsuffixed(0.5).into(),
            2 => Literal::string("text").into(),
            3 => Literal::u8_suffixed(7).into(),
            _ => Literal::u128_unsuffixed(u128::MAX).into(),
        },
        _ => Ident::new(WORDS[random.next(WORDS.len())], span).into(),
    }
}

#[test]
fn random_tokens_do_not_panic() {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for _ in 0..4000 {
        let (attr, item) = (tokens(&mut random, 3), tokens(&mut random, 0));
        sound(attr, item);
    }
}

/// Expands anything: without a mistake the IR verifies, and the checks leave none to the type rules of the IR.
fn sound(attr: TokenStream, item: TokenStream) {
    let mut errors = Errors::default();
    let source = item.to_string();
    let tokens = expand_into(attr, item, &Found::new(), &mut errors);
    for mistake in errors.list() {
        assert!(!mistake.message.contains("this cannot be compiled"), "{}\n{source}", mistake.message);
    }
    if errors.is_empty() {
        let ir = literal_after(tokens, "ir").unwrap_or_else(|| panic!("no IR for {source}"));
        let func = text::parse(&ir).unwrap_or_else(|e| panic!("{e}\n{source}\n{ir}"));
        verify::verify(&func).unwrap_or_else(|e| panic!("{e:?}\n{source}\n{ir}"));
    }
}

/// Kernels with one token removed, doubled, replaced or swapped: most of them reach the checks.
#[test]
fn damaged_kernels_do_not_panic() {
    let sources = [
        "fn k<T: Num, const N: usize>(x: Ptr<T>, out: PtrMut<T>, n: i32, e: Const<f32>) { \
         let i = program_id(0) * N + arange(0, N); let mut a = zeros::<T>([N]); \
         for j in (0..n).step_by(N).rev() { a += load(x + i + j, mask = i < n, other = 1 as T); } \
         store(out + i, a, mask = i < n); }",
        "fn k<const M: usize, const N: usize>(x: Ptr<f16>, out: PtrMut<f32>, n: i32) { \
         let p = x + arange(0, M)[(.., None)] * n + arange(0, N)[(None, ..)]; \
         let (m, i) = reduce((load(p) as f32, full([M, N], 1)), axis = 1, |(a, i), (b, j)| \
         if a > b { (a, i) } else { (b, j) }); if n < 3 && sum(i) > 2 { return; } \
         let mut k = 0; while k < n { k += 2; } static_assert!(M % 2 == 0); assert!(n > 0, \"positive\"); \
         store(out + arange(0, M), m.exp() - LIMIT as f32); }",
        "unsafe fn k<T: Signed, I: Int, const M: usize, const FLAG: bool>(x: Ptr<T>, h: Ptr<I>, out: PtrMut<T>, mut n: i32, b: bool) { \
         let (r, c) = (arange(0, M), arange(0, 2 * M)); let t = load(x + r[(.., None)] * n + c); \
         let s = cumsum(t, axis = 1, reverse = true).trans(); n -= 1; \
         let p = if b && load(h + n) > 3 as I { out + 1 } else if FLAG { out } else { return }; \
         let (u, v) = (s.sum(axis = 0), associative_scan((t, c + r[(.., None)]), axis = -1, |(a, i), (b, j)| \
         if i < j || a == b { (b, j) } else { (a.max(b), i) })); \
         let old = atomic_max(p + r, u, mask = r < n, order = relaxed); \
         store(out, select(sum(old) < 0 as T, -t.max(), v.0.min() + T::MIN), mask = !b); \
         #[unroll] for i in (0..4).rev().step_by(3) { let w: Tile<i32, { [M] }> = full([M], i); store(out + w, u); } }",
    ];
    let mut random = Random(42);
    for source in sources {
        assert_eq!(expand("", source).1, Vec::<String>::new());
        let flat: Vec<TokenTree> = flatten(source.parse().unwrap_or_default());
        for at in 0..flat.len() {
            for how in 0..5 {
                let mut mutated = flat.clone();
                match how {
                    0 => drop(mutated.remove(at)),
                    1 => mutated.insert(at, flat[at].clone()),
                    2 => mutated.swap(at, (at + 1) % flat.len()),
                    3 => mutated[at] = random.pick(&flat).clone(),
                    _ => mutated[at] = token(&mut random, 4),
                }
                sound(TokenStream::new(), nest(mutated));
            }
        }
    }
}

/// Groups become markers, so that a change of one token may be anywhere.
fn flatten(tokens: TokenStream) -> Vec<TokenTree> {
    let mut out = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                out.push(TokenTree::Group(Group::new(group.delimiter(), TokenStream::new())));
                out.extend(flatten(group.stream()));
                out.push(Literal::string("end").into());
            }
            other => out.push(other),
        }
    }
    out
}

/// The inverse of [`flatten`]; markers without a partner close at the end or are left out.
fn nest(flat: Vec<TokenTree>) -> TokenStream {
    let mut stack = vec![(Delimiter::None, Vec::new())];
    for token in flat {
        match &token {
            TokenTree::Group(group) => stack.push((group.delimiter(), Vec::new())),
            TokenTree::Literal(literal) if literal.to_string() == "\"end\"" => close(&mut stack),
            _ => {
                if let Some((_, tokens)) = stack.last_mut() {
                    tokens.push(token);
                }
            }
        }
    }
    while stack.len() > 1 {
        close(&mut stack);
    }
    stack.pop().map(|(_, tokens)| TokenStream::from_iter(tokens)).unwrap_or_default()
}

fn close(stack: &mut Vec<(Delimiter, Vec<TokenTree>)>) {
    if stack.len() < 2 {
        return;
    }
    if let (Some((delimiter, tokens)), Some((_, outer))) = (stack.pop(), stack.last_mut()) {
        outer.push(Group::new(delimiter, TokenStream::from_iter(tokens)).into());
    }
}

/// A kernel with that expression.
fn with(expression: &str) -> Vec<String> {
    on_half_the_stack(|| expand("", &format!("fn k(out: PtrMut<i32>, n: i32) {{ store(out, {expression}); }}")).1)
}

#[test]
fn chains_up_to_the_limit_compile_and_longer_ones_are_refused() {
    for operator in [" + ", " * n - ", " & ", " / "] {
        let count = if operator.len() > 3 { 490 } else { 990 };
        let chain = vec!["n"; count].join(operator);
        assert_eq!(with(&chain), Vec::<String>::new(), "{operator}");
    }
    for parts in [".abs()".repeat(450), " as i32".repeat(120)] {
        assert_eq!(with(&format!("n{parts}")), Vec::<String>::new());
    }
    for parts in [".0".repeat(450), "[..]".repeat(450)] {
        assert_eq!(with(&format!("n{parts}")).len(), 1, "{parts}");
    }
    for chain in
        [vec!["n"; 1100].join(" + "), format!("n{}", ".abs()".repeat(1100)), format!("n{}", " as i32".repeat(1100))]
    {
        let messages = with(&chain);
        assert!(messages.len() == 1 && messages[0].contains("help: name "), "{messages:?}");
    }
}

#[test]
fn nesting_up_to_the_limit_compiles_and_deeper_is_refused() {
    let nested = |open: &str, close: &str, depth| format!("{}n{}", open.repeat(depth), close.repeat(depth));
    for (open, close) in
        [("(", ")"), ("-(", ")"), ("abs(", ")"), ("{ ", " }"), ("- ", ""), ("if n > 0 { ", " } else { 0 }")]
    {
        assert_eq!(with(&nested(open, close, 20)), Vec::<String>::new(), "{open}");
        for depth in [200, 5000] {
            let messages = with(&nested(open, close, depth));
            assert!(messages.len() == 1 && messages[0].contains("nested more than 128"), "{open} {messages:?}");
        }
    }
    assert_eq!(with(&nested("(", ")", 120)), Vec::<String>::new());
    for prefix in ["return ", "if ", "|a| ", "a = ", "!", "*", "& ", "match "] {
        let messages = with(&nested(prefix, "", 5000));
        assert!(!messages.is_empty(), "{prefix}");
    }
}

#[test]
fn many_statements_are_no_chain() {
    let source: String = (0..3000).map(|i| format!("let a{i} = n == {i}; if a{i} {{ store(out, {i}); }}\n")).collect();
    let (_, messages) = expand("", &format!("fn k(out: PtrMut<i32>, n: i32) {{ {source} }}"));
    assert_eq!(messages, Vec::<String>::new());
}

#[test]
fn names_may_be_raw_and_begin_with_digits_after_an_underscore() {
    for source in ["fn _2d(out: PtrMut<i32>) { store(out, 1); }", "fn r#match(r#in: PtrMut<i32>) { store(r#in, 1); }"] {
        assert_eq!(expand("", source).1, Vec::<String>::new());
    }
    let messages = expand("", "fn k(r#type: PtrMut<i32>, r#type: i32) { store(r#type, 1); }").1;
    assert!(messages[0].contains("is used for two parameters"), "{messages:?}");
    let messages = expand("", "fn k<const r#fn: usize, r#fn: Num>(r#fn: i32) { }").1;
    assert!(messages[0].contains("is used for two parameters"), "{messages:?}");
}

/// A function with a token less, or with one twice.
#[test]
fn damaged_functions_do_not_panic() {
    let source = "fn f<T: Num, const N: usize>(x: Tile<T, { [N] }>, (a, b): (i32, i32), g: impl Fn(T) -> T) -> T \
                  { let h = |y| g(y) + f2(x); reduce(x, axis = 0, |a, b| h(a)) }";
    let tokens: TokenStream = source.parse().expect("tokens");
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for at in 0..tokens.len() {
        let less = tokens.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, token)| token.clone());
        let twice = tokens.iter().enumerate().flat_map(|(i, token)| vec![token.clone(); if i == at { 2 } else { 1 }]);
        for item in [less.collect::<TokenStream>(), twice.collect()] {
            let step = device::begin(device::Owner::Device, &TokenStream::new(), &item);
            let mut errors = Errors::default();
            device::finish_into(TokenStream::new(), item.clone(), &Found::new(), &mut errors);
            device::inline(step.unwrap_or(item));
        }
    }
}
