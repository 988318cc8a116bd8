//! From the attribute and its item to the launcher and its IR: the way of a kernel through this crate.

use kernel_core::ir::{ConstOrigin, Subnormals};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use quote::quote;

use crate::attr::KernelAttr;
use crate::device::bundle::Functions;
use crate::device::{self, Found, Owner, function};
use crate::error::Errors;
use crate::launcher::Body;
use crate::signature::{KernelItem, Signature};
use crate::source::Source;
use crate::source_range::SourceRange;
use crate::{attr, attributes, guard, launcher, lints, lower, parse_errors, signature, source_lines, typeck};

/// Expands `#[kernel(attr)] item`: the launcher, and the body at once, or in steps if it calls functions.
pub fn expand(attr: TokenStream, item: TokenStream) -> TokenStream {
    match device::begin(Owner::Kernel, &attr, &item) {
        Some(steps) => {
            // Mistakes of the signature are reported by the last step.
            let launcher = read(attr, item, &mut Errors::default()).map(|read| read.launcher());
            quote!(#launcher #steps)
        }
        None => {
            let mut errors = Errors::default();
            let tokens = expand_into(attr, item, &Found::new(), &mut errors);
            let messages = errors.to_tokens();
            quote!(#tokens #messages)
        }
    }
}

/// The last step: the body of a kernel whose functions have been found.
pub fn finish(attr: TokenStream, item: TokenStream, found: &Found) -> TokenStream {
    let mut errors = Errors::default();
    let tokens = read(attr, item, &mut errors).map(|read| read.body(found, &mut errors));
    let messages = errors.to_tokens();
    quote!(#tokens #messages)
}

/// Expands the launcher and the body, and collects mistakes in `errors`.
pub fn expand_into(attr: TokenStream, item: TokenStream, found: &Found, errors: &mut Errors) -> TokenStream {
    let Some(read) = read(attr, item, errors) else { return TokenStream::new() };
    let (launcher, body) = (read.launcher(), read.body(found, errors));
    quote!(#launcher #body)
}

/// A kernel whose signature has been read.
struct Read {
    attr: KernelAttr,
    krate: TokenStream,
    signature: Signature,
    /// Whether the signature has no mistake.
    intact: bool,
    tokens: TokenStream,
    braces: Group,
}

/// Reads all but the body; nothing if there is no kernel to speak of.
fn read(attr: TokenStream, item: TokenStream, errors: &mut Errors) -> Option<Read> {
    if guard::check(attr.clone(), errors).is_err() || guard::check(item.clone(), errors).is_err() {
        return None;
    }
    let attr = attr::parse(attr, errors);
    let item = match syn::parse2::<KernelItem>(item.clone()) {
        Ok(item) => item,
        Err(error) if is_function(&item) => {
            parse_errors::report(item, &error, errors);
            return None;
        }
        Err(error) => {
            let message = format!("`#[kernel]` belongs on a function: {error}");
            errors.report_help(SourceRange::at(error.span()), message, "write `fn name(..) { .. }`");
            return None;
        }
    };
    if let Some(receiver) = item.sig.receiver() {
        // Inside an `impl` the launcher's struct would be a second mistake.
        let place = SourceRange::of_tokens(receiver);
        errors.report_help(place, "a kernel is a free function: it has no `self`", "move it out of the `impl`");
        return None;
    }
    let (tokens, braces) = (quote::ToTokens::to_token_stream(&item.sig), item.body.clone());
    attributes::check_signature(&item.sig, errors);
    let before = errors.list().len();
    let signature = signature::read(item, errors);
    let intact = errors.list().len() == before;
    let krate = match &attr.krate {
        Some(path) => quote!(#path),
        None => quote!(::tilewright),
    };
    Some(Read { attr, krate, signature, intact, tokens, braces })
}

impl Read {
    /// What follows from the signature.
    fn launcher(&self) -> TokenStream {
        launcher::emit(&self.signature, &self.krate, self.intact)
    }

    /// What the body adds.
    fn body(&self, found: &Found, errors: &mut Errors) -> TokenStream {
        let body = self.lowered(&Functions::read(found), errors);
        launcher::emit_body(&self.signature, &self.attr, &self.krate, &body)
    }

    /// Checks and lowers the body. After a mistake the launcher gets an empty one.
    fn lowered(&self, functions: &Functions, errors: &mut Errors) -> Body {
        let Read { signature, braces, .. } = self;
        let (inner, stmts) = match function::body(braces) {
            Ok(read) => read,
            Err(error) => {
                parse_errors::report(braces.stream(), &error, errors);
                return Body::default();
            }
        };
        attributes::check_body(&inner, &stmts, braces.stream(), errors);
        if functions.is_broken {
            // Reported where the function is declared.
            return Body::default();
        }
        let mut tree = typeck::check(signature, &stmts, functions, Source::new(braces), errors);
        if !errors.is_empty() {
            return Body::default();
        }
        let own = (!functions.is_empty()).then(|| signature.ident.span().file());
        if self.attr.flush {
            tree.func.subnormals = Subnormals::Flushed;
        }
        let Ok(lowered) = lower::lower(&tree, self.attr.contract, own, errors) else { return Body::default() };
        let unsafe_blocks = std::mem::take(&mut tree.unsafe_blocks);
        let constant = |&index: &usize| Body::constant(&tree.constants[index], &tree.types, &self.krate);
        Body {
            ir: kernel_core::text::print(&lowered.func),
            files: source_lines::collect(&lowered.func, &self.tokens, braces, functions),
            consts: lowered.consts.iter().map(constant).collect(),
            scalars: lowered.scalars.iter().map(constant).collect(),
            unsafe_blocks,
            asked: std::mem::take(&mut tree.asked),
            asks_for_warps: lowered.func.const_params.iter().any(|param| param.origin == ConstOrigin::NumWarps),
            lints: lints::function(signature, &inner, &stmts, functions),
        }
    }
}

/// Whether an item is a function with a body, though one that may not be readable.
pub fn is_function(item: &TokenStream) -> bool {
    let has_name = item.clone().into_iter().any(|token| matches!(token, TokenTree::Ident(word) if word == "fn"));
    let last = item.clone().into_iter().last();
    has_name && matches!(last, Some(TokenTree::Group(body)) if body.delimiter() == Delimiter::Brace)
}
