//! Cluster barriers and mbarriers: arrivals release into the running phase, completed waits
//! acquire the phase.
//!
//! The counts mirror the hardware's, as far as arrivals are reported. They may lag behind, by any
//! number of phases, or be ahead; a wait that has returned proves that its phase is complete,
//! whatever the mirror says. So a wait for a parity takes all arrivals so far: which of them belong
//! to its phase cannot be told, and missing one would invent a race.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::cta::{Cta, sync_of};
use crate::atomics::{Atomic, Memory};
use crate::layout::{self, meeting_codes::COUNT_BITS};
use crate::loss::Loss;
use crate::record::RecordScope;

/// One barrier object.
#[derive(Debug)]
pub struct Meeting<'m, M: Memory> {
    /// [`layout::Meeting`].
    words: &'m [M::U64],
}

const COUNT: u64 = (1 << COUNT_BITS) - 1;

impl<'m, M: Memory> Meeting<'m, M> {
    /// 64-bit words of a barrier object.
    pub const WORDS: usize = size_of::<layout::Meeting>() / 8;

    /// The barrier object in `words`.
    pub fn new(words: &'m [M::U64]) -> Self {
        debug_assert_eq!(words.len(), Self::WORDS);
        Meeting { words }
    }

    const fn arrivals(&self) -> &'m M::U64 {
        &self.words[layout::Meeting::ARRIVALS]
    }

    const fn of_parity(&self, parity: u32) -> &'m M::U64 {
        &self.words[layout::Meeting::COMPLETE + (parity % 2) as usize]
    }

    const fn count(&self) -> &'m M::U64 {
        &self.words[layout::Meeting::COUNT]
    }

    /// Initialised, again or for the first time: `expected` arrivals complete a phase, or none
    /// ever do if it is 0. Phase 0 runs.
    pub fn reset(&self, expected: u32) {
        self.arrivals().store(0, Relaxed);
        for parity in [0, 1] {
            self.of_parity(parity).store(0, Relaxed);
        }
        let expected = u64::from(expected) & COUNT;
        self.count()
            .store(expected << COUNT_BITS | expected, Release);
    }

    /// `count` arrivals are about to happen; `releases` says whether they publish.
    pub fn arrive(&self, cta: Cta<'_, M>, releases: bool, count: u32) {
        if releases {
            cta.publish_into(self.arrivals(), u8::MAX, RecordScope::Gpu);
        }
        let mut state = self.count().load(Acquire);
        loop {
            let (pending, expected) = (state >> COUNT_BITS & COUNT, state & COUNT);
            if expected == 0 {
                return;
            }
            let left = pending.saturating_sub(count.into());
            if left == 0 {
                self.complete(state);
                return;
            }
            let next = state & !(COUNT << COUNT_BITS) | left << COUNT_BITS;
            match self.count().compare_exchange(state, next, AcqRel, Acquire) {
                Ok(_) => return,
                Err(other) => state = other,
            }
        }
    }

    /// The running phase is complete.
    pub fn complete_phase(&self) {
        self.complete(self.count().load(Acquire));
    }

    /// The phase that runs according to `state` is complete, unless somebody else says so.
    fn complete(&self, state: u64) {
        let (phase, expected) = (state >> (2 * COUNT_BITS), state & COUNT);
        let arrivals = self.arrivals().load(Acquire);
        self.of_parity(phase as u32).store(arrivals, Release);
        let phase = (phase + 1) & (u64::MAX >> (2 * COUNT_BITS));
        let next = phase << (2 * COUNT_BITS) | expected << COUNT_BITS | expected;
        let _ = self.count().compare_exchange(state, next, AcqRel, Relaxed);
    }

    /// A wait for the phase of `parity` has returned. It acquires that phase, and what has arrived
    /// for later ones by now.
    pub fn wait(&self, cta: Cta<'_, M>, parity: u32) {
        let state = self.count().load(Acquire);
        if (state >> (2 * COUNT_BITS)) & 1 == u64::from(parity & 1) {
            cta.count(Loss::BarrierMismatch);
            self.complete(state);
        }
        Self::acquire(cta, self.arrivals());
    }

    /// A wait for the newest completed phase has returned. Only for phases that an event completes
    /// ([`Self::complete_phase`]): then the mirror is exact.
    pub fn wait_newest(&self, cta: Cta<'_, M>) {
        let phase = self.count().load(Acquire) >> (2 * COUNT_BITS);
        Self::acquire(cta, self.of_parity((phase as u32).wrapping_sub(1)));
    }

    fn acquire(cta: Cta<'_, M>, word: &M::U64) {
        if let Some(arrivals) = sync_of(word.load(Acquire)) {
            cta.acquire(arrivals);
        }
    }
}

#[cfg(test)]
mod tests;
