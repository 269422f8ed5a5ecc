//! The text format: what is printed is read back, what is wrong is said, nothing panics.

mod errors;
mod generate;
mod round_trip;
