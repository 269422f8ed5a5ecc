//! What arithmetic instructions compute: pure functions on 64-bit register words.
//!
//! A selector ([`Unary`], [`Binary`], [`Ternary`], [`Quaternary`], [`Rmw`]) is what an instruction
//! with its types and modifiers decodes to; `eval` is its meaning. Operands are read as wide as
//! the type says; integer results of `cvt` are extended to 64 bits, others are zero above their
//! type.

pub mod compare;
pub mod convert;
pub mod float;
mod format;
pub mod integer;
pub mod matrix;

use convert::{Conversion, PackInts, PackPair};
use float::{FloatBinary, FloatMode, FloatTernary, FloatType, FloatUnary, NumberTest};
use integer::{Bits, Int, IntBinary, IntTernary, IntUnary, PackedBinary};

/// A function of one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unary {
    /// On an integer.
    Int(IntUnary, Int),
    /// `not.pred`
    NotPredicate,
    /// On a floating-point number, or a pair of them.
    Float(FloatUnary, FloatType, FloatMode),
    /// `testp`: a predicate.
    TestNumber(NumberTest, FloatType),
    /// `cvt` of one operand.
    Convert(Conversion),
}

/// A function of two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binary {
    /// On integers; also `and.pred`, `or.pred`, `xor.pred` (as 16-bit ones).
    Int(IntBinary, Int),
    /// `add`, `min`, `max` on pairs of 16-bit integers.
    Packed(PackedBinary),
    /// On floating-point numbers, or pairs of them.
    Float(FloatBinary, FloatType, FloatMode),
    /// `cvt` of two operands into a packed pair; `a` becomes the high half.
    Pack(PackPair),
    /// `cvt.pack` of two operands, without a third.
    PackInts(PackInts),
}

/// A function of three operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ternary {
    /// On integers.
    Int(IntTernary, Int),
    /// On floating-point numbers, or pairs of them.
    Float(FloatTernary, FloatType, FloatMode),
    /// `slct` with an `s32` selector: `a` if `c >= 0`, else `b`.
    SelectSigned,
    /// `slct` with an `f32` selector: `a` if `c >= 0`, else `b`; `b` for NaN.
    SelectFloat {
        /// Subnormal selectors count as zero.
        ftz: bool,
    },
    /// `cvt.pack` with a third operand, whose low bits become the high bits of the result.
    PackInts(PackInts),
}

/// A function of four operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Quaternary {
    /// `bfi.b32`, `bfi.b64`: insert `a` into `b` at position `c` for length `d`.
    BitFieldInsert {
        /// `.b64`
        wide: bool,
    },
}

/// What an atomic does to memory (PTX ISA, "atom", "red", "redux.sync").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rmw {
    /// `.exch`
    Exchange,
    /// `.cas`
    CompareAndSwap,
    /// `.and`
    And,
    /// `.or`
    Or,
    /// `.xor`
    Xor,
    /// `.add` of integers
    Add,
    /// `.inc`: 0 if the old value is at least the operand, else one more
    Inc,
    /// `.dec`: the operand if the old value is 0 or above it, else one less
    Dec,
    /// `.min` of integers
    Min {
        /// Signed.
        signed: bool,
    },
    /// `.max` of integers
    Max {
        /// Signed.
        signed: bool,
    },
    /// `.add`, `.min`, `.max` of floating-point numbers
    Float(FloatBinary, FloatType, FloatMode),
}

impl Unary {
    /// The function's value.
    #[inline]
    pub fn eval(self, a: u64) -> u64 {
        match self {
            Unary::Int(f, int) => f.eval(int, a),
            Unary::NotPredicate => !a & 1,
            Unary::Float(f, ty, mode) => f.eval(ty, mode, a),
            Unary::TestNumber(test, ty) => u64::from(test.eval(ty, a)),
            Unary::Convert(conversion) => conversion.eval(a),
        }
    }
}

impl Binary {
    /// The function's value.
    #[inline]
    pub fn eval(self, a: u64, b: u64) -> u64 {
        match self {
            Binary::Int(f, int) => f.eval(int, a, b),
            Binary::Packed(f) => f.eval(a, b),
            Binary::Float(f, ty, mode) => f.eval(ty, mode, a, b),
            Binary::Pack(pack) => pack.eval(a, b),
            Binary::PackInts(pack) => pack.eval(a, b, 0),
        }
    }

    /// Whether it is an integer division, and `b` is zero.
    #[inline]
    pub fn divides_by_zero(self, b: u64) -> bool {
        matches!(self, Binary::Int(IntBinary::Div | IntBinary::Rem, int) if int.truncate(b) == 0)
    }
}

impl Ternary {
    /// The function's value.
    #[inline]
    pub fn eval(self, a: u64, b: u64, c: u64) -> u64 {
        match self {
            Ternary::Int(f, int) => f.eval(int, a, b, c),
            Ternary::Float(f, ty, mode) => f.eval(ty, mode, a, b, c),
            Ternary::SelectSigned => {
                if (c as i32) >= 0 {
                    a
                } else {
                    b
                }
            }
            Ternary::SelectFloat { ftz } => {
                let selector = f32::from_bits(c as u32);
                if selector >= 0.0 || ftz && selector.is_subnormal() {
                    a
                } else {
                    b
                }
            }
            Ternary::PackInts(pack) => pack.eval(a, b, c),
        }
    }
}

impl Quaternary {
    /// The function's value.
    pub fn eval(self, a: u64, b: u64, c: u64, d: u64) -> u64 {
        match self {
            Quaternary::BitFieldInsert { wide } => {
                let bits = if wide { Bits::B64 } else { Bits::B32 };
                integer::insert_bits(bits, a, b, c, d)
            }
        }
    }
}

impl Rmw {
    /// What is in memory afterwards, for an element of `bytes` bytes (at most 8) that held `old`.
    /// For compare-and-swap, which has one operand more, this is `a`.
    pub fn eval(self, bytes: u8, old: u64, a: u64) -> u64 {
        let int = |signed| Int {
            bits: match bytes {
                1 => Bits::B8,
                2 => Bits::B16,
                4 => Bits::B32,
                _ => Bits::B64,
            },
            signed,
        };
        let (old, a) = (int(false).truncate(old), int(false).truncate(a));
        match self {
            Rmw::Exchange | Rmw::CompareAndSwap => a,
            Rmw::And => old & a,
            Rmw::Or => old | a,
            Rmw::Xor => old ^ a,
            Rmw::Add => IntBinary::Add.eval(int(false), old, a),
            Rmw::Inc if old >= a => 0,
            Rmw::Inc => old + 1,
            Rmw::Dec if old == 0 || old > a => a,
            Rmw::Dec => old - 1,
            Rmw::Min { signed } => IntBinary::Min.eval(int(signed), old, a),
            Rmw::Max { signed } => IntBinary::Max.eval(int(signed), old, a),
            Rmw::Float(f, ty, mode) => f.eval(ty, mode, old, a),
        }
    }
}
