//! Sizes, for people.

use std::fmt;

/// A number of bytes, shown in the largest unit of which there is at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u32, &str); 6] = [
            (60, "EiB"),
            (50, "PiB"),
            (40, "TiB"),
            (30, "GiB"),
            (20, "MiB"),
            (10, "KiB"),
        ];
        let bytes = self.0;
        match UNITS.iter().find(|(shift, _)| bytes >> shift != 0) {
            None => write!(f, "{bytes} bytes"),
            Some((shift, unit)) if bytes.trailing_zeros() >= *shift => {
                write!(f, "{} {unit}", bytes >> shift)
            }
            Some((shift, unit)) => write!(f, "{:.1} {unit}", bytes as f64 / (1u64 << shift) as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_in_their_largest_unit() {
        let shown: Vec<_> = [0, 1023, 1024, 1536, 2 << 20, 8 << 40, u64::MAX]
            .map(|bytes| Bytes(bytes).to_string())
            .into();
        assert_eq!(
            shown,
            [
                "0 bytes",
                "1023 bytes",
                "1 KiB",
                "1.5 KiB",
                "2 MiB",
                "8 TiB",
                "16.0 EiB"
            ]
        );
    }
}
