//! One process's session: what is allocated, launched and named, and what came of it.
//!
//! # Owns
//! - the session ([`session`]): started from the configuration at its first use, over the GPUs or over
//!   the host's own memory. Allocations, streams, launches, events, graphs and groups go through it;
//! - the process's one session ([`process`]): how it is configured, started, reset and finished, and what
//!   becomes of it in a forked child;
//! - the process's part of a report ([`part`]), which outlives it, how its race ring is drained ([`drain`]),
//!   and how the parts of a run's processes become one report ([`run`]);
//! - kernels as functions of the host ([`host`]), which show races without a GPU.
//!
//! # Must never know
//! How a program calls it (the C ABI translates), how a report is drawn, what a record or a clock is.
//!
//! # Invariants
//! - Any thread may call at any time.
//! - Nothing that a program does wrong makes it panic: a call is refused, says why, and changes nothing.
//! - Memory that a correct program needs is not refused for want of shadow.
//! - What is not checked is counted.

#![deny(unsafe_code)]

pub mod doctor;
pub mod drain;
pub mod error;
pub mod findings;
pub mod host;
mod lowest;
pub mod opaque;
pub mod part;
pub mod process;
pub mod run;
pub mod run_directory;
pub mod session;
pub mod telling;
pub mod whole_file;
pub mod written;

pub use error::{Error, Kind};
pub use session::Session;
