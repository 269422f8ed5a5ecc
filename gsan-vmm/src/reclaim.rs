//! Giving memory back once its stream has passed the free, on a thread of its own.
//!
//! Unmapping is synchronous in the driver and knows nothing of streams, so whoever frees only
//! leaves the memory here, with a fence. The worker asks the fences (it never waits for one, so a
//! stream that is stuck holds up nobody else's memory), closes what has passed, and says so to the
//! allocator. What could not be closed is tried again at the next flush.
//!
//! One lock guards the queue. No backend call is made under it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::allocator::Place;
use crate::backend::{Device, FenceId, Stream};
use crate::deadline;
use crate::owned::{Backing, Driver};

/// How long the worker sleeps between asking the fences: from, to.
const POLL: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(2));
/// How often an idle worker looks for new work, which saves those who free from waking it, and how
/// often before it sleeps until it is woken.
const LINGER: (Duration, u32) = (Duration::from_micros(200), 50);

/// How many places are vacated at once: those who allocate wait for the same lock.
const MOST_PLACES: usize = 32;

/// For how many arrivals the queue keeps room while there are none.
const KEEP_ROOM: usize = 1024;

/// Memory that nobody uses any more, or soon.
pub(crate) struct Remains {
    pub(crate) place: Place,
    pub(crate) backing: Backing,
    until: Until,
}

impl Remains {
    pub(crate) fn new(place: Place, backing: Backing, until: Until) -> Remains {
        Remains {
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
    Passed(Device, Stream, FenceId),
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
    /// How often memory was given back. Changes before those who flush are woken.
    given_back: AtomicU64,
    /// Frees under way: memory that has left the tables and may not be here yet.
    under_way: AtomicUsize,
}

/// A free that is under way, until this is dropped.
pub(crate) struct UnderWay<'a>(&'a AtomicUsize);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Release);
    }
}

#[derive(Default)]
struct State {
    /// In order. The first one's number is `next` less how many there are.
    arrived: Vec<Remains>,
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
        state.bytes += remains.backing.bytes();
        state.next += 1;
        state.arrived.push(remains);
        if state.asleep {
            self.work.notify_one();
        }
    }

    /// Bytes that were freed and still wait for their streams.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// Announces memory that is about to leave the tables and to be pushed.
    pub(crate) fn announce(&self) -> UnderWay<'_> {
        self.under_way.fetch_add(1, Relaxed);
        UnderWay(&self.under_way)
    }

    /// Whether memory that has left the tables may not have been pushed yet.
    pub(crate) fn expects(&self) -> bool {
        // Announced before the tables' lock was taken, so whoever had that lock since sees it; if
        // it is over, so does the push.
        self.under_way.load(Acquire) > 0
    }

    /// A number that changes when memory is given back.
    pub(crate) fn given_back(&self) -> u64 {
        // Ordered by the lock, for those who have flushed.
        self.given_back.load(Relaxed)
    }

    /// Waits until everything pushed so far has been given back, what was stuck has been tried
    /// again, or `limit` has passed.
    pub(crate) fn flush(&self, limit: Duration) {
        let deadline = deadline::after(limit);
        let mut state = self.lock();
        if state.settled == state.next && state.stuck == 0 {
            return;
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

/// The worker: gives back what arrives in `queue`, and calls `vacate` with the places that are free
/// again, at most [`MOST_PLACES`] at a time. Returns after [`Queue::stop`].
pub(crate) fn run(queue: &Queue, driver: &Driver, vacate: impl Fn(&[Place])) -> Leftover {
    let mut worker = Worker {
        driver,
        vacate,
        streams: HashMap::new(),
        vacant: Vec::new(),
        stuck: Vec::new(),
        freed: 0,
    };
    let mut arrived = Vec::new();
    let mut retried = 0;
    let (mut pause, mut lingered) = (POLL.0, 0);
    loop {
        let (first, flush, stop) = {
            let mut state = queue.lock();
            let unseen = state.next - state.arrived.len() as u64;
            state.settled = worker.oldest().unwrap_or(unseen);
            let freed = std::mem::take(&mut worker.freed);
            state.bytes -= freed;
            if freed > 0 {
                queue.given_back.fetch_add(1, Relaxed);
            }
            (state.stuck, state.retried) = (worker.stuck.len(), retried);
            if state.flushing > 0 {
                queue.progress.notify_all();
            }
            let urgent = retried < state.flushes || state.stop.is_some();
            if state.arrived.is_empty() && !urgent {
                if !worker.streams.is_empty() {
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
            std::mem::swap(&mut arrived, &mut state.arrived);
            (state.next - arrived.len() as u64, state.flushes, state.stop)
        };
        if !arrived.is_empty() {
            (pause, lingered) = (POLL.0, 0);
        }

        // Those that came earlier first.
        worker.ask_streams();
        for (number, remains) in (first..).zip(arrived.drain(..)) {
            worker.receive(number, remains);
        }
        // A burst of frees may have made it large.
        arrived.shrink_to(KEEP_ROOM);
        if retried < flush {
            retried = flush;
            for remains in std::mem::take(&mut worker.stuck) {
                worker.close(remains);
            }
        }

        worker.vacate();

        if let Some(deadline) = stop {
            let done = worker.streams.is_empty() && queue.lock().arrived.is_empty();
            if done || Instant::now() >= deadline {
                let waiting = worker.streams.into_values().flatten();
                let mut in_use: Vec<_> = waiting.map(|waiting| waiting.remains).collect();
                in_use.append(&mut queue.lock().arrived);
                return Leftover {
                    stuck: worker.stuck,
                    in_use,
                };
            }
            if !worker.streams.is_empty() {
                std::thread::sleep(POLL.1);
            }
        }
    }
}

struct Worker<'d, V> {
    driver: &'d Driver,
    vacate: V,
    streams: HashMap<(Device, Stream), VecDeque<Waiting>>,
    /// Places that are free and not vacated yet.
    vacant: Vec<Place>,
    /// What could not be closed.
    stuck: Vec<Remains>,
    /// Bytes freed that the queue does not know of yet.
    freed: u64,
}

/// What its stream has not passed yet, when it was last asked.
struct Waiting {
    number: u64,
    fence: FenceId,
    remains: Remains,
}

impl<V: Fn(&[Place])> Worker<'_, V> {
    /// The number of the oldest arrival that waits for its stream.
    fn oldest(&self) -> Option<u64> {
        let waiting = self.streams.values().filter_map(|queue| queue.front());
        waiting.map(|waiting| waiting.number).min()
    }

    fn receive(&mut self, number: u64, remains: Remains) {
        match remains.until {
            Until::Now => self.close(remains),
            Until::Idle(device) => {
                idle(self.driver, device);
                self.close(remains);
            }
            Until::Passed(device, stream, fence) => {
                if let Some(queue) = self.streams.get_mut(&(device, stream)) {
                    queue.push_back(Waiting {
                        number,
                        fence,
                        remains,
                    });
                } else if has_passed(fence, self.driver, device) {
                    self.close(remains);
                } else {
                    let waiting = Waiting {
                        number,
                        fence,
                        remains,
                    };
                    self.streams.insert((device, stream), [waiting].into());
                }
            }
        }
    }

    /// Closes what streams have passed.
    fn ask_streams(&mut self) {
        let mut passed = Vec::new();
        for ((device, _), queue) in &mut self.streams {
            while queue
                .front()
                .is_some_and(|waiting| has_passed(waiting.fence, self.driver, *device))
            {
                passed.extend(queue.pop_front().map(|waiting| waiting.remains));
            }
        }
        self.streams.retain(|_, queue| !queue.is_empty());
        for remains in passed {
            self.close(remains);
        }
    }

    fn vacate(&mut self) {
        if !self.vacant.is_empty() {
            (self.vacate)(&self.vacant);
            self.vacant.clear();
        }
    }

    fn close(&mut self, mut remains: Remains) {
        let bytes = remains.backing.bytes();
        match remains.backing.close(self.driver) {
            Ok(()) => {
                self.freed += bytes;
                self.vacant.push(remains.place);
                if self.vacant.len() == MOST_PLACES {
                    self.vacate();
                }
            }
            Err(error) => {
                self.freed += bytes - remains.backing.bytes();
                tracing::warn!(%error, "freed memory could not be unmapped; trying again later");
                self.stuck.push(remains);
            }
        }
    }
}

/// Whether the stream has passed the fence; forgets it then.
fn has_passed(fence: FenceId, driver: &Driver, device: Device) -> bool {
    let passed = driver.passed(fence).unwrap_or_else(|error| {
        tracing::warn!(%error, "a stream cannot be asked for its progress; waiting for its device");
        idle(driver, device);
        true
    });
    if passed {
        driver.forget(fence);
    }
    passed
}

/// Waits for all work of `device`. One that has failed does no work any more.
fn idle(driver: &Driver, device: Device) {
    if let Err(error) = driver.synchronize(device) {
        tracing::warn!(%error, %device, "the device cannot be waited for");
    }
}
