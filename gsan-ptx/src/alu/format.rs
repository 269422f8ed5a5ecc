//! Floating-point formats and correct rounding into them.
//!
//! Every format narrower than `f64` embeds exactly in it, and sums, products, quotients and roots
//! of such numbers can be computed in `f64` *rounded to odd* ([`odd_add`] and its like): the
//! result then rounds to the narrow format, in any mode, as the exact value would (Boldo and
//! Melquiond, "Emulation of FMA and Correctly Rounded Sums: Proved Algorithms Using Rounding to
//! Odd", IEEE Transactions on Computers 57, 2008).

use super::float::Rounding;

/// A binary floating-point format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    /// Bits of the exponent.
    exponent: u32,
    /// Bits of the mantissa, without the leading one.
    mantissa: u32,
    /// The highest exponent holds numbers too, and all ones is the only NaN (`e4m3`).
    finite_only: bool,
}

pub(super) const F16: Format = Format::ieee(5, 10);
pub(super) const BF16: Format = Format::ieee(8, 7);
pub(super) const TF32: Format = Format::ieee(8, 10);
pub(super) const F32: Format = Format::ieee(8, 23);
pub(super) const F64: Format = Format::ieee(11, 52);
pub(super) const E5M2: Format = Format::ieee(5, 2);
pub(super) const E4M3: Format = Format {
    exponent: 4,
    mantissa: 3,
    finite_only: true,
};

impl Format {
    const fn ieee(exponent: u32, mantissa: u32) -> Format {
        Format {
            exponent,
            mantissa,
            finite_only: false,
        }
    }

    /// How many bits a number has.
    pub(super) const fn bits(self) -> u32 {
        1 + self.exponent + self.mantissa
    }

    /// The exponent of the smallest normal number.
    const fn least_exponent(self) -> i32 {
        2 - (1 << (self.exponent - 1))
    }

    pub(super) const fn sign(self) -> u64 {
        1 << (self.bits() - 1)
    }

    /// The bits of infinity; for a format without, one more than the largest number.
    const fn infinity(self) -> u64 {
        let top = ((1 << self.exponent) - 1) << self.mantissa;
        if self.finite_only {
            top | ((1 << self.mantissa) - 1)
        } else {
            top
        }
    }

    /// The largest number.
    pub(super) const fn largest(self) -> u64 {
        self.infinity() - 1
    }

    /// The NaN that instructions produce: all ones but the sign, as in the PTX ISA, except for
    /// `f64`.
    pub(super) const fn nan(self) -> u64 {
        match self.mantissa {
            52 => 0x7ff8_0000_0000_0000,
            _ => self.sign() - 1,
        }
    }

    pub(super) const fn is_nan(self, word: u64) -> bool {
        let magnitude = word & (self.sign() - 1);
        if self.finite_only {
            magnitude == self.infinity()
        } else {
            magnitude > self.infinity()
        }
    }

    /// Whether it is neither zero nor normal nor special.
    pub(super) const fn is_subnormal(self, word: u64) -> bool {
        let magnitude = word & (self.sign() - 1);
        magnitude != 0 && magnitude >> self.mantissa == 0
    }

    /// A zero of the same sign for a subnormal number, else the number.
    pub(super) const fn flush(self, word: u64) -> u64 {
        if self.is_subnormal(word) {
            word & self.sign()
        } else {
            word
        }
    }

    /// The exact value.
    pub(super) fn decode(self, word: u64) -> f64 {
        match self.bits() {
            64 => return f64::from_bits(word),
            32 => return f64::from(f32::from_bits(word as u32)),
            _ => {}
        }
        let magnitude = word & (self.sign() - 1);
        let fraction = magnitude & ((1 << self.mantissa) - 1);
        let exponent = (magnitude >> self.mantissa) as i32;
        let value = if self.is_nan(word) {
            f64::NAN
        } else if magnitude == self.infinity() {
            f64::INFINITY
        } else if exponent == 0 {
            fraction as f64 * power_of_two(self.least_exponent() - self.mantissa as i32)
        } else {
            (fraction | 1 << self.mantissa) as f64
                * power_of_two(self.least_exponent() + exponent - 1 - self.mantissa as i32)
        };
        if word & self.sign() != 0 {
            -value
        } else {
            value
        }
    }

    /// The nearest number in the sense of the rounding; `finite` gives the largest number instead
    /// of infinity.
    pub(super) fn encode(self, value: f64, rounding: Rounding, finite: bool) -> u64 {
        if value.is_nan() {
            return self.nan();
        }
        let negative = value.is_sign_negative();
        let bits = value.to_bits();
        let biased = (bits >> 52 & 0x7ff) as i32;
        let fraction = bits & ((1 << 52) - 1);
        if value.is_infinite() {
            let magnitude = if finite || self.finite_only {
                self.largest()
            } else {
                self.infinity()
            };
            return self.with_sign(negative, magnitude);
        }
        let (mantissa, exponent) = match biased {
            0 => (fraction, -1074),
            _ => (fraction | 1 << 52, biased - 1075),
        };
        self.round(negative, mantissa, exponent, rounding, finite)
    }

    fn with_sign(self, negative: bool, magnitude: u64) -> u64 {
        if negative {
            magnitude | self.sign()
        } else {
            magnitude
        }
    }

    /// The number nearest to `mantissa * 2^exponent`.
    pub(super) fn round(
        self,
        negative: bool,
        mantissa: u64,
        exponent: i32,
        rounding: Rounding,
        finite: bool,
    ) -> u64 {
        if mantissa == 0 {
            return self.with_sign(negative, 0);
        }
        let leading = exponent + 63 - mantissa.leading_zeros() as i32;
        let scale = leading.max(self.least_exponent());
        // The exponent of the last bit that is kept.
        let last = scale - self.mantissa as i32;
        let (kept, half, rest) = split(mantissa, last - exponent);
        let up = match rounding {
            Rounding::NearestEven => half && (rest || kept & 1 != 0),
            Rounding::NearestAway => half,
            Rounding::TowardZero => false,
            Rounding::Down => negative && (half || rest),
            Rounding::Up => !negative && (half || rest),
        };
        let steps = (scale - self.least_exponent()) as u64;
        let magnitude = (steps << self.mantissa) + kept + u64::from(up);
        if magnitude < self.infinity() {
            return self.with_sign(negative, magnitude);
        }
        let toward_zero = match rounding {
            Rounding::NearestEven | Rounding::NearestAway => false,
            Rounding::TowardZero => true,
            Rounding::Down => !negative,
            Rounding::Up => negative,
        };
        let magnitude = if toward_zero || finite || self.finite_only {
            self.largest()
        } else {
            self.infinity()
        };
        self.with_sign(negative, magnitude)
    }
}

/// `mantissa / 2^shift`: its whole part, whether the next bit is set, and whether any bit after
/// that is.
fn split(mantissa: u64, shift: i32) -> (u64, bool, bool) {
    match shift {
        ..=0 => (mantissa << -shift, false, false),
        1..=63 => {
            let half = 1 << (shift - 1);
            (
                mantissa >> shift,
                mantissa & half != 0,
                mantissa & (half - 1) != 0,
            )
        }
        64 => (0, mantissa >> 63 != 0, mantissa << 1 != 0),
        65.. => (0, false, true),
    }
}

/// 2 to a power between -1074 and 1023.
fn power_of_two(power: i32) -> f64 {
    if power < -1022 {
        f64::from_bits(1 << (power + 1074).max(0))
    } else {
        f64::from_bits(((power + 1023) as u64) << 52)
    }
}

/// `value` rounded to odd, given the sign of what is missing from it: an inexact value's last bit
/// is made 1, on the side of zero of the exact one.
fn odd(value: f64, missing: f64) -> f64 {
    if missing == 0.0 || !value.is_finite() || !missing.is_finite() {
        return value;
    }
    let bits = value.to_bits();
    let away = (missing > 0.0) == (value > 0.0);
    let truncated = if away { bits } else { bits - 1 };
    f64::from_bits(truncated | 1)
}

/// The sum, rounded to odd (error by Knuth's TwoSum).
pub(super) fn odd_add(a: f64, b: f64) -> f64 {
    let sum = a + b;
    let part = sum - a;
    let missing = (a - (sum - part)) + (b - part);
    odd(sum, missing)
}

/// The quotient, rounded to odd.
pub(super) fn odd_div(a: f64, b: f64) -> f64 {
    let quotient = a / b;
    if !quotient.is_finite() || b.is_infinite() {
        return quotient;
    }
    let remainder = (-quotient).mul_add(b, a);
    odd(quotient, if b < 0.0 { -remainder } else { remainder })
}

/// The square root, rounded to odd.
pub(super) fn odd_sqrt(a: f64) -> f64 {
    let root = a.sqrt();
    odd(root, (-root).mul_add(root, a))
}
