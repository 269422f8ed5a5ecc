//! Ranks that meet: barriers and collectives of processes that share memory.

use std::ffi::{c_int, c_void};

use crate::arguments::{output, slice};
use crate::call::{status, value};
use crate::status::{Failure, gsan_status};
use crate::types::gsan_group;

/// Opens the group of these ranks, the device's own among them, in the same order for all. Their states
/// must have been imported.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_group_open(
    device: c_int,
    ranks: *const u32,
    count: usize,
    group: *mut *mut gsan_group,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that they point to what they should.
        let _arguments = unsafe { (slice(ranks, count, "ranks")?, output(group, "group")?) };
        let _ = device;
        Err(Failure::not_yet())
    })
}

/// All that any rank's stream was given before comes before all that any is given after. Returns when all
/// have come. GSAN_TIMEOUT names those that did not come in time; timeout_ms 0: a minute.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_group_barrier(
    group: *mut gsan_group,
    stream: *mut c_void,
    timeout_ms: u32,
) -> gsan_status {
    status(|| {
        let _ = (group, stream, timeout_ms);
        Err(Failure::not_yet())
    })
}

/// A collective of the group's ranks is about to be put into the stream.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_group_before_collective(
    group: *mut gsan_group,
    stream: *mut c_void,
) -> gsan_status {
    status(|| {
        let _ = (group, stream);
        Err(Failure::not_yet())
    })
}

/// The collective was put into the stream.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_group_after_collective(
    group: *mut gsan_group,
    stream: *mut c_void,
) -> gsan_status {
    status(|| {
        let _ = (group, stream);
        Err(Failure::not_yet())
    })
}

/// Leaves the group.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_group_close(group: *mut gsan_group) {
    value((), || {
        let _ = group;
        Err(Failure::not_yet())
    });
}
