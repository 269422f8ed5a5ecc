//! A backend that does nothing, so that what remains is the allocator's own work.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use gsan_vmm::backend::{
    Backend, BackendError, Device, DeviceInfo, Failure, FenceId, FreeMemory, HandleKind, MemoryId,
    Result, SharedHandle, Stream,
};

/// Says yes to everything.
pub(crate) struct Null {
    devices: [DeviceInfo; 1],
    next: AtomicU64,
}

impl Null {
    pub(crate) fn new() -> Null {
        Null {
            devices: [DeviceInfo {
                name: "nothing".into(),
                uuid: [0; 16],
                memory: u64::MAX,
                multiprocessors: 1,
                fabric: false,
            }],
            next: AtomicU64::new(1),
        }
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }
}

impl Backend for Null {
    fn devices(&self) -> &[DeviceInfo] {
        &self.devices
    }

    fn granularity(&self) -> u64 {
        2 << 20
    }

    fn reaches(&self, _: Device, _: Device) -> bool {
        true
    }

    fn free_memory(&self, _: Device) -> Result<FreeMemory> {
        Ok(FreeMemory::default())
    }

    fn reserve(&self, _: u64, alignment: u64) -> Result<u64> {
        Ok(alignment * self.number())
    }

    fn unreserve(&self, _: u64, _: u64) -> Result<()> {
        Ok(())
    }

    fn create(&self, _: Device, _: u64, _: HandleKind) -> Result<MemoryId> {
        Ok(MemoryId(self.number()))
    }

    fn release(&self, _: MemoryId) -> Result<()> {
        Ok(())
    }

    fn map(&self, _: u64, _: u64, _: MemoryId) -> Result<()> {
        Ok(())
    }

    fn unmap(&self, _: u64, _: u64) -> Result<()> {
        Ok(())
    }

    fn allow(&self, _: u64, _: u64, _: &[Device]) -> Result<()> {
        Ok(())
    }

    fn export(&self, _: MemoryId, _: HandleKind) -> Result<SharedHandle> {
        Err(BackendError::new(
            "export",
            Failure::NotSupported,
            "there is nothing",
        ))
    }

    fn import(&self, _: Device, _: SharedHandle, _: u64) -> Result<MemoryId> {
        Err(BackendError::new(
            "import",
            Failure::NotSupported,
            "there is nothing",
        ))
    }

    fn fill(&self, _: Device, _: u64, _: u64, _: u8) -> Result<()> {
        Ok(())
    }

    fn read(&self, _: Device, _: u64, _: &mut [u8]) -> Result<()> {
        Ok(())
    }

    fn write(&self, _: Device, _: u64, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn fence(&self, _: Device, _: Stream) -> Result<FenceId> {
        Ok(FenceId(0))
    }

    fn passed(&self, _: FenceId) -> Result<bool> {
        Ok(true)
    }

    fn forget(&self, _: FenceId) {}

    fn synchronize(&self, _: Device) -> Result<()> {
        Ok(())
    }
}
