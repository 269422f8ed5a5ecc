//! What a process leaves behind: races, and all that it takes to tell of them.
//!
//! A process that runs under `gsan run` keeps its part in a file that `gsan run` reads as well; any
//! other keeps it in memory of its own. Devices write the race ring and the lines of source that races
//! name; the process writes launches, kernels, allocations and, as it drains the ring, each distinct
//! race. Nothing has to be done at the end: a part that a crash left is complete but for what was
//! never written, and [`PartReader`] takes it as it is.

mod format;
mod found;
mod mapping;
mod reader;
mod tables;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use gsan_core::atomics::Native;
use gsan_core::ids::DeviceRank;
use gsan_core::launch_log::LaunchLog;
use gsan_core::layout::limits;
use gsan_core::loss::{Loss, Losses};
use gsan_core::race_ring::RaceRing;
use gsan_core::site_mirror::SiteMirror;
use gsan_sync::LogMemory;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use rustix::process::{Resource, getrlimit};

use format::{Header, Room, Section, state, word};
use mapping::Mapping;
use tables::Tables;

pub(crate) use format::{Found, FoundSide};
pub use found::Elsewhere;
pub(crate) use found::FoundLog;
use reader::Source;
pub use reader::{Damaged, PartReader};

/// The end of the name of a part's file.
pub(crate) const EXTENSION: &str = "part";
/// That of the empty file of a process for whose part there was no room.
pub(crate) const UNSEEN: &str = "unseen";

/// A part cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PartError {
    /// The process has more devices than a topology may.
    #[error("{0} devices; a process has at most {max}", max = limits::MAX_DEVICES)]
    Devices(usize),
    /// There is no memory for it.
    #[error("no memory for what this process reports: {0}")]
    Memory(#[source] io::Error),
}

/// What a process has checked, and which limits it has met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// How often each limit was met.
    pub losses: Losses,
    /// Launches of checked kernels.
    pub launches: u64,
    /// Accesses that were checked.
    pub accesses: u64,
    /// Bytes of memory that has a shadow, at most at one time.
    pub covered_bytes: u64,
    /// Bytes of memory that was handed out without, at most at one time.
    pub uncovered_bytes: u64,
    /// The seed of sampling.
    pub seed: u64,
}

/// The part of this process.
pub struct Part {
    memory: Arc<Memory>,
    /// The file that others can see; `None`: nobody can.
    path: Option<PathBuf>,
    header: Header,
    tables: Mutex<Tables>,
}

/// A part's file, mapped. Its descriptor is not kept: a program that closes all that it finds, as daemons
/// do, would give the number to a file of its own.
#[derive(Debug)]
struct Memory {
    mapping: Mapping,
    /// Kept where only it can be given memory.
    file: Option<File>,
}

impl Part {
    /// Makes the part of a process whose devices have these ranks, in the order of their local
    /// numbers: in the directory that `gsan run` made, else (or if there is no room) in memory that
    /// goes with the process.
    ///
    /// # Errors
    /// When there are too many devices, or there is no memory at all.
    pub fn new(directory: Option<&Path>, ranks: &[DeviceRank]) -> Result<Part, PartError> {
        if ranks.len() > format::MAX_DEVICES {
            return Err(PartError::Devices(ranks.len()));
        }
        let ranks: Vec<u16> = ranks.iter().map(|rank| rank.0).collect();
        if let Some(directory) = directory {
            for room in [Room::FULL, Room::SMALL] {
                match Part::in_directory(directory, &format::layout(&room, &ranks)) {
                    Ok(part) => return Ok(part),
                    Err(error) => tracing::warn!(
                        "no part of {} bytes can be made in {}: {error}",
                        room_bytes(&room, &ranks),
                        directory.display()
                    ),
                }
            }
            leave_word(directory);
        }
        let private = |room: &Room| {
            let fd = memfd_create("gsan-part", MemfdFlags::CLOEXEC)?;
            Part::in_file(fd, None, &format::layout(room, &ranks))
        };
        private(&Room::FULL)
            .or_else(|_| private(&Room::SMALL))
            .map_err(PartError::Memory)
    }

    fn in_directory(directory: &Path, header: &Header) -> io::Result<Part> {
        let pid = std::process::id();
        // It gets its name when it is a part.
        let file = tempfile::Builder::new()
            .prefix(&format!("{pid}-"))
            .suffix(".new")
            .tempfile_in(directory)?;
        let path = file.path().with_extension(EXTENSION);
        let fd = file.as_file().try_clone()?.into();
        let part = Part::in_file(fd, Some(path.clone()), header)?;
        file.persist_noclobber(&path)?;
        Ok(part)
    }

    fn in_file(fd: OwnedFd, path: Option<PathBuf>, header: &Header) -> io::Result<Part> {
        let file = File::from(fd);
        // A file beyond the limit ends the program by a signal.
        let limit = getrlimit(Resource::Fsize).current;
        if limit.is_some_and(|limit| limit < header.bytes) {
            return Err(rustix::io::Errno::FBIG.into());
        }
        file.set_len(header.bytes)?;
        // What cannot wait for memory gets it now: a write that finds none would end the program.
        let at_once = header.kernels.offset;
        fallocate(&file, FallocateFlags::KEEP_SIZE, 0, at_once)?;
        let bytes = usize::try_from(header.bytes).map_err(io::Error::other)?;
        let mapping = Mapping::new(&file, bytes)?;
        let file = match mapping.populate(0, 1) {
            Ok(()) => None,
            Err(_) => Some(file),
        };
        let part = Part {
            memory: Arc::new(Memory { mapping, file }),
            path,
            header: *header,
            tables: Mutex::new(Tables::default()),
        };
        part.start().map_err(io::Error::other)?;
        Ok(part)
    }

    fn start(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        RaceRing::<Native>::format(self.section_words(self.header.ring), self.header.ring.count)?;
        self.forget_sites()?;
        let command = std::fs::read("/proc/self/cmdline").unwrap_or_default();
        let kept = &command[..command.len().min(self.header.command.count as usize)];
        write_bytes(self.section_words(self.header.command), kept);
        let mut header = self.header;
        header.pid = std::process::id().into();
        header.start_time = start_time(std::process::id()).unwrap_or(0);
        header.state = state::ALIVE;
        header.made = now();
        header.command.count = kept.len() as u64;
        let words: [u64; size_of::<Header>() / 8] = bytemuck::cast(header);
        let target = self.words();
        for (word, value) in target.iter().zip(words) {
            word.store(value, Relaxed);
        }
        target[word!(magic)].store(format::MAGIC, Release);
        Ok(())
    }

    fn words(&self) -> &[AtomicU64] {
        self.memory.mapping.words()
    }

    /// The words of a section, and those behind it.
    fn section_words(&self, section: Section) -> &[AtomicU64] {
        &self.words()[(section.offset / 8) as usize..]
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        &self.words()[index]
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file in which others see it.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// What devices write: address and size in bytes, whole pages of 64 KiB. On a GPU it has to be made
    /// known to the driver first.
    pub fn device_memory(&self) -> (u64, u64) {
        let start = self.header.ring.offset;
        let [first, ..] = self.header.device;
        let end = match self.header.devices {
            0 => self.header.command.offset,
            _ => first.launches.offset,
        };
        (self.memory.mapping.address() + start, end - start)
    }

    /// The address of the race ring, for [`gsan_sync::Settings::race_ring`].
    pub fn race_ring(&self) -> u64 {
        self.memory.mapping.address() + self.header.ring.offset
    }

    /// The race ring.
    pub fn ring(&self) -> RaceRing<'_, Native> {
        let words = self.section_words(self.header.ring);
        RaceRing::new(words).unwrap_or_else(|_| {
            // A device can have overwritten it. Then there is nothing left to be told.
            RaceRing::format(words, self.header.ring.count)
                .expect("there was a ring of this capacity in this memory")
        })
    }

    /// The addresses of the mirrors of the devices' site tables, for
    /// [`gsan_sync::Settings::site_mirrors`].
    pub fn site_mirrors(&self) -> Vec<u64> {
        let start = self.memory.mapping.address();
        let sites = |device: &format::DeviceSections| start + device.sites.offset;
        self.devices().iter().map(sites).collect()
    }

    /// Where the launches of each device are remembered, for
    /// [`gsan_sync::Settings::launch_logs`].
    pub fn launch_logs(&self) -> Vec<LogMemory> {
        let log = |device: &format::DeviceSections| {
            LogMemory::new(LogWords {
                memory: Arc::clone(&self.memory),
                section: device.launches,
            })
        };
        self.devices().iter().map(log).collect()
    }

    fn devices(&self) -> &[format::DeviceSections] {
        &self.header.device[..self.header.devices as usize]
    }

    /// The sections of the device with this rank, if it is one of this process.
    fn device(&self, rank: u8) -> Option<&format::DeviceSections> {
        self.devices()
            .iter()
            .find(|device| device.rank == u64::from(rank))
    }

    /// The mirror of the site table of a device, by its local number.
    pub fn site_mirror(&self, local: usize) -> Option<SiteMirror<'_, Native>> {
        self.sites_of(self.devices().get(local)?)
    }

    /// The launches of a device, by its local number.
    pub fn launches(&self, local: usize) -> Option<LaunchLog<'_, Native>> {
        Some(self.launch_log(self.devices().get(local)?))
    }

    fn launch_log(&self, device: &format::DeviceSections) -> LaunchLog<'_, Native> {
        let words = self.section_words(device.launches);
        LaunchLog::new(&words[..LaunchLog::<Native>::ENTRY_WORDS * device.launches.count as usize])
    }

    fn sites_of(&self, device: &format::DeviceSections) -> Option<SiteMirror<'_, Native>> {
        SiteMirror::new(self.section_words(device.sites)).ok()
    }

    /// Empties the mirrors: device states are about to be set up anew, and number sites from the
    /// start. Everything that names sites must have been drained.
    ///
    /// # Errors
    /// When there is no room, which there is.
    pub(crate) fn forget_sites(&self) -> Result<(), gsan_core::site_mirror::SiteMirrorError> {
        for device in self.devices() {
            SiteMirror::<Native>::format(self.section_words(device.sites))?;
        }
        Ok(())
    }

    /// Names a kernel: `number` is that of [`gsan_sync::Ordering::kernel_number`], `opaque` says why
    /// its races are only possible, if they are. A name for which there is no room stays unknown.
    pub fn name_kernel(&self, number: u32, name: &str, opaque: Option<&str>) {
        self.lock().name_kernel(self, number, name, opaque);
    }

    /// The program has got memory.
    pub fn allocated(&self, address: u64, bytes: u64) {
        self.lock().allocated(self, address, bytes);
    }

    /// The memory at `address` was freed. It is known until there is too much newer memory.
    pub fn freed(&self, address: u64) {
        self.lock().freed(self, address);
    }

    /// What was checked up to now.
    pub fn set_checked(&self, checked: &Checked) {
        let mut losses = [0; 32];
        for (place, loss) in losses.iter_mut().zip(Loss::ALL) {
            *place = checked.losses.get(loss);
        }
        let checked = format::Checked {
            losses,
            launches: checked.launches,
            accesses: checked.accesses,
            covered_bytes: checked.covered_bytes,
            uncovered_bytes: checked.uncovered_bytes,
            seed: checked.seed,
        };
        let words: &[u64] = bytemuck::cast_slice(std::slice::from_ref(&checked));
        let target = &self.words()[word!(checked)..];
        for (word, &value) in target.iter().zip(words) {
            word.store(value, Relaxed);
        }
    }

    /// The process has told everything. It may go on.
    pub(crate) fn finish(&self) {
        self.word(word!(ended)).store(now(), Relaxed);
        self.word(word!(state)).store(state::FINISHED, Release);
    }

    /// A reader of this part.
    pub(crate) fn reader(&self) -> Result<PartReader, Damaged> {
        let name = || PathBuf::from(format!("process {}", std::process::id()));
        let memory = Arc::clone(&self.memory);
        PartReader::of(Source::Own(memory), self.path.clone().unwrap_or_else(name))
    }

    /// Sees to it that a range of the part has memory: a write that finds none would end the program.
    fn ensure(&self, offset: u64, bytes: u64) -> bool {
        match &self.memory.file {
            None => self.memory.mapping.populate(offset, bytes).is_ok(),
            Some(file) => fallocate(file, FallocateFlags::KEEP_SIZE, offset, bytes).is_ok(),
        }
    }
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Part")
            .field("path", &self.path)
            .field("bytes", &self.header.bytes)
            .finish_non_exhaustive()
    }
}

/// The words of a launch log.
struct LogWords {
    memory: Arc<Memory>,
    section: Section,
}

impl AsRef<[AtomicU64]> for LogWords {
    fn as_ref(&self) -> &[AtomicU64] {
        let start = (self.section.offset / 8) as usize;
        let words = LaunchLog::<Native>::ENTRY_WORDS * self.section.count as usize;
        &self.memory.mapping.words()[start..][..words]
    }
}

fn room_bytes(room: &Room, ranks: &[u16]) -> u64 {
    format::layout(room, ranks).kernels.offset
}

/// Lets `gsan run` know of a process whose part it will not see. An empty file needs no room.
fn leave_word(directory: &Path) {
    let word = directory
        .join(std::process::id().to_string())
        .with_extension(UNSEEN);
    let left = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(word);
    if left.is_err() {
        eprintln!(
            "gsan: `gsan run` will not see the races of this process: {} has no room",
            directory.display()
        );
    }
}

/// Writes bytes from the start of `words`, the last word filled up with zeros.
fn write_bytes(words: &[AtomicU64], bytes: &[u8]) {
    for (word, bytes) in words.iter().zip(bytes.chunks(8)) {
        let mut value = [0; 8];
        value[..bytes.len()].copy_from_slice(bytes);
        word.store(u64::from_le_bytes(value), Relaxed);
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// When a process started, as the system counts; `None` if there is no such process.
pub(crate) fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything. Behind it the state is field 3.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}
