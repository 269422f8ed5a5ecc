//! What of this machine's CUDA works: the facts behind `gsan doctor`.

use super::super::{Device, HandleKind, Result};
use super::calls::Driver;
use super::{Backend, CudaBackend};

/// What was found. Each fact stands alone: one that could not be had says why.
#[derive(Debug)]
pub struct CudaProbe {
    /// The CUDA version of the driver: major and minor number.
    pub version: (u32, u32),
    /// The devices this process sees.
    pub devices: Vec<CudaDevice>,
    /// `peers[owner][from]`: whether `from` reaches the memory of `owner`. Empty without devices
    /// that can map memory.
    pub peers: Vec<Vec<bool>>,
    /// The unit of physical memory in bytes.
    pub granularity: Result<u64>,
    /// The largest power of two that was granted as a reservation aligned to itself, in bytes,
    /// among those from 1 GiB to 2^47; `None` if none was.
    pub largest_reservation: Option<u64>,
}

/// A device, and what it can do.
#[derive(Debug)]
pub struct CudaDevice {
    /// Its name.
    pub name: String,
    /// Its uuid.
    pub uuid: [u8; 16],
    /// Its memory in bytes.
    pub memory: u64,
    /// Its compute capability: major and minor number.
    pub compute_capability: (u32, u32),
    /// Whether it maps memory at addresses of one's own, which everything here needs.
    pub maps_memory: bool,
    /// Whether it says that it shares memory by fabric handle.
    pub fabric: bool,
    /// Whether making and exporting memory with a fabric handle worked.
    pub fabric_export: Result<()>,
}

/// Asks the driver. Touches no memory and no context of the devices.
///
/// # Errors
/// When there is no driver, or none that works.
pub fn probe() -> Result<CudaProbe> {
    let driver = Driver::load()?;
    let version = driver.version()?;
    let backend = CudaBackend::new();
    let mut devices = Vec::new();
    for (index, handle) in driver.devices()?.into_iter().enumerate() {
        let (major, minor) = driver.compute_capability(handle)?;
        let try_fabric = || {
            let backend = backend.as_ref().map_err(Clone::clone)?;
            let device = Device(index as u32);
            let memory = backend.create(device, backend.granularity(), HandleKind::Fabric)?;
            let exported = backend.export(memory, HandleKind::Fabric).map(drop);
            backend.release(memory)?;
            exported
        };
        devices.push(CudaDevice {
            name: driver.name(handle)?,
            uuid: driver.uuid(handle)?,
            memory: driver.total_memory(handle)?,
            compute_capability: (major.unsigned_abs(), minor.unsigned_abs()),
            maps_memory: driver.maps_memory(handle)?,
            fabric: driver.has_fabric(handle)?,
            fabric_export: try_fabric(),
        });
    }
    let largest_reservation = (30..=47).rev().map(|shift| 1 << shift).find(|&bytes| {
        let reserved = driver.reserve(bytes, bytes);
        reserved.is_ok_and(|address| driver.unreserve(address, bytes).is_ok())
    });
    Ok(CudaProbe {
        version: (
            version.unsigned_abs() / 1000,
            version.unsigned_abs() % 1000 / 10,
        ),
        devices,
        peers: backend
            .as_ref()
            .map(|backend| backend.reach.clone())
            .unwrap_or_default(),
        granularity: backend.map(|backend| backend.granularity()),
        largest_reservation,
    })
}
