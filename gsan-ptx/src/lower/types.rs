//! The types of instructions, and which registers fit them.

use std::fmt;

use crate::syntax::types::{Type, dotted, value_types};

value_types! {
    /// The type an instruction names: one that registers have, or one that only says how their
    /// bits are read.
    pub(super) enum DataType {
        U16x2 "u16x2",
        S16x2 "s16x2",
        Tf32 "tf32",
        F32x2 "f32x2",
        E4m3 "e4m3",
        E5m2 "e5m2",
        E4m3x2 "e4m3x2",
        E5m2x2 "e5m2x2",
        U2 "u2",
        S2 "s2",
        U4 "u4",
        S4 "s4",
    }
}

dotted!(DataType);

/// What kind of value a type holds. Untyped bits go with everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Predicate,
    Bits,
    Integer { signed: bool },
    Float,
}

impl DataType {
    /// The width of a value.
    pub(super) const fn bits(self) -> u32 {
        match self {
            DataType::Pred => 1,
            DataType::U2 | DataType::S2 => 2,
            DataType::U4 | DataType::S4 => 4,
            DataType::B8 | DataType::U8 | DataType::S8 | DataType::E4m3 | DataType::E5m2 => 8,
            DataType::B16
            | DataType::U16
            | DataType::S16
            | DataType::F16
            | DataType::Bf16
            | DataType::E4m3x2
            | DataType::E5m2x2 => 16,
            DataType::B32
            | DataType::U32
            | DataType::S32
            | DataType::U16x2
            | DataType::S16x2
            | DataType::F16x2
            | DataType::Bf16x2
            | DataType::Tf32
            | DataType::F32 => 32,
            DataType::B64 | DataType::U64 | DataType::S64 | DataType::F32x2 | DataType::F64 => 64,
            DataType::B128 => 128,
        }
    }

    pub(super) const fn class(self) -> Class {
        match self {
            DataType::Pred => Class::Predicate,
            DataType::U2
            | DataType::U4
            | DataType::U8
            | DataType::U16
            | DataType::U32
            | DataType::U64 => Class::Integer { signed: false },
            DataType::S2
            | DataType::S4
            | DataType::S8
            | DataType::S16
            | DataType::S32
            | DataType::S64 => Class::Integer { signed: true },
            DataType::F16 | DataType::F32 | DataType::F64 => Class::Float,
            _ => Class::Bits,
        }
    }

    /// Untyped bits of that width.
    pub(super) const fn of_bits(bits: u32) -> DataType {
        match bits {
            8 => DataType::B8,
            16 => DataType::B16,
            32 => DataType::B32,
            128 => DataType::B128,
            _ => DataType::B64,
        }
    }

    /// Whether a register of type `register` may hold it (PTX ISA, "Type Checking Rules").
    ///
    /// `wider` allows registers with more bits than the type, as `ld`, `st` and `cvt` do.
    pub(super) fn fits(self, register: Type, wider: bool) -> bool {
        let Some(bytes) = register.bytes() else {
            return self == DataType::Pred && register == Type::Pred;
        };
        let size = if wider {
            self.bits() <= bytes * 8
        } else {
            self.bits() == bytes * 8
        };
        let integer = matches!(
            register,
            Type::U8
                | Type::U16
                | Type::U32
                | Type::U64
                | Type::S8
                | Type::S16
                | Type::S32
                | Type::S64
        );
        let float = matches!(register, Type::F16 | Type::F32 | Type::F64);
        let class = match self.class() {
            Class::Predicate => false,
            Class::Bits => true,
            Class::Integer { .. } => !float,
            // A float does not become a larger one by being put into its register.
            Class::Float => !integer && (!float || self.bits() == bytes * 8),
        };
        size && class
    }
}

/// How messages name the registers that hold a type.
pub(super) struct Registers(pub(super) DataType, pub(super) bool);

impl fmt::Display for Registers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Registers(ty, wider) = *self;
        if ty == DataType::Pred {
            return f.write_str("a `.pred` register");
        }
        let bits = ty.bits();
        let more = if wider { "at least " } else { "" };
        match ty.class() {
            Class::Integer { .. } => write!(f, "an integer register of {more}{bits} bits"),
            Class::Float => write!(f, "a floating-point or untyped register of {bits} bits"),
            _ => write!(f, "a register of {more}{bits} bits"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // What ptxas 12.9 accepts and refuses.
    #[test]
    fn registers_fit_types_as_ptxas_says() {
        assert!(DataType::F32.fits(Type::B32, false));
        assert!(!DataType::F32.fits(Type::U32, false));
        assert!(!DataType::S32.fits(Type::F32, false));
        assert!(DataType::S32.fits(Type::U32, false));
        assert!(DataType::B32.fits(Type::F32, false));
        assert!(!DataType::B32.fits(Type::B64, false));
        assert!(DataType::U8.fits(Type::B32, true));
        assert!(DataType::F32.fits(Type::B64, true));
        assert!(!DataType::F32.fits(Type::F64, true));
        assert!(!DataType::F16.fits(Type::S16, false));
        assert!(DataType::F16x2.fits(Type::B32, false));
        assert!(!DataType::Pred.fits(Type::B32, true));
        assert!(!DataType::B32.fits(Type::Pred, true));
    }
}
