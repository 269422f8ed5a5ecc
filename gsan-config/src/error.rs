//! What is wrong with a configuration, where, and what would be right.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use crate::keys::{KEYS, Key};
use crate::load::FILE_VARIABLE;
use crate::origin::Origin;

/// What is wrong with a configuration, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// What is wrong.
    pub problem: Box<Problem>,
    /// Where.
    pub origin: Origin,
    /// The text that holds it, if there is any.
    pub excerpt: Option<Excerpt>,
}

/// A line of text, and the part of it that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The line of the file, the environment variable's value, or the argument.
    pub text: String,
    /// The bytes of it that are wrong.
    pub span: Range<usize>,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The file cannot be read.
    #[error("the configuration file `{}` cannot be read: {why}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        why: String,
    },
    /// It is not TOML.
    #[error("this is not TOML: {0}")]
    NotToml(String),
    /// There is no such key.
    #[error("there is no key `{0}`")]
    UnknownKey(String),
    /// There is no such section.
    #[error("there is no section `{0}`")]
    UnknownSection(String),
    /// There is no such environment variable.
    #[error("the environment variable `{0}` means nothing")]
    UnknownVariable(String),
    /// A section is not a table.
    #[error("`{0}` is a section: it holds keys and has no value of its own")]
    NotASection(String),
    /// `-c` without `=`.
    #[error("`{0}` sets nothing")]
    NotAnAssignment(String),
    /// An environment variable that is not text.
    #[error("the value of `{0}` is not Unicode text")]
    NotUnicode(String),
    /// The key does not take the value.
    #[error("`{key}` cannot be {found}{}", .why.as_ref().map(|why| format!(": {why}")).unwrap_or_default())]
    Invalid {
        /// The key.
        key: String,
        /// The value, as it was written or what it is.
        found: String,
        /// Why not, if that is more than "not one of the expected ones".
        why: Option<String>,
        /// What the key takes.
        expected: String,
        /// The valid value that is most like it.
        nearest: Option<String>,
    },
}

impl Problem {
    /// What would be right.
    pub fn help(&self) -> String {
        match self {
            Problem::Unreadable { .. } => {
                "`gsan config --init` writes a file with every key and its default".to_owned()
            }
            Problem::NotToml(_) => {
                "a line is `key = value`; text stands in quotation marks; see https://toml.io"
                    .to_owned()
            }
            Problem::UnknownKey(key) => {
                let (section, _) = key.split_once('.').unwrap_or_default();
                let names = KEYS.iter().map(|known| known.path());
                nearest(key, names).map_or_else(
                    || keys_of(section),
                    |found| format!("the nearest key is `{found}`"),
                )
            }
            Problem::UnknownSection(name) => {
                let moved = KEYS.iter().find(|known| known.name == name);
                let sections = KEYS.iter().map(|known| known.section.to_owned());
                match (moved, nearest(name, sections)) {
                    (Some(key), _) => format!("the nearest key is `{}`", key.path()),
                    (None, Some(found)) => format!("the nearest section is `{found}`"),
                    (None, None) => keys_of(""),
                }
            }
            Problem::UnknownVariable(name) => nearest(name, variables()).map_or_else(
                || "the variables are named GSAN_SECTION_KEY".to_owned(),
                |found| format!("the nearest variable is `{found}`"),
            ),
            Problem::NotASection(name) => keys_of(name),
            Problem::NotAnAssignment(_) => "write `-c section.key=value`".to_owned(),
            Problem::NotUnicode(_) => "use text in UTF-8".to_owned(),
            Problem::Invalid {
                expected,
                nearest: None,
                ..
            } => format!("expected {expected}"),
            Problem::Invalid {
                expected,
                nearest: Some(nearest),
                ..
            } => format!("expected {expected}; the nearest is {nearest}"),
        }
    }
}

/// The valid name that is most like `name`, if one is like it at all.
pub(crate) fn nearest(name: &str, valid: impl Iterator<Item = String>) -> Option<String> {
    const ALIKE: f64 = 0.6;
    valid
        .map(|valid| {
            let likeness = strsim::normalized_damerau_levenshtein(name, &valid);
            (likeness, valid)
        })
        .filter(|&(likeness, _)| likeness >= ALIKE)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, valid)| valid)
}

/// The environment variables that are read.
pub(crate) fn variables() -> impl Iterator<Item = String> {
    let foreign = KEYS.iter().flat_map(|key| key.foreign_variables);
    KEYS.iter()
        .map(Key::variable)
        .chain(foreign.map(ToString::to_string))
        .chain([FILE_VARIABLE.to_owned()])
}

/// The keys of a section, or the sections when there is no such section.
fn keys_of(section: &str) -> String {
    let keys: Vec<String> = KEYS
        .iter()
        .filter(|key| key.section == section)
        .map(|key| format!("`{}`", key.name))
        .collect();
    if keys.is_empty() {
        let mut sections: Vec<String> = KEYS
            .iter()
            .map(|key| format!("`{}`", key.section))
            .collect();
        sections.dedup();
        format!("the sections are {}", sections.join(", "))
    } else {
        format!("the keys of `{section}` are {}", keys.join(", "))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::File { path, line, column } => {
                write!(f, "{}:{line}:{column}: ", path.display())?;
            }
            Origin::Default => {}
            other => write!(f, "{other}: ")?,
        }
        write!(f, "{} ({})", self.problem, self.problem.help())
    }
}

impl std::error::Error for Error {}
