//! Events, waits, and memory that the program's own allocator hands out again.
//!
//! With GPUs these calls tell what CUDA was told. On the host backend, which has no driver, they do it, too.

use gsan_sync::Edge;
use gsan_vmm::backend::{Backend, Device};

use super::Session;
use crate::error::Result;
use crate::host::order::may_wait;

impl Session {
    /// An event was recorded on a stream.
    ///
    /// # Errors
    /// When the stream is not there, or a launch of this thread on it is unfinished.
    pub fn event_recorded(&self, event: u64, device: Device, stream: u64) -> Result<()> {
        self.with_stream(device, stream, |key| self.ordering.record_event(event, key))
    }

    /// A stream waits for the newest record of an event. For one that was never recorded there is
    /// nothing to wait for.
    ///
    /// # Errors
    /// When the stream is not there, or a launch of this thread on it is unfinished.
    pub fn event_waited(&self, event: u64, device: Device, stream: u64) -> Result<Edge> {
        self.with_stream(device, stream, |key| self.ordering.wait_event(key, event))
    }

    /// An event was destroyed.
    pub fn event_forgotten(&self, event: u64) {
        self.ordering.forget_event(event);
    }

    /// The host waited for an event, or a query said that it has happened. On the host backend it waits.
    ///
    /// # Errors
    /// On the host backend when a kernel waits.
    pub fn event_synchronized(&self, event: u64) -> Result<Edge> {
        if let Some(host) = &self.host {
            may_wait()?;
            if let Some(reached) = self.ordering.reach_event(event) {
                host.runner.wait_until(|| reached.is_over());
            }
        }
        Ok(self.ordering.synchronize_event(event))
    }

    /// A stream waits for what another one of its device was given so far.
    ///
    /// # Errors
    /// When a stream is not there, or a launch of this thread on one of them is unfinished.
    pub fn stream_waited(&self, device: Device, waiting: u64, awaited: u64) -> Result<()> {
        // Makes both known.
        self.known(device, awaited)?;
        let awaited_key = self.key(device, awaited);
        let wait = |key| self.ordering.wait_stream(key, awaited_key);
        self.with_stream(device, waiting, wait)
    }

    /// The host waited for a stream, or a query said that it is done.
    ///
    /// # Errors
    /// When the stream is not there, or a launch of this thread on it is unfinished.
    pub fn stream_synchronized(&self, device: Device, stream: u64) -> Result<()> {
        // What the host has waited for it knows: before that it would be told too early.
        if let Some(host) = &self.host {
            may_wait()?;
            let reached = self.with_stream(device, stream, |key| self.ordering.reach(key))?;
            host.runner.wait_until(|| reached.is_over());
        }
        self.with_stream(device, stream, |key| self.ordering.synchronize_stream(key))
    }

    /// The host waited for a device. If counters are half worn by now, everything is forgotten.
    ///
    /// # Errors
    /// When the device has no rank, or a launch of this thread is unfinished.
    pub fn device_synchronized(&self, device: Device) -> Result<()> {
        if let Some(host) = &self.host {
            may_wait()?;
            host.runner.ring();
            host.backend.synchronize(device)?;
        }
        self.ordering.device_is_idle(device)?;
        Ok(())
    }

    /// A stream is about to be destroyed. Its edges stay; its handle may become that of a new one.
    ///
    /// # Errors
    /// When a launch or a replay on it was begun and not finished, or it is being captured. It stays known
    /// then, and a new one with its handle continues it, which can only lose reports.
    pub fn stream_forgotten(&self, device: Device, stream: u64) -> Result<()> {
        Ok(self.ordering.forget_stream(self.key(device, stream))?)
    }

    /// Memory of the program's own allocator is used by another stream than the one that it was
    /// handed out to.
    ///
    /// # Errors
    /// When the stream is not there.
    pub fn memory_used(&self, address: u64, bytes: u64, device: Device, stream: u64) -> Result<()> {
        let used = |key| self.ordering.memory_used(address, bytes, key);
        self.with_stream(device, stream, used)
    }

    /// Memory was given back to the program's own allocator.
    ///
    /// # Errors
    /// When a launch of this thread on a stream that used it is unfinished.
    pub fn memory_freed(&self, address: u64) -> Result<()> {
        Ok(self.ordering.memory_freed(address)?)
    }

    /// Memory was handed out by the program's own allocator.
    ///
    /// # Errors
    /// When the stream is not there, or a launch of this thread on it is unfinished.
    pub fn memory_handed_out(
        &self,
        address: u64,
        bytes: u64,
        device: Device,
        stream: u64,
    ) -> Result<()> {
        let handed = |key| self.ordering.memory_handed_out(address, bytes, Some(key));
        self.with_stream(device, stream, handed)
    }

    /// Makes a stream known.
    pub(super) fn known(&self, device: Device, stream: u64) -> Result<()> {
        let key = self.key(device, stream);
        if self.host.is_some() {
            self.exists(key)?;
        }
        match self.ordering.knows_stream(key) {
            true => Ok(()),
            false => self.open(key, stream),
        }
    }
}
