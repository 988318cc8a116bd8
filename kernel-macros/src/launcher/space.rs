//! The configurations that a tuner chooses from: a struct with a method for each constexpr and option.
//!
//! ```ignore
//! impl Constexprs for AddConsts { const NAMES: &[&str] = &["BLOCK"]; .. }
//!
//! pub struct AddSpace(tilewright::tune::Space<AddConsts>);
//!
//! impl AddSpace {
//!     pub fn BLOCK(self, values: impl tilewright::tune::Values<usize>) -> Self { .. }
//!     pub fn num_warps(self, values: impl tilewright::tune::Values<u32>) -> Self { .. }
//!     pub fn where_(self, holds: impl Fn(&Config<AddConsts>) -> bool + Send + Sync + 'static) -> Self { .. }
//! }
//!
//! impl AddConsts { pub fn space() -> AddSpace { .. } }
//! ```
//!
//! What a method takes stands at the constexpr, or at the kernel's name for an option: there rustc says what it wanted.

use kernel_core::ir::ConstTy;
use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;

use super::Launcher;

/// The options that a space may range over.
const OPTIONS: [&str; 3] = ["num_warps", "num_stages", "max_registers"];

impl Launcher<'_> {
    /// How the constexprs are numbers, and the struct of their space.
    pub(super) fn space(&self, cfgs: &TokenStream, intact: bool) -> TokenStream {
        let (krate, consts, name, vis) =
            (self.krate, self.consts_name(), self.struct_name("Space"), &self.signature.vis);
        let constexprs = self.constexprs(cfgs, intact);
        let axes = self.axes();
        let doc = format!("Configurations of [`{}`] for a tuner to choose from.", self.signature.ident);
        let space = quote!(#krate::tune::Space<#consts>);
        quote! {
            #constexprs

            #cfgs
            #[doc = #doc]
            #[derive(::core::clone::Clone, ::core::fmt::Debug)]
            #[allow(dead_code)]
            #vis struct #name(#space);

            #cfgs
            #[allow(dead_code, non_snake_case, clippy::all, clippy::pedantic)]
            impl #name {
                #axes

                /// Only configurations of which this holds. Constexprs are fields: `|c| c.BLOCK >= 64`.
                pub fn where_(
                    self,
                    holds: impl ::core::ops::Fn(&#krate::launch::Config<#consts>) -> ::core::primitive::bool
                        + ::core::marker::Send
                        + ::core::marker::Sync
                        + 'static,
                ) -> Self {
                    #name(self.0.where_(holds))
                }

                /// A configuration to begin with, and to keep where none is better beyond noise. It also gives constexprs
                /// without values of their own their one value.
                pub fn starting_at(
                    self,
                    config: impl ::core::convert::Into<#krate::launch::Config<#consts>>,
                ) -> Self {
                    #name(self.0.starting_at(config))
                }
            }

            #cfgs
            impl ::core::convert::From<#name> for #space {
                fn from(space: #name) -> Self {
                    space.0
                }
            }

            #cfgs
            #[allow(dead_code, clippy::all, clippy::pedantic)]
            impl #consts {
                /// Configurations for a tuner to choose from.
                pub fn space() -> #name {
                    #name(#krate::tune::Space::new())
                }
            }
        }
    }

    /// `impl Constexprs for AddConsts`
    fn constexprs(&self, cfgs: &TokenStream, intact: bool) -> TokenStream {
        let (krate, consts) = (self.krate, self.consts_name());
        let idents: Vec<&Ident> = self.signature.consts().map(|(name, ..)| name).collect();
        let (count, names) = (idents.len(), idents.iter().map(|name| name.unraw().to_string()));
        // Names of their own: one of a constexpr may also be that of a constant, which a pattern would be compared with.
        let given: Vec<Ident> =
            (0..count).map(|index| Ident::new(&format!("value_{index}"), Span::mixed_site())).collect();
        let fields = self.signature.consts().zip(&given).map(|((name, ty, tokens), value)| match ty {
            ConstTy::Bool => quote!(#name: match #value { 0 => false, 1 => true, _ => return none }),
            ConstTy::Int(_) => {
                let tried = quote!(<#tokens as ::core::convert::TryFrom<::core::primitive::i64>>::try_from(#value));
                quote!(#name: match #tried {
                    ::core::result::Result::Ok(value) => value,
                    ::core::result::Result::Err(_) => return none,
                })
            }
        });
        // Of a signature with mistakes there is no kernel.
        let kernel = intact.then(|| {
            quote! {
                fn of_kernel() -> ::core::option::Option<&'static #krate::launch::Kernel> {
                    #[allow(unused_imports)]
                    use #krate::launch::WithoutBody as _;
                    ::core::option::Option::Some(Self::kernel())
                }
            }
        });
        let values = Ident::new("values", Span::mixed_site());
        quote! {
            #cfgs
            #[allow(non_snake_case, clippy::all, clippy::pedantic)]
            impl #krate::launch::Constexprs for #consts {
                type Values = [::core::primitive::i64; #count];

                const NAMES: &'static [&'static ::core::primitive::str] = &[#(#names),*];

                fn values(self) -> Self::Values {
                    [#(self.#idents as ::core::primitive::i64),*]
                }

                fn from_values(#values: &[::core::primitive::i64]) -> ::core::option::Option<Self> {
                    let none = ::core::option::Option::None;
                    let &[#(#given),*] = #values else { return none };
                    ::core::option::Option::Some(#consts { #(#fields),* })
                }

                #kernel
            }
        }
    }

    /// A method for each constexpr and option.
    fn axes(&self) -> TokenStream {
        let space = self.struct_name("Space");
        let values = Ident::new("values", Span::mixed_site());
        let consts = self.signature.consts().enumerate().map(|(index, (name, _, ty))| {
            let doc = format!("The values of the constexpr `{}`.", name.unraw());
            let taken = self.values_of(ty, name.span());
            quote! {
                #[doc = #doc]
                pub fn #name(self, #values: #taken) -> Self {
                    let each = |value: #ty| value as ::core::primitive::i64;
                    let values = ::core::iter::IntoIterator::into_iter(#values);
                    #space(self.0.constexpr(#index, ::core::iter::Iterator::map(values, each)))
                }
            }
        });
        let is_constexpr = |option: &str| self.signature.consts().any(|(name, ..)| name == option);
        let options = OPTIONS.iter().filter(|option| !is_constexpr(option)).map(|option| {
            let doc = format!("The values of the option `{option}`.");
            let option = Ident::new(option, self.signature.ident.span());
            let taken = self.values_of(&quote!(::core::primitive::u32), option.span());
            quote! {
                #[doc = #doc]
                pub fn #option(self, #values: #taken) -> Self {
                    #space(self.0.#option(#values))
                }
            }
        });
        quote!(#(#consts)* #(#options)*)
    }

    /// `impl tilewright::tune::Values<usize>`
    fn values_of(&self, ty: &TokenStream, span: Span) -> TokenStream {
        let krate = self.krate_at(span);
        quote_spanned!(span=> impl #krate::tune::Values<#ty>)
    }
}
