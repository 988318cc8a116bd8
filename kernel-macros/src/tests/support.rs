//! Helpers: expand a kernel from its source.

use std::str::FromStr;

use kernel_core::ir::Func;
use kernel_core::{text, verify};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::device::{self, Found, Owner, bundle, collect, function, methods, record};
use crate::error::Errors;
use crate::expand::expand_into;
use crate::signature::KernelItem;

/// Expands a kernel behind the `#[device]` functions that it calls, as rustc and the macros of the functions do it.
pub fn expand_program(attr: TokenStream, program: TokenStream, errors: &mut Errors) -> TokenStream {
    let mut known: Vec<(String, TokenStream)> = Vec::new();
    let mut rest: Vec<TokenTree> = program.into_iter().collect();
    while let Some(arguments) = rest.get(1).and_then(device_arguments) {
        // Shapes in a signature have braces too, before `>`.
        let is = |at: usize, c| matches!(rest.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == c);
        let body = |at: &usize| bundle::group(rest[*at].clone()).is_some_and(|g| g.delimiter() == Delimiter::Brace);
        let end = (2..rest.len()).find(|at| body(at) && !is(at + 1, '>') || is(*at, ';')).expect("a body");
        let item: TokenStream = rest.drain(..=end).skip(2).collect();
        let found = found(Owner::Device, &item, &known);
        let has_methods = record::is_struct(&item) && arguments.to_string() == "methods";
        let exported = device::finish_into(arguments, item.clone(), &found, errors);
        let name = if record::is_struct(&item) {
            syn::parse2::<syn::ItemStruct>(item).ok().map(|item| match has_methods {
                true => methods::macro_of(&item.ident).to_string(),
                false => item.ident.to_string(),
            })
        } else if methods::is_impl(&item) {
            let own = found.first().and_then(|(path, _)| path.segments.last().map(|last| last.ident.to_string()));
            own.map(|own| own.trim_start_matches("device_methods_of_").to_string())
        } else {
            syn::parse2::<KernelItem>(item).ok().map(|item| item.sig.ident.to_string())
        };
        if let (Some(exported), Some(name)) = (exported, name) {
            known.push((name, exported.bundle));
        }
    }
    let item = TokenStream::from_iter(rest);
    let found = found(Owner::Kernel, &item, &known);
    expand_into(attr, item, &found, errors)
}

/// What is in `#[device]` or `#[device(..)]`.
fn device_arguments(attribute: &TokenTree) -> Option<TokenStream> {
    let mut tokens = bundle::group(attribute.clone())?.stream().into_iter();
    let is_device = matches!(tokens.next(), Some(TokenTree::Ident(name)) if name == "device");
    is_device.then(|| tokens.next().and_then(bundle::group).map(|group| group.stream()).unwrap_or_default())
}

fn found(owner: Owner, item: &TokenStream, known: &[(String, TokenStream)]) -> Found {
    // What is nested too deep to be parsed calls nothing.
    if known.is_empty() {
        return Found::new();
    }
    if owner == Owner::Device && methods::is_impl(item) {
        return with_bundles(methods::pending(item).unwrap_or_default(), known);
    }
    let paths = match record::is_struct(item) {
        true => syn::parse2::<syn::ItemStruct>(item.clone()).map(|item| collect::fields(&item)),
        false => syn::parse2::<KernelItem>(item.clone())
            .and_then(|item| Ok(collect::calls(owner, &item.sig, &function::body(&item.body)?.1))),
    };
    let Ok(paths) = paths else { return Found::new() };
    with_bundles(paths, known)
}

fn with_bundles(paths: Vec<syn::Path>, known: &[(String, TokenStream)]) -> Found {
    let bundle = |path: syn::Path| {
        let name = path.segments.last()?.ident.to_string();
        let (_, bundle) = known.iter().find(|(known, _)| *known == name)?;
        Some((path, bundle.clone()))
    };
    paths.into_iter().filter_map(bundle).collect()
}

/// Works on half the stack that rustc and rust-analyzer give to a macro, which is 8 MiB. Threads of tests have less,
/// and frames are larger than usual in a build with debug information.
pub fn on_half_the_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(4 << 20).spawn_scoped(scope, work).expect("a thread");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Expands a kernel given as source and returns the tokens and the messages as `line:column: text`.
pub fn expand(attr: &str, source: &str) -> (TokenStream, Vec<String>) {
    let tokens = |text| TokenStream::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    // Positions count from the start of the item: the source is lexed first, so that it lies at the front of its file.
    let item = tokens(source);
    let mut errors = Errors::default();
    let expansion = expand_program(tokens(attr), item, &mut errors);
    let mut list: Vec<_> = errors.list().iter().map(|m| (m.place.start.start(), m.text())).collect();
    list.sort_by_key(|(at, _)| (at.line, at.column));
    (expansion, list.into_iter().map(|(at, text)| format!("{}:{}: {text}", at.line, at.column + 1)).collect())
}

/// The messages about a kernel, and the kernel with their rewrites followed; nothing if there is none to follow.
///
/// Of rewrites that overlap the first is followed: its mistake comes first.
pub fn follow(source: &str) -> (Vec<String>, Option<String>) {
    let item = TokenStream::from_str(source).unwrap_or_else(|e| panic!("{source}: {e}"));
    let mut errors = Errors::default();
    expand_program(TokenStream::new(), item, &mut errors);
    let lines: Vec<&str> = source.split('\n').collect();
    let offset = |at: proc_macro2::LineColumn| {
        let before: usize = lines[..at.line - 1].iter().map(|line| line.len() + 1).sum();
        let column: usize = lines[at.line - 1].chars().take(at.column).map(char::len_utf8).sum();
        before + column
    };
    let rewrites = errors.list().iter().filter_map(|mistake| mistake.help.as_ref()).flat_map(|help| &help.rewrites);
    let mut edits: Vec<(usize, usize, &str)> =
        rewrites.map(|(place, code)| (offset(place.start.start()), offset(place.end.end()), code.as_str())).collect();
    edits.sort_by_key(|(start, end, _)| (*start, *end));
    let (mut followed, mut done) = (String::new(), 0);
    for (start, end, code) in &edits {
        if *start >= done {
            followed.push_str(&source[done..*start]);
            followed.push_str(code);
            done = *end;
        }
    }
    followed.push_str(&source[done..]);
    let messages = errors.list().iter().map(|mistake| mistake.text()).collect();
    (messages, (!edits.is_empty()).then_some(followed))
}

/// The kernel's IR, verified.
pub fn func(source: &str) -> Func {
    func_with("", source)
}

/// The kernel's IR with arguments of the attribute.
pub fn func_with(attr: &str, source: &str) -> Func {
    let (tokens, messages) = expand(attr, source);
    assert!(messages.is_empty(), "{source}\n{}", messages.join("\n"));
    let ir = literal_after(tokens, "ir").unwrap_or_else(|| panic!("no IR for {source}"));
    let func = text::parse(&ir).unwrap_or_else(|e| panic!("{e}\n{ir}"));
    verify::verify(&func).unwrap_or_else(|e| panic!("{e:?}\n{ir}"));
    assert_eq!(text::print(&func), ir, "the text form round-trips");
    func
}

/// The text of the kernel's body, without spans.
pub fn body(source: &str) -> String {
    text::print_without_spans(&func(source))
}

/// The string literal after `name:`.
pub fn literal_after(tokens: TokenStream, name: &str) -> Option<String> {
    let mut found = false;
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                if let Some(text) = literal_after(group.stream(), name) {
                    return Some(text);
                }
            }
            TokenTree::Ident(ident) => found = ident == name,
            TokenTree::Punct(punct) if punct.as_char() == ':' => {}
            TokenTree::Literal(literal) if found => {
                return syn::parse2::<syn::LitStr>(TokenTree::from(literal).into()).ok().map(|l| l.value());
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => found = false,
        }
    }
    None
}
