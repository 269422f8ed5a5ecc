//! Programs with atomics, through device code and through the core's compressed detector: the same
//! races, and the same memory.

use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::collections::{BTreeMap, BTreeSet};

use bytemuck::Zeroable;
use gsan_core::address::{AddressSpace, Records};
use gsan_core::atomics::Native;
use gsan_core::clock::ClockEntry;
use gsan_core::compressed::checkpoints::{CheckpointRef, Checkpoints};
use gsan_core::compressed::detector::CompressedDetector;
use gsan_core::compressed::publications::{PUBLICATION_WORDS, Publications};
use gsan_core::compressed::snapshots::{SnapshotRef, Snapshots};
use gsan_core::compressed::system::Sizes;
use gsan_core::compressed::topology::{Place, Topology};
use gsan_core::event::{Access, Action, Detector, Event, Launch, Range, Space};
use gsan_core::host_order::{HostOrder, Start};
use gsan_core::ids::{Cta, DeviceRank, LaunchId, SiteId, StreamId, Thread, ThreadId};
use gsan_core::layout::race_codes::*;
use gsan_core::layout::{
    ClockShape, GlobalState, LaunchDescriptor, LaunchState, Overtaken, RaceEntry, RaceRing,
    RaceSide, Shape, Site, entry, launch_flags, limits,
};
use gsan_core::loss::Loss;
use gsan_core::race::{Race, RaceKind, Who};
use gsan_core::record::{Token, bits};
use gsan_core::scope::{Order, Scope};
use gsan_core::testing::execution::{Grain, execute};
use gsan_core::testing::random::{Case, Shape as Programs, cases};
use proptest::prelude::*;

use crate::driver::Driver;

const RESERVE: u64 = 1 << 20;
const SPACE_BASE: u64 = 1 << 36;
pub(crate) const REAL: u64 = SPACE_BASE + RESERVE / 2;
const STATE: u64 = 1 << 38;
const RING: u64 = 1 << 40;
const RING_ENTRIES: u64 = 2048;
const TABLE: u64 = RING + (1 << 18);
pub(crate) const FILE: u64 = TABLE + (1 << 16);
const HOST_BYTES: u64 = 1 << 20;
const SEED: u32 = 7;
const SMS: u32 = 20;

/// What the two detectors have to do with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    publications: u32,
    snapshots: u32,
    private_clocks: u32,
}

pub(crate) const ROOMY: Room = Room {
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

pub(crate) fn value<T: bytemuck::Pod>(words: &[u64]) -> T {
    bytemuck::pod_read_unaligned(bytemuck::cast_slice(words))
}

pub(crate) fn topology(devices: u32, banks: u32) -> Topology {
    Topology::new(devices, SMS, 1, banks).unwrap()
}

/// The state region of a device.
fn region(device: DeviceRank) -> u64 {
    STATE + (u64::from(device.0) << 30)
}

/// A launch as the host knows it.
struct TwinLaunch {
    device: DeviceRank,
    bank: u32,
    ctas: u32,
    start: Start,
    /// The banks of which its frontier names rows, once its first CTA has started.
    named: Option<BTreeSet<u32>>,
}

/// Devices with one SM for each resident CTA, and the core's detector beside them.
pub(crate) struct Twin<const S: usize> {
    pub(crate) driver: Driver,
    /// Of rank 0; that of the others differs in the rank only.
    global: GlobalState,
    pub(crate) core: CompressedDetector<S>,
    topology: Topology,
    host: HostOrder,
    banks: BTreeMap<StreamId, u32>,
    launches: BTreeMap<LaunchId, TwinLaunch>,
    resident: BTreeMap<Cta, u32>,
    streams: BTreeMap<DeviceRank, u32>,
    granules: BTreeSet<u64>,
    /// How many words were asked for.
    asked: usize,
    /// Races that were taken from the core.
    found: Vec<Race>,
}

impl<const S: usize> Twin<S> {
    fn new(records: Records, topology: Topology, room: Room) -> Self {
        Self::with_lanes(records, topology, room, 1)
    }

    /// The same, with warps of `lanes` lanes.
    pub(crate) fn with_lanes(records: Records, topology: Topology, room: Room, lanes: u32) -> Self {
        let state = |rank| {
            let mut global = GlobalState::new(&Shape {
                topology,
                rank,
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
            global
        };
        let global = state(DeviceRank(0));
        let sizes = Sizes {
            publications: room.publications as usize,
            snapshots: room.snapshots as usize,
            private_clocks: room.private_clocks as usize,
            history: limits::HISTORY as usize,
            segments: global.segments,
            ..Sizes::DEFAULT
        };
        let mut driver = Driver::with_lanes(records, lanes);
        driver
            .map(SPACE_BASE, RESERVE)
            .map(STATE, u64::from(topology.devices()) << 30)
            .map(RING, HOST_BYTES)
            .write(FILE, &[u64::from_le_bytes(*b"kernel.p"), u64::from(b'y')]);
        for rank in 0..topology.devices() {
            let rank = DeviceRank(rank as u16);
            driver.write(region(rank), &words(&state(rank)));
        }
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
            streams: BTreeMap::new(),
            granules: BTreeSet::new(),
            asked: 0,
            found: Vec::new(),
        }
    }

    fn region_of(&self, launch: LaunchId) -> u64 {
        region(self.launches[&launch].device)
    }

    /// The memory of the rows of a launch.
    fn rows(&self, launch: LaunchId) -> u64 {
        self.region_of(launch) + u64::from(self.global.offsets.rows) + 4096 * u64::from(launch.0)
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
        let first = self.region_of(launch) + u64::from(self.global.offsets.launches);
        first + size * u64::from(launch.0)
    }

    fn launch(&mut self, launch: &Launch) {
        let topology = self.topology;
        let streams = self.streams.entry(launch.device).or_default();
        let bank = *self.banks.entry(launch.stream).or_insert_with(|| {
            *streams += 1;
            topology.bank(launch.device, (*streams - 1) % topology.banks_per_device())
        });
        let start = self.host.launch(launch);
        self.launches.insert(
            launch.id,
            TwinLaunch {
                device: launch.device,
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
        // Rows of launches overtaken are looked up in the own bank. One of another stream was waited for by a launch that
        // is overtaken itself, and so is complete.
        let overtaken = start.overtaken.into_iter();
        let (overtaken, waited): (Vec<_>, Vec<_>) =
            overtaken.partition(|earlier| self.launches[earlier].bank == bank);
        for &earlier in start.after.iter().chain(&waited) {
            let [own, foreign] = self.completion(earlier);
            let globals = region(self.launches[&id].device);
            self.driver.add_completion(globals, bank, before, foreign);
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
        for (index, &earlier) in overtaken.iter().enumerate() {
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
        let waits_for = overtaken
            .iter()
            .position(|&id| Some(id) == waits_for)
            .map_or(0, |index| index as u32 + 1);
        let [own_done, foreign_done] = self.completion(id);
        let own_bank = bank % self.topology.banks_per_device();
        let masks = u64::from(self.global.offsets.slot_masks) + u64::from(4 * own_bank * SMS);
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
            slot_masks: self.region_of(id) + masks,
            number: id.0,
            ctas,
            kernel: 1,
            bank,
            bank_first: self.topology.id(Place { bank, slot: 0 }).0.into(),
            overtaken_count: overtaken.len() as u32,
            waits_for,
            ..Zeroable::zeroed()
        };
        self.driver
            .write(TABLE + 128 * u64::from(id.0), &words(&descriptor));
        if let Some(launch) = self.launches.get_mut(&id) {
            launch.named = Some(named);
        }
    }

    /// What follows is done by `thread`. Returns the state region of its device.
    pub(crate) fn at(&mut self, thread: Thread) -> u64 {
        let sm = self.resident[&thread.cta];
        self.driver.place(sm, 0).thread(thread.index);
        self.region_of(thread.cta.launch)
    }

    pub(crate) fn tell(&mut self, event: &Event) {
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
                let globals = self.region_of(cta.launch);
                self.driver.place(*sm, cta.index.0.into()).init(
                    globals,
                    TABLE,
                    hint | u64::from(cta.launch.0),
                );
            }
            Event::CtaExit(cta) => {
                if let Some(sm) = self.resident.remove(cta) {
                    let globals = self.region_of(cta.launch);
                    self.driver.place(sm, 0).exit(globals);
                }
            }
            Event::GridDependencyWait(thread) => {
                let globals = self.at(*thread);
                self.driver.wait(globals);
            }
            Event::Access(access) => {
                let globals = self.at(access.thread);
                let Range { address, bytes, .. } = access.range;
                self.granules.insert(address / 8 * 8);
                let (write, line) = (access.action.writes(), access.site.0);
                let element = [(address, true)];
                self.driver
                    .tensor(globals, write, (FILE, line), bytes, &element);
            }
            Event::AtomicBegin(access) => {
                let globals = self.at(access.thread);
                let Range { address, bytes, .. } = access.range;
                self.granules.insert(address / 8 * 8);
                self.driver.begin(
                    event_of(access.thread),
                    globals,
                    (address, bytes),
                    access.action.reads(),
                    order(access),
                    (FILE, access.site.0),
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

    /// Compares everything.
    fn compare(mut self) -> Result<(), TestCaseError> {
        let devices = (0..self.topology.devices()).map(|rank| DeviceRank(rank as u16));
        let devices: Vec<_> = devices.collect();
        let memories: Vec<_> = devices.iter().map(|&d| self.read_device(d)).collect();
        let ring = self.read(RING, 1);
        let told = self.read(RING + size_of::<RaceRing>() as u64, 8 * RING_ENTRIES);
        let granules: Vec<u64> = self.granules.iter().copied().collect();
        let cells: Vec<_> = granules
            .iter()
            .map(|granule| self.read_cell(*granule))
            .collect();
        let answers = self.driver.answers();
        let taken = |range: &Span| answers[range.clone()].to_vec();

        for (granule, cell) in granules.iter().zip(&cells) {
            let expected = self.core.cell_words(*granule).unwrap();
            let expected: Vec<u64> = expected.into_iter().map(without_site).collect();
            let found: Vec<u64> = taken(cell).into_iter().map(without_site).collect();
            prop_assert_eq!(found, expected, "the cell of {:#x}", granule);
        }
        for (&device, memory) in devices.iter().zip(&memories) {
            self.compare_device(device, &memory.each_ref().map(taken))?;
        }
        let met = self.core.losses();
        for loss in COMPARED {
            let count: u64 = memories.iter().map(|m| taken(&m[0])[loss as usize]).sum();
            prop_assert_eq!(count, met.get(loss), "{:?}", loss);
        }

        let count = taken(&ring)[0];
        prop_assert!(count <= RING_ENTRIES);
        let line = |side: &RaceSide| {
            let sites = taken(&memories[usize::from(side.device)][1]);
            value::<Site>(&sites[4 * usize::from(side.site)..][..4]).line
        };
        let found: BTreeSet<_> = taken(&told)
            .chunks_exact(8)
            .take(count as usize)
            .map(value::<RaceEntry>)
            .map(|race| {
                let (earlier, later) = (line(&race.earlier), line(&race.later));
                (race.later.launch, u32::from(race.kind), earlier, later)
            })
            .collect();
        self.found.extend(self.core.take_races());
        let expected: BTreeSet<Told> = self.found.iter().map(as_both_tell).collect();
        prop_assert_eq!(found, expected);
        Ok(())
    }

    /// The words of every cell, without sites and tokens, and the races: as the device has them, and as
    /// the core has. The device's are with the granule and the later CTA.
    pub(crate) fn cells_and_races(&mut self) -> [CellsAndRaces; 2] {
        let o = self.global.offsets;
        let sites = self.read(STATE + u64::from(o.sites), 4 * u64::from(limits::SITES));
        let count = self.read(RING, 1);
        let told = self.read(RING + size_of::<RaceRing>() as u64, 8 * RING_ENTRIES);
        let granules: Vec<u64> = self.granules.iter().copied().collect();
        let cells: Vec<_> = granules
            .iter()
            .map(|granule| self.read_cell(*granule))
            .collect();
        let answers = self.driver.answers();
        let plain = |word: u64| {
            let token = u64::MAX << bits::TOKEN_SHIFT;
            if word >> bits::SYNC_SHIFT & 1 == 1 {
                word & !token
            } else {
                without_site(word)
            }
        };
        let line = |side: &RaceSide| {
            value::<Site>(&answers[sites.clone()][4 * usize::from(side.site)..][..4]).line
        };
        let races = answers[told]
            .chunks_exact(8)
            .take(answers[count][0] as usize)
            .map(value::<RaceEntry>)
            .map(|race| {
                let (earlier, later) = (line(&race.earlier), line(&race.later));
                let told = (race.later.launch, u32::from(race.kind), earlier, later);
                let cta = Thread::new(LaunchId(race.later.launch), race.later.cta, 0).cta;
                (told, race.address / 8 * 8, cta)
            });
        let device = cells
            .iter()
            .flat_map(|cell| &answers[cell.clone()])
            .map(|&word| plain(word));
        let device = (device.collect(), races.collect());
        let core: Vec<u64> = granules
            .iter()
            .flat_map(|&granule| self.core.cell_words(granule).unwrap_or([0; S]))
            .map(plain)
            .collect();
        let races = self.core.take_races();
        let races = races.iter().filter_map(|race| match race.later.who {
            Who::Cta(cta) => Some((as_both_tell(race), race.address / 8 * 8, cta)),
            _ => None,
        });
        [device, (core, races.collect())]
    }

    /// Asks how often a limit was met on device rank 0.
    pub(crate) fn loss(&mut self, loss: Loss) -> Span {
        let losses = STATE + offset_of!(GlobalState, losses) as u64;
        self.read(losses + 8 * loss as u64, 1)
    }

    /// The same as [`Self::cells_and_races`], with a word that was asked for.
    pub(crate) fn cells_races_and(mut self, word: Span) -> ([CellsAndRaces; 2], u64) {
        let found = self.cells_and_races();
        let answers = self.driver.answers();
        (found, answers[word][0])
    }

    /// How many races the device told, and a word that was asked for.
    pub(crate) fn races_and(mut self, word: Span) -> (u64, u64) {
        let count = self.read(RING, 1);
        let answers = self.driver.answers();
        (answers[count][0], answers[word][0])
    }

    /// What a warp accesses belongs to what is compared.
    pub(crate) fn touches(&mut self, address: u64) {
        self.granules.insert(address / 8 * 8);
    }

    /// Asks for memory; the answers will lie where it says.
    fn read(&mut self, address: u64, count: u64) -> Span {
        self.driver.read(address, count);
        let first = self.asked;
        self.asked += count as usize;
        first..self.asked
    }

    fn read_cell(&mut self, granule: u64) -> Span {
        let records = self.driver.records();
        let space = AddressSpace::new(SPACE_BASE, RESERVE, records).unwrap();
        self.driver.read_cells(&space, granule, 1);
        let first = self.asked;
        self.asked += S;
        first..self.asked
    }

    fn shape(&self) -> ClockShape {
        ClockShape::holding(self.global.segments, self.topology.slots())
    }

    /// Losses, sites, heads of publications and snapshots, publications, snapshots, epochs and
    /// checkpoints of a device.
    fn read_device(&mut self, device: DeviceRank) -> [Span; 10] {
        let o = self.global.offsets;
        let part = |offset: u32| region(device) + u64::from(offset);
        let field = |offset: usize| region(device) + offset as u64;
        let global = self.global;
        let ids = u64::from(self.topology.ids());
        let share = ids / u64::from(self.topology.devices());
        let clocks = u64::from(global.snapshots) * self.shape().words() as u64 / 2;
        let checkpoints = u64::from(entry::CHECKPOINTS);
        [
            self.read(field(offset_of!(GlobalState, losses)), 32),
            self.read(part(o.sites), 4 * u64::from(limits::SITES)),
            self.read(field(offset_of!(GlobalState, publication_head)), 1),
            self.read(field(offset_of!(GlobalState, snapshot_head)), 1),
            self.read(
                part(o.publications),
                u64::from(global.publications) * PUBLICATION_WORDS as u64,
            ),
            self.read(part(o.snapshot_states), global.snapshots.into()),
            self.read(part(o.snapshots), clocks),
            self.read(part(o.epochs), share.div_ceil(2)),
            self.read(part(o.checkpoints), 1 + checkpoints),
            self.read(part(o.checkpoint_epochs), (checkpoints * ids).div_ceil(2)),
        ]
    }

    /// Has the core read a device's memory, and its own.
    fn compare_device(
        &self,
        device: DeviceRank,
        memory: &[Vec<u64>; 10],
    ) -> Result<(), TestCaseError> {
        let [
            _,
            _,
            head,
            snapshot_head,
            publications,
            states,
            clocks,
            epochs,
            checkpoints,
            rows,
        ] = memory;
        let system = self.core.system();
        let (entries, head_word) = (atomic(publications), AtomicU64::new(head[0]));
        let found = Publications::<Native>::new(&entries, &head_word, Token::MAX.get());
        let expected = system.publications(device);
        prop_assert_eq!(head[0], expected.head().load(Relaxed));
        let kept = 2 * u64::from(self.global.publications);
        for token in head[0].saturating_sub(kept)..head[0] {
            let token = Token::new(token).unwrap();
            prop_assert_eq!(found.read(token), expected.read(token), "{:?}", token);
        }
        let (states, clocks) = (atomic(states), halves(clocks));
        let head_word = AtomicU64::new(snapshot_head[0]);
        let found = Snapshots::<Native>::new(&states, &clocks, &head_word, self.shape());
        let expected = system.snapshots(device);
        for index in 1..=snapshot_head[0] as u32 {
            let name = SnapshotRef::from_bits(index).unwrap();
            let (found, expected) = (known(&found, name), known(&expected, name));
            prop_assert_eq!(found, expected, "{:?} of {:?}", name, device);
        }
        let (epochs, ids) = (halves(epochs), self.topology.ids() as u16);
        let share = ids / self.topology.devices() as u16;
        for slot in 0..share {
            let id = ThreadId(device.0 * share + slot);
            let expected = system.epoch(id).load(Relaxed);
            prop_assert_eq!(epochs[usize::from(slot)].load(Relaxed), expected);
        }
        let (positions, rows) = (atomic(&checkpoints[1..]), halves(rows));
        let rows = &rows[..entry::CHECKPOINTS as usize * usize::from(ids)];
        let control = halves(&checkpoints[..1]);
        let found = Checkpoints::<Native>::new(device, &positions, rows, &control);
        let expected = system.checkpoints(device);
        for index in 1..=entry::CHECKPOINTS {
            let first = u32::from(device.0) << entry::CHECKPOINT_DEVICE_SHIFT;
            let name = CheckpointRef::from_bits(first | index).unwrap();
            prop_assert_eq!(found.position(name), expected.position(name));
            for id in 0..ids {
                let id = ThreadId(id);
                prop_assert_eq!(found.epoch(name, id), expected.epoch(name, id));
            }
        }
        Ok(())
    }
}

/// A word of a cell without what the two number otherwise: sites.
fn without_site(word: u64) -> u64 {
    let site = u64::from((1u32 << bits::SITE_BITS) - 1) << bits::SITE_SHIFT;
    if word >> bits::SYNC_SHIFT & 1 == 1 {
        word
    } else {
        word & !site
    }
}

/// A race as both tell it: the later side's launch, the kind, the lines.
pub(crate) type Told = (u32, u32, u32, u32);

fn as_both_tell(race: &Race) -> Told {
    let kind = match race.kind {
        RaceKind::ReadAfterWrite => READ_AFTER_WRITE,
        RaceKind::WriteAfterRead => WRITE_AFTER_READ,
        RaceKind::WriteAfterWrite => WRITE_AFTER_WRITE,
    };
    let launch = race.later.who.launch().unwrap();
    (launch.0, kind, race.earlier.site.0, race.later.site.0)
}

/// The words of all cells; races, with the granule and the later CTA.
pub(crate) type CellsAndRaces = (Vec<u64>, Vec<(Told, u64, Cta)>);

/// Where answers lie.
pub(crate) type Span = core::ops::Range<usize>;

fn halves(words: &[u64]) -> Vec<AtomicU32> {
    let halves: &[u32] = bytemuck::cast_slice(words);
    halves.iter().map(|&word| AtomicU32::new(word)).collect()
}

fn atomic(words: &[u64]) -> Vec<AtomicU64> {
    words.iter().map(|&word| AtomicU64::new(word)).collect()
}

/// The checkpoint and the entries of a snapshot.
type Known = (Option<u32>, Vec<(Place, ClockEntry)>);

fn known(ring: &Snapshots<'_, Native>, name: SnapshotRef) -> Option<Known> {
    let (mut checkpoint, mut entries) = (None, Vec::new());
    let read = ring.read(
        name,
        |c| checkpoint = Some(c.bits()),
        |place, entry| entries.push((place, entry)),
    );
    // Rows of several banks have no order.
    entries.sort_by_key(|(place, _)| (place.bank, place.slot));
    read.ok().map(|()| (checkpoint, entries))
}

/// A program by hand: launches of single-threaded CTAs, told one event at a time.
pub(crate) struct Script {
    pub(crate) twin: Twin<4>,
    line: u32,
}

pub(crate) fn cta(launch: u32, index: u32) -> Cta {
    Thread::new(LaunchId(launch), index, 0).cta
}

impl Script {
    pub(crate) fn new(topology: Topology, room: Room) -> Script {
        let twin = Twin::new(Records::Four, topology, room);
        Script { twin, line: 0 }
    }

    pub(crate) fn launch(&mut self, id: u32, stream: u32, ctas: u32) -> &mut Self {
        self.launch_as(id, stream, ctas, false)
    }

    /// A launch that may overtake the one before in its stream.
    fn launch_dependent(&mut self, id: u32, stream: u32, ctas: u32) -> &mut Self {
        self.launch_as(id, stream, ctas, true)
    }

    fn launch_as(&mut self, id: u32, stream: u32, ctas: u32, programmatic: bool) -> &mut Self {
        self.twin.tell(&Event::Launch(Launch {
            id: LaunchId(id),
            device: DeviceRank(0),
            stream: StreamId(stream),
            ctas,
            threads: 1,
            cluster: 1,
            programmatic,
        }));
        self
    }

    pub(crate) fn start(&mut self, cta: Cta, sm: u32) -> &mut Self {
        self.twin.tell(&Event::CtaStart { cta, sm });
        self
    }

    fn exit(&mut self, cta: Cta) -> &mut Self {
        self.twin.tell(&Event::CtaExit(cta));
        self
    }

    fn grid_dependency_wait(&mut self, cta: Cta) -> &mut Self {
        let thread = Thread { cta, index: 0 };
        self.twin.tell(&Event::GridDependencyWait(thread));
        self
    }

    fn access(&mut self, cta: Cta, action: Action, order: Order, granule: u64) -> Access {
        self.line += 1;
        Access {
            thread: Thread { cta, index: 0 },
            range: Range {
                space: Space::Global,
                address: REAL + 8 * granule,
                bytes: 4,
            },
            action,
            order,
            scope: Scope::Gpu,
            site: SiteId(self.line),
        }
    }

    pub(crate) fn write(&mut self, cta: Cta, granule: u64) -> &mut Self {
        let access = self.access(cta, Action::Write, Order::Weak, granule);
        self.twin.tell(&Event::Access(access));
        self
    }

    /// A read of a whole granule.
    fn read_whole(&mut self, cta: Cta, granule: u64) -> &mut Self {
        let mut access = self.access(cta, Action::Read, Order::Weak, granule);
        access.range.bytes = 8;
        self.twin.tell(&Event::Access(access));
        self
    }

    pub(crate) fn strong(
        &mut self,
        cta: Cta,
        action: Action,
        order: Order,
        granule: u64,
    ) -> &mut Self {
        self.strong_at(cta, action, order, Scope::Gpu, granule)
    }

    fn strong_at(
        &mut self,
        cta: Cta,
        action: Action,
        order: Order,
        scope: Scope,
        granule: u64,
    ) -> &mut Self {
        let end = Access {
            scope,
            ..self.access(cta, action, order, granule)
        };
        let action = match action {
            Action::Write => Action::Write,
            _ => Action::Rmw,
        };
        self.twin
            .tell(&Event::AtomicBegin(Access { action, ..end }));
        self.twin.tell(&Event::AtomicEnd(end));
        self
    }

    pub(crate) fn release(&mut self, cta: Cta, granule: u64) -> &mut Self {
        self.strong(cta, Action::Write, Order::Release, granule)
    }

    pub(crate) fn acquire(&mut self, cta: Cta, granule: u64) -> &mut Self {
        self.strong(cta, Action::Read, Order::Acquire, granule)
    }

    /// An atomic in a line that others share with it.
    pub(crate) fn in_loop(&mut self, cta: Cta, action: Action, granule: u64) -> &mut Self {
        const LINE: u32 = 1000;
        let line = std::mem::replace(&mut self.line, LINE - 1);
        self.strong(cta, action, Order::Acquire, granule);
        self.line = line;
        self
    }

    /// Atomics that write and acquire, in the same line, which all begin before the first ends.
    pub(crate) fn at_once<const N: usize>(&mut self, ctas: [Cta; N], granule: u64) -> &mut Self {
        const LINE: u32 = 1001;
        let line = std::mem::replace(&mut self.line, LINE - 1);
        let all = ctas.map(|cta| {
            self.line = LINE - 1;
            self.access(cta, Action::Rmw, Order::Acquire, granule)
        });
        for access in all {
            self.twin.tell(&Event::AtomicBegin(access));
        }
        for access in all {
            self.twin.tell(&Event::AtomicEnd(access));
        }
        self.line = line;
        self
    }

    /// Both detectors met the limits this often and found no race.
    fn meets(self, limits: &[(Loss, u64)]) {
        let met = self.twin.core.losses();
        for &(loss, count) in limits {
            assert_eq!(met.get(loss), count, "{loss:?}");
        }
        let mut twin = self.twin;
        assert_eq!(twin.core.take_races(), []);
        twin.compare().unwrap();
    }

    /// The same, with races.
    fn races(self, count: usize) {
        let mut twin = self.twin;
        let races = twin.core.take_races();
        assert_eq!(races.len(), count, "{races:?}");
        twin.found = races;
        twin.compare().unwrap();
    }
}

#[test]
fn what_was_released_and_acquired_is_ordered_and_nothing_else_is() {
    let mut script = Script::new(topology(1, 1), ROOMY);
    let [a, b, c] = [cta(0, 0), cta(0, 1), cta(0, 2)];
    script.launch(0, 0, 3).start(a, 0).start(b, 1).start(c, 2);
    script.write(a, 1).write(c, 2).release(a, 0).acquire(b, 0);
    // The first is ordered; the second is not.
    script.write(b, 1).write(b, 2);
    script.races(1);
}

#[test]
fn threads_that_poll_leave_what_others_record() {
    let mut script = Script::new(topology(1, 1), ROOMY);
    let ctas: Vec<Cta> = (0..8).map(|index| cta(0, index)).collect();
    script.launch(0, 0, 8);
    for (sm, &cta) in ctas.iter().enumerate() {
        script.start(cta, sm as u32);
    }
    let (&first, pollers) = ctas.split_first().unwrap();
    for step in 0..6 {
        for &poller in pollers {
            script.in_loop(poller, Action::Read, 0);
        }
        if step == 3 {
            script.write(first, 1).release(first, 0);
        }
    }
    for &poller in pollers {
        script.in_loop(poller, Action::Read, 0);
    }
    script.write(pollers[0], 1);
    script.races(0);
}

#[test]
fn what_is_learned_meanwhile_counts_for_a_poll_that_finds_the_same() {
    let mut script = Script::new(topology(1, 1), ROOMY);
    let [a, b] = [cta(0, 0), cta(0, 1)];
    script.launch(0, 0, 2).start(a, 0).start(b, 1);
    // Word 0 is read by A, which then hands over by word 1.
    script.in_loop(a, Action::Read, 0).release(a, 1);
    for _ in 0..3 {
        script.in_loop(b, Action::Read, 0);
    }
    script.acquire(b, 1).in_loop(b, Action::Read, 0);
    script.write(b, 0);
    script.races(0);
}

#[test]
fn an_atomic_that_writes_where_only_loads_were_is_not_recorded_once() {
    let mut script = Script::new(topology(1, 1), ROOMY);
    let [a, b] = [cta(0, 0), cta(0, 1)];
    script.launch(0, 0, 2).start(a, 0).start(b, 1);
    script.in_loop(a, Action::Read, 0);
    script.in_loop(a, Action::Rmw, 0);
    // From now on it is expected.
    script.in_loop(a, Action::Rmw, 1);
    script
        .in_loop(a, Action::Read, 2)
        .in_loop(a, Action::Rmw, 2);
    script.write(b, 0).write(b, 1).write(b, 2);
    let [(_, found), _] = script.twin.cells_and_races();
    let kinds: BTreeSet<_> = found
        .iter()
        .map(|((_, kind, ..), address, _)| ((address - REAL) / 8, *kind))
        .collect();
    let expected = [
        (0, WRITE_AFTER_READ),
        (1, WRITE_AFTER_WRITE),
        (2, WRITE_AFTER_WRITE),
    ];
    assert_eq!(kinds, expected.into());
}

#[test]
fn atomics_that_lost_their_record_leave_the_cell_alone_and_see_what_comes() {
    let mut script = Script::new(topology(1, 1), ROOMY);
    let [a, b, c] = [0, 1, 2].map(|index| cta(0, index));
    script.launch(0, 0, 3).start(a, 0).start(b, 1).start(c, 2);
    // Each removes the announcement of the other once.
    script
        .at_once([a, b], 0)
        .at_once([b, a], 0)
        .at_once([a, b], 0);
    let [(before, found), _] = script.twin.cells_and_races();
    assert_eq!(found, []);
    script.at_once([a, b], 0).at_once([b, a], 0);
    let [(after, _), _] = script.twin.cells_and_races();
    assert_eq!(before, after);
    script.write(c, 0).at_once([a, b], 0);
    let [(_, found), _] = script.twin.cells_and_races();
    let kinds: BTreeSet<_> = found.iter().map(|((_, kind, ..), ..)| *kind).collect();
    assert_eq!(kinds, [READ_AFTER_WRITE].into());
}

#[test]
fn an_atomic_that_lost_its_record_is_recorded_in_the_next_epoch() {
    let mut script = Script::new(topology(1, 1), ROOMY);
    let [a, b, c] = [0, 1, 2].map(|index| cta(0, index));
    script.launch(0, 0, 3).start(a, 0).start(b, 1).start(c, 2);
    script.at_once([a, b], 0).at_once([b, a], 0).release(a, 1);
    script.at_once([a], 0).write(c, 0);
    let [(_, found), _] = script.twin.cells_and_races();
    let kinds: BTreeSet<_> = found.iter().map(|((_, kind, ..), ..)| *kind).collect();
    assert_eq!(kinds, [WRITE_AFTER_WRITE].into());
}

#[test]
fn atomics_at_cta_scope_order_nothing_between_ctas() {
    let races = |b_writes: bool| {
        let mut script = Script::new(topology(1, 1), ROOMY);
        let [a, b] = [cta(0, 0), cta(0, 1)];
        script.launch(0, 0, 2).start(a, 0).start(b, 1).write(a, 1);
        for cta in [a, b] {
            script.strong_at(cta, Action::Rmw, Order::AcqRel, Scope::Cta, 0);
        }
        if b_writes {
            script.write(b, 1);
        }
        let races = script.twin.core.take_races();
        script.twin.found.clone_from(&races);
        script.twin.compare().unwrap();
        races.len()
    };
    assert_eq!(races(true), races(false) + 1);
}

/// B goes on with a release sequence that it began itself, at the scope of the device: the part that A puts to it
/// between two of B's, at the scope of its CTA, is not for B.
#[test]
fn what_is_released_at_cta_scope_into_a_wider_sequence_reaches_nobody() {
    for released in [Action::Rmw, Action::Write, Action::FailedRmw] {
        let mut script = Script::new(topology(1, 1), ROOMY);
        let [a, b] = [cta(0, 0), cta(0, 1)];
        script.launch(0, 0, 2).start(a, 0).start(b, 1);
        script.strong(b, Action::Rmw, Order::AcqRel, 0).write(a, 1);
        script.strong_at(a, released, Order::AcqRel, Scope::Cta, 0);
        script.strong(b, Action::Rmw, Order::AcqRel, 0);
        let before = script.twin.core.take_races();
        script.write(b, 1);
        let races = script.twin.core.take_races();
        script.twin.found = before.into_iter().chain(races.iter().cloned()).collect();
        assert_eq!(races.len(), 1, "{released:?}");
        assert_eq!(script.twin.core.losses().get(Loss::FailedRelease), 0);
        script.twin.compare().unwrap();
    }
}

#[test]
fn without_a_private_clock_everything_is_ordered() {
    let none = Room {
        private_clocks: 0,
        ..ROOMY
    };
    let mut script = Script::new(topology(1, 1), none);
    let [a, b, c] = [cta(0, 0), cta(0, 1), cta(0, 2)];
    script.launch(0, 0, 3).start(a, 0).start(b, 1).start(c, 2);
    script.write(a, 1).write(c, 2).release(a, 0).acquire(b, 0);
    script.write(b, 1).write(b, 2);
    // What it releases is TOP.
    script.release(b, 3).acquire(c, 3).write(c, 1);
    script.exit(b).exit(a).exit(c);
    script.meets(&[(Loss::PrivatePoolEmpty, 1), (Loss::TopRelease, 1)]);
}

#[test]
fn a_publication_that_was_overwritten_stands_for_a_checkpoint() {
    let one = Room {
        publications: 1,
        ..ROOMY
    };
    let mut script = Script::new(topology(1, 1), one);
    let [a, b, c] = [cta(0, 0), cta(0, 1), cta(0, 2)];
    script.launch(0, 0, 3).start(a, 0).start(b, 1).start(c, 2);
    script.write(a, 1).release(a, 0).release(c, 3).acquire(b, 0);
    script.write(b, 1);
    script.meets(&[(Loss::PublicationOverrun, 1)]);
}

/// Whole reads by a CTA that knows of an earlier one through what is not in its frontier.
#[test]
fn a_whole_read_takes_the_place_of_what_the_cta_learned_of() {
    // By its private clock, of one it did not acquire from.
    let mut script = Script::new(topology(1, 1), ROOMY);
    let [a, b, c] = [cta(0, 0), cta(0, 1), cta(0, 2)];
    script.launch(0, 0, 3).start(a, 0).start(b, 1).start(c, 2);
    script.read_whole(a, 1).release(a, 0).acquire(b, 0);
    script.release(b, 2).acquire(c, 2).read_whole(c, 1);
    script.meets(&[]);
    // By a checkpoint.
    let one = Room {
        publications: 1,
        ..ROOMY
    };
    let mut script = Script::new(topology(1, 1), one);
    script.launch(0, 0, 3).start(a, 0).start(b, 1).start(c, 2);
    script
        .read_whole(c, 1)
        .release(a, 0)
        .release(c, 3)
        .acquire(b, 0);
    script.read_whole(b, 1);
    script.meets(&[(Loss::PublicationOverrun, 1)]);
    // By a completion that it waited for.
    let mut script = Script::new(topology(1, 1), ROOMY);
    let [a, p] = [cta(0, 0), cta(1, 0)];
    script.launch(0, 0, 1).launch_dependent(1, 0, 7);
    script.start(a, 0).start(p, 1).read_whole(a, 1).exit(a);
    script.grid_dependency_wait(p).read_whole(p, 1);
    script.meets(&[]);
    // Since it knows everything.
    let none = Room {
        private_clocks: 0,
        ..ROOMY
    };
    let mut script = Script::new(topology(1, 1), none);
    let [a, b, c] = [cta(0, 0), cta(0, 1), cta(0, 2)];
    script.launch(0, 0, 3).start(a, 0).start(b, 1).start(c, 2);
    script
        .read_whole(c, 1)
        .release(a, 0)
        .acquire(b, 0)
        .read_whole(b, 1);
    script.meets(&[(Loss::PrivatePoolEmpty, 1)]);
}

/// P learns something of A, waits for all of A's launch, and tells Q both.
fn told_with_a_completion() -> (Script, Cta) {
    let mut script = Script::new(topology(1, 1), ROOMY);
    let [a, p, q] = [cta(0, 0), cta(1, 0), cta(1, 1)];
    script.launch(0, 0, 1).launch_dependent(1, 0, 7);
    script.start(a, 0).start(p, 1).start(q, 2);
    script.write(a, 1).release(a, 0).acquire(p, 0).exit(a);
    script.grid_dependency_wait(p).release(p, 2).acquire(q, 2);
    (script, q)
}

/// P learns something of A, and a checkpoint that covers it, and tells Q both.
fn told_with_a_checkpoint() -> (Script, Cta) {
    let one = Room {
        publications: 1,
        ..ROOMY
    };
    let mut script = Script::new(topology(1, 1), one);
    let [a, p, q, b, c] = [0, 1, 2, 3, 4].map(|index| cta(1, index));
    script.launch(1, 0, 7).start(a, 0);
    for (sm, cta) in [p, q, b, c].into_iter().enumerate() {
        script.start(cta, sm as u32 + 1);
    }
    script.write(a, 1).release(a, 0).acquire(p, 0).exit(a);
    // The first of these is overwritten.
    script.release(b, 3).release(c, 4).acquire(p, 3);
    script.release(p, 2).acquire(q, 2);
    (script, q)
}

#[test]
fn what_is_told_together_with_what_covers_it_is_kept() {
    for told in [told_with_a_completion, told_with_a_checkpoint] {
        let (mut script, q) = told();
        // What Q keeps is in what it releases.
        script.write(q, 1).release(q, 5);
        script.races(0);
    }
}

#[test]
fn what_lies_between_an_entry_that_was_kept_and_a_later_one_is_ordered() {
    for told in [told_with_a_completion, told_with_a_checkpoint] {
        let (mut script, q) = told();
        // On the slot of A, after it: a stranger, and a CTA that Q acquires from.
        let [stranger, later] = [5, 6].map(|index| cta(1, index));
        script.start(stranger, 0).write(stranger, 10).exit(stranger);
        script.start(later, 0).write(later, 11).release(later, 6);
        script.acquire(q, 6).write(q, 11).write(q, 10);
        // The hull of what Q keeps and what it acquired last spans the stranger.
        script.races(0);
    }
}

#[test]
fn a_cta_that_acquires_its_own_release_learns_nothing_of_what_others_did_on_its_slot_later() {
    let mut script = Script::new(topology(1, 1), ROOMY);
    let [a, b] = [cta(0, 0), cta(0, 1)];
    script.launch(0, 0, 2).start(a, 0).write(a, 1).release(a, 0);
    script.write(a, 10).exit(a);
    // What B releases says what A released, and is all that B acquires.
    script.start(b, 0).release(b, 0).acquire(b, 0);
    script.write(b, 1).write(b, 10);
    script.races(1);
}

#[test]
fn a_snapshot_that_was_overwritten_stands_for_a_checkpoint() {
    let two = Room {
        snapshots: 2,
        ..ROOMY
    };
    let mut script = Script::new(topology(1, 1), two);
    let ctas: Vec<Cta> = (0..5).map(|index| cta(0, index)).collect();
    script.launch(0, 0, 5);
    for (sm, &cta) in ctas.iter().enumerate() {
        script.start(cta, sm as u32);
    }
    // The first claims a snapshot for the frontier; three others each publish what they learned.
    script.write(ctas[0], 1).release(ctas[0], 0);
    for (index, &cta) in ctas[1..4].iter().enumerate() {
        script.acquire(cta, 0).release(cta, index as u64 + 2);
    }
    script.acquire(ctas[4], 2).write(ctas[4], 1);
    script.meets(&[(Loss::SnapshotOverrun, 1)]);
}

#[test]
fn a_cta_without_a_slot_releases_everything() {
    let mut script = Script::new(topology(1, 1), ROOMY);
    let [a, b] = [cta(0, 0), cta(0, 1)];
    script.twin.core.system().slots(0).take(0).unwrap();
    let masks = STATE + u64::from(script.twin.global.offsets.slot_masks);
    script.twin.driver.write(masks, &[1]);
    let marks = STATE + u64::from(script.twin.global.offsets.high_water);
    script.twin.driver.write(marks, &[1]);
    script.launch(0, 0, 2).start(a, 0).start(b, 1);
    script.write(b, 1).release(a, 0).acquire(b, 0).write(b, 1);
    script.exit(a).exit(b);
    script.meets(&[(Loss::NoSlot, 1), (Loss::TopRelease, 1)]);
}

#[test]
fn a_cta_whose_epochs_are_worn_counts_as_ordered() {
    let mut script = Script::new(topology(1, 1), ROOMY);
    let [a, b] = [cta(0, 0), cta(0, 1)];
    let last = Sizes::DEFAULT.last_epoch.get() - 2;
    let system = script.twin.core.system();
    system.epoch(ThreadId(0)).store(last, Relaxed);
    let epochs = STATE + u64::from(script.twin.global.offsets.epochs);
    script.twin.driver.write(epochs, &[last.into()]);
    script.launch(0, 0, 2).start(a, 0).start(b, 1);
    for granule in 0..4 {
        script.write(a, 10).release(a, granule);
    }
    script.write(b, 10);
    script.meets(&[(Loss::WornEpoch, 1)]);
}

#[test]
fn when_tokens_are_worn_a_release_says_everything_so_far() {
    let mut script = Script::new(topology(1, 1), ROOMY);
    let [a, b] = [cta(0, 0), cta(0, 1)];
    let head = Token::MAX.get() - 1;
    let publications = script.twin.core.system().publications(DeviceRank(0));
    publications.head().store(head, Relaxed);
    let place = STATE + offset_of!(GlobalState, publication_head) as u64;
    script.twin.driver.write(place, &[head]);
    script.launch(0, 0, 2).start(a, 0).start(b, 1);
    script.write(a, 1).release(a, 0).write(a, 2).release(a, 3);
    script.acquire(b, 3).write(b, 1).write(b, 2);
    script.meets(&[(Loss::WornToken, 1)]);
}

#[test]
fn a_clock_without_room_for_a_bank_knows_everything() {
    let mut script = Script::new(topology(1, 5), ROOMY);
    // Five streams, each with a bank; a clock has room for three.
    for launch in 0..5 {
        let cta = cta(launch, 0);
        script.launch(launch, launch, 1).start(cta, launch);
        script.write(cta, 20 + u64::from(launch));
        script.release(cta, launch.into());
    }
    for launch in 0..4 {
        script.acquire(cta(4, 0), launch);
    }
    for launch in 0..4 {
        script.write(cta(4, 0), 20 + launch);
    }
    script.meets(&[(Loss::OutsideClock, 1)]);
}

#[test]
fn a_frontier_without_room_in_a_snapshot_is_said_by_a_checkpoint() {
    let mut script = Script::new(topology(1, 6), ROOMY);
    for launch in 0..4 {
        let cta = cta(launch, 0);
        script.launch(launch, launch, 1).start(cta, launch);
        script.write(cta, 20 + u64::from(launch));
        script.release(cta, launch.into());
    }
    // Two kernels of one stream learn of two banks each; the third starts with all four.
    for launch in [4, 5] {
        let cta = cta(launch, 0);
        script.launch(launch, 4, 1).start(cta, 5);
        for granule in [0, 1] {
            script.acquire(cta, 2 * u64::from(launch - 4) + granule);
        }
        script.exit(cta);
    }
    let [a, b] = [cta(6, 0), cta(7, 0)];
    script.launch(6, 4, 1).start(a, 5).release(a, 10);
    script.launch(7, 5, 1).start(b, 6).acquire(b, 10);
    for launch in 0..4 {
        script.write(b, 20 + launch);
    }
    script.meets(&[(Loss::OutsideClock, 1)]);
}

#[test]
fn a_compare_and_swap_that_fails_has_released_more_than_happened() {
    let mut script = Script::new(topology(1, 1), ROOMY);
    let [a, b] = [cta(0, 0), cta(0, 1)];
    script.launch(0, 0, 2).start(a, 0).start(b, 1).write(a, 1);
    script.strong(a, Action::FailedRmw, Order::AcqRel, 0);
    script.acquire(b, 0).write(b, 1);
    script.meets(&[(Loss::FailedRelease, 1)]);
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

pub(crate) fn event_of(thread: Thread) -> u64 {
    let cta = u64::from(thread.cta.launch.0) << 32 | u64::from(thread.cta.index.0);
    cta << 8 | u64::from(thread.index)
}

/// Triton's numbers of an access's memory order and scope.
pub(crate) fn order(access: &Access) -> (u32, u32) {
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
///
/// Ordinary reads are of at most half a granule. For whole ones device code has a short way, on which an
/// earlier read stays that is ordered by more than its own bank's row: it costs room, and no report.
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
            Event::Access(access) => {
                let mut access = moved(access, access.action);
                if access.action == Action::Read {
                    access.range.bytes = access.range.bytes.min(4);
                }
                told.push(Event::Access(access));
            }
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
    topology: Topology,
    room: Room,
) -> Result<(), TestCaseError> {
    let mut twin = Twin::<S>::new(records, topology, room);
    for event in as_told(&execute(&case.program, grain, &case.schedule)) {
        twin.tell(&event);
    }
    twin.compare()
}

pub(crate) fn cases_or(short: u32) -> ProptestConfig {
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
pub(crate) fn tight() -> impl Strategy<Value = Room> {
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
        agree::<4>(Records::Four, &case, grain, topology(1, 1), ROOMY)?;
        agree::<2>(Records::Two, &case, grain, topology(1, 1), ROOMY)?;
    }

    #[test]
    fn streams_that_wait_for_each_other_leave_the_same(
        case in cases(Programs { kernels: 5, streams: 3, ..PROGRAMS }), grain in grain(),
    ) {
        agree::<4>(Records::Four, &case, grain, topology(1, 3), ROOMY)?;
        agree::<2>(Records::Two, &case, grain, topology(1, 3), ROOMY)?;
    }

    #[test]
    fn two_devices_leave_the_same(
        case in cases(Programs { kernels: 5, streams: 3, devices: 2, ..PROGRAMS }),
        grain in grain(), room in prop_oneof![Just(ROOMY), tight()],
    ) {
        agree::<4>(Records::Four, &case, grain, topology(2, 2), room)?;
        agree::<2>(Records::Two, &case, grain, topology(2, 2), room)?;
    }

    #[test]
    fn with_room_for_nothing_verdicts_and_memory_are_the_same(
        case in cases(PROGRAMS), grain in grain(), room in tight(),
    ) {
        agree::<4>(Records::Four, &case, grain, topology(1, 1), room)?;
        agree::<2>(Records::Two, &case, grain, topology(1, 1), room)?;
    }
}
