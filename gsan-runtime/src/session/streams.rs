//! Streams: they become known at their first mention.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gsan_sync::{StreamKey, StreamKind};
#[cfg(feature = "cuda")]
use gsan_vmm::backend::{Backend, CaptureStatus};
use gsan_vmm::backend::{Device, Stream as Queue};
use rustc_hash::FxHashMap;

use super::{Machine, Session};
use crate::error::{Error, Result};
#[cfg(feature = "cuda")]
use crate::lowest;

/// `CU_STREAM_LEGACY`.
const LEGACY: u64 = 1;
/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: u64 = 2;
/// The default streams of threads are told apart by numbers that no stream has as its handle.
const THREADS: u64 = 1 << 63;
/// Handles of the host's streams: such that no handle of CUDA's is mistaken for one.
const HOST_STREAMS: u64 = 1 << 62;

/// Never used again, also not by a later session: a stale handle is not taken for another stream.
static NEXT_HOST_STREAM: AtomicU64 = AtomicU64::new(HOST_STREAMS);

/// Streams of the host backend, which the session makes itself.
#[derive(Default)]
pub(super) struct Streams {
    host: Mutex<FxHashMap<StreamKey, StreamKind>>,
}

/// A number of this thread's own.
fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(THREADS);
    thread_local!(static NUMBER: Cell<u64> = const { Cell::new(0) });
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Relaxed));
        }
        number.get()
    })
}

impl Session {
    /// The stream that a handle means on `device`, for this thread.
    pub(super) fn key(&self, device: Device, handle: u64) -> StreamKey {
        let handle = match handle {
            LEGACY => 0,
            PER_THREAD => thread_number(),
            handle => handle,
        };
        StreamKey { device, handle }
    }

    /// What the backend calls the stream of a handle.
    pub(super) fn queue(&self, handle: u64) -> Queue {
        match &self.machine {
            #[cfg(feature = "cuda")]
            Machine::Cuda(_) => lowest::cuda_stream(handle),
            Machine::Host(_) => match handle {
                0 | LEGACY => Queue::DEFAULT,
                PER_THREAD => Queue::host(thread_number()),
                handle => Queue::host(handle),
            },
        }
    }

    /// Does `call` about a stream, which becomes known if it is not.
    pub(super) fn with_stream<R>(
        &self,
        device: Device,
        handle: u64,
        call: impl Fn(StreamKey) -> std::result::Result<R, gsan_sync::Error>,
    ) -> Result<R> {
        let key = self.key(device, handle);
        if self.host.is_some() {
            self.exists(key)?;
        }
        let done = match call(key) {
            Err(gsan_sync::Error::UnknownStream(unknown)) if unknown == key => {
                self.open(key, handle)?;
                call(key)?
            }
            other => other?,
        };
        if let Some(host) = &self.host {
            // The call may have given the stream something.
            host.runner.ring();
        }
        Ok(done)
    }

    /// Whether a stream of the host backend is there: its handle may be stale.
    pub(super) fn exists(&self, key: StreamKey) -> Result<()> {
        if key.handle == 0 || key.handle >= THREADS {
            return Ok(());
        }
        match self.host_streams().contains_key(&key) {
            true => Ok(()),
            false => Err(no_stream(key, key.handle)),
        }
    }

    fn host_streams(&self) -> MutexGuard<'_, FxHashMap<StreamKey, StreamKind>> {
        let streams = self.streams.host.lock();
        streams.unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a stream known.
    pub(super) fn open(&self, key: StreamKey, handle: u64) -> Result<()> {
        let kind = self.kind(key, handle)?;
        let queue = self.queue(handle);
        if let Some(host) = &self.host {
            host.runner.serve(key.device, queue)?;
        }
        match self.ordering.open_stream(key, queue, kind) {
            // Another thread was faster.
            Err(gsan_sync::Error::StreamDiffers(_)) if self.ordering.knows_stream(key) => Ok(()),
            other => Ok(other?),
        }
    }

    fn kind(&self, key: StreamKey, handle: u64) -> Result<StreamKind> {
        match handle {
            0 | LEGACY => return Ok(StreamKind::Legacy),
            PER_THREAD => return Ok(StreamKind::Blocking),
            _ => {}
        }
        match &self.machine {
            #[cfg(feature = "cuda")]
            Machine::Cuda(backend) => {
                // A stream that is being captured is not asked. As a blocking one it has more edges, which
                // can only lose reports.
                let queue = self.queue(handle);
                let captured = backend.capture_status(key.device, queue)? != CaptureStatus::None;
                let waits = captured || backend.waits_for_legacy(key.device, queue)?;
                Ok(if waits {
                    StreamKind::Blocking
                } else {
                    StreamKind::NonBlocking
                })
            }
            Machine::Host(_) => {
                let kind = self.host_streams().get(&key).copied();
                kind.ok_or_else(|| no_stream(key, handle))
            }
        }
    }

    /// A stream of the host backend.
    ///
    /// # Errors
    /// When devices are GPUs, or there is no such device.
    pub fn create_host_stream(&self, device: Device, blocking: bool) -> Result<u64> {
        self.as_host()?;
        self.device(device.0 as i32)?;
        let handle = NEXT_HOST_STREAM.fetch_add(1, Relaxed);
        let key = StreamKey { device, handle };
        let kind = match blocking {
            true => StreamKind::Blocking,
            false => StreamKind::NonBlocking,
        };
        self.host_streams().insert(key, kind);
        Ok(handle)
    }

    /// Gives a stream of the host backend up. What it was given is still done.
    ///
    /// # Errors
    /// When there is no such stream, or a launch or a replay on it was begun and not finished.
    pub fn destroy_host_stream(&self, device: Device, handle: u64) -> Result<()> {
        let host = self.as_host()?;
        let key = StreamKey { device, handle };
        // Nobody else destroys it or finds it from now on.
        let Some(kind) = self.host_streams().remove(&key) else {
            return Err(no_stream(key, handle));
        };
        // Its bank and rows are for new streams.
        if let Err(error) = self.stream_forgotten(device, handle) {
            self.host_streams().insert(key, kind);
            return Err(error);
        }
        host.runner.release(device, self.queue(handle));
        Ok(())
    }
}

fn no_stream(key: StreamKey, handle: u64) -> Error {
    Error::NotFound(format!(
        "{handle:#x} is no stream of {}: on the host backend streams are made by \
         gsan_host_stream_create; 0 and 1 are the legacy default stream, 2 is the thread's",
        key.device
    ))
}
