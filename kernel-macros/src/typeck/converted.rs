//! Constants of the user's crate that are converted: `LIMIT as f32`, `EPS as T`.
//!
//! The macro does not know what type a constant has. rustc does, and computes what is converted, before the kernel is
//! compiled.

use kernel_core::ir::{DType, Dt, ElementwiseOp};
use proc_macro2::TokenStream;
use quote::quote_spanned;
use syn::Path;

use super::{Checker, Operand};
use crate::error::Checked;
use crate::source_range::SourceRange;
use crate::tree::Constant;
use crate::types::{DtRef, VTy};

impl Checker<'_> {
    /// `LIMIT as i32`, which rustc computes: the constant may then have any type.
    pub(super) fn converted_constant(&mut self, path: &Path, to: DType, place: SourceRange) -> Checked<Operand> {
        let ident = proc_macro2::Ident::new(to.name(), SourceRange::of_path(path).start);
        if matches!(to, DType::F8E4M3 | DType::F8E5M2 | DType::F16 | DType::BF16) {
            // Rust's `as` knows no 16-bit and 8-bit floats. The cast rounds once, as it does for what is known at the launch.
            let operand = self.computed_constant(path, odd_double(path), DType::F64, place)?;
            return self.cast(operand, to.into(), place);
        }
        let tokens = quote_spanned!(ident.span()=> (#path as ::core::primitive::#ident));
        self.computed_constant(path, tokens, to, place)
    }

    /// `LIMIT as T`: what the constant is as `T` is known when the kernel is compiled, so rustc gives it in several forms.
    ///
    /// An integer goes through `i64`, of which the bits of a number that is not negative are read as `u64`, and wraps from there
    /// as integers do; a float goes through `f64`, and saturates from there.
    pub(super) fn constant_as_parameter(&mut self, path: &Path, to: Dt, place: SourceRange) -> Checked<Operand> {
        let span = SourceRange::of_path(path).start;
        let as_dtype = |dtype: &str| {
            let ident = proc_macro2::Ident::new(dtype, span);
            quote_spanned!(span=> (#path as ::core::primitive::#ident))
        };
        let [i8, u8, i64, u64, f64] = ["i8", "u8", "i64", "u64", "f64"].map(as_dtype);
        // Integers have the same bits as both; floats have, too, between 0 and 127, which every dtype holds.
        let wraps = quote_spanned!(span=> #u8 == (#i8 as ::core::primitive::u8));
        // Minus zero is no integer: its bits are others.
        let bits = |number: &TokenStream| quote_spanned!(span=> ::core::primitive::f64::to_bits(#number as ::core::primitive::f64));
        let [bits_of_signed, bits_of_unsigned, bits] = [&i64, &u64, &f64].map(bits);
        let integral = quote_spanned! {span=>
            (#wraps && (#bits == #bits_of_signed || #bits == #bits_of_unsigned))
        };
        let negative = quote_spanned!(span=> (#f64 < 0.0));
        let mut computed = |tokens: &TokenStream, dtype| self.computed_constant(path, tokens.clone(), dtype, place);
        let (integral, is_negative) = (computed(&integral, DType::Bool)?, computed(&negative, DType::Bool)?);
        let signed = computed(&i64, DType::I64)?;
        let float = computed(&f64, DType::F64)?;
        if self.frame.via.is_none() {
            let (wide, unsigned_wide) = (as_dtype("i128"), as_dtype("u128"));
            let message =
                "neither `i64` nor `u64` holds this constant: name the dtype that it has, as in `as u64 as T`";
            self.asked.extend(quote_spanned! {span=>
                #[allow(clippy::all, clippy::nursery, clippy::pedantic, clippy::restriction)]
                const _: () = ::core::assert!(
                    if !(#wraps) {
                        true
                    } else if #negative {
                        #i64 as ::core::primitive::i128 == #wide
                    } else {
                        #u64 as ::core::primitive::u128 == #unsigned_wide
                    },
                    #message
                );
            });
        }
        let unsigned = self.cast(signed, DType::U64.into(), place)?;
        let [signed, unsigned, float] = [signed, unsigned, float].map(|form| self.cast(form, to, place));
        let integer = self.chosen(is_negative, signed?, unsigned?, to, place);
        Ok(self.chosen(integral, integer, float?, to, place))
    }

    /// One of two forms of a constant.
    fn chosen(&mut self, condition: Operand, a: Operand, b: Operand, to: Dt, place: SourceRange) -> Operand {
        let operands = vec![condition.node, a.node, b.node];
        let node = self.op(ElementwiseOp::Select, operands, VTy::scalar(DtRef::Fixed(to)), place);
        Operand { node, place }
    }

    /// What rustc computes of a constant, of this dtype.
    fn computed_constant(
        &mut self,
        path: &Path,
        tokens: TokenStream,
        dtype: DType,
        place: SourceRange,
    ) -> Checked<Operand> {
        let name = path.segments.last().map(|s| s.ident.to_string()).unwrap_or_default();
        if self.frame.via.as_ref().is_some_and(TokenStream::is_empty) {
            return Err(self.unnamed(&name, place));
        }
        let (tokens, field) = self.exported(tokens, &name);
        let index = match self.constants.iter().position(|known| known.is(&tokens, &field)) {
            Some(index) => index,
            None => {
                let (dt, shape, through) = (dtype.into(), None, self.outermost_call());
                self.constants.push(Constant { name, tokens, field, through, dt, shape, place });
                self.constants.len() - 1
            }
        };
        Ok(self.constant_operand(index, place))
    }
}

/// A constant of any type as an `f64` that 16-bit and 8-bit floats are rounded from as if from the constant.
///
/// Every float is an `f64`. An integer that is none is rounded to odd: cut off towards zero, with the lowest bit set.
fn odd_double(path: &Path) -> TokenStream {
    let span = SourceRange::of_path(path).start;
    let as_type = |number: &TokenStream, name: &str| {
        let ident = proc_macro2::Ident::new(name, span);
        quote_spanned!(span=> (#number as ::core::primitive::#ident))
    };
    let exact = quote_spanned!(span=> #path);
    let nearest = as_type(&exact, "f64");
    // A float has the same whole part as itself. 128 bits hold every integer, negative ones with a sign.
    let [signed, unsigned] = ["i128", "u128"].map(|name| (as_type(&exact, name), as_type(&nearest, name)));
    let odd = |(exact, nearest): (TokenStream, TokenStream), beyond: TokenStream, double: &TokenStream| {
        quote_spanned! {span=>
            if #nearest == #exact {
                #double
            } else {
                ::core::primitive::f64::from_bits(
                    (::core::primitive::f64::to_bits(#double) - (#nearest #beyond #exact) as ::core::primitive::u64) | 1
                )
            }
        }
    };
    let below = odd(signed, quote_spanned!(span=> <), &nearest);
    let above = odd(unsigned, quote_spanned!(span=> >), &nearest);
    quote_spanned!(span=> (if #nearest < 0.0 { #below } else { #above }))
}
