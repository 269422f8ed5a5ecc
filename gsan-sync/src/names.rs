//! Names for reports: kernels, and the CTA that had a thread id.

use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gsan_core::atomics::Native;
use gsan_core::clock::Epoch;
use gsan_core::compressed::history::{History, PastCta};
use gsan_core::ids::ThreadId;
use gsan_core::layout::{HistoryEntry, KernelName, STATE_STRIDE, launch_flags, limits};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::Error;
use crate::ordering::{Inner, Ordering};
use crate::state::Region;

/// Words of the history of one thread id.
const RING: usize = limits::HISTORY as usize * size_of::<HistoryEntry>() / 8;

/// The kernels that have names, and those that were told something of.
#[derive(Default)]
pub(crate) struct Names {
    state: Mutex<State>,
}

#[derive(Default)]
pub(crate) struct State {
    numbers: FxHashMap<String, u32>,
    names: Vec<String>,
    /// The entries that devices have, from kernel 1 on.
    entries: Vec<KernelName>,
    text_bytes: u32,
    never_waited: FxHashSet<u32>,
    untold: Vec<u32>,
    count: u64,
}

impl Names {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn never_waited(&self, kernel: u32) {
        let mut state = self.lock();
        state.count += 1;
        if state.never_waited.insert(kernel) {
            state.untold.push(kernel);
        }
    }

    pub(crate) fn count_never_waited(&self) -> u64 {
        self.lock().count
    }
}

impl Inner {
    /// Writes the name of a kernel to a device.
    fn write_name(
        &self,
        region: &Region,
        number: u32,
        name: &str,
        entry: &KernelName,
    ) -> Result<(), Error> {
        let offsets = &region.global.offsets;
        let text = region.base + u64::from(offsets.kernel_texts + entry.text);
        let size = size_of::<KernelName>() as u32;
        let place = region.base + u64::from(offsets.kernels + number * size);
        if !name.is_empty() {
            self.backend.write(region.device, text, name.as_bytes())?;
        }
        let entry = bytemuck::bytes_of(entry);
        Ok(self.backend.write(region.device, place, entry)?)
    }

    /// Writes the names of all kernels so far to a device that is being set up.
    pub(crate) fn write_names(&self, state: &State, region: &Region) -> Result<(), Error> {
        let named = (1..).zip(state.names.iter().zip(&state.entries));
        for (number, (name, entry)) in named {
            self.write_name(region, number, name, entry)?;
        }
        Ok(())
    }
}

impl Ordering {
    /// The number of a kernel, by its name: the same for the same name, from 1. Devices of other
    /// processes can look the first few thousand up in the state region.
    ///
    /// # Errors
    /// When the name cannot be written to a device.
    pub fn kernel_number(&self, name: &str, opaque: bool) -> Result<u32, Error> {
        let inner = &*self.inner;
        let mut state = inner.names.lock();
        if let Some(&number) = state.numbers.get(name) {
            return Ok(number);
        }
        let number = state.names.len() as u32 + 1;
        let bytes = name.len() as u32;
        let room = limits::KERNEL_TEXT_BYTES - state.text_bytes;
        if number < limits::KERNELS && bytes <= room {
            let entry = KernelName {
                text: state.text_bytes,
                bytes,
                flags: if opaque { launch_flags::OPAQUE } else { 0 },
                reserved: 0,
            };
            for device in inner.devices.iter() {
                inner.write_name(&device.region, number, name, &entry)?;
            }
            state.entries.push(entry);
            state.text_bytes += bytes;
        }
        state.names.push(name.to_owned());
        state.numbers.insert(name.to_owned(), number);
        Ok(number)
    }

    /// The name of a kernel, by its number.
    pub fn kernel_name(&self, number: u32) -> Option<String> {
        let state = self.inner.names.lock();
        let index = number.checked_sub(1)?;
        state.names.get(index as usize).cloned()
    }

    /// Kernels that were launched as dependents and never waited for their predecessor; each is named
    /// once. They are not ordered after it. Launches are looked at when their numbers are given out
    /// again or everything restarts.
    pub fn take_never_waited(&self) -> Vec<u32> {
        std::mem::take(&mut self.inner.names.lock().untold)
    }

    /// The CTA that had a thread id at an epoch, if its device's state is mapped here and the CTA is
    /// not forgotten.
    ///
    /// # Errors
    /// When the memory cannot be read.
    pub fn past_cta(&self, thread: ThreadId, epoch: Epoch) -> Result<Option<PastCta>, Error> {
        let inner = &*self.inner;
        let topology = &inner.topology;
        let rank = topology.device(thread);
        if topology.place(thread).is_none() || inner.allocator.state(rank).is_none() {
            return Ok(None);
        }
        // All ranks have the same layout.
        let Some(any) = inner.devices.first() else {
            return Ok(None);
        };
        let share = topology.ids() / topology.devices();
        let base = inner.allocator.state_base() + u64::from(rank.0) * STATE_STRIDE;
        let at = base
            + u64::from(any.region.global.offsets.history)
            + u64::from(u32::from(thread.0) % share) * 8 * RING as u64;
        let mut words = [0u64; RING];
        let target = bytemuck::cast_slice_mut(&mut words);
        inner.backend.read(any.region.device, at, target)?;
        let (starts, ring) = ([AtomicU32::new(0)], words.map(AtomicU64::new));
        Ok(History::<Native>::new(&starts, &ring).find(ThreadId(0), epoch))
    }
}
