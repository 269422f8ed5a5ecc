//! Types that own what a backend handed out.
//!
//! Giving something back can fail, so each has a `close` that may be called again until it
//! succeeds and does only what is still to be done. Dropping closes too, and can only log a
//! failure.

use std::sync::Arc;

use crate::backend::{
    Backend, BackendError, Device, Failure, FenceId, HandleKind, MemoryId, Result, SharedHandle,
    Stream,
};

/// A backend as everything here holds it.
pub(crate) type Driver = Arc<dyn Backend>;

/// A reserved range of addresses.
pub(crate) struct Range {
    driver: Driver,
    address: u64,
    bytes: u64,
    reserved: bool,
}

impl Range {
    pub(crate) fn new(driver: &Driver, bytes: u64, alignment: u64) -> Result<Range> {
        Ok(Range {
            address: driver.reserve(bytes, alignment)?,
            driver: Arc::clone(driver),
            bytes,
            reserved: true,
        })
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn close(&mut self) -> Result<()> {
        if self.reserved {
            self.driver.unreserve(self.address, self.bytes)?;
            self.reserved = false;
        }
        Ok(())
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        log_leak(self.close());
    }
}

/// Physical memory, and where it is mapped.
pub(crate) struct Memory {
    driver: Driver,
    id: Option<MemoryId>,
    bytes: u64,
    mapped_at: Option<u64>,
}

impl Memory {
    pub(crate) fn create(
        driver: &Driver,
        device: Device,
        bytes: u64,
        kind: HandleKind,
    ) -> Result<Memory> {
        let id = driver.create(device, bytes, kind)?;
        Ok(Memory::own(driver, id, bytes))
    }

    pub(crate) fn import(
        driver: &Driver,
        device: Device,
        handle: SharedHandle,
        bytes: u64,
    ) -> Result<Memory> {
        let id = driver.import(device, handle, bytes)?;
        Ok(Memory::own(driver, id, bytes))
    }

    fn own(driver: &Driver, id: MemoryId, bytes: u64) -> Memory {
        Memory {
            driver: Arc::clone(driver),
            id: Some(id),
            bytes,
            mapped_at: None,
        }
    }

    /// The memory's number, unless it is closed.
    pub(crate) fn id(&self) -> Option<MemoryId> {
        self.id
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Maps all of it at `address`, for `devices`. After an error it may be mapped or not: close
    /// it.
    pub(crate) fn place(&mut self, address: u64, devices: &[Device]) -> Result<()> {
        let id = self.id.ok_or_else(|| {
            BackendError::new("map", Failure::NoSuchHandle, "the memory was given back")
        })?;
        self.driver.map(address, self.bytes, id)?;
        self.mapped_at = Some(address);
        self.driver.allow(address, self.bytes, devices)
    }

    pub(crate) fn close(&mut self) -> Result<()> {
        if let Some(address) = self.mapped_at {
            self.driver.unmap(address, self.bytes)?;
            self.mapped_at = None;
        }
        if let Some(id) = self.id {
            match self.driver.release(id) {
                // What is not there any more needs no release.
                Err(error) if error.failure != Failure::NoSuchHandle => return Err(error),
                _ => self.id = None,
            }
        }
        Ok(())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        log_leak(self.close());
    }
}

/// The memory of an allocation: all that has to be given back when it is freed.
#[derive(Default)]
pub(crate) struct Backing {
    pub(crate) real: Option<Memory>,
    pub(crate) shadow: Option<Memory>,
    /// The addresses of memory without shadow, which lies outside the allocator's reservation.
    pub(crate) range: Option<Range>,
}

impl Backing {
    /// Shadow alone.
    pub(crate) fn shadow(memory: Memory) -> Backing {
        Backing {
            shadow: Some(memory),
            ..Backing::default()
        }
    }

    /// How many bytes of memory it holds.
    pub(crate) fn bytes(&self) -> u64 {
        let parts = [&self.real, &self.shadow];
        parts.into_iter().flatten().map(Memory::bytes).sum()
    }

    pub(crate) fn close(&mut self) -> Result<()> {
        for memory in [&mut self.shadow, &mut self.real] {
            if let Some(open) = memory {
                open.close()?;
                *memory = None;
            }
        }
        if let Some(range) = &mut self.range {
            range.close()?;
            self.range = None;
        }
        Ok(())
    }
}

/// A point in a stream.
pub(crate) struct Fence {
    driver: Driver,
    id: FenceId,
}

impl Fence {
    pub(crate) fn new(driver: &Driver, device: Device, stream: Stream) -> Result<Fence> {
        Ok(Fence {
            id: driver.fence(device, stream)?,
            driver: Arc::clone(driver),
        })
    }

    pub(crate) fn passed(&self) -> Result<bool> {
        self.driver.passed(self.id)
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        self.driver.forget(self.id);
    }
}

fn log_leak(closed: Result<()>) {
    if let Err(error) = closed {
        tracing::error!(%error, "memory could not be given back and is lost to this process");
    }
}
