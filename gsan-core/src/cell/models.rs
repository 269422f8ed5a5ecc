//! Concurrent accesses to one cell of two words, in every interleaving.
//!
//! Every model has a twin that must fail, because the words underneath lack one property of
//! atomic words, or because one ordering is left out.

use core::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};

use loom::sync::Arc;
use loom::thread;

use super::{Cell, CellAccess, Conflict, Past};
use crate::atomics::{Atomic, LoomU32, LoomU64};
use crate::clock::Epoch;
use crate::event::Action;
use crate::ids::{SiteId, ThreadId};
use crate::record::{RecordScope, SyncFields, SyncRecord, Token, Word};
use crate::reservoir::Sampler;

/// Runs `model` in every interleaving with at most three preemptions.
fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// A word whose compare-and-swap is a load and a store.
#[derive(Debug)]
struct Blind(LoomU64);

impl Atomic for Blind {
    type Value = u64;

    fn new(value: u64) -> Self {
        Blind(Atomic::new(value))
    }
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }
    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        _: Ordering,
        _: Ordering,
    ) -> Result<u64, u64> {
        let found = self.0.load(Ordering::Relaxed);
        if found != current {
            return Err(found);
        }
        self.0.store(new, Ordering::Relaxed);
        Ok(found)
    }
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.0.swap(value, order)
    }
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_add(value, order)
    }
    fn fetch_or(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_or(value, order)
    }
    fn fetch_and(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_and(value, order)
    }
    fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_max(value, order)
    }
}

/// A word that is written in two halves. Only what a cell does to an ordinary word works.
#[derive(Debug)]
struct Torn {
    low: LoomU32,
    high: LoomU32,
}

impl Atomic for Torn {
    type Value = u64;

    fn new(value: u64) -> Self {
        Torn {
            low: Atomic::new(value as u32),
            high: Atomic::new((value >> 32) as u32),
        }
    }
    fn load(&self, order: Ordering) -> u64 {
        u64::from(self.low.load(order)) | u64::from(self.high.load(order)) << 32
    }
    fn store(&self, value: u64, order: Ordering) {
        self.low.store(value as u32, order);
        self.high.store((value >> 32) as u32, order);
    }
    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        _: Ordering,
    ) -> Result<u64, u64> {
        let found = self.load(Ordering::Relaxed);
        if found != current {
            return Err(found);
        }
        self.store(new, success);
        Ok(found)
    }
    fn swap(&self, _: u64, _: Ordering) -> u64 {
        unimplemented!("cells do not swap words")
    }
    fn fetch_add(&self, _: u64, _: Ordering) -> u64 {
        unimplemented!("cells do not add to words")
    }
    fn fetch_or(&self, _: u64, _: Ordering) -> u64 {
        unimplemented!("cells do not set bits of words")
    }
    fn fetch_and(&self, _: u64, _: Ordering) -> u64 {
        unimplemented!("cells do not clear bits of words")
    }
    fn fetch_max(&self, _: u64, _: Ordering) -> u64 {
        unimplemented!("cells do not raise words")
    }
}

/// Nothing is ordered; all threads are of one device.
struct Nothing;

impl Past for Nothing {
    fn is_ordered(&self, _: ThreadId, _: Epoch) -> bool {
        false
    }
    fn is_same_device(&self, _: ThreadId) -> bool {
        true
    }
}

fn access(thread: u16, action: Action, mask: u8) -> CellAccess {
    CellAccess {
        thread: ThreadId(thread),
        epoch: Epoch::new(u32::from(thread)).expect("small"),
        mask,
        action,
        scope: RecordScope::NotAtomic,
        site: SiteId(u32::from(thread)),
    }
}

/// Makes the access and returns its races.
fn make<A: Atomic<Value = u64>>(words: &[A; 2], access: CellAccess) -> Vec<Conflict> {
    let mut races = Vec::new();
    Cell::new(words).access(&access, &Nothing, Sampler::new(0, 0), |race| {
        races.push(race)
    });
    races
}

fn sync(mask: u8, token: u64) -> SyncRecord {
    SyncRecord::new(SyncFields {
        publisher: ThreadId(9),
        mask,
        scope: RecordScope::Gpu,
        token: Token::new(token).expect("small"),
    })
}

/// What a release does to word 0: takes the sync record's bytes into its own.
fn publish<A: Atomic<Value = u64>>(word: &A, token: u64) {
    let mut found = word.load(Relaxed);
    loop {
        let mask = Word::from_bits(found).sync().map_or(0, SyncRecord::mask) | 0x0c;
        match word.compare_exchange(found, sync(mask, token).bits(), Release, Relaxed) {
            Ok(_) => return,
            Err(other) => found = other,
        }
    }
}

/// Two unordered accesses change the cell while a third one checks it.
fn only_real_accesses_are_accused<A: Atomic<Value = u64> + 'static>() {
    explore(|| {
        let words = Arc::new([A::new(0), A::new(0)]);
        let made = [
            access(0x0101, Action::Write, 0xff),
            access(0x0202, Action::Read, 0x0f),
        ];
        let others = made.map(|access| {
            let words = words.clone();
            thread::spawn(move || make(&words, access))
        });
        let races = make(&words, access(0x0303, Action::Write, 0xff));
        for race in races {
            let real = made.iter().any(|access| access.record() == race.earlier);
            assert!(real, "an access that nobody made is accused");
        }
        for other in others {
            other.join().expect("the thread ended");
        }
    });
}

#[test]
fn concurrent_accesses_accuse_only_what_was_accessed() {
    only_real_accesses_are_accused::<LoomU64>();
}

#[test]
#[should_panic = "an access that nobody made is accused"]
fn concurrent_accesses_to_words_written_in_halves_accuse_phantoms() {
    only_real_accesses_are_accused::<Torn>();
}

/// An access is recorded before anything that the program does after it: who sees a flag that was
/// raised after the access finds its record.
fn who_sees_the_flag_finds_the_record(raise: Ordering) {
    explore(move || {
        let words = Arc::new([LoomU64::new(0), LoomU64::new(0)]);
        let flag = Arc::new(LoomU64::new(0));
        let other = {
            let (words, flag) = (words.clone(), flag.clone());
            thread::spawn(move || {
                make(&words, access(1, Action::Write, 0xff));
                flag.store(1, raise);
            })
        };
        if flag.load(Acquire) == 1 {
            let races = make(&words, access(2, Action::Write, 0xff));
            assert_eq!(races.len(), 1, "the record was not found");
        }
        other.join().expect("the thread ended");
    });
}

#[test]
fn an_access_is_recorded_before_what_follows_it() {
    who_sees_the_flag_finds_the_record(Release);
}

#[test]
#[should_panic = "the record was not found"]
fn an_access_may_go_unseen_where_nothing_is_released() {
    who_sees_the_flag_finds_the_record(Relaxed);
}

/// Word 1 is taken, so that an ordinary access and a release both want word 0.
fn ordinary_records_leave_sync_records_alone<A: Atomic<Value = u64> + 'static>() {
    explore(|| {
        let words = Arc::new([A::new(0), A::new(0)]);
        make(&words, access(1, Action::Write, 0x0f));
        let release = {
            let words = words.clone();
            thread::spawn(move || publish(&words[0], 1))
        };
        make(&words, access(2, Action::Read, 0xf0));
        release.join().expect("the thread ended");
        let found = Word::from_bits(words[0].load(Relaxed));
        assert_eq!(found, Word::Sync(sync(0x0c, 1)), "the release is lost");
    });
}

#[test]
fn an_ordinary_record_never_overwrites_a_release() {
    ordinary_records_leave_sync_records_alone::<LoomU64>();
}

#[test]
#[should_panic = "the release is lost"]
fn an_ordinary_record_overwrites_a_release_without_compare_and_swap() {
    ordinary_records_leave_sync_records_alone::<Blind>();
}
