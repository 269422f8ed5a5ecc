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
use gsan_core::record::RecordScope;
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

/// A record of any id, in use or not.
fn record() -> impl Strategy<Value = u64> {
    let thread = 0..topology().ids() as u16 + 2;
    let epoch = prop_oneof![9 => 1u32..6, 1 => Just(Epoch::MAX.get())];
    let mask = prop_oneof![6 => Just(0xffu8), 1 => Just(0x0f), 1=>Just(0xf0)];
    let action = prop_oneof![4 => Just(Action::Read), 1 => Just(Action::Write)];
    let scope = prop_oneof![6=>Just(RecordScope::NotAtomic),1=>Just(RecordScope::Gpu),1=>Just(RecordScope::Cta)];
    let special = prop_oneof![14=>Just(0u8),1=>Just(1u8)];
    (thread, epoch, mask, action, scope, special).prop_map(
        |(thread, epoch, mask, action, scope, special)| {
            let access = CellAccess {
                thread: ThreadId(thread),
                epoch: Epoch::new(epoch).unwrap(),
                mask,
                action,
                scope,
                site: SiteId::UNKNOWN,
            };
            let bits = access.record().bits();
            // An announcement has no bytes.
            if special == 1 {
                (bits & !(0xff << 16)) | 1 << 27
            } else {
                bits
            }
        },
    )
}

/// The words of a cell, most of them full.
fn cell(words: usize) -> impl Strategy<Value = Vec<u64>> {
    (
        prop::collection::vec(prop_oneof![1 => Just(0), 5 => record()], words),
        prop::bool::weighted(0.15),
    )
        .prop_map(|(mut w, sync)| {
            if sync {
                w[0] |= 1 << 26;
            }
            w
        })
}

#[derive(Clone, Debug)]
struct Step {
    write: bool,
    elements: Vec<u64>,
    granules: u64,
}

fn step() -> impl Strategy<Value = Step> {
    let count = prop_oneof![3=>Just(1usize), 1=>Just(2), 1=>Just(4), 1=>Just(8), 1=>Just(3)];
    (
        prop::bool::weighted(0.2),
        count.prop_flat_map(|n| prop::collection::vec(0..GRANULES / 2, n)),
        1u64..=2,
    )
        .prop_map(|(write, pairs, granules)| Step {
            write,
            elements: pairs.into_iter().map(|p| 2 * p).collect(),
            granules,
        })
}

fn agree<const S: usize>(
    records: Records,
    frontier: &Frontier,
    cells: &[Vec<u64>],
    steps: &[Step],
    check_races: bool,
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
        let element: Vec<(u64, bool)> =
            step.elements.iter().map(|g| (REAL + 8 * g, true)).collect();
        // Line 0 is unknown, so that the site is 0 in both.
        let bytes = 8 * step.granules as u32;
        machine
            .driver
            .place(0, 0)
            .tensor(STATE, step.write, (FILE, 0), bytes, &element);
        for granule in step.elements.iter().flat_map(|&g| g..g + step.granules) {
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
    if check_races {
        let _ = machine.told();
        assert_eq!(machine.found, races);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn rows_of_other_streams_order_as_the_core_says(
        frontier in frontier(),
        cells in prop::collection::vec((cell(4), cell(4), prop::bool::ANY).prop_map(|(a,b,same)| if same {vec![a.clone(),a]} else {vec![a,b]}), GRANULES as usize / 2).prop_map(|v| v.concat()),
        steps in prop::collection::vec(step(), 1..40),
    ) {
        agree::<4>(Records::Four, &frontier, &cells, &steps, true);
        agree::<2>(Records::Two, &frontier, &cells, &steps, true);
    }
}
