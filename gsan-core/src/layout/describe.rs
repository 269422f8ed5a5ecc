//! Structures and constants that know how C spells them.

/// A type that C spells.
pub trait CType {
    /// A C declaration of `name` with this type.
    fn declare(name: &str) -> String;
}

macro_rules! c_integer {
    ($($rust:ty => $c:literal),*) => {
        $(impl CType for $rust {
            fn declare(name: &str) -> String {
                format!(concat!($c, " {}"), name)
            }
        })*
    };
}

c_integer!(u8 => "uint8_t", u16 => "uint16_t", u32 => "uint32_t", u64 => "uint64_t");

impl<T: CType, const N: usize> CType for [T; N] {
    fn declare(name: &str) -> String {
        T::declare(&format!("{name}[{N}]"))
    }
}

/// A member of a structure.
#[derive(Clone, Debug)]
pub struct Field {
    /// Its name, the same in Rust and C.
    pub name: &'static str,
    /// Bytes from the start of the structure.
    pub offset: usize,
    /// Its size in bytes.
    pub size: usize,
    /// Its C declaration.
    pub declaration: String,
    /// What it is, line by line.
    pub doc: &'static [&'static str],
}

/// A structure as C sees it.
#[derive(Clone, Debug)]
pub struct Structure {
    /// Its C name, without `struct`.
    pub name: &'static str,
    /// Its size in bytes.
    pub size: usize,
    /// Its alignment in bytes.
    pub align: usize,
    /// Its members, in the order of their offsets.
    pub fields: Vec<Field>,
    /// What it is, line by line.
    pub doc: &'static [&'static str],
}

/// A number that C needs too.
#[derive(Clone, Copy, Debug)]
pub struct Constant {
    /// Its C name.
    pub name: &'static str,
    /// Its value.
    pub value: u64,
    /// Its size in bytes: 4 or 8.
    pub size: usize,
    /// What it is, line by line.
    pub doc: &'static [&'static str],
}

/// Defines a `repr(C)` structure, its description, and checks its size.
macro_rules! structure {
    (
        $(#[doc = $doc:literal])*
        pub struct $name:ident = $c_name:literal, size $size:literal, align $align:literal {
            $($(#[doc = $field_doc:literal])* pub $field:ident: $type:ty,)*
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
        #[repr(C, align($align))]
        pub struct $name {
            $($(#[doc = $field_doc])* pub $field: $type,)*
        }

        const _: () = assert!(size_of::<$name>() == $size);

        impl $name {
            /// The structure as C sees it.
            pub fn describe() -> $crate::layout::Structure {
                $crate::layout::Structure {
                    name: $c_name,
                    size: size_of::<$name>(),
                    align: align_of::<$name>(),
                    fields: vec![$($crate::layout::Field {
                        name: stringify!($field),
                        offset: core::mem::offset_of!($name, $field),
                        size: size_of::<$type>(),
                        declaration: <$type as $crate::layout::CType>::declare(
                            stringify!($field),
                        ),
                        doc: &[$($field_doc),*],
                    }),*],
                    doc: &[$($doc),*],
                }
            }
        }

        impl $crate::layout::CType for $name {
            fn declare(name: &str) -> String {
                format!(concat!("struct ", $c_name, " {}"), name)
            }
        }
    };
}

/// Defines constants, and lists them for the C header with a prefix before each name.
macro_rules! constants {
    ($prefix:literal: $($(#[doc = $doc:literal])* pub const $name:ident: $type:ty = $value:expr;)*) => {
        $($(#[doc = $doc])* pub const $name: $type = $value;)*

        /// All constants of this module, for the C header.
        pub(crate) const CONSTANTS: &[$crate::layout::Constant] = &[
            $($crate::layout::Constant {
                name: concat!($prefix, stringify!($name)),
                value: $name as u64,
                size: size_of::<$type>(),
                doc: &[$($doc),*],
            }),*
        ];
    };
}
