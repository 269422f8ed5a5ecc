//! Frontiers: what a launch starts after, and where its completion goes.
//!
//! A frontier is a few *rows* that all CTAs of the launch share and never write: the row of its
//! own bank, a *foreign* row over all ids (what its stream's kernels acquired from elsewhere),
//! and rows of other banks that edges of the host brought, named and not copied. A completion is
//! an own-bank row and a foreign row, which CTAs fill as they exit.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::system::System;
use super::topology::Place;
use crate::atomics::{Atomic, Memory};
use crate::clock::{ClockEntry, Epoch, merge_word};
use crate::ids::{DeviceRank, LaunchId, ThreadId};
use crate::layout::launch_flags::FRONTIER_CARRIED;

/// The most launches that a dependent launch can overtake: a bit each in a publication.
pub const MAX_OVERTAKEN: usize = 16;

/// A clock row of one bank: an entry per slot.
#[derive(Debug)]
pub struct Row<'m, M: Memory> {
    /// The bank, counted over all devices.
    pub bank: u32,
    /// The entries.
    pub entries: &'m [M::U32],
}

/// Views are copied whatever the words they look at.
macro_rules! copied {
    ($($view:ident),*) => {$(
        impl<M: Memory> Clone for $view<'_, M> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<M: Memory> Copy for $view<'_, M> {}
    )*};
}

copied!(Row, Foreign, Rows, Overtaken, Launch);

impl<M: Memory> Row<'_, M> {
    #[inline]
    fn entry(&self, place: Place) -> ClockEntry {
        if place.bank == self.bank {
            ClockEntry::from_bits(self.entries[place.slot as usize].load(Relaxed))
        } else {
            ClockEntry::EMPTY
        }
    }
}

/// A clock row over all ids, with a word that says whether anything is in it.
#[derive(Debug)]
pub struct Foreign<'m, M: Memory> {
    /// Not 0 once an entry was made.
    pub filled: &'m M::U32,
    /// The entries.
    pub entries: &'m [M::U32],
}

impl<M: Memory> Foreign<'_, M> {
    #[inline]
    fn entry(&self, id: ThreadId) -> ClockEntry {
        if self.filled.load(Relaxed) == 0 {
            return ClockEntry::EMPTY;
        }
        ClockEntry::from_bits(self.entries[id.0 as usize].load(Relaxed))
    }
}

/// A stream's rows: one of its own bank, one over all ids.
#[derive(Debug)]
pub struct Rows<'m, M: Memory> {
    /// The own bank.
    pub own: Row<'m, M>,
    /// Everything else.
    pub foreign: Foreign<'m, M>,
}

impl<M: Memory> Rows<'_, M> {
    #[inline]
    fn covers(&self, place: Place, id: ThreadId, epoch: Epoch) -> bool {
        self.own.entry(place).covers(epoch) || self.foreign.entry(id).covers(epoch)
    }

    /// Adds `entry` for `place`, whose id is `id`.
    pub fn add(&self, place: Place, id: ThreadId, entry: ClockEntry) {
        if entry.is_empty() {
            return;
        }
        if place.bank == self.own.bank {
            merge_word(&self.own.entries[place.slot as usize], entry, Relaxed);
        } else {
            merge_word(&self.foreign.entries[id.0 as usize], entry, Relaxed);
            self.foreign.filled.store(1, Relaxed);
        }
    }

    /// Calls `entry` with everything that is known.
    pub fn for_each(&self, system: &System<M>, mut entry: impl FnMut(Place, ThreadId, ClockEntry)) {
        let bank = self.own.bank;
        let topology = system.topology();
        for slot in 0..system.high_water().of(bank) {
            let place = Place { bank, slot };
            entry(place, topology.id(place), self.own.entry(place));
        }
        if self.foreign.filled.load(Relaxed) != 0 {
            for place in system.high_water().places() {
                let id = topology.id(place);
                entry(place, id, self.foreign.entry(id));
            }
        }
    }
}

/// A launch of the same stream that a dependent launch may overtake.
#[derive(Debug)]
pub struct Overtaken<'m, M: Memory> {
    /// Where its completion goes.
    pub rows: Rows<'m, M>,
    /// How many of its CTAs have exited.
    pub exited: &'m M::U32,
    /// How many there are.
    pub ctas: u32,
}

/// What the CTAs of a launch share and change.
#[derive(Debug)]
pub struct LaunchState<M: Memory> {
    /// How many CTAs have started.
    pub(super) started: M::U32,
    /// How many CTAs have exited.
    pub exited: M::U32,
    /// Which rows have been carried over: a bit for each launch overtaken, and
    /// [`FRONTIER_CARRIED`].
    carried: M::U32,
    /// The snapshot of the starting frontier, as [`super::cta`] packs it.
    pub(super) frontier: M::U64,
}

impl<M: Memory> Default for LaunchState<M> {
    fn default() -> Self {
        LaunchState {
            started: M::U32::new(0),
            exited: M::U32::new(0),
            carried: M::U32::new(0),
            frontier: M::U64::new(0),
        }
    }
}

/// One launch, as its CTAs see it.
#[derive(Debug)]
pub struct Launch<'m, M: Memory> {
    /// Its number on its device.
    pub id: LaunchId,
    /// Its device.
    pub device: DeviceRank,
    /// The frontier: the own bank's row and the foreign row. The bank is that of this launch's
    /// CTAs.
    pub before: Rows<'m, M>,
    /// The frontier: rows of other banks.
    pub named: &'m [Row<'m, M>],
    /// Where the completion goes. Not the memory of `before`.
    pub after: Rows<'m, M>,
    /// Launches that it may overtake, at most [`MAX_OVERTAKEN`].
    pub overtaken: &'m [Overtaken<'m, M>],
    /// Which of them `griddepcontrol.wait` waits for.
    pub waits_for: Option<usize>,
    /// What its CTAs share and change.
    pub state: &'m LaunchState<M>,
}

impl<M: Memory> Launch<'_, M> {
    /// The bank of its CTAs.
    pub const fn bank(&self) -> u32 {
        self.before.own.bank
    }

    /// The launches overtaken that a CTA with the bits `taken` knows to be complete.
    fn taken(&self, taken: u16) -> impl Iterator<Item = &Overtaken<'_, M>> {
        self.overtaken
            .iter()
            .enumerate()
            .filter(move |(index, _)| taken >> index & 1 != 0)
            .map(|(_, overtaken)| overtaken)
    }

    /// The bits of the launches overtaken whose CTAs have all exited.
    pub(super) fn complete(&self) -> u16 {
        let mut bits = 0;
        for (index, overtaken) in self.overtaken.iter().enumerate() {
            // Acquires the rows that the last CTA filled before it counted itself.
            if overtaken.exited.load(Acquire) >= overtaken.ctas {
                bits |= 1 << index;
            }
        }
        bits
    }

    /// Whether the frontier, and the completions in `taken`, cover `epoch` of `id` at `place`.
    #[inline]
    pub(super) fn covers(&self, taken: u16, place: Place, id: ThreadId, epoch: Epoch) -> bool {
        self.before.covers(place, id, epoch)
            || self.named.iter().any(|row| row.entry(place).covers(epoch))
            || (taken != 0 && self.taken(taken).any(|o| o.rows.covers(place, id, epoch)))
    }

    /// The part of `entry` that the frontier and the completions in `taken` do not cover, or a
    /// little more.
    pub(super) fn cut(
        &self,
        taken: u16,
        place: Place,
        id: ThreadId,
        entry: ClockEntry,
    ) -> ClockEntry {
        let mut entry = entry
            .cut(self.before.own.entry(place))
            .cut(self.before.foreign.entry(id));
        for row in self.named {
            entry = entry.cut(row.entry(place));
        }
        for overtaken in self.taken(taken) {
            entry = entry
                .cut(overtaken.rows.own.entry(place))
                .cut(overtaken.rows.foreign.entry(id));
        }
        entry
    }

    /// Calls `entry` with everything that the frontier and the completions in `taken` cover.
    pub(super) fn for_each(
        &self,
        system: &System<M>,
        taken: u16,
        mut entry: impl FnMut(Place, ThreadId, ClockEntry),
    ) {
        self.before.for_each(system, &mut entry);
        for row in self.named {
            for slot in 0..system.high_water().of(row.bank) {
                let place = Place {
                    bank: row.bank,
                    slot,
                };
                entry(place, system.topology().id(place), row.entry(place));
            }
        }
        for overtaken in self.taken(taken) {
            overtaken.rows.for_each(system, &mut entry);
        }
    }

    /// A CTA that knew the completions in `taken` exits: one CTA carries each of them over into
    /// the completion, and one the frontier's own rows. Rows of other banks stay named by the
    /// host.
    pub(super) fn carry(&self, system: &System<M>, taken: u16) {
        let wanted = FRONTIER_CARRIED | u32::from(taken);
        let before = self.state.carried.load(Relaxed);
        if before & wanted == wanted {
            return;
        }
        let mine = wanted & !self.state.carried.fetch_or(wanted, Relaxed);
        let mut add = |place, id, entry| self.after.add(place, id, entry);
        if mine & FRONTIER_CARRIED != 0 {
            self.before.for_each(system, &mut add);
        }
        for overtaken in self.taken(mine as u16) {
            overtaken.rows.for_each(system, &mut add);
        }
    }

    /// A CTA has filled in what it knew.
    pub(super) fn count_exit(&self) {
        self.state.exited.fetch_add(1, Release);
    }
}
