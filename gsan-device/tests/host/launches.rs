//! Launches: CTAs that start, make accesses and exit, and what the host is told.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::collections::BTreeMap;

use bytemuck::Zeroable;
use gsan_core::address::{AddressSpace, GranulePart, Records, granules};
use gsan_core::atomics::Native;
use gsan_core::cell::{Cell, CellAccess, Past};
use gsan_core::clock::Epoch;
use gsan_core::compressed::topology::Topology;
use gsan_core::event::Action;
use gsan_core::ids::{DeviceRank, SiteId, ThreadId};
use gsan_core::layout::race_codes::*;
use gsan_core::layout::{
    GlobalState, LaunchDescriptor, LaunchState, Overtaken, RaceEntry, RaceRing, Shape,
    launch_flags, limits,
};
use gsan_core::loss::Loss;
use gsan_core::race_ring::{Drained, RaceFilter, RaceReader, RaceTag};
use gsan_core::record::{RecordScope, bits};
use gsan_core::reservoir::Sampler;
use gsan_core::site_mirror::{SiteMirror, SourceLine};
use proptest::prelude::*;

use crate::driver::Driver;

type Ring<'m> = gsan_core::race_ring::RaceRing<'m, Native>;

pub(crate) const RESERVE: u64 = 1 << 20;
pub(crate) const SPACE_BASE: u64 = 1 << 36;
pub(crate) const STATE: u64 = 1 << 38;
pub(crate) const RING: u64 = 1 << 40;
const TABLE: u64 = RING + (1 << 16);
pub(crate) const FILE: u64 = RING + (2 << 16);
/// A copy of the site table.
const MIRROR: u64 = RING + (1 << 24);
const OVERTAKEN: u64 = RING + (3 << 16);
/// Where real memory starts.
pub(crate) const REAL: u64 = SPACE_BASE + RESERVE / 2;
const RING_ENTRIES: u64 = 64;

pub(crate) fn words<T: bytemuck::Pod>(value: &T) -> Vec<u64> {
    let bytes = bytemuck::bytes_of(value).chunks_exact(8);
    bytes
        .map(|b| u64::from_le_bytes(b.try_into().unwrap()))
        .collect()
}

fn value<T: bytemuck::Pod>(words: &[u64]) -> T {
    bytemuck::pod_read_unaligned(bytemuck::cast_slice(words))
}

/// A device with one bank, whose SMs have two slots each.
pub(crate) struct Machine {
    pub(crate) driver: Driver,
    pub(crate) global: GlobalState,
    /// How many races were found in all when the host was told last.
    pub(crate) found: u64,
}

impl Machine {
    fn new(records: Records) -> Machine {
        Self::with(records, |_| {})
    }

    pub(crate) fn with(records: Records, change: impl FnOnce(&mut GlobalState)) -> Machine {
        Self::with_sms(2, records, change)
    }

    fn with_sms(sms: u32, records: Records, change: impl FnOnce(&mut GlobalState)) -> Machine {
        let mut global = GlobalState::new(&Shape {
            topology: Topology::new(1, sms, 2, 1).unwrap(),
            rank: DeviceRank(0),
            publications: 16,
            snapshot_bytes: 1 << 16,
            private_bytes: 1 << 16,
            seed: 7,
            space: AddressSpace::new(SPACE_BASE, RESERVE, records).unwrap(),
            state_base: STATE,
        })
        .unwrap();
        global.constants.race_ring = RING;
        change(&mut global);
        Self::of(Driver::new(records), global)
    }

    /// The device with this state region.
    pub(crate) fn of(mut driver: Driver, global: GlobalState) -> Machine {
        driver
            .map(SPACE_BASE, RESERVE)
            .map(STATE, 1 << 30)
            .map(RING, 4 << 16)
            .write(STATE, &words(&global))
            .write(FILE, &[u64::from_le_bytes(*b"kernel.p"), u64::from(b'y')]);
        let ring = RaceRing {
            capacity: RING_ENTRIES,
            ..Zeroable::zeroed()
        };
        driver.write(RING, &words(&ring));
        Machine {
            driver,
            global,
            found: 0,
        }
    }

    /// The row of the own bank, and that over all ids, that launch `number` completes.
    fn rows(&self, number: u32) -> [u64; 2] {
        let rows = STATE + u64::from(self.global.offsets.rows);
        let own = rows + 1024 * u64::from(number);
        [own, own + 256]
    }

    /// The launch `number`, which starts after launch `after` completed.
    pub(crate) fn launch(&mut self, number: u32, after: u32) -> &mut Self {
        self.launch_with(number, after, |_| {})
    }

    pub(crate) fn launch_with(
        &mut self,
        number: u32,
        after: u32,
        change: impl FnOnce(&mut LaunchDescriptor),
    ) -> &mut Self {
        let [own_row, foreign_row] = self.rows(after);
        let [own_done, foreign_done] = self.rows(number);
        let mut launch = LaunchDescriptor {
            own_row,
            foreign_row,
            own_done,
            foreign_done,
            state: self.state(number),
            slot_masks: STATE + u64::from(self.global.offsets.slot_masks),
            number,
            ctas: 1,
            kernel: 1,
            ..Zeroable::zeroed()
        };
        change(&mut launch);
        self.driver
            .write(TABLE + 128 * u64::from(number), &words(&launch));
        self
    }

    fn state(&self, number: u32) -> u64 {
        let size = size_of::<LaunchState>() as u64;
        STATE + u64::from(self.global.offsets.launches) + size * u64::from(number)
    }

    /// CTA `index` of launch `number` starts on SM `sm`.
    pub(crate) fn start(&mut self, number: u32, sm: u32, index: u64) -> &mut Self {
        let hint = u64::from(number + 1) << launch_flags::INDEX_NUMBER_SHIFT;
        self.driver
            .place(sm, index)
            .init(STATE, TABLE, hint | u64::from(number));
        self
    }

    pub(crate) fn exit(&mut self, sm: u32) -> &mut Self {
        self.driver.place(sm, 0).exit(STATE);
        self
    }

    /// The CTA on SM `sm` writes or reads `bytes` bytes at `offset`, in line `line`.
    pub(crate) fn access(
        &mut self,
        sm: u32,
        write: bool,
        line: u32,
        offset: u64,
        bytes: u32,
    ) -> &mut Self {
        let element = [(REAL + offset, true)];
        self.driver
            .place(sm, 0)
            .tensor(STATE, write, (FILE, line), bytes, &element);
        self
    }

    fn write(&mut self, sm: u32, line: u32, offset: u64) -> &mut Self {
        self.access(sm, true, line, offset, 4)
    }

    fn read(&mut self, sm: u32, line: u32, offset: u64) -> &mut Self {
        self.access(sm, false, line, offset, 4)
    }

    /// The races that the host was told, and what was lost.
    pub(crate) fn told(&mut self) -> (Vec<RaceEntry>, impl Fn(Loss) -> u64 + use<>) {
        let ring = Ring::words(RING_ENTRIES);
        let filter = u64::from(self.global.offsets.race_filter);
        let places = u64::from(limits::RACE_FILTER);
        self.driver
            .read(RING, ring)
            .read(STATE + filter, places)
            .read(
                STATE + core::mem::offset_of!(GlobalState, losses) as u64,
                32,
            );
        let answers = self.driver.answers();
        let tail = &answers[answers.len() - (ring + places) as usize - 32..];
        let (ring, tail) = tail.split_at(ring as usize);
        let (filter, losses) = tail.split_at(places as usize);
        let atomic = |words: &[u64]| words.iter().map(|&w| AtomicU64::new(w)).collect();
        let (ring, filter): (Vec<_>, Vec<_>) = (atomic(ring), atomic(filter));

        let mut reader = RaceReader::new(Ring::new(&ring).unwrap());
        let mut entries = Vec::new();
        let drained = reader.drain(|entry| entries.push(entry));
        assert_eq!(reader.finish(|_| {}), Drained::default());
        assert_eq!(drained.entries, entries.len() as u64);
        let dropped = reader.ring().dropped();
        assert_eq!(dropped, losses[Loss::RaceRingFull as usize]);
        let filter = RaceFilter::<Native>::new(&filter);
        let kinds: BTreeMap<RaceTag, RaceEntry> = entries
            .iter()
            .map(|race| (RaceTag::of(race), *race))
            .collect();
        let untold = kinds.keys().map(|&tag| u64::from(filter.untold(tag)));
        self.found = drained.races + untold.sum::<u64>();

        let losses = losses.to_vec();
        (entries, move |loss| losses[loss as usize])
    }

    pub(crate) fn kinds(&mut self) -> Vec<u8> {
        self.told().0.iter().map(|entry| entry.kind).collect()
    }
}

#[test]
fn a_race_is_told_with_both_sides() {
    let mut machine = Machine::new(Records::Four);
    machine
        .launch(1, 0)
        .start(1, 0, 5)
        .start(1, 1, 6)
        .write(0, 10, 0x44)
        .read(1, 20, 0x44);
    let sites = STATE + u64::from(machine.global.offsets.sites);
    machine.driver.read(sites, 4 * u64::from(limits::SITES));
    let texts = STATE + u64::from(machine.global.offsets.site_texts);
    machine.driver.read(texts, 3);
    let (races, _) = machine.told();
    let [race] = races[..] else {
        panic!("{races:?}")
    };
    assert_eq!(
        (race.kind, race.flags, race.repeats),
        (READ_AFTER_WRITE as u8, 0, 0)
    );
    assert_eq!((race.address, race.mask), (REAL + 0x44, 0xf0));
    let (earlier, later) = (race.earlier, race.later);
    // SM 0 has slot 0 and SM 1 slot 1; the first epoch of a CTA is 2.
    assert_eq!(
        (earlier.launch, earlier.cta, earlier.thread, earlier.epoch),
        (1, 5, 0, 2)
    );
    assert_eq!(
        (later.launch, later.cta, later.thread, later.epoch),
        (1, 6, 1, 2)
    );
    assert_eq!((earlier.action, later.action), (WRITE as u8, READ as u8));
    assert_eq!((earlier.flags, later.flags), (0, 0));

    let answers = machine.driver.answers();
    let (sites, texts) = answers.split_at(4 * limits::SITES as usize);
    let text: &[u8] = bytemuck::cast_slice(&texts[..3]);
    assert_eq!(&text[..18], b"kernel.pykernel.py");
    for (number, line) in [(earlier.site, 10), (later.site, 20)] {
        let site: gsan_core::layout::Site = value(&sites[4 * usize::from(number)..][..4]);
        assert_eq!((site.line, site.bytes, site.ready), (line, 9, 1));
    }
}

type Mirror<'m> = SiteMirror<'m, Native>;

/// What the host keeps of the sites of two lines, with room for `sites` and `text_bytes`.
fn mirrored(sites: u32, text_bytes: u32) -> Vec<SourceLine> {
    let mut machine = Machine::with(Records::Four, |global| global.site_mirror = MIRROR);
    let count = Mirror::words(sites, text_bytes) as usize;
    let memory: Vec<AtomicU64> = gsan_core::atomics::words(count, 0);
    Mirror::with_room(&memory, sites, text_bytes).unwrap();
    let empty: Vec<u64> = memory.into_iter().map(AtomicU64::into_inner).collect();
    // Whatever is written beyond the end is seen.
    let bytes = (8 * (count + 1024)).next_multiple_of(4096) as u64;
    machine.driver.map(MIRROR, bytes).write(MIRROR, &empty);
    machine
        .launch(1, 0)
        .start(1, 0, 5)
        .start(1, 1, 6)
        .write(0, 10, 0x44)
        .read(1, 20, 0x44)
        .read(1, 20, 0x48)
        .driver
        .read(MIRROR, bytes / 8);
    let answers = machine.driver.answers();
    let (mirror, behind) = answers.split_at(count);
    assert!(behind.iter().all(|&word| word == 0));
    let mirror: Vec<_> = mirror.iter().map(|&word| word.into()).collect();
    let mut lines: Vec<_> = Mirror::new(&mirror)
        .unwrap()
        .iter()
        .map(|(_, line)| line)
        .collect();
    lines.sort_by_key(|line| line.line);
    lines
}

#[test]
fn sites_are_copied_to_where_they_outlive_the_device() {
    let line = |file: &str, line| SourceLine {
        file: file.to_owned(),
        line,
    };
    let [first, second] = [10, 20].map(|number| line("kernel.py", number));
    let all = mirrored(limits::SITES, limits::SITE_TEXT_BYTES);
    assert_eq!(all, [first.clone(), second]);
    // Two names of nine bytes: the second does not fit, its line is told all the same.
    assert_eq!(mirrored(limits::SITES, 16), [first, line("", 20)]);
    assert_eq!(mirrored(1, 16), []);
}

#[test]
fn each_kind_is_told() {
    for (first, second, kind) in [
        (true, false, READ_AFTER_WRITE),
        (false, true, WRITE_AFTER_READ),
        (true, true, WRITE_AFTER_WRITE),
    ] {
        for records in [Records::Two, Records::Four] {
            let mut machine = Machine::new(records);
            machine.launch(1, 0).start(1, 0, 0).start(1, 1, 1);
            machine
                .access(0, first, 1, 0, 16)
                .access(1, second, 2, 8, 8);
            assert_eq!(machine.kinds(), [kind as u8], "{records:?}");
        }
    }
}

#[test]
fn neighbouring_elements_do_not_race() {
    for bytes in [1, 2, 4] {
        let mut machine = Machine::new(Records::Four);
        machine.launch(1, 0).start(1, 0, 0).start(1, 1, 1);
        for element in 0..8 / u64::from(bytes) {
            machine.access(
                element as u32 % 2,
                true,
                1,
                element * u64::from(bytes),
                bytes,
            );
        }
        assert_eq!(machine.kinds(), [], "{bytes} bytes");
    }
}

#[test]
fn ctas_of_one_launch_race_though_one_runs_after_the_other_on_the_same_slot() {
    let mut machine = Machine::new(Records::Four);
    machine.launch(1, 0).start(1, 0, 0).write(0, 1, 0).exit(0);
    machine.start(1, 0, 1).write(0, 1, 0).exit(0);
    let (races, _) = machine.told();
    let [race] = races[..] else {
        panic!("{races:?}")
    };
    assert_eq!((race.earlier.thread, race.later.thread), (0, 0));
    assert_eq!((race.earlier.cta, race.later.cta), (0, 1));
}

/// The thread ids of two CTAs that are on SM 0 at once and begin at these of its warps.
fn threads_at(warps: [u32; 2]) -> (u16, u16) {
    let mut machine = Machine::new(Records::Four);
    machine.launch(1, 0);
    for (index, warp) in (0..).zip(warps) {
        machine.driver.warp_of_sm(warp);
        machine.start(1, 0, index).write(0, 1, 0);
    }
    let (races, _) = machine.told();
    let [race] = races[..] else {
        panic!("{races:?}")
    };
    (race.earlier.thread, race.later.thread)
}

#[test]
fn a_cta_takes_the_slot_that_goes_with_its_warps_or_the_lowest() {
    // Slot k of SM 0 of two is thread 2k; there are two slots. A CTA of one warp may have any of the first four.
    assert_eq!(threads_at([0, 4]), (0, 2));
    assert_eq!(threads_at([7, 3]), (2, 0));
    assert_eq!(threads_at([0, 1]), (0, 2));
    assert_eq!(threads_at([4, 5]), (2, 0));
    assert_eq!(threads_at([63, 63]), (0, 2));
}

#[test]
fn launches_are_ordered_as_far_as_their_frontiers_say() {
    // The third launch starts after the second, which carried the first's completion over.
    let ordered = |after| {
        let mut machine = Machine::new(Records::Four);
        machine.launch(1, 0).launch(2, 1).launch(3, after);
        machine.start(1, 0, 0).write(0, 1, 0).exit(0);
        machine.start(2, 1, 0).read(1, 2, 8).exit(1);
        machine.start(3, 1, 0).write(1, 3, 0).exit(1);
        machine.kinds().is_empty()
    };
    assert!(ordered(2));
    assert!(!ordered(0));
}

/// A partition of several warps waits, with a barrier of its own, while the default group goes on.
#[test]
fn a_partition_that_has_waited_knows_what_it_waited_for() {
    for (waits, warps) in [(false, 2), (true, 1), (true, 2), (true, 7)] {
        for seed in 0..10 {
            let like = Machine::new(Records::Four);
            let driver = Driver::with_lanes(Records::Four, 32);
            let mut machine = Machine::of(driver, like.global);
            let [own_row, foreign_row] = machine.rows(1);
            let overtaken = Overtaken {
                own_row,
                foreign_row,
                state: machine.state(1),
                ctas: 1,
                reserved: 0,
            };
            machine.driver.write(OVERTAKEN, &words(&overtaken));
            machine.launch(1, 0).launch_with(2, 0, |launch| {
                launch.overtaken = OVERTAKEN;
                launch.overtaken_count = 1;
                launch.waits_for = 1;
            });
            machine.start(1, 0, 0).start(2, 1, 0);
            for thread in 0..32 * u64::from(warps) {
                machine.access(0, true, 1, 128 + 4 * thread, 4);
            }
            machine.exit(0);
            machine.driver.place(1, 0);
            let data = REAL + 128;
            machine
                .driver
                .partition(STATE, (data, FILE), waits, (warps, seed));
            let kinds = machine.kinds();
            assert_eq!(kinds.is_empty(), waits, "{warps} warps: {kinds:?}");
        }
    }
}

#[test]
fn a_dependent_launch_is_ordered_once_it_has_waited() {
    for waits in [false, true] {
        let mut machine = Machine::new(Records::Four);
        let [own_row, foreign_row] = machine.rows(1);
        let state = machine.state(1);
        let overtaken = Overtaken {
            own_row,
            foreign_row,
            state,
            ctas: 1,
            reserved: 0,
        };
        machine.driver.write(OVERTAKEN, &words(&overtaken));
        machine.launch(1, 0).launch_with(2, 0, |launch| {
            launch.overtaken = OVERTAKEN;
            launch.overtaken_count = 1;
            launch.waits_for = 1;
        });
        machine.start(1, 0, 0).start(2, 1, 0).write(0, 1, 0).exit(0);
        if waits {
            machine.driver.place(1, 0).wait(STATE);
        }
        machine.write(1, 2, 0).exit(1);
        // What it waited for is part of its own completion.
        machine.launch(3, 2).start(3, 0, 0).write(0, 3, 0);
        let kinds = machine.kinds();
        assert_eq!(kinds.is_empty(), waits, "{kinds:?}");
    }
}

#[test]
fn a_cta_that_starts_when_its_predecessor_is_complete_knows_it() {
    let mut machine = Machine::new(Records::Four);
    let [own_row, foreign_row] = machine.rows(1);
    let state = machine.state(1);
    let overtaken = Overtaken {
        own_row,
        foreign_row,
        state,
        ctas: 1,
        reserved: 0,
    };
    machine.driver.write(OVERTAKEN, &words(&overtaken));
    machine.launch(1, 0).launch_with(2, 0, |launch| {
        launch.overtaken = OVERTAKEN;
        launch.overtaken_count = 1;
    });
    machine
        .start(1, 0, 0)
        .write(0, 1, 0)
        .exit(0)
        .start(2, 1, 0)
        .write(1, 2, 0);
    assert_eq!(machine.kinds(), []);
}

#[test]
fn races_that_are_alike_are_told_at_growing_distances() {
    let mut machine = Machine::new(Records::Four);
    machine.launch(1, 0).start(1, 0, 0).start(1, 1, 1);
    for granule in 0..9 {
        machine.write(0, 1, 8 * granule).write(1, 2, 8 * granule);
    }
    let (races, _) = machine.told();
    let told: Vec<_> = races
        .iter()
        .map(|race| (race.address - REAL, race.repeats))
        .collect();
    assert_eq!(told, [(0, 0), (8, 0), (24, 1), (56, 3)]);
    assert_eq!(machine.found, 9);
}

#[test]
fn a_full_ring_drops_races_and_counts_them() {
    let mut machine = Machine::new(Records::Four);
    machine.launch(1, 0).start(1, 0, 0).start(1, 1, 1);
    for line in 0..RING_ENTRIES + 4 {
        machine
            .write(0, 100, 8 * line)
            .write(1, 1 + line as u32, 8 * line);
    }
    let (races, loss) = machine.told();
    let told = (races.len() as u64, loss(Loss::RaceRingFull));
    assert_eq!(told, (RING_ENTRIES, 4));
}

#[test]
fn without_a_slot_a_cta_is_not_checked() {
    let mut machine = Machine::new(Records::Four);
    machine.launch(1, 0).start(1, 1, 0).write(1, 1, 0);
    machine
        .start(1, 0, 1)
        .start(1, 0, 2)
        .start(1, 0, 3)
        .write(0, 2, 0)
        .exit(0);
    // It cannot tell what it knew: its completion covers everything so far.
    machine.launch(2, 1).start(2, 1, 0).write(1, 3, 0);
    let (races, loss) = machine.told();
    assert_eq!((races.len(), loss(Loss::NoSlot)), (0, 1));
}

#[test]
fn after_an_acquire_that_is_not_checked_everything_is_ordered() {
    for (sem, races) in [(1, 1), (2, 0), (3, 1), (4, 0)] {
        let mut machine = Machine::new(Records::Four);
        machine
            .launch(1, 0)
            .start(1, 0, 0)
            .start(1, 1, 1)
            .write(0, 1, 0);
        // At an address that has no shadow.
        machine
            .driver
            .place(1, 0)
            .begin(0, STATE, (8, 4), true, (sem, 1), (FILE, 3))
            .end(0, (true, true), (sem, 1), (FILE, 3));
        machine.write(1, 2, 0);
        let (told, loss) = machine.told();
        assert_eq!(
            (told.len(), loss(Loss::UnmanagedAtomic)),
            (races, 1),
            "order {sem}"
        );
    }
}

#[test]
fn a_race_with_an_opaque_launch_is_only_possible() {
    let mut machine = Machine::new(Records::Four);
    machine
        .launch_with(1, 0, |launch| launch.flags = launch_flags::OPAQUE)
        .launch(2, 0);
    machine
        .start(1, 0, 0)
        .start(2, 1, 0)
        .write(0, 1, 0)
        .write(1, 2, 0);
    machine.write(1, 3, 8).write(0, 4, 8);
    let (races, _) = machine.told();
    let flags: Vec<_> = races.iter().map(|race| u32::from(race.flags)).collect();
    assert_eq!(flags, [POSSIBLE, POSSIBLE]);
}

#[test]
fn the_earlier_side_may_be_forgotten() {
    let mut machine = Machine::new(Records::Four);
    machine.launch(1, 0).start(1, 0, 0).write(0, 1, 0).exit(0);
    for index in 0..u64::from(limits::HISTORY) {
        machine.start(1, 0, 1 + index).exit(0);
    }
    machine.start(1, 1, 99).write(1, 2, 0);
    let (races, loss) = machine.told();
    let [race] = races[..] else {
        panic!("{races:?}")
    };
    assert_eq!(u32::from(race.earlier.flags), FORGOTTEN);
    assert_eq!(loss(Loss::HistoryOverwritten), 1);
}

#[test]
fn a_state_region_that_does_not_fit_the_library_is_left_alone() {
    let changes: [fn(&mut GlobalState); 3] = [
        |global| global.magic = 0,
        |global| global.version += 1,
        |global| global.constants.records = 2,
    ];
    for change in changes {
        let mut machine = Machine::with(Records::Four, change);
        machine
            .launch(1, 0)
            .start(1, 0, 0)
            .start(1, 1, 1)
            .write(0, 1, 0)
            .write(1, 2, 0);
        machine.exit(0).exit(1);
        machine.driver.read(SPACE_BASE, 4);
        assert_eq!(machine.driver.answers(), [0; 4]);
    }
}

/// Elements of every size, a few at a time: nowhere, in the shadow, at both ends of managed memory and across
/// them, at the end of the address space, masked off, and none at all.
#[test]
fn only_managed_bytes_are_recorded() {
    for records in [Records::Two, Records::Four] {
        let space = AddressSpace::new(SPACE_BASE, RESERVE, records).unwrap();
        let end = REAL + space.usable();
        let mut machine = Machine::new(records);
        machine.launch(1, 0).start(1, 0, 0);
        let mut at_start = 0u8;
        let mut at_end = 0u8;
        for bytes in [1u32, 2, 3, 4, 5, 8, 12, 16, 24, 32] {
            let size = u64::from(bytes);
            let mut places = vec![
                0,
                1,
                SPACE_BASE,
                REAL - size,
                end,
                end + 1,
                SPACE_BASE + RESERVE,
            ];
            places.extend([STATE, u64::MAX - size + 1, u64::MAX - 3, 1 << 63]);
            // Across both ends, where the hardware takes such an address: aligned, or byte by byte.
            if !bytes.is_power_of_two() {
                places.extend([REAL - 1, end - 1]);
                at_start |= 0xff >> (8 - (bytes - 1).min(8));
                at_end |= 0x80;
            }
            let elements: Vec<_> = places.iter().map(|&place| (place, true)).collect();
            for write in [false, true] {
                machine.driver.place(0, 0);
                for few in [1, 2, 4, elements.len()] {
                    for chunk in elements.chunks(few) {
                        let driver = &mut machine.driver;
                        driver.tensor(STATE, write, (FILE, 1), bytes, chunk);
                    }
                }
                let off: Vec<_> = [0, REAL + 64, 3].map(|place| (place, false)).to_vec();
                machine
                    .driver
                    .tensor(STATE, write, (FILE, 2), bytes, &off)
                    .tensor(STATE, write, (FILE, 3), bytes, &[]);
            }
        }
        machine
            .driver
            .tensor(STATE, true, (FILE, 4), 0, &[(REAL + 64, true)]);
        let words = records.count() as u64;
        let cells = space.usable() / 8 * words;
        machine.driver.read_cells(&space, REAL, cells / words);
        let (races, loss) = machine.told();
        assert_eq!(races, []);
        assert_eq!(loss(Loss::NotInstrumented), 0);
        let answers = machine.driver.answers();
        let masks = |cell: &[u64]| {
            cell.iter()
                .fold(0, |mask, word| mask | (word >> bits::MASK_SHIFT) as u8)
        };
        let shadow = &answers[..cells as usize];
        let mut recorded: Vec<_> = (0u64..)
            .zip(shadow.chunks(words as usize))
            .map(|(granule, cell)| (REAL + 8 * granule, masks(cell)))
            .filter(|(_, mask)| *mask != 0)
            .collect();
        // What began before managed memory goes on in it for up to 31 bytes.
        recorded.retain(|(granule, _)| !(REAL + 8..REAL + 32).contains(granule));
        assert_eq!(
            recorded,
            [(REAL, at_start), (end - 8, at_end)],
            "{records:?}"
        );
    }
}

#[test]
fn halting_on_a_race_is_a_failed_assertion() {
    let mut machine = Machine::with(Records::Four, |global| global.flags = limits::HALT_ON_RACE);
    machine
        .launch(1, 0)
        .start(1, 0, 0)
        .start(1, 1, 1)
        .write(0, 1, 0)
        .write(1, 2, 0);
    let failure = std::panic::catch_unwind(|| machine.driver.answers()).unwrap_err();
    let said = failure.downcast_ref::<String>().unwrap();
    let expected = "kernel.py:2: Assertion `Write after write race detected` failed.";
    assert!(said.contains(expected), "{said}");
}

/// Knows its own epoch only.
struct Alone(ThreadId);

impl Past for Alone {
    fn is_ordered(&self, thread: ThreadId, _: Epoch) -> bool {
        thread == self.0
    }

    fn is_same_device(&self, _: ThreadId) -> bool {
        true
    }
}

/// Enough CTAs at once for cells that are full of readers.
const SMS: u32 = 6;

#[derive(Clone, Debug)]
struct Tensor {
    sm: u32,
    write: bool,
    bytes: u32,
    elements: Vec<(u64, bool)>,
}

fn tensor() -> impl Strategy<Value = Tensor> {
    let bytes = prop::sample::select(vec![1u32, 2, 3, 4, 8, 12, 16, 32]);
    let writes = prop::bool::weighted(0.3);
    (0..SMS, writes, bytes, any::<bool>()).prop_flat_map(|(sm, write, bytes, aligned)| {
        // The hardware has vectors of 8 and 16 bytes, and only aligned ones.
        let alignment = match bytes {
            8 | 16 => u64::from(bytes),
            _ if aligned => u64::from(bytes),
            _ => 1,
        };
        let offset = (0u64..128).prop_map(move |offset| offset / alignment * alignment);
        prop::collection::vec((offset, any::<bool>()), 1..9).prop_map(move |elements| Tensor {
            sm,
            write,
            bytes,
            elements,
        })
    })
}

/// The parts that one lane checks: neighbours in order that lie in one granule are one access, if
/// none can reach over the end of a granule.
fn parts(bytes: u32, elements: &[(u64, bool)]) -> Vec<GranulePart> {
    let bytes = u64::from(bytes);
    let mut on = elements.iter().filter(|(_, mask)| *mask);
    let merged = bytes < 8 && 8 % bytes == 0 && on.all(|(address, _)| address % bytes == 0);
    let mut parts: Vec<GranulePart> = Vec::new();
    let mut last = None;
    for &(address, mask) in elements {
        let mut more: Vec<_> = granules(address, bytes).collect();
        if !mask {
            more.truncate(1);
            more[0].mask = 0;
        }
        if merged && last == Some(address / 8) {
            parts.last_mut().unwrap().mask |= more[0].mask;
        } else {
            parts.append(&mut more);
        }
        last = Some(address / 8);
    }
    parts.retain(|part| part.mask != 0);
    parts
}

fn agree<const S: usize>(records: Records, tensors: &[Tensor]) {
    const GRANULES: u64 = 24;
    let mut machine = Machine::with_sms(SMS, records, |_| {});
    machine.launch(1, 0);
    for sm in 0..SMS {
        machine.start(1, sm, sm.into());
    }
    let shadow: Vec<AtomicU64> = (0..GRANULES * S as u64)
        .map(|_| AtomicU64::new(0))
        .collect();
    let mut checked = 0;
    let mut losses = [0; Loss::COUNT];
    for Tensor {
        sm,
        write,
        bytes,
        elements,
    } in tensors
    {
        let at = |&(offset, mask): &(u64, bool)| (REAL + offset, mask);
        let at: Vec<_> = elements.iter().map(at).collect();
        // Line 0 is unknown, so that the site is 0 in both.
        machine
            .driver
            .place(*sm, 0)
            .tensor(STATE, *write, (FILE, 0), *bytes, &at);
        for part in parts(*bytes, &at) {
            let access = CellAccess {
                thread: ThreadId(*sm as u16),
                epoch: Epoch::new(2).unwrap(),
                mask: part.mask,
                action: if *write { Action::Write } else { Action::Read },
                scope: RecordScope::NotAtomic,
                site: SiteId::UNKNOWN,
            };
            let cell = Cell::<_, S>::of(&shadow, ((part.granule - REAL) / 8) as usize).unwrap();
            let sampler = Sampler::new(7, part.granule / 8);
            let loss = cell.access(&access, &Alone(access.thread), sampler, |_| {});
            checked += 1;
            if let Some(loss) = loss {
                losses[loss as usize] += 1;
            }
        }
    }
    let space = AddressSpace::new(SPACE_BASE, RESERVE, records).unwrap();
    machine.driver.read_cells(&space, REAL, GRANULES);
    for sm in 0..SMS {
        machine.exit(sm);
    }
    let accesses = STATE + core::mem::offset_of!(GlobalState, accesses) as u64;
    machine.driver.read(accesses, 1);
    for loss in [Loss::ReadNotSampled, Loss::WriteEvicted] {
        let counts = STATE + core::mem::offset_of!(GlobalState, losses) as u64;
        machine.driver.read(counts + 8 * loss as u64, 1);
    }
    let mut expected: Vec<u64> = shadow.iter().map(|word| word.load(Relaxed)).collect();
    expected.push(checked);
    expected.extend([Loss::ReadNotSampled, Loss::WriteEvicted].map(|loss| losses[loss as usize]));
    assert_eq!(machine.driver.answers(), expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn elements_of_every_size_and_alignment_go_to_their_cells(
        tensors in prop::collection::vec(tensor(), 1..40),
    ) {
        agree::<4>(Records::Four, &tensors);
        agree::<2>(Records::Two, &tensors);
    }
}
