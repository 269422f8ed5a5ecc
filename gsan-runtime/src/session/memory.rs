//! Allocations.

use std::sync::atomic::Ordering::Relaxed;

use gsan_core::ids::DeviceRank;
use gsan_vmm::Allocation;
use gsan_vmm::backend::Device;

use super::Session;
use crate::error::{Error, Result};

impl Session {
    /// Hands out `bytes` bytes of a device's memory to `stream`, and returns their address; 0 for 0
    /// bytes. If there is no room for its shadow, the memory is handed out without: it is not checked
    /// then, and counted.
    ///
    /// # Errors
    /// When the device is not there, or has no memory left.
    pub fn allocate(&self, bytes: u64, device: Device, stream: u64) -> Result<u64> {
        let address = self.allocator.allocate(bytes, device)?;
        self.handed_out(address, bytes, device, stream);
        Ok(address)
    }

    /// The same, for memory each byte of which may be written only once.
    ///
    /// # Errors
    /// The same.
    pub fn allocate_write_once(&self, bytes: u64, device: Device, stream: u64) -> Result<u64> {
        let address = self.allocator.allocate_write_once(bytes, device)?;
        self.handed_out(address, bytes, device, stream);
        Ok(address)
    }

    /// The memory goes back when `stream`, one of its device, has done what it was given so far.
    ///
    /// # Errors
    /// When no allocation starts there, or it was freed, or is another device's. Nothing changes then.
    pub fn free(&self, address: u64, bytes: u64, device: Device, stream: u64) -> Result<()> {
        if address == 0 {
            return Ok(());
        }
        let queue = self.queue(stream);
        let given = (bytes != 0).then_some((bytes, device));
        if let Err(error) = self.allocator.free(address, given, queue) {
            self.refused_frees.fetch_add(1, Relaxed);
            return Err(error.into());
        }
        self.ordering.memory_gone(address, bytes);
        self.part.freed(address);
        Ok(())
    }

    /// New memory starts with empty shadow, so that nothing has to be ordered before its first use.
    fn handed_out(&self, address: u64, bytes: u64, device: Device, stream: u64) {
        if address != 0 {
            tracing::trace!(address, bytes, %device, stream, "memory is handed out");
            self.part.allocated(address, bytes);
            self.coverage.look_at_memory();
        }
    }

    /// All live allocations, by address.
    pub fn live_allocations(&self) -> Vec<Allocation> {
        self.allocator.live()
    }

    /// The live allocation that contains `address`.
    ///
    /// # Errors
    /// When there is none.
    pub fn find_allocation(&self, address: u64) -> Result<Allocation> {
        let found = self.allocator.find(address);
        found.ok_or_else(|| Error::NotFound(format!("{address:#x} lies in no live allocation")))
    }

    /// The reservation of real and shadow memory: its address and size in bytes.
    pub fn reserve(&self) -> (u64, u64) {
        let space = self.allocator.space();
        (space.base(), space.reserve())
    }

    /// The state of device rank 0. That of rank `r` is `r *` [`gsan_vmm::STATE_STRIDE`] further.
    pub fn state_pointer(&self) -> u64 {
        self.allocator.state_base()
    }

    /// The rank of a device.
    ///
    /// # Errors
    /// When it has none.
    pub fn device_rank(&self, device: Device) -> Result<DeviceRank> {
        Ok(self.ordering.rank(device)?)
    }

    /// Whether a device shares memory by fabric handles.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn supports_fabric(&self, device: Device) -> Result<bool> {
        let device = self.device(device.0 as i32)?;
        Ok(self.allocator.backend().devices()[device.0 as usize].fabric)
    }
}
