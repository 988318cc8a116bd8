//! The stages of a variant side by side: source, tile IR, LLVM IR, PTX and machine code, with the lines that belong together.

use std::fmt::Write;

use kernel_archive::Entry;
use kernel_codegen::report::{Report, SharedReport};
use kernel_core::ir::Func;

use crate::layouts::{self, Picture};
use crate::lines::{self, Line, Place};
use crate::machine::{MachineCode, Tools};
use crate::source::{Roots, source};
use crate::stages::{self, Stages};

/// A stage that is shown beside others.
pub struct Pane {
    /// What it is called, as in the terminal; `source` for the source.
    pub name: &'static str,
    /// Its lines.
    pub lines: Vec<Line>,
}

/// Everything that is shown of a variant.
pub struct Look {
    /// All stages as text.
    pub stages: Stages,
    /// Its machine code.
    pub machine: MachineCode,
    /// Stages side by side, those that there are.
    pub panes: Vec<Pane>,
    /// The names of the source files, by number.
    pub files: Vec<String>,
    /// What was decided, with what the assembler has made of it, if it could be made again.
    pub report: Option<Report>,
    /// The layouts as pictures.
    pub pictures: Vec<Picture>,
    /// What to know about all this, a line for each.
    pub notes: Vec<String>,
}

impl Look {
    /// At a variant.
    pub fn at(entry: &Entry, tools: &Tools, roots: &Roots) -> Look {
        let stages = Stages::of(entry);
        let mut notes: Vec<String> = stages.note.iter().cloned().collect();
        let bound = stages::bound(entry).ok();
        let func = bound.as_ref().map(|bound| bound.func());
        let lined = func.and_then(|func| stages::with_lines(entry, func));
        let machine = MachineCode::of(entry, lined.as_ref().map(|compiled| compiled.ptx.as_str()), tools);
        notes.extend(machine.notes.iter().cloned());
        notes.extend(machine.lines.as_ref().err().map(|why| format!("machine code is not shown: {why}")));
        let report = stages.compiled.as_ref().map(|compiled| Report { usage: machine.usage(), ..compiled.report() });
        let mut panes = Vec::new();
        let mut add = |name, lines: Vec<Line>| panes.extend((!lines.is_empty()).then_some(Pane { name, lines }));
        if let Some(func) = func {
            let found = source(func, roots);
            let has_several = found.files.len() > 1;
            let with_name = |(name, lines): (String, Vec<Line>)| {
                let head = has_several.then(|| Line::plain(&format!("// {name}")));
                head.into_iter().chain(lines).collect::<Vec<_>>()
            };
            add("source", found.files.into_iter().flat_map(with_name).collect());
            let why = |name| format!("{name} is not found from here; `--source FOLDER` says where it is");
            notes.extend(found.missing.into_iter().map(why));
            add("bound", lines::of_tiles(&func.files, &entry.texts.bound_ir));
            add("placed", lines::of_tiles(&func.files, stages.get("placed").unwrap_or_default()));
            let llvm = lined.as_ref().and_then(|compiled| compiled.llvm_ir.as_ref());
            add(
                "llvm",
                match llvm {
                    Some(ir) => lines::of_llvm(&func.files, &ir.origins, &ir.optimised),
                    None => lines::plain(stages.get("llvm").unwrap_or_default()),
                },
            );
        }
        add("ptx", lines::of_ptx(lined.as_ref().map_or(&entry.texts.ptx, |compiled| &compiled.ptx)));
        add("sass", machine.lines.clone().unwrap_or_default());
        let placed = stages.compiled.as_ref().map(|compiled| compiled.placed.func());
        let pictures = placed.map_or_else(Vec::new, layouts::pictures);
        Look { files: func.map_or_else(Vec::new, names), stages, machine, panes, report, pictures, notes }
    }

    /// The stage of that name, beside others.
    pub fn pane(&self, name: &str) -> Option<&Pane> {
        self.panes.iter().find(|pane| pane.name == name)
    }

    /// The lines of the source, each with how many lines of each stage are from it.
    pub fn counts(&self) -> String {
        let others: Vec<&Pane> = self.panes.iter().filter(|pane| pane.name != "source").collect();
        let mut text: String = others.iter().map(|pane| format!("{:>7}", pane.name)).collect();
        text.push('\n');
        let mut all: Vec<Place> =
            others.iter().flat_map(|pane| &pane.lines).flat_map(|line| line.places.clone()).collect();
        all.sort();
        all.dedup();
        for place in all {
            for pane in &others {
                let _ = write!(text, "{:>7}", pane.lines.iter().filter(|line| line.places.contains(&place)).count());
            }
            let _ = writeln!(text, "  {}", self.shown(place));
        }
        text
    }

    /// What each stage has of a line of the source; `None` if nothing is from it.
    pub fn line(&self, file: usize, line: u32) -> Option<String> {
        let place = Place { file, line };
        let mut text = format!("{}\n", self.shown(place));
        let mut found = false;
        for pane in self.panes.iter().filter(|pane| pane.name != "source") {
            let lines: Vec<&Line> = pane.lines.iter().filter(|line| line.places.contains(&place)).collect();
            found |= !lines.is_empty();
            let _ = writeln!(text, "== {}, {} lines", pane.name, lines.len());
            lines.iter().for_each(|line| text += &format!("{}\n", line.text));
        }
        found.then_some(text)
    }

    /// A place with its line, if that is known: `src/add.rs:9  let x = ..`.
    fn shown(&self, place: Place) -> String {
        let name = self.files.get(place.file).map_or("?", String::as_str);
        let lines = self.pane("source").map_or(&[][..], |pane| &pane.lines);
        let line = lines.iter().find(|line| line.places.contains(&place)).map_or("", |line| line.text.trim());
        format!("{name}:{}  {line}", place.line).trim_end().to_string()
    }

    /// The accesses to shared memory, a line for each.
    pub fn shared(&self) -> String {
        let Some(report) = &self.report else { return "the kernel cannot be compiled here\n".to_string() };
        if report.shared.is_empty() {
            return "no thread accesses shared memory itself\n".to_string();
        }
        let line = |(count, one): (usize, &SharedReport)| {
            let by = if one.by_matrices { " by matrices" } else { "" };
            let SharedReport { what, instructions, bytes, .. } = one;
            let (place, conflicts) = (report.files.place(one.span), conflicts(one));
            format!("{place}: {what}{}: {instructions} x {bytes} bytes per thread{by}, {conflicts}\n", times(count))
        };
        grouped(&report.shared).into_iter().map(line).collect()
    }
}

/// Those that are equal and stand together once, with how many they are.
pub fn grouped<T: PartialEq>(all: &[T]) -> Vec<(usize, &T)> {
    all.chunk_by(|a, b| a == b).map(|group| (group.len(), &group[0])).collect()
}

/// ` (8 times)`; nothing for once.
pub fn times(count: usize) -> String {
    if count == 1 { String::new() } else { format!(" ({count} times)") }
}

/// How often lanes meet in a bank.
pub fn conflicts(access: &SharedReport) -> String {
    match access.conflicts {
        0 => "no bank conflicts".to_string(),
        extra => format!("bank conflicts: {} times as long", extra + 1),
    }
}

fn names(func: &Func) -> Vec<String> {
    [func.files.own()].into_iter().chain(func.files.others().iter().map(String::as_str)).map(String::from).collect()
}
