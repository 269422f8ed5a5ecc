//! Phases, counts that agree with the hardware's and counts that do not, and starting afresh.

use core::sync::atomic::AtomicU64;

use super::*;
use crate::atomics::{Native, words};
use crate::clock::Epoch;
use crate::compressed::world::World;
use crate::ids::ThreadId;

/// Three CTAs and a barrier object.
struct Met {
    world: World<Native>,
    words: Vec<AtomicU64>,
}

type Moment = (ThreadId, Epoch);

impl Met {
    /// `expected` arrivals complete a phase.
    fn new(expected: u32) -> Met {
        let met = Met {
            world: World::new(64),
            words: words(Meeting::<Native>::WORDS, u64::MAX),
        };
        met.meeting().reset(expected);
        // Not their first epochs, which a checkpoint taken at the start would cover.
        for cta in 0..3 {
            met.world.touch(cta);
            met.world.cta(cta, |cta| cta.publish());
        }
        met
    }

    fn meeting(&self) -> Meeting<'_, Native> {
        Meeting::new(&self.words)
    }

    /// CTA `cta` makes an access and arrives. Returns when the access was.
    fn arrive(&self, cta: usize) -> Moment {
        self.arrive_for(cta, 1)
    }

    fn arrive_for(&self, cta: usize, count: u32) -> Moment {
        let moment = self.world.touch(cta);
        let meeting = self.meeting();
        self.world.cta(cta, |cta| meeting.arrive(cta, true, count));
        moment
    }

    fn wait(&self, cta: usize, parity: u32) {
        let meeting = self.meeting();
        self.world.cta(cta, |cta| meeting.wait(cta, parity));
    }

    fn wait_newest(&self, cta: usize) {
        let meeting = self.meeting();
        self.world.cta(cta, |cta| meeting.wait_newest(cta));
    }

    fn knows(&self, cta: usize, moment: Moment) -> bool {
        self.world.knows(cta, moment)
    }

    fn knows_all(&self, cta: usize, moments: &[Moment]) -> bool {
        moments.iter().all(|&moment| self.knows(cta, moment))
    }

    fn mismatches(&self) -> u64 {
        self.world.system.losses().get(Loss::BarrierMismatch)
    }
}

#[test]
fn a_completed_wait_knows_all_arrivals_of_the_phase_and_nothing_after_them() {
    let met = Met::new(2);
    let arrivals = [met.arrive(0), met.arrive(1)];
    let after = met.world.touch(0);
    met.wait(2, 0);
    assert!(met.knows_all(2, &arrivals));
    assert!(!met.knows(2, after));
    assert_eq!(met.mismatches(), 0);
}

#[test]
fn a_phase_that_is_not_complete_says_nothing() {
    let met = Met::new(2);
    let first = met.arrive(0);
    met.wait_newest(2);
    assert!(!met.knows(2, first));
    met.arrive(1);
    met.wait_newest(2);
    assert!(met.knows(2, first));
    assert_eq!(met.mismatches(), 0);
}

#[test]
fn a_told_phase_does_not_include_the_running_one() {
    let met = Met::new(0);
    let arrivals = [met.arrive(0), met.arrive(1)];
    met.meeting().complete_phase();
    let running = met.arrive(0);
    met.wait_newest(2);
    assert!(met.knows_all(2, &arrivals));
    assert!(!met.knows(2, running));
    met.arrive(1);
    met.meeting().complete_phase();
    met.wait_newest(2);
    assert!(met.knows(2, running));
}

#[test]
fn one_arrival_may_count_for_several() {
    let met = Met::new(33);
    let arrivals = [met.arrive_for(0, 1), met.arrive_for(1, 32)];
    met.wait(2, 0);
    assert!(met.knows_all(2, &arrivals));
    assert_eq!(met.mismatches(), 0);
}

#[test]
fn an_arrival_that_does_not_release_counts_and_says_nothing() {
    let met = Met::new(2);
    let silent = met.world.touch(0);
    let meeting = met.meeting();
    met.world.cta(0, |cta| meeting.arrive(cta, false, 1));
    let heard = met.arrive(1);
    met.wait(2, 0);
    assert!(!met.knows(2, silent) && met.knows(2, heard));
    assert_eq!(met.mismatches(), 0);
}

#[test]
fn a_wait_that_returned_proves_the_phase_complete_whatever_the_count_says() {
    // The third arrival is one that nobody reports.
    let met = Met::new(3);
    for round in 0..4 {
        let arrivals = [met.arrive(0), met.arrive(1)];
        met.wait(2, round);
        assert!(met.knows_all(2, &arrivals), "round {round}");
        assert_eq!(met.mismatches(), u64::from(round) + 1);
    }
}

/// Every way in which hardware counts of 1 to 4 split into reported and silent arrivals, and every
/// set of phases that somebody waits for.
#[test]
fn a_wait_knows_its_phase_however_many_phases_nobody_waited_for() {
    const PHASES: u32 = 6;
    for (reported, silent) in [(1, 0), (1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (3, 1)] {
        for waited in 1_u32..1 << PHASES {
            let met = Met::new(reported + silent);
            for phase in 0..PHASES {
                let arrivals: Vec<Moment> = (0..reported)
                    .map(|by| met.arrive(by as usize % 2))
                    .collect();
                if waited >> phase & 1 != 0 {
                    met.wait(2, phase);
                    assert!(
                        met.knows_all(2, &arrivals),
                        "{reported} reported and {silent} silent arrivals, phases waited for \
                         {waited:#b}, phase {phase}"
                    );
                }
            }
        }
    }
}

/// The same for more arrivals than the mirror expects, so that it runs ahead.
#[test]
fn a_wait_knows_its_phase_however_far_the_mirror_is_ahead() {
    for expected in 1..4 {
        for arriving in expected + 1..expected + 5 {
            let met = Met::new(expected);
            for phase in 0..6 {
                let arrivals: Vec<Moment> = (0..arriving)
                    .map(|by| met.arrive(by as usize % 2))
                    .collect();
                met.wait(2, phase);
                assert!(
                    met.knows_all(2, &arrivals),
                    "{arriving} arrivals, {expected} expected, phase {phase}"
                );
            }
        }
    }
}

#[test]
fn more_arrivals_than_were_expected_lose_no_order() {
    let met = Met::new(1);
    for round in 0..4 {
        let arrivals = [met.arrive(0), met.arrive(1)];
        met.wait(2, round);
        assert!(met.knows_all(2, &arrivals), "round {round}");
    }
    assert!(met.mismatches() > 0);
}

#[test]
fn without_a_count_only_an_event_completes_a_phase() {
    let met = Met::new(0);
    let arrivals = [met.arrive(0), met.arrive(1), met.arrive(0)];
    met.wait_newest(2);
    assert!(!arrivals.iter().any(|&moment| met.knows(2, moment)));
    met.meeting().complete_phase();
    met.wait_newest(2);
    assert!(met.knows_all(2, &arrivals));
}

#[test]
fn an_initialised_barrier_starts_afresh() {
    let met = Met::new(2);
    met.arrive(0);
    met.arrive(1);
    // The second phase runs, and one of its arrivals is pending.
    let before = met.arrive(0);
    met.meeting().reset(1);
    met.wait_newest(2);
    met.wait(2, 1);
    assert!(!met.knows(2, before), "an arrival from before was kept");
    let after = met.arrive(1);
    assert!(!met.knows(2, after));
    met.wait(2, 0);
    assert!(met.knows(2, after), "one arrival completes phase 0 now");
    assert!(!met.knows(2, before));
    assert_eq!(met.mismatches(), 0);
}
