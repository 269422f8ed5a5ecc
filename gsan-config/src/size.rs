//! Sizes in bytes, as people write them.

use std::fmt;
use std::str::FromStr;

const UNITS: [(&str, u32); 6] = [
    ("B", 0),
    ("KiB", 10),
    ("MiB", 20),
    ("GiB", 30),
    ("TiB", 40),
    ("PiB", 50),
];

/// A size in bytes: `8TiB`, `256MiB`, `4096`, `4096B`. Units are powers of 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, shift) = UNITS
            .into_iter()
            .rev()
            .find(|&(_, shift)| self.0 != 0 && self.0.trailing_zeros() >= shift)
            .unwrap_or(UNITS[0]);
        write!(f, "{}{unit}", self.0 >> shift)
    }
}

/// Why text is no size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// It does not begin with a whole number.
    #[error("it must begin with a whole number")]
    NoNumber,
    /// The unit is unknown.
    #[error("the units are B, KiB, MiB, GiB, TiB and PiB")]
    UnknownUnit,
    /// More than 64 bits.
    #[error("it is too large")]
    TooLarge,
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let text = text.trim();
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        if number.is_empty() {
            return Err(SizeError::NoNumber);
        }
        let unit = unit.trim_start();
        let shift = match unit {
            "" => 0,
            _ => {
                let known = UNITS.into_iter().find(|(name, _)| *name == unit);
                known.ok_or(SizeError::UnknownUnit)?.1
            }
        };
        let number: u64 = number.parse().map_err(|_| SizeError::TooLarge)?;
        number
            .checked_mul(1 << shift)
            .map(Size)
            .ok_or(SizeError::TooLarge)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn units_are_powers_of_1024() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4096B", 4096),
            ("1KiB", 1024),
            ("256MiB", 268_435_456),
            ("256 MiB", 268_435_456),
            ("8TiB", 8_796_093_022_208),
            ("16383PiB", 16_383 << 50),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for (text, error) in [
            ("", SizeError::NoNumber),
            ("MiB", SizeError::NoNumber),
            ("-1MiB", SizeError::NoNumber),
            ("1.5GiB", SizeError::UnknownUnit),
            ("1MB", SizeError::UnknownUnit),
            ("1mib", SizeError::UnknownUnit),
            ("16384PiB", SizeError::TooLarge),
            ("99999999999999999999", SizeError::TooLarge),
        ] {
            assert_eq!(text.parse::<Size>(), Err(error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_parses_to_the_same_size(bytes in any::<u64>(), shift in 0..64_u32) {
            let size = Size(bytes >> shift << shift);
            prop_assert_eq!(size.to_string().parse(), Ok(size));
        }
    }
}
