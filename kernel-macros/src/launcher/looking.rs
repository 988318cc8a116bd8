//! Compiling without arguments, to look at: a request, and a struct of what it assumes of the arguments.
//!
//! ```ignore
//! #[derive(Clone, Copy, Debug, Default)]
//! pub struct AddAssumed { pub x: AssumedBuffer, pub out: AssumedBuffer, pub n: AssumedScalar }
//!
//! impl AddConsts {
//!     pub fn request<T: Num>(self) -> CompileRequest<AddAssumed> { .. }
//!     pub fn compile<T: Num>(self, target: Target) -> Result<CompiledKernel> { .. }
//! }
//! ```

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::ext::IdentExt;

use super::{Launcher, unused};
use crate::signature::{KernelParam, ParamTy, Passing};

impl Launcher<'_> {
    /// `request` and `compile` of the constexprs.
    pub(super) fn looking(&self, intact: bool) -> TokenStream {
        let (krate, generics) = (self.krate, self.dtype_generics());
        // What is part of the code: folded values, and whether there are arguments.
        let chosen = self.signature.params.iter().filter_map(|p| {
            let ident = &p.ident;
            match (p.ty, &p.passing) {
                (_, Passing::Optional | Passing::InPlace(_)) => {
                    Some((quote!(#ident: ::core::primitive::bool), quote!(.given(#ident))))
                }
                (Some(ParamTy::Const(_)), Passing::Always) => Some((self.param(p), quote!(.const_scalar(#ident)))),
                (_, Passing::Always) => None,
            }
        });
        let (params, args): (Vec<_>, Vec<_>) = chosen.unzip();
        let target = Ident::new("target", Span::mixed_site());
        let (unused, assumed) = (unused(intact), self.assumed_ty());
        let request = quote!(#krate::launch::CompileRequest::<#assumed>);
        let (filled, compiled) = match intact {
            true => {
                let filled = self.filled(&quote!(#request::new(Self::kernel())), &quote!(#(#args)*));
                (filled.clone(), quote!({ #filled }.compile(#target)))
            }
            false => (quote!(::core::unreachable!()), quote!(::core::unreachable!())),
        };
        quote! {
            /// Prepares to compile without arguments, with options of a launch, and with other assumptions than those
            /// of `compile`. For parameters that may be without an argument, `true` says that there is one.
            #unused
            pub fn request<#(#generics),*>(self, #(#params),*) -> #request {
                #filled
            }

            /// Compiles for a target without arguments, as if buffers were aligned to 16 bytes and their lengths and
            /// all integers divisible by 16. For parameters that may be without an argument, `true` says that
            /// there is one.
            ///
            /// # Errors
            /// What is wrong with the kernel for these constexprs and dtypes.
            #unused
            pub fn compile<#(#generics),*>(
                self,
                #target: #krate::Target,
                #(#params),*
            ) -> #krate::Result<#krate::launch::CompiledKernel> {
                #compiled
            }
        }
    }

    /// The struct of what is assumed; nothing for a kernel whose code knows no arguments.
    pub(super) fn assumed(&self, cfgs: &TokenStream) -> TokenStream {
        let known: Vec<&KernelParam> = self.known().collect();
        if known.is_empty() {
            return TokenStream::new();
        }
        let (krate, name, vis) = (self.krate, self.assumed_ty(), &self.signature.vis);
        let idents: Vec<&Ident> = known.iter().map(|param| &param.ident).collect();
        let fields = known.iter().map(|param| {
            let (ident, kind) = (&param.ident, assumed_kind(param));
            let doc = format!("Of the argument `{}`.", ident.unraw());
            quote!(#[doc = #doc] pub #ident: #krate::launch::#kind)
        });
        let doc =
            format!("What is assumed of the arguments of [`{}`] where it is compiled without.", self.signature.ident);
        quote! {
            #cfgs
            #[doc = #doc]
            #[derive(
                ::core::clone::Clone,
                ::core::marker::Copy,
                ::core::fmt::Debug,
                ::core::default::Default,
            )]
            #[allow(non_snake_case, non_camel_case_types, dead_code)]
            #vis struct #name { #(#fields),* }

            #cfgs
            #[allow(dead_code, clippy::all, clippy::pedantic)]
            impl #krate::launch::Assumes for #name {
                fn of_params(&self) -> ::std::vec::Vec<#krate::launch::Assumed> {
                    ::std::vec![#(::core::convert::Into::into(self.#idents)),*]
                }
            }
        }
    }

    /// The parameters of whose arguments the code may know something: all but those whose values are part of it.
    fn known(&self) -> impl Iterator<Item = &KernelParam> {
        self.signature.params.iter().filter(|param| !matches!(param.ty, Some(ParamTy::Const(_))))
    }

    fn assumed_ty(&self) -> TokenStream {
        match self.known().next() {
            Some(_) => {
                let name = self.struct_name("Assumed");
                quote!(#name)
            }
            None => quote!(()),
        }
    }
}

/// What can be assumed of the argument of a parameter.
fn assumed_kind(param: &KernelParam) -> Ident {
    let kind = match param.ty {
        Some(ParamTy::Ptr(_) | ParamTy::PtrMut(_)) => "AssumedBuffer",
        Some(ParamTy::Desc(..) | ParamTy::DescMut(..)) => "AssumedTensor",
        Some(ParamTy::Scalar(_) | ParamTy::Const(_)) | None => "AssumedScalar",
    };
    Ident::new(kind, Span::mixed_site())
}
