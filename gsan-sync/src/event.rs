//! Events: what they remember of a stream, and who waits for them.

use std::sync::{PoisonError, RwLock};

use rustc_hash::FxHashMap;

use crate::error::Error;
use crate::host::{Edge, Point};
use crate::ordering::Ordering;
use crate::stream::StreamKey;

/// What each event remembers, by the program's handle.
#[derive(Default)]
pub(crate) struct Events {
    recorded: RwLock<FxHashMap<u64, Point>>,
}

impl Events {
    pub(crate) fn get(&self, event: u64) -> Option<Point> {
        let recorded = self.recorded.read().unwrap_or_else(PoisonError::into_inner);
        recorded.get(&event).cloned()
    }

    pub(crate) fn set(&self, event: u64, point: Point) {
        let old = {
            let mut recorded = self
                .recorded
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            recorded.insert(event, point)
        };
        // Rows that nobody names any more go back outside the lock.
        drop(old);
    }

    /// Forgets what comes before the records. Waiting for one of them is still an action of a stream.
    pub(crate) fn clear(&self) {
        let mut recorded = self
            .recorded
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        for point in recorded.values_mut() {
            *point = Point::default();
        }
    }

    fn forget(&self, event: u64) {
        let old = {
            let mut recorded = self
                .recorded
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            recorded.remove(&event)
        };
        drop(old);
    }
}

impl Ordering {
    /// An event was recorded on a stream. Whoever waited for an earlier record is not affected. To be
    /// called after the driver's call: if the stream is being captured, the capture says what it was.
    ///
    /// # Errors
    /// When the stream is not known, or a launch of this thread on it is unfinished.
    pub fn record_event(&self, event: u64, key: StreamKey) -> Result<(), Error> {
        let stream = self.inner.stream(key)?;
        if self.inner.note_captured(&stream)? {
            return Ok(());
        }
        let point = self.inner.point(&stream)?;
        self.inner.events.set(event, point);
        Ok(())
    }

    /// A stream waits for the newest record of an event. To be called after the driver's call: by it, a
    /// stream may become part of a capture, which knows the edge.
    ///
    /// # Errors
    /// When the stream is not known, or a launch of this thread on it is unfinished.
    pub fn wait_event(&self, key: StreamKey, event: u64) -> Result<Edge, Error> {
        let stream = self.inner.stream(key)?;
        if self.inner.note_captured(&stream)? {
            return Ok(Edge::Added);
        }
        let Some(recorded) = self.inner.events.get(event) else {
            return Ok(Edge::NeverRecorded);
        };
        self.inner.add_edge(&stream, &recorded)?;
        Ok(Edge::Added)
    }

    /// A stream waits for everything that another one was given so far.
    ///
    /// # Errors
    /// When a stream is not known, or a launch of this thread on it is unfinished.
    pub fn wait_stream(&self, waiting: StreamKey, awaited: StreamKey) -> Result<(), Error> {
        let waiting = self.inner.stream(waiting)?;
        let awaited = self.inner.stream(awaited)?;
        if self.inner.note_captured(&waiting)? {
            return Ok(());
        }
        let point = self.inner.point(&awaited)?;
        self.inner.add_edge(&waiting, &point)
    }

    /// An event was destroyed: nobody waits for it any more.
    pub fn forget_event(&self, event: u64) {
        self.inner.events.forget(event);
    }
}
