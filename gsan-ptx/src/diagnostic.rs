//! Errors that point at a place in a PTX file.

use std::fmt;
use std::ops::Range;

use crate::syntax::span::Span;

/// What is wrong with a PTX file, where, and what would be right.
///
/// It displays as one line; [`Diagnostic::render`] adds the line of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{}: {message}{}", span.start, Help(help))]
pub struct Diagnostic {
    /// The file, as the user named it.
    pub file: String,
    /// The place.
    pub span: Span,
    /// What is wrong.
    pub message: String,
    /// What would be right, if that can be said.
    pub help: Option<String>,
    /// The text of the line that the place starts in.
    pub line: String,
}

struct Help<'a>(&'a Option<String>);

impl fmt::Display for Help<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}

/// A PTX file: its name and its text.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The name, as the user gave it.
    pub file: &'a str,
    /// The text.
    pub text: &'a str,
}

impl Source<'_> {
    /// An error at `span`.
    pub fn error(&self, span: Span, message: impl Into<String>) -> Box<Diagnostic> {
        let index = span.start.line.saturating_sub(1) as usize;
        Box::new(Diagnostic {
            file: self.file.to_owned(),
            span,
            message: message.into(),
            help: None,
            line: self.text.lines().nth(index).unwrap_or("").to_owned(),
        })
    }
}

impl Diagnostic {
    /// The same error with `help`.
    #[must_use]
    pub fn with_help(mut self: Box<Self>, help: impl Into<String>) -> Box<Self> {
        self.help = Some(help.into());
        self
    }

    /// The same error with `help`, if there is any.
    #[must_use]
    pub fn with_help_if(mut self: Box<Self>, help: Option<String>) -> Box<Self> {
        self.help = help;
        self
    }

    /// Which bytes of [`Diagnostic::line`] are meant.
    pub fn bytes_of_line(&self) -> Range<usize> {
        let byte = |column: u32| {
            let column = column.saturating_sub(1) as usize;
            let mut indices = self.line.char_indices().map(|(byte, _)| byte);
            indices.nth(column).unwrap_or(self.line.len())
        };
        let start = byte(self.span.start.column);
        let end = if self.span.end.line == self.span.start.line {
            byte(self.span.end.column)
        } else {
            self.line.len()
        };
        start..end.max(start)
    }

    /// The error with the line it is about, coloured for a terminal if `color`.
    pub fn render(&self, color: bool) -> String {
        use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

        let snippet = Snippet::source(self.line.as_str())
            .path(self.file.as_str())
            .line_start(self.span.start.line as usize)
            .annotation(AnnotationKind::Primary.span(self.bytes_of_line()));
        let mut report = vec![
            Group::with_title(Level::ERROR.primary_title(self.message.as_str())).element(snippet),
        ];
        if let Some(help) = &self.help {
            report.push(Group::with_title(
                Level::HELP.secondary_title(help.as_str()),
            ));
        }
        let renderer = if color {
            Renderer::styled()
        } else {
            Renderer::plain()
        };
        renderer.render(&report)
    }
}

/// The candidate that `word` was most probably meant to be, if one is near.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .filter(|&(distance, candidate)| {
            let longer = word.len().max(candidate.len());
            (1..=(longer / 3).clamp(1, 3)).contains(&distance)
        })
        .min()
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::span::Position;

    #[test]
    fn a_near_word_is_suggested_and_a_far_one_is_not() {
        let words = ["reqntid", "maxntid", "maxnreg"];
        assert_eq!(nearest("reqntd", words), Some("reqntid"));
        assert_eq!(nearest("maxnrge", words), Some("maxnreg"));
        assert_eq!(nearest("visible", words), None);
        assert_eq!(nearest("maxnreg", ["maxnreg"]), None);
    }

    #[test]
    fn a_place_outside_the_text_still_gives_an_error() {
        let source = Source {
            file: "k.ptx",
            text: "ret;",
        };
        let span = Span {
            start: Position { line: 9, column: 7 },
            end: Position { line: 9, column: 6 },
        };
        let error = source.error(span, "too late").with_help("come earlier");
        assert_eq!(error.to_string(), "k.ptx:9:7: too late (come earlier)");
        assert!(error.render(false).contains("too late"));
    }
}
