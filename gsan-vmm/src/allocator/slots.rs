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
    /// A range of the buddy tree of write-once memory.
    WriteOnce(Key),
    /// Nothing more than the memory itself and its own reservation.
    Apart,
}

/// Of how many equal parts of the addresses the last one is for write-once memory.
const WRITE_ONCE_PART: u64 = 8;

/// All allocations.
pub(super) struct Slots {
    space: AddressSpace,
    tree: BuddyTree<Slot>,
    /// Write-once memory, if it has addresses of its own.
    write_once: Option<WriteOnce>,
    /// Live allocations without shadow, by address.
    apart: BTreeMap<u64, (Live, Option<Box<Range>>)>,
    usage: Usage,
}

/// The last part of the addresses, which the other tree has given away.
struct WriteOnce {
    /// Where it starts, counted from the start of real memory.
    offset: u64,
    tree: BuddyTree<Slot>,
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
    /// It belongs to another tree.
    Apart,
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
    /// An empty table over `space`, in units of `unit` bytes; `None` if it has room for none. With
    /// `write_once` the last of [`WRITE_ONCE_PART`] parts is for write-once memory alone, if it has room
    /// for any.
    pub(super) fn new(space: AddressSpace, unit: u64, write_once: bool) -> Option<Slots> {
        let mut tree = BuddyTree::new(space.usable(), unit)?;
        let part = space.usable() / WRITE_ONCE_PART;
        let write_once = (write_once && part >= unit)
            .then(|| {
                let parts: Vec<_> = (0..WRITE_ONCE_PART)
                    .filter_map(|_| tree.take(part, Slot::Apart))
                    .collect();
                let (last, rest) = parts.split_last()?;
                for (_, key) in rest {
                    tree.give_back(*key);
                }
                Some(WriteOnce {
                    offset: last.0.offset,
                    tree: BuddyTree::new(part, unit)?,
                })
            })
            .flatten();
        Some(Slots {
            space,
            tree,
            write_once,
            apart: BTreeMap::new(),
            usage: Usage::default(),
        })
    }

    pub(super) fn usage(&self) -> Usage {
        self.usage
    }

    pub(super) fn is_empty(&self) -> bool {
        let trees = match &self.write_once {
            None => self.tree.is_empty(),
            Some(write_once) => self.tree.len() == 1 && write_once.tree.is_empty(),
        };
        trees && self.apart.is_empty()
    }

    /// The first address of write-once memory; 0 if it has none of its own.
    pub(super) fn write_once_base(&self) -> u64 {
        let offset = self.write_once.as_ref().map(|write_once| write_once.offset);
        offset.map_or(0, |offset| self.space.real_base() + offset)
    }

    fn slot(&self, place: Place) -> Option<&Slot> {
        match place {
            Place::Tree(key) => self.tree.get(key),
            Place::WriteOnce(key) => self.write_once.as_ref()?.tree.get(key),
            Place::Apart => None,
        }
    }

    fn slot_mut(&mut self, place: Place) -> Option<&mut Slot> {
        match place {
            Place::Tree(key) => self.tree.get_mut(key),
            Place::WriteOnce(key) => self.write_once.as_mut()?.tree.get_mut(key),
            Place::Apart => None,
        }
    }

    /// The range of a tree that contains an address of real memory.
    fn range(&self, address: u64) -> Option<Place> {
        let offset = address - self.space.real_base();
        match &self.write_once {
            Some(write_once) if offset >= write_once.offset => {
                let found = write_once.tree.find(offset - write_once.offset);
                found.map(|(_, key)| Place::WriteOnce(key))
            }
            _ => self.tree.find(offset).map(|(_, key)| Place::Tree(key)),
        }
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
        let write_once = self.write_once.iter().flat_map(|part| part.tree.iter());
        let managed = self
            .tree
            .iter()
            .chain(write_once)
            .filter_map(|slot| match slot {
                Slot::Live(live) => Some(live),
                Slot::Making | Slot::Leaving | Slot::Apart => None,
            });
        managed.chain(self.apart.values().map(|(live, _)| live))
    }

    fn find_place(&self, address: u64) -> Result<(Place, &Live), Error> {
        let found = if self.space.is_managed(address) {
            let place = self.range(address);
            match place.and_then(|place| Some((place, self.slot(place)?))) {
                Some((place, Slot::Live(live))) => Some((place, live)),
                Some((_, Slot::Leaving)) => return Err(Error::AlreadyFreed { address }),
                _ => None,
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
            Place::Tree(_) | Place::WriteOnce(_) => {
                let slot = self.slot_mut(place);
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

    /// Takes a range of the tree for `bytes` bytes that are to become an allocation, as `write_once` says
    /// in that of write-once memory if that has addresses of its own.
    pub(super) fn take(&mut self, bytes: u64, write_once: bool) -> Option<(Block, Place)> {
        match &mut self.write_once {
            Some(part) if write_once => {
                let (block, key) = part.tree.take(bytes, Slot::Making)?;
                let offset = part.offset + block.offset;
                Some((Block { offset, ..block }, Place::WriteOnce(key)))
            }
            _ => {
                let (block, key) = self.tree.take(bytes, Slot::Making)?;
                Some((block, Place::Tree(key)))
            }
        }
    }

    /// Makes an allocation live.
    pub(super) fn enter(&mut self, place: Place, live: Live, range: Option<Box<Range>>) {
        let Allocation { address, bytes, .. } = live.allocation;
        self.usage.live += 1;
        self.usage.live_bytes += bytes;
        match place {
            Place::Tree(_) | Place::WriteOnce(_) => {
                let slot = self.slot_mut(place);
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
        match (place, &mut self.write_once) {
            (Place::Tree(key), _) => drop(self.tree.give_back(key)),
            (Place::WriteOnce(key), Some(part)) => drop(part.tree.give_back(key)),
            _ => {}
        }
    }

    /// Takes everything that is live out.
    pub(super) fn drain(&mut self) -> Vec<(Device, Backing)> {
        let space = self.space;
        let write_once = self
            .write_once
            .iter_mut()
            .flat_map(|part| part.tree.drain());
        let slots = self.tree.drain().chain(write_once);
        let managed = slots.filter_map(|slot| match slot {
            Slot::Live(live) => Some((live, None)),
            Slot::Making | Slot::Leaving | Slot::Apart => None,
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
        Slots::new(space, UNIT, false).unwrap()
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
        let (block, place) = slots.take(real.bytes(), false).unwrap();
        let address = slots.space.real_base() + block.offset;
        let shadow = memory(4 * real.bytes());
        let live = Live::new(allocation(address, bytes), [0; 16], real, Some(shadow));
        slots.enter(place, live, None);
        address
    }

    fn free(slots: &mut Slots, address: u64) {
        let (place, _) = slots.freeable(address, None).unwrap();
        slots.leave(place, address, None).unwrap();
        slots.vacate(place);
    }

    #[test]
    fn write_once_memory_has_the_last_eighth_of_the_addresses() {
        let space = AddressSpace::new(1 << 40, 1 << 40, Records::Four).unwrap();
        let mut slots = Slots::new(space, UNIT, true).unwrap();
        let eighth = space.usable() / 8;
        let base = space.real_base() + 7 * eighth;
        assert_eq!(slots.write_once_base(), base);
        assert!(slots.is_empty());
        let (block, place) = slots.take(UNIT, true).unwrap();
        assert_eq!(space.real_base() + block.offset, base);
        let (ordinary, other) = slots.take(UNIT, false).unwrap();
        assert!(ordinary.offset < 7 * eighth);
        assert_ne!(place, other);
        // What is ordinary never gets there, however much is asked for.
        let mut taken = Vec::new();
        while let Some((block, place)) = slots.take(eighth, false) {
            assert!(space.real_base() + block.offset + eighth <= base);
            taken.push(place);
        }
        assert_eq!(taken.len(), 6);
        assert_eq!(
            slots.find(base).map(drop),
            Err(Error::NotLive { address: base })
        );
        taken.extend([place, other]);
        for place in taken {
            slots.vacate(place);
        }
        assert!(slots.is_empty());
    }

    #[test]
    fn addresses_that_are_too_few_are_not_divided() {
        let space = AddressSpace::new(1 << 40, 16 << 20, Records::Two).unwrap();
        let slots = Slots::new(space, UNIT, true).unwrap();
        assert_eq!(slots.write_once_base(), 0);
        assert!(slots.is_empty());
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
