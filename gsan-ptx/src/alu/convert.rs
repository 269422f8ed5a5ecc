//! `cvt` and `cvt.pack`.

use crate::alu::float::{Clamp, Rounding};
use crate::alu::integer::Int;

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
