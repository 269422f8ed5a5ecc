//! Floating-point arithmetic (PTX ISA, "Floating-Point Instructions", "Half Precision
//! Floating-Point Instructions").

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
