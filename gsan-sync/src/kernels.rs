//! The work that the ordering itself puts into streams.
//!
//! It is a list of steps over memory of the state region. On a GPU a kernel does them, on the host
//! backend a function of the same meaning ([`HostKernels`]).

use std::fmt;

use gsan_vmm::backend::{Device, Result, Stream};

#[cfg(feature = "cuda")]
mod cuda;
mod host;

#[cfg(feature = "cuda")]
pub use cuda::CudaKernels;
pub use host::HostKernels;

/// A step. Addresses are those of devices; those of rows lie in state regions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Merges clock entries into others.
    Merge {
        /// The first entry merged into.
        target: u64,
        /// The first entry merged from.
        source: u64,
        /// How many there are.
        entries: u32,
        /// A word that is 0 while the source is empty; 0: there is none.
        source_filled: u64,
        /// A word that is set to 1 when an entry was merged; 0: there is none.
        target_filled: u64,
    },
    /// Writes words.
    Words {
        /// Where the first one goes.
        address: u64,
        /// The words.
        words: Box<[u64]>,
    },
    /// Says, after everything before this step, that a rank has come so far: a system-scope release.
    Arrive {
        /// The rank's count.
        count: u64,
        /// How far it has come.
        value: u32,
    },
    /// Waits until other ranks have come so far, with system-scope acquires. If the time limit passes,
    /// it says who is missing, and the steps after this one are left out.
    Await {
        /// The ranks and their counts.
        counts: Box<[(u16, u64)]>,
        /// How far they must have come; counts go around.
        value: u32,
        /// The time limit in nanoseconds.
        limit: u64,
        /// A word for the missing ranks, a bit each.
        missing: u64,
    },
    /// Writes zeroes.
    Zero {
        /// Where they start, a multiple of 8.
        address: u64,
        /// How many bytes, a multiple of 8.
        bytes: u64,
    },
    /// Counts up in words of 32 bits.
    Count {
        /// The first word.
        address: u64,
        /// Bytes from one word to the next.
        stride: u32,
        /// How many words.
        words: u32,
        /// What the first one becomes; each is one more than the one before.
        first: u32,
    },
}

/// Runs steps on streams.
pub trait Kernels: Send + Sync + fmt::Debug {
    /// Gets ready for `device`, when it is set up: [`Self::run`] waits for no other work then. Loading code
    /// may wait for every kernel that runs, and one of those may wait for what the program does next.
    ///
    /// # Errors
    /// When the device fails.
    fn prepare(&self, device: Device) -> Result<()> {
        let _ = device;
        Ok(())
    }

    /// Gives `steps` to a stream of `device`, as one piece of work: they are done in order, after
    /// everything that the stream was given before.
    ///
    /// # Errors
    /// When the stream is not one of the backend's, or the device fails. The stream was given
    /// nothing then.
    fn run(&self, device: Device, stream: Stream, steps: Vec<Step>) -> Result<()>;
}
