//! The text form of the tile IR: printing and parsing, at every level.

mod attr;

pub use attr::{Attr, AttrParser, AttrPrinter, ParseError};
