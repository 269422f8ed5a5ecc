//! Global memory: what the host allocated and the variables of the module; and the generic
//! address space around it.

use crate::exec::pages::{Pages, Recent};
use crate::program::Program;
use crate::program::ir::MemorySpace;
use crate::program::symbols::RelocationTarget;
use gsan_core::ids::DeviceRank;
use std::collections::BTreeSet;

/// The address of the first buffer.
const BUFFERS: u64 = 0x10_0000_0000;

/// The most bytes that all buffers have together, gaps included.
const BUFFER_SPACE: u64 = 1 << 44;

/// Unmapped bytes between two buffers at least, so that running off one is noticed.
const GUARD: u64 = 64 << 10;

/// The alignment of buffers, that of `cudaMalloc`.
const ALIGNMENT: u64 = 256;

/// The module's variables on device 0; each further device follows.
const DATA: u64 = 0x7000_0000_0000;

/// Addresses of functions.
const FUNCTIONS: u64 = 0x7c00_0000_0000;

/// Windows of the generic address space onto spaces of one CTA or thread.
const PARAM_WINDOW: u64 = 0x7d00_0000_0000;
const SHARED_WINDOW: u64 = 0x7e00_0000_0000;
const LOCAL_WINDOW: u64 = 0x7f00_0000_0000;

/// The size of each window.
const WINDOW: u64 = 1 << 32;

/// The generic address of a function.
pub(super) fn function_address(number: u32) -> u64 {
    FUNCTIONS + u64::from(number) * 16
}

/// The space and the address in it that a generic address stands for.
pub(super) fn from_generic(address: u64) -> (MemorySpace, u64) {
    for (start, space) in [
        (SHARED_WINDOW, MemorySpace::Shared),
        (LOCAL_WINDOW, MemorySpace::Local),
        (PARAM_WINDOW, MemorySpace::Param),
    ] {
        if address.wrapping_sub(start) < WINDOW {
            return (space, address - start);
        }
    }
    (MemorySpace::Global, address)
}

/// The generic address of an address in a space. Addresses outside the space stay outside.
pub(super) fn to_generic(space: MemorySpace, address: u64) -> u64 {
    match space {
        MemorySpace::Shared => SHARED_WINDOW.wrapping_add(address),
        MemorySpace::Local => LOCAL_WINDOW.wrapping_add(address),
        MemorySpace::Param => PARAM_WINDOW.wrapping_add(address),
        MemorySpace::Generic | MemorySpace::Global | MemorySpace::Const => address,
    }
}

/// A stretch of addresses that may be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Allocation {
    start: u64,
    bytes: u64,
    read_only: bool,
}

impl Allocation {
    fn end(&self) -> u64 {
        self.start + self.bytes
    }
}

/// Buffers and their contents before the first launch. Only bytes that were written take memory.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// By ascending address.
    allocations: Vec<Allocation>,
    /// Where the next buffer goes at the earliest.
    next: u64,
    pages: Pages,
}

/// More bytes than the address space has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a buffer of {0} bytes does not fit: all buffers together have at most 16 TiB")]
pub struct OutOfAddresses(pub u64);

/// Addresses at which there can be no buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no room for a buffer of {bytes} bytes at {address:#x}: {why}")]
pub struct BadPlace {
    /// The first byte.
    pub address: u64,
    /// How many bytes.
    pub bytes: u64,
    /// What is there.
    pub why: &'static str,
}

impl Image {
    /// Allocates a buffer of zeros, aligned to 256 bytes, and returns its address.
    ///
    /// # Errors
    /// All buffers together may have at most 16 TiB, gaps included.
    pub fn allocate(&mut self, bytes: u64) -> Result<u64, OutOfAddresses> {
        if bytes > BUFFER_SPACE {
            return Err(OutOfAddresses(bytes));
        }
        let mut start = self.next.max(BUFFERS);
        let behind = |end: u64| (end + GUARD).next_multiple_of(ALIGNMENT);
        let first = self
            .allocations
            .partition_point(|a| a.end() + GUARD <= start);
        for placed in &self.allocations[first..] {
            if start + bytes + GUARD > placed.start {
                start = behind(placed.end());
            }
        }
        if start + bytes > BUFFERS + BUFFER_SPACE {
            return Err(OutOfAddresses(bytes));
        }
        self.insert(start, bytes);
        self.next = behind(start + bytes);
        Ok(start)
    }

    /// Makes a buffer of zeros where the program expects one. Buffers that were placed come
    /// before those that are allocated.
    ///
    /// # Errors
    /// Buffers do not overlap, and lie below 0x7000_0000_0000, but not at 0.
    pub fn place(&mut self, address: u64, bytes: u64) -> Result<(), BadPlace> {
        let end = address.checked_add(bytes).filter(|&end| end <= DATA);
        let why = match end {
            _ if address == 0 => "null is no address of anything",
            None => "buffers lie below 0x700000000000",
            Some(end) => {
                let taken = self
                    .allocations
                    .iter()
                    .any(|other| address < other.end() && other.start < end);
                if !taken {
                    self.insert(address, bytes);
                    return Ok(());
                }
                "there is another buffer"
            }
        };
        Err(BadPlace {
            address,
            bytes,
            why,
        })
    }

    fn insert(&mut self, start: u64, bytes: u64) {
        let index = self.allocations.partition_point(|a| a.start <= start);
        let allocation = Allocation {
            start,
            bytes,
            read_only: false,
        };
        self.allocations.insert(index, allocation);
    }

    /// Reads initial contents; bytes outside buffers are 0 unless they were written.
    pub fn read(&self, address: u64, into: &mut [u8]) {
        self.pages.read_over(&Pages::default(), address, into);
    }

    /// Writes initial contents. Bytes outside buffers can never be read by a kernel.
    pub fn write(&mut self, address: u64, bytes: &[u8]) {
        self.pages.write(address, bytes);
    }
}

/// Global memory of one run. It takes memory for what was written only.
#[derive(Clone, Debug)]
pub struct Memory<'a> {
    image: &'a Image,
    /// By ascending address.
    allocations: Vec<Allocation>,
    pages: Pages,
    data_stride: u64,
    /// The allocation that the last access hit.
    last: usize,
    recent: Recent,
}

/// Why an access cannot be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Not inside one allocation; the allocation that starts last before it.
    OutOfBounds { nearest: Option<(u64, u64)> },
    /// It writes to constants.
    ReadOnly,
}

impl<'a> Memory<'a> {
    /// The image, and the variables of the program for each of the devices.
    pub(super) fn new(
        image: &'a Image,
        program: &Program,
        devices: &BTreeSet<DeviceRank>,
    ) -> Memory<'a> {
        let mut memory = Memory {
            image,
            allocations: image.allocations.clone(),
            pages: Pages::default(),
            data_stride: (program.data.bytes + GUARD).next_multiple_of(ALIGNMENT),
            last: 0,
            recent: Recent::default(),
        };
        for &device in devices {
            memory.place_data(program, device);
        }
        memory
    }

    fn place_data(&mut self, program: &Program, device: DeviceRank) {
        let base = self.data_base(device);
        for variable in &program.data.variables {
            self.allocations.push(Allocation {
                start: base + variable.offset,
                bytes: variable.bytes,
                read_only: variable.constant,
            });
            self.write(base + variable.offset, &variable.init);
        }
        for relocation in &program.data.relocations {
            let address = match relocation.target {
                RelocationTarget::Data(offset) => base + offset,
                RelocationTarget::Function(function) => function_address(function.0),
            };
            self.write(base + relocation.at, &address.to_le_bytes());
        }
    }

    /// Where the module's variables begin on a device.
    pub(super) fn data_base(&self, device: DeviceRank) -> u64 {
        DATA + u64::from(device.0) * self.data_stride
    }

    /// Reads bytes; those outside allocations are 0.
    pub fn read(&self, address: u64, into: &mut [u8]) {
        self.pages
            .read_again(&self.recent, &self.image.pages, address, into);
    }

    /// Writes bytes, whether or not they are allocated.
    pub(super) fn write(&mut self, address: u64, bytes: &[u8]) {
        self.pages
            .write_again(&self.recent, &self.image.pages, address, bytes);
    }

    /// Whether `bytes` bytes at `address` lie in one allocation.
    #[inline]
    pub(super) fn check(&mut self, address: u64, bytes: u64, write: bool) -> Result<(), Refusal> {
        let holds = |a: &Allocation| {
            let offset = address.wrapping_sub(a.start);
            offset < a.bytes && bytes <= a.bytes - offset
        };
        if !self.allocations.get(self.last).is_some_and(holds) {
            let after = self.allocations.partition_point(|a| a.start <= address);
            let before = after
                .checked_sub(1)
                .map(|index| (index, &self.allocations[index]));
            match before {
                Some((index, allocation)) if holds(allocation) => self.last = index,
                _ => {
                    return Err(Refusal::OutOfBounds {
                        nearest: before.map(|(_, a)| (a.start, a.bytes)),
                    });
                }
            }
        }
        if write && self.allocations[self.last].read_only {
            return Err(Refusal::ReadOnly);
        }
        Ok(())
    }

    /// Whether the byte belongs to a constant.
    pub(super) fn is_read_only(&mut self, address: u64) -> bool {
        self.check(address, 1, true) == Err(Refusal::ReadOnly)
    }

    /// How many bytes this run keeps beside the image.
    pub fn resident_bytes(&self) -> u64 {
        self.pages.resident_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(image: &Image) -> Memory<'_> {
        Memory::new(image, &Program::default(), &BTreeSet::new())
    }

    #[test]
    fn a_buffer_is_zero_until_it_is_written() {
        let mut image = Image::default();
        let a = image.allocate(10_000).unwrap();
        image.write(a + 4090, &[1; 12]);
        let mut memory = memory(&image);
        memory.write(a + 4096, &[2, 3]);
        let mut bytes = [9; 14];
        memory.read(a + 4089, &mut bytes);
        assert_eq!(bytes, [0, 1, 1, 1, 1, 1, 1, 2, 3, 1, 1, 1, 1, 0]);
    }

    #[test]
    fn memory_grows_with_bytes_written_not_allocated() {
        let mut image = Image::default();
        let a = image.allocate(1 << 40).unwrap();
        let mut memory = memory(&image);
        memory.write(a + (1 << 39), &[1]);
        let mut byte = [0];
        memory.read(a, &mut byte);
        assert_eq!(memory.resident_bytes(), 4096);
    }

    #[test]
    fn buffers_are_apart_and_aligned() {
        let mut image = Image::default();
        let a = image.allocate(1).unwrap();
        let b = image.allocate(0).unwrap();
        let c = image.allocate(4).unwrap();
        assert!(a % 256 == 0 && b % 256 == 0 && c % 256 == 0);
        assert!(b >= a + 1 + GUARD && c >= b + GUARD);
        let mut memory = memory(&image);
        assert_eq!(memory.check(a, 1, true), Ok(()));
        let outside = Refusal::OutOfBounds {
            nearest: Some((a, 1)),
        };
        assert_eq!(memory.check(a, 2, true), Err(outside));
        assert_eq!(memory.check(a + 1, 1, false), Err(outside));
        assert_eq!(
            memory.check(0, 4, false),
            Err(Refusal::OutOfBounds { nearest: None })
        );
        assert_eq!(
            memory.check(u64::MAX, 4, false),
            Err(Refusal::OutOfBounds {
                nearest: Some((c, 4))
            })
        );
    }

    #[test]
    fn more_buffers_than_addresses_are_refused() {
        let mut image = Image::default();
        assert_eq!(image.allocate(1 << 45), Err(OutOfAddresses(1 << 45)));
        image.allocate(1 << 43).unwrap();
        assert_eq!(image.allocate(1 << 43), Err(OutOfAddresses(1 << 43)));
    }

    #[test]
    fn buffers_are_placed_where_they_are_wanted() {
        let mut image = Image::default();
        image.place(BUFFERS + (1 << 20), 4096).unwrap();
        image.place(0x2000, 8).unwrap();
        // It fits before the placed one, the next one does not.
        assert_eq!(image.allocate(4096), Ok(BUFFERS));
        assert_eq!(
            image.allocate(1 << 20),
            Ok(BUFFERS + (1 << 20) + 4096 + GUARD)
        );
        image.write(0x2004, &[7]);
        let mut memory = memory(&image);
        assert_eq!(memory.check(0x2000, 8, true), Ok(()));
        assert_eq!(memory.check(BUFFERS + (1 << 20) + 4092, 4, true), Ok(()));
        let mut byte = [0];
        memory.read(0x2004, &mut byte);
        assert_eq!(byte, [7]);
        for (address, bytes, why) in [
            (0, 8, "null is no address of anything"),
            (0x2004, 8, "there is another buffer"),
            (DATA - 4, 8, "buffers lie below 0x700000000000"),
            (u64::MAX, 8, "buffers lie below 0x700000000000"),
        ] {
            let error = image.place(address, bytes).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("there is no room for a buffer of {bytes} bytes at {address:#x}: {why}")
            );
        }
    }

    #[test]
    fn windows_of_the_generic_space() {
        for space in [MemorySpace::Shared, MemorySpace::Local, MemorySpace::Param] {
            assert_eq!(from_generic(to_generic(space, 0x123)), (space, 0x123));
        }
        assert_eq!(from_generic(BUFFERS), (MemorySpace::Global, BUFFERS));
        assert_eq!(from_generic(0), (MemorySpace::Global, 0));
    }
}
