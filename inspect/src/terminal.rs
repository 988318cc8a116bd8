//! Lists, stages and differences as lines.

use std::collections::BTreeMap;
use std::fmt::Write;

use kernel_archive::Entry;
use similar::{ChangeTag, TextDiff};

use crate::InspectError;
use crate::layouts;
use crate::machine::{MachineCode, Tools};
use crate::panes::Look;
use crate::source::Roots;
use crate::stages::Stages;

/// Lines around a difference.
const CONTEXT: usize = 3;

/// A line for each variant, and who has made them.
pub fn list(entries: &[Entry]) -> String {
    let mut text = String::new();
    let width = entries.len().to_string().len();
    for (index, entry) in entries.iter().enumerate() {
        let Entry { head, texts, machine } = entry;
        let shared = head.code.shared_bytes;
        let warps = head.code.num_warps;
        let _ = writeln!(
            text,
            "{:>width$}  {}\n{:>width$}  {warps} warps, {shared} bytes of shared memory, {} bytes of PTX, {}{} condition{}",
            index + 1,
            head.identity,
            "",
            texts.ptx.len(),
            machine.iter().map(|one| format!("{} of machine code, ", one.image.len())).collect::<String>(),
            head.code.conditions.len(),
            plural(head.code.conditions.len())
        );
    }
    let mut makers: Vec<&str> = entries.iter().map(|entry| entry.head.maker.compiler.as_str()).collect();
    makers.sort_unstable();
    makers.dedup();
    let count = entries.len();
    let _ = writeln!(text, "{count} variant{}; made by {}", plural(count), makers.join(" and "));
    text
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// What a variant is, and the report that the archive has.
pub fn summary(entry: &Entry) -> String {
    head(entry) + &entry.texts.report
}

/// What a launch needs of a variant, and who has made it.
pub fn head(entry: &Entry) -> String {
    let Entry { head, machine, .. } = entry;
    let code = &head.code;
    let mut text = format!("{}\nkey {}\nmade by {}\n", head.identity, head.identity.key(""), head.maker.compiler);
    let _ = writeln!(
        text,
        "entry `{}`, {} warps, {} bytes of shared memory",
        code.entry, code.num_warps, code.shared_bytes
    );
    let _ = writeln!(text, "parameters: {:?}", code.abi);
    for (index, node) in code.nodes.iter().enumerate() {
        let _ = writeln!(text, "  interval {index}: {node:?}");
    }
    for condition in &code.conditions {
        let _ = writeln!(text, "  launches must meet: {condition:?}");
    }
    for (index, site) in code.sites.iter().enumerate() {
        let _ = writeln!(text, "  site {index}: {:?}", site.kind);
    }
    for made in &code.made {
        let _ = writeln!(text, "  tensor `{}` is made by the host: {:?}", made.name, made.recipe);
    }
    for one in machine {
        let head = &one.head;
        let (major, minor) = (head.capability / 10, head.capability % 10);
        let _ = writeln!(text, "machine code for GPUs of {major}.{minor}: {} bytes by {}", one.image.len(), head.maker);
        for line in head.log.lines() {
            let _ = writeln!(text, "  {}", line.trim_start());
        }
    }
    text
}

/// What a variant is, and its report with what the assembler has made of it.
pub fn overview(entry: &Entry, look: &Look) -> String {
    let Some(report) = look.report.as_ref().filter(|report| report.usage.is_some()) else { return summary(entry) };
    let spills = look.machine.spills().filter(|spills| *spills != (0, 0));
    let spills = spills.map_or_else(String::new, |(stores, loads)| {
        format!("  spills: {stores} bytes are stored, {loads} loaded back, counted once per place\n")
    });
    head(entry) + &report.to_string() + &spills
}

/// What to know about what is shown, a line for each.
pub fn notes(look: &Look) -> String {
    look.notes.iter().map(|note| format!("note: {note}\n")).collect()
}

/// What is asked for beside the stages.
const VIEWS: [&str; 6] = ["passes", "sass", "layouts", "shared", "lines", "line:NUMBER"];

/// A stage of a variant, or a view of several: `passes` is what each pass changes, `sass` the machine code behind the lines
/// that it is from, `layouts` pictures
/// of them, `shared` the accesses to shared memory, `lines` the lines of the source with how much of each stage is from them,
/// `line:9` or `line:1:9` all that is from line 9 of the kernel's file or of another.
///
/// # Errors
/// If there is no such stage, or it cannot be shown.
pub fn stage(entry: &Entry, name: &str, tools: &Tools, roots: &Roots) -> Result<String, InspectError> {
    let no_stage = |stages: &Stages| {
        let known = stages.names().into_iter().chain(VIEWS.map(String::from)).collect();
        InspectError::NoStage { stage: name.to_string(), known }
    };
    if !VIEWS[1..].contains(&name) && !name.starts_with("line:") {
        let stages = Stages::of(entry);
        let note = stages.note.as_ref().map_or_else(String::new, |note| format!("note: {note}\n"));
        if name == VIEWS[0] {
            let change =
                |(pass, before, after): (&str, &str, &str)| format!("== {pass}\n{}", difference(before, after));
            return Ok(note + &stages.changes().map(change).collect::<String>());
        }
        let text = stages.get(name).ok_or_else(|| no_stage(&stages))?;
        // What the archive itself has needs no note.
        let is_kept = ["bound", "ptx", "report"].contains(&name);
        return Ok(if is_kept { text.to_string() } else { note + text });
    }
    let look = Look::at(entry, tools, roots);
    let text = match name {
        "sass" => look.machine.numbered().map_err(|reason| InspectError::NoMachineCode { reason })?,
        "layouts" => layouts::text(&look.pictures),
        "shared" => look.shared(),
        "lines" => look.counts(),
        _ => {
            let numbers: Option<Vec<u32>> = name.split(':').skip(1).map(|number| number.parse().ok()).collect();
            let (file, line) = match numbers.as_deref() {
                Some(&[line]) => (0, line),
                Some(&[file, line]) => (file as usize, line),
                Some(_) | None => return Err(no_stage(&look.stages)),
            };
            look.line(file, line).ok_or_else(|| InspectError::NoLine { line: name["line:".len()..].to_string() })?
        }
    };
    Ok(notes(&look) + &text)
}

/// How a stage of two variants differs. Machine code is compared without offsets, so that what has only moved is the same.
///
/// # Errors
/// If there is no such stage.
pub fn compare((old, new): (&Entry, &Entry), name: &str, tools: &Tools, roots: &Roots) -> Result<String, InspectError> {
    let text = |entry: &Entry| match name {
        "sass" => sass(entry, tools).map_err(|reason| InspectError::NoMachineCode { reason }),
        _ => stage(entry, name, tools, roots),
    };
    let difference = difference(&text(old)?, &text(new)?);
    let heads = format!("--- {}\n+++ {}\n", old.head.identity, new.head.identity);
    Ok(if difference.is_empty() { format!("{heads}no difference\n") } else { heads + &difference })
}

/// How all stages of two variants differ: how many lines of each, and what they are.
pub fn compare_all((old, new): (&Entry, &Entry), tools: &Tools) -> String {
    let mut text = format!("--- {}\n+++ {}\n", old.head.identity, new.head.identity);
    let differences = differences(old, new, tools);
    for (name, difference) in &differences {
        let _ = match difference {
            Difference::Lines(lines) => writeln!(text, "{name:<10} {}", counted(lines)),
            Difference::OneSided(why) => writeln!(text, "{name:<10} shown of one side only: {why}"),
            Difference::Unknown(why) => writeln!(text, "{name:<10} not compared: {why}"),
        };
    }
    for (name, difference) in differences {
        match difference {
            Difference::Lines(lines) if !lines.is_empty() => text += &format!("== {name}\n{lines}"),
            Difference::Lines(_) | Difference::OneSided(_) | Difference::Unknown(_) => {}
        }
    }
    text
}

/// What two archives have in common, and how the variants with one name differ: a line for each stage that does. What could
/// not be compared is no difference, and is said once at the end.
pub fn compare_archives(old: &[Entry], new: &[Entry], tools: &Tools) -> String {
    let name = |entry: &Entry| entry.head.identity.to_string();
    let has = |entries: &[Entry], wanted: &Entry| entries.iter().any(|entry| name(entry) == name(wanted));
    let mut text = String::new();
    let mut unknown: BTreeMap<(&str, String), usize> = BTreeMap::new();
    old.iter().filter(|entry| !has(new, entry)).for_each(|entry| text += &format!("- {}\n", name(entry)));
    new.iter().filter(|entry| !has(old, entry)).for_each(|entry| text += &format!("+ {}\n", name(entry)));
    for after in new {
        let Some(before) = old.iter().find(|before| name(before) == name(after)) else { continue };
        let differences = differences(before, after, tools);
        let mut lines = String::new();
        for (stage, difference) in differences {
            match difference {
                Difference::Lines(difference) if difference.is_empty() => {}
                Difference::Lines(difference) => lines += &format!("    {stage:<10} {}\n", counted(&difference)),
                Difference::OneSided(why) => lines += &format!("    {stage:<10} shown of one side only: {why}\n"),
                Difference::Unknown(why) => *unknown.entry((stage, why)).or_default() += 1,
            }
        }
        text += &format!("{} {}\n{lines}", if lines.is_empty() { '=' } else { '~' }, name(after));
    }
    for ((stage, why), count) in unknown {
        let what = if stage == "sass" { "machine code" } else { stage };
        text += &format!("note: {what} of {count} variant{} was not compared: {why}\n", plural(count));
    }
    text
}

/// What is known of how a stage of two variants differs.
enum Difference {
    /// The lines that differ, none if all are the same.
    Lines(String),
    /// One variant's can be shown, the other's cannot, and why not.
    OneSided(String),
    /// Neither can be shown, and why not.
    Unknown(String),
}

impl Difference {
    fn of<T: AsRef<str>>(old: Result<T, String>, new: Result<T, String>) -> Difference {
        match (old, new) {
            (Ok(old), Ok(new)) => Difference::Lines(difference(old.as_ref(), new.as_ref())),
            (Ok(_), Err(why)) | (Err(why), Ok(_)) => Difference::OneSided(why),
            (Err(why), Err(_)) => Difference::Unknown(why),
        }
    }
}

/// The stages that are compared, in their order.
const COMPARED: [&str; 6] = ["bound", "placed", "lowered", "llvm", "ptx", "report"];

/// The difference of each stage.
fn differences(old: &Entry, new: &Entry, tools: &Tools) -> Vec<(&'static str, Difference)> {
    let (before, after) = (Stages::of(old), Stages::of(new));
    let of = |name: &'static str| {
        let missing = || "it cannot be made again".to_string();
        (name, Difference::of(before.get(name).ok_or_else(missing), after.get(name).ok_or_else(missing)))
    };
    let mut all = Vec::from(COMPARED.map(of));
    // With the same PTX, what the archives have is still two codes.
    all.push(("sass", Difference::of(sass(old, tools), sass(new, tools))));
    all
}

/// The instructions of the machine code, without offsets.
fn sass(entry: &Entry, tools: &Tools) -> Result<String, String> {
    MachineCode::of(entry, None, tools).plain()
}

/// `3 lines gone, 4 new`.
pub fn counted(difference: &str) -> String {
    let count = |sign: char| difference.lines().filter(|line| line.starts_with(sign)).count();
    match (count('-'), count('+')) {
        (0, 0) => "no difference".to_string(),
        (gone, new) => format!("{gone} lines gone, {new} new"),
    }
}

/// The differences between two texts, each with lines around it: `-` before lines that are gone, `+` before new ones.
pub fn difference(old: &str, new: &str) -> String {
    let diff = TextDiff::from_lines(old, new);
    let mut text = String::new();
    for (index, group) in diff.grouped_ops(CONTEXT).iter().enumerate() {
        if index > 0 {
            text.push_str("  ..\n");
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let sign = match change.tag() {
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
                ChangeTag::Equal => ' ',
            };
            let _ = writeln!(text, "{sign} {}", change.value().trim_end_matches('\n'));
        }
    }
    text
}
