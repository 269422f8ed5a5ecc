//! The state region of a device: what is in it, and where.

use super::{
    CheckpointHeader, ClockHeader, HistoryEntry, KernelName, LaunchState, Publication, Site,
    ThreadState, entry, publication, thread_flags,
};
use crate::address::{AddressSpace, Records};
use crate::loss::Loss;

/// How far the state regions of two device ranks are apart: 1 GiB, which stock Triton's launcher
/// takes for granted.
pub const STATE_STRIDE: u64 = 1 << 30;

/// Numbers of the state region.
pub mod limits {
    constants! { "GSAN_STATE_":
        /// The version of the layout; processes that share memory must agree.
        pub const VERSION: u32 = 1;
        /// First word of a state region: "GSAN" and the version would differ in every other use.
        pub const MAGIC: u32 = 0x4753_414e;
        /// The most devices a topology may have.
        pub const MAX_DEVICES: u32 = 32;
        /// How many thread ids there are, over all devices.
        pub const THREAD_IDS: u32 = 1 << 16;
        /// The most slots an SM may have in one bank.
        pub const MAX_SLOTS_PER_SM: u32 = 32;
        /// The most banks a device may have.
        pub const MAX_BANKS: u32 = 256;
        /// Thread ids in a block of a launch's row table.
        pub const BLOCK: u32 = 64;
        /// How many launch states there are; a descriptor uses the one of its number, modulo.
        pub const LAUNCHES: u32 = 4096;
        /// How many sites there are, the unknown site 0 included.
        pub const SITES: u32 = crate::record::MAX_SITE + 1;
        /// Bytes for the file names of sites.
        pub const SITE_TEXT_BYTES: u32 = 1 << 20;
        /// How many kernels have names.
        pub const KERNELS: u32 = 4096;
        /// Bytes for the names of kernels.
        pub const KERNEL_TEXT_BYTES: u32 = 1 << 20;
        /// Flag: an overrun of a ring ends the program.
        pub const HALT_ON_OVERRUN: u32 = 1;
        /// Flag: a race ends the program.
        pub const HALT_ON_RACE: u32 = 2;
    }
}

structure! {
    /// What every access needs. A CTA copies it to its shared memory at its start.
    pub struct Constants = "gsan_constants", size 64, align 64 {
        /// The first address of the reservation: shadow below, real memory above.
        pub reserve_base: u64,
        /// Its size in bytes, a power of two.
        pub reserve_bytes: u64,
        /// The state region of device rank 0 in this process; others follow at 1 GiB.
        pub state_base: u64,
        /// The race ring in this process.
        pub race_ring: u64,
        /// Addresses of real memory from here on are write-once; 0: none are.
        pub write_once: u64,
        /// Records in a cell: 2 or 4.
        pub records: u32,
        /// Seed of the reservoir.
        pub seed: u32,
        /// The device's rank.
        pub rank: u16,
        /// How many devices there are.
        pub devices: u16,
        /// The first thread id of the device.
        pub first_id: u16,
        /// How many thread ids each device has, less than 65,536: rank 0's start at 0, the next
        /// rank's follow. The last one of a device publishes for CTAs without a slot.
        pub ids: u16,
        /// 0.
        pub reserved: u64,
    }
}

structure! {
    /// Thread ids of a stream, or of a branch of a graph.
    pub struct Bank = "gsan_bank", size 16, align 16 {
        /// The first id.
        pub first: u32,
        /// How many slots.
        pub slots: u32,
        /// How many slots, from the first, were ever taken.
        pub used: u32,
        /// Slot masks, one u32 per SM: an offset in the region.
        pub slot_masks: u32,
    }
}

structure! {
    /// A word that many write, on a line of its own.
    pub struct CounterLine = "gsan_counter_line", size 128, align 128 {
        /// The count.
        pub value: u64,
        /// 0.
        pub reserved: [u64; 15],
    }
}

structure! {
    /// Where the parts of a state region start, in bytes from its start.
    pub struct Offsets = "gsan_offsets", size 64, align 64 {
        /// [`Bank`] by number.
        pub banks: u32,
        /// The mirrored epochs: a u32 per id of the device.
        pub epochs: u32,
        /// How often a CTA started on an id: a u32 per id of the device.
        pub starts: u32,
        /// [`HistoryEntry`], `GSAN_THREAD_HISTORY` per id of the device.
        pub history: u32,
        /// [`ThreadState`] by SM.
        pub threads: u32,
        /// [`LaunchState`] by launch number, modulo.
        pub launches: u32,
        /// [`Publication`] by token, modulo.
        pub publications: u32,
        /// Checkpoints by index, modulo.
        pub checkpoints: u32,
        /// Snapshots by index, modulo.
        pub snapshots: u32,
        /// Private clocks.
        pub private_clocks: u32,
        /// [`Site`] by number.
        pub sites: u32,
        /// The file names of sites.
        pub site_texts: u32,
        /// [`KernelName`] by number.
        pub kernels: u32,
        /// The names of kernels.
        pub kernel_texts: u32,
        /// Rows of streams, events and graphs, up to the end of the region.
        pub rows: u32,
        /// The end of the region.
        pub end: u32,
    }
}

structure! {
    /// The start of a device's state region. The first line is [`Constants`].
    pub struct GlobalState = "gsan_global_state", size 1280, align 128 {
        /// What every access needs.
        pub constants: Constants,
        /// Where the parts of the region start.
        pub offsets: Offsets,
        /// `GSAN_STATE_MAGIC`, written last when the region is set up.
        pub magic: u32,
        /// `GSAN_STATE_VERSION`.
        pub version: u32,
        /// How many restarts there were.
        pub generation: u32,
        /// `GSAN_STATE_HALT_*`.
        pub flags: u32,
        /// How many SMs the device has.
        pub sms: u32,
        /// How many slots a bank has on each.
        pub slots_per_sm: u32,
        /// How many banks there are.
        pub banks: u32,
        /// How many publications the ring holds, a power of two.
        pub publications: u32,
        /// How many snapshots the ring holds, a power of two.
        pub snapshots: u32,
        /// How many private clocks there are.
        pub private_clocks: u32,
        /// The size of a snapshot or private clock in bytes, header included.
        pub clock_bytes: u32,
        /// The size of a checkpoint in bytes, header included.
        pub checkpoint_bytes: u32,
        /// 0.
        pub reserved: [u64; 10],
        /// The token of the next publication.
        pub publication_head: CounterLine,
        /// The index of the next snapshot.
        pub snapshot_head: CounterLine,
        /// The index of the next checkpoint.
        pub checkpoint_head: CounterLine,
        /// The free private clocks, a stack: how often it changed << 32 | first clock plus 1.
        pub private_free: CounterLine,
        /// Low half: bytes of site texts handed out; high half: sites in the table.
        pub site_head: CounterLine,
        /// Accesses checked by CTAs that have exited.
        pub accesses: CounterLine,
        /// How often each limit was met, by its number.
        pub losses: [u64; 32],
    }
}

const _: () = assert!(Loss::COUNT <= 32);

/// What the size of a state region follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The rank of the device, below `devices`.
    pub rank: u16,
    /// How many devices there are, 1 to 32.
    pub devices: u16,
    /// How many SMs the device has.
    pub sms: u32,
    /// How many CTAs of one stream can be told apart on one SM at once, 1 to 32.
    pub slots_per_sm: u32,
    /// How many publications are kept; rounded up to a power of two.
    pub publications: u32,
    /// Bytes for snapshots.
    pub snapshot_bytes: u64,
    /// Bytes for private clocks.
    pub private_bytes: u64,
    /// The seed of the reservoir.
    pub seed: u32,
    /// The reservation.
    pub space: AddressSpace,
    /// The state region of rank 0 in this process.
    pub state_base: u64,
}

/// Why a device's state cannot be laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// The topology is too large or empty.
    #[error("{0} devices; a topology has 1 to 32")]
    Devices(u16),
    /// The rank is outside the topology.
    #[error("device rank {rank} in a topology of {devices} devices; ranks start at 0")]
    Rank {
        /// The rank.
        rank: u16,
        /// How many devices there are.
        devices: u16,
    },
    /// Slots per SM out of range.
    #[error("{0} slots per SM; 1 to 32 are possible")]
    Slots(u32),
    /// The device's share of the thread ids is too small.
    #[error("{sms} SMs, but each of {devices} devices has {ids} thread ids only")]
    Sms {
        /// How many SMs the device has.
        sms: u32,
        /// How many devices there are.
        devices: u16,
        /// How many thread ids each has.
        ids: u32,
    },
    /// The number of publications is out of range.
    #[error("{0} publications; 16 to 1048576 are possible")]
    Publications(u32),
    /// A kind of clock has too little memory.
    #[error("{bytes} bytes for {what}; at least {least} are needed")]
    TooSmall {
        /// What the memory is for.
        what: &'static str,
        /// What it was given.
        bytes: u64,
        /// What it needs.
        least: u64,
    },
    /// The parts do not fit into the region.
    #[error(
        "device state of {needed} bytes does not fit into 1 GiB; give less memory to snapshots, \
         private clocks or publications"
    )]
    TooLarge {
        /// The size of all parts.
        needed: u64,
    },
}

impl GlobalState {
    /// The state of a device as set up, before the first launch.
    ///
    /// # Errors
    /// A number of `shape` is out of range, or the parts do not fit.
    pub fn new(shape: &Shape) -> Result<GlobalState, ShapeError> {
        let devices = shape.devices;
        if devices == 0 || u32::from(devices) > limits::MAX_DEVICES {
            return Err(ShapeError::Devices(devices));
        }
        if shape.rank >= devices {
            let rank = shape.rank;
            return Err(ShapeError::Rank { rank, devices });
        }
        if shape.slots_per_sm == 0 || shape.slots_per_sm > limits::MAX_SLOTS_PER_SM {
            return Err(ShapeError::Slots(shape.slots_per_sm));
        }
        // A block of ids never belongs to two devices.
        let ids = limits::THREAD_IDS / u32::from(devices) / limits::BLOCK * limits::BLOCK;
        let ids = ids.min(limits::THREAD_IDS - limits::BLOCK);
        let sms = shape.sms;
        let slots_per_sm = match (ids - 1).checked_div(sms) {
            None | Some(0) => return Err(ShapeError::Sms { sms, devices, ids }),
            Some(share) => share.min(shape.slots_per_sm),
        };
        let slots = sms * slots_per_sm;
        // Banks start at blocks, so that a row table names one row for each block.
        let bank_ids = slots.next_multiple_of(limits::BLOCK);
        let banks = ((ids - 1) / bank_ids).clamp(1, limits::MAX_BANKS);
        let publications = shape
            .publications
            .checked_next_power_of_two()
            .filter(|n| (16..=publication::MAX_CAPACITY).contains(n))
            .ok_or(ShapeError::Publications(shape.publications))?;

        let clock_bytes = clock_bytes(slots);
        let count = |what, bytes: u64, least: u64| {
            let count = bytes / u64::from(clock_bytes);
            if count < least {
                let least = least * u64::from(clock_bytes);
                return Err(ShapeError::TooSmall { what, bytes, least });
            }
            Ok(count.min(publication::MAX_SNAPSHOTS.into()) as u32)
        };
        let snapshots = count("snapshots", shape.snapshot_bytes, 16)?;
        let snapshots = 1 << snapshots.ilog2();
        let private_clocks = count("private clocks", shape.private_bytes, 1)?;
        let checkpoint_bytes = size_of::<CheckpointHeader>() as u32 + 4 * ids;

        let mut end = size_of::<GlobalState>() as u64;
        let mut part = |count: u32, bytes: usize| {
            let start = end.next_multiple_of(256);
            end = start + u64::from(count) * bytes as u64;
            start
        };
        let starts = [
            part(banks, size_of::<Bank>()),
            part(banks * sms, 4),
            part(ids, 4),
            part(ids, 4),
            part(ids * thread_flags::HISTORY, size_of::<HistoryEntry>()),
            part(sms, size_of::<ThreadState>()),
            part(limits::LAUNCHES, size_of::<LaunchState>()),
            part(publications, size_of::<Publication>()),
            part(entry::CHECKPOINTS, checkpoint_bytes as usize),
            part(snapshots, clock_bytes as usize),
            part(private_clocks, clock_bytes as usize),
            part(limits::SITES, size_of::<Site>()),
            part(limits::SITE_TEXT_BYTES, 1),
            part(limits::KERNELS, size_of::<KernelName>()),
            part(limits::KERNEL_TEXT_BYTES, 1),
            part(0, 1),
        ];
        if end > STATE_STRIDE {
            return Err(ShapeError::TooLarge { needed: end });
        }
        let [
            banks_at,
            _slot_masks,
            epochs,
            starts,
            history,
            threads,
            launches,
            publications_at,
            checkpoints,
            snapshots_at,
            private_at,
            sites,
            site_texts,
            kernels,
            kernel_texts,
            rows,
        ] = starts.map(|start| start as u32);

        let mut global: GlobalState = bytemuck::Zeroable::zeroed();
        global.constants = Constants {
            reserve_base: shape.space.base(),
            reserve_bytes: shape.space.reserve(),
            state_base: shape.state_base,
            race_ring: 0,
            write_once: 0,
            records: shape.space.records().count() as u32,
            seed: shape.seed,
            rank: shape.rank,
            devices,
            first_id: (u32::from(shape.rank) * ids) as u16,
            ids: ids as u16,
            reserved: 0,
        };
        global.offsets = Offsets {
            banks: banks_at,
            epochs,
            starts,
            history,
            threads,
            launches,
            publications: publications_at,
            checkpoints,
            snapshots: snapshots_at,
            private_clocks: private_at,
            sites,
            site_texts,
            kernels,
            kernel_texts,
            rows,
            end: STATE_STRIDE as u32,
        };
        global.magic = limits::MAGIC;
        global.version = limits::VERSION;
        global.sms = sms;
        global.slots_per_sm = slots_per_sm;
        global.banks = banks;
        global.publications = publications;
        global.snapshots = snapshots;
        global.private_clocks = private_clocks;
        global.clock_bytes = clock_bytes;
        global.checkpoint_bytes = checkpoint_bytes;
        // A site number is never 0: that is the unknown site.
        global.site_head.value = 1 << 32;
        Ok(global)
    }

    /// Bank number `index` as set up, or `None` if the device has fewer.
    pub fn bank(&self, index: u32) -> Option<Bank> {
        if index >= self.banks {
            return None;
        }
        let slots = self.sms * self.slots_per_sm;
        let masks = self.offsets.banks + self.banks * size_of::<Bank>() as u32;
        Some(Bank {
            first: u32::from(self.constants.first_id)
                + index * slots.next_multiple_of(limits::BLOCK),
            slots,
            used: 0,
            slot_masks: masks.next_multiple_of(256) + index * self.sms * 4,
        })
    }

    /// The rank of the device that `thread` belongs to.
    pub const fn device_of(&self, thread: crate::ids::ThreadId) -> crate::ids::DeviceRank {
        crate::ids::DeviceRank(thread.0 / self.constants.ids)
    }

    /// The reservation, or `None` if the state was not set up.
    pub const fn space(&self) -> Option<AddressSpace> {
        let records = match self.constants.records {
            2 => Records::Two,
            4 => Records::Four,
            _ => return None,
        };
        let Constants {
            reserve_base,
            reserve_bytes,
            ..
        } = self.constants;
        match AddressSpace::new(reserve_base, reserve_bytes, records) {
            Ok(space) => Some(space),
            Err(_) => None,
        }
    }
}

/// The size of a snapshot or private clock: a power of two that holds the own bank and about as
/// much again of others, so that the position of a clock in its ring is a shift.
const fn clock_bytes(slots: u32) -> u32 {
    (size_of::<ClockHeader>() as u32 + 4 * (slots + slots / 2 + 64)).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ids::{DeviceRank, ThreadId};

    fn h200() -> Shape {
        Shape {
            rank: 0,
            devices: 1,
            sms: 132,
            slots_per_sm: 16,
            publications: 65_536,
            snapshot_bytes: 256 << 20,
            private_bytes: 256 << 20,
            seed: 1,
            space: AddressSpace::new(8 << 40, 8 << 40, Records::Four).unwrap(),
            state_base: 1 << 40,
        }
    }

    #[test]
    fn the_state_of_an_h200() {
        let global = GlobalState::new(&h200()).unwrap();
        // 132 SMs with 16 slots are 2112 ids, a whole number of blocks. 31 times that are all 65,472
        // ids, but one must be left.
        assert_eq!((global.banks, global.slots_per_sm), (30, 16));
        assert_eq!(global.bank(1).unwrap().first, 2112);
        assert_eq!(global.clock_bytes, 16 << 10);
        assert_eq!((global.snapshots, global.private_clocks), (16_384, 16_384));
        assert_eq!(global.space(), Some(h200().space));
        // Room for the rows of every bank: four times own and foreign.
        let rows = global.offsets.end - global.offsets.rows;
        assert!(rows > 30 * 4 * (2112 + 65_536) * 4, "{rows}");
    }

    #[test]
    fn many_devices_share_the_ids() {
        let shape = Shape {
            devices: 32,
            rank: 31,
            ..h200()
        };
        let global = GlobalState::new(&shape).unwrap();
        // 2048 ids: 15 slots on each of 132 SMs.
        assert_eq!(
            (global.constants.ids, global.slots_per_sm, global.banks),
            (2048, 15, 1)
        );
        assert_eq!(global.constants.first_id, 63_488);
        assert_eq!(global.device_of(ThreadId(63_487)), DeviceRank(30));
        assert_eq!(global.device_of(ThreadId(65_535)), DeviceRank(31));
    }

    #[test]
    fn what_cannot_be_laid_out_is_said() {
        let bad = |shape: Shape| GlobalState::new(&shape).unwrap_err().to_string();
        assert_eq!(
            bad(Shape {
                devices: 0,
                ..h200()
            }),
            "0 devices; a topology has 1 to 32"
        );
        assert_eq!(
            bad(Shape {
                devices: 33,
                ..h200()
            }),
            "33 devices; a topology has 1 to 32"
        );
        assert_eq!(
            bad(Shape {
                rank: 2,
                devices: 2,
                ..h200()
            }),
            "device rank 2 in a topology of 2 devices; ranks start at 0"
        );
        assert_eq!(
            bad(Shape {
                slots_per_sm: 33,
                ..h200()
            }),
            "33 slots per SM; 1 to 32 are possible"
        );
        assert_eq!(
            bad(Shape {
                sms: 2048,
                devices: 32,
                ..h200()
            }),
            "2048 SMs, but each of 32 devices has 2048 thread ids only"
        );
        assert_eq!(
            bad(Shape { sms: 0, ..h200() }),
            "0 SMs, but each of 1 devices has 65472 thread ids only"
        );
        assert_eq!(
            bad(Shape {
                publications: u32::MAX,
                ..h200()
            }),
            "4294967295 publications; 16 to 1048576 are possible"
        );
        assert_eq!(
            bad(Shape {
                snapshot_bytes: 1000,
                ..h200()
            }),
            "1000 bytes for snapshots; at least 262144 are needed"
        );
        assert!(
            bad(Shape {
                private_bytes: 1 << 30,
                ..h200()
            })
            .contains("does not fit into 1 GiB")
        );
    }

    proptest! {
        #[test]
        fn parts_lie_one_after_the_other_and_banks_in_the_share_of_the_device(
            devices in 1u16..=32, sms in 1u32..300, slots_per_sm in 1u32..=32,
            publications in 16u32..100_000, clocks in 20u64..28,
        ) {
            let shape = Shape {
                rank: devices - 1, devices, sms, slots_per_sm, publications,
                snapshot_bytes: 1 << clocks, private_bytes: 1 << clocks, ..h200()
            };
            let global = GlobalState::new(&shape).unwrap();
            let o = global.offsets;
            let starts = [
                size_of::<GlobalState>() as u32, o.banks, o.epochs, o.starts, o.history,
                o.threads, o.launches, o.publications, o.checkpoints, o.snapshots,
                o.private_clocks, o.sites, o.site_texts, o.kernels, o.kernel_texts, o.rows, o.end,
            ];
            prop_assert!(starts.is_sorted());
            prop_assert!(starts[1..].iter().all(|start| start % 256 == 0));
            let first = u32::from(global.constants.first_id);
            let share = first..first + u32::from(global.constants.ids);
            let mut before = first;
            for index in 0..global.banks {
                let bank = global.bank(index).unwrap();
                prop_assert!(bank.first >= before && bank.first.is_multiple_of(limits::BLOCK));
                before = bank.first + bank.slots;
                // The last id of the device stays free.
                prop_assert!(before < share.end);
                prop_assert!(bank.slot_masks + 4 * sms <= o.epochs);
            }
            prop_assert_eq!(global.bank(global.banks), None);
            prop_assert!(share.end <= limits::THREAD_IDS);
        }
    }
}
