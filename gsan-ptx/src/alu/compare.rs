//! `set` and `setp` (PTX ISA, "Comparison and Selection Instructions").

use crate::alu::float::FloatType;
use crate::alu::integer::Int;
use std::cmp::Ordering;

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

impl Comparison {
    /// Whether it holds for operands ordered so; `None` is unordered.
    fn holds(self, ordering: Option<Ordering>) -> bool {
        let Some(ordering) = ordering else {
            return matches!(
                self,
                Comparison::EqUnordered
                    | Comparison::NeUnordered
                    | Comparison::LtUnordered
                    | Comparison::LeUnordered
                    | Comparison::GtUnordered
                    | Comparison::GeUnordered
                    | Comparison::NotANumber
            );
        };
        match self {
            Comparison::Eq | Comparison::EqUnordered => ordering.is_eq(),
            Comparison::Ne | Comparison::NeUnordered => ordering.is_ne(),
            Comparison::Lt | Comparison::LtUnordered => ordering.is_lt(),
            Comparison::Le | Comparison::LeUnordered => ordering.is_le(),
            Comparison::Gt | Comparison::GtUnordered => ordering.is_gt(),
            Comparison::Ge | Comparison::GeUnordered => ordering.is_ge(),
            Comparison::Number => true,
            Comparison::NotANumber => false,
        }
    }
}

impl Test {
    /// The two results: for packed operands those of the low and the high half, otherwise that of
    /// the comparison and its complement.
    #[inline]
    pub fn eval(self, a: u64, b: u64) -> (bool, bool) {
        let (ty, ftz) = match self.compared {
            Compared::Int(int) => {
                let (x, y) = (int.extend(a), int.extend(b));
                let ordering = if int.signed {
                    (x as i64).cmp(&(y as i64))
                } else {
                    x.cmp(&y)
                };
                let holds = self.comparison.holds(Some(ordering));
                return (holds, !holds);
            }
            Compared::Float { ty, ftz } => (ty, ftz),
        };
        let format = ty.format();
        let value = |word: u64| {
            let word = word & u64::MAX >> (64 - format.bits());
            format.decode(if ftz { format.flush(word) } else { word })
        };
        let holds = |a: u64, b: u64| self.comparison.holds(value(a).partial_cmp(&value(b)));
        match ty.packed() {
            Some(width) => (holds(a, b), holds(a >> width, b >> width)),
            None => {
                let holds = holds(a, b);
                (holds, !holds)
            }
        }
    }
}

impl Combine {
    /// The combination.
    pub fn eval(self, result: bool, predicate: bool) -> bool {
        match self {
            Combine::And => result && predicate,
            Combine::Or => result || predicate,
            Combine::Xor => result != predicate,
        }
    }
}

impl SetResult {
    /// The word for a result, or for those of the low and the high half.
    pub fn encode(self, low: bool, high: bool) -> u64 {
        let (packed, word) = match self {
            SetResult::Ones32 => (false, 0xffff_ffff),
            SetResult::Ones16 => (false, 0xffff),
            SetResult::F32 => (false, 0x3f80_0000),
            SetResult::F16 => (false, 0x3c00),
            SetResult::Bf16 => (false, 0x3f80),
            SetResult::F16x2 => (true, 0x3c00),
            SetResult::Bf16x2 => (true, 0x3f80),
            SetResult::Ones16x2 => (true, 0xffff),
        };
        let low = if low { word } else { 0 };
        let high = if packed && high { word } else { 0 };
        high << 16 | low
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alu::integer::Bits;

    fn ints(comparison: Comparison, signed: bool, a: u64, b: u64) -> bool {
        let int = Int {
            bits: Bits::B32,
            signed,
        };
        let test = Test {
            comparison,
            compared: Compared::Int(int),
        };
        test.eval(a, b).0
    }

    fn floats(comparison: Comparison, ftz: bool, a: f32, b: f32) -> bool {
        let test = Test {
            comparison,
            compared: Compared::Float {
                ty: FloatType::F32,
                ftz,
            },
        };
        test.eval(u64::from(a.to_bits()), u64::from(b.to_bits())).0
    }

    #[test]
    fn integers_compare_by_their_type() {
        assert!(ints(Comparison::Lt, true, 0xffff_ffff, 0));
        assert!(!ints(Comparison::Lt, false, 0xffff_ffff, 0));
        assert!(ints(Comparison::Eq, false, 0x5_0000_0001, 1));
        assert!(ints(Comparison::Ge, true, 0, 0x8000_0000));
    }

    #[test]
    fn nan_is_unordered() {
        let nan = f32::NAN;
        for comparison in [
            Comparison::Eq,
            Comparison::Ne,
            Comparison::Lt,
            Comparison::Le,
            Comparison::Gt,
            Comparison::Ge,
            Comparison::Number,
        ] {
            assert!(!floats(comparison, false, nan, 1.0), "{comparison:?}");
        }
        for comparison in [
            Comparison::EqUnordered,
            Comparison::NeUnordered,
            Comparison::LtUnordered,
            Comparison::LeUnordered,
            Comparison::GtUnordered,
            Comparison::GeUnordered,
            Comparison::NotANumber,
        ] {
            assert!(floats(comparison, false, 1.0, nan), "{comparison:?}");
        }
        assert!(floats(Comparison::Number, false, 1.0, 2.0));
        assert!(!floats(Comparison::NotANumber, false, 1.0, 2.0));
        assert!(!floats(Comparison::LtUnordered, false, 2.0, 1.0));
    }

    #[test]
    fn zeros_are_equal_and_ftz_makes_subnormals_zero() {
        assert!(floats(Comparison::Eq, false, 0.0, -0.0));
        let tiny = f32::from_bits(1);
        assert!(!floats(Comparison::Eq, false, tiny, 0.0));
        assert!(floats(Comparison::Eq, true, tiny, -0.0));
    }

    #[test]
    fn packed_halves_have_a_result_each() {
        let test = Test {
            comparison: Comparison::Lt,
            compared: Compared::Float {
                ty: FloatType::F16x2,
                ftz: false,
            },
        };
        // High: 1 < 2; low: 2 < 1.
        assert_eq!(test.eval(0x3c00_4000, 0x4000_3c00), (false, true));
    }

    #[test]
    fn the_second_result_is_the_complement() {
        let test = Test {
            comparison: Comparison::Lt,
            compared: Compared::Float {
                ty: FloatType::F32,
                ftz: false,
            },
        };
        assert_eq!(test.eval(0x7fc0_0000, 0), (false, true));
        assert!(Combine::Xor.eval(true, false) && !Combine::And.eval(true, false));
        assert!(Combine::Or.eval(false, true));
    }

    #[test]
    fn results_of_set() {
        assert_eq!(SetResult::Ones32.encode(true, false), 0xffff_ffff);
        assert_eq!(SetResult::F32.encode(true, false), 0x3f80_0000);
        assert_eq!(SetResult::F32.encode(false, true), 0);
        assert_eq!(SetResult::F16x2.encode(true, true), 0x3c00_3c00);
        assert_eq!(SetResult::Ones16x2.encode(false, true), 0xffff_0000);
    }
}
