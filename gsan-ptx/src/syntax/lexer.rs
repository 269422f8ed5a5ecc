//! From text to tokens.

use crate::diagnostic::{Diagnostic, Source};
use crate::syntax::ast::Constant;
use crate::syntax::span::{Position, Span};

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// A word that can be a name: `add`, `%r1`, `$L__BB0_1`.
    Word,
    /// `.word`, `.L2::128B`: the text includes the dot.
    Dotted,
    /// A number. Integers are never negative here.
    Number(Constant),
    /// A string; the text includes the quotes.
    String,
    /// An operator or a separator.
    Punctuation,
    /// The end of the file; the text is empty.
    End,
}

/// A token, its text and its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind,
    pub(crate) text: &'a str,
    pub(crate) span: Span,
    /// The piece of inline assembly it belongs to, counted from 1; 0 outside. Compilers put
    /// comments around each.
    pub(crate) assembly: u32,
}

impl Token<'_> {
    /// How messages name the token.
    pub(crate) fn describe(&self) -> String {
        const LONGEST: usize = 40;
        match self.kind {
            Kind::End => "the end of the file".to_owned(),
            _ if self.text.chars().count() > LONGEST => {
                let short: String = self.text.chars().take(LONGEST).collect();
                format!("`{short}…`")
            }
            _ => format!("`{}`", self.text),
        }
    }
}

/// Longest first.
const PUNCTUATION: &[&str] = &[
    "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "{", "}", "(", ")", "[", "]", "<", ">", ",",
    ";", ":", "@", "|", "!", "+", "-", "=", "*", "/", "%", "&", "^", "~", "?",
];

/// Splits `source` into tokens; the last one is [`Kind::End`].
pub(crate) fn tokens<'a>(source: &Source<'a>) -> Result<Vec<Token<'a>>, Box<Diagnostic>> {
    let mut lexer = Lexer {
        source,
        rest: source.text,
        position: Position { line: 1, column: 1 },
        pieces: 0,
        inside: false,
    };
    let mut tokens = Vec::new();
    loop {
        let token = lexer.next()?;
        tokens.push(token);
        if token.kind == Kind::End {
            return Ok(tokens);
        }
    }
}

struct Lexer<'s, 'a> {
    source: &'s Source<'a>,
    rest: &'a str,
    position: Position,
    /// Pieces of inline assembly so far, and whether the last one has not ended.
    pieces: u32,
    inside: bool,
}

fn follows(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '$'
}

/// The length of the longest prefix of `text` whose characters all satisfy `accept`.
fn prefix(text: &str, accept: impl Fn(char) -> bool) -> usize {
    text.find(|c| !accept(c)).unwrap_or(text.len())
}

impl<'a> Lexer<'_, 'a> {
    /// Moves over `bytes` bytes and returns them.
    fn advance(&mut self, bytes: usize) -> &'a str {
        let (text, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        for c in text.chars() {
            if c == '\n' {
                self.position.line = self.position.line.saturating_add(1);
                self.position.column = 1;
            } else {
                self.position.column = self.position.column.saturating_add(1);
            }
        }
        text
    }

    fn here(&self) -> Span {
        Span {
            start: self.position,
            end: Position {
                column: self.position.column.saturating_add(1),
                ..self.position
            },
        }
    }

    fn skip_blanks(&mut self) -> Result<(), Box<Diagnostic>> {
        loop {
            let blanks = prefix(self.rest, char::is_whitespace);
            self.advance(blanks);
            // A `#` line is left by a preprocessor; ptxas skips it too.
            if self.rest.starts_with("//") || self.rest.starts_with('#') && self.at_line_start() {
                let line = prefix(self.rest, |c| c != '\n');
                match self.advance(line).trim_end() {
                    "// begin inline asm" => {
                        self.pieces = self.pieces.saturating_add(1);
                        self.inside = true;
                    }
                    "// end inline asm" => self.inside = false,
                    _ => {}
                }
            } else if self.rest.starts_with("/*") {
                let start = self.here();
                let Some(end) = self.rest[2..].find("*/") else {
                    return Err(self
                        .source
                        .error(start, "this comment is never closed")
                        .with_help("close it with `*/`"));
                };
                self.advance(2 + end + 2);
            } else {
                return Ok(());
            }
        }
    }

    /// Whether only blanks stand before this place on its line.
    fn at_line_start(&self) -> bool {
        let before = &self.source.text[..self.source.text.len() - self.rest.len()];
        let line = before
            .rfind('\n')
            .map_or(before, |newline| &before[newline + 1..]);
        line.trim().is_empty()
    }

    fn next(&mut self) -> Result<Token<'a>, Box<Diagnostic>> {
        self.skip_blanks()?;
        let start = self.position;
        let assembly = if self.inside { self.pieces } else { 0 };
        let (kind, bytes) = self.scan()?;
        let text = self.advance(bytes);
        Ok(Token {
            kind,
            text,
            span: Span {
                start,
                end: self.position,
            },
            assembly,
        })
    }

    /// The kind and the length of the token that starts here.
    fn scan(&self) -> Result<(Kind, usize), Box<Diagnostic>> {
        let text = self.rest;
        let mut chars = text.chars();
        let Some(first) = chars.next() else {
            return Ok((Kind::End, 0));
        };
        let second = chars.next();
        match first {
            '0'..='9' => self.number(),
            '.' => match second {
                Some(c) if follows(c) => Ok(self.dotted()),
                _ => Err(self
                    .source
                    .error(self.here(), "a `.` that no word follows")
                    .with_help("write the modifier right behind its dot")),
            },
            'a'..='z' | 'A'..='Z' | '_' | '$' => Ok((Kind::Word, prefix(text, follows))),
            '%' if second.is_some_and(|c| follows(c) && !c.is_ascii_digit()) => {
                Ok((Kind::Word, 1 + prefix(&text[1..], follows)))
            }
            '"' => self.string(),
            _ => match PUNCTUATION.iter().find(|p| text.starts_with(**p)) {
                Some(punctuation) => Ok((Kind::Punctuation, punctuation.len())),
                None => Err(self.source.error(
                    self.here(),
                    format!(
                        "the character `{}` has no meaning here",
                        first.escape_debug()
                    ),
                )),
            },
        }
    }

    fn string(&self) -> Result<(Kind, usize), Box<Diagnostic>> {
        let mut escaped = false;
        for (index, c) in self.rest.char_indices().skip(1) {
            match c {
                '\n' => break,
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => return Ok((Kind::String, index + 1)),
                _ => {}
            }
        }
        Err(self
            .source
            .error(self.here(), "this string is not closed on its line")
            .with_help("close it with `\"`"))
    }

    /// `.word` with `::word` parts, or a number that starts with its point (`.5`).
    fn dotted(&self) -> (Kind, usize) {
        let text = self.rest;
        let word = prefix(&text[1..], follows);
        if text[1..1 + word].bytes().all(|b| b.is_ascii_digit())
            && let Ok(value) = text[..1 + word].parse::<f64>()
        {
            return (Kind::Number(Constant::Double(value.to_bits())), 1 + word);
        }
        let mut length = 1 + word;
        while let Some(tail) = text[length..].strip_prefix("::") {
            let part = prefix(tail, follows);
            if part == 0 {
                break;
            }
            length += 2 + part;
        }
        (Kind::Dotted, length)
    }

    fn number(&self) -> Result<(Kind, usize), Box<Diagnostic>> {
        let text = self.rest;
        let word = prefix(text, follows);
        let digits = prefix(text, |c| c.is_ascii_digit());
        let point = text[digits..].starts_with('.');
        let exponent = digits > 0
            && digits < word
            && text[digits..].starts_with(['e', 'E'])
            && exponent(&text[digits..]) > 0;
        let bytes = text.as_bytes();
        match bytes.get(1) {
            Some(b'f' | b'F') if bytes[0] == b'0' && !point => {
                return self.float_bits(word, 8, "0f", "an f32").map(|bits| {
                    let bits = u32::try_from(bits).expect("eight hexadecimal digits fit 32 bits");
                    (Kind::Number(Constant::Single(bits)), word)
                });
            }
            Some(b'd' | b'D') if bytes[0] == b'0' && !point => {
                return self
                    .float_bits(word, 16, "0d", "an f64")
                    .map(|bits| (Kind::Number(Constant::Double(bits)), word));
            }
            _ => {}
        }
        if point || exponent {
            return self.decimal(digits);
        }
        self.integer(&text[..word])
            .map(|constant| (Kind::Number(constant), word))
    }

    fn float_bits(
        &self,
        word: usize,
        digits: usize,
        prefix: &str,
        what: &str,
    ) -> Result<u64, Box<Diagnostic>> {
        let text = &self.rest[2..word];
        match u64::from_str_radix(text, 16) {
            Ok(bits) if text.len() == digits => Ok(bits),
            _ => Err(self
                .source
                .error(
                    self.word_span(word),
                    format!("`{}` is not a floating-point number", &self.rest[..word]),
                )
                .with_help(format!(
                    "`{prefix}` is followed by the bits of {what}: {digits} hexadecimal digits"
                ))),
        }
    }

    /// The number whose whole part has `digits` digits.
    fn decimal(&self, digits: usize) -> Result<(Kind, usize), Box<Diagnostic>> {
        let text = self.rest;
        let mut length = digits;
        if text[length..].starts_with('.') {
            length += 1;
            length += prefix(&text[length..], |c| c.is_ascii_digit());
        }
        length += exponent(&text[length..]);
        let tail = prefix(&text[length..], follows);
        match text[..length].parse::<f64>() {
            Ok(value) if tail == 0 => Ok((Kind::Number(Constant::Double(value.to_bits())), length)),
            _ => Err(self.source.error(
                self.word_span(length + tail),
                format!("`{}` is not a number", &text[..length + tail]),
            )),
        }
    }

    fn integer(&self, word: &str) -> Result<Constant, Box<Diagnostic>> {
        let error = |message: String, help: &str| {
            Err(self
                .source
                .error(self.word_span(word.len()), message)
                .with_help(help))
        };
        let (text, unsigned) = match word.strip_suffix('U') {
            Some(text) => (text, true),
            None => (word, false),
        };
        let (digits, radix) = match text.as_bytes() {
            [b'0', b'x' | b'X', ..] => (&text[2..], 16),
            [b'0', b'b' | b'B', ..] => (&text[2..], 2),
            [b'0', _, ..] => (&text[1..], 8),
            _ => (text, 10),
        };
        if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
            let help = match radix {
                16 => "`0x` is followed by hexadecimal digits and perhaps `U`",
                2 => "`0b` is followed by binary digits and perhaps `U`",
                8 => "a number that starts with `0` is octal",
                _ => "a name does not start with a digit; a number ends with its digits or `U`",
            };
            return error(format!("`{word}` is not a number"), help);
        }
        match u64::from_str_radix(digits, radix) {
            Ok(bits) => Ok(Constant::Integer {
                bits,
                // What does not fit .s64 is .u64 (PTX ISA, "Integer Constants").
                unsigned: unsigned || i64::try_from(bits).is_err(),
            }),
            Err(_) => error(
                format!("`{word}` does not fit 64 bits"),
                "the largest number is 0xffffffffffffffff",
            ),
        }
    }

    fn word_span(&self, bytes: usize) -> Span {
        let characters = self.rest[..bytes].chars().count();
        Span {
            start: self.position,
            end: Position {
                column: self.position.column.saturating_add(characters as u32),
                ..self.position
            },
        }
    }
}

/// The length of an exponent at the start of `text`, 0 if there is none.
fn exponent(text: &str) -> usize {
    let Some(tail) = text.strip_prefix(['e', 'E']) else {
        return 0;
    };
    let sign = usize::from(tail.starts_with(['+', '-']));
    match prefix(&tail[sign..], |c| c.is_ascii_digit()) {
        0 => 0,
        digits => 1 + sign + digits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<&str> {
        let source = Source { file: "t", text };
        tokens(&source).unwrap().iter().map(|t| t.text).collect()
    }

    fn number(text: &str) -> Constant {
        let source = Source { file: "t", text };
        match tokens(&source).unwrap()[..] {
            [
                Token {
                    kind: Kind::Number(constant),
                    ..
                },
                _,
            ] => constant,
            ref other => panic!("{other:?}"),
        }
    }

    const fn unsigned(bits: u64) -> Constant {
        Constant::Integer {
            bits,
            unsigned: true,
        }
    }

    #[test]
    fn modifiers_keep_their_colons_and_labels_do_not() {
        assert_eq!(
            texts("ld.global.L2::cache_hint.b32 %r1;"),
            ["ld", ".global", ".L2::cache_hint", ".b32", "%r1", ";", ""]
        );
        assert_eq!(texts("$L__BB0_1: ret;"), ["$L__BB0_1", ":", "ret", ";", ""]);
        assert_eq!(texts("a.x:b"), ["a", ".x", ":", "b", ""]);
    }

    #[test]
    fn comments_and_preprocessor_lines_are_skipped() {
        assert_eq!(
            texts("# 1 \"a.cu\"\n  #line 2\na /* b\n * c */ d // e\nf"),
            ["a", "d", "f", ""]
        );
    }

    #[test]
    fn integers_in_every_base() {
        assert_eq!(number("0"), Constant::signed(0));
        assert_eq!(number("42"), Constant::signed(42));
        assert_eq!(number("42U"), unsigned(42));
        assert_eq!(number("0xfF"), Constant::signed(255));
        assert_eq!(number("0777"), Constant::signed(511));
        assert_eq!(number("0b101U"), unsigned(5));
        assert_eq!(number("9223372036854775807"), Constant::signed(i64::MAX));
        assert_eq!(number("9223372036854775808"), unsigned(1 << 63));
        assert_eq!(number("0xffffffffffffffff"), unsigned(u64::MAX));
    }

    #[test]
    fn floats_in_every_form() {
        assert_eq!(number("0f3F800000"), Constant::Single(0x3f80_0000));
        assert_eq!(number("0F3f800000"), Constant::Single(0x3f80_0000));
        let one = Constant::Double(1f64.to_bits());
        assert_eq!(number("0d3FF0000000000000"), one);
        assert_eq!(number("1.0"), one);
        assert_eq!(number("1."), one);
        assert_eq!(number("1e0"), one);
        assert_eq!(number("10.0e-1"), one);
        assert_eq!(number(".5"), Constant::Double(0.5f64.to_bits()));
    }

    #[test]
    fn places_count_lines_and_characters() {
        let source = Source {
            file: "t",
            text: "a /* é */ b\n  c",
        };
        let places: Vec<_> = tokens(&source)
            .unwrap()
            .iter()
            .map(|t| t.span.to_string_pair())
            .collect();
        assert_eq!(places, ["1:1-1:2", "1:11-1:12", "2:3-2:4", "2:4-2:4"]);
    }

    impl Span {
        fn to_string_pair(self) -> String {
            format!("{}-{}", self.start, self.end)
        }
    }
}
