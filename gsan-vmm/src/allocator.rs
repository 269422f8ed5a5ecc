//! The allocator: real memory and its shadow, handed out, freed and shared.

mod place;
mod sharing;
mod slots;
mod states;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use gsan_core::address::{AddressSpace, Records};

use crate::backend::{Backend, BackendError, Device, Failure, HandleKind, Stream};
use crate::deadline;
use crate::error::Error;
use crate::handle_type::HandleType;
use crate::owned::{Backing, Driver, Fence, Held, Range};
use crate::reclaim::{self, Leftover, Queue, Remains, Until};

pub(crate) use slots::Place;
use slots::Slots;
use states::States;
pub use states::{STATE_RANKS, STATE_STRIDE};

/// The smallest reservation that is tried when the one asked for is larger and refused.
const LEAST_RESERVE: u64 = 1 << 40;

/// How an [`Allocator`] is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The address space for real and shadow memory together, in bytes: a power of two. If one of
    /// 1 TiB or more is refused, smaller ones down to 1 TiB are tried; a smaller one is taken at
    /// its word.
    pub reserve: u64,
    /// Records in a shadow cell.
    pub records: Records,
    /// Whether write-once memory gets addresses of its own, by which device code tells it: the last
    /// eighth of those of real memory.
    pub write_once: bool,
    /// How memory is to be shared.
    pub handle_type: HandleType,
    /// How long an allocation that finds no memory waits for the streams that still use freed
    /// memory, and dropping the allocator likewise.
    pub patience: Duration,
}

impl Default for Options {
    /// 8 TiB, four records, no addresses for write-once memory, handles as `auto` chooses them, 30 seconds.
    fn default() -> Options {
        Options {
            reserve: 8 << 40,
            records: Records::Four,
            write_once: false,
            handle_type: HandleType::Auto {
                fabric_asked: false,
            },
            patience: Duration::from_secs(30),
        }
    }
}

/// An allocation, as anybody may know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Its first address.
    pub address: u64,
    /// The bytes that were asked for.
    pub bytes: u64,
    /// The device it was made on; for an import the device that imported it.
    pub device: Device,
    /// Whether it has shadow memory. Without, accesses to it are not checked.
    pub managed: bool,
    /// Whether another process owns the memory.
    pub imported: bool,
    /// Whether each of its bytes may be written only once.
    pub write_once: bool,
}

/// Counts of an allocator's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Live allocations, imports among them.
    pub live: usize,
    /// The bytes that were asked for in them.
    pub live_bytes: u64,
    /// Bytes of live allocations without shadow.
    pub unmanaged_bytes: u64,
    /// How many allocations were ever handed out without shadow.
    pub unmanaged_ever: u64,
    /// Freed bytes, of real and shadow memory, that wait for their streams or could not be
    /// unmapped yet.
    pub waiting_bytes: u64,
}

/// The allocator of a process: its address space, what is allocated in it, and the runtime state
/// of every device rank.
///
/// Any thread may call at any time. Three locks (allocations, states, and the queue of freed
/// memory) are each held for a few operations on tables, never two at once and never across a call
/// of the backend.
pub struct Allocator {
    inner: Arc<Inner>,
    worker: Option<JoinHandle<Leftover>>,
}

struct Inner {
    driver: Driver,
    space: AddressSpace,
    handle_kind: HandleKind,
    patience: Duration,
    /// For each device, all that reach its memory.
    reach: Vec<Vec<Device>>,
    slots: Mutex<Slots>,
    states: States,
    queue: Queue,
    /// The two reservations: memory, and runtime states. Held until everything in them is gone.
    ranges: Mutex<Vec<Range>>,
}

impl Allocator {
    /// Reserves the address space and starts the thread that gives memory back.
    ///
    /// # Errors
    /// When the reservation is refused, too small or no power of two, when the devices do not
    /// support the handle type, or the thread cannot be started.
    pub fn new(driver: Arc<dyn Backend>, options: Options) -> Result<Allocator, Error> {
        let unit = driver.granularity();
        // Checks that the size is one before anything is reserved.
        AddressSpace::new(0, options.reserve, options.records)?;
        let least = unit.saturating_mul(2 * options.records.count() as u64);
        if options.reserve < least {
            return Err(Error::ReserveTooSmall {
                asked: options.reserve,
                unit,
                least,
            });
        }
        let count = driver.devices().len() as u32;
        if count == 0 {
            return Err(Error::BadDevice {
                device: Device(0),
                count: 0,
            });
        }
        let handle_kind = options.handle_type.choose(&driver)?;
        let memory = reserve(&driver, options.reserve)?;
        let space = AddressSpace::new(memory.address(), memory.bytes(), options.records)?;
        let bytes = u64::from(STATE_RANKS) * STATE_STRIDE;
        let states = Range::new(&driver, bytes, STATE_STRIDE)?;
        let slots = Slots::new(space, unit, options.write_once).ok_or(Error::ReserveTooSmall {
            asked: options.reserve,
            unit,
            least,
        })?;
        let reaching = |owner| {
            let all = (0..count).map(Device);
            all.filter(|&from| driver.reaches(from, owner)).collect()
        };
        let inner = Arc::new(Inner {
            space,
            handle_kind,
            patience: options.patience,
            reach: (0..count).map(Device).map(reaching).collect(),
            slots: Mutex::new(slots),
            states: States::new(states.address()),
            queue: Queue::default(),
            ranges: Mutex::new(vec![memory, states]),
            driver,
        });
        let for_worker = Arc::clone(&inner);
        let worker = std::thread::Builder::new()
            .name("gsan-vmm".into())
            .spawn(move || {
                let inner = &*for_worker;
                reclaim::run(&inner.queue, &inner.driver, |places| inner.vacate(places))
            })
            .map_err(|e| BackendError::new("thread::spawn", Failure::Other, e.to_string()))?;
        Ok(Allocator {
            inner,
            worker: Some(worker),
        })
    }

    /// The reservation and its arithmetic: [`AddressSpace::shadow`] is where the shadow of an
    /// address of [managed](Allocation::managed) memory lies.
    pub fn space(&self) -> AddressSpace {
        self.inner.space
    }

    /// The first address of write-once memory; 0 if it has no addresses of its own.
    pub fn write_once_base(&self) -> u64 {
        self.inner.slots().write_once_base()
    }

    /// The backend.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.inner.driver
    }

    /// How memory is shared.
    pub fn handle_kind(&self) -> HandleKind {
        self.inner.handle_kind
    }

    /// Counts of what is allocated.
    pub fn usage(&self) -> Usage {
        let usage = self.inner.slots().usage();
        Usage {
            waiting_bytes: self.inner.queue.waiting_bytes(),
            ..usage
        }
    }

    /// Whether no address range is taken: nothing is live and nothing waits to be unmapped.
    pub fn is_empty(&self) -> bool {
        let unused = self.inner.slots().is_empty();
        unused && self.inner.queue.waiting_bytes() == 0
    }

    /// The live allocation that contains `address`. Freed memory is not live, even while it waits
    /// for its stream.
    pub fn find(&self, address: u64) -> Option<Allocation> {
        let slots = self.inner.slots();
        slots.find(address).ok().map(|live| live.allocation)
    }

    /// Whether `address` lies in managed memory that was freed and waits for its stream, which may still
    /// use it.
    pub fn is_leaving(&self, address: u64) -> bool {
        let slots = self.inner.slots();
        matches!(slots.find(address), Err(Error::AlreadyFreed { .. }))
    }

    /// All live allocations, by address. Others wait while the list is made.
    pub fn live(&self) -> Vec<Allocation> {
        let mut live: Vec<_> = {
            let slots = self.inner.slots();
            slots.all().map(|live| live.allocation).collect()
        };
        live.sort_unstable_by_key(|allocation| allocation.address);
        live
    }

    /// Zeroes the shadow of every live allocation that is not another process's; it is done on
    /// return. That of write-once memory becomes all ones instead: which bytes were written is not
    /// known any more.
    ///
    /// # Errors
    /// When a device fails. What is freed meanwhile is no error.
    pub fn clear_shadow(&self) -> Result<(), Error> {
        self.clear_shadow_of(false)
    }

    /// The same with the allocations of other processes that are mapped here.
    ///
    /// # Errors
    /// When a device fails.
    pub fn clear_all_shadow(&self) -> Result<(), Error> {
        self.clear_shadow_of(true)
    }

    fn clear_shadow_of(&self, imported: bool) -> Result<(), Error> {
        let inner = &*self.inner;
        let (space, unit) = (inner.space, inner.driver.granularity());
        let base = self.write_once_base();
        for allocation in self.live() {
            if !allocation.managed || allocation.imported && !imported {
                continue;
            }
            let records = space.records().count() as u64;
            let bytes = allocation.bytes.next_multiple_of(unit) * records;
            let shadow = space.shadow(allocation.address);
            let apart = base != 0 && allocation.address >= base;
            let value = if apart { u8::MAX } else { 0 };
            let cleared = inner.driver.fill(allocation.device, shadow, bytes, value);
            if let Err(error) = cleared
                && self.find(allocation.address) == Some(allocation)
            {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Hands out `bytes` bytes of `device`'s memory with zeroed shadow and returns their address;
    /// 0 for 0 bytes.
    ///
    /// Memory for whose shadow there is no room, physical or in the reservation, lies outside the
    /// reservation, where it is not checked, and is counted in [`Usage::unmanaged_ever`].
    ///
    /// # Errors
    /// When the device does not exist, or there is no memory or no address range left, after
    /// waiting for freed memory that streams still use, and for a fraction of a second for what
    /// other threads free.
    pub fn allocate(&self, bytes: u64, device: Device) -> Result<u64, Error> {
        self.allocate_as(bytes, device, false)
    }

    /// Like [`Self::allocate`], for memory each byte of which may be written only once.
    ///
    /// # Errors
    /// The same.
    pub fn allocate_write_once(&self, bytes: u64, device: Device) -> Result<u64, Error> {
        self.allocate_as(bytes, device, true)
    }

    fn allocate_as(&self, bytes: u64, device: Device, write_once: bool) -> Result<u64, Error> {
        let inner = &*self.inner;
        let index = inner.device(device)?;
        if bytes == 0 {
            return Ok(0);
        }
        let unit = inner.driver.granularity();
        let mapped = bytes
            .checked_next_multiple_of(unit)
            .ok_or(Error::TooLarge { bytes })?;
        let owner = inner.driver.devices()[index].uuid;
        let real = inner
            .create(device, mapped)
            .map_err(|error| inner.no_memory(error, bytes, device))?;
        let allocation = Allocation {
            address: 0,
            bytes,
            device,
            managed: true,
            imported: false,
            write_once,
        };
        inner.place(allocation, owner, &inner.reach[index], real, None)
    }

    /// Frees the allocation that starts at `address`; 0 is ignored. `given` is what the caller
    /// believes its size and device to be. The memory is given back once `stream` has passed
    /// this point; the call does not wait for that.
    ///
    /// `stream` is one of the allocation's device. Memory of another process is only unmapped.
    ///
    /// # Errors
    /// When no allocation starts there, it was freed already, or it is not what `given` says, or
    /// the stream is one of another backend. Nothing changes then.
    pub fn free(
        &self,
        address: u64,
        given: Option<(u64, Device)>,
        stream: Stream,
    ) -> Result<(), Error> {
        let inner = &*self.inner;
        if address == 0 {
            return Ok(());
        }
        let (place, device) = inner.slots().freeable(address, given)?;
        let fence = match Fence::new(&inner.driver, device, stream) {
            Ok(fence) => Some(fence),
            Err(error) if error.failure == Failure::InvalidArgument => return Err(error.into()),
            Err(error) => {
                tracing::warn!(%error, "a freed allocation waits for its whole device");
                None
            }
        };
        let _under_way = inner.queue.announce();
        // Somebody else may have freed it in between.
        let backing = inner.slots().leave(place, address, given)?;
        let until = match fence {
            Some(fence) => Until::Passed(device, stream, fence.rest()),
            None => Until::Idle(device),
        };
        inner.queue.push(Remains::new(place, backing, until));
        Ok(())
    }

    /// Waits until the memory of everything freed so far has been given back, at most
    /// [`Options::patience`]; tries again what could not be unmapped before.
    pub fn flush(&self) {
        self.inner.queue.flush(self.inner.patience);
    }
}

impl Drop for Allocator {
    /// Gives everything back, allocations that are still live included, after waiting for their
    /// devices.
    fn drop(&mut self) {
        let inner = &*self.inner;
        inner.queue.stop(deadline::after(inner.patience));
        let leftover = self.worker.take().and_then(|worker| worker.join().ok());
        let leftover = leftover.unwrap_or_default();
        let driver = &inner.driver;
        for remains in leftover.stuck {
            close_at_last(driver, remains.backing);
        }
        let live = inner.slots().drain();
        for device in 0..inner.reach.len() as u32 {
            let device = Device(device);
            if live.iter().any(|(of, _)| *of == device)
                && let Err(error) = driver.synchronize(device)
            {
                tracing::debug!(%error, %device, "the device cannot be waited for");
            }
        }
        let live = live.into_iter().map(|(_, backing)| backing);
        for backing in live.chain(inner.states.drain()) {
            close_at_last(driver, backing);
        }
        let mut ranges = {
            let mut ranges = inner.ranges.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *ranges)
        };
        if !leftover.in_use.is_empty() {
            tracing::warn!(
                count = leftover.in_use.len(),
                "freed memory is still in use by a stream and stays mapped"
            );
            std::mem::forget(leftover.in_use);
            std::mem::forget(ranges);
            return;
        }
        for range in &mut ranges {
            if let Err(error) = range.close() {
                tracing::debug!(%error, "giving a reservation back at the end, once more");
            }
        }
    }
}

/// Closes what nobody will have another chance to close: twice, if need be.
fn close_at_last(driver: &Driver, backing: Backing) {
    let mut held = Held::new(driver, backing);
    if let Err(error) = held.close() {
        tracing::debug!(%error, "closing an allocation at the end, once more");
    }
}

/// A reservation of `bytes` bytes, or of less if that is refused and still 1 TiB.
fn reserve(driver: &Driver, bytes: u64) -> Result<Range, Error> {
    let mut size = bytes;
    loop {
        match Range::new(driver, size, size) {
            Ok(range) => {
                if size < bytes {
                    tracing::warn!(
                        asked = bytes,
                        granted = size,
                        "a smaller reservation was granted"
                    );
                }
                return Ok(range);
            }
            Err(_) if size / 2 >= LEAST_RESERVE => size /= 2,
            Err(source) => {
                return Err(Error::ReserveRefused {
                    smallest: size,
                    source,
                });
            }
        }
    }
}

impl Inner {
    fn slots(&self) -> MutexGuard<'_, Slots> {
        // No code that can panic runs between changes that belong together.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The device's place in the tables.
    fn device(&self, device: Device) -> Result<usize, Error> {
        let index = device.0 as usize;
        let count = self.reach.len();
        if index >= count {
            return Err(Error::BadDevice { device, count });
        }
        Ok(index)
    }
}
