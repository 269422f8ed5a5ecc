//! Steps on the host backend: the same words, changed by a function.

use std::fmt;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gsan_core::clock::{ClockEntry, merge_word};
use gsan_core::ids::DeviceRank;
use gsan_vmm::backend::host::{HostBackend, View};
use gsan_vmm::backend::{BackendError, Device, Failure, Result, Stream};
use gsan_vmm::{Allocator, STATE_RANKS, STATE_STRIDE};

use super::{Kernels, Step};

/// Steps as functions, given to the streams of a [`HostBackend`].
pub struct HostKernels {
    backend: Arc<HostBackend>,
    allocator: Arc<Allocator>,
    regions: Arc<Regions>,
}

/// Views of the state regions, by rank, made when they are first needed.
struct Regions {
    base: u64,
    views: Mutex<Vec<Option<Arc<View>>>>,
}

/// Words of a state region, by address.
struct Words {
    view: Arc<View>,
    start: u64,
}

impl HostKernels {
    /// For the state regions of `allocator`, whose backend is `backend`.
    pub fn new(backend: Arc<HostBackend>, allocator: Arc<Allocator>) -> HostKernels {
        let regions = Arc::new(Regions {
            base: allocator.state_base(),
            views: Mutex::new((0..STATE_RANKS).map(|_| None).collect()),
        });
        HostKernels {
            backend,
            allocator,
            regions,
        }
    }

    /// Makes the view of the region in which `address` lies.
    fn prepare(&self, address: u64) -> Result<()> {
        if address == 0 {
            return Ok(());
        }
        let rank = address.wrapping_sub(self.regions.base) / STATE_STRIDE;
        let outside = || {
            let reason = format!("{address:#x} lies in no state region of this process");
            BackendError::new("steps", Failure::InvalidArgument, reason)
        };
        if rank >= u64::from(STATE_RANKS) {
            return Err(outside());
        }
        let mut views = self.regions.lock();
        if views[rank as usize].is_none() {
            let state = self.allocator.state(DeviceRank(rank as u16));
            let (start, bytes) = state.ok_or_else(outside)?;
            views[rank as usize] = Some(Arc::new(self.backend.view(start, bytes)?));
        }
        Ok(())
    }
}

impl fmt::Debug for HostKernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostKernels")
    }
}

impl Kernels for HostKernels {
    fn run(&self, device: Device, stream: Stream, steps: Vec<Step>) -> Result<()> {
        for step in &steps {
            for address in step.addresses() {
                self.prepare(address)?;
            }
            if let Step::Await { counts, .. } = step {
                for &(_, count) in counts {
                    self.prepare(count)?;
                }
            }
        }
        let regions = Arc::clone(&self.regions);
        self.backend.enqueue(device, stream, move || {
            // What the stream did before and what it does next are ordered by the queue on a GPU.
            fence(Acquire);
            for step in &steps {
                if !regions.take(step) {
                    break;
                }
            }
            fence(Release);
        })
    }
}

impl Step {
    /// An address in each region that the step touches.
    fn addresses(&self) -> [u64; 2] {
        match *self {
            Step::Merge { target, source, .. } => [target, source],
            Step::Arrive { count: address, .. }
            | Step::Await {
                missing: address, ..
            }
            | Step::Words { address, .. }
            | Step::Zero { address, .. }
            | Step::Count { address, .. } => [address, 0],
        }
    }
}

impl Regions {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Option<Arc<View>>>> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The words of the region in which `address` lies.
    fn words(&self, address: u64) -> Option<Words> {
        let rank = address.checked_sub(self.base)? / STATE_STRIDE;
        let view = self.lock().get(rank as usize)?.clone()?;
        Some(Words {
            view,
            start: self.base + rank * STATE_STRIDE,
        })
    }

    /// Does a step. False if the ones after it are to be left out.
    fn take(&self, step: &Step) -> bool {
        if let Step::Await {
            counts,
            value,
            limit,
            missing,
        } = step
        {
            let late = self.wait(counts, *value, Duration::from_nanos(*limit));
            if late != 0
                && let Some(region) = self.words(*missing)
            {
                region.word(*missing).store(late, Relaxed);
            }
            return late == 0;
        }
        self.change(step);
        true
    }

    /// The ranks that do not come so far before the time limit, a bit each.
    fn wait(&self, counts: &[(u16, u64)], value: u32, limit: Duration) -> u32 {
        let start = Instant::now();
        loop {
            let mut late = 0;
            for &(rank, count) in counts {
                let there = self.words(count).is_some_and(|region| {
                    let found = region.word(count).load(Acquire);
                    found.wrapping_sub(value) <= u32::MAX / 2
                });
                late |= u32::from(!there) << rank;
            }
            if late == 0 || start.elapsed() >= limit {
                return late;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn change(&self, step: &Step) {
        match step {
            &Step::Merge {
                target,
                source,
                entries,
                source_filled,
                target_filled,
            } => {
                let (Some(to), Some(from)) = (self.words(target), self.words(source)) else {
                    return;
                };
                if source_filled != 0 && from.word(source_filled).load(Relaxed) == 0 {
                    return;
                }
                let mut merged = false;
                let pairs = to.range(target, entries).iter();
                for (target, source) in pairs.zip(from.range(source, entries)) {
                    let entry = ClockEntry::from_bits(source.load(Relaxed));
                    if !entry.is_empty() {
                        merge_word(target, entry, Relaxed);
                        merged = true;
                    }
                }
                if merged && target_filled != 0 {
                    to.word(target_filled).store(1, Relaxed);
                }
            }
            &Step::Arrive { count, value } => {
                if let Some(region) = self.words(count) {
                    region.word(count).store(value, Release);
                }
            }
            Step::Await { .. } => {}
            &Step::Zero { address, bytes } => {
                let Some(to) = self.words(address) else {
                    return;
                };
                for word in to.range(address, (bytes / 4) as u32) {
                    word.store(0, Relaxed);
                }
            }
            &Step::Count {
                address,
                stride,
                words,
                first,
            } => {
                let Some(to) = self.words(address) else {
                    return;
                };
                for at in 0..words {
                    let word = to.word(address + u64::from(at) * u64::from(stride));
                    word.store(first.wrapping_add(at), Relaxed);
                }
            }
            Step::Words { address, words } => {
                let Some(to) = self.words(*address) else {
                    return;
                };
                let first = ((address - to.start) / 8) as usize;
                for (target, &word) in to.view.words64()[first..].iter().zip(words) {
                    target.store(word, Relaxed);
                }
            }
        }
    }
}

impl Words {
    fn word(&self, address: u64) -> &AtomicU32 {
        &self.view.words32()[((address - self.start) / 4) as usize]
    }

    fn range(&self, address: u64, count: u32) -> &[AtomicU32] {
        let first = ((address - self.start) / 4) as usize;
        &self.view.words32()[first..][..count as usize]
    }
}
