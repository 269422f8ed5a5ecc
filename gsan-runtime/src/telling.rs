//! From parts to a report: each race with the names of both sides.

use std::path::Path;

use gsan_core::ids::SiteId;
use gsan_core::layout::{RaceEntry, RaceSide, race_codes};
use gsan_core::site_mirror::SourceLine;
use gsan_report::builder::{Added, Builder};
use gsan_report::model::{
    self, Action, Allocation, Fault, FaultKind, Hex, Order, Place, PossibleRace, Race, RaceKind,
    Range, Scope, Side, Space, Unchecked, Who,
};
use gsan_report::names;
use rustc_hash::FxHashMap;

use crate::part::{Damaged, Found, FoundSide, PartReader};

/// What is said of a launch whose kernel is opaque for a reason that was not kept.
const OPAQUE: &str = "contains synchronisation that nobody reports";

/// A finding that is the first of its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A race.
    Race(Race),
    /// A race that may be none.
    Possible(PossibleRace),
    /// A wrong use of write-once memory.
    Fault(Fault),
}

/// How many races are kept as they were told, at most.
const MAX_INCOMPLETE: usize = 4096;

impl News {
    /// Whether everything is known that makes it one with others.
    fn is_complete(&self) -> bool {
        let knows = |who: &Who, place: &Option<Place>| who.kernel.is_some() && place.is_some();
        match self {
            News::Race(race) | News::Possible(PossibleRace { race, .. }) => {
                let sides = [&race.earlier, &race.later];
                sides.iter().all(|side| knows(&side.who, &side.place))
            }
            News::Fault(fault) => fault
                .who
                .as_ref()
                .is_some_and(|who| knows(who, &fault.place)),
        }
    }

    /// The same, seen so many times.
    fn seen(mut self, times: u64) -> News {
        match &mut self {
            News::Race(race) | News::Possible(PossibleRace { race, .. }) => race.times = times,
            News::Fault(fault) => fault.times = times,
        }
        self
    }
}

/// What another process knows of its devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownLaunch {
    pub(crate) kernel: Option<String>,
    /// `None`: not known.
    pub(crate) stream: Option<u64>,
    pub(crate) grid: model::Position,
    /// Why its races are only possible ones, if they are.
    pub(crate) opaque: Option<String>,
}

/// The other processes of a run, which know the names of what their devices did.
pub(crate) trait Others {
    fn site(&mut self, rank: u8, site: SiteId) -> Option<SourceLine>;
    fn launch(&mut self, rank: u8, number: u32) -> Option<KnownLaunch>;
}

/// Nobody.
pub(crate) struct Nobody;

impl Others for Nobody {
    fn site(&mut self, _: u8, _: SiteId) -> Option<SourceLine> {
        None
    }
    fn launch(&mut self, _: u8, _: u32) -> Option<KnownLaunch> {
        None
    }
}

impl PartReader {
    /// What is known of a launch of one of the process's devices.
    pub(crate) fn known_launch(&self, rank: u8, number: u32) -> Option<KnownLaunch> {
        let record = self.launch(rank, number)?;
        let kernel = self.kernel(record.kernel).unwrap_or_default();
        let reason = || {
            self.text(kernel.opaque)
                .unwrap_or_else(|| OPAQUE.to_owned())
        };
        Some(KnownLaunch {
            kernel: self.text(kernel.name),
            stream: Some(record.stream),
            grid: record.grid,
            opaque: record.opaque.then(reason),
        })
    }
}

/// Takes the races of one part into a report, each once.
#[derive(Debug)]
pub(crate) struct Follower {
    reader: PartReader,
    /// How often each race was seen, as far as it was told.
    told: Vec<u64>,
    /// Those before this one are not seen again.
    first: u64,
    /// Races that were told without all names: what becomes known later must not make them others.
    incomplete: FxHashMap<u64, News>,
    /// Races that were told from the ring of a process that is gone.
    ring_told: bool,
    overflow_told: u64,
    /// Entries that make no sense, and those that were never written.
    senseless: u64,
    unwritten: u64,
}

impl Follower {
    pub(crate) fn open(path: &Path) -> Result<Follower, Damaged> {
        PartReader::open(path).map(Follower::new)
    }

    pub(crate) fn new(reader: PartReader) -> Follower {
        Follower {
            reader,
            told: Vec::new(),
            first: 0,
            incomplete: FxHashMap::default(),
            ring_told: false,
            overflow_told: 0,
            senseless: 0,
            unwritten: 0,
        }
    }

    pub(crate) const fn reader(&self) -> &PartReader {
        &self.reader
    }

    pub(crate) const fn reader_mut(&mut self) -> &mut PartReader {
        &mut self.reader
    }

    /// Tells of races that are new in the part.
    pub(crate) fn follow(
        &mut self,
        builder: &mut Builder,
        others: &mut dyn Others,
    ) -> Result<Vec<News>, Damaged> {
        self.reader.refresh()?;
        let mut news = Vec::new();
        loop {
            let first = self.told.len() as u64;
            let more = self.reader.found(first)?;
            if more.is_empty() {
                return Ok(news);
            }
            for found in &more {
                // A process that dies while it writes one has not counted it.
                let index = self.told.len() as u64;
                self.told.push(found.times);
                let item = self.item(found, found.times, others);
                if let Some(item) = item.as_ref().filter(|item| !item.is_complete())
                    && self.incomplete.len() < MAX_INCOMPLETE
                {
                    self.incomplete.insert(index, item.clone());
                }
                self.add(item, builder, &mut news);
            }
        }
    }

    /// Races before number `first` were forgotten, and will not be counted any more.
    pub(crate) fn forget_before(&mut self, first: u64) {
        self.first = first;
        self.incomplete.retain(|&index, _| index >= first);
    }

    /// Tells of all that is new since the last time, of known races how often they were seen since. With
    /// `gone`, the process does not write any more, and what is left in its ring is told as well.
    pub(crate) fn settle(
        &mut self,
        builder: &mut Builder,
        others: &mut dyn Others,
        gone: bool,
    ) -> Result<Vec<News>, Damaged> {
        let mut news = self.follow(builder, others)?;
        let gone = gone && !self.reader.has_finished();
        let unfinished = self.reader.being_counted().filter(|_| gone);
        let mut counted = None;
        let mut first = self.first;
        while first < self.told.len() as u64 {
            let some = self.reader.found(first)?;
            if some.is_empty() {
                break;
            }
            for (index, found) in (first..).zip(&some) {
                let mut times = found.times;
                if let Some((stamp, of, before)) = unfinished
                    && of == index
                {
                    times = times.min(before);
                    // It was told of already: not from the ring again.
                    if self.told[index as usize] > times {
                        counted = Some(stamp);
                    }
                }
                let more = times.saturating_sub(self.told[index as usize]);
                if more > 0 {
                    self.told[index as usize] = times;
                    let item = match self.incomplete.get(&index) {
                        Some(item) => Some(item.clone().seen(more)),
                        None => self.item(found, more, others),
                    };
                    self.add(item, builder, &mut news);
                }
            }
            first += some.len() as u64;
        }
        let overflow = self.reader.overflow();
        let not_kept = &mut builder.summary().not_kept;
        *not_kept = not_kept.saturating_add(overflow.saturating_sub(self.overflow_told));
        self.overflow_told = overflow;
        if gone && !self.ring_told {
            self.ring_told = true;
            let (left, unwritten) = self.reader.left_in_ring()?;
            self.unwritten = unwritten;
            for entry in left.iter().filter(|entry| Some(entry.stamp) != counted) {
                let times = 1 + u64::from(entry.repeats);
                let found = Found::of_ring(entry);
                let item = self.item(&found, times, others);
                self.add(item, builder, &mut news);
            }
        }
        Ok(news)
    }

    fn add(&mut self, item: Option<News>, builder: &mut Builder, news: &mut Vec<News>) {
        let Some(item) = item else {
            self.senseless += 1;
            return;
        };
        let added = match item.clone() {
            News::Race(race) => builder.named_race(race, None),
            News::Possible(possible) => builder.named_race(possible.race, Some(possible.reason)),
            News::Fault(fault) => builder.fault(fault),
        };
        if added == Added::New {
            news.push(item);
        }
    }

    /// What the process has checked and lost, into the report, once and at the end. That it is a process
    /// is not counted: one may have had several parts.
    pub(crate) fn sum_up(&self, builder: &mut Builder) {
        let checked = self.reader.checked();
        builder.losses(&checked.losses);
        let summary = builder.summary();
        summary.merge(model::Summary {
            launches: checked.launches,
            accesses: checked.accesses,
            covered_bytes: checked.covered_bytes,
            uncovered_bytes: checked.uncovered_bytes,
            // 0 stands for none: one that is drawn is never 0.
            seeds: (checked.seed != 0)
                .then_some(checked.seed)
                .into_iter()
                .collect(),
            ..model::Summary::default()
        });
        for (count, what) in [
            (
                self.senseless,
                "of its races make no sense: its memory was overwritten",
            ),
            (
                self.unwritten,
                "of its races were being told when it ended, and are lost",
            ),
        ] {
            if count > 0 {
                builder.unchecked(Unchecked {
                    file: process_name(&self.reader),
                    reason: format!("{count} {what}"),
                    place: None,
                    help: None,
                });
            }
        }
    }

    fn item(&mut self, found: &Found, times: u64, others: &mut dyn Others) -> Option<News> {
        let entry: RaceEntry = bytemuck::cast(found.entry);
        let bytes = u64::from(
            8_u32.saturating_sub(entry.mask.leading_zeros() + entry.mask.trailing_zeros()),
        );
        if entry.mask == 0 {
            return None;
        }
        let range = Range {
            space: Space::Global,
            address: Hex(entry.address),
            bytes,
            allocation: self.allocation(found, entry.address),
        };
        let (earlier, earlier_launch) = self.side(&entry.earlier, &found.earlier, others)?;
        let (later, later_launch) = self.side(&entry.later, &found.later, others)?;
        let kind = match u32::from(entry.kind) {
            race_codes::READ_AFTER_WRITE => RaceKind::ReadAfterWrite,
            race_codes::WRITE_AFTER_READ => RaceKind::WriteAfterRead,
            race_codes::WRITE_AFTER_WRITE => RaceKind::WriteAfterWrite,
            race_codes::WRITTEN_TWICE => {
                let kind = FaultKind::WriteOnceWrittenTwice;
                return Some(fault(kind, range, later, Some(&earlier), times));
            }
            race_codes::READ_UNWRITTEN => {
                let kind = FaultKind::WriteOnceReadUnwritten;
                return Some(fault(kind, range, later, None, times));
            }
            race_codes::WRITE_ONCE_ATOMIC => {
                let kind = FaultKind::WriteOnceAtomic;
                return Some(fault(kind, range, later, None, times));
            }
            _ => return None,
        };
        let race = Race {
            kind,
            range,
            earlier,
            later,
            times,
            replay: None,
        };
        // Devices do not see that the earlier launch is one of a graph that is opaque.
        let is_opaque = |launch: &Option<KnownLaunch>| {
            let launch = launch.as_ref();
            launch.is_some_and(|launch| launch.opaque.is_some())
        };
        let opaque = is_opaque(&later_launch) || is_opaque(&earlier_launch);
        if u32::from(entry.flags) & race_codes::POSSIBLE == 0 && !opaque {
            return Some(News::Race(race));
        }
        let reasons = [
            (later_launch, &race.later.who),
            (earlier_launch, &race.earlier.who),
        ];
        let reason = reasons.into_iter().find_map(|(launch, who)| {
            let why = launch?.opaque?;
            let kernel = who.kernel.as_deref().unwrap_or("an unknown kernel");
            Some(format!("launch {} of `{kernel}` {why}", who.launch?))
        });
        let reason = reason.unwrap_or_else(|| format!("one of the two launches {OPAQUE}"));
        Some(News::Possible(PossibleRace { reason, race }))
    }

    fn allocation(&mut self, found: &Found, address: u64) -> Option<Allocation> {
        let (start, bytes) = match found.allocation_bytes {
            0 => self.reader.allocation(address)?,
            bytes => (found.allocation, bytes),
        };
        let offset = address
            .checked_sub(start)
            .filter(|&offset| offset < bytes)?;
        Some(Allocation {
            name: None,
            bytes,
            offset,
        })
    }

    /// A side, and what is known of its launch.
    fn side(
        &mut self,
        side: &RaceSide,
        known: &FoundSide,
        others: &mut dyn Others,
    ) -> Option<(Side, Option<KnownLaunch>)> {
        let flags = u32::from(side.flags);
        let launch = if flags & race_codes::FORGOTTEN != 0 {
            None
        } else {
            self.launch_of(side, known, others)
        };
        let who = if flags & race_codes::FORGOTTEN != 0 {
            Who {
                device: Some(side.device.into()),
                ..Who::default()
            }
        } else {
            Who {
                thread: None,
                // Of another process the kernel's name can be all that is known.
                cta: Some(match &launch {
                    Some(launch) if launch.grid != [0; 3] => names::position(side.cta, launch.grid),
                    _ => [side.cta, 0, 0],
                }),
                kernel: launch.as_ref().and_then(|launch| launch.kernel.clone()),
                launch: Some(side.launch.into()),
                device: Some(side.device.into()),
                stream: launch.as_ref().and_then(|launch| launch.stream).map(Hex),
            }
        };
        let scope = match side.scope {
            0 => None,
            1 => Some(Scope::Cta),
            2 => Some(Scope::Gpu),
            3 => Some(Scope::Sys),
            _ => return None,
        };
        let side = Side {
            who,
            action: match u32::from(side.action) {
                race_codes::READ => Action::Read,
                race_codes::WRITE => Action::Write,
                BOTH => Action::ReadModifyWrite,
                _ => return None,
            },
            order: scope.map_or(Order::Weak, |_| Order::Relaxed),
            scope,
            asynchronous: flags & race_codes::ASYNCHRONOUS != 0,
            place: self.place_of(side, known, others),
        };
        Some((side, launch))
    }

    fn launch_of(
        &self,
        side: &RaceSide,
        known: &FoundSide,
        others: &mut dyn Others,
    ) -> Option<KnownLaunch> {
        if known.flags & FoundSide::LAUNCH != 0 {
            let opaque = known.flags & FoundSide::OPAQUE != 0;
            let reason = || {
                let reason = self.reader.text(known.opaque);
                reason.unwrap_or_else(|| OPAQUE.to_owned())
            };
            return Some(KnownLaunch {
                kernel: self.reader.text(known.kernel),
                stream: Some(known.stream),
                grid: known.grid,
                opaque: opaque.then(reason),
            });
        }
        let found = if self.reader.has_device(side.device) {
            self.reader.known_launch(side.device, side.launch)
        } else {
            others.launch(side.device, side.launch)
        };
        found.or_else(|| {
            Some(KnownLaunch {
                kernel: Some(self.reader.text(known.kernel)?),
                ..KnownLaunch::default()
            })
        })
    }

    fn place_of(
        &mut self,
        side: &RaceSide,
        known: &FoundSide,
        others: &mut dyn Others,
    ) -> Option<Place> {
        let site = SiteId(side.site.into());
        let line = match self.reader.text(known.file) {
            Some(file) => Some(SourceLine {
                file,
                line: known.line,
            }),
            None if self.reader.has_device(side.device) => self.reader.site(side.device, site),
            None => others.site(side.device, site),
        };
        let line = line.filter(|line| !line.file.is_empty() && line.line != 0)?;
        Some(Place {
            file: line.file,
            line: line.line,
            column: None,
            ptx: None,
        })
    }
}

const BOTH: u32 = race_codes::READ | race_codes::WRITE;

/// The process of a part, as people know it.
pub(crate) fn process_name(reader: &PartReader) -> String {
    let command = reader.command().join(" ");
    let command: String = command.chars().take(80).collect();
    match command.as_str() {
        "" => format!("process {}", reader.pid()),
        command => format!("process {} ({command})", reader.pid()),
    }
}

fn fault(kind: FaultKind, range: Range, later: Side, earlier: Option<&Side>, times: u64) -> News {
    let mut notes = Vec::new();
    if let Some(earlier) = earlier {
        notes.push(first_write(earlier));
    }
    News::Fault(Fault {
        who: Some(later.who),
        place: later.place,
        range: Some(range),
        notes,
        times,
        ..Fault::new(kind, kind.sentence())
    })
}

fn first_write(side: &Side) -> String {
    let who = match (side.who.cta, &side.who.kernel, side.who.launch) {
        (Some([x, y, z]), Some(kernel), Some(launch)) => {
            format!("CTA ({x}, {y}, {z}) of `{kernel}`, launch {launch}")
        }
        (Some([x, y, z]), None, Some(launch)) => format!("CTA ({x}, {y}, {z}) of launch {launch}"),
        _ => "a CTA that is forgotten".to_owned(),
    };
    match &side.place {
        Some(place) => format!("first written by {who} at {}:{}", place.file, place.line),
        None => format!("first written by {who}"),
    }
}
