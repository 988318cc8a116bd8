//! The arguments by name: a struct whose fields are the kernel's parameters.
//!
//! ```ignore
//! pub struct AddArgs<XArg, OutArg> { pub x: XArg, pub out: OutArg, pub n: i32 }
//!
//! impl<XArg, OutArg> AddArgs<XArg, OutArg> {
//!     pub fn call<'buffers, T: Num>(self, consts: AddConsts) -> Call<'buffers, AddConsts>
//!     where XArg: PtrArg<'buffers, T>, OutArg: PtrMutArg<'buffers, T> { .. }
//! }
//! ```

use kernel_core::ir::Dt;
use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::ext::IdentExt;

use super::{Launcher, unused};
use crate::names::camel_case;
use crate::signature::KernelParam;

impl Launcher<'_> {
    /// The struct of the arguments, which prepares a launch; nothing for a kernel without parameters.
    pub(super) fn named(&self, cfgs: &TokenStream, intact: bool) -> TokenStream {
        let params = &self.signature.params;
        if params.is_empty() {
            return TokenStream::new();
        }
        let (name, own) = (self.struct_name("Args"), self.own_types());
        let fields = params.iter().zip(&own).map(|(param, own)| {
            let (ident, ty) = (&param.ident, self.field(param, own.as_ref()));
            let doc = format!("The argument `{}`.", ident.unraw());
            quote!(#[doc = #doc] pub #ident: #ty)
        });
        // Dtypes of scalars are parameters of the struct, the others of the method.
        let dtypes = self.signature.dtypes().map(|(ident, _)| ident).zip(self.dtype_generics()).enumerate();
        let (outer, inner): (Vec<_>, Vec<_>) = dtypes.partition(|(index, _)| self.is_of_scalar(*index));
        let (idents, outer): (Vec<_>, Vec<_>) = outer.into_iter().map(|(_, dtype)| dtype).unzip();
        let inner: Vec<TokenStream> = inner.into_iter().map(|(_, (_, declared))| declared).collect();
        let own_types: Vec<&Ident> = own.iter().flatten().collect();
        let generics = quote!(<#(#outer,)* #(#own_types),*>);
        let arguments = quote!(<#(#idents,)* #(#own_types),*>);
        let call = self.named_call(&own, &inner, intact);
        let vis = &self.signature.vis;
        let doc = format!("The arguments of [`{}`] by name.", self.signature.ident);
        quote! {
            #cfgs
            #[doc = #doc]
            #[derive(::core::clone::Clone, ::core::marker::Copy, ::core::fmt::Debug)]
            #[allow(non_snake_case, non_camel_case_types, dead_code)]
            #vis struct #name #generics { #(#fields),* }

            #cfgs
            #[allow(dead_code, non_snake_case, non_camel_case_types, clippy::all, clippy::pedantic)]
            impl #generics #name #arguments {
                #call
            }
        }
    }

    /// `call`, which takes the constexprs.
    fn named_call(&self, own: &[Option<Ident>], inner: &[TokenStream], intact: bool) -> TokenStream {
        let (lifetime, consts, result) = (&self.lifetime, self.consts_name(), self.call_ty());
        let params = &self.signature.params;
        let bounds = params.iter().zip(own).filter_map(|(param, own)| {
            let bound = self.bound(param)?;
            Some(quote!(#own: #bound))
        });
        let fields = params.iter().map(|param| &param.ident);
        let (turbofish, unused) = (self.turbofish(), unused(intact));
        let body = match intact {
            true => quote!(consts.call #turbofish (#(self.#fields),*)),
            false => quote!(::core::unreachable!()),
        };
        let doc = format!("Prepares a launch of [`{}`] with these arguments.", self.signature.ident);
        quote! {
            #[doc = #doc]
            #unused
            pub fn call<#lifetime, #(#inner),*>(self, consts: #consts) -> #result
            where #(#bounds),*
            {
                #body
            }
        }
    }

    /// The type parameters of arguments whose types the caller chooses.
    fn own_types(&self) -> Vec<Option<Ident>> {
        let mut taken: Vec<String> = Vec::new();
        let own = |param: &KernelParam| {
            if self.scalar(param).is_some() {
                return None;
            }
            let name = format!("{}Arg", camel_case(&param.ident.unraw().to_string()));
            let is_taken =
                |name: &String| taken.contains(name) || self.signature.dtypes().any(|(ident, _)| ident == name);
            let numbered = (2..).map(|number| format!("{name}{number}"));
            let name = std::iter::once(name.clone()).chain(numbered).find(|name| !is_taken(name))?;
            taken.push(name.clone());
            Some(Ident::new(&name, Span::mixed_site()))
        };
        self.signature.params.iter().map(own).collect()
    }

    fn field(&self, param: &KernelParam, own: Option<&Ident>) -> TokenStream {
        match (own, self.scalar_ty(param)) {
            (None, Some(ty)) => ty,
            (own, _) => quote!(#own),
        }
    }

    /// Whether a scalar has that dtype parameter.
    fn is_of_scalar(&self, dtype: usize) -> bool {
        let has = |param: &KernelParam| matches!(self.scalar(param), Some(Dt::Param(id)) if id.index() == dtype);
        self.signature.params.iter().any(has)
    }
}
