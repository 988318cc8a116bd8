//! Mistakes in a kernel: where, what, and what to write instead.
//!
//! All mistakes of a kernel are collected and reported together. Whoever reports one gets a [`Reported`],
//! and whoever holds a [`Reported`] stays silent, so that one mistake gives one message.

use proc_macro2::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};

use crate::foreign;
use crate::help::Help;
use crate::source_range::SourceRange;

/// Proof that a mistake has been reported.
#[derive(Clone, Copy, Debug)]
pub struct Reported(());

impl Reported {
    /// The mistake was reported where the name was declared.
    pub fn earlier() -> Reported {
        Reported(())
    }
}

/// A result whose error has already been reported.
pub type Checked<T> = Result<T, Reported>;

/// One mistake.
#[derive(Clone, Debug)]
pub struct Mistake {
    /// The tokens to underline.
    pub place: SourceRange,
    /// What is wrong and what is allowed.
    pub message: String,
    /// What to write instead.
    pub help: Option<Help>,
    /// Whether it stands in the kernel itself although a function is being inlined: in a closure that it was given.
    pub is_own: bool,
    /// The line of the front end that found it.
    #[cfg(test)]
    pub found_at: &'static std::panic::Location<'static>,
}

/// The mistakes of a kernel, in the order in which they were found.
#[derive(Debug, Default)]
pub struct Errors {
    list: Vec<Mistake>,
}

impl Errors {
    /// Records a mistake.
    #[cfg_attr(test, track_caller)]
    pub fn report(&mut self, place: SourceRange, message: impl Into<String>) -> Reported {
        self.push(place, message.into(), None)
    }

    /// Records a mistake with what to write instead.
    #[cfg_attr(test, track_caller)]
    pub fn report_help(&mut self, place: SourceRange, message: impl Into<String>, help: impl Into<Help>) -> Reported {
        self.push(place, message.into(), Some(help.into()))
    }

    #[cfg_attr(test, track_caller)]
    fn push(&mut self, place: SourceRange, message: String, help: Option<Help>) -> Reported {
        #[cfg(test)]
        let found_at = std::panic::Location::caller();
        self.list.push(Mistake {
            place,
            message,
            help,
            is_own: false,
            #[cfg(test)]
            found_at,
        });
        Reported(())
    }

    /// Records a mistake that the parser found in some tokens.
    pub fn report_syn(&mut self, tokens: &TokenStream, error: &syn::Error) -> Reported {
        for one in error {
            let span = one.span();
            let said = one.to_string();
            // The parser lists all that a type can begin with.
            let said = if said.starts_with("expected one of: `for`, parentheses") { "expected a type" } else { &said };
            let (place, message) = (SourceRange::at(span), format!("a kernel cannot be read here: {said}"));
            match foreign::help(tokens.clone(), span) {
                Some(help) => self.report_help(place, message, help),
                None => self.report(place, message),
            };
        }
        Reported(())
    }

    /// Gives the last mistake another help: where it was made, more is known of what was meant.
    pub fn rehelp(&mut self, help: impl Into<Help>) {
        if let Some(last) = self.list.last_mut() {
            last.help = Some(help.into());
        }
    }

    /// Takes back what was found after the first `count` mistakes: one that says it better follows.
    pub fn forget(&mut self, count: usize) {
        self.list.truncate(count);
    }

    /// The mistakes found after the first `count`, for whoever says where they come from.
    pub fn since(&mut self, count: usize) -> &mut [Mistake] {
        self.list.get_mut(count..).unwrap_or_default()
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The mistakes.
    pub fn list(&self) -> &[Mistake] {
        &self.list
    }

    /// One `compile_error!` per mistake, in source order, on the user's tokens.
    pub fn to_tokens(&self) -> TokenStream {
        let mut sorted: Vec<&Mistake> = self.list.iter().collect();
        sorted.sort_by_key(|m| {
            let start = m.place.start.start();
            (start.line, start.column)
        });
        sorted.into_iter().flat_map(Mistake::to_tokens).collect()
    }
}

impl Mistake {
    /// The message with its help.
    pub fn text(&self) -> String {
        match &self.help {
            Some(help) => format!("{}\nhelp: {}", self.message, help.text),
            None => self.message.clone(),
        }
    }

    /// `::core::compile_error! { "…" }`. rustc underlines from the first token's span to the last one's.
    fn to_tokens(&self) -> TokenStream {
        let SourceRange { start, end, .. } = self.place;
        let punct = |c, spacing, span: Span| {
            let mut p = Punct::new(c, spacing);
            p.set_span(span);
            TokenTree::from(p)
        };
        let mut text = Literal::string(&self.text());
        text.set_span(end);
        let mut group = Group::new(Delimiter::Brace, TokenStream::from(TokenTree::from(text)));
        group.set_span(end);
        TokenStream::from_iter([
            punct(':', Spacing::Joint, start),
            punct(':', Spacing::Alone, start),
            TokenTree::from(Ident::new("core", start)),
            punct(':', Spacing::Joint, start),
            punct(':', Spacing::Alone, start),
            TokenTree::from(Ident::new("compile_error", start)),
            punct('!', Spacing::Alone, start),
            TokenTree::from(group),
        ])
    }
}
