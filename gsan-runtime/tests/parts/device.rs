//! A device that finds races where it is told to.

use bytemuck::Zeroable;
use gsan_core::ids::{DeviceRank, SiteId};
use gsan_core::launch_log::LaunchRecord;
use gsan_core::layout::{RaceEntry, RaceSide, race_codes};
use gsan_runtime::findings::Findings;
use gsan_runtime::part::Part;

/// Where allocations of tests are.
pub(crate) const MEMORY: u64 = 0x8200_0000_0000;

/// A part of a process with these ranks, with a kernel, a launch of it and some memory.
pub(crate) fn part(directory: Option<&std::path::Path>, ranks: &[u16]) -> Part {
    let ranks: Vec<DeviceRank> = ranks.iter().copied().map(DeviceRank).collect();
    let part = Part::new(directory, &ranks).unwrap();
    part.name_kernel(1, "splitk", None);
    part.name_kernel(2, "barrier", Some("contains `fence.acq_rel`"));
    for local in 0..ranks.len() {
        launch(&part, local, 12, 1);
        launch(&part, local, 13, 2);
    }
    part.allocated(MEMORY, 131_072);
    part
}

pub(crate) fn launch(part: &Part, local: usize, number: u32, kernel: u32) {
    part.launches(local).unwrap().enter(&LaunchRecord {
        number,
        kernel,
        stream: 0x77,
        grid: [4, 2, 1],
        opaque: kernel == 2,
    });
}

/// Makes site `number` line `line` of `file`.
pub(crate) fn site(part: &Part, local: usize, number: u32, file: &str, line: u32) {
    let mirror = part.site_mirror(local).unwrap();
    // Each has a place of its own among the names.
    assert!(mirror.add(SiteId(number), number * 64, file, line));
}

/// A write of launch 12 on device rank 0 at `site`.
pub(crate) fn write(site: u16, cta: u32) -> RaceSide {
    RaceSide {
        launch: 12,
        cta,
        epoch: 1,
        thread: 0,
        site,
        device: 0,
        action: race_codes::WRITE as u8,
        scope: 0,
        flags: 0,
    }
}

pub(crate) fn read(site: u16, cta: u32) -> RaceSide {
    RaceSide {
        action: race_codes::READ as u8,
        ..write(site, cta)
    }
}

/// A read by CTA (3, 1, 0) at line `later` of what CTA 1 wrote at line `earlier`.
pub(crate) fn race(earlier: u16, later: u16) -> RaceEntry {
    RaceEntry {
        address: MEMORY + 4096,
        mask: 0x0f,
        kind: race_codes::READ_AFTER_WRITE as u8,
        earlier: write(earlier, 1),
        later: read(later, 7),
        ..RaceEntry::zeroed()
    }
}

pub(crate) fn findings() -> Findings {
    Findings::new(100_000, &[])
}
