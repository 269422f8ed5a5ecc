//! From text to program: what is printed is read back, what is wrong is said, nothing panics, and
//! instructions mean what the PTX ISA says.

mod generate;
mod program;
mod program_errors;
mod round_trip;
mod syntax_errors;
