//! The arguments of a kernel as words: `buf:a+128`, `i32:256`, `bytes:00ff`.

use std::num::{IntErrorKind, ParseIntError};

use super::Problem;
use super::contents::{Element, Init};
use crate::diagnostic::nearest;

/// One argument of a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// The address of a buffer, by its position, and an offset to it.
    Buffer {
        /// The position among the buffers.
        buffer: usize,
        /// Added to its address.
        offset: u64,
    },
    /// A number.
    Scalar {
        /// Its type.
        ty: Element,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// The bytes of a structure.
    Bytes(Vec<u8>),
}

/// The size of a buffer, its type and what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The size in bytes.
    pub bytes: u64,
    /// The type of its elements.
    pub ty: Element,
    /// What it holds before the first launch.
    pub init: Init,
}

impl Contents {
    /// `BYTES[:TYPE[=INIT]]`, what follows `buf:` on the command line.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Contents, Problem> {
        let (size, rest) = match text.split_once(':') {
            Some((size, rest)) => (size, Some(rest)),
            None => (text, None),
        };
        let bytes = size.parse().map_err(|error: ParseIntError| {
            Problem::new(match error.kind() {
                IntErrorKind::PosOverflow => format!("{size} bytes are too many"),
                _ => format!("`{size}` is not a number of bytes"),
            })
            .help("a buffer is buf:BYTES, buf:BYTES:TYPE or buf:BYTES:TYPE=INIT")
        })?;
        let (ty, init) = match rest.map(|rest| rest.split_once('=').unwrap_or((rest, "0"))) {
            Some((ty, init)) => (Element::parse(ty)?, Init::parse(init)),
            None => (Element::U8, Init::Zero),
        };
        Ok(Contents { bytes, ty, init })
    }
}

/// The part of an argument before its colon, and the part behind it.
pub(super) fn split(text: &str) -> Result<(&str, &str), Problem> {
    text.split_once(':').ok_or_else(|| {
        Problem::new(format!("`{text}` is not an argument"))
            .help("an argument is a kind and a value, such as i32:256 or buf:4096")
    })
}

/// An argument that is no buffer.
pub(super) fn plain(kind: &str, value: &str) -> Result<Argument, Problem> {
    match kind {
        "bytes" => bytes(value),
        "tensormap" => Err(Problem::new("tensor maps are not supported yet")),
        _ => {
            let Some(ty) = Element::from_word(kind) else {
                let kinds = || {
                    let types = Element::ALL.iter().map(|ty| ty.word());
                    ["buf", "bytes"].into_iter().chain(types)
                };
                let help = match nearest(kind, kinds()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("the kinds are {}", kinds().collect::<Vec<_>>().join(", ")),
                };
                return Err(Problem::new(format!("`{kind}` is not a kind of argument")).help(help));
            };
            Ok(Argument::Scalar {
                ty,
                bytes: ty.value(value)?,
            })
        }
    }
}

/// Pairs of hexadecimal digits.
fn bytes(text: &str) -> Result<Argument, Problem> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .map(|c| c.to_digit(16).map(|digit| digit as u8))
        .collect();
    match digits {
        Some(digits) if digits.len() % 2 == 0 && !digits.is_empty() => Ok(Argument::Bytes(
            digits
                .chunks(2)
                .map(|pair| pair[0] << 4 | pair[1])
                .collect(),
        )),
        _ => Err(Problem::new(format!("`{text}` is not bytes"))
            .help("write two hexadecimal digits for each byte, such as bytes:00ff")),
    }
}

/// `NAME` or `NAME+OFFSET`, one of `buffers`.
pub(super) fn buffer(text: &str, buffers: &[&str]) -> Result<Argument, Problem> {
    let (name, offset) = match text.split_once('+') {
        Some((name, offset)) => {
            let parsed = offset.parse();
            let offset = parsed
                .map_err(|_| Problem::new(format!("`{offset}` is not an offset in bytes")))?;
            (name, offset)
        }
        None => (text, 0),
    };
    match buffers.iter().position(|buffer| *buffer == name) {
        Some(buffer) => Ok(Argument::Buffer { buffer, offset }),
        None => {
            let help = nearest(name, buffers.iter().copied())
                .map(|near| format!("did you mean `{near}`?"));
            Err(Problem::new(format!("there is no buffer `{name}`")).help_if(help))
        }
    }
}
