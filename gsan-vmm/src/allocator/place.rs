//! How memory finds its addresses and becomes an allocation.

use std::time::{Duration, Instant};

use super::slots::{Live, Place};
use super::{Allocation, Inner};
use crate::backend::{BackendError, Device, Failure};
use crate::buddy::Block;
use crate::error::Error;
use crate::owned::{Backing, Held, Memory, Range};
use crate::reclaim::{Remains, Until};

/// How long memory, or a range of addresses, is tried for while others free it and are faster to take
/// it again: longer than threads that take turns need, and not so long that one who asks for more
/// than there is waits noticeably.
const HOLD_OUT: Duration = Duration::from_millis(250);
/// How long to wait for a free by another thread to get from the tables to the queue.
const UNDER_WAY: Duration = Duration::from_micros(500);

impl Inner {
    /// Creates physical memory, if need be of what was freed.
    pub(super) fn create(&self, device: Device, bytes: u64) -> Result<Memory, BackendError> {
        self.persist(
            || Memory::create(&self.driver, device, bytes, self.handle_kind),
            |error| matches!(error.failure, Failure::OutOfMemory | Failure::OutOfHandles),
        )
    }

    /// Takes a range of the tree, if need be one that was freed.
    fn take(&self, bytes: u64, write_once: bool) -> Option<(Block, Place)> {
        let take = || self.slots().take(bytes, write_once).ok_or(());
        self.persist(take, |()| true).ok()
    }

    /// Tries to get something. While there is too little of it, what was freed is given back and it
    /// is tried again: other threads may have been faster.
    fn persist<T, E>(
        &self,
        get: impl Fn() -> Result<T, E>,
        too_little: impl Fn(&E) -> bool,
    ) -> Result<T, E> {
        let mut first = None;
        loop {
            let given_back = self.queue.given_back();
            let error = match get() {
                Err(error) if too_little(&error) => error,
                result => return result,
            };
            let again = first.is_some();
            let start = *first.get_or_insert_with(Instant::now);
            let left = self.patience.saturating_sub(start.elapsed());
            // Asked before flushing, which only knows what has been pushed.
            let expects = self.queue.expects();
            self.queue.flush(left);
            let came = self.queue.given_back() != given_back;
            if !came {
                if !expects || left.is_zero() {
                    return Err(error);
                }
                std::thread::sleep(UNDER_WAY);
            }
            if again && start.elapsed() > HOLD_OUT {
                return get();
            }
        }
    }

    /// What to say when there is no memory for `bytes` bytes.
    pub(super) fn no_memory(&self, error: BackendError, bytes: u64, device: Device) -> Error {
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

    /// Finds addresses for `real`, maps it, and enters the allocation. An import comes with the
    /// other process's `shadow`, if it has any; other memory gets its shadow here.
    pub(super) fn place(
        &self,
        mut allocation: Allocation,
        owner: [u8; 16],
        reach: &[Device],
        real: Memory,
        shadow: Option<Memory>,
    ) -> Result<u64, Error> {
        let mut held = Held::real(&self.driver, real);
        held.shadow = shadow;
        let taken = self.take(real.bytes(), allocation.write_once);
        let managed =
            taken.filter(|(block, _)| self.place_shadow(&allocation, *block, reach, &mut held));

        let placed = if let Some((block, place)) = managed {
            allocation.address = self.space.real_base() + block.offset;
            Ok(place)
        } else {
            // What there is of a shadow goes, and then the range it was for.
            let shadow = Backing {
                shadow: held.shadow.take(),
                ..Backing::default()
            };
            let place = taken.map_or(Place::Apart, |(_, place)| place);
            self.discard(place, shadow);
            allocation.managed = false;
            match Range::new(&self.driver, real.bytes(), self.driver.granularity()) {
                Ok(range) => {
                    allocation.address = range.address();
                    held.range = Some(Box::new(range));
                    Ok(Place::Apart)
                }
                Err(error) if taken.is_some() => Err((Place::Apart, error.into())),
                Err(_) => Err((Place::Apart, self.no_addresses(allocation.bytes))),
            }
        };
        let placed = placed.and_then(|place| {
            held.place_real(allocation.address, reach)
                .map_err(|error| (place, error.into()))?;
            Ok(place)
        });
        match placed {
            Ok(place) => {
                let Backing { shadow, range, .. } = held.rest();
                let live = Live::new(allocation, owner, real, shadow);
                self.slots().enter(place, live, range);
                Ok(allocation.address)
            }
            Err((place, error)) => {
                self.discard(place, held.rest());
                Err(error)
            }
        }
    }

    /// Maps the shadow of `block`, zeroed unless it is another process's. Says whether there is
    /// one; a failure is logged.
    fn place_shadow(
        &self,
        allocation: &Allocation,
        block: Block,
        reach: &[Device],
        held: &mut Held<'_>,
    ) -> bool {
        let Allocation {
            bytes,
            device,
            imported,
            ..
        } = *allocation;
        if imported && held.shadow.is_none() {
            return false;
        }
        let address = self.space.shadow(self.space.real_base() + block.offset);
        let mut place = || {
            if imported {
                return held.place_shadow(address, reach);
            }
            let real = held.real.iter().map(Memory::bytes).sum::<u64>();
            let shadow = real * self.space.records().count() as u64;
            held.shadow = Some(self.create(device, shadow)?);
            held.place_shadow(address, reach)?;
            self.driver.fill(device, address, shadow, 0)
        };
        match place() {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%error, bytes, "no shadow memory: not checked");
                false
            }
        }
    }

    fn no_addresses(&self, bytes: u64) -> Error {
        Error::OutOfAddressSpace {
            bytes,
            largest: self.slots().largest_free(),
            usable: self.space.usable(),
            reserve: self.space.reserve(),
        }
    }

    /// Gives back what never became an allocation, now or later.
    pub(super) fn discard(&self, place: Place, mut backing: Backing) {
        match backing.close(&self.driver) {
            Ok(()) => self.vacate(&[place]),
            Err(_) => self.queue.push(Remains::new(place, backing, Until::Now)),
        }
    }

    /// Makes address ranges free again.
    pub(super) fn vacate(&self, places: &[Place]) {
        let mut slots = self.slots();
        for &place in places {
            slots.vacate(place);
        }
    }
}
