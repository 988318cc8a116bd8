//! Which text of the source the driver's compiler did not accept.
//!
//! ```text
//! // begin inline asm
//! // inline_ptx at src/hash.rs:12:13
//! ad.s32 %r1, %r2, %r3;                       line 25 of the log
//! // end inline asm
//! ```

use crate::ir::{Func, Span};

const BEGIN: &str = "// begin inline asm";
const END: &str = "// end inline asm";
const MARKER: &str = "// inline_ptx at ";

/// The comment in front of a text, as inline assembly: it says where in the source the text stands.
pub fn text_marker(func: &Func, span: Span) -> String {
    let place: String = func.files.place(span).chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    // A dollar begins an operand.
    format!("{MARKER}{}", place.replace('$', "$$"))
}

/// A text that was not accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RefusedText {
    /// Where in the source it stands.
    pub place: String,
    /// The text, with the names of its registers.
    pub text: String,
}

/// The first text of the source about which the log of ptxas complains: `line 25; error : ..`.
pub fn refused_text(ptx: &str, log: &str) -> Option<RefusedText> {
    let lines: Vec<&str> = ptx.lines().map(str::trim).collect();
    log.match_indices("line ").find_map(|(at, word)| {
        let number: String = log[at + word.len()..].chars().take_while(char::is_ascii_digit).collect();
        text_around(&lines, number.parse().ok()?)
    })
}

/// The text around a line, counted from one.
fn text_around(lines: &[&str], number: usize) -> Option<RefusedText> {
    let before = lines.get(..number)?;
    let begin = before.iter().rposition(|line| *line == BEGIN)?;
    let end = begin + lines[begin..].iter().position(|line| *line == END)?;
    if end < number - 1 {
        return None;
    }
    let (marker, text) = lines[begin + 1..end].split_first()?;
    let place = marker.strip_prefix(MARKER)?.to_string();
    Some(RefusedText { place, text: text.join(" ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "\
        .version 8.0\n\
        \tmov.u32 %r1, 0;\n\
        \t// begin inline asm\n\
        \tmov.u64 %rd1, %globaltimer;\n\
        \t// end inline asm\n\
        \t// begin inline asm\n\
        \t// inline_ptx at src/hash.rs:12:13\n\
        \tad.s32 %r2, %r1, %r1;\n\
        \tneg.s32 %r2, %r2;\n\
        \t// end inline asm\n\
        \tret;\n";

    fn found(line: usize) -> Option<RefusedText> {
        refused_text(PTX, &format!("ptxas application ptx input, line {line}; error   : Not a name of any instruction"))
    }

    #[test]
    fn the_text_is_found_by_its_line() {
        let text = RefusedText {
            place: "src/hash.rs:12:13".to_string(),
            text: "ad.s32 %r2, %r1, %r1; neg.s32 %r2, %r2;".to_string(),
        };
        assert_eq!((found(8), found(9)), (Some(text.clone()), Some(text.clone())));
        assert_eq!((found(2), found(4), found(11), found(99), found(0)), (None, None, None, None, None));
        assert_eq!(refused_text(PTX, "out of memory"), None);
        assert_eq!(refused_text(PTX, "line 2; error : a\nline 8; error : b"), Some(text));
    }
}
