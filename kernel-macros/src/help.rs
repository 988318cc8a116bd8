//! What to write instead of a mistake.

use crate::source_range::SourceRange;

/// What to write instead.
///
/// Where it is known which tokens the new ones replace, the help says so: tests follow it, and must arrive at a kernel
/// that is accepted.
#[derive(Clone, Debug)]
pub struct Help {
    /// What the message says.
    pub text: String,
    /// The tokens to replace, and the new ones.
    pub rewrites: Vec<(SourceRange, String)>,
}

impl Help {
    /// ``write `code` `` in the place of some tokens.
    pub fn write(place: SourceRange, code: impl Into<String>) -> Help {
        let code = code.into();
        Help { text: format!("write `{code}`"), rewrites: vec![(place, code)] }
    }

    /// ``did you mean `name`?`` in the place of some tokens.
    pub fn meant(place: SourceRange, name: &str) -> Help {
        Help { text: format!("did you mean `{name}`?"), rewrites: vec![(place, name.to_string())] }
    }

    /// The same rewrite with another text.
    pub fn said(mut self, text: impl Into<String>) -> Help {
        self.text = text.into();
        self
    }

    /// The same rewrite with something added to the text.
    pub fn and(mut self, more: &str) -> Help {
        self.text.push_str(more);
        self
    }
}

impl From<&str> for Help {
    fn from(text: &str) -> Help {
        Help { text: text.to_string(), rewrites: Vec::new() }
    }
}

impl From<String> for Help {
    fn from(text: String) -> Help {
        Help { text, rewrites: Vec::new() }
    }
}
