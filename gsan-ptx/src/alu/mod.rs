//! What arithmetic instructions compute: pure functions on 64-bit register words.
//!
//! A selector ([`Unary`], [`Binary`], [`Ternary`], [`Quaternary`], [`Rmw`]) is what an instruction
//! with its types and modifiers decodes to; `eval` is its meaning. Operands are read as wide as
//! the type says, results are zero above it (narrow signed integers too).

pub mod compare;
pub mod convert;
pub mod float;
pub mod integer;
pub mod matrix;

use convert::{Conversion, PackInts, PackPair};
use float::{FloatBinary, FloatMode, FloatTernary, FloatType, FloatUnary, NumberTest};
use integer::{Int, IntBinary, IntTernary, IntUnary, PackedBinary};

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
