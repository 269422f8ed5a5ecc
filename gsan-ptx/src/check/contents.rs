//! Types and initial contents of buffers.

use std::path::{Path, PathBuf};

use gsan_config::bounded::{self, ReadError};
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

    /// The bits of a number in this type, in the low bits.
    fn float(self, value: f64) -> u64 {
        match self {
            Element::F16 => f16::from_f64(value).to_bits().into(),
            Element::Bf16 => bf16::from_f64(value).to_bits().into(),
            Element::F32 => (value as f32).to_bits().into(),
            _ => value.to_bits(),
        }
    }

    /// The bytes of a number in this type, little-endian.
    ///
    /// # Errors
    /// It is not a number, or does not fit the type.
    pub fn value(self, text: &str) -> Result<Vec<u8>, Problem> {
        let bits = self.bits(text)?;
        Ok(bits.to_le_bytes()[..self.bytes() as usize].to_vec())
    }

    fn bits(self, text: &str) -> Result<u64, Problem> {
        if self.is_float() {
            let value: f64 = text.parse().map_err(|_| not_a_number(text))?;
            return Ok(self.float(value));
        }
        Ok(self.integer(text)? as u64)
    }

    /// An integer of this type.
    fn integer(self, text: &str) -> Result<i128, Problem> {
        let value = integer(text)?;
        let (least, most) = self.range();
        let ty = self.word();
        let wrong = if value > most {
            "large"
        } else if value < least {
            "small"
        } else {
            return Ok(value);
        };
        Err(Problem::new(format!("{text} is too {wrong} for `{ty}`"))
            .help(format!("`{ty}` holds {least} to {most}")))
    }
}

fn not_a_number(text: &str) -> Problem {
    Problem::new(format!("`{text}` is not a number"))
}

/// A decimal or hexadecimal integer. One beyond all types is taken as the largest or smallest that
/// can be said here, which is beyond them as well.
fn integer(text: &str) -> Result<i128, Problem> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (digits, radix) = match digits.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (digits, 10),
    };
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return Err(not_a_number(text));
    }
    // Only digits: what fails is too long.
    let magnitude = i128::from_str_radix(digits, radix).unwrap_or(i128::MAX);
    Ok(if negative { -magnitude } else { magnitude })
}

/// The bytes of `elements` numbers of `size` bytes each, little-endian, from their bits.
fn fill(elements: u64, size: u64, mut bits: impl FnMut(u64) -> u64) -> Result<Vec<u8>, Problem> {
    let bytes = elements * size;
    let mut contents = Vec::new();
    usize::try_from(bytes)
        .ok()
        .and_then(|bytes| contents.try_reserve_exact(bytes).ok())
        .ok_or_else(|| {
            Problem::new(format!("there is no memory for {bytes} bytes"))
                .help("buffers of zeros take memory only where the kernel writes")
        })?;
    let all = 0..elements;
    match size {
        1 => contents.extend(all.map(|index| bits(index) as u8)),
        2 => all.for_each(|index| contents.extend((bits(index) as u16).to_le_bytes())),
        4 => all.for_each(|index| contents.extend((bits(index) as u32).to_le_bytes())),
        _ => all.for_each(|index| contents.extend(bits(index).to_le_bytes())),
    }
    Ok(contents)
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
    /// The file that is read, if one is.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Init::File(path) => Some(path),
            _ => None,
        }
    }

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
        let size = ty.bytes();
        let elements = bytes / size;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(number as u64);
        Ok(match self {
            Init::Zero => Vec::new(),
            Init::Random if ty.is_float() => fill(elements, size, |_| ty.float(unit(&mut random)))?,
            Init::Random => fill(elements, size, |_| random.next_u64())?,
            Init::RandomIn(low, high) if ty.is_float() => {
                let low: f64 = low.parse().map_err(|_| not_a_number(low))?;
                let high: f64 = high.parse().map_err(|_| not_a_number(high))?;
                if low.is_nan() || high.is_nan() || low >= high {
                    return Err(empty_range(low, high));
                }
                let width = high - low;
                fill(elements, size, |_| {
                    ty.float(low + width * unit(&mut random))
                })?
            }
            Init::RandomIn(low, high) => {
                let (first, end) = (integer(low)?, integer(high)?);
                if first >= end {
                    return Err(empty_range(low, high));
                }
                ty.integer(low)?;
                // The end is not among the values: it may be one more than the largest.
                if end - 1 > ty.range().1 {
                    ty.integer(high)?;
                }
                let span = (end - first) as u128;
                fill(elements, size, |_| {
                    (first + (u128::from(random.next_u64()) % span) as i128) as u64
                })?
            }
            Init::Iota if ty.is_float() => fill(elements, size, |index| ty.float(index as f64))?,
            Init::Iota => fill(elements, size, |index| index)?,
            Init::Value(text) => {
                let value = ty.bits(text).map_err(|problem| match problem.help {
                    Some(_) => problem,
                    None => problem
                        .help("initial values are 0, rand, rand:LO:HI, iota, a number, file:PATH"),
                })?;
                fill(elements, size, |_| value)?
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
                let shown = path.display();
                bounded::read(&path, bytes).map_err(|error| {
                    Problem::new(match error {
                        ReadError::TooLarge { .. } => {
                            format!("`{shown}` is larger than the buffer, which has {bytes} bytes")
                        }
                        error => format!("`{shown}` cannot be read: {error}"),
                    })
                })?
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
    fn a_number_beyond_its_type_is_said_to_be_with_the_range() {
        for &ty in Element::ALL {
            if ty.is_float() {
                continue;
            }
            let (least, most) = ty.range();
            let word = ty.word();
            let nines = "9".repeat(60);
            let fs = format!("0x{}", "f".repeat(40));
            for (text, wrong) in [
                ((most + 1).to_string(), "large"),
                ((least - 1).to_string(), "small"),
                (nines.clone(), "large"),
                (format!("-{nines}"), "small"),
                (fs, "large"),
            ] {
                let said = ty.value(&text).unwrap_err().to_string();
                let expected = format!(
                    "{text} is too {wrong} for `{word}` (`{word}` holds {least} to {most})"
                );
                assert_eq!(said, expected);
            }
            for text in [most.to_string(), least.to_string()] {
                assert!(ty.value(&text).is_ok(), "{word}:{text}");
            }
            for text in ["", "-", "0x", "--1", "+1", "1e3", "0x-1", "1_000", "٣"] {
                let said = ty.value(text).unwrap_err().to_string();
                assert_eq!(said, format!("`{text}` is not a number"));
            }
        }
    }

    #[test]
    fn a_range_may_end_behind_the_largest_number() {
        let all = contents("rand:0:18446744073709551616", Element::U64, 64);
        assert_eq!(all, contents("rand", Element::U64, 64));
        assert!(contents("rand:0:18446744073709551617", Element::U64, 64).is_err());
    }

    #[test]
    fn a_file_larger_than_its_buffer_or_without_end_is_refused() {
        let zeros = contents("file:/dev/zero", Element::U8, 4).unwrap_err();
        assert_eq!(
            zeros,
            "`/dev/zero` cannot be read: it is not a regular file"
        );
        let path = std::env::temp_dir().join(format!("gsan-contents-{}", std::process::id()));
        std::fs::write(&path, [1, 2, 3]).unwrap();
        let init = format!("file:{}", path.display());
        assert_eq!(contents(&init, Element::U8, 4).unwrap(), [1, 2, 3]);
        let said = contents(&init, Element::U8, 2).unwrap_err();
        assert!(
            said.ends_with("is larger than the buffer, which has 2 bytes"),
            "{said}"
        );
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn more_bytes_than_there_is_memory_are_refused() {
        let said = contents("7", Element::U64, 1 << 60).unwrap_err();
        assert!(
            said.starts_with("there is no memory for 1152921504606846976 bytes"),
            "{said}"
        );
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
