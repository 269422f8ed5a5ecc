//! What the allocator needs of a memory system, and the two that offer it.
//!
//! The calls are those of the CUDA driver's virtual memory management: reserve addresses, create
//! physical memory, map one onto the other, say who may access it. They come in three layers. Raw
//! calls (system calls, the driver's functions) are where `unsafe` is. [`Backend`] makes results of
//! them: every number a caller passes is looked up in the backend's own tables, so a wrong one is
//! an error and never undefined behaviour. On top of it, the types of the private module `owned`
//! know what is still to be given back, and do so when they are dropped.

use std::fmt;
use std::os::fd::OwnedFd;

mod capture;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod host;
mod intervals;
mod pinned;

pub use capture::{CaptureStatus, Captured, CapturedNode, Dependency, NodeKind};
pub use pinned::Pinned;

/// A device of this process, by its local number: the ordinal of the CUDA driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Device(pub u32);

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {}", self.0)
    }
}

/// A queue of a device's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stream(pub(crate) Queue);

/// What a stream is to its backend. A backend refuses the other one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Queue {
    Default,
    Host(u64),
    Cuda(u64),
}

impl Stream {
    /// The default stream of whichever device it is used with.
    pub const DEFAULT: Stream = Stream(Queue::Default);

    /// A stream of the [`host`] backend, by a number its user chose.
    pub const fn host(number: u64) -> Stream {
        Stream(Queue::Host(number))
    }

    /// A `cudaStream_t`, as a number.
    ///
    /// # Safety
    /// `handle` must be 0, 1, 2 (the null, the legacy and the per-thread default stream) or a
    /// stream that lives until the memory freed on it has been given back: the driver follows it
    /// as a pointer.
    pub const unsafe fn cuda(handle: u64) -> Stream {
        Stream(match handle {
            0 => Queue::Default,
            handle => Queue::Cuda(handle),
        })
    }
}

/// How memory is handed to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HandleKind {
    /// A file descriptor: processes of one host.
    PosixFd,
    /// 64 bytes: every process of the NVLink fabric, where the devices support it.
    Fabric,
}

impl fmt::Display for HandleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HandleKind::PosixFd => "posix-fd",
            HandleKind::Fabric => "fabric",
        })
    }
}

/// Physical memory as another process can be given it.
#[derive(Debug)]
pub enum SharedHandle {
    /// A descriptor of the memory.
    PosixFd(OwnedFd),
    /// The fabric's name for the memory.
    Fabric(Box<[u8; 64]>),
}

impl SharedHandle {
    /// Which kind it is.
    pub fn kind(&self) -> HandleKind {
        match self {
            SharedHandle::PosixFd(_) => HandleKind::PosixFd,
            SharedHandle::Fabric(_) => HandleKind::Fabric,
        }
    }
}

/// Physical memory, by the number its backend gave it; numbers are never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemoryId(pub u64);

/// A point in a stream, by the number its backend gave it; numbers are never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FenceId(pub u64);

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its name, for people.
    pub name: String,
    /// The same in every process that sees the device.
    pub uuid: [u8; 16],
    /// Its memory in bytes.
    pub memory: u64,
    /// How many multiprocessors run its CTAs.
    pub multiprocessors: u32,
    /// Whether its memory can be shared by fabric handle.
    pub fabric: bool,
}

/// How much memory a device has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeMemory {
    /// Bytes that nobody uses.
    pub free: u64,
    /// Bytes there are.
    pub total: u64,
}

/// What kind of failure a [`BackendError`] is: what callers tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// No physical memory, or no address range, of that size is left.
    OutOfMemory,
    /// The process has as many descriptors as the system lets it have.
    OutOfHandles,
    /// The number names nothing that is there.
    NoSuchHandle,
    /// An argument is out of range, misaligned, or already in use.
    InvalidArgument,
    /// This device, driver or system cannot do that.
    NotSupported,
    /// Anything else: the device is lost, the driver is shutting down.
    Other,
}

/// A call of a backend that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} failed: {reason}")]
pub struct BackendError {
    /// The system call or driver function.
    pub call: &'static str,
    /// What kind of failure it is.
    pub failure: Failure,
    /// What the system or the driver says, and which argument it was about.
    pub reason: String,
}

impl BackendError {
    /// An error of `call`.
    pub fn new(call: &'static str, failure: Failure, reason: impl Into<String>) -> BackendError {
        BackendError {
            call,
            failure,
            reason: reason.into(),
        }
    }
}

/// The result of a backend's call.
pub type Result<T> = std::result::Result<T, BackendError>;

/// A memory system: the calls of the CUDA driver's virtual memory management, and the few others
/// that handing out memory needs.
///
/// Any thread may call at any time. A call that fails has changed nothing. Addresses and sizes are
/// in bytes; those of mappings are multiples of [`Self::granularity`].
pub trait Backend: Send + Sync {
    /// The devices, in the order of their local numbers. Never changes.
    fn devices(&self) -> &[DeviceInfo];

    /// The unit of physical memory and of mapping, a power of two.
    fn granularity(&self) -> u64;

    /// Whether `from` can access the memory of `owner`; true for a device and itself.
    fn reaches(&self, from: Device, owner: Device) -> bool;

    /// What `device` has left.
    ///
    /// # Errors
    /// When the device does not exist or cannot be asked.
    fn free_memory(&self, device: Device) -> Result<FreeMemory>;

    /// Reserves `bytes` of addresses at a multiple of `alignment`, and returns the first.
    ///
    /// # Errors
    /// When there is no such range.
    fn reserve(&self, bytes: u64, alignment: u64) -> Result<u64>;

    /// Gives back a whole reservation in which nothing is mapped.
    ///
    /// # Errors
    /// When it is not one, or something is mapped in it.
    fn unreserve(&self, address: u64, bytes: u64) -> Result<()>;

    /// Creates `bytes` of physical memory on `device`, which can be exported as `kind`.
    ///
    /// # Errors
    /// When there is not as much, or the device does not support `kind`.
    fn create(&self, device: Device, bytes: u64, kind: HandleKind) -> Result<MemoryId>;

    /// Gives up physical memory; what is mapped stays until it is unmapped.
    ///
    /// # Errors
    /// [`Failure::NoSuchHandle`] when it is not there.
    fn release(&self, memory: MemoryId) -> Result<()>;

    /// Maps the first `bytes` of `memory` at `address`, accessible to nobody yet.
    ///
    /// # Errors
    /// When the range is not reserved, is mapped already, or is larger than the memory.
    fn map(&self, address: u64, bytes: u64, memory: MemoryId) -> Result<()>;

    /// Undoes one [`Self::map`]; the range stays reserved.
    ///
    /// # Errors
    /// When exactly that range is not mapped.
    fn unmap(&self, address: u64, bytes: u64) -> Result<()>;

    /// Lets `devices` read and write a mapped range.
    ///
    /// # Errors
    /// When the range is not mapped, or a device cannot reach it.
    fn allow(&self, address: u64, bytes: u64, devices: &[Device]) -> Result<()>;

    /// A handle of `memory` that another process can import.
    ///
    /// # Errors
    /// When the memory is not there, or was not created for `kind`.
    fn export(&self, memory: MemoryId, kind: HandleKind) -> Result<SharedHandle>;

    /// The memory of another process, of at least `bytes`, for `device` to use.
    ///
    /// # Errors
    /// When the handle is not one, or is known to be of smaller memory.
    fn import(&self, device: Device, handle: SharedHandle, bytes: u64) -> Result<MemoryId>;

    /// Fills a range, mapped and accessible to `device`, with `value`, on a stream of the
    /// backend's own; it is done on return.
    ///
    /// # Errors
    /// When the range is not mapped, or the device fails.
    fn fill(&self, device: Device, address: u64, bytes: u64, value: u8) -> Result<()>;

    /// Copies from a mapped range.
    ///
    /// # Errors
    /// When the range is not mapped, or the device fails.
    fn read(&self, device: Device, address: u64, into: &mut [u8]) -> Result<()>;

    /// Copies into a mapped range.
    ///
    /// # Errors
    /// When the range is not mapped, or the device fails.
    fn write(&self, device: Device, address: u64, from: &[u8]) -> Result<()>;

    /// A fence behind everything that has been given to `stream` of `device` so far.
    ///
    /// # Errors
    /// When the stream is not one of this backend, or the device fails.
    fn fence(&self, device: Device, stream: Stream) -> Result<FenceId>;

    /// Whether the stream has passed the fence. Never waits.
    ///
    /// # Errors
    /// When the fence is not there, or the device fails.
    fn passed(&self, fence: FenceId) -> Result<bool>;

    /// Forgets a fence; unknown ones are ignored.
    fn forget(&self, fence: FenceId);

    /// Waits for all work of `device`.
    ///
    /// # Errors
    /// When the device fails; its work is over then, too.
    fn synchronize(&self, device: Device) -> Result<()>;

    /// At least `bytes` of zeroed memory of the host that every device reads and writes.
    ///
    /// # Errors
    /// When the backend has none.
    fn pin(&self, bytes: u64) -> Result<Pinned> {
        let reason = format!("no {bytes} bytes of host memory for devices");
        Err(BackendError::new("pin", Failure::NotSupported, reason))
    }

    /// A stream of `device` that is the backend's own, waits for no other, and is never captured.
    ///
    /// # Errors
    /// When the device does not exist or fails.
    fn own_stream(&self, device: Device) -> Result<Stream> {
        let reason = format!("no stream of its own on {device}");
        Err(BackendError::new(
            "own_stream",
            Failure::NotSupported,
            reason,
        ))
    }

    /// Fills a range, mapped and accessible to `device`, with `value`, once `stream` gets there.
    ///
    /// # Errors
    /// When the range is not mapped, the stream is not one of this backend, or the device fails.
    fn fill_on(
        &self,
        device: Device,
        stream: Stream,
        address: u64,
        bytes: u64,
        value: u8,
    ) -> Result<()> {
        let _ = stream;
        self.fill(device, address, bytes, value)
    }

    /// Lets `stream` wait for a fence, which may be one of another stream.
    ///
    /// # Errors
    /// When the fence is not there, the stream is not one of this backend, or the device fails.
    fn wait_on(&self, device: Device, stream: Stream, fence: FenceId) -> Result<()> {
        let reason = format!("{stream:?} of {device} cannot wait for {fence:?}");
        Err(BackendError::new("wait_on", Failure::NotSupported, reason))
    }

    /// Whether `stream` is being captured into a graph. It costs little: every launch asks.
    ///
    /// # Errors
    /// When the stream is not one of this backend, or the driver fails.
    fn capture_status(&self, device: Device, stream: Stream) -> Result<CaptureStatus> {
        let _ = (device, stream);
        Ok(CaptureStatus::None)
    }

    /// What the capture that `stream` takes part in holds, apart from nodes that `is_known` knows by
    /// their handles and what comes before those.
    ///
    /// # Errors
    /// When the stream is not one of this backend, or the driver fails.
    fn captured(
        &self,
        device: Device,
        stream: Stream,
        is_known: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Captured> {
        let _ = (device, stream, is_known);
        Ok(Captured::default())
    }
}
