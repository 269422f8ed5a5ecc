//! From the configuration to the settings of the allocator and of the ordering.

use std::hash::{BuildHasher, RandomState};

use gsan_config::Config;
use gsan_config::value::{HandleType as Sharing, OnOverrun, OnRace, Records as CellRecords};
use gsan_core::address::Records;
use gsan_core::ids::DeviceRank;
use gsan_core::layout::limits;
use gsan_sync::Settings;
use gsan_sync::ranks::{Claim, Claims};
use gsan_vmm::backend::{Device, DeviceInfo};
use gsan_vmm::{Allocator, HandleType, Options};

use super::Machine;
use crate::error::{Error, Result};

/// Memory for clock rows of a device: those of hundreds of streams, events and graphs. More is left to the
/// program.
const ROW_BYTES: u64 = 384 << 20;

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
    let taking_part = ranks(config, visible.len());
    let mut flags = 0;
    if config.report.on_race == OnRace::Halt {
        flags |= limits::HALT_ON_RACE;
    }
    if config.clock.on_overrun == OnOverrun::Halt {
        flags |= limits::HALT_ON_OVERRUN;
    }
    let sms = visible.iter().map(|device| device.multiprocessors).max();
    Ok(Settings {
        devices: devices(config, &taking_part),
        device_ranks: taking_part.iter().map(|&(_, rank)| rank).collect(),
        local_devices: taking_part.iter().map(|&(device, _)| device).collect(),
        when_used: true,
        sms: sms.unwrap_or(1),
        slots_per_sm: config.launch.slots_per_sm,
        publications: config.clock.publications,
        snapshot_bytes: config.clock.snapshot_memory.0,
        private_bytes: config.clock.private_memory.0,
        row_bytes: ROW_BYTES,
        // All of it counts.
        seed: (seed ^ seed >> 32) as u32,
        write_once: allocator.write_once_base(),
        flags,
        // Streams of the host backend run one launch at a time.
        learn_by_waiting: matches!(machine, Machine::Host(_)),
        acts: matches!(machine, Machine::Host(_)),
        ..Settings::default()
    })
}

/// The devices that take part, and their ranks: those that have one in the configuration, or all, each of
/// which is its own.
fn ranks(config: &Config, visible: usize) -> Vec<(Device, DeviceRank)> {
    let given = &config.topology.device_ranks;
    if given.is_empty() {
        let own = |device: u32| (Device(device), DeviceRank(device as u16));
        return (0..visible as u32).map(own).collect();
    }
    let given = given.iter();
    given
        .map(|(&device, &rank)| (Device(device), DeviceRank(rank)))
        .collect()
}

/// How many devices there are, over all processes.
fn devices(config: &Config, ranks: &[(Device, DeviceRank)]) -> u32 {
    let most = ranks.iter().map(|(_, rank)| u32::from(rank.0) + 1).max();
    match config.topology.num_devices {
        0 => most.unwrap_or(1),
        devices => devices,
    }
}

/// What a process whose session has this configuration says of its devices to others.
pub(super) fn claims(config: &Config, visible: &[DeviceInfo]) -> Claims {
    let ranks = ranks(config, visible.len());
    Claims {
        devices: devices(config, &ranks),
        gpus: gpus(
            visible,
            ranks.into_iter().map(|(at, rank)| (at, Some(rank))),
        ),
    }
}

/// The same before it has one: ranks and numbers that are not given are open.
pub(super) fn open_claims(config: &Config, visible: &[DeviceInfo]) -> Claims {
    if config.topology.device_ranks.is_empty() {
        let all = (0..visible.len() as u32).map(|device| (Device(device), None));
        return Claims {
            devices: config.topology.num_devices,
            gpus: gpus(visible, all),
        };
    }
    Claims {
        devices: config.topology.num_devices,
        ..claims(config, visible)
    }
}

fn gpus(
    visible: &[DeviceInfo],
    ranks: impl Iterator<Item = (Device, Option<DeviceRank>)>,
) -> Vec<Claim> {
    let claim = |(device, rank): (Device, _)| {
        Some(Claim {
            device: device.0,
            uuid: visible.get(device.0 as usize)?.uuid,
            rank,
        })
    };
    ranks.filter_map(claim).collect()
}
