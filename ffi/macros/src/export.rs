//! `export!(my_ops: silu, silu_backward)`: the symbols of a library of operators.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Error, Ident, Path, Result, Token, parse_quote};

struct Export {
    library: Ident,
    ops: Vec<Path>,
}

impl Parse for Export {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let library = input.parse()?;
        input.parse::<Token![:]>()?;
        let ops = Punctuated::<Path, Token![,]>::parse_terminated(input)?;
        Ok(Export { library, ops: ops.into_iter().collect() })
    }
}

/// Expands the macro.
pub fn expand(tokens: TokenStream) -> TokenStream {
    match syn::parse2::<Export>(tokens).and_then(|export| export.check().map(|()| export)) {
        Ok(export) => export.tokens(),
        Err(error) => error.to_compile_error(),
    }
}

/// The operators' types by their own names. A function without `#[op]` brings none, and rustc would only say "expected type,
/// found function"; the type that its name then means here is none of an operator, of which rustc says what it lacks.
/// What is imported by name goes before what `*` imports.
fn types(ops: &[Path]) -> TokenStream {
    let missing = ops.iter().map(|op| {
        let op = last(op);
        quote!(pub(super) enum #op {})
    });
    let found = ops.iter().map(|op| match op.get_ident() {
        Some(op) => parse_quote!(self::#op),
        None => op.clone(),
    });
    let found = found.collect::<Vec<Path>>();
    quote! {
        #[allow(non_camel_case_types, dead_code)]
        mod without_op {
            #(#missing)*
        }
        #[allow(unused_imports)]
        use without_op::*;
        #(#[allow(unused_imports)] use #found;)*
    }
}

/// What an operator is called in the module that has it.
fn last(op: &Path) -> &Ident {
    // A path that was parsed has a segment.
    &op.segments[op.segments.len() - 1].ident
}

fn name(op: &Path) -> String {
    last(op).unraw().to_string()
}

impl Export {
    fn check(&self) -> Result<()> {
        for (at, op) in self.ops.iter().enumerate() {
            if self.ops[..at].iter().any(|other| name(other) == name(op)) {
                return Err(Error::new(op.span(), format!("`{}` is exported twice", name(op))));
            }
        }
        Ok(())
    }

    fn tokens(&self) -> TokenStream {
        let library = self.library.unraw().to_string();
        let types = types(&self.ops);
        let names = || self.ops.iter().map(last);
        let ops = names().map(|op| quote!(<#op as ::tilewright_ffi::Exported>::OP));
        let checks = self.ops.iter().map(|path| {
            let op = last(path);
            quote_spanned! {path.span()=>
                const _: () = ::tilewright_ffi::backward::check_exported(<#op as ::tilewright_ffi::Exported>::OP, OPS);
            }
        });
        let registrations = names().map(|op| quote!(<#op as ::tilewright_ffi::Exported>::REGISTRATION));
        let measured = names().map(|op| quote!(<#op as ::tilewright_ffi::Exported>::MEASURED));
        let doors = names().map(Self::doors);
        quote! {
            const _: () = {
                #types

                const OPS: &[&::tilewright_ffi::op::Op] = &[#(#ops),*];
                #(#checks)*

                #[unsafe(no_mangle)]
                extern "C" fn tilewright_describe() -> *const ::core::ffi::c_char {
                    ::tilewright_ffi::call::describe(#library, env!("CARGO_PKG_VERSION"), OPS)
                }

                #[unsafe(no_mangle)]
                extern "C" fn tilewright_synchronize() -> *const ::core::ffi::c_char {
                    ::tilewright_ffi::call::synchronize()
                }

                #[unsafe(no_mangle)]
                extern "C" fn tilewright_torch_register() -> *const ::core::ffi::c_char {
                    ::tilewright_ffi::torch::register(#library, &[#(#registrations),*])
                }

                #[unsafe(no_mangle)]
                unsafe extern "C" fn tilewright_scratch(request: *const ::core::ffi::c_char) -> i64 {
                    const MEASURED: &[::tilewright_ffi::xla::Measured] = &[#(#measured),*];
                    // SAFETY: whoever calls the symbol gives a string that ends with a zero byte.
                    unsafe { ::tilewright_ffi::xla::scratch(MEASURED, request) }
                }

                #(#doors)*
            };
        }
    }

    /// The symbols of one operator.
    fn doors(op: &Ident) -> TokenStream {
        let (tvm, xla) = (format!("__tvm_ffi_{}", op.unraw()), format!("tilewright_xla_{}", op.unraw()));
        // No name of an operator has a dot in it.
        let unrecorded = format!("{xla}.unrecorded");
        quote! {
            const _: () = {
                #[unsafe(export_name = #tvm)]
                unsafe extern "C" fn tvm_ffi(
                    function: *mut ::core::ffi::c_void,
                    args: *const ::tilewright_ffi::tvm_ffi::Any,
                    count: i32,
                    result: *mut ::tilewright_ffi::tvm_ffi::Any,
                ) -> i32 {
                    // SAFETY: whoever calls the symbol keeps to the convention of TVM-FFI.
                    unsafe { <#op as ::tilewright_ffi::Exported>::tvm_ffi(function, args, count, result) }
                }

                #[unsafe(export_name = #xla)]
                unsafe extern "C" fn xla(
                    frame: *mut ::tilewright_ffi::xla::CallFrame,
                ) -> *mut ::tilewright_ffi::xla::XlaError {
                    // SAFETY: whoever calls the symbol keeps to the convention of XLA's FFI.
                    unsafe { <#op as ::tilewright_ffi::Exported>::xla(::tilewright_ffi::xla::Recording::Allowed, frame) }
                }

                #[unsafe(export_name = #unrecorded)]
                unsafe extern "C" fn unrecorded(
                    frame: *mut ::tilewright_ffi::xla::CallFrame,
                ) -> *mut ::tilewright_ffi::xla::XlaError {
                    // SAFETY: as above.
                    unsafe { <#op as ::tilewright_ffi::Exported>::xla(::tilewright_ffi::xla::Recording::Refused, frame) }
                }
            };
        }
    }
}
