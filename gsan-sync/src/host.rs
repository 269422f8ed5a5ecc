//! What the host knows to be done. Every later launch, on any stream, starts after it.

use std::sync::atomic::{AtomicU64, Ordering::Release};
use std::sync::{Arc, Mutex, PoisonError};

use gsan_vmm::backend::Device;

use crate::error::Error;
use crate::ordering::{Ordering, version};
use crate::rows::Knowledge;
use crate::stream::StreamKey;

/// What the host knows to be done.
#[derive(Default)]
pub(crate) struct HostKnowledge {
    version: AtomicU64,
    known: Mutex<Arc<Knowledge>>,
}

impl HostKnowledge {
    pub(crate) fn learn(&self, new: &Knowledge) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = Knowledge::clone(&known);
        if all.join(new) {
            *known = Arc::new(all);
            self.version.fetch_add(1, Release);
        }
    }

    /// Whether the host knows all of `other`.
    pub(crate) fn knows(&self, other: &Knowledge) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.covers(other)
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Arc::default();
        self.version.fetch_add(1, Release);
    }

    /// The version, and what the host knows if `seen` is another one.
    pub(crate) fn news(&self, seen: u64) -> Option<(u64, Arc<Knowledge>)> {
        if version(&self.version) == seen {
            return None;
        }
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        Some((version(&self.version), Arc::clone(&known)))
    }
}

impl Ordering {
    /// The host waited, or is about to wait, for all work that a stream was given so far.
    ///
    /// # Errors
    /// When the stream is not known, or a launch of this thread on it is unfinished.
    pub fn synchronize_stream(&self, key: StreamKey) -> Result<(), Error> {
        let stream = self.inner.stream(key)?;
        let knowledge = self.inner.knowledge(&stream)?;
        self.inner.host.learn(&knowledge);
        Ok(())
    }

    /// The host waited, or is about to wait, for all work of a device.
    ///
    /// # Errors
    /// When the device has no rank, or a launch of this thread on it is unfinished.
    pub fn synchronize_device(&self, device: Device) -> Result<(), Error> {
        let state = self.inner.device(device)?;
        let gone = state.dormant.unawaited();
        if !gone.completions.is_empty() {
            self.inner.host.learn(&gone);
            state.dormant.awaited();
        }
        for stream in self.inner.streams(Some(device)) {
            match self.inner.knowledge(&stream) {
                Ok(knowledge) => self.inner.host.learn(&knowledge),
                // It went meanwhile.
                Err(Error::UnknownStream(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The host waited, or is about to wait, for an event; [`Edge::NeverRecorded`] when there is
    /// nothing to wait for.
    pub fn synchronize_event(&self, event: u64) -> Edge {
        match self.inner.events.get(event) {
            Some(recorded) => {
                self.inner.host.learn(&recorded);
                Edge::Added
            }
            None => Edge::NeverRecorded,
        }
    }

    /// A query of an event said that it has happened.
    pub fn event_is_done(&self, event: u64) -> Edge {
        self.synchronize_event(event)
    }

    /// A query of a stream said that all its work is done.
    ///
    /// # Errors
    /// When the stream is not known, or a launch of this thread on it is unfinished.
    pub fn stream_is_done(&self, key: StreamKey) -> Result<(), Error> {
        self.synchronize_stream(key)
    }
}

/// What a wait for an event came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// What comes next is ordered after the record.
    Added,
    /// The event was never recorded: as in CUDA, there is nothing to wait for.
    NeverRecorded,
}
