//! Write-once memory: each byte is written once, and read after that.

use std::collections::BTreeSet;

use gsan_core::address::{Records, granules};
use gsan_core::layout::limits;
use gsan_core::layout::race_codes::*;
use gsan_core::layout::{GlobalState, Site};
use gsan_core::loss::Loss;
use proptest::prelude::*;

use crate::driver::Copy;
use crate::launches::{FILE, Machine, REAL, SPACE_BASE, STATE};

/// Where write-once memory starts, in real memory.
const START: u64 = 0x8000;

/// CTAs on SMs 0 and 1 of one launch.
fn machine(records: Records) -> Machine {
    let mut machine = Machine::with(records, |global| {
        global.constants.write_once = REAL + START;
    });
    machine.launch(1, 0).start(1, 0, 0).start(1, 1, 1);
    machine
}

#[derive(Clone, Copy, Debug)]
struct Access {
    sm: u32,
    write: bool,
    offset: u64,
    bytes: u32,
}

fn access() -> impl Strategy<Value = Access> {
    let bytes = prop::sample::select(vec![1u32, 2, 4, 8, 16]);
    (0u32..2, any::<bool>(), 0u64..32, bytes).prop_map(|(sm, write, at, bytes)| Access {
        sm,
        write,
        offset: at / u64::from(bytes) * u64::from(bytes),
        bytes,
    })
}

/// A fault of its own kind, not a race: kind, line, granule, bytes.
type Fault = (u32, u32, u64, u8);

/// What a flag for each byte says of the accesses.
fn expected(accesses: &[Access]) -> BTreeSet<Fault> {
    let mut written = BTreeSet::new();
    let mut faults = BTreeSet::new();
    for (line, access) in (1..).zip(accesses) {
        for part in granules(access.offset, access.bytes.into()) {
            let mut mask = 0;
            for byte in (0..8).filter(|byte| part.mask >> byte & 1 == 1) {
                let was = !written.contains(&(part.granule + byte));
                if was != access.write {
                    mask |= 1 << byte;
                }
                if access.write {
                    written.insert(part.granule + byte);
                }
            }
            let kind = if access.write {
                WRITTEN_TWICE
            } else {
                READ_UNWRITTEN
            };
            if mask != 0 {
                faults.insert((kind, line, part.granule, mask));
            }
        }
    }
    faults
}

fn found(records: Records, accesses: &[Access]) -> BTreeSet<Fault> {
    let mut machine = machine(records);
    for (line, access) in (1..).zip(accesses) {
        let offset = START + access.offset;
        machine.access(access.sm, access.write, line, offset, access.bytes);
    }
    let sites = STATE + u64::from(machine.global.offsets.sites);
    let words = 4 * u64::from(limits::SITES);
    machine.driver.read(sites, words);
    let (entries, losses) = machine.told();
    assert_eq!(losses(Loss::RaceRingFull), 0);
    let sites = machine.driver.answers();
    let line = |site: u16| -> u32 {
        let site: Site = bytemuck::pod_read_unaligned(bytemuck::cast_slice(
            &sites[4 * usize::from(site)..][..4],
        ));
        site.line
    };
    let faults = entries
        .iter()
        .filter(|entry| u32::from(entry.kind) > WRITE_AFTER_WRITE);
    faults
        .map(|entry| {
            let granule = (entry.address - REAL - START) / 8 * 8;
            (
                entry.kind.into(),
                line(entry.later.site),
                granule,
                entry.mask,
            )
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn faults_are_those_that_a_flag_for_each_byte_finds(
        accesses in prop::collection::vec(access(), 1..12),
    ) {
        for records in [Records::Four, Records::Two] {
            prop_assert_eq!(found(records, &accesses), expected(&accesses), "{:?}", records);
        }
    }
}

const WRITE_FIRST: [(u32, bool); 2] = [(0, true), (0, false)];

#[test]
fn what_was_written_once_may_be_read_and_memory_before_it_may_be_written_often() {
    for records in [Records::Four, Records::Two] {
        let mut machine = machine(records);
        for (line, (sm, write)) in (1..).zip(WRITE_FIRST) {
            machine.access(sm, write, line, START, 16);
        }
        for line in 3..6 {
            machine.access(0, true, line, START - 16, 16);
        }
        assert_eq!(machine.kinds(), []);
    }
}

#[test]
fn a_second_write_names_the_first_and_is_no_race_besides() {
    for records in [Records::Four, Records::Two] {
        for by in [0, 1] {
            let mut machine = machine(records);
            machine.access(0, true, 1, START + 4, 4);
            machine.access(by, true, 2, START, 8);
            let (entries, _) = machine.told();
            let [entry] = entries[..] else {
                panic!("{entries:?}")
            };
            assert_eq!(u32::from(entry.kind), WRITTEN_TWICE);
            assert_eq!((entry.address, entry.mask), (REAL + START + 4, 0xf0));
            assert_eq!((entry.earlier.cta, entry.later.cta), (0, by));
            assert_eq!(
                (entry.earlier.flags, entry.earlier.action),
                (0, WRITE as u8)
            );
        }
    }
}

#[test]
fn races_are_found_there_too() {
    for records in [Records::Four, Records::Two] {
        let mut machine = machine(records);
        machine.access(0, true, 1, START, 8);
        machine.access(1, false, 2, START, 8);
        assert_eq!(machine.kinds(), [READ_AFTER_WRITE as u8]);
    }
}

#[test]
fn an_atomic_is_a_fault_of_its_own() {
    const RMW: (bool, bool) = (true, true);
    for records in [Records::Four, Records::Two] {
        for order in [1, 4] {
            let mut machine = machine(records);
            machine.access(0, true, 1, START, 8);
            let at = (REAL + START + 4, 4);
            machine.driver.place(0, 0);
            machine
                .driver
                .begin(1, STATE, at, true, (order, 1), (FILE, 2))
                .end(1, RMW, (order, 1), (FILE, 2));
            let (entries, _) = machine.told();
            let [entry] = entries[..] else {
                panic!("{entries:?}")
            };
            assert_eq!(u32::from(entry.kind), WRITE_ONCE_ATOMIC);
            assert_eq!((entry.address, entry.mask), (REAL + START + 4, 0xf0));
            assert_eq!(entry.earlier.action, 0);
        }
    }
}

/// Copies of tensors do not take the common way there either, and reductions are atomics.
#[test]
fn copies_of_tensors_are_checked_as_well() {
    let kinds = [
        (Copy::Store, &[][..]),
        (Copy::Load, &[READ_UNWRITTEN][..]),
        (Copy::Reduce, &[WRITE_ONCE_ATOMIC][..]),
    ];
    for (kind, expected) in kinds {
        let mut machine = machine(Records::Four);
        let map = FILE + 128;
        let base = REAL + START;
        let mut words = [0; 16];
        // A row of 16 words.
        words[0] = base;
        words[4] = 15;
        machine.driver.write(map, &words).copy_box(
            kind,
            [STATE, map],
            (FILE, 1),
            (4, 1),
            (&[0], &[16]),
            &[(0, 0)],
        );
        let told: BTreeSet<u32> = machine.kinds().into_iter().map(u32::from).collect();
        assert_eq!(told, expected.iter().copied().collect(), "{kind:?}");
    }
}

/// After a restart the shadow is all ones.
#[test]
fn what_was_forgotten_is_no_fault() {
    let mut machine = machine(Records::Four);
    let shadow = SPACE_BASE + START * 4;
    machine.driver.write(shadow, &[u64::MAX; 64]);
    for (line, (sm, write)) in (1..).zip([(0, false), (1, true), (0, true), (1, false)]) {
        machine.access(sm, write, line, START, 16);
    }
    assert_eq!(machine.kinds(), []);
}

#[test]
fn each_fault_halts_with_its_own_message() {
    let halted = |change: fn(&mut Machine)| {
        let mut machine = machine(Records::Four);
        machine.global.flags = limits::HALT_ON_RACE;
        let flags = STATE + core::mem::offset_of!(GlobalState, flags) as u64;
        let at = flags / 8 * 8;
        let words: &[u64] = &bytemuck::cast_slice(bytemuck::bytes_of(&machine.global))
            [(at - STATE) as usize / 8..][..1];
        machine.driver.write(at, words);
        change(&mut machine);
        let failure = std::panic::catch_unwind(|| machine.driver.answers()).unwrap_err();
        failure.downcast_ref::<String>().unwrap().clone()
    };
    let twice = halted(|machine| {
        machine.access(0, true, 1, START, 8);
        machine.access(0, true, 2, START, 8);
    });
    let expected = "kernel.py:2: Assertion `Write-once memory written more than once` failed.";
    assert!(twice.contains(expected), "{twice}");
    let unwritten = halted(|machine| {
        machine.access(0, false, 3, START, 8);
    });
    let expected =
        "kernel.py:3: Assertion `Read of write-once memory before its first write` failed.";
    assert!(unwritten.contains(expected), "{unwritten}");
    let atomic = halted(|machine| {
        machine.driver.place(0, 0);
        let at = (REAL + START, 4);
        machine.driver.begin(1, STATE, at, true, (1, 1), (FILE, 4));
        machine.driver.end(1, (true, true), (1, 1), (FILE, 4));
    });
    let expected = "kernel.py:4: Assertion `Atomic operations on write-once memory are not \
                    supported` failed.";
    assert!(atomic.contains(expected), "{atomic}");
}
