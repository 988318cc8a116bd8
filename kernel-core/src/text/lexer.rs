//! Splits the text form into tokens, by hand and without copying.

use super::ParseError;
use crate::ir::Span;

/// A token. Text is borrowed; strings keep their escapes until somebody wants their value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Token<'t> {
    /// A name or keyword; dots are allowed inside (`cmp.lt`).
    Ident(&'t str),
    /// `%name`, without the percent sign.
    Value(&'t str),
    /// A number without sign: decimal or hexadecimal integer, or a float.
    Number(&'t str),
    /// A quoted string, without the quotes, with its escapes.
    Str(&'t str),
    /// A punctuation character.
    Punct(u8),
    /// `->`
    Arrow,
    /// A string that does not end, or a character that no token starts with.
    Bad,
    /// The end of the text.
    End,
}

/// Reads tokens one at a time. `Copy`, so looking further ahead is reading from a copy.
#[derive(Clone, Copy)]
pub(super) struct Lexer<'t> {
    text: &'t str,
    /// Where the token in `token` starts.
    start: usize,
    /// Behind the token in `token`.
    end: usize,
    token: Token<'t>,
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

impl<'t> Lexer<'t> {
    /// A lexer at the first token.
    pub(super) fn new(text: &'t str) -> Lexer<'t> {
        let mut lexer = Lexer { text, start: 0, end: 0, token: Token::End };
        lexer.advance();
        lexer
    }

    /// The token at hand.
    pub(super) fn peek(&self) -> Token<'t> {
        self.token
    }

    /// The token at hand, which is left behind.
    pub(super) fn next(&mut self) -> Token<'t> {
        let token = self.token;
        self.advance();
        token
    }

    /// Leaves the token at hand behind if it is that character.
    pub(super) fn eat(&mut self, punct: u8) -> bool {
        let there = self.token == Token::Punct(punct);
        if there {
            self.advance();
        }
        there
    }

    /// Leaves the token at hand behind if it is that word.
    pub(super) fn eat_word(&mut self, word: &str) -> bool {
        let there = self.token == Token::Ident(word);
        if there {
            self.advance();
        }
        there
    }

    /// Leaves that character behind.
    pub(super) fn expect(&mut self, punct: u8) -> Result<(), ParseError> {
        if self.eat(punct) { Ok(()) } else { Err(self.expected(&format!("`{}`", char::from(punct)))) }
    }

    /// An error at the token at hand.
    pub(super) fn error(&self, message: impl Into<String>) -> ParseError {
        self.error_at(self.start, message)
    }

    /// The position of the token at hand, for [`Lexer::error_at`].
    pub(super) fn position(&self) -> usize {
        self.start
    }

    /// Line and column of a position, from 1, with the length of the word there.
    pub(super) fn span_at(&self, position: usize) -> Span {
        let before = &self.text[..position];
        let line = before.bytes().filter(|&b| b == b'\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count()) + 1;
        let len = self.word_end(position, b'.') - position;
        Span::new(line as u32, column as u32, len.max(1) as u32)
    }

    /// An error at a position.
    pub(super) fn error_at(&self, position: usize, message: impl Into<String>) -> ParseError {
        let Span { line, column, .. } = self.span_at(position);
        ParseError { line, column, message: message.into() }
    }

    /// An error that says what was expected and what is there.
    pub(super) fn expected(&self, what: &str) -> ParseError {
        let found = match self.token {
            Token::End => "the end of the text".to_string(),
            Token::Bad => "text that is no token".to_string(),
            _ => format!("`{}`", &self.text[self.start..self.end]),
        };
        self.error(format!("expected {what}, found {found}"))
    }

    /// Reads a name: a word, or a quoted string where the name is no plain word.
    pub(super) fn name(&mut self, what: &str) -> Result<String, ParseError> {
        match self.token {
            Token::Ident(word) => {
                self.advance();
                Ok(word.to_string())
            }
            Token::Str(raw) => {
                let value = self.unescape(raw)?;
                self.advance();
                Ok(value)
            }
            _ => Err(self.expected(what)),
        }
    }

    /// Reads an unsigned number no larger than `max`.
    pub(super) fn unsigned(&mut self, max: u64) -> Result<u64, ParseError> {
        let Token::Number(digits) = self.token else { return Err(self.expected("a number")) };
        match digits.parse::<u64>() {
            Ok(value) if value <= max => {
                self.advance();
                Ok(value)
            }
            _ => Err(self.error(format!("expected an integer up to {max}, found `{digits}`"))),
        }
    }

    /// Resolves the escapes of the string at hand.
    pub(super) fn unescape(&self, raw: &str) -> Result<String, ParseError> {
        let mut out = String::with_capacity(raw.len());
        let mut chars = raw.chars();
        while let Some(c) = chars.next() {
            if c != '\\' {
                out.push(c);
                continue;
            }
            match chars.next() {
                Some('n') => out.push('\n'),
                Some(c @ ('\\' | '"')) => out.push(c),
                Some('u') => {
                    let digits: String = chars.by_ref().skip(1).take_while(|&c| c != '}').collect();
                    let code = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
                    out.push(code.ok_or_else(|| self.error("`\\u{..}` must name a character"))?);
                }
                _ => return Err(self.error("the escapes are `\\\\`, `\\\"`, `\\n` and `\\u{..}`")),
            }
        }
        Ok(out)
    }

    fn advance(&mut self) {
        let bytes = self.text.as_bytes();
        let mut at = self.end;
        while at < bytes.len() {
            match bytes[at] {
                b' ' | b'\n' | b'\t' | b'\r' => at += 1,
                b';' => at += bytes[at..].iter().position(|&b| b == b'\n').unwrap_or(bytes.len() - at),
                _ => break,
            }
        }
        self.start = at;
        (self.token, self.end) = self.token_at(at);
    }

    fn word_end(&self, from: usize, also: u8) -> usize {
        let rest = &self.text.as_bytes()[from..];
        from + rest.iter().position(|&b| !is_word(b) && b != also).unwrap_or(rest.len())
    }

    fn token_at(&self, at: usize) -> (Token<'t>, usize) {
        let bytes = self.text.as_bytes();
        let following = bytes.get(at + 1).copied().unwrap_or(0);
        match bytes.get(at).copied() {
            None => (Token::End, at),
            Some(b'%') if is_word(following) => {
                let end = self.word_end(at + 1, b'_');
                (Token::Value(&self.text[at + 1..end]), end)
            }
            Some(b'-') if following == b'>' => (Token::Arrow, at + 2),
            Some(b'"') => self.string(at),
            Some(b) if b.is_ascii_digit() => {
                let end = self.number_end(at);
                (Token::Number(&self.text[at..end]), end)
            }
            Some(b) if is_word(b) => {
                let end = self.word_end(at, b'.');
                (Token::Ident(&self.text[at..end]), end)
            }
            Some(b) if b.is_ascii_punctuation() => (Token::Punct(b), at + 1),
            Some(_) => {
                let len = self.text[at..].chars().next().map_or(1, char::len_utf8);
                (Token::Bad, at + len)
            }
        }
    }

    fn string(&self, at: usize) -> (Token<'t>, usize) {
        let bytes = self.text.as_bytes();
        let mut end = at + 1;
        while end < bytes.len() {
            match bytes[end] {
                b'"' => return (Token::Str(&self.text[at + 1..end]), end + 1),
                b'\\' => end += 2,
                _ => end += 1,
            }
        }
        (Token::Bad, bytes.len())
    }

    /// Digits, then a fraction, then an exponent with its sign.
    fn number_end(&self, at: usize) -> usize {
        let bytes = self.text.as_bytes();
        if bytes[at] == b'0' && bytes.get(at + 1) == Some(&b'x') {
            return self.word_end(at, b'_');
        }
        let digits = |from: usize| {
            let rest = &bytes[from..];
            from + rest.iter().position(|b| !b.is_ascii_digit()).unwrap_or(rest.len())
        };
        let mut end = digits(at);
        // Two dots are between the ends of a range.
        if bytes.get(end) == Some(&b'.') && bytes.get(end + 1) != Some(&b'.') {
            end = digits(end + 1);
        }
        if bytes.get(end) == Some(&b'e') {
            let sign = usize::from(bytes.get(end + 1) == Some(&b'-'));
            end = digits(end + 1 + sign);
        }
        end
    }
}

/// Appends a name as [`Lexer::name`] reads it: bare where it is a plain word that means nothing else, else quoted.
pub(super) fn write_name(out: &mut String, name: &str, reserved: &[&str]) {
    let plain = name.bytes().all(is_word) && name.bytes().next().is_some_and(|b| !b.is_ascii_digit());
    if plain && !reserved.contains(&name) {
        out.push_str(name);
    } else {
        write_string(out, name);
    }
}

/// Appends a quoted string.
pub(super) fn write_string(out: &mut String, value: &str) {
    out.push('"');
    for c in value.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => out.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}
