//! An archive as one page of HTML, which needs nothing but itself.
//!
//! Without scripts it shows everything, each stage below the other. With them, stages stand side by side, and pointing at a
//! line marks what belongs to it in all of them.
//!
//! | module | what it is |
//! |---|---|
//! | `tables` | what is known in numbers: facts, accesses, conflicts, layouts |

mod tables;

use std::collections::HashSet;
use std::fmt::Write;

use kernel_archive::Entry;

use crate::lines::{Line, Place};
use crate::machine::Tools;
use crate::panes::{Look, Pane};
use crate::source::Roots;
use crate::terminal::{counted, difference, overview};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// The stages that are shown at first, of those that there are.
const FIRST: [&str; 3] = ["source", "placed", "sass"];

/// The page. `title` is what the archive is called.
pub fn page(title: &str, entries: &[Entry], tools: &Tools, roots: &Roots) -> String {
    let title = escape(title);
    let looks: Vec<Look> = entries.iter().map(|entry| Look::at(entry, tools, roots)).collect();
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{title}</title>\n\
         <style>\n{STYLE}</style></head>\n<body><main><h1>{title}</h1>\n{}",
        makers(entries)
    );
    html += &tables::variants(entries, &looks);
    for (number, (entry, look)) in entries.iter().zip(&looks).enumerate() {
        variant(&mut html, number + 1, entry, look);
    }
    let _ = write!(html, "</main>\n<script>\n{SCRIPT}</script></body></html>\n");
    html
}

fn makers(entries: &[Entry]) -> String {
    let mut makers: Vec<&str> = entries.iter().map(|entry| entry.head.maker.compiler.as_str()).collect();
    makers.sort_unstable();
    makers.dedup();
    format!("<p class=\"soft\">{} variants, made by {}</p>\n", entries.len(), escape(&makers.join(" and ")))
}

/// What the identity of a variant begins with, and what it says of parameters.
fn names(entry: &Entry) -> (String, String) {
    let name = entry.head.identity.to_string();
    let (short, params) = name.split_once(": ").unwrap_or((&name, ""));
    (escape(short), escape(params))
}

fn variant(html: &mut String, number: usize, entry: &Entry, look: &Look) {
    let (name, params) = names(entry);
    let open = if number == 1 { " open" } else { "" };
    let _ = writeln!(
        html,
        "<details class=\"variant\" id=\"variant-{number}\"{open}><summary><h2>{name}</h2> \
         <span class=\"soft\">{params}</span></summary><div>"
    );
    html.push_str(&tables::facts(entry, look));
    for note in &look.notes {
        let _ = writeln!(html, "<p class=\"note\">{}</p>", escape(note));
    }
    side_by_side(html, look);
    html.push_str(&tables::accesses(look));
    html.push_str(&tables::shared(look));
    html.push_str(&tables::layouts(look));
    html.push_str("<h3>All there is to say</h3>\n");
    more(html, "report", &escape(&overview(entry, look)));
    if let Some(text) = look.stages.get("lowered") {
        more(html, &format!("LLVM IR as lowered, {} lines", text.lines().count()), &escape(text));
    }
    let changes: Vec<_> = look.stages.changes().collect();
    if !changes.is_empty() {
        html.push_str("<h3>What each pass changes</h3>\n");
    }
    for (pass, before, after) in changes {
        let difference = difference(before, after);
        more(html, &format!("{pass}: {}", counted(&difference)), &marked(&difference));
    }
    html.push_str("</div></details>\n");
}

/// The stages, with their lines linked.
fn side_by_side(html: &mut String, look: &Look) {
    html.push_str("<h3>Stages, line by line</h3>\n<div class=\"stages\"><div class=\"chosen\" hidden>\n");
    for Pane { name, .. } in &look.panes {
        let first = if FIRST.contains(name) { " data-first" } else { "" };
        let _ = write!(html, "<button type=\"button\" data-stage=\"{name}\"{first}>{name}</button>");
    }
    html.push_str("<span class=\"soft\">point at a line to see what it becomes; click to keep it</span></div>\n<div class=\"panes\">\n");
    // Of lines of the source that nothing is from there is nothing to see.
    let others = look.panes.iter().filter(|pane| pane.name != "source").flat_map(|pane| &pane.lines);
    let known: HashSet<Place> = others.flat_map(|line| line.places.iter().copied()).collect();
    for pane in &look.panes {
        let (name, count) = (pane.name, pane.lines.len());
        let _ = write!(
            html,
            "<div class=\"pane\" data-stage=\"{name}\"><header>{name}<span>{count} lines</span></header><pre>"
        );
        pane.lines.iter().for_each(|one| line(html, one, &known));
        html.push_str("</pre></div>\n");
    }
    html.push_str("</div></div>\n");
}

/// A line, with the line of the source that it is from before it.
fn line(html: &mut String, line: &Line, known: &HashSet<Place>) {
    html.push_str("<span");
    if let Some(own) = line.places.first() {
        let _ = write!(html, " data-at=\"{}\"", own.line);
        if known.contains(own) {
            let all: Vec<String> = line.places.iter().map(|at| format!("{}:{}", at.file, at.line)).collect();
            let _ = write!(html, " data-l=\"{}\"", all.join(" "));
        }
    }
    // A line of nothing keeps its height.
    let text = if line.text.is_empty() { " ".to_string() } else { escape(&line.text.replace('\t', "    ")) };
    let _ = write!(html, ">{text}</span>");
}

/// A text behind a line that opens it.
fn more(html: &mut String, title: &str, text: &str) {
    let title = escape(title);
    let _ =
        writeln!(html, "<details class=\"more\"><summary>{title}</summary><pre class=\"text\">{text}</pre></details>");
}

/// A difference with its lines in colours.
fn marked(difference: &str) -> String {
    let mut html = String::new();
    for line in difference.lines() {
        let text = escape(line);
        let _ = match line.as_bytes().first() {
            Some(b'-') => writeln!(html, "<span class=\"old\">{text}</span>"),
            Some(b'+') => writeln!(html, "<span class=\"new\">{text}</span>"),
            _ => writeln!(html, "{text}"),
        };
    }
    html
}

/// Text as HTML shows it.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
