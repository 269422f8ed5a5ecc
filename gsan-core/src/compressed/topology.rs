//! Thread ids: how the 65,536 of them are divided among devices, banks and slots.

use crate::ids::{DeviceRank, ThreadId};

/// How many thread ids a record can name.
pub const THREAD_IDS: u32 = 1 << 16;

/// The most slots an SM can have: one bit each in its mask.
pub const MAX_SLOTS_PER_SM: u32 = 32;

/// How thread ids are divided.
///
/// Every device has the same share. The share holds as many *banks* as fit, and one id more, the
/// device's *reserved* id, for publishers that have no slot. A bank has one id per slot: slot
/// `k * SMs + smid` is the `k`-th of SM `smid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Topology {
    devices: u32,
    sms: u32,
    slots_per_sm: u32,
    banks: u32,
    share: u32,
}

/// Why thread ids cannot be divided as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// Nothing to divide among.
    #[error("a topology needs at least one device and one SM a device")]
    Empty,
    /// Outside the mask of an SM.
    #[error("{0} slots per SM: allowed are 1 to {MAX_SLOTS_PER_SM}")]
    SlotsPerSm(u32),
    /// A device cannot get one slot per SM.
    #[error(
        "{devices} devices of {sms} SMs need more than {THREAD_IDS} thread ids; at most {most} \
         such devices are possible"
    )]
    TooMany {
        /// How many devices were asked for.
        devices: u32,
        /// How many SMs each has.
        sms: u32,
        /// How many devices fit.
        most: u32,
    },
}

/// The place of a thread id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The bank, counted over all devices.
    pub bank: u32,
    /// The slot within the bank.
    pub slot: u32,
}

impl Topology {
    /// Divides the ids among `devices` devices with at most `sms` SMs each, wishing for
    /// `slots_per_sm` slots on an SM and getting fewer when the ids do not suffice. Each device
    /// gets at most `most_banks` banks.
    ///
    /// # Errors
    /// See [`TopologyError`].
    pub fn new(
        devices: u32,
        sms: u32,
        slots_per_sm: u32,
        most_banks: u32,
    ) -> Result<Topology, TopologyError> {
        if devices == 0 || sms == 0 || most_banks == 0 {
            return Err(TopologyError::Empty);
        }
        if slots_per_sm == 0 || slots_per_sm > MAX_SLOTS_PER_SM {
            return Err(TopologyError::SlotsPerSm(slots_per_sm));
        }
        let room = (THREAD_IDS / devices).saturating_sub(1);
        let slots_per_sm = slots_per_sm.min(room / sms);
        if slots_per_sm == 0 {
            return Err(TopologyError::TooMany {
                devices,
                sms,
                most: THREAD_IDS / sms.saturating_add(1),
            });
        }
        let banks = (room / (slots_per_sm * sms)).min(most_banks);
        Ok(Topology {
            devices,
            sms,
            slots_per_sm,
            banks,
            share: banks * slots_per_sm * sms + 1,
        })
    }

    /// How many devices there are.
    pub const fn devices(&self) -> u32 {
        self.devices
    }

    /// How many SMs a device has at most.
    pub const fn sms(&self) -> u32 {
        self.sms
    }

    /// How many slots an SM has in each bank.
    pub const fn slots_per_sm(&self) -> u32 {
        self.slots_per_sm
    }

    /// How many slots a bank has.
    pub const fn slots(&self) -> u32 {
        self.slots_per_sm * self.sms
    }

    /// How many banks a device has.
    pub const fn banks_per_device(&self) -> u32 {
        self.banks
    }

    /// How many banks all devices have.
    pub const fn banks(&self) -> u32 {
        self.banks * self.devices
    }

    /// How many ids are in use; ids count up from 0.
    pub const fn ids(&self) -> u32 {
        self.share * self.devices
    }

    /// The bank `index` of `device`, counted over all devices.
    pub fn bank(&self, device: DeviceRank, index: u32) -> u32 {
        u32::from(device.0) * self.banks + index
    }

    /// The id at `place`.
    pub const fn id(&self, place: Place) -> ThreadId {
        let (device, bank) = (place.bank / self.banks, place.bank % self.banks);
        ThreadId((device * self.share + bank * self.slots() + place.slot) as u16)
    }

    /// Where `id` lies; `None` for reserved ids and ids that are not in use.
    #[inline]
    pub const fn place(&self, id: ThreadId) -> Option<Place> {
        let (device, within) = (id.0 as u32 / self.share, id.0 as u32 % self.share);
        if within == self.share - 1 || device >= self.devices {
            return None;
        }
        Some(Place {
            bank: device * self.banks + within / self.slots(),
            slot: within % self.slots(),
        })
    }

    /// The device that `id` belongs to.
    #[inline]
    pub const fn device(&self, id: ThreadId) -> DeviceRank {
        DeviceRank((id.0 as u32 / self.share) as u16)
    }

    /// The id under which CTAs of `device` publish that have no slot.
    pub fn reserved(&self, device: DeviceRank) -> ThreadId {
        ThreadId(((u32::from(device.0) + 1) * self.share - 1) as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_h200_has_31_banks_of_sixteen_slots_an_sm() {
        let topology = Topology::new(1, 132, 16, u32::MAX).unwrap();
        assert_eq!(topology.slots(), 2112);
        assert_eq!(topology.banks(), 31);
        assert_eq!(topology.reserved(DeviceRank(0)).0, 31 * 2112);
    }

    #[test]
    fn eight_of_them_have_three_banks_each() {
        let topology = Topology::new(8, 132, 16, u32::MAX).unwrap();
        assert_eq!(topology.banks_per_device(), 3);
        assert_eq!(topology.banks(), 24);
        assert!(topology.ids() <= THREAD_IDS);
    }

    #[test]
    fn many_devices_get_fewer_slots_and_too_many_are_refused() {
        assert_eq!(
            Topology::new(72, 148, 16, u32::MAX).unwrap().slots_per_sm(),
            6
        );
        assert_eq!(
            Topology::new(500, 132, 16, 1),
            Err(TopologyError::TooMany {
                devices: 500,
                sms: 132,
                most: 492
            })
        );
        assert_eq!(Topology::new(1, 0, 16, 1), Err(TopologyError::Empty));
        assert_eq!(
            Topology::new(1, 1, 33, 1),
            Err(TopologyError::SlotsPerSm(33))
        );
    }

    #[test]
    fn every_id_has_one_place_and_reserved_ids_have_none() {
        let topology = Topology::new(3, 4, 2, 5).unwrap();
        let mut seen = 0;
        for bank in 0..topology.banks() {
            for slot in 0..topology.slots() {
                let place = Place { bank, slot };
                let id = topology.id(place);
                assert_eq!(topology.place(id), Some(place));
                assert_eq!(u32::from(topology.device(id).0), bank / 5);
                seen += 1;
            }
        }
        for device in 0..3 {
            let reserved = topology.reserved(DeviceRank(device));
            assert_eq!(topology.place(reserved), None);
            assert_eq!(topology.device(reserved), DeviceRank(device));
            seen += 1;
        }
        assert_eq!(seen, topology.ids());
        assert_eq!(topology.place(ThreadId(topology.ids() as u16)), None);
    }
}
