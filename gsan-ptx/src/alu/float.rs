//! Floating-point arithmetic (PTX ISA, "Floating-Point Instructions", "Half Precision
//! Floating-Point Instructions").

use super::format::{self, Format, odd_add, odd_div, odd_sqrt};
use rustc_apfloat::ieee::Double;
use rustc_apfloat::{Float, Round};

/// How a result is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Rounding {
    /// `.rn`: to nearest, ties to even
    #[default]
    NearestEven,
    /// `.rna`: to nearest, ties away from zero
    NearestAway,
    /// `.rz`
    TowardZero,
    /// `.rm`
    Down,
    /// `.rp`
    Up,
}

/// A floating-point operand type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FloatType {
    /// `.f16`
    F16,
    /// `.f16x2`
    F16x2,
    /// `.bf16`
    Bf16,
    /// `.bf16x2`
    Bf16x2,
    /// `.f32`
    F32,
    /// `.f32x2`
    F32x2,
    /// `.f64`
    F64,
}

/// What happens to a result at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Clamp {
    /// Nothing.
    #[default]
    None,
    /// `.sat`: into 0 to 1, NaN becomes 0
    Saturate,
    /// `.relu`: negative becomes 0, NaN canonical
    Relu,
}

/// The modifiers of a floating-point instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct FloatMode {
    /// How the result is rounded.
    pub rounding: Rounding,
    /// `.ftz`: subnormal operands and results are zero.
    pub ftz: bool,
    /// The end.
    pub clamp: Clamp,
}

/// A function of one floating-point number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FloatUnary {
    /// `neg`
    Neg,
    /// `abs`
    Abs,
    /// `rcp`, exact or approximate
    Reciprocal,
    /// `sqrt`, exact or approximate
    SquareRoot,
    /// `rsqrt.approx`
    ReciprocalSquareRoot,
    /// `rcp.approx.ftz.f64`, `rsqrt.approx.ftz.f64`: only the high 32 bits are computed
    ReciprocalHigh,
    /// see [`FloatUnary::ReciprocalHigh`]
    ReciprocalSquareRootHigh,
    /// `sin.approx`
    Sin,
    /// `cos.approx`
    Cos,
    /// `lg2.approx`
    Log2,
    /// `ex2.approx`
    Exp2,
    /// `tanh.approx`
    Tanh,
}

/// A function of two floating-point numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FloatBinary {
    /// `add`
    Add,
    /// `sub`
    Sub,
    /// `mul`
    Mul,
    /// `div.rn` and its like, and `div.full`
    Div,
    /// `div.approx`: 0 for a divisor above 2^126
    DivApprox,
    /// `min`
    Min(Extremum),
    /// `max`
    Max(Extremum),
    /// `copysign`: the sign of `a` on `b`
    CopySign,
}

/// The modifiers of `min` and `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Extremum {
    /// `.NaN`: a NaN operand makes the result NaN.
    pub nan: bool,
    /// `.xorsign.abs`: of the absolute values, with the product of the signs.
    pub xorsign: bool,
}

/// A function of three floating-point numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FloatTernary {
    /// `fma`, `mad`
    Fma,
    /// `min` of three
    Min(Extremum),
    /// `max` of three
    Max(Extremum),
}

/// What `testp` asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NumberTest {
    /// `.finite`
    Finite,
    /// `.infinite`
    Infinite,
    /// `.number`
    Number,
    /// `.notanumber`
    NotANumber,
    /// `.normal`
    Normal,
    /// `.subnormal`
    Subnormal,
}

impl FloatType {
    /// The format of an element.
    pub(super) fn format(self) -> Format {
        match self {
            FloatType::F16 | FloatType::F16x2 => format::F16,
            FloatType::Bf16 | FloatType::Bf16x2 => format::BF16,
            FloatType::F32 | FloatType::F32x2 => format::F32,
            FloatType::F64 => format::F64,
        }
    }

    /// The bits of an element if there are two.
    pub(super) fn packed(self) -> Option<u32> {
        match self {
            FloatType::F16x2 | FloatType::Bf16x2 => Some(16),
            FloatType::F32x2 => Some(32),
            FloatType::F16 | FloatType::Bf16 | FloatType::F32 | FloatType::F64 => None,
        }
    }

    /// Applies a function to each element; operands are cut to the element's width.
    fn each<const N: usize>(self, words: [u64; N], f: impl Fn([u64; N]) -> u64) -> u64 {
        let bits = self.format().bits();
        let mask = u64::MAX >> (64 - bits);
        let element = |shift: u32| f(words.map(|word| word >> shift & mask));
        match self.packed() {
            Some(width) => element(width) << width | element(0),
            None => element(0),
        }
    }
}

impl FloatMode {
    /// An operand after `.ftz`.
    fn operand(self, format: Format, word: u64) -> u64 {
        if self.ftz { format.flush(word) } else { word }
    }

    /// A result after `.ftz`, `.sat` and `.relu`, every NaN made the canonical one.
    fn result(self, format: Format, word: u64) -> u64 {
        let word = if format.is_nan(word) {
            format.nan()
        } else if self.ftz {
            format.flush(word)
        } else {
            word
        };
        self.clamp.apply(format, word)
    }

    /// A result that is exactly, or rounded to odd, `value`.
    fn encode(self, format: Format, value: f64) -> u64 {
        self.result(format, format.encode(value, self.rounding, false))
    }
}

impl Clamp {
    /// The clamped number.
    pub(super) fn apply(self, format: Format, word: u64) -> u64 {
        let negative = word & format.sign() != 0;
        let nan = format.is_nan(word);
        match self {
            Clamp::None => word,
            Clamp::Saturate if nan || negative => 0,
            Clamp::Saturate => word.min(format.encode(1.0, Rounding::NearestEven, false)),
            Clamp::Relu if nan => format.nan(),
            Clamp::Relu if negative => 0,
            Clamp::Relu => word,
        }
    }
}

impl FloatUnary {
    /// The function's value. Approximations are computed in `f64` and rounded once, well within
    /// their documented error.
    pub fn eval(self, ty: FloatType, mode: FloatMode, a: u64) -> u64 {
        let format = ty.format();
        ty.each([a], |[a]| {
            let a = mode.operand(format, a);
            match self {
                FloatUnary::Neg => mode.keep(format, a ^ format.sign()),
                FloatUnary::Abs => mode.keep(format, a & !format.sign()),
                FloatUnary::Reciprocal => {
                    let one = format.encode(1.0, Rounding::NearestEven, false);
                    FloatBinary::Div.element(format, mode, one, a)
                }
                FloatUnary::SquareRoot if format == format::F64 => {
                    mode.result(format, sqrt64(f64::from_bits(a), mode.rounding).to_bits())
                }
                FloatUnary::SquareRoot => mode.encode(format, odd_sqrt(format.decode(a))),
                FloatUnary::ReciprocalHigh => high(1.0 / flush64(a)),
                FloatUnary::ReciprocalSquareRootHigh => high(rsqrt(flush64(a))),
                _ => mode.encode(format, self.transcendental(format.decode(a))),
            }
        })
    }

    fn transcendental(self, a: f64) -> f64 {
        match self {
            FloatUnary::ReciprocalSquareRoot => rsqrt(a),
            FloatUnary::Sin => libm::sin(a),
            FloatUnary::Cos => libm::cos(a),
            FloatUnary::Log2 if a == 0.0 => f64::NEG_INFINITY,
            FloatUnary::Log2 => libm::log2(a),
            FloatUnary::Exp2 => libm::exp2(a),
            FloatUnary::Tanh => libm::tanh(a),
            _ => a,
        }
    }
}

impl FloatMode {
    /// The result of an operation on the sign: a NaN stays as it is.
    fn keep(self, format: Format, word: u64) -> u64 {
        let word = if self.ftz { format.flush(word) } else { word };
        self.clamp.apply(format, word)
    }
}

fn rsqrt(a: f64) -> f64 {
    // 1 / sqrt(-0) is -infinity.
    1.0 / a.sqrt()
}

fn flush64(word: u64) -> f64 {
    f64::from_bits(format::F64.flush(word))
}

/// The upper half of a number, subnormal ones flushed.
fn high(value: f64) -> u64 {
    let word = if value.is_nan() {
        format::F64.nan()
    } else {
        format::F64.flush(value.to_bits())
    };
    word & 0xffff_ffff_0000_0000
}

/// The neighbour of `nearest`, or itself, that is the rounding of an exact value which differs
/// from it in the direction of `missing`.
fn direct(nearest: f64, missing: f64, rounding: Rounding) -> f64 {
    let toward = match rounding {
        Rounding::NearestEven | Rounding::NearestAway => return nearest,
        Rounding::TowardZero if nearest > 0.0 => f64::NEG_INFINITY,
        Rounding::TowardZero | Rounding::Up => f64::INFINITY,
        Rounding::Down => f64::NEG_INFINITY,
    };
    if missing > 0.0 && toward > 0.0 {
        nearest.next_up()
    } else if missing < 0.0 && toward < 0.0 {
        nearest.next_down()
    } else {
        nearest
    }
}

/// The square root of an `f64` in any rounding.
fn sqrt64(a: f64, rounding: Rounding) -> f64 {
    if rounding == Rounding::NearestEven || a == 0.0 || !a.is_finite() || a < 0.0 {
        return a.sqrt();
    }
    // Scaled so that the square does not underflow; the root scales exactly.
    const SCALE: f64 = 18_446_744_073_709_551_616.0 * 18_446_744_073_709_551_616.0;
    let (scaled, factor) = if a < 1e-200 {
        (a * SCALE, 1.0 / 18_446_744_073_709_551_616.0)
    } else {
        (a, 1.0)
    };
    let root = scaled.sqrt();
    direct(root, (-root).mul_add(root, scaled), rounding) * factor
}

fn apfloat_round(rounding: Rounding) -> Round {
    match rounding {
        Rounding::NearestEven => Round::NearestTiesToEven,
        Rounding::NearestAway => Round::NearestTiesToAway,
        Rounding::TowardZero => Round::TowardZero,
        Rounding::Down => Round::TowardNegative,
        Rounding::Up => Round::TowardPositive,
    }
}

fn double(word: u64) -> Double {
    Double::from_bits(u128::from(word))
}

impl FloatBinary {
    /// The function's value.
    #[inline]
    pub fn eval(self, ty: FloatType, mode: FloatMode, a: u64, b: u64) -> u64 {
        if ty == FloatType::F32 && mode == FloatMode::default() {
            let (x, y) = (f32::from_bits(a as u32), f32::from_bits(b as u32));
            let value = match self {
                FloatBinary::Add => x + y,
                FloatBinary::Sub => x - y,
                FloatBinary::Mul => x * y,
                FloatBinary::Div => x / y,
                _ => return self.element(format::F32, mode, a & 0xffff_ffff, b & 0xffff_ffff),
            };
            return canonical32(value);
        }
        let format = ty.format();
        ty.each([a, b], |[a, b]| self.element(format, mode, a, b))
    }

    fn element(self, format: Format, mode: FloatMode, a: u64, b: u64) -> u64 {
        let (a, b) = (mode.operand(format, a), mode.operand(format, b));
        match self {
            FloatBinary::Min(extremum) => {
                return mode.keep(format, extremum.pick(format, a, b, true));
            }
            FloatBinary::Max(extremum) => {
                return mode.keep(format, extremum.pick(format, a, b, false));
            }
            FloatBinary::CopySign => return (a & format.sign()) | (b & !format.sign()),
            _ => {}
        }
        if format == format::F64 {
            return mode.result(format, self.double(mode.rounding, a, b));
        }
        let (x, y) = (format.decode(a), format.decode(b));
        let value = match self {
            FloatBinary::Add => sum(mode.rounding, x, y),
            FloatBinary::Sub => sum(mode.rounding, x, -y),
            // Exact: twice the narrow precision is below 53 bits.
            FloatBinary::Mul => x * y,
            FloatBinary::DivApprox if y.abs() > LARGE_DIVISOR && y.is_finite() => {
                if x.is_infinite() {
                    f64::NAN
                } else {
                    return mode.result(format, (a ^ b) & format.sign());
                }
            }
            _ => odd_div(x, y),
        };
        mode.encode(format, value)
    }

    fn double(self, rounding: Rounding, a: u64, b: u64) -> u64 {
        let (x, y) = (f64::from_bits(a), f64::from_bits(b));
        if rounding == Rounding::NearestEven {
            let value = match self {
                FloatBinary::Add => x + y,
                FloatBinary::Sub => x - y,
                FloatBinary::Mul => x * y,
                _ => x / y,
            };
            return value.to_bits();
        }
        let round = apfloat_round(rounding);
        let (x, y) = (double(a), double(b));
        let result = match self {
            FloatBinary::Add => x.add_r(y, round),
            FloatBinary::Sub => x.sub_r(y, round),
            FloatBinary::Mul => x.mul_r(y, round),
            _ => x.div_r(y, round),
        };
        result.value.to_bits() as u64
    }
}

/// The sum, rounded to odd. A zero of operands that differ in sign is negative when rounding down
/// (IEEE 754-2019, "The sign bit").
fn sum(rounding: Rounding, a: f64, b: f64) -> f64 {
    let sum = odd_add(a, b);
    let negative = a.is_sign_negative() || b.is_sign_negative();
    if sum == 0.0 && negative && rounding == Rounding::Down {
        -0.0
    } else {
        sum
    }
}

/// Above it `div.approx.f32` gives 0: 2^126.
const LARGE_DIVISOR: f64 = 85_070_591_730_234_615_865_843_651_857_942_052_864.0;

#[inline]
fn canonical32(value: f32) -> u64 {
    if value.is_nan() {
        0x7fff_ffff
    } else {
        u64::from(value.to_bits())
    }
}

impl Extremum {
    /// The smaller or the larger number; -0 is less than +0.
    fn pick(self, format: Format, a: u64, b: u64, smaller: bool) -> u64 {
        let sign = (a ^ b) & format.sign();
        let (x, y) = if self.xorsign {
            (a & !format.sign(), b & !format.sign())
        } else {
            (a, b)
        };
        let picked = match (format.is_nan(x), format.is_nan(y)) {
            (true, true) => return format.nan(),
            (true, false) | (false, true) if self.nan => return format.nan(),
            (true, false) => y,
            (false, true) => x,
            (false, false) if (order(format, x) < order(format, y)) == smaller => x,
            (false, false) => y,
        };
        if self.xorsign { picked | sign } else { picked }
    }
}

/// A number that orders like the floating-point number.
fn order(format: Format, word: u64) -> i64 {
    let magnitude = (word & !format.sign()) as i64;
    if word & format.sign() != 0 {
        -1 - magnitude
    } else {
        magnitude
    }
}

impl FloatTernary {
    /// The function's value.
    #[inline]
    pub fn eval(self, ty: FloatType, mode: FloatMode, a: u64, b: u64, c: u64) -> u64 {
        if ty == FloatType::F32 && mode == FloatMode::default() && self == FloatTernary::Fma {
            let [x, y, z] = [a, b, c].map(|word| f32::from_bits(word as u32));
            return canonical32(x.mul_add(y, z));
        }
        let format = ty.format();
        ty.each([a, b, c], |[a, b, c]| match self {
            FloatTernary::Min(extremum) => {
                let first = FloatBinary::Min(extremum).element(format, mode, a, b);
                FloatBinary::Min(extremum).element(format, mode, first, c)
            }
            FloatTernary::Max(extremum) => {
                let first = FloatBinary::Max(extremum).element(format, mode, a, b);
                FloatBinary::Max(extremum).element(format, mode, first, c)
            }
            FloatTernary::Fma => fma(format, mode, a, b, c),
        })
    }
}

fn fma(format: Format, mode: FloatMode, a: u64, b: u64, c: u64) -> u64 {
    let [a, b, c] = [a, b, c].map(|word| mode.operand(format, word));
    if format != format::F64 {
        let product = format.decode(a) * format.decode(b);
        return mode.encode(format, sum(mode.rounding, product, format.decode(c)));
    }
    let word = match mode.rounding {
        Rounding::NearestEven => {
            let [x, y, z] = [a, b, c].map(f64::from_bits);
            x.mul_add(y, z).to_bits()
        }
        rounding => {
            let result = double(a).mul_add_r(double(b), double(c), apfloat_round(rounding));
            result.value.to_bits() as u64
        }
    };
    mode.result(format, word)
}

impl NumberTest {
    /// Whether the number is so.
    pub fn eval(self, ty: FloatType, a: u64) -> bool {
        let format = ty.format();
        let magnitude = a & (format.sign() - 1);
        let nan = format.is_nan(a);
        let infinite = format.decode(magnitude).is_infinite();
        match self {
            NumberTest::Finite => !nan && !infinite,
            NumberTest::Infinite => infinite,
            NumberTest::Number => !nan,
            NumberTest::NotANumber => nan,
            // Zero counts as normal (PTX ISA, "testp").
            NumberTest::Normal => !nan && !infinite && !format.is_subnormal(a),
            NumberTest::Subnormal => format.is_subnormal(a),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustc_apfloat::ieee::{BFloat, Half, Single};

    const RN: FloatMode = FloatMode {
        rounding: Rounding::NearestEven,
        ftz: false,
        clamp: Clamp::None,
    };

    fn rounded(rounding: Rounding) -> FloatMode {
        FloatMode { rounding, ..RN }
    }

    fn f(value: f32) -> u64 {
        u64::from(value.to_bits())
    }

    fn binary(op: FloatBinary, mode: FloatMode, a: f32, b: f32) -> f32 {
        f32::from_bits(op.eval(FloatType::F32, mode, f(a), f(b)) as u32)
    }

    fn unary(op: FloatUnary, mode: FloatMode, a: f32) -> f32 {
        f32::from_bits(op.eval(FloatType::F32, mode, f(a)) as u32)
    }

    const NAN: u64 = 0x7fff_ffff;
    const TINY: f32 = f32::from_bits(1);
    const MODES: [Rounding; 4] = [
        Rounding::NearestEven,
        Rounding::TowardZero,
        Rounding::Down,
        Rounding::Up,
    ];

    /// Numbers of all kinds, the special ones often.
    fn words() -> impl Strategy<Value = u64> {
        prop_oneof![
            any::<u64>(),
            (0..5u64, any::<bool>(), 0..16u64).prop_map(|(kind, sign, low)| {
                let top = [0, 0x7f80_0000, 0x3f80_0000, 0x0080_0000, 0x7c00][kind as usize];
                (u64::from(sign) << 31) | (top + low)
            }),
        ]
    }

    /// The result of the reference, with this crate's NaN.
    fn reference<F: Float>(value: F, nan: u64) -> u64 {
        if value.is_nan() {
            nan
        } else {
            value.to_bits() as u64
        }
    }

    /// Compares all exact operations of a type with the reference.
    fn agrees<F: Float>(ty: FloatType, words: [u64; 3]) -> Result<(), TestCaseError> {
        let format = ty.format();
        let [a, b, c] = words.map(|word| word & u64::MAX >> (64 - format.bits()));
        let [x, y, z] = [a, b, c].map(|word| F::from_bits(u128::from(word)));
        let nan = format.nan();
        for rounding in MODES {
            let (mode, round) = (rounded(rounding), apfloat_round(rounding));
            let pairs = [
                (FloatBinary::Add, x.add_r(y, round).value),
                (FloatBinary::Sub, x.sub_r(y, round).value),
                (FloatBinary::Mul, x.mul_r(y, round).value),
                (FloatBinary::Div, x.div_r(y, round).value),
            ];
            for (op, expected) in pairs {
                let got = op.eval(ty, mode, a, b);
                prop_assert_eq!(got, reference(expected, nan), "{:?} {:?}", op, rounding);
            }
            let expected = x.mul_add_r(y, z, round).value;
            let got = FloatTernary::Fma.eval(ty, mode, a, b, c);
            prop_assert_eq!(got, reference(expected, nan), "fma {:?}", rounding);
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn f32_arithmetic_is_correctly_rounded(a in words(), b in words(), c in words()) {
            agrees::<Single>(FloatType::F32, [a, b, c])?;
        }

        #[test]
        fn f16_arithmetic_is_correctly_rounded(a in words(), b in words(), c in words()) {
            agrees::<Half>(FloatType::F16, [a, b, c])?;
        }

        #[test]
        fn bf16_arithmetic_is_correctly_rounded(a in words(), b in words(), c in words()) {
            agrees::<BFloat>(FloatType::Bf16, [a, b, c])?;
        }

        #[test]
        fn f64_arithmetic_is_correctly_rounded(a: u64, b: u64, c: u64) {
            agrees::<Double>(FloatType::F64, [a, b, c])?;
        }

        #[test]
        fn square_roots_bracket_the_exact_one(a: u32) {
            let a = f32::from_bits(a).abs();
            prop_assume!(a.is_finite());
            let root = |rounding| unary(FloatUnary::SquareRoot, rounded(rounding), a);
            let (down, up) = (root(Rounding::Down), root(Rounding::Up));
            // Squares of f32 are exact in f64.
            prop_assert!(f64::from(down) * f64::from(down) <= f64::from(a));
            prop_assert!(f64::from(up) * f64::from(up) >= f64::from(a));
            prop_assert!(up == down || up == down.next_up());
            prop_assert_eq!(root(Rounding::NearestEven), a.sqrt());
            prop_assert_eq!(root(Rounding::TowardZero), down);
        }

        #[test]
        fn f64_square_roots_bracket_the_exact_one(a: u64) {
            let a = f64::from_bits(a).abs();
            prop_assume!(a.is_finite());
            let root = |rounding| sqrt64(a, rounding);
            let (down, up) = (root(Rounding::Down), root(Rounding::Up));
            let square = |x: f64, round| double(x.to_bits()).mul_r(double(x.to_bits()), round).value;
            let exact = double(a.to_bits());
            prop_assert!(square(down, Round::TowardNegative) <= exact);
            prop_assert!(square(up, Round::TowardPositive) >= exact);
            prop_assert!(up == down || up == down.next_up());
        }

        #[test]
        fn packed_halves_are_two_numbers(a: u32, b: u32, c: u32) {
            let [a, b, c] = [a, b, c].map(u64::from);
            let packed = FloatTernary::Fma.eval(FloatType::F16x2, RN, a, b, c);
            let one = |shift: u32| FloatTernary::Fma.eval(
                FloatType::F16, RN, a >> shift, b >> shift, c >> shift);
            prop_assert_eq!(packed, one(16) << 16 | one(0));
        }
    }

    #[test]
    fn nan_results_are_canonical() {
        let add = |a, b| FloatBinary::Add.eval(FloatType::F32, RN, a, b);
        assert_eq!(add(0x7fc0_1234, f(1.0)), NAN);
        assert_eq!(add(f(f32::INFINITY), f(f32::NEG_INFINITY)), NAN);
        let half = FloatBinary::Mul.eval(FloatType::F16, RN, 0x7c00, 0);
        assert_eq!(half, 0x7fff);
        let brain = FloatBinary::Mul.eval(FloatType::Bf16, RN, 0x7f80, 0);
        assert_eq!(brain, 0x7fff);
    }

    #[test]
    fn ftz_flushes_operands_and_results_and_keeps_the_sign() {
        let ftz = FloatMode { ftz: true, ..RN };
        assert_eq!(binary(FloatBinary::Add, ftz, TINY, TINY).to_bits(), 0);
        assert_eq!(binary(FloatBinary::Add, RN, TINY, TINY).to_bits(), 2);
        let small = f32::MIN_POSITIVE;
        assert_eq!(
            binary(FloatBinary::Mul, ftz, -small, 0.5).to_bits(),
            1 << 31
        );
        assert_eq!(unary(FloatUnary::Neg, ftz, TINY).to_bits(), 1 << 31);
        assert_eq!(
            binary(FloatBinary::Max(Extremum::default()), ftz, TINY, -1.0),
            0.0
        );
    }

    #[test]
    fn saturation_clamps_to_zero_and_one() {
        let sat = FloatMode {
            clamp: Clamp::Saturate,
            ..RN
        };
        assert_eq!(binary(FloatBinary::Add, sat, 1.0, 1.0), 1.0);
        assert_eq!(binary(FloatBinary::Sub, sat, 1.0, 2.0).to_bits(), 0);
        assert_eq!(binary(FloatBinary::Add, sat, f32::NAN, 2.0).to_bits(), 0);
        assert_eq!(binary(FloatBinary::Mul, sat, -0.0, 1.0).to_bits(), 0);
        let relu = FloatMode {
            clamp: Clamp::Relu,
            ..RN
        };
        let fma = |a, b, c| FloatTernary::Fma.eval(FloatType::F16, relu, a, b, c);
        // -1 * 1 + 0, 1 * 1 + 1, NaN
        assert_eq!(fma(0xbc00, 0x3c00, 0), 0);
        assert_eq!(fma(0x3c00, 0x3c00, 0x3c00), 0x4000);
        assert_eq!(fma(0x7e00, 0x3c00, 0), 0x7fff);
    }

    #[test]
    fn minimum_and_maximum_of_nan_and_zeros() {
        let plain = Extremum::default();
        let nan = Extremum { nan: true, ..plain };
        let min = |e, a, b| FloatBinary::Min(e).eval(FloatType::F32, RN, a, b);
        let max = |e, a, b| FloatBinary::Max(e).eval(FloatType::F32, RN, a, b);
        assert_eq!(min(plain, 0x7fc0_0000, f(2.0)), f(2.0));
        assert_eq!(max(plain, f(2.0), 0x7fc0_0000), f(2.0));
        assert_eq!(min(plain, 0x7fc0_0001, 0xffc0_0002), NAN);
        assert_eq!(min(nan, f(1.0), 0x7fc0_0001), NAN);
        assert_eq!(min(plain, f(0.0), f(-0.0)), f(-0.0));
        assert_eq!(max(plain, f(-0.0), f(0.0)), f(0.0));
        let xorsign = Extremum {
            xorsign: true,
            ..plain
        };
        assert_eq!(min(xorsign, f(-3.0), f(2.0)), f(-2.0));
        assert_eq!(max(xorsign, f(-3.0), f(-2.0)), f(3.0));
    }

    #[test]
    fn signs_are_bits() {
        assert_eq!(
            FloatUnary::Neg.eval(FloatType::F16x2, RN, 0x3c00_0000),
            0xbc00_8000
        );
        assert_eq!(
            FloatUnary::Abs.eval(FloatType::Bf16x2, RN, 0xbf80_8000),
            0x3f80_0000
        );
        assert_eq!(
            FloatBinary::CopySign.eval(FloatType::F32, RN, f(-1.0), f(3.0)),
            f(-3.0)
        );
    }

    #[test]
    fn special_values_of_approximations() {
        let approx = |op, a| unary(op, RN, a);
        assert_eq!(approx(FloatUnary::Reciprocal, 0.0), f32::INFINITY);
        assert_eq!(approx(FloatUnary::Reciprocal, -0.0), f32::NEG_INFINITY);
        assert_eq!(
            approx(FloatUnary::ReciprocalSquareRoot, -0.0),
            f32::NEG_INFINITY
        );
        assert_eq!(approx(FloatUnary::ReciprocalSquareRoot, f32::INFINITY), 0.0);
        assert!(approx(FloatUnary::SquareRoot, -1.0).is_nan());
        assert_eq!(approx(FloatUnary::SquareRoot, -0.0).to_bits(), 1 << 31);
        assert!(approx(FloatUnary::Sin, f32::INFINITY).is_nan());
        assert_eq!(approx(FloatUnary::Cos, 0.0), 1.0);
        assert_eq!(approx(FloatUnary::Log2, -0.0), f32::NEG_INFINITY);
        assert!(approx(FloatUnary::Log2, -1.0).is_nan());
        assert_eq!(approx(FloatUnary::Log2, 8.0), 3.0);
        assert_eq!(approx(FloatUnary::Exp2, f32::NEG_INFINITY), 0.0);
        assert_eq!(approx(FloatUnary::Exp2, 10.0), 1024.0);
        assert_eq!(approx(FloatUnary::Tanh, f32::INFINITY), 1.0);
        let div = FloatBinary::DivApprox;
        assert_eq!(binary(div, RN, 1.0, 1e38), 0.0);
        assert!(binary(div, RN, f32::INFINITY, 1e38).is_nan());
        assert_eq!(binary(div, RN, 6.0, 3.0), 2.0);
    }

    #[test]
    fn approximate_f64_reciprocals_have_no_low_half() {
        let third = FloatUnary::ReciprocalHigh.eval(FloatType::F64, RN, 3f64.to_bits());
        assert_eq!(third, (1f64 / 3.0).to_bits() & 0xffff_ffff_0000_0000);
        let zero = FloatUnary::ReciprocalHigh.eval(FloatType::F64, RN, 1);
        assert_eq!(f64::from_bits(zero), f64::INFINITY);
    }

    #[test]
    fn kinds_of_numbers() {
        let test = |t: NumberTest, x: f32| t.eval(FloatType::F32, f(x));
        assert!(test(NumberTest::Finite, 1.0) && !test(NumberTest::Finite, f32::INFINITY));
        assert!(test(NumberTest::Infinite, f32::NEG_INFINITY));
        assert!(test(NumberTest::NotANumber, f32::NAN) && !test(NumberTest::Number, f32::NAN));
        assert!(test(NumberTest::Subnormal, TINY) && !test(NumberTest::Subnormal, 0.0));
        assert!(test(NumberTest::Normal, 0.0) && !test(NumberTest::Normal, TINY));
        assert!(NumberTest::Infinite.eval(FloatType::F64, f64::INFINITY.to_bits()));
    }
}
