//! Publications: what a release tells, one ring entry each.
//!
//! A token counts up and is never taken modulo, so an entry that was overwritten is recognised.
//! So is one that was never written: a token whose entry says something else is a **TOP**
//! publication, "everything up to a moment", and stands for a checkpoint taken after it was
//! claimed. Releases that cannot say what they know claim a token and leave it at that.

use core::sync::atomic::Ordering::{Relaxed, Release};

use super::ring::EntryState;
use super::snapshots::SnapshotRef;
use crate::atomics::{Atomic, Essential, Memory};
use crate::clock::ClockEntry;
use crate::ids::{LaunchId, ThreadId};
use crate::layout;
use crate::record::Token;

/// What a release published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publication {
    /// Who released.
    pub publisher: ThreadId,
    /// Its own epochs, from the start of its CTA to the release.
    pub entry: ClockEntry,
    /// It contains another release sequence, perhaps of another device.
    pub joined: bool,
    /// What it knew beyond its frontier.
    pub snapshot: Option<SnapshotRef>,
    /// Its frontier, for acquirers of other launches; `None` when nothing is in it.
    pub frontier: Option<SnapshotRef>,
    /// The launch, on the publisher's device.
    pub launch: LaunchId,
    /// Which of the overtaken launches it knew to be complete, a bit each.
    pub taken: u16,
}

impl Publication {
    /// As it lies in memory, without the state.
    fn in_memory(&self) -> layout::Publication {
        layout::Publication {
            state: 0,
            entry: self.entry.bits(),
            publisher: self.publisher.0,
            joined: self.joined.into(),
            snapshot: self.snapshot.map_or(0, SnapshotRef::bits),
            frontier: self.frontier.map_or(0, SnapshotRef::bits),
            launch: self.launch.0,
            taken: self.taken.into(),
        }
    }

    fn from_memory(memory: layout::Publication) -> Publication {
        Publication {
            publisher: ThreadId(memory.publisher),
            entry: ClockEntry::from_bits(memory.entry),
            joined: memory.joined != 0,
            snapshot: SnapshotRef::from_bits(memory.snapshot),
            frontier: SnapshotRef::from_bits(memory.frontier),
            launch: LaunchId(memory.launch),
            taken: memory.taken as u16,
        }
    }
}

/// 64-bit words of an entry.
pub const PUBLICATION_WORDS: usize = size_of::<layout::Publication>() / 8;

/// The publications of one device.
#[derive(Debug)]
pub struct Publications<'m, M: Memory> {
    entries: &'m [M::U64],
    head: &'m M::U64,
    limit: u64,
}

impl<'m, M: Memory> Publications<'m, M> {
    /// The ring in `entries`, [`PUBLICATION_WORDS`] words each. Tokens from `limit` on are never
    /// handed out.
    pub fn new(entries: &'m [M::U64], head: &'m M::U64, limit: u64) -> Self {
        debug_assert!(entries.len() >= PUBLICATION_WORDS && limit <= Token::MAX.get());
        Publications {
            entries,
            head,
            limit,
        }
    }

    /// How many are kept.
    pub fn len(&self) -> u64 {
        (self.entries.len() / PUBLICATION_WORDS) as u64
    }

    /// Whether none can be kept; never true.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The word that counts claimed tokens.
    pub const fn head(&self) -> &'m M::U64 {
        self.head
    }

    /// A new token, or `None` when they are used up. What the publication tells must be known
    /// before: a checkpoint that sees the token counted stands for it.
    pub fn claim(&self) -> Option<Token> {
        if self.head.load(Relaxed) >= self.limit {
            return None;
        }
        let order = M::order(Essential::HeadBeforeCheckpoint, Release);
        Token::new(self.head.fetch_add(1, order)).filter(|token| token.get() < self.limit)
    }

    /// Whether `token` is a sixteenth of the ring after another one: a checkpoint is due.
    pub fn checkpoint_is_due(&self, token: Token) -> bool {
        token.get().is_multiple_of((self.len() / 16).max(1))
    }

    /// Whether fewer than half of the ring was claimed since `token`.
    pub fn is_recent(&self, token: Token) -> bool {
        self.head.load(Relaxed).saturating_sub(token.get()) <= (self.len() / 2).max(1)
    }

    fn entry(&self, token: Token) -> (EntryState<'m, M>, &'m [M::U64]) {
        let first = (token.get() % self.len()) as usize * PUBLICATION_WORDS;
        let words = &self.entries[first..][..PUBLICATION_WORDS];
        (EntryState(&words[0]), &words[1..])
    }

    /// Writes what `token` tells. If that is not possible, `token` stays a TOP publication.
    #[must_use]
    pub fn write(&self, token: Token, publication: &Publication) -> bool {
        let (state, words) = self.entry(token);
        if !state.claim(token.get()) {
            return false;
        }
        let [_, told @ ..]: [u64; PUBLICATION_WORDS] = bytemuck::cast(publication.in_memory());
        for (word, told) in words.iter().zip(told) {
            word.store(told, Relaxed);
        }
        state.complete(token.get());
        true
    }

    /// What `token` tells, or `None` for a TOP publication and for one that was overwritten.
    pub fn read(&self, token: Token) -> Option<Publication> {
        let (state, words) = self.entry(token);
        let mut read = [0; PUBLICATION_WORDS];
        for (read, word) in read[1..].iter_mut().zip(words) {
            *read = word.load(Relaxed);
        }
        if !state.is_still_written(token.get()) {
            return None;
        }
        Some(Publication::from_memory(bytemuck::cast(read)))
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicU64;

    use proptest::prelude::*;

    use super::*;
    use crate::atomics::{Native, words};

    fn token(index: u64) -> Token {
        Token::new(index).unwrap()
    }

    prop_compose! {
        fn publication()(
            publisher: u16, entry: u32, joined: bool, snapshot: u32,
            frontier: u32, launch: u32, taken: u16,
        ) -> Publication {
            Publication {
                publisher: ThreadId(publisher),
                entry: ClockEntry::from_bits(entry),
                joined,
                snapshot: SnapshotRef::from_bits(snapshot),
                frontier: SnapshotRef::from_bits(frontier),
                launch: LaunchId(launch),
                taken,
            }
        }
    }

    #[test]
    fn tokens_end_at_the_limit() {
        let (entries, head) = (words(4 * PUBLICATION_WORDS, 0), AtomicU64::new(8));
        let ring = Publications::<Native>::new(&entries, &head, 10);
        assert_eq!(ring.claim(), Some(token(8)));
        assert!(ring.checkpoint_is_due(token(8)));
        assert_eq!(ring.claim(), Some(token(9)));
        assert_eq!(ring.claim(), None);
        assert_eq!(head.load(Relaxed), 10);
        assert!(ring.is_recent(token(8)));
        assert!(!ring.is_recent(token(7)));
    }

    #[test]
    fn a_checkpoint_is_due_every_sixteenth_of_the_ring() {
        let (entries, head) = (words(64 * PUBLICATION_WORDS, 0), AtomicU64::new(0));
        let ring = Publications::<Native>::new(&entries, &head, 1000);
        let due: Vec<u64> = (0..13)
            .filter(|&t| ring.checkpoint_is_due(token(t)))
            .collect();
        assert_eq!(due, [0, 4, 8, 12]);
    }

    proptest! {
        #[test]
        fn a_publication_is_read_until_its_entry_is_used_again(
            told in prop::collection::vec(prop::option::of(publication()), 1..12),
        ) {
            let (entries, head) = (words(4 * PUBLICATION_WORDS, 0), AtomicU64::new(0));
            let ring = Publications::<Native>::new(&entries, &head, 1000);
            for publication in &told {
                let token = ring.claim().unwrap();
                if let Some(publication) = publication {
                    prop_assert!(ring.write(token, publication));
                    prop_assert!(!ring.write(token, publication), "written already");
                }
            }
            for (index, publication) in told.iter().enumerate() {
                let overwritten =
                    told.iter().skip(index + 4).step_by(4).any(Option::is_some);
                let expected = publication.filter(|_| !overwritten);
                prop_assert_eq!(ring.read(token(index as u64)), expected);
            }
        }
    }
}
