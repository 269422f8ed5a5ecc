//! Address space, allocation, shadow memory and sharing between processes.
//!
//! **Owns** the process's two reservations (one for real and shadow memory, one for the runtime
//! state of every device rank), the [`Allocator`] that hands out real memory with its shadow, the
//! thread that gives memory back once its stream has passed the free, the handles by which
//! processes share memory ([`share`]) and the meeting at which they pass them ([`rendezvous`]),
//! and the two memory systems all of it runs on ([`backend`]).
//!
//! **Must never know** what a record or a clock is, what is launched, or what a race is: shadow
//! and runtime state are ranges of bytes here. Where shadow lies is said by
//! [`gsan_core::address`].
//!
//! **Start** with a backend ([`backend::host::HostBackend`], or `backend::cuda::CudaBackend` with
//! the feature `cuda`) and an [`Allocator`] over it. An address is a plain `u64`, a device its
//! number, a stream a [`backend::Stream`]:
//!
//! ```
//! use std::sync::Arc;
//! use gsan_vmm::backend::host::{HostBackend, HostOptions};
//! use gsan_vmm::backend::{Device, Stream};
//! use gsan_vmm::{Allocator, Options};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let backend = Arc::new(HostBackend::new(HostOptions::default())?);
//! let allocator = Allocator::new(backend, Options::default())?;
//! let address = allocator.allocate(1 << 20, Device(0))?;
//! let allocation = allocator.find(address + 5).expect("it is live");
//! // Only managed memory has shadow.
//! assert!(allocation.managed);
//! let cell = allocator.space().shadow(address);
//! assert!(cell < allocator.space().real_base());
//! // Returns at once; the memory goes when the stream has come that far.
//! allocator.free(address, None, Stream::DEFAULT)?;
//! allocator.flush();
//! assert!(allocator.is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! Sharing goes [`Allocator::export`], [`share::SharedAllocation::into_parcel`],
//! [`rendezvous::Rendezvous::exchange`], [`share::SharedAllocation::from_parcel`],
//! [`Allocator::import`]; `examples/share.rs` is the whole of it with two processes.
//!
//! **Invariants**
//! - Shadow is zero when an allocation is handed out, and memory without shadow lies outside the
//!   reservation, so that the arithmetic of device code never leads to memory that is not mapped.
//! - An address range is handed out again only after the memory behind it has been unmapped, and
//!   that happens only after the stream has passed the free.
//! - An operation that fails leaves nothing behind. What the backend does not let go of stays
//!   taken, and is tried again.
//! - No lock is held across a call of the backend, and no two locks at once.
//! - `unsafe` is in `backend` alone, around system calls and driver functions.

mod allocator;
pub mod backend;
pub mod buddy;
mod deadline;
mod error;
mod handle_type;
mod owned;
mod reclaim;
pub mod rendezvous;
pub mod share;
mod size;

pub use allocator::{Allocation, Allocator, Options, STATE_RANKS, STATE_STRIDE, Usage};
pub use error::Error;
pub use handle_type::HandleType;
pub use size::Bytes;
