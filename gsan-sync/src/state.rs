//! The state region of a device: set up, and where its parts are.

use std::mem::offset_of;

use bytemuck::Zeroable;
use gsan_core::compressed::topology::{Place, Topology};
use gsan_core::ids::DeviceRank;
use gsan_core::layout::{GlobalState, LaunchState, RowHeader, STATE_STRIDE, Shape};
use gsan_vmm::Allocator;
use gsan_vmm::backend::Device;

use crate::error::Error;
use crate::settings::Settings;

/// Rows start at multiples of a line.
const LINE: u64 = 128;

/// Where things are in the state region of one device.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub(crate) device: Device,
    pub(crate) rank: DeviceRank,
    pub(crate) topology: Topology,
    /// Its first address.
    pub(crate) base: u64,
    pub(crate) global: GlobalState,
    /// What ranks tell each other.
    pub(crate) meeting: u64,
    /// Rows, from here to `end`.
    pub(crate) rows: u64,
    pub(crate) end: u64,
}

/// What a rank tells the others of its group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meeting {
    /// How far it has come.
    pub(crate) count: u64,
    /// Whether it is ready to restart, in the same line.
    pub(crate) mark: u64,
    /// Who was missing, for as many meetings as fit into a line.
    pub(crate) missing: u64,
    /// What it knew, in turns.
    pub(crate) rows: [u64; 2],
}

/// How ids are divided, as `settings` say.
pub(crate) fn topology(settings: &Settings) -> Result<Topology, Error> {
    Ok(Topology::new(
        settings.devices,
        settings.sms,
        settings.slots_per_sm,
        settings.most_banks,
    )?)
}

impl Region {
    /// Creates and sets up the state of the device at a place. `present` are the ranks whose states it may
    /// look at, a bit each; `generation` is how many restarts there were.
    pub(crate) fn create(
        allocator: &Allocator,
        settings: &Settings,
        place: usize,
        (present, generation): (u32, u32),
    ) -> Result<Region, Error> {
        let mut region = Region::lay_out(allocator, settings, place)?;
        region.global.present = present;
        region.global.generation = generation;
        let bytes = region.end - region.base;
        allocator.create_state(region.rank, region.device, bytes)?;
        region.write(allocator)?;
        Ok(region)
    }

    /// The state of the device at a place, as it will be.
    pub(crate) fn lay_out(
        allocator: &Allocator,
        settings: &Settings,
        place: usize,
    ) -> Result<Region, Error> {
        let (device, rank) = (settings.device_at(place), settings.device_ranks[place]);
        let topology = topology(settings)?;
        let state_base = allocator.state_base();
        let mut global = GlobalState::new(&Shape {
            topology,
            rank,
            publications: settings.publications,
            snapshot_bytes: settings.snapshot_bytes,
            private_bytes: settings.private_bytes,
            seed: settings.seed,
            space: allocator.space(),
            state_base,
        })?;
        global.constants.race_ring = settings.race_ring;
        global.constants.write_once = settings.write_once;
        let mirror = settings.site_mirrors.get(place);
        global.site_mirror = mirror.copied().unwrap_or(0);
        global.flags = settings.flags;
        let offset = u64::from(global.offsets.rows);
        let unit = allocator.backend().granularity();
        let bytes = offset
            .saturating_add(settings.row_bytes)
            .min(STATE_STRIDE)
            .next_multiple_of(unit)
            .min(STATE_STRIDE);
        global.offsets.end = bytes as u32;
        let base = state_base + u64::from(rank.0) * STATE_STRIDE;
        let mut region = Region {
            device,
            rank,
            topology,
            base,
            global,
            meeting: base + offset,
            rows: base + offset,
            end: base + bytes,
        };
        region.rows += region.meeting_bytes();
        let least = 8 * (region.own_bytes() + region.foreign_bytes());
        let room = region.end.saturating_sub(region.rows);
        if room < least {
            return Err(Error::NoRoomForRows {
                device,
                room,
                least,
            });
        }
        Ok(region)
    }

    /// Writes the start of the region; the word that says that it is set up last.
    pub(crate) fn write(&self, allocator: &Allocator) -> Result<(), Error> {
        let mut global = self.global;
        global.magic = u32::zeroed();
        let backend = allocator.backend();
        backend.write(self.device, self.base, bytemuck::bytes_of(&global))?;
        let magic = self.base + offset_of!(GlobalState, magic) as u64;
        backend.write(self.device, magic, &self.global.magic.to_le_bytes())?;
        Ok(())
    }

    /// The size of a row of one bank.
    pub(crate) fn own_bytes(&self) -> u64 {
        (4 * u64::from(self.topology.slots())).next_multiple_of(LINE)
    }

    /// The size of a row over all ids.
    pub(crate) fn foreign_bytes(&self) -> u64 {
        let header = size_of::<RowHeader>() as u64;
        (header + 4 * u64::from(self.topology.ids())).next_multiple_of(LINE)
    }

    /// The size of what a rank tells others: two lines and two rows over all ids.
    fn meeting_bytes(&self) -> u64 {
        2 * (LINE + self.foreign_bytes())
    }

    /// Where `rank`, which may be one of another process, tells the others something.
    pub(crate) fn meeting_of(&self, rank: DeviceRank) -> Meeting {
        let base = self.base - u64::from(self.rank.0) * STATE_STRIDE;
        let start = base + u64::from(rank.0) * STATE_STRIDE + (self.meeting - self.base);
        Meeting {
            count: start,
            mark: start + LINE / 2,
            missing: start + LINE,
            rows: [start + 2 * LINE, start + 2 * LINE + self.foreign_bytes()],
        }
    }

    /// The size of a table of rows by bank.
    pub(crate) fn table_bytes(&self) -> u64 {
        (8 * u64::from(self.topology.banks())).next_multiple_of(LINE)
    }

    /// The state of the launch `number`, where device code looks for it.
    pub(crate) fn launch_state(&self, number: u32) -> u64 {
        let place = u64::from(number % gsan_core::layout::limits::LAUNCHES);
        let first = self.base + u64::from(self.global.offsets.launches);
        first + place * size_of::<LaunchState>() as u64
    }

    /// The slot masks of a bank of this device.
    pub(crate) fn slot_masks(&self, bank: u32) -> u64 {
        let within = bank % self.topology.banks_per_device();
        let first = self.base + u64::from(self.global.offsets.slot_masks);
        first + 4 * u64::from(within) * u64::from(self.topology.sms())
    }

    /// The first thread id of a bank.
    pub(crate) fn bank_first(&self, bank: u32) -> u32 {
        u32::from(self.topology.id(Place { bank, slot: 0 }).0)
    }
}

/// Where the entries of a row over all ids start.
pub(crate) const fn entries(foreign: u64) -> u64 {
    foreign + size_of::<RowHeader>() as u64
}
