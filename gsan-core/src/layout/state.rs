//! The state region of a device: what is in it, and where.

use super::{
    Checkpoints, ClockShape, HistoryEntry, KernelName, LaunchState, Publication, Site, ThreadState,
    entry,
};
use crate::address::{AddressSpace, Records};
use crate::compressed::topology::Topology;
use crate::ids::DeviceRank;
use crate::loss::Loss;

/// How far the state regions of two device ranks are apart: 1 GiB, which stock Triton's launcher
/// takes for granted.
pub const STATE_STRIDE: u64 = 1 << 30;

/// Numbers of the state region.
pub mod limits {
    constants! { "GSAN_STATE_":
        /// The version of the layout; processes that share memory must agree.
        pub const VERSION: u32 = 7;
        /// First word of a state region: "GSAN" and the version would differ in every other use.
        pub const MAGIC: u32 = 0x4753_414e;
        /// How many units of 16 bytes of real memory a tile of shadow memory has.
        pub const TILE: u32 = 8;
        /// The most devices a topology may have.
        pub const MAX_DEVICES: u32 = 32;
        /// How many starts of CTAs the history keeps of each thread id.
        pub const HISTORY: u32 = 16;
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
        /// How many words map kernel, file pointer and line to a site; a power of two.
        pub const SITE_KEYS: u32 = 8192;
        /// How many words count races that are alike; a power of two.
        pub const RACE_FILTER: u32 = 4096;
        /// Bytes from the state region of one device to that of the next.
        pub const STRIDE: u64 = super::STATE_STRIDE;
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
        /// How many thread ids each device has, less than 65,536: those of rank 0 start at 0, the
        /// next rank's follow. The last one of a device publishes for CTAs without a slot.
        pub share: u16,
        /// How many slots a bank has; the first bank of a device starts at its first id.
        pub slots: u32,
        /// How many banks a device has.
        pub banks: u32,
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
    pub struct Offsets = "gsan_offsets", size 128, align 64 {
        /// Slot masks: a u32 per SM, for each bank of the device.
        pub slot_masks: u32,
        /// How many slots of each bank of the device were ever taken: a u32 each.
        pub high_water: u32,
        /// The mirrored epochs: a u32 per id of the device.
        pub epochs: u32,
        /// How often a CTA started on an id: a u32 per id of the device.
        pub starts: u32,
        /// [`HistoryEntry`], `GSAN_STATE_HISTORY` per id of the device.
        pub history: u32,
        /// [`ThreadState`] by SM.
        pub threads: u32,
        /// [`LaunchState`] by launch number, modulo.
        pub launches: u32,
        /// [`Publication`] by token, modulo.
        pub publications: u32,
        /// [`Checkpoints`].
        pub checkpoints: u32,
        /// The epochs of checkpoints by index: a u32 per id of the topology.
        pub checkpoint_epochs: u32,
        /// The states of snapshots by index, modulo: a u64 each.
        pub snapshot_states: u32,
        /// The clocks of snapshots by index, modulo.
        pub snapshots: u32,
        /// Which private clocks are taken, a bit each.
        pub private_taken: u32,
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
        /// Hashes of kernel, file pointer and line, with the site in the low bits: a u64 each.
        pub site_keys: u32,
        /// Counts of races that are alike: a u64 each.
        pub race_filter: u32,
        /// Rows of streams, events and graphs, up to the end of the region.
        pub rows: u32,
        /// The end of the region.
        pub end: u32,
        /// 0.
        pub reserved: [u32; 10],
    }
}

structure! {
    /// The start of a device's state region. The first line is [`Constants`].
    pub struct GlobalState = "gsan_global_state", size 1152, align 128 {
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
        /// How many SMs the device has at most.
        pub sms: u32,
        /// How many slots an SM has in each bank.
        pub slots_per_sm: u32,
        /// How many thread ids the topology has.
        pub ids: u32,
        /// How many publications the ring holds, a power of two.
        pub publications: u32,
        /// How many snapshots the ring holds, a power of two.
        pub snapshots: u32,
        /// How many private clocks there are.
        pub private_clocks: u32,
        /// How many segments a clock has; 3, or more by multiples of 4.
        pub segments: u32,
        /// How many entries a segment has room for, a multiple of 4.
        pub segment_entries: u32,
        /// The size of a clock in bytes.
        pub clock_bytes: u32,
        /// Ranks whose state is mapped in this process, a bit each: the device looks at no other's.
        pub present: u32,
        /// Where the device tells the host of new sites: a site mirror in this process; 0: nowhere.
        pub site_mirror: u64,
        /// The token of the next publication.
        pub publication_head: CounterLine,
        /// The index of the next snapshot.
        pub snapshot_head: CounterLine,
        /// The sync word of all sequentially consistent fences; that of rank 0 counts.
        pub sequential: CounterLine,
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
    /// How thread ids are divided among devices, banks and slots.
    pub topology: Topology,
    /// The rank of the device.
    pub rank: DeviceRank,
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
    /// The topology is too large.
    #[error("{0} devices; a topology has at most 32")]
    Devices(u32),
    /// The rank is outside the topology.
    #[error("device rank {rank} in a topology of {devices} devices; ranks start at 0")]
    Rank {
        /// The rank.
        rank: DeviceRank,
        /// How many devices there are.
        devices: u32,
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
        let Shape { topology, rank, .. } = shape;
        let devices = topology.devices();
        if devices > limits::MAX_DEVICES {
            return Err(ShapeError::Devices(devices));
        }
        if u32::from(rank.0) >= devices {
            let rank = *rank;
            return Err(ShapeError::Rank { rank, devices });
        }
        let publications = shape
            .publications
            .checked_next_power_of_two()
            .filter(|n| (16..=entry::MAX_PUBLICATIONS).contains(n))
            .ok_or(ShapeError::Publications(shape.publications))?;

        // Room for every device's bank and some more.
        let clock = ClockShape::holding((devices + 1).min(15), topology.slots());
        let clock_bytes = 4 * clock.words() as u32;
        let count = |what, bytes: u64, least: u64| {
            let count = bytes / u64::from(clock_bytes);
            if count < least {
                let least = least * u64::from(clock_bytes);
                return Err(ShapeError::TooSmall { what, bytes, least });
            }
            // More would not fit into the region anyway.
            Ok(count.min(STATE_STRIDE) as u32)
        };
        let snapshots = 1 << count("snapshots", shape.snapshot_bytes, 16)?.ilog2();
        let private_clocks = count("private clocks", shape.private_bytes, 1)?;

        let ids = topology.ids();
        let share = ids / devices;
        let banks = topology.banks_per_device();
        let mut end = size_of::<GlobalState>() as u64;
        let mut part = |count: u32, bytes: u32| {
            let start = end.next_multiple_of(256);
            end = start + u64::from(count) * u64::from(bytes);
            start as u32
        };
        let offsets = Offsets {
            slot_masks: part(banks, 4 * topology.sms()),
            high_water: part(banks, 4),
            epochs: part(share, 4),
            starts: part(share, 4),
            history: part(share, limits::HISTORY * size_of::<HistoryEntry>() as u32),
            threads: part(topology.sms(), size_of::<ThreadState>() as u32),
            launches: part(limits::LAUNCHES, size_of::<LaunchState>() as u32),
            publications: part(publications, size_of::<Publication>() as u32),
            checkpoints: part(1, size_of::<Checkpoints>() as u32),
            checkpoint_epochs: part(entry::CHECKPOINTS, 4 * ids),
            snapshot_states: part(snapshots, 8),
            snapshots: part(snapshots, clock_bytes),
            private_taken: part(private_clocks.div_ceil(32), 4),
            private_clocks: part(private_clocks, clock_bytes),
            sites: part(limits::SITES, size_of::<Site>() as u32),
            site_texts: part(limits::SITE_TEXT_BYTES, 1),
            kernels: part(limits::KERNELS, size_of::<KernelName>() as u32),
            kernel_texts: part(limits::KERNEL_TEXT_BYTES, 1),
            site_keys: part(limits::SITE_KEYS, 8),
            race_filter: part(limits::RACE_FILTER, 8),
            rows: part(0, 0),
            end: STATE_STRIDE as u32,
            reserved: [0; 10],
        };
        if end > STATE_STRIDE {
            return Err(ShapeError::TooLarge { needed: end });
        }

        let mut global: GlobalState = bytemuck::Zeroable::zeroed();
        global.constants = Constants {
            reserve_base: shape.space.base(),
            reserve_bytes: shape.space.reserve(),
            state_base: shape.state_base,
            race_ring: 0,
            write_once: 0,
            records: shape.space.records().count() as u32,
            seed: shape.seed,
            rank: rank.0,
            devices: devices as u16,
            first_id: (u32::from(rank.0) * share) as u16,
            share: share as u16,
            slots: topology.slots(),
            banks,
        };
        global.offsets = offsets;
        global.magic = limits::MAGIC;
        global.version = limits::VERSION;
        global.sms = topology.sms();
        global.slots_per_sm = topology.slots_per_sm();
        global.ids = ids;
        global.publications = publications;
        global.snapshots = snapshots;
        global.private_clocks = private_clocks;
        global.segments = clock.segments();
        global.segment_entries = clock.entries();
        global.clock_bytes = clock_bytes;
        global.present = u32::MAX >> (u32::BITS - devices);
        // Snapshot 0 could not be named, and site 0 is the unknown one.
        global.snapshot_head.value = 1;
        global.site_head.value = 1 << 32;
        Ok(global)
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn h200s(devices: u32) -> Shape {
        Shape {
            topology: Topology::new(devices, 132, 16, u32::MAX).unwrap(),
            rank: DeviceRank(0),
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
        let global = GlobalState::new(&h200s(1)).unwrap();
        // A head of 16 bytes and three banks of 132 SMs with 16 slots.
        assert_eq!(global.clock_bytes, 16 + 3 * 4 * 2112);
        // 256 MiB hold 10,584 of them.
        assert_eq!((global.snapshots, global.private_clocks), (8192, 10_584));
        assert_eq!(global.constants.banks, 31);
        assert_eq!(global.space(), Some(h200s(1).space));
        // Room for four own and four foreign rows of every bank.
        let rows = global.offsets.end - global.offsets.rows;
        assert!(rows > 31 * 4 * (2112 + 65_536) * 4, "{rows}");
    }

    #[test]
    fn a_clock_has_room_for_a_bank_of_every_device() {
        let segments = |devices| GlobalState::new(&h200s(devices)).unwrap().segments;
        assert_eq!([1, 2, 3, 4, 8, 16].map(segments), [3, 3, 7, 7, 11, 15]);
    }

    #[test]
    fn what_cannot_be_laid_out_is_said() {
        let bad = |shape: Shape| GlobalState::new(&shape).unwrap_err().to_string();
        assert_eq!(bad(h200s(33)), "33 devices; a topology has at most 32");
        assert_eq!(
            bad(Shape {
                rank: DeviceRank(2),
                ..h200s(2)
            }),
            "device rank 2 in a topology of 2 devices; ranks start at 0"
        );
        assert_eq!(
            bad(Shape {
                publications: u32::MAX,
                ..h200s(1)
            }),
            "4294967295 publications; 16 to 1048576 are possible"
        );
        assert_eq!(
            bad(Shape {
                snapshot_bytes: 1000,
                ..h200s(1)
            }),
            "1000 bytes for snapshots; at least 405760 are needed"
        );
        assert!(
            bad(Shape {
                private_bytes: 1 << 30,
                ..h200s(1)
            })
            .contains("does not fit into 1 GiB")
        );
    }

    #[test]
    fn a_state_that_was_not_set_up_has_no_reservation() {
        let zero: GlobalState = bytemuck::Zeroable::zeroed();
        assert_eq!(zero.space(), None);
    }

    proptest! {
        #[test]
        fn parts_lie_one_after_the_other(
            devices in 1u32..=32, sms in 1u32..300, slots_per_sm in 1u32..=32,
            publications in 16u32..100_000, clocks in 22u64..28,
        ) {
            let shape = Shape {
                topology: Topology::new(devices, sms, slots_per_sm, u32::MAX).unwrap(),
                rank: DeviceRank(devices as u16 - 1), publications,
                snapshot_bytes: 1 << clocks, private_bytes: 1 << clocks, ..h200s(1)
            };
            let global = match GlobalState::new(&shape) {
                Ok(global) => global,
                Err(ShapeError::TooSmall { least, bytes, .. }) => {
                    prop_assert!(bytes < least);
                    return Ok(());
                }
                Err(error) => return Err(TestCaseError::fail(error.to_string())),
            };
            let o = global.offsets;
            let starts = [
                size_of::<GlobalState>() as u32, o.slot_masks, o.high_water, o.epochs, o.starts,
                o.history, o.threads, o.launches, o.publications, o.checkpoints,
                o.checkpoint_epochs, o.snapshot_states, o.snapshots, o.private_taken,
                o.private_clocks, o.sites, o.site_texts, o.kernels, o.kernel_texts, o.site_keys,
                o.race_filter, o.rows, o.end,
            ];
            prop_assert!(starts.is_sorted());
            prop_assert!(starts[1..].iter().all(|start| start % 256 == 0));
            prop_assert!(global.segments > devices.min(14));
            prop_assert!(global.clock_bytes.is_multiple_of(16));
            prop_assert!(matches!(global.segments, 3 | 7 | 11 | 15));
        }
    }
}
