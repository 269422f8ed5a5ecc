//! What ends a command early, said in the form in which rustc says it.

use std::ops::Range;
use std::process::ExitCode;

use gsan_config::bounded::ReadError;
use gsan_report::model::{self, Unchecked};

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
    column: Option<usize>,
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

    /// A file cannot be read. If it is not there, or no file at all, naming it was wrong usage.
    pub(crate) fn unreadable(name: &str, error: &ReadError) -> Self {
        let code = if error.is_wrong_name() { USAGE } else { OTHER };
        Failure::new(code, format!("`{name}` cannot be read: {error}"))
    }

    /// A file cannot be written. If there can be no such file, naming it was wrong usage.
    pub(crate) fn unwritable(name: &str, error: &std::io::Error) -> Self {
        use std::io::ErrorKind::{IsADirectory, NotADirectory, NotFound};
        let (code, why) = match error.kind() {
            NotFound => (USAGE, "there is no such directory".to_owned()),
            NotADirectory => (USAGE, "it is below a file".to_owned()),
            IsADirectory => (USAGE, "it is a directory".to_owned()),
            _ => (OTHER, error.to_string()),
        };
        Failure::new(code, format!("`{name}` cannot be written: {why}"))
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
            column: None,
            source: None,
        }));
        self
    }

    /// Says the column of [`Failure::at`], counted from 1, where its line is not shown.
    pub(crate) fn column(mut self, column: usize) -> Self {
        if let Some(place) = &mut self.place {
            place.column = Some(column);
        }
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

    /// Says more.
    pub(crate) fn note(mut self, name: &'static str, text: impl Into<String>) -> Self {
        self.notes.push((name, text.into()));
        self
    }

    /// Says what would be right.
    pub(crate) fn help(mut self, text: impl Into<String>) -> Self {
        self.notes.push(("help", text.into()));
        self
    }

    /// Whether the command line or the configuration is wrong.
    pub(crate) fn is_usage(&self) -> bool {
        self.code == USAGE
    }

    /// As what a report says of an input that could not be checked.
    pub(crate) fn unchecked(&self, file: impl Into<String>) -> Unchecked {
        let place = self.place.as_deref().and_then(|place| {
            let column = match &place.source {
                Some(Source { text, span, .. }) => {
                    let before = text.get(..span.start);
                    before.map(|before| before.chars().count() + 1)
                }
                None => place.column,
            };
            Some(model::Place {
                file: place.name.clone(),
                line: place.line?.try_into().ok()?,
                column: column.and_then(|column| column.try_into().ok()),
                ptx: None,
            })
        });
        let help = self.notes.iter().find(|(name, _)| *name == "help");
        Unchecked {
            file: file.into(),
            reason: self.title.clone(),
            place,
            help: help.map(|(_, text)| text.clone()),
        }
    }

    /// The program's exit code.
    pub(crate) fn exit_code(&self) -> ExitCode {
        self.code.into()
    }

    /// The text for standard error, with colours.
    pub(crate) fn render(&self) -> String {
        let mut group = Group::with_title(Level::ERROR.primary_title(&*self.title));
        if let Some(Place {
            name,
            line,
            column,
            source,
        }) = self.place.as_deref()
        {
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
                (_, Some(line)) => {
                    let origin = Origin::path(name).line(*line);
                    group.element(match column {
                        Some(column) => origin.char_column(*column),
                        None => origin,
                    })
                }
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
