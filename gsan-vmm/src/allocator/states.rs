//! The runtime state of every device rank: a reservation of its own, [`STATE_STRIDE`] for each.

use std::sync::{Mutex, MutexGuard, PoisonError};

use gsan_core::ids::DeviceRank;

use super::slots::Place;
use super::{Allocator, Inner};
use crate::backend::{BackendError, Device};
use crate::error::Error;
use crate::owned::{Backing, Held, Memory};
use crate::share::{SharedMemory, SharedState};

/// How many device ranks the runtime state has room for.
pub const STATE_RANKS: u16 = 32;
/// The distance in bytes between the runtime states of two device ranks.
pub const STATE_STRIDE: u64 = 1 << 30;

/// The runtime states, by rank.
pub(super) struct States {
    base: u64,
    ranks: Mutex<Vec<State>>,
}

/// The runtime state of a device rank.
enum State {
    Empty,
    /// Being made or given back.
    Busy,
    Present {
        backing: Backing,
        owner: [u8; 16],
    },
}

impl States {
    /// No state yet, in the reservation at `base`.
    pub(super) fn new(base: u64) -> States {
        States {
            base,
            ranks: Mutex::new((0..STATE_RANKS).map(|_| State::Empty).collect()),
        }
    }

    /// Takes all of them out.
    pub(super) fn drain(&self) -> Vec<Backing> {
        let states = std::mem::take(&mut *self.lock());
        let present = states.into_iter().filter_map(|state| match state {
            State::Present { backing, .. } => Some(backing),
            State::Empty | State::Busy => None,
        });
        present.collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<State>> {
        // Every change replaces a single element.
        self.ranks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn state_of(states: &mut [State], rank: DeviceRank) -> Result<&mut State, Error> {
    states
        .get_mut(usize::from(rank.0))
        .ok_or(Error::BadRank(rank))
}

impl Allocator {
    /// Where the runtime state of rank 0 is, or would be. That of rank `r` is
    /// `r *` [`STATE_STRIDE`] further.
    pub fn state_base(&self) -> u64 {
        self.inner.states.base
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
        if bytes == 0 {
            return Err(Error::EmptyState);
        }
        let unit = inner.driver.granularity();
        let mapped = bytes
            .checked_next_multiple_of(unit)
            .filter(|&mapped| mapped <= STATE_STRIDE)
            .ok_or(Error::StateTooLarge { bytes })?;
        let owner = inner.driver.devices()[index].uuid;
        inner.fill_state(rank, owner, |address| {
            let memory = inner
                .create(device, mapped)
                .map_err(|error| inner.no_memory(error, bytes, device))?;
            let mut held = Held::real(&inner.driver, memory);
            let placed = held
                .place_real(address, &inner.reach[index])
                .and_then(|()| inner.driver.fill(device, address, mapped, 0));
            inner.keep_or_close(held, placed)
        })
    }

    /// Where the runtime state of `rank` is mapped and how many bytes it has, if it is there.
    pub fn state(&self, rank: DeviceRank) -> Option<(u64, u64)> {
        let address = self.state_base() + u64::from(rank.0) * STATE_STRIDE;
        match self.inner.states.lock().get(usize::from(rank.0))? {
            State::Present { backing, .. } => {
                let bytes = backing.real.as_ref().map_or(0, Memory::bytes);
                Some((address, bytes))
            }
            State::Empty | State::Busy => None,
        }
    }

    /// Zeroes `bytes` bytes of the runtime state of `rank`, `offset` bytes from its start, on
    /// `device`; it is done on return.
    ///
    /// # Errors
    /// When the rank has no state here, the range lies outside of it, or the device fails.
    pub fn clear_state(
        &self,
        rank: DeviceRank,
        device: Device,
        offset: u64,
        bytes: u64,
    ) -> Result<(), Error> {
        let (address, size) = self.state(rank).ok_or(Error::NoState(rank))?;
        if offset.checked_add(bytes).is_none_or(|end| end > size) {
            return Err(Error::OutsideState {
                rank,
                offset,
                bytes,
                size,
            });
        }
        Ok(self.inner.driver.fill(device, address + offset, bytes, 0)?)
    }

    /// The runtime state of `rank`, for another process to import.
    ///
    /// # Errors
    /// When the rank is out of range or has no state here, or the backend cannot export it.
    pub fn export_state(&self, rank: DeviceRank) -> Result<SharedState, Error> {
        let inner = &*self.inner;
        let (memory, owner) = {
            let mut states = inner.states.lock();
            match state_of(&mut states, rank)? {
                State::Present { backing, owner } => (backing.real, *owner),
                _ => (None, [0; 16]),
            }
        };
        let memory = memory.ok_or(Error::NoState(rank))?;
        let handle = inner.driver.export(memory.id(), inner.handle_kind)?;
        let bytes = memory.bytes();
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
            let memory = Memory::import(&inner.driver, device, part.handle, part.bytes)?;
            let mut held = Held::real(&inner.driver, memory);
            let placed = held.place_real(address, &reach);
            inner.keep_or_close(held, placed)
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
        let (mut backing, owner) = {
            let mut states = inner.states.lock();
            let state = state_of(&mut states, rank)?;
            match std::mem::replace(state, State::Busy) {
                State::Present { backing, owner } => (backing, owner),
                other => {
                    *state = other;
                    return Err(Error::NoState(rank));
                }
            }
        };
        let closed = backing.close(&inner.driver);
        let after = match closed {
            Ok(()) => State::Empty,
            Err(_) => State::Present { backing, owner },
        };
        inner.states.lock()[usize::from(rank.0)] = after;
        Ok(closed?)
    }
}

impl Inner {
    /// Fills an empty rank with the state that `make` maps at its address.
    fn fill_state(
        &self,
        rank: DeviceRank,
        owner: [u8; 16],
        make: impl FnOnce(u64) -> Result<Backing, Error>,
    ) -> Result<u64, Error> {
        {
            let mut states = self.states.lock();
            let state = state_of(&mut states, rank)?;
            if !matches!(state, State::Empty) {
                return Err(Error::RankTaken(rank));
            }
            *state = State::Busy;
        }
        let address = self.states.base + u64::from(rank.0) * STATE_STRIDE;
        let made = make(address);
        let (after, result) = match made {
            Ok(backing) => (State::Present { backing, owner }, Ok(address)),
            Err(error) => (State::Empty, Err(error)),
        };
        self.states.lock()[usize::from(rank.0)] = after;
        result
    }

    /// What is held if it was `placed`; otherwise the error, after giving it back now or later.
    pub(super) fn keep_or_close(
        &self,
        held: Held<'_>,
        placed: Result<(), BackendError>,
    ) -> Result<Backing, Error> {
        match placed {
            Ok(()) => Ok(held.rest()),
            Err(error) => {
                self.discard(Place::Apart, held.rest());
                Err(error.into())
            }
        }
    }
}
