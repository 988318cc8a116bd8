//! Verdicts, kept in a file beside the lists, and what they say together.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use crate::Error;
use crate::list::Fault;

/// What the tests said of a fault.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The test that saw it, and how; `None` if all passed.
    pub seen_by: Option<String>,
    /// Wall time until the verdict, in seconds.
    pub seconds: f64,
}

/// Verdicts by the names of their faults.
pub type Verdicts = BTreeMap<String, Verdict>;

const HEADER: &str = "fault,class,file,verdict,seen by,seconds";

/// One word for a fault's verdict.
fn word(fault: &Fault, verdict: &Verdict) -> &'static str {
    match (&verdict.seen_by, &fault.equivalent) {
        (Some(_), _) => "caught",
        (None, Some(_)) => "equivalent",
        (None, None) => "survived",
    }
}

/// The verdicts of a file that [`save`] has written; none if there is no such file.
///
/// # Errors
///
/// If it cannot be read.
pub fn load(path: &Path) -> Result<Verdicts, Error> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Verdicts::new()),
        Err(error) => return Err(Error::file(path, error)),
    };
    let verdict = |line: &str| {
        let fields = fields(line);
        let [id, _, _, word, seen_by, seconds] = fields.as_slice() else { return None };
        let seen_by = (word == "caught").then(|| seen_by.clone());
        Some((id.clone(), Verdict { seen_by, seconds: seconds.parse().ok()? }))
    };
    Ok(text.lines().skip(1).filter_map(verdict).collect())
}

/// Writes the verdicts of the faults that are in the lists, in their order.
///
/// # Errors
///
/// If the file cannot be written.
pub fn save(path: &Path, faults: &[Fault], verdicts: &Verdicts) -> Result<(), Error> {
    let mut text = format!("{HEADER}\n");
    for fault in faults {
        if let Some(verdict) = verdicts.get(&fault.id) {
            let seen_by = quoted(verdict.seen_by.as_deref().unwrap_or(""));
            let (id, class, file) = (quoted(&fault.id), quoted(&fault.class), quoted(&fault.file));
            let _ = writeln!(text, "{id},{class},{file},{},{seen_by},{:.1}", word(fault, verdict), verdict.seconds);
        }
    }
    std::fs::write(path, text).map_err(|error| Error::file(path, error))
}

/// A field of a CSV file.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_string() }
}

/// The fields of a line.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut inside, mut letters) = (vec![String::new()], false, line.chars().peekable());
    while let Some(letter) = letters.next() {
        match letter {
            '"' if inside && letters.next_if_eq(&'"').is_some() => fields.last_mut().expect("one is there").push('"'),
            '"' => inside = !inside,
            ',' if !inside => fields.push(String::new()),
            letter => fields.last_mut().expect("one is there").push(letter),
        }
    }
    fields
}

/// How many of a kind were caught.
#[derive(Clone, Copy, Default)]
struct Count {
    caught: usize,
    survived: usize,
    equivalent: usize,
}

/// The survivors, and the counts by class.
pub fn summary(faults: &[Fault], verdicts: &Verdicts) -> String {
    let (mut classes, mut all): (BTreeMap<&str, Count>, Count) = Default::default();
    let (mut text, mut without) = (String::new(), 0);
    for fault in faults {
        let Some(verdict) = verdicts.get(&fault.id) else {
            without += 1;
            continue;
        };
        for count in [classes.entry(&fault.class).or_default(), &mut all] {
            match word(fault, verdict) {
                "caught" => count.caught += 1,
                "equivalent" => count.equivalent += 1,
                _ => count.survived += 1,
            }
        }
        match (&fault.equivalent, &verdict.seen_by) {
            (None, None) => {
                let _ = writeln!(text, "survived: {} ({}): {}", fault.id, fault.file, fault.what);
            }
            (Some(_), Some(test)) => {
                let _ = writeln!(text, "said to be equivalent, but {test} sees it: {}", fault.id);
            }
            (None, Some(_)) | (Some(_), None) => {}
        }
    }
    let width = classes.keys().map(|class| class.len()).max().unwrap_or(0).max(5);
    let _ = writeln!(text, "{:width$}  caught  of  equivalent", "class");
    for (class, count) in classes.into_iter().chain([("all", all)]) {
        let total = count.caught + count.survived;
        let _ = writeln!(text, "{class:width$}  {:6}  {total:2}  {:10}", count.caught, count.equivalent);
    }
    if without > 0 {
        let _ = writeln!(text, "{without} without a verdict");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_survive_commas_and_quotes() {
        for field in ["a", "a, b", "say \"a, b\"", ""] {
            assert_eq!(fields(&format!("x,{},y", quoted(field))), ["x", field, "y"]);
        }
    }
}
