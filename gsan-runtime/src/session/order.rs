//! Events, waits, and memory that the program's own allocator hands out again.

use gsan_sync::Edge;
use gsan_vmm::backend::Device;

use super::Session;
use crate::error::Result;

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

    /// The host waited for an event, or a query said that it has happened.
    pub fn event_synchronized(&self, event: u64) -> Edge {
        self.ordering.synchronize_event(event)
    }

    /// A stream waits for what another one of its device was given so far.
    ///
    /// # Errors
    /// When a stream is not there, or a launch of this thread on one of them is unfinished.
    pub fn stream_waited(&self, device: Device, waiting: u64, awaited: u64) -> Result<()> {
        // Makes both known.
        self.known(device, awaited)?;
        let awaited = self.key(device, awaited);
        self.with_stream(device, waiting, |key| {
            self.ordering.wait_stream(key, awaited)
        })
    }

    /// The host waited for a stream, or a query said that it is done.
    ///
    /// # Errors
    /// When the stream is not there, or a launch of this thread on it is unfinished.
    pub fn stream_synchronized(&self, device: Device, stream: u64) -> Result<()> {
        self.with_stream(device, stream, |key| self.ordering.synchronize_stream(key))
    }

    /// The host waited for a device. If counters are half worn by now, everything is forgotten.
    ///
    /// # Errors
    /// When the device has no rank, or a launch of this thread is unfinished.
    pub fn device_synchronized(&self, device: Device) -> Result<()> {
        self.ordering.device_is_idle(device)?;
        Ok(())
    }

    /// A stream was destroyed. A new one with its handle continues it, which can only lose reports.
    pub fn stream_forgotten(&self, device: Device, stream: u64) {
        tracing::trace!(%device, stream, "a stream is gone");
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
        match self.ordering.knows_stream(key) {
            true => Ok(()),
            false => self.open(key, stream),
        }
    }
}
