//! `set` and `setp` (PTX ISA, "Comparison and Selection Instructions").

use crate::alu::float::FloatType;
use crate::alu::integer::Int;

/// A comparison operator. `lo`, `ls`, `hi`, `hs` are the ordinary ones on unsigned integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// `eq`
    Eq,
    /// `ne`
    Ne,
    /// `lt`
    Lt,
    /// `le`
    Le,
    /// `gt`
    Gt,
    /// `ge`
    Ge,
    /// `equ`: equal or unordered
    EqUnordered,
    /// `neu`
    NeUnordered,
    /// `ltu`
    LtUnordered,
    /// `leu`
    LeUnordered,
    /// `gtu`
    GtUnordered,
    /// `geu`
    GeUnordered,
    /// `num`: neither is NaN
    Number,
    /// `nan`: one is NaN
    NotANumber,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compared {
    /// Integers.
    Int(Int),
    /// Floating-point numbers.
    Float {
        /// The type.
        ty: FloatType,
        /// Subnormal operands count as zero.
        ftz: bool,
    },
}

/// A comparison of two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Test {
    /// How.
    pub comparison: Comparison,
    /// What.
    pub compared: Compared,
}

/// How a comparison is combined with a predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Combine {
    /// `.and`
    And,
    /// `.or`
    Or,
    /// `.xor`
    Xor,
}

/// How `set` writes true; false is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SetResult {
    /// `u32`, `s32`: all ones
    Ones32,
    /// `u16`, `s16`: all ones
    Ones16,
    /// `f32` 1.0
    F32,
    /// `f16` 1.0
    F16,
    /// `bf16` 1.0
    Bf16,
    /// `f16x2`: 1.0 in each half that is true
    F16x2,
    /// `bf16x2`: 1.0 in each half that is true
    Bf16x2,
    /// `u32` from packed operands: all ones in each half that is true
    Ones16x2,
}
