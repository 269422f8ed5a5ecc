//! Clocks in memory: publications, snapshots and private clocks, checkpoints, rows.

use crate::clock::ClockEntry;
use crate::record::Token;

/// Where the fields of a publication lie, and how many publications and snapshots there may be.
pub mod publication {
    constants! { "GSAN_PUBLICATION_":
        /// Lowest bit of the token in the first word.
        pub const TOKEN_SHIFT: u32 = 0;
        /// Bits of the token.
        pub const TOKEN_BITS: u32 = 37;
        /// In the first word: the entry is complete; until then its writer is still at work.
        pub const COMPLETE_SHIFT: u32 = 37;
        /// In the first word: contains the sequence of an earlier publisher, so that knowing the
        /// publisher's epoch is not enough to skip it.
        pub const JOINED_SHIFT: u32 = 38;
        /// In the first word: everything up to a moment; the snapshot field names a checkpoint.
        pub const TOP_SHIFT: u32 = 39;
        /// In the first word: there is a snapshot.
        pub const SNAPSHOT_SHIFT: u32 = 40;
        /// In the second word: there is a snapshot of the launch's frontier.
        pub const FRONTIER_SHIFT: u32 = 54;
        /// Lowest bit of the snapshot's stamp in the first word.
        pub const SNAPSHOT_STAMP_SHIFT: u32 = 42;
        /// Lowest bit of the clock entry, epoch and span, in the second word.
        pub const ENTRY_SHIFT: u32 = 0;
        /// Lowest bit of the stamp of the frontier's snapshot in the second word.
        pub const FRONTIER_STAMP_SHIFT: u32 = 32;
        /// Bits of a stamp.
        pub const STAMP_BITS: u32 = 22;
        /// The most publications a ring may have.
        pub const MAX_CAPACITY: u32 = 1 << 20;
        /// The most snapshots a ring may have. A publication names snapshots that were made at
        /// most half a ring before it, and while it lives at most two more are made for each
        /// publication; so stamps never come around.
        pub const MAX_SNAPSHOTS: u32 = 1 << 20;
    }
}

/// The lowest bits of the index of a snapshot or checkpoint. The index itself is the only one with
/// these bits that its ring may still hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp(u32);

impl Stamp {
    const MASK: u32 = (1 << publication::STAMP_BITS) - 1;

    /// The stamp of `index`.
    pub const fn of(index: u64) -> Stamp {
        Stamp(index as u32 & Self::MASK)
    }

    /// The bits.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The newest index before `head` with this stamp, or `None` if there is none.
    pub const fn before(self, head: u64) -> Option<u64> {
        let newest = match head.checked_sub(1) {
            Some(newest) => newest,
            None => return None,
        };
        let back = (newest as u32).wrapping_sub(self.0) & Self::MASK;
        newest.checked_sub(back as u64)
    }
}

structure! {
    /// One released clock, 16 bytes: see the shifts `GSAN_PUBLICATION_*`. Its publisher is named
    /// by the sync record that holds its token.
    ///
    /// A reader loads the first word, the second, and the first again: the entry is what its token
    /// stands for if both times the first word says that token and *complete*.
    pub struct Publication = "gsan_publication", size 16, align 16 {
        /// Token, state, flags, stamp of the snapshot. 0 before the first use.
        pub stamp: u64,
        /// Clock entry of the publisher, stamp of the launch's frontier snapshot.
        pub clock: u64,
    }
}

/// What a publication says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PublicationFields {
    /// Its index in the ring, never taken modulo.
    pub token: Token,
    /// Whether it is all there, or its writer still at work.
    pub complete: bool,
    /// Contains the sequence of an earlier publisher.
    pub joined: bool,
    /// Everything up to a moment: `snapshot` names a checkpoint.
    pub top: bool,
    /// The publisher's own epochs that are released.
    pub entry: ClockEntry,
    /// What the publisher knew beyond its launch's frontier.
    pub snapshot: Option<Stamp>,
    /// The launch's frontier.
    pub frontier: Option<Stamp>,
}

impl Publication {
    /// Packs the fields.
    pub const fn pack(fields: PublicationFields) -> Publication {
        use publication::*;
        let mut stamp = fields.token.get() << TOKEN_SHIFT
            | (fields.complete as u64) << COMPLETE_SHIFT
            | (fields.joined as u64) << JOINED_SHIFT
            | (fields.top as u64) << TOP_SHIFT;
        if let Some(snapshot) = fields.snapshot {
            stamp |= 1 << SNAPSHOT_SHIFT | (snapshot.0 as u64) << SNAPSHOT_STAMP_SHIFT;
        }
        let mut clock = (fields.entry.bits() as u64) << ENTRY_SHIFT;
        if let Some(frontier) = fields.frontier {
            clock |= 1 << FRONTIER_SHIFT | (frontier.0 as u64) << FRONTIER_STAMP_SHIFT;
        }
        Publication { stamp, clock }
    }

    /// The fields.
    pub const fn unpack(self) -> PublicationFields {
        use publication::*;
        const fn optional(word: u64, present: u32, shift: u32) -> Option<Stamp> {
            if word >> present & 1 == 0 {
                None
            } else {
                Some(Stamp((word >> shift) as u32 & Stamp::MASK))
            }
        }
        PublicationFields {
            token: match Token::new(self.stamp >> TOKEN_SHIFT & Token::MAX.get()) {
                Some(token) => token,
                None => unreachable!(),
            },
            complete: self.stamp >> COMPLETE_SHIFT & 1 != 0,
            joined: self.stamp >> JOINED_SHIFT & 1 != 0,
            top: self.stamp >> TOP_SHIFT & 1 != 0,
            entry: ClockEntry::from_bits((self.clock >> ENTRY_SHIFT) as u32),
            snapshot: optional(self.stamp, SNAPSHOT_SHIFT, SNAPSHOT_STAMP_SHIFT),
            frontier: optional(self.clock, FRONTIER_SHIFT, FRONTIER_STAMP_SHIFT),
        }
    }
}

/// Flags of a clock, and the number of its segments.
pub mod entry {
    constants! { "GSAN_CLOCK_":
        /// Bits of the span of a clock entry; the epoch lies above it.
        pub const SPAN_BITS: u32 = crate::clock::ClockEntry::SPAN_BITS;
        /// The span that covers all epochs up to the entry's.
        pub const SPAN_ALL: u32 = crate::clock::ClockEntry::SPAN_ALL;
        /// The last epoch of a thread id.
        pub const EPOCH_MAX: u32 = crate::clock::Epoch::MAX.get();
        /// How many segments a clock may have.
        pub const SEGMENTS: usize = 5;
        /// Flag: something found no place, so everything counts as ordered.
        pub const OUTSIDE: u32 = 1;
        /// Bit of a snapshot's stamp: it is complete; until then its writer is still at work.
        /// The index lies above.
        pub const COMPLETE: u64 = 1;
        /// How many checkpoints are kept: two laps of sixteenths of the publication ring.
        pub const CHECKPOINTS: u32 = 32;
    }
}

structure! {
    /// A run of thread ids in a clock.
    pub struct Segment = "gsan_segment", size 8, align 4 {
        /// The first id of the bank.
        pub first: u16,
        /// How many entries there is room for: the slots of the bank. 0: the segment is unused.
        pub room: u16,
        /// How many entries, from the first, may be other than 0.
        pub used: u16,
        /// Where the entries start: in units of 4 entries from the end of the header.
        pub start: u16,
    }
}

structure! {
    /// The head of a private clock or a snapshot; its entries follow. Merging goes by the source's
    /// header. Segment 0 is the bank of the owner's launch.
    pub struct ClockHeader = "gsan_clock_header", size 64, align 64 {
        /// Snapshot: index and `GSAN_CLOCK_COMPLETE`. Private clock: how often it has changed.
        pub stamp: u64,
        /// `GSAN_CLOCK_OUTSIDE`.
        pub flags: u32,
        /// Entries handed out to segments so far.
        pub taken: u32,
        /// Private clock in the pool: the next free one plus 1.
        pub link: u32,
        /// Snapshot: the number of the launch whose frontier it is beyond.
        pub launch: u32,
        /// The banks.
        pub segments: [Segment; 5],
    }
}

structure! {
    /// The head of a checkpoint: a copy of all mirrored epochs of one device, taken when the head of
    /// the publications crossed a sixteenth of the ring. The epochs follow, a u32 for each id.
    pub struct CheckpointHeader = "gsan_checkpoint_header", size 64, align 64 {
        /// Index and `GSAN_CLOCK_COMPLETE`, as in a snapshot.
        pub stamp: u64,
        /// The head of the publications before the copy was begun.
        pub token: u64,
        /// 0.
        pub reserved: [u64; 6],
    }
}

structure! {
    /// The head of a frontier or completion row; its clock entries follow, one for each slot of the
    /// bank, or for each thread id in a foreign row. Rows only grow.
    pub struct RowHeader = "gsan_row_header", size 64, align 64 {
        /// Something is in it. Readers skip the row as long as this is 0.
        pub nonempty: u32,
        /// How many entries, from the first, may be other than 0.
        pub used: u32,
        /// 0.
        pub reserved: [u32; 14],
    }
}

const _: () = assert!(entry::SEGMENTS == 5);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stamp() -> impl Strategy<Value = Option<Stamp>> {
        prop::option::of((0..=Stamp::MASK).prop_map(Stamp))
    }

    #[test]
    fn the_fields_of_a_publication_do_not_overlap() {
        let all = Publication::pack(PublicationFields {
            token: Token::MAX,
            complete: true,
            joined: true,
            top: true,
            entry: ClockEntry::from_bits(u32::MAX),
            snapshot: Some(Stamp(Stamp::MASK)),
            frontier: Some(Stamp(Stamp::MASK)),
        });
        assert_eq!(all.stamp.count_ones(), 37 + 4 + 22);
        assert_eq!(all.clock.count_ones(), 32 + 1 + 22);
    }

    #[test]
    fn a_stamp_names_the_newest_index_before_the_head() {
        let lap = 1 << publication::STAMP_BITS;
        assert_eq!(Stamp::of(5).before(0), None);
        assert_eq!(Stamp::of(5).before(5), None);
        assert_eq!(Stamp::of(5).before(6), Some(5));
        assert_eq!(Stamp::of(5).before(3 * lap), Some(2 * lap + 5));
        assert_eq!(Stamp::of(lap - 1).before(3 * lap), Some(3 * lap - 1));
    }

    proptest! {
        #[test]
        fn every_field_of_a_publication_round_trips(
            token in 0..=Token::MAX.get(), complete: bool, joined: bool, top: bool, entry: u32,
            snapshot in stamp(), frontier in stamp(),
        ) {
            let fields = PublicationFields {
                token: Token::new(token).unwrap(),
                complete,
                joined,
                top,
                entry: ClockEntry::from_bits(entry),
                snapshot,
                frontier,
            };
            prop_assert_eq!(Publication::pack(fields).unpack(), fields);
        }

        #[test]
        fn an_index_is_found_from_its_stamp(
            index in 0..1u64 << 40, ahead in 1..=1u64 << publication::STAMP_BITS,
        ) {
            prop_assert_eq!(Stamp::of(index).before(index + ahead), Some(index));
        }
    }
}
