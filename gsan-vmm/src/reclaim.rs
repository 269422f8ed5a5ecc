//! Giving memory back once its stream has passed the free, on a thread of its own.
//!
//! Unmapping is synchronous in the driver and knows nothing of streams, so whoever frees only
//! leaves the memory here, with a fence. The worker asks the fences (it never waits for one, so a
//! stream that is stuck holds up nobody else's memory), closes what has passed, and says so to the
//! allocator. What could not be closed is tried again at the next flush.
//!
//! One lock guards the queue. No backend call is made under it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::allocator::Place;
use crate::backend::{Device, Stream};
use crate::deadline;
use crate::owned::{Backing, Driver, Fence};

/// How long the worker sleeps between asking the fences: from, to.
const POLL: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(2));
/// How often an idle worker looks for new work, which saves those who free from waking it, and how
/// often before it sleeps until it is woken.
const LINGER: (Duration, u32) = (Duration::from_micros(200), 50);

/// Memory that nobody uses any more, or soon.
pub(crate) struct Remains {
    pub(crate) place: Place,
    pub(crate) backing: Backing,
    until: Until,
    /// The bytes that become free.
    bytes: u64,
}

impl Remains {
    pub(crate) fn new(place: Place, backing: Backing, until: Until) -> Remains {
        Remains {
            bytes: backing.bytes(),
            place,
            backing,
            until,
        }
    }
}

/// When memory may be given back.
pub(crate) enum Until {
    /// It was never handed out.
    Now,
    /// When the stream has passed the fence.
    Passed(Device, Stream, Fence),
    /// When all work of the device is done: the stream could not be asked.
    Idle(Device),
}

/// Where freed memory waits.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    /// Wakes the worker.
    work: Condvar,
    /// Wakes those who flush.
    progress: Condvar,
}

#[derive(Default)]
struct State {
    arrived: Vec<(u64, Remains)>,
    /// The number of the next arrival.
    next: u64,
    /// Every arrival with a smaller number has been dealt with.
    settled: u64,
    /// Bytes that arrived and are not free yet.
    bytes: u64,
    /// Arrivals that could not be closed.
    stuck: usize,
    /// Flushes asked for, and the last one for which stuck memory was tried again.
    flushes: u64,
    retried: u64,
    flushing: usize,
    /// The worker sleeps until it is woken.
    asleep: bool,
    stop: Option<Instant>,
}

impl Queue {
    pub(crate) fn push(&self, remains: Remains) {
        let mut state = self.lock();
        state.bytes += remains.bytes;
        let number = state.next;
        state.next += 1;
        state.arrived.push((number, remains));
        if state.asleep {
            self.work.notify_one();
        }
    }

    /// Bytes that were freed and still wait for their streams.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// Waits until everything pushed so far has been given back, what was stuck has been tried
    /// again, or `limit` has passed. Says whether there was anything.
    pub(crate) fn flush(&self, limit: Duration) -> bool {
        let deadline = deadline::after(limit);
        let mut state = self.lock();
        if state.settled == state.next && state.stuck == 0 {
            return false;
        }
        state.flushes += 1;
        state.flushing += 1;
        let (arrivals, flush) = (state.next, state.flushes);
        self.work.notify_one();
        while state.settled < arrivals || state.retried < flush {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = wait(&self.progress, state, left);
        }
        state.flushing -= 1;
        true
    }

    /// Asks the worker to end once everything has been given back, at `deadline` at the latest.
    pub(crate) fn stop(&self, deadline: Instant) {
        self.lock().stop = Some(deadline);
        self.work.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wait<'a>(
    condition: &Condvar,
    state: MutexGuard<'a, State>,
    limit: Duration,
) -> MutexGuard<'a, State> {
    condition
        .wait_timeout(state, limit)
        .unwrap_or_else(PoisonError::into_inner)
        .0
}

/// What the worker could not give back before it had to end.
#[derive(Default)]
pub(crate) struct Leftover {
    /// Closing failed; it may be tried again.
    pub(crate) stuck: Vec<Remains>,
    /// A stream may still use it.
    pub(crate) in_use: Vec<Remains>,
}

/// The worker: gives back what arrives in `queue`, and calls `vacate` for each place that is free
/// again. Returns after [`Queue::stop`].
pub(crate) fn run(queue: &Queue, driver: &Driver, vacate: impl Fn(Place)) -> Leftover {
    let mut streams: HashMap<(Device, Stream), VecDeque<(u64, Remains)>> = HashMap::new();
    let mut stuck: Vec<Remains> = Vec::new();
    let (mut freed, mut retried) = (0, 0);
    let (mut pause, mut lingered) = (POLL.0, 0);
    loop {
        let (arrived, flush, stop) = {
            let mut state = queue.lock();
            let waiting = streams.values().filter_map(|queue| queue.front());
            let oldest = waiting.map(|(number, _)| *number).min();
            let unseen = state.arrived.first().map(|(number, _)| *number);
            state.settled = oldest.or(unseen).unwrap_or(state.next);
            state.bytes -= std::mem::take(&mut freed);
            (state.stuck, state.retried) = (stuck.len(), retried);
            if state.flushing > 0 {
                queue.progress.notify_all();
            }
            let urgent = retried < state.flushes || state.stop.is_some();
            if state.arrived.is_empty() && !urgent {
                if !streams.is_empty() {
                    pause = if state.flushing > 0 {
                        POLL.0
                    } else {
                        POLL.1.min(pause * 2)
                    };
                    state = wait(&queue.work, state, pause);
                } else if lingered < LINGER.1 {
                    lingered += 1;
                    state = wait(&queue.work, state, LINGER.0);
                } else {
                    state.asleep = true;
                    state = queue
                        .work
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner);
                    state.asleep = false;
                }
            }
            (
                std::mem::take(&mut state.arrived),
                state.flushes,
                state.stop,
            )
        };
        if !arrived.is_empty() {
            (pause, lingered) = (POLL.0, 0);
        }

        let mut ready = Vec::new();
        for (number, remains) in arrived {
            match remains.until {
                Until::Now => ready.push(remains),
                Until::Idle(device) => {
                    idle(driver, device);
                    ready.push(remains);
                }
                Until::Passed(device, stream, _) => {
                    let waiting = streams.entry((device, stream)).or_default();
                    waiting.push_back((number, remains));
                }
            }
        }
        for ((device, _), waiting) in &mut streams {
            while waiting
                .front()
                .is_some_and(|(_, r)| has_passed(r, driver, *device))
            {
                ready.extend(waiting.pop_front().map(|(_, remains)| remains));
            }
        }
        streams.retain(|_, waiting| !waiting.is_empty());

        if retried < flush {
            retried = flush;
            ready.append(&mut stuck);
        }
        for mut remains in ready {
            match remains.backing.close() {
                Ok(()) => {
                    freed += remains.bytes;
                    vacate(remains.place);
                }
                Err(error) => {
                    tracing::warn!(%error, "freed memory could not be unmapped; trying again later");
                    stuck.push(remains);
                }
            }
        }

        if let Some(deadline) = stop {
            let done = streams.is_empty() && queue.lock().arrived.is_empty();
            if done || Instant::now() >= deadline {
                let rest = streams.into_values().flatten().map(|(_, remains)| remains);
                let mut in_use: Vec<_> = rest.collect();
                in_use.extend(queue.lock().arrived.drain(..).map(|(_, remains)| remains));
                return Leftover { stuck, in_use };
            }
            if !streams.is_empty() {
                std::thread::sleep(POLL.1);
            }
        }
    }
}

fn has_passed(remains: &Remains, driver: &Driver, device: Device) -> bool {
    let Until::Passed(_, _, fence) = &remains.until else {
        return true;
    };
    fence.passed().unwrap_or_else(|error| {
        tracing::warn!(%error, "a stream cannot be asked for its progress; waiting for its device");
        idle(driver, device);
        true
    })
}

/// Waits for all work of `device`. One that has failed does no work any more.
fn idle(driver: &Driver, device: Device) {
    if let Err(error) = driver.synchronize(device) {
        tracing::warn!(%error, %device, "the device cannot be waited for");
    }
}
