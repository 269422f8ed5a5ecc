//! The configuration: its keys, and where each value came from.
//!
//! **Owns** the table of keys ([`keys`]: from it come the types, the parser, the names in the
//! environment, the documentation and the template), the sources of values and their precedence
//! ([`load`]), what is wrong with a value ([`error`]), and how files that a user names are read
//! ([`bounded`]).
//!
//! **Must never know** what a value is used for, or how an error is drawn.
//!
//! **Invariants**
//! - Every key can be set in the file, in the environment and on the command line, by the same rules.
//! - Every value has an origin.
//! - An unknown key or a value out of range is an error that says where it is and what would be
//!   right; nothing is ignored.
//! - The template parses to the defaults.

pub mod bounded;
pub mod error;
pub mod keys;
pub mod load;
pub mod origin;
pub mod pattern;
pub mod size;
pub mod text;
mod toml_place;
pub mod value;

pub use error::Error;
pub use keys::Config;
pub use load::{Inputs, Loaded};
pub use origin::Origin;
