//! How attributes of operations are written and read.

use std::fmt;

/// Text that is not tile IR: where and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError {
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for ParseError {}

/// A type that can be an attribute.
pub trait Attr: Sized {
    /// Appends the value.
    fn print(&self, printer: &mut AttrPrinter<'_>);
    /// Reads a value.
    ///
    /// # Errors
    /// If the text there is not one.
    fn parse(parser: &mut AttrParser<'_, '_>) -> Result<Self, ParseError>;
}

/// Writes attributes.
pub struct AttrPrinter<'a> {
    /// The text so far.
    pub out: &'a mut String,
}

impl AttrPrinter<'_> {
    /// Appends `name = value`.
    pub fn attr<T>(&mut self, _name: &str, _value: &T) {}
}

/// Reads attributes.
pub struct AttrParser<'a, 't> {
    /// The text.
    pub text: &'a &'t str,
}

impl AttrParser<'_, '_> {
    /// Reads `name = value`.
    ///
    /// # Errors
    /// If the text there is something else.
    pub fn attr<T>(&mut self, name: &str) -> Result<T, ParseError> {
        Err(ParseError { line: 0, column: 0, message: name.to_string() })
    }
}
