//! The text of the kernel's body, for messages that quote it.

use proc_macro2::Group;

use crate::source_range::SourceRange;

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
    pub fn text(&self, place: SourceRange) -> Option<String> {
        let (start, end) = (place.start.start(), place.end.end());
        let index = start.line.checked_sub(self.line)?;
        let shift = if index == 0 { self.column } else { 0 };
        let line = self.lines.get(index).filter(|_| start.line == end.line)?;
        let text = line.get(start.column.checked_sub(shift)?..end.column.checked_sub(shift)?)?;
        Some(text.iter().collect())
    }

    /// The text of a place with other code in the place of a part of it.
    pub fn replaced(&self, place: SourceRange, part: SourceRange, code: &str) -> Option<String> {
        let text: Vec<char> = self.text(place).filter(|_| self.text(part).is_some())?.chars().collect();
        let (start, from, to) = (place.start.start(), part.start.start(), part.end.end());
        let at = |column: usize| column.checked_sub(start.column).filter(|_| from.line == start.line);
        let (before, after) = (text.get(..at(from.column)?)?, text.get(at(to.column)?..)?);
        Some(before.iter().copied().chain(code.chars()).chain(after.iter().copied()).collect())
    }

    /// The text as an operand of `as`, in parentheses where it needs them; `(..)` if it is long or not known.
    pub fn operand(&self, place: SourceRange) -> String {
        self.whole(place).unwrap_or_else(|| "(..)".to_string())
    }

    /// As [`Self::operand`], if all of it can be shown.
    pub fn whole(&self, place: SourceRange) -> Option<String> {
        let text = self.text(place).filter(|text| !text.is_empty() && text.len() <= MAX_QUOTE)?;
        Some(if is_atom(&text) { text } else { format!("({text})") })
    }
}

/// Whether an expression binds tighter than any operator.
fn is_atom(text: &str) -> bool {
    let (mut depth, mut angles) = (0usize, 0usize);
    let mut last = ' ';
    for c in text.chars() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ if depth > 0 => {}
            // A turbofish.
            '<' if last == ':' => angles += 1,
            '>' if angles > 0 => angles -= 1,
            _ if angles > 0 => {}
            ' ' | '+' | '-' | '*' | '/' | '%' | '&' | '|' | '^' | '<' | '>' | '=' | '!' => return false,
            _ => {}
        }
        last = c;
    }
    true
}

impl Source {
    /// Whether `x as f32` needs parentheses where a place is: before `.`, `[` and `<`, behind `!` and a sign.
    pub fn binds_tighter(&self, place: SourceRange) -> bool {
        let (before, after) = self.around(place);
        let mut after = after.chars();
        let next = match (after.next(), after.next()) {
            (Some('.'), second) => second != Some('.'),
            (first, _) => matches!(first, Some('[' | '<' | '?')),
        };
        let mut before = before.chars().rev().filter(|c| !c.is_whitespace());
        let sign = match before.next() {
            Some('!') => true,
            // A sign stands where an operand is due.
            Some('-') => before.next().is_none_or(|c| "(,=+-*/%&|^<>{;[!".contains(c)),
            _ => false,
        };
        next || sign
    }

    /// Whether a place is an operand of an operator or a receiver, so that an operation there needs parentheses.
    pub fn is_operand(&self, place: SourceRange) -> bool {
        let (before, after) = self.around(place);
        let before = before.trim_end();
        let word = before.ends_with("return") || before.ends_with("if") || before.ends_with("while");
        let first = matches!(before.chars().next_back(), None | Some('(' | ',' | '=' | '{' | ';' | '[' | '|')) || word;
        let comparison = ["==", "!=", "<=", ">=", "||"].iter().any(|operator| before.ends_with(operator));
        let last = matches!(after.chars().next(), None | Some(')' | ',' | '{' | '}' | ';' | ']'));
        !(first && last) || comparison
    }

    /// The rest of the line in front of a place, and what follows it, from the next line on if the line ends there.
    fn around(&self, place: SourceRange) -> (String, String) {
        let (start, end) = (place.start.start(), place.end.end());
        let line = |at: usize| at.checked_sub(self.line).and_then(|index| Some((index, self.lines.get(index)?)));
        let column = |index: usize, column: usize| column.saturating_sub(if index == 0 { self.column } else { 0 });
        let before = line(start.line).map(|(i, text)| text.iter().take(column(i, start.column)).collect::<String>());
        let after = line(end.line).map(|(i, text)| text.iter().skip(column(i, end.column)).collect::<String>());
        let after = after.unwrap_or_default();
        let after = match after.trim_start() {
            "" => line(end.line + 1).map(|(_, text)| text.iter().collect::<String>()).unwrap_or_default(),
            rest => rest.to_string(),
        };
        (before.unwrap_or_default(), after.trim_start().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::is_atom;

    #[test]
    fn operators_need_parentheses() {
        for atom in ["x", "load(x + 1)", "zeros::<f32>([N])", "a.max(b)", "(a + b)", "(a > b)", "1.5"] {
            assert!(is_atom(atom), "{atom}");
        }
        for operation in ["a + b", "-a", "a<b", "x as f32"] {
            assert!(!is_atom(operation), "{operation}");
        }
    }
}
