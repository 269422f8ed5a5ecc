//! Raw calls: a reserved range of this process's addresses, and what is mapped into it.

use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::with_exposed_provenance_mut;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::io::{Errno, Result};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap};

/// A range of addresses that nobody else in the process uses: everything in it is either
/// inaccessible or was mapped by [`Reserved::map`]. Dropping it unmaps all of it.
///
/// No Rust reference ever points into it, so changing what is mapped there breaks none.
#[derive(Debug)]
pub(super) struct Reserved {
    address: u64,
    bytes: u64,
}

/// What a reserved range is when nothing is mapped there: it costs no memory and no swap.
const EMPTY: MapFlags = MapFlags::PRIVATE.union(MapFlags::NORESERVE);

impl Reserved {
    /// Reserves `bytes` at a multiple of `alignment`, a power of two and at least a page; `bytes`
    /// must be whole pages.
    pub(super) fn new(bytes: u64, alignment: u64) -> Result<Reserved> {
        let length = bytes.checked_add(alignment).ok_or(Errno::NOMEM)? as usize;
        // SAFETY: without MAP_FIXED the kernel chooses a range that is not in use.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), length, ProtFlags::empty(), EMPTY)? };
        let start = start.expose_provenance() as u64;
        let address = start.next_multiple_of(alignment);
        let end = start + length as u64;
        // What lies before and behind the aligned range goes back. Failing to trim costs addresses
        // only.
        for (from, to) in [(start, address), (address + bytes, end)] {
            if from < to {
                // SAFETY: the range was mapped above and nobody knows it yet.
                let trimmed = unsafe { munmap(pointer(from), (to - from) as usize) };
                debug_assert!(trimmed.is_ok());
            }
        }
        Ok(Reserved { address, bytes })
    }

    pub(super) fn address(&self) -> u64 {
        self.address
    }

    /// Maps the start of a file, accessible to nobody.
    pub(super) fn map(&mut self, address: u64, bytes: u64, file: BorrowedFd<'_>) -> Result<()> {
        self.check(address, bytes)?;
        let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: the range lies in this reservation, where no reference points.
        unsafe {
            mmap(
                pointer(address),
                bytes as usize,
                ProtFlags::empty(),
                flags,
                file,
                0,
            )?;
        }
        Ok(())
    }

    /// Makes a range accessible.
    pub(super) fn allow(&mut self, address: u64, bytes: u64) -> Result<()> {
        self.check(address, bytes)?;
        let access = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: the range lies in this reservation, where no reference points.
        unsafe { mprotect(pointer(address), bytes as usize, access) }
    }

    /// Makes a range inaccessible and forgets what was mapped there, without ever letting go of
    /// the addresses.
    pub(super) fn unmap(&mut self, address: u64, bytes: u64) -> Result<()> {
        self.check(address, bytes)?;
        // SAFETY: the range lies in this reservation, where no reference points.
        unsafe {
            mmap_anonymous(
                pointer(address),
                bytes as usize,
                ProtFlags::empty(),
                EMPTY | MapFlags::FIXED,
            )?;
        }
        Ok(())
    }

    /// Everything `unsafe` here rests on this: the range lies in the reservation.
    fn check(&self, address: u64, bytes: u64) -> Result<()> {
        let inside = address >= self.address
            && bytes <= self.bytes
            && address - self.address <= self.bytes - bytes;
        inside.then_some(()).ok_or(Errno::INVAL)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // SAFETY: the range is this reservation's own, and no reference points into it.
        let unmapped = unsafe { munmap(pointer(self.address), self.bytes as usize) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Words of a memory file, mapped once more, for as long as this lives.
#[derive(Debug)]
pub struct View {
    address: u64,
    bytes: u64,
}

impl View {
    pub(super) fn new(file: impl AsFd, offset: u64, bytes: u64) -> Result<View> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let (length, flags) = (bytes as usize, MapFlags::SHARED | MapFlags::NORESERVE);
        // SAFETY: without MAP_FIXED the kernel chooses a range that is not in use.
        let start = unsafe { mmap(std::ptr::null_mut(), length, access, flags, file, offset)? };
        let address = start.expose_provenance() as u64;
        Ok(View { address, bytes })
    }

    /// All of it as words of 32 bits.
    pub fn words32(&self) -> &[AtomicU32] {
        let words = (self.bytes / 4) as usize;
        // SAFETY: the range is mapped while this lives, backed by a file whose size is sealed, and
        // aligned to a page; nobody reaches it but through words.
        unsafe { std::slice::from_raw_parts(pointer(self.address).cast(), words) }
    }

    /// All of it as words of 64 bits.
    pub fn words64(&self) -> &[AtomicU64] {
        let words = (self.bytes / 8) as usize;
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(pointer(self.address).cast(), words) }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: the range was mapped for this view, which nobody borrows any more.
        let unmapped = unsafe { munmap(pointer(self.address), self.bytes as usize) };
        debug_assert!(unmapped.is_ok());
    }
}

fn pointer(address: u64) -> *mut core::ffi::c_void {
    with_exposed_provenance_mut(address as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_outside_the_reservation_are_refused() {
        let mut reserved = Reserved::new(1 << 16, 1 << 16).unwrap();
        let start = reserved.address();
        assert_eq!(start % (1 << 16), 0);
        for (address, bytes) in [
            (start - 4096, 4096),
            (start + (1 << 16), 4096),
            (start + 4096, 1 << 16),
            (0, u64::MAX),
            (u64::MAX, 2),
        ] {
            assert_eq!(reserved.unmap(address, bytes), Err(Errno::INVAL));
            assert_eq!(reserved.allow(address, bytes), Err(Errno::INVAL));
        }
        assert_eq!(Reserved::new(u64::MAX, 4096).unwrap_err(), Errno::NOMEM);
    }
}
