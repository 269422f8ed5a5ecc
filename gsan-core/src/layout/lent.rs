//! What device code keeps in memory that its caller lends, of a size that the caller has fixed.

use core::mem::offset_of;

use crate::clock::Epoch;
use crate::record::Token;

use super::thread_flags::{PUBLISHED, PUBLISHED_EPOCH_SHIFT};

/// Numbers of the event of an atomic access.
pub mod event_codes {
    constants! { "GSAN_EVENT_":
        /// Bits of the offset in real memory; the state region lies above.
        pub const OFFSET_BITS: u32 = 46;
        /// Bits of the address of a state region below which it is 0.
        pub const REGION_SHIFT: u32 = 30;
        /// Lowest bit of the place of the announcement.
        pub const PLACE_SHIFT: u32 = 62;
        /// The most bytes of an access that is checked.
        pub const MAX_BYTES: u32 = 8;
    }
}

use event_codes::{MAX_BYTES, OFFSET_BITS, PLACE_SHIFT, REGION_SHIFT};

structure! {
    /// What an atomic access keeps from its begin to its end: 40 bytes of private memory that Triton's
    /// code lends, uninitialised, and reuses.
    ///
    /// The announcement is made again from the thread id, the epoch, the bytes and the position of the
    /// thread in its CTA. What word 0 was left as is what was found unless something was published.
    pub struct AtomicEvent = "gsan_atomic_event", size 40, align 8 {
        /// Where the first byte lies in real memory, counted from its start: `GSAN_EVENT_OFFSET_BITS`. Above,
        /// the address of the state region in units of 1 GiB. 0: nothing to do at the end.
        pub access: u64,
        /// Word 0 as it was found.
        pub found: u64,
        /// What gave way to the announcement; 0: nothing.
        pub evicted: u64,
        /// The epoch at begin, the token of what was published into word 0 in place of what was found, if
        /// anything was, as in the `published` of a [`ThreadState`](super::ThreadState); above, the word of
        /// the announcement, 0 if there is none.
        pub begun: u64,
        /// Digests at begin of the words of the cell but word 0.
        pub digests: [u16; 3],
        /// How many bytes: 1 to `GSAN_EVENT_MAX_BYTES`, all of one granule. 0: the memory is write-once, and
        /// `found` says how many.
        pub bytes: u16,
    }
}

/// What an [`AtomicEvent`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventFields {
    /// Where the first byte lies in real memory.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u16,
    /// The address of the state region.
    pub region: u64,
    /// Word 0 as it was found.
    pub found: u64,
    /// What was published into word 0.
    pub published: Option<Token>,
    /// The epoch at begin.
    pub epoch: Epoch,
    /// The word of the announcement; 0 if there is none.
    pub place: u8,
    /// What gave way to the announcement.
    pub evicted: u64,
    /// Digests of words 1 to 3.
    pub digests: [u16; 3],
}

impl AtomicEvent {
    /// Packs the fields; `None` if the access or the region lies where an event cannot name it.
    pub fn new(fields: &EventFields) -> Option<AtomicEvent> {
        let region = fields.region >> REGION_SHIFT;
        let fits = fields.offset < 1 << OFFSET_BITS
            && region != 0
            && region < 1 << (u64::BITS - OFFSET_BITS)
            && region << REGION_SHIFT == fields.region
            && (1..=MAX_BYTES).contains(&u32::from(fields.bytes))
            && fields.place < 4;
        if !fits {
            return None;
        }
        let published = fields.published.map_or(0, |token| PUBLISHED | token.get());
        Some(AtomicEvent {
            access: region << OFFSET_BITS | fields.offset,
            found: fields.found,
            evicted: fields.evicted,
            begun: u64::from(fields.place) << PLACE_SHIFT
                | u64::from(fields.epoch.get()) << PUBLISHED_EPOCH_SHIFT
                | published,
            digests: fields.digests,
            bytes: fields.bytes,
        })
    }

    /// What it says; `None` if there is nothing to do.
    pub fn fields(&self) -> Option<EventFields> {
        if self.access == 0 || self.bytes == 0 {
            return None;
        }
        Some(EventFields {
            offset: self.access & ((1 << OFFSET_BITS) - 1),
            bytes: self.bytes,
            region: self.access >> OFFSET_BITS << REGION_SHIFT,
            found: self.found,
            published: (self.begun & PUBLISHED != 0)
                .then(|| Token::new(self.begun & Token::MAX.get()))
                .flatten(),
            epoch: Epoch::from_bits(self.begun >> PUBLISHED_EPOCH_SHIFT),
            place: (self.begun >> PLACE_SHIFT) as u8,
            evicted: self.evicted,
            digests: self.digests,
        })
    }
}

/// Numbers of a meeting.
pub mod meeting_codes {
    constants! { "GSAN_MEETING_":
        /// Bits of the arrivals that complete a phase. Above lie as many of the arrivals still missing, then
        /// how many phases are complete.
        pub const COUNT_BITS: u32 = 20;
        /// In the key of an mbarrier, the lowest bit of the owner's rank; the shared address lies below.
        pub const OWNER_SHIFT: u32 = 24;
    }
}

structure! {
    /// A cluster barrier or an mbarrier, mirrored: arrivals release into the running phase, completed waits
    /// acquire the phase.
    pub struct Meeting = "gsan_meeting", size 32, align 8 {
        /// A sync record of all arrivals so far.
        pub arrivals: u64,
        /// The same, as it was when the newest phase of parity 0 and 1 was complete.
        pub complete: [u64; 2],
        /// Arrivals, as `GSAN_MEETING_COUNT_BITS` says.
        pub count: u64,
    }
}

impl Meeting {
    /// Where, in 64-bit words, [`Meeting::arrivals`] lies.
    pub const ARRIVALS: usize = offset_of!(Meeting, arrivals) / 8;
    /// Where [`Meeting::complete`] starts.
    pub const COMPLETE: usize = offset_of!(Meeting, complete) / 8;
    /// Where [`Meeting::count`] lies.
    pub const COUNT: usize = offset_of!(Meeting, count) / 8;
}

structure! {
    /// What the CTAs of a cluster hand each other at its hardware barrier. Lent by the caller, zero at launch.
    pub struct ClusterScratch = "gsan_cluster_scratch", size 128, align 16 {
        /// The barrier.
        pub meeting: Meeting,
        /// 0.
        pub reserved: [u64; 12],
    }
}

structure! {
    /// The head of the mirrored mbarriers of a cluster; the mbarriers follow.
    pub struct MbarrierTable = "gsan_mbarrier_table", size 16, align 16 {
        /// How many mbarriers there is room for.
        pub capacity: u32,
        /// How many are in use.
        pub used: u32,
        /// 0.
        pub reserved: u64,
    }
}

structure! {
    /// A mirrored mbarrier.
    pub struct Mbarrier = "gsan_mbarrier", size 176, align 8 {
        /// The low 24 bits of the shared address, and the owner's rank above; plus 1, so that 0 is
        /// free.
        pub key: u32,
        /// 0.
        pub reserved_word: u32,
        /// The mbarrier.
        pub meeting: Meeting,
        /// 0.
        pub reserved: [u64; 17],
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn fields()(
            offset in 0u64..1 << OFFSET_BITS,
            bytes in 1u16..=8,
            region in 1u64..1 << 18,
            found: u64,
            published in prop::option::of(0..=Token::MAX.get()),
            epoch in 0..=Epoch::MAX.get(),
            place in 0u8..4,
            evicted: u64,
            digests: [u16; 3],
        ) -> EventFields {
            EventFields {
                offset,
                bytes,
                region: region << 30,
                found,
                published: published.and_then(Token::new),
                epoch: Epoch::new(epoch).unwrap_or(Epoch::MAX),
                place,
                evicted,
                digests,
            }
        }
    }

    const SMALL: EventFields = EventFields {
        offset: 12,
        bytes: 4,
        region: 3 << 30,
        found: 7,
        published: None,
        epoch: Epoch::MAX,
        place: 2,
        evicted: 9,
        digests: [1, 2, 3],
    };

    #[test]
    fn an_event_by_hand() {
        let event = AtomicEvent::new(&SMALL).unwrap();
        assert_eq!(event.access, 3 << 46 | 12);
        // Place 2 in the two highest bits, an epoch of 24 ones above the token.
        assert_eq!(event.begun, 2 << 62 | 0xff_ffff << 37);
        let token = Token::new(5);
        let event = AtomicEvent::new(&EventFields {
            published: token,
            ..SMALL
        })
        .unwrap();
        assert_eq!(event.begun, 2 << 62 | 1 << 61 | 0xff_ffff << 37 | 5);
    }

    #[test]
    fn what_an_event_cannot_name_is_refused() {
        let refused = |fields: EventFields| AtomicEvent::new(&fields).is_none();
        assert!(refused(EventFields {
            offset: 1 << 46,
            ..SMALL
        }));
        assert!(refused(EventFields { region: 0, ..SMALL }));
        assert!(refused(EventFields {
            region: (1 << 30) + 4096,
            ..SMALL
        }));
        assert!(refused(EventFields {
            region: 1 << 48,
            ..SMALL
        }));
        assert!(refused(EventFields { bytes: 16, ..SMALL }));
        assert!(refused(EventFields { bytes: 0, ..SMALL }));
        let nothing: AtomicEvent = bytemuck::Zeroable::zeroed();
        assert_eq!(nothing.fields(), None);
    }

    proptest! {
        #[test]
        fn an_event_keeps_every_field(fields in fields()) {
            prop_assert_eq!(AtomicEvent::new(&fields).unwrap().fields(), Some(fields));
        }
    }
}
