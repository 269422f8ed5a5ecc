//! What has to be known before the first launch, and cannot change afterwards.

use std::time::Duration;

use gsan_core::ids::DeviceRank;
use gsan_vmm::backend::Device;

use crate::launch_log::LogMemory;

/// How the state of all devices is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The ranks of this process's devices, each at the place of its device.
    pub device_ranks: Vec<DeviceRank>,
    /// The devices at these places. Empty: those with the local numbers from 0.
    pub local_devices: Vec<Device>,
    /// Whether a device is set up when it is first used; otherwise all are at once.
    pub when_used: bool,
    /// How many devices the topology has, over all processes.
    pub devices: u32,
    /// The most SMs that a device of the topology has.
    pub sms: u32,
    /// Slots per SM in each bank, at most.
    pub slots_per_sm: u32,
    /// Banks of each device, at most.
    pub most_banks: u32,
    /// Publications kept per device.
    pub publications: u32,
    /// Bytes for snapshots per device.
    pub snapshot_bytes: u64,
    /// Bytes for private clocks per device.
    pub private_bytes: u64,
    /// Bytes for clock rows per device, at most; what the state region has left is the limit.
    pub row_bytes: u64,
    /// The seed of the reservoir.
    pub seed: u32,
    /// Where devices find the race ring; 0: races are not told.
    pub race_ring: u64,
    /// Where the launches of each device are remembered, at its place. Those of a device
    /// without an entry are remembered in memory of the ordering's own.
    pub launch_logs: Vec<LogMemory>,
    /// Where each device of this process, by its place, copies its sites to, so that they outlive
    /// it: [`SiteMirror`](gsan_core::site_mirror::SiteMirror)s that were formatted for this use, 0 for a
    /// device without one. Empty: none has one.
    pub site_mirrors: Vec<u64>,
    /// Addresses of real memory from here on are write-once; 0: none are.
    pub write_once: u64,
    /// `GSAN_STATE_HALT_*`.
    pub flags: u32,
    /// How many launches must have been made before a device-wide wait looks for wear again, which
    /// reads memory of the device.
    pub launches_between_looks: u64,
    /// Whether dependent launches learn of the launches before them by waiting only, though those have ended
    /// by the time that they start: of a machine on which one launch of a stream runs at a time.
    pub learn_by_waiting: bool,
    /// Whether the ordering makes streams wait for what it says that they start after: records, waits and the
    /// implicit edges of the legacy default stream. Where there is a driver, that and the program do so.
    pub acts: bool,
    /// How long a thread waits for a stream that another one keeps between the begin and the end of a
    /// launch or a replay.
    pub patience: Duration,
}

impl Settings {
    /// How many CTAs of a launch must have exited for a dependent launch to learn of it without waiting.
    pub(crate) const fn ctas_to_learn_of(&self, ctas: u32) -> u32 {
        match self.learn_by_waiting {
            true => u32::MAX,
            false => ctas,
        }
    }
}

impl Default for Settings {
    /// One device with as many SMs as an H200, and the sizes that the configuration has by default.
    fn default() -> Settings {
        Settings {
            device_ranks: vec![DeviceRank(0)],
            local_devices: vec![],
            when_used: false,
            devices: 1,
            sms: 132,
            slots_per_sm: 16,
            most_banks: u32::MAX,
            publications: 65_536,
            snapshot_bytes: 256 << 20,
            private_bytes: 256 << 20,
            row_bytes: u64::MAX,
            seed: 0,
            race_ring: 0,
            launch_logs: vec![],
            site_mirrors: vec![],
            write_once: 0,
            flags: 0,
            launches_between_looks: 4096,
            learn_by_waiting: false,
            acts: false,
            patience: Duration::from_secs(600),
        }
    }
}
