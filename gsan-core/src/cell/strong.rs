//! Strong accesses, whose begin and end are apart: begin comes before the instruction, end after
//! it.
//!
//! What a strong access found, and what it may merge, is known at its end only; so it is checked
//! and recorded there. But whoever observed its value may have gone on by then, and may touch the
//! bytes with ordinary accesses (the last user of a counter resets it). A record that came after
//! that would accuse him.
//!
//! So a strong write *announces* itself at begin: a record with an empty mask, which conflicts
//! with nothing, holds its place. At its end the record replaces the announcement by
//! compare-and-swap, and nothing else. A strong access that observes removes, at its end, the
//! announcements that it finds in the cell as well as the atomic writes: one it observed was
//! announced before its own instruction. If the announcement is gone, nothing is recorded.
//! Announcements say which half of the granule they are for, so that neighbours which observe
//! nothing of each other (elements of one tensor) leave each other alone.
//!
//! An announcement that follows a publication may stay where the observer acquires: it has the
//! publisher's clock.

use super::*;
use crate::atomics::{Essential, Memory};

/// What a strong access keeps of a cell from its begin to its end.
#[derive(Clone, Copy, Debug)]
pub struct Announced<const S: usize> {
    digests: [u16; S],
    /// The word of the announcement; 0 if there is none.
    place: u8,
    mark: u64,
    /// What had to give way to it: checked at the end, and put back if nothing was written.
    evicted: u64,
}

impl<const S: usize> Announced<S> {
    /// What an access keeps that is not checked.
    pub const fn none() -> Self {
        Announced {
            digests: [0; S],
            place: 0,
            mark: 0,
            evicted: 0,
        }
    }
}

/// Below the halves of an announcement: which of the accesses of its CTA it is.
const NONCE_BITS: u32 = 10;

/// Which halves of its granule an access touches.
fn halves(mask: u8) -> u32 {
    u32::from(mask & 0x0f != 0) | u32::from(mask & 0xf0 != 0) << 1
}

impl<A: Atomic<Value = u64>, const S: usize> Cell<'_, A, S> {
    /// A strong access begins. `publishes`: it has just published into word 0. `nonce` tells the
    /// accesses of one CTA apart that are under way at the same time; 10 bits of it count.
    pub fn announce(
        self,
        access: &CellAccess,
        publishes: bool,
        nonce: u32,
        past: &impl Past,
        sampler: Sampler,
    ) -> Announced<S> {
        let words = self.load();
        let mut announced = Announced {
            digests: words.map(digest),
            ..Announced::none()
        };
        if !access.action.writes() {
            return announced;
        }
        let survey = survey(&words, access, past, 0, false, |_| {});
        let empty = empty(&words);
        let free = (empty | survey.superseded | survey.covered) & !1;
        let victim = || {
            let evictable = |(index, word): (usize, &u64)| {
                let record = Word::from_bits(*word).ordinary()?;
                (index != 0 && record.mask() != 0)
                    .then(|| (!record.write(), sampler.number(record), index))
            };
            let words = words.iter().enumerate();
            words.filter_map(evictable).max().map(|(_, _, index)| index)
        };
        if survey.equal {
            return announced;
        }
        let first_empty = first(empty & !1);
        if let Some(place) = first_empty.or_else(|| first(free)).or_else(victim) {
            announced.place = place as u8;
            announced.mark = Record::new(RecordFields {
                mask: 0,
                write: publishes,
                site: SiteId(nonce & ((1 << NONCE_BITS) - 1) | halves(access.mask) << NONCE_BITS),
                ..access.record().fields()
            })
            .bits();
            let evicted = self.words[place].swap(announced.mark, Relaxed);
            if Word::from_bits(evicted).mask() != 0 {
                announced.evicted = evicted;
            }
        }
        announced
    }

    /// The strong access ends; `access.action` is what came of it. `acquires`: it has merged
    /// what the publications before it say.
    ///
    /// Words that changed since begin are not checked.
    pub fn finish<M: Memory<U64 = A>>(
        self,
        announced: &Announced<S>,
        access: &CellAccess,
        acquires: bool,
        past: &impl Past,
        sampler: Sampler,
        mut race: impl FnMut(Conflict),
    ) -> Option<Loss> {
        let place = usize::from(announced.place);
        let mut words = self.load();
        let holds = place != 0 && words[place] == announced.mark;
        let mut unchanged = 0;
        for (index, (&word, &begin)) in words.iter().zip(&announced.digests).enumerate() {
            unchanged |= u8::from(digest(word) == begin) << index;
        }
        if access.action.reads() {
            self.remove_announcements(&words, announced.mark, access, acquires, past);
        }
        if holds {
            words[place] = announced.evicted;
            unchanged |= 1 << place;
        } else if place != 0 {
            let evicted = core::array::from_fn(|index| match index {
                1 => announced.evicted,
                _ => 0,
            });
            super::survey::<S>(&evicted, access, past, ALL, false, &mut race);
        }
        let removes = access.action.writes();
        let survey = survey(&words, access, past, unchanged, removes, race);
        if !access.action.writes() {
            if holds {
                // Nothing was written after all.
                let _ = self.words[place].compare_exchange(
                    announced.mark,
                    announced.evicted,
                    Relaxed,
                    Relaxed,
                );
            }
            return self.update(words, &survey, access, past, sampler);
        }
        let mut gone = survey.observed | survey.superseded;
        if holds {
            gone &= !(1 << place);
        }
        if survey.equal {
            if holds {
                let _ = self.words[place].compare_exchange(announced.mark, 0, Relaxed, Relaxed);
            }
            self.clear(words[0], gone & survey.observed);
            return None;
        }
        let record = access.record().bits();
        let recorded = holds
            && if M::keeps(Essential::AtomicRecordCompared) {
                let word = &self.words[place];
                word.compare_exchange(announced.mark, record, Relaxed, Relaxed)
                    .is_ok()
            } else {
                self.words[place].store(record, Relaxed);
                true
            };
        if !recorded {
            self.clear(words[0], gone & survey.observed);
            return Some(Loss::WriteEvicted);
        }
        self.clear(words[0], gone);
        let free = empty(&words) | survey.observed | survey.superseded | survey.covered;
        (free >> place & 1 == 0).then_some(Loss::WriteEvicted)
    }

    /// An asynchronous copy is done: its record `running` becomes `done`. Returns whether it was
    /// still there.
    pub fn settle(self, running: Record, done: Record) -> bool {
        self.words.iter().any(|word| {
            word.load(Relaxed) == running.bits()
                && word
                    .compare_exchange(running.bits(), done.bits(), Relaxed, Relaxed)
                    .is_ok()
        })
    }

    /// Forgets what is known of the bytes of `mask`, which were freed or handed out anew.
    pub fn forget(self, mask: u8) {
        for word in self.words {
            let left = match Word::from_bits(word.load(Relaxed)) {
                Word::Empty => continue,
                Word::Sync(sync) => Word::Sync(sync.without(mask)),
                Word::Ordinary(record) => Word::Ordinary(Record::new(RecordFields {
                    mask: record.mask() & !mask,
                    ..record.fields()
                })),
            };
            let gone = left.mask() == 0;
            word.store(if gone { 0 } else { left.bits() }, Relaxed);
        }
    }

    /// Removes the announcements of accesses that the current one may have observed.
    fn remove_announcements(
        self,
        words: &[u64; S],
        own: u64,
        access: &CellAccess,
        acquires: bool,
        past: &impl Past,
    ) {
        for (word, &found) in self.words.iter().zip(words).skip(1) {
            let Word::Ordinary(mark) = Word::from_bits(found) else {
                continue;
            };
            let known = mark.write() && acquires && access.cover_each_other(mark, past);
            let apart = mark.site().0 >> NONCE_BITS & halves(access.mask) == 0;
            if mark.mask() == 0 && found != own && !known && !apart {
                // Whatever has become of it meanwhile goes, too.
                word.swap(0, Relaxed);
            }
        }
    }
}
