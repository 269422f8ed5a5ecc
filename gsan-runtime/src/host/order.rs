//! Events of the host backend, and who may wait. Streams wait for each other as the ordering says, which acts
//! itself where there is no driver.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::kernel::is_cta;
use crate::error::{Error, Result};

/// Such that no handle of CUDA's is mistaken for one. Never used again.
static NEXT_EVENT: AtomicU64 = AtomicU64::new(1 << 61);

/// A new event.
pub(crate) fn create_event() -> u64 {
    NEXT_EVENT.fetch_add(1, Relaxed)
}

/// CTAs run on the streams' threads: one that waits for a stream may wait for itself.
pub(crate) fn may_wait() -> Result<()> {
    match is_cta() {
        false => Ok(()),
        true => Err(Error::WrongOrder(
            "a kernel waits for a stream, an event or a device: only the host can".into(),
        )),
    }
}
