//! Programs with atomics, through device code and through the core's compressed detector: the same
//! races, and the same memory.

use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::collections::{BTreeMap, BTreeSet};

use bytemuck::Zeroable;
use gsan_core::address::{AddressSpace, Records};
use gsan_core::clock::ClockEntry;
use gsan_core::compressed::checkpoints::{CheckpointRef, Checkpoints};
use gsan_core::compressed::detector::CompressedDetector;
use gsan_core::compressed::publications::{PUBLICATION_WORDS, Publications};
use gsan_core::compressed::snapshots::{SnapshotRef, Snapshots};
use gsan_core::compressed::system::Sizes;
use gsan_core::compressed::topology::{Place, Topology};
use gsan_core::event::{Access, Action, Detector, Event, Launch, Range, Space};
use gsan_core::host_order::{HostOrder, Start};
use gsan_core::ids::{Cta, DeviceRank, LaunchId, StreamId, Thread, ThreadId};
use gsan_core::layout::race_codes::*;
use gsan_core::layout::{
    ClockShape, GlobalState, LaunchDescriptor, LaunchState, Overtaken, RaceEntry, RaceRing, Shape,
    Site, entry, launch_flags, limits,
};
use gsan_core::loss::Loss;
use gsan_core::race::RaceKind;
use gsan_core::record::{Token, bits};
use gsan_core::scope::{Order, Scope};
use gsan_core::testing::execution::{Grain, execute};
use gsan_core::testing::random::{Case, Shape as Programs, cases};
use proptest::prelude::*;

use crate::driver::Driver;

const RESERVE: u64 = 1 << 20;
const SPACE_BASE: u64 = 1 << 36;
const REAL: u64 = SPACE_BASE + RESERVE / 2;
const STATE: u64 = 1 << 38;
const RING: u64 = 1 << 40;
const RING_ENTRIES: u64 = 2048;
const TABLE: u64 = RING + (1 << 18);
const FILE: u64 = TABLE + (1 << 16);
const HOST_BYTES: u64 = 1 << 20;
const SEED: u32 = 7;
const SMS: u32 = 12;

/// What the two detectors have to do with.
#[derive(Clone, Copy, Debug)]
struct Room {
    publications: u32,
    snapshots: u32,
    private_clocks: u32,
}

const ROOMY: Room = Room {
    publications: 256,
    snapshots: 256,
    private_clocks: 32,
};

fn words<T: bytemuck::Pod>(value: &T) -> Vec<u64> {
    let bytes = bytemuck::bytes_of(value).chunks_exact(8);
    bytes
        .map(|b| u64::from_le_bytes(b.try_into().unwrap()))
        .collect()
}

fn value<T: bytemuck::Pod>(words: &[u64]) -> T {
    bytemuck::pod_read_unaligned(bytemuck::cast_slice(words))
}

fn topology(banks: u32) -> Topology {
    Topology::new(1, SMS, 1, banks).unwrap()
}

/// A launch as the host knows it.
struct TwinLaunch {
    bank: u32,
    ctas: u32,
    start: Start,
    /// The banks of which its frontier names rows, once its first CTA has started.
    named: Option<BTreeSet<u32>>,
}

/// A device with one SM for each resident CTA, and the core's detector beside it.
struct Twin<const S: usize> {
    driver: Driver,
    global: GlobalState,
    core: CompressedDetector<S>,
    topology: Topology,
    host: HostOrder,
    banks: BTreeMap<StreamId, u32>,
    launches: BTreeMap<LaunchId, TwinLaunch>,
    resident: BTreeMap<Cta, u32>,
    granules: BTreeSet<u64>,
}

impl<const S: usize> Twin<S> {
    fn new(records: Records, topology: Topology, room: Room) -> Self {
        let mut global = GlobalState::new(&Shape {
            topology,
            rank: DeviceRank(0),
            publications: 256,
            snapshot_bytes: 1 << 20,
            private_bytes: 1 << 20,
            seed: SEED,
            space: AddressSpace::new(SPACE_BASE, RESERVE, records).unwrap(),
            state_base: STATE,
        })
        .unwrap();
        global.constants.race_ring = RING;
        // Less than any real device has.
        global.publications = room.publications;
        global.snapshots = room.snapshots;
        global.private_clocks = room.private_clocks;
        let sizes = Sizes {
            publications: room.publications as usize,
            snapshots: room.snapshots as usize,
            private_clocks: room.private_clocks as usize,
            history: limits::HISTORY as usize,
            ..Sizes::DEFAULT
        };
        let mut driver = Driver::new(records);
        driver
            .map(SPACE_BASE, RESERVE)
            .map(STATE, 1 << 30)
            .map(RING, HOST_BYTES)
            .write(STATE, &words(&global))
            .write(FILE, &[u64::from_le_bytes(*b"kernel.p"), u64::from(b'y')]);
        let ring = RaceRing {
            capacity: RING_ENTRIES,
            ..Zeroable::zeroed()
        };
        driver.write(RING, &words(&ring));
        Twin {
            driver,
            global,
            core: CompressedDetector::new(topology, sizes, SEED),
            topology,
            host: HostOrder::new(),
            banks: BTreeMap::new(),
            launches: BTreeMap::new(),
            resident: BTreeMap::new(),
            granules: BTreeSet::new(),
        }
    }

    /// The memory of the rows of a launch.
    fn rows(&self, launch: LaunchId) -> u64 {
        STATE + u64::from(self.global.offsets.rows) + 4096 * u64::from(launch.0)
    }

    /// The own and the foreign row of its completion.
    fn completion(&self, launch: LaunchId) -> [u64; 2] {
        [self.rows(launch), self.rows(launch) + 256]
    }

    /// The own and the foreign row of its frontier.
    fn frontier(&self, launch: LaunchId) -> [u64; 2] {
        [self.rows(launch) + 1024, self.rows(launch) + 1280]
    }

    fn named_rows(&self, launch: LaunchId) -> u64 {
        self.rows(launch) + 2048
    }

    fn named_row(&self, launch: LaunchId, bank: u32) -> u64 {
        self.rows(launch) + 2304 + 64 * u64::from(bank)
    }

    fn overtaken(&self, launch: LaunchId) -> u64 {
        self.rows(launch) + 3072
    }

    fn state(&self, launch: LaunchId) -> u64 {
        let size = size_of::<LaunchState>() as u64;
        STATE + u64::from(self.global.offsets.launches) + size * u64::from(launch.0)
    }

    fn launch(&mut self, launch: &Launch) {
        let next = self.banks.len() as u32 % self.topology.banks_per_device();
        let bank = *self.banks.entry(launch.stream).or_insert(next);
        let start = self.host.launch(launch);
        self.launches.insert(
            launch.id,
            TwinLaunch {
                bank,
                ctas: launch.ctas,
                start,
                named: None,
            },
        );
    }

    /// What the host does before the first CTA of a launch starts: joins completions into its
    /// frontier.
    fn describe(&mut self, id: LaunchId) {
        let TwinLaunch {
            bank, ctas, start, ..
        } = &self.launches[&id];
        let (bank, ctas, start) = (*bank, *ctas, start.clone());
        let before = self.frontier(id);
        let mut named = BTreeSet::new();
        for &earlier in &start.after {
            let [own, foreign] = self.completion(earlier);
            self.driver.add_completion(STATE, bank, before, foreign);
            let other = &self.launches[&earlier];
            let inherited = other.named.iter().flatten();
            let rows: Vec<_> = inherited
                .map(|&bank| (bank, self.named_row(earlier, bank)))
                .chain([(other.bank, own)])
                .collect();
            for (of, row) in rows {
                let target = if of == bank {
                    before[0]
                } else {
                    named.insert(of);
                    self.named_row(id, of)
                };
                self.driver.add_row(target, row, self.topology.slots());
            }
        }
        for &bank in &named {
            let row = self.named_row(id, bank);
            self.driver
                .write(self.named_rows(id) + 8 * u64::from(bank), &[row]);
        }
        for (index, &earlier) in start.overtaken.iter().enumerate() {
            let [own_row, foreign_row] = self.completion(earlier);
            let overtaken = Overtaken {
                own_row,
                foreign_row,
                state: self.state(earlier),
                ctas: self.launches[&earlier].ctas,
                reserved: 0,
            };
            let at = self.overtaken(id) + (index * size_of::<Overtaken>()) as u64;
            self.driver.write(at, &words(&overtaken));
        }
        let waits_for = start.waits_for;
        let waits_for = start
            .overtaken
            .iter()
            .position(|&id| Some(id) == waits_for)
            .map_or(0, |index| index as u32 + 1);
        let [own_done, foreign_done] = self.completion(id);
        let masks = u64::from(self.global.offsets.slot_masks) + u64::from(4 * bank * SMS);
        let descriptor = LaunchDescriptor {
            own_row: before[0],
            foreign_row: before[1],
            named_rows: if named.is_empty() {
                0
            } else {
                self.named_rows(id)
            },
            own_done,
            foreign_done,
            overtaken: self.overtaken(id),
            state: self.state(id),
            slot_masks: STATE + masks,
            number: id.0,
            ctas,
            kernel: 1,
            bank,
            bank_first: bank * self.topology.slots(),
            overtaken_count: start.overtaken.len() as u32,
            waits_for,
            ..Zeroable::zeroed()
        };
        self.driver
            .write(TABLE + 128 * u64::from(id.0), &words(&descriptor));
        if let Some(launch) = self.launches.get_mut(&id) {
            launch.named = Some(named);
        }
    }

    fn at(&mut self, thread: Thread) {
        let sm = self.resident[&thread.cta];
        self.driver.place(sm, 0).thread(thread.index);
    }

    fn tell(&mut self, event: &Event) {
        self.core.on(event).unwrap();
        match event {
            Event::Host(event) => self.host.host(*event),
            Event::Launch(launch) => self.launch(launch),
            Event::CtaStart { cta, sm } => {
                if self.launches[&cta.launch].named.is_none() {
                    self.describe(cta.launch);
                }
                self.resident.insert(*cta, *sm);
                let hint = u64::from(cta.launch.0 + 1) << launch_flags::INDEX_NUMBER_SHIFT;
                self.driver.place(*sm, cta.index.0.into()).init(
                    STATE,
                    TABLE,
                    hint | u64::from(cta.launch.0),
                );
            }
            Event::CtaExit(cta) => {
                if let Some(sm) = self.resident.remove(cta) {
                    self.driver.place(sm, 0).exit(STATE);
                }
            }
            Event::GridDependencyWait(thread) => {
                self.at(*thread);
                self.driver.wait(STATE);
            }
            Event::Access(access) => {
                self.at(access.thread);
                let Range { address, bytes, .. } = access.range;
                self.granules.insert(address / 8 * 8);
                let (write, line) = (access.action.writes(), access.site.0);
                let element = [(address, true)];
                self.driver
                    .tensor(STATE, write, (FILE, line), bytes, &element);
            }
            Event::AtomicBegin(access) => {
                self.at(access.thread);
                let Range { address, bytes, .. } = access.range;
                self.granules.insert(address / 8 * 8);
                self.driver.begin(
                    event_of(access.thread),
                    STATE,
                    (address, bytes),
                    access.action.reads(),
                    order(access),
                );
            }
            Event::AtomicEnd(access) => {
                self.at(access.thread);
                let is_rmw = matches!(access.action, Action::Rmw | Action::FailedRmw);
                self.driver.end(
                    event_of(access.thread),
                    (access.action.writes(), is_rmw),
                    order(access),
                    (FILE, access.site.0),
                );
            }
            other => panic!("{other:?}"),
        }
    }

    fn read(&mut self, address: u64, count: u64) -> usize {
        self.driver.read(address, count);
        count as usize
    }

    /// Compares everything.
    fn compare(mut self) -> Result<(), TestCaseError> {
        let o = self.global.offsets;
        let part = |offset: u32| STATE + u64::from(offset);
        let ids = u64::from(self.topology.ids());
        let granules: Vec<u64> = self.granules.iter().copied().collect();
        let shape = ClockShape::holding(self.global.segments, self.topology.slots());
        let clocks = u64::from(self.global.snapshots) * shape.words() as u64 / 2;
        let checkpoints = u64::from(entry::CHECKPOINTS);
        let mut sizes = Vec::new();
        let losses = offset_of!(GlobalState, losses) as u64;
        let head = offset_of!(GlobalState, publication_head) as u64;
        let snapshot_head = offset_of!(GlobalState, snapshot_head) as u64;
        let publication_words = u64::from(self.global.publications) * PUBLICATION_WORDS as u64;
        for (address, count) in [
            (RING, 1),
            (RING + size_of::<RaceRing>() as u64, 8 * RING_ENTRIES),
            (part(o.sites), 4 * u64::from(limits::SITES)),
            (STATE + losses, 32),
            (STATE + head, 1),
            (STATE + snapshot_head, 1),
            (part(o.publications), publication_words),
            (part(o.snapshot_states), u64::from(self.global.snapshots)),
            (part(o.snapshots), clocks),
            (part(o.epochs), ids.div_ceil(2)),
            (part(o.checkpoints), 1 + checkpoints),
            (part(o.checkpoint_epochs), checkpoints * ids / 2),
        ] {
            sizes.push(self.read(address, count));
        }
        for granule in &granules {
            let cell = SPACE_BASE + (granule - REAL) * S as u64;
            sizes.push(self.read(cell, S as u64));
        }
        let answers = self.driver.answers();
        let mut rest = &answers[..];
        let mut take = |count: usize| {
            let (first, others) = rest.split_at(count);
            rest = others;
            first.to_vec()
        };
        let mut parts: Vec<Vec<u64>> = sizes.into_iter().map(&mut take).collect();
        let cells = parts.split_off(12);
        let halves = |words: &[u64]| -> Vec<AtomicU32> {
            let halves: &[u32] = bytemuck::cast_slice(words);
            halves.iter().map(|&word| AtomicU32::new(word)).collect()
        };
        let atomic = |words: &[u64]| {
            words
                .iter()
                .map(|&word| AtomicU64::new(word))
                .collect::<Vec<_>>()
        };
        let system = self.core.system();
        let device = DeviceRank(0);

        // Sites are numbered otherwise: their bits are left out.
        let site_bits = u64::from((1u32 << bits::SITE_BITS) - 1) << bits::SITE_SHIFT;
        let without_site = |word: u64| {
            if word >> bits::SYNC_SHIFT & 1 == 1 {
                word
            } else {
                word & !site_bits
            }
        };
        for (granule, cell) in granules.iter().zip(&cells) {
            let expected = self.core.cell_words(*granule).unwrap();
            let expected: Vec<u64> = expected.into_iter().map(without_site).collect();
            let found: Vec<u64> = cell.iter().copied().map(without_site).collect();
            prop_assert_eq!(found, expected, "the cell of {:#x}", granule);
        }

        // The device's memory, read by the core.
        let (entries, head) = (atomic(&parts[6]), AtomicU64::new(parts[4][0]));
        let found = Publications::<_>::new(&entries, &head, Token::MAX.get());
        let found: &Publications<'_, gsan_core::atomics::Native> = &found;
        let expected = system.publications(device);
        prop_assert_eq!(parts[4][0], expected.head().load(Relaxed));
        for token in 0..parts[4][0] {
            let token = Token::new(token).unwrap();
            prop_assert_eq!(found.read(token), expected.read(token), "{:?}", token);
        }
        let (states, clocks) = (atomic(&parts[7]), halves(&parts[8]));
        let head = AtomicU64::new(parts[5][0]);
        let found: Snapshots<'_, gsan_core::atomics::Native> =
            Snapshots::new(&states, &clocks, &head, shape);
        let expected = system.snapshots(device);
        type Known = (Option<u32>, Vec<(Place, ClockEntry)>);
        let known = |ring: &Snapshots<'_, gsan_core::atomics::Native>, name| -> Option<Known> {
            let (mut checkpoint, mut entries) = (None, Vec::new());
            ring.read(
                name,
                |c| checkpoint = Some(c.bits()),
                |place, entry| entries.push((place, entry)),
            )
            .ok()?;
            Some((checkpoint, entries))
        };
        for index in 1..=parts[5][0] as u32 {
            let name = SnapshotRef::from_bits(index).unwrap();
            prop_assert_eq!(known(&found, name), known(&expected, name), "{:?}", name);
        }
        let epochs = halves(&parts[9]);
        for id in 0..ids as u16 {
            let expected = system.epoch(ThreadId(id)).load(Relaxed);
            prop_assert_eq!(epochs[usize::from(id)].load(Relaxed), expected, "{}", id);
        }
        let (positions, rows) = (atomic(&parts[10][1..]), halves(&parts[11]));
        let control = halves(&parts[10][..1]);
        let found: Checkpoints<'_, gsan_core::atomics::Native> =
            Checkpoints::new(device, &positions, &rows, &control);
        let expected = system.checkpoints(device);
        for index in 1..=entry::CHECKPOINTS {
            let name = CheckpointRef::from_bits(index).unwrap();
            prop_assert_eq!(found.position(name), expected.position(name));
            for id in 0..ids as u16 {
                let id = ThreadId(id);
                prop_assert_eq!(found.epoch(name, id), expected.epoch(name, id));
            }
        }

        let met = self.core.losses();
        for loss in COMPARED {
            prop_assert_eq!(parts[3][loss as usize], met.get(loss), "{:?}", loss);
        }

        let told = parts[0][0];
        prop_assert!(told <= RING_ENTRIES);
        let line = |site: u16| value::<Site>(&parts[2][4 * usize::from(site)..][..4]).line;
        let found: BTreeSet<_> = parts[1]
            .chunks_exact(8)
            .take(told as usize)
            .map(value::<RaceEntry>)
            .map(|race| {
                let (earlier, later) = (line(race.earlier.site), line(race.later.site));
                (race.later.launch, u32::from(race.kind), earlier, later)
            })
            .collect();
        let expected: BTreeSet<_> = self
            .core
            .take_races()
            .iter()
            .map(|race| {
                let kind = match race.kind {
                    RaceKind::ReadAfterWrite => READ_AFTER_WRITE,
                    RaceKind::WriteAfterRead => WRITE_AFTER_READ,
                    RaceKind::WriteAfterWrite => WRITE_AFTER_WRITE,
                };
                let launch = race.later.who.launch().unwrap();
                (launch.0, kind, race.earlier.site.0, race.later.site.0)
            })
            .collect();
        prop_assert_eq!(found, expected);
        Ok(())
    }
}

/// The limits that both meet equally often.
const COMPARED: [Loss; 9] = [
    Loss::NoSlot,
    Loss::PrivatePoolEmpty,
    Loss::OutsideClock,
    Loss::PublicationOverrun,
    Loss::SnapshotOverrun,
    Loss::TopRelease,
    Loss::WornEpoch,
    Loss::WornToken,
    Loss::FailedRelease,
];

fn event_of(thread: Thread) -> u64 {
    let cta = u64::from(thread.cta.launch.0) << 32 | u64::from(thread.cta.index.0);
    cta << 8 | u64::from(thread.index)
}

/// Triton's numbers of an access's memory order and scope.
fn order(access: &Access) -> (u32, u32) {
    let sem = match access.order {
        Order::Acquire => 2,
        Order::Release => 3,
        Order::AcqRel => 4,
        _ => 1,
    };
    let scope = match access.scope {
        Scope::Cta => 2,
        Scope::Sys => 3,
        _ => 1,
    };
    (sem, scope)
}

/// The events as Triton's instrumentation would tell them: an atomic by its begin and end, of which the
/// begin does not know what will be written; no fences, nothing in shared memory. Each CTA has an SM of
/// its own.
fn as_told(events: &[Event]) -> Vec<Event> {
    let mut resident: BTreeMap<Cta, u32> = BTreeMap::new();
    let moved = |access: &Access, action: Action| Access {
        action,
        range: Range {
            address: REAL + access.range.address,
            ..access.range
        },
        scope: match access.scope {
            Scope::Cluster => Scope::Gpu,
            scope => scope,
        },
        ..*access
    };
    let mut told = Vec::new();
    for event in events {
        match event {
            Event::Host(_) | Event::Launch(_) | Event::GridDependencyWait(_) => {
                told.push(event.clone());
            }
            Event::CtaStart { cta, .. } => {
                let used: BTreeSet<u32> = resident.values().copied().collect();
                let sm = (0..SMS).find(|sm| !used.contains(sm)).unwrap();
                resident.insert(*cta, sm);
                told.push(Event::CtaStart { cta: *cta, sm });
            }
            Event::CtaExit(cta) => {
                resident.remove(cta);
                told.push(event.clone());
            }
            Event::Access(access) | Event::AtomicBegin(access) | Event::AtomicEnd(access)
                if access.range.space != Space::Global => {}
            Event::Access(access) if access.order.is_strong() => {}
            Event::Access(access) => told.push(Event::Access(moved(access, access.action))),
            Event::AtomicBegin(access) => {
                let action = match access.action {
                    Action::Write => Action::Write,
                    _ => Action::Rmw,
                };
                told.push(Event::AtomicBegin(moved(access, action)));
            }
            Event::AtomicEnd(access) => {
                let action = match access.action {
                    Action::Red => Action::Rmw,
                    action => action,
                };
                told.push(Event::AtomicEnd(moved(access, action)));
            }
            _ => {}
        }
    }
    told
}

const PROGRAMS: Programs = Programs {
    kernels: 3,
    streams: 1,
    devices: 1,
    ctas: 3,
    threads: 2,
    granules: 3,
    ops: 8,
    apart: false,
    own_sites: true,
    barriers: false,
    copies: false,
    dependent: true,
};

fn agree<const S: usize>(
    records: Records,
    case: &Case,
    grain: Grain,
    (banks, room): (u32, Room),
) -> Result<(), TestCaseError> {
    let mut twin = Twin::<S>::new(records, topology(banks), room);
    for event in as_told(&execute(&case.program, grain, &case.schedule)) {
        twin.tell(&event);
    }
    twin.compare()
}

fn cases_or(short: u32) -> ProptestConfig {
    let factor = if std::env::var_os("GSAN_LONG").is_some() {
        50
    } else {
        1
    };
    ProptestConfig::with_cases(short * factor)
}

fn grain() -> impl Strategy<Value = Grain> {
    prop_oneof![Just(Grain::Operation), Just(Grain::Part)]
}

/// So little that everything runs out.
fn tight() -> impl Strategy<Value = Room> {
    (0u32..4, 0u32..3, 0u32..4).prop_map(|(publications, snapshots, private_clocks)| Room {
        publications: 1 << publications,
        snapshots: 1 << snapshots,
        private_clocks,
    })
}

proptest! {
    #![proptest_config(cases_or(150))]

    #[test]
    fn with_room_for_all_verdicts_and_memory_are_the_same(case in cases(PROGRAMS), grain in grain()) {
        agree::<4>(Records::Four, &case, grain, (1, ROOMY))?;
        agree::<2>(Records::Two, &case, grain, (1, ROOMY))?;
    }

    #[test]
    fn with_room_for_nothing_verdicts_and_memory_are_the_same(
        case in cases(PROGRAMS), grain in grain(), room in tight(),
    ) {
        agree::<4>(Records::Four, &case, grain, (1, room))?;
        agree::<2>(Records::Two, &case, grain, (1, room))?;
    }
}
