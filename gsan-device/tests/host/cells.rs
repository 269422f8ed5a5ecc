//! Cells: verdicts and the words that are left, bit by bit.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use gsan_core::address::Records;
use gsan_core::cell::{Cell, CellAccess, Past};
use gsan_core::clock::{ClockEntry, Epoch};
use gsan_core::event::Action;
use gsan_core::ids::{SiteId, ThreadId};
use gsan_core::layout::race_codes::{READ, WRITE};
use gsan_core::loss::Loss;
use gsan_core::record::{RecordScope, SyncFields, SyncRecord, Token};
use gsan_core::reservoir::Sampler;
use proptest::prelude::*;

use crate::driver::Driver;

/// As the driver has it: entries by thread, and thread ids below 100 of one device.
struct Known<'a>(ThreadId, &'a [(u16, u32)]);

impl Past for Known<'_> {
    fn is_ordered(&self, thread: ThreadId, epoch: Epoch) -> bool {
        let entry = |&(known, entry): &(u16, u32)| {
            known == thread.0 && ClockEntry::from_bits(entry).covers(epoch)
        };
        self.1.iter().any(entry)
    }

    fn is_same_device(&self, thread: ThreadId) -> bool {
        (thread.0 < 100) == (self.0.0 < 100)
    }
}

#[derive(Clone, Debug)]
struct Step {
    access: CellAccess,
    known: Vec<(u16, u32)>,
    /// What word 0 is set to before: a sync record of these bytes.
    sync: Option<u8>,
}

fn threads() -> impl Strategy<Value = u16> {
    prop_oneof![0u16..5, 98u16..103]
}

fn step() -> impl Strategy<Value = Step> {
    let action = prop::sample::select(vec![Action::Read, Action::Write, Action::Rmw]);
    let scope = prop::sample::select(vec![
        RecordScope::NotAtomic,
        RecordScope::NotAtomic,
        RecordScope::Cta,
        RecordScope::Gpu,
        RecordScope::Sys,
    ]);
    let masks = prop::sample::select(vec![0xffu8, 0x0f, 0xf0, 0x03, 0x30, 0x81]);
    let access = (threads(), 1u32..6, masks, action, scope, 0u32..3).prop_map(
        |(thread, epoch, mask, action, scope, site)| CellAccess {
            thread: ThreadId(thread),
            epoch: Epoch::new(epoch).unwrap(),
            mask,
            action,
            scope,
            site: SiteId(site),
        },
    );
    let entry = (1u32..6, 1u32..6).prop_map(|(first, last)| {
        ClockEntry::closed(Epoch::new(first).unwrap(), Epoch::new(last).unwrap()).bits()
    });
    let known = prop::collection::vec((threads(), entry), 0..12);
    let sync = prop::option::weighted(0.1, prop::sample::select(vec![0xffu8, 0x0f, 0x81]));
    (access, known, sync).prop_map(|(access, known, sync)| Step {
        access,
        known,
        sync,
    })
}

fn agree<const S: usize>(records: Records, seed: u32, granule: u64, steps: &[Step]) {
    let memory = [const { AtomicU64::new(0) }; S];
    let sampler = Sampler::new(seed, granule);
    let mut driver = Driver::new(records);
    let mut expected = Vec::new();
    for Step {
        access,
        known,
        sync,
    } in steps
    {
        if let &Some(mask) = sync {
            let record = SyncRecord::new(SyncFields {
                publisher: ThreadId(1),
                mask,
                scope: RecordScope::Gpu,
                token: Token::new(77).unwrap(),
            });
            memory[0].store(record.bits(), Relaxed);
        }
        let cell = Cell::new(&memory);
        let words = cell.load();
        let action = match access.action {
            Action::Read => READ,
            Action::Write => WRITE,
            _ => READ | WRITE,
        };
        driver.cell(
            (seed, granule),
            (access.record().bits(), action),
            known,
            &words,
        );
        let mut racing = 0;
        let loss = cell.access(access, &Known(access.thread, known), sampler, |race| {
            for (index, &word) in words.iter().enumerate() {
                racing |= u64::from(word == race.earlier.bits()) << index;
            }
        });
        expected.push(racing);
        expected.push(loss.map_or(Loss::COUNT as u64, |loss| loss as u64));
        expected.extend(cell.load());
    }
    assert_eq!(driver.answers(), expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn device_code_does_to_cells_what_the_core_does(
        seed: u32,
        granule in 0u64..1 << 45,
        steps in prop::collection::vec(step(), 1..300),
    ) {
        agree::<4>(Records::Four, seed, granule, &steps);
        agree::<2>(Records::Two, seed, granule, &steps);
    }
}
