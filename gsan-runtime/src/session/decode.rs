//! What shadow cells and state regions say, in the words of those who look at them.

use gsan_core::address::GRANULE;
use gsan_core::clock::ClockEntry;
use gsan_core::layout::Publication;
use gsan_core::record::{Record, RecordScope, SyncRecord, Word};
use gsan_vmm::backend::Device;

use super::Session;
use crate::error::{Error, Result};

/// Most records in a cell.
const MOST_RECORDS: usize = 4;

/// How far an access was atomic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Scope {
    /// It was not atomic.
    #[default]
    None = 0,
    /// Among the threads of one CTA.
    Cta = 1,
    /// Among the threads of one device.
    Gpu = 2,
    /// Among all threads.
    System = 3,
}

impl From<RecordScope> for Scope {
    fn from(scope: RecordScope) -> Scope {
        match scope {
            RecordScope::NotAtomic => Scope::None,
            RecordScope::Cta => Scope::Cta,
            RecordScope::Gpu => Scope::Gpu,
            RecordScope::Sys => Scope::System,
        }
    }
}

/// When somebody made an access. All zero: nobody did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Clock {
    /// The epoch, on the thread id's own count.
    pub epoch: u32,
    /// The thread id.
    pub thread_id: u32,
    /// How far it was atomic.
    pub scope: Scope,
    /// Whether it released something.
    pub is_release: bool,
}

/// What is remembered of one byte.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// The write of the byte that is remembered; of several, the one with the highest epoch, and before
    /// all others a release.
    pub write_clock: Clock,
    /// Reads of the byte.
    pub read_clocks: Vec<Clock>,
}

/// What a state region says of a thread id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadState {
    /// The thread id.
    pub thread_id: u32,
    /// How many reads a cell has room for beside a write.
    pub num_reads: u32,
    /// How many thread ids the topology has.
    pub num_threads: u32,
    /// The token of the device's next publication.
    pub clock_buffer_head: u32,
    /// Whether something was done since the thread id last published.
    pub clock_buffer_dirty: bool,
    /// How many publications the device keeps.
    pub clock_buffer_size: u32,
    /// By thread id: the thread's own epoch. What it knows of others lies with its CTA, and is 0 here.
    pub vector_clock: Vec<u32>,
}

/// What a state region says of its device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceGlobals {
    /// How many SMs the topology allows for.
    pub num_sms: u32,
    /// How many thread ids the topology has.
    pub num_threads: u32,
    /// How many devices it has.
    pub num_devices: u32,
    /// The seed of sampling, as the device uses it.
    pub rng_seed: u32,
    /// How many publications are kept.
    pub clock_buffer_size: u32,
}

impl Session {
    fn read(&self, device: Device, address: u64, into: &mut [u8]) -> Result<()> {
        Ok(self.allocator.backend().read(device, address, into)?)
    }

    /// What is remembered of the byte at `address`. It reads shadow memory; nothing waits for kernels.
    ///
    /// # Errors
    /// When the address lies in no allocation, or in one without shadow, or the device fails.
    pub fn cell_at(&self, address: u64) -> Result<Cell> {
        let allocation = self.find_allocation(address)?;
        if !allocation.managed {
            return Err(Error::NotFound(format!(
                "{address:#x} lies in memory without shadow: nothing is remembered of it"
            )));
        }
        let space = self.allocator.space();
        let mut words = [0u64; MOST_RECORDS];
        let used = &mut words[..space.records().count()];
        // The words of a pair lie together.
        for (pair, words) in used.chunks_exact_mut(2).enumerate() {
            let bytes = bytemuck::cast_slice_mut(words);
            self.read(allocation.device, space.word(address, 2 * pair), bytes)?;
        }
        let byte = 1u8 << (address % GRANULE);
        let mut cell = Cell::default();
        let mut release = None;
        for &word in used.iter() {
            let word = Word::from_bits(word);
            if word.mask() & byte == 0 {
                continue;
            }
            match word {
                Word::Empty => {}
                Word::Sync(sync) => release = Some(sync),
                Word::Ordinary(record) if record.write() => {
                    if record.epoch().get() >= cell.write_clock.epoch {
                        cell.write_clock = clock_of(record);
                    }
                }
                Word::Ordinary(record) => cell.read_clocks.push(clock_of(record)),
            }
        }
        if let Some(sync) = release {
            cell.write_clock = self.released(sync)?;
        }
        Ok(cell)
    }

    /// Who published what a sync record names, and when.
    fn released(&self, sync: SyncRecord) -> Result<Clock> {
        let mut clock = Clock {
            epoch: 0,
            thread_id: u32::from(sync.publisher().0),
            scope: sync.scope().into(),
            is_release: true,
        };
        let rank = self.ordering.topology().device(sync.publisher());
        let Some((base, _)) = self.allocator.state(rank) else {
            return Ok(clock);
        };
        // Any device of this process reaches the state.
        let device = self.any_device();
        let globals = self.globals(device)?;
        let token = sync.token().get();
        let entries = u64::from(globals.publications.max(1));
        let offset = u64::from(globals.offsets.publications);
        let at = base + offset + token % entries * size_of::<Publication>() as u64;
        let mut publication: Publication = bytemuck::Zeroable::zeroed();
        self.read(device, at, bytemuck::bytes_of_mut(&mut publication))?;
        if publication.state == (token + 1) << 1 {
            clock.epoch = ClockEntry::from_bits(publication.entry).epoch().get();
        }
        Ok(clock)
    }

    /// What the state region of a device says of one of its thread ids.
    ///
    /// # Errors
    /// When the thread id is none of the device, or the device fails.
    pub fn thread_state(&self, device: Device, thread_id: u32) -> Result<ThreadState> {
        let globals = self.globals(device)?;
        let first = u32::from(globals.constants.first_id);
        let share = u32::from(globals.constants.share);
        if !(first..first + share).contains(&thread_id) {
            return Err(Error::Argument(format!(
                "thread id {thread_id} is none of {device}, which has {first} to {}",
                first + share - 1
            )));
        }
        let base = self.ordering.state_region(device)?;
        let at = base + u64::from(globals.offsets.epochs) + 4 * u64::from(thread_id - first);
        let mut epoch = [0; 4];
        self.read(device, at, &mut epoch)?;
        let mut vector_clock = vec![0; globals.ids as usize];
        if let Some(own) = vector_clock.get_mut(thread_id as usize) {
            *own = u32::from_le_bytes(epoch);
        }
        Ok(ThreadState {
            thread_id,
            num_reads: self.allocator.space().records().count() as u32 - 1,
            num_threads: globals.ids,
            clock_buffer_head: globals.publication_head.value as u32,
            clock_buffer_dirty: u32::from_le_bytes(epoch) != 0,
            clock_buffer_size: globals.publications,
            vector_clock,
        })
    }

    /// What the state region of a device says of it.
    ///
    /// # Errors
    /// When the device has no rank, or fails.
    pub fn device_globals(&self, device: Device) -> Result<DeviceGlobals> {
        let globals = self.globals(device)?;
        Ok(DeviceGlobals {
            num_sms: globals.sms,
            num_threads: globals.ids,
            num_devices: u32::from(globals.constants.devices),
            rng_seed: globals.constants.seed,
            clock_buffer_size: globals.publications,
        })
    }
}

fn clock_of(record: Record) -> Clock {
    Clock {
        epoch: record.epoch().get(),
        thread_id: u32::from(record.thread().0),
        scope: record.scope().into(),
        is_release: false,
    }
}
