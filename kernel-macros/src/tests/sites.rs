//! Every place of the front end that finds a mistake is reached by a case.
//!
//! The cases are those of `tests/messages`, the programs of the workspace's `tests/ui`, which rustc refuses, and those of
//! the limits, which are too long to be written down.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::str::FromStr;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use super::support::expand_program;
use super::{cases, limits};
use crate::error::Errors;

/// A file and line of the front end.
type Site = (String, u32);

/// The lines that report a mistake, with their text.
type Sites = BTreeMap<Site, String>;

/// Lines that no kernel is known to reach: what stands where a match must be complete, or behind an earlier check.
const UNREACHED: &[(&str, &str)] = &[
    ("attributes.rs", r#"self.errors.report_help(*place, "an attribute is not supported here", "remove it");"#),
    ("lower/mod.rs", r#"Err(errors.report(place, format!("this cannot be compiled: {}", error.message)))"#),
    (
        "typeck/constant.rs",
        r#"Lit::Verbatim(_) | _ => return Err(self.report(place, "this literal is not supported in kernels")),"#,
    ),
    ("typeck/constant.rs", r#"return Err(self.report(place, "this is not a float"));"#),
    ("typeck/convert.rs", "None => self.report(place, message),"),
    ("typeck/expr.rs", r#"_ => Err(self.report(place, "this operator is not supported in kernels")),"#),
    ("typeck/map.rs", "return Err(self.report(operand.place, message));"),
    (
        "typeck/memory.rs",
        r#"| ParamKind::DescStride { .. } => Err(self.report(pointer.place, "this does not point into a buffer")),"#,
    ),
    (
        "typeck/atomic.rs",
        r#"return Err(self.report(args.place, format!("internal error: the body of `{name}` cannot be read")));"#,
    ),
    (
        "typeck/random.rs",
        r#"return Err(self.report(args.place, format!("internal error: the body of {what} cannot be read")));"#,
    ),
];

/// Adds the places that find the mistakes of a kernel.
fn reach(attr: TokenStream, item: TokenStream, reached: &mut BTreeSet<Site>) {
    let mut errors = Errors::default();
    expand_program(attr, item, &mut errors);
    let sites = errors.list().iter().map(|mistake| (file(mistake.found_at.file()), mistake.found_at.line()));
    reached.extend(sites);
}

/// The path behind `src/`.
fn file(path: &str) -> String {
    path.rsplit_once("src/").map_or(path, |(_, file)| file).to_string()
}

/// What is in `#[kernel]` or `#[kernel(..)]`.
fn arguments(attribute: &Group) -> Option<TokenStream> {
    let mut tokens = attribute.stream().into_iter();
    let is_kernel = matches!(tokens.next(), Some(TokenTree::Ident(name)) if name == "kernel");
    is_kernel.then(|| match tokens.next() {
        Some(TokenTree::Group(arguments)) => arguments.stream(),
        Some(_) | None => TokenStream::new(),
    })
}

/// The items under `#[kernel]` in a program, each with the attribute's arguments.
fn kernels(program: TokenStream, found: &mut Vec<(TokenStream, TokenStream)>) {
    let mut item: Option<(TokenStream, Vec<TokenTree>)> = None;
    let mut after_hash = false;
    for token in program {
        let hash = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '#');
        let ends = match (&token, &mut item) {
            (TokenTree::Group(group), None) if after_hash && arguments(group).is_some() => {
                item = arguments(group).map(|attr| (attr, Vec::new()));
                false
            }
            (TokenTree::Group(group), None) => {
                kernels(group.stream(), found);
                false
            }
            (token, Some((_, tokens))) => {
                tokens.push(token.clone());
                match token {
                    TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
                    TokenTree::Punct(punct) => punct.as_char() == ';',
                    TokenTree::Ident(_) | TokenTree::Literal(_) => false,
                }
            }
            (_, None) => false,
        };
        if ends {
            found.extend(item.take().map(|(attr, tokens)| (attr, TokenStream::from_iter(tokens))));
        }
        after_hash = hash;
    }
}

/// The lines of the front end that report a mistake: `.report(` or `.report_help(`.
fn sites() -> Sites {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut folders, mut found) = (vec![source], Sites::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the front end").flatten() {
            let path = entry.path();
            if path.is_dir() && entry.file_name() != "tests" {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") && entry.file_name() != "error.rs" {
                let text = fs::read_to_string(&path).expect("a source");
                let lines = text.lines().zip(1..).filter(|(line, _)| {
                    // Where the checker passes a mistake on, it has been found elsewhere.
                    let passed_on = line.contains("self.errors.report") && path.ends_with("typeck/mod.rs");
                    (line.contains(".report(") || line.contains(".report_help(")) && !passed_on
                });
                found.extend(
                    lines.map(|(line, number)| ((file(&path.to_string_lossy()), number), line.trim().to_string())),
                );
            }
        }
    }
    found
}

#[test]
fn every_mistake_that_can_be_found_has_a_case() {
    let mut reached = BTreeSet::new();
    for source in cases::sources("messages").into_iter().chain(limits::beyond()) {
        reach(TokenStream::new(), TokenStream::from_str(&source).expect("tokens"), &mut reached);
    }
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/ui");
    for entry in fs::read_dir(programs).expect("the programs that do not compile").flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(entry.path()).expect("a program");
            let mut found = Vec::new();
            kernels(TokenStream::from_str(&text).expect("tokens"), &mut found);
            found.into_iter().for_each(|(attr, item)| reach(attr, item, &mut reached));
        }
    }
    let sites = sites();
    assert!(sites.len() > 150, "only {} places report a mistake", sites.len());
    let mut unreached: Vec<(&str, &str)> = UNREACHED.to_vec();
    let mut missed = Vec::new();
    for ((file, line), text) in sites.iter().filter(|(site, _)| !reached.contains(site)) {
        match unreached.iter().position(|known| *known == (file.as_str(), text.as_str())) {
            Some(known) => drop(unreached.remove(known)),
            None => missed.push(format!("src/{file}:{line}: {text}")),
        }
    }
    assert!(missed.is_empty(), "mistakes without a case in `tests/messages` or `tests/ui`:\n{}", missed.join("\n"));
    assert!(unreached.is_empty(), "these have changed, or are reached: {unreached:#?}");
}
