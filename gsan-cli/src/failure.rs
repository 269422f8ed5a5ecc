//! What ends a command early, said in the form in which rustc says it.

use std::ops::Range;
use std::process::ExitCode;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Padding, Renderer, Snippet};

/// Wrong usage or configuration.
const USAGE: u8 = 2;
/// Anything else.
const OTHER: u8 = 1;

/// What was wrong, where, and what would be right.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    title: String,
    place: Option<Box<Place>>,
    notes: Vec<(&'static str, String)>,
}

#[derive(Debug)]
struct Place {
    name: String,
    line: Option<usize>,
    source: Option<Source>,
}

#[derive(Debug)]
struct Source {
    text: String,
    span: Range<usize>,
    label: Option<String>,
}

impl Failure {
    /// The command line or the configuration is wrong.
    pub(crate) fn usage(title: impl Into<String>) -> Self {
        Failure::new(USAGE, title)
    }

    /// Something else went wrong: a file, the operating system, an unsupported input.
    pub(crate) fn other(title: impl Into<String>) -> Self {
        Failure::new(OTHER, title)
    }

    fn new(code: u8, title: impl Into<String>) -> Self {
        Failure {
            code,
            title: title.into(),
            place: None,
            notes: Vec::new(),
        }
    }

    /// Says where: a file and its line, counted from 1, or something that has no lines.
    pub(crate) fn at(mut self, name: impl Into<String>, line: Option<usize>) -> Self {
        self.place = Some(Box::new(Place {
            name: name.into(),
            line,
            source: None,
        }));
        self
    }

    /// Shows the line of [`Failure::at`]: its text, the bytes of it that are wrong, and what
    /// is wrong with them if the title does not say it.
    pub(crate) fn showing(
        mut self,
        text: impl Into<String>,
        span: Range<usize>,
        label: Option<String>,
    ) -> Self {
        if let Some(place) = &mut self.place {
            place.source = Some(Source {
                text: text.into(),
                span,
                label,
            });
        }
        self
    }

    /// Says what would be right.
    pub(crate) fn help(mut self, text: impl Into<String>) -> Self {
        self.notes.push(("help", text.into()));
        self
    }

    /// The program's exit code.
    pub(crate) fn exit_code(&self) -> ExitCode {
        self.code.into()
    }

    /// The text for standard error, with colours.
    pub(crate) fn render(&self) -> String {
        let mut group = Group::with_title(Level::ERROR.primary_title(&*self.title));
        if let Some(Place { name, line, source }) = self.place.as_deref() {
            group = match (source, line) {
                (Some(Source { text, span, label }), Some(line)) => {
                    let mark = AnnotationKind::Primary.span(span.clone());
                    group.element(
                        Snippet::source(text)
                            .path(name)
                            .line_start(*line)
                            .annotation(mark.label(label.as_deref())),
                    )
                }
                (_, Some(line)) => group.element(Origin::path(name).line(*line)),
                (_, None) => group.element(Origin::path(name)),
            };
            if source.is_none() && !self.notes.is_empty() {
                group = group.element(Padding);
            }
        }
        for (name, text) in &self.notes {
            group = group.element(Level::HELP.with_name(*name).message(text));
        }
        Renderer::styled().render(&[group])
    }
}
