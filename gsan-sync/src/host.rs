//! What the host knows to be done. Every later launch, on any stream, starts after it.

use std::sync::atomic::{AtomicU64, Ordering::Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gsan_vmm::backend::{Backend, CaptureStatus, Device, FenceId};

use crate::error::Error;
use crate::ordering::{Inner, Ordering, version};
use crate::rows::Knowledge;
use crate::stream::{Begun, Stream, StreamKey};

/// What the host knows to be done.
///
/// It is told after the wait, and other threads may have given the stream more since. That counts as waited
/// for, too; whoever joins it waits for it.
#[derive(Default)]
pub(crate) struct HostKnowledge {
    version: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    known: Arc<Knowledge>,
    /// Behind what counts as waited for and was not done when it was told.
    unfinished: Vec<Arc<Fence>>,
}

/// A fence that is forgotten when nobody needs it.
pub(crate) struct Fence {
    backend: Arc<dyn Backend>,
    pub(crate) id: FenceId,
}

impl Fence {
    /// Whether its stream has come so far. A device that fails comes no further.
    pub(crate) fn has_passed(&self) -> bool {
        self.backend.passed(self.id) != Ok(false)
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        self.backend.forget(self.id);
    }
}

/// A point of a stream: what comes before it, and a fence there if the ordering makes streams wait itself.
#[derive(Clone, Default)]
pub(crate) struct Point {
    pub(crate) knowledge: Arc<Knowledge>,
    pub(crate) fence: Option<Arc<Fence>>,
}

/// A point that a stream will reach.
pub struct Reached(Arc<Fence>);

impl Reached {
    /// Whether it has. A device that fails reaches nothing any more.
    pub fn is_over(&self) -> bool {
        self.0.has_passed()
    }
}

/// What the host knows, and what of it is to be waited for.
pub(crate) struct News {
    pub(crate) version: u64,
    pub(crate) known: Arc<Knowledge>,
    pub(crate) unfinished: Vec<Arc<Fence>>,
}

impl HostKnowledge {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The host knows of `new`, which is done.
    pub(crate) fn learn(&self, new: &Knowledge) {
        self.learn_behind(new, Vec::new());
    }

    /// The same of what is done once fences have passed.
    fn learn_behind(&self, new: &Knowledge, fences: Vec<Arc<Fence>>) {
        let mut state = self.state();
        let mut all = Knowledge::clone(&state.known);
        if !all.join(new) {
            return;
        }
        state.known = Arc::new(all);
        state.unfinished.extend(fences);
        state.unfinished.retain(|fence| !fence.has_passed());
        self.version.fetch_add(1, Release);
    }

    /// Whether the host knows all of `other`.
    pub(crate) fn knows(&self, other: &Knowledge) -> bool {
        self.state().known.covers(other)
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        let forgotten = std::mem::take(&mut *self.state());
        self.version.fetch_add(1, Release);
        drop(forgotten);
    }

    pub(crate) fn version(&self) -> u64 {
        version(&self.version)
    }

    /// What the host knows, if `seen` is another version.
    pub(crate) fn news(&self, seen: u64) -> Option<News> {
        if self.version() == seen {
            return None;
        }
        let state = self.state();
        Some(News {
            version: self.version(),
            known: Arc::clone(&state.known),
            unfinished: state.unfinished.clone(),
        })
    }
}

impl Inner {
    /// The host has waited for what a stream was given.
    fn host_waited(&self, stream: &Arc<Stream>) -> Result<(), Error> {
        let (mut state, held) = self.occupy(stream, Begun::Call)?;
        let knowledge = state.knowledge();
        if state.acted() {
            // Streams that wait for this one now wait for what it waits for.
            stream.changed();
        }
        // Before anybody gives it more. What is new to the host may be what others gave it since the wait.
        let fence = match self.host.knows(&knowledge) {
            true => None,
            // The driver may refuse it while another stream is captured; what is there counts as done then.
            false => self.fence_unless_captured(stream).unwrap_or_else(|error| {
                tracing::debug!(%error, "no fence behind what the host has waited for");
                None
            }),
        };
        self.vacate(stream, state, &held);
        self.host
            .learn_behind(&knowledge, fence.into_iter().collect());
        Ok(())
    }

    /// A fence behind what a stream was given; none if it is being captured, and is given nothing.
    fn fence_unless_captured(&self, stream: &Stream) -> Result<Option<Arc<Fence>>, Error> {
        let (device, queue) = (stream.key.device, stream.queue);
        match self.backend.capture_status(device, queue)? {
            CaptureStatus::None => self.fence_behind(stream).map(Some),
            CaptureStatus::Active(_) | CaptureStatus::Invalid => Ok(None),
        }
    }

    /// A fence behind what a stream was given, for others to wait for, if the ordering makes them do so.
    pub(crate) fn fence_for_others(&self, stream: &Stream) -> Result<Option<Arc<Fence>>, Error> {
        match self.settings.acts {
            true => self.fence_unless_captured(stream),
            false => Ok(None),
        }
    }

    /// Lets a stream wait for a fence.
    pub(crate) fn wait_for(
        &self,
        stream: &Stream,
        fence: Option<&Arc<Fence>>,
    ) -> Result<(), Error> {
        if let Some(fence) = fence
            && !self.backend.passed(fence.id)?
        {
            self.backend
                .wait_on(stream.key.device, stream.queue, fence.id)?;
        }
        Ok(())
    }

    /// A fence behind what a stream was given.
    pub(crate) fn fence_behind(&self, stream: &Stream) -> Result<Arc<Fence>, Error> {
        Ok(Arc::new(Fence {
            id: self.backend.fence(stream.key.device, stream.queue)?,
            backend: Arc::clone(&self.backend),
        }))
    }

    /// What the host knows, if that is news for a stream, which waits for what of it is not done.
    pub(crate) fn host_news(
        &self,
        stream: &Stream,
        seen: u64,
    ) -> Result<Option<(u64, Arc<Knowledge>)>, Error> {
        let Some(news) = self.host.news(seen) else {
            return Ok(None);
        };
        for fence in &news.unfinished {
            self.wait_for(stream, Some(fence))?;
        }
        Ok(Some((news.version, news.known)))
    }
}

impl Ordering {
    /// What a stream was given so far, and waits for without being told, for a host that waits by itself.
    ///
    /// # Errors
    /// When the stream is not known, or a launch of this thread on it is unfinished.
    pub fn reach(&self, key: StreamKey) -> Result<Reached, Error> {
        let inner = &self.inner;
        let stream = inner.stream(key)?;
        let (state, held) = inner.occupy(&stream, Begun::Call)?;
        let fence = inner.fence_behind(&stream);
        inner.vacate(&stream, state, &held);
        fence.map(Reached)
    }

    /// The newest record of an event, where the ordering makes streams wait.
    pub fn reach_event(&self, event: u64) -> Option<Reached> {
        self.inner.events.get(event)?.fence.map(Reached)
    }

    /// The host waited, or is about to wait, for all work that a stream was given so far.
    ///
    /// # Errors
    /// When the stream is not known, or a launch of this thread on it is unfinished.
    pub fn synchronize_stream(&self, key: StreamKey) -> Result<(), Error> {
        self.inner.host_waited(&self.inner.stream(key)?)
    }

    /// The host waited, or is about to wait, for all work of a device.
    ///
    /// # Errors
    /// When the device has no rank, or a launch of this thread on it is unfinished.
    pub fn synchronize_device(&self, device: Device) -> Result<(), Error> {
        let state = self.inner.device(device)?;
        let (gone, fences) = state.dormant.unawaited();
        if !gone.completions.is_empty() {
            self.inner.host.learn_behind(&gone, fences);
            state.dormant.awaited();
        }
        for stream in self.inner.streams(Some(device)) {
            match self.inner.host_waited(&stream) {
                // It went meanwhile.
                Ok(()) | Err(Error::UnknownStream(_)) => {}
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
                let fences = recorded.fence.into_iter().collect();
                self.inner.host.learn_behind(&recorded.knowledge, fences);
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
