//! Collects findings into a report: duplicates become one with a count, what is suppressed or over
//! the limit is counted.

use std::collections::HashMap;
use std::hash::Hash;

use gsan_config::pattern::{Pattern, Suppression as Rule};
use gsan_core::loss::Losses;
use gsan_core::race;
use uuid::Uuid;

use crate::loss::LossName;
use crate::model::{
    Fault, FaultKind, LossCount, Place, PossibleRace, Race, RaceKind, Replay, Report, Side, Space,
    Summary, Suppression, Unchecked, Who,
};
use crate::names::Names;

/// What became of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It is the first of its kind on these lines of these kernels.
    New,
    /// It was counted with an earlier one.
    Again,
    /// It was suppressed: counted, not kept.
    Suppressed,
    /// It was over the limit: counted, not kept.
    NotKept,
}

/// What became of the report of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Merged {
    /// It was added.
    Added,
    /// Nothing was added: all its runs are there already.
    Known,
}

/// A report shares some of its runs, and not all, with what was merged before: what they have in
/// common would count twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it holds some of the runs that were merged before, and others")]
pub struct Overlap;

/// Collects findings into a report.
#[derive(Clone, Debug)]
pub struct Builder {
    report: Report,
    limit: usize,
    races: HashMap<RaceKey, usize>,
    possible: HashMap<RaceKey, usize>,
    faults: HashMap<FaultKey, usize>,
    losses: Losses,
    /// The suppressions in force, each with its place in the report.
    rules: Vec<(Rule, usize)>,
    /// Where in the report each suppression is, by its patterns and reason.
    suppressions: HashMap<RuleKey, usize>,
}

type RuleKey = ([Option<String>; 3], String);

/// What makes two races one: kind, memory, the two lines, the two kernels. Which of the two sides
/// came first is chance and no part of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RaceKey {
    kind: RaceKind,
    shared: bool,
    sides: [Spot; 2],
}

/// What makes two faults one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FaultKey {
    kind: FaultKind,
    spot: Spot,
}

/// A line of a kernel. One source line compiled into two PTX files is two lines: they are two kernels
/// that happen to share their name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Spot {
    line: Option<(String, u32)>,
    ptx: Option<String>,
    kernel: Option<String>,
}

impl Spot {
    fn new(place: Option<&Place>, who: Option<&Who>) -> Spot {
        Spot {
            line: place.map(|place| (place.file.clone(), place.line)),
            ptx: place.and_then(|place| Some(place.ptx.as_ref()?.file.clone())),
            kernel: who.and_then(|who| who.kernel.clone()),
        }
    }

    fn of(side: &Side) -> Spot {
        Spot::new(side.place.as_ref(), Some(&side.who))
    }
}

impl RaceKey {
    fn of(race: &Race) -> RaceKey {
        let mut sides = [Spot::of(&race.earlier), Spot::of(&race.later)];
        sides.sort();
        RaceKey {
            kind: race.kind,
            shared: matches!(race.range.space, Space::Shared { .. }),
            sides,
        }
    }
}

impl FaultKey {
    fn of(fault: &Fault) -> FaultKey {
        // A deadlock has no place of its own: the first of those who wait stands for it.
        let waiting = fault.waiting.first();
        FaultKey {
            kind: fault.kind,
            spot: Spot::new(
                fault
                    .place
                    .as_ref()
                    .or_else(|| waiting.and_then(|waiting| waiting.place.as_ref())),
                fault
                    .who
                    .as_ref()
                    .or_else(|| waiting.map(|waiting| &waiting.who)),
            ),
        }
    }
}

impl Builder {
    /// Starts an empty report that keeps at most `limit` distinct findings of each list (races,
    /// possible races, faults), and none that is suppressed.
    pub fn new(limit: usize, suppressions: &[Rule]) -> Builder {
        let mut builder = Builder {
            report: Report::default(),
            limit,
            races: HashMap::new(),
            possible: HashMap::new(),
            faults: HashMap::new(),
            losses: Losses::default(),
            rules: Vec::new(),
            suppressions: HashMap::new(),
        };
        for rule in suppressions {
            let text = |pattern: &Option<Pattern>| pattern.as_ref().map(ToString::to_string);
            let place = builder.suppression(Suppression {
                kind: text(&rule.kind),
                file: text(&rule.file),
                kernel: text(&rule.kernel),
                reason: rule.reason.clone(),
                times: 0,
            });
            builder.rules.push((rule.clone(), place));
        }
        builder
    }

    /// Adds a suppression, or its count to an equal one. Returns its place in the report.
    fn suppression(&mut self, suppression: Suppression) -> usize {
        let Suppression {
            kind,
            file,
            kernel,
            reason,
            times,
        } = &suppression;
        let key = ([kind.clone(), file.clone(), kernel.clone()], reason.clone());
        let list = &mut self.report.suppressions;
        match self.suppressions.get(&key) {
            Some(&known) => {
                list[known].times = list[known].times.saturating_add(*times);
                known
            }
            None => {
                self.suppressions.insert(key, list.len());
                list.push(suppression);
                list.len() - 1
            }
        }
    }

    /// The place of the first suppression that matches a finding, if one does.
    fn suppressed_by(&self, kind: &str, spots: &[&Spot]) -> Option<usize> {
        let matches = |rule: &Rule| {
            let of_kind = rule.kind.as_ref().is_none_or(|kinds| kinds.matches(kind));
            let of_file = rule.file.as_ref().is_none_or(|files| {
                let mut lines = spots.iter().filter_map(|spot| spot.line.as_ref());
                lines.any(|(file, _)| files.matches(file))
            });
            let of_kernel = rule.kernel.as_ref().is_none_or(|kernels| {
                let mut names = spots.iter().filter_map(|spot| spot.kernel.as_ref());
                names.any(|kernel| kernels.matches(kernel))
            });
            of_kind && of_file && of_kernel
        };
        let (_, place) = self.rules.iter().find(|(rule, _)| matches(rule))?;
        Some(*place)
    }

    /// Counts a finding under the first suppression that matches it, if one does.
    fn is_suppressed(&mut self, kind: &str, times: u64, spots: &[&Spot]) -> bool {
        let Some(place) = self.suppressed_by(kind, spots) else {
            return false;
        };
        let entry = &mut self.report.suppressions[place];
        entry.times = entry.times.saturating_add(times);
        true
    }

    /// Whether a suppression would hide a race.
    pub fn hides_race(&self, race: &Race) -> bool {
        let [one, other] = RaceKey::of(race).sides;
        self.suppressed_by(race.kind.name(), &[&one, &other])
            .is_some()
    }

    /// Whether a suppression would hide a fault.
    pub fn hides_fault(&self, fault: &Fault) -> bool {
        let spot = FaultKey::of(fault).spot;
        self.suppressed_by(fault.kind.name(), &[&spot]).is_some()
    }

    /// Adds a race of the detector.
    pub fn race(&mut self, race: &race::Race, names: &Names, replay: Option<&Replay>) -> Added {
        let (mut race, reason) = names.race(race);
        race.replay = replay.cloned();
        self.named_race(race, reason)
    }

    /// Adds a race that has its names already; with a reason if it is only possible.
    pub fn named_race(&mut self, race: Race, reason: Option<String>) -> Added {
        let key = RaceKey::of(&race);
        let [one, other] = &key.sides;
        if self.is_suppressed(race.kind.name(), race.times, &[one, other]) {
            return Added::Suppressed;
        }
        let Report {
            races,
            possible_races,
            summary,
            ..
        } = &mut self.report;
        match reason {
            None => add(
                (&mut self.races, key),
                (races, race),
                |race| &mut race.times,
                self.limit,
                summary,
            ),
            Some(reason) => add(
                (&mut self.possible, key),
                (possible_races, PossibleRace { reason, race }),
                |possible| &mut possible.race.times,
                self.limit,
                summary,
            ),
        }
    }

    /// Adds a fault.
    pub fn fault(&mut self, fault: Fault) -> Added {
        let key = FaultKey::of(&fault);
        if self.is_suppressed(fault.kind.name(), fault.times, &[&key.spot]) {
            return Added::Suppressed;
        }
        let Report {
            faults, summary, ..
        } = &mut self.report;
        add(
            (&mut self.faults, key),
            (faults, fault),
            |fault| &mut fault.times,
            self.limit,
            summary,
        )
    }

    /// Adds losses of coverage.
    pub fn losses(&mut self, losses: &Losses) {
        self.losses.merge(losses);
    }

    /// Says that the findings are those of a new run.
    pub fn start_run(&mut self) {
        self.report.runs.insert(Uuid::new_v4());
    }

    /// Adds an input that could not be checked.
    pub fn unchecked(&mut self, input: Unchecked) {
        self.report.unchecked.push(input);
    }

    /// What was checked, to be filled in.
    pub fn summary(&mut self) -> &mut Summary {
        &mut self.report.summary
    }

    /// What was found so far, without the losses.
    pub fn so_far(&self) -> &Report {
        &self.report
    }

    /// Adds the report of another process, or of an earlier run. A run that is there already is
    /// not added again; a report that does not name its runs always is.
    ///
    /// # Errors
    /// Some of its runs are there already, and others are not. Nothing was added.
    pub fn merge(&mut self, part: Report) -> Result<Merged, Overlap> {
        let known = self.report.runs.intersection(&part.runs).count();
        if known > 0 {
            return if known == part.runs.len() {
                Ok(Merged::Known)
            } else {
                Err(Overlap)
            };
        }
        self.report.runs.extend(part.runs);
        self.report.unchecked.extend(part.unchecked);
        for race in part.races {
            self.named_race(race, None);
        }
        for PossibleRace { reason, race } in part.possible_races {
            self.named_race(race, Some(reason));
        }
        for fault in part.faults {
            self.fault(fault);
        }
        for suppression in part.suppressions {
            self.suppression(suppression);
        }
        for LossCount { loss, times } in part.losses {
            self.losses.add(loss.0, times);
        }
        self.report.summary.merge(part.summary);
        Ok(Merged::Added)
    }

    /// The report.
    pub fn finish(self) -> Report {
        Report {
            losses: self
                .losses
                .met()
                .map(|(loss, times)| LossCount {
                    loss: LossName(loss),
                    times,
                })
                .collect(),
            ..self.report
        }
    }
}

fn add<K: Hash + Eq, T>(
    (index, key): (&mut HashMap<K, usize>, K),
    (list, mut item): (&mut Vec<T>, T),
    times: impl Fn(&mut T) -> &mut u64,
    limit: usize,
    summary: &mut Summary,
) -> Added {
    let count = *times(&mut item);
    if let Some(&known) = index.get(&key) {
        let total = times(&mut list[known]);
        *total = total.saturating_add(count);
        Added::Again
    } else if list.len() < limit {
        index.insert(key, list.len());
        list.push(item);
        Added::New
    } else {
        summary.not_kept = summary.not_kept.saturating_add(count);
        Added::NotKept
    }
}

impl Summary {
    /// Adds what another process checked.
    pub fn merge(&mut self, other: Summary) {
        let Summary {
            processes,
            launches,
            schedules,
            accesses,
            covered_bytes,
            uncovered_bytes,
            not_kept,
            seeds,
        } = other;
        for (total, more) in [
            (&mut self.processes, processes),
            (&mut self.launches, launches),
            (&mut self.schedules, schedules),
            (&mut self.accesses, accesses),
            (&mut self.covered_bytes, covered_bytes),
            (&mut self.uncovered_bytes, uncovered_bytes),
            (&mut self.not_kept, not_kept),
        ] {
            *total = total.saturating_add(more);
        }
        self.seeds.extend(seeds);
    }
}
