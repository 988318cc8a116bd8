//! An archive as one page of HTML, which needs nothing but itself.

use std::fmt::Write;

use kernel_archive::Entry;

use crate::stages::Stages;
use crate::terminal::{difference, summary};

const STYLE: &str = "
:root { color-scheme: light dark; --line: #8884; --old: #f002; --new: #0a02; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 100rem; margin: 2rem auto; padding: 0 1rem; }
pre { font: 12.5px/1.45 ui-monospace, monospace; overflow-x: auto; padding: .7rem; border: 1px solid var(--line); margin: .4rem 0; }
table { border-collapse: collapse; } td, th { text-align: left; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--line); }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
section { margin-top: 2.5rem; } summary { cursor: pointer; padding: .15rem 0; }
.old { background: var(--old); } .new { background: var(--new); } .note { font-style: italic; }
";

/// The page. `title` is what the archive is called.
pub fn page(title: &str, entries: &[Entry]) -> String {
    let title = escape(title);
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\
         <style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n<table><tr><th>variant</th><th>warps</th>\
         <th>shared memory, bytes</th><th>PTX, bytes</th></tr>\n"
    );
    for (index, entry) in entries.iter().enumerate() {
        let Entry { head, texts } = entry;
        let _ = writeln!(
            html,
            "<tr><td><a href=\"#variant-{}\">{}</a></td><td class=\"number\">{}</td><td class=\"number\">{}</td>\
             <td class=\"number\">{}</td></tr>",
            index + 1,
            escape(&head.identity.to_string()),
            head.code.num_warps,
            head.code.shared_bytes,
            texts.ptx.len()
        );
    }
    html.push_str("</table>\n");
    for (index, entry) in entries.iter().enumerate() {
        variant(&mut html, index + 1, entry);
    }
    html.push_str("</body></html>\n");
    html
}

fn variant(html: &mut String, number: usize, entry: &Entry) {
    let stages = Stages::of(entry);
    let name = escape(&entry.head.identity.to_string());
    let _ = writeln!(html, "<section id=\"variant-{number}\"><h2>{name}</h2>\n<pre>{}</pre>", escape(&summary(entry)));
    if let Some(note) = &stages.note {
        let _ = writeln!(html, "<p class=\"note\">{}</p>", escape(note));
    }
    for name in ["bound", "placed", "lowered", "llvm", "ptx"] {
        if let Some(text) = stages.get(name) {
            let lines = text.lines().count();
            let _ = writeln!(
                html,
                "<details><summary>{name}, {lines} lines</summary><pre>{}</pre></details>",
                escape(text)
            );
        }
    }
    let changes: String = stages.changes().map(|(pass, before, after)| change(pass, before, after)).collect();
    if !changes.is_empty() {
        let _ = writeln!(html, "<h3>What each pass changes</h3>\n{changes}");
    }
    html.push_str("</section>\n");
}

fn change(pass: &str, before: &str, after: &str) -> String {
    let difference = difference(before, after);
    let count = |sign: char| difference.lines().filter(|line| line.starts_with(sign)).count();
    let (gone, new) = (count('-'), count('+'));
    let mut html = format!("<details><summary>{}: {gone} lines gone, {new} new</summary><pre>", escape(pass));
    for line in difference.lines() {
        let text = escape(line);
        let _ = match line.as_bytes().first() {
            Some(b'-') => writeln!(html, "<span class=\"old\">{text}</span>"),
            Some(b'+') => writeln!(html, "<span class=\"new\">{text}</span>"),
            _ => writeln!(html, "{text}"),
        };
    }
    html.push_str("</pre></details>\n");
    html
}

/// Text as HTML shows it.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
