//! Where values come from: command line, environment, file, default, in this order of precedence.

use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::bounded;
use crate::error::{Error, Excerpt, Problem, variables};
use crate::keys::{Config, KEYS, Key};
use crate::origin::Origin;
use crate::toml_place::locate;
use crate::value::{Invalid, Plain};

/// The name of the file that is looked for.
pub const FILE_NAME: &str = "gsan.toml";
/// The variable that names a file.
pub const FILE_VARIABLE: &str = "GSAN_CONFIG";
/// The largest configuration file that is read, in bytes.
pub const MAX_BYTES: u64 = 16 << 20;

/// All that a configuration is made from.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// The file asked for (`--config`). It must exist.
    pub file: Option<PathBuf>,
    /// Where [`FILE_NAME`] is looked for, and above.
    pub directory: PathBuf,
    /// The environment.
    pub environment: Vec<(OsString, OsString)>,
    /// `section.key=value`, later ones win (`-c`).
    pub assignments: Vec<String>,
}

impl Inputs {
    /// The inputs of this process, with what its command line says.
    ///
    /// # Errors
    /// The working directory is gone.
    pub fn of_process(file: Option<PathBuf>, assignments: Vec<String>) -> std::io::Result<Inputs> {
        Ok(Inputs {
            file,
            directory: std::env::current_dir()?,
            environment: std::env::vars_os().collect(),
            assignments,
        })
    }
}

/// The configuration, and where it came from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// The file that was read.
    pub file: Option<PathBuf>,
    /// The origin of each of [`KEYS`].
    origins: Vec<Origin>,
}

impl Default for Loaded {
    fn default() -> Self {
        Loaded {
            config: Config::default(),
            file: None,
            origins: vec![Origin::Default; KEYS.len()],
        }
    }
}

impl Loaded {
    /// Makes the configuration from its inputs.
    ///
    /// # Errors
    /// The first thing that is wrong with them.
    pub fn new(inputs: &Inputs) -> Result<Loaded, Error> {
        let mut loaded = Loaded::default();
        if let Some((path, origin)) = find_file(inputs) {
            let unreadable = |why: String| Error {
                problem: Box::new(Problem::Unreadable {
                    path: path.clone(),
                    why,
                }),
                origin: origin.clone(),
                excerpt: None,
            };
            let bytes =
                bounded::read(&path, MAX_BYTES).map_err(|error| unreadable(error.to_string()))?;
            let text = String::from_utf8(bytes).map_err(|error| {
                let at = error.utf8_error().valid_up_to();
                let line = 1 + error.as_bytes()[..at]
                    .iter()
                    .filter(|&&b| b == b'\n')
                    .count();
                unreadable(format!("line {line} is not UTF-8"))
            })?;
            loaded.apply_file(&path, &text)?;
            loaded.file = Some(path);
        }
        loaded.apply_environment(&inputs.environment)?;
        for assignment in &inputs.assignments {
            loaded.apply_assignment(assignment)?;
        }
        loaded.check()?;
        Ok(loaded)
    }

    /// Whether the values go together.
    ///
    /// # Errors
    /// A device has a rank that the topology does not have.
    pub fn check(&self) -> Result<(), Error> {
        self.check_ranks()
    }

    /// Every key with its value's origin.
    pub fn origins(&self) -> impl Iterator<Item = (&'static Key, &Origin)> {
        KEYS.iter().zip(&self.origins)
    }

    /// Sets what the text of a file says. `path` is what errors call it.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn apply_file(&mut self, path: &Path, text: &str) -> Result<(), Error> {
        let wrong = |span: Range<usize>, problem: Problem| {
            let (origin, excerpt) = locate(path, text, span);
            Error {
                problem: Box::new(problem),
                origin,
                excerpt: Some(excerpt),
            }
        };
        let table = DeTable::parse(text).map_err(|error| {
            let span = error.span().unwrap_or_default();
            wrong(span, Problem::NotToml(error.message().to_owned()))
        })?;
        for (section, value) in table.get_ref().iter() {
            let name = section.get_ref();
            if !KEYS.iter().any(|key| key.section == name) {
                return Err(wrong(
                    section.span(),
                    Problem::UnknownSection(name.to_string()),
                ));
            }
            let Some(keys) = value.get_ref().as_table() else {
                return Err(wrong(
                    section.span(),
                    Problem::NotASection(name.to_string()),
                ));
            };
            for (key, value) in keys.iter() {
                let path_of_key = format!("{name}.{}", key.get_ref());
                let Some(index) = find_key(&path_of_key) else {
                    return Err(wrong(key.span(), Problem::UnknownKey(path_of_key)));
                };
                let (origin, _) = locate(path, text, key.span());
                self.set(index, value, origin)
                    .map_err(|invalid| wrong(invalid.span.clone(), problem(index, invalid)))?;
            }
        }
        Ok(())
    }

    /// Sets what environment variables say. Empty ones say nothing.
    ///
    /// # Errors
    /// The first thing that is wrong with them.
    pub fn apply_environment(&mut self, environment: &[(OsString, OsString)]) -> Result<(), Error> {
        let wrong = |name: &str, problem: Problem, excerpt: Option<Excerpt>| Error {
            problem: Box::new(problem),
            origin: Origin::Environment {
                name: name.to_owned(),
            },
            excerpt,
        };
        let value_of = |wanted: &str| {
            environment
                .iter()
                .find(|(name, value)| name == wanted && !value.is_empty())
                .map(|(_, value)| value)
        };
        for (name, _) in environment {
            let name = name.to_string_lossy();
            if is_misspelt(&name) {
                return Err(wrong(
                    &name,
                    Problem::UnknownVariable(name.to_string()),
                    None,
                ));
            }
        }
        for (index, key) in KEYS.iter().enumerate() {
            let own = key.variable();
            let found = std::iter::once(own.as_str())
                .chain(key.foreign_variables.iter().copied())
                .find_map(|name| Some((name, value_of(name)?)));
            let Some((name, value)) = found else { continue };
            let text = value
                .to_str()
                .ok_or_else(|| wrong(name, Problem::NotUnicode(name.to_owned()), None))?;
            let origin = Origin::Environment {
                name: name.to_owned(),
            };
            self.set_plain(index, text, origin).map_err(|invalid| {
                let excerpt = excerpt(text, invalid.span.clone());
                wrong(name, problem(index, invalid), Some(excerpt))
            })?;
        }
        Ok(())
    }

    /// Sets what `section.key=value` says.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn apply_assignment(&mut self, assignment: &str) -> Result<(), Error> {
        let wrong = |problem: Problem, span: Range<usize>| Error {
            problem: Box::new(problem),
            origin: Origin::CommandLine,
            excerpt: Some(excerpt(assignment, span)),
        };
        let Some((path, value)) = assignment.split_once('=') else {
            let problem = Problem::NotAnAssignment(assignment.to_owned());
            return Err(wrong(problem, 0..assignment.len()));
        };
        let name = path.trim();
        let Some(index) = find_key(name) else {
            let name = name.to_owned();
            let problem = match KEYS.iter().any(|key| key.section == name) {
                true => Problem::NotASection(name),
                false => Problem::UnknownKey(name),
            };
            return Err(wrong(problem, 0..path.len()));
        };
        let offset = path.len() + 1;
        self.set_plain(index, value, Origin::CommandLine)
            .map_err(|invalid| {
                let span = invalid.span.start + offset..invalid.span.end + offset;
                wrong(problem(index, invalid), span)
            })
    }

    fn set(
        &mut self,
        index: usize,
        value: &Spanned<DeValue<'_>>,
        origin: Origin,
    ) -> Result<(), Invalid> {
        let key = &KEYS[index];
        (key.set)(&mut self.config, value, &key.limits)?;
        self.origins[index] = origin;
        Ok(())
    }

    /// Sets a value that is written as [`Plain`] text says.
    fn set_plain(&mut self, index: usize, text: &str, origin: Origin) -> Result<(), Invalid> {
        let whole = 0..text.len();
        let trimmed = text.trim();
        let string =
            |text: &str| Spanned::new(whole.clone(), DeValue::String(text.to_owned().into()));
        let value = match KEYS[index].plain {
            Plain::Text if !trimmed.starts_with(['"', '\'']) => string(trimmed),
            Plain::List if !trimmed.starts_with('[') => {
                let items = trimmed.split(',').map(|item| string(item.trim()));
                Spanned::new(whole.clone(), DeValue::Array(items.collect()))
            }
            // What is no TOML is taken as text, which the key then refuses by its own words.
            _ => DeValue::parse(text).unwrap_or_else(|_| string(trimmed)),
        };
        self.set(index, &value, origin)
    }

    /// A rank that the topology does not have.
    fn check_ranks(&self) -> Result<(), Error> {
        let topology = &self.config.topology;
        let too_large = topology
            .device_ranks
            .iter()
            .find(|&(_, &rank)| u32::from(rank) >= topology.num_devices);
        let Some((device, rank)) = too_large.filter(|_| topology.num_devices > 0) else {
            return Ok(());
        };
        let index = find_key("topology.device_ranks").expect("it is in the table");
        Err(Error {
            problem: Box::new(Problem::Invalid {
                key: KEYS[index].path(),
                found: KEYS[index].show(&self.config),
                why: Some(format!("device {device} has rank {rank}")),
                expected: format!(
                    "ranks below `topology.num_devices`, which is {}",
                    topology.num_devices
                ),
                nearest: None,
            }),
            origin: self.origins[index].clone(),
            excerpt: None,
        })
    }
}

fn problem(index: usize, invalid: Invalid) -> Problem {
    let Invalid {
        found,
        why,
        expected,
        nearest,
        ..
    } = invalid;
    Problem::Invalid {
        key: KEYS[index].path(),
        found,
        why,
        expected: expected.unwrap_or_else(|| KEYS[index].expected()),
        nearest,
    }
}

fn excerpt(text: &str, span: Range<usize>) -> Excerpt {
    Excerpt {
        text: text.to_owned(),
        span,
    }
}

fn find_key(path: &str) -> Option<usize> {
    KEYS.iter().position(|key| key.path() == path)
}

/// Whether a variable was meant to say something to us and does not: it begins like one of a
/// section, or is almost one that is read. Others that begin with `GSAN_` belong to tests and to
/// the program's own use.
fn is_misspelt(name: &str) -> bool {
    if variables().any(|variable| variable == name) {
        return false;
    }
    let ours = name.strip_prefix("GSAN_");
    let in_section = ours
        .and_then(|rest| rest.split_once('_'))
        .is_some_and(|(section, _)| {
            KEYS.iter()
                .any(|key| key.section.eq_ignore_ascii_case(section))
        });
    let is_near = |variable: String| strsim::damerau_levenshtein(name, &variable) <= 2;
    in_section || (ours.is_some() || name.starts_with("TRITON_GSAN_")) && variables().any(is_near)
}

/// The file that is read, and who asked for it.
fn find_file(inputs: &Inputs) -> Option<(PathBuf, Origin)> {
    if let Some(file) = &inputs.file {
        return Some((file.clone(), Origin::CommandLine));
    }
    let variable = inputs
        .environment
        .iter()
        .find(|(name, value)| name == FILE_VARIABLE && !value.is_empty());
    if let Some((_, value)) = variable {
        let origin = Origin::Environment {
            name: FILE_VARIABLE.to_owned(),
        };
        return Some((inputs.directory.join(value), origin));
    }
    let file = inputs
        .directory
        .ancestors()
        .map(|directory| directory.join(FILE_NAME))
        .find(|file| file.is_file())?;
    Some((file, Origin::Default))
}
