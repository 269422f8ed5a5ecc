//! What ends a command early, said in the form in which rustc says it.

use std::ops::Range;
use std::process::ExitCode;

use annotate_snippets::{AnnotationKind, Level, Origin, Padding, Renderer, Snippet};

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
    file: String,
    line: usize,
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

    #[expect(dead_code, reason = "for the subcommands that read files")]
    /// Says where, without showing the line. `line` counts from 1.
    pub(crate) fn at(mut self, file: impl Into<String>, line: usize) -> Self {
        self.place = Some(Box::new(Place {
            file: file.into(),
            line,
            source: None,
        }));
        self
    }

    #[expect(dead_code, reason = "for the subcommands that read files")]
    /// Shows the line named by [`Failure::at`]: its text, the bytes of it that are wrong, and what
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
        let mut group = Level::ERROR.primary_title(&*self.title).elements(
            // An empty list of elements makes a group of the title alone.
            std::iter::empty::<Padding>(),
        );
        if let Some(Place { file, line, source }) = self.place.as_deref() {
            group = match source {
                None => {
                    let origin = Origin::path(file).line(*line);
                    let group = group.element(origin);
                    if self.notes.is_empty() {
                        group
                    } else {
                        group.element(Padding)
                    }
                }
                Some(Source { text, span, label }) => group.element(
                    Snippet::source(text)
                        .path(file)
                        .line_start(*line)
                        .annotation(
                            AnnotationKind::Primary
                                .span(span.clone())
                                .label(label.as_deref()),
                        ),
                ),
            };
        }
        for (name, text) in &self.notes {
            group = group.element(Level::HELP.with_name(*name).message(text));
        }
        Renderer::styled().render(&[group])
    }
}
