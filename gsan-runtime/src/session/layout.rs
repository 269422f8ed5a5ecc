//! The layout of the state region, for those who look into it.

use std::mem::offset_of;

use gsan_core::layout::{GlobalState, limits};
use gsan_sync::Ordering;
use gsan_vmm::backend::Device;
use gsan_vmm::{Allocator, STATE_STRIDE};
use serde_json::{Value, json};

use super::Session;
use crate::error::Result;

/// The start of a device's state region, as it is now. It reads memory of the device.
pub(super) fn globals(
    allocator: &Allocator,
    ordering: &Ordering,
    device: Device,
) -> Result<GlobalState> {
    let mut globals: GlobalState = bytemuck::Zeroable::zeroed();
    let base = ordering.state_region(device)?;
    let bytes = bytemuck::bytes_of_mut(&mut globals);
    allocator.backend().read(device, base, bytes)?;
    Ok(globals)
}

impl Session {
    /// The start of a device's state region.
    pub(super) fn globals(&self, device: Device) -> Result<GlobalState> {
        globals(&self.allocator, &self.ordering, device)
    }

    /// A device that was used, else the first one that has a rank.
    pub(super) fn any_device(&self) -> Device {
        let used = self.ordering.used_devices();
        let first = || self.ordering.settings().local_devices.first().copied();
        used.first().copied().or_else(first).unwrap_or(Device(0))
    }

    /// Version, offsets and sizes of the state region of a device; those of the others are the same.
    ///
    /// # Errors
    /// When the device fails.
    pub fn layout(&self) -> Result<Value> {
        let globals = self.globals(self.any_device())?;
        let space = self.allocator.space();
        let offsets = globals.offsets;
        Ok(json!({
            "version": limits::VERSION,
            "stride": STATE_STRIDE,
            "global_state_bytes": size_of::<GlobalState>(),
            "accesses": offset_of!(GlobalState, accesses),
            "losses": offset_of!(GlobalState, losses),
            "reserve": { "base": space.base(), "bytes": space.reserve(), "records": space.records().count() },
            "topology": {
                "devices": globals.constants.devices,
                "sms": globals.sms,
                "slots_per_sm": globals.slots_per_sm,
                "slots": globals.constants.slots,
                "banks_per_device": globals.constants.banks,
                "ids": globals.ids,
                "ids_per_device": globals.constants.share,
            },
            "counts": {
                "publications": globals.publications,
                "snapshots": globals.snapshots,
                "private_clocks": globals.private_clocks,
                "segments": globals.segments,
                "segment_entries": globals.segment_entries,
                "clock_bytes": globals.clock_bytes,
            },
            "offsets": {
                "slot_masks": offsets.slot_masks,
                "high_water": offsets.high_water,
                "epochs": offsets.epochs,
                "starts": offsets.starts,
                "history": offsets.history,
                "threads": offsets.threads,
                "launches": offsets.launches,
                "publications": offsets.publications,
                "checkpoints": offsets.checkpoints,
                "checkpoint_epochs": offsets.checkpoint_epochs,
                "snapshot_states": offsets.snapshot_states,
                "snapshots": offsets.snapshots,
                "private_taken": offsets.private_taken,
                "private_clocks": offsets.private_clocks,
                "sites": offsets.sites,
                "site_texts": offsets.site_texts,
                "kernels": offsets.kernels,
                "kernel_texts": offsets.kernel_texts,
                "site_keys": offsets.site_keys,
                "race_filter": offsets.race_filter,
                "rows": offsets.rows,
                "end": offsets.end,
            },
        }))
    }
}
