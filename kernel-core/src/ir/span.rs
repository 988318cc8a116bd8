//! Places in source files.

use std::fmt;

/// A source file of a kernel: an index into its [`Files`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct FileId(u16);

impl FileId {
    /// The file that the kernel itself is in.
    pub const OWN: FileId = FileId(0);

    /// The file with that index.
    pub const fn new(index: u16) -> FileId {
        FileId(index)
    }

    /// Its index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A place in the user's source: line and column count from 1, the length is in characters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Span {
    /// Line, from 1; 0 if unknown.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// Characters to underline; at least 1 where the place is known.
    pub len: u16,
    /// The file: another than the kernel's own where a function of it was inlined.
    pub file: FileId,
}

impl Span {
    /// No known place.
    pub const UNKNOWN: Span = Span { line: 0, column: 0, len: 0, file: FileId::OWN };

    /// A place in the kernel's own file. Of more than 65535 characters, so many are underlined.
    pub fn new(line: u32, column: u32, len: u32) -> Span {
        Span { line, column, len: u16::try_from(len).unwrap_or(u16::MAX), file: FileId::OWN }
    }

    /// The same place in another file.
    #[must_use]
    pub fn in_file(self, file: FileId) -> Span {
        Span { file, ..self }
    }
}

/// `3:5`, and `f1:3:5` of another file than the kernel's own. [`Files::place`] has the file's name.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.file != FileId::OWN {
            write!(f, "f{}:", self.file.0)?;
        }
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// The source files of a kernel, as rustc names them: its own, and those of functions that were inlined into it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Files {
    own: String,
    others: Vec<String>,
}

impl Files {
    /// Of a kernel without functions from elsewhere.
    pub fn new(own: &str) -> Files {
        Files { own: own.to_string(), others: Vec::new() }
    }

    /// The file that the kernel itself is in.
    pub fn own(&self) -> &str {
        &self.own
    }

    /// Names the file that the kernel itself is in.
    pub fn set_own(&mut self, name: &str) {
        self.own = name.to_string();
    }

    /// The other files, from `FileId::new(1)` on.
    pub fn others(&self) -> &[String] {
        &self.others
    }

    /// The number of a file that is not the kernel's own, added if it is not there yet; `None` if there are 65535 others.
    pub fn add(&mut self, name: &str) -> Option<FileId> {
        let known = self.others.iter().position(|other| other == name);
        let index = u16::try_from(known.unwrap_or(self.others.len()) + 1).ok()?;
        if known.is_none() {
            self.others.push(name.to_string());
        }
        Some(FileId(index))
    }

    /// The name of a file, if there is one of that number.
    pub fn get(&self, id: FileId) -> Option<&str> {
        match id.index() {
            0 => Some(&self.own),
            index => self.others.get(index - 1).map(String::as_str),
        }
    }

    /// The number of the file of that name.
    pub fn find(&self, name: &str) -> Option<FileId> {
        if name == self.own {
            return Some(FileId::OWN);
        }
        let index = self.others.iter().position(|other| other == name)?;
        u16::try_from(index + 1).ok().map(FileId)
    }

    /// The name of the file that a place is in; the kernel's own for a file that is not listed, which the verifier excludes.
    pub fn name(&self, span: Span) -> &str {
        self.get(span.file).unwrap_or(&self.own)
    }

    /// `src/add.rs:3:5`, or the file alone where the place is unknown.
    pub fn place(&self, span: Span) -> String {
        let name = self.name(span);
        if span.line == 0 { name.to_string() } else { format!("{name}:{}:{}", span.line, span.column) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_three_words() {
        assert_eq!(size_of::<Span>(), 12);
        assert_eq!(Span::new(1, 2, u32::MAX).len, u16::MAX);
    }

    #[test]
    fn places_name_their_file() {
        let mut files = Files::new("src/add.rs");
        let dep = files.add("dep/src/lib.rs").expect("a second file");
        assert_eq!((files.add("dep/src/lib.rs"), dep.index()), (Some(dep), 1));
        let span = Span::new(3, 5, 1);
        assert_eq!(
            (files.place(span), files.place(span.in_file(dep))),
            ("src/add.rs:3:5".into(), "dep/src/lib.rs:3:5".into())
        );
        assert_eq!((span.to_string(), span.in_file(dep).to_string()), ("3:5".into(), "f1:3:5".into()));
        assert_eq!((files.place(Span::UNKNOWN), files.get(FileId::new(2))), ("src/add.rs".into(), None));
    }
}
