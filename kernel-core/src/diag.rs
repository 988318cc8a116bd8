//! What is wrong with a kernel and where, for a person to read.
//!
//! The verifier, binding and passes make a [`Diagnostic`] of a place in a kernel ([`Diagnostic::at`]); who has the source
//! adds the line that it speaks about. It prints the way rustc prints:
//!
//! ```
//! use kernel_core::diag::Diagnostic;
//!
//! let text = Diagnostic::new("BLOCK must be a power of two, it is 100", "src/add.rs", 7, 18)
//!     .snippet("    let offsets = arange(0, BLOCK);", 16)
//!     .help("round it up: BLOCK = 128")
//!     .to_string();
//! assert_eq!(
//!     text,
//!     "error: BLOCK must be a power of two, it is 100\n\
//!      \x20--> src/add.rs:7:18\n\
//!      \x20 |\n\
//!      7 |     let offsets = arange(0, BLOCK);\n\
//!      \x20 |                  ^^^^^^^^^^^^^^^^\n\
//!      \x20 = help: round it up: BLOCK = 128"
//! );
//! ```

use std::fmt;

use crate::ir::{Files, Span};

/// A mistake in a kernel, with its place in the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// What is wrong, in one sentence.
    pub message: Box<str>,
    /// The source file, as the compiler named it.
    pub file: Box<str>,
    /// The line, from 1. Zero when the place is unknown.
    pub line: u32,
    /// The column of the first character, from 1.
    pub column: u32,
    /// The text of the line, if it is known.
    pub snippet: Option<Box<str>>,
    /// How many characters are underlined, at least one.
    pub width: u32,
    /// Further facts, such as the values of constexprs.
    pub notes: Vec<Box<str>>,
    /// What to write instead.
    pub help: Option<Box<str>>,
    /// Further errors of the same kernel, printed one after another.
    pub others: Vec<Diagnostic>,
}

impl Diagnostic {
    /// A diagnostic without a snippet, notes or help.
    pub fn new(message: impl Into<Box<str>>, file: impl Into<Box<str>>, line: u32, column: u32) -> Self {
        Self {
            message: message.into(),
            file: file.into(),
            line,
            column,
            snippet: None,
            width: 1,
            notes: Vec::new(),
            help: None,
            others: Vec::new(),
        }
    }

    /// A diagnostic about a place in a kernel with these source files. The calls that led there are its notes.
    pub fn at(files: &Files, span: Span, message: impl Into<Box<str>>) -> Self {
        let width = u32::from(span.len).max(1);
        let notes = files.calls_to(span).map(|call| format!("called at {}", files.place(call)).into()).collect();
        Self { width, notes, ..Self::new(message, files.name(span), span.line, span.column) }
    }

    /// The place in a kernel with these source files.
    pub fn span(&self, files: &Files) -> Span {
        let span = Span::new(self.line, self.column, if self.line == 0 { 0 } else { self.width });
        files.find(&self.file).map_or(span, |file| span.in_file(file))
    }

    /// Adds another error of the same kernel.
    #[must_use]
    pub fn and(mut self, other: Diagnostic) -> Self {
        self.others.push(other);
        self
    }

    /// Adds the text of the line and the number of characters to underline.
    #[must_use]
    pub fn snippet(mut self, line_text: impl Into<Box<str>>, width: u32) -> Self {
        self.snippet = Some(line_text.into());
        self.width = width.max(1);
        self
    }

    /// Adds a fact.
    #[must_use]
    pub fn note(mut self, note: impl Into<Box<str>>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Says what to write instead.
    #[must_use]
    pub fn help(mut self, help: impl Into<Box<str>>) -> Self {
        self.help = Some(help.into());
        self
    }

    fn fmt_snippet(&self, f: &mut fmt::Formatter<'_>, gutter: &str) -> fmt::Result {
        let Some(snippet) = &self.snippet else {
            return Ok(());
        };
        let indent: String = snippet
            .chars()
            .chain(std::iter::repeat(' '))
            .take(self.column.saturating_sub(1) as usize)
            // A tab stays a tab, so that the caret stands under its token however wide tabs are.
            .map(|c| if c == '\t' { '\t' } else { ' ' })
            .collect();
        // A token that runs over the end of the line is underlined up to the end.
        let rest = snippet.chars().count().saturating_sub(indent.chars().count());
        let carets = (self.width as usize).min(rest).max(1);
        write!(f, "\n{gutter} |\n{} | {}\n{gutter} | {indent}", self.line, snippet)?;
        write!(f, "{}", "^".repeat(carets))
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        let gutter = " ".repeat(self.line.to_string().len());
        if self.line > 0 {
            write!(f, "\n{gutter}--> {}:{}:{}", self.file, self.line, self.column)?;
            self.fmt_snippet(f, &gutter)?;
        }
        for note in &self.notes {
            write!(f, "\n{gutter} = note: {note}")?;
        }
        if let Some(help) = &self.help {
            write!(f, "\n{gutter} = help: {help}")?;
        }
        self.others.iter().try_for_each(|other| write!(f, "\n\n{other}"))
    }
}

impl std::error::Error for Diagnostic {}

#[cfg(test)]
mod tests {
    use super::Diagnostic;

    #[test]
    fn caret_stands_under_its_token_behind_tabs() {
        let text = Diagnostic::new("m", "a.rs", 12, 3).snippet("\t\tx + y", 5).to_string();
        assert_eq!(text, "error: m\n  --> a.rs:12:3\n   |\n12 | \t\tx + y\n   | \t\t^^^^^");
    }

    #[test]
    fn columns_and_widths_beyond_the_line_are_clipped() {
        let text = Diagnostic::new("m", "a.rs", 1, 4).snippet("abcde", u32::MAX).to_string();
        assert!(text.ends_with("|    ^^"), "{text}");
        let text = Diagnostic::new("m", "a.rs", 1, 9).snippet("ab", 3).to_string();
        assert!(text.ends_with('^'), "{text}");
    }

    #[test]
    fn several_errors_are_printed_one_after_another() {
        let text = Diagnostic::new("a", "", 0, 0).and(Diagnostic::new("b", "x.rs", 3, 4)).to_string();
        assert_eq!(text, "error: a\n\nerror: b\n --> x.rs:3:4");
    }

    #[test]
    fn an_unknown_place_prints_the_message_and_the_help_only() {
        let text = Diagnostic::new("m", "", 0, 0).note("n").help("h").to_string();
        assert_eq!(text, "error: m\n  = note: n\n  = help: h");
    }
}
