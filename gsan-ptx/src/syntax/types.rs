//! The words for types and state spaces (PTX ISA, "Types" and "State Spaces").

macro_rules! words {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($variant:ident $word:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis enum $name {
            $(#[doc = concat!("`.", $word, "`")] $variant,)*
        }

        impl $name {
            /// All of them.
            $vis const ALL: &[$name] = &[$($name::$variant,)*];

            /// The word, without its dot.
            $vis const fn word(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)*
                }
            }

            /// What `word`, without its dot, stands for.
            $vis fn from_word(word: &str) -> Option<$name> {
                match word {
                    $($word => Some($name::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

/// Like `words`, for types: those that registers and instructions both have, and then more.
macro_rules! value_types {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($variant:ident $word:literal,)* }) => {
        $crate::syntax::types::words! {
            $(#[$meta])* $vis enum $name {
                B8 "b8",
                B16 "b16",
                B32 "b32",
                B64 "b64",
                B128 "b128",
                U8 "u8",
                U16 "u16",
                U32 "u32",
                U64 "u64",
                S8 "s8",
                S16 "s16",
                S32 "s32",
                S64 "s64",
                F16 "f16",
                F16x2 "f16x2",
                Bf16 "bf16",
                Bf16x2 "bf16x2",
                F32 "f32",
                F64 "f64",
                Pred "pred",
                $($variant $word,)*
            }
        }
    };
}

/// Types that are written with a dot before their word.
macro_rules! dotted {
    ($($name:ident)*) => {
        $(impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, ".{}", self.word())
            }
        })*
    };
}

pub(crate) use {dotted, value_types, words};

dotted!(Type StateSpace);

value_types! {
    /// The type of a register, variable or parameter.
    pub enum Type {
        Texref "texref",
        Samplerref "samplerref",
        Surfref "surfref",
    }
}

impl Type {
    /// How many bytes a value takes in memory; `None` for predicates and opaque references, which
    /// have no size.
    pub const fn bytes(self) -> Option<u32> {
        Some(match self {
            Type::B8 | Type::U8 | Type::S8 => 1,
            Type::B16 | Type::U16 | Type::S16 | Type::F16 | Type::Bf16 => 2,
            Type::B32 | Type::U32 | Type::S32 | Type::F32 | Type::F16x2 | Type::Bf16x2 => 4,
            Type::B64 | Type::U64 | Type::S64 | Type::F64 => 8,
            Type::B128 => 16,
            Type::Pred | Type::Texref | Type::Samplerref | Type::Surfref => return None,
        })
    }
}

words! {
    /// Where a variable lives.
    pub enum StateSpace {
        Reg "reg",
        Const "const",
        Global "global",
        Local "local",
        Param "param",
        Shared "shared",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_stands_for_what_it_names() {
        for &ty in Type::ALL {
            assert_eq!(Type::from_word(ty.word()), Some(ty));
        }
        for &space in StateSpace::ALL {
            assert_eq!(StateSpace::from_word(space.word()), Some(space));
        }
        assert_eq!(Type::from_word("u128"), None);
    }
}
