//! The text that a kernel prints: `x = {}, y = {:?}`.
//!
//! ```text
//! {}      a float with six significant digits, as C's `%g`; anything else as Rust has it
//! {:?}    a float with enough digits to tell it from all others of its dtype
//! {:x}    the bits of an integer in hexadecimal digits, as Rust has them
//! {{ }}   a brace
//! ```

/// How a value is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Digits {
    /// A float with six significant digits.
    Six,
    /// A float with as many as tell it from its neighbours.
    All,
    /// An integer in hexadecimal digits.
    Hex,
}

impl Digits {
    /// The number of significant digits of a float with so many bits. Nine tell all f32 apart, seventeen all f64.
    pub fn count(self, bits: u32) -> usize {
        match self {
            Digits::Six | Digits::Hex => 6,
            Digits::All if bits <= 32 => 9,
            Digits::All => 17,
        }
    }
}

/// A part of the text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Piece {
    /// Itself, without the braces that stand for others.
    Text(String),
    /// The next value.
    Value(Digits),
}

/// What is wrong with a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FormatError {
    /// Between braces is something else.
    Placeholder,
    /// A `}` without its `{`.
    Unmatched,
    /// A `{` without its `}`.
    Open,
    /// A line break or a zero byte.
    Control,
}

impl FormatError {
    /// What is wrong, and what to write.
    pub fn explain(self) -> (&'static str, &'static str) {
        match self {
            FormatError::Placeholder => {
                ("only `{}`, `{:?}` and `{:x}` stand for values here", "write `{}` and the value behind the text")
            }
            FormatError::Unmatched => ("unmatched `}` in a text to print", "for a brace write `}}`"),
            FormatError::Open => ("unmatched `{` in a text to print", "for a brace write `{{`"),
            FormatError::Control => ("a text to print is one line, without zero bytes", "print each line by itself"),
        }
    }
}

/// The pieces of a text.
///
/// # Errors
/// If it is not well-formed.
pub fn pieces(text: &str) -> Result<Vec<Piece>, FormatError> {
    let (mut pieces, mut plain) = (Vec::new(), String::new());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '{' if rest.starts_with('{') => {
                plain.push(c);
                rest = &rest[1..];
            }
            '{' => {
                let Some((inside, behind)) = rest.split_once('}') else { return Err(FormatError::Open) };
                let digits = match inside {
                    "" => Digits::Six,
                    ":?" => Digits::All,
                    ":x" => Digits::Hex,
                    _ => return Err(FormatError::Placeholder),
                };
                if !plain.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                }
                pieces.push(Piece::Value(digits));
                rest = behind;
            }
            '}' if rest.starts_with('}') => {
                plain.push(c);
                rest = &rest[1..];
            }
            '}' => return Err(FormatError::Unmatched),
            '\n' | '\r' | '\0' => return Err(FormatError::Control),
            _ => plain.push(c),
        }
    }
    if !plain.is_empty() {
        pieces.push(Piece::Text(plain));
    }
    Ok(pieces)
}

/// How each value that a text has a place for is printed.
pub fn values(pieces: &[Piece]) -> Vec<Digits> {
    let digits = |piece: &Piece| match piece {
        Piece::Value(digits) => Some(*digits),
        Piece::Text(_) => None,
    };
    pieces.iter().filter_map(digits).collect()
}

/// A float with so many significant digits, as C's `%g` prints it; of a number that is none, the sign is left out.
pub fn general(value: f64, digits: usize) -> String {
    if value.is_nan() {
        return "nan".to_string();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_string();
    }
    let digits = digits.max(1);
    let scientific = format!("{value:.*e}", digits - 1);
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text.to_string(),
    };
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.unsigned_abs());
    }
    let decimals = (digits as i32 - 1 - exponent).unsigned_abs() as usize;
    trimmed(&format!("{value:.decimals$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What glibc's `printf("%g")` and `%.9g` give.
    #[test]
    fn floats_look_as_c_prints_them() {
        for (value, digits, expected) in [
            (0.0, 6, "0"),
            (-0.0, 6, "-0"),
            (1.5, 6, "1.5"),
            (100.0, 6, "100"),
            (123_456.0, 6, "123456"),
            (1_234_567.0, 6, "1.23457e+06"),
            (999_999.5, 6, "1e+06"),
            (0.0001, 6, "0.0001"),
            (0.000_012_5, 6, "1.25e-05"),
            (f64::from(0.1f32), 6, "0.1"),
            (f64::from(0.1f32), 9, "0.100000001"),
            (0.1, 17, "0.10000000000000001"),
            (1e300, 6, "1e+300"),
            (f64::NEG_INFINITY, 6, "-inf"),
            (-f64::NAN, 6, "nan"),
        ] {
            assert_eq!(general(value, digits), expected, "{value:?}");
        }
    }

    #[test]
    fn texts_have_pieces() {
        let text = |text: &str| Piece::Text(text.to_string());
        let values = [Digits::Six, Digits::All, Digits::Hex].map(Piece::Value);
        let expected = [text("a {x} "), values[0].clone(), text("%"), values[1].clone(), values[2].clone()];
        assert_eq!(pieces("a {{x}} {}%{:?}{:x}"), Ok(expected.to_vec()));
        for (wrong, error) in [
            ("{x}", FormatError::Placeholder),
            ("{:#x}", FormatError::Placeholder),
            ("}", FormatError::Unmatched),
            ("a {", FormatError::Open),
            ("a\nb", FormatError::Control),
        ] {
            assert_eq!(pieces(wrong), Err(error), "{wrong}");
        }
    }
}
