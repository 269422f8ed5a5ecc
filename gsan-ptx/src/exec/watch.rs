//! A detector and the races it found, put together as they come.

use gsan_core::event::{Detector, Event, EventError, Space};
use gsan_core::ids::LaunchId;
use gsan_core::race::{Race, RaceKey, RaceKind};
use rustc_hash::FxHashMap;

/// Events between two looks at the detector's races: few enough that duplicates do not pile up.
const PERIOD: u32 = 256;

/// Passes events on to a detector.
pub(super) struct Watch<'d, D> {
    detector: &'d mut D,
    accesses: u64,
    /// Events until the next look.
    until_look: u32,
    /// Each race that differs, and how often it came.
    races: Vec<(Race, u64)>,
    positions: FxHashMap<(RaceKey, Option<LaunchId>, Option<LaunchId>), usize>,
}

impl<'d, D: Detector> Watch<'d, D> {
    pub(super) fn new(detector: &'d mut D) -> Self {
        Watch {
            detector,
            accesses: 0,
            until_look: PERIOD,
            races: Vec::new(),
            positions: FxHashMap::default(),
        }
    }

    /// Passes an event on.
    #[inline]
    pub(super) fn on(&mut self, event: &Event) -> Result<(), EventError> {
        self.accesses += u64::from(matches!(event, Event::Access(_)));
        self.until_look -= 1;
        if self.until_look == 0 {
            self.look(|_| true);
        }
        self.detector.on(event)
    }

    /// Passes on a store to shared memory of the value that was already there. When another
    /// thread stored it with the same instruction, that is no race: all outcomes are equal, and
    /// compilers do it (all lanes that have the result of a reduction store it).
    pub(super) fn on_same_value(&mut self, event: &Event) -> Result<(), EventError> {
        self.look(|_| true);
        self.on(event)?;
        self.look(|race| {
            !(race.kind == RaceKind::WriteAfterWrite
                && race.earlier.site == race.later.site
                && matches!(race.space, Space::Shared(_)))
        });
        Ok(())
    }

    /// Takes the races found since the last look that count.
    fn look(&mut self, counts: impl Fn(&Race) -> bool) {
        self.until_look = PERIOD;
        for race in self.detector.take_races() {
            if !counts(&race) {
                continue;
            }
            let launches = (race.earlier.who.launch(), race.later.who.launch());
            let key = (race.key(), launches.0, launches.1);
            match self.positions.get(&key) {
                Some(&position) => self.races[position].1 += 1,
                None => {
                    self.positions.insert(key, self.races.len());
                    self.races.push((race, 1));
                }
            }
        }
    }

    /// How many accesses there were, and the races with how often each came.
    pub(super) fn finish(mut self) -> (u64, Vec<(Race, u64)>) {
        self.look(|_| true);
        (self.accesses, self.races)
    }
}
