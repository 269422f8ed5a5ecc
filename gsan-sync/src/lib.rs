//! Ordering between kernels: what each launch starts after.
//!
//! # Owns
//! - the state region of each device of the process, and in it the *rows*: clocks that launches start
//!   with and complete into;
//! - streams, events and what the host knows, and the edges between launches that follow from them;
//! - launch numbers, descriptors and launch states.
//!
//! # Must never know
//! What kernels do, what a record or a race is, how a program is told of streams and events.
//!
//! # Rows
//! A stream's launches alternate between pairs of rows: the completion of one is the frontier of the
//! next, so launches that follow each other on a stream cost no copy. A pair that somebody else names
//! (an event, another stream's frontier, the host) is *pinned*: a `rows::Completion`, whose pair goes
//! back to its stream when nobody names it any more. Other streams' rows of their own banks are named
//! in a table by bank, and not copied. Only what cannot be named is joined, by steps that are put
//! into the consuming stream right before its launch.
//!
//! # Invariants
//! - Rows that somebody may still read are written by nobody but those whose completion they are.
//!   What launches in flight read is kept until a fence behind them has passed.
//! - A launch that was not given to its stream leaves no edge, and takes none away.
//! - No two streams are locked at once, except by the legacy default stream, which gets hold of the
//!   streams that wait for it in the order of their numbers.
//! - What cannot be kept for want of memory is taken for ordered, or runs unchecked.

#![deny(unsafe_code)]

mod banks;
mod blocks;
mod capture;
mod configuration;
mod devices;
mod dormant;
mod error;
mod event;
mod graph;
mod group;
mod host;
mod kernels;
mod launch;
mod launch_log;
mod names;
mod ordering;
pub mod ranks;
mod restart;
mod reuse;
mod rows;
mod settings;
mod state;
mod stream;
mod threads;
mod together;

pub use capture::CaptureId;
pub use configuration::Configuration;
pub use error::{Error, Held};
pub use graph::{NodeArguments, NodeId, Plan, PlanBuilder, Replay};
pub use group::{Arrival, Group};
pub use gsan_core::launch_log::LaunchRecord;
pub use host::{Edge, Reached};
#[cfg(feature = "cuda")]
pub use kernels::CudaKernels;
pub use kernels::{HostKernels, Kernels, Step};
pub use launch::{Launch, LaunchInfo};
pub use launch_log::LogMemory;
pub use ordering::{Counts, Ordering};
pub use restart::Idle;
pub use settings::Settings;
pub use stream::{Begun, StreamKey, StreamKind};
