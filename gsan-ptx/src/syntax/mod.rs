//! PTX as text: from bytes to a syntax tree and back.

pub mod ast;
mod lexer;
mod parser;
mod printer;
pub mod span;
pub mod types;

pub use parser::{MAX_NESTING, parse};
