//! The costs that decide how fast a checked program runs: one access to one cell, one merge.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use criterion::{Criterion, criterion_group, criterion_main};
use gsan_core::atomics::words;
use gsan_core::cell::{Cell, CellAccess, Past};
use gsan_core::clock::{ClockEntry, Epoch, merge_rows};
use gsan_core::event::Action;
use gsan_core::ids::{SiteId, ThreadId};
use gsan_core::record::RecordScope;
use gsan_core::reservoir::Sampler;

/// What a CTA knows: a frontier row, and itself from its start.
struct Known {
    frontier: Vec<u32>,
    thread: ThreadId,
    start: Epoch,
}

impl Past for Known {
    fn is_ordered(&self, thread: ThreadId, epoch: Epoch) -> bool {
        let entry = self
            .frontier
            .get(usize::from(thread.0))
            .copied()
            .unwrap_or(0);
        (thread == self.thread && epoch >= self.start) || ClockEntry::from_bits(entry).covers(epoch)
    }

    fn is_same_device(&self, _: ThreadId) -> bool {
        true
    }
}

/// 132 SMs with 16 slots.
const SLOTS: usize = 2112;

fn cells<const S: usize>(criterion: &mut Criterion) {
    let earlier = ClockEntry::all(Epoch::new(10).expect("small"));
    let past = Known {
        frontier: vec![earlier.bits(); SLOTS],
        thread: ThreadId(7),
        start: Epoch::new(11).expect("small"),
    };
    let access = |thread, epoch, action| CellAccess {
        thread: ThreadId(thread),
        epoch: Epoch::new(epoch).expect("small"),
        mask: 0xff,
        action,
        scope: RecordScope::NotAtomic,
        site: SiteId(3),
    };
    // As many cells as stay in the first-level cache.
    let shadow: Vec<AtomicU64> = words(256 * S, 0);
    let mut group = criterion.benchmark_group(format!("cell of {S}"));
    let mut each = |name, steps: &[CellAccess], ages: bool| {
        for word in &shadow {
            word.store(0, Relaxed);
        }
        let mut index = 0;
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                for step in steps {
                    let mut step = *step;
                    if ages {
                        step.epoch =
                            Epoch::new(11 + (index as u32 >> 8) % 0x10_0000).expect("24 bits");
                    }
                    let cell = Cell::<_, S>::of(&shadow, index % 256).expect("in the shadow");
                    let sampler = Sampler::new(1, index as u64);
                    let met = cell.access(black_box(&step), &past, sampler, |race| {
                        black_box(race);
                    });
                    black_box(met);
                }
                index += 1;
            });
        });
    };
    let old = [access(1, 5, Action::Read), access(2, 6, Action::Write)];
    let own = [Action::Read, Action::Write].map(|action| access(7, 11, action));
    each("read again", &own[..1], false);
    each(
        "write, then read by a later kernel",
        &[old[1], own[0]],
        false,
    );
    each(
        "read, then write by a later kernel",
        &[old[0], own[1]],
        false,
    );
    // Nothing is there already: each access replaces the records of the round before.
    each("read and write in a new epoch", &own, true);
    group.finish();
}

fn merges(criterion: &mut Criterion) {
    let row = |low: u32| -> Vec<u32> {
        (0..SLOTS as u32)
            .map(|slot| {
                let last = Epoch::new(low + slot * 7 % 300).expect("small");
                match slot % 5 {
                    0 => ClockEntry::EMPTY,
                    1 => ClockEntry::all(last),
                    _ => ClockEntry::closed(Epoch::new(low).expect("small"), last),
                }
                .bits()
            })
            .collect()
    };
    let source = row(1000);
    let mut target = row(1100);
    criterion.bench_function("merge of 2112 entries", |bencher| {
        bencher.iter(|| merge_rows(black_box(&mut target), black_box(&source)));
    });
}

criterion_group!(benches, cells::<2>, cells::<4>, merges);
criterion_main!(benches);
