//! What a driver would do: events, and streams that wait.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gsan_sync::{StreamKey, StreamKind};
use gsan_vmm::backend::host::HostBackend;
use gsan_vmm::backend::{Backend, Device, FenceId, Stream};
use rustc_hash::FxHashMap;

use super::kernel::is_cta;
use super::runner::Runner;
use crate::error::{Error, Result};

/// Such that no handle of CUDA's is mistaken for one. Never used again.
static NEXT_EVENT: AtomicU64 = AtomicU64::new(1 << 61);

/// Events and streams of a host machine.
#[derive(Default)]
pub(crate) struct HostOrder {
    /// What each event recorded last.
    recorded: Mutex<FxHashMap<u64, FenceId>>,
    /// Streams that the legacy default stream waits for, and that one, once it was used.
    blocking: Mutex<Vec<(StreamKey, Stream)>>,
    legacy: Mutex<Vec<(Device, Stream)>>,
    /// Behind the work of blocking streams that are gone.
    gone: Mutex<Vec<(Device, FenceId)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn add<T: PartialEq>(list: &Mutex<Vec<T>>, item: T) {
    let mut list = lock(list);
    if !list.contains(&item) {
        list.push(item);
    }
}

/// CTAs run on the streams' threads: one that waits for a stream may wait for itself.
fn may_wait() -> Result<()> {
    match is_cta() {
        false => Ok(()),
        true => Err(Error::WrongOrder(
            "a kernel waits for a stream, an event or a device: only the host can".into(),
        )),
    }
}

impl HostOrder {
    /// A stream became known.
    pub(crate) fn opened(&self, key: StreamKey, stream: Stream, kind: StreamKind) {
        match kind {
            StreamKind::Legacy => add(&self.legacy, (key.device, stream)),
            StreamKind::Blocking => add(&self.blocking, (key, stream)),
            StreamKind::NonBlocking => {}
        }
    }

    /// A stream is gone. What it was given is done all the same, and the legacy default stream waits for it.
    pub(crate) fn closed(&self, backend: &HostBackend, key: StreamKey) -> Result<()> {
        let blocking = lock(&self.blocking)
            .extract_if(.., |(known, _)| *known == key)
            .next();
        let Some((_, stream)) = blocking else {
            return Ok(());
        };
        let fence = backend.fence(key.device, stream)?;
        let mut gone = lock(&self.gone);
        gone.push((key.device, fence));
        gone.retain(|&(_, fence)| {
            let over = backend.passed(fence) != Ok(false);
            if over {
                backend.forget(fence);
            }
            !over
        });
        Ok(())
    }

    /// Lets the legacy default stream of a device wait for streams that are gone.
    fn wait_for_gone(&self, backend: &HostBackend, device: Device, legacy: Stream) -> Result<()> {
        let mut all = lock(&self.gone);
        let gone: Vec<_> = all.extract_if(.., |(of, _)| *of == device).collect();
        drop(all);
        for (_, fence) in gone {
            backend.wait_on(device, legacy, fence)?;
            backend.forget(fence);
        }
        Ok(())
    }

    /// Lets `stream` wait for what it waits for without being told.
    pub(crate) fn wait_implicitly(
        &self,
        backend: &HostBackend,
        key: StreamKey,
        stream: Stream,
    ) -> Result<()> {
        let device = key.device;
        let legacy = lock(&self.legacy)
            .iter()
            .any(|&(of, known)| of == device && known == stream);
        let others: Vec<Stream> = if legacy {
            self.wait_for_gone(backend, device, stream)?;
            let blocking = lock(&self.blocking);
            let own = blocking.iter().filter(|(key, _)| key.device == device);
            own.map(|&(_, stream)| stream).collect()
        } else if lock(&self.blocking).iter().any(|(known, _)| *known == key) {
            let legacy = lock(&self.legacy);
            let own = legacy.iter().filter(|(of, _)| *of == device);
            own.map(|&(_, stream)| stream).collect()
        } else {
            Vec::new()
        };
        for other in others {
            self.wait_stream(backend, device, stream, other)?;
        }
        Ok(())
    }

    /// Lets one stream wait for what another one was given so far.
    pub(crate) fn wait_stream(
        &self,
        backend: &HostBackend,
        device: Device,
        waiting: Stream,
        awaited: Stream,
    ) -> Result<()> {
        let fence = backend.fence(device, awaited)?;
        let waited = if backend.passed(fence)? {
            Ok(())
        } else {
            backend.wait_on(device, waiting, fence)
        };
        backend.forget(fence);
        Ok(waited?)
    }

    /// A new event.
    pub(crate) fn create_event(&self) -> u64 {
        NEXT_EVENT.fetch_add(1, Relaxed)
    }

    /// Records an event on a stream.
    pub(crate) fn record(
        &self,
        backend: &HostBackend,
        event: u64,
        device: Device,
        stream: Stream,
    ) -> Result<()> {
        let fence = backend.fence(device, stream)?;
        if let Some(old) = lock(&self.recorded).insert(event, fence) {
            backend.forget(old);
        }
        Ok(())
    }

    /// Lets a stream wait for the newest record of an event.
    pub(crate) fn wait_event(
        &self,
        backend: &HostBackend,
        event: u64,
        device: Device,
        stream: Stream,
    ) -> Result<()> {
        let recorded = lock(&self.recorded);
        match recorded.get(&event) {
            Some(&fence) if !backend.passed(fence)? => Ok(backend.wait_on(device, stream, fence)?),
            _ => Ok(()),
        }
    }

    /// Waits for the newest record of an event.
    pub(crate) fn synchronize_event(
        &self,
        backend: &HostBackend,
        runner: &Runner,
        event: u64,
    ) -> Result<()> {
        may_wait()?;
        runner.wait_until(|| match lock(&self.recorded).get(&event) {
            Some(&fence) => Ok(backend.passed(fence)?),
            None => Ok(true),
        })
    }

    /// Waits for what a stream was given so far.
    pub(crate) fn synchronize_stream(
        &self,
        backend: &HostBackend,
        runner: &Runner,
        device: Device,
        stream: Stream,
    ) -> Result<()> {
        may_wait()?;
        let fence = backend.fence(device, stream)?;
        let waited = runner.wait_until(|| Ok(backend.passed(fence)?));
        backend.forget(fence);
        waited
    }

    /// Waits for all that a device was given so far.
    pub(crate) fn synchronize_device(&self, backend: &HostBackend, device: Device) -> Result<()> {
        may_wait()?;
        Ok(backend.synchronize(device)?)
    }

    /// An event is gone.
    pub(crate) fn forget_event(&self, backend: &HostBackend, event: u64) {
        if let Some(fence) = lock(&self.recorded).remove(&event) {
            backend.forget(fence);
        }
    }
}
