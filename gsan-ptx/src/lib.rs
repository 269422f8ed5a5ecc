//! PTX on the CPU: kernels run under many schedules, and their races are found.
//!
//! **Owns** the PTX text format ([`syntax`]), the decoded program that is executed, the
//! interpreter with its schedules, and the driver that turns a kernel and its arguments into
//! findings.
//!
//! **Must never know** GPUs or drivers: nothing here needs one. It knows the detector only as
//! [`gsan_core::event::Detector`] and as races.
//!
//! **Invariants**
//! - No input makes it panic, recurse without bound, or run without end.
//! - What it cannot execute is refused, by name and place, before anything runs; nothing is
//!   skipped or guessed.
//! - An execution is a function of program, arguments and seed: the same three give the same
//!   events in the same order, on any machine.

pub mod alu;
pub mod check;
pub mod diagnostic;
pub mod exec;
pub mod lower;
pub mod program;
pub mod syntax;
