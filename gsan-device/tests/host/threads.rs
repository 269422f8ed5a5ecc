//! CTAs at the same time, as host threads or fibres over one state.

use std::mem::offset_of;

use bytemuck::Zeroable;
use gsan_core::address::{AddressSpace, Records};
use gsan_core::compressed::topology::Topology;
use gsan_core::ids::DeviceRank;
use gsan_core::layout::{
    GlobalState, LaunchDescriptor, LaunchState, RaceRing, Shape, launch_flags,
};

use crate::driver::Driver;

const RESERVE: u64 = 1 << 20;
const SPACE_BASE: u64 = 1 << 36;
const REAL: u64 = SPACE_BASE + RESERVE / 2;
const STATE: u64 = 1 << 38;
const RING: u64 = 1 << 40;
const TABLE: u64 = RING + (1 << 16);
const FILE: u64 = RING + (2 << 16);
const DATA: u64 = REAL + 256;
const CTAS: u32 = 4;

const RELAXED: u32 = 1;
const RELEASE: u32 = 3;

fn words<T: bytemuck::Pod>(value: &T) -> Vec<u64> {
    let bytes = bytemuck::bytes_of(value).chunks_exact(8);
    bytes
        .map(|b| u64::from_le_bytes(b.try_into().unwrap()))
        .collect()
}

/// The table of launches and the index of the one there is.
const LAUNCH: (u64, u64) = (TABLE, 2 << launch_flags::INDEX_NUMBER_SHIFT | 1);

/// Sets a device up, with one launch.
fn set_up(driver: &mut Driver, publications: u32) {
    let records = driver.records();
    let mut global = GlobalState::new(&Shape {
        topology: Topology::new(1, CTAS, 2, 1).unwrap(),
        rank: DeviceRank(0),
        publications: 64,
        snapshot_bytes: 1 << 16,
        private_bytes: 1 << 16,
        seed: 7,
        space: AddressSpace::new(SPACE_BASE, RESERVE, records).unwrap(),
        state_base: STATE,
    })
    .unwrap();
    global.constants.race_ring = RING;
    global.publications = publications;
    let part = |offset: u32| STATE + u64::from(offset);
    let rows = part(global.offsets.rows);
    let launch = LaunchDescriptor {
        own_row: rows,
        foreign_row: rows + 256,
        own_done: rows + 1024,
        foreign_done: rows + 1280,
        state: part(global.offsets.launches) + size_of::<LaunchState>() as u64,
        slot_masks: part(global.offsets.slot_masks),
        number: 1,
        ctas: 1000,
        kernel: 1,
        ..Zeroable::zeroed()
    };
    let ring = RaceRing {
        capacity: 64,
        ..Zeroable::zeroed()
    };
    driver
        .map(SPACE_BASE, RESERVE)
        .map(STATE, 1 << 30)
        .map(RING, 3 << 16)
        .write(STATE, &words(&global))
        .write(FILE, &[u64::from_le_bytes(*b"kernel.p"), u64::from(b'y')])
        .write(RING, &words(&ring))
        .write(TABLE + 128, &words(&launch));
}

/// Runs the threads; says how often each word of the data was added to, and how many races were told.
fn locked(
    mut driver: Driver,
    publications: u32,
    unlocks: u32,
    (rounds, mixed): (u32, bool),
) -> [u64; 2] {
    set_up(&mut driver, publications);
    driver
        .threads(
            STATE,
            LAUNCH,
            FILE,
            [REAL, REAL + 64, DATA],
            unlocks,
            (CTAS, rounds, mixed),
        )
        .read(DATA, 1)
        .read(RING, 1);
    driver.answers().try_into().unwrap()
}

#[test]
fn what_a_lock_protects_is_clean_however_small_the_ring_is() {
    for publications in [1, 4, 64] {
        for records in [Records::Two, Records::Four] {
            let [added, races] = locked(Driver::new(records), publications, RELEASE, (200, false));
            assert_eq!((added, races), (u64::from(CTAS) * 200, 0), "{publications}");
        }
    }
}

#[test]
fn a_lock_that_is_not_released_with_an_order_protects_nothing() {
    let [_, races] = locked(Driver::new(Records::Four), 64, RELAXED, (20, false));
    assert_ne!(races, 0);
}

#[test]
fn threads_share_nothing_but_atomics() {
    if !Driver::can_be_sanitized() {
        eprintln!("passed over: clang 19 with ThreadSanitizer is not installed");
        return;
    }
    // ThreadSanitizer ends the program with a failure if it has seen a race.
    for publications in [4, 64] {
        let [added, _] = locked(
            Driver::sanitized(Records::Four),
            publications,
            RELEASE,
            (100, true),
        );
        assert_eq!(added, u64::from(CTAS) * 100);
    }
}

/// CTAs of at most so many start together.
const SMALL_GRID: u64 = 2048;
/// In how many orders CTAs store.
const ROUNDS: u32 = 250;
/// Sizes of elements that are checked in different ways, and the lanes that have one.
const STORES: [(u32, u32); 8] = [
    (1, 1),
    (4, 1),
    (8, 1),
    (16, 1),
    (24, 1),
    (4, !0),
    (8, !0),
    (16, !0),
];

/// Stores of two CTAs of a grid of `grid`, which begin at `first`: in how many rounds races were told, and how
/// many granules were checked.
fn stored_at_once(
    records: Records,
    grid: u64,
    (bytes, lanes): (u32, u32),
    first: [u64; 2],
) -> [u64; 2] {
    let mut driver = Driver::with_lanes(records, 32);
    set_up(&mut driver, 64);
    for cta in 0..2 {
        driver
            .place(cta, cta.into())
            .init(STATE, LAUNCH.0, LAUNCH.1);
    }
    driver.stores_at_once(STATE, FILE, (grid, ROUNDS), (bytes, lanes), &first);
    for cta in 0..2 {
        driver.place(cta, cta.into()).exit(STATE);
    }
    driver.read(STATE + offset_of!(GlobalState, accesses) as u64, 1);
    driver.answers().try_into().unwrap()
}

/// How many granules two CTAs store to.
fn granules((bytes, lanes): (u32, u32)) -> u64 {
    let each = (bytes * lanes.count_ones()).div_ceil(8);
    (2 * ROUNDS * each).into()
}

#[test]
fn stores_of_a_small_grid_to_the_same_bytes_at_the_same_moment_are_told() {
    for records in [Records::Two, Records::Four] {
        for stores in STORES {
            let [told, checked] = stored_at_once(records, SMALL_GRID, stores, [REAL; 2]);
            assert_eq!(told, ROUNDS.into(), "{records:?}, {stores:?}");
            // A second look is no second access.
            assert_eq!(checked, granules(stores), "{stores:?}");
        }
    }
}

/// Without the second look some are missed: among the orders are those in which each looks before the other has
/// recorded anything.
#[test]
fn stores_of_a_large_grid_at_the_same_moment_may_be_missed() {
    for records in [Records::Two, Records::Four] {
        for bytes in [1, 4, 8, 16] {
            let [told, _] = stored_at_once(records, SMALL_GRID + 1, (bytes, 1), [REAL; 2]);
            assert!(
                (1..u64::from(ROUNDS)).contains(&told),
                "{bytes} bytes: {told}"
            );
        }
    }
}

#[test]
fn stores_of_a_small_grid_to_other_bytes_are_clean() {
    for records in [Records::Two, Records::Four] {
        // What two warps store that way does not fit into the memory of a round.
        for stores in STORES.into_iter().filter(|&stores| stores != (16, !0)) {
            let beside = REAL + u64::from(stores.0 * stores.1.count_ones());
            let clean = stored_at_once(records, SMALL_GRID, stores, [REAL, beside]);
            assert_eq!(clean, [0, granules(stores)], "{records:?}, {stores:?}");
        }
    }
}
