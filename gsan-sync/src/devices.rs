//! The devices of the process: each is set up when it is first used.

use std::ops::Index;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use gsan_core::ids::DeviceRank;
use gsan_core::layout::GlobalState;
use gsan_vmm::backend::Device;

use crate::error::Error;
use crate::ordering::{DeviceState, Inner, Ordering};
use crate::settings::Settings;
use crate::state::Region;

/// The devices, in the order of the settings. Those that were not used yet are passed over.
pub(crate) struct Devices {
    places: Vec<OnceLock<DeviceState>>,
    /// Ranks whose state is mapped here, a bit each; held while one is made, and while all are cleared.
    present: Mutex<u32>,
}

impl Devices {
    pub(crate) fn new(settings: &Settings) -> Devices {
        let count = settings.device_ranks.len();
        Devices {
            places: (0..count).map(|_| OnceLock::new()).collect(),
            present: Mutex::new(0),
        }
    }

    /// How many there are, used or not.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Those that are set up.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &DeviceState> {
        self.places.iter().filter_map(OnceLock::get)
    }

    /// Ranks whose states the devices may look at, a bit each. While it is held, no device is set up.
    pub(crate) fn present(&self) -> MutexGuard<'_, u32> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn first(&self) -> Option<&DeviceState> {
        self.iter().next()
    }
}

/// A device by its place; it is set up, since something of it was named.
impl Index<usize> for Devices {
    type Output = DeviceState;

    fn index(&self, place: usize) -> &DeviceState {
        let made = self.places[place].get();
        made.expect("whoever has the place of a device has got it from `Inner::place`")
    }
}

impl Settings {
    /// The place of a device among those that have a rank.
    pub(crate) fn place(&self, device: Device) -> Option<usize> {
        let place = match self.local_devices.as_slice() {
            [] => device.0 as usize,
            local => local.iter().position(|&known| known == device)?,
        };
        (place < self.device_ranks.len()).then_some(place)
    }

    /// The device at a place.
    pub(crate) fn device_at(&self, place: usize) -> Device {
        let known = self.local_devices.get(place).copied();
        known.unwrap_or(Device(place as u32))
    }
}

impl Inner {
    /// The place of a device, which is set up if it was not.
    pub(crate) fn place(&self, device: Device) -> Result<usize, Error> {
        let known = self.devices.len();
        let unknown = Error::UnknownDevice { device, known };
        let place = self.settings.place(device).ok_or(unknown)?;
        if self.devices.places[place].get().is_none() {
            self.set_up(place)?;
        }
        Ok(place)
    }

    /// A device, which is set up if it was not.
    pub(crate) fn device(&self, device: Device) -> Result<&DeviceState, Error> {
        Ok(&self.devices[self.place(device)?])
    }

    fn set_up(&self, place: usize) -> Result<(), Error> {
        let mut present = self.devices.present();
        if self.devices.places[place].get().is_some() {
            return Ok(());
        }
        let rank = self.settings.device_ranks[place];
        let mapped = *present | 1 << rank.0;
        let generation = self.marks.generation();
        let region = Region::create(&self.allocator, &self.settings, place, (mapped, generation))?;
        // A kernel that is named meanwhile waits for this device.
        let names = self.names.lock();
        let told = self
            .write_names(&names, &region)
            .and_then(|()| Ok(self.kernels.prepare(region.device)?))
            .and_then(|()| self.tell_present(mapped));
        if let Err(error) = told {
            let _ = self.allocator.release_state(rank);
            return Err(error);
        }
        let made = DeviceState::new(&self.settings, &self.topology, place, region, &self.backend);
        *present = mapped;
        // Nobody else sets it: the lock is held.
        let _ = self.devices.places[place].set(made);
        Ok(())
    }

    /// Tells the devices that are set up whose states they may look at.
    fn tell_present(&self, mapped: u32) -> Result<(), Error> {
        let offset = std::mem::offset_of!(GlobalState, present) as u64;
        for device in self.devices.iter() {
            let at = device.region.base + offset;
            let bytes = mapped.to_le_bytes();
            self.backend.write(device.region.device, at, &bytes)?;
        }
        Ok(())
    }
}

impl Ordering {
    /// The state of a rank of another process was mapped here: kernels may look at it from now on.
    ///
    /// # Errors
    /// When there is no such state, or it cannot be told to a device.
    pub fn rank_came(&self, rank: DeviceRank) -> Result<(), Error> {
        let inner = &self.inner;
        if inner.allocator.state(rank).is_none() {
            return Err(Error::RankMissing(rank));
        }
        let mut present = inner.devices.present();
        let mapped = *present | 1 << rank.0;
        inner.tell_present(mapped)?;
        *present = mapped;
        Ok(())
    }

    /// The devices that are set up.
    pub fn used_devices(&self) -> Vec<Device> {
        let used = self.inner.devices.iter();
        used.map(|device| device.region.device).collect()
    }

    /// Sets all devices up that have a rank. Apart from this they are when they are first used.
    ///
    /// # Errors
    /// When there is no memory; those that were set up stay.
    pub fn set_up_all(&self) -> Result<(), Error> {
        let inner = &self.inner;
        (0..inner.devices.len()).try_for_each(|place| {
            let device = inner.settings.device_at(place);
            inner.place(device).map(drop)
        })
    }
}

/// Sees to it that settings go together.
pub(crate) fn check(settings: &Settings) -> Result<(), Error> {
    for (place, &rank) in settings.device_ranks.iter().enumerate() {
        let bad = |why| Error::BadRank {
            device: settings.device_at(place),
            rank,
            why,
            devices: settings.devices,
        };
        if u32::from(rank.0) >= settings.devices {
            return Err(bad("outside the topology"));
        }
        if settings.device_ranks[..place].contains(&rank) {
            return Err(bad("taken by another device"));
        }
    }
    let (mirrors, devices) = (settings.site_mirrors.len(), settings.device_ranks.len());
    if mirrors != 0 && mirrors != devices {
        return Err(Error::SiteMirrors { mirrors, devices });
    }
    Ok(())
}
