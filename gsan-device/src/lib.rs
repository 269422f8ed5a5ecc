//! The device library: the code that runs on the GPU beside a kernel's own.
//!
//! # Owns
//! - the CUDA C++ sources. The headers in `include/gsan` mirror `gsan_core`'s compressed detector function by
//!   function, under the same names; `device/triton.cu` has the functions that Triton's
//!   instrumentation calls;
//! - the libraries built from them, which `cargo xtask device` writes to `built/`;
//! - the host build of the same sources, which the tests compile and run against `gsan_core`.
//!
//! # Must never know
//! How a library gets into a kernel, who sets up the state region, who reads the race ring. Memory
//! that others read is laid out by `gsan_core::layout` alone, through the generated header.
//!
//! # Invariants
//! - An access reads a cell without a lock, checks it, and stores at most one record. Word 0 of a
//!   cell changes by compare-and-swap only.
//! - What cannot be checked is counted; where it may have ordered something, everything counts as
//!   ordered from then on. A race is never invented.
//! - Nothing waits for another CTA, so nothing hangs that would not hang without the library. CTAs of a
//!   cluster wait for each other where the program has them meet, and not forever.
//! - A built library carries no module flags, which would clash with those of the kernel it is
//!   linked into, and follows from the sources alone: `cargo xtask device --check`.

#[cfg(feature = "host")]
pub mod host;

use gsan_core::address::Records;

/// The files whose names begin so.
macro_rules! files {
    ($name:literal) => {
        Files {
            whole: file!($name, ".bc"),
            in_kernel: file!($name, "-kernel.bc"),
            once: file!($name, "-once.ptx.gz"),
        }
    };
}

macro_rules! file {
    ($name:literal, $end:literal) => {
        (
            concat!($name, $end),
            include_bytes!(concat!("../built/", $name, $end)),
        )
    };
}

/// Where a library keeps the state of a CTA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StateMemory {
    /// In 1,024 bytes of static shared memory, which push the kernel's own up.
    Shared,
    /// In the state region, by SM: for kernels that need all shared memory, so that one CTA runs
    /// on an SM at a time.
    BySm,
}

/// One build of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Variant {
    /// Where the state of a CTA lies.
    pub state: StateMemory,
    /// How many records a cell has; must be those of the reservation.
    pub records: Records,
}

impl Variant {
    /// Every variant.
    pub const ALL: [Variant; 4] = {
        use Records::{Four, Two};
        use StateMemory::{BySm, Shared};
        [
            Variant::new(Shared, Four),
            Variant::new(Shared, Two),
            Variant::new(BySm, Four),
            Variant::new(BySm, Two),
        ]
    };

    /// The variant with these properties.
    pub const fn new(state: StateMemory, records: Records) -> Variant {
        Variant { state, records }
    }

    /// The names of its files in `built/`, and what they hold.
    pub const fn files(self) -> Files {
        match (self.state, self.records) {
            (StateMemory::Shared, Records::Four) => files!("gsan-shared-4"),
            (StateMemory::Shared, Records::Two) => files!("gsan-shared-2"),
            (StateMemory::BySm, Records::Four) => files!("gsan-by-sm-4"),
            (StateMemory::BySm, Records::Two) => files!("gsan-by-sm-2"),
        }
    }

    /// The name of the file in `built/` that holds the whole library.
    pub const fn file_name(self) -> &'static str {
        self.files().whole.0
    }

    /// LLVM bitcode with the functions that Triton's instrumentation calls, for sm_80 and later.
    pub const fn triton_library(self) -> &'static [u8] {
        self.files().whole.1
    }
}

/// The built files of a library: a name and what the file holds, each.
///
/// A kernel is linked with the whole library, or with its first part before it is assembled, and the
/// second after.
#[derive(Clone, Copy, Debug)]
pub struct Files {
    /// LLVM bitcode of all of it.
    pub whole: (&'static str, &'static [u8]),
    /// LLVM bitcode of what is compiled with each kernel. It calls the other part.
    pub in_kernel: (&'static str, &'static [u8]),
    /// PTX of what is compiled once for all kernels, for sm_80 and later, compressed by gzip.
    pub once: (&'static str, &'static [u8]),
}

impl Files {
    /// All of them.
    pub fn all(self) -> [(&'static str, &'static [u8]); 3] {
        [self.whole, self.in_kernel, self.once]
    }
}

/// PTX of the kernel [`STEPS_NAME`], which does the host's own work in streams: its arguments are the
/// address of `gsan_core::layout::Step`s and how many there are.
pub const STEPS: &str = include_str!("../built/steps.ptx");

/// The name of the kernel in [`STEPS`].
pub const STEPS_NAME: &str = "gsan_steps";

/// How many threads the kernel in [`STEPS`] is launched with, in one CTA.
pub const STEPS_THREADS: u32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_of_steps_is_ptx_and_has_its_name() {
        assert!(STEPS.contains(&format!(".entry {STEPS_NAME}(")));
        assert!(STEPS.contains(".target sm_80"));
    }

    #[test]
    fn every_library_is_what_it_says_and_differs_from_the_others() {
        for (index, variant) in Variant::ALL.into_iter().enumerate() {
            let files = variant.files();
            for (name, bitcode) in [files.whole, files.in_kernel] {
                assert!(bitcode.starts_with(b"BC\xc0\xde"), "{name}");
            }
            assert!(files.once.1.starts_with(b"\x1f\x8b"), "{variant:?}");
            for other in &Variant::ALL[..index] {
                for (file, others) in files.all().into_iter().zip(other.files().all()) {
                    assert_ne!(file.0, others.0);
                    assert_ne!(file.1, others.1, "{} and {}", file.0, others.0);
                }
            }
        }
    }
}
