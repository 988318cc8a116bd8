//! What is known of a variant in numbers, as tables.

use std::fmt::Write;

use kernel_archive::Entry;
use kernel_codegen::report::{ConversionKind, Mover, Report};

use super::{escape, names};
use crate::layouts::{Kind, Picture};
use crate::panes::{Look, conflicts, grouped, times};

/// Warps that have a colour of their own.
const COLOURS: u32 = 8;

/// All variants, a line for each.
pub(super) fn variants(entries: &[Entry], looks: &[Look]) -> String {
    let mut html = "<div class=\"wide\"><table><tr><th>variant</th>".to_string();
    for name in ["warps", "registers", "spilled", "shared memory", "programs", "PTX", "machine code"] {
        let _ = write!(html, "<th class=\"number\">{name}</th>");
    }
    html.push_str("</tr>\n");
    for (index, (entry, look)) in entries.iter().zip(looks).enumerate() {
        let (name, params) = names(entry);
        let usage = look.machine.usage();
        let of_usage = |number: Option<u32>| number.map_or_else(|| "?".to_string(), |number| number.to_string());
        let programs = look.report.as_ref().map(|report| report.occupancy().programs());
        let code = look.machine.machine.as_ref().map_or(0, |machine| machine.image.len());
        let cells = [
            entry.head.code.num_warps.to_string(),
            of_usage(usage.as_ref().map(|usage| usage.registers)),
            of_usage(usage.as_ref().map(|usage| usage.local_bytes)),
            entry.head.code.shared_bytes.to_string(),
            of_usage(programs),
            entry.texts.ptx.len().to_string(),
            if code > 0 { code.to_string() } else { "?".to_string() },
        ];
        let cells: String = cells.map(|cell| format!("<td class=\"number\">{cell}</td>")).concat();
        let number = index + 1;
        let _ = writeln!(
            html,
            "<tr><td><a href=\"#variant-{number}\">{name}</a> <span class=\"params\">{params}</span></td>{cells}</tr>"
        );
    }
    html.push_str("</table></div>\n<p class=\"soft\">Spilled, shared memory, PTX and machine code in bytes; programs per multiprocessor.</p>\n");
    html
}

/// What a variant takes.
pub(super) fn facts(entry: &Entry, look: &Look) -> String {
    let code = &entry.head.code;
    let mut html = "<ul class=\"facts\">".to_string();
    let mut fact = |value: String, name: &str, class: &str| {
        let _ = write!(html, "<li><b class=\"{class}\">{}</b><span>{}</span></li>", escape(&value), escape(name));
    };
    fact(code.num_warps.to_string(), "warps", "");
    if let Some(usage) = look.machine.usage() {
        fact(usage.registers.to_string(), "registers per thread", "");
        match usage.local_bytes {
            0 => fact("none".to_string(), "spills", "good"),
            bytes => fact(format!("{bytes} bytes"), "spilled per thread", "bad"),
        }
    }
    fact(format!("{} bytes", code.shared_bytes), "shared memory", "");
    if let Some(report) = &look.report {
        let occupancy = report.occupancy();
        let limits: Vec<String> = occupancy.limits().iter().map(ToString::to_string).collect();
        fact(
            occupancy.programs().to_string(),
            &format!("programs per multiprocessor, by {}", limits.join(" and ")),
            "",
        );
        fact(report.barriers.to_string(), "barriers", "");
        let worst = report.shared.iter().map(|access| access.conflicts).max();
        match worst {
            None => {}
            Some(0) => fact("none".to_string(), "bank conflicts", "good"),
            Some(extra) => fact(format!("{} times", extra + 1), "longest of bank conflicts", "bad"),
        }
    }
    fact(code.conditions.len().to_string(), "conditions of the launch", "");
    html.push_str("</ul>\n");
    html
}

/// A table of these columns; nothing without rows.
fn table(title: &str, columns: &[&str], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let head: String = columns.iter().map(|name| format!("<th>{name}</th>")).collect();
    let row = |cells: &Vec<String>| {
        let cells: String = cells.iter().map(|cell| format!("<td>{cell}</td>")).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let rows: String = rows.iter().map(row).collect();
    format!("<h3>{title}</h3>\n<div class=\"wide\"><table><tr>{head}</tr>\n{rows}</table></div>\n")
}

/// The accesses to global memory.
pub(super) fn accesses(look: &Look) -> String {
    let Some(report) = &look.report else { return String::new() };
    let row = |(count, access): (usize, &kernel_codegen::report::AccessReport)| {
        let param = report.params.get(access.param.index()).map_or("?", String::as_str);
        let by = match access.mover {
            Mover::Threads => "threads",
            Mover::TensorCopy => "tensor copy",
        };
        let why = access.narrow.map_or_else(String::new, |why| format!("not 16 bytes at once: {why}"));
        let masked = if access.masked { "masked" } else { "" };
        let layout = access.layout.map_or_else(String::new, |layout| format!("#{}", layout.index()));
        let checked = access.class.map_or_else(String::new, |class| report.kept_inside(class));
        [
            report.files.place(access.span),
            format!("{} `{param}`{}", access.kind, times(count)),
            format!("{} x {} bytes", access.instructions, access.bytes),
            by.to_string(),
            layout,
            masked.to_string(),
            checked,
            why,
        ]
        .iter()
        .map(|cell| escape(cell))
        .collect()
    };
    let rows: Vec<Vec<String>> = grouped(&report.accesses).into_iter().map(row).collect();
    table("Global memory", &["where", "access", "per thread", "by", "layout", "", "bounds", ""], &rows)
}

/// The accesses to shared memory, and what goes from one layout to another.
pub(super) fn shared(look: &Look) -> String {
    let Some(report) = &look.report else { return String::new() };
    let row = |(count, access): (usize, &kernel_codegen::report::SharedReport)| {
        let class = if access.conflicts == 0 { "good" } else { "bad" };
        let by = if access.by_matrices { "matrices" } else { "vectors" };
        vec![
            escape(&report.files.place(access.span)),
            format!("{}{}", access.what, times(count)),
            format!("{} x {} bytes", access.instructions, access.bytes),
            by.to_string(),
            format!("<span class=\"{class}\">{}</span>", conflicts(access)),
        ]
    };
    let rows: Vec<Vec<String>> = grouped(&report.shared).into_iter().map(row).collect();
    let shared = table("Shared memory", &["where", "access", "per thread", "by", "banks"], &rows);
    shared + &conversions(report)
}

fn conversions(report: &Report) -> String {
    let row = |one: &kernel_codegen::report::ConversionReport| {
        let how = match &one.kind {
            ConversionKind::Registers => "in registers".to_string(),
            ConversionKind::Shuffles(count) => format!("with {count} shuffles"),
            ConversionKind::Shared { bytes, .. } => format!("through {bytes} bytes of shared memory"),
        };
        let between = format!("#{} to #{}", one.from.index(), one.to.index());
        vec![escape(&report.files.place(one.span)), between, how]
    };
    let rows: Vec<Vec<String>> = report.conversions.iter().map(row).collect();
    table("Conversions between layouts", &["where", "layouts", "how"], &rows)
}

/// The layouts, drawn.
pub(super) fn layouts(look: &Look) -> String {
    if look.pictures.is_empty() {
        return String::new();
    }
    let drawn: String = look.pictures.iter().map(layout).collect();
    format!(
        "<h3>Layouts</h3>\n<p class=\"soft\">Who holds the first elements of a tile: <code>lane:register</code>, a colour for each \
         warp, underlined where several threads hold the same; of shared memory, offsets in elements.</p>\n{drawn}"
    )
}

fn layout(picture: &Picture) -> String {
    let shape: Vec<String> = picture.shape.iter().map(u32::to_string).collect();
    let mut html = format!(
        "<details class=\"more layout\"><summary>#{}, {} <code class=\"soft\">{}</code></summary><div class=\"wide\"><table>\n",
        picture.number,
        shape.join(" x "),
        escape(&picture.text)
    );
    for row in &picture.rows {
        html.push_str("<tr>");
        for cell in row {
            let shade = match picture.kind {
                Kind::Registers => cell.lane % 2,
                Kind::Memory => 0,
            };
            let odd = if shade == 1 { " odd" } else { "" };
            let copies = if cell.holders > 1 { " copies" } else { "" };
            let _ = write!(
                html,
                "<td class=\"w{}{odd}{copies}\" title=\"warp {}, {} holders\">{}</td>",
                cell.warp % COLOURS,
                cell.warp,
                cell.holders,
                cell.short(picture.kind)
            );
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table></div></details>\n");
    html
}
