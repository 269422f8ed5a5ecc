//! Clocks in memory: publications, snapshots and private clocks, checkpoints, rows.

/// Numbers of clocks and rings.
pub mod entry {
    constants! { "GSAN_CLOCK_":
        /// Bits of the span of a clock entry; the epoch lies above it.
        pub const SPAN_BITS: u32 = crate::clock::ClockEntry::SPAN_BITS;
        /// The span that covers all epochs up to the entry's.
        pub const SPAN_ALL: u32 = crate::clock::ClockEntry::SPAN_ALL;
        /// The last epoch of a thread id.
        pub const EPOCH_MAX: u32 = crate::clock::Epoch::MAX.get();
        /// In the state of a ring entry: its writer is still at work. The index plus 1 lies above;
        /// all of it is 0 before the first use.
        pub const WRITING: u64 = 1;
        /// The most publications a ring may have.
        pub const MAX_PUBLICATIONS: u32 = 1 << 20;
        /// How many checkpoints are kept: two laps of sixteenths of the publication ring.
        pub const CHECKPOINTS: u32 = 32;
        /// Lowest bit of the device rank in the name of a checkpoint; its index plus 1 lies below.
        pub const CHECKPOINT_DEVICE_SHIFT: u32 = 16;
        /// How many entries of a snapshot are read before its state is looked at again.
        pub const SNAPSHOT_CHUNK: u32 = 32;
    }
}

structure! {
    /// One released clock. A reader looks at the state before and after it reads the rest.
    pub struct Publication = "gsan_publication", size 32, align 32 {
        /// The token plus 1, shifted left by one, and `GSAN_CLOCK_WRITING`.
        pub state: u64,
        /// The publisher's own epochs that are released: a clock entry.
        pub entry: u32,
        /// The publisher's thread id.
        pub publisher: u16,
        /// 1: it contains another release sequence, so that knowing the publisher's epochs is not
        /// enough to skip it.
        pub joined: u16,
        /// The low bits of the index of the snapshot of what the publisher knew beyond its frontier; 0:
        /// nothing.
        pub snapshot: u32,
        /// The low bits of the index of the snapshot of the launch's frontier; 0: nothing is in it.
        pub frontier: u32,
        /// The number of the launch on the publisher's device.
        pub launch: u32,
        /// Which of the overtaken launches the publisher knew to be complete, a bit each.
        pub taken: u32,
    }
}

structure! {
    /// The entries of one bank in a clock.
    pub struct Segment = "gsan_segment", size 4, align 4 {
        /// How many entries, from slot 0, are held; 0: the segment is unused.
        pub length: u16,
        /// The bank, counted over all devices.
        pub bank: u16,
    }
}

structure! {
    /// The head of a private clock or a snapshot. If clocks have more than three segments, the others
    /// follow; then the entries, segment by segment. Merging goes by the source's header.
    pub struct ClockHeader = "gsan_clock_header", size 16, align 16 {
        /// The checkpoint whose epochs are part of the clock; 0: none.
        pub checkpoint: u32,
        /// The first segments, used from the front.
        pub segments: [Segment; 3],
    }
}

/// How large clocks are. The head is a whole number of 16 bytes and so is each segment: a lane of a
/// warp copies that much at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockShape {
    segments: u32,
    entries: u32,
}

impl ClockShape {
    /// The smallest clock that has room for `segments` banks, at least one, of `slots` slots each.
    pub const fn holding(segments: u32, slots: u32) -> ClockShape {
        ClockShape {
            segments: (segments + 1).next_multiple_of(4) - 1,
            entries: slots.next_multiple_of(4),
        }
    }

    /// How many banks a clock can hold entries of: 3, 7, 11, …
    pub const fn segments(self) -> u32 {
        self.segments
    }

    /// How many entries a segment has room for, a multiple of 4.
    pub const fn entries(self) -> u32 {
        self.entries
    }

    /// The size of a clock, in 32-bit words.
    pub const fn words(self) -> usize {
        self.first_entry(self.segments)
    }

    /// Where, in 32-bit words, the [`Segment`] of segment `index` lies.
    pub const fn segment(self, index: u32) -> usize {
        core::mem::offset_of!(ClockHeader, segments) / 4 + index as usize
    }

    /// Where, in 32-bit words, the entries of segment `index` start.
    pub const fn first_entry(self, index: u32) -> usize {
        self.segment(self.segments) + index as usize * self.entries as usize
    }
}

structure! {
    /// The checkpoints of a device: copies of all mirrored epochs. Their epochs lie apart, a u32 for each
    /// thread id of the topology.
    pub struct Checkpoints = "gsan_checkpoints", size 384, align 128 {
        /// 1 while somebody copies.
        pub busy: u32,
        /// How many were taken.
        pub taken: u32,
        /// The head of the publications before each was begun, plus 1; 0: not taken yet.
        pub positions: [u64; 32],
        /// 0.
        pub reserved: [u64; 15],
    }
}

structure! {
    /// The head of a foreign row; a clock entry for each thread id of the topology follows. A row of one
    /// bank is an entry for each of its slots, without a head. Rows only grow.
    pub struct RowHeader = "gsan_row_header", size 64, align 64 {
        /// Not 0 once an entry was made: readers skip the row until then.
        pub filled: u32,
        /// 0.
        pub reserved: [u32; 15],
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering::Relaxed;

    use super::Publication;
    use crate::atomics::{Atomic, Native, words};
    use crate::clock::{ClockEntry, Epoch};
    use crate::compressed::publications::{self, PUBLICATION_WORDS, Publications};
    use crate::compressed::snapshots::SnapshotRef;
    use crate::ids::{LaunchId, ThreadId};

    #[test]
    fn a_publication_in_memory_has_the_fields_of_the_structure() {
        let (entries, head) = (words(4 * PUBLICATION_WORDS, 0), Atomic::new(0));
        let ring = Publications::<Native>::new(&entries, &head, 100);
        let token = ring.claim().unwrap();
        let entry = ClockEntry::all(Epoch::new(0x12_3456).unwrap());
        assert!(ring.write(
            token,
            &publications::Publication {
                publisher: ThreadId(0x1111),
                entry,
                joined: true,
                snapshot: SnapshotRef::from_bits(0x3333_3333),
                frontier: SnapshotRef::from_bits(0x4444_4444),
                launch: LaunchId(0x5555_5555),
                taken: 0x6666,
            }
        ));
        let memory: Vec<u64> = entries.iter().map(|word| word.load(Relaxed)).collect();
        let first: Publication = bytemuck::pod_read_unaligned(bytemuck::cast_slice(&memory[..4]));
        assert_eq!(
            first,
            Publication {
                state: (token.get() + 1) << 1,
                entry: entry.bits(),
                publisher: 0x1111,
                joined: 1,
                snapshot: 0x3333_3333,
                frontier: 0x4444_4444,
                launch: 0x5555_5555,
                taken: 0x6666,
            }
        );
    }
}
