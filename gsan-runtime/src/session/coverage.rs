//! What was checked, and what was lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use gsan_core::loss::{Loss, Losses};
use gsan_sync::Ordering;
use gsan_vmm::Allocator;
use serde::Serialize;

use super::Session;
use super::layout::globals;
use crate::error::Result;
use crate::part::Checked;

/// What a session has done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Launches that were given to their streams.
    pub launches: u64,
    /// Launches that became nodes of captured graphs.
    pub launches_captured: u64,
    /// Launches that were begun and not given to their streams.
    pub launches_taken_back: u64,
    /// Launches that ran unchecked: memory for clock rows was short, or a capture holds launches of
    /// a second device.
    pub launches_unchecked: u64,
    /// Accesses that were checked, of CTAs that have exited.
    pub accesses: u64,
    /// Live allocations.
    pub allocations: u64,
    /// Bytes of live allocations.
    pub allocated_bytes: u64,
    /// Bytes of live allocations without shadow.
    pub unmanaged_bytes: u64,
    /// How many allocations were ever handed out without shadow.
    pub unmanaged_ever: u64,
    /// Freed bytes that wait for their streams.
    pub waiting_bytes: u64,
    /// Frees that were refused.
    pub refused_frees: u64,
    /// How often everything was forgotten because counters were half worn.
    pub restarts: u64,
    /// The seed of sampling.
    pub seed: u64,
    /// Each limit that was met: how often, what it means, and its cure.
    pub losses: Vec<LossLine>,
}

/// A limit that was met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LossLine {
    /// Its name.
    pub loss: &'static str,
    /// How often.
    pub times: u64,
    /// What happened.
    pub meaning: String,
    /// What to change.
    pub cure: &'static str,
}

/// Counts what was checked, for whoever asks; it outlives the session's calls.
pub(super) struct Coverage {
    allocator: Arc<Allocator>,
    ordering: Ordering,
    seed: u64,
    /// Bytes with and without shadow, at most at one time.
    most_covered: AtomicU64,
    most_uncovered: AtomicU64,
}

impl Coverage {
    pub(super) fn new(allocator: &Arc<Allocator>, ordering: &Ordering, seed: u64) -> Coverage {
        Coverage {
            allocator: Arc::clone(allocator),
            ordering: ordering.clone(),
            seed,
            most_covered: AtomicU64::new(0),
            most_uncovered: AtomicU64::new(0),
        }
    }

    /// Looks at how much memory is live.
    pub(super) fn look_at_memory(&self) {
        let memory = self.allocator.usage();
        let covered = memory.live_bytes.saturating_sub(memory.unmanaged_bytes);
        self.most_covered.fetch_max(covered, Relaxed);
        self.most_uncovered
            .fetch_max(memory.unmanaged_bytes, Relaxed);
    }

    /// What was checked and lost. It reads memory of the devices.
    pub(super) fn checked(&self) -> Result<Checked> {
        let mut losses = Losses::default();
        let mut accesses = 0u64;
        for device in self.ordering.used_devices() {
            let globals = globals(&self.allocator, &self.ordering, device)?;
            accesses = accesses.saturating_add(globals.accesses.value);
            for loss in Loss::ALL {
                losses.add(loss, globals.losses[loss as usize]);
            }
        }
        self.ordering.look_for_never_waited()?;
        let counts = self.ordering.counts();
        losses.add(Loss::SharedBank, counts.shared_banks);
        losses.add(Loss::NeverWaited, counts.never_waited);
        losses.add(Loss::OpaqueLaunch, counts.opaque);
        losses.add(Loss::UncheckedLaunch, counts.unchecked);
        losses.add(Loss::Unmanaged, self.allocator.usage().unmanaged_ever);
        self.look_at_memory();
        Ok(Checked {
            losses,
            launches: counts.launches,
            accesses,
            covered_bytes: self.most_covered.load(Relaxed),
            uncovered_bytes: self.most_uncovered.load(Relaxed),
            seed: self.seed,
        })
    }
}

impl Session {
    /// How often each limit was met. It reads memory of the devices.
    ///
    /// # Errors
    /// When a device fails.
    pub fn losses(&self) -> Result<Losses> {
        Ok(self.coverage.checked()?.losses)
    }

    /// What the session has done so far. It reads memory of the devices.
    ///
    /// # Errors
    /// When a device fails.
    pub fn usage(&self) -> Result<Usage> {
        let checked = self.coverage.checked()?;
        let memory = self.allocator.usage();
        let counts = self.ordering.counts();
        let line = |(loss, times): (Loss, u64)| {
            let name = gsan_report::loss::LossName(loss);
            LossLine {
                loss: loss.name(),
                times,
                meaning: name.meaning(times),
                cure: name.cure(),
            }
        };
        Ok(Usage {
            launches: counts.launches,
            launches_captured: counts.captured,
            launches_taken_back: counts.taken_back,
            launches_unchecked: counts.unchecked,
            accesses: checked.accesses,
            allocations: memory.live as u64,
            allocated_bytes: memory.live_bytes,
            unmanaged_bytes: memory.unmanaged_bytes,
            unmanaged_ever: memory.unmanaged_ever,
            waiting_bytes: memory.waiting_bytes,
            refused_frees: self.refused_frees.load(Relaxed),
            restarts: counts.restarts,
            seed: self.seed,
            losses: checked.losses.met().map(line).collect(),
        })
    }
}
