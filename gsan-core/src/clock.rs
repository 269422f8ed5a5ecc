//! Epochs, clock entries, and merging clocks.
//!
//! A clock has one entry per thread id. An entry names an interval of that thread's epochs: the
//! last `span` of them up to `epoch`. A completion knows all epochs of a slot; what one CTA
//! acquires from another covers that CTA's own epochs only, not those of the strangers that used
//! its slot before. Two intervals merge to their *hull*, the smallest interval that contains
//! both; it may contain epochs that neither did, which approximates towards "ordered".
//!
//! Entries form a join-semilattice under the hull, with [`ClockEntry::EMPTY`] as the neutral
//! element, so that merging in any order, or twice, gives the same clock.

use core::fmt;
use core::sync::atomic::Ordering;

use crate::atomics::Atomic;

/// A moment of one thread id: grows at every CTA start and after every release. 24 bits; 0 is
/// before every access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(u32);

impl Epoch {
    /// How many bits an epoch has.
    pub const BITS: u32 = 24;
    /// Before every access.
    pub const ZERO: Epoch = Epoch(0);
    /// The last epoch. A thread that reached it counts as ordered until the next restart.
    pub const MAX: Epoch = Epoch((1 << Self::BITS) - 1);

    /// The epoch `value`, or `None` beyond [`Epoch::MAX`].
    pub const fn new(value: u32) -> Option<Epoch> {
        if value <= Self::MAX.0 {
            Some(Epoch(value))
        } else {
            None
        }
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The epoch after this one, or `None` when the epochs are used up.
    pub const fn next(self) -> Option<Epoch> {
        Epoch::new(self.0 + 1)
    }

    /// The low 24 bits of `bits`.
    pub(crate) const fn from_bits(bits: u64) -> Epoch {
        Epoch(bits as u32 & Self::MAX.0)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a clock knows of one thread id: an interval of its epochs, packed as `epoch << 8 | span`.
///
/// `span` from 1 to 254 covers the last `span` epochs up to `epoch`; 255 covers all. An entry
/// that reaches down to epoch 1 always has span 255, and one that covers nothing is 0, so that
/// equal intervals are equal words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct ClockEntry(u32);

impl ClockEntry {
    /// How many bits the span has; the epoch lies above it.
    pub const SPAN_BITS: u32 = 8;
    /// The span that covers all epochs up to the entry's.
    pub const SPAN_ALL: u32 = 255;
    /// Covers nothing.
    pub const EMPTY: ClockEntry = ClockEntry(0);

    /// Covers all epochs up to `epoch`.
    pub const fn all(epoch: Epoch) -> ClockEntry {
        Self::between(0, epoch.0)
    }

    /// Covers the epochs from `first` to `last`, and nothing if there are none; more than 254 of
    /// them become all up to `last`.
    pub const fn closed(first: Epoch, last: Epoch) -> ClockEntry {
        Self::between(first.0.saturating_sub(1), last.0)
    }

    /// The entry with the bits `bits`, as read from memory.
    pub const fn from_bits(bits: u32) -> ClockEntry {
        ClockEntry(bits)
    }

    /// The bits, as written to memory.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The newest epoch covered.
    pub const fn epoch(self) -> Epoch {
        Epoch(self.0 >> Self::SPAN_BITS)
    }

    /// How many epochs up to [`Self::epoch`] are covered, [`Self::SPAN_ALL`] for all.
    pub const fn span(self) -> u32 {
        self.0 & Self::SPAN_ALL
    }

    /// Whether nothing is covered.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `epoch` is covered.
    #[inline]
    pub const fn covers(self, epoch: Epoch) -> bool {
        // The subtraction wraps for a newer epoch, to more than any span.
        let age = (self.0 >> Self::SPAN_BITS).wrapping_sub(epoch.0);
        let span = self.span();
        age < span || (span == Self::SPAN_ALL && age <= Epoch::MAX.0)
    }

    /// Whether every epoch that `other` covers is covered.
    pub const fn contains(self, other: ClockEntry) -> bool {
        other.is_empty()
            || (!self.is_empty() && other.0 >> 8 <= self.0 >> 8 && self.below() <= other.below())
    }

    /// The smallest entry that covers what either covers.
    #[inline]
    pub const fn hull(self, other: ClockEntry) -> ClockEntry {
        ClockEntry(hull(self.0, other.0))
    }

    /// What an entry must still cover when `frontier` is known anyway: the part of it that
    /// `frontier` does not cover, or a little more.
    pub const fn cut(self, frontier: ClockEntry) -> ClockEntry {
        if frontier.is_empty() {
            return self;
        }
        if frontier.contains(self) {
            return ClockEntry::EMPTY;
        }
        let (below, last) = (self.below(), self.0 >> Self::SPAN_BITS);
        let (known_below, known_last) = (frontier.below(), frontier.0 >> Self::SPAN_BITS);
        if known_below <= below && below < known_last {
            Self::between(known_last, last)
        } else if last <= known_last && known_below < last {
            Self::between(below, known_below)
        } else {
            self
        }
    }

    /// What an entry says of the epochs before `start`: what a CTA may take over for its own
    /// slot, where epochs from its start are its own.
    pub const fn cut_from(self, start: Epoch) -> ClockEntry {
        let last = self.0 >> Self::SPAN_BITS;
        if last < start.0 {
            self
        } else {
            Self::between(self.below(), start.0.saturating_sub(1))
        }
    }

    /// The newest epoch below the interval, 0 if the interval reaches down to the first.
    const fn below(self) -> u32 {
        let span = self.span();
        if span == Self::SPAN_ALL {
            0
        } else {
            (self.0 >> Self::SPAN_BITS).saturating_sub(span)
        }
    }

    /// Covers the epochs above `below` up to `last`.
    const fn between(below: u32, last: u32) -> ClockEntry {
        if below >= last {
            ClockEntry::EMPTY
        } else if below == 0 || last - below >= Self::SPAN_ALL {
            ClockEntry(last << Self::SPAN_BITS | Self::SPAN_ALL)
        } else {
            ClockEntry(last << Self::SPAN_BITS | (last - below))
        }
    }
}

/// [`ClockEntry::hull`] on packed entries, without branches so that a loop over it becomes
/// vector instructions.
#[inline(always)]
const fn hull(a: u32, b: u32) -> u32 {
    /// The newest epoch below the interval; above every epoch for an empty entry.
    #[inline(always)]
    const fn below(entry: u32) -> u32 {
        let span = entry & ClockEntry::SPAN_ALL;
        let epoch = entry >> ClockEntry::SPAN_BITS;
        let below = epoch.saturating_sub(span);
        let below = if span == ClockEntry::SPAN_ALL {
            0
        } else {
            below
        };
        if entry == 0 { Epoch::MAX.0 } else { below }
    }
    let (below_a, below_b) = (below(a), below(b));
    let below = if below_a < below_b { below_a } else { below_b };
    // The larger word has the larger epoch.
    let last = (if a > b { a } else { b }) & !ClockEntry::SPAN_ALL;
    let span = (last >> ClockEntry::SPAN_BITS).wrapping_sub(below);
    let all = below == 0 || span > ClockEntry::SPAN_ALL;
    let merged = last | if all { ClockEntry::SPAN_ALL } else { span };
    if a | b == 0 { 0 } else { merged }
}

/// Merges `source` into `target`, entry by entry; entries beyond the shorter of the two are left
/// alone.
pub fn merge_rows(target: &mut [u32], source: &[u32]) {
    #[inline(always)]
    fn merge(target: &mut [u32], source: &[u32]) {
        for (target, &source) in target.iter_mut().zip(source) {
            *target = hull(*target, source);
        }
    }

    /// The same, compiled for wider vectors that have an unsigned minimum and maximum.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn merge_avx2(target: &mut [u32], source: &[u32]) {
        merge(target, source);
    }

    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { merge_avx2(target, source) };
    }
    merge(target, source);
}

/// Merges `entry` into a word that others may write meanwhile. Returns whether the word changed.
///
/// A maximum of the packed words would not do: of two entries the one with the newer epoch may
/// cover less.
pub fn merge_word<A: Atomic<Value = u32>>(word: &A, entry: ClockEntry, order: Ordering) -> bool {
    let mut found = word.load(Ordering::Relaxed);
    loop {
        let merged = hull(found, entry.0);
        if merged == found {
            return false;
        }
        match word.compare_exchange(found, merged, order, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(other) => found = other,
        }
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicU32;

    use proptest::prelude::*;

    use super::*;

    /// Entries whose intervals are near each other, so that they overlap, touch, leave gaps and
    /// exceed the largest span.
    fn entry() -> impl Strategy<Value = ClockEntry> {
        prop_oneof![
            1 => Just(ClockEntry::EMPTY),
            8 => (0u32..800, 0u32..300).prop_map(|(below, len)| ClockEntry::between(below, below + len)),
            1 => (0..=Epoch::MAX.0).prop_map(|epoch| ClockEntry::all(Epoch(epoch))),
            1 => (Epoch::MAX.0 - 300..Epoch::MAX.0)
                .prop_map(|below| ClockEntry::between(below, Epoch::MAX.0)),
        ]
    }

    fn epoch() -> impl Strategy<Value = Epoch> {
        prop_oneof![
            (1u32..1200).prop_map(Epoch),
            (Epoch::MAX.0 - 400..=Epoch::MAX.0).prop_map(Epoch)
        ]
    }

    fn of(epoch: u32, span: u32) -> ClockEntry {
        ClockEntry::from_bits(epoch << 8 | span)
    }

    #[test]
    fn an_entry_covers_its_span_up_to_its_epoch() {
        let three = of(10, 3);
        let covered: Vec<u32> = (0..14).filter(|&e| three.covers(Epoch(e))).collect();
        assert_eq!(covered, [8, 9, 10]);
        assert!(of(10, 255).covers(Epoch(1)));
        assert!(!of(10, 255).covers(Epoch(11)));
        assert!(!ClockEntry::EMPTY.covers(Epoch(1)));
        assert!(ClockEntry::all(Epoch::MAX).covers(Epoch::MAX));
    }

    #[test]
    fn hulls_by_hand() {
        assert_eq!(of(10, 3).hull(of(20, 5)), of(20, 13));
        assert_eq!(of(10, 3).hull(of(9, 1)), of(10, 3));
        assert_eq!(of(1000, 3).hull(of(20, 255)), of(1000, 255));
        // From 8 to 262 are 255 epochs, one more than a span can say.
        assert_eq!(of(10, 3).hull(of(261, 1)), of(261, 254));
        assert_eq!(of(10, 3).hull(of(262, 1)), of(262, 255));
        assert_eq!(ClockEntry::EMPTY.hull(of(7, 2)), of(7, 2));
    }

    #[test]
    fn cuts_by_hand() {
        assert_eq!(of(20, 5).cut(of(17, 255)), of(20, 3));
        assert_eq!(of(20, 5).cut(of(20, 255)), ClockEntry::EMPTY);
        assert_eq!(of(20, 5).cut(of(30, 12)), of(18, 3));
        assert_eq!(of(20, 5).cut(of(18, 1)), of(20, 5));
        assert_eq!(of(20, 5).cut(of(9, 255)), of(20, 5));
        assert_eq!(of(20, 5).cut_from(Epoch(18)), of(17, 2));
        assert_eq!(of(20, 5).cut_from(Epoch(16)), ClockEntry::EMPTY);
        assert_eq!(of(20, 5).cut_from(Epoch(21)), of(20, 5));
    }

    #[test]
    fn epochs_end() {
        assert_eq!(Epoch::MAX.next(), None);
        assert_eq!(Epoch::new(1 << 24), None);
        assert_eq!(Epoch::ZERO.next(), Epoch::new(1));
    }

    proptest! {
        #[test]
        fn the_hull_is_a_join(a in entry(), b in entry(), c in entry()) {
            prop_assert_eq!(a.hull(b), b.hull(a));
            prop_assert_eq!(a.hull(b).hull(c), a.hull(b.hull(c)));
            prop_assert_eq!(a.hull(a), a);
            prop_assert_eq!(a.hull(ClockEntry::EMPTY), a);
            prop_assert!(a.hull(b).contains(a) && a.hull(b).contains(b));
            if a.contains(b) {
                prop_assert_eq!(a.hull(b), a);
                prop_assert!(a.hull(c).contains(b.hull(c)));
            }
        }

        #[test]
        fn the_hull_is_no_larger_than_an_interval_must_be(a in entry(), b in entry(), e in epoch()) {
            let hull = a.hull(b);
            prop_assert!(hull.covers(e) || !(a.covers(e) || b.covers(e)));
            let newest = a.epoch().max(b.epoch());
            prop_assert_eq!(hull.epoch(), newest);
            if hull.span() != ClockEntry::SPAN_ALL && hull.covers(e) {
                let above = |x: ClockEntry| !x.is_empty() && x.below() < e.0;
                prop_assert!(above(a) || above(b));
            }
        }

        #[test]
        fn containing_is_covering_every_epoch(a in entry(), b in entry()) {
            let by_epochs = (1..1200).chain(Epoch::MAX.0 - 400..=Epoch::MAX.0)
                .all(|e| a.covers(Epoch(e)) || !b.covers(Epoch(e)));
            prop_assert!(!a.contains(b) || by_epochs);
            if b.epoch().0 < 1200 {
                prop_assert_eq!(a.contains(b), by_epochs);
            }
        }

        #[test]
        fn a_cut_loses_nothing_beyond_the_frontier(a in entry(), f in entry(), e in epoch()) {
            prop_assert!(a.cut(f).covers(e) || f.covers(e) || !a.covers(e));
            prop_assert!(!f.contains(a) || a.cut(f).is_empty());
            if a.cut(f).span() != ClockEntry::SPAN_ALL {
                prop_assert!(a.contains(a.cut(f)));
            }
        }

        #[test]
        fn a_cut_at_the_own_slot_keeps_what_is_before_the_start(a in entry(), s in epoch(), e in epoch()) {
            prop_assert_eq!(a.cut_from(s).covers(e), a.covers(e) && e < s);
        }

        #[test]
        fn rows_merge_entry_by_entry(pairs in prop::collection::vec((entry(), entry()), 0..70)) {
            let mut target: Vec<u32> = pairs.iter().map(|p| p.0.bits()).collect();
            let source: Vec<u32> = pairs.iter().map(|p| p.1.bits()).collect();
            merge_rows(&mut target, &source);
            let expected: Vec<u32> = pairs.iter().map(|p| p.0.hull(p.1).bits()).collect();
            prop_assert_eq!(target, expected);
        }

        #[test]
        fn a_word_takes_the_hull_and_says_whether_it_changed(a in entry(), b in entry()) {
            let word = AtomicU32::new(a.bits());
            let changed = merge_word(&word, b, Ordering::AcqRel);
            prop_assert_eq!(word.load(Ordering::Relaxed), a.hull(b).bits());
            prop_assert_eq!(changed, !a.contains(b));
        }

        #[test]
        fn no_word_makes_the_arithmetic_fail(a: u32, b: u32, e in epoch()) {
            let (a, b) = (ClockEntry::from_bits(a), ClockEntry::from_bits(b));
            prop_assert!(a.hull(b).covers(e) || !a.covers(e));
            let _ = (a.cut(b), a.cut_from(e), a.contains(b));
        }
    }
}
