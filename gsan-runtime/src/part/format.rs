//! What is in a part, and where.
//!
//! A part is words of 64 bits: a [`Header`], then the sections that it names. What grows is never
//! changed once it is said to be there, except for counts. So a reader needs no lock, and what a
//! process left that died at any instruction is a part, too.

use std::mem::offset_of;

use bytemuck::{Pod, Zeroable};
use gsan_core::atomics::Native;
use gsan_core::launch_log::LaunchLog;
use gsan_core::layout::{RaceEntry, limits};
use gsan_core::loss::Loss;
use gsan_core::race_ring::RaceRing;
use gsan_core::site_mirror::SiteMirror;

/// The first word of a part.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"GSANPART");

/// The version of the format, above it that of the structures that devices write.
pub(crate) const VERSION: u64 = 1 | (limits::VERSION as u64) << 32;

/// Sections start at multiples of this: whole pages on every machine, since the driver makes whole
/// pages accessible to devices.
pub(crate) const UNIT: u64 = 1 << 16;

/// The most devices of a process.
pub(crate) const MAX_DEVICES: usize = limits::MAX_DEVICES as usize;

/// States of a process.
pub(crate) mod state {
    /// It runs, or has ended without a word.
    pub(crate) const ALIVE: u64 = 1;
    /// It has drained everything and said so.
    pub(crate) const FINISHED: u64 = 2;
}

/// Entries that lie one behind the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Section {
    /// Bytes from the start of the part.
    pub(crate) offset: u64,
    /// How many entries there is room for; of texts, bytes.
    pub(crate) count: u64,
}

/// What belongs to one device of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct DeviceSections {
    /// Its rank.
    pub(crate) rank: u64,
    /// The [`SiteMirror`].
    pub(crate) sites: Section,
    /// The [`LaunchLog`].
    pub(crate) launches: Section,
}

/// What the process has checked, and what it has lost, as the draining thread last saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Checked {
    /// How often each limit was met, by its number.
    pub(crate) losses: [u64; 32],
    /// Launches of checked kernels.
    pub(crate) launches: u64,
    /// Accesses that were checked.
    pub(crate) accesses: u64,
    /// Bytes of memory that has a shadow.
    pub(crate) covered_bytes: u64,
    /// Bytes of memory that was handed out without.
    pub(crate) uncovered_bytes: u64,
    /// The seed of sampling.
    pub(crate) seed: u64,
}

const _: () = assert!(Loss::COUNT <= 32);

/// The start of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Header {
    /// [`MAGIC`], written last.
    pub(crate) magic: u64,
    /// [`VERSION`].
    pub(crate) version: u64,
    /// The size of the part in bytes.
    pub(crate) bytes: u64,
    /// The process.
    pub(crate) pid: u64,
    /// When the system says that it started: with it, a process that has the number of an earlier one
    /// is told apart.
    pub(crate) start_time: u64,
    /// [`state`].
    pub(crate) state: u64,
    /// When the part was made, and when the process said that it has finished: nanoseconds since 1970.
    pub(crate) made: u64,
    pub(crate) ended: u64,
    /// How many devices the process has.
    pub(crate) devices: u64,
    /// Its command line: arguments, each with a NUL behind it.
    pub(crate) command: Section,
    /// Texts, each at a multiple of 8 bytes.
    pub(crate) texts: Section,
    /// [`Kernel`] by number.
    pub(crate) kernels: Section,
    /// [`Allocation`], in no order.
    pub(crate) allocations: Section,
    /// [`Found`], in the order in which they were found.
    pub(crate) found: Section,
    /// The [`RaceRing`].
    pub(crate) ring: Section,
    pub(crate) device: [DeviceSections; MAX_DEVICES],
    /// How many races were found, each once since races were forgotten.
    pub(crate) found_count: u64,
    /// Races that found no room, duplicates included.
    pub(crate) overflow: u64,
    /// The entry of the ring that is being counted: its stamp, the race that it belongs to, and how
    /// often that was seen before. If the entry's place was not given back, it counts from the ring.
    pub(crate) journal: [u64; 3],
    /// How many allocations were ever known at once.
    pub(crate) allocation_count: u64,
    pub(crate) checked: Checked,
    pub(crate) reserved: [u64; 32],
}

const _: () = assert!(size_of::<Header>() == 2048);

/// A word of the header.
macro_rules! word {
    ($($field:tt)+) => {
        std::mem::offset_of!($crate::part::format::Header, $($field)+) / 8
    };
}
pub(crate) use word;

/// A text: where it starts among the texts, and how many bytes it has. 0: there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Text {
    pub(crate) start: u32,
    pub(crate) bytes: u32,
}

impl Text {
    /// Longer texts are cut.
    pub(crate) const MAX_BYTES: usize = 4096;
}

/// A kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Kernel {
    pub(crate) name: Text,
    /// Why its races are only possible, if they are.
    pub(crate) opaque: Text,
    pub(crate) reserved: [u64; 2],
}

/// Memory that the program has or had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Allocation {
    /// Its first address, written last; 0: there is none.
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    /// 1 until it is freed.
    pub(crate) live: u64,
    pub(crate) reserved: u64,
}

/// What is known of one side of a race, beside the entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct FoundSide {
    pub(crate) file: Text,
    pub(crate) kernel: Text,
    pub(crate) opaque: Text,
    pub(crate) stream: u64,
    pub(crate) line: u32,
    pub(crate) grid: [u32; 3],
    /// [`FoundSide::LAUNCH`], [`FoundSide::OPAQUE`].
    pub(crate) flags: u64,
}

impl FoundSide {
    /// Stream and grid are known.
    pub(crate) const LAUNCH: u64 = 1;
    /// Its kernel contains synchronisation that nobody reports.
    pub(crate) const OPAQUE: u64 = 2;
}

/// A race with all that it takes to tell of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Found {
    /// How often it was seen.
    pub(crate) times: u64,
    /// The allocation, if its size is not 0.
    pub(crate) allocation: u64,
    pub(crate) allocation_bytes: u64,
    pub(crate) reserved: u64,
    /// As a device wrote it.
    pub(crate) entry: [u64; 8],
    pub(crate) earlier: FoundSide,
    pub(crate) later: FoundSide,
    pub(crate) reserved_end: [u64; 6],
}

impl Found {
    /// A race that is only in the ring.
    pub(crate) fn of_ring(entry: &RaceEntry) -> Found {
        Found {
            entry: bytemuck::cast(*entry),
            ..Found::zeroed()
        }
    }
}

const _: () = assert!(size_of::<Found>() == 256);
const _: () = assert!(size_of::<RaceEntry>() == 64);

/// Words before a race's times, in words from its start.
pub(crate) const FOUND_TIMES: usize = offset_of!(Found, times) / 8;

/// How much of everything there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Entries of the race ring.
    pub(crate) ring: u64,
    /// Launches remembered of each device.
    pub(crate) launches: u64,
    /// Distinct races.
    pub(crate) found: u64,
    pub(crate) allocations: u64,
    pub(crate) kernels: u64,
    pub(crate) text_bytes: u64,
    pub(crate) command_bytes: u64,
}

impl Room {
    /// What a process gets. About 8 MiB of it are taken at once, the rest as it is needed.
    pub(crate) const FULL: Room = Room {
        ring: 1 << 16,
        launches: 1 << 16,
        found: 1 << 18,
        allocations: 1 << 16,
        kernels: 1 << 16,
        text_bytes: 32 << 20,
        command_bytes: UNIT,
    };

    /// What it gets where memory for parts is short.
    pub(crate) const SMALL: Room = Room {
        ring: 1 << 12,
        launches: 1 << 12,
        found: 1 << 14,
        allocations: 1 << 14,
        kernels: 1 << 12,
        text_bytes: 2 << 20,
        command_bytes: UNIT,
    };
}

/// Where everything is, before anything was written.
pub(crate) fn layout(room: &Room, ranks: &[u16]) -> Header {
    let mut header: Header = Zeroable::zeroed();
    let mut end = UNIT;
    let mut section = |count: u64, bytes: u64| {
        let offset = end;
        end = (end + bytes).next_multiple_of(UNIT);
        Section { offset, count }
    };
    // What devices use lies together, so that it is made known to the driver at once.
    header.ring = section(room.ring, 8 * RaceRing::<Native>::words(room.ring));
    for (device, &rank) in header.device.iter_mut().zip(ranks) {
        device.rank = rank.into();
        device.sites = section(1, 8 * SiteMirror::<Native>::DEVICE_WORDS);
    }
    for device in header.device.iter_mut().take(ranks.len()) {
        let bytes = room.launches * 8 * LaunchLog::<Native>::ENTRY_WORDS as u64;
        device.launches = section(room.launches, bytes);
    }
    let mut table = |count: u64, size: usize| section(count, count * size as u64);
    header.command = table(room.command_bytes, 1);
    header.kernels = table(room.kernels, size_of::<Kernel>());
    header.allocations = table(room.allocations, size_of::<Allocation>());
    header.texts = table(room.text_bytes, 1);
    header.found = table(room.found, size_of::<Found>());
    header.bytes = end;
    header.version = VERSION;
    header.devices = ranks.len().min(MAX_DEVICES) as u64;
    header
}
