//! The exact detector: full histories per byte, all readers, the PTX memory model.
//!
//! It is the oracle of the compressed detector, and what `gsan check` runs with single GPU threads
//! as the unit ([`Unit`]).
//!
//! # Rules of the PTX ISA's chapter "Memory Consistency Model", and where they are
//!
//! | section | what it says | where |
//! | --- | --- | --- |
//! | Overlap | strong accesses share a location only if start and size agree | `history`, `Tag` |
//! | Vector Data Types | elements are accesses of their own | the caller splits them |
//! | Scope | which threads a scope includes | `past`, `Position` |
//! | Proxies | async copies see generic writes only through a proxy fence | `units`, `Viewer` |
//! | Morally Strong Operations | both strong, each in the other's scope, complete overlap | `history`, `past` |
//! | Conflict and Data-races | overlap, a write, no causality, not morally strong | `history` |
//! | Release and Acquire Patterns | operation; operation and strong write; fence and strong write, and their mirror images | `location`, this module |
//! | Observation Order | a write reaches a read through atomic operations | `location` |
//! | Fence-SC Order | here the order in which the `fence.sc` were executed | this module |
//! | Memory synchronization | barriers, patterns, launches | this module, `units` |
//! | Causality Order | base causality, and one step of observation before it | `units`, `location` |
//! | Asynchronous Operations | a copy is ordered after what its thread did before, and before nothing but its completion | `units` |
//! | Reductions do not form Acquire Patterns | `red` observes, and acquires nothing | this module |
//!
//! # How it differs from the axioms
//!
//! The detector is told one interleaving, in which a read returns the newest write. The axioms
//! allow more executions: reads of older values, and `fence.sc` in another order than the
//! execution's. A race that only such an execution has is found only if some interleaving has it
//! too. What the detector reports is a race of the execution it was told, with these exceptions,
//! all towards "ordered":
//!
//! - Of strong writes of one unit to one location, alike in all but time, the newest stands for
//!   all: who is ordered after it counts as ordered after the older ones.
//! - Atomicity, coherence and values play no part: a program with a race of mixed sizes, to which
//!   the axioms do not apply, is treated like any other.
//! - Who is ordered after an asynchronous copy counts as ordered after what the copy overwrote, if
//!   the copy was, and after the copies that read the same before it. (The completion of a copy
//!   says nothing about what came before it, but the bytes can only come from the copy.)
//! - A generic read needs no proxy fence before an asynchronous write that is ordered after it.
//! - Barrier and mbarrier operations count as morally strong whatever their scopes.
//! - Kernel boundaries order every proxy.
//!
//! # Memory
//!
//! Clocks are persistent trees that share what is equal (`tree`); granules that were treated
//! alike share one history (`shadow`); what a covering ordered write makes irrelevant is
//! dropped. So memory grows with the granules and units that differ, and never with the square of
//! the units.

mod history;
mod location;
mod past;
mod shadow;
mod tree;
mod units;

#[cfg(test)]
mod tests;

use history::{Conflict, Tag};
use past::Published;
use shadow::{PAGE_BYTES, Shadow};
use units::{Actor, COPY_READS, COPY_WRITES, Phases, UnitRef, Units, Viewer};

use crate::address::granules;
use crate::event::{
    Access, Action, Completion, Detector, Event, EventError, FenceKind, Meeting, Proxy, Range,
    Space,
};
use crate::host_order::HostOrder;
use crate::ids::{AsyncId, SiteId, Thread};
use crate::loss::Losses;
use crate::race::{Race, RaceKind, Side};
use crate::scope::Scope;

/// Who races.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Single GPU threads.
    Thread,
    /// CTAs: accesses within one CTA never race, and the CTA has one clock.
    Cta,
}

/// The exact detector.
#[derive(Debug)]
pub struct Exact {
    units: Units,
    host: HostOrder,
    shadow: Shadow,
    /// What earlier `fence.sc` released to later ones.
    sequential: Published,
    found: Found,
}

/// The races found, with neighbouring parts of one access joined.
#[derive(Debug, Default)]
struct Found {
    races: Vec<Race>,
    /// Where the races of the present access begin.
    present: usize,
}

impl Found {
    fn push(&mut self, race: Race) {
        let same = self.races[self.present..].iter_mut().find(|known| {
            (known.kind, known.earlier, known.later) == (race.kind, race.earlier, race.later)
                && known.address + u64::from(known.bytes) == race.address
        });
        match same {
            Some(known) => known.bytes += race.bytes,
            None => self.races.push(race),
        }
    }
}

impl Exact {
    /// A detector that knows of nothing yet.
    pub fn new(unit: Unit) -> Self {
        Exact {
            units: Units::new(unit),
            host: HostOrder::new(),
            shadow: Shadow::new(),
            sequential: Published::default(),
            found: Found::default(),
        }
    }

    fn access(&mut self, access: &Access) -> Result<(), EventError> {
        let unit = self.units.find(access.thread)?;
        check_range(access.range)?;
        self.found.present = self.found.races.len();
        if access.order.is_strong() {
            self.strong(access, unit);
        } else {
            self.weak(access, unit);
        }
        Ok(())
    }

    fn weak(&mut self, access: &Access, unit: UnitRef) {
        let actor = self.units.actor(unit);
        actor.touch();
        let step = WeakStep {
            units: &self.units,
            viewer: self.units.viewer(unit, &actor.past),
            recorded: (unit.unit, actor.epoch()),
            version: actor.version,
        };
        let Range {
            space,
            address,
            bytes,
        } = access.range;
        for part in granules(address, bytes.into()) {
            let tag = Tag::weak(access.site, part.mask, access.action);
            step.take(&mut self.shadow, &mut self.found, space, part.granule, tag);
        }
    }

    fn strong(&mut self, access: &Access, unit: UnitRef) {
        let Range {
            space,
            address,
            bytes,
        } = access.range;
        for part in granules(address, bytes.into()) {
            let tag = Tag::strong(
                access.site,
                part.mask,
                access.action,
                access.order,
                access.scope,
                bytes,
            );
            self.strong_part(unit, space, part.granule, tag);
        }
    }

    fn strong_part(&mut self, unit: UnitRef, space: Space, granule: u64, tag: Tag) {
        let place = self.shadow.granule(space, granule);
        let history = self.shadow.own_history(place);
        let mut actor = std::mem::take(self.units.actor_mut(unit));
        let epoch = actor.epoch();
        if tag.action().returns_value() {
            let location = history.location(tag);
            let mut seen = location.read(tag, unit.position);
            if tag.order().acquires() {
                let earlier = location.take_seen(unit.unit);
                seen.join_new(&earlier, &actor.past);
                for past in seen.up_to(tag.scope()) {
                    actor.acquire(past);
                }
            }
            seen.drop_known(&actor.past);
            if !seen.is_empty() {
                location.remember_seen(unit.unit, &seen, &actor.past);
                let fences = actor.fences.get_or_insert_default();
                fences.seen.join_new(&seen, &actor.past);
            }
        }
        let viewer = self.units.viewer(unit, &actor.past);
        history.conflicts(tag, &viewer, &self.units, &mut |conflict| {
            let race = race(&self.units, unit.unit, space, granule, conflict, tag);
            self.found.push(race);
        });
        history.record_strong(tag, unit.unit, epoch);
        if tag.action().reads() {
            history.location(tag).observe(tag, &viewer, epoch);
        }
        actor.touch();
        if tag.action().writes() {
            history.strong_write(tag);
            let release = tag.order().releases().then(|| actor.release(unit.unit));
            let viewer = self.units.viewer(unit, &actor.past);
            let fences = actor.fences.as_ref().map(|fences| &fences.released);
            let location = history.location(tag);
            location.write(tag, &viewer, fences, release.as_ref());
        }
        history.location(tag).drop_dead(&self.units);
        *self.units.actor_mut(unit) = actor;
    }

    fn fence(&mut self, thread: Thread, kind: FenceKind, scope: Scope) -> Result<(), EventError> {
        let unit = self.units.find(thread)?;
        let actor = self.units.actor_mut(unit);
        if kind == FenceKind::ProxyAsync {
            actor.proxy_fence(unit.unit);
            return Ok(());
        }
        let sequential = kind == FenceKind::Sc;
        if kind != FenceKind::Release {
            let fences = actor.fences.get_or_insert_default();
            let seen = std::mem::take(&mut fences.seen);
            for past in seen.up_to(scope) {
                actor.acquire(past);
            }
            if sequential {
                let earlier = self.sequential.seen_from(unit.position);
                for past in earlier.up_to(scope) {
                    actor.acquire(past);
                }
            }
            let Actor { past, fences, .. } = actor;
            fences.get_or_insert_default().seen.join_new(&seen, past);
        }
        if kind != FenceKind::Acquire {
            let past = actor.release(unit.unit);
            let fences = actor.fences.get_or_insert_default();
            fences.released.join_at(scope, &past);
            if sequential {
                self.sequential.add(unit.position, scope, &past);
            }
        }
        Ok(())
    }

    fn arrive(&mut self, thread: Thread, at: Meeting, releases: bool) -> Result<(), EventError> {
        let unit = self.units.find(thread)?;
        self.units.meeting(at)?;
        let actor = self.units.actor_mut(unit);
        if releases {
            let past = actor.release(unit.unit);
            self.units.meeting(at)?.running.released.join(&past);
        } else if let Some(fences) = &actor.fences {
            let released = fences.released.clone();
            let running = &mut self.units.meeting(at)?.running;
            running.by_fences.add_all(unit.position, &released);
        }
        Ok(())
    }

    fn leave(&mut self, thread: Thread, at: Meeting, acquires: bool) -> Result<(), EventError> {
        let unit = self.units.find(thread)?;
        let completed = &self.units.meeting(at)?.completed;
        let mut seen = completed.by_fences.seen_from(unit.position);
        seen.join_at(Scope::Cta, &completed.released);
        let actor = self.units.actor_mut(unit);
        if acquires {
            for past in seen.up_to(Scope::Cluster) {
                actor.acquire(past);
            }
        }
        let Actor { past, fences, .. } = actor;
        seen.drop_known(past);
        if !seen.is_empty() {
            fences.get_or_insert_default().seen.join_new(&seen, past);
        }
        Ok(())
    }

    fn issue(
        &mut self,
        thread: Thread,
        id: AsyncId,
        copy: &CopyRanges<'_>,
    ) -> Result<(), EventError> {
        let unit = self.units.find(thread)?;
        for range in copy.reads.iter().chain(copy.writes) {
            check_range(*range)?;
        }
        let number = self.units.issue(id, thread, unit)?;
        let actor = self.units.actor(unit);
        let step = |epoch| WeakStep {
            units: &self.units,
            viewer: self
                .units
                .viewer(unit, &actor.past)
                .of_copy(number, copy.proxy),
            recorded: (number, epoch),
            version: 0,
        };
        let sides = [
            (copy.reads, Action::Read, step(COPY_READS)),
            (copy.writes, Action::Write, step(COPY_WRITES)),
        ];
        for (ranges, action, step) in sides {
            for range in ranges {
                self.found.present = self.found.races.len();
                for part in granules(range.address, range.bytes.into()) {
                    let tag = Tag::weak(copy.site, part.mask, action).asynchronous(copy.proxy);
                    let (shadow, found) = (&mut self.shadow, &mut self.found);
                    step.take(shadow, found, range.space, part.granule, tag);
                }
            }
        }
        Ok(())
    }

    fn forget(&mut self, range: Range) -> Result<(), EventError> {
        check_range(range)?;
        let (start, end) = (range.address, range.address + u64::from(range.bytes));
        let pages = start.div_ceil(PAGE_BYTES)..end / PAGE_BYTES;
        let edges = if pages.is_empty() {
            [start..end, end..end]
        } else {
            self.shadow.forget_pages(range.space, pages.clone());
            [start..pages.start * PAGE_BYTES, pages.end * PAGE_BYTES..end]
        };
        for edge in edges {
            for part in granules(edge.start, edge.end - edge.start) {
                self.shadow.forget(range.space, part.granule, part.mask);
            }
        }
        Ok(())
    }
}

/// What an asynchronous copy does.
struct CopyRanges<'a> {
    reads: &'a [Range],
    writes: &'a [Range],
    proxy: Proxy,
    site: SiteId,
}

/// A weak access, applied granule by granule.
struct WeakStep<'a> {
    units: &'a Units,
    viewer: Viewer<'a>,
    /// Under which unit (or copy) and epoch the access is recorded.
    recorded: (u32, u32),
    version: u32,
}

impl WeakStep<'_> {
    fn take(&self, shadow: &mut Shadow, found: &mut Found, space: Space, granule: u64, tag: Tag) {
        let (unit, epoch) = self.recorded;
        let place = shadow.granule(space, granule);
        let what = (tag, unit, self.version);
        if shadow.repeat(place, what) {
            return;
        }
        let mut clean = true;
        let history = shadow.history(place);
        history.conflicts(tag, &self.viewer, self.units, &mut |conflict| {
            clean = false;
            let race = race(self.units, unit, space, granule, conflict, tag);
            found.push(race);
        });
        if history.is_plain() && clean && shadow.is_worth_remembering() {
            let from = shadow.before(place);
            let history = shadow.own_history(place);
            history.record_weak(tag, unit, epoch, &self.viewer);
            shadow.remember(from, place, what);
        } else {
            let history = shadow.own_history(place);
            history.record_weak(tag, unit, epoch, &self.viewer);
        }
    }
}

fn race(
    units: &Units,
    unit: u32,
    space: Space,
    granule: u64,
    conflict: Conflict,
    later: Tag,
) -> Race {
    let side = |tag: Tag, unit| Side {
        who: units.who(unit, tag.is_asynchronous()),
        action: tag.action(),
        order: tag.order(),
        scope: tag.is_strong().then(|| tag.scope()),
        asynchronous: tag.is_asynchronous(),
        site: tag.site(),
    };
    let mask = conflict.mask;
    Race {
        kind: RaceKind::of(conflict.tag.action(), later.action())
            .expect("accesses conflict only if one of them writes"),
        space,
        address: granule + u64::from(mask.trailing_zeros()),
        bytes: 8 - mask.leading_zeros() - mask.trailing_zeros(),
        earlier: side(conflict.tag, conflict.unit),
        later: side(later, unit),
    }
}

fn check_range(range: Range) -> Result<(), EventError> {
    let Range { address, bytes, .. } = range;
    if bytes == 0 || address.checked_add(bytes.into()).is_none() {
        return Err(EventError::BadRange { address, bytes });
    }
    Ok(())
}

impl Detector for Exact {
    fn on(&mut self, event: &Event) -> Result<(), EventError> {
        match event {
            Event::Access(access) => self.access(access),
            Event::AtomicBegin(_) | Event::AtomicEnd(_) => Ok(()),
            Event::Fence {
                thread,
                kind,
                scope,
            } => self.fence(*thread, *kind, *scope),
            Event::Arrive {
                thread,
                at,
                releases,
            } => self.arrive(*thread, *at, *releases),
            Event::PhaseComplete(at) => {
                let phases = self.units.meeting(*at)?;
                phases.completed = std::mem::take(&mut phases.running);
                Ok(())
            }
            Event::Leave {
                thread,
                at,
                acquires,
            } => self.leave(*thread, *at, *acquires),
            Event::MeetingReset(at) => {
                *self.units.meeting(*at)? = Phases::default();
                Ok(())
            }
            Event::AsyncIssue {
                thread,
                id,
                reads,
                writes,
                proxy,
                site,
            } => {
                let copy = CopyRanges {
                    reads,
                    writes,
                    proxy: *proxy,
                    site: *site,
                };
                self.issue(*thread, *id, &copy)
            }
            Event::AsyncWait {
                thread,
                id,
                completion,
            } => {
                let past = self.units.copied(*id, *completion)?;
                let unit = self.units.find(*thread)?;
                self.units.actor_mut(unit).acquire(&past);
                Ok(())
            }
            Event::AsyncArrive { id, at } => {
                let past = self.units.copied(*id, Completion::Full)?;
                self.units.meeting(*at)?.running.released.join(&past);
                Ok(())
            }
            Event::Forget(range) => self.forget(*range),
            Event::Host(event) => {
                self.host.host(*event);
                Ok(())
            }
            Event::Launch(launch) => {
                self.units.check_launch(launch)?;
                let start = self.host.launch(launch);
                self.units.launch(launch, start);
                Ok(())
            }
            Event::CtaStart { cta, .. } => self.units.start(*cta),
            Event::CtaExit(cta) => {
                self.units.exit(*cta)?;
                self.shadow.forget_cta(*cta);
                Ok(())
            }
            Event::GridDependencyWait(thread) => {
                let unit = self.units.find(*thread)?;
                if let Some(past) = self.units.waited_for(unit) {
                    self.units.actor_mut(unit).acquire(&past);
                }
                Ok(())
            }
        }
    }

    fn take_races(&mut self) -> Vec<Race> {
        self.found.present = 0;
        std::mem::take(&mut self.found.races)
    }

    fn losses(&self) -> Losses {
        Losses::default()
    }
}
