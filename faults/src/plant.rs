//! Puts faults into the text of a source file, each behind its switch.
//!
//! ```text
//! age >= pending     becomes     (if kernel_core::mutation::on(7) { age + 1 >= *pending } else { age >= pending })
//! ```
//!
//! Faults of one text become one chain of `if` and `else if`; a fault inside the text of another goes into what that one
//! leaves as it was.

use std::fmt::Write as _;
use std::ops::Range;

use crate::Error;
use crate::list::Fault;

/// The module that switches are asked in, as `kernel_core::mutation`.
pub const MODULE: &str = r#"//! Switches of planted faults, which only the copy of the workspace that they are planted in has.

use std::sync::OnceLock;

static ACTIVE: OnceLock<u32> = OnceLock::new();

/// Whether this fault is on: the environment variable `TILEWRIGHT_FAULT` holds its number.
#[inline]
pub fn on(fault: u32) -> bool {
    *ACTIVE.get_or_init(|| std::env::var("TILEWRIGHT_FAULT").ok().and_then(|text| text.parse().ok()).unwrap_or(0)) == fault
}
"#;

/// A fault at its place in the file.
struct Site<'a> {
    fault: &'a Fault,
    range: Range<usize>,
}

/// The text of a file with all of its faults.
///
/// # Errors
///
/// If a fault's text does not stand in the file exactly once, or two faults overlap.
pub fn plant(source: &str, faults: &[&Fault]) -> Result<String, Error> {
    let mut sites = faults
        .iter()
        .map(|&fault| Ok(Site { fault, range: find(source, fault)? }))
        .collect::<Result<Vec<_>, Error>>()?;
    // What holds another comes before it.
    sites.sort_by_key(|site| (site.range.start, std::cmp::Reverse(site.range.end)));
    render(source, 0..source.len(), &sites)
}

/// Where a fault's text stands.
fn find(source: &str, fault: &Fault) -> Result<Range<usize>, Error> {
    let (start, text) = match &fault.within {
        Some(within) => (once(source, within.trim(), fault)?, within.trim()),
        None => (0, source),
    };
    let start = start + once(text, &fault.from, fault)?;
    Ok(start..start + fault.from.len())
}

fn once(text: &str, part: &str, fault: &Fault) -> Result<usize, Error> {
    let mut places = text.match_indices(part);
    match (places.next(), places.next()) {
        (Some((place, _)), None) => Ok(place),
        (first, _) => Err(Error::Stale {
            id: fault.id.clone(),
            file: fault.file.clone(),
            count: if first.is_some() { "more than once" } else { "nowhere" },
            text: part.to_string(),
        }),
    }
}

/// The text of a range, whose faults are given.
fn render(source: &str, range: Range<usize>, mut sites: &[Site]) -> Result<String, Error> {
    let (mut out, mut at) = (String::new(), range.start);
    while let Some(first) = sites.first() {
        let same = sites.iter().take_while(|site| site.range == first.range).count();
        let inside = sites[same..].iter().take_while(|site| site.range.start < first.range.end).count();
        let (chain, rest) = sites.split_at(same);
        let (inner, rest) = rest.split_at(inside);
        if let Some(other) = inner.iter().find(|site| site.range.end > first.range.end) {
            return Err(Error::Overlap { first: first.fault.id.clone(), second: other.fault.id.clone() });
        }
        out.push_str(&source[at..first.range.start]);
        let original = render(source, first.range.clone(), inner)?;
        out.push_str(&switched(chain, &original));
        at = first.range.end;
        sites = rest;
    }
    out.push_str(&source[at..range.end]);
    Ok(out)
}

/// Faults of one text, and the text as it was.
fn switched(chain: &[Site], original: &str) -> String {
    // Within kernel-core the crate is itself.
    let module = if chain[0].fault.file.starts_with("kernel-core/") { "crate" } else { "kernel_core" };
    let mut text = String::new();
    for site in chain {
        let _ = write!(text, "if {module}::mutation::on({}) {{ {} }} else ", site.fault.switch(), site.fault.to);
    }
    let _ = write!(text, "{{ {original} }}");
    if chain[0].fault.is_expression() { format!("({text})") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(id: &str, from: &str, to: &str) -> Fault {
        Fault {
            id: id.into(),
            file: "kernel-codegen/src/x.rs".into(),
            class: String::new(),
            what: String::new(),
            from: from.into(),
            to: to.into(),
            within: None,
            tests: vec![],
            own_tests: 0,
            equivalent: None,
        }
    }

    /// The planted text, with numbers of switches replaced by names.
    fn planted(source: &str, faults: &[Fault]) -> Result<String, Error> {
        let mut text = plant(source, &faults.iter().collect::<Vec<_>>())?.replace("kernel_core::mutation::", "");
        for fault in faults {
            text = text.replace(&fault.switch().to_string(), &fault.id);
        }
        Ok(text)
    }

    #[test]
    fn expressions_keep_their_place() {
        let text = planted("let x = a + b;", &[fault("f", "a + b", "a - b")]).expect("planted");
        assert_eq!(text, "let x = (if on(f) { a - b } else { a + b });");
    }

    #[test]
    fn statements_can_be_left_out() {
        let text = planted("a(); b();", &[fault("f", "a();", "")]).expect("planted");
        assert_eq!(text, "if on(f) {  } else { a(); } b();");
    }

    #[test]
    fn faults_of_one_text_are_a_chain_and_inner_ones_nest() {
        let faults = [fault("h", "b", "c"), fault("f", "a + b", "a"), fault("g", "a + b", "b")];
        let text = planted("a + b", &faults).expect("planted");
        assert_eq!(text, "(if on(f) { a } else if on(g) { b } else { a + (if on(h) { c } else { b }) })");
    }

    #[test]
    fn texts_that_do_not_stand_once_are_named() {
        for (source, count) in [("b", "nowhere"), ("a a", "more than once")] {
            let error = planted(source, &[fault("f", "a", "c")]).expect_err("not once");
            assert!(matches!(&error, Error::Stale { id, count: found, .. } if id == "f" && *found == count), "{error}");
        }
        let mut by_context = fault("f", "a", "c");
        by_context.within = Some("x(a)".into());
        assert_eq!(planted("a x(a)", &[by_context]).expect("planted"), "a x((if on(f) { c } else { a }))");
    }

    #[test]
    fn faults_that_overlap_are_refused() {
        let error = planted("a + b + c", &[fault("f", "a + b", "a"), fault("g", "b + c", "c")]).expect_err("overlap");
        assert!(matches!(error, Error::Overlap { .. }));
    }
}
