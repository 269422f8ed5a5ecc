//! What a host does for the device library: it lays out the memory of one device, describes launches,
//! and reads what was found.

use bytemuck::Zeroable;
use gsan_core::address::AddressSpace;
use gsan_core::atomics::{Native, words};
use gsan_core::compressed::topology::Topology;
use gsan_core::ids::{DeviceRank, SiteId};
use gsan_core::layout::{
    GlobalState, LaunchDescriptor, LaunchState, RaceEntry, RowHeader, Shape, Site, launch_flags,
    limits,
};
use gsan_core::loss::Loss;
use gsan_core::race_ring::{RaceReader, RaceRing};
use gsan_core::site_mirror::SiteMirror;

use crate::kernels::Module;

/// How many races the ring holds.
pub(crate) const RING_ENTRIES: u64 = 1024;

/// Bytes of the copy of the site table.
pub(crate) const MIRROR_BYTES: u64 = 8 * SiteMirror::<Native>::DEVICE_WORDS;

/// How many launches the table of descriptors has room for.
pub(crate) const TABLE_ENTRIES: u32 = 1024;

/// Bytes of the ring.
pub(crate) const RING_BYTES: u64 = 8 * RaceRing::<Native>::words(RING_ENTRIES);

/// Bytes of the table.
pub(crate) const TABLE_BYTES: u64 = TABLE_ENTRIES as u64 * size_of::<LaunchDescriptor>() as u64;

/// A device, and what its clocks may take.
pub(crate) struct Machine {
    pub(crate) sms: u32,
    pub(crate) slots_per_sm: u32,
    pub(crate) publications: u32,
    pub(crate) clock_bytes: u64,
}

/// Where everything is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    pub(crate) space: AddressSpace,
    pub(crate) state: u64,
    pub(crate) ring: u64,
    pub(crate) mirror: u64,
    pub(crate) table: u64,
}

/// One device and its launches so far.
pub(crate) struct Runtime {
    pub(crate) global: GlobalState,
    pub(crate) places: Places,
    launches: u32,
    /// How many launches each stream had.
    streams: [u32; 2],
}

/// What a kernel is given behind its own arguments, and what has to be in the table for that.
pub(crate) struct Announced {
    pub(crate) arguments: [u64; 3],
    pub(crate) descriptor: LaunchDescriptor,
    /// Where the descriptor goes.
    pub(crate) address: u64,
}

impl Runtime {
    pub(crate) fn new(machine: &Machine, places: Places) -> Runtime {
        let streams = [0; 2];
        let topology =
            Topology::new(1, machine.sms, machine.slots_per_sm, streams.len() as u32).unwrap();
        let mut global = GlobalState::new(&Shape {
            topology,
            rank: DeviceRank(0),
            publications: machine.publications,
            snapshot_bytes: machine.clock_bytes,
            private_bytes: machine.clock_bytes,
            seed: 1,
            space: places.space,
            state_base: places.state,
        })
        .unwrap();
        global.constants.race_ring = places.ring;
        global.site_mirror = places.mirror;
        Runtime {
            global,
            places,
            launches: 0,
            streams,
        }
    }

    /// An empty race ring.
    pub(crate) fn empty_ring() -> Vec<u64> {
        let count = RaceRing::<Native>::words(RING_ENTRIES) as usize;
        let ring = words(count, 0);
        RaceRing::<Native>::format(&ring, RING_ENTRIES).unwrap();
        ring.into_iter().map(|word| word.into_inner()).collect()
    }

    /// An empty copy of the site table.
    pub(crate) fn empty_mirror() -> Vec<u64> {
        let mirror = words(SiteMirror::<Native>::DEVICE_WORDS as usize, 0);
        SiteMirror::<Native>::format(&mirror).unwrap();
        mirror.into_iter().map(|word| word.into_inner()).collect()
    }

    /// The row of the own bank and the foreign row that a stream's launches use in turn.
    fn rows(&self, stream: u32, turn: u32) -> [u64; 2] {
        let constants = &self.global.constants;
        let own = 4 * u64::from(constants.slots);
        let foreign = own.next_multiple_of(256);
        let both = foreign + size_of::<RowHeader>() as u64 + 4 * u64::from(self.global.ids);
        let index = u64::from(2 * stream + turn % 2);
        let first = self.places.state
            + u64::from(self.global.offsets.rows)
            + index * both.next_multiple_of(256);
        [first, first + foreign]
    }

    /// The next launch of a stream. It starts after what its stream has done: of the stream's two
    /// pairs of rows, one is what the launch starts with, the other what it completes, and each
    /// completion carries over what the launch started with.
    pub(crate) fn launch(&mut self, module: Module, stream: u32, grid: u32) -> Announced {
        self.launches += 1;
        let number = self.launches;
        assert!(number < TABLE_ENTRIES.min(limits::LAUNCHES));
        let turn = self.streams[stream as usize];
        self.streams[stream as usize] += 1;
        let [own_row, foreign_row] = self.rows(stream, turn);
        let [own_done, foreign_done] = self.rows(stream, turn + 1);
        let state = self.places.state;
        let offsets = &self.global.offsets;
        let of_launch = u64::from(number) * size_of::<LaunchState>() as u64;
        let masks = u64::from(4 * self.global.sms * stream);
        let slots = self.global.constants.slots;
        let descriptor = LaunchDescriptor {
            own_row,
            foreign_row,
            own_done,
            foreign_done,
            state: state + u64::from(offsets.launches) + of_launch,
            slot_masks: state + u64::from(offsets.slot_masks) + masks,
            number,
            ctas: grid,
            kernel: module as u32 + 1,
            bank: stream,
            bank_first: u32::from(self.global.constants.first_id) + stream * slots,
            stream,
            grid: [grid, 1, 1],
            ..Zeroable::zeroed()
        };
        let index = u64::from(number + 1) << launch_flags::INDEX_NUMBER_SHIFT | u64::from(number);
        Announced {
            arguments: [state, self.places.table, index],
            descriptor,
            address: self.places.table + u64::from(number) * size_of_val(&descriptor) as u64,
        }
    }
}

/// One race as a test looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Told {
    /// `race_codes`: read after write, write after read, write after write.
    pub(crate) kind: u32,
    /// The lines of the earlier and the later access; 0 if unknown.
    pub(crate) lines: [u32; 2],
}

/// What a run left behind.
#[derive(Debug)]
pub(crate) struct Found {
    /// The races, in the order in which they were told.
    pub(crate) races: Vec<RaceEntry>,
    /// Lines by site.
    lines: Vec<u32>,
    losses: [u64; 32],
}

impl Found {
    /// Reads a device whose kernels have ended; `read` copies from its memory.
    pub(crate) fn read(
        runtime: &Runtime,
        ring: RaceRing<'_, Native>,
        mirror: SiteMirror<'_, Native>,
        read: impl Fn(u64, &mut [u8]),
    ) -> Found {
        let mut races = Vec::new();
        let drained = RaceReader::new(ring).finish(|race| races.push(race));
        assert_eq!(drained.unwritten, 0);
        let offset = core::mem::offset_of!(GlobalState, losses) as u64;
        let mut losses = [0; 32];
        read(
            runtime.places.state + offset,
            bytemuck::cast_slice_mut(&mut losses),
        );
        let mut sites = vec![Site::zeroed(); limits::SITES as usize];
        if !races.is_empty() {
            let table = runtime.places.state + u64::from(runtime.global.offsets.sites);
            read(table, bytemuck::cast_slice_mut(&mut sites));
        }
        // Who reads them when the device is gone finds the same.
        for (number, site) in sites.iter().enumerate().filter(|(_, site)| site.ready == 1) {
            let copy = mirror.get(SiteId(number as u32)).unwrap();
            let text = runtime.global.offsets.site_texts + site.text;
            let mut file = vec![0; site.bytes as usize];
            read(runtime.places.state + u64::from(text), &mut file);
            assert_eq!((copy.line, copy.file.as_bytes()), (site.line, &file[..]));
        }
        let lines = sites.iter().map(|site| site.line).collect();
        Found {
            races,
            lines,
            losses,
        }
    }

    pub(crate) fn told(&self) -> impl Iterator<Item = Told> {
        self.races.iter().map(|race| Told {
            kind: race.kind.into(),
            lines: [race.earlier.site, race.later.site].map(|site| self.lines[usize::from(site)]),
        })
    }

    /// What was lost, and how often.
    pub(crate) fn losses(&self) -> Vec<(Loss, u64)> {
        let counts = Loss::ALL
            .into_iter()
            .map(|loss| (loss, self.losses[loss as usize]));
        counts.filter(|(_, count)| *count != 0).collect()
    }
}
