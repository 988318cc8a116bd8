//! Line information in PTX, as tools read it.
//!
//! LLVM says of each instruction a line of a file, and nothing of functions that were inlined; it also marks with labels
//! where places begin, which would be places to jump to for ptxas, and so might change its code. What it takes for a file
//! is therefore an [`Origin`], a file with a call, and the text is finished here:
//!
//! ```text
//!     .loc 2 3 5              .loc 1 8 9
//!                             .loc 2 3 5, function_name $L__info_string0, inlined_at 1 8 9
//! $L__tmp1:
//!     add.s32 ..              add.s32 ..
//!     .file 1 "0"             .file 1 "/home/me/app/src/add.rs"
//!     .file 2 "1"             .file 2 "/home/me/app/src/half.rs"
//!                             .section .debug_str { $L__info_string0: .b8 ..
//! ```
//!
//! Without these directives the PTX is to the letter that of a kernel without line information.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use kernel_core::backend::nvidia::LineInfo;
use kernel_core::ir::{CallId, FileId, Files, Span};

/// What code is from: a file, instantiated by a call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Origin {
    file: FileId,
    call: CallId,
}

impl Origin {
    /// The kernel itself.
    pub(crate) const OWN: Origin = Origin { file: FileId::OWN, call: CallId::NONE };

    /// That of a place.
    pub(crate) fn of(span: Span) -> Origin {
        Origin { file: span.file, call: span.call }
    }

    /// Its file and its call.
    pub(crate) fn parts(self) -> (FileId, CallId) {
        (self.file, self.call)
    }

    /// What LLVM takes for the name of the origin with that index.
    pub(crate) fn name(index: usize) -> String {
        index.to_string()
    }
}

/// LLVM's labels of places.
const LABELS: [&str; 3] = ["$L__tmp", "$L__func_begin", "$L__func_end"];
/// A section that LLVM leaves empty.
const EMPTY_SECTION: &str = ".debug_macinfo";

/// The PTX with the names of files, and with the calls that inlined functions.
pub(crate) fn finish(ptx: &str, origins: &[Origin], files: &Files, info: &LineInfo) -> String {
    let numbers: BTreeMap<&str, Origin> = ptx.lines().filter_map(|line| origin_of_file(line, origins)).collect();
    let mut writer = Writer {
        files,
        info,
        text: String::with_capacity(ptx.len() * 2),
        here: None,
        known: BTreeSet::new(),
        named: BTreeSet::new(),
    };
    for line in ptx.split_inclusive('\n') {
        match Line::of(line, &numbers) {
            Line::Place(span) => writer.place(span),
            Line::Dropped => {}
            Line::Other => writer.text.push_str(line),
        }
    }
    writer.sections();
    writer.text
}

/// `.file 2 "1"`: the number, and the origin of that name.
fn origin_of_file<'p>(line: &'p str, origins: &[Origin]) -> Option<(&'p str, Origin)> {
    let (number, name) = line.trim().strip_prefix(".file")?.trim().split_once(char::is_whitespace)?;
    let index: usize = name.trim().trim_matches('"').parse().ok()?;
    Some((number, *origins.get(index)?))
}

/// A line of LLVM's PTX.
enum Line {
    /// The place of what follows.
    Place(Span),
    /// What is not kept.
    Dropped,
    Other,
}

impl Line {
    fn of(line: &str, numbers: &BTreeMap<&str, Origin>) -> Line {
        let text = line.trim();
        if let Some(place) = text.strip_prefix(".loc") {
            return read_place(place, numbers).map_or(Line::Dropped, Line::Place);
        }
        let is_label = LABELS.iter().any(|label| text.starts_with(label)) && text.ends_with(':');
        let is_section = text.starts_with(".section") && text.contains(EMPTY_SECTION);
        let is_file = text.starts_with(".file");
        if is_label || is_section || is_file { Line::Dropped } else { Line::Other }
    }
}

/// `1 7 15`; `None` of what LLVM has merged from several places, whose line is 0.
fn read_place(text: &str, numbers: &BTreeMap<&str, Origin>) -> Option<Span> {
    let mut words = text.split_whitespace();
    let origin = numbers.get(words.next()?)?;
    let (line, column) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    (line > 0).then(|| Span::new(line, column, 1).in_file(origin.file).in_call(origin.call))
}

/// Writes the PTX.
struct Writer<'w> {
    files: &'w Files,
    info: &'w LineInfo,
    text: String,
    /// The place of what follows.
    here: Option<Span>,
    /// The places that have been written, by line and column: calls are to stand before what they inline.
    known: BTreeSet<(Origin, u32, u32)>,
    /// The calls whose functions have a name.
    named: BTreeSet<CallId>,
}

impl Writer<'_> {
    /// The place of what follows, behind those of the calls that led there.
    fn place(&mut self, span: Span) {
        if self.here == Some(span) {
            return;
        }
        let calls: Vec<Span> = self.files.calls_to(span).collect();
        for call in calls.into_iter().rev() {
            if !self.known.contains(&(Origin::of(call), call.line, call.column)) {
                self.write(call);
            }
        }
        self.write(span);
    }

    fn write(&mut self, span: Span) {
        self.here = Some(span);
        self.known.insert((Origin::of(span), span.line, span.column));
        let number = |span: Span| span.file.index() + 1;
        // Writing to a string does not fail.
        let _ = write!(self.text, "\t.loc\t{} {} {}", number(span), span.line, span.column);
        if let Some(call) = self.files.calls_to(span).next() {
            let id = span.call.number() - 1;
            let _ = write!(self.text, ", function_name $L__info_string{id}, inlined_at ");
            let _ = write!(self.text, "{} {} {}", number(call), call.line, call.column);
            self.named.insert(span.call);
        }
        self.text.push('\n');
    }

    /// The names of files and functions.
    fn sections(&mut self) {
        let used: BTreeSet<FileId> = self.known.iter().map(|(origin, ..)| origin.file).collect();
        for id in used {
            let own = self.files.get(id).unwrap_or_else(|| self.files.own());
            let name = self.info.files.get(id.index()).map_or(own, String::as_str);
            let _ = writeln!(self.text, "\t.file\t{} \"{}\"", id.index() + 1, quoted(name));
        }
        if self.named.is_empty() {
            return;
        }
        self.text.push_str("\t.section\t.debug_str\n\t{\n");
        for call in &self.named {
            let at = call.number() as usize - 1;
            let place = || self.files.calls().get(at).map_or_else(String::new, |call| self.files.place(*call));
            let name = self.info.functions.get(at).filter(|name| !name.is_empty()).cloned().unwrap_or_else(place);
            let bytes: Vec<String> = name.bytes().chain([0]).map(|byte| byte.to_string()).collect();
            let _ = writeln!(self.text, "$L__info_string{at}:\n.b8 {}", bytes.join(","));
        }
        self.text.push_str("\t}\n");
    }
}

/// A name between quotes: PTX has no way to write some characters there.
fn quoted(name: &str) -> String {
    let allowed = |c: char| !c.is_control() && c != '"';
    name.replace('\\', "\\\\").chars().map(|c| if allowed(c) { c } else { '?' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "\
        .target sm_90a\n\
        .visible .entry k()\n\
        {\n\
        $L__func_begin0:\n\
        \t.loc\t1 6 0\n\
        \tmov.u32 %r1, %tid.x;\n\
        $L__tmp0:\n\
        \t.loc\t2 3 5\n\
        \tadd.s32 %r2, %r1, %r1;\n\
        $L__tmp1:\n\
        \t.loc\t1 0 0\n\
        \tadd.s32 %r3, %r2, %r1;\n\
        $L__tmp2:\n\
        \t.loc\t2 3 5\n\
        $L__BB0_1:\n\
        \tret;\n\
        $L__tmp3:\n\
        $L__func_end0:\n\
        }\n\
        \t.section\t.debug_macinfo\t{\t}\n\
        \t.file\t1 \"0\"\n\
        \t.file\t2 \"1\"\n";

    fn origins_of(outer: Span, inner: Span) -> (Files, Vec<Origin>) {
        let mut files = Files::new("src/k.rs");
        let half = files.add("src/half.rs").expect("a second file");
        let outer = files.add_call(outer).expect("a call");
        let inner = files.add_call(inner.in_file(half).in_call(outer)).expect("a second call");
        let origin = Origin::of(Span::new(1, 1, 1).in_file(half).in_call(inner));
        (files, vec![Origin::OWN, origin])
    }

    #[test]
    fn calls_stand_before_what_they_inline() {
        let (files, origins) = origins_of(Span::new(8, 9, 4), Span::new(20, 2, 4));
        let functions = vec!["half".to_string()];
        let info = LineInfo { files: vec!["/app/\"src\"/k.rs".to_string()], functions };
        let finished = finish(PTX, &origins, &files, &info);
        let expected = "\
            .target sm_90a\n\
            .visible .entry k()\n\
            {\n\
            \t.loc\t1 6 0\n\
            \tmov.u32 %r1, %tid.x;\n\
            \t.loc\t1 8 9\n\
            \t.loc\t2 20 2, function_name $L__info_string0, inlined_at 1 8 9\n\
            \t.loc\t2 3 5, function_name $L__info_string1, inlined_at 2 20 2\n\
            \tadd.s32 %r2, %r1, %r1;\n\
            \tadd.s32 %r3, %r2, %r1;\n\
            $L__BB0_1:\n\
            \tret;\n\
            }\n\
            \t.file\t1 \"/app/?src?/k.rs\"\n\
            \t.file\t2 \"src/half.rs\"\n\
            \t.section\t.debug_str\n\
            \t{\n\
            $L__info_string0:\n\
            .b8 104,97,108,102,0\n\
            $L__info_string1:\n\
            .b8 115,114,99,47,104,97,108,102,46,114,115,58,50,48,58,50,0\n\
            \t}\n";
        assert_eq!(finished, expected);
    }
}
