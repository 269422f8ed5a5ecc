//! Raw calls: a file mapped as words that other processes and devices share.

#![expect(unsafe_code, reason = "mapping memory is what this module is for")]

use std::os::fd::AsFd;
use std::ptr::with_exposed_provenance_mut;
use std::sync::atomic::AtomicU64;

use gsan_core::atomics::map_words64;
use rustix::io::Result;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// The first bytes of a file, mapped for reading and writing for as long as this lives.
#[derive(Debug)]
pub(crate) struct Mapping {
    address: usize,
    bytes: usize,
}

impl Mapping {
    /// Maps `bytes` bytes, whole pages. The file must not shrink while the mapping lives.
    pub(crate) fn new(file: impl AsFd, bytes: usize) -> Result<Mapping> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: without MAP_FIXED the kernel chooses a range that is not in use.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                access,
                MapFlags::SHARED,
                file,
                0,
            )?
        };
        Ok(Mapping {
            address: start.expose_provenance(),
            bytes,
        })
    }

    /// Where it starts.
    pub(crate) const fn address(&self) -> u64 {
        self.address as u64
    }

    /// Gives a range memory, so that a write to it finds some. Needs no descriptor, which the program may
    /// have closed. `INVAL` before Linux 5.14, whose madvise(2) has no MADV_POPULATE_WRITE.
    pub(crate) fn populate(&self, offset: u64, bytes: u64) -> Result<()> {
        let page = rustix::param::page_size();
        let start = (offset as usize).min(self.bytes) / page * page;
        let end = (offset.saturating_add(bytes) as usize).min(self.bytes);
        let first = with_exposed_provenance_mut(self.address + start);
        // SAFETY: the range is part of the mapping, and no byte of it changes.
        unsafe { madvise(first, end.saturating_sub(start), Advice::LinuxPopulateWrite) }
    }

    /// All of it.
    pub(crate) const fn words(&self) -> &[AtomicU64] {
        // SAFETY: the range stays mapped while this lives and is aligned to a page; in this process
        // nobody reaches it but through words, and devices access words.
        unsafe { map_words64(with_exposed_provenance_mut(self.address), self.bytes / 8) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped for this mapping, which nobody borrows any more.
        let unmapped = unsafe { munmap(with_exposed_provenance_mut(self.address), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}
