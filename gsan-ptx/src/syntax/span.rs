//! Places in a PTX file.

use std::fmt;

/// A place in a file. Lines and columns count from 1; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position {
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A stretch of a file: from its first character up to, but not including, `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span {
    /// The first character.
    pub start: Position,
    /// The first character after it.
    pub end: Position,
}

impl Span {
    /// The stretch from the start of `self` to the end of `last`.
    pub fn to(self, last: Span) -> Span {
        Span {
            start: self.start,
            end: last.end,
        }
    }
}
