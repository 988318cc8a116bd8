//! The arguments of the attribute: `#[kernel(num_warps = 8, num_stages = 3, contract = false, crate = path)]`.

use proc_macro2::TokenStream;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Expr, Ident, Lit, Path, Token};

use crate::error::Errors;
use crate::names::closest;
use crate::source_range::SourceRange;

/// The arguments of the attribute.
pub struct KernelAttr {
    /// Default number of warps.
    pub num_warps: Option<u32>,
    /// Default number of pipeline stages.
    pub num_stages: Option<u32>,
    /// The most registers of a thread, by default.
    pub max_registers: Option<u32>,
    /// Whether float operations may be fused.
    pub contract: bool,
    /// Whether f32 may take subnormal numbers for zeros.
    pub flush: bool,
    /// Where the facade lives.
    pub krate: Option<Path>,
}

const KEYS: [&str; 6] = ["num_warps", "num_stages", "max_registers", "contract", "flush", "crate"];

enum Value {
    Path(Path),
    Expr(Expr),
}

struct Argument {
    key: Ident,
    value: Option<Value>,
}

impl Parse for Argument {
    fn parse(input: ParseStream<'_>) -> syn::Result<Argument> {
        let is_crate = input.peek(Token![crate]);
        let key = input.call(syn::ext::IdentExt::parse_any)?;
        if !input.peek(Token![=]) {
            return Ok(Argument { key, value: None });
        }
        input.parse::<Token![=]>()?;
        let value =
            if is_crate { Value::Path(input.call(Path::parse_mod_style)?) } else { Value::Expr(input.parse()?) };
        Ok(Argument { key, value: Some(value) })
    }
}

/// Reads the arguments; mistakes leave the default.
pub fn parse(tokens: TokenStream, errors: &mut Errors) -> KernelAttr {
    let mut attr = KernelAttr {
        num_warps: None,
        num_stages: None,
        max_registers: None,
        contract: true,
        flush: false,
        krate: None,
    };
    let arguments = match Punctuated::<Argument, Token![,]>::parse_terminated.parse2(tokens) {
        Ok(arguments) => arguments,
        Err(error) => {
            let place = SourceRange::at(error.span());
            errors.report(place, format!("an argument of `#[kernel]` is `key = value`; the keys are {}", keys()));
            return attr;
        }
    };
    let mut seen: Vec<String> = Vec::new();
    for Argument { key, value } in arguments {
        let name = key.to_string();
        let place = SourceRange::at(key.span());
        if seen.contains(&name) {
            errors.report(place, format!("`{name}` is given twice"));
            continue;
        }
        match (name.as_str(), value) {
            ("num_warps", Some(Value::Expr(e))) => attr.num_warps = number(&e, errors, "num_warps", 1, 32, true),
            ("num_stages", Some(Value::Expr(e))) => attr.num_stages = number(&e, errors, "num_stages", 1, 16, false),
            ("max_registers", Some(Value::Expr(e))) => {
                attr.max_registers = number(&e, errors, "max_registers", 16, 255, false);
            }
            ("contract", Some(Value::Expr(e))) => match boolean(&e) {
                Some(value) => attr.contract = value,
                None => {
                    errors.report(SourceRange::of(&e), "`contract` is `true` or `false`");
                }
            },
            ("flush", Some(Value::Expr(e))) => match boolean(&e) {
                Some(value) => attr.flush = value,
                None => {
                    errors.report(SourceRange::of(&e), "`flush` is `true` or `false`");
                }
            },
            ("crate", Some(Value::Path(path))) => attr.krate = Some(path),
            (known, None | Some(_)) if KEYS.contains(&known) => {
                errors.report_help(place, format!("`{known}` needs a value"), format!("write `{known} = ..`"));
            }
            _ => {
                let message = format!("unknown argument `{name}`; `#[kernel]` takes {}", keys());
                match closest(&name, KEYS) {
                    _ if name == "maxnreg" => errors.report_help(place, message, "write `max_registers = ..`"),
                    _ if name == "num_ctas" => {
                        errors.report_help(place, message, "leave it out: programs do not work in clusters")
                    }
                    _ if let Some(help) = left_out(&name) => errors.report_help(place, message, help),
                    Some(close) => errors.report_help(place, message, format!("did you mean `{close}`?")),
                    None => errors.report(place, message),
                };
            }
        }
        seen.push(name);
    }
    attr
}

/// What to do without an argument of Triton's.
fn left_out(name: &str) -> Option<&'static str> {
    Some(match name {
        "do_not_specialize" | "do_not_specialize_on_alignment" => {
            "leave it out: a kernel is compiled for integers that are 1, for multiples of 16 and for others, not for each value"
        }
        "enable_fp_fusion" => "write `contract = false`",
        "noinline" => "leave it out: `#[device]` functions are always inlined, and nothing calls a kernel",
        _ => return None,
    })
}

fn keys() -> String {
    KEYS.map(|k| format!("`{k}`")).join(", ")
}

fn number(expr: &Expr, errors: &mut Errors, name: &str, lo: u32, hi: u32, power_of_two: bool) -> Option<u32> {
    let value = match expr {
        Expr::Lit(lit) => match &lit.lit {
            Lit::Int(int) => int.base10_parse::<u32>().ok(),
            _ => None,
        },
        _ => None,
    };
    match value {
        Some(v) if (lo..=hi).contains(&v) && (!power_of_two || v.is_power_of_two()) => Some(v),
        Some(_) | None => {
            let kind = if power_of_two { "a power of two" } else { "a number" };
            errors.report(SourceRange::of(expr), format!("`{name}` is {kind} from {lo} to {hi}"));
            None
        }
    }
}

fn boolean(expr: &Expr) -> Option<bool> {
    match expr {
        Expr::Lit(lit) => match &lit.lit {
            Lit::Bool(b) => Some(b.value),
            _ => None,
        },
        _ => None,
    }
}
