//! The language reference agrees with the language.

use kernel_core::math::{BinaryMathFn, FloatIntFn, FunctionRow, MathFn};
use quote::ToTokens;

use super::support::expand;
use crate::ops::{self, DESC_ROWS};

const LANGUAGE: &str = include_str!("../language.md");

/// The code blocks of the reference.
fn examples() -> Vec<&'static str> {
    let blocks = LANGUAGE.split("```ignore\n").skip(1);
    blocks.filter_map(|rest| rest.split_once("```").map(|(code, _)| code)).collect()
}

#[test]
fn examples_compile() {
    let mut kernels = 0;
    for example in examples() {
        let file: syn::File = syn::parse_str(example).unwrap_or_else(|e| panic!("{e}\n{example}"));
        let mut functions = String::new();
        for item in file.items {
            let declared = match item.clone() {
                syn::Item::Struct(mut item) => {
                    item.attrs.retain(|attr| attr.path().is_ident("device"));
                    Some(item.to_token_stream())
                }
                syn::Item::Impl(item) => Some(item.to_token_stream()),
                _ => None,
            };
            if let Some(declared) = declared {
                functions.push_str(&declared.to_string());
                continue;
            }
            let syn::Item::Fn(mut function) = item else { continue };
            function.attrs.retain(|attr| attr.path().is_ident("device"));
            let code = function.to_token_stream().to_string();
            if function.attrs.iter().any(|attr| attr.path().is_ident("device")) {
                functions.push_str(&code);
                continue;
            }
            let (_, messages) = expand("", &format!("{functions}{code}"));
            assert!(messages.is_empty(), "{example}\n{}", messages.join("\n"));
            kernels += 1;
        }
    }
    assert_eq!(kernels, 23);
}

/// The operations that the reference lists, and whether it marks them as methods.
fn listed() -> Vec<(String, bool)> {
    let (_, section) = LANGUAGE.split_once("# Operations").unwrap_or_else(|| panic!("no list of operations"));
    let (list, _) = section.split_once("A negative axis").unwrap_or_else(|| panic!("no end of the list"));
    let mut names = Vec::new();
    for line in list.lines().filter(|line| line.starts_with("| `")) {
        let cell = line.trim_start_matches("| ").split(" | ").next().unwrap_or_default();
        for call in cell.split('`').skip(1).step_by(2) {
            let name: String = call.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            names.push((name, cell.ends_with('•')));
        }
    }
    names.sort();
    names
}

#[test]
fn the_list_of_operations_of_descriptors_is_complete() {
    let (_, section) = LANGUAGE.split_once("# Tensor descriptors").unwrap_or_else(|| panic!("no such section"));
    let (section, _) = section.split_once("\n# ").unwrap_or_else(|| panic!("no end of the section"));
    for row in DESC_ROWS {
        let call = format!("{}(", row.name);
        assert!(section.contains(&call) || section.contains(&format!("`{}`", row.name)), "{call}");
    }
}

#[test]
fn the_list_of_operations_is_complete() {
    let mut rows: Vec<(String, bool)> = ops::rows().map(|row| (row.name.to_string(), row.method)).collect();
    rows.sort();
    assert_eq!(listed(), rows);
}

/// The table of errors, as the rows of the functions have it.
fn errors() -> String {
    let line = |row: &FunctionRow, args: &str| {
        let cell = |bound: String| bound.replace('|', "\\|");
        let FunctionRow { name, single, double, .. } = row;
        format!("| `{name}({args})` | {} | {} |\n", cell(single.to_string()), cell(double.to_string()))
    };
    let unary = MathFn::ALL.iter().map(|function| line(function.row(), "x"));
    let binary = BinaryMathFn::ALL
        .iter()
        .map(|function| line(function.row(), if matches!(function, BinaryMathFn::Atan2) { "y, x" } else { "x, y" }));
    unary.chain(binary).chain(FloatIntFn::ALL.iter().map(|function| line(function.row(), "x, n"))).collect()
}

#[test]
fn the_bounds_of_errors_are_those_of_the_functions() {
    let head = "| function | `f32` | `f64` |\n|---|---|---|\n";
    let (before, rest) = LANGUAGE.split_once(head).unwrap_or_else(|| panic!("no table of errors"));
    let (table, after) = rest.split_once("\n## ").unwrap_or_else(|| panic!("no end of the table"));
    if std::env::var_os("TILEWRIGHT_BLESS").is_some() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/language.md");
        let text = format!("{before}{head}{}\n## {after}", errors());
        std::fs::write(&path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        return;
    }
    assert_eq!(table, errors(), "write the table anew with TILEWRIGHT_BLESS=1");
}
