//! Types that own what a backend handed out.
//!
//! Giving something back can fail, so each has a `close` that may be called again until it
//! succeeds and does only what is still to be done. [`Range`], [`Held`] and [`Fence`] close when
//! they are dropped, too, and can only log a failure then.
//!
//! There may be very many allocations, so memory at rest, in the allocator's tables and in the
//! queue of what was freed, is plain numbers: [`Backing`]. While it is being made it is [`Held`].

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::backend::{
    Backend, Device, Failure, FenceId, HandleKind, MemoryId, Result, SharedHandle, Stream,
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
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    id: MemoryId,
    bytes: u64,
    /// Where it is mapped, if it is.
    address: u64,
    left: Left,
}

/// What is still to be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    MappingAndMemory,
    Memory,
    Nothing,
}

impl Memory {
    pub(crate) fn create(
        driver: &Driver,
        device: Device,
        bytes: u64,
        kind: HandleKind,
    ) -> Result<Memory> {
        let id = driver.create(device, bytes, kind)?;
        Ok(Memory::unmapped(id, bytes))
    }

    pub(crate) fn import(
        driver: &Driver,
        device: Device,
        handle: SharedHandle,
        bytes: u64,
    ) -> Result<Memory> {
        let id = driver.import(device, handle, bytes)?;
        Ok(Memory::unmapped(id, bytes))
    }

    fn unmapped(id: MemoryId, bytes: u64) -> Memory {
        Memory {
            id,
            bytes,
            address: 0,
            left: Left::Memory,
        }
    }

    /// Memory that was created and mapped before.
    pub(crate) fn mapped(id: MemoryId, bytes: u64, address: u64) -> Memory {
        Memory {
            id,
            bytes,
            address,
            left: Left::MappingAndMemory,
        }
    }

    pub(crate) fn id(&self) -> MemoryId {
        self.id
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Maps all of it at `address`, for `devices`. After an error it may be mapped or not: close
    /// it.
    pub(crate) fn place(
        &mut self,
        driver: &Driver,
        address: u64,
        devices: &[Device],
    ) -> Result<()> {
        driver.map(address, self.bytes, self.id)?;
        (self.address, self.left) = (address, Left::MappingAndMemory);
        driver.allow(address, self.bytes, devices)
    }

    pub(crate) fn close(&mut self, driver: &Driver) -> Result<()> {
        if self.left == Left::MappingAndMemory {
            driver.unmap(self.address, self.bytes)?;
            self.left = Left::Memory;
        }
        if self.left == Left::Memory {
            match driver.release(self.id) {
                // What is not there any more needs no release.
                Err(error) if error.failure != Failure::NoSuchHandle => return Err(error),
                _ => self.left = Left::Nothing,
            }
        }
        Ok(())
    }
}

/// The memory of an allocation: all that has to be given back when it is freed. Dropping it gives
/// nothing back.
#[derive(Default)]
pub(crate) struct Backing {
    pub(crate) real: Option<Memory>,
    pub(crate) shadow: Option<Memory>,
    /// The addresses of memory without shadow, which lies outside the allocator's reservation.
    pub(crate) range: Option<Box<Range>>,
}

impl Backing {
    /// How many bytes of memory it holds.
    pub(crate) fn bytes(&self) -> u64 {
        let parts = [&self.real, &self.shadow];
        parts.into_iter().flatten().map(Memory::bytes).sum()
    }

    pub(crate) fn close(&mut self, driver: &Driver) -> Result<()> {
        for memory in [&mut self.shadow, &mut self.real] {
            if let Some(open) = memory {
                open.close(driver)?;
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

/// A backing that is closed when it is dropped.
pub(crate) struct Held<'d> {
    driver: &'d Driver,
    backing: Backing,
}

impl<'d> Held<'d> {
    pub(crate) fn new(driver: &'d Driver, backing: Backing) -> Held<'d> {
        Held { driver, backing }
    }

    /// Real memory alone.
    pub(crate) fn real(driver: &'d Driver, memory: Memory) -> Held<'d> {
        let backing = Backing {
            real: Some(memory),
            ..Backing::default()
        };
        Held::new(driver, backing)
    }

    /// Maps the real memory at `address`, for `devices`.
    pub(crate) fn place_real(&mut self, address: u64, devices: &[Device]) -> Result<()> {
        let real = &mut self.backing.real;
        real.iter_mut()
            .try_for_each(|real| real.place(self.driver, address, devices))
    }

    /// Maps the shadow at `address`, for `devices`.
    pub(crate) fn place_shadow(&mut self, address: u64, devices: &[Device]) -> Result<()> {
        let shadow = &mut self.backing.shadow;
        shadow
            .iter_mut()
            .try_for_each(|shadow| shadow.place(self.driver, address, devices))
    }

    pub(crate) fn close(&mut self) -> Result<()> {
        self.backing.close(self.driver)
    }

    /// What is held, for somebody else to close.
    pub(crate) fn rest(mut self) -> Backing {
        std::mem::take(&mut self.backing)
    }
}

impl Deref for Held<'_> {
    type Target = Backing;

    fn deref(&self) -> &Backing {
        &self.backing
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Backing {
        &mut self.backing
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        log_leak(self.close());
    }
}

/// A point in a stream, forgotten when this is dropped.
pub(crate) struct Fence<'d> {
    driver: &'d Driver,
    id: FenceId,
}

impl<'d> Fence<'d> {
    pub(crate) fn new(driver: &'d Driver, device: Device, stream: Stream) -> Result<Fence<'d>> {
        let id = driver.fence(device, stream)?;
        Ok(Fence { driver, id })
    }

    /// Its number, for somebody else to forget.
    pub(crate) fn rest(self) -> FenceId {
        std::mem::ManuallyDrop::new(self).id
    }
}

impl Drop for Fence<'_> {
    fn drop(&mut self) {
        self.driver.forget(self.id);
    }
}

fn log_leak(closed: Result<()>) {
    if let Err(error) = closed {
        tracing::error!(%error, "memory could not be given back and is lost to this process");
    }
}
