//! The text of the kernel's body, for messages that quote it.

use proc_macro2::Group;

use crate::place::Place;

/// Characters of one line that a message quotes at most.
const MAX_QUOTE: usize = 40;

/// The source of the body, if it is known: code that a macro has put together has none.
#[derive(Debug, Default)]
pub struct Source {
    lines: Vec<Vec<char>>,
    /// Where the text starts: line, from 1, and column, from 0.
    line: usize,
    column: usize,
}

impl Source {
    /// The text between the braces.
    pub fn new(body: &Group) -> Source {
        let Some(text) = body.span().source_text() else { return Source::default() };
        let start = body.span().start();
        let lines = text.lines().map(|line| line.chars().collect()).collect();
        Source { lines, line: start.line, column: start.column }
    }

    /// The text of a place within one line.
    pub fn text(&self, place: Place) -> Option<String> {
        let (start, end) = (place.start.start(), place.end.end());
        let index = start.line.checked_sub(self.line)?;
        let shift = if index == 0 { self.column } else { 0 };
        let line = self.lines.get(index).filter(|_| start.line == end.line)?;
        let text = line.get(start.column.checked_sub(shift)?..end.column.checked_sub(shift)?)?;
        Some(text.iter().collect())
    }

    /// The text as an operand of `as`, in parentheses where it needs them; `(..)` if it is long or not known.
    pub fn operand(&self, place: Place) -> String {
        match self.text(place).filter(|text| !text.is_empty() && text.len() <= MAX_QUOTE) {
            Some(text) if is_atom(&text) => text,
            Some(text) => format!("({text})"),
            None => "(..)".to_string(),
        }
    }
}

/// Whether an expression binds tighter than any operator.
fn is_atom(text: &str) -> bool {
    let mut depth = 0usize;
    let mut last = ' ';
    for c in text.chars() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            '<' if last == ':' => depth += 1,
            '>' if depth > 0 => depth -= 1,
            ' ' | '+' | '-' | '*' | '/' | '%' | '&' | '|' | '^' | '<' | '>' | '=' | '!' if depth == 0 => return false,
            _ => {}
        }
        last = c;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::is_atom;

    #[test]
    fn operators_need_parentheses() {
        for atom in ["x", "load(x + 1)", "zeros::<f32>([N])", "a.max(b)", "(a + b)", "1.5"] {
            assert!(is_atom(atom), "{atom}");
        }
        for operation in ["a + b", "-a", "a<b", "x as f32"] {
            assert!(!is_atom(operation), "{operation}");
        }
    }
}
