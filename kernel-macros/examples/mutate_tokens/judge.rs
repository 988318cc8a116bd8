//! Expands one case and says what is wrong with the result.

use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use kernel_core::{text, verify};
use proc_macro2::{TokenStream, TokenTree};

use crate::device::Found;
use crate::error::Errors;
use crate::expand::expand_into;
use crate::kernels::Kernel;

/// What an expansion may take.
const LIMIT: Duration = Duration::from_secs(1);

/// Words of the inside, which mean nothing to a user.
const INTERNAL: [&str; 10] =
    ["kernel_core", "syn::", "NodeId", "ValueId", "DtRef", "VTy", "Known(", "Param(", "Poly", "TypeError"];

/// What became of a case.
#[derive(Default)]
pub struct Verdict {
    /// Whether the kernel was accepted.
    pub accepted: bool,
    /// Whether the type rules of the IR refused it, instead of a check that can say why.
    pub late: bool,
    /// What is wrong.
    pub finding: Option<String>,
    /// The time of the expansion.
    pub time: Duration,
    /// The messages.
    pub messages: Vec<String>,
}

/// What the last panic said.
static PANIC: Mutex<String> = Mutex::new(String::new());

/// Remembers what a panic says, for the report.
pub fn note_panic(info: &PanicHookInfo<'_>) {
    if let Ok(mut text) = PANIC.lock() {
        *text = info.to_string();
    }
}

/// Expands a kernel.
pub fn judge(kernel: &Kernel) -> Verdict {
    let start = Instant::now();
    let (attr, item) = (kernel.attr.clone(), kernel.item.clone());
    let expanded = catch_unwind(AssertUnwindSafe(|| {
        let mut errors = Errors::default();
        let tokens = expand_into(attr, item, &Found::new(), &mut errors);
        // What rustc gets.
        let _ = errors.to_tokens();
        let messages: Vec<String> = errors.list().iter().map(|mistake| mistake.text()).collect();
        (tokens, messages)
    }));
    let time = start.elapsed();
    let Ok((tokens, messages)) = expanded else {
        let panic = PANIC.lock().map(|text| text.clone()).unwrap_or_default();
        return Verdict { finding: Some(panic), time, ..Verdict::default() };
    };
    let accepted = messages.is_empty();
    let late = messages.iter().any(|message| message.starts_with("this cannot be compiled"));
    let finding = if time > LIMIT {
        Some(format!("it took {time:?}"))
    } else if let Some((word, message)) = internal(&messages) {
        Some(format!("`{word}` in the message: {message}"))
    } else if accepted {
        sound(tokens).err()
    } else {
        None
    };
    Verdict { accepted, late, finding, time, messages }
}

fn internal(messages: &[String]) -> Option<(&'static str, &String)> {
    messages.iter().find_map(|message| INTERNAL.into_iter().find(|w| message.contains(w)).map(|w| (w, message)))
}

/// Whether what was accepted is Rust, and its IR parses, verifies and round-trips.
fn sound(tokens: TokenStream) -> Result<(), String> {
    syn::parse2::<syn::File>(tokens.clone()).map_err(|error| format!("the expansion is no Rust: {error}"))?;
    let ir = literal_after(tokens, "ir").ok_or("the expansion has no IR")?;
    let func = text::parse(&ir).map_err(|error| format!("the IR does not parse: {error}"))?;
    verify::verify(&func).map_err(|errors| format!("the IR does not verify: {errors:?}"))?;
    if text::print(&func) == ir { Ok(()) } else { Err("the IR does not round-trip".to_string()) }
}

/// The string literal after `name:`.
fn literal_after(tokens: TokenStream, name: &str) -> Option<String> {
    let mut found = false;
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                if let Some(text) = literal_after(group.stream(), name) {
                    return Some(text);
                }
            }
            TokenTree::Ident(ident) => found = ident == name,
            TokenTree::Punct(punct) if punct.as_char() == ':' => {}
            TokenTree::Literal(literal) if found => {
                return syn::parse2::<syn::LitStr>(TokenTree::from(literal).into()).ok().map(|l| l.value());
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => found = false,
        }
    }
    None
}
