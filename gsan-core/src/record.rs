//! Records: one access, or one synchronisation, in 64 bits.
//!
//! Both forms share the low 27 bits, so that a check may look at thread id, mask and scope before
//! it knows which form it has:
//!
//! | bits | ordinary record | sync record |
//! | --- | --- | --- |
//! | 0..16 | thread id | publisher's thread id |
//! | 16..24 | byte mask | union of the bytes |
//! | 24..26 | scope, 0 not atomic | widest scope |
//! | 26 | 0 | 1 |
//! | 27 | write | token, bit 0 |
//! | 28..40 | site | token |
//! | 40..64 | epoch | token |
//!
//! A word that is all 0 is empty.

use crate::clock::Epoch;
use crate::ids::{SiteId, ThreadId};
use crate::scope::Scope;

/// Where the fields of a word lie. Device code gets the same numbers through the C header.
pub mod bits {
    constants! { "GSAN_RECORD_":
        /// Lowest bit of the thread id.
        pub const THREAD_SHIFT: u32 = 0;
        /// Bits of the thread id.
        pub const THREAD_BITS: u32 = 16;
        /// Lowest bit of the byte mask.
        pub const MASK_SHIFT: u32 = 16;
        /// Bits of the byte mask.
        pub const MASK_BITS: u32 = 8;
        /// Lowest bit of the scope.
        pub const SCOPE_SHIFT: u32 = 24;
        /// Bits of the scope.
        pub const SCOPE_BITS: u32 = 2;
        /// The bit that tells a sync record.
        pub const SYNC_SHIFT: u32 = 26;
        /// The bit that tells a write.
        pub const WRITE_SHIFT: u32 = 27;
        /// Lowest bit of the site.
        pub const SITE_SHIFT: u32 = 28;
        /// Bits of the site.
        pub const SITE_BITS: u32 = 12;
        /// Lowest bit of the epoch.
        pub const EPOCH_SHIFT: u32 = 40;
        /// Bits of the epoch.
        pub const EPOCH_BITS: u32 = 24;
        /// Lowest bit of the token of a sync record.
        pub const TOKEN_SHIFT: u32 = 27;
        /// Bits of the token of a sync record.
        pub const TOKEN_BITS: u32 = 37;
    }
}

/// The numbers of the scopes.
pub mod scope {
    constants! { "GSAN_SCOPE_":
        /// An ordinary access.
        pub const NOT_ATOMIC: u32 = super::RecordScope::NotAtomic as u32;
        /// Atomic among the threads of one CTA.
        pub const CTA: u32 = super::RecordScope::Cta as u32;
        /// Atomic among the threads of one device.
        pub const GPU: u32 = super::RecordScope::Gpu as u32;
        /// Atomic among all threads.
        pub const SYS: u32 = super::RecordScope::Sys as u32;
    }
}

use bits::*;

/// The largest site a record can name; others become [`SiteId::UNKNOWN`].
pub const MAX_SITE: u32 = (1 << SITE_BITS) - 1;

/// Whether an access was atomic, and how far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum RecordScope {
    /// An ordinary access.
    NotAtomic = 0,
    /// Atomic among the threads of one CTA.
    Cta = 1,
    /// Atomic among the threads of one device; stands for `.cluster` too.
    Gpu = 2,
    /// Atomic among all threads.
    Sys = 3,
}

impl RecordScope {
    const fn from_bits(bits: u64) -> RecordScope {
        match bits & 3 {
            0 => RecordScope::NotAtomic,
            1 => RecordScope::Cta,
            2 => RecordScope::Gpu,
            _ => RecordScope::Sys,
        }
    }

    /// The scope as the program said it; `None` for an ordinary access.
    pub const fn scope(self) -> Option<Scope> {
        match self {
            RecordScope::NotAtomic => None,
            RecordScope::Cta => Some(Scope::Cta),
            RecordScope::Gpu => Some(Scope::Gpu),
            RecordScope::Sys => Some(Scope::Sys),
        }
    }
}

impl From<Scope> for RecordScope {
    fn from(scope: Scope) -> Self {
        match scope {
            Scope::Cta => RecordScope::Cta,
            Scope::Cluster | Scope::Gpu => RecordScope::Gpu,
            Scope::Sys => RecordScope::Sys,
        }
    }
}

/// The fields of an ordinary record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordFields {
    /// Who.
    pub thread: ThreadId,
    /// When, on the thread's own count.
    pub epoch: Epoch,
    /// Which bytes of the granule; 0 only announces an access ([`crate::cell`]).
    pub mask: u8,
    /// Whether it wrote.
    pub write: bool,
    /// Whether it was atomic, and how far.
    pub scope: RecordScope,
    /// Where in the source.
    pub site: SiteId,
}

/// An ordinary record: one access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Record(u64);

impl Record {
    /// Packs the fields.
    #[inline]
    pub const fn new(fields: RecordFields) -> Record {
        let site = if fields.site.0 > MAX_SITE {
            SiteId::UNKNOWN.0
        } else {
            fields.site.0
        };
        Record(
            fields.thread.0 as u64
                | (fields.mask as u64) << MASK_SHIFT
                | (fields.scope as u64) << SCOPE_SHIFT
                | (fields.write as u64) << WRITE_SHIFT
                | (site as u64) << SITE_SHIFT
                | (fields.epoch.get() as u64) << EPOCH_SHIFT,
        )
    }

    /// The record in a word that is one.
    #[inline]
    pub(crate) const fn from_bits(bits: u64) -> Record {
        Record(bits)
    }

    /// Who.
    #[inline]
    pub const fn thread(self) -> ThreadId {
        ThreadId(self.0 as u16)
    }

    /// When.
    #[inline]
    pub const fn epoch(self) -> Epoch {
        Epoch::from_bits(self.0 >> EPOCH_SHIFT)
    }

    /// Which bytes.
    #[inline]
    pub const fn mask(self) -> u8 {
        (self.0 >> MASK_SHIFT) as u8
    }

    /// Whether it wrote.
    #[inline]
    pub const fn write(self) -> bool {
        self.0 >> WRITE_SHIFT & 1 != 0
    }

    /// Whether it was atomic, and how far.
    #[inline]
    pub const fn scope(self) -> RecordScope {
        RecordScope::from_bits(self.0 >> SCOPE_SHIFT)
    }

    /// Where in the source.
    #[inline]
    pub const fn site(self) -> SiteId {
        SiteId((self.0 >> SITE_SHIFT) as u32 & MAX_SITE)
    }

    /// All fields.
    pub const fn fields(self) -> RecordFields {
        RecordFields {
            thread: self.thread(),
            epoch: self.epoch(),
            mask: self.mask(),
            write: self.write(),
            scope: self.scope(),
            site: self.site(),
        }
    }

    /// The word.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }
}

/// An index into the publications of the publisher's device, counted up and never taken modulo,
/// so that an overwritten entry is recognised. 37 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// The last token. Releases publish nothing once it is reached, until the next restart.
    pub const MAX: Token = Token((1 << TOKEN_BITS) - 1);

    /// The token `index`, or `None` beyond [`Token::MAX`].
    pub const fn new(index: u64) -> Option<Token> {
        if index <= Self::MAX.0 {
            Some(Token(index))
        } else {
            None
        }
    }

    /// The index.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// The fields of a sync record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SyncFields {
    /// Who published last.
    pub publisher: ThreadId,
    /// The bytes that may carry values of release sequences.
    pub mask: u8,
    /// The widest scope of the parts.
    pub scope: RecordScope,
    /// The publication.
    pub token: Token,
}

/// A sync record: values at these bytes may belong to release sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct SyncRecord(u64);

impl SyncRecord {
    /// Packs the fields.
    #[inline]
    pub const fn new(fields: SyncFields) -> SyncRecord {
        SyncRecord(
            fields.publisher.0 as u64
                | (fields.mask as u64) << MASK_SHIFT
                | (fields.scope as u64) << SCOPE_SHIFT
                | 1 << SYNC_SHIFT
                | fields.token.0 << TOKEN_SHIFT,
        )
    }

    /// Who published last.
    #[inline]
    pub const fn publisher(self) -> ThreadId {
        ThreadId(self.0 as u16)
    }

    /// The bytes.
    #[inline]
    pub const fn mask(self) -> u8 {
        (self.0 >> MASK_SHIFT) as u8
    }

    /// The widest scope of the parts.
    #[inline]
    pub const fn scope(self) -> RecordScope {
        RecordScope::from_bits(self.0 >> SCOPE_SHIFT)
    }

    /// The publication.
    #[inline]
    pub const fn token(self) -> Token {
        Token(self.0 >> TOKEN_SHIFT)
    }

    /// All fields.
    pub const fn fields(self) -> SyncFields {
        SyncFields {
            publisher: self.publisher(),
            mask: self.mask(),
            scope: self.scope(),
            token: self.token(),
        }
    }

    /// The record without the bytes of `mask`.
    #[inline]
    pub const fn without(self, mask: u8) -> SyncRecord {
        SyncRecord(self.0 & !((mask as u64) << MASK_SHIFT))
    }

    /// The word.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }
}

/// One word of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Word {
    /// Nothing.
    Empty,
    /// An access.
    Ordinary(Record),
    /// A synchronisation; in word 0 only.
    Sync(SyncRecord),
}

impl Word {
    /// What the word `bits` is.
    #[inline]
    pub const fn from_bits(bits: u64) -> Word {
        if bits == 0 {
            Word::Empty
        } else if bits >> SYNC_SHIFT & 1 == 0 {
            Word::Ordinary(Record(bits))
        } else {
            Word::Sync(SyncRecord(bits))
        }
    }

    /// Whether the word `bits` is a sync record.
    #[inline]
    pub const fn is_sync(bits: u64) -> bool {
        bits >> SYNC_SHIFT & 1 != 0
    }

    /// The bits of a word that say that it is about the bytes of `mask`.
    #[inline]
    pub const fn bits_of_mask(mask: u8) -> u64 {
        (mask as u64) << MASK_SHIFT
    }

    /// The bits of the word.
    #[inline]
    pub const fn bits(self) -> u64 {
        match self {
            Word::Empty => 0,
            Word::Ordinary(record) => record.0,
            Word::Sync(record) => record.0,
        }
    }

    /// The bytes it is about.
    #[inline]
    pub const fn mask(self) -> u8 {
        (self.bits() >> MASK_SHIFT) as u8
    }

    /// The access, if it is one.
    #[inline]
    pub const fn ordinary(self) -> Option<Record> {
        match self {
            Word::Ordinary(record) => Some(record),
            _ => None,
        }
    }

    /// The synchronisation, if it is one.
    #[inline]
    pub const fn sync(self) -> Option<SyncRecord> {
        match self {
            Word::Sync(record) => Some(record),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scope() -> impl Strategy<Value = RecordScope> {
        (0u64..4).prop_map(RecordScope::from_bits)
    }

    #[test]
    fn fields_lie_where_the_table_says() {
        let record = Record::new(RecordFields {
            thread: ThreadId(0x1234),
            epoch: Epoch::new(0xabcdef).unwrap(),
            mask: 0x5a,
            write: true,
            scope: RecordScope::Gpu,
            site: SiteId(0x789),
        });
        assert_eq!(record.bits(), 0xabcd_ef78_9a5a_1234);
        let sync = SyncRecord::new(SyncFields {
            publisher: ThreadId(0x1234),
            mask: 0x5a,
            scope: RecordScope::Sys,
            token: Token::new(1).unwrap(),
        });
        assert_eq!(sync.bits(), 1 << 27 | 0x075a_1234);
    }

    #[test]
    fn a_site_beyond_the_field_is_unknown() {
        let fields = RecordFields {
            thread: ThreadId(1),
            epoch: Epoch::ZERO,
            mask: 1,
            write: false,
            scope: RecordScope::NotAtomic,
            site: SiteId(MAX_SITE + 1),
        };
        assert_eq!(Record::new(fields).site(), SiteId::UNKNOWN);
    }

    #[test]
    fn scopes_round_up() {
        assert_eq!(RecordScope::from(Scope::Cta).scope(), Some(Scope::Cta));
        assert_eq!(RecordScope::from(Scope::Cluster).scope(), Some(Scope::Gpu));
        assert_eq!(RecordScope::from(Scope::Gpu).scope(), Some(Scope::Gpu));
        assert_eq!(RecordScope::from(Scope::Sys).scope(), Some(Scope::Sys));
        assert_eq!(RecordScope::NotAtomic.scope(), None);
    }

    #[test]
    fn tokens_end() {
        assert_eq!(Token::new(Token::MAX.get() + 1), None);
        assert_eq!(Token::new(1 << 36).unwrap().get(), 1 << 36);
    }

    proptest! {
        #[test]
        fn every_field_of_a_record_round_trips(
            thread: u16, epoch in 0..=Epoch::MAX.get(), mask in 1u8.., write: bool,
            scope in scope(), site in 0..=MAX_SITE,
        ) {
            let fields = RecordFields {
                thread: ThreadId(thread),
                epoch: Epoch::new(epoch).unwrap(),
                mask,
                write,
                scope,
                site: SiteId(site),
            };
            let word = Word::from_bits(Record::new(fields).bits());
            prop_assert_eq!(word.ordinary().map(Record::fields), Some(fields));
            prop_assert_eq!(word.sync(), None);
            prop_assert_eq!(Word::from_bits(word.bits()), word);
        }

        #[test]
        fn every_field_of_a_sync_record_round_trips(
            publisher: u16, mask in 1u8.., scope in scope(), token in 0..=Token::MAX.get(),
        ) {
            let fields = SyncFields {
                publisher: ThreadId(publisher),
                mask,
                scope,
                token: Token::new(token).unwrap(),
            };
            let word = Word::from_bits(SyncRecord::new(fields).bits());
            prop_assert_eq!(word.sync().map(SyncRecord::fields), Some(fields));
            prop_assert_eq!(word.ordinary(), None);
            prop_assert_eq!(Word::from_bits(word.bits()), word);
        }

        #[test]
        fn a_sync_record_loses_bytes_and_keeps_the_rest(mask: u8, gone: u8) {
            let record = SyncRecord::new(SyncFields {
                publisher: ThreadId(7),
                mask,
                scope: RecordScope::Gpu,
                token: Token::MAX,
            });
            let left = record.without(gone).fields();
            prop_assert_eq!(left, SyncFields { mask: mask & !gone, ..record.fields() });
        }
    }
}
