//! The typed launcher: a function with the kernel's name, and a struct of its constexprs.
//!
//! It follows from the signature alone, so call sites type-check even when the body is wrong, or calls a function that
//! does not exist and is never expanded. What the body adds is an `impl` of its own: the kernel with its IR, and how the
//! constants of the user's crate are handed over. Without that `impl` the trait `WithoutBody` has them.

mod looking;
mod named;
mod space;

use kernel_core::ir::{ConstTy, DType, DTypeBound, Dt};
use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;

use crate::attr::KernelAttr;
use crate::lints;
use crate::names::camel_case;
use crate::signature::{Generic, KernelParam, ParamTy, Passing, Signature};
use crate::source_lines::Lines;
use crate::source_range::SourceRange;
use crate::tree::Constant;
use crate::typeck::UnsafeBlock;
use crate::types::{DtRef, Types};

/// The warps of a kernel whose code depends on their number, where nobody chooses one.
const WARPS_WHERE_ASKED: u32 = 4;

/// What the body adds to the launcher.
#[derive(Default)]
pub struct Body {
    /// The IR as text; empty if the body is wrong.
    pub ir: String,
    /// Source files with lines: the kernel's own, whose name is not known here, then those of functions.
    pub files: Vec<(String, Lines)>,
    /// Constants of the user's crate: type and expression. First those that are constexprs, in order.
    pub consts: Vec<(TokenStream, TokenStream)>,
    /// Then those that are folded parameters.
    pub scalars: Vec<(TokenStream, TokenStream)>,
    /// `unsafe` blocks.
    pub unsafe_blocks: Vec<UnsafeBlock>,
    /// What rustc is asked about constants, as items.
    pub asked: TokenStream,
    /// Whether the code depends on the number of warps.
    pub asks_for_warps: bool,
    /// The body once more, for rustc's lints.
    pub lints: TokenStream,
}

impl Body {
    /// The type (for rustc to check) and the expression of a constant.
    pub fn constant(constant: &Constant, types: &Types, krate: &TokenStream) -> (TokenStream, TokenStream) {
        let ty = match (constant.shape, types.settled(constant.dt)) {
            (Some(_), _) => quote!(::core::primitive::usize),
            (None, Dt::Known(dtype)) => dtype_path(dtype, krate, constant.place.start),
            (None, Dt::Param(_)) => quote!(::core::primitive::i64),
        };
        debug_assert!(matches!(constant.dt, DtRef::Fixed(_) | DtRef::Var(_)));
        (ty, constant.tokens.clone())
    }
}

fn dtype_path(dtype: DType, krate: &TokenStream, span: Span) -> TokenStream {
    let ident = Ident::new(dtype.name(), span);
    match dtype {
        DType::F8E4M3 => quote_spanned!(span=> #krate::prelude::F8E4M3),
        DType::F8E5M2 => quote_spanned!(span=> #krate::prelude::F8E5M2),
        DType::F16 | DType::BF16 => quote_spanned!(span=> #krate::prelude::#ident),
        _ => quote_spanned!(span=> ::core::primitive::#ident),
    }
}

struct Launcher<'a> {
    signature: &'a Signature,
    krate: &'a TokenStream,
    lifetime: syn::Lifetime,
}

/// The launcher's items. `intact` says whether the signature has no mistake; else the functions have no bodies.
pub fn emit(signature: &Signature, krate: &TokenStream, intact: bool) -> TokenStream {
    let launcher = Launcher::new(signature, krate);
    let Signature { vis, ident, attrs, .. } = signature;
    let cfgs = cfgs(signature);
    let consts = launcher.consts_name();
    let fields = signature.consts().map(|(name, _, ty)| {
        let doc = format!("The constexpr `{name}`.");
        quote!(#[doc = #doc] pub #name: #ty)
    });
    let doc = format!("Constexprs of [`{ident}`].");
    let (function, constructor) = (launcher.function(attrs, intact), launcher.constructor());
    let call = launcher.call(intact);
    let looking = launcher.looking(intact);
    let assumed = launcher.assumed(&cfgs);
    let named = launcher.named(&cfgs, intact);
    let space = launcher.space(&cfgs, intact);
    quote! {
        #function

        #cfgs
        #[doc = #doc]
        #[derive(
            ::core::clone::Clone,
            ::core::marker::Copy,
            ::core::fmt::Debug,
            ::core::cmp::PartialEq,
            ::core::cmp::Eq,
            ::core::hash::Hash,
        )]
        #[allow(non_snake_case, non_camel_case_types, dead_code)]
        #vis struct #consts { #(#fields),* }

        #cfgs
        #[allow(dead_code, non_snake_case, clippy::all, clippy::pedantic)]
        impl #consts {
            #constructor
            #call
            #looking
        }

        #named
        #assumed
        #space
    }
}

/// What the body adds to the launcher.
pub fn emit_body(signature: &Signature, attr: &KernelAttr, krate: &TokenStream, body: &Body) -> TokenStream {
    let launcher = Launcher::new(signature, krate);
    let (cfgs, consts) = (cfgs(signature), launcher.consts_name());
    let kernel = launcher.kernel(attr, body);
    let handed = launcher.handed(body);
    let constants = constants(body);
    let (unsafe_blocks, lints, asked) = (unsafe_blocks(&body.unsafe_blocks), &body.lints, &body.asked);
    let asked = (!asked.is_empty()).then(|| {
        quote! {
            #cfgs
            #[allow(clippy::all, clippy::nursery, clippy::pedantic, clippy::restriction)]
            const _: () = { #asked };
        }
    });
    quote! {
        #cfgs
        #[allow(dead_code, non_snake_case, clippy::all, clippy::pedantic)]
        impl #consts {
            #kernel
            #handed
            #constants
            #unsafe_blocks
            #lints
        }

        #asked
    }
}

/// The conditions under which the kernel exists.
fn cfgs(signature: &Signature) -> TokenStream {
    let cfgs = signature.attrs.iter().filter(|a| a.path().is_ident("cfg"));
    quote!(#(#cfgs)*)
}

/// Associated constants through which rustc checks the types of the user's constants, once each, on the user's tokens.
fn constants(body: &Body) -> TokenStream {
    let all = body.consts.iter().chain(&body.scalars).enumerate();
    let items = all.map(|(i, (ty, tokens))| {
        let name = constant_name(i);
        quote!(const #name: #ty = #tokens;)
    });
    quote!(#(#items)*)
}

/// The user's `unsafe` blocks again, so that rustc warns of those that nothing needs, and refuses them where the user's
/// crate forbids `unsafe`.
pub fn unsafe_blocks(blocks: &[UnsafeBlock]) -> TokenStream {
    let items = blocks.iter().enumerate().map(|(i, UnsafeBlock { attrs, token, braces, is_used })| {
        let name = Ident::new(&format!("UNSAFE_{i}"), Span::mixed_site());
        let needs_it = is_used.then(|| quote!(promised()));
        // Lints pass over what is not the user's own, and a block ends with its brace.
        let mut block = Group::new(Delimiter::Brace, quote!(#needs_it));
        block.set_span(*braces);
        quote! {
            const #name: () = {
                #[allow(dead_code)]
                const unsafe fn promised() {}
                #(#attrs)*
                #token #block
            };
        }
    });
    quote!(#(#items)*)
}

/// A function without a body uses no parameter.
fn unused(intact: bool) -> TokenStream {
    if intact { TokenStream::new() } else { quote!(#[allow(unused_variables)]) }
}

fn constant_name(index: usize) -> Ident {
    Ident::new(&format!("CONSTANT_{index}"), Span::mixed_site())
}

impl<'a> Launcher<'a> {
    fn new(signature: &'a Signature, krate: &'a TokenStream) -> Self {
        let lifetime = syn::Lifetime::new("'buffers", Span::mixed_site());
        Launcher { signature, krate, lifetime }
    }

    fn consts_name(&self) -> Ident {
        self.struct_name("Consts")
    }

    /// The name of a struct beside the function.
    fn struct_name(&self, of: &str) -> Ident {
        let name = format!("{}{of}", camel_case(&self.signature.ident.to_string()));
        Ident::new(&name, self.signature.ident.span())
    }

    fn dt(&self, dt: Dt, span: Span) -> TokenStream {
        match dt {
            Dt::Known(dtype) => dtype_path(dtype, self.krate, span),
            Dt::Param(id) => match self.signature.dtype_ident(id) {
                Some(ident) => quote!(#ident),
                None => quote!(::core::primitive::f32),
            },
        }
    }

    /// The path of the facade, on the user's tokens: rustc's notes about a bound then point there.
    fn krate_at(&self, span: Span) -> TokenStream {
        let at = |mut tree: TokenTree| {
            // `$crate` names its crate through its span.
            if !matches!(&tree, TokenTree::Ident(ident) if ident == "$crate") {
                tree.set_span(span);
            }
            tree
        };
        self.krate.clone().into_iter().map(at).collect()
    }

    /// `T: Num`
    fn dtype_generic(&self, ident: &Ident, bound: DTypeBound, place: SourceRange) -> TokenStream {
        let krate = self.krate_at(place.start);
        let bound = Ident::new(bound.name(), place.end);
        let separator = quote_spanned!(place.start=> ::);
        quote!(#ident: #krate #separator #bound)
    }

    /// `T: Num` for each dtype parameter.
    fn dtype_generics(&self) -> Vec<TokenStream> {
        let one = |generic: &Generic| match generic {
            Generic::Dtype(ident, bound, place) => Some(self.dtype_generic(ident, *bound, *place)),
            Generic::Const(..) => None,
        };
        self.signature.generics.iter().filter_map(one).collect()
    }

    /// Generic parameters in the order of the source, but for those that have defaults.
    fn all_generics(&self) -> Vec<TokenStream> {
        let one = |generic: &Generic| {
            Some(match generic {
                Generic::Dtype(ident, bound, place) => self.dtype_generic(ident, *bound, *place),
                Generic::Const(ident, _, ty, None) => quote!(const #ident: #ty),
                Generic::Const(.., Some(_)) => return None,
            })
        };
        self.signature.generics.iter().filter_map(one).collect()
    }

    /// `PtrArg<'buffers, T>` on the tokens of `Ptr<T>`, `DescArg<'buffers, T, 2>` on those of `TensorDesc<T, { [M, N] }>`:
    /// what the argument implements; `None` for scalars, whose type is known.
    fn bound(&self, param: &KernelParam) -> Option<TokenStream> {
        let SourceRange { start, end, .. } = param.place;
        let (name, dt, rank) = match (param.ty?, &param.passing) {
            (ParamTy::Ptr(dt), Passing::Always) => ("PtrArg", dt, None),
            (ParamTy::Ptr(dt), Passing::Optional) => ("OptionalPtrArg", dt, None),
            (ParamTy::Ptr(dt), Passing::InPlace(_)) => ("InPlaceArg", dt, None),
            (ParamTy::PtrMut(dt), Passing::Optional) => ("OptionalPtrMutArg", dt, None),
            (ParamTy::PtrMut(dt), _) => ("PtrMutArg", dt, None),
            (ParamTy::Desc(dt, rank), Passing::Optional) => ("OptionalDescArg", dt, Some(rank)),
            (ParamTy::Desc(dt, rank), _) => ("DescArg", dt, Some(rank)),
            (ParamTy::DescMut(dt, rank), Passing::Optional) => ("OptionalDescMutArg", dt, Some(rank)),
            (ParamTy::DescMut(dt, rank), _) => ("DescMutArg", dt, Some(rank)),
            (ParamTy::Scalar(_) | ParamTy::Const(_), _) => return None,
        };
        let (krate, dt, rank) = (self.krate_at(start), self.dt(dt, end), rank.into_iter());
        let mut lifetime = self.lifetime.clone();
        lifetime.apostrophe = start;
        let name = Ident::new(name, start);
        let open = quote_spanned!(start=> #krate::launch::#name<#lifetime, #dt #(, #rank)*);
        let close = quote_spanned!(end=> >);
        Some(quote!(#open #close))
    }

    fn turbofish(&self) -> TokenStream {
        let idents: Vec<&Ident> = self.signature.dtypes().map(|(ident, _)| ident).collect();
        if idents.is_empty() { TokenStream::new() } else { quote!(::<#(#idents),*>) }
    }

    fn param(&self, param: &KernelParam) -> TokenStream {
        let ident = &param.ident;
        let ty = match (self.bound(param), self.scalar_ty(param)) {
            (Some(bound), _) => quote_spanned!(param.place.start=> impl #bound),
            (None, Some(ty)) => ty,
            (None, None) => quote!(impl ::core::marker::Sized),
        };
        quote!(#ident: #ty)
    }

    /// The type of a scalar.
    fn scalar_ty(&self, param: &KernelParam) -> Option<TokenStream> {
        let dt = self.dt(self.scalar(param)?, param.place.start);
        Some(match param.passing {
            Passing::Optional => quote_spanned!(param.place.start=> ::core::option::Option<#dt>),
            Passing::Always | Passing::InPlace(_) => dt,
        })
    }

    /// The dtype of a scalar.
    fn scalar(&self, param: &KernelParam) -> Option<Dt> {
        match param.ty? {
            ParamTy::Scalar(dt) | ParamTy::Const(dt) => Some(dt),
            ParamTy::Ptr(_) | ParamTy::PtrMut(_) | ParamTy::Desc(..) | ParamTy::DescMut(..) => None,
        }
    }

    fn params(&self) -> Vec<TokenStream> {
        self.signature.params.iter().map(|p| self.param(p)).collect()
    }

    fn call_ty(&self) -> TokenStream {
        let (krate, lifetime, consts) = (self.krate, &self.lifetime, self.consts_name());
        let name = Ident::new(if self.signature.is_unsafe { "UnsafeCall" } else { "Call" }, Span::mixed_site());
        quote!(#krate::launch::#name<#lifetime, #consts>)
    }

    /// The function with the kernel's name.
    fn function(&self, attrs: &[syn::Attribute], intact: bool) -> TokenStream {
        let Signature { vis, ident, .. } = self.signature;
        let (lifetime, generics, params, result) = (&self.lifetime, self.all_generics(), self.params(), self.call_ty());
        let consts = self.consts();
        let args = self.signature.params.iter().map(|p| &p.ident);
        let turbofish = self.turbofish();
        let body = if intact { quote!(#consts.call #turbofish (#(#args),*)) } else { quote!(::core::unreachable!()) };
        let docs = if attrs.iter().any(|a| a.path().is_ident("doc")) {
            TokenStream::new()
        } else {
            let doc = format!("Prepares a launch of the kernel `{ident}`.");
            quote!(#[doc = #doc])
        };
        let attrs = attrs.iter().filter_map(lints::about_launcher);
        let unused = unused(intact);
        quote! {
            #(#attrs)*
            #docs
            #[allow(clippy::too_many_arguments, clippy::extra_unused_lifetimes, dead_code, non_snake_case)]
            #unused
            #vis fn #ident<#lifetime, #(#generics),*>(#(#params),*) -> #result {
                #body
            }
        }
    }

    /// The constexprs without defaults, in order.
    fn needed(&self) -> impl Iterator<Item = (&Ident, &TokenStream)> {
        self.signature.generics.iter().filter_map(|generic| match generic {
            Generic::Const(ident, _, ty, None) => Some((ident, ty)),
            Generic::Dtype(..) | Generic::Const(.., Some(_)) => None,
        })
    }

    /// The struct of the constexprs, of variables with their names.
    fn consts(&self) -> TokenStream {
        let consts = self.consts_name();
        let names = self.needed().map(|(name, _)| name);
        match self.signature.defaults().next() {
            Some(_) => quote!(#consts::new(#(#names),*)),
            None => quote!(#consts { #(#names),* }),
        }
    }

    /// `new`, which takes the constexprs without defaults.
    fn constructor(&self) -> TokenStream {
        if self.signature.defaults().next().is_none() {
            return TokenStream::new();
        }
        let params = self.needed().map(|(name, ty)| quote!(#name: #ty));
        let values = self.signature.defaults().map(|(name, ty, default)| quote!(let #name: #ty = #default;));
        let names = self.signature.consts().map(|(name, ..)| name);
        let consts = self.consts_name();
        let doc = format!("The constexprs with the defaults of [`{}`].", self.signature.ident);
        quote! {
            #[doc = #doc]
            pub const fn new(#(#params),*) -> Self {
                #(#values)*
                #consts { #(#names),* }
            }
        }
    }

    /// `.dtype::<T>().constant(..)`
    fn keys(&self) -> TokenStream {
        let dtypes = self.signature.dtypes().map(|(ident, _)| quote!(.dtype::<#ident>()));
        let consts = self.signature.consts().map(|(name, ty, _)| match ty {
            ConstTy::Int(_) | ConstTy::Bool => {
                quote!(.constant(self.#name as ::core::primitive::i64))
            }
        });
        quote!(#(#dtypes)* #(#consts)*)
    }

    /// Functions that hand over the constants of the user's crate: those that have become constexprs, and those that
    /// have become folded parameters.
    fn handed(&self, body: &Body) -> TokenStream {
        let krate = self.krate;
        let (taker, own) = (Ident::new("taker", Span::mixed_site()), body.consts.len());
        let consts = (0..own).map(constant_name);
        let scalars = (own..own + body.scalars.len()).map(constant_name);
        quote! {
            fn constants<T: #krate::launch::TakesConstants>(#taker: T) -> T {
                #taker #(.constant(Self::#consts as ::core::primitive::i64))*
            }

            fn scalars<T: #krate::launch::TakesConstants>(#taker: T) -> T {
                #taker #(.const_scalar(Self::#scalars))*
            }
        }
    }

    /// A call or a request with all that it takes.
    fn filled(&self, new: &TokenStream, args: &TokenStream) -> TokenStream {
        let (krate, keys) = (self.krate, self.keys());
        quote! {
            #[allow(unused_imports)]
            use #krate::launch::WithoutBody as _;
            Self::scalars(Self::constants(#new #keys) #args)
        }
    }

    fn call(&self, intact: bool) -> TokenStream {
        let (krate, lifetime, generics, params) = (self.krate, &self.lifetime, self.dtype_generics(), self.params());
        let result = self.call_ty();
        let name = Ident::new(if self.signature.is_unsafe { "UnsafeCall" } else { "Call" }, Span::mixed_site());
        let args = self.signature.params.iter().map(|p| {
            let ident = &p.ident;
            let method = match (p.ty, &p.passing) {
                (Some(ParamTy::Ptr(_)), Passing::InPlace(_)) => "ptr_or_in_place",
                (Some(ParamTy::Ptr(_)), Passing::Optional) => "optional_ptr",
                (Some(ParamTy::Ptr(_)), Passing::Always) => "ptr",
                (Some(ParamTy::PtrMut(_)), Passing::Optional) => "optional_ptr_mut",
                (Some(ParamTy::PtrMut(_)), _) => "ptr_mut",
                (Some(ParamTy::Desc(..)), Passing::Optional) => "optional_desc",
                (Some(ParamTy::Desc(..)), _) => "desc",
                (Some(ParamTy::DescMut(..)), Passing::Optional) => "optional_desc_mut",
                (Some(ParamTy::DescMut(..)), _) => "desc_mut",
                (Some(ParamTy::Const(_)), _) => "const_scalar",
                (Some(ParamTy::Scalar(_)) | None, Passing::Optional) => "optional_scalar",
                (Some(ParamTy::Scalar(_)) | None, _) => "scalar",
            };
            let method = Ident::new(method, Span::mixed_site());
            quote!(.#method(#ident))
        });
        let body = if intact {
            self.filled(&quote!(#krate::launch::#name::new(Self::kernel(), self)), &quote!(#(#args)*))
        } else {
            quote!(::core::unreachable!())
        };
        let doc = format!("Prepares a launch of [`{}`] with these constexprs.", self.signature.ident);
        let unused = unused(intact);
        quote! {
            #[doc = #doc]
            #unused
            pub fn call<#lifetime, #(#generics),*>(self, #(#params),*) -> #result {
                #body
            }
        }
    }

    fn kernel(&self, attr: &KernelAttr, body: &Body) -> TokenStream {
        let krate = self.krate;
        let name = self.signature.ident.unraw().to_string();
        let ir = &body.ir;
        let file = |(index, (name, lines)): (usize, &(String, Lines))| {
            let lines = lines.iter().map(|(line, text)| quote!((#line, #text)));
            let name = if index == 0 { quote!(::core::file!()) } else { quote!(#name) };
            quote!(#krate::launch::SourceFile { name: #name, lines: &[#(#lines),*] })
        };
        let unread = [(String::new(), Vec::new())];
        let files = if body.files.is_empty() { unread.as_slice() } else { &body.files };
        let files = files.iter().enumerate().map(file);
        let option = |value: Option<u32>| match value {
            Some(value) => quote!(::core::option::Option::Some(#value)),
            None => quote!(::core::option::Option::None),
        };
        // The largest tile cannot decide where tiles depend on the warps.
        let asked = body.asks_for_warps.then_some(WARPS_WHERE_ASKED);
        let (num_warps, num_stages) = (option(attr.num_warps.or(asked)), option(attr.num_stages));
        let max_registers = option(attr.max_registers);
        quote! {
            fn kernel() -> &'static #krate::launch::Kernel {
                static KERNEL: #krate::launch::Kernel = #krate::launch::Kernel::new(#krate::launch::KernelSource {
                    name: #name,
                    module: ::core::module_path!(),
                    files: &[#(#files),*],
                    ir: #ir,
                    num_warps: #num_warps,
                    num_stages: #num_stages,
                    max_registers: #max_registers,
                });
                &KERNEL
            }
        }
    }
}
