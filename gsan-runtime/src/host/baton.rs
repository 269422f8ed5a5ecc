//! One CTA of a launch runs at a time: the one with the baton.
//!
//! Whoever makes an access may have to pass the baton on, to a CTA that a seed chooses. It goes to a place
//! and not to whoever waits already, so that a schedule does not depend on how fast threads are. A holder
//! that makes no access for long (it may wait for another CTA by means of its own) loses it; until its next
//! access it runs beside the others.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// How long a holder may make no access.
const SILENCE: Duration = Duration::from_millis(100);

/// The baton of a launch.
pub(super) struct Baton {
    state: Mutex<State>,
    /// By place.
    turns: Vec<Condvar>,
}

struct State {
    holder: usize,
    since: Instant,
    /// Places that have not left, in order.
    places: Vec<usize>,
    random: Xoshiro256PlusPlus,
}

impl Baton {
    /// For `places` threads, one of which begins.
    pub(super) fn new(places: usize, seed: u64) -> Baton {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Baton {
            state: Mutex::new(State {
                holder: random.random_range(0..places.max(1)),
                since: Instant::now(),
                places: (0..places).collect(),
                random,
            }),
            turns: (0..places).map(|_| Condvar::new()).collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the first turn of `place`.
    pub(super) fn enter(&self, place: usize) {
        drop(self.await_turn(self.lock(), place));
    }

    /// `place` makes an access: with a chance of 1 in `chance` the next one is chosen anew. Returns when it
    /// is the turn of `place`.
    pub(super) fn pass(&self, place: usize, chance: u32) {
        let mut state = self.lock();
        if state.holder == place {
            state.since = Instant::now();
            if state.places.len() > 1 && state.random.random_ratio(1, chance.max(1)) {
                self.choose(&mut state);
            }
        }
        drop(self.await_turn(state, place));
    }

    /// `place` is done.
    pub(super) fn leave(&self, place: usize) {
        let mut state = self.lock();
        state.places.retain(|&other| other != place);
        if state.holder == place {
            self.choose(&mut state);
        }
    }

    fn choose(&self, state: &mut State) {
        let count = state.places.len();
        if count == 0 {
            return;
        }
        let next = state.random.random_range(0..count);
        state.holder = state.places[next];
        state.since = Instant::now();
        self.turns[state.holder].notify_one();
    }

    fn await_turn<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        place: usize,
    ) -> MutexGuard<'a, State> {
        while state.holder != place {
            let silent = state.since.elapsed();
            if silent >= SILENCE {
                state.holder = place;
                state.since = Instant::now();
                break;
            }
            let waited = self.turns[place].wait_timeout(state, SILENCE - silent);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::mpsc;

    use super::*;

    /// Who made which access, in the order in which they were made.
    fn schedule(seed: u64) -> Vec<usize> {
        let baton = Baton::new(4, seed);
        let order = Mutex::new(Vec::new());
        let running = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for place in 0..4 {
                let (baton, order, running) = (&baton, &order, &running);
                scope.spawn(move || {
                    baton.enter(place);
                    for _ in 0..50 {
                        assert_eq!(running.fetch_add(1, SeqCst), 0, "two have the baton");
                        order.lock().unwrap().push(place);
                        running.fetch_sub(1, SeqCst);
                        baton.pass(place, 2);
                    }
                    baton.leave(place);
                });
            }
        });
        order.into_inner().unwrap()
    }

    #[test]
    fn a_seed_is_a_schedule() {
        assert_eq!(schedule(1), schedule(1));
        assert_ne!(schedule(1), schedule(2));
        let mut sorted = schedule(3);
        sorted.sort_unstable();
        let each: Vec<usize> = (0..4).flat_map(|place| [place; 50]).collect();
        assert_eq!(sorted, each);
    }

    #[test]
    fn who_waits_for_another_thread_does_not_keep_it_from_running() {
        let baton = Baton::new(2, 0);
        let (tell, hear) = mpsc::channel();
        let hear = Mutex::new(hear);
        std::thread::scope(|scope| {
            let (baton, hear) = (&baton, &hear);
            scope.spawn(move || {
                baton.enter(0);
                hear.lock().unwrap().recv().unwrap();
                baton.pass(0, 1);
                baton.leave(0);
            });
            scope.spawn(move || {
                baton.enter(1);
                tell.send(()).unwrap();
                baton.leave(1);
            });
        });
    }
}
