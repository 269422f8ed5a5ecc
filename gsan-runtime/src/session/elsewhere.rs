//! Names that other processes gave to what their devices did, as far as their states are mapped here.

use std::mem::offset_of;
use std::sync::Arc;

use bytemuck::Pod;
use gsan_core::ids::{DeviceRank, SiteId};
use gsan_core::layout::{GlobalState, KernelName, LaunchState, Site, limits};
use gsan_core::site_mirror::SourceLine;
use gsan_sync::Ordering;
use gsan_vmm::Allocator;

use crate::part::Elsewhere;

/// Names longer than this are not believed.
const LONGEST: u32 = 1 << 16;

/// The states of all ranks that this process has mapped.
pub(super) struct States {
    allocator: Arc<Allocator>,
    ordering: Ordering,
}

impl States {
    pub(super) fn new(allocator: &Arc<Allocator>, ordering: &Ordering) -> States {
        States {
            allocator: Arc::clone(allocator),
            ordering: ordering.clone(),
        }
    }

    /// Copies from a state, by a device that was used.
    fn copy(&self, address: u64, into: &mut [u8]) -> Option<()> {
        let device = *self.ordering.used_devices().first()?;
        self.allocator.backend().read(device, address, into).ok()
    }

    fn read<T: Pod>(&self, address: u64) -> Option<T> {
        let mut value = T::zeroed();
        self.copy(address, bytemuck::bytes_of_mut(&mut value))?;
        Some(value)
    }

    /// A state that was set up: its first address, its size, and its start.
    fn state(&self, rank: u8) -> Option<(u64, u64, GlobalState)> {
        let (base, bytes) = self.allocator.state(DeviceRank(rank.into()))?;
        let globals: GlobalState = self.read(base)?;
        let known = globals.magic == limits::MAGIC && globals.version == limits::VERSION;
        known.then_some((base, bytes, globals))
    }

    /// Bytes of a state, which another process wrote.
    fn text(&self, (base, size): (u64, u64), offset: u64, bytes: u32) -> Option<String> {
        if bytes > LONGEST || offset.checked_add(bytes.into())? > size {
            return None;
        }
        let mut text = vec![0; bytes as usize];
        self.copy(base + offset, &mut text)?;
        Some(String::from_utf8_lossy(&text).into_owned())
    }
}

impl Elsewhere for States {
    fn site(&mut self, rank: u8, site: SiteId) -> Option<SourceLine> {
        if site.0 == 0 || site.0 >= limits::SITES {
            return None;
        }
        let (base, bytes, globals) = self.state(rank)?;
        let offsets = &globals.offsets;
        let at = base + u64::from(offsets.sites) + u64::from(site.0) * size_of::<Site>() as u64;
        let site: Site = self.read(at)?;
        if site.ready == 0 {
            return None;
        }
        let text = u64::from(offsets.site_texts) + u64::from(site.text);
        Some(SourceLine {
            file: self.text((base, bytes), text, site.bytes)?,
            line: site.line,
        })
    }

    fn kernel(&mut self, rank: u8, launch: u32) -> Option<String> {
        let (base, bytes, globals) = self.state(rank)?;
        let offsets = &globals.offsets;
        let place = u64::from(launch % limits::LAUNCHES) * size_of::<LaunchState>() as u64;
        let state: LaunchState = self.read(base + u64::from(offsets.launches) + place)?;
        let kernel = state.descriptor.kernel;
        if state.copied != launch.wrapping_add(1) || kernel == 0 || kernel >= limits::KERNELS {
            return None;
        }
        let at = u64::from(kernel) * size_of::<KernelName>() as u64;
        let name: KernelName = self.read(base + u64::from(offsets.kernels) + at)?;
        let text = u64::from(offsets.kernel_texts) + u64::from(name.text);
        let name = self.text((base, bytes), text, name.bytes)?;
        (!name.is_empty()).then_some(name)
    }
}

const _: () = assert!(offset_of!(GlobalState, constants) == 0);
