//! From the configuration to the settings of the allocator and of the ordering.

use std::hash::{BuildHasher, RandomState};

use gsan_config::Config;
use gsan_config::value::{HandleType as Sharing, OnOverrun, OnRace, Records as CellRecords};
use gsan_core::address::Records;
use gsan_core::ids::DeviceRank;
use gsan_core::layout::limits;
use gsan_sync::Settings;
use gsan_vmm::backend::Device;
use gsan_vmm::{Allocator, HandleType, Options};

use super::Machine;
use crate::error::{Error, Result};

/// The seed that is asked for, or one that is drawn; never 0.
pub(super) fn seed(config: &Config) -> u64 {
    match config.sampling.seed {
        // A hash of nothing, with keys that the system's randomness chose.
        0 => u64::from((RandomState::new().hash_one(0) as u32).max(1)),
        seed => seed,
    }
}

pub(super) fn options(config: &Config) -> Options {
    Options {
        reserve: config.shadow.reserve.bytes(),
        records: match config.shadow.records {
            CellRecords::Two => Records::Two,
            CellRecords::Four => Records::Four,
        },
        handle_type: match config.sharing.handle_type {
            Sharing::PosixFd => HandleType::PosixFd,
            Sharing::Fabric => HandleType::Fabric,
            Sharing::Auto => {
                let asked = std::env::var("PYTORCH_CUDA_ALLOC_CONF").ok();
                HandleType::auto(asked.as_deref())
            }
        },
        write_once: true,
        ..Options::default()
    }
}

pub(super) fn settings(
    config: &Config,
    machine: &Machine,
    allocator: &Allocator,
    seed: u64,
) -> Result<Settings> {
    let backend = machine.backend();
    let visible = backend.devices();
    let given = &config.topology.device_ranks;
    if let Some((device, rank)) = given
        .iter()
        .find(|(device, _)| **device >= visible.len() as u32)
    {
        return Err(Error::Argument(format!(
            "topology.device_ranks gives device {device} the rank {rank}: this process sees {} \
             devices, counted from 0",
            visible.len()
        )));
    }
    // Without ranks each device is its own; otherwise those take part that have one.
    let (local_devices, ranks): (Vec<Device>, Vec<DeviceRank>) = match given.is_empty() {
        true => (0..visible.len() as u32)
            .map(|device| (Device(device), DeviceRank(device as u16)))
            .unzip(),
        false => given
            .iter()
            .map(|(&device, &rank)| (Device(device), DeviceRank(rank)))
            .unzip(),
    };
    let most = ranks.iter().map(|rank| u32::from(rank.0) + 1).max();
    let mut flags = 0;
    if config.report.on_race == OnRace::Halt {
        flags |= limits::HALT_ON_RACE;
    }
    if config.clock.on_overrun == OnOverrun::Halt {
        flags |= limits::HALT_ON_OVERRUN;
    }
    let sms = visible.iter().map(|device| device.multiprocessors).max();
    Ok(Settings {
        device_ranks: ranks,
        local_devices,
        when_used: true,
        devices: match config.topology.num_devices {
            0 => most.unwrap_or(1),
            devices => devices,
        },
        sms: sms.unwrap_or(1),
        slots_per_sm: config.launch.slots_per_sm,
        publications: config.clock.publications,
        snapshot_bytes: config.clock.snapshot_memory.0,
        private_bytes: config.clock.private_memory.0,
        // All of it counts.
        seed: (seed ^ seed >> 32) as u32,
        write_once: allocator.write_once_base(),
        flags,
        ..Settings::default()
    })
}
