//! PTX as text: from bytes to a syntax tree and back.

pub mod span;
