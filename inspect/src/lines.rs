//! Which lines of the source each line of a stage is from.
//!
//! | stage | says so by |
//! |---|---|
//! | tile IR | the place behind each operation: `@c1:f1:2:5+3` |
//! | LLVM IR | `!dbg`, with files that are numbers of [`origins`](kernel_codegen::LlvmIr) |
//! | PTX | `.loc`, with the call that inlined what follows |
//! | machine code | the comments of `nvdisasm`: `//## File "0", line 3 inlined at "0", line 10` |
//!
//! What says so is taken out of the text. Of what was inlined, the places of the calls follow that of the line itself.

use std::collections::HashMap;

use kernel_archive::places;
use kernel_core::ir::{CallId, FileId, Files, Span};

/// A line of the source.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place {
    /// The number of the file: 0 is the kernel's own.
    pub file: usize,
    /// The line, from 1.
    pub line: u32,
}

/// A line of a stage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// What it says.
    pub text: String,
    /// Where it is from, the innermost first; none if that is not known.
    pub places: Vec<Place>,
}

impl Line {
    /// One of no known place.
    pub fn plain(text: &str) -> Line {
        Line { text: text.to_string(), places: Vec::new() }
    }
}

/// Lines without places.
pub fn plain(text: &str) -> Vec<Line> {
    text.lines().map(Line::plain).collect()
}

/// The lines of a source that a place stands for: its own, and those of the calls that led there.
fn of_span(files: &Files, span: Span) -> Vec<Place> {
    let mut found: Vec<Place> = Vec::new();
    for span in [span].into_iter().chain(files.calls_to(span)).filter(|span| span.line > 0) {
        let place = Place { file: span.file.index(), line: span.line };
        if !found.contains(&place) {
            found.push(place);
        }
    }
    found
}

/// Of tile IR as it is printed.
pub fn of_tiles(files: &Files, text: &str) -> Vec<Line> {
    let read = |line: &str| {
        let (before, at) = line.rsplit_once(" @")?;
        let end = at.find(char::is_whitespace).unwrap_or(at.len());
        let span = places::read(&at[..end])?;
        Some(Line { text: format!("{before}{}", &at[end..]), places: of_span(files, span) })
    };
    text.lines().map(|line| read(line).unwrap_or_else(|| Line::plain(line))).collect()
}

/// Of LLVM IR. `origins` are what the names of its files stand for.
pub fn of_llvm(files: &Files, origins: &[(FileId, CallId)], text: &str) -> Vec<Line> {
    let metadata: HashMap<&str, &str> =
        text.lines().filter(|line| line.starts_with('!')).filter_map(|line| line.split_once(" = ")).collect();
    let field = |node: &str, name: &str| -> Option<String> {
        let value = node.split_once(&format!("{name}: "))?.1;
        Some(value.split([',', ')']).next()?.trim().to_string())
    };
    let place = |node: &str| {
        let location = metadata.get(node).filter(|node| node.contains("DILocation("))?;
        let number = |name: &str| field(location, name)?.parse::<u32>().ok();
        let (line, column) = (number("line")?, number("column").unwrap_or(0));
        let file = field(metadata.get(field(location, "scope")?.as_str())?, "file")?;
        let name = field(metadata.get(file.as_str())?, "filename")?;
        let (file, call) = *origins.get(name.trim_matches('"').parse::<usize>().ok()?)?;
        Some(of_span(files, Span::new(line, column, 1).in_file(file).in_call(call)))
    };
    let mut lines: Vec<Line> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('!')) {
        lines.push(match line.split_once(", !dbg ") {
            Some((text, node)) => {
                let end = node.find([',', ' ']).unwrap_or(node.len());
                let places = place(&node[..end]).unwrap_or_default();
                Line { text: format!("{text}{}", &node[end..]), places }
            }
            None => Line::plain(line),
        });
    }
    while lines.last().is_some_and(|line| line.text.trim().is_empty()) {
        lines.pop();
    }
    lines
}

/// Of PTX. Without the directives of line information, the text is that of PTX without it.
pub fn of_ptx(text: &str) -> Vec<Line> {
    type At = (usize, u32, u32);
    let at = |words: &str| -> Option<At> {
        let mut words = words.split_whitespace();
        let file: usize = words.next()?.parse().ok()?;
        Some((file.checked_sub(1)?, words.next()?.parse().ok()?, words.next()?.parse().ok()?))
    };
    let (mut lines, mut here, mut in_names) = (Vec::new(), Vec::new(), false);
    let mut callers: HashMap<At, At> = HashMap::new();
    for line in text.lines() {
        let trimmed = line.trim();
        if let Some(place) = trimmed.strip_prefix(".loc") {
            let mut parts = place.split(", ");
            let own = parts.next().and_then(at);
            let call = parts.find_map(|part| at(part.strip_prefix("inlined_at ")?));
            match (own, call) {
                (Some(own), Some(call)) => drop(callers.insert(own, call)),
                (Some(own), None) => drop(callers.remove(&own)),
                (None, _) => {}
            }
            // A call stands before what it inlines, so that no circle is possible; of damaged text it is cut.
            let chain = std::iter::successors(own, |at| callers.get(at).copied()).take(MOST_CALLS);
            here.clear();
            for (file, line, _) in chain.filter(|at| at.1 > 0) {
                if !here.contains(&Place { file, line }) {
                    here.push(Place { file, line });
                }
            }
            continue;
        }
        in_names |= trimmed.starts_with(".section") && trimmed.contains(".debug_str");
        if !in_names && !trimmed.starts_with(".file") {
            let is_instruction = trimmed.ends_with(';') && !trimmed.starts_with('.') && !trimmed.starts_with("//");
            let places = if is_instruction { here.clone() } else { Vec::new() };
            lines.push(Line { text: line.to_string(), places });
        }
        in_names &= trimmed != "}";
    }
    lines
}

/// Calls in calls that are followed.
const MOST_CALLS: usize = 64;

/// Of machine code as `nvdisasm` prints it; `file` knows the number of a file by its name.
pub fn of_machine(text: &str, file: impl Fn(&str) -> Option<usize>) -> Vec<Line> {
    let (mut lines, mut here, mut in_places, mut in_code): (Vec<Line>, Vec<Place>, _, _) =
        (Vec::new(), Vec::new(), false, false);
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.starts_with("//-----") {
            in_code = false;
        } else if trimmed.starts_with(".text.") && trimmed.ends_with(':') {
            (in_code, in_places) = (true, false);
            here.clear();
        } else if !in_code || trimmed.is_empty() {
        } else if let Some(place) = trimmed.strip_prefix("//## File ") {
            if !in_places {
                here.clear();
            }
            in_places = true;
            for place in of_comment(place, &file) {
                if !here.contains(&place) {
                    here.push(place);
                }
            }
        } else if trimmed.starts_with("/*") {
            in_places = false;
            lines.push(Line { text: tidy(trimmed), places: here.clone() });
        } else if trimmed.ends_with(':') {
            lines.push(Line::plain(trimmed));
        }
    }
    without_padding(lines)
}

/// `"0", line 3 inlined at "0", line 10`.
fn of_comment(text: &str, file: &impl Fn(&str) -> Option<usize>) -> Vec<Place> {
    let parts: Vec<&str> = text.split('"').collect();
    let read = |pair: &[&str]| {
        let number: String =
            pair[1].chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
        Some(Place { file: file(pair[0])?, line: number.parse().ok().filter(|line| *line > 0)? })
    };
    parts.get(1..).unwrap_or_default().chunks_exact(2).filter_map(read).collect()
}

/// An instruction with its offset, indented alike: `/*0010*/  @P0 EXIT ;`.
fn tidy(line: &str) -> String {
    let (offset, rest) = line.split_once("*/").unwrap_or((line, ""));
    let text = rest.trim();
    let indent = if text.starts_with('@') { "  " } else { "      " };
    format!("{offset}*/{indent}{text}")
}

/// What stands behind the last jump, a jump to itself that nothing comes to, is there to fill a line of the cache.
fn without_padding(mut lines: Vec<Line>) -> Vec<Line> {
    let is_filler = |line: &Line| line.text.ends_with("NOP ;") || line.text.ends_with("NOP;");
    let is_last_label = |line: &Line| line.text.ends_with(':') && !line.text.contains("*/");
    while lines.last().is_some_and(|line| is_filler(line) || is_last_label(line)) {
        lines.pop();
    }
    lines
}

#[cfg(test)]
mod tests;
