//! The allocator: real memory and its shadow, handed out, freed and shared.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use gsan_core::address::{AddressSpace, Records};
use gsan_core::ids::DeviceRank;

use crate::backend::{Backend, BackendError, Device, Failure, HandleKind, Stream};
use crate::buddy::{Block, BuddyTree};
use crate::deadline;
use crate::error::Error;
use crate::handle_type::HandleType;
use crate::owned::{Backing, Driver, Fence, Memory, Range};
use crate::reclaim::{self, Leftover, Queue, Remains, Until};
use crate::share::{SharedAllocation, SharedMemory, SharedState};

/// How many device ranks the runtime state has room for.
pub const STATE_RANKS: u16 = 32;
/// The distance in bytes between the runtime states of two device ranks.
pub const STATE_STRIDE: u64 = 1 << 30;
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
    /// How memory is to be shared.
    pub handle_type: HandleType,
    /// How long an allocation that finds no memory waits for the streams that still use freed
    /// memory, and dropping the allocator likewise.
    pub patience: Duration,
}

impl Default for Options {
    /// 8 TiB, four records, handles as `auto` chooses them, 30 seconds.
    fn default() -> Options {
        Options {
            reserve: 8 << 40,
            records: Records::Four,
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

/// What becomes free when the memory behind it has been unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The range of the buddy tree at this offset.
    Tree(u64),
    /// Nothing more than the memory itself and its own reservation.
    Apart,
}

/// What a range of the tree is used for.
enum Slot {
    /// It is being allocated; nobody knows the address yet.
    Making,
    Live(Box<Live>),
    /// It was freed and is not unmapped yet.
    Leaving,
}

struct Live {
    allocation: Allocation,
    backing: Backing,
    /// The device that owns the memory, the same in all processes.
    owner: [u8; 16],
}

/// The allocator of a process: its address space, what is allocated in it, and the runtime state
/// of every device rank.
///
/// Any thread may call at any time. Three locks (allocations, states, and the queue of freed
/// memory) are each held for a few map operations, never two at once and never across a call of
/// the backend.
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
    states: Mutex<Vec<State>>,
    queue: Queue,
    /// The two reservations: memory, and runtime states. Held until everything in them is gone.
    ranges: Mutex<Vec<Range>>,
    state_base: u64,
}

struct Slots {
    tree: BuddyTree<Slot>,
    /// Live allocations without shadow, by address.
    apart: BTreeMap<u64, Box<Live>>,
    usage: Usage,
}

/// The runtime state of a device rank.
enum State {
    Empty,
    /// Being made or given back.
    Busy,
    Present {
        memory: Memory,
        owner: [u8; 16],
    },
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
        let least = 2 * options.records.count() as u64 * unit;
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
        let tree = BuddyTree::new(space.usable(), unit).ok_or(Error::ReserveTooSmall {
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
            slots: Mutex::new(Slots {
                tree,
                apart: BTreeMap::new(),
                usage: Usage::default(),
            }),
            states: Mutex::new((0..STATE_RANKS).map(|_| State::Empty).collect()),
            queue: Queue::default(),
            state_base: states.address(),
            ranges: Mutex::new(vec![memory, states]),
            driver,
        });
        let for_worker = Arc::clone(&inner);
        let worker = std::thread::Builder::new()
            .name("gsan-vmm".into())
            .spawn(move || {
                let inner = &*for_worker;
                reclaim::run(&inner.queue, &inner.driver, |place| inner.vacate(place))
            })
            .map_err(|e| BackendError::new("thread::spawn", Failure::Other, e.to_string()))?;
        Ok(Allocator {
            inner,
            worker: Some(worker),
        })
    }

    /// The reservation and its arithmetic.
    pub fn space(&self) -> AddressSpace {
        self.inner.space
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
        let usage = self.inner.slots().usage;
        Usage {
            waiting_bytes: self.inner.queue.waiting_bytes(),
            ..usage
        }
    }

    /// Whether no address range is taken: nothing is live and nothing waits to be unmapped.
    pub fn is_empty(&self) -> bool {
        let unused = {
            let slots = self.inner.slots();
            slots.tree.is_empty() && slots.apart.is_empty()
        };
        unused && self.inner.queue.waiting_bytes() == 0
    }

    /// The live allocation that contains `address`.
    pub fn find(&self, address: u64) -> Option<Allocation> {
        let mut slots = self.inner.slots();
        let live = slots.live(self.inner.space, address).ok()?;
        Some(live.allocation)
    }

    /// Hands out `bytes` bytes of `device`'s memory with zeroed shadow and returns their address;
    /// 0 for 0 bytes.
    ///
    /// Memory for whose shadow there is no room, physical or in the reservation, lies outside the
    /// reservation, where it is not checked, and is counted in [`Usage::unmanaged_ever`].
    ///
    /// # Errors
    /// When the device does not exist, or there is no memory or no address range left, after
    /// waiting for freed memory that streams still use.
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
        let info = inner.device(device)?;
        if bytes == 0 {
            return Ok(0);
        }
        let unit = inner.driver.granularity();
        let mapped = bytes
            .checked_next_multiple_of(unit)
            .ok_or(Error::TooLarge { bytes })?;
        let owner = inner.driver.devices()[info].uuid;
        let kind = inner.handle_kind;
        let create = |bytes| inner.patiently(|| Memory::create(&inner.driver, device, bytes, kind));
        let real = create(mapped).map_err(|error| inner.no_memory(error, bytes, device))?;
        let allocation = Allocation {
            address: 0,
            bytes,
            device,
            managed: true,
            imported: false,
            write_once,
        };
        let reach = &inner.reach[info];
        inner.place(allocation, owner, reach, real, |bytes| {
            create(bytes).map(Some)
        })
    }

    /// Frees the allocation that starts at `address`; 0 is ignored. `given` is what the caller
    /// believes its size and device to be. The memory is given back once `stream` has passed
    /// this point; the call does not wait for that.
    ///
    /// Memory of another process is only unmapped.
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
        let device = inner
            .slots()
            .freeable(inner.space, address, given)?
            .allocation
            .device;
        let until = match Fence::new(&inner.driver, device, stream) {
            Ok(fence) => Until::Passed(device, stream, fence),
            Err(error) if error.failure == Failure::InvalidArgument => return Err(error.into()),
            Err(error) => {
                tracing::warn!(%error, "a freed allocation waits for its whole device");
                Until::Idle(device)
            }
        };
        let (place, live) = {
            let mut slots = inner.slots();
            // Somebody else may have freed it in between.
            slots.freeable(inner.space, address, given)?;
            slots.leave(inner.space, address)?
        };
        inner.queue.push(Remains::new(place, live.backing, until));
        Ok(())
    }

    /// Waits until the memory of everything freed so far has been given back, at most
    /// [`Options::patience`]; tries again what could not be unmapped before.
    pub fn flush(&self) {
        self.inner.queue.flush(self.inner.patience);
    }

    /// The allocation that contains `address`, for another process to import, and the distance
    /// from its start to `address`.
    ///
    /// # Errors
    /// When no allocation contains it, or the backend cannot export it.
    pub fn export(&self, address: u64) -> Result<(SharedAllocation, u64), Error> {
        let inner = &*self.inner;
        let (allocation, owner, real, shadow) = {
            let mut slots = inner.slots();
            let live = slots.live(inner.space, address)?;
            let id =
                |memory: &Option<Memory>| memory.as_ref().and_then(|m| Some((m.id()?, m.bytes())));
            let backing = &live.backing;
            let ids = (id(&backing.real), id(&backing.shadow));
            (live.allocation, live.owner, ids.0, ids.1)
        };
        let export = |(id, bytes)| {
            let handle = inner.driver.export(id, inner.handle_kind)?;
            Ok(SharedMemory { handle, bytes })
        };
        // Freed by another thread since: the backend no longer knows the memory.
        let gone = |error: BackendError| match error.failure {
            Failure::NoSuchHandle => Error::NotLive { address },
            _ => Error::Backend(error),
        };
        let real = real.ok_or(Error::NotLive { address })?;
        let shared = SharedAllocation {
            owner,
            bytes: allocation.bytes,
            records: inner.space.records(),
            write_once: allocation.write_once,
            real: export(real).map_err(gone)?,
            shadow: shadow.map(export).transpose().map_err(gone)?,
        };
        Ok((shared, address - allocation.address))
    }

    /// Maps memory that another process exported, with its shadow, for `device` and all that
    /// reach it too, and returns its address here. It is freed like an allocation, which leaves
    /// the owner's memory alone.
    ///
    /// # Errors
    /// When the parts do not fit each other or this process's layout, the device does not exist
    /// or does not reach the memory, or there is no room.
    pub fn import(&self, shared: SharedAllocation, device: Device) -> Result<u64, Error> {
        let inner = &*self.inner;
        let index = inner.device(device)?;
        shared.check(inner.space.records(), inner.driver.granularity())?;
        let reach = inner.reach_of_import(shared.owner, device, index)?;
        let import =
            |part: SharedMemory| Memory::import(&inner.driver, device, part.handle, part.bytes);
        let real = import(shared.real)?;
        let mut shadow = match shared.shadow.map(import).transpose() {
            Ok(shadow) => shadow,
            Err(error) => return inner.keep_or_close(real, Err(error)).map(|_| 0),
        };
        let allocation = Allocation {
            address: 0,
            bytes: shared.bytes,
            device,
            managed: true,
            imported: true,
            write_once: shared.write_once,
        };
        let placed = inner.place(
            allocation,
            shared.owner,
            &reach,
            real,
            |_| Ok(shadow.take()),
        );
        if let Some(unused) = shadow {
            inner.discard(Place::Apart, Backing::shadow(unused));
        }
        placed
    }

    /// Where the runtime state of rank 0 is, or would be. That of rank `r` is
    /// `r *` [`STATE_STRIDE`] further.
    pub fn state_base(&self) -> u64 {
        self.inner.state_base
    }

    /// Makes `bytes` bytes of zeroed runtime state on `device` for `rank`, and returns their
    /// address.
    ///
    /// # Errors
    /// When the rank is out of range or taken, the size is 0 or above [`STATE_STRIDE`], the
    /// device does not exist, or there is no memory.
    pub fn create_state(&self, rank: DeviceRank, device: Device, bytes: u64) -> Result<u64, Error> {
        let inner = &*self.inner;
        let index = inner.device(device)?;
        let unit = inner.driver.granularity();
        let mapped = bytes
            .checked_next_multiple_of(unit)
            .filter(|&mapped| (1..=STATE_STRIDE).contains(&mapped))
            .ok_or(Error::StateTooLarge { bytes })?;
        let owner = inner.driver.devices()[index].uuid;
        inner.fill_state(rank, owner, |address| {
            let kind = inner.handle_kind;
            let create = || Memory::create(&inner.driver, device, mapped, kind);
            let mut memory = inner
                .patiently(create)
                .map_err(|error| inner.no_memory(error, bytes, device))?;
            let placed = memory
                .place(address, &inner.reach[index])
                .and_then(|()| inner.driver.fill(device, address, mapped, 0));
            inner.keep_or_close(memory, placed)
        })
    }

    /// The runtime state of `rank`, for another process to import.
    ///
    /// # Errors
    /// When the rank is out of range or has no state here, or the backend cannot export it.
    pub fn export_state(&self, rank: DeviceRank) -> Result<SharedState, Error> {
        let inner = &*self.inner;
        let (id, bytes, owner) = {
            let mut states = inner.states();
            match state_of(&mut states, rank)? {
                State::Present { memory, owner } => (memory.id(), memory.bytes(), *owner),
                _ => return Err(Error::NoState(rank)),
            }
        };
        let handle = inner
            .driver
            .export(id.ok_or(Error::NoState(rank))?, inner.handle_kind)?;
        Ok(SharedState {
            rank,
            owner,
            memory: SharedMemory { handle, bytes },
        })
    }

    /// Maps the runtime state of another process's rank, for `device` and all that reach it too,
    /// and returns its address.
    ///
    /// # Errors
    /// When the rank is out of range or taken, the device does not exist or does not reach the
    /// memory, or the handle is not one.
    pub fn import_state(&self, shared: SharedState, device: Device) -> Result<u64, Error> {
        let inner = &*self.inner;
        let index = inner.device(device)?;
        shared.check(inner.driver.granularity())?;
        let reach = inner.reach_of_import(shared.owner, device, index)?;
        let part = shared.memory;
        inner.fill_state(shared.rank, shared.owner, |address| {
            let mut memory = Memory::import(&inner.driver, device, part.handle, part.bytes)?;
            let placed = memory.place(address, &reach);
            inner.keep_or_close(memory, placed)
        })
    }

    /// Unmaps the runtime state of `rank`, own or imported. No kernel may use it any more: this
    /// waits for none.
    ///
    /// # Errors
    /// When the rank is out of range or has no state here, or the backend cannot unmap it; it is
    /// still there then.
    pub fn release_state(&self, rank: DeviceRank) -> Result<(), Error> {
        let inner = &*self.inner;
        let (mut memory, owner) = {
            let mut states = inner.states();
            let state = state_of(&mut states, rank)?;
            match std::mem::replace(state, State::Busy) {
                State::Present { memory, owner } => (memory, owner),
                other => {
                    *state = other;
                    return Err(Error::NoState(rank));
                }
            }
        };
        let closed = memory.close();
        let after = match closed {
            Ok(()) => State::Empty,
            Err(_) => State::Present { memory, owner },
        };
        inner.states()[usize::from(rank.0)] = after;
        Ok(closed?)
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
        for mut remains in leftover.stuck {
            if remains.backing.close().is_ok() {
                inner.vacate(remains.place);
            }
        }
        let mut live: Vec<Box<Live>> = {
            let mut slots = inner.slots();
            let tree = slots.tree.drain().filter_map(|slot| match slot {
                Slot::Live(live) => Some(live),
                Slot::Making | Slot::Leaving => None,
            });
            let mut live: Vec<_> = tree.collect();
            live.extend(std::mem::take(&mut slots.apart).into_values());
            live
        };
        for device in 0..inner.reach.len() as u32 {
            let device = Device(device);
            if live.iter().any(|live| live.allocation.device == device)
                && let Err(error) = inner.driver.synchronize(device)
            {
                tracing::debug!(%error, %device, "the device cannot be waited for");
            }
        }
        for live in &mut live {
            if let Err(error) = live.backing.close() {
                tracing::debug!(%error, "closing an allocation at the end, once more");
            }
        }
        drop(live);
        inner.states().clear();
        if !leftover.in_use.is_empty() {
            tracing::warn!(
                count = leftover.in_use.len(),
                "freed memory is still in use by a stream and stays mapped"
            );
            std::mem::forget(leftover.in_use);
            let mut ranges = inner.ranges.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(std::mem::take(&mut *ranges));
        }
        // The reservations follow when `inner` goes.
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

fn state_of(states: &mut [State], rank: DeviceRank) -> Result<&mut State, Error> {
    states
        .get_mut(usize::from(rank.0))
        .ok_or(Error::BadRank(rank))
}

impl Inner {
    fn slots(&self) -> MutexGuard<'_, Slots> {
        // No code that can panic runs between changes that belong together.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn states(&self) -> MutexGuard<'_, Vec<State>> {
        // Every change replaces a single element.
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Runs `make`; if it finds no memory, gives back what was freed and runs it once more.
    fn patiently<T>(&self, make: impl Fn() -> Result<T, BackendError>) -> Result<T, BackendError> {
        match make() {
            Err(error)
                if error.failure == Failure::OutOfMemory && self.queue.flush(self.patience) =>
            {
                make()
            }
            result => result,
        }
    }

    fn no_memory(&self, error: BackendError, bytes: u64, device: Device) -> Error {
        if error.failure != Failure::OutOfMemory {
            return error.into();
        }
        Error::OutOfMemory {
            bytes,
            device,
            memory: self.driver.free_memory(device).unwrap_or_default(),
            waiting: self.queue.waiting_bytes(),
        }
    }

    /// Finds addresses for `real` and for the shadow that `make_shadow` makes, maps both, and
    /// enters the allocation.
    fn place(
        &self,
        mut allocation: Allocation,
        owner: [u8; 16],
        reach: &[Device],
        mut real: Memory,
        make_shadow: impl FnOnce(u64) -> Result<Option<Memory>, BackendError>,
    ) -> Result<u64, Error> {
        let mapped = real.bytes();
        let take = || self.slots().tree.take(mapped, Slot::Making);
        let block = take().or_else(|| self.queue.flush(self.patience).then(take).flatten());
        let mut backing = Backing::default();
        let mut place = Place::Apart;
        if let Some(block) = block {
            let made = make_shadow(mapped * self.space.records().count() as u64);
            if let Some(shadow) = self.map_shadow(&allocation, block, reach, made) {
                allocation.address = self.space.real_base() + block.offset;
                place = Place::Tree(block.offset);
                backing = Backing::shadow(shadow);
            }
        }
        let mut reserved = Ok(());
        if place == Place::Apart {
            allocation.managed = false;
            match Range::new(&self.driver, mapped, self.driver.granularity()) {
                Ok(range) => {
                    allocation.address = range.address();
                    backing.range = Some(range);
                }
                Err(error) if block.is_some() => reserved = Err(error.into()),
                Err(_) => reserved = Err(self.no_addresses(allocation.bytes)),
            }
        }
        let placed = reserved.and_then(|()| Ok(real.place(allocation.address, reach)?));
        backing.real = Some(real);
        if let Err(error) = placed {
            self.discard(place, backing);
            return Err(error);
        }
        let live = Live {
            allocation,
            backing,
            owner,
        };
        self.slots().enter(place, live);
        Ok(allocation.address)
    }

    /// Maps `made` as the shadow of `block`, zeroed unless it is another process's. A failure is
    /// logged, and leaves nothing behind; the block is free again then.
    fn map_shadow(
        &self,
        allocation: &Allocation,
        block: Block,
        reach: &[Device],
        made: Result<Option<Memory>, BackendError>,
    ) -> Option<Memory> {
        let address = self.space.shadow(self.space.real_base() + block.offset);
        let mut backing = Backing::default();
        let result = made.and_then(|made| {
            if let Some(memory) = made {
                let memory = backing.shadow.insert(memory);
                memory.place(address, reach)?;
                if !allocation.imported {
                    let bytes = memory.bytes();
                    self.driver.fill(allocation.device, address, bytes, 0)?;
                }
            }
            Ok(())
        });
        match result {
            Ok(()) if backing.shadow.is_some() => return backing.shadow,
            Ok(()) => {}
            Err(error) => {
                let bytes = allocation.bytes;
                tracing::warn!(%error, bytes, "no shadow memory: not checked");
            }
        }
        self.discard(Place::Tree(block.offset), backing);
        None
    }

    fn no_addresses(&self, bytes: u64) -> Error {
        Error::OutOfAddressSpace {
            bytes,
            largest: self.slots().tree.largest_free(),
            usable: self.space.usable(),
            reserve: self.space.reserve(),
        }
    }

    /// Gives back what never became an allocation, now or later.
    fn discard(&self, place: Place, mut backing: Backing) {
        match backing.close() {
            Ok(()) => self.vacate(place),
            Err(_) => self.queue.push(Remains::new(place, backing, Until::Now)),
        }
    }

    /// Makes an address range free again.
    fn vacate(&self, place: Place) {
        if let Place::Tree(offset) = place {
            self.slots().tree.give_back(offset);
        }
    }

    /// The memory if it was `placed`; otherwise the error, after giving it back now or later.
    fn keep_or_close(
        &self,
        memory: Memory,
        placed: Result<(), BackendError>,
    ) -> Result<Memory, Error> {
        match placed {
            Ok(()) => Ok(memory),
            Err(error) => {
                let backing = Backing {
                    real: Some(memory),
                    ..Backing::default()
                };
                self.discard(Place::Apart, backing);
                Err(error.into())
            }
        }
    }

    /// Fills an empty rank with the state that `make` maps at its address.
    fn fill_state(
        &self,
        rank: DeviceRank,
        owner: [u8; 16],
        make: impl FnOnce(u64) -> Result<Memory, Error>,
    ) -> Result<u64, Error> {
        {
            let mut states = self.states();
            let state = state_of(&mut states, rank)?;
            if !matches!(state, State::Empty) {
                return Err(Error::RankTaken(rank));
            }
            *state = State::Busy;
        }
        let address = self.state_base + u64::from(rank.0) * STATE_STRIDE;
        let made = make(address);
        let (after, result) = match made {
            Ok(memory) => (State::Present { memory, owner }, Ok(address)),
            Err(error) => (State::Empty, Err(error)),
        };
        self.states()[usize::from(rank.0)] = after;
        result
    }

    /// Who gets access to memory that `device` imports from the device with the uuid `owner`.
    fn reach_of_import(
        &self,
        owner: [u8; 16],
        device: Device,
        index: usize,
    ) -> Result<Vec<Device>, Error> {
        let devices = self.driver.devices();
        let Some(local) = devices.iter().position(|info| info.uuid == owner) else {
            // A device this process cannot see: the driver decides.
            return Ok(vec![device]);
        };
        if local != index && !self.reach[local].contains(&device) {
            return Err(Error::Unreachable {
                device,
                owner: Device(local as u32),
            });
        }
        Ok(self.reach[local].clone())
    }
}

impl Slots {
    /// The live allocation that contains `address`. The range behind its last byte, up to the
    /// unit of memory, is nobody's.
    fn live(&mut self, space: AddressSpace, address: u64) -> Result<&mut Live, Error> {
        let live = if space.is_managed(address) {
            match self.tree.get_mut(address - space.real_base()) {
                Some((_, Slot::Live(live))) => Some(live),
                Some((_, Slot::Leaving)) => return Err(Error::AlreadyFreed { address }),
                _ => None,
            }
        } else {
            self.apart
                .range_mut(..=address)
                .next_back()
                .map(|(_, live)| live)
        };
        live.map(Box::as_mut)
            .filter(|live| address - live.allocation.address < live.allocation.bytes)
            .ok_or(Error::NotLive { address })
    }

    /// The live allocation that starts at `address` and is what `given` says.
    fn freeable(
        &mut self,
        space: AddressSpace,
        address: u64,
        given: Option<(u64, Device)>,
    ) -> Result<&mut Live, Error> {
        let live = self.live(space, address)?;
        let allocation = live.allocation;
        if allocation.address != address {
            return Err(Error::Interior {
                address,
                start: allocation.address,
            });
        }
        match given {
            Some((given_bytes, given_device))
                if (given_bytes, given_device) != (allocation.bytes, allocation.device) =>
            {
                Err(Error::Mismatch {
                    address,
                    bytes: allocation.bytes,
                    device: allocation.device,
                    given_bytes,
                    given_device,
                })
            }
            _ => Ok(live),
        }
    }

    /// Takes the live allocation that starts at `address` out; a range of the tree stays taken
    /// until it has been unmapped.
    fn leave(&mut self, space: AddressSpace, address: u64) -> Result<(Place, Box<Live>), Error> {
        let (place, live) = if space.is_managed(address) {
            let offset = address - space.real_base();
            let slot = self.tree.get_mut(offset).map(|(_, slot)| slot);
            let live = slot.and_then(|slot| match std::mem::replace(slot, Slot::Leaving) {
                Slot::Live(live) => Some(live),
                other => {
                    *slot = other;
                    None
                }
            });
            (Place::Tree(offset), live)
        } else {
            (Place::Apart, self.apart.remove(&address))
        };
        let live = live.ok_or(Error::NotLive { address })?;
        self.usage.live -= 1;
        self.usage.live_bytes -= live.allocation.bytes;
        if !live.allocation.managed {
            self.usage.unmanaged_bytes -= live.allocation.bytes;
        }
        Ok((place, live))
    }

    /// Makes an allocation live.
    fn enter(&mut self, place: Place, live: Live) {
        self.usage.live += 1;
        self.usage.live_bytes += live.allocation.bytes;
        match place {
            Place::Tree(offset) => {
                let slot = self.tree.get_mut(offset).map(|(_, slot)| slot);
                debug_assert!(matches!(slot, Some(Slot::Making)));
                if let Some(slot) = slot {
                    *slot = Slot::Live(Box::new(live));
                }
            }
            Place::Apart => {
                self.usage.unmanaged_bytes += live.allocation.bytes;
                self.usage.unmanaged_ever += 1;
                self.apart.insert(live.allocation.address, Box::new(live));
            }
        }
    }
}
