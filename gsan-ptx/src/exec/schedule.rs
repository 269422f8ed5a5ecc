//! Which thread has the next turn.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, VecDeque};

/// How turns are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Every thread in order, one turn each. The seed does not matter.
    RoundRobin,
    /// Any thread that can go on, all equally likely.
    Random,
    /// Random priorities with few change points (Burckhardt et al., "A Randomized Scheduler with
    /// Probabilistic Guarantees of Finding Bugs", ASPLOS 2010): the thread of highest priority
    /// runs until it cannot, or until a change point puts it last. The distance of change points
    /// follows from the seed, between 8 and 65,536 turns on average, so that no run has to be
    /// measured first.
    Pct,
}

/// A schedule: the same one gives the same run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Schedule {
    /// How turns are given.
    pub strategy: Strategy,
    /// What all choices follow from.
    pub seed: u64,
}

/// A resident thread: the CTA's number among the resident ones, and its position in the CTA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Handle {
    pub(super) cta: u32,
    pub(super) thread: u32,
}

/// How a thread left its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnEnd {
    /// It can go on.
    Ready,
    /// It can go on, but others should first: it polls, sleeps, or ran for long.
    Yielded,
}

/// Turns in a row after which a thread of highest priority is put last, so that a thread which
/// polls in a way that is not recognised does not starve the one it waits for.
const LONGEST_STREAK: u32 = 50_000;

/// The most turns given at once, so that the instruction budget is looked at now and then.
const MOST_TURNS: u32 = 256;

/// The threads that can go on, except the one that has its turn.
pub(super) enum Scheduler {
    RoundRobin(VecDeque<Handle>),
    Random {
        ready: Vec<Handle>,
        rng: Xoshiro256PlusPlus,
    },
    Pct(Box<Pct>),
}

/// See [`Strategy::Pct`].
pub(super) struct Pct {
    /// Highest priority first.
    ready: BinaryHeap<(u64, Handle)>,
    /// The thread that had its turn last, if it is ready. Mostly it goes on, and is not worth a
    /// place in the heap.
    last: Option<(u64, Handle)>,
    rng: Xoshiro256PlusPlus,
    /// Priorities of resident threads, by CTA and thread.
    priorities: Vec<Vec<u64>>,
    /// The next priority for a thread that is put last: below all others.
    lowest: u64,
    /// The mean distance of change points in turns.
    distance: u64,
    /// Turns to the next one.
    until_change: u64,
    streak: u32,
    previous: Option<Handle>,
}

impl Scheduler {
    pub(super) fn new(schedule: Schedule) -> Scheduler {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(schedule.seed);
        match schedule.strategy {
            Strategy::RoundRobin => Scheduler::RoundRobin(VecDeque::new()),
            Strategy::Random => Scheduler::Random {
                ready: Vec::new(),
                rng,
            },
            Strategy::Pct => {
                let distance = 8 << below(&mut rng, 14);
                let until_change = below(&mut rng, 2 * distance);
                Scheduler::Pct(Box::new(Pct {
                    ready: BinaryHeap::new(),
                    last: None,
                    rng,
                    priorities: Vec::new(),
                    lowest: u64::MAX / 2,
                    distance,
                    until_change,
                    streak: 0,
                    previous: None,
                }))
            }
        }
    }

    /// A CTA became resident under a number; all its threads are ready.
    pub(super) fn start(&mut self, cta: u32, threads: u32) {
        if let Scheduler::Pct(pct) = self {
            let cta = cta as usize;
            if pct.priorities.len() <= cta {
                pct.priorities.resize(cta + 1, Vec::new());
            }
            pct.priorities[cta] = (0..threads).map(|_| pct.rng.next_u64() | 1 << 63).collect();
        }
        for thread in 0..threads {
            self.ready(Handle { cta, thread });
        }
    }

    /// A thread can go on.
    pub(super) fn ready(&mut self, handle: Handle) {
        match self {
            Scheduler::RoundRobin(queue) => queue.push_back(handle),
            Scheduler::Random { ready, .. } => ready.push(handle),
            Scheduler::Pct(pct) => {
                let priority = pct.priorities[handle.cta as usize][handle.thread as usize];
                pct.ready.push((priority, handle));
            }
        }
    }

    /// A thread that had its turn can go on.
    pub(super) fn end_turn(&mut self, handle: Handle, end: TurnEnd) {
        if let Scheduler::Pct(pct) = self {
            if pct.previous == Some(handle) {
                pct.streak += 1;
            } else {
                pct.previous = Some(handle);
                pct.streak = 0;
            }
            let change = pct.until_change == 0;
            if change {
                pct.until_change = below(&mut pct.rng, 2 * pct.distance);
            } else {
                pct.until_change -= 1;
            }
            if change || end == TurnEnd::Yielded || pct.streak > LONGEST_STREAK {
                pct.streak = 0;
                pct.lowest -= 1;
                pct.priorities[handle.cta as usize][handle.thread as usize] = pct.lowest;
            }
            let priority = pct.priorities[handle.cta as usize][handle.thread as usize];
            let before = pct.last.replace((priority, handle));
            pct.ready.extend(before);
        } else {
            self.ready(handle);
        }
    }

    /// A thread had turns, one after the other, and then another one, for which [`Self::end_turn`]
    /// may follow.
    pub(super) fn went_on(&mut self, handle: Handle, turns: u32) {
        if turns == 0 {
            return;
        }
        if let Scheduler::Pct(pct) = self {
            if pct.previous == Some(handle) {
                pct.streak += turns;
            } else {
                pct.previous = Some(handle);
                pct.streak = turns - 1;
            }
            pct.until_change -= u64::from(turns);
        }
    }

    /// Takes the thread whose turn it is, and for how many turns: it would be taken again after
    /// each but the last, if nothing happens meanwhile but its turns.
    pub(super) fn next(&mut self) -> Option<(Handle, u32)> {
        match self {
            Scheduler::RoundRobin(queue) => queue.pop_front().map(|handle| (handle, 1)),
            Scheduler::Random { ready, rng } => {
                if ready.is_empty() {
                    return None;
                }
                let index = below(rng, ready.len() as u64) as usize;
                Some((ready.swap_remove(index), 1))
            }
            Scheduler::Pct(pct) => {
                let next = match (pct.last.take(), pct.ready.peek_mut()) {
                    (Some(last), Some(mut first)) if last < *first => {
                        Some(std::mem::replace(&mut *first, last))
                    }
                    (None, Some(first)) => Some(PeekMut::pop(first)),
                    (last, _) => last,
                };
                let (priority, handle) = next?;
                let first = pct
                    .ready
                    .peek()
                    .is_none_or(|&other| other < (priority, handle));
                Some((handle, if first { pct.turns(handle) } else { 1 }))
            }
        }
    }

    /// How many threads are ready.
    pub(super) fn len(&self) -> usize {
        match self {
            Scheduler::RoundRobin(queue) => queue.len(),
            Scheduler::Random { ready, .. } => ready.len(),
            Scheduler::Pct(pct) => pct.ready.len() + usize::from(pct.last.is_some()),
        }
    }
}

impl Pct {
    /// How many turns the thread of highest priority has before it may lose that.
    fn turns(&self, handle: Handle) -> u32 {
        let streak = match self.previous {
            Some(previous) if previous == handle => self.streak,
            _ => 0,
        };
        let until_change = u32::try_from(self.until_change).unwrap_or(u32::MAX);
        (LONGEST_STREAK.saturating_sub(streak).min(until_change)).min(MOST_TURNS - 1) + 1
    }
}

/// A number below `bound`, which is not 0. (Multiply and shift: the bias is below 2^-32 for the
/// bounds used here, and the result does not depend on the version of a library.)
fn below(rng: &mut impl RngCore, bound: u64) -> u64 {
    ((u128::from(rng.next_u64()) * u128::from(bound)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(strategy: Strategy, seed: u64, count: usize) -> Vec<u32> {
        let mut scheduler = Scheduler::new(Schedule { strategy, seed });
        scheduler.start(0, 8);
        (0..count)
            .map(|_| {
                let (handle, _) = scheduler.next().unwrap();
                scheduler.end_turn(handle, TurnEnd::Ready);
                handle.thread
            })
            .collect()
    }

    /// The same turns, taken as many at once as are given.
    fn turns_at_once(strategy: Strategy, seed: u64, count: usize) -> Vec<u32> {
        let mut scheduler = Scheduler::new(Schedule { strategy, seed });
        scheduler.start(0, 8);
        let mut turns = Vec::new();
        while turns.len() < count {
            let (handle, given) = scheduler.next().unwrap();
            scheduler.went_on(handle, given - 1);
            scheduler.end_turn(handle, TurnEnd::Ready);
            turns.extend(std::iter::repeat_n(handle.thread, given as usize));
        }
        turns.truncate(count);
        turns
    }

    #[test]
    fn turns_given_at_once_are_those_given_one_by_one() {
        for seed in 0..20 {
            for strategy in [Strategy::RoundRobin, Strategy::Random, Strategy::Pct] {
                let count = if seed == 3 { 150_000 } else { 5_000 };
                let one_by_one = turns(strategy, seed, count);
                assert_eq!(turns_at_once(strategy, seed, count), one_by_one);
            }
        }
    }

    #[test]
    fn a_seed_gives_the_same_turns_again() {
        for strategy in [Strategy::RoundRobin, Strategy::Random, Strategy::Pct] {
            assert_eq!(turns(strategy, 7, 500), turns(strategy, 7, 500));
        }
        assert_ne!(
            turns(Strategy::Random, 1, 100),
            turns(Strategy::Random, 2, 100)
        );
        assert_ne!(
            (0..9).map(|s| turns(Strategy::Pct, s, 1)).max(),
            (0..9).map(|s| turns(Strategy::Pct, s, 1)).min()
        );
    }

    #[test]
    fn round_robin_goes_round() {
        assert_eq!(
            turns(Strategy::RoundRobin, 0, 10),
            [0, 1, 2, 3, 4, 5, 6, 7, 0, 1]
        );
    }

    #[test]
    fn pct_switches_seldom() {
        let turns = turns(Strategy::Pct, 3, 1000);
        let switches = turns.windows(2).filter(|w| w[0] != w[1]).count();
        assert!(switches < 300, "{switches}");
    }

    #[test]
    fn pct_lets_the_others_run_when_a_thread_yields() {
        let mut scheduler = Scheduler::new(Schedule {
            strategy: Strategy::Pct,
            seed: 1,
        });
        scheduler.start(0, 4);
        let mut seen = Vec::new();
        for _ in 0..8 {
            let (handle, _) = scheduler.next().unwrap();
            seen.push(handle.thread);
            scheduler.end_turn(handle, TurnEnd::Yielded);
        }
        assert_eq!(seen[..4], seen[4..]);
        seen.truncate(4);
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3]);
    }

    #[test]
    fn pct_never_starves_a_thread() {
        let turns = turns(Strategy::Pct, 11, 9 * (LONGEST_STREAK as usize + 2));
        for thread in 0..8 {
            assert!(turns.contains(&thread));
        }
    }
}
