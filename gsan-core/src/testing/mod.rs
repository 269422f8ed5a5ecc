//! Small programs for tests of detectors: written down, drawn at random, and executed in one
//! interleaving or in all.
//!
//! Behind the feature `testing`, so that the tests of other crates can use it too.
//!
//! - [`program`]: what a program is.
//! - [`text`]: programs written as lines of PTX-like instructions.
//! - [`execution`]: executing a program, step by step, into the events a detector is told.
//! - [`random`]: random programs and schedules for proptest.
//! - [`litmus`]: the table of litmus tests with the verdict the PTX memory model gives.

pub mod execution;
pub mod litmus;
pub mod program;
pub mod random;
pub mod text;

use std::collections::{BTreeMap, BTreeSet};

use crate::address::granules;
use crate::event::{Detector, Event, Space};
use crate::race::{Race, RaceKey};

/// Tells a detector all `events` and takes the races.
///
/// # Panics
/// If the detector refuses an event: executions only make events that make sense.
pub fn races(detector: &mut dyn Detector, events: &[Event]) -> Vec<Race> {
    for event in events {
        if let Err(error) = detector.on(event) {
            panic!("the detector refused {event:?}: {error}");
        }
    }
    detector.take_races()
}

/// What two detectors that see the same races agree on, however often and in which order they
/// report them.
pub fn keys(races: &[Race]) -> BTreeSet<RaceKey> {
    races.iter().map(Race::key).collect()
}

/// Whether no granule is read, atomically or not, by more than two CTAs in these events. On such
/// executions the compressed detector forgets no reader.
pub fn few_readers(events: &[Event]) -> bool {
    let mut readers: BTreeMap<(Space, u64), BTreeSet<_>> = BTreeMap::new();
    for event in events {
        if let Event::Access(access) = event
            && access.action.reads()
        {
            for part in granules(access.range.address, access.range.bytes.into()) {
                let granule = (access.range.space, part.granule);
                readers
                    .entry(granule)
                    .or_default()
                    .insert(access.thread.cta);
            }
        }
    }
    readers.values().all(|readers| readers.len() <= 2)
}
