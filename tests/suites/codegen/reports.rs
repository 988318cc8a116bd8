//! Reports are true: every access of the code is in them, with its line, its width and its class.

use std::collections::BTreeMap;

use super::kernels;

/// What an instruction does, the bytes that it accesses, and whether lanes can be masked off.
type Access = (&'static str, u32, bool);

/// So many of each.
type Accesses = BTreeMap<Access, u32>;

/// The accesses to global memory in PTX.
fn in_ptx(ptx: &str) -> Accesses {
    let mut found = Accesses::new();
    for line in ptx.lines().map(str::trim) {
        let masked = line.starts_with('@');
        let word = line.split_whitespace().nth(usize::from(masked)).unwrap_or_default();
        let (kind, rest) = match (word.strip_prefix("ld.global."), word.strip_prefix("st.global.")) {
            (Some(rest), _) => ("load", rest),
            (_, Some(rest)) => ("store", rest),
            (None, None) => continue,
        };
        let parts: Vec<&str> = rest.split('.').collect();
        let number = |prefix: &str| parts.iter().find_map(|part| part.strip_prefix(prefix)?.parse::<u32>().ok());
        let bits = ["b", "f", "u", "s"].into_iter().find_map(number).unwrap_or_else(|| panic!("{word}"));
        *found.entry((kind, number("v").unwrap_or(1) * bits / 8, masked)).or_default() += 1;
    }
    found
}

/// The accesses that a report lists, each of which must stand in a line that has it and be decided at launch.
fn in_report(report: &str, source: &str) -> Accesses {
    let mut found = Accesses::new();
    for line in report.lines() {
        let kind = match (line.contains(": load `"), line.contains(": store `")) {
            (true, _) => "load",
            (_, true) => "store",
            (false, false) => continue,
        };
        let number = |before: &str, after: &str| -> u32 {
            let text = line.split_once(after).and_then(|(text, _)| text.rsplit_once(before)).map(|(_, number)| number);
            text.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{line}"))
        };
        let at: usize = line.split(':').nth(1).and_then(|at| at.parse().ok()).unwrap_or_else(|| panic!("{line}"));
        let written = source.lines().nth(at - 1).unwrap_or_default();
        assert!(written.contains(&format!("{kind}(")), "{line}\nbut there: {written}");
        let name = line.split('`').nth(1).unwrap_or_default();
        assert!(written.contains(&format!("{name} +")), "{line}\nbut there: {written}");
        assert!(line.contains(", decided at launch"), "{line}");
        // A scalar is stored by one thread.
        let by_one = kind == "store" && line.ends_with(", scalar");
        let what = (kind, number(" x ", " bytes"), by_one || line.contains(", masked"));
        *found.entry(what).or_default() += number(": ", " x ");
    }
    found
}

#[test]
fn every_access_of_the_code_is_in_the_report() {
    let source = include_str!("kernels.rs");
    for kernels::Sample { name, safe, report, .. } in kernels::all() {
        let (told, found) = (in_report(&report, source), in_ptx(&safe));
        // The report counts an iteration of a loop, of which LLVM may write several one after the other.
        let loops = safe.contains("bra");
        let agrees = |(what, told): (&Access, &u32)| {
            let found = found.get(what).copied().unwrap_or(0);
            found == *told || loops && found > *told
        };
        let keys = |accesses: &Accesses| accesses.keys().copied().collect::<Vec<_>>();
        assert_eq!(keys(&told), keys(&found), "{name}\n{report}\n{safe}");
        assert!(told.iter().all(agrees), "{name}: told {told:?}, found {found:?}\n{report}\n{safe}");
    }
}
