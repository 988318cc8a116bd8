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

/// A call that was inlined: a number of [`Files::calls`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct CallId(u32);

impl CallId {
    /// None: the kernel's own code.
    pub const NONE: CallId = CallId(0);

    /// The call with that number, from 1.
    pub const fn new(number: u32) -> CallId {
        CallId(number)
    }

    /// Its number, from 1; 0 for none.
    pub const fn number(self) -> u32 {
        self.0
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
    /// The call that led here, where a function or closure was inlined.
    pub call: CallId,
}

impl Span {
    /// No known place.
    pub const UNKNOWN: Span = Span { line: 0, column: 0, len: 0, file: FileId::OWN, call: CallId::NONE };

    /// A place in the kernel's own file. Of more than 65535 characters, so many are underlined.
    pub fn new(line: u32, column: u32, len: u32) -> Span {
        Span { line, column, len: u16::try_from(len).unwrap_or(u16::MAX), ..Span::UNKNOWN }
    }

    /// The same place in another file.
    #[must_use]
    pub fn in_file(self, file: FileId) -> Span {
        Span { file, ..self }
    }

    /// The same place in what that call has inlined.
    #[must_use]
    pub fn in_call(self, call: CallId) -> Span {
        Span { call, ..self }
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

/// The source files of a kernel, as rustc names them: its own, and those of functions that were inlined into it. And the
/// places of the calls of these functions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Files {
    own: String,
    others: Vec<String>,
    calls: Vec<Span>,
}

impl Files {
    /// Of a kernel without functions from elsewhere.
    pub fn new(own: &str) -> Files {
        Files { own: own.to_string(), others: Vec::new(), calls: Vec::new() }
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

    /// The places of all calls that were inlined, from `CallId::new(1)` on. That of a call in an inlined function names
    /// the call of that, which comes before it.
    pub fn calls(&self) -> &[Span] {
        &self.calls
    }

    /// The number of a call at a place, added if it is not there yet; `None` if there are 4294967295 others.
    pub fn add_call(&mut self, place: Span) -> Option<CallId> {
        let known = self.calls.iter().position(|call| *call == place);
        let number = u32::try_from(known.unwrap_or(self.calls.len()) + 1).ok()?;
        if known.is_none() {
            self.calls.push(place);
        }
        Some(CallId(number))
    }

    /// Whether a place's file and call are listed here; if it is that of a call, `before` it.
    pub fn lists(&self, span: Span, before: usize) -> bool {
        self.get(span.file).is_some() && span.call.number() as usize <= before.min(self.calls.len())
    }

    /// The places of the calls that led to a place, the innermost first.
    pub fn calls_to(&self, span: Span) -> impl Iterator<Item = Span> + '_ {
        let of = |span: Span| Some(*self.calls.get(span.call.number().checked_sub(1)? as usize)?);
        // Each call names one before it, which the verifier sees to.
        std::iter::successors(of(span), move |call| of(*call).filter(|outer| outer.call < call.call))
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
    fn a_span_is_four_words() {
        assert_eq!(size_of::<Span>(), 16);
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

    #[test]
    fn places_know_the_calls_that_led_to_them() {
        let mut files = Files::new("src/add.rs");
        let outer = files.add_call(Span::new(9, 1, 4)).expect("a call");
        let inner = files.add_call(Span::new(5, 2, 4).in_call(outer)).expect("a second call");
        let again = files.add_call(Span::new(5, 2, 4)).expect("the same place in the kernel itself");
        assert_eq!((files.add_call(Span::new(9, 1, 4)), files.calls().len()), (Some(outer), 3));
        let lines = |call| files.calls_to(Span::new(1, 1, 1).in_call(call)).map(|call| call.line).collect::<Vec<_>>();
        assert_eq!(
            (lines(CallId::NONE), lines(outer), lines(inner), lines(again)),
            (vec![], vec![9], vec![5, 9], vec![5])
        );
        assert!(files.lists(Span::UNKNOWN.in_call(again), 3) && !files.lists(Span::UNKNOWN.in_call(again), 2));
        assert!(!files.lists(Span::UNKNOWN.in_call(CallId::new(4)), 9));
    }
}
