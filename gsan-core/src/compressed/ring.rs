//! The state word of a ring entry: who may write it, and whether what was read is whole.
//!
//! Entry `index` of an endless sequence lies at `index % len`. Its state is *complete(index)* or
//! *writing(index)*. A writer claims the entry by compare-and-swap from *complete* of an older
//! index to *writing* of its own; if the former writer has not finished, or a newer one has
//! come, the claim fails. A reader looks at the state before and after it reads the fields (a
//! sequence lock: Boehm, "Can seqlocks get along with programming language memory models?",
//! MSPC 2012). The look before is not needed where the index was named by whoever had written the
//! fields before, with a release and an acquire between.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::atomics::{Atomic, Essential, Memory};
use crate::layout::entry::WRITING;

/// The state word of one entry. 0 is an entry that was never written.
#[derive(Debug)]
pub(super) struct EntryState<'m, M: Memory>(pub(super) &'m M::U64);

impl<M: Memory> Clone for EntryState<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Memory> Copy for EntryState<'_, M> {}

const fn complete(index: u64) -> u64 {
    (index + 1) << 1
}

const fn writing(index: u64) -> u64 {
    complete(index) | WRITING
}

impl<M: Memory> EntryState<'_, M> {
    /// Claims the entry for `index`. Whoever got it writes the fields with relaxed stores and then
    /// calls [`Self::complete`].
    pub(super) fn claim(self, index: u64) -> bool {
        let found = self.0.load(Relaxed);
        let claimed = found & WRITING == 0
            && found < complete(index)
            && self
                .0
                .compare_exchange(found, writing(index), Acquire, Relaxed)
                .is_ok();
        // Whoever reads one of the new fields sees, after its own fence, that the state changed.
        M::fence(Release);
        claimed
    }

    /// The fields are written.
    pub(super) fn complete(self, index: u64) {
        let order = M::order(Essential::EntryFilled, Release);
        self.0.store(complete(index), order);
    }

    /// Whether the entry holds the fields of `index`, so that they may be read.
    pub(super) fn is_complete(self, index: u64) -> bool {
        self.0.load(Acquire) == complete(index)
    }

    /// Whether the fields read since [`Self::is_complete`] are those of `index`.
    pub(super) fn is_still_complete(self, index: u64) -> bool {
        M::fence(Acquire);
        !M::keeps(Essential::EntryStillThere) || self.0.load(Relaxed) == complete(index)
    }

    /// The same for an index that was named once its fields were written.
    pub(super) fn is_still_written(self, index: u64) -> bool {
        M::fence(Acquire);
        !M::keeps(Essential::EntryStillThere) || self.0.load(Relaxed) & !WRITING == complete(index)
    }

    /// The index that is complete, if one is; for entries named by a part of their index.
    pub(super) fn index(self) -> Option<u64> {
        let state = self.0.load(Relaxed);
        if state == 0 || state & WRITING != 0 {
            None
        } else {
            Some((state >> 1) - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::atomics::Native;
    use core::sync::atomic::AtomicU64;

    #[test]
    fn an_entry_is_claimed_only_from_complete_and_only_by_a_newer_index() {
        let word = AtomicU64::new(0);
        let entry = EntryState::<Native>(&word);
        assert_eq!(entry.index(), None);
        assert!(entry.claim(8));
        assert!(!entry.claim(16), "the writer of 8 has not finished");
        assert!(!entry.is_complete(8));
        entry.complete(8);
        assert!(entry.is_complete(8) && entry.is_still_complete(8));
        assert_eq!(entry.index(), Some(8));
        assert!(!entry.claim(8), "already written");
        assert!(!entry.claim(0), "a newer one has come");
        assert!(entry.claim(16));
        assert!(!entry.is_still_complete(8));
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;
    use crate::atomics::{Broken, Loom};

    /// A reader of entry 0 while a writer laps it: what it accepts is whole.
    fn a_lapped_entry_is_recognised<M: Memory<U32: 'static, U64: 'static>>() {
        loom::model(|| {
            let entry = Arc::new((M::U64::new(complete(0)), M::U64::new(0), M::U64::new(0)));
            let other = entry.clone();
            let reader = thread::spawn(move || {
                for index in [2, 0] {
                    let state = EntryState::<M>(&other.0);
                    if state.is_complete(index) {
                        let fields = (other.1.load(Relaxed), other.2.load(Relaxed));
                        if state.is_still_complete(index) {
                            assert_eq!(fields, (index, index), "a torn entry was accepted");
                        }
                    }
                }
            });
            let state = EntryState::<M>(&entry.0);
            if state.claim(2) {
                entry.1.store(2, Relaxed);
                entry.2.store(2, Relaxed);
                state.complete(2);
            }
            reader.join().unwrap();
        });
    }

    #[test]
    fn an_entry_lapped_while_it_is_read_is_not_accepted() {
        a_lapped_entry_is_recognised::<Loom>();
    }

    #[test]
    #[should_panic(expected = "a torn entry was accepted")]
    fn an_entry_completed_too_early_is_torn() {
        a_lapped_entry_is_recognised::<Broken<{ Essential::EntryFilled as u8 }>>();
    }

    #[test]
    #[should_panic(expected = "a torn entry was accepted")]
    fn an_entry_not_looked_at_again_is_torn() {
        a_lapped_entry_is_recognised::<Broken<{ Essential::EntryStillThere as u8 }>>();
    }

    /// A reader of entry 0, which its writer names once the fields are written, while another
    /// writer laps it.
    fn a_named_entry_is_read_whole<M: Memory<U32: 'static, U64: 'static>>() {
        loom::model(|| {
            let entry = Arc::new([0; 4].map(M::U64::new));
            let other = entry.clone();
            let reader = thread::spawn(move || {
                let [state, first, second, name] = &*other;
                if name.load(Acquire) != 0 {
                    let fields = (first.load(Relaxed), second.load(Relaxed));
                    if EntryState::<M>(state).is_still_written(0) {
                        assert_eq!(fields, (7, 7), "a torn entry was accepted");
                    }
                }
            });
            let [state, first, second, name] = &*entry;
            let state = EntryState::<M>(state);
            assert!(state.claim(0));
            first.store(7, Relaxed);
            second.store(7, Relaxed);
            let order = M::order(Essential::EntryFilled, Release);
            name.store(1, order);
            state.complete(0);
            assert!(state.claim(2));
            first.store(2, Relaxed);
            second.store(2, Relaxed);
            state.complete(2);
            reader.join().unwrap();
        });
    }

    #[test]
    fn an_entry_that_was_named_needs_one_look() {
        a_named_entry_is_read_whole::<Loom>();
    }

    #[test]
    #[should_panic(expected = "a torn entry was accepted")]
    fn an_entry_named_too_early_is_torn() {
        a_named_entry_is_read_whole::<Broken<{ Essential::EntryFilled as u8 }>>();
    }

    #[test]
    #[should_panic(expected = "a torn entry was accepted")]
    fn an_entry_that_was_named_and_not_looked_at_is_torn() {
        a_named_entry_is_read_whole::<Broken<{ Essential::EntryStillThere as u8 }>>();
    }

    /// Two writers one lap apart: their fields do not mix.
    #[test]
    fn two_writers_of_one_entry_do_not_mix() {
        loom::model(|| {
            let entry = Arc::new((
                <Loom as Memory>::U64::new(0),
                <Loom as Memory>::U64::new(0),
                <Loom as Memory>::U64::new(0),
            ));
            let write = |entry: &(
                <Loom as Memory>::U64,
                <Loom as Memory>::U64,
                <Loom as Memory>::U64,
            ),
                         index: u64| {
                let state = EntryState::<Loom>(&entry.0);
                if state.claim(index) {
                    entry.1.store(index, Relaxed);
                    entry.2.store(index, Relaxed);
                    state.complete(index);
                }
            };
            let other = entry.clone();
            let writer = thread::spawn(move || write(&other, 1));
            write(&entry, 3);
            writer.join().unwrap();
            let state = EntryState::<Loom>(&entry.0);
            let index = state.index().expect("one of them wrote");
            assert_eq!(
                (entry.1.load(Relaxed), entry.2.load(Relaxed)),
                (index, index)
            );
        });
    }
}
