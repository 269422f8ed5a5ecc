//! Kernels as functions of the host: what they do to memory is checked as on a GPU, by the device
//! library's own code, in the same state region.
//!
//! A launch is work of its stream. Its CTAs are threads, of which one runs at a time (`baton`); which
//! one is chosen anew at each access, by a seed. `runner` takes streams forward, each in a thread of its
//! own; `kernel` runs a launch, `cta` is what its function is given; `order` says who may wait. Streams wait
//! as the ordering says, since there is no driver to do that.

mod baton;
mod cta;
mod files;
mod kernel;
pub(crate) mod order;
mod runner;
mod sms;

pub use cta::{AtomicOperation, HostCta};
pub(crate) use kernel::{Body, Kernel, Surroundings};
pub(crate) use runner::Runner;
pub(crate) use sms::Sms;
