//! Clock entries and sampling.

use gsan_core::address::Records;
use gsan_core::clock::{ClockEntry, Epoch};

use crate::driver::Driver;

/// Every entry of the epochs 0 to 7, and some at the ends of the ranges.
fn entries() -> Vec<ClockEntry> {
    let epoch = |value| Epoch::new(value).unwrap();
    let mut entries = vec![ClockEntry::EMPTY];
    let ends = [253, 254, 255, 256, 257, 511, 0xff_fffe, 0xff_ffff];
    let epochs: Vec<u32> = (1..8).chain(ends).collect();
    for &last in &epochs {
        entries.extend(
            epochs
                .iter()
                .map(|&first| ClockEntry::closed(epoch(first), epoch(last))),
        );
        entries.push(ClockEntry::all(epoch(last)));
    }
    entries
}

#[test]
fn entries_cover_the_same_epochs() {
    let epochs: Vec<u32> = (0..9)
        .chain([1, 2, 255, 256, 510, 0xff_fffe, 0xff_ffff])
        .collect();
    let mut driver = Driver::new(Records::Four);
    let mut expected = Vec::new();
    for entry in entries() {
        for &epoch in &epochs {
            driver.covers(entry.bits(), epoch);
            expected.push(u64::from(entry.covers(Epoch::new(epoch).unwrap())));
        }
    }
    assert_eq!(driver.answers(), expected);
}

#[test]
fn hulls_are_the_same() {
    let mut driver = Driver::new(Records::Four);
    let mut expected = Vec::new();
    for a in entries() {
        for b in entries() {
            driver.hull(a.bits(), b.bits());
            expected.push(u64::from(a.hull(b).bits()));
        }
    }
    assert_eq!(driver.answers(), expected);
}

/// The vectors of `gsan_core::reservoir`. In a record, the thread id is the lowest 16 bits and the
/// epoch the highest 24.
#[test]
fn readers_have_the_numbers_of_the_test_vectors() {
    let mut driver = Driver::new(Records::Four);
    driver.number(0, 0, 0).number(1, 2, 4 << 40 | 3).number(
        0xdead_beef,
        0x1ff_ffff_fff8,
        0xff_ffff << 40 | 0xffff,
    );
    assert_eq!(driver.answers(), [0, 0xfcd5_520c, 0x794a_409b]);
}
