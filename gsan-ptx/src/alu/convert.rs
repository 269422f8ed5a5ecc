//! `cvt` and `cvt.pack`.

use super::format::{self, Format};
use crate::alu::float::{Clamp, Rounding};
use crate::alu::integer::{Bits, Int};

/// A type that `cvt` converts from or to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Numeric {
    /// An integer.
    Int(Int),
    /// `.f16`
    F16,
    /// `.f16x2`
    F16x2,
    /// `.bf16`
    Bf16,
    /// `.bf16x2`
    Bf16x2,
    /// `.tf32`: an `f32` with 10 bits of mantissa
    Tf32,
    /// `.f32`
    F32,
    /// `.f64`
    F64,
    /// `.e4m3x2`
    E4m3x2,
    /// `.e5m2x2`
    E5m2x2,
}

/// A `cvt` of one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conversion {
    /// What comes out.
    pub to: Numeric,
    /// What goes in.
    pub from: Numeric,
    /// `.rn` and its like, or `.rni` and its like; without any, `NearestEven`.
    pub rounding: Rounding,
    /// `.rni`, `.rzi`, `.rmi`, `.rpi` between floating-point types: to an integral value.
    pub integral: bool,
    /// `.ftz`
    pub ftz: bool,
    /// `.sat`: integers clamp to the range of the result (as conversions from floating point
    /// always do), floating point to 0 to 1. `.relu` likewise. `.satfinite` has no effect on
    /// 8-bit floats, which always saturate.
    pub clamp: Clamp,
    /// `.satfinite` for types with infinities: the largest finite value instead.
    pub finite: bool,
}

/// A `cvt` of two `f32` operands, or of one packed pair's halves, into a packed pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PackPair {
    /// `F16x2`, `Bf16x2`, `E4m3x2` or `E5m2x2`.
    pub to: Numeric,
    /// How the results are rounded.
    pub rounding: Rounding,
    /// `.relu`
    pub clamp: Clamp,
    /// `.satfinite`
    pub finite: bool,
}

/// `cvt.pack.sat`: integers saturated, then packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PackInts {
    /// The bits of each packed result: 2, 4, 8 or 16.
    pub bits: u8,
    /// The packed results are signed.
    pub signed: bool,
    /// The operands are signed.
    pub from_signed: bool,
}

impl Numeric {
    /// The format of an element, unless it is an integer.
    fn format(self) -> Option<Format> {
        match self {
            Numeric::Int(_) => None,
            Numeric::F16 | Numeric::F16x2 => Some(format::F16),
            Numeric::Bf16 | Numeric::Bf16x2 => Some(format::BF16),
            Numeric::Tf32 => Some(format::TF32),
            Numeric::F32 => Some(format::F32),
            Numeric::F64 => Some(format::F64),
            Numeric::E4m3x2 => Some(format::E4M3),
            Numeric::E5m2x2 => Some(format::E5M2),
        }
    }

    /// Whether it is a pair.
    fn is_pair(self) -> bool {
        matches!(
            self,
            Numeric::F16x2 | Numeric::Bf16x2 | Numeric::E4m3x2 | Numeric::E5m2x2
        )
    }

    /// 8-bit floats always saturate to finite values.
    fn is_finite(self) -> bool {
        matches!(self, Numeric::E4m3x2 | Numeric::E5m2x2)
    }
}

impl Conversion {
    /// The result. An integer is extended to 64 bits as its type says, since registers may be
    /// wider than it.
    pub fn eval(self, a: u64) -> u64 {
        let (Some(from), Some(to)) = (self.from.format(), self.to.format()) else {
            return self.scalar(a);
        };
        if !self.from.is_pair() || !self.to.is_pair() {
            return self.scalar(a);
        }
        let mask = |format: Format| u64::MAX >> (64 - format.bits());
        let high = self.float(from, to, a >> from.bits() & mask(from));
        let low = self.float(from, to, a & mask(from));
        high << to.bits() | low
    }

    fn scalar(self, a: u64) -> u64 {
        match (self.from, self.to) {
            (Numeric::Int(from), Numeric::Int(to)) => {
                let value = from.value(a);
                to.extend(match self.clamp {
                    Clamp::Saturate => value.clamp(to.min(), to.max()) as u64,
                    Clamp::Relu => value.max(0) as u64,
                    Clamp::None => value as u64,
                })
            }
            (Numeric::Int(from), to) => {
                let Some(format) = to.format() else { return 0 };
                let value = from.value(a);
                let magnitude = value.unsigned_abs() as u64;
                let word = format.round(value < 0, magnitude, 0, self.rounding, false);
                self.clamp.apply(format, word)
            }
            (from, Numeric::Int(to)) => {
                let Some(format) = from.format() else {
                    return 0;
                };
                self.to_integer(format, to, a)
            }
            (from, to) => {
                let (Some(from), Some(to)) = (from.format(), to.format()) else {
                    return 0;
                };
                self.float(from, to, a & u64::MAX >> (64 - from.bits()))
            }
        }
    }

    /// Out of range gives the nearest integer; NaN gives 0, or only the top bit when either type
    /// has 64 bits (PTX ISA, "cvt").
    fn to_integer(self, format: Format, to: Int, a: u64) -> u64 {
        let a = a & u64::MAX >> (64 - format.bits());
        let a = if self.ftz { format.flush(a) } else { a };
        let value = format.decode(a);
        if value.is_nan() {
            let wide = format == format::F64 || to.bits == Bits::B64;
            return to.extend(if wide { 1 << (to.bits.count() - 1) } else { 0 });
        }
        let integral = to_integral(value, self.rounding) as i128;
        to.extend(integral.clamp(to.min(), to.max()) as u64)
    }

    fn float(self, from: Format, to: Format, a: u64) -> u64 {
        let a = if self.ftz { from.flush(a) } else { a };
        let value = from.decode(a);
        let value = if self.integral {
            to_integral(value, self.rounding)
        } else {
            value
        };
        let finite = self.finite || self.to.is_finite();
        let word = to.encode(value, self.rounding, finite);
        finish(to, word, self.ftz, self.clamp)
    }
}

/// The last steps of a conversion to floating point.
fn finish(to: Format, word: u64, ftz: bool, clamp: Clamp) -> u64 {
    let word = if ftz && to == format::F32 {
        to.flush(word)
    } else {
        word
    };
    let word = clamp.apply(to, word);
    if to == format::TF32 { word << 13 } else { word }
}

/// The integral value that a rounding gives.
fn to_integral(value: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::NearestEven => value.round_ties_even(),
        Rounding::NearestAway => value.round(),
        Rounding::TowardZero => value.trunc(),
        Rounding::Down => value.floor(),
        Rounding::Up => value.ceil(),
    }
}

impl PackPair {
    /// The result; `a` becomes the high half.
    pub fn eval(self, a: u64, b: u64) -> u64 {
        let Some(to) = self.to.format() else { return 0 };
        let convert = |word: u64| {
            let value = f64::from(f32::from_bits(word as u32));
            let finite = self.finite || self.to.is_finite();
            finish(
                to,
                to.encode(value, self.rounding, finite),
                false,
                self.clamp,
            )
        };
        convert(a) << to.bits() | convert(b)
    }
}

impl PackInts {
    /// The result: `c`, `a` and `b` from high to low.
    pub fn eval(self, a: u64, b: u64, c: u64) -> u64 {
        let bits = u32::from(self.bits).clamp(1, 16);
        let from = Int {
            bits: Bits::B32,
            signed: self.from_signed,
        };
        let (low, high) = if self.signed {
            (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
        } else {
            (0, (1i128 << bits) - 1)
        };
        let pack = |word: u64| from.value(word).clamp(low, high) as u64 & ((1 << bits) - 1);
        (c << (2 * bits) | pack(a) << bits | pack(b)) & 0xffff_ffff
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustc_apfloat::ieee::{BFloat, Double, Float8E4M3FN, Float8E5M2, Half, Single};
    use rustc_apfloat::{Float, FloatConvert, Round};

    const fn int(bits: Bits, signed: bool) -> Numeric {
        Numeric::Int(Int { bits, signed })
    }

    const S8: Numeric = int(Bits::B8, true);
    const U8: Numeric = int(Bits::B8, false);
    const S32: Numeric = int(Bits::B32, true);
    const U32: Numeric = int(Bits::B32, false);
    const S64: Numeric = int(Bits::B64, true);
    const U64: Numeric = int(Bits::B64, false);

    fn plain(from: Numeric, to: Numeric) -> Conversion {
        Conversion {
            to,
            from,
            rounding: Rounding::NearestEven,
            integral: false,
            ftz: false,
            clamp: Clamp::None,
            finite: false,
        }
    }

    fn rounded(from: Numeric, to: Numeric, rounding: Rounding) -> Conversion {
        Conversion {
            rounding,
            ..plain(from, to)
        }
    }

    fn f(value: f32) -> u64 {
        u64::from(value.to_bits())
    }

    #[test]
    fn integers_truncate_extend_or_saturate() {
        assert_eq!(plain(S8, S32).eval(0x1ff), u64::MAX);
        assert_eq!(plain(U8, S32).eval(0x1ff), 0xff);
        assert_eq!(plain(S32, S8).eval(0x180), 0xffff_ffff_ffff_ff80);
        assert_eq!(plain(S32, U64).eval(0xffff_ffff), u64::MAX);
        let sat = |from, to| Conversion {
            clamp: Clamp::Saturate,
            ..plain(from, to)
        };
        assert_eq!(sat(S32, S8).eval(300), 127);
        assert_eq!(sat(S32, U8).eval(0xffff_ffff), 0);
        assert_eq!(sat(U32, S32).eval(0xffff_ffff), 0x7fff_ffff);
    }

    #[test]
    fn floats_to_integers_round_clamp_and_map_nan() {
        let to = |rounding, x: f32| rounded(Numeric::F32, S32, rounding).eval(f(x)) as u32 as i32;
        assert_eq!(to(Rounding::NearestEven, 2.5), 2);
        assert_eq!(to(Rounding::NearestEven, 3.5), 4);
        assert_eq!(to(Rounding::TowardZero, -2.9), -2);
        assert_eq!(to(Rounding::Down, -2.1), -3);
        assert_eq!(to(Rounding::Up, 2.1), 3);
        assert_eq!(to(Rounding::TowardZero, 1e20), i32::MAX);
        assert_eq!(to(Rounding::TowardZero, f32::NEG_INFINITY), i32::MIN);
        assert_eq!(to(Rounding::TowardZero, f32::NAN), 0);
        assert_eq!(plain(Numeric::F32, U32).eval(f(-1.0)), 0);
        assert_eq!(plain(Numeric::F32, S64).eval(f(f32::NAN)), 1 << 63);
        assert_eq!(
            plain(Numeric::F64, S32).eval(f64::NAN.to_bits()) as u32,
            1 << 31
        );
        assert_eq!(plain(Numeric::F64, U64).eval(1e30f64.to_bits()), u64::MAX);
        assert_eq!(plain(Numeric::F16, S8).eval(0x5c00), 127);
    }

    #[test]
    fn integers_to_floats_round_once() {
        let to = |rounding, x: u64| rounded(U64, Numeric::F32, rounding).eval(x);
        // 2^24 + 1 is a tie in f32.
        assert_eq!(to(Rounding::NearestEven, (1 << 24) + 1), f(16_777_216.0));
        assert_eq!(to(Rounding::Up, (1 << 24) + 1), f(16_777_218.0));
        assert_eq!(to(Rounding::TowardZero, u64::MAX), 0x5f7f_ffff);
        assert_eq!(to(Rounding::NearestEven, u64::MAX), 0x5f80_0000);
        assert_eq!(
            plain(S32, Numeric::F64).eval(0xffff_ffff),
            (-1f64).to_bits()
        );
        assert_eq!(
            plain(S64, Numeric::F64).eval(1 << 63),
            (-(2f64.powi(63))).to_bits()
        );
        assert_eq!(plain(U32, Numeric::F16).eval(70_000), 0x7c00);
        assert_eq!(
            rounded(U32, Numeric::F16, Rounding::TowardZero).eval(70_000),
            0x7bff
        );
    }

    #[test]
    fn integral_values_of_floats() {
        let integral = |rounding, x: f32| {
            Conversion {
                integral: true,
                ..rounded(Numeric::F32, Numeric::F32, rounding)
            }
            .eval(f(x))
        };
        assert_eq!(integral(Rounding::NearestEven, 2.5), f(2.0));
        assert_eq!(integral(Rounding::TowardZero, -2.7), f(-2.0));
        assert_eq!(integral(Rounding::Down, -0.5), f(-1.0));
        assert_eq!(integral(Rounding::Up, -0.5), f(-0.0));
    }

    #[test]
    fn floats_saturate_flush_and_keep_nan() {
        let convert = |conversion: Conversion, x: f32| conversion.eval(f(x));
        let sat = Conversion {
            clamp: Clamp::Saturate,
            ..plain(Numeric::F32, Numeric::F32)
        };
        assert_eq!(convert(sat, 1.5), f(1.0));
        assert_eq!(convert(sat, f32::NAN), 0);
        let ftz = Conversion {
            ftz: true,
            ..plain(Numeric::F32, Numeric::F64)
        };
        assert_eq!(convert(ftz, -f32::from_bits(1)), 1 << 63);
        assert_eq!(convert(plain(Numeric::F32, Numeric::F16), f32::NAN), 0x7fff);
        assert_eq!(convert(plain(Numeric::F32, Numeric::F16), 1e6), 0x7c00);
        let finite = Conversion {
            finite: true,
            ..plain(Numeric::F32, Numeric::F16)
        };
        assert_eq!(convert(finite, 1e6), 0x7bff);
        assert_eq!(convert(finite, f32::NEG_INFINITY), 0xfbff);
        assert_eq!(plain(Numeric::F16, Numeric::F32).eval(0x3555), 0x3eaa_a000);
    }

    #[test]
    fn tf32_keeps_ten_bits() {
        let away = rounded(Numeric::F32, Numeric::Tf32, Rounding::NearestAway);
        // Half of the last place of 1.0 in tf32 is 2^-11.
        let half = 1.0 + f32::powi(2.0, -11);
        assert_eq!(away.eval(f(half)), f(1.0 + f32::powi(2.0, -10)));
        assert_eq!(plain(Numeric::F32, Numeric::Tf32).eval(f(half)), f(1.0));
        assert_eq!(away.eval(f(-1.0)), f(-1.0));
    }

    #[test]
    fn eight_bit_floats_saturate() {
        let pack = |to| PackPair {
            to,
            rounding: Rounding::NearestEven,
            clamp: Clamp::None,
            finite: true,
        };
        let e4m3 = pack(Numeric::E4m3x2);
        // 448 is the largest; 1.0 is 0x38.
        assert_eq!(e4m3.eval(f(1e9), f(1.0)), 0x7e38);
        assert_eq!(e4m3.eval(f(f32::NEG_INFINITY), f(f32::NAN)), 0xfe7f);
        let e5m2 = pack(Numeric::E5m2x2);
        // 57344 is the largest; 1.0 is 0x3c.
        assert_eq!(e5m2.eval(f(1e9), f(1.0)), 0x7b3c);
        let back = plain(Numeric::E4m3x2, Numeric::F16x2);
        assert_eq!(back.eval(0x7e38), 0x5f00_3c00);
        let back = plain(Numeric::E5m2x2, Numeric::F16x2);
        assert_eq!(back.eval(0x7c3c), 0x7c00_3c00);
    }

    #[test]
    fn pairs_have_the_first_operand_on_top() {
        let pack = PackPair {
            to: Numeric::F16x2,
            rounding: Rounding::NearestEven,
            clamp: Clamp::None,
            finite: false,
        };
        assert_eq!(pack.eval(f(1.0), f(2.0)), 0x3c00_4000);
        let relu = PackPair {
            to: Numeric::Bf16x2,
            clamp: Clamp::Relu,
            ..pack
        };
        assert_eq!(relu.eval(f(-1.0), f(1.0)), 0x0000_3f80);
    }

    #[test]
    fn packed_integers_saturate() {
        let pack = |bits, signed| PackInts {
            bits,
            signed,
            from_signed: true,
        };
        assert_eq!(pack(16, true).eval(70_000, 0xffff_fff0, 0), 0x7fff_fff0);
        assert_eq!(pack(8, false).eval(300, 0xffff_ffff, 0xabcd), 0xabcd_ff00);
        assert_eq!(pack(4, true).eval(100, 0xffff_ff00, 0), 0x78);
    }

    fn from_f32<F: Float>(x: f32, rounding: Round) -> u64
    where
        Single: FloatConvert<F>,
    {
        let mut loses = false;
        let value: F = Single::from_bits(u128::from(x.to_bits()))
            .convert_r(rounding, &mut loses)
            .value;
        value.to_bits() as u64
    }

    proptest! {
        #[test]
        fn narrowing_is_correctly_rounded(bits: u32) {
            let x = f32::from_bits(bits);
            prop_assume!(!x.is_nan());
            for (rounding, reference) in [
                (Rounding::NearestEven, Round::NearestTiesToEven),
                (Rounding::TowardZero, Round::TowardZero),
                (Rounding::Down, Round::TowardNegative),
                (Rounding::Up, Round::TowardPositive),
            ] {
                let to = |to| rounded(Numeric::F32, to, rounding).eval(f(x));
                prop_assert_eq!(to(Numeric::F16), from_f32::<Half>(x, reference));
                prop_assert_eq!(to(Numeric::Bf16), from_f32::<BFloat>(x, reference));
                prop_assert_eq!(to(Numeric::F64), from_f32::<Double>(x, reference));
            }
        }

        #[test]
        fn eight_bit_floats_round_like_the_reference(x in -460.0f32..460.0) {
            let pack = |to| PackPair {
                to, rounding: Rounding::NearestEven, clamp: Clamp::None, finite: true,
            }.eval(0, f(x));
            let nearest = Round::NearestTiesToEven;
            prop_assert_eq!(pack(Numeric::E5m2x2), from_f32::<Float8E5M2>(x, nearest));
            // Beyond 464 the reference has NaN where saturation has 448.
            prop_assert_eq!(pack(Numeric::E4m3x2), from_f32::<Float8E4M3FN>(x, nearest));
        }
    }

    #[test]
    fn every_half_survives_a_round_trip() {
        for word in 0..=0xffffu64 {
            for (narrow, wide) in [(Numeric::F16, Numeric::F32), (Numeric::Bf16, Numeric::F64)] {
                let there = plain(narrow, wide).eval(word);
                let back = plain(wide, narrow).eval(there);
                let nan = narrow.format().is_some_and(|format| format.is_nan(word));
                assert_eq!(back, if nan { 0x7fff } else { word });
            }
        }
    }
}
