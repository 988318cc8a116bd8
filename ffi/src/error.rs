//! What an operator may fail with.

use std::fmt;
use tilewright::ElementType;

/// The result of what an operator does.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operator failed. Doors put its name in front, and raise the text as their framework's exception.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument is not one that the operator takes.
    #[error("`{argument}` {given}; accepted: {accepted}")]
    Argument {
        /// The name of the parameter.
        argument: Box<str>,
        /// What was given, such as `has dtype i32`.
        given: Box<str>,
        /// What the operator takes.
        accepted: Box<str>,
    },

    /// A launch, or another call of the runtime.
    #[error(transparent)]
    Runtime(#[from] tilewright::Error),

    /// What else the operator has to say.
    #[error("{0}")]
    Other(Box<str>),
}

impl Error {
    /// An argument that the operator does not take.
    ///
    /// ```
    /// use tilewright_ffi::Error;
    ///
    /// let error = Error::argument("x", "has 3 columns", "a power of two");
    /// assert_eq!(error.to_string(), "`x` has 3 columns; accepted: a power of two");
    /// ```
    #[cold]
    pub fn argument(argument: &str, given: impl fmt::Display, accepted: impl fmt::Display) -> Self {
        Error::Argument {
            argument: argument.into(),
            given: given.to_string().into(),
            accepted: accepted.to_string().into(),
        }
    }

    /// A tensor of a dtype that the operator does not take. [`dispatch!`](crate::dispatch) makes it.
    #[cold]
    pub fn dtype(argument: &str, given: ElementType, accepted: &[ElementType]) -> Self {
        let names: Vec<&str> = accepted.iter().map(|dtype| dtype.name()).collect();
        Error::argument(argument, format_args!("has dtype {given}"), names.join(", "))
    }

    /// Whether the caller can help it by giving another argument.
    pub(crate) fn is_of_an_argument(&self) -> bool {
        matches!(self, Error::Argument { .. })
    }
}

impl From<String> for Error {
    fn from(text: String) -> Self {
        Error::Other(text.into())
    }
}

impl From<&str> for Error {
    fn from(text: &str) -> Self {
        Error::Other(text.into())
    }
}
