//! `export!(my_ops: silu, silu_backward)`: the symbols of a library of operators.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Error, Ident, Path, Result, Token};

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

fn name(op: &Path) -> String {
    op.segments.last().map(|last| last.ident.unraw().to_string()).unwrap_or_default()
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
        let ops = self.ops.iter().map(|op| quote!(<#op as ::tilewright_ffi::Exported>::OP));
        let checks = self.ops.iter().map(|op| {
            quote_spanned! {op.span()=>
                const _: () = ::tilewright_ffi::backward::check_exported(<#op as ::tilewright_ffi::Exported>::OP, OPS);
            }
        });
        let registrations = self.ops.iter().map(|op| quote!(<#op as ::tilewright_ffi::Exported>::REGISTRATION));
        let measured = self.ops.iter().map(|op| quote!(<#op as ::tilewright_ffi::Exported>::MEASURED));
        let doors = self.ops.iter().map(Self::doors);
        quote! {
            const _: () = {
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
    fn doors(op: &Path) -> TokenStream {
        let (tvm, xla) = (format!("__tvm_ffi_{}", name(op)), format!("tilewright_xla_{}", name(op)));
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
