//! Streams as queues: work is a function, and runs in the order of its stream.
//!
//! Work runs as soon as everything before it has run, in the thread that gave it or that made it
//! ready. A backend that was told to hold runs nothing by itself: its user steps from one piece of
//! work to the next, in any order of streams. The backend's own stream is never held.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{MutexGuard, PoisonError};

use super::{Device, HostBackend, OWN_STREAM, Result, Stream, invalid, stream_number};
use crate::backend::{BackendError, Failure, FenceId};

pub(super) type Key = (Device, u64);

/// A piece of work.
pub(super) enum Work {
    Run(Box<dyn FnOnce() + Send>),
    /// Until a stream has done as many pieces of work.
    Wait(Key, u64),
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::Run(_) => f.write_str("Run"),
            Work::Wait(key, target) => f.debug_tuple("Wait").field(key).field(target).finish(),
        }
    }
}

#[derive(Debug, Default)]
struct StreamQueue {
    work: VecDeque<Work>,
    /// Somebody runs its oldest piece of work.
    running: bool,
}

/// The queues of all streams that ever had work.
#[derive(Debug, Default)]
pub(super) struct Queues {
    streams: HashMap<Key, StreamQueue>,
    /// Streams whose oldest piece of work waits.
    waiting: Vec<Key>,
    hold: bool,
}

/// What [`HostBackend::step`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stepped {
    /// It ran a piece of work.
    Ran,
    /// The stream's oldest piece of work waits for another stream, or is being run.
    Waits,
    /// The stream has no work.
    Empty,
}

impl HostBackend {
    /// Gives `work` to a stream.
    ///
    /// # Errors
    /// When the device does not exist, or the stream is one of another backend.
    pub fn enqueue(
        &self,
        device: Device,
        stream: Stream,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<()> {
        self.device("enqueue", device)?;
        self.push(device, stream, Work::Run(Box::new(work)))
    }

    /// Whether work waits to be stepped through (`true`), or runs as soon as it can (`false`).
    pub fn hold(&self, hold: bool) {
        self.queues().hold = hold;
        if !hold {
            self.run_all();
        }
    }

    /// Runs the oldest piece of work of a stream.
    ///
    /// # Errors
    /// When the stream is one of another backend.
    pub fn step(&self, device: Device, stream: Stream) -> Result<Stepped> {
        let key = key("step", device, stream)?;
        let stepped = self.step_queue(key);
        let hold = self.queues().hold;
        if hold {
            self.wake();
        } else {
            // What others gave the stream meanwhile they left to this thread.
            self.run(key);
        }
        Ok(stepped)
    }

    /// Runs everything that can run.
    pub fn run_all(&self) {
        loop {
            // Work may give work to streams that had none.
            let keys: Vec<Key> = self.queues().streams.keys().copied().collect();
            let ran = keys
                .iter()
                .filter(|&&key| self.step_queue(key) == Stepped::Ran)
                .count();
            if ran == 0 {
                return;
            }
        }
    }

    pub(super) fn push(&self, device: Device, stream: Stream, work: Work) -> Result<()> {
        let key = key("enqueue", device, stream)?;
        self.refuse_captured("enqueue", key)?;
        let hold = {
            let mut queues = self.queues();
            // Under this lock, so that counts and queues have the same order.
            self.tables().streams.entry(key).or_default().submitted += 1;
            queues.streams.entry(key).or_default().work.push_back(work);
            queues.hold
        };
        if key.1 == OWN_STREAM || !hold {
            self.run(key);
        }
        Ok(())
    }

    /// Runs what can run of a stream, and then of those that waited.
    fn run(&self, key: Key) {
        while self.step_queue(key) == Stepped::Ran {}
        self.wake();
    }

    /// Runs what can run of the streams that waited and are not held.
    pub(super) fn wake(&self) {
        loop {
            let waiting: Vec<Key> = {
                let mut queues = self.queues();
                let hold = queues.hold;
                let woken = |key: &mut Key| !hold || key.1 == OWN_STREAM;
                queues.waiting.extract_if(.., woken).collect()
            };
            let mut ran = false;
            for key in waiting {
                while self.step_queue(key) == Stepped::Ran {
                    ran = true;
                }
            }
            if !ran {
                return;
            }
        }
    }

    fn step_queue(&self, key: Key) -> Stepped {
        let work = {
            let mut queues = self.queues();
            let Some(queue) = queues.streams.get_mut(&key) else {
                return Stepped::Empty;
            };
            if queue.running {
                return Stepped::Waits;
            }
            match queue.work.front() {
                None => return Stepped::Empty,
                Some(&Work::Wait(other, target)) if !self.has_done(other, target) => {
                    if !queues.waiting.contains(&key) {
                        queues.waiting.push(key);
                    }
                    return Stepped::Waits;
                }
                Some(_) => {}
            }
            queue.running = true;
            queue.work.pop_front()
        };
        // Work that panics is over, too.
        let _done = Done { backend: self, key };
        if let Some(Work::Run(run)) = work {
            run();
        }
        Stepped::Ran
    }

    /// Notes that the piece of work is over that was taken out of a stream's queue.
    fn done(&self, key: Key) {
        let mut queues = self.queues();
        if let Some(queue) = queues.streams.get_mut(&key) {
            queue.running = false;
        }
        let mut tables = self.tables();
        let progress = tables.streams.entry(key).or_default();
        progress.done = progress.submitted.min(progress.done + 1);
        self.progress.notify_all();
    }

    pub(super) fn has_done(&self, key: Key, target: u64) -> bool {
        let tables = self.tables();
        let progress = tables.streams.get(&key);
        progress.is_none_or(|progress| progress.done >= target)
    }

    pub(super) fn fence_target(&self, fence: FenceId) -> Result<(Key, u64)> {
        let found = self.tables().fences.get(&fence.0).copied();
        found.ok_or_else(|| {
            BackendError::new("fence", Failure::NoSuchHandle, "there is no such fence")
        })
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        // Work runs outside the lock, so nothing panics under it.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a piece of work when it is dropped.
struct Done<'a> {
    backend: &'a HostBackend,
    key: Key,
}

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.backend.done(self.key);
    }
}

pub(super) fn key(call: &'static str, device: Device, stream: Stream) -> Result<Key> {
    let number = stream_number(stream)
        .ok_or_else(|| invalid(call, "a CUDA stream was given to the host backend"))?;
    Ok((device, number))
}
