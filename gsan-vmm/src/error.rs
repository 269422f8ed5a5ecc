//! What can go wrong between asking for memory and getting it.

use gsan_core::address::AddressSpaceError;
use gsan_core::ids::DeviceRank;

use crate::allocator::{STATE_RANKS, STATE_STRIDE};
use crate::backend::{BackendError, Device, FreeMemory, HandleKind};
use crate::size::Bytes;

/// An operation of the allocator that was refused. Nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The reservation asked for is not one.
    #[error("shadow.reserve: {0}")]
    BadReserve(#[from] AddressSpaceError),
    /// The reservation is too small for a single unit of memory with its shadow.
    #[error(
        "shadow.reserve = {} has no room for one unit of memory ({}) and its shadow: \
         it must be at least {}",
        Bytes(*asked), Bytes(*unit), Bytes(*least)
    )]
    ReserveTooSmall {
        /// Bytes asked for.
        asked: u64,
        /// The backend's unit of memory.
        unit: u64,
        /// The smallest reservation that has room.
        least: u64,
    },
    /// The system grants no reservation of that size, nor the smaller ones that were tried.
    #[error(
        "no {} of address space could be reserved, the least of what was tried ({source}); \
         a limit on virtual memory (ulimit -v) or another tool that reserves addresses stands in \
         the way; a smaller shadow.reserve may be granted",
        Bytes(*smallest)
    )]
    ReserveRefused {
        /// The smallest size tried, in bytes.
        smallest: u64,
        /// Why that one was refused.
        source: BackendError,
    },
    /// The device has not enough memory left.
    #[error(
        "out of memory on {device}: asked for {} ({bytes} bytes), {} of {} are free, \
         {} wait for their streams; free memory or make the program's batches smaller",
        Bytes(*bytes), Bytes(memory.free), Bytes(memory.total), Bytes(*waiting)
    )]
    OutOfMemory {
        /// Bytes asked for.
        bytes: u64,
        /// The device asked.
        device: Device,
        /// What it had.
        memory: FreeMemory,
        /// Bytes freed by the program but still used by streams.
        waiting: u64,
    },
    /// No range of addresses is left, neither in the reservation nor outside of it.
    #[error(
        "out of address space: asked for {} ({bytes} bytes), the largest free range has {} of {}, \
         and the driver grants none outside; set shadow.reserve above {}",
        Bytes(*bytes), Bytes(*largest), Bytes(*usable), Bytes(*reserve)
    )]
    OutOfAddressSpace {
        /// Bytes asked for.
        bytes: u64,
        /// The largest free range, in bytes.
        largest: u64,
        /// The range that can be handed out, in bytes.
        usable: u64,
        /// The whole reservation, in bytes.
        reserve: u64,
    },
    /// No memory is that large.
    #[error("{bytes} bytes are more than any device has")]
    TooLarge {
        /// Bytes asked for.
        bytes: u64,
    },
    /// There is no such device.
    #[error("there is no {device}: {}", known_devices(*count))]
    BadDevice {
        /// The device asked for.
        device: Device,
        /// How many there are.
        count: usize,
    },
    /// The address is not inside any allocation.
    #[error("{address:#x} is not the address of an allocation")]
    NotLive {
        /// The address given.
        address: u64,
    },
    /// The allocation was freed before.
    #[error("the allocation at {address:#x} was freed already")]
    AlreadyFreed {
        /// The address given.
        address: u64,
    },
    /// The address is inside an allocation, not at its start.
    #[error(
        "{address:#x} lies {} bytes into the allocation at {start:#x}: only its start can be freed",
        address - start
    )]
    Interior {
        /// The address given.
        address: u64,
        /// Where the allocation starts.
        start: u64,
    },
    /// The size or device given with a pointer to free is not that of the allocation.
    #[error(
        "the allocation at {address:#x} has {bytes} bytes on {device}; \
         it was to be freed as {given_bytes} bytes on {given_device}"
    )]
    Mismatch {
        /// The address given.
        address: u64,
        /// Its size in bytes.
        bytes: u64,
        /// Its device.
        device: Device,
        /// The size given.
        given_bytes: u64,
        /// The device given.
        given_device: Device,
    },
    /// The device rank has no place in the runtime state.
    #[error("device rank {0} is out of range: there are {STATE_RANKS}, counted from 0")]
    BadRank(DeviceRank),
    /// The device rank's runtime state is there already.
    #[error(
        "device rank {0} is taken: give every device of the group a rank of its own \
         (topology.device_ranks)"
    )]
    RankTaken(DeviceRank),
    /// The device rank has no runtime state here.
    #[error("device rank {0} has no runtime state in this process")]
    NoState(DeviceRank),
    /// The runtime state does not fit between two ranks.
    #[error(
        "a runtime state of {bytes} bytes does not fit the {} each device rank has; make \
         clock.snapshot_memory, clock.private_memory or clock.publications smaller",
        Bytes(STATE_STRIDE)
    )]
    StateTooLarge {
        /// Bytes asked for.
        bytes: u64,
    },
    /// A runtime state of no bytes.
    #[error("a runtime state must have at least 1 byte")]
    EmptyState,
    /// The range does not lie in the runtime state.
    #[error(
        "{bytes} bytes {offset} bytes into the runtime state of device rank {rank} are not all in \
         it: it has {size}"
    )]
    OutsideState {
        /// The rank.
        rank: DeviceRank,
        /// Where the range starts, in bytes from the start of the state.
        offset: u64,
        /// Its size in bytes.
        bytes: u64,
        /// The bytes of the state.
        size: u64,
    },
    /// A shared allocation contradicts itself or this process's layout.
    #[error("what the other process shares cannot be used here: {0}")]
    BadShare(String),
    /// The device that imports has no way to the memory.
    #[error(
        "{device} cannot reach the memory of {owner}: there is no peer link between them; \
         `gsan doctor` shows which devices reach which"
    )]
    Unreachable {
        /// The device that imports.
        device: Device,
        /// The device whose memory it is.
        owner: Device,
    },
    /// The devices do not support the kind of handle that was asked for.
    #[error(
        "sharing.handle_type = \"{kind}\" does not work here ({source}); use \"auto\" or \
         \"posix-fd\""
    )]
    NoSharing {
        /// The kind asked for.
        kind: HandleKind,
        /// What the backend said when it was tried.
        source: BackendError,
    },
    /// The backend refused.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

fn known_devices(count: usize) -> String {
    match count {
        0 => "this process sees no device".into(),
        1 => "the only one is device 0".into(),
        count => format!("they are 0 to {}", count - 1),
    }
}
