//! The options of `#[op(..)]`.

use crate::shapes::OutputSpec;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Ident, Path, Result, Token, parenthesized};

/// What the attribute says.
#[derive(Default)]
pub struct Options {
    /// `out(y: like(x))`
    pub outputs: Vec<OutputSpec>,
    /// `backward = silu_backward`
    pub backward: Option<Path>,
    /// `vmap = broadcast_all`
    pub vmap: Option<Ident>,
}

const VMAPS: [&str; 3] = ["sequential", "expand_dims", "broadcast_all"];

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut options = Options::default();
        let mut seen: Vec<String> = Vec::new();
        while !input.is_empty() {
            let name: Ident = input.parse()?;
            if seen.contains(&name.to_string()) {
                return Err(syn::Error::new(name.span(), format!("`{name}` is given twice")));
            }
            seen.push(name.to_string());
            match name.to_string().as_str() {
                "out" => {
                    let content;
                    parenthesized!(content in input);
                    let outputs = Punctuated::<OutputSpec, Token![,]>::parse_terminated(&content)?;
                    options.outputs = outputs.into_iter().collect();
                }
                "backward" => {
                    input.parse::<Token![=]>()?;
                    options.backward = Some(input.parse()?);
                }
                "vmap" => {
                    input.parse::<Token![=]>()?;
                    options.vmap = Some(vmap(input)?);
                }
                _ => {
                    let message =
                        format!("`#[op]` has no option `{name}`; it has `out(..)`, `backward = ..` and `vmap = ..`");
                    return Err(syn::Error::new(name.span(), message));
                }
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(options)
    }
}

fn vmap(input: ParseStream<'_>) -> Result<Ident> {
    let name: Ident = input.parse()?;
    if VMAPS.iter().any(|known| name == known) {
        return Ok(name);
    }
    let known = VMAPS.map(|name| format!("`{name}`")).join(", ");
    Err(syn::Error::new(name.span(), format!("`{name}` is not a way to map an operator; those are {known}")))
}
