//! Cells: the shadow of one granule, checked and updated by every access.
//!
//! A cell is `S` words (2 or 4) that are read together, checked, and then changed by at most one
//! store of a record and some stores of 0. There is no lock: each word is atomic, the cell as a
//! whole is not, and two accesses that change one word at the same time may lose a record to each
//! other, which loses a report.
//!
//! **Word 0** may hold a sync record and changes by compare-and-swap only. Ordinary records go
//! there only when the other words are taken, and never in the place of a sync record. A weak write
//! ends the release sequences of its bytes, but leaves the sync record as it is: a release or acquire
//! pattern of two accesses of one thread may span it. A strong read that then merges more than it
//! read hides no race unless the location itself has one: who writes weakly is ordered after the
//! release, and who reads what was written is ordered after that.
//!
//! **What a new record may replace.** Let `new` be ordered after `old` and touch all its bytes.
//! Every access that `old` could race with and that is not ordered after `new` races with `new`
//! as well, if `new` is a write or both are reads and if `new` is not atomic at a wider scope.
//! Then `old` is *superseded*: forgetting it loses nothing. A record that is ordered before and
//! covered, but not superseded, goes only when there is no empty word. When nothing of that kind
//! is there, a write evicts a read, or else a write; a read competes with the other reads for a
//! place ([`crate::reservoir`]), and where there are none it evicts a write that is ordered
//! before it.
//!
//! **What an atomic access observes.** By the observation order of the PTX memory model, the
//! atomic writes that a strong read saw come before everything the read comes before. So it
//! replaces or clears atomic writes of exactly its bytes, if both scopes cover both threads,
//! although no clock orders them.

mod strong;

pub use strong::Announced;

use core::sync::atomic::Ordering::Relaxed;

use crate::atomics::Atomic;
use crate::clock::Epoch;
use crate::event::Action;
use crate::ids::{SiteId, ThreadId};
use crate::loss::Loss;
use crate::race::RaceKind;
use crate::record::{Record, RecordFields, RecordScope, Word};
use crate::reservoir::Sampler;

/// What of the past is known to the one who makes an access.
pub trait Past {
    /// Whether an access that `thread` made at `epoch` is ordered before the current one.
    fn is_ordered(&self, thread: ThreadId, epoch: Epoch) -> bool;

    /// Whether `thread` is an id of the device that makes the current access.
    fn is_same_device(&self, thread: ThreadId) -> bool;
}

/// The part of an access that falls into one granule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CellAccess {
    /// Who.
    pub thread: ThreadId,
    /// When.
    pub epoch: Epoch,
    /// Which bytes; at least one.
    pub mask: u8,
    /// Read, write or both.
    pub action: Action,
    /// Whether it is atomic, and how far.
    pub scope: RecordScope,
    /// Where in the source.
    pub site: SiteId,
}

impl CellAccess {
    /// The record it leaves. An access that reads and writes leaves a write.
    #[inline]
    pub const fn record(&self) -> Record {
        Record::new(RecordFields {
            thread: self.thread,
            epoch: self.epoch,
            mask: self.mask,
            write: self.action.writes(),
            scope: self.scope,
            site: self.site,
        })
    }

    /// The race with `earlier`, with which it conflicts: one of the two writes.
    #[cold]
    fn conflict(&self, earlier: Record) -> Conflict {
        Conflict {
            earlier,
            kind: match (earlier.write(), self.action.reads()) {
                (false, _) => RaceKind::WriteAfterRead,
                (true, true) => RaceKind::ReadAfterWrite,
                (true, false) => RaceKind::WriteAfterWrite,
            },
            mask: earlier.mask() & self.mask,
        }
    }

    /// Whether every access that `earlier` could race with, and that is not ordered after the
    /// current one, races with the current one as well. `earlier` is ordered before it and
    /// covered by it, and a read unless the current one writes.
    #[inline]
    fn supersedes(&self, earlier: Record, past: &impl Past) -> bool {
        self.scope == RecordScope::NotAtomic
            || (self.scope <= earlier.scope() && past.is_same_device(earlier.thread()))
    }

    /// Whether both are atomic and each scope covers both threads.
    ///
    /// Threads of one CTA are ordered among themselves. So the question comes up for different
    /// CTAs only, which the scope of one CTA never covers.
    #[inline]
    fn cover_each_other(&self, earlier: Record, past: &impl Past) -> bool {
        match self.scope.min(earlier.scope()) {
            RecordScope::NotAtomic | RecordScope::Cta => false,
            RecordScope::Gpu => past.is_same_device(earlier.thread()),
            RecordScope::Sys => true,
        }
    }
}

/// An earlier access that the current one races with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conflict {
    /// What was found in the cell.
    pub earlier: Record,
    /// What the current access did to it.
    pub kind: RaceKind,
    /// The bytes that both touch.
    pub mask: u8,
}

/// A short fingerprint of a word: what the event of an atomic access keeps of each word from its
/// begin to its end.
#[inline]
pub const fn digest(word: u64) -> u16 {
    let folded = crate::reservoir::mix(word as u32 ^ crate::reservoir::mix((word >> 32) as u32));
    (folded >> 16) as u16
}

/// One cell in memory.
#[derive(Debug)]
pub struct Cell<'a, A, const S: usize> {
    words: &'a [A; S],
}

impl<A, const S: usize> Clone for Cell<'_, A, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A, const S: usize> Copy for Cell<'_, A, S> {}

impl<'a, A: Atomic<Value = u64>, const S: usize> Cell<'a, A, S> {
    /// The cell that consists of `words`.
    pub const fn new(words: &'a [A; S]) -> Self {
        const { assert!(S == 2 || S == 4) };
        Cell { words }
    }

    /// Cell number `index` of the shadow memory `shadow`, or `None` beyond its end.
    pub fn of(shadow: &'a [A], index: usize) -> Option<Self> {
        let words = shadow.get(index.checked_mul(S)?..)?.first_chunk()?;
        Some(Cell::new(words))
    }

    /// Word 0, which may hold a sync record.
    pub const fn sync_word(self) -> &'a A {
        &self.words[0]
    }

    /// Reads every word.
    #[inline]
    pub fn load(self) -> [u64; S] {
        core::array::from_fn(|index| self.words[index].load(Relaxed))
    }

    /// Checks an access against the cell and records it: an ordinary access, or a strong one that
    /// began and ends at once.
    ///
    /// Calls `race` for every record that it races with. Returns the limit that was met, if one
    /// was.
    #[inline]
    pub fn access(
        self,
        access: &CellAccess,
        past: &impl Past,
        sampler: Sampler,
        race: impl FnMut(Conflict),
    ) -> Option<Loss> {
        if access.scope != RecordScope::NotAtomic {
            self.strong(access, past, sampler, race)
        } else if access.action.writes() {
            self.weak::<true>(access, past, sampler, race)
        } else {
            self.weak::<false>(access, past, sampler, race)
        }
    }

    /// An ordinary access; `WRITES` says what its action does. It observes nothing, and supersedes
    /// what is ordered before it and covered, unless it reads and that is a write.
    #[inline(always)]
    fn weak<const WRITES: bool>(
        self,
        access: &CellAccess,
        past: &impl Past,
        sampler: Sampler,
        mut race: impl FnMut(Conflict),
    ) -> Option<Loss> {
        let words = self.load();
        let new = access.record().bits();
        let bytes = Word::bits_of_mask(access.mask);
        let others = Word::bits_of_mask(!access.mask);
        let conflicts = |record: Record| WRITES || record.write();
        let is_ordered = |record: Record| past.is_ordered(record.thread(), record.epoch());
        let mut equal = false;
        for &word in &words {
            equal |= word == new;
        }
        if equal {
            // Nothing is stored: only conflicts count.
            for &word in &words {
                let record = Record::from_bits(word);
                let meets = word & bytes != 0 && word != new && conflicts(record);
                if meets && !Word::is_sync(word) && !is_ordered(record) {
                    race(access.conflict(record));
                }
            }
            return None;
        }
        let (mut free, mut superseded) = (0, 0);
        for (index, &word) in words.iter().enumerate() {
            if word & bytes == 0 {
                free |= u8::from(word == 0) << index;
                continue;
            }
            if index == 0 && Word::is_sync(word) {
                continue;
            }
            let record = Record::from_bits(word);
            if is_ordered(record) {
                let stands_for = word & others == 0 && (WRITES || !record.write());
                superseded |= u8::from(stands_for) << index;
            } else if conflicts(record) {
                race(access.conflict(record));
            }
        }
        free |= superseded;
        let Some(target) = first(free & !1).or(first(free)) else {
            return self.evict(words, access, past, sampler);
        };
        self.replace(target, words[0], new);
        if WRITES {
            self.clear(words[0], superseded & !(1 << target));
        }
        None
    }

    /// No word is free: one gives way, or the access is not recorded.
    #[cold]
    fn evict(
        self,
        words: [u64; S],
        access: &CellAccess,
        past: &impl Past,
        sampler: Sampler,
    ) -> Option<Loss> {
        match victim(words, access, past, sampler) {
            Ok((target, met)) => {
                self.replace(target, words[0], access.record().bits());
                Some(met)
            }
            Err(met) => Some(met),
        }
    }

    /// Out of line, to leave the registers to ordinary accesses.
    #[inline(never)]
    fn strong(
        self,
        access: &CellAccess,
        past: &impl Past,
        sampler: Sampler,
        race: impl FnMut(Conflict),
    ) -> Option<Loss> {
        let words = self.load();
        let survey = survey(&words, access, past, ALL, false, race);
        self.update(words, &survey, access, past, sampler)
    }

    /// Changes the cell as the access requires.
    #[inline]
    fn update(
        self,
        words: [u64; S],
        survey: &Survey,
        access: &CellAccess,
        past: &impl Past,
        sampler: Sampler,
    ) -> Option<Loss> {
        let writes = access.action.writes();
        if survey.equal {
            self.clear(words[0], survey.observed);
            return None;
        }
        let free = survey.superseded | survey.observed | empty(&words);
        let mut loss = None;
        let target = match first(free & !1).or(first(free)).or(first(survey.covered)) {
            Some(target) => target,
            None => match victim(words, access, past, sampler) {
                Ok((target, met)) => {
                    loss = Some(met);
                    target
                }
                Err(met) => return Some(met),
            },
        };
        self.replace(target, words[0], access.record().bits());
        let superseded = if writes { survey.superseded } else { 0 };
        self.clear(words[0], (survey.observed | superseded) & !(1 << target));
        loss
    }

    /// Empties the words of `which`. `first_word` is what word 0 held.
    #[inline]
    fn clear(self, first_word: u64, mut which: u8) {
        while let Some(index) = first(which) {
            self.replace(index, first_word, 0);
            which &= which - 1;
        }
    }

    /// Writes word `index`. Word 0 stays as it is if it does not hold `first_word` any more.
    #[inline]
    fn replace(self, index: usize, first_word: u64, new: u64) {
        if index == 0 {
            // A change in between wins: its record is as good as this one.
            let _ = self.words[0].compare_exchange(first_word, new, Relaxed, Relaxed);
        } else {
            self.words[index].store(new, Relaxed);
        }
    }
}

/// Every word of a cell.
const ALL: u8 = u8::MAX;

/// What a pass over the words of a cell found; a bit for each word.
#[derive(Clone, Copy, Debug, Default)]
struct Survey {
    /// The access's own record is there.
    equal: bool,
    /// Forgetting the record loses nothing.
    superseded: u8,
    /// An atomic write that the access observed.
    observed: u8,
    /// The record is ordered before and covered, but not superseded.
    covered: u8,
}

/// Looks at every word for a strong access, and checks those of `checked`. `removes`: what it observed and
/// supersedes goes, ordered or not; so that is not looked up.
#[inline]
fn survey<const S: usize>(
    words: &[u64; S],
    access: &CellAccess,
    past: &impl Past,
    checked: u8,
    removes: bool,
    mut race: impl FnMut(Conflict),
) -> Survey {
    let new = access.record().bits();
    let bytes = Word::bits_of_mask(access.mask);
    let mut survey = Survey::default();
    // What the bits alone say, without a branch: most words are empty, or about other bytes, or
    // the record of the same access.
    let mut met = 0;
    for (index, &word) in words.iter().enumerate() {
        survey.equal |= word == new;
        met |= u8::from(word & bytes != 0 && word != new) << index;
    }
    let writes = access.action.writes();
    while let Some(index) = first(met) {
        let bit = met & met.wrapping_neg();
        met ^= bit;
        let word = words[index];
        if Word::is_sync(word) {
            continue;
        }
        let record = Record::from_bits(word);
        let conflicts = writes || record.write();
        let atomic = access.cover_each_other(record, past);
        let observes =
            atomic && access.action.reads() && record.write() && record.mask() == access.mask;
        if survey.equal && !observes && (atomic || !conflicts) {
            continue;
        }
        if removes && observes && !survey.equal && access.supersedes(record, past) {
            survey.observed |= bit;
        } else if past.is_ordered(record.thread(), record.epoch()) {
            if record.mask() & !access.mask != 0 {
                continue;
            }
            let stands_for = writes || !record.write();
            if stands_for && access.supersedes(record, past) {
                survey.superseded |= bit;
            } else if stands_for {
                survey.covered |= bit;
            }
        } else if observes {
            survey.observed |= bit;
        } else if conflicts && !atomic && checked & bit != 0 {
            race(access.conflict(record));
        }
    }
    survey
}

/// The words that hold nothing; a bit for each.
#[inline]
fn empty<const S: usize>(words: &[u64; S]) -> u8 {
    let bit = |(index, &word): (usize, &u64)| u8::from(word == 0) << index;
    words
        .iter()
        .enumerate()
        .map(bit)
        .fold(0, |all, bit| all | bit)
}

/// Which word gives way when none is free, or that the access is not recorded; either way, which
/// limit was met.
#[cold]
fn victim<const S: usize>(
    words: [u64; S],
    access: &CellAccess,
    past: &impl Past,
    sampler: Sampler,
) -> Result<(usize, Loss), Loss> {
    let records = || {
        let ordinary = |(index, &word)| Some((index, Word::from_bits(word).ordinary()?));
        words.iter().enumerate().filter_map(ordinary)
    };
    let largest = |write: bool, must_be_ordered: bool| {
        records()
            .filter(|(_, record)| record.write() == write)
            .filter(|(_, r)| !must_be_ordered || past.is_ordered(r.thread(), r.epoch()))
            .map(|(index, record)| (sampler.number(record), index))
            .max()
    };
    if access.action.writes() {
        let (_, index) = largest(false, false)
            .or_else(|| largest(true, false))
            .ok_or(Loss::WriteEvicted)?;
        return Ok((index, Loss::WriteEvicted));
    }
    if let Some((number, index)) = largest(false, false) {
        return if sampler.number(access.record()) < number {
            Ok((index, Loss::ReadNotSampled))
        } else {
            Err(Loss::ReadNotSampled)
        };
    }
    match largest(true, true) {
        Some((_, index)) => Ok((index, Loss::WriteEvicted)),
        None => Err(Loss::ReadNotSampled),
    }
}

/// The lowest bit of `mask`.
#[inline]
const fn first(mask: u8) -> Option<usize> {
    if mask == 0 {
        None
    } else {
        Some(mask.trailing_zeros() as usize)
    }
}

#[cfg(all(test, loom))]
mod models;

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicU64;
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::atomics::Native;
    use crate::ids::SiteId;
    use crate::record::{SyncFields, SyncRecord, Token};

    /// Thread ids below 100 are of device 0, others of device 1. An access is ordered before the
    /// current one if its thread and epoch are listed.
    #[derive(Default)]
    struct Known(BTreeSet<(u16, u32)>, u16);

    impl Past for Known {
        fn is_ordered(&self, thread: ThreadId, epoch: Epoch) -> bool {
            self.0.contains(&(thread.0, epoch.get()))
        }

        fn is_same_device(&self, thread: ThreadId) -> bool {
            (thread.0 < 100) == (self.1 < 100)
        }
    }

    struct Shadow<const S: usize>([AtomicU64; S]);

    impl<const S: usize> Shadow<S> {
        fn new() -> Self {
            Shadow([const { AtomicU64::new(0) }; S])
        }

        /// The races of `access`, and the loss it met. It knows its own epoch and `known`.
        fn access(
            &self,
            access: CellAccess,
            known: &[(u16, u32)],
        ) -> (Vec<Conflict>, Option<Loss>) {
            let mut past = Known(known.iter().copied().collect(), access.thread.0);
            past.0.insert((access.thread.0, access.epoch.get()));
            let mut races = Vec::new();
            let sampler = Sampler::new(1, 2);
            let loss = Cell::new(&self.0).access(&access, &past, sampler, |race| races.push(race));
            (races, loss)
        }

        fn words(&self) -> [u64; S] {
            Cell::new(&self.0).load()
        }

        fn holds(&self, access: CellAccess) -> bool {
            self.words().contains(&access.record().bits())
        }

        fn publish(&self, mask: u8) -> u64 {
            let sync = sync(mask);
            self.0[0].store(sync, Relaxed);
            sync
        }
    }

    fn sync(mask: u8) -> u64 {
        SyncRecord::new(SyncFields {
            publisher: ThreadId(9),
            mask,
            scope: RecordScope::Gpu,
            token: Token::new(77).unwrap(),
        })
        .bits()
    }

    fn access(thread: u16, mask: u8, action: Action, scope: RecordScope) -> CellAccess {
        CellAccess {
            thread: ThreadId(thread),
            epoch: Epoch::new(1).unwrap(),
            mask,
            action,
            scope,
            site: SiteId(thread as u32),
        }
    }

    fn read(thread: u16, mask: u8) -> CellAccess {
        access(thread, mask, Action::Read, RecordScope::NotAtomic)
    }

    fn write(thread: u16, mask: u8) -> CellAccess {
        access(thread, mask, Action::Write, RecordScope::NotAtomic)
    }

    fn rmw(thread: u16, mask: u8) -> CellAccess {
        access(thread, mask, Action::Rmw, RecordScope::Gpu)
    }

    #[test]
    fn a_cell_beyond_the_shadow_does_not_exist() {
        let shadow: Vec<AtomicU64> = crate::atomics::words(8, 0);
        assert!(Cell::<_, 4>::of(&shadow, 1).is_some());
        assert!(Cell::<_, 4>::of(&shadow, 2).is_none());
        assert!(Cell::<_, 4>::of(&shadow, usize::MAX).is_none());
        assert!(Cell::<_, 4>::of(&shadow[..7], 1).is_none());
    }

    #[test]
    fn two_writes_to_one_byte_race_and_neighbours_do_not() {
        let cell = Shadow::<4>::new();
        cell.access(write(1, 0b0000_0011), &[]);
        assert_eq!(cell.access(write(2, 0b0000_1100), &[]).0, []);
        let race = Conflict {
            earlier: write(1, 0b0000_0011).record(),
            kind: RaceKind::WriteAfterWrite,
            mask: 0b0000_0010,
        };
        assert_eq!(cell.access(write(3, 0b0011_0010), &[]).0, [race]);
    }

    #[test]
    fn an_ordered_access_never_races() {
        let cell = Shadow::<4>::new();
        cell.access(write(1, 0xff), &[]);
        assert_eq!(cell.access(read(2, 0xff), &[(1, 1)]).0, []);
        assert_eq!(cell.access(write(3, 0xff), &[(1, 1), (2, 1)]).0, []);
    }

    #[test]
    fn scopes_must_cover_both_threads() {
        use RecordScope::*;
        let races = |earlier: (u16, RecordScope), later: (u16, RecordScope)| {
            let cell = Shadow::<4>::new();
            cell.access(access(earlier.0, 1, Action::Red, earlier.1), &[]);
            let (races, _) = cell.access(access(later.0, 1, Action::Rmw, later.1), &[]);
            races.iter().map(|race| race.kind).collect::<Vec<_>>()
        };
        let race = [RaceKind::ReadAfterWrite];
        assert_eq!(races((1, Cta), (2, Gpu)), race);
        assert_eq!(races((1, Gpu), (2, Cta)), race);
        assert_eq!(races((1, Gpu), (2, Gpu)), []);
        assert_eq!(races((1, Gpu), (2, Sys)), []);
        assert_eq!(races((1, Gpu), (102, Gpu)), race);
        assert_eq!(races((1, Gpu), (102, Sys)), race);
        assert_eq!(races((1, Sys), (102, Sys)), []);
        assert_eq!(races((1, NotAtomic), (2, Sys)), race);
        assert_eq!(races((1, Sys), (2, NotAtomic)), race);
    }

    #[test]
    fn an_equal_record_is_stored_once() {
        let cell = Shadow::<4>::new();
        cell.access(read(1, 0xf), &[]);
        let before = cell.words();
        assert_eq!(cell.access(read(1, 0xf), &[]), (vec![], None));
        assert_eq!(cell.words(), before);
        assert_eq!(before.iter().filter(|&&word| word != 0).count(), 1);
    }

    #[test]
    fn a_write_replaces_what_it_supersedes_and_clears_the_rest() {
        let cell = Shadow::<4>::new();
        for thread in 1..=3 {
            cell.access(read(thread, 0x0f), &[]);
        }
        cell.access(write(4, 0xff), &[(1, 1), (2, 1), (3, 1)]);
        let mut words = cell.words();
        words.sort_unstable();
        assert_eq!(words, [0, 0, 0, write(4, 0xff).record().bits()]);
    }

    #[test]
    fn a_write_keeps_ordered_records_it_does_not_cover() {
        let cell = Shadow::<4>::new();
        cell.access(write(1, 0xff), &[]);
        cell.access(write(2, 0x0f), &[(1, 1)]);
        assert!(cell.holds(write(1, 0xff)) && cell.holds(write(2, 0x0f)));
    }

    #[test]
    fn an_atomic_takes_the_place_of_an_ordered_weak_write_only_when_no_word_is_empty() {
        let cell = Shadow::<2>::new();
        cell.access(write(1, 0xff), &[]);
        cell.access(rmw(1, 0xff), &[]);
        assert!(cell.holds(write(1, 0xff)) && cell.holds(rmw(1, 0xff)));
        assert_eq!(cell.access(rmw(2, 0xff), &[]).0.len(), 1);

        let cell = Shadow::<2>::new();
        cell.access(write(1, 0xff), &[]);
        cell.access(write(2, 0x0f), &[(1, 1)]);
        cell.access(rmw(3, 0x0f), &[(1, 1), (2, 1)]);
        assert!(cell.holds(write(1, 0xff)) && cell.holds(rmw(3, 0x0f)));
    }

    #[test]
    fn an_atomic_of_another_device_supersedes_nothing() {
        let cell = Shadow::<4>::new();
        cell.access(rmw(1, 0xff), &[]);
        cell.access(rmw(101, 0xff), &[(1, 1)]);
        assert!(cell.holds(rmw(1, 0xff)) && cell.holds(rmw(101, 0xff)));
    }

    #[test]
    fn word_0_is_used_last() {
        let cell = Shadow::<4>::new();
        for thread in 1..=3 {
            cell.access(read(thread, 1), &[]);
            assert_eq!(cell.words()[0], 0);
        }
        cell.access(read(4, 1), &[]);
        assert_eq!(cell.words()[0], read(4, 1).record().bits());
    }

    #[test]
    fn a_write_evicts_a_read_before_a_write() {
        let cell = Shadow::<4>::new();
        cell.access(write(1, 0x01), &[]);
        cell.access(read(2, 0x02), &[]);
        cell.access(write(3, 0x04), &[]);
        cell.access(write(4, 0x08), &[]);
        let met = cell.access(write(5, 0x10), &[]);
        assert_eq!(met, (vec![], Some(Loss::WriteEvicted)));
        assert!(!cell.holds(read(2, 0x02)) && cell.holds(write(5, 0x10)));
        let met = cell.access(write(6, 0x20), &[]);
        assert_eq!(met.1, Some(Loss::WriteEvicted));
        assert!(cell.holds(write(6, 0x20)));
    }

    #[test]
    fn a_read_evicts_a_write_only_if_that_is_ordered_and_no_read_is_there() {
        let fill = || {
            let cell = Shadow::<2>::new();
            cell.access(write(1, 0x01), &[]);
            cell.access(write(2, 0x02), &[]);
            cell
        };
        let cell = fill();
        assert_eq!(
            cell.access(read(3, 0x04), &[]).1,
            Some(Loss::ReadNotSampled)
        );
        assert!(cell.holds(write(1, 0x01)) && cell.holds(write(2, 0x02)));
        let cell = fill();
        assert_eq!(
            cell.access(read(3, 0x03), &[(2, 1)]).1,
            Some(Loss::WriteEvicted)
        );
        assert!(cell.holds(write(1, 0x01)) && cell.holds(read(3, 0x03)));
        cell.access(read(4, 0x01), &[(1, 1)]);
        assert!(cell.holds(write(1, 0x01)));
    }

    #[test]
    fn no_access_takes_bytes_off_a_sync_record() {
        let cell = Shadow::<2>::new();
        let published = cell.publish(0x0f);
        for step in [
            read(1, 0x0f),
            rmw(1, 0x0f),
            rmw(1, 0xf0),
            write(1, 0xf0),
            write(1, 0x03),
            write(1, 0xff),
        ] {
            cell.access(step, &[(1, 1)]);
            assert_eq!(cell.words()[0], published, "{step:?}");
        }
        assert!(cell.holds(write(1, 0xff)));
    }

    #[test]
    fn an_observed_atomic_write_is_forgotten() {
        let store = access(1, 0x0f, Action::Write, RecordScope::Gpu);
        let poll = access(2, 0x0f, Action::Read, RecordScope::Gpu);
        let cell = Shadow::<4>::new();
        cell.access(poll, &[]);
        cell.access(store, &[(2, 1)]);
        cell.access(poll, &[]);
        assert!(cell.holds(poll) && !cell.holds(store));
        // The last user resets the counter without being ordered after the others.
        let cell = Shadow::<4>::new();
        cell.access(rmw(1, 0x0f), &[]);
        cell.access(rmw(2, 0x0f), &[]);
        cell.access(rmw(3, 0x0f), &[]);
        assert_eq!(cell.access(write(3, 0x0f), &[]), (vec![], None));
    }

    #[test]
    fn an_atomic_write_of_other_bytes_or_too_small_a_scope_is_not_observed() {
        for later in [
            access(2, 0x03, Action::Read, RecordScope::Gpu),
            access(2, 0x0f, Action::Write, RecordScope::Gpu),
            access(2, 0x0f, Action::Read, RecordScope::Cta),
            access(102, 0x0f, Action::Read, RecordScope::Gpu),
            read(2, 0x0f),
        ] {
            let cell = Shadow::<4>::new();
            let store = access(1, 0x0f, Action::Write, RecordScope::Gpu);
            cell.access(store, &[]);
            cell.access(later, &[]);
            assert!(cell.holds(store), "{later:?}");
        }
    }

    fn begin<const S: usize>(cell: &Shadow<S>, access: CellAccess) -> Announced<S> {
        let past = Known([(access.thread.0, 1)].into(), access.thread.0);
        Cell::new(&cell.0).announce(&access, false, 0, &past, Sampler::new(1, 2))
    }

    fn end<const S: usize>(
        cell: &Shadow<S>,
        begin: &Announced<S>,
        access: CellAccess,
    ) -> Vec<Conflict> {
        let past = Known([(access.thread.0, 1)].into(), access.thread.0);
        let mut races = Vec::new();
        let sampler = Sampler::new(1, 2);
        Cell::new(&cell.0).finish::<Native>(begin, &access, false, &past, sampler, |race| {
            races.push(race)
        });
        races
    }

    #[test]
    fn the_end_of_an_atomic_checks_only_what_has_not_changed_since_its_begin() {
        let cell = Shadow::<4>::new();
        cell.access(write(1, 0x0f), &[]);
        let begun = begin(&cell, rmw(2, 0x0f));
        cell.access(access(3, 0x0f, Action::Write, RecordScope::Cta), &[(1, 1)]);
        let races = end(&cell, &begun, rmw(2, 0x0f));
        assert_eq!(races.len(), 1);
        assert_eq!(races[0].earlier, write(1, 0x0f).record());
        assert!(cell.holds(rmw(2, 0x0f)));
    }

    #[test]
    fn what_gives_way_to_an_announcement_is_checked_at_the_end() {
        let cell = Shadow::<2>::new();
        cell.access(write(1, 0x0f), &[]);
        let begun = begin(&cell, rmw(2, 0x0f));
        assert!(!cell.holds(write(1, 0x0f)));
        let races = end(&cell, &begun, rmw(2, 0x0f));
        assert_eq!(races[0].earlier, write(1, 0x0f).record());
        assert!(cell.holds(rmw(2, 0x0f)));
    }

    #[test]
    fn a_compare_and_swap_that_failed_puts_back_what_gave_way() {
        let cell = Shadow::<2>::new();
        cell.access(write(1, 0xf0), &[]);
        let begun = begin(&cell, rmw(2, 0x0f));
        assert!(!cell.holds(write(1, 0xf0)));
        let failed = access(2, 0x0f, Action::FailedRmw, RecordScope::Gpu);
        assert_eq!(end(&cell, &begun, failed), []);
        assert!(cell.holds(write(1, 0xf0)) && cell.holds(failed));
    }

    #[test]
    fn an_announcement_conflicts_with_nothing_and_is_removed_by_who_observes() {
        let cell = Shadow::<4>::new();
        let late = begin(&cell, rmw(2, 0x0f));
        let observer = begin(&cell, rmw(3, 0x0f));
        assert_eq!(end(&cell, &observer, rmw(3, 0x0f)), []);
        assert_eq!(end(&cell, &late, rmw(2, 0x0f)), []);
        assert!(!cell.holds(rmw(2, 0x0f)), "3 may have gone on");
        assert_eq!(cell.access(write(3, 0x0f), &[]), (vec![], None));
    }

    #[test]
    fn an_announcement_stays_when_others_observe_other_bytes() {
        // Lanes of one CTA, and CTAs whose elements are neighbours.
        for neighbour in [rmw(2, 0xf0), rmw(3, 0xf0)] {
            let cell = Shadow::<4>::new();
            let late = begin(&cell, rmw(2, 0x0f));
            let observer = begin(&cell, neighbour);
            assert_eq!(end(&cell, &observer, neighbour), []);
            assert_eq!(end(&cell, &late, rmw(2, 0x0f)), []);
            assert!(cell.holds(rmw(2, 0x0f)) && cell.holds(neighbour));
        }
    }

    #[test]
    fn a_strong_store_observes_nothing() {
        let cell = Shadow::<4>::new();
        let late = begin(&cell, rmw(2, 0x0f));
        let store = access(3, 0x0f, Action::Write, RecordScope::Gpu);
        let begun = begin(&cell, store);
        assert_eq!(end(&cell, &begun, store), []);
        assert_eq!(end(&cell, &late, rmw(2, 0x0f)), []);
        assert!(cell.holds(rmw(2, 0x0f)));
    }

    #[test]
    fn digests_differ_when_one_bit_does() {
        let word = 0x0123_4567_89ab_cdef;
        let same = (0..64).filter(|bit| digest(word ^ 1 << bit) == digest(word));
        assert_eq!(same.count(), 0);
    }

    fn action() -> impl Strategy<Value = Action> {
        prop::sample::select(vec![
            Action::Read,
            Action::Write,
            Action::Rmw,
            Action::FailedRmw,
            Action::Red,
        ])
    }

    fn any_access() -> impl Strategy<Value = CellAccess> {
        let scope = prop::sample::select(vec![
            RecordScope::NotAtomic,
            RecordScope::Cta,
            RecordScope::Gpu,
            RecordScope::Sys,
        ]);
        let mask = prop::sample::select(vec![0x01, 0x03, 0x0c, 0x0f, 0xf0, 0xff]);
        (0u16..6, 1u32..4, mask, action(), scope).prop_map(
            |(thread, epoch, mask, action, scope)| CellAccess {
                thread: ThreadId(thread * 30),
                epoch: Epoch::new(epoch).unwrap(),
                mask,
                action,
                scope,
                site: SiteId(epoch),
            },
        )
    }

    fn never_wrong<const S: usize>(
        steps: &[(CellAccess, Vec<(u16, u32)>)],
    ) -> Result<(), TestCaseError> {
        let cell = Shadow::<S>::new();
        let published = cell.publish(0xff);
        let mut past: Vec<Record> = Vec::new();
        for (access, known) in steps {
            let before = cell.words();
            let ordered = |record: Record| {
                let id = (record.thread().0, record.epoch().get());
                known.contains(&id) || id == (access.thread.0, access.epoch.get())
            };
            let (races, _) = cell.access(*access, known);
            for race in races {
                prop_assert!(past.contains(&race.earlier));
                prop_assert!(!ordered(race.earlier));
                prop_assert!(race.mask == race.earlier.mask() & access.mask && race.mask != 0);
                prop_assert!(race.earlier.write() || access.action.writes());
            }
            let after = cell.words();
            let lost = before
                .iter()
                .filter(|word| !after.contains(word))
                .filter_map(|&word| Word::from_bits(word).ordinary());
            for record in lost {
                let observed = access.scope != RecordScope::NotAtomic
                    && record.scope() != RecordScope::NotAtomic;
                prop_assert!(
                    !record.write() || access.action.writes() || ordered(record) || observed
                );
            }
            prop_assert_eq!(after[0], published);
            prop_assert!(
                after[1..]
                    .iter()
                    .all(|&word| Word::from_bits(word).sync().is_none())
            );
            past.push(access.record());
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn a_cell_only_accuses_what_happened_and_never_drops_a_write_for_an_unordered_read(
            steps in prop::collection::vec(
                (any_access(), prop::collection::vec((0u16..6, 1u32..4), 0..10)
                    .prop_map(|k| k.into_iter().map(|(t, e)| (t * 30, e)).collect::<Vec<_>>())),
                1..25,
            ),
        ) {
            never_wrong::<2>(&steps)?;
            never_wrong::<4>(&steps)?;
        }

        #[test]
        fn a_full_cell_keeps_the_same_readers_in_whatever_order_and_however_often_they_read(
            order in Just((1u16..=40).chain(1..=40).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let cell = Shadow::<4>::new();
            for thread in order {
                cell.access(read(thread, 1), &[]);
            }
            let sampler = Sampler::new(1, 2);
            let mut readers: Vec<Record> = (1..=40).map(|t| read(t, 1).record()).collect();
            readers.sort_by_key(|&record| sampler.number(record));
            let kept: BTreeSet<u64> = cell.words().into_iter().collect();
            let expected: BTreeSet<u64> = readers[..4].iter().map(|r| r.bits()).collect();
            prop_assert_eq!(kept, expected);
        }
    }
}
