//! The table of allocations: what is live, and which ranges of the tree are taken.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use gsan_core::address::AddressSpace;

use crate::allocator::{Allocation, Usage};
use crate::backend::{Device, MemoryId};
use crate::buddy::{Block, BuddyTree, Key};
use crate::error::Error;
use crate::owned::{Backing, Memory, Range};

/// What becomes free when the memory behind it has been unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A range of the buddy tree.
    Tree(Key),
    /// Nothing more than the memory itself and its own reservation.
    Apart,
}

/// All allocations.
pub(super) struct Slots {
    space: AddressSpace,
    tree: BuddyTree<Slot>,
    /// Live allocations without shadow, by address.
    apart: BTreeMap<u64, (Live, Option<Box<Range>>)>,
    usage: Usage,
}

/// What a range of the tree is used for.
///
/// With many allocations, what looking at one costs is the cache lines it lies in: this one is in
/// a single line.
#[repr(align(64))]
enum Slot {
    /// It is being allocated; nobody knows the address yet.
    Making,
    Live(Live),
    /// It was freed and is not unmapped yet.
    Leaving,
}

const _: () = assert!(size_of::<Option<Slot>>() == 64);

/// A live allocation, all of whose memory is mapped.
#[derive(Clone, Copy)]
pub(super) struct Live {
    pub(super) allocation: Allocation,
    /// The device that owns the memory, the same in all processes.
    pub(super) owner: [u8; 16],
    /// Bytes of real memory.
    mapped: u64,
    real: MemoryId,
    /// Of no meaning for memory without shadow.
    shadow: MemoryId,
}

impl Live {
    /// The allocation over `real` and `shadow`.
    pub(super) fn new(
        allocation: Allocation,
        owner: [u8; 16],
        real: Memory,
        shadow: Option<Memory>,
    ) -> Live {
        Live {
            allocation,
            owner,
            mapped: real.bytes(),
            real: real.id(),
            shadow: shadow.unwrap_or(real).id(),
        }
    }

    pub(super) fn real(&self) -> Memory {
        Memory::mapped(self.real, self.mapped, self.allocation.address)
    }

    pub(super) fn shadow(&self, space: AddressSpace) -> Option<Memory> {
        let shadow = || {
            let bytes = self.mapped * space.records().count() as u64;
            Memory::mapped(self.shadow, bytes, space.shadow(self.allocation.address))
        };
        self.allocation.managed.then(shadow)
    }

    fn backing(&self, space: AddressSpace, range: Option<Box<Range>>) -> Backing {
        Backing {
            real: Some(self.real()),
            shadow: self.shadow(space),
            range,
        }
    }

    /// Whether it is what somebody believes its size and device to be.
    fn check(&self, given: Option<(u64, Device)>) -> Result<(), Error> {
        let Allocation {
            address,
            bytes,
            device,
            ..
        } = self.allocation;
        match given {
            Some((given_bytes, given_device)) if (given_bytes, given_device) != (bytes, device) => {
                Err(Error::Mismatch {
                    address,
                    bytes,
                    device,
                    given_bytes,
                    given_device,
                })
            }
            _ => Ok(()),
        }
    }
}

impl Slots {
    /// An empty table over `space`, in units of `unit` bytes; `None` if it has room for none.
    pub(super) fn new(space: AddressSpace, unit: u64) -> Option<Slots> {
        Some(Slots {
            space,
            tree: BuddyTree::new(space.usable(), unit)?,
            apart: BTreeMap::new(),
            usage: Usage::default(),
        })
    }

    pub(super) fn usage(&self) -> Usage {
        self.usage
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tree.is_empty() && self.apart.is_empty()
    }

    pub(super) fn largest_free(&self) -> u64 {
        self.tree.largest_free()
    }

    /// The live allocation that contains `address`. The range behind its last byte, up to the
    /// unit of memory, is nobody's.
    pub(super) fn find(&self, address: u64) -> Result<&Live, Error> {
        self.find_place(address).map(|(_, live)| live)
    }

    /// Everything that is live, in no particular order.
    pub(super) fn all(&self) -> impl Iterator<Item = &Live> {
        let managed = self.tree.iter().filter_map(|slot| match slot {
            Slot::Live(live) => Some(live),
            Slot::Making | Slot::Leaving => None,
        });
        managed.chain(self.apart.values().map(|(live, _)| live))
    }

    fn find_place(&self, address: u64) -> Result<(Place, &Live), Error> {
        let found = if self.space.is_managed(address) {
            match self.tree.find(address - self.space.real_base()) {
                None => None,
                Some((_, key)) => match self.tree.get(key) {
                    Some(Slot::Live(live)) => Some((Place::Tree(key), live)),
                    Some(Slot::Leaving) => return Err(Error::AlreadyFreed { address }),
                    _ => None,
                },
            }
        } else {
            let below = self.apart.range(..=address).next_back();
            below.map(|(_, (live, _))| (Place::Apart, live))
        };
        found
            .filter(|(_, live)| address - live.allocation.address < live.allocation.bytes)
            .ok_or(Error::NotLive { address })
    }

    /// The live allocation that starts at `address` and is what `given` says: where it is, and its
    /// device.
    pub(super) fn freeable(
        &self,
        address: u64,
        given: Option<(u64, Device)>,
    ) -> Result<(Place, Device), Error> {
        let (place, live) = self.find_place(address)?;
        let start = live.allocation.address;
        if start != address {
            return Err(Error::Interior { address, start });
        }
        live.check(given)?;
        Ok((place, live.allocation.device))
    }

    /// Takes the allocation out that was [`Self::freeable`], unless it is not any more. A range of
    /// the tree stays taken until it has been unmapped.
    pub(super) fn leave(
        &mut self,
        place: Place,
        address: u64,
        given: Option<(u64, Device)>,
    ) -> Result<Backing, Error> {
        let (live, range) = match place {
            Place::Tree(key) => {
                let slot = self.tree.get_mut(key);
                let slot = slot.ok_or(Error::NotLive { address })?;
                let live = match slot {
                    Slot::Live(live) if live.allocation.address == address => *live,
                    Slot::Leaving => return Err(Error::AlreadyFreed { address }),
                    _ => return Err(Error::NotLive { address }),
                };
                live.check(given)?;
                *slot = Slot::Leaving;
                (live, None)
            }
            Place::Apart => {
                let Entry::Occupied(entry) = self.apart.entry(address) else {
                    return Err(Error::NotLive { address });
                };
                entry.get().0.check(given)?;
                entry.remove()
            }
        };
        self.usage.live -= 1;
        self.usage.live_bytes -= live.allocation.bytes;
        if !live.allocation.managed {
            self.usage.unmanaged_bytes -= live.allocation.bytes;
        }
        Ok(live.backing(self.space, range))
    }

    /// Takes a range of the tree for `bytes` bytes that are to become an allocation.
    pub(super) fn take(&mut self, bytes: u64) -> Option<(Block, Key)> {
        self.tree.take(bytes, Slot::Making)
    }

    /// Makes an allocation live.
    pub(super) fn enter(&mut self, place: Place, live: Live, range: Option<Box<Range>>) {
        let Allocation { address, bytes, .. } = live.allocation;
        self.usage.live += 1;
        self.usage.live_bytes += bytes;
        match place {
            Place::Tree(key) => {
                let slot = self.tree.get_mut(key);
                debug_assert!(matches!(slot, Some(Slot::Making)));
                if let Some(slot) = slot {
                    *slot = Slot::Live(live);
                }
            }
            Place::Apart => {
                self.usage.unmanaged_bytes += bytes;
                self.usage.unmanaged_ever += 1;
                self.apart.insert(address, (live, range));
            }
        }
    }

    /// Makes an address range free again.
    pub(super) fn vacate(&mut self, place: Place) {
        if let Place::Tree(key) = place {
            self.tree.give_back(key);
        }
    }

    /// Takes everything that is live out.
    pub(super) fn drain(&mut self) -> Vec<(Device, Backing)> {
        let space = self.space;
        let managed = self.tree.drain().filter_map(|slot| match slot {
            Slot::Live(live) => Some((live, None)),
            Slot::Making | Slot::Leaving => None,
        });
        let apart = std::mem::take(&mut self.apart).into_values();
        managed
            .chain(apart)
            .map(|(live, range)| (live.allocation.device, live.backing(space, range)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gsan_core::address::Records;

    use super::*;
    use crate::backend::HandleKind;
    use crate::backend::host::{HostBackend, HostOptions};
    use crate::owned::Driver;

    const UNIT: u64 = 2 << 20;
    const GPU: Device = Device(0);

    fn slots() -> Slots {
        let space = AddressSpace::new(1 << 40, 1 << 40, Records::Four).unwrap();
        Slots::new(space, UNIT).unwrap()
    }

    /// Memory of that size; its numbers are all that is needed here.
    fn memory(bytes: u64) -> Memory {
        let driver: Driver = Arc::new(HostBackend::new(HostOptions::default()).unwrap());
        Memory::create(&driver, GPU, bytes, HandleKind::PosixFd).unwrap()
    }

    fn allocation(address: u64, bytes: u64) -> Allocation {
        Allocation {
            address,
            bytes,
            device: GPU,
            managed: true,
            imported: false,
            write_once: false,
        }
    }

    /// Makes an allocation of `bytes` bytes live, and returns its address.
    fn allocate(slots: &mut Slots, bytes: u64) -> u64 {
        let real = memory(bytes.next_multiple_of(UNIT));
        let (block, key) = slots.take(real.bytes()).unwrap();
        let address = slots.space.real_base() + block.offset;
        let shadow = memory(4 * real.bytes());
        let live = Live::new(allocation(address, bytes), [0; 16], real, Some(shadow));
        slots.enter(Place::Tree(key), live, None);
        address
    }

    fn free(slots: &mut Slots, address: u64) {
        let (place, _) = slots.freeable(address, None).unwrap();
        slots.leave(place, address, None).unwrap();
        slots.vacate(place);
    }

    #[test]
    fn what_was_freed_in_between_is_not_freed_again() {
        let mut slots = slots();
        let address = allocate(&mut slots, UNIT);
        let (place, _) = slots.freeable(address, None).unwrap();
        assert!(slots.leave(place, address, None).is_ok());
        assert_eq!(
            slots.leave(place, address, None).map(drop),
            Err(Error::AlreadyFreed { address })
        );
        slots.vacate(place);
        assert_eq!(
            slots.leave(place, address, None).map(drop),
            Err(Error::NotLive { address })
        );
        assert!(slots.is_empty());
        assert_eq!(slots.usage(), Usage::default());
    }

    #[test]
    fn what_took_its_place_in_between_is_not_freed_instead() {
        let mut slots = slots();
        let base = slots.space.real_base();
        let [first, second, _] = [0, 1, 2].map(|_| allocate(&mut slots, UNIT));
        let (place, _) = slots.freeable(second, None).unwrap();
        free(&mut slots, first);
        free(&mut slots, second);
        // The fourth unit; the first two; the fifth, for which the range after it is split; and the
        // seventh and eighth, in the node that the second unit had.
        let units = [1, 2, 1, 2].map(|units| (allocate(&mut slots, units * UNIT) - base) / UNIT);
        assert_eq!(units, [3, 0, 4, 6]);
        assert_eq!(slots.freeable(base + 6 * UNIT, None), Ok((place, GPU)));
        assert_eq!(
            slots.leave(place, second, None).map(drop),
            Err(Error::NotLive { address: second })
        );
        assert_eq!(slots.usage().live, 5);
    }

    #[test]
    fn what_is_there_in_between_must_be_what_the_caller_believes() {
        let mut slots = slots();
        let [_, address] = [0, 1].map(|_| allocate(&mut slots, UNIT));
        let given = Some((UNIT, GPU));
        let (place, _) = slots.freeable(address, given).unwrap();
        free(&mut slots, address);
        assert_eq!(allocate(&mut slots, UNIT - 1), address);
        let left = slots.leave(place, address, given).map(drop);
        assert!(matches!(left, Err(Error::Mismatch { bytes, .. }) if bytes == UNIT - 1));
        assert_eq!(slots.usage().live, 2);
    }

    #[test]
    fn an_allocation_at_rest_knows_its_memory() {
        let mut slots = slots();
        let address = allocate(&mut slots, UNIT + 1);
        let live = *slots.find(address + UNIT).unwrap();
        assert_eq!(live.real().bytes(), 2 * UNIT);
        let shadow = live.shadow(slots.space).unwrap();
        assert_eq!(shadow.bytes(), 8 * UNIT);
        let (place, device) = slots.freeable(address, Some((UNIT + 1, GPU))).unwrap();
        assert_eq!(device, GPU);
        assert_eq!(
            slots.leave(place, address, None).unwrap().bytes(),
            10 * UNIT
        );
    }
}
