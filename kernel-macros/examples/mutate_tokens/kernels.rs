//! The kernels of the repository, found by reading its sources.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Folders of the repository in which kernels are written.
const FOLDERS: [&str; 6] = ["examples", "benches", "tests", "src", "kernel-runtime", "kernel-codegen"];

/// A kernel as the attribute gets it.
#[derive(Clone)]
pub struct Kernel {
    /// The arguments of the attribute.
    pub attr: TokenStream,
    /// The function.
    pub item: TokenStream,
}

/// All kernels, in the order of files and lines.
pub fn all() -> Vec<Kernel> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    FOLDERS.iter().for_each(|folder| collect(&root.join(folder), &mut files));
    files.sort();
    let mut kernels = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap_or_default();
        if let Ok(tokens) = TokenStream::from_str(&text) {
            find(tokens, &mut kernels);
        }
    }
    kernels
}

/// The Rust files below a folder; programs that must not compile are left out.
fn collect(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() && name != "target" && name != "ui" {
            collect(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

/// The functions after `#[kernel]`, in modules too.
fn find(tokens: TokenStream, out: &mut Vec<Kernel>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        let TokenTree::Group(group) = token else { continue };
        let pound = at > 0 && matches!(&tokens[at - 1], TokenTree::Punct(p) if p.as_char() == '#');
        match attribute(group.stream()).filter(|_| pound && group.delimiter() == Delimiter::Bracket) {
            Some(attr) => out.extend(function(&tokens[at + 1..]).map(|item| Kernel { attr, item })),
            None => find(group.stream(), out),
        }
    }
}

/// The arguments in `kernel` or `kernel(..)`.
fn attribute(tokens: TokenStream) -> Option<TokenStream> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    match tokens.as_slice() {
        [TokenTree::Ident(name)] if name == "kernel" => Some(TokenStream::new()),
        [TokenTree::Ident(name), TokenTree::Group(group)] if name == "kernel" => Some(group.stream()),
        _ => None,
    }
}

/// The tokens up to the body; `None` in a `macro_rules!`.
fn function(tokens: &[TokenTree]) -> Option<TokenStream> {
    let mut named = false;
    let mut out = TokenStream::new();
    for token in tokens {
        named |= matches!(token, TokenTree::Ident(word) if word == "fn");
        out.extend([token.clone()]);
        if named && matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace) {
            return (!out.to_string().contains('$')).then_some(out);
        }
    }
    None
}
