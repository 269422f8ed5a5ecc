//! Accesses that meet records of other streams, of other devices and of ids that are not in use: what
//! the rows of a frontier say decides what becomes of the cell.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::mem::offset_of;

use gsan_core::address::{AddressSpace, Records};
use gsan_core::cell::{Cell, CellAccess, Past};
use gsan_core::clock::{ClockEntry, Epoch};
use gsan_core::compressed::topology::{Place, Topology};
use gsan_core::event::Action;
use gsan_core::ids::{DeviceRank, SiteId, ThreadId};
use gsan_core::layout::{GlobalState, RowHeader, STATE_STRIDE, Shape};
use gsan_core::loss::Loss;
use gsan_core::record::{RecordScope, bits};
use gsan_core::reservoir::Sampler;
use proptest::prelude::*;

use crate::driver::Driver;
use crate::launches::{FILE, Machine, REAL, RESERVE, RING, SPACE_BASE, STATE, words};

const SEED: u32 = 7;
const GRANULES: u64 = 8;
/// The epoch at which the CTA starts, the first of its id.
const START: u32 = 2;
const BANKS: u32 = 3;
const SLOTS: u32 = 4;

const ROWS: u64 = 1 << 41;
const FOREIGN_ROW: u64 = ROWS + (1 << 12);
const TABLE_OF_ROWS: u64 = ROWS + (2 << 12);
const NAMED_ROWS: u64 = ROWS + (3 << 12);

/// Two devices of three banks of four slots, and an id of each that is reserved.
fn topology() -> Topology {
    Topology::new(2, 2, 2, BANKS).unwrap()
}

/// What a CTA of slot 0 of bank 0 knows besides its own epochs.
#[derive(Clone, Debug)]
struct Frontier {
    own: Vec<u32>,
    /// By id; `None`: nothing is in it.
    foreign: Option<Vec<u32>>,
    /// By bank, the rows that are named.
    named: Vec<Option<Vec<u32>>>,
}

impl Frontier {
    fn names(&self) -> bool {
        self.named.iter().any(Option::is_some)
    }
}

impl Past for Frontier {
    fn is_ordered(&self, thread: ThreadId, epoch: Epoch) -> bool {
        let covers = |entry: u32| ClockEntry::from_bits(entry).covers(epoch);
        let Some(Place { bank, slot }) = topology().place(thread) else {
            return true;
        };
        let slot = slot as usize;
        (thread.0 == 0 && epoch >= Epoch::new(START).unwrap())
            || epoch == Epoch::MAX
            || (bank == 0 && covers(self.own[slot]))
            || self
                .foreign
                .as_ref()
                .is_some_and(|row| covers(row[thread.0 as usize]))
            || self.named[bank as usize]
                .as_ref()
                .is_some_and(|row| covers(row[slot]))
    }

    fn is_same_device(&self, thread: ThreadId) -> bool {
        topology().device(thread) == DeviceRank(0)
    }
}

fn entries(count: u32) -> impl Strategy<Value = Vec<u32>> {
    let entry = prop::option::of((1u32..6, 1u32..6)).prop_map(|interval| {
        interval.map_or(0, |(first, last)| {
            ClockEntry::closed(Epoch::new(first).unwrap(), Epoch::new(last).unwrap()).bits()
        })
    });
    prop::collection::vec(entry, count as usize)
}

/// One that knows of other banks: of those that do not, no id is asked that is not in use.
fn frontier() -> impl Strategy<Value = Frontier> {
    let named = prop::collection::vec(prop::option::of(entries(SLOTS)), 2 * BANKS as usize);
    let foreign = prop::option::of(entries(topology().ids()));
    let rows = (entries(SLOTS), foreign, named).prop_map(|(own, foreign, named)| Frontier {
        own,
        foreign,
        named,
    });
    rows.prop_filter("nothing is known of other banks", |rows| {
        rows.foreign.is_some() || rows.names()
    })
}

/// A record of any id, in use or not, or an announcement of one, which has no bytes.
fn record() -> impl Strategy<Value = u64> {
    let thread = 0..topology().ids() as u16 + 2;
    let epoch = prop_oneof![9 => 1u32..6, 1 => Just(Epoch::MAX.get())];
    let mask = prop_oneof![6 => Just(0xffu8), 1 => Just(0x0f), 1 => Just(0xf0)];
    let action = prop_oneof![4 => Just(Action::Read), 1 => Just(Action::Write)];
    let scope = prop_oneof![
        6 => Just(RecordScope::NotAtomic),
        1 => Just(RecordScope::Gpu),
        1 => Just(RecordScope::Cta),
    ];
    let announces = prop::bool::weighted(0.07);
    (thread, epoch, mask, action, scope, announces).prop_map(
        |(thread, epoch, mask, action, scope, announces)| {
            let access = CellAccess {
                thread: ThreadId(thread),
                epoch: Epoch::new(epoch).unwrap(),
                mask,
                action,
                scope,
                site: SiteId::UNKNOWN,
            };
            let record = access.record().bits();
            if announces {
                (record & !(0xff << bits::MASK_SHIFT)) | 1 << bits::WRITE_SHIFT
            } else {
                record
            }
        },
    )
}

/// The words of a cell, most of them full. The first may be a sync record.
fn cell() -> impl Strategy<Value = Vec<u64>> {
    let words = prop::collection::vec(prop_oneof![1 => Just(0), 5 => record()], 4);
    (words, prop::bool::weighted(0.15)).prop_map(|(mut words, syncs)| {
        if syncs {
            words[0] |= 1 << bits::SYNC_SHIFT;
        }
        words
    })
}

/// The cells of 16 aligned bytes, which often hold the same.
fn pair() -> impl Strategy<Value = Vec<Vec<u64>>> {
    (cell(), cell(), prop::bool::ANY).prop_map(|(one, other, alike)| {
        let other = if alike { one.clone() } else { other };
        vec![one, other]
    })
}

#[derive(Clone, Debug)]
struct Step {
    write: bool,
    /// The first granule of each element.
    elements: Vec<u64>,
    /// How many granules an element has.
    granules: u64,
}

fn step() -> impl Strategy<Value = Step> {
    let count = prop::sample::select(vec![1usize, 1, 1, 2, 3, 4, 8]);
    let pairs = count.prop_flat_map(|count| prop::collection::vec(0..GRANULES / 2, count));
    (prop::bool::weighted(0.2), pairs, 1u64..=2).prop_map(|(write, pairs, granules)| Step {
        write,
        elements: pairs.into_iter().map(|pair| 2 * pair).collect(),
        granules,
    })
}

fn agree<const S: usize>(
    records: Records,
    frontier: &Frontier,
    cells: &[Vec<u64>],
    steps: &[Step],
) {
    let space = AddressSpace::new(SPACE_BASE, RESERVE, records).unwrap();
    let [global, other] = [0, 1].map(|rank| {
        let mut global = GlobalState::new(&Shape {
            topology: topology(),
            rank: DeviceRank(rank),
            publications: 16,
            snapshot_bytes: 1 << 16,
            private_bytes: 1 << 16,
            seed: SEED,
            space,
            state_base: STATE,
        })
        .unwrap();
        global.constants.race_ring = RING;
        global
    });
    let mut machine = Machine::of(Driver::new(records), global);
    // Races name the other side's history.
    let far = STATE + STATE_STRIDE;
    machine.driver.map(far, 1 << 30).write(far, &words(&other));
    let halves = |row: &[u32]| -> Vec<u64> {
        let pairs = row
            .chunks(2)
            .map(|pair| u64::from(pair[0]) | u64::from(pair.get(1).copied().unwrap_or(0)) << 32);
        pairs.collect()
    };
    machine
        .driver
        .map(ROWS, 1 << 16)
        .write(ROWS, &halves(&frontier.own));
    if let Some(row) = &frontier.foreign {
        let entries = FOREIGN_ROW + size_of::<RowHeader>() as u64;
        machine
            .driver
            .write(FOREIGN_ROW, &[1])
            .write(entries, &halves(row));
    }
    for (bank, row) in (0u64..).zip(&frontier.named) {
        let Some(row) = row else { continue };
        let at = NAMED_ROWS + 64 * bank;
        machine
            .driver
            .write(at, &halves(row))
            .write(TABLE_OF_ROWS + 8 * bank, &[at]);
    }
    machine.launch_with(1, 0, |launch| {
        launch.own_row = ROWS;
        launch.foreign_row = FOREIGN_ROW;
        launch.named_rows = if frontier.names() { TABLE_OF_ROWS } else { 0 };
    });
    machine.start(1, 0, 0);

    let shadow: Vec<AtomicU64> = cells
        .iter()
        .flat_map(|cell| cell[..S].iter().map(|&word| AtomicU64::new(word)))
        .collect();
    for (granule, cell) in (0u64..).zip(cells) {
        machine
            .driver
            .write_cell(&space, REAL + 8 * granule, &cell[..S]);
    }
    let mut losses = [0u64; Loss::COUNT];
    let mut races = 0u64;
    for step in steps {
        let elements = step.elements.iter();
        let elements: Vec<_> = elements.map(|first| (REAL + 8 * first, true)).collect();
        // Line 0 is unknown, so that the site is 0 in both.
        let bytes = 8 * step.granules as u32;
        machine
            .driver
            .place(0, 0)
            .tensor(STATE, step.write, (FILE, 0), bytes, &elements);
        let parts = step.elements.iter();
        for granule in parts.flat_map(|&first| first..first + step.granules) {
            let access = CellAccess {
                thread: ThreadId(0),
                epoch: Epoch::new(START).unwrap(),
                mask: 0xff,
                action: if step.write {
                    Action::Write
                } else {
                    Action::Read
                },
                scope: RecordScope::NotAtomic,
                site: SiteId::UNKNOWN,
            };
            let cell = Cell::<_, S>::of(&shadow, granule as usize).unwrap();
            let sampler = Sampler::new(SEED, REAL / 8 + granule);
            if let Some(loss) = cell.access(&access, frontier, sampler, |_| races += 1) {
                losses[loss as usize] += 1;
            }
        }
    }
    machine.driver.read_cells(&space, REAL, GRANULES);
    machine.exit(0);
    for loss in [Loss::ReadNotSampled, Loss::WriteEvicted] {
        let counts = STATE + offset_of!(GlobalState, losses) as u64;
        machine.driver.read(counts + 8 * loss as u64, 1);
    }
    let mut expected: Vec<u64> = shadow.iter().map(|word| word.load(Relaxed)).collect();
    expected.extend([Loss::ReadNotSampled, Loss::WriteEvicted].map(|loss| losses[loss as usize]));
    assert_eq!(machine.driver.answers(), expected);
    let _ = machine.told();
    assert_eq!(machine.found, races);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn rows_of_other_streams_order_as_the_core_says(
        frontier in frontier(),
        pairs in prop::collection::vec(pair(), GRANULES as usize / 2),
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let cells = pairs.concat();
        agree::<4>(Records::Four, &frontier, &cells, &steps);
        agree::<2>(Records::Two, &frontier, &cells, &steps);
    }
}
