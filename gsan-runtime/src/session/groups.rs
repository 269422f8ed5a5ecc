//! Groups of ranks that share memory.

use std::sync::Arc;
use std::time::Duration;

use gsan_core::ids::DeviceRank;
use gsan_vmm::backend::Device;

use super::Session;
use crate::error::Result;

/// How long a barrier waits whose caller gives no limit.
const PATIENCE: Duration = Duration::from_secs(600);

/// A group of ranks, as one of them sees it.
pub struct Group {
    session: Arc<Session>,
    device: Device,
    group: gsan_sync::Group,
}

impl Session {
    /// Makes the ranks that share memory with `device` known; its own is among them.
    ///
    /// # Errors
    /// When the device has no rank or is in a group, or the state of one of the ranks is not here.
    pub fn open_group(self: &Arc<Self>, device: Device, ranks: &[DeviceRank]) -> Result<Group> {
        Ok(Group {
            group: self.ordering.group(device, ranks)?,
            device,
            session: Arc::clone(self),
        })
    }
}

impl Group {
    /// All ranks' work before it is ordered before all ranks' work after it. Returns when all have come.
    /// A `limit` of zero is ten minutes.
    ///
    /// # Errors
    /// When ranks did not come in time, which the error names; when the stream is not there or has an
    /// unfinished launch of this thread, or the device fails.
    pub fn barrier(&self, stream: u64, limit: Duration) -> Result<()> {
        let limit = if limit.is_zero() { PATIENCE } else { limit };
        let arrive = |key| self.group.barrier(key, limit);
        let arrival = self.session.with_stream(self.device, stream, arrive)?;
        Ok(arrival.wait()?)
    }

    /// A collective of the group is about to be put into a stream.
    ///
    /// # Errors
    /// When the stream is not there or has an unfinished launch of this thread, or the device fails.
    pub fn before_collective(&self, stream: u64) -> Result<()> {
        let before = |key| self.group.before_collective(key);
        self.session.with_stream(self.device, stream, before)
    }

    /// The collective was put into the stream.
    ///
    /// # Errors
    /// The same as of [`Self::before_collective`].
    pub fn after_collective(&self, stream: u64) -> Result<()> {
        let after = |key| self.group.after_collective(key);
        self.session.with_stream(self.device, stream, after)
    }
}
