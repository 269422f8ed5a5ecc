//! Ranks that meet: barriers and collectives of processes that share memory.

use std::ffi::{c_int, c_void};

use std::time::Duration;

use gsan_core::ids::DeviceRank;
use gsan_runtime::session::Group;

use crate::arguments::{output, slice};
use crate::call::{status, value};
use crate::handles::{self, Object};
use crate::session::{number, session_with};
use crate::status::{Failure, gsan_status};
use crate::types::gsan_group;

impl Object for Group {
    type C = gsan_group;
    const KIND: &'static str = "group";
}

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
        let (ranks, group) = unsafe { (slice(ranks, count, "ranks")?, output(group, "group")?) };
        let ranks: Vec<DeviceRank> = ranks
            .iter()
            .map(|&rank| rank_of(rank))
            .collect::<Result<_, _>>()?;
        let (session, device) = session_with("gsan_group_open", device)?;
        group.set(handles::insert(session.open_group(device, &ranks)?));
        Ok(())
    })
}

/// All that any rank's stream was given before comes before all that any is given after. Returns when all
/// have come. GSAN_TIMEOUT names those that did not come in time; timeout_ms 0: ten minutes.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_group_barrier(
    group: *mut gsan_group,
    stream: *mut c_void,
    timeout_ms: u32,
) -> gsan_status {
    status(|| {
        let limit = Duration::from_millis(timeout_ms.into());
        Ok(handles::get::<Group>(group)?.barrier(number(stream), limit)?)
    })
}

/// A collective of the group's ranks is about to be put into the stream.
///
/// If the stream is captured, races of the graph's kernels are possible ones from now on: what the collective
/// orders inside of the graph is not known. Call this before each replay and gsan_group_after_collective()
/// after it, so that what comes before and after the replay is ordered.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_group_before_collective(
    group: *mut gsan_group,
    stream: *mut c_void,
) -> gsan_status {
    status(|| Ok(handles::get::<Group>(group)?.before_collective(number(stream))?))
}

/// The collective was put into the stream.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_group_after_collective(
    group: *mut gsan_group,
    stream: *mut c_void,
) -> gsan_status {
    status(|| Ok(handles::get::<Group>(group)?.after_collective(number(stream))?))
}

/// Leaves the group.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_group_close(group: *mut gsan_group) {
    value((), || handles::remove::<Group>(group).map(drop));
}

fn rank_of(rank: u32) -> Result<DeviceRank, Failure> {
    let rank = u16::try_from(rank);
    rank.map(DeviceRank)
        .map_err(|_| Failure::invalid("ranks holds one above 65535"))
}
