//! Changes of tokens: 1 to 4 of them in a kernel.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// Marsaglia's xorshift64: a fixed sequence for each seed.
pub struct Random(u64);

impl Random {
    /// The sequence of a case.
    pub fn new(seed: u64) -> Random {
        // The finaliser of splitmix64 sets neighbouring numbers far apart.
        let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        Random((z ^ (z >> 31)) | 1)
    }

    /// A number below a bound.
    pub fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % below.max(1) as u64) as usize
    }
}

/// A token, with brackets taken apart so that a change may be anywhere.
#[derive(Clone)]
pub enum Flat {
    /// An opening bracket.
    Open(Group),
    /// A closing one.
    Close,
    /// Another token.
    Token(TokenTree),
}

/// Takes brackets apart.
pub fn flatten(tokens: TokenStream) -> Vec<Flat> {
    let mut out = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let inside = flatten(group.stream());
                out.push(Flat::Open(group));
                out.extend(inside);
                out.push(Flat::Close);
            }
            other => out.push(Flat::Token(other)),
        }
    }
    out
}

/// The inverse; brackets without a partner close at the end or are left out.
pub fn nest(flat: Vec<Flat>) -> TokenStream {
    let mut stack: Vec<(Option<Group>, Vec<TokenTree>)> = vec![(None, Vec::new())];
    for token in flat {
        match token {
            Flat::Open(group) => stack.push((Some(group), Vec::new())),
            Flat::Close => close(&mut stack),
            Flat::Token(token) => stack.last_mut().into_iter().for_each(|(_, tokens)| tokens.push(token.clone())),
        }
    }
    while stack.len() > 1 {
        close(&mut stack);
    }
    stack.pop().map(|(_, tokens)| TokenStream::from_iter(tokens)).unwrap_or_default()
}

fn close(stack: &mut Vec<(Option<Group>, Vec<TokenTree>)>) {
    if stack.len() < 2 {
        return;
    }
    let Some((opened, tokens)) = stack.pop() else { return };
    let delimiter = opened.as_ref().map_or(Delimiter::None, Group::delimiter);
    let mut group = Group::new(delimiter, TokenStream::from_iter(tokens));
    if let Some(opened) = opened {
        group.set_span(opened.span());
    }
    if let Some((_, outer)) = stack.last_mut() {
        outer.push(group.into());
    }
}

/// The most tokens that one change moves.
const RUN: usize = 24;

/// Changes tokens; `pool` are those of another kernel.
pub fn change(flat: &mut Vec<Flat>, pool: &[Flat], random: &mut Random) {
    if flat.is_empty() || pool.is_empty() {
        return;
    }
    let at = random.next(flat.len());
    let other = pool[random.next(pool.len())].clone();
    match random.next(8) {
        0 => drop(flat.remove(at)),
        1 => flat.insert(at, flat[at].clone()),
        2 => {
            let with = if random.next(2) == 0 { (at + 1) % flat.len() } else { random.next(flat.len()) };
            flat.swap(at, with);
        }
        3 => flat[at] = other,
        4 => flat.insert(at, other),
        5 => {
            let from = random.next(pool.len());
            let to = (from + 1 + random.next(RUN)).min(pool.len());
            flat.splice(at..at, pool[from..to].iter().cloned());
        }
        6 => drop(flat.drain(at..(at + 1 + random.next(RUN)).min(flat.len()))),
        _ => {
            let alike: Vec<&Flat> = pool.iter().filter(|token| kind(token) == kind(&flat[at])).collect();
            if !alike.is_empty() {
                flat[at] = alike[random.next(alike.len())].clone();
            }
        }
    }
}

fn kind(token: &Flat) -> u8 {
    match token {
        Flat::Open(_) => 0,
        Flat::Close => 1,
        Flat::Token(TokenTree::Ident(_)) => 2,
        Flat::Token(TokenTree::Punct(_)) => 3,
        Flat::Token(TokenTree::Literal(_)) => 4,
        Flat::Token(TokenTree::Group(_)) => 5,
    }
}
