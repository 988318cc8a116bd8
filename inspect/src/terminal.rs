//! Lists, stages and differences as lines.

use std::fmt::Write;

use kernel_archive::Entry;
use similar::{ChangeTag, TextDiff};

use crate::InspectError;
use crate::stages::Stages;

/// Lines around a difference.
const CONTEXT: usize = 3;

/// A line for each variant, and who has made them.
pub fn list(entries: &[Entry]) -> String {
    let mut text = String::new();
    let width = entries.len().to_string().len();
    for (index, entry) in entries.iter().enumerate() {
        let Entry { head, texts } = entry;
        let shared = head.code.shared_bytes;
        let warps = head.code.num_warps;
        let _ = writeln!(
            text,
            "{:>width$}  {}\n{:>width$}  {warps} warps, {shared} bytes of shared memory, {} bytes of PTX, {} conditions",
            index + 1,
            head.identity,
            "",
            texts.ptx.len(),
            head.code.conditions.len()
        );
    }
    let mut makers: Vec<&str> = entries.iter().map(|entry| entry.head.maker.compiler.as_str()).collect();
    makers.sort_unstable();
    makers.dedup();
    let _ = writeln!(text, "{} variants; made by {}", entries.len(), makers.join(" and "));
    text
}

/// What a variant is, and its report.
pub fn summary(entry: &Entry) -> String {
    let Entry { head, texts } = entry;
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
    text.push_str(&texts.report);
    text
}

/// A stage of a variant; `passes` is what each pass changes.
///
/// # Errors
/// If there is no such stage.
pub fn stage(entry: &Entry, name: &str) -> Result<String, InspectError> {
    let stages = Stages::of(entry);
    let note = stages.note.as_ref().map_or_else(String::new, |note| format!("note: {note}\n"));
    if name == "passes" {
        let change = |(pass, before, after): (&str, &str, &str)| format!("== {pass}\n{}", difference(before, after));
        return Ok(note + &stages.changes().map(change).collect::<String>());
    }
    let text = stages.get(name).ok_or_else(|| {
        let known = stages.names().into_iter().chain(["passes".to_string()]).collect();
        InspectError::NoStage { stage: name.to_string(), known }
    })?;
    // What the archive itself has needs no note.
    let is_kept = ["bound", "ptx", "report"].contains(&name);
    Ok(if is_kept { text.to_string() } else { note + text })
}

/// How a stage of two variants differs.
///
/// # Errors
/// If there is no such stage.
pub fn compare(old: &Entry, new: &Entry, name: &str) -> Result<String, InspectError> {
    let difference = difference(&stage(old, name)?, &stage(new, name)?);
    let heads = format!("--- {}\n+++ {}\n", old.head.identity, new.head.identity);
    Ok(if difference.is_empty() { format!("{heads}no difference\n") } else { heads + &difference })
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
