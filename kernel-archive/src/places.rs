//! The text of a generic kernel without its places in the source, and a number for each place.
//!
//! Code does not depend on where in its file a kernel stands, so neither does its key: who adds a comment above a kernel
//! compiles nothing anew. But what is compiled names places, for errors at run time. It names them by number, in the order
//! in which the kernel's text names them first, and the text of the program that runs says where they are *there*:
//!
//! ```text
//! %1: i32 = add %0, %0 @7:9+3        %1: i32 = add %0, %0 @1
//! %2: i32 = sub %1, %0 @8:9+3        %2: i32 = sub %1, %0 @2
//! store %p, %2 @7:9+3                store %p, %2 @1
//! ```
//!
//! The numbers are part of what is hashed. So two kernels with one hash have the same operations at the same places, and a
//! place of the one is a place of the other.
//!
//! Code with line information names the places themselves: [`Places::digest_with`] is for that.
//!
//! PTX that a kernel writes itself is marked in its code with its place, so the hash of such a kernel covers all places.

use std::collections::HashMap;

use kernel_core::backend::nvidia::LineInfo;
use kernel_core::ir::{CallId, FileId, Span};

/// What has been found in the text of a kernel.
#[derive(Clone, Debug)]
pub struct Places<'t> {
    digest: [u8; 32],
    /// The places as the text writes them, each once.
    texts: Vec<&'t str>,
    /// The index of each.
    numbers: HashMap<&'t str, u32>,
}

/// What begins the PTX that a kernel writes.
const WRITTEN_PTX: [&str; 2] = ["ptx = pure(", "ptx = ordered("];

impl<'t> Places<'t> {
    /// Reads the text form of a kernel.
    pub fn of(text: &'t str) -> Places<'t> {
        let (mut hasher, mut texts, mut numbers) = (blake3::Hasher::new(), Vec::new(), HashMap::new());
        let (mut rest, mut names_file) = (text, true);
        while let Some(at) = rest.find(['@', '"', '\n']) {
            let (before, from) = rest.split_at(at);
            hasher.update(before.as_bytes());
            rest = match from.as_bytes()[0] {
                b'@' => {
                    let end = from[1..].find(|c: char| !is_of_place(c)).map_or(from.len(), |end| end + 1);
                    let place = &from[1..end];
                    let number = *numbers.entry(place).or_insert_with(|| {
                        texts.push(place);
                        texts.len() as u32 - 1
                    });
                    hasher.update(format!("@{number}").as_bytes());
                    &from[end..]
                }
                b'"' => {
                    let end = end_of_string(from);
                    // Of a name of a file, nothing is hashed.
                    let shown = if names_file { "\"\"" } else { &from[..end] };
                    hasher.update(shown.as_bytes());
                    &from[end..]
                }
                _ => {
                    hasher.update(b"\n");
                    let line = from[1..].trim_start_matches(' ');
                    names_file = line.starts_with("file f");
                    &from[1..]
                }
            };
        }
        hasher.update(rest.as_bytes());
        if WRITTEN_PTX.iter().any(|word| text.contains(word)) {
            hasher.update(text.as_bytes());
        }
        Places { digest: *hasher.finalize().as_bytes(), texts, numbers }
    }

    /// The hash of the text without places.
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// The hash of the text with its places, and with what line information says besides: for code that names lines.
    pub fn digest_with(&self, text: &str, info: &LineInfo) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.digest);
        for part in [text].into_iter().chain(info.files.iter().chain(&info.functions).map(String::as_str)) {
            // Its length keeps it apart from the next.
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
        *hasher.finalize().as_bytes()
    }

    /// The number of a place: 0 for an unknown one, else from 1. `None` if the text does not name it.
    pub fn number(&self, span: Span) -> Option<u32> {
        if span == Span::UNKNOWN {
            return Some(0);
        }
        let call = if span.call == CallId::NONE { String::new() } else { format!("c{}:", span.call.number()) };
        let text = format!("{call}{span}+{}", span.len);
        self.numbers.get(text.as_str()).map(|index| index + 1)
    }

    /// The place with that number; an unknown one if there is none.
    pub fn span(&self, number: u32) -> Span {
        let text = number.checked_sub(1).and_then(|index| self.texts.get(index as usize));
        text.and_then(|text| read(text)).unwrap_or(Span::UNKNOWN)
    }
}

fn is_of_place(c: char) -> bool {
    c.is_ascii_digit() || matches!(c, 'c' | 'f' | ':' | '+')
}

/// One past the quote that ends the string at the start of a text.
fn end_of_string(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Reads a place as the text of a kernel has it: `c1:f2:3:5+1`, of which call and file may be missing.
pub fn read(text: &str) -> Option<Span> {
    let (place, len) = text.split_once('+')?;
    let mut parts = place.split(':').peekable();
    let mut numbered = |letter: char| -> Option<u32> {
        let part = parts.next_if(|part| part.starts_with(letter))?;
        part[1..].parse().ok()
    };
    let call = numbered('c').map_or(CallId::NONE, CallId::new);
    let file = numbered('f').map_or(Some(FileId::OWN), |index| u16::try_from(index).ok().map(FileId::new))?;
    let (line, column) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let span = Span { line, column, len: len.parse().ok()?, file, call };
    parts.next().is_none().then_some(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"kernel copy "src/copy.rs" safe generic {
  file f1 = "dep/src/lib.rs"
  call c1 @9:1+4
  param %0 x: ptr f32 @2:5+1
  assert %1 {message = "x@1:1+1 \"is\" good"} @3:5+10
  %2: f32 = load %0 @c1:f1:6:5+10
  store %0, %2 @3:5+10
  return
}
"#;

    #[test]
    fn places_have_numbers_in_their_order() {
        let places = Places::of(TEXT);
        assert_eq!(places.texts, ["9:1+4", "2:5+1", "3:5+10", "c1:f1:6:5+10"]);
        let span = Span::new(6, 5, 10).in_file(FileId::new(1)).in_call(CallId::new(1));
        assert_eq!((places.number(span), places.span(4)), (Some(4), span));
        assert_eq!((places.number(Span::UNKNOWN), places.span(0)), (Some(0), Span::UNKNOWN));
        assert_eq!((places.number(Span::new(3, 5, 9)), places.span(9)), (None, Span::UNKNOWN));
    }

    #[test]
    fn hashes_know_what_is_done_and_not_where() {
        let digest = |text: &str| Places::of(text).digest();
        let same = |from: &str, to: &str| digest(TEXT) == digest(&TEXT.replace(from, to));
        assert!(same("src/copy.rs", "elsewhere.rs") && same("dep/src/lib.rs", "other.rs"));
        assert!(same("@3:5+10", "@33:1+7") && same("@2:5", "@12:5"), "places");
        assert!(!same("} @3:5+10", "} @4:5+10"), "an operation now stands where no other does");
        assert!(!same("@9:1+4", "@3:5+10"), "a call stands where an operation does");
        assert!(!same("good", "bad") && !same("1:1+1", "1:1+2"), "messages are no places");
        assert!(!same("load", "lead") && !same("copy \"", "copies \"") && !same("safe", "unsafe"));
    }

    #[test]
    fn hashes_for_code_that_names_lines_know_where() {
        let digest = |text: &str, file: &str| {
            let info = LineInfo { files: vec![file.to_string()], functions: Vec::new() };
            Places::of(text).digest_with(text, &info)
        };
        let moved = TEXT.replace("@3:5+10", "@33:1+7");
        assert_eq!(Places::of(&moved).digest(), Places::of(TEXT).digest());
        assert_eq!(digest(TEXT, "a.rs"), digest(TEXT, "a.rs"));
        assert_ne!(digest(&moved, "a.rs"), digest(TEXT, "a.rs"));
        assert_ne!(digest(TEXT, "/b/a.rs"), digest(TEXT, "a.rs"));
    }

    #[test]
    fn written_ptx_is_marked_with_its_place() {
        let text =
            |line: u32| format!("kernel k \"\" safe generic {{\n  map {{ptx = pure(\"neg\", 1)}} @{line}:1+1\n}}\n");
        assert_ne!(Places::of(&text(1)).digest(), Places::of(&text(2)).digest());
    }

    #[test]
    fn any_text_is_read() {
        for text in ["", "@", "\"", "@@@", "\"\\", "\n@1", "@:+", "@c:f:1:2+3", "@c1:f99999:1:2+3", "\u{e4}@\u{e4}"] {
            let places = Places::of(text);
            assert_eq!(places.span(9), Span::UNKNOWN);
        }
    }
}
