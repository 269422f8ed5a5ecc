//! Allocations that are handed to other processes, and those of other processes.

use super::slots::Place;
use super::{Allocation, Allocator, Inner};
use crate::backend::{BackendError, Device, Failure};
use crate::error::Error;
use crate::owned::{Held, Memory};
use crate::share::{SharedAllocation, SharedMemory};

impl Allocator {
    /// The allocation that contains `address`, for another process to import, and the distance
    /// from its start to `address`. The distance does not travel with the allocation: whoever needs
    /// it on the other side sends it along.
    ///
    /// The memory lives until this process has freed it and every process that imported it, too.
    ///
    /// # Errors
    /// When no allocation contains it, or the backend cannot export it.
    pub fn export(&self, address: u64) -> Result<(SharedAllocation, u64), Error> {
        let inner = &*self.inner;
        let (live, real, shadow) = {
            let live = *inner.slots().find(address)?;
            (live, live.real(), live.shadow(inner.space))
        };
        let export = |memory: Memory| {
            let handle = inner.driver.export(memory.id(), inner.handle_kind)?;
            let bytes = memory.bytes();
            Ok(SharedMemory { handle, bytes })
        };
        // Freed by another thread since: the backend no longer knows the memory.
        let gone = |error: BackendError| match error.failure {
            Failure::NoSuchHandle => Error::NotLive { address },
            _ => Error::Backend(error),
        };
        let allocation = live.allocation;
        let shared = SharedAllocation {
            owner: live.owner,
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
        let shadow = match shared.shadow.map(import).transpose() {
            Ok(shadow) => shadow,
            Err(error) => {
                inner.discard(Place::Apart, Held::real(&inner.driver, real).rest());
                return Err(error.into());
            }
        };
        let allocation = Allocation {
            address: 0,
            bytes: shared.bytes,
            device,
            managed: true,
            imported: true,
            write_once: shared.write_once,
        };
        inner.place(allocation, shared.owner, &reach, real, shadow)
    }
}

impl Inner {
    /// Who gets access to memory that `device` imports from the device with the uuid `owner`.
    pub(super) fn reach_of_import(
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
