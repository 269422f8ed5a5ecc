//! The `host` backend: the CPU's own memory, with `mmap` and `memfd_create`.
//!
//! It has the same addresses, the same arithmetic and the same sharing by file descriptor as a
//! GPU's, needs nothing, and refuses what the driver would refuse. Memory costs nothing until it
//! is touched. Kernels are functions that follow the addresses as pointers; the backend itself
//! never does: it reads and writes through the descriptor of the memory, so that an address it was
//! given cannot make it fault.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;

use super::intervals::Intervals;
use super::{
    Backend, BackendError, CaptureStatus, Captured, Device, DeviceInfo, Failure, FenceId,
    FreeMemory, HandleKind, MemoryId, Pinned, Queue, Result, SharedHandle, Stream,
};

mod captures;
mod pages;
mod queues;

use captures::Captures;
pub use pages::View;
pub use queues::Stepped;
use queues::{Queues, Work};

/// The seals of every memory file: its size never changes again, so that a peer which maps it
/// cannot be made to fault.
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

/// As many as an H200 has.
const MULTIPROCESSORS: u32 = 132;

/// How a [`HostBackend`] looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostOptions {
    /// How many devices there are, at least 1. Each reaches all others.
    pub devices: u32,
    /// The memory of each in bytes; it is a limit, not a commitment.
    pub memory: u64,
    /// The unit of memory in bytes, a power of two and a multiple of the page size.
    pub granularity: u64,
}

impl Default for HostOptions {
    /// One device of 1 TiB, with the granularity of a GPU.
    fn default() -> HostOptions {
        HostOptions {
            devices: 1,
            memory: 1 << 40,
            granularity: 2 << 20,
        }
    }
}

/// The memory of this machine, posing as that of a few devices.
#[derive(Debug)]
pub struct HostBackend {
    devices: Vec<DeviceInfo>,
    granularity: u64,
    tables: Mutex<Tables>,
    queues: Mutex<Queues>,
    captures: Captures,
    /// Notified when work of a stream is done.
    progress: Condvar,
}

/// Everything the backend has handed out. Its lock is held across `mmap`, `mprotect` and the like,
/// which return at once, and never while memory is being freed or filled.
#[derive(Debug, Default)]
struct Tables {
    last_number: u64,
    used: Vec<u64>,
    reservations: Intervals<pages::Reserved>,
    memory: HashMap<u64, Memory>,
    mappings: Intervals<Arc<File>>,
    streams: HashMap<(Device, u64), Progress>,
    fences: HashMap<u64, ((Device, u64), u64)>,
}

#[derive(Debug)]
struct Memory {
    file: Arc<File>,
    bytes: u64,
    /// The device whose memory it counts against; none for imports.
    owner: Option<Device>,
}

/// How many pieces of work a stream was given, and how many it has done.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    submitted: u64,
    done: u64,
}

impl Tables {
    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// The file behind a mapped range, and the range's place in it.
    fn mapped(
        &mut self,
        call: &'static str,
        address: u64,
        bytes: u64,
    ) -> Result<(&Arc<File>, u64)> {
        match self.mappings.containing(address, bytes) {
            Some((start, file)) => Ok((file, address - start)),
            None => {
                let reason = format!("{bytes} bytes at {address:#x} are not mapped");
                Err(invalid(call, reason))
            }
        }
    }

    /// The reservation that a range lies in.
    fn reserved(
        &mut self,
        call: &'static str,
        address: u64,
        bytes: u64,
    ) -> Result<&mut pages::Reserved> {
        let found = self.reservations.containing(address, bytes);
        let reason = || {
            invalid(
                call,
                format!("{bytes} bytes at {address:#x} are not reserved"),
            )
        };
        found.map(|(_, reserved)| reserved).ok_or_else(reason)
    }
}

fn invalid(call: &'static str, reason: impl Into<String>) -> BackendError {
    BackendError::new(call, Failure::InvalidArgument, reason)
}

fn system(call: &'static str, errno: Errno) -> BackendError {
    let failure = match errno {
        Errno::MFILE | Errno::NFILE => {
            let reason = "too many open files: every allocation holds two; raise the limit \
                          (ulimit -n)";
            return BackendError::new(call, Failure::OutOfHandles, reason);
        }
        Errno::NOMEM if matches!(call, "mmap" | "munmap" | "mprotect") => {
            let reason = "no room in the address space (ulimit -v), or too many mappings \
                          (vm.max_map_count)";
            return BackendError::new(call, Failure::OutOfMemory, reason);
        }
        Errno::NOMEM | Errno::NOSPC | Errno::FBIG => Failure::OutOfMemory,
        Errno::INVAL | Errno::BADF => Failure::InvalidArgument,
        Errno::NOSYS | Errno::OPNOTSUPP => Failure::NotSupported,
        _ => Failure::Other,
    };
    BackendError::new(call, failure, errno.to_string())
}

fn io(call: &'static str, error: &std::io::Error) -> BackendError {
    match Errno::from_io_error(error) {
        Some(errno) => system(call, errno),
        None => BackendError::new(call, Failure::Other, error.to_string()),
    }
}

impl HostBackend {
    /// A backend with the devices that `options` describes.
    ///
    /// # Errors
    /// When `options` has no device, or a granularity that is no power of two or smaller than a
    /// page.
    pub fn new(options: HostOptions) -> Result<HostBackend> {
        let page = rustix::param::page_size() as u64;
        if !options.granularity.is_power_of_two() || options.granularity < page {
            let given = options.granularity;
            return Err(invalid(
                "HostBackend::new",
                format!("a granularity of {given} bytes is no power of two of at least {page}"),
            ));
        }
        if options.devices == 0 {
            return Err(invalid("HostBackend::new", "there must be a device"));
        }
        let devices = (0..options.devices).map(|number| {
            let mut uuid = *b"gsan host\0\0\0\0\0\0\0";
            uuid[12..].copy_from_slice(&number.to_le_bytes());
            DeviceInfo {
                name: format!("host memory {number}"),
                uuid,
                memory: options.memory,
                multiprocessors: MULTIPROCESSORS,
                fabric: false,
            }
        });
        Ok(HostBackend {
            devices: devices.collect(),
            granularity: options.granularity,
            tables: Mutex::new(Tables {
                used: vec![0; options.devices as usize],
                ..Tables::default()
            }),
            queues: Mutex::default(),
            captures: Captures::default(),
            progress: Condvar::new(),
        })
    }

    /// Notes that a piece of work was given to a stream: fences from now on stand behind it.
    pub fn work_submitted(&self, device: Device, stream: Stream) {
        if let Some(number) = stream_number(stream) {
            let mut tables = self.tables();
            tables
                .streams
                .entry((device, number))
                .or_default()
                .submitted += 1;
        }
    }

    /// Notes that the oldest piece of work of a stream that was not done is done.
    pub fn work_done(&self, device: Device, stream: Stream) {
        if let Some(number) = stream_number(stream) {
            let mut tables = self.tables();
            let progress = tables.streams.entry((device, number)).or_default();
            progress.done = progress.submitted.min(progress.done + 1);
            self.progress.notify_all();
            drop(tables);
            self.wake();
        }
    }

    /// A view of mapped memory, which stays valid when the memory is unmapped. `address` is a
    /// multiple of [`Backend::granularity`].
    ///
    /// # Errors
    /// When the range is not mapped, or the system refuses another mapping of it.
    pub fn view(&self, address: u64, bytes: u64) -> Result<View> {
        const CALL: &str = "mmap";
        self.check_unit(CALL, address, bytes)?;
        let (file, offset) = self.file(CALL, address, bytes)?;
        View::new(&*file, offset, bytes).map_err(|e| system(CALL, e))
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        // Every change is a single insertion or removal, so the tables are whole after a panic.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn device(&self, call: &'static str, device: Device) -> Result<&DeviceInfo> {
        self.devices
            .get(device.0 as usize)
            .ok_or_else(|| invalid(call, format!("there is no {device}")))
    }

    fn check_unit(&self, call: &'static str, address: u64, bytes: u64) -> Result<()> {
        if bytes == 0 || !(address | bytes).is_multiple_of(self.granularity) {
            let unit = self.granularity;
            return Err(invalid(
                call,
                format!("{bytes} bytes at {address:#x} are not in units of {unit}"),
            ));
        }
        Ok(())
    }

    /// The file behind a mapped range, and the range's place in it.
    fn file(&self, call: &'static str, address: u64, bytes: u64) -> Result<(Arc<File>, u64)> {
        let mut tables = self.tables();
        let (file, offset) = tables.mapped(call, address, bytes)?;
        Ok((Arc::clone(file), offset))
    }
}

/// The backend's own stream: out of reach, as the default stream is, of most numbers a user chooses.
const OWN_STREAM: u64 = u64::MAX - 1;

fn stream_number(stream: Stream) -> Option<u64> {
    match stream.0 {
        // Out of reach of most numbers a user chooses; a clash only delays a free.
        Queue::Default => Some(u64::MAX),
        Queue::Host(number) => Some(number),
        Queue::Cuda(_) => None,
    }
}

impl Backend for HostBackend {
    fn devices(&self) -> &[DeviceInfo] {
        &self.devices
    }

    fn granularity(&self) -> u64 {
        self.granularity
    }

    fn reaches(&self, _from: Device, _owner: Device) -> bool {
        true
    }

    fn free_memory(&self, device: Device) -> Result<FreeMemory> {
        let total = self.device("free_memory", device)?.memory;
        Ok(FreeMemory {
            free: total - self.tables().used[device.0 as usize],
            total,
        })
    }

    fn reserve(&self, bytes: u64, alignment: u64) -> Result<u64> {
        if !alignment.is_power_of_two() {
            return Err(invalid(
                "mmap",
                format!("an alignment of {alignment} is no power of two"),
            ));
        }
        let alignment = alignment.max(self.granularity);
        self.check_unit("mmap", 0, bytes)?;
        let reserved = pages::Reserved::new(bytes, alignment).map_err(|e| system("mmap", e))?;
        let address = reserved.address();
        self.tables().reservations.insert(address, bytes, reserved);
        Ok(address)
    }

    fn unreserve(&self, address: u64, bytes: u64) -> Result<()> {
        let mut tables = self.tables();
        let known = tables.reservations.exact(address, bytes).is_some();
        if !known || tables.mappings.overlaps(address, bytes) {
            return Err(invalid(
                "munmap",
                format!("{bytes} bytes at {address:#x} are no empty reservation"),
            ));
        }
        tables.reservations.remove(address);
        Ok(())
    }

    fn create(&self, device: Device, bytes: u64, kind: HandleKind) -> Result<MemoryId> {
        const CALL: &str = "memfd_create";
        let total = self.device(CALL, device)?.memory;
        self.check_unit(CALL, 0, bytes)?;
        if kind != HandleKind::PosixFd {
            return Err(BackendError::new(
                CALL,
                Failure::NotSupported,
                format!("host memory has no {kind} handles"),
            ));
        }
        let charge = |tables: &mut Tables| {
            let used = &mut tables.used[device.0 as usize];
            let sum = used.checked_add(bytes).filter(|&sum| sum <= total);
            *used = sum.ok_or_else(|| {
                let free = total - *used;
                BackendError::new(
                    CALL,
                    Failure::OutOfMemory,
                    format!("{bytes} bytes asked of {device}, {free} free"),
                )
            })?;
            Ok(())
        };
        charge(&mut self.tables())?;
        let made =
            rustix::fs::memfd_create("gsan", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
                .map_err(|e| system(CALL, e))
                .and_then(|file| {
                    rustix::fs::ftruncate(&file, bytes).map_err(|e| system("ftruncate", e))?;
                    rustix::fs::fcntl_add_seals(&file, SEALS).map_err(|e| system("fcntl", e))?;
                    Ok(file)
                });
        let mut tables = self.tables();
        let file = made.inspect_err(|_| tables.used[device.0 as usize] -= bytes)?;
        let number = tables.number();
        let memory = Memory {
            file: Arc::new(File::from(file)),
            bytes,
            owner: Some(device),
        };
        tables.memory.insert(number, memory);
        Ok(MemoryId(number))
    }

    fn release(&self, memory: MemoryId) -> Result<()> {
        let mut tables = self.tables();
        let removed = tables
            .memory
            .remove(&memory.0)
            .ok_or_else(|| no_memory("close", memory))?;
        if let Some(owner) = removed.owner {
            tables.used[owner.0 as usize] -= removed.bytes;
        }
        // Closing the last descriptor frees the pages, which takes as long as there are pages.
        drop(tables);
        drop(removed);
        Ok(())
    }

    fn map(&self, address: u64, bytes: u64, memory: MemoryId) -> Result<()> {
        const CALL: &str = "mmap";
        self.check_unit(CALL, address, bytes)?;
        let mut tables = self.tables();
        let known = tables
            .memory
            .get(&memory.0)
            .ok_or_else(|| no_memory(CALL, memory))?;
        if bytes > known.bytes {
            let have = known.bytes;
            return Err(invalid(
                CALL,
                format!("{bytes} bytes asked of memory of {have} bytes"),
            ));
        }
        let file = Arc::clone(&known.file);
        if tables.mappings.overlaps(address, bytes) {
            return Err(invalid(
                CALL,
                format!("{bytes} bytes at {address:#x} are mapped already"),
            ));
        }
        let reserved = tables.reserved(CALL, address, bytes)?;
        reserved
            .map(address, bytes, file.as_fd())
            .map_err(|e| system(CALL, e))?;
        tables.mappings.insert(address, bytes, file);
        Ok(())
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<()> {
        const CALL: &str = "munmap";
        let mut tables = self.tables();
        if tables.mappings.exact(address, bytes).is_none() {
            return Err(invalid(
                CALL,
                format!("{bytes} bytes at {address:#x} are no mapping"),
            ));
        }
        let reserved = tables.reserved(CALL, address, bytes)?;
        reserved
            .unmap(address, bytes)
            .map_err(|e| system(CALL, e))?;
        let file = tables.mappings.remove(address);
        // If it is the last descriptor, the pages are freed now, which takes as long as there are
        // pages.
        drop(tables);
        drop(file);
        Ok(())
    }

    fn allow(&self, address: u64, bytes: u64, devices: &[Device]) -> Result<()> {
        const CALL: &str = "mprotect";
        self.check_unit(CALL, address, bytes)?;
        for &device in devices {
            self.device(CALL, device)?;
        }
        let mut tables = self.tables();
        tables.mapped(CALL, address, bytes)?;
        let reserved = tables.reserved(CALL, address, bytes)?;
        reserved.allow(address, bytes).map_err(|e| system(CALL, e))
    }

    fn export(&self, memory: MemoryId, kind: HandleKind) -> Result<SharedHandle> {
        const CALL: &str = "fcntl(F_DUPFD_CLOEXEC)";
        if kind != HandleKind::PosixFd {
            return Err(BackendError::new(
                CALL,
                Failure::NotSupported,
                format!("host memory has no {kind} handles"),
            ));
        }
        let tables = self.tables();
        let known = tables
            .memory
            .get(&memory.0)
            .ok_or_else(|| no_memory(CALL, memory))?;
        let file = known.file.try_clone().map_err(|e| io(CALL, &e))?;
        Ok(SharedHandle::PosixFd(OwnedFd::from(file)))
    }

    fn import(&self, device: Device, handle: SharedHandle, bytes: u64) -> Result<MemoryId> {
        const CALL: &str = "fcntl(F_GET_SEALS)";
        self.device(CALL, device)?;
        self.check_unit(CALL, 0, bytes)?;
        let SharedHandle::PosixFd(descriptor) = handle else {
            return Err(BackendError::new(
                CALL,
                Failure::NotSupported,
                "host memory has no fabric handles",
            ));
        };
        let seals = rustix::fs::fcntl_get_seals(&descriptor)
            .map_err(|_| invalid(CALL, "the descriptor is not one of an exported allocation"))?;
        if !seals.contains(SEALS) {
            return Err(invalid(CALL, "the memory can still change its size"));
        }
        let file = File::from(descriptor);
        let size = file.metadata().map_err(|e| io("fstat", &e))?.len();
        if size < bytes {
            return Err(invalid(
                "fstat",
                format!("{bytes} bytes promised, the memory has {size}"),
            ));
        }
        let mut tables = self.tables();
        let number = tables.number();
        let memory = Memory {
            file: Arc::new(file),
            bytes: size,
            owner: None,
        };
        tables.memory.insert(number, memory);
        Ok(MemoryId(number))
    }

    fn fill(&self, _device: Device, address: u64, bytes: u64, value: u8) -> Result<()> {
        let (file, offset) = self.file("fill", address, bytes)?;
        fill(&file, offset, bytes, value)
    }

    fn read(&self, _device: Device, address: u64, into: &mut [u8]) -> Result<()> {
        let (file, offset) = self.file("pread", address, into.len() as u64)?;
        file.read_exact_at(into, offset)
            .map_err(|e| io("pread", &e))
    }

    fn write(&self, _device: Device, address: u64, from: &[u8]) -> Result<()> {
        let (file, offset) = self.file("pwrite", address, from.len() as u64)?;
        file.write_all_at(from, offset)
            .map_err(|e| io("pwrite", &e))
    }

    fn fence(&self, device: Device, stream: Stream) -> Result<FenceId> {
        self.device("fence", device)?;
        let number = stream_number(stream)
            .ok_or_else(|| invalid("fence", "a CUDA stream was given to the host backend"))?;
        let mut tables = self.tables();
        let key = (device, number);
        let target = tables
            .streams
            .get(&key)
            .map_or(0, |progress| progress.submitted);
        let number = tables.number();
        tables.fences.insert(number, (key, target));
        Ok(FenceId(number))
    }

    fn passed(&self, fence: FenceId) -> Result<bool> {
        let (key, target) = self.fence_target(fence)?;
        Ok(self.has_done(key, target))
    }

    fn forget(&self, fence: FenceId) {
        self.tables().fences.remove(&fence.0);
    }

    fn synchronize(&self, device: Device) -> Result<()> {
        self.device("synchronize", device)?;
        let mut tables = self.tables();
        let targets: Vec<_> = tables
            .streams
            .iter()
            .filter(|((owner, _), _)| *owner == device)
            .map(|(key, progress)| (*key, progress.submitted))
            .collect();
        for (key, target) in targets {
            while tables
                .streams
                .get(&key)
                .is_some_and(|progress| progress.done < target)
            {
                tables = self
                    .progress
                    .wait(tables)
                    .unwrap_or_else(PoisonError::into_inner);
            }
        }
        Ok(())
    }

    fn pin(&self, bytes: u64) -> Result<Pinned> {
        Pinned::new(bytes, |start, _| Ok((None, start)))
    }

    fn own_stream(&self, device: Device) -> Result<Stream> {
        self.device("own_stream", device)?;
        Ok(Stream::host(OWN_STREAM))
    }

    fn fill_on(
        &self,
        device: Device,
        stream: Stream,
        address: u64,
        bytes: u64,
        value: u8,
    ) -> Result<()> {
        let (file, offset) = self.file("fill", address, bytes)?;
        let fill = move || {
            if let Err(error) = fill(&file, offset, bytes, value) {
                tracing::warn!(%error, "memory of a stream was not filled");
            }
        };
        self.enqueue(device, stream, fill)
    }

    fn wait_on(&self, device: Device, stream: Stream, fence: FenceId) -> Result<()> {
        self.device("wait_on", device)?;
        let (key, target) = self.fence_target(fence)?;
        self.push(device, stream, Work::Wait(key, target))
    }

    fn capture_status(&self, device: Device, stream: Stream) -> Result<CaptureStatus> {
        self.status_of(device, stream)
    }

    fn captured(
        &self,
        device: Device,
        stream: Stream,
        is_known: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Captured> {
        self.captured_by(device, stream, is_known)
    }
}

fn fill(file: &File, offset: u64, bytes: u64, value: u8) -> Result<()> {
    if value == 0 && bytes > 0 {
        // A hole reads as zeros and gives the pages back.
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        return rustix::fs::fallocate(file, mode, offset, bytes)
            .map_err(|e| system("fallocate", e));
    }
    let chunk = [value; 4096];
    let mut done = 0;
    while done < bytes {
        let part = &chunk[..chunk.len().min((bytes - done) as usize)];
        file.write_all_at(part, offset + done)
            .map_err(|e| io("pwrite", &e))?;
        done += part.len() as u64;
    }
    Ok(())
}

fn no_memory(call: &'static str, memory: MemoryId) -> BackendError {
    BackendError::new(
        call,
        Failure::NoSuchHandle,
        format!("there is no memory number {}", memory.0),
    )
}
