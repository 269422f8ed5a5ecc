//! Streams that the program has destroyed: their edges stay, and what they had goes to new streams.
//!
//! A new stream takes over all of what a destroyed one knew: its bank, its rows and its place in their
//! order. So nothing has to be cleared, and who knows what the old one did needs no other row for
//! the new one. It also starts after the old one's work. That costs no report when the host knows of that
//! work already; others are taken over only when there is no bank left, and are done then.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Error;
use crate::host::Fence;
use crate::ordering::{DeviceState, Inner, Ordering};
use crate::rows::Knowledge;
use crate::stream::{Begun, Stream, StreamKey, StreamKind, StreamState};

/// Streams of a device that are gone.
#[derive(Default)]
pub(crate) struct Dormant {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    streams: Vec<Gone>,
    /// What they were given, unless the host has waited for the device since.
    unawaited: Knowledge,
    /// Of that, what blocking streams were given.
    blocking: Knowledge,
}

/// What a stream leaves.
struct Gone {
    key: StreamKey,
    state: StreamState,
    /// What it was given.
    last: Arc<Knowledge>,
    /// Behind its work.
    fence: Arc<Fence>,
    /// The legacy default stream waits for it.
    blocking: bool,
}

impl Dormant {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What streams that are gone were given, as far as the host has not waited for the device since, and the
    /// fences behind it.
    pub(crate) fn unawaited(&self) -> (Knowledge, Vec<Arc<Fence>>) {
        let state = self.lock();
        let fences = state.streams.iter().map(|gone| Arc::clone(&gone.fence));
        (state.unawaited.clone(), fences.collect())
    }

    /// The part of it that blocking streams were given, and the fences behind it.
    pub(crate) fn unawaited_of_blocking(&self) -> (Knowledge, Vec<Arc<Fence>>) {
        let state = self.lock();
        let gone = state.streams.iter().filter(|gone| gone.blocking);
        let fences = gone.map(|gone| Arc::clone(&gone.fence)).collect();
        (state.blocking.clone(), fences)
    }

    /// The host knows what they were given.
    pub(crate) fn awaited(&self) {
        let mut state = self.lock();
        let known = (
            std::mem::take(&mut state.unawaited),
            std::mem::take(&mut state.blocking),
        );
        drop(state);
        drop(known);
    }

    /// Does something with the state of each of them.
    pub(crate) fn for_each(
        &self,
        mut each: impl FnMut(&mut StreamState) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut state = self.lock();
        state
            .streams
            .iter_mut()
            .try_for_each(|gone| each(&mut gone.state))
    }

    /// Takes all of them.
    pub(crate) fn clear(&self) -> Vec<StreamState> {
        let state = std::mem::take(&mut *self.lock());
        state.streams.into_iter().map(|gone| gone.state).collect()
    }
}

impl Ordering {
    /// The program is about to destroy a stream. Its work goes on and its edges stay; its handle may
    /// become that of a new stream. A stream that is not known, or a default stream, is left alone.
    ///
    /// # Errors
    /// When a launch of this thread on it is unfinished, it is being captured, or the backend fails.
    /// Nothing changes then.
    pub fn forget_stream(&self, key: StreamKey) -> Result<(), Error> {
        let inner = &*self.inner;
        let Ok(stream) = inner.stream(key) else {
            return Ok(());
        };
        if stream.kind == StreamKind::Legacy {
            return Ok(());
        }
        inner.refuse_captured(&stream, "its end")?;
        if stream.kind == StreamKind::Blocking {
            // Takes its implicit edges in.
            drop(inner.occupy(&stream, Begun::Call)?);
        }
        // The legacy default stream comes first in the order in which one may get hold of several.
        let legacy = inner.devices[stream.device].legacy.get();
        let legacy = legacy.filter(|_| stream.kind == StreamKind::Blocking);
        if let Some(legacy) = legacy {
            legacy.enter()?.keep(Begun::Call, key);
        }
        let left = inner.leave_all(&stream, legacy);
        if let Some(legacy) = legacy {
            legacy.leave(legacy.reenter());
        }
        left
    }
}

impl Inner {
    /// Takes a stream out of all lists. The legacy default stream, if it waits for this one, is kept by
    /// this thread.
    fn leave_all(&self, stream: &Arc<Stream>, legacy: Option<&Arc<Stream>>) -> Result<(), Error> {
        let (key, device) = (stream.key, &self.devices[stream.device]);
        let mut state = stream.enter()?;
        let fence = self.fence_behind(stream)?;
        if let Some(legacy) = legacy.filter(|_| self.settings.acts) {
            self.wait_for(legacy, Some(&fence))?;
        }
        let last = state.knowledge();
        let empty = StreamState::empty(&device.rows);
        let gone = Gone {
            key,
            state: std::mem::replace(&mut *state, empty),
            last: Arc::clone(&last),
            fence,
            blocking: stream.kind == StreamKind::Blocking,
        };
        state.close();
        drop(state);
        if let Some(legacy) = legacy {
            let mut state = legacy.reenter();
            state.seen_of.remove(&stream.number);
            state.wait_implicitly(Arc::clone(&last));
        }
        self.memory.user_is_gone(key, &last);
        let blocking = device.blocking.write();
        let mut blocking = blocking.unwrap_or_else(PoisonError::into_inner);
        blocking.retain(|other| !Arc::ptr_eq(other, stream));
        drop(blocking);
        {
            let mut dormant = device.dormant.lock();
            dormant.unawaited.join(&last);
            if stream.kind == StreamKind::Blocking {
                dormant.blocking.join(&last);
            }
            dormant.streams.push(gone);
        }
        // Now its handle may be opened anew.
        self.forget_handle(stream);
        Ok(())
    }

    /// What a stream that is gone leaves to a new one, if it should have that.
    pub(crate) fn take_over(&self, device: &DeviceState) -> Result<Option<StreamState>, Error> {
        let free = device.banks().has_free();
        let found = {
            let mut dormant = device.dormant.lock();
            let mut best = None;
            for (at, gone) in dormant.streams.iter().enumerate() {
                if !gone.fence.has_passed() {
                    continue;
                }
                if self.host.knows(&gone.last) {
                    best = Some(at);
                    break;
                }
                if !free {
                    best = best.or(Some(at));
                }
            }
            best.map(|at| dormant.streams.swap_remove(at))
        };
        Ok(found.map(|mut gone| {
            gone.state.taken_over();
            gone.state
        }))
    }

    /// A stream that is gone and still has work.
    pub(crate) fn dormant_work(&self) -> Result<Option<StreamKey>, Error> {
        for device in self.devices.iter() {
            for gone in &device.dormant.lock().streams {
                if !gone.fence.has_passed() {
                    return Ok(Some(gone.key));
                }
            }
        }
        Ok(None)
    }

    /// Does something with the states of all streams that are gone.
    pub(crate) fn for_each_dormant(
        &self,
        device: &DeviceState,
        mut each: impl FnMut(&mut StreamState) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut dormant = device.dormant.lock();
        dormant.unawaited = Knowledge::default();
        dormant.blocking = Knowledge::default();
        for gone in &mut dormant.streams {
            gone.last = Arc::default();
            each(&mut gone.state)?;
        }
        Ok(())
    }
}
