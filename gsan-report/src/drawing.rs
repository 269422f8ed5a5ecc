//! One message in the form in which rustc prints its own: a title, source lines with marks, notes.

use std::ops::Range;

use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Origin, Padding, Snippet};

use crate::human::Look;
use crate::model::Place;
use crate::source::Sources;
use crate::words;

/// How much of a line is handed to the renderer on each side of its mark, in characters. It is
/// more than any terminal is taken to be wide, so that the renderer sees that there is more.
const MAX_SIDE: usize = 512;
/// How many characters are marked: compilers say where an access begins, not where it ends.
const MARK: usize = 3;

/// What is said of a place: on its line if that can be shown, else in a note.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) label: String,
    pub(crate) name: &'static str,
    pub(crate) note: String,
}

/// One message.
#[derive(Debug)]
pub(crate) struct Drawing {
    look: Look,
    excerpts: Vec<Excerpt>,
    notes: Vec<(&'static str, String)>,
}

/// A place, with lines of its file if they can be shown.
#[derive(Debug)]
struct Excerpt {
    file: String,
    line: u32,
    column: Option<u32>,
    lines: Option<Lines>,
}

#[derive(Debug)]
struct Lines {
    first: u32,
    text: String,
    marks: Vec<Mark>,
    /// How many characters of each line are left out on its left.
    cut: usize,
    /// Where in `text` the line of the place begins.
    start: usize,
}

#[derive(Debug)]
struct Mark {
    span: Range<usize>,
    label: String,
}

impl Drawing {
    pub(crate) fn new(look: &Look) -> Drawing {
        Drawing {
            look: *look,
            excerpts: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub(crate) fn note(&mut self, name: &'static str, text: impl Into<String>) {
        self.notes.push((name, printable(text.into(), &[])));
    }

    /// Shows a place. The first one has lines of context before it.
    pub(crate) fn place(&mut self, place: Option<&Place>, sources: &mut Sources, said: Said) {
        let Some(place) = place else {
            self.note(
                said.name,
                format!("{}, in a line that is not known", said.note),
            );
            return;
        };
        let shown = self
            .excerpts
            .iter_mut()
            .find(|shown| (&shown.file, shown.line) == (&place.file, place.line));
        if let Some(Excerpt {
            lines: Some(lines), ..
        }) = shown
        {
            lines.mark(place.column, said.label);
            return;
        }
        let known_file = shown.is_some();
        let context = if self.excerpts.is_empty() {
            self.look.context_lines
        } else {
            0
        };
        let lines = match Lines::read(place, context, sources) {
            Ok(mut lines) => {
                lines.mark(place.column, said.label);
                Some(lines)
            }
            Err(why) => {
                if !said.note.is_empty() {
                    self.note(said.name, said.note);
                }
                let told = format!("`{}` cannot be shown: {why}", file_name(&place.file));
                if !self.notes.iter().any(|(_, note)| *note == told) {
                    self.note("source", told);
                }
                None
            }
        };
        if !known_file {
            self.excerpts.push(Excerpt {
                file: place.file.clone(),
                line: place.line,
                column: place.column,
                lines,
            });
        }
    }

    /// The text, followed by an empty line.
    pub(crate) fn render(&self, level: Level<'static>, id: Option<&str>, title: &str) -> String {
        let mut title = level.primary_title(printable(title.to_owned(), &[]));
        if let Some(id) = id {
            title = title.id(id);
        }
        let mut group = Group::with_title(title);
        for (position, excerpt) in self.excerpts.iter().enumerate() {
            let file = file_name(&excerpt.file);
            let kind = if position == 0 {
                AnnotationKind::Primary
            } else {
                AnnotationKind::Context
            };
            group = match &excerpt.lines {
                Some(lines) => group.element(lines.snippet(kind).path(file)),
                None => {
                    let origin = Origin::path(file).line(excerpt.line as usize);
                    group.element(match excerpt.column {
                        Some(column) => origin.char_column(column as usize),
                        None => origin,
                    })
                }
            };
        }
        let bare = self
            .excerpts
            .last()
            .is_some_and(|excerpt| excerpt.lines.is_none());
        if bare && !self.notes.is_empty() {
            group = group.element(Padding);
        }
        for (name, text) in &self.notes {
            group = group.element(Level::NOTE.with_name(*name).message(text));
        }
        let mut text = self.look.renderer().render(&[group]);
        self.say_real_columns(&mut text);
        text.push_str("\n\n");
        text
    }

    /// The renderer names the column of the first mark it draws. Where the column is not known, or
    /// the left of the line was cut off, that is not the column of the place.
    fn say_real_columns(&self, text: &mut String) {
        let mut from = text.find('\n').unwrap_or(text.len());
        for excerpt in self
            .excerpts
            .iter()
            .filter(|excerpt| excerpt.lines.is_some())
        {
            let head = format!("{}:{}", file_name(&excerpt.file), excerpt.line);
            let Some(found) = text[from..].find(&format!("{head}:")) else {
                continue;
            };
            let start = from + found + head.len();
            let digits = text[start + 1..]
                .bytes()
                .take_while(u8::is_ascii_digit)
                .count();
            let column = match excerpt.column {
                Some(column) => format!(":{column}"),
                None => String::new(),
            };
            text.replace_range(start..start + 1 + digits, &column);
            from = start;
        }
    }
}

impl Lines {
    fn read(place: &Place, context: u32, sources: &mut Sources) -> Result<Lines, String> {
        let line = sources.line(&place.file, place.line)?;
        let cut = column_of(line, place.column).saturating_sub(MAX_SIDE);
        let first = place.line.saturating_sub(context).max(1);
        let mut text = String::new();
        let mut start = 0;
        for number in first..=place.line {
            start = text.len();
            let line = sources.line(&place.file, number)?;
            let shown = line.chars().skip(cut).take(2 * MAX_SIDE).collect();
            text.push_str(&printable(shown, &['\t']));
            text.push('\n');
        }
        Ok(Lines {
            first,
            text,
            marks: Vec::new(),
            cut,
            start,
        })
    }

    fn mark(&mut self, column: Option<u32>, label: String) {
        let line = self.text[self.start..].trim_end_matches('\n');
        let column = match column {
            Some(column) => (column as usize).saturating_sub(1 + self.cut),
            None => column_of(line, None),
        };
        let bytes_before = |characters: usize| {
            let before = line.char_indices().nth(characters);
            before.map_or(line.len(), |(index, _)| index)
        };
        self.marks.push(Mark {
            span: self.start + bytes_before(column)..self.start + bytes_before(column + MARK),
            label: printable(label, &[]),
        });
    }

    fn snippet(&self, kind: AnnotationKind) -> Snippet<'_, Annotation<'_>> {
        let mut snippet = Snippet::source(&self.text)
            .line_start(self.first as usize)
            .fold(false);
        for (position, mark) in self.marks.iter().enumerate() {
            let kind = if position == 0 {
                kind
            } else {
                AnnotationKind::Context
            };
            let label = (!mark.label.is_empty()).then_some(mark.label.as_str());
            snippet = snippet.annotation(kind.span(mark.span.clone()).label(label));
        }
        snippet
    }
}

/// The column to mark, counted from 0: the given one, else that of the first character that is no
/// white space.
fn column_of(line: &str, column: Option<u32>) -> usize {
    match column {
        Some(column) => (column as usize)
            .saturating_sub(1)
            .min(line.chars().count()),
        None => line
            .chars()
            .position(|character| !character.is_whitespace())
            .unwrap_or(0),
    }
}

/// A file name that is safe to print.
fn file_name(file: &str) -> String {
    printable(words::short(file).into_owned(), &[])
}

/// Text of strangers without what a terminal would obey: control characters other than `kept` ones
/// and characters that change the direction of writing are replaced.
fn printable(text: String, kept: &[char]) -> String {
    let obeyed = |character: char| {
        (character.is_control() && !kept.contains(&character))
            || matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}')
    };
    if text.contains(obeyed) {
        text.replace(obeyed, "\u{fffd}")
    } else {
        text
    }
}
