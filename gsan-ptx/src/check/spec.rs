//! What is launched with what: from a TOML file, or from words of a command line.

use std::num::{IntErrorKind, ParseIntError};
use std::ops::Range;

use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

use super::argument::{self, Argument, Contents};
use super::contents::{Element, Init};
use super::{Error, Problem};
use crate::diagnostic::{Diagnostic, Source, nearest};
use crate::syntax::span::{Position, Span};

/// What the host program would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spec {
    /// Dynamic shared memory of every launch in bytes; the default is what the target allows.
    pub shared: Option<u32>,
    /// The buffers.
    pub buffers: Vec<Buffer>,
    /// The launches, in the order in which the host issues them.
    pub launches: Vec<Launch>,
}

/// A buffer of global memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// What reports call it.
    pub name: String,
    /// What it is.
    pub contents: Contents,
}

/// A launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The kernel; may be missing when the module has one.
    pub entry: Option<String>,
    /// CTAs in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a CTA in x, y and z; the default is `.reqntid`.
    pub block: Option<[u32; 3]>,
    /// CTAs of a cluster in x, y and z.
    pub cluster: [u32; 3],
    /// The stream, numbered within its device.
    pub stream: u32,
    /// The device.
    pub device: u16,
    /// Launched with the programmatic attribute.
    pub programmatic: bool,
    /// Events that its stream waits for first.
    pub waits: Vec<String>,
    /// The event recorded after it.
    pub record: Option<String>,
    /// The host then waits for the device.
    pub sync: bool,
    /// The arguments.
    pub arguments: Vec<Argument>,
}

impl Default for Launch {
    fn default() -> Launch {
        Launch {
            entry: None,
            grid: [1; 3],
            block: None,
            cluster: [1; 3],
            stream: 0,
            device: 0,
            programmatic: false,
            waits: Vec::new(),
            record: None,
            sync: false,
            arguments: Vec::new(),
        }
    }
}

/// `X`, `X,Y` or `X,Y,Z`; what is missing is 1.
///
/// # Errors
/// It is not one to three positive numbers.
pub fn dimensions(text: &str) -> Result<[u32; 3], Problem> {
    let problem = || {
        Problem::new(format!("`{text}` is not a size"))
            .help("write one to three positive numbers, such as 16,8")
    };
    let mut dimensions = [1; 3];
    let parts: Vec<&str> = text.split(',').collect();
    if parts.len() > 3 {
        return Err(problem());
    }
    for (dimension, part) in dimensions.iter_mut().zip(parts) {
        *dimension = part.trim().parse().map_err(|error: ParseIntError| {
            if *error.kind() == IntErrorKind::PosOverflow {
                Problem::new(format!("`{text}` is too large for a size"))
                    .help(format!("a dimension is at most {}", u32::MAX))
            } else {
                problem()
            }
        })?;
        if *dimension == 0 {
            return Err(problem());
        }
    }
    Ok(dimensions)
}

impl Spec {
    /// One launch, with its arguments as words of a command line: `buf:BYTES[:TYPE[=INIT]]`,
    /// `TYPE:VALUE`, `bytes:HEX`. Each `buf` is a buffer of its own.
    ///
    /// # Errors
    /// The first word that is wrong.
    pub fn from_words(words: &[String], mut launch: Launch) -> Result<Spec, Problem> {
        let mut spec = Spec::default();
        for word in words {
            let about = |problem: Problem| Problem {
                message: format!("--arg `{word}`: {}", problem.message),
                ..problem
            };
            let (kind, value) = argument::split(word).map_err(about)?;
            let argument = if kind == "buf" {
                let buffer = spec.buffers.len();
                spec.buffers.push(Buffer {
                    name: format!("argument {}", launch.arguments.len()),
                    contents: Contents::parse(value).map_err(about)?,
                });
                Argument::Buffer { buffer, offset: 0 }
            } else {
                argument::plain(kind, value).map_err(about)?
            };
            launch.arguments.push(argument);
        }
        spec.launches.push(launch);
        Ok(spec)
    }

    /// Reads a TOML file.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line.
    pub fn from_toml(source: &Source<'_>) -> Result<Spec, Error> {
        let file: File = toml::from_str(source.text)
            .map_err(|error| Error::ArgumentFile(toml_error(source, &error)))?;
        let at = |span: Range<usize>| {
            move |problem: Problem| {
                let error = source.error(place(source.text, span), problem.message);
                Error::ArgumentFile(error.with_help_if(problem.help))
            }
        };
        let mut spec = Spec {
            shared: file.shared,
            ..Spec::default()
        };
        for table in &file.buffer {
            let ty = match &table.ty {
                Some(word) => Element::parse(word.get_ref()).map_err(at(word.span()))?,
                None => Element::U8,
            };
            let buffer = table.buffer(ty).map_err(at(table.name.span()))?;
            if spec.buffers.iter().any(|other| other.name == buffer.name) {
                let problem = Problem::new(format!("two buffers are called `{}`", buffer.name));
                return Err(at(table.name.span())(problem));
            }
            spec.buffers.push(buffer);
        }
        let names: Vec<&str> = (spec.buffers.iter())
            .map(|buffer| buffer.name.as_str())
            .collect();
        for table in &file.launch {
            let arguments = table.args.iter().map(|word| {
                let argument =
                    argument::split(word.get_ref()).and_then(|(kind, value)| match kind {
                        "buf" => argument::buffer(value, &names),
                        _ => argument::plain(kind, value),
                    });
                argument.map_err(at(word.span()))
            });
            let sizes = |sizes: &Option<Spanned<Sizes>>| -> Result<Option<[u32; 3]>, Error> {
                let Some(sizes) = sizes else { return Ok(None) };
                let dimensions = sizes.get_ref().dimensions().map_err(at(sizes.span()))?;
                Ok(Some(dimensions))
            };
            spec.launches.push(Launch {
                entry: table.entry.clone(),
                grid: sizes(&table.grid)?.unwrap_or([1; 3]),
                block: sizes(&table.block)?,
                cluster: sizes(&table.cluster)?.unwrap_or([1; 3]),
                stream: table.stream,
                device: table.device,
                programmatic: table.programmatic,
                waits: table
                    .wait
                    .iter()
                    .map(|name| name.get_ref().clone())
                    .collect(),
                record: table.record.clone(),
                sync: table.sync,
                arguments: arguments.collect::<Result<_, _>>()?,
            });
        }
        let recorded: Vec<&str> = (spec.launches.iter())
            .filter_map(|launch| launch.record.as_deref())
            .collect();
        for wait in file.launch.iter().flat_map(|table| &table.wait) {
            let name = wait.get_ref();
            if !recorded.contains(&name.as_str()) {
                let problem = Problem::new(format!("no launch records the event `{name}`"));
                let help = match recorded.as_slice() {
                    [] => "say `record = \"…\"` in the launch that it waits for".to_owned(),
                    events => format!("recorded are `{}`", events.join("`, `")),
                };
                return Err(at(wait.span())(problem.help(help)));
            }
        }
        if spec.launches.is_empty() {
            let error = source.error(place(source.text, 0..0), "nothing is launched");
            return Err(Error::ArgumentFile(
                error.with_help("add a table `[[launch]]` with grid and args"),
            ));
        }
        Ok(spec)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    shared: Option<u32>,
    #[serde(default)]
    buffer: Vec<BufferTable>,
    #[serde(default)]
    launch: Vec<LaunchTable>,
    /// What tests expect; not read here.
    #[serde(default, rename = "expect")]
    _expect: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BufferTable {
    name: Spanned<String>,
    bytes: Option<u64>,
    elements: Option<u64>,
    #[serde(rename = "type")]
    ty: Option<Spanned<String>>,
    init: Option<Value>,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected a number, a list of numbers, or one of \"rand\", \"rand:LO:HI\", \"iota\", \"file:PATH\""
)]
enum Value {
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<Number>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Integer(i128),
    Float(f64),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LaunchTable {
    entry: Option<String>,
    grid: Option<Spanned<Sizes>>,
    block: Option<Spanned<Sizes>>,
    cluster: Option<Spanned<Sizes>>,
    #[serde(default)]
    stream: u32,
    #[serde(default)]
    device: u16,
    #[serde(default)]
    programmatic: bool,
    #[serde(default)]
    wait: Vec<Spanned<String>>,
    record: Option<String>,
    #[serde(default)]
    sync: bool,
    #[serde(default)]
    args: Vec<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected a number, or a list of up to three of them"
)]
enum Sizes {
    One(i64),
    Many(Vec<i64>),
}

impl Sizes {
    fn dimensions(&self) -> Result<[u32; 3], Problem> {
        let text = match self {
            Sizes::One(size) => size.to_string(),
            Sizes::Many(sizes) => {
                let sizes: Vec<String> = sizes.iter().map(i64::to_string).collect();
                sizes.join(",")
            }
        };
        dimensions(&text)
    }
}

impl Value {
    fn init(&self) -> Init {
        match self {
            Value::Integer(0) => Init::Zero,
            Value::Integer(value) => Init::Value(value.to_string()),
            Value::Float(value) => Init::Value(value.to_string()),
            Value::Text(text) => Init::parse(text),
            Value::List(values) => {
                let text = |number: &Number| match number {
                    Number::Integer(value) => value.to_string(),
                    Number::Float(value) => value.to_string(),
                };
                Init::List(values.iter().map(text).collect())
            }
        }
    }
}

impl BufferTable {
    fn buffer(&self, ty: Element) -> Result<Buffer, Problem> {
        let name = self.name.get_ref().clone();
        let bytes = match (self.bytes, self.elements) {
            (Some(bytes), None) => Some(bytes),
            (None, Some(elements)) => elements.checked_mul(ty.bytes()),
            _ => {
                return Err(Problem::new(format!(
                    "buffer `{name}` needs either `bytes` or `elements`"
                )));
            }
        };
        let Some(bytes) = bytes else {
            return Err(Problem::new(format!("buffer `{name}` is too large")));
        };
        let init = self.init.as_ref().map(Value::init).unwrap_or_default();
        Ok(Buffer {
            name,
            contents: Contents { bytes, ty, init },
        })
    }
}

/// The place of a range of bytes of a file.
fn place(text: &str, range: Range<usize>) -> Span {
    let position = |byte: usize| {
        let before = text.get(..byte.min(text.len())).unwrap_or("");
        let line = before.matches('\n').count() as u32 + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() as u32 + 1;
        Position { line, column }
    };
    Span {
        start: position(range.start),
        end: position(range.end),
    }
}

const KEYS: &[&str] = &[
    "args",
    "block",
    "buffer",
    "bytes",
    "cluster",
    "device",
    "elements",
    "entry",
    "expect",
    "grid",
    "init",
    "launch",
    "name",
    "programmatic",
    "record",
    "shared",
    "stream",
    "sync",
    "type",
    "wait",
];

fn toml_error(source: &Source<'_>, error: &toml::de::Error) -> Box<Diagnostic> {
    let span = error.span().unwrap_or(0..0);
    let word = source.text.get(span.clone()).unwrap_or("");
    let unknown = error.message().starts_with("unknown field");
    let help = nearest(word, KEYS.iter().copied())
        .filter(|_| unknown)
        .map(|near| format!("did you mean `{near}`?"));
    source
        .error(place(source.text, span), error.message())
        .with_help_if(help)
}
