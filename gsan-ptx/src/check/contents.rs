//! Types and initial contents of buffers.

use std::path::{Path, PathBuf};

use half::{bf16, f16};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

use super::Problem;
use crate::diagnostic::nearest;
use crate::syntax::types::words;

words! {
    /// The type of an element of a buffer or of a scalar argument.
    pub enum Element {
        U8 "u8",
        U16 "u16",
        U32 "u32",
        U64 "u64",
        I8 "i8",
        I16 "i16",
        I32 "i32",
        I64 "i64",
        F16 "f16",
        Bf16 "bf16",
        F32 "f32",
        F64 "f64",
    }
}

impl Element {
    /// The type of that name.
    ///
    /// # Errors
    /// There is no such type.
    pub fn parse(word: &str) -> Result<Element, Problem> {
        Element::from_word(word).ok_or_else(|| {
            let words = || Element::ALL.iter().map(|ty| ty.word());
            let help = match nearest(word, words()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the types are {}", words().collect::<Vec<_>>().join(", ")),
            };
            Problem::new(format!("`{word}` is not a type")).help(help)
        })
    }

    /// The size of an element in bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            Element::U8 | Element::I8 => 1,
            Element::U16 | Element::I16 | Element::F16 | Element::Bf16 => 2,
            Element::U32 | Element::I32 | Element::F32 => 4,
            Element::U64 | Element::I64 | Element::F64 => 8,
        }
    }

    const fn is_float(self) -> bool {
        matches!(
            self,
            Element::F16 | Element::Bf16 | Element::F32 | Element::F64
        )
    }

    /// The smallest and the largest integer.
    fn range(self) -> (i128, i128) {
        let bits = self.bytes() * 8;
        let signed = matches!(
            self,
            Element::I8 | Element::I16 | Element::I32 | Element::I64
        );
        if signed {
            (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
        } else {
            (0, (1 << bits) - 1)
        }
    }

    fn float(self, value: f64) -> Vec<u8> {
        match self {
            Element::F16 => f16::from_f64(value).to_le_bytes().to_vec(),
            Element::Bf16 => bf16::from_f64(value).to_le_bytes().to_vec(),
            Element::F32 => (value as f32).to_le_bytes().to_vec(),
            _ => value.to_le_bytes().to_vec(),
        }
    }

    fn integer(self, value: i128) -> Vec<u8> {
        value.to_le_bytes()[..self.bytes() as usize].to_vec()
    }

    /// The bytes of a number in this type, little-endian.
    ///
    /// # Errors
    /// It is not a number, or does not fit the type.
    pub fn value(self, text: &str) -> Result<Vec<u8>, Problem> {
        if self.is_float() {
            let value: f64 = text.parse().map_err(|_| not_a_number(text))?;
            return Ok(self.float(value));
        }
        let value = integer(text)?;
        let (least, most) = self.range();
        if (least..=most).contains(&value) {
            Ok(self.integer(value))
        } else {
            let ty = self.word();
            Err(Problem::new(format!("{text} does not fit `{ty}`"))
                .help(format!("`{ty}` holds {least} to {most}")))
        }
    }
}

fn not_a_number(text: &str) -> Problem {
    Problem::new(format!("`{text}` is not a number"))
}

/// A decimal or hexadecimal integer.
fn integer(text: &str) -> Result<i128, Problem> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let magnitude = match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => digits.parse::<u64>(),
    };
    match magnitude {
        Ok(value) if negative => Ok(-i128::from(value)),
        Ok(value) => Ok(i128::from(value)),
        Err(_) => Err(not_a_number(text)),
    }
}

/// What a buffer holds before the first launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Init {
    /// Zeros; they take no memory.
    #[default]
    Zero,
    /// Random values: any integer, or a number from 0 up to 1.
    Random,
    /// Random values from the first number up to, but not including, the second.
    RandomIn(String, String),
    /// 0, 1, 2, …
    Iota,
    /// One value for all elements.
    Value(String),
    /// The first elements; the rest is 0.
    List(Vec<String>),
    /// The bytes of a file; the rest is 0.
    File(PathBuf),
}

impl Init {
    /// `0`, `rand`, `rand:LO:HI`, `iota`, a number, `file:PATH`.
    pub fn parse(text: &str) -> Init {
        match text {
            "rand" => Init::Random,
            "iota" => Init::Iota,
            "0" => Init::Zero,
            _ => {
                if let Some(path) = text.strip_prefix("file:") {
                    Init::File(path.into())
                } else if let Some((low, high)) = text
                    .strip_prefix("rand:")
                    .and_then(|range| range.split_once(':'))
                {
                    Init::RandomIn(low.to_owned(), high.to_owned())
                } else {
                    Init::Value(text.to_owned())
                }
            }
        }
    }

    /// The initial bytes of a buffer of `bytes` bytes; what is missing at the end is 0.
    ///
    /// Random values follow from `number`, the buffer's position, alone: they are the same in
    /// every schedule. `base` is the directory that files are relative to.
    ///
    /// # Errors
    /// A number does not fit the type, or a file cannot be read or is too long.
    pub fn contents(
        &self,
        ty: Element,
        bytes: u64,
        number: usize,
        base: &Path,
    ) -> Result<Vec<u8>, Problem> {
        let elements = bytes / ty.bytes();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(number as u64);
        let mut fill = |value: &mut dyn FnMut(u64, &mut Xoshiro256PlusPlus) -> Vec<u8>| {
            (0..elements)
                .flat_map(|index| value(index, &mut random))
                .collect()
        };
        Ok(match self {
            Init::Zero => Vec::new(),
            Init::Random if ty.is_float() => fill(&mut |_, random| ty.float(unit(random))),
            Init::Random => fill(&mut |_, random| ty.integer(random.next_u64().into())),
            Init::RandomIn(low, high) if ty.is_float() => {
                let low: f64 = low.parse().map_err(|_| not_a_number(low))?;
                let high: f64 = high.parse().map_err(|_| not_a_number(high))?;
                if low.is_nan() || high.is_nan() || low >= high {
                    return Err(empty_range(low, high));
                }
                fill(&mut |_, random| ty.float(low + (high - low) * unit(random)))
            }
            Init::RandomIn(low, high) => {
                let (first, end) = (integer(low)?, integer(high)?);
                if first >= end {
                    return Err(empty_range(first, end));
                }
                ty.value(low)?;
                ty.value(&(end - 1).to_string())?;
                let span = (end - first) as u128;
                fill(&mut |_, random| {
                    ty.integer(first + (u128::from(random.next_u64()) % span) as i128)
                })
            }
            Init::Iota if ty.is_float() => fill(&mut |index, _| ty.float(index as f64)),
            Init::Iota => fill(&mut |index, _| ty.integer(index.into())),
            Init::Value(text) => {
                let value = ty.value(text).map_err(|problem| match problem.help {
                    Some(_) => problem,
                    None => problem
                        .help("initial values are 0, rand, rand:LO:HI, iota, a number, file:PATH"),
                })?;
                fill(&mut |_, _| value.clone())
            }
            Init::List(values) => {
                if values.len() as u64 > elements {
                    return Err(Problem::new(format!(
                        "{} initial values for {elements} elements",
                        values.len()
                    )));
                }
                let mut contents = Vec::new();
                for value in values {
                    contents.extend(ty.value(value)?);
                }
                contents
            }
            Init::File(path) => {
                let path = base.join(path);
                let read = std::fs::read(&path);
                let contents = read.map_err(|error| {
                    Problem::new(format!("{} cannot be read: {error}", path.display()))
                })?;
                if contents.len() as u64 > bytes {
                    return Err(Problem::new(format!(
                        "{} has {} bytes, the buffer {bytes}",
                        path.display(),
                        contents.len()
                    )));
                }
                contents
            }
        })
    }
}

fn empty_range(low: impl std::fmt::Display, high: impl std::fmt::Display) -> Problem {
    Problem::new(format!("there is no number from {low} up to {high}"))
        .help("rand:LO:HI takes the smaller number first")
}

/// A random number from 0 up to 1.
fn unit(random: &mut Xoshiro256PlusPlus) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(text: &str, ty: Element, bytes: u64) -> Result<Vec<u8>, String> {
        Init::parse(text)
            .contents(ty, bytes, 0, Path::new("."))
            .map_err(|problem| problem.to_string())
    }

    #[test]
    fn numbers_are_little_endian() {
        assert_eq!(Element::I32.value("-2").unwrap(), [0xfe, 0xff, 0xff, 0xff]);
        assert_eq!(Element::U16.value("0x1234").unwrap(), [0x34, 0x12]);
        assert_eq!(Element::F32.value("1").unwrap(), [0, 0, 0x80, 0x3f]);
        assert_eq!(Element::F16.value("1").unwrap(), [0, 0x3c]);
        assert_eq!(Element::Bf16.value("1").unwrap(), [0x80, 0x3f]);
    }

    #[test]
    fn buffers_are_filled_as_said() {
        assert!(contents("0", Element::U8, 4).unwrap().is_empty());
        assert_eq!(
            contents("iota", Element::U16, 6).unwrap(),
            [0, 0, 1, 0, 2, 0]
        );
        assert_eq!(contents("7", Element::U8, 3).unwrap(), [7, 7, 7]);
        // Bytes that are no whole element stay 0.
        assert_eq!(contents("1", Element::U16, 5).unwrap(), [1, 0, 1, 0]);
        let list = Init::List(vec!["1".to_owned(), "-1".to_owned()]);
        let list = list.contents(Element::I8, 4, 0, Path::new("."));
        assert_eq!(list.unwrap(), [1, 0xff]);
    }

    #[test]
    fn random_values_stay_in_their_range() {
        let small = contents("rand:-3:3", Element::I8, 200).unwrap();
        assert!(small.iter().all(|&b| (-3..3).contains(&(b as i8))));
        assert!(small.contains(&2) && small.contains(&0xfd));
        for bytes in contents("rand:-1:1", Element::F32, 400).unwrap().chunks(4) {
            let value = f32::from_le_bytes(bytes.try_into().unwrap());
            assert!((-1.0..1.0).contains(&value));
        }
    }

    #[test]
    fn random_values_differ_between_buffers_only() {
        let of = |number| Init::Random.contents(Element::U64, 64, number, Path::new("."));
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let errors = [
            contents("300", Element::U8, 4),
            contents("many", Element::U8, 4),
            contents("rand:5:5", Element::U8, 4),
            contents("rand:0:300", Element::U8, 4),
            contents("rand:1:0", Element::F32, 4),
            contents("rand:a:b", Element::F32, 4),
            contents("file:/no/such/file", Element::U8, 4),
            Element::parse("u31")
                .map(|_| vec![])
                .map_err(|p| p.to_string()),
            Element::parse("double")
                .map(|_| vec![])
                .map_err(|p| p.to_string()),
        ];
        insta::assert_snapshot!(errors.map(|error| error.unwrap_err()).join("\n"));
    }
}
