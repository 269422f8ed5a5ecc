//! Copies of site tables: where races happened, known to the host though the device is gone.
//!
//! Races name sites by number, and the table of them lies in the device's state region, which goes
//! with its context. So a process that crashes leaves the names it needs in a mirror: memory of
//! the host ([`layout::SiteMirror`], entries and file names behind it) to which the device copies
//! each site that it adds to its table: name, entry, then `ready`. There is one for each device,
//! since devices number sites on their own: the `device` of a race's side says which.
//!
//! **Use.** Take [`SiteMirror::DEVICE_WORDS`] words of memory that devices reach and that outlives the
//! process, [`format`](SiteMirror::format) them, and give their address as the device sees it to the
//! state region ([`GlobalState::site_mirror`](layout::GlobalState::site_mirror)) before the first
//! launch. Whoever has the memory later, another process too, opens it with
//! [`new`](SiteMirror::new). A mirror belongs to one state region: format it again for a new one. A
//! restart keeps sites.
//!
//! Whatever a crashed process left is read: nothing in the memory is trusted.

use core::mem::size_of;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::atomics::{Atomic, Essential, Memory};
use crate::ids::SiteId;
use crate::layout::{self, Site, limits};

const WORD: usize = size_of::<u64>();
const HEADER_WORDS: usize = size_of::<layout::SiteMirror>() / WORD;
const SITE_WORDS: usize = size_of::<Site>() / WORD;
const READY: usize = core::mem::offset_of!(Site, ready) / WORD;

/// Names of files are shorter; what says that it is longer is garbage.
const MAX_FILE_BYTES: u32 = 1 << 14;

/// Memory that is no copy of a site table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SiteMirrorError {
    /// It was not set up, or is something else.
    #[error(
        "the memory is no copy of a site table: it starts with {found:#010x}, not {:#010x}",
        limits::MAGIC
    )]
    Magic {
        /// What its first word is.
        found: u32,
    },
    /// Another version of the library wrote it.
    #[error(
        "the copy of a site table has layout version {found}; this library reads version {}",
        limits::VERSION
    )]
    Version {
        /// Its version.
        found: u32,
    },
    /// There is less memory than it takes.
    #[error(
        "{sites} sites and {text_bytes} bytes of file names take {needed} words of 64 bits, not \
         {words}"
    )]
    TooSmall {
        /// How many sites it is to hold.
        sites: u32,
        /// How many bytes of file names it is to hold.
        text_bytes: u32,
        /// How many 64-bit words there are.
        words: usize,
        /// How many it takes.
        needed: u64,
    },
}

/// A line of a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLine {
    /// The file's name as the compiler wrote it; bytes that are no UTF-8 are replaced. Empty if the
    /// device had no room for it.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
}

/// A copy of a device's site table.
#[derive(Debug)]
pub struct SiteMirror<'m, M: Memory> {
    sites: &'m [M::U64],
    texts: &'m [M::U64],
}

impl<M: Memory> Clone for SiteMirror<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Memory> Copy for SiteMirror<'_, M> {}

impl<'m, M: Memory> SiteMirror<'m, M> {
    /// How many 64-bit words hold all that a device's own table can: about 1.1 MiB.
    pub const DEVICE_WORDS: u64 = Self::words(limits::SITES, limits::SITE_TEXT_BYTES);

    /// How many 64-bit words hold `sites` sites and `text_bytes` bytes of file names.
    pub const fn words(sites: u32, text_bytes: u32) -> u64 {
        let texts = text_bytes.div_ceil(WORD as u32);
        HEADER_WORDS as u64 + sites as u64 * SITE_WORDS as u64 + texts as u64
    }

    /// Makes an empty mirror in `words` with room for all sites of a device. Nobody else may use them
    /// yet.
    ///
    /// # Errors
    /// There are too few words.
    pub fn format(words: &'m [M::U64]) -> Result<Self, SiteMirrorError> {
        Self::with_room(words, limits::SITES, limits::SITE_TEXT_BYTES)
    }

    /// The same with room for less. Sites that find none are unknown here.
    ///
    /// # Errors
    /// There are too few words.
    pub fn with_room(
        words: &'m [M::U64],
        sites: u32,
        text_bytes: u32,
    ) -> Result<Self, SiteMirrorError> {
        let mirror = Self::split(words, sites, text_bytes)?;
        let used = HEADER_WORDS + mirror.sites.len() + mirror.texts.len();
        for word in &words[..used] {
            word.store(0, Relaxed);
        }
        words[1].store(pair(sites, text_bytes), Relaxed);
        words[0].store(pair(limits::MAGIC, limits::VERSION), Release);
        Ok(mirror)
    }

    /// The mirror that was made in `words`.
    ///
    /// # Errors
    /// There is none, or one of another layout.
    pub fn new(words: &'m [M::U64]) -> Result<Self, SiteMirrorError> {
        let header = |index: usize| words.get(index).map_or(0, |word| word.load(Acquire));
        let [found, version] = halves(header(0));
        if found != limits::MAGIC {
            return Err(SiteMirrorError::Magic { found });
        }
        if version != limits::VERSION {
            return Err(SiteMirrorError::Version { found: version });
        }
        let [sites, text_bytes] = halves(header(1));
        Self::split(words, sites, text_bytes)
    }

    fn split(words: &'m [M::U64], sites: u32, text_bytes: u32) -> Result<Self, SiteMirrorError> {
        let needed = Self::words(sites, text_bytes);
        let used = usize::try_from(needed).ok().and_then(|n| words.get(..n));
        let used = used.ok_or(SiteMirrorError::TooSmall {
            sites,
            text_bytes,
            words: words.len(),
            needed,
        })?;
        let (sites, texts) = used[HEADER_WORDS..].split_at(sites as usize * SITE_WORDS);
        Ok(SiteMirror { sites, texts })
    }

    fn entry(&self, site: SiteId) -> Option<&'m [M::U64]> {
        let start = (site.0 as usize).checked_mul(SITE_WORDS)?;
        self.sites.get(start..)?.get(..SITE_WORDS)
    }

    /// Where a site is. `None` for the unknown one, and for one that is not there: the device may still
    /// be about to write it, had no room, or the memory was overwritten.
    pub fn get(&self, site: SiteId) -> Option<SourceLine> {
        if site == SiteId::UNKNOWN {
            return None;
        }
        let entry = self.entry(site)?;
        let [_, ready] = halves(entry[READY].load(Acquire));
        if ready != 1 {
            return None;
        }
        let fields: [u64; SITE_WORDS] = core::array::from_fn(|word| entry[word].load(Relaxed));
        let Site {
            text, bytes, line, ..
        } = bytemuck::cast(fields);
        let name = self.text(text, bytes)?;
        (line != 0).then(|| SourceLine {
            file: String::from_utf8_lossy(&name).into_owned(),
            line,
        })
    }

    fn text(&self, start: u32, bytes: u32) -> Option<Vec<u8>> {
        let end = u64::from(start) + u64::from(bytes);
        if bytes > MAX_FILE_BYTES || end > (WORD * self.texts.len()) as u64 {
            return None;
        }
        let byte = |at: usize| self.texts[at / WORD].load(Relaxed).to_le_bytes()[at % WORD];
        let bytes: Vec<u8> = (start as usize..end as usize).map(byte).collect();
        (!bytes.contains(&0)).then_some(bytes)
    }

    /// All sites that are there, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (SiteId, SourceLine)> {
        let count = (self.sites.len() / SITE_WORDS) as u32;
        (0..count).filter_map(|number| Some((SiteId(number), self.get(SiteId(number))?)))
    }

    /// Copies a site, as the device does: its name lies at `text` in the table that is mirrored, where
    /// nothing was yet. Returns whether there was room for the entry; without room for the name, the
    /// entry has an empty one.
    pub fn add(&self, site: SiteId, text: u32, file: &str, line: u32) -> bool {
        let Some(entry) = self.entry(site) else {
            return false;
        };
        let end = u64::from(text) + file.len() as u64;
        let fits = end <= (WORD * self.texts.len()) as u64;
        let name = if fits { file } else { "" };
        for (at, byte) in (text as usize..).zip(name.bytes()) {
            // Names are not aligned, and another one's bytes may lie in the same word.
            let bits = u64::from(byte) << (8 * (at % WORD));
            self.texts[at / WORD].fetch_or(bits, Relaxed);
        }
        let copy = Site {
            key: 1,
            text: if fits { text } else { 0 },
            bytes: name.len() as u32,
            line,
            ready: 1,
            flags: 0,
            reserved: 0,
        };
        let fields: [u64; SITE_WORDS] = bytemuck::cast(copy);
        for index in (0..SITE_WORDS).filter(|&index| index != READY) {
            entry[index].store(fields[index], Relaxed);
        }
        entry[READY].store(fields[READY], M::order(Essential::SiteFilled, Release));
        true
    }
}

const fn pair(low: u32, high: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

const fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicU64;

    use proptest::prelude::*;

    use super::*;
    use crate::atomics::{Native, words};

    type Mirror<'m> = SiteMirror<'m, Native>;

    fn memory(sites: u32, text_bytes: u32) -> Vec<AtomicU64> {
        words(Mirror::words(sites, text_bytes) as usize, u64::MAX)
    }

    fn line(file: &str, line: u32) -> Option<SourceLine> {
        let file = file.to_owned();
        Some(SourceLine { file, line })
    }

    #[test]
    fn sites_arrive_as_they_were_written() {
        let memory = memory(4, 32);
        let mirror = Mirror::with_room(&memory, 4, 32).unwrap();
        assert!(mirror.add(SiteId(1), 0, "split.py", 24));
        assert!(mirror.add(SiteId(3), 8, "kernels/é.py", 7));
        let mirror = Mirror::new(&memory).unwrap();
        assert_eq!(mirror.get(SiteId(1)), line("split.py", 24));
        assert_eq!(mirror.get(SiteId(2)), None);
        assert_eq!(mirror.get(SiteId(3)), line("kernels/é.py", 7));
        let all: Vec<u32> = mirror.iter().map(|(site, _)| site.0).collect();
        assert_eq!(all, [1, 3]);
    }

    #[test]
    fn a_mirror_of_a_device_holds_all_its_sites() {
        // A head of 16 words, 4,096 sites of 4 words, 1 MiB.
        assert_eq!(Mirror::DEVICE_WORDS, 16 + 4 * 4096 + (1 << 17));
        let memory: Vec<AtomicU64> = words(Mirror::DEVICE_WORDS as usize, 1);
        let mirror = Mirror::format(&memory).unwrap();
        assert!(mirror.add(
            SiteId(limits::SITES - 1),
            limits::SITE_TEXT_BYTES - 4,
            "a.py",
            1
        ));
        assert_eq!(mirror.get(SiteId(limits::SITES - 1)), line("a.py", 1));
        assert_eq!(mirror.get(SiteId(limits::SITES)), None);
        assert_eq!(mirror.get(SiteId(u32::MAX)), None);
    }

    #[test]
    fn what_finds_no_room_is_unknown() {
        let memory = memory(3, 8);
        let mirror = Mirror::with_room(&memory, 3, 8).unwrap();
        assert!(!mirror.add(SiteId(3), 0, "a.py", 1));
        // The line is known, the file is not.
        assert!(mirror.add(SiteId(2), 4, "long.py", 2));
        assert_eq!(mirror.get(SiteId(2)), line("", 2));
        assert_eq!(mirror.get(SiteId(3)), None);
    }

    #[test]
    fn memory_that_is_no_mirror_is_refused() {
        let memory = memory(4, 64);
        let open = |words| Mirror::new(words).map(|_| ()).unwrap_err();
        assert_eq!(open(&[]), SiteMirrorError::Magic { found: 0 });
        assert_eq!(open(&memory), SiteMirrorError::Magic { found: u32::MAX });
        Mirror::with_room(&memory, 4, 64).unwrap();
        let short = &memory[..memory.len() - 1];
        let error = open(short).to_string();
        // 16 + 4 * 4 + 8 words.
        assert_eq!(
            error,
            "4 sites and 64 bytes of file names take 40 words of 64 bits, not 39"
        );
        assert!(Mirror::with_room(short, 4, 64).is_err());
        memory[1].store(u64::MAX, Relaxed);
        assert!(matches!(open(&memory), SiteMirrorError::TooSmall { .. }));
        memory[0].store(pair(limits::MAGIC, limits::VERSION + 1), Relaxed);
        let found = limits::VERSION + 1;
        assert_eq!(open(&memory), SiteMirrorError::Version { found });
    }

    #[test]
    fn an_entry_that_contradicts_itself_is_unknown() {
        for (text, bytes, at_line) in [(64, 1, 1), (60, 5, 1), (u32::MAX, u32::MAX, 1), (0, 4, 0)] {
            let memory = memory(2, 64);
            let mirror = Mirror::with_room(&memory, 2, 64).unwrap();
            mirror.add(SiteId(1), 0, "a.py", 1);
            let entry = mirror.entry(SiteId(1)).unwrap();
            entry[1].store(pair(text, bytes), Relaxed);
            entry[READY].store(pair(at_line, 1), Relaxed);
            assert_eq!(mirror.get(SiteId(1)), None, "{text} {bytes} {at_line}");
        }
        // A name with a NUL was never written.
        let memory = memory(2, 64);
        let mirror = Mirror::with_room(&memory, 2, 64).unwrap();
        mirror.add(SiteId(1), 0, "a.py", 1);
        mirror.entry(SiteId(1)).unwrap()[1].store(pair(0, 5), Relaxed);
        assert_eq!(mirror.get(SiteId(1)), None);
    }

    proptest! {
        #[test]
        fn whatever_the_memory_holds_is_read_without_harm(
            garbage in prop::collection::vec(any::<u64>(), 0..200),
            small in prop::collection::vec((0usize..200, 0u64..80), 0..20),
            header: bool, sites in 0u32..40, text_bytes in 0u32..300,
        ) {
            let memory: Vec<AtomicU64> = garbage.into_iter().map(AtomicU64::new).collect();
            for (at, value) in small {
                if let Some(word) = memory.get(at) {
                    word.store(value << 32 | value, Relaxed);
                }
            }
            if header && memory.len() > 1 {
                memory[0].store(pair(limits::MAGIC, limits::VERSION), Relaxed);
                memory[1].store(pair(sites, text_bytes), Relaxed);
            }
            if let Ok(mirror) = Mirror::new(&memory) {
                for (site, found) in mirror.iter() {
                    prop_assert!(site.0 != 0 && found.line != 0);
                }
                mirror.get(SiteId(u32::MAX));
            }
        }

        #[test]
        fn names_side_by_side_keep_apart(
            names in prop::collection::vec("[a-zé/_.]{0,20}", 1..12),
        ) {
            let memory = memory(16, 512);
            let mirror = Mirror::with_room(&memory, 16, 512).unwrap();
            let mut text = 0;
            for (number, name) in names.iter().enumerate() {
                mirror.add(SiteId(number as u32 + 1), text, name, number as u32 + 1);
                text += name.len() as u32;
            }
            let found: Vec<String> = mirror.iter().map(|(_, found)| found.file).collect();
            prop_assert_eq!(found, names);
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;
    use crate::atomics::{Broken, Loom, words};

    /// Two CTAs add a site each, with names in one word, while the host looks for one.
    fn a_site_is_there_as_a_whole<M: Memory>()
    where
        M::U64: Send + Sync,
    {
        // With few preemptions.
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(|| {
            let memory = words::<M::U64>(SiteMirror::<M>::words(3, 8) as usize, 0);
            SiteMirror::<M>::with_room(&memory, 3, 8).unwrap();
            let memory = Arc::new(memory);
            let ctas = [(1, 0, "ab"), (2, 2, "c")].map(|(site, text, file)| {
                let memory = memory.clone();
                thread::spawn(move || {
                    let mirror = SiteMirror::<M>::new(&memory).unwrap();
                    mirror.add(SiteId(site), text, file, site);
                })
            });
            let mirror = SiteMirror::<M>::new(&memory).unwrap();
            let whole = |found: Option<SourceLine>| {
                found.is_none_or(|found| (found.file.as_str(), found.line) == ("ab", 1))
            };
            assert!(whole(mirror.get(SiteId(1))), "a torn site was read");
            for cta in ctas {
                cta.join().unwrap();
            }
            let files: Vec<String> = mirror.iter().map(|(_, found)| found.file).collect();
            assert_eq!(files, ["ab", "c"]);
        });
    }

    #[test]
    fn sites_are_whole_while_they_are_written() {
        a_site_is_there_as_a_whole::<Loom>();
    }

    #[test]
    #[should_panic(expected = "a torn site was read")]
    fn a_site_that_is_ready_too_early_is_torn() {
        a_site_is_there_as_a_whole::<Broken<{ Essential::SiteFilled as u8 }>>();
    }
}
