//! Quotients of integers, written for floats.
//!
//! Rust divides integers without a fraction. Who multiplies such a quotient with a float has mostly meant the other
//! division, so that a message writes that one:
//!
//! ```text
//! -(1 / n)       ->  -(1.0 / n as f32)
//! (i + 1) / 4    ->  (i as f32 + 1.0) / 4.0
//! ```
//!
//! It works on the text: what a message shows must look as the user wrote it.

/// Characters that a message repeats at most.
const MAX_TEXT: usize = 60;

/// The source of an integer expression with a `/` in it, computed in a float dtype. `None` if there is no `/`, or
/// something that is no sum or product of names, calls and literals.
pub fn of_floats(text: &str, dtype: &str) -> Option<String> {
    if text.len() > MAX_TEXT {
        return None;
    }
    let mut reader = Reader { dtype, divides: false };
    let code = reader.sum(text)?;
    reader.divides.then_some(code)
}

struct Reader<'a> {
    dtype: &'a str,
    /// Whether a `/` was seen.
    divides: bool,
}

impl Reader<'_> {
    /// Operands with operators between them.
    fn sum(&mut self, text: &str) -> Option<String> {
        let (mut out, mut operand, mut depth) = (String::new(), String::new(), 0usize);
        for c in text.chars() {
            match c {
                '(' | '[' | '{' => depth += 1,
                ')' | ']' | '}' => depth = depth.checked_sub(1)?,
                _ => {}
            }
            let between = depth == 0 && !operand.trim().is_empty() && operand.trim() != "-";
            match c {
                '+' | '-' | '*' | '/' if between => {
                    self.divides |= c == '/';
                    let written = self.operand(operand.trim())?;
                    out.push_str(&format!("{written} {c} "));
                    operand.clear();
                }
                _ => operand.push(c),
            }
        }
        out.push_str(&self.operand(operand.trim())?);
        (depth == 0).then_some(out)
    }

    /// A literal, a name, a call, or a sum in parentheses.
    fn operand(&mut self, text: &str) -> Option<String> {
        if let Some(rest) = text.strip_prefix('-') {
            let inner = self.operand(rest.trim())?;
            return Some(if inner.contains(" as ") && !inner.starts_with('(') {
                format!("-({inner})")
            } else {
                format!("-{inner}")
            });
        }
        if !text.is_empty() && text.chars().all(|c| c.is_ascii_digit()) {
            return Some(format!("{text}.0"));
        }
        if let Some(inner) = text.strip_prefix('(').and_then(|t| t.strip_suffix(')')) {
            return self.sum(inner).map(|inner| format!("({inner})"));
        }
        let mut depth = 0usize;
        for (i, c) in text.char_indices() {
            match c {
                '(' | '[' => depth += 1,
                ')' | ']' => depth = depth.checked_sub(1)?,
                _ if depth > 0 => {}
                c if c.is_alphanumeric() || matches!(c, '_' | '.' | ':') => {}
                // Another operator.
                _ => return None,
            }
            if i == 0 && !c.is_alphabetic() && c != '_' {
                return None;
            }
        }
        (!text.is_empty()).then(|| format!("{text} as {}", self.dtype))
    }
}

#[cfg(test)]
mod tests {
    use super::of_floats;

    #[test]
    fn quotients_keep_their_fraction() {
        for (integers, floats) in [
            ("1 / n", "1.0 / n as f32"),
            ("-(1 / n)", "-(1.0 / n as f32)"),
            ("(i + 1) / 4", "(i as f32 + 1.0) / 4.0"),
            ("-i / load(p + 1)", "-(i as f32) / load(p + 1) as f32"),
            ("a.max(b) / 2 - 1", "a.max(b) as f32 / 2.0 - 1.0"),
        ] {
            assert_eq!(of_floats(integers, "f32").as_deref(), Some(floats));
        }
        for other in ["n", "n * 2", "load(p + 1 / n)", "n / 2 % 3", "a / b as i64", "n /", "", "(", "a / 'b'"] {
            assert_eq!(of_floats(other, "f32"), None, "{other}");
        }
    }
}
