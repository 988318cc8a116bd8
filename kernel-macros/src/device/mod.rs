//! `#[device]`: functions that kernels and other functions inline, and structs that they pass on.
//!
//! A macro sees only the item that it stands on. So each function exports its tokens through a `macro_rules!` of the same
//! name, which is imported, re-exported and hidden as the function is, and a body that calls functions is expanded in
//! several steps: it becomes a call of the first function's macro, which hands its tokens, and all that it was given, to
//! [`inline`], which goes on with the next, until all are known.
//!
//! ```text
//! #[kernel] fn k(..) { silu(x) }     =>  silu! { {inline} kernel {attr} {fn k ..} {} {} }
//! macro_rules! silu of #[device]     =>  inline! { {bundle of silu} kernel {attr} {fn k ..} {} {} }
//! inline                             =>  the launcher
//! ```
//!
//! What such a body names is not visible to the kernel. Functions and structs travel along; of each constant the function
//! exports a copy, as a field of what a `const fn` of its name gives, which is imported as the macro is.
//!
//! `#[device]` collects what its function calls in the same way before it exports it: names mean what they mean in the
//! function's own module, and a function that calls itself can never be exported.

pub mod bundle;
pub mod collect;
pub mod export;
pub mod function;
pub mod methods;
pub mod record;

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::quote;
use syn::parse::Parser;
use syn::{ItemStruct, Path, Token};

use self::bundle::{Functions, group, macro_path};
use self::export::Export;
pub use self::export::text;
use self::function::Function;
use crate::error::Errors;
use crate::signature::KernelItem;
use crate::source::Source;
use crate::source_range::SourceRange;
use crate::tree::Constant;
use crate::{attributes, expand, guard, launcher, lints, parse_errors, typeck};

/// Functions that a body calls, with their bundles.
pub type Found = Vec<(Path, TokenStream)>;

/// What is expanded in steps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A kernel.
    Kernel,
    /// A function.
    Device,
}

/// An expansion that waits for functions.
struct State {
    owner: Owner,
    attr: TokenStream,
    item: TokenStream,
    /// The functions that are still to be found.
    pending: Vec<Path>,
    found: Found,
}

/// The first step: finds the functions that the body calls, if there are any.
pub fn begin(owner: Owner, attr: &TokenStream, item: &TokenStream) -> Option<TokenStream> {
    let mut errors = Errors::default();
    if guard::check(attr.clone(), &mut errors).is_err() || guard::check(item.clone(), &mut errors).is_err() {
        return None;
    }
    if owner == Owner::Device && methods::is_impl(item) {
        let state = State {
            owner,
            attr: attr.clone(),
            item: item.clone(),
            pending: methods::pending(item)?,
            found: Found::new(),
        };
        let (proof, steps) = (methods::proof(item), state.next());
        return Some(quote!(#proof #steps));
    }
    let (ident, mut pending) = if owner == Owner::Device && record::is_struct(item) {
        let read = syn::parse2::<ItemStruct>(item.clone()).ok()?;
        let fields = collect::fields(&read);
        (read.ident, fields)
    } else {
        let read = syn::parse2::<KernelItem>(item.clone()).ok()?;
        let (_, stmts) = function::body(&read.body).ok()?;
        let calls = collect::calls(owner, &read.sig, &stmts);
        (read.sig.ident, calls)
    };
    if owner == Owner::Device {
        // A function that calls itself is refused by whoever finds none for the call.
        pending.retain(|path| path.get_ident() != Some(&ident));
    }
    let state = State { owner, attr: attr.clone(), item: item.clone(), pending, found: Found::new() };
    (!state.pending.is_empty()).then(|| state.next())
}

impl State {
    /// Asks the macro of the next function, or finishes.
    fn next(mut self) -> TokenStream {
        if self.pending.is_empty() {
            return match self.owner {
                Owner::Kernel => expand::finish(self.attr, self.item, &self.found),
                Owner::Device => finish(self.attr, self.item, &self.found),
            };
        }
        let path = self.pending.remove(0);
        let (name, krate) = (invoked(&path), self.krate());
        let owner = Ident::new(if self.owner == Owner::Kernel { "kernel" } else { "device" }, Span::call_site());
        let (attr, item, pending) = (self.attr, self.item, self.pending);
        let (paths, bundles): (Vec<Path>, Vec<TokenStream>) = self.found.into_iter().unzip();
        quote! {
            #name! {
                { #krate::inline_device_function } #owner { #attr } { #item }
                { (#path) #((#pending))* } { #((#paths) { #bundles })* }
            }
        }
    }

    fn krate(&self) -> TokenStream {
        krate(&self.attr)
    }
}

/// Macros that are in scope everywhere.
const EVERYWHERE: [&str; 40] = [
    "assert",
    "assert_eq",
    "assert_ne",
    "cfg",
    "column",
    "compile_error",
    "concat",
    "dbg",
    "debug_assert",
    "debug_assert_eq",
    "debug_assert_ne",
    "env",
    "eprint",
    "eprintln",
    "file",
    "format",
    "format_args",
    "include",
    "include_bytes",
    "include_str",
    "is_x86_feature_detected",
    "line",
    "matches",
    "module_path",
    "option_env",
    "panic",
    "print",
    "println",
    "stringify",
    "thread_local",
    "todo",
    "try",
    "unimplemented",
    "unreachable",
    "vec",
    "write",
    "writeln",
    "concat_bytes",
    "concat_idents",
    "trace_macros",
];

/// The macro that a path names.
///
/// A name alone is not enough where a macro of Rust has it too: that of a function, which a macro has made, may not take its
/// place.
fn invoked(path: &Path) -> TokenStream {
    let named = macro_path(path);
    let everywhere = path.get_ident().is_some_and(|name| EVERYWHERE.iter().any(|known| name == known));
    if everywhere { quote!(self::#named) } else { named }
}

fn krate(attr: &TokenStream) -> TokenStream {
    let krate = match arguments(attr, &mut Errors::default()).krate {
        Some(path) => Some(path),
        None => crate::attr::parse(attr.clone(), &mut Errors::default()).krate,
    };
    match krate {
        Some(path) => quote!(#path),
        None => quote!(::tilewright),
    }
}

/// A further step: `{bundle} owner {attr} {item} {path of the bundle, paths to come} {paths and bundles so far}`.
pub fn inline(tokens: TokenStream) -> TokenStream {
    let Some((state, bundle)) = read_state(tokens) else {
        let message = "this macro belongs to `#[device]`: a function is called inside kernels, as `name(..)`";
        return quote!(::core::compile_error! { #message });
    };
    let State { owner, attr, item, mut pending, mut found } = state;
    found.push((pending.remove(0), bundle));
    State { owner, attr, item, pending, found }.next()
}

fn read_state(tokens: TokenStream) -> Option<(State, TokenStream)> {
    let mut tokens = tokens.into_iter();
    let mut stream = || tokens.next();
    let bundle = group(stream()?)?.stream();
    let owner = if stream()?.to_string() == "kernel" { Owner::Kernel } else { Owner::Device };
    let (attr, item) = (group(stream()?)?.stream(), group(stream()?)?.stream());
    let path = |token| syn::parse2::<Path>(group(token)?.stream()).ok();
    let pending: Option<Vec<Path>> = group(stream()?)?.stream().into_iter().map(path).collect();
    let done: Vec<TokenTree> = group(stream()?)?.stream().into_iter().collect();
    let pair = |pair: &[TokenTree]| match pair {
        [name, bundle] => Some((path(name.clone())?, group(bundle.clone())?.stream())),
        _ => None,
    };
    let found: Option<Found> = done.chunks(2).map(pair).collect();
    let pending = pending.filter(|paths| !paths.is_empty())?;
    Some((State { owner, attr, item, pending, found: found? }, bundle))
}

/// Expands `#[device(attr)] item`.
pub fn expand(attr: TokenStream, item: TokenStream) -> TokenStream {
    begin(Owner::Device, &attr, &item).unwrap_or_else(|| finish(attr, item, &Found::new()))
}

/// The last step: checks the function and exports it.
fn finish(attr: TokenStream, item: TokenStream, found: &Found) -> TokenStream {
    let mut errors = Errors::default();
    let tokens = finish_into(attr, item, found, &mut errors).map(|exported| exported.tokens);
    let messages = errors.to_tokens();
    quote!(#tokens #messages)
}

/// What a function becomes.
pub struct Exported {
    /// Its items.
    pub tokens: TokenStream,
    /// Itself and what it calls.
    #[cfg_attr(not(test), allow(dead_code))]
    pub bundle: TokenStream,
}

/// Checks and exports a function, and collects mistakes in `errors`.
pub fn finish_into(attr: TokenStream, item: TokenStream, found: &Found, errors: &mut Errors) -> Option<Exported> {
    if guard::check(attr.clone(), errors).is_err() || guard::check(item.clone(), errors).is_err() {
        return None;
    }
    let arguments = arguments(&attr, errors);
    if record::is_struct(&item) {
        return finish_struct(&attr, item, arguments.methods.is_some(), found, errors);
    }
    if let Some(word) = arguments.methods {
        let help = "it stands on the struct that has them";
        errors.report_help(SourceRange::at(word.span()), "only a struct has methods", help);
        return None;
    }
    if methods::is_impl(&item) {
        return methods::finish(&attr, item, found, errors);
    }
    let read = match syn::parse2::<KernelItem>(item.clone()) {
        Ok(read) if read.sig.receiver().is_none() => read,
        Ok(read) => {
            let place = SourceRange::of_tokens(&read.sig.receiver());
            let help = "put `#[device]` in front of the `impl`, and `#[device(methods)]` in front of its struct";
            errors.report_help(place, "a `#[device]` function has no `self`", help);
            return None;
        }
        Err(error) if expand::is_function(&item) => {
            parse_errors::report(item, &error, errors);
            return None;
        }
        Err(error) => {
            let message = format!("`#[device]` belongs on a function or a struct: {error}");
            errors.report_help(SourceRange::at(error.span()), message, "write `fn name(..) -> .. { .. }`");
            return None;
        }
    };
    let name = read.sig.ident.to_string();
    if collect::is_operation(&name) {
        let message = format!("`{name}` is an operation, which a function cannot be called");
        errors.report_help(SourceRange::at(read.sig.ident.span()), message, "give it another name");
    }
    attributes::check_function(&read.attrs, errors);
    let (attrs, vis, sig) = (read.attrs.clone(), read.vis.clone(), read.sig.clone());
    let krate = krate(&attr);
    let exported = export::function(&vis, &sig.ident, &krate);
    let head = Export {
        attrs: &attrs,
        vis: &vis,
        ident: &sig.ident,
        written: export::declaration(&sig),
        item: exported,
        krate: &krate,
    };
    let read = |key: &str, calls, errors: &mut Errors| function::read(key, read, calls, errors);
    Some(finish_read(read, &head, &item, found, errors))
}

/// Checks and exports a struct.
fn finish_struct(
    attr: &TokenStream,
    item: TokenStream,
    has_methods: bool,
    found: &Found,
    errors: &mut Errors,
) -> Option<Exported> {
    let read = match syn::parse2::<ItemStruct>(item.clone()) {
        Ok(read) => read,
        Err(error) => {
            parse_errors::report(item, &error, errors);
            return None;
        }
    };
    let (attrs, vis, ident) = (read.attrs.clone(), read.vis.clone(), read.ident.clone());
    let krate = krate(attr);
    let (written, exported) = (export::declaration_of_struct(&read), export::record(&vis, &ident, &krate));
    // rustc has evaluated these where the struct stands.
    let known = |attr: &&syn::Attribute| !attr.path().is_ident("derive") && !attr.path().is_ident("repr");
    let attrs: Vec<syn::Attribute> = attrs.iter().filter(known).cloned().collect();
    let head = Export { attrs: &attrs, vis: &vis, ident: &ident, written, item: exported, krate: &krate };
    let read = |key: &str, calls, errors: &mut Errors| record::read(key, read, calls, errors);
    let exported = finish_read(read, &head, &item, found, errors);
    if !has_methods {
        return Some(exported);
    }
    let tokens = methods::of_struct(&head, &exported.bundle);
    Some(Exported { tokens, ..exported })
}

/// Checks and exports what `read` reads.
fn finish_read(
    read: impl FnOnce(&str, function::Calls, &mut Errors) -> Option<Function>,
    head: &Export<'_>,
    item: &TokenStream,
    found: &Found,
    errors: &mut Errors,
) -> Exported {
    let (before, functions) = (errors.list().len(), Functions::read(found));
    let calls = functions.calls.as_ref().clone();
    let (mut checks, mut constants) = (TokenStream::new(), Vec::new());
    let key = export::key(head.ident, item);
    if let Some(function) = read(&key.to_string(), calls, errors)
        && errors.list().len() == before
        && !functions.is_broken
    {
        let source = Source::new(&function.braces);
        let found = typeck::check_function(&function, &functions, source, errors);
        let blocks = launcher::unsafe_blocks(&found.unsafe_blocks);
        if errors.list().len() == before {
            let constant = |constant: &Constant| {
                (constant.field.clone(), launcher::Body::constant(constant, &found.types, head.krate))
            };
            constants = found.constants.iter().map(constant).collect();
        }
        if errors.list().len() == before && !function.is_struct {
            let lints = lints::device_function(&function, &functions);
            let asked = &found.asked;
            checks = quote! {
                #[allow(dead_code, non_snake_case)]
                const _: () = { #blocks #lints #asked };
            };
        }
    }
    let is_right = errors.list().len() == before;
    let inlined = if is_right { item.clone() } else { TokenStream::new() };
    let bundle = bundle::write(&key, &inlined, found);
    let items = head.tokens(&key, &bundle, &constants);
    Exported { tokens: quote!(#items #checks), bundle }
}

/// What `#[device(..)]` says.
#[derive(Default)]
struct Arguments {
    /// `crate = path`: where the facade lives.
    krate: Option<Path>,
    /// `methods`: an `impl` of the same module has some.
    methods: Option<Ident>,
}

/// `#[device]` takes where the facade lives and, on a struct, whether it has methods.
fn arguments(attr: &TokenStream, errors: &mut Errors) -> Arguments {
    let mut arguments = Arguments::default();
    let parse = |input: syn::parse::ParseStream<'_>| {
        while !input.is_empty() {
            if input.peek(Token![crate]) {
                input.parse::<Token![crate]>()?;
                input.parse::<Token![=]>()?;
                arguments.krate = Some(input.call(Path::parse_mod_style)?);
            } else {
                let word = input.parse::<Ident>()?;
                if word != "methods" {
                    return Err(syn::Error::new(word.span(), "neither `crate` nor `methods`"));
                }
                arguments.methods = Some(word);
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(())
    };
    if let Err(error) = parse.parse2(attr.clone()) {
        let noinline = attr.clone().into_iter().any(|token| token.to_string() == "noinline");
        let help = match noinline {
            true => "functions are always inlined, so that a kernel in pieces is as fast as one in one piece",
            false => "launch options belong to `#[kernel]`",
        };
        let message = "`#[device]` takes `crate = path` and, on a struct, `methods` at most";
        errors.report_help(SourceRange::at(error.span()), message, help);
    }
    arguments
}
