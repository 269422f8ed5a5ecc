//! The races that were drained, each once, in the part: once more if it is found again after it was
//! forgotten.
//!
//! A race is counted here before its place in the ring is given back. Whoever reads the part of a
//! process that died in between finds it in the ring as well; what the journal says of it tells the
//! reader not to count it twice.

use std::mem::offset_of;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::Duration;

use gsan_core::ids::SiteId;
use gsan_core::launch_log::LaunchRecord;
use gsan_core::layout::{RaceEntry, RaceSide, race_codes};
use gsan_core::site_mirror::SourceLine;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Part;
use super::format::{FOUND_TIMES, Found, FoundSide, Header, word};
use super::tables::{Grown, Tables, write};

/// What makes two entries one race, as far as numbers tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    kind: u8,
    flags: u16,
    sides: [SideKey; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct SideKey {
    site: u16,
    device: u8,
    kernel: u32,
}

/// Who knows names that the part does not: those of other processes' devices above all.
pub trait Elsewhere: Send {
    /// The source line of a site of the device with this rank.
    fn site(&mut self, rank: u8, site: SiteId) -> Option<SourceLine>;
    /// The name of the kernel of a launch of the device with this rank, one of another process.
    fn kernel(&mut self, rank: u8, launch: u32) -> Option<String>;
}

/// The writer of the races that were found.
#[derive(Debug, Default)]
pub(crate) struct FoundLog {
    known: FxHashMap<Key, u64>,
    count: u64,
    /// Entries before this one were forgotten, and stay as they are.
    first: u64,
    overflow: u64,
    memory: Grown,
    /// Sites of own devices that were waited for in vain, by rank.
    missing: FxHashSet<(u8, u16)>,
}

const JOURNAL: usize = word!(journal);

impl FoundLog {
    /// Counts what a device told of. Returns whether it is a new race.
    pub(crate) fn count(
        &mut self,
        part: &Part,
        entry: &RaceEntry,
        elsewhere: Option<&mut (dyn Elsewhere + 'static)>,
    ) -> bool {
        let launches = [&entry.earlier, &entry.later].map(|side| launch(part, side));
        let side = |side: &RaceSide, launch: Option<LaunchRecord>| SideKey {
            site: side.site,
            device: side.device,
            kernel: launch.map_or(0, |launch| launch.kernel),
        };
        let key = Key {
            kind: entry.kind,
            flags: entry.flags,
            sides: [
                side(&entry.earlier, launches[0]),
                side(&entry.later, launches[1]),
            ],
        };
        let times = 1 + u64::from(entry.repeats);
        let known = self.known.get(&key).copied();
        let index = known.unwrap_or(self.count);
        let section = part.header.found;
        let end = (index + 1) * size_of::<Found>() as u64;
        if index >= section.count || !self.memory.reach(part, section, end) {
            self.overflow = self.overflow.saturating_add(times);
            part.word(word!(overflow)).store(self.overflow, Relaxed);
            return false;
        }
        let counter = &part.section_words(section)
            [index as usize * size_of::<Found>() / 8 + FOUND_TIMES..][..1][0];
        let before = if known.is_some() {
            counter.load(Relaxed)
        } else {
            0
        };
        let journal = &part.words()[JOURNAL..][..3];
        journal[1].store(index, Relaxed);
        journal[2].store(before, Relaxed);
        journal[0].store(entry.stamp, Release);
        if known.is_some() {
            counter.store(before.saturating_add(times), Release);
            return false;
        }
        let found = describe(part, entry, &launches, elsewhere, &mut self.missing);
        // The times are the first word.
        write(part, section, index, &Found { times, ..found });
        self.known.insert(key, index);
        self.count += 1;
        part.word(word!(found_count)).store(self.count, Release);
        true
    }

    /// Races that are found from now on are new ones, and have entries of their own: an entry says who it was
    /// that made the two accesses. Where half of the room is used up, those that are known stay known, so that
    /// a program may forget as often as it likes. Returns from which entry on they may still be counted.
    pub(crate) fn forget_races(&mut self, part: &Part) -> u64 {
        if self.count < part.header.found.count / 2 {
            self.known.clear();
            self.first = self.count;
        }
        self.first
    }

    /// Sites and kernels are about to be numbered anew.
    pub(crate) fn forget_numbers(&mut self) {
        self.known.clear();
        self.missing.clear();
    }
}

const _: () = assert!(offset_of!(Found, times) == 0);
const _: () = assert!(offset_of!(Header, magic) == 0);

fn launch(part: &Part, side: &RaceSide) -> Option<LaunchRecord> {
    if u32::from(side.flags) & race_codes::FORGOTTEN != 0 {
        return None;
    }
    let device = part.device(side.device)?;
    part.launch_log(device).find(side.launch)
}

/// The line of a side on a device of this process. A CTA that finds the site in the device's table may
/// tell of a race before the CTA that added it has copied it to the mirror: that is waited for, once.
fn own_line(
    part: &Part,
    side: &RaceSide,
    missing: &mut FxHashSet<(u8, u16)>,
) -> Option<SourceLine> {
    const LOOKS: u32 = 20;
    const PAUSE: Duration = Duration::from_micros(100);
    let sites = part.sites_of(part.device(side.device)?)?;
    let (site, of) = (SiteId(side.site.into()), (side.device, side.site));
    let looks = if missing.contains(&of) { 1 } else { LOOKS };
    for look in 1..=looks {
        let found = sites.get(site);
        if found.is_some() || site == SiteId::UNKNOWN {
            return found;
        }
        if look < looks {
            std::thread::sleep(PAUSE);
        }
    }
    missing.insert(of);
    None
}

fn describe(
    part: &Part,
    entry: &RaceEntry,
    launches: &[Option<LaunchRecord>; 2],
    mut elsewhere: Option<&mut (dyn Elsewhere + 'static)>,
    missing: &mut FxHashSet<(u8, u16)>,
) -> Found {
    let sides = [&entry.earlier, &entry.later];
    // Asked before the tables are locked: who answers may use them.
    let lines = sides.map(|side| {
        let site = SiteId(side.site.into());
        own_line(part, side, missing).or_else(|| elsewhere.as_mut()?.site(side.device, site))
    });
    let kernels = sides.map(|side| {
        let known = u32::from(side.flags) & race_codes::FORGOTTEN == 0;
        let foreign = known && part.device(side.device).is_none();
        foreign.then(|| elsewhere.as_mut()?.kernel(side.device, side.launch))?
    });
    let mut tables = part.lock();
    let (allocation, allocation_bytes) = tables.allocation(entry.address).unwrap_or_default();
    let [earlier, later] = [0, 1].map(|at| {
        found_side(
            part,
            &mut tables,
            launches[at].as_ref(),
            lines[at].as_ref(),
            kernels[at].as_deref(),
        )
    });
    Found {
        times: 0,
        allocation,
        allocation_bytes,
        reserved: 0,
        entry: bytemuck::cast(*entry),
        earlier,
        later,
        reserved_end: [0; 6],
    }
}

fn found_side(
    part: &Part,
    tables: &mut Tables,
    launch: Option<&LaunchRecord>,
    line: Option<&SourceLine>,
    foreign: Option<&str>,
) -> FoundSide {
    let kernel = launch.and_then(|launch| tables.kernel(launch.kernel));
    let mut side = FoundSide {
        kernel: kernel.map_or_else(
            || foreign.map_or_else(Default::default, |name| tables.text(part, name)),
            |kernel| kernel.name,
        ),
        opaque: kernel.map_or_else(Default::default, |kernel| kernel.opaque),
        ..FoundSide::default()
    };
    if let Some(line) = line {
        side.file = tables.text(part, &line.file);
        side.line = line.line;
    }
    if let Some(launch) = launch {
        side.stream = launch.stream;
        side.grid = launch.grid;
        side.flags = FoundSide::LAUNCH;
        if launch.opaque {
            side.flags |= FoundSide::OPAQUE;
        }
    }
    side
}
